/*
 * gather: plants that the journal has and the index lacks, on their way into
 * it, sorted, so that the pages of the index are written in order.
 *
 * An index that is in use is caught up with by chunks, each sorted and entered
 * in a transaction of its own.  One that is built that way is large for ever:
 * the second chunk and those behind it write nearly all pages again, leave them
 * half full, and others free.  So where more than a chunk goes into a new index,
 * the sorted chunks are set aside in a file and merged in the end (runs.h).
 */
#ifndef STORE_GATHER_H
#define STORE_GATHER_H

#include <time.h>

#include "runs.h"
#include "state.h"

/*
 * 8 MiB, with as much again to sort it.  LMDB holds some 15 MiB of pages for
 * it in a transaction, of which building from more than one has two a chunk.
 */
#define GATHER_CHUNK ((size_t)512 << 10)

struct gather {
	struct store *store;
	struct position covered; /* by the index */
	size_t chunk;            /* plants: GATHER_CHUNK, or for tests less */
	bool build;         /* the index is new, and what fails makes it anew */
	bool synced;        /* the journal was, for what is entered */
	struct pair *pairs; /* and as much again, to sort them */
	size_t n, size;
	struct runs *runs; /* what was set aside, in a build; or NULL */
	uint64_t aside;    /* its plants */
	time_t told;
	uint64_t stepped; /* the journal's offset at the watch's last call */
};

/*
 * gather_add(gather, id, at):
 * Take the plant whose record ends at `at`; enter what there is, or set it
 * aside, when it is much.  An index transaction has begun, and another may have
 * when this returns.
 *
 * gather_enter(gather, at):
 * Enter what was gathered: the index then covers the journal up to `at`.  What
 * the index has must be durable, so the journal is synced before, once.  Of a
 * build that fails half-way nothing is left.
 *
 * gather_watch(gather, at):
 * Tell whoever watches, or the log, that the journal is read up to `at`.
 * FAULT_STOPPED if the work should end.
 *
 * Each returns its fault, logged.  To begin, all but the first fields, up to
 * `build`, is zero.
 */
enum fault gather_add(
    struct gather *gather, int64_t id, const struct position *at);
enum fault gather_enter(struct gather *gather, const struct position *at);
enum fault gather_watch(struct gather *gather, const struct position *at);

/* Free what it holds. */
void gather_done(struct gather *gather);

#endif
