/*
 * catch_up: brings the index and this process's position to the journal's end,
 * also after a crash or a failed write of another process.
 *
 * It serves the start of a store, the build of its index, and the moment before
 * each commit, since others may have appended.  The caller holds the lock.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/engine.h"
#include "ground/watch.h"
#include "store/index.h"
#include "store/journal.h"

struct store {
	const struct engine *engine; /* must be first: see engine.h */
	pthread_mutex_t mutex;       /* for threads; lock before the journal */
	bool long_lived;             /* see struct store_options */
	bool failed;                 /* nothing is acknowledged any more */
	const struct watch *watch;   /* NULL once the store is open */
	struct journal journal;
	struct index *index;       /* NULL: there was no room for it */
	struct position at;        /* the journal is read up to here */
	struct position batch_end; /* of the batch that is built after `at` */
	bool written;              /* the batch is durable, not indexed yet */
	enum store_result ready;   /* the last result of store_ready */
	/* The lines of one append, and the blank room after them. */
	char batch[JOURNAL_APPEND_MAX + JOURNAL_ROOM_BYTES];
};

/*
 * catch_up_start(store):
 * Open the index of an open journal, or build it if none is usable, and read
 * the journal to its end: a torn tail is cut off, damage is a fault.  After a
 * fault store->index is NULL.
 *
 * catch_up(store):
 * Check that the open journal still has its name, and read what others have
 * appended.  On FAULT_NONE an index transaction has begun, and store->at is the
 * journal's end.  A missing index is built first; FAULT_FULL without room.
 */
enum fault catch_up_start(struct store *store);
enum fault catch_up(struct store *store);

/*
 * catch_up_has_room(store, bytes):
 * Whether the store's file system has `bytes` of room, besides what a missing
 * index needs; true if that cannot be found out.
 */
bool catch_up_has_room(const struct store *store, uint64_t bytes);
