/*
 * maintain: checks and copies a store's journal for an operator, while others
 * write.  The store's files are only read.
 */
#pragma once

#include <stdint.h>

#include "store/store.h"

/* What was read of a journal, from its beginning. */
struct reader_report {
	char store[RECORD_UUID_LEN + 1]; /* the store's uuid */
	uint64_t plants;
	uint64_t bytes;         /* the offset at which the last line ends */
	enum index_state index; /* of verify_store: only INDEX_UNUSABLE is
				   damage */
	uint64_t added; /* of copy_backup: bytes that `to` did not have */
};

/*
 * check_journal(path, watch, index):
 * Find the state of the index, and check the lines that it does not cover.
 * Return a fault, logged, if the next start would refuse the journal or index.
 */
enum fault check_journal(
    const char *path, const struct watch *watch, enum index_state *index);

/*
 * verify_store(path, watch, report):
 * Check every line of the journal in the directory `path`, or of the journal
 * file `path`: checksum, form, chain and order, and that no id occurs twice.
 * Then compare the index with the plants that were stored when the call began.
 * The ids are sorted in an unnamed file in /var/tmp, 16 bytes each.  The lock
 * is held for some milliseconds at a time, but at first until the lines that no
 * index has covered are read.  `watch` may be NULL.
 *
 * FAULT_DAMAGED, logged: the offset of the first invalid line and the reason,
 * the ids that occur twice, or the index: it is damaged, has too many plants,
 * or lacks a plant or has it elsewhere (the first one).  A torn tail is logged,
 * but is not damage.  `report` is set on FAULT_NONE and on FAULT_STOPPED.
 */
enum fault verify_store(
    const char *path, const struct watch *watch, struct reader_report *report);

/*
 * copy_backup(from, to, watch, report):
 * Copy the journal in the directory `from`, or the journal file `from`, to the
 * directory `to`, which is made if it is absent.  The copy has every plant that
 * was acknowledged before the call.  Each line is checked before it is copied,
 * and the copy is synced.  It is written beside an earlier copy of the store
 * and then renamed over it: a hard link to the earlier copy keeps its bytes.
 * The service can serve `to` afterwards.  `watch` may be NULL.
 *
 * FAULT_OUTPUT: `to` cannot be written, has an index, or has a journal that is
 * not the beginning of this one.  FAULT_BUSY: another process writes there.
 * FAULT_SETUP: `to` or its plants.jsonl belongs to neither root nor the caller,
 * or its plants.jsonl is the source or is not a regular file.  FAULT_STOPPED:
 * the watch ended the copy.  After a fault the journal in `to` is as before; if
 * only the sync of the directory failed, it is the new copy.
 */
enum fault copy_backup(const char *from, const char *to,
    const struct watch *watch, struct reader_report *report);
