/*
 * verify: a store's journal checked from its first byte to its last, and its
 * index compared with it, while others write.  Never changes the store.
 */
#ifndef STORE_VERIFY_H
#define STORE_VERIFY_H

#include <stdint.h>

#include "ground/watch.h"
#include "store/reader.h"

#define VERIFY_STOPPED (-1)

struct verify_report {
	struct reader_report journal; /* what was read */
};

/*
 * verify_store(path, watch, report):
 * Check every line of the journal in the directory `path`, or of the journal
 * file `path`: checksum, form, chain and order.  Return 0; a status of
 * sysexits.h, logged, EX_DATAERR if it is damaged, with the offset of the first
 * line that does not hold and why; VERIFY_STOPPED if the watch ended it.  What a
 * torn batch left behind the last line is no damage: it is logged.  `watch` may
 * be NULL.  `report` is set on 0 and on VERIFY_STOPPED.
 */
int verify_store(
    const char *path, const struct watch *watch, struct verify_report *report);

#endif
