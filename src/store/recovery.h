/*
 * recovery: brings this process's view and the index up to the journal's end,
 * whoever wrote it and however they ended.
 *
 * The same code serves the start of a store, the building of its index and the
 * moment before each commit, when other processes may have appended, died in
 * the middle of a write, or failed.  The caller holds the lock.
 */
#ifndef STORE_RECOVERY_H
#define STORE_RECOVERY_H

#include "state.h"

/*
 * recovery_start(store):
 * For an open journal and index: take up from where the index ends, or from the
 * beginning if what it says does not hold, and judge the journal's end whole.
 */
enum fault recovery_start(struct store *store);

/*
 * recovery_catch_up(store):
 * Check that the store has not been marked as failed and that the journal is
 * still the one that we know, and read on.  On FAULT_NONE an index transaction
 * has begun, and store->at is the journal's end.
 */
enum fault recovery_catch_up(struct store *store);

/*
 * recovery_renew(store):
 * After a failed sync: copy what is readable of the journal to a fresh file in
 * its place, discard the index, and mark the store as good again.  Needs an
 * open journal, no index.
 */
enum fault recovery_renew(struct store *store);

#endif
