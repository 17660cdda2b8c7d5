/*
 * copy: a store's journal copied while others write.  Never changes the store;
 * see store/reader.h.
 */
#ifndef STORE_COPY_H
#define STORE_COPY_H

#include <stdint.h>

#include "ground/watch.h"
#include "pure/record.h"

#define COPY_STOPPED (-1)

struct copy_report {
	uint64_t plants;                 /* in the copy */
	uint64_t bytes;                  /* of the copy */
	uint64_t added;                  /* bytes that it did not have before */
	char store[RECORD_UUID_LEN + 1]; /* its uuid */
};

/*
 * copy_backup(from, dest, watch, report):
 * Copy the journal in the directory `from`, or the journal file `from`, to the
 * directory `dest`, which is made if there is none: every plant that was
 * acknowledged before the call, each line checked on its way, synced before
 * this returns.  If `dest` has an earlier copy of the same store, that is
 * checked and the rest is added.  `dest` is then a store that can be served; a
 * copy of another store, or one that holds more, is refused, and so is one that
 * was put into service, before or meanwhile.  `watch` may be NULL.  Return 0; a
 * status of sysexits.h, logged; COPY_STOPPED if the watch ended it.  Unless it
 * is 0, `dest` is as before, or holds an earlier state whole.
 */
int copy_backup(const char *from, const char *dest, const struct watch *watch,
    struct copy_report *report);

#endif
