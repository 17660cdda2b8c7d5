/*
 * catch_up: brings the index and this process's view up to the journal's end,
 * however the processes that wrote it ended.
 *
 * The same code serves the start of a store, the building of its index and the
 * moment before each commit, when other processes may have appended, died in
 * the middle of a write, or failed.  The caller holds the lock.
 */
#ifndef STORE_CATCH_UP_H
#define STORE_CATCH_UP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/engine.h"
#include "ground/watch.h"
#include "store/index.h"
#include "store/journal.h"

struct store {
	const struct engine *engine; /* engine.h: first */
	pthread_mutex_t mutex; /* the threads of this process; then the lock */
	bool long_lived;       /* not for one request */
	bool failed;           /* nothing is acknowledged any more */
	const struct watch *watch; /* while it is opened; or NULL */
	struct journal journal;
	struct index *index;       /* NULL: there was no room for it */
	struct position at;        /* the journal is read up to here */
	struct position batch_end; /* of the batch that is built behind that */
	bool written;              /* it is durable, and not in the index yet */
	enum store_result ready;   /* found last; see store_ready */
	/* The lines of one append, and room. */
	char batch[JOURNAL_APPEND_MAX + JOURNAL_ROOM_BYTES];
};

/*
 * catch_up_start(store):
 * Open the index of an open journal, or build it where none can be used, and
 * judge the journal's end whole.  After a fault there is no index.
 *
 * catch_up(store):
 * Check that the journal still is the one that is open, and read on.  On
 * FAULT_NONE an index transaction has begun, and store->at is the journal's
 * end.  Without an index, start first, if there is room: else FAULT_FULL.
 */
enum fault catch_up_start(struct store *store);
enum fault catch_up(struct store *store);

/*
 * catch_up_has_room(store, bytes):
 * Whether the store's file system has so much room, and that of an index that
 * is missing; or does not say so.
 */
bool catch_up_has_room(const struct store *store, uint64_t bytes);

#endif
