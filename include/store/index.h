/*
 * index: maps a plant's id to the offset of its record.  Derived from the
 * journal: it may be deleted at any time, and is rebuilt from the journal.
 *
 * An LMDB environment in the directory `index`, shared by all processes of the
 * store.  The journal's lock replaces LMDB's (MDB_NOLOCK), and a commit does
 * not sync (MDB_NOSYNC).  The index records how far it covers the journal; a
 * process reads the lines after that from the journal.  Before a process
 * relies on an entry, it reads the record at the entry's offset.
 *
 * A crash of the machine, or of the storage device alone, may leave any mixture
 * of old and new pages; so may a copy.  So a process uses only the file that
 * was written, no copy, and only if one of these holds:
 *
 *	The index was closed cleanly.
 *	A long-lived process has it open: a crash would have ended its lock.
 *	A single request (CGI) opens it, and only single requests have written
 *	it in this boot.  This misses a device that was lost and came back.
 *
 * The only module that uses LMDB.  Every function needs the journal's lock, but
 * for index_uuid, index_twins, index_discard, and index_close without `clean`.
 */
#pragma once

#include "ground/pairs.h"
#include "ground/watch.h"
#include "store/journal.h"
#include "store/store.h"

struct index;

enum index_use {
	INDEX_READ,  /* read only */
	INDEX_ONCE,  /* read and write, for a single request (CGI) */
	INDEX_SERVE, /* read and write, for a long-lived process */
};

/* The result of index_open.  `covered` to `seen` are zero if unknown. */
struct index_view {
	enum index_state state;
	struct index *index;     /* NULL unless the state is INDEX_USABLE */
	struct position covered; /* the index has all plants before this */
	uint64_t entries;        /* plants in the index */
	struct position seen;    /* as `covered`; may be known if not usable */
};

/*
 * A fault that these functions return is logged.  They remove a damaged index,
 * after saving its end in the end mark, and return FAULT_FAILED; with
 * INDEX_READ it stays, and they return FAULT_DAMAGED, not logged.
 *
 * index_open(journal, use, view):
 * Open the index in the journal's directory, without a transaction.  The
 * journal must stay open.  FAULT_SETUP if the index is of another store.
 *
 * index_create(journal, use, index):
 * Discard the index, if there is one, and open a new one, which covers nothing.
 * Other processes use it only after a commit by which it covers something.
 *
 * index_uuid(dir, uuid):
 * Read the uuid of the store from an index that is not open: 0, or -1 if there
 * is no index.
 */
enum fault index_open(
    struct journal *journal, enum index_use use, struct index_view *view);
enum fault index_create(
    struct journal *journal, enum index_use use, struct index **index);
int index_uuid(int dir, char uuid[static RECORD_UUID_LEN]);

/*
 * index_begin(index, covered), index_commit(index, covered),
 * index_abort(index):
 * Begin a transaction, one at a time, and read the position up to which the
 * index has the journal's plants; all zero for a new index.  Commit it with a
 * new position; abort it.  After a fault of the commit nothing is entered.
 *
 * index_put(index, id, offset, found):
 * Enter the id with its offset, and set `found` to 0; or only set it to the
 * offset that the index has for the id.  After a fault only abort is allowed.
 *
 * index_find(index, id, offset):
 * Look up an id: its offset, or 0 if it is not there.
 *
 * index_check(index):
 * Check, after lookups and before their results are used, that no write-back of
 * the kernel's has failed: a lookup may then have read an older page from the
 * disk.  The index is then damaged, and removed, since the kernel does not
 * report the failure to files that are opened later.  For the same reason the
 * check proves too little for a reader, which calls index_is_clean instead.
 *
 * index_is_clean(index):
 * Whether the index was closed cleanly and not written since, as of the last
 * transaction.  Only then does a missing entry prove that an id is not stored.
 *
 * index_count(index), index_is_current(index):
 * The number of plants, in a transaction; whether the directory still has this
 * file.
 *
 * index_damaged(index):
 * Treat the index as damaged, since it contradicts the journal.
 */
enum fault index_begin(struct index *index, struct position *covered);
enum fault index_commit(struct index *index, const struct position *covered);
void index_abort(struct index *index);
enum fault index_put(
    struct index *index, int64_t id, uint64_t offset, uint64_t *found);
enum fault index_find(struct index *index, int64_t id, uint64_t *offset);
enum fault index_check(struct index *index);
bool index_is_clean(const struct index *index);
uint64_t index_count(const struct index *index);
bool index_is_current(const struct index *index);
enum fault index_damaged(struct index *index);

/*
 * index_close(index, clean):
 * Close the index; with `clean`, sync it first and mark it as closed cleanly.
 * NULL is fine.
 *
 * index_discard(dir):
 * Remove the files of the index: the next start rebuilds them.  A process that
 * has them open goes on with them.
 */
void index_close(struct index *index, bool clean);
void index_discard(int dir);

/*
 * index_twins(pairs, name):
 * Log the records of the journal `name` that repeat an earlier record's id, the
 * first ten with both offsets.  Return their number.
 *
 * index_build(index, pairs, to, watch):
 * Sort the pairs, and enter the first pair of each id into an index in which a
 * transaction has begun.  Commit: the index then covers the journal up to `to`.
 * Begin another transaction.  If the index has an id already, and the journal
 * has the earlier record, the new record is logged, as by index_twins; without
 * the earlier record, the index is damaged.  `watch`, which may be
 * NULL, is called with 50 to 100 % done, since the caller has read the journal
 * before; FAULT_STOPPED is not logged.  After a fault the caller discards an
 * index that covered nothing.
 */
size_t index_twins(const struct pairs *pairs, const char *name);
enum fault index_build(struct index *index, struct pairs *pairs,
    const struct position *to, const struct watch *watch);
