/*
 * catch_up: reading on.  See catch_up.h.
 *
 * Happy path: nothing is behind the place that the index covers, as one byte
 * shows.  Otherwise the lines of others are entered, read from the disk where
 * no process is known to have synced them.  Failure modes: a torn tail is kept
 * beside the journal and cut; damage refuses.
 */
#include "catch_up.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ground/log.h"

/*
 * A long lived process checks a journal up to this size from its beginning at
 * every start: 16 ms at 1 GB/s.  A larger one is checked whole when its index
 * is built, and by `verify`.
 */
#define CHECK_BYTES_MAX ((uint64_t)16 << 20)

#define STEP_BYTES ((uint64_t)1 << 20)

/* An index, with what sorts its ids, takes at most this part of the journal. */
#define INDEX_PART 4

/* The index gets what was read, and then covers the journal up to `to`. */
static enum fault
enter_pairs(struct store *store, struct pairs *pairs, const struct position *to)
{
	struct position covered;
	enum fault fault;

	if (pairs_sort(pairs) < 0)
		return journal_unwritten(&store->journal, "index", errno);
	fault = index_build(store->index, pairs, to, store->watch);
	if (fault == FAULT_NONE)
		fault = index_begin(store->index, &covered);
	return fault;
}

static enum fault
cut_tail(struct store *store, uint64_t end, uint64_t tail_end)
{
	struct journal *journal = &store->journal;
	char name[JOURNAL_KEPT_MAX];

	enum fault fault = journal_keep(journal, end, tail_end, name);

	if (fault == FAULT_NONE)
		fault = journal_cut(journal, end);
	if (fault == FAULT_NONE)
		fault = journal_sync(journal);
	if (fault != FAULT_NONE)
		return fault;
	log_warning("%s: a batch is torn at byte %" PRIu64 ", by a crash or a "
		    "failed write, before it was acknowledged: its %" PRIu64
		    " bytes are kept in %s and cut off",
	    journal->name, end, tail_end - end, name);
	return FAULT_NONE;
}

/* Every line from replay->at on; the plants behind `covered` into `pairs`. */
static enum fault
read_lines(struct store *store, struct replay *replay, uint64_t covered,
    struct pairs *pairs, enum replay_result *result)
{
	uint64_t next_step = replay->at.end + STEP_BYTES;
	struct record record;

	while ((*result = replay_next(replay, &record)) == REPLAY_RECORD) {
		if (record.plant != NULL && replay->at.last >= covered &&
		    pairs_add(pairs, record.id, replay->at.last) < 0)
			return journal_unwritten(
			    &store->journal, "index", errno);
		if (replay->at.end < next_step)
			continue;
		next_step = replay->at.end + STEP_BYTES;
		/* The plants are entered in about the same time. */
		if (!watch_step(
			store->watch, replay->at.end, 2 * store->journal.size))
			return FAULT_STOPPED;
	}
	return *result == REPLAY_ERROR ? journal_unreadable(&store->journal,
					     replay->at.end, replay->error)
				       : FAULT_NONE;
}

/*
 * Read from `from` to the journal's end.  `whole`: look at everything behind it
 * too; else a blank line is the end.
 */
static enum fault
read_on(struct store *store, const struct position *from,
    const struct position *covered, bool whole)
{
	struct journal *journal = &store->journal;
	const bool build = covered->end == 0;
	struct pairs pairs = { 0 };
	struct replay replay;
	enum replay_result result = REPLAY_END;
	enum fault fault = FAULT_NONE;
	uint64_t tail_end = 0; /* where what is to be cut ends */
	bool settle = whole || journal_has_text(journal, journal->durable);

	replay_init(&replay, journal->fd, journal->seed, from);
	if (settle)
		fault = journal_settle(journal);
	if (fault == FAULT_NONE && pairs_init(&pairs, journal->dir) < 0)
		fault = fault_report(journal->path, "cannot read on");
	if (fault == FAULT_NONE)
		fault =
		    read_lines(store, &replay, covered->end, &pairs, &result);
	if (fault == FAULT_NONE && (settle || result == REPLAY_BAD ||
				       replay.at.end < journal->durable))
		fault = journal_finish(
		    journal, &replay, journal->durable, &tail_end);
	if (fault == FAULT_NONE && settle)
		journal->durable = replay.at.end;
	if (fault == FAULT_NONE && (build || pairs.n > 0))
		fault = enter_pairs(store, &pairs, &replay.at);
	if (fault == FAULT_STOPPED)
		log_warning("%s/index: stopped before it was built; the next "
			    "start begins again",
		    journal->path);
	/* A part of an index only takes room. */
	if (fault != FAULT_NONE && build)
		index_discard(journal->dir);
	/* Last, since a journal that is refused is left as it is. */
	if (fault == FAULT_NONE && tail_end > replay.at.end)
		fault = cut_tail(store, replay.at.end, tail_end);
	if (fault == FAULT_NONE)
		store->at = replay.at;
	replay_done(&replay);
	pairs_done(&pairs);
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
	/* A client gets its answer before a try that cannot succeed. */
	if (store->index == NULL)
		fault = catch_up_has_room(store, 0) ? catch_up_start(store)
						    : FAULT_FULL;
	if (fault == FAULT_NONE)
		fault = index_begin(store->index, &covered);
	if (fault != FAULT_NONE)
		return fault;
	/* It was synced before. */
	if (journal->durable < covered.end)
		journal->durable = covered.end;
	/* What others have stored must still be there. */
	if (covered.end != store->at.end)
		fault = journal_check_seen(journal, &covered);
	/* Whether a line, or a part of one, follows. */
	if (fault == FAULT_NONE && (journal_has_text(journal, covered.end) ||
				       covered.end < journal->durable))
		fault = read_on(store, &covered, &covered, false);
	else if (fault == FAULT_NONE)
		store->at = covered;
	if (fault != FAULT_NONE)
		index_abort(store->index);
	return fault;
}

/* Why there is no index that can be used. */
static void
log_build(const struct journal *journal, enum index_state state)
{
	if (journal->size > RECORD_HEADER_LEN && !journal->full)
		log_info("%s/index: %s; building it from %" PRIu64
			 " bytes of " JOURNAL_NAME,
		    journal->path, index_words[state].text, journal->size);
}

/* Open the index, or make a new one, which covers nothing; in a transaction. */
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
		/* Save the index's end before deleting it. */
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
		const struct position *from = &store->journal.start;

		if (covered.end > 0 &&
		    !(store->long_lived && covered.end <= CHECK_BYTES_MAX))
			from = &covered;
		fault = read_on(store, from, &covered, true);
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
