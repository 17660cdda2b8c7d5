/*
 * gather: plants that the journal has and the index lacks, on their way into
 * it, sorted, so that the pages of the index are written in order.
 */
#ifndef STORE_GATHER_H
#define STORE_GATHER_H

#include <time.h>

#include "state.h"

struct pair {
	int64_t id;
	uint64_t offset;
};

struct gather {
	struct store *store;
	struct position covered; /* by the index */
	bool synced;             /* the journal was, for what is entered */
	struct pair *pairs;      /* and as much again, to sort them */
	size_t n, size;
	time_t told;
	uint64_t stepped; /* the journal's offset at the watch's last call */
};

/*
 * gather_add(gather, id, at):
 * Take the plant whose record ends at `at`; enter what there is when it is much.
 * An index transaction has begun, and another may have when this returns.
 *
 * gather_enter(gather, at):
 * Enter what was gathered: the index then covers the journal up to `at`.  What
 * the index has must be durable, so the journal is synced before, once.
 *
 * gather_watch(gather, at):
 * Tell whoever watches, or the log, that the journal is read up to `at`.
 * FAULT_STOPPED if the work should end.
 *
 * Each returns its fault, logged.  To begin, all but the store and `covered` is
 * zero.
 */
enum fault gather_add(
    struct gather *gather, int64_t id, const struct position *at);
enum fault gather_enter(struct gather *gather, const struct position *at);
enum fault gather_watch(struct gather *gather, const struct position *at);

/* Free what it holds. */
void gather_done(struct gather *gather);

#endif
