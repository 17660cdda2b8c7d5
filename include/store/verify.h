/*
 * verify: a store's journal checked from its first byte to its last, and its
 * index compared with it, while others write.  Never changes the store; see
 * store/reader.h.
 */
#ifndef STORE_VERIFY_H
#define STORE_VERIFY_H

#include <stdint.h>

#include "ground/watch.h"
#include "store/reader.h"

#define VERIFY_STOPPED (-1)

/* Of the index.  Whatever is not EQUAL here is no damage. */
enum verify_index {
	VERIFY_INDEX_EQUAL,    /* has what the journal has, and nothing else */
	VERIFY_INDEX_BEHIND,   /* the same, but lacks the last plants */
	VERIFY_INDEX_NONE,     /* a file, or without lock file and index, as a
				  copy that was never served */
	VERIFY_INDEX_MISSING,  /* was removed */
	VERIFY_INDEX_FOREIGN,  /* of another store, journal or boot */
	VERIFY_INDEX_REPLACED, /* while it was read */
};

struct verify_report {
	struct reader_report journal; /* what was read */
	enum verify_index index;
};

/*
 * verify_store(path, watch, report):
 * Check every line of the journal in the directory `path`, or of the journal
 * file `path`: checksum, form, chain and order.  Then compare the index, if
 * there is one, with what was stored when this began.  Constant memory; the
 * lock is held for some milliseconds at a time.
 *
 * Return 0; a status of sysexits.h, logged, EX_DATAERR for damage: the offset
 * of the first line that does not hold and why, or the first plant that the
 * index lacks or misplaces; VERIFY_STOPPED if the watch ended it.  What a torn
 * batch left behind the last line is no damage: it is logged.  `watch` may be
 * NULL.  `report` is set on 0, and report->journal on VERIFY_STOPPED.
 */
int verify_store(
    const char *path, const struct watch *watch, struct verify_report *report);

#endif
