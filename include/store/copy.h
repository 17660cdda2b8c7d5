/*
 * copy: a store's journal copied while others write.  Never changes the store;
 * see store/reader.h.
 */
#ifndef STORE_COPY_H
#define STORE_COPY_H

#include "store/reader.h"

struct copy_report {
	struct reader_report copy;
	uint64_t added; /* bytes that DEST did not have */
};

/*
 * copy_backup(from, dest, watch, report):
 * Copy the journal in the directory `from`, or the journal file `from`, to the
 * directory `dest`, which is made if there is none: every plant that was
 * acknowledged before the call, each line checked before it is copied, synced
 * before this returns.  The copy is written beside an earlier one of the
 * same store and then takes its name, so that a hard link to the earlier one
 * keeps its bytes.  `dest` is then a store that can be served.
 *
 * FAULT_OUTPUT: `dest` has a copy of another store, or one that is no part of
 * this one, or was served, or it cannot be written.  FAULT_SETUP: `dest` or its
 * plants.jsonl belongs to another user than root and the caller, or the latter
 * is no file or is the journal itself.  After a fault, also FAULT_STOPPED by
 * the watch, which may be NULL, `dest` has what it had before.
 */
enum fault copy_backup(const char *from, const char *dest,
    const struct watch *watch, struct copy_report *report);

#endif
