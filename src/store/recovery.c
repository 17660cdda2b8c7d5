/*
 * recovery: reading on.  See recovery.h.
 *
 * Happy path: nothing is behind the place that we know, one pread says so.
 * Otherwise the lines of others are checked in order; plants that the index
 * lacks are synced, whoever left them, and entered.  Failure modes: a torn tail
 * is kept beside the journal and cut; damage refuses.
 */
#include "recovery.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gather.h"
#include "ground/log.h"

/*
 * A long lived process checks a journal up to this size from its beginning at
 * every start: 16 ms at 1 GB/s.  A larger one is checked whole when its index
 * is built, and by the operator's command.
 */
#define VERIFY_BYTES_MAX ((uint64_t)16 << 20)

/*
 * A start that entered more than this in the index, some 5,000 plants, does not
 * keep the memory which that took: up to 24 MiB where it was built.
 */
#define REFRESH_BYTES ((uint64_t)1 << 20)

static enum fault
unreadable(const struct store *store)
{
	log_error("%s/" JOURNAL_NAME ": cannot read: %s", store->path,
	    strerror(errno));
	return state_fault(errno);
}

/* `reason`: NULL if lines are good as far as they go. */
static enum fault
damaged(const struct store *store, uint64_t end, const char *reason)
{
	log_error("%s/" JOURNAL_NAME ": damaged at byte %" PRIu64
		  ": %s; nothing was changed; " JOURNAL_REMEDY,
	    store->path, end, reason != NULL ? reason : "the end is missing");
	return FAULT_DAMAGED;
}

static enum fault
cut_tail(struct store *store, uint64_t end, uint64_t tail_end)
{
	char name[64];

	if (journal_keep(&store->journal, end, tail_end, name, sizeof(name)) <
	    0) {
		log_error(
		    "%s: cannot keep a copy of the torn end of " JOURNAL_NAME
		    ": %s; make room or mend the rights",
		    store->path, strerror(errno));
		return state_fault(errno);
	}
	if (journal_cut(&store->journal, end) < 0 ||
	    journal_sync(&store->journal) < 0)
		return state_poison(store, "cutting a torn end");
	log_warning("%s/" JOURNAL_NAME ": a batch was torn at byte %" PRIu64
		    " by a crash, before it was acknowledged: its %" PRIu64
		    " bytes are kept in %s and cut off",
	    store->path, end, tail_end - end, name);
	return FAULT_NONE;
}

/* `tail_end`: where what is to be cut ends; the lines' end if nothing is. */
static enum fault
judge_tail(struct store *store, struct replay *replay, uint64_t covered,
    uint64_t *tail_end)
{
	uint64_t end = replay->at.end;
	enum replay_tail tail = replay_judge(replay, tail_end);

	if (tail == REPLAY_TAIL_ERROR)
		return unreadable(store);
	/* The index and our own syncs vouch for what is below, too. */
	if (tail == REPLAY_DAMAGED || end < covered || end < store->durable)
		return damaged(store, end, replay->reason);
	return FAULT_NONE;
}

/*
 * Read from store->at to the journal's end.  `whole`: look at everything behind
 * it too; else a blank line is the end.
 */
static enum fault
read_on(struct store *store, const struct position *covered, bool whole)
{
	struct gather gather = { .store = store,
		.covered = *covered,
		.chunk = GATHER_CHUNK,
		.build = whole && covered->end == 0 };
	struct replay replay;
	struct record record;
	enum replay_result result;
	enum fault fault = FAULT_NONE;
	bool closed = store->closed;
	uint64_t tail_end = 0;

	if (replay_init(&replay, store->journal.fd, store->journal.seed,
		&store->at) < 0) {
		log_error("out of memory for reading the journal");
		return FAULT_MEMORY;
	}
	while ((result = replay_next(&replay, &record)) == REPLAY_RECORD) {
		closed = record.plant == NULL;
		if (!closed && replay.at.last >= covered->end)
			fault = gather_add(&gather, record.id, &replay.at);
		if (fault == FAULT_NONE)
			fault = gather_watch(&gather, &replay.at);
		if (fault != FAULT_NONE)
			goto done;
	}
	if (result == REPLAY_ERROR) {
		fault = unreadable(store);
		goto done;
	}
	if (whole || result == REPLAY_BAD || replay.at.end < covered->end)
		fault =
		    judge_tail(store, &replay, gather.covered.end, &tail_end);
	if (fault == FAULT_NONE)
		fault = gather_enter(&gather, &replay.at);
	/* Last, since a journal that is refused is left as it is. */
	if (fault == FAULT_NONE && tail_end > replay.at.end)
		fault = cut_tail(store, replay.at.end, tail_end);
	if (fault == FAULT_NONE) {
		store->at = replay.at;
		store->closed = closed;
		if (gather.synced)
			store->durable = replay.at.end;
		else if (store->durable < gather.covered.end)
			store->durable = gather.covered.end;
	}

done:
	replay_done(&replay);
	gather_done(&gather);
	return fault;
}

/* Whether a line, or something that should be one, stands behind `at`. */
static int
has_more(const struct store *store)
{
	char byte;
	ssize_t n = pread(store->journal.fd, &byte, 1, (off_t)store->at.end);

	return n < 0 ? -1 : n == 1 && byte != '\n';
}

enum fault
recovery_catch_up(struct store *store)
{
	struct position covered;
	enum fault fault = FAULT_NONE;
	enum lock_mark mark = lock_mark(&store->lock, NULL);
	const char *why;

	if (mark != LOCK_OK) {
		log_error("%s/lock: %s; the next start recovers the store",
		    store->path,
		    mark == LOCK_FAILED ? "marked as failed by another process"
		    : mark == LOCK_NEW  ? "removed while it was in use"
					: "unreadable");
		return FAULT_FAILED;
	}
	why = journal_check(&store->journal, store->path, store->at.end);
	if (why != NULL) {
		log_error("%s/" JOURNAL_NAME ": %s while it was in use; put it "
			  "back, or restore it from a backup",
		    store->path, why);
		return FAULT_FAILED;
	}
	if (index_begin(store->index, &covered) < 0) {
		return state_index_failed(store);
	}
	/*
	 * Closing lines of others are read without the index, so it may lag
	 * behind us.  That no more than those lie between is not taken on
	 * trust: an older index could have been put in its place.
	 */
	if (covered.end < store->at.end)
		store->at = covered.seq == 0 ? store->journal.start : covered;
	int more = has_more(store);
	if (more < 0)
		fault = unreadable(store);
	else if (more > 0 || covered.end > store->at.end)
		fault = read_on(store, &covered, false);
	if (fault != FAULT_NONE)
		index_abort(store->index);
	return fault;
}

/* Whether the index ends at a line that the journal has; if it is a closing. */
static bool
is_covered(struct store *store, const struct position *covered, bool *closed)
{
	struct record record;

	*closed = true;
	if (covered->seq == 0)
		return covered->end == store->journal.start.end &&
		       covered->crc == store->journal.start.crc;
	if (journal_read(&store->journal, covered->last, &record, &store->line,
		&store->line_size) < 0)
		return false;
	*closed = record.plant == NULL;
	return position_is_behind(covered, &record);
}

/*
 * Find the end of what can be read, which must not be below what the index
 * knows to be durable.
 */
static enum fault
find_end(struct store *store, uint64_t known, uint64_t *end)
{
	struct replay replay;
	enum fault fault = FAULT_NONE;
	uint64_t tail_end;

	if (replay_init(&replay, store->journal.fd, store->journal.seed,
		&store->journal.start) < 0) {
		log_error("out of memory for reading the journal");
		return FAULT_MEMORY;
	}
	enum replay_tail tail = replay_finish(&replay, &tail_end);
	*end = replay.at.end;
	if (tail == REPLAY_TAIL_ERROR)
		fault = unreadable(store);
	else if (tail == REPLAY_DAMAGED || *end < known)
		fault = damaged(store, *end, replay.reason);
	int error = errno;
	replay_done(&replay);
	errno = error;
	return fault;
}

enum fault
recovery_start(struct store *store)
{
	struct position covered;
	enum fault fault;
	uint64_t end;
	bool closed = true;

	if (index_begin(store->index, &covered) < 0)
		goto index_failed;
	store->at = store->journal.start;
	store->closed = true;
	if (covered.end > store->journal.size) {
		log_error("%s/" JOURNAL_NAME ": it is shorter (%" PRIu64
			  " bytes) than what was stored in it (%" PRIu64
			  "): restore it; if this copy is meant to be used, "
			  "remove %s/index first",
		    store->path, store->journal.size, covered.end, store->path);
		index_abort(store->index);
		return FAULT_DAMAGED;
	}
	if (covered.end > 0 && !is_covered(store, &covered, &closed)) {
		/* Damage, or another journal of this store? */
		fault = find_end(store, covered.end, &end);
		if (fault != FAULT_NONE) {
			index_abort(store->index);
			return fault;
		}
		log_warning("%s/index: does not belong to this journal; "
			    "building it anew",
		    store->path);
		index_close(store->index, false);
		index_discard(store->dir);
		store->index =
		    index_open(store->dir, store->path, store->journal.uuid);
		if (store->index == NULL ||
		    index_begin(store->index, &covered) < 0)
			goto index_failed;
	}
	if (covered.end > 0 &&
	    !(store->prepare && covered.end <= VERIFY_BYTES_MAX)) {
		store->at = covered;
		store->closed = closed;
	}
	fault = read_on(store, &covered, true);
	index_abort(store->index);
	if (fault == FAULT_NONE &&
	    store->at.end - covered.end > REFRESH_BYTES &&
	    index_refresh(store->index, store->path) < 0)
		goto index_failed;
	return fault;

index_failed:
	if (errno == EBADMSG)
		return state_index_failed(store);
	log_error("%s/index: cannot use it: %s; mend its rights or remove it",
	    store->path, strerror(errno));
	return state_fault(errno);
}

/* What the index knows to be durable. */
static enum fault
ask_index(struct store *store, uint64_t *known)
{
	struct position covered;
	enum fault fault = FAULT_NONE;
	struct index *index =
	    index_open(store->dir, store->path, store->journal.uuid);

	if (index == NULL || index_begin(index, &covered) < 0)
		fault = state_fault(errno);
	else
		*known = covered.end;
	int error = errno;
	index_close(index, false);
	errno = error;
	return fault;
}

/*
 * The index goes too: the device that failed a sync may have lost pages of it,
 * of which nobody would be told.
 */
enum fault
recovery_renew(struct store *store)
{
	uint64_t known = 0, end;
	enum fault fault = ask_index(store, &known);

	if (fault == FAULT_NONE)
		fault = find_end(store, known, &end);
	if (fault == FAULT_NONE && journal_renew(&store->journal, end) < 0)
		fault = state_fault(errno);
	if (fault == FAULT_NONE) {
		index_discard(store->dir);
		if (lock_set_mark(
			&store->lock, LOCK_OK, store->journal.uuid, true) < 0)
			fault = state_fault(errno);
	}
	if (fault == FAULT_NONE)
		log_warning("%s: a sync had failed: the readable records, "
			    "%" PRIu64
			    " bytes, were copied to a fresh " JOURNAL_NAME
			    "; the old file is kept beside it",
		    store->path, end);
	else if (fault != FAULT_DAMAGED)
		log_error("%s: a sync had failed, and " JOURNAL_NAME
			  " cannot be copied to a fresh file: %s",
		    store->path, strerror(errno));
	return fault;
}
