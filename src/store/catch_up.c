/*
 * catch_up: reads the journal from the index's end on.  See catch_up.h.
 *
 * Happy path: the byte at the index's end is blank or absent, so no line
 * follows.  Otherwise the lines of other processes are entered into the index;
 * lines past the known durable end are read from the disk.  Failure modes: a
 * torn tail is kept in a file beside the journal, and cut off; a damaged
 * journal is refused.
 */
#include "catch_up.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "ground/log.h"

/*
 * A long-lived process checks a journal of up to this size whole at every
 * start: 16 ms at 1 GB/s.  A larger one is checked whole when its index is
 * built, and by `verify`.
 */
#define CHECK_BYTES_MAX ((uint64_t)16 << 20)

#define STEP_BYTES ((uint64_t)1 << 20)

/* An index and the sorting of its ids take at most 1/4 of the journal. */
#define INDEX_PART 4

struct reading {
	struct replay replay;
	struct pairs pairs; /* the plants to enter */
	uint64_t covered;   /* the index's end; 0 if it is empty */
	bool settle;        /* some lines may be unsynced */
};

/* Read the lines to the journal's end, and collect the plants to enter. */
static enum fault
read_lines(struct store *store, struct reading *r)
{
	const struct position *at = &r->replay.at;
	struct journal *journal = &store->journal;
	uint64_t next_step = at->end + STEP_BYTES;
	enum replay_result result;
	struct record record;

	while ((result = replay_next(&r->replay, &record)) == REPLAY_RECORD) {
		if (record.plant != NULL && at->last >= r->covered &&
		    pairs_add(&r->pairs, record.id, at->last) < 0)
			return journal_unwritten(journal, "index", errno);
		if (at->end < next_step)
			continue;
		next_step = at->end + STEP_BYTES;
		/* Reading is half of the progress: entering takes as long. */
		if (!watch_step(store->watch, at->end, 2 * journal->size))
			return FAULT_STOPPED;
	}
	return result == REPLAY_ERROR
		   ? journal_unreadable(journal, at->end, r->replay.error)
		   : FAULT_NONE;
}

/* Read from `from` to the journal's end; cut off a torn tail. */
static enum fault
read_on(struct store *store, struct reading *r, const struct position *from)
{
	const struct position *at = &r->replay.at;
	struct journal *journal = &store->journal;
	enum fault fault = FAULT_NONE;
	uint64_t tail_end = 0; /* the end of a torn tail */

	replay_init(&r->replay, journal->fd, journal->seed, from);
	if (r->settle)
		fault = journal_settle(journal);
	if (fault == FAULT_NONE && pairs_init(&r->pairs, journal->dir) < 0)
		fault = fault_report(journal->path, "cannot read on");
	if (fault == FAULT_NONE)
		fault = read_lines(store, r);
	/* With nothing to settle, the lines must reach the durable end. */
	if (fault == FAULT_NONE && (r->settle || at->end < journal->durable))
		fault = journal_finish(
		    journal, &r->replay, journal->durable, &tail_end);
	if (fault == FAULT_NONE && r->settle)
		journal->durable = at->end;
	if (fault == FAULT_NONE && (r->covered == 0 || r->pairs.n > 0))
		fault = index_build(
		    store->index, &r->pairs, &r->replay.at, store->watch);
	if (fault == FAULT_STOPPED)
		log_warning("%s/index: stopped before it was built; the next "
			    "start begins again",
		    journal->path);
	/* A partly built index is useless, and takes room. */
	if (fault != FAULT_NONE && r->covered == 0)
		index_discard(journal->dir);
	/* Cut last: a journal that is refused stays unchanged. */
	if (fault == FAULT_NONE && tail_end > at->end)
		fault = journal_cut_tail(journal, at->end, tail_end);
	if (fault == FAULT_NONE)
		store->at = *at;
	replay_done(&r->replay);
	pairs_done(&r->pairs);
	return fault;
}

enum fault
catch_up(struct store *store)
{
	struct journal *journal = &store->journal;
	const char *why = journal_check(journal, store->at.end);
	struct position covered;
	enum fault fault = FAULT_NONE;

	if (why != NULL) {
		log_error("%s: %s while it was in use; put it back, or restore "
			  "it from a backup",
		    journal->name, why);
		return FAULT_FAILED;
	}
	/* Without room a build of the index would take long and fail. */
	if (store->index == NULL)
		fault = catch_up_has_room(store, 0) ? catch_up_start(store)
						    : FAULT_FULL;
	if (fault == FAULT_NONE)
		fault = index_begin(store->index, &covered);
	if (fault != FAULT_NONE)
		return fault;
	/* An index covers synced lines only. */
	if (journal->durable < covered.end)
		journal->durable = covered.end;
	/* After others' commits the journal must have the index's last line. */
	if (covered.end != store->at.end)
		fault = journal_check_seen(journal, &covered);
	/* A byte that is not blank belongs to a line, or to a part of one. */
	if (fault == FAULT_NONE && (journal_has_text(journal, covered.end) ||
				       covered.end < journal->durable)) {
		struct reading reading = { .covered = covered.end,
			.settle = journal_has_text(journal, journal->durable) };

		fault = read_on(store, &reading, &covered);
	} else if (fault == FAULT_NONE)
		store->at = covered;
	if (fault != FAULT_NONE)
		index_abort(store->index);
	return fault;
}

/* Log why the index is built. */
static void
log_build(const struct journal *journal, enum index_state state)
{
	if (journal->size > RECORD_HEADER_LEN && !journal->full)
		log_info("%s/index: %s; building it from %" PRIu64
			 " bytes of " JOURNAL_NAME,
		    journal->path, index_words[state].text, journal->size);
}

/* Open the index, or make one that covers nothing; begin a transaction. */
static enum fault
open_index(struct store *store, struct position *covered)
{
	const enum index_use use = store->long_lived ? INDEX_SERVE : INDEX_ONCE;
	struct journal *journal = &store->journal;
	struct index_view view;
	enum fault fault = index_open(journal, use, &view);

	store->index = view.index;
	if (fault == FAULT_NONE)
		fault = journal_find_durable(journal, &view.seen);
	if (fault == FAULT_NONE && view.index == NULL) {
		/* index_create removes the old index: save its end. */
		if (view.seen.end > 0)
			fault = journal_write_end(journal);
		if (fault == FAULT_NONE) {
			log_build(journal, view.state);
			fault = index_create(journal, use, &store->index);
		}
	}
	return fault == FAULT_NONE ? index_begin(store->index, covered) : fault;
}

enum fault
catch_up_start(struct store *store)
{
	struct position covered;
	enum fault fault = open_index(store, &covered);

	if (fault == FAULT_NONE) {
		struct reading reading = { .covered = covered.end,
			.settle = true };
		bool whole =
		    covered.end == 0 ||
		    (store->long_lived && covered.end <= CHECK_BYTES_MAX);

		fault = read_on(
		    store, &reading, whole ? &store->journal.start : &covered);
	}
	if (fault == FAULT_NONE) {
		index_abort(store->index);
		return FAULT_NONE;
	}
	index_close(store->index, false);
	store->index = NULL;
	return fault;
}

bool
catch_up_has_room(const struct store *store, uint64_t bytes)
{
	struct statvfs st;

	if (store->index == NULL)
		bytes += store->journal.size / INDEX_PART;
	return fstatvfs(store->journal.dir, &st) < 0 ||
	       st.f_bavail * st.f_frsize >= bytes;
}
