/*
 * store: plants, durably.
 *
 * The seam between what is asked and how it is kept.  Two engines keep plants:
 * the file, and PostgreSQL, which is a module that is loaded when it is asked
 * for; nothing above the seam knows which.  One call stores a batch of any
 * size: one plant of a CGI request, the n that a reactor has gathered,
 * thousands of an import.
 *
 * A result that acknowledges (CREATED, SAME, CONFLICT) is given only when the
 * record that it refers to is durable.  Any number of threads and processes
 * may have the same store open; an identical order holds for all.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "ground/fault.h"
#include "ground/watch.h"
#include "plant/plant.h"
#include "pure/record.h"

enum store_result {
	STORE_CREATED,  /* stored now */
	STORE_SAME,     /* this very plant was stored already */
	STORE_CONFLICT, /* another plant with this id is stored */
	STORE_FULL,     /* no room; not stored */
	STORE_BUSY,     /* a lock could not be had in time; not stored */
	STORE_AWAY,     /* the database does not serve; not stored */
	STORE_UNKNOWN,  /* the database did not confirm; may be stored or not */
	STORE_FAILED    /* the store has failed; may be stored or not */
};

struct store_item {
	const struct plant *plant;
	const char *by; /* the token's name */
	const char *at; /* when, TIMESTAMP_LEN bytes; NULL for now */
	enum store_result result;
};

/* The state of the file engine's index. */
enum index_state {
	INDEX_USABLE,
	INDEX_BEHIND,   /* the last plants are entered soon (verify) */
	INDEX_ABSENT,   /* the next start of the service makes it */
	INDEX_STALE,    /* not closed cleanly, or a copy: built again, too */
	INDEX_REPLACED, /* while it was read (verify) */
	INDEX_UNUSABLE  /* damaged: built again, too */
};

/* Of each state one word, for programs, and English. */
extern const struct index_words {
	const char *word, *text;
} index_words[];

struct store_options {
	/* These stay while the store is open. */
	const char *database; /* a connection string of libpq; or NULL, and */
	const char *dir;      /* the store's directory (a reader's: or a journal
				 that nobody writes) */
	bool long_lived; /* not for one request: write room for later records
			    ahead; serve also while the database is away */
	bool count; /* a reader's records behind a cursor are only counted: also
		       those that an older transaction holds back */
	const struct watch *watch; /* of store_open alone, where it has to read
			 on or to build the index; or NULL */
};

struct store;

/*
 * store_init(dir):
 * Make a new, empty store in the directory, which is made too where it is
 * absent; other files in it stay.  FAULT_SETUP, logged, if it holds a store or
 * a part of one, or the system's.  A crash leaves the store whole or none.
 *
 * store_open(options, fault):
 * Open the store in options->dir, and recover it where needed; or connect to
 * the database, and check its settings, its table and our rights.  Call after
 * any fork.  NULL if it cannot be used: the reason is logged, and `fault` is
 * set: FAULT_SETUP (missing, another store's or another version),
 * FAULT_DAMAGED, FAULT_STOPPED by the watch (the next opening begins again with
 * an index that was being built), or the system's.  A database that is away is
 * FAULT_BUSY; with options->long_lived it is no fault: commits are STORE_AWAY
 * until it is back.
 */
enum fault store_init(const char *dir);
struct store *store_open(
    const struct store_options *options, enum fault *fault);

/*
 * store_commit(store, items, n):
 * Store the plants of a batch, in order, and set each item's result.  The
 * result of the second of two equal ids in a batch refers to the first.  Blocks
 * for the disk, and up to 5 s while other processes hold the store; then all is
 * STORE_BUSY.  Blocks for a database up to 5 s for every 10,000 plants.  Return
 * 0; -1 if the store has failed, so that this process should answer what it has
 * and end (the reason is logged, and every later call fails at once).  Any
 * thread.
 *
 * store_finish(store):
 * To be called by the same thread after each store_commit: write the index, and
 * let others commit.  Clients may be answered before, since that is durable.
 */
int store_commit(struct store *store, struct store_item *items, size_t n);
void store_finish(struct store *store);

/*
 * store_ready(store):
 * Find out whether a plant sent now could be stored: STORE_CREATED; or the
 * result that it would have, STORE_FULL where there is room for less than
 * 64 KiB.  It waits for no commit of others, but may ask the disk, or connect
 * to the database and commit there, which changes no plant and takes up to 5 s.
 * One thread at a time.
 */
enum store_result store_ready(struct store *store);

/*
 * store_wait(store):
 * Wait while another thread of this process stores a batch, so as to gather
 * more plants before the next commit.  Commits to a database do not wait
 * for each other: then return at once.
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
