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

enum fault
catch_up_unwritten(struct store *store, const char *name)
{
	int error = errno;
	enum fault fault = fault_of(error);

	if (!fault_passes(fault) || !store->full)
		log_error("%s/%s: cannot write: %s%s", store->path, name,
		    strerror(error), fault_remedy(error));
	store->full |= fault_passes(fault);
	errno = error;
	return fault;
}

/* Save the index's end before deleting it. */
static void
keep_end(struct store *store)
{
	const char *uuid = store->journal.uuid;
	uint64_t end = store->durable;

	/* A mark that is higher stays, and one of another store. */
	if (end > 0 &&
	    journal_read_end(&store->journal, uuid, &end) == FAULT_NONE &&
	    end == store->durable &&
	    journal_write_end(&store->journal, end) < 0)
		catch_up_unwritten(store, JOURNAL_END_NAME);
}

enum fault
catch_up_index_failed(struct store *store)
{
	/* LMDB says so of a short write; there may be room again by now. */
	if (errno == EIO && store->full)
		errno = ENOSPC;
	if (errno != EBADMSG)
		return catch_up_unwritten(store, "index");
	bool current = store->index == NULL || index_is_current(store->index);
	/* Nobody else may be told of it, so nobody may use it from here on. */
	if (current)
		index_disbelieve(store->journal.dir);
	keep_end(store);
	if (current)
		index_discard(store->journal.dir);
	log_error("%s/index: %s; the next start builds it again from the "
		  "journal and checks that, or opens a new one",
	    store->path,
	    current ? "damaged and removed" : "was removed while in use");
	return FAULT_FAILED;
}

/*
 * What was read goes into the index, a new one if `build`, and that covers the
 * journal up to `to`.
 */
static enum fault
enter_pairs(struct store *store, struct pairs *pairs, bool build,
    const struct position *to)
{
	struct position covered;

	if (pairs->n == 0 && !build)
		return FAULT_NONE;
	if (pairs_sort(pairs) == 0 &&
	    index_build(store->index, pairs, build, to, &store->journal,
		store->watch) == 0 &&
	    index_begin(store->index, &covered) == 0)
		return FAULT_NONE;
	return errno == ECANCELED ? FAULT_STOPPED
				  : catch_up_index_failed(store);
}

static enum fault
cut_tail(struct store *store, uint64_t end, uint64_t tail_end)
{
	struct journal *journal = &store->journal;
	char name[JOURNAL_KEPT_MAX];

	if (journal_keep(journal, end, tail_end, name) < 0)
		return catch_up_unwritten(store, JOURNAL_NAME ".torn");
	if (journal_cut(journal, end) < 0 || journal_sync(journal) < 0)
		return journal_failed(journal, "cutting a torn end", end);
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
			return catch_up_unwritten(store, "index");
		if (replay->at.end < next_step)
			continue;
		next_step = replay->at.end + STEP_BYTES;
		/* The plants are entered in about the same time. */
		if (!watch_step(
			store->watch, replay->at.end, 2 * store->journal.size))
			return FAULT_STOPPED;
	}
	return *result == REPLAY_ERROR
		   ? journal_unreadable(&store->journal, replay->at.end)
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
	const bool build = covered->end == 0;
	struct pairs pairs = { 0 };
	struct replay replay = { 0 };
	enum replay_result result = REPLAY_END;
	enum fault fault = FAULT_NONE;
	uint64_t tail_end = 0; /* where what is to be cut ends */
	bool settle =
	    whole || journal_has_text(&store->journal, store->durable);

	if (settle)
		fault = journal_settle(&store->journal, store->durable);
	if (fault == FAULT_NONE &&
	    (replay_init(
		 &replay, store->journal.fd, store->journal.seed, from) < 0 ||
		pairs_init(&pairs, store->journal.dir) < 0))
		fault = fault_report(store->path, "cannot read on");
	if (fault == FAULT_NONE)
		fault =
		    read_lines(store, &replay, covered->end, &pairs, &result);
	if (fault == FAULT_NONE &&
	    (settle || result == REPLAY_BAD || replay.at.end < store->durable))
		fault = journal_finish(
		    &store->journal, &replay, store->durable, &tail_end);
	if (fault == FAULT_NONE && settle)
		store->durable = replay.at.end;
	if (fault == FAULT_NONE)
		fault = enter_pairs(store, &pairs, build, &replay.at);
	if (fault == FAULT_STOPPED)
		log_warning("%s/index: stopped before it was built; the next "
			    "start begins again",
		    store->path);
	/* A part of an index only takes room. */
	if (fault != FAULT_NONE && build)
		index_discard(store->journal.dir);
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
	if (store->index == NULL) {
		fault = catch_up_has_room(store, 0) ? catch_up_start(store)
						    : FAULT_FULL;
		if (fault != FAULT_NONE)
			return fault;
	}
	if (index_begin(store->index, &covered) < 0)
		return catch_up_index_failed(store);
	/* It was synced before. */
	if (store->durable < covered.end)
		store->durable = covered.end;
	/* What others have stored must still be there. */
	if (covered.end != store->at.end)
		fault = journal_check_seen(journal, &covered);
	/* Whether a line, or a part of one, follows. */
	if (fault == FAULT_NONE && (journal_has_text(journal, covered.end) ||
				       covered.end < store->durable))
		fault = read_on(store, &covered, &covered, false);
	else if (fault == FAULT_NONE)
		store->at = covered;
	if (fault != FAULT_NONE)
		index_abort(store->index);
	return fault;
}

/* A new index, which covers nothing, in a transaction. */
static enum fault
make_index(struct store *store, enum index_use use, enum index_state state)
{
	struct journal *journal = &store->journal;
	struct position covered;

	if (journal->size > RECORD_HEADER_LEN && !store->full)
		log_info("%s/index: %s; building it from %" PRIu64
			 " bytes of " JOURNAL_NAME,
		    store->path,
		    state == INDEX_ABSENT ? "there is none"
		    : state == INDEX_STALE
			? "not closed cleanly, incomplete or a copy"
			: "damaged",
		    journal->size);
	if (index_create(journal, store->path, use, &store->index) < 0 ||
	    index_begin(store->index, &covered) < 0)
		return catch_up_index_failed(store);
	return FAULT_NONE;
}

enum fault
catch_up_start(struct store *store)
{
	const enum index_use use = store->long_lived ? INDEX_SERVE : INDEX_ONCE;
	struct journal *journal = &store->journal;
	const struct position *from = &journal->start;
	struct position covered;
	struct index_view view;
	enum fault fault = index_know(journal, store->path, use, &view);

	if (fault != FAULT_NONE)
		return fault;
	store->index = view.index;
	store->durable = view.end;
	covered = view.covered;
	/* Save the index's end before deleting it. */
	if (store->index == NULL && view.seen.end > 0 &&
	    journal_write_end(journal, view.end) < 0)
		fault = catch_up_unwritten(store, JOURNAL_END_NAME);
	else if (store->index == NULL)
		fault = make_index(store, use, view.state);
	else if (index_begin(store->index, &covered) < 0)
		fault = catch_up_index_failed(store);
	if (covered.end > 0 &&
	    !(store->long_lived && covered.end <= CHECK_BYTES_MAX))
		from = &covered;
	if (fault == FAULT_NONE)
		fault = read_on(store, from, &covered, true);
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
