/*
 * store: stores plants durably.
 *
 * This is the interface to two engines: the journal file, and PostgreSQL, a
 * module that is loaded on demand.  No caller depends on which one stores the
 * plants.  One call stores a batch of any size: one plant from a CGI request,
 * those that a reactor has collected, or thousands from an import.
 *
 * On return, a result that acknowledges (CREATED, SAME, CONFLICT) refers to a
 * record that is durable.  Any number of threads and processes may have the
 * same store open; all see its plants in the same order.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ground/fault.h"
#include "ground/watch.h"
#include "plant/plant.h"
#include "pure/record.h"

enum store_result {
	STORE_CREATED,  /* stored now */
	STORE_SAME,     /* the same plant was already stored */
	STORE_CONFLICT, /* a different plant with this id is stored */
	STORE_FULL,     /* no space; not stored */
	STORE_BUSY,     /* no lock in time, or no memory; not stored */
	STORE_AWAY,     /* the database is unavailable; not stored */
	STORE_UNKNOWN,  /* the database did not confirm; may be stored or not */
	STORE_FAILED    /* the store has failed; may be stored or not */
};

struct store_item {
	const struct plant *plant;
	const char *by; /* the token's name */
	const char *at; /* time of storage, TIMESTAMP_LEN bytes; NULL: now */
	enum store_result result;
};

/* The state of the file engine's index. */
enum index_state {
	INDEX_USABLE,
	INDEX_BEHIND,  /* the service soon adds the last plants */
	INDEX_ABSENT,  /* the next start of the service builds it */
	INDEX_STALE,   /* a copy, or of another version; also rebuilt */
	INDEX_UNUSABLE /* damaged; also rebuilt */
};

/* For each state, a word for programs and a text in English. */
extern const struct index_words {
	const char *word, *text;
} index_words[];

/* Files in the store's directory: the start times of the newest backup and of
   the newest verified backup. */
#define STORE_BACKUP_NAME "last-backup"
#define STORE_VERIFIED_NAME "last-verified"

struct store_options {
	/* Both strings must stay valid while the store is open. */
	const char *database; /* libpq connection string; NULL: use `dir` */
	const char *dir;      /* the store's directory; for a reader, also a
				 journal file that nobody writes */
	bool long_lived;      /* more than one request: reserve space for later
				 records; serve even without the database */
	bool count; /* a reader counts all records after a cursor, even those
		       that wait for an older transaction to end */
	const struct watch *watch; /* called only by store_open, while it reads
			 the journal or builds the index; or NULL */
};

struct store;

/*
 * store_init(dir):
 * Create an empty store in the directory, which is created if it is absent;
 * other files in it stay.  FAULT_SETUP if it holds a store or a part of one, or
 * the fault of errno; both are logged.  A crash leaves a whole store or none.
 *
 * store_open(options, fault):
 * Open the store in options->dir and recover it if needed, or connect to the
 * database and check its settings, its table and our privileges.  Call it after
 * any fork.  Return NULL if the store cannot be used, with the reason logged
 * and `fault` set: FAULT_SETUP (missing, another store or version),
 * FAULT_DAMAGED, FAULT_STOPPED by the watch (the next call resumes building an
 * index), or the fault of errno.  An unavailable database is FAULT_BUSY; with
 * options->long_lived it is no fault, and commits return STORE_AWAY.
 */
enum fault store_init(const char *dir);
struct store *store_open(
    const struct store_options *options, enum fault *fault);

/*
 * store_commit(store, items, n):
 * Store the plants of a batch, in order, and set each item's result.  If two
 * items have the same id, the second's result refers to the first.  Wait for
 * the disk, and up to 5 s for other processes to release the lock; after that,
 * every result is STORE_BUSY.  Wait for a database up to 5 s per 10,000 plants,
 * and before that for a new session, if one is needed.  Return 0; -1 if the
 * store has failed: the reason is logged, every later call fails at once, and
 * the process should send the results it has and end.  Any thread.
 */
int store_commit(struct store *store, struct store_item *items, size_t n);

/*
 * store_ready(store):
 * Return the result that a new plant would get now: STORE_CREATED if it could
 * be stored, STORE_FULL if less than 64 KiB are free.  After a refused batch,
 * try what was refused: allocate space for any batch, or insert a plant in a
 * transaction that is rolled back.  Wait for a commit in progress.  This may
 * access the disk, or connect to the database and commit there, without
 * changing a plant; it takes up to 5 s.  One thread at a time.
 */
enum store_result store_ready(struct store *store);

/*
 * store_wait(store):
 * Wait while another thread of this process stores a batch, so that the caller
 * collects more plants for the next one.  Return at once for a database, where
 * commits do not wait for each other.
 *
 * store_idle(store):
 * Write a closing line, whose watermark covers the last batch, unless the last
 * line is one or the store is in use.  Call it in each second in which no plant
 * has arrived.  Return like store_commit.  Any thread.
 *
 * store_close(store):
 * Close the store so that the next open is fast; with options->long_lived, add
 * a closing line unless the last line is one.  NULL is allowed.  No other
 * thread may use the store.
 */
void store_wait(struct store *store);
int store_idle(struct store *store);
void store_close(struct store *store);
