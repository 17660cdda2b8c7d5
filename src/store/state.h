/*
 * state: what the files of the store share of an open store.
 */
#ifndef STORE_STATE_H
#define STORE_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ground/watch.h"
#include "index.h"
#include "journal.h"
#include "lock.h"
#include "replay.h"
#include "store/store.h"

struct store {
	pthread_mutex_t mutex; /* the threads of this process; then the lock */
	char *path;
	int dir;
	bool prepare;              /* long lived */
	bool failed;               /* nothing is acknowledged any more */
	bool full;                 /* there was no room, and that was said */
	const struct watch *watch; /* while it is opened; or NULL */
	struct lock lock;
	int64_t busy_since_ms; /* the wait for the lock began, */
	int64_t busy_ms;       /* and failed last, */
	bool busy_told;        /* and that was said */
	struct journal journal;
	struct index *index;
	struct position at; /* the journal is read and indexed up to here */
	uint64_t durable;   /* known synced up to here; see record.h, `safe` */
	bool closed;        /* the last line is a closing line, or the header */
	char *batch;        /* the lines of one append */
	size_t batch_size;
	char *line; /* one record read back */
	size_t line_size;
};

/* Why something could not be done; each is logged where it is found. */
enum fault {
	FAULT_NONE,
	FAULT_FULL,    /* no room: passes by itself */
	FAULT_MEMORY,  /* memory, descriptors: passes by itself */
	FAULT_STOPPED, /* by the watch, while it is opened */
	FAULT_FAILED,  /* the store has failed: the next start recovers */
	FAULT_DAMAGED  /* the journal is damaged: the next start refuses */
};

/*
 * state_fault(error):
 * The fault that an errno value is.
 */
enum fault state_fault(int error);

/*
 * state_unwritten(store, name):
 * The file `name` could not be written and is as before: log it with errno,
 * which stays; what passes by itself once, until store->full is unset.  Return
 * the fault.
 */
enum fault state_unwritten(struct store *store, const char *name);

/*
 * state_index_failed(store):
 * The index could not be used: log it with errno, which stays; a damaged one is
 * removed.  Return the fault.
 */
enum fault state_index_failed(struct store *store);

/*
 * state_poison(store, what):
 * A sync failed, or what was written cannot be taken back: log it with errno,
 * mark the store as failed for every process.  Return FAULT_FAILED.
 */
enum fault state_poison(struct store *store, const char *what);

#endif
