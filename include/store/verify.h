/*
 * verify: a store's journal checked from its first byte to its last, and its
 * index compared with it, while others write.  Never changes the store; see
 * store/reader.h.
 */
#ifndef STORE_VERIFY_H
#define STORE_VERIFY_H

#include "store/reader.h"

struct verify_report {
	struct reader_report journal; /* what was read */
	enum reader_index index;      /* no damage, whatever it is */
};

/*
 * verify_store(path, watch, report):
 * Check every line of the journal in the directory `path`, or of the journal
 * file `path`: checksum, form, chain and order, and that no id stands twice.
 * Then compare the index, if there is one, with what was stored when this
 * began.  The ids are in a file without a name in /var/tmp, 16 bytes each; the
 * lock is held for some milliseconds at a time.  `watch` may be NULL.
 *
 * FAULT_DAMAGED, logged: the offset of the first line that does not hold and
 * why, the ids that stand twice, or the first plant that the index does not
 * have in its place.  A torn tail is logged, and no damage.  `report` is set on
 * FAULT_NONE, and report->journal on FAULT_STOPPED.
 */
enum fault verify_store(
    const char *path, const struct watch *watch, struct verify_report *report);

#endif
