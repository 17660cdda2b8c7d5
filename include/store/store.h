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

struct store_options {
	/* These stay while the store is open. */
	const char *database; /* a connection string of libpq; or NULL, and */
	const char *dir;      /* the store's directory (a reader's: or a journal
				 that nobody writes) */
	bool prepare; /* for long lived processes, not for one request: write
			 ahead the room for records to come; serve also while
			 the database is away */
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
 * FAULT_BUSY; with options->prepare it is no fault: commits are STORE_AWAY
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

/*
 * A reader: the plants in the order in which they were stored, as they are at
 * one moment, or single plants by their ids; not both.  One thread.
 */
struct store_reader;

/*
 * store_reader_open(options, since, fault):
 * Open for reading; nothing is changed.  `since`: only what was stored at this
 * time, TIMESTAMP_LEN bytes, or later; NULL: all.  options->watch is copied,
 * called while it reads, and may be NULL.  NULL if it cannot be read: `fault`
 * is set, the reason is logged.
 *
 * store_reader_next(reader, record):
 * Read the next plant: `record` has its id, plant, by and at, and points into
 * the reader until the next call.  False at the end, and where a fault ended
 * it.
 *
 * store_reader_end(reader, where):
 * After the last one: FAULT_NONE, or the fault, FAULT_STOPPED by the watch; and
 * in `where` what was read, such as "seq 12 at byte 3456".
 *
 * store_reader_find(reader, id, record):
 * Read the plant with an id: FAULT_NONE; FAULT_ABSENT if there is none, not
 * logged; FAULT_DAMAGED, logged, if it is damaged, and others may be read; or
 * another fault.
 *
 * store_reader_figures(reader, each, context):
 * Call `each` with the engine's own figures for `plant-store stats`: a name and
 * a text, or with NULL for that a number.  After the last plant.  On a fault,
 * which is logged, it was not called.
 *
 * store_reader_close(reader):
 * NULL is fine.
 *
 * A cursor is a place between two plants, as text: whatever the clocks say,
 * nothing is stored before it later.
 *
 * store_reader_resume(reader, cursor):
 * Before the first store_reader_next, and before the functions below: begin
 * behind the cursor's place, at the store's beginning for "", at its end for
 * NULL.  FAULT_SETUP, logged: the cursor is another store's, or the engine has
 * none.  FAULT_DAMAGED, logged: the store does not have that place.
 *
 * store_reader_cursor(reader, before, cursor):
 * Write the place behind the last plant read; with `before`, the place before
 * it.
 *
 * store_reader_more(reader):
 * Behind the last plant: find out whether there are more, for the next
 * store_reader_next.  To be called often: it costs little.  FAULT_BUSY passes;
 * FAULT_DAMAGED, logged: the store is not the one that was read.
 */
#define STORE_WHERE_MAX 80
#define STORE_CURSOR_MAX 192
typedef void store_figure(
    void *context, const char *name, const char *text, uint64_t number);
struct store_reader *store_reader_open(
    const struct store_options *options, const char *since, enum fault *fault);
bool store_reader_next(struct store_reader *reader, struct record *record);
enum fault store_reader_end(
    struct store_reader *reader, char where[STORE_WHERE_MAX]);
enum fault store_reader_find(
    struct store_reader *reader, int64_t id, struct record *record);
enum fault store_reader_figures(
    struct store_reader *reader, store_figure *each, void *context);
void store_reader_close(struct store_reader *reader);
enum fault store_reader_resume(struct store_reader *reader, const char *cursor);
void store_reader_cursor(
    struct store_reader *reader, bool before, char cursor[STORE_CURSOR_MAX]);
enum fault store_reader_more(struct store_reader *reader);

/*
 * store_schema(part, fault):
 * The SQL that an administrator runs once to make what the database's engine
 * needs: the tables, the least rights, or what its cursors need.  Static; NULL
 * if the module cannot be loaded, logged.
 */
enum store_schema { SCHEMA_TABLES, SCHEMA_ROLES, SCHEMA_FEED, STORE_SCHEMAS };
const char *store_schema(enum store_schema part, enum fault *fault);

#endif
