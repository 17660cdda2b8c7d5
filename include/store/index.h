/*
 * index: from a plant's id to the offset of its record.  Derived from the
 * journal: it may be deleted at any time, and is built again from it.
 *
 * An LMDB environment in the directory `index`, shared by all processes of the
 * store under the journal's lock, so without LMDB's own lock (MDB_NOLOCK), and
 * without syncs of its own (MDB_NOSYNC).  It records how far it covers the
 * journal; a process that finds more there reads on.  An entry counts only once
 * its record has been read.
 *
 * A crash of the machine, or of the device alone, may leave any mixture of
 * pages; so may a copy.  So only the very file that was written is used, and
 * only if one of these holds:
 *
 *	It was closed cleanly.
 *	A long lived process has it open: a crash would have ended its lock.
 *	A single request (CGI) opens it, and only such have used it in this
 *	boot.  A device that was lost and came back is not noticed then.
 *
 * The only module that knows LMDB.  Every function but index_discard needs the
 * journal's lock.
 */
#ifndef STORE_INDEX_H
#define STORE_INDEX_H

#include "ground/pairs.h"
#include "ground/watch.h"
#include "store/journal.h"
#include "store/store.h"

struct index;

enum index_use {
	INDEX_READ,  /* change nothing */
	INDEX_ONCE,  /* for one request */
	INDEX_SERVE, /* as a long lived process */
};

/* What an index knows of a journal; all zero is nothing. */
struct index_view {
	enum index_state state;
	struct index *index;     /* NULL unless the state is INDEX_USABLE */
	struct position covered; /* the end of its part of the journal, if so */
	uint64_t entries;        /* its plants, if so */
	struct position seen;    /* that end, also of one that is not usable */
};

/*
 * A fault that these functions return is logged.  A damaged index is removed,
 * after its end was saved in the end mark, and is FAULT_FAILED; with INDEX_READ
 * it stays, and is FAULT_DAMAGED, not logged.
 *
 * index_open(journal, use, view):
 * Open the index beside the journal, which must stay open, without a
 * transaction.  FAULT_SETUP if it is of another store.
 *
 * index_create(journal, use, index):
 * Discard what there is, and open a new index, which covers nothing, and is
 * used by others only once it does.
 *
 * index_uuid(dir, uuid):
 * Read, of an index that is not open, the uuid of its store: 0, or -1 if there
 * is none.
 */
enum fault index_open(
    struct journal *journal, enum index_use use, struct index_view *view);
enum fault index_create(
    struct journal *journal, enum index_use use, struct index **index);
int index_uuid(int dir, char uuid[static RECORD_UUID_LEN]);

/*
 * index_begin(index, covered), index_commit(index, covered),
 * index_abort(index):
 * Begin a transaction, one at a time, and give the journal's position up to
 * which the index has its plants; all zero for a new one.  End it; after a
 * fault nothing is entered.
 *
 * index_put(index, id, offset, found):
 * Enter the id with its offset, unless it is there: then `found` is the offset
 * it has, else 0.  After a fault the transaction can only be aborted.
 *
 * index_find(index, id, offset):
 * Look an id up: its offset, or 0 if it is not there.
 *
 * index_check(index):
 * After lookups, before they count: check that the kernel could write back all
 * pages, or an older one may have come from the disk: then it is damaged, and
 * removed, since the kernel tells no file that is opened later.  So a reader
 * does not ask; an id that it does not find counts only if
 *
 * index_is_clean(index):
 * it was closed cleanly, and not written since, as of the transaction.
 *
 * index_count(index), index_is_current(index):
 * How many plants it has, in a transaction; whether the directory still has
 * this file.
 *
 * index_damaged(index):
 * Treat it as damaged, since it does not fit the journal.
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
 * Close; `clean`: sync it first and note that it is whole on the disk, holding
 * the lock.  NULL is fine.
 *
 * index_discard(dir):
 * Remove the files of the index: the next start builds them again.  A process
 * that has them open goes on with them.
 */
void index_close(struct index *index, bool clean);
void index_discard(int dir);

/*
 * index_twins(pairs, name):
 * Log the ids that stand twice in the journal `name`, the first ten with their
 * offsets.  How many records are not the first of their id.
 *
 * index_build(index, pairs, to, watch):
 * Enter sorted pairs, of each id the first one, into an index in which a
 * transaction has begun, and commit it: it then covers the journal up to `to`.
 * An id that the index has already is logged as one that stands twice, if the
 * journal has an earlier record of it; else the index is damaged.  `watch` may
 * be NULL, and has had half of the work: FAULT_STOPPED, not logged, if it ends
 * that.  After a fault, one that covered nothing is to be discarded.
 */
size_t index_twins(const struct pairs *pairs, const char *name);
enum fault index_build(struct index *index, const struct pairs *pairs,
    const struct position *to, const struct watch *watch);

#endif
