/*
 * index: from a plant's id to the offset of its record.  Derived from the
 * journal: it may be deleted at any time and is built anew from it.
 *
 * An LMDB environment in the directory `index`, shared by all processes of the
 * store under the store's lock, so without LMDB's own (MDB_NOLOCK), and without
 * syncs of its own (MDB_NOSYNC).  It says how far it has read the journal, so
 * that whoever finds more there reads on.  Since nothing is synced, a crash of
 * the machine may leave any mixture of pages: the boot id of the machine in it
 * tells, unless it was closed cleanly.
 *
 * Of what the index says of an id that it has, nothing is believed before the
 * record was read.  That it has none is believed only if the entries on both
 * sides of the gap say so: each has a checksum of itself and of the id that
 * follows.  What does not hold is EBADMSG: the index is damaged, and should be
 * condemned.  Damage that ends the process removes the index on the way, or for
 * a reader says so, and the process exits.  The only module that knows LMDB.
 */
#ifndef STORE_INDEX_H
#define STORE_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "replay.h"

struct index;

/*
 * index_open(dir, path, uuid):
 * Open the index of the store `uuid` in the directory `path` (the same as
 * `dir`), make it if there is none, discard and make it if it is unreadable,
 * of another store, from before a crash of the machine, or a part of one
 * (index_commit_part).  NULL with errno: ENOSPC, ENOMEM, EACCES and the like.
 */
struct index *index_open(
    int dir, const char *path, const char uuid[static RECORD_UUID_LEN]);

/*
 * index_begin(index, covered):
 * Begin a transaction, and give the journal's position up to which the index
 * has read; all zero for a new one.  0, or -1 with errno.  Until index_commit
 * or index_abort no other transaction may be begun.
 */
int index_begin(struct index *index, struct position *covered);

enum index_put { INDEX_NEW, INDEX_FOUND, INDEX_ERROR };

/*
 * index_put(index, id, offset, found):
 * Enter the id with its offset, unless it is there: then `found` is the offset
 * it has.  INDEX_ERROR with errno: the transaction can only be aborted.
 */
enum index_put index_put(
    struct index *index, int64_t id, uint64_t offset, uint64_t *found);

/*
 * index_commit(index, covered), index_abort(index):
 * End the transaction.  0; -1 with errno, and nothing is entered.
 */
int index_commit(struct index *index, const struct position *covered);
void index_abort(struct index *index);

/*
 * index_commit_part(index):
 * While an index that covers nothing yet is built: commit what was put, so that
 * LMDB need not hold it in memory, and begin the next transaction, in which
 * sorted ids go on where they were.  The index then is a part, of no use to
 * anybody, until index_commit says what it covers.  0; -1 with errno, and there
 * is no transaction.
 */
int index_commit_part(struct index *index);

/*
 * index_open_reader(dir, path, uuid):
 * Open the index that there is for reading alone: index_begin, index_find,
 * index_walk, index_abort, index_close(index, false).  Nothing in the store is
 * changed or logged.  NULL with errno: ENOENT (there is none), ESTALE (of
 * another store, from before a crash of the machine, or a part of one), EBADMSG,
 * or the system's.  Under the store's lock here, and from index_begin to
 * index_abort.
 * index_begin is -1 with ESTALE if another file has taken its place.
 */
struct index *index_open_reader(
    int dir, const char *path, const char uuid[static RECORD_UUID_LEN]);

/*
 * index_find(index, id, offset):
 * Look an id up.  INDEX_FOUND, INDEX_NEW if it is not there, INDEX_ERROR with
 * errno.
 */
enum index_put index_find(struct index *index, int64_t id, uint64_t *offset);

/*
 * index_walk(index, from, n, see, context):
 * Give the entries with an id from `*from` on, in order, at most `n` of them, to
 * `see`, and set `*from` to where the next walk goes on.  1 if there are more, 0
 * at the end, -1 with errno, EBADMSG if an entry's checksum does not hold.
 */
int index_walk(struct index *index, int64_t *from, size_t n,
    void (*see)(void *context, int64_t id, uint64_t offset), void *context);

/*
 * index_refresh(index, path):
 * Close its file and open it again, outside of a transaction: LMDB keeps the
 * memory of the largest transaction that there was for the next one.  0; -1
 * with errno, and it can only be closed.
 */
int index_refresh(struct index *index, const char *path);

/*
 * index_close(index, clean):
 * Close; `clean`: sync it first and mark it as whole, for long lived processes,
 * holding the lock.  NULL is fine.
 */
void index_close(struct index *index, bool clean);

/*
 * index_discard(dir):
 * Remove the files of the index, so that the next open makes it anew.
 */
void index_discard(int dir);

/*
 * index_condemn(index):
 * The index is damaged: discard it, unless another is in its place already.
 */
void index_condemn(const struct index *index);

#endif
