/*
 * maintain: what an operator does with a store's journal while others write:
 * check it and copy it.  Its files are only read.
 */
#ifndef READER_MAINTAIN_H
#define READER_MAINTAIN_H

#include <stdint.h>

#include "store/store.h"

/* The part of a journal that was read, from its beginning on. */
struct reader_report {
	char store[RECORD_UUID_LEN + 1]; /* its uuid */
	uint64_t plants;
	uint64_t bytes;      /* up to the last line read */
	uint64_t seq;        /* of that line */
	uint64_t last_plant; /* its offset; 0 if there is none */
	uint64_t watermark;  /* of that line: `safe` */
};

/*
 * check_journal(path, watch, index):
 * Find the state of the index, and read the lines behind it.  A fault, logged,
 * if the next start would refuse the journal or the index.
 */
enum fault check_journal(
    const char *path, const struct watch *watch, enum index_state *index);

struct verify_report {
	struct reader_report journal; /* the part that was checked */
	enum index_state index;       /* no damage, whatever it is */
};

/*
 * verify_store(path, watch, report):
 * Check every line of the journal in the directory `path`, or of the journal
 * file `path`: checksum, form, chain and order, and that no id stands twice.
 * An index is then compared with the plants that were stored when the call
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

struct copy_report {
	struct reader_report copy;
	uint64_t added; /* bytes that `to` did not have */
};

/*
 * copy_backup(from, to, watch, report):
 * Copy the journal in the directory `from`, or the journal file `from`, to the
 * directory `to`, which is made if there is none: every plant that was
 * acknowledged before the call, each line checked before it is copied, synced
 * before this returns.  The copy is written beside an earlier one of the
 * same store, and then takes its name: a hard link to the earlier one keeps
 * that one's bytes.  `to` is then a store that can be served.
 *
 * FAULT_OUTPUT: `to` has a copy of another store, or one that is no part of
 * this one, or was served, or it cannot be written.  FAULT_SETUP: `to` or its
 * plants.jsonl belongs to another user than root and the caller, or the latter
 * is no file or is the journal itself.  After a fault `to` has what it had
 * before.  `watch` may be NULL; FAULT_STOPPED if it ended the copy.
 */
enum fault copy_backup(const char *from, const char *to,
    const struct watch *watch, struct copy_report *report);

#endif
