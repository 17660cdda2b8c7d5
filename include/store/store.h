/*
 * store: plants, durably.
 *
 * The seam between what is asked and how it is kept: nothing above it knows of
 * files.  One call stores a batch of any size: one plant of a CGI request, the
 * n that a reactor has gathered, thousands of an import.
 *
 * A result that acknowledges (CREATED, SAME, CONFLICT) is given only when the
 * record that it refers to is durable.  Any number of threads and processes
 * may have the same store open; an identical order holds for all.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "ground/watch.h"
#include "plant/plant.h"
#include "ground/fault.h"

enum store_result {
	STORE_CREATED,  /* stored now */
	STORE_SAME,     /* this very plant was stored already */
	STORE_CONFLICT, /* another plant with this id is stored */
	STORE_FULL,     /* no room; not stored */
	STORE_BUSY,     /* the lock could not be had in time; not stored */
	STORE_FAILED    /* the store has failed; may be stored or not */
};

struct store_item {
	const struct plant *plant;
	const char *by; /* the token's name */
	const char *at; /* when, TIMESTAMP_LEN bytes; NULL for now */
	enum store_result result;
};

struct store_options {
	const char *dir;
	bool prepare; /* write ahead the room for records to come: for long
			 lived processes, not for one request */
	bool prompt;  /* store_open waits 100 ms for other processes, not 5 s */
	const struct watch *watch; /* of store_open alone, where it has to read
			 on or to build the index; or NULL */
};

struct store;

/*
 * store_open(options, fault):
 * Open the store in options->dir, recover it where needed, create it where the
 * directory has none.  Call after any fork.  NULL if it cannot be used: the
 * reason is logged, and `fault` is set: FAULT_SETUP (missing, another store's
 * or another version), FAULT_DAMAGED, FAULT_STOPPED by the watch (the next
 * opening begins again with an index that was being built), or the system's.
 */
struct store *store_open(
    const struct store_options *options, enum fault *fault);

/*
 * store_commit(store, items, n, answer, argument):
 * Store the plants of a batch, in order, and set each item's result.  The
 * result of the second of two equal ids in a batch refers to the first.  Blocks
 * for the disk, and up to 5 s while other processes hold the store; then all is
 * STORE_BUSY.  Return 0; -1 if the store has failed, so that this process
 * should answer what it has and end (the reason is logged, and every later call
 * fails at once).  Any thread.
 *
 * `answer`, unless it is NULL, is called with `argument` once all results are
 * set and before the index is written: a client need not wait for that.  Other
 * commits wait for it, so it should be short.
 */
int store_commit(struct store *store, struct store_item *items, size_t n,
    void (*answer)(void *argument), void *argument);

/*
 * store_ready(store):
 * Whether a plant sent now could be stored: STORE_CREATED, STORE_FULL if there
 * is room for less than 64 KiB, or STORE_FAILED.  It waits for nothing, and
 * looks at the disk at most once a second; any thread.
 */
enum store_result store_ready(struct store *store);

/*
 * store_wait(store):
 * Wait until no other thread of this process is in store_commit, so as to
 * gather more plants before the next one.
 *
 * store_idle(store):
 * To be called when no plant has come for about a second: put the last batch
 * below the watermark with a closing line, if that is not done yet and the
 * store is not in use.  Any thread.
 *
 * store_close(store):
 * Close, so that the next open is quick; write the closing line if the last
 * line is none.  NULL is fine.  No other thread may be in it.
 */
void store_wait(struct store *store);
void store_idle(struct store *store);
void store_close(struct store *store);

#endif
