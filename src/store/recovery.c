/*
 * recovery: reading on.  See recovery.h.
 *
 * Happy path: nothing is behind the place that the index covers, as one pread
 * shows.  Otherwise the lines of others are checked in order; plants that the
 * index does not have are synced, since the process that wrote them may have
 * died before its sync, and entered.  Failure modes: a torn tail is kept beside
 * the journal and cut; damage refuses.
 */
#include "recovery.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ground/log.h"
#include "reader.h"

/*
 * A long lived process checks a journal up to this size from its beginning at
 * every start: 16 ms at 1 GB/s.  A larger one is checked whole when its index
 * is built, and by `verify`.
 */
#define CHECK_BYTES_MAX ((uint64_t)16 << 20)

#define STEP_BYTES ((uint64_t)1 << 20)

enum fault
recovery_unwritten(struct store *store, const char *name)
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

/* The index's end goes with the index; the start is to know it nevertheless. */
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
		recovery_unwritten(store, JOURNAL_END_NAME);
}

enum fault
recovery_index_failed(struct store *store)
{
	/* LMDB says so of a short write; there may be room again by now. */
	if (errno == EIO && store->full)
		errno = ENOSPC;
	if (errno != EBADMSG)
		return recovery_unwritten(store, "index");
	bool current = store->index == NULL || index_is_current(store->index);
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
 * journal up to `to`, once it is durable: the process that wrote it may have
 * died before its sync.
 */
static enum fault
enter_pairs(struct store *store, struct pairs *pairs, bool build,
    const struct position *to)
{
	struct position covered;

	if (pairs->n == 0 && !build)
		return FAULT_NONE;
	if (journal_sync(&store->journal) < 0)
		return journal_fail(&store->journal, "fdatasync");
	store->durable = to->end;
	if (pairs_sort(pairs) == 0 &&
	    index_build(store->index, pairs, build, to, &store->journal,
		store->watch) == 0 &&
	    index_begin(store->index, &covered) == 0)
		return FAULT_NONE;
	return errno == ECANCELED ? FAULT_STOPPED
				  : recovery_index_failed(store);
}

static enum fault
cut_tail(struct store *store, uint64_t end, uint64_t tail_end)
{
	struct journal *journal = &store->journal;
	char name[JOURNAL_KEPT_MAX];

	if (journal_keep(journal, end, tail_end, name) < 0)
		return fault_report(
		    journal->name, "cannot keep a copy of its torn end");
	if (journal_cut(journal, end) < 0 || journal_sync(journal) < 0)
		return journal_fail(journal, "cutting a torn end");
	log_warning("%s: a batch was torn at byte %" PRIu64
		    " by a crash, before it was acknowledged: its %" PRIu64
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
			return recovery_unwritten(store, "index");
		if (replay->at.end < next_step)
			continue;
		next_step = replay->at.end + STEP_BYTES;
		/* The plants are entered in about the same time. */
		if (!watch_step(
			store->watch, replay->at.end, 2 * store->journal.size))
			return FAULT_STOPPED;
	}
	return *result == REPLAY_ERROR
		   ? fault_report(store->journal.name, "cannot read")
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
	struct replay replay;
	enum replay_result result = REPLAY_END;
	enum fault fault;
	uint64_t tail_end = 0; /* where what is to be cut ends */

	if (replay_init(&replay, store->journal.fd, store->journal.seed, from) <
		0 ||
	    pairs_init(&pairs, store->journal.dir) < 0)
		fault = fault_report(store->path, "cannot read on");
	else
		fault =
		    read_lines(store, &replay, covered->end, &pairs, &result);
	if (fault == FAULT_NONE &&
	    (whole || result == REPLAY_BAD || replay.at.end < store->durable))
		fault = journal_finish(
		    &store->journal, &replay, store->durable, &tail_end);
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

/* What the index covers was synced before. */
static void
note_durable(struct store *store, const struct position *covered)
{
	if (store->durable < covered->end)
		store->durable = covered->end;
}

enum fault
recovery_catch_up(struct store *store)
{
	struct journal *journal = &store->journal;
	const char *why = journal_check(journal, store->at.end);
	struct position covered;
	enum fault fault = FAULT_NONE;
	char byte = '\n';

	if (why != NULL) {
		log_error("%s: %s while it was in use; %s", journal->name, why,
		    journal_exists(journal, JOURNAL_FAILED_NAME)
			? "the next start copies it to a fresh one"
			: "put it back, or restore it from a backup");
		return FAULT_FAILED;
	}
	if (index_begin(store->index, &covered) < 0)
		return recovery_index_failed(store);
	note_durable(store, &covered);
	/* What others have stored must still be there. */
	if (covered.end > journal->size ||
	    (covered.end != store->at.end && !journal_has(journal, &covered)))
		fault = journal_damaged(journal, covered.last, NULL);
	/* One byte shows whether a line, or a part of one, follows. */
	else if (pread(journal->fd, &byte, 1, (off_t)covered.end) < 0)
		fault = fault_report(journal->name, "cannot read");
	else if (byte != '\n' || covered.end < store->durable)
		fault = read_on(store, &covered, &covered, false);
	else
		store->at = covered;
	if (fault != FAULT_NONE)
		index_abort(store->index);
	return fault;
}

/*
 * Read the journal `path` alone, whole.  Its end must not be below what the
 * index covers, nor below the end mark.  The reader, or NULL with a fault.
 */
static struct store_reader *
read_whole(const struct store *store, const char *path, enum fault *fault)
{
	struct store_reader *reader = reader_open(path, NULL, fault);

	if (reader == NULL)
		return NULL;
	reader->known =
	    index_end(store->journal.dir, store->path, reader->journal.uuid);
	*fault = journal_read_end(
	    &store->journal, reader->journal.uuid, &reader->known);
	if (*fault == FAULT_NONE)
		*fault = reader_read_all(reader);
	if (*fault == FAULT_NONE)
		return reader;
	reader_close(reader);
	return NULL;
}

/* The index of this journal, in a transaction; a new one covers nothing. */
static enum fault
open_index(struct store *store, struct position *covered)
{
	struct journal *journal = &store->journal;
	enum index_open opened = index_open(
	    journal->dir, store->path, journal->uuid, true, &store->index);
	struct store_reader *reader;
	enum fault fault;

	if (opened == INDEX_FOREIGN) {
		log_error("%s: of another store than this directory was; if "
			  "it is meant to be used, remove %s/index first",
		    journal->name, store->path);
		return FAULT_SETUP;
	}
	if (opened == INDEX_REFUSED && errno != EBADMSG)
		return recovery_index_failed(store);
	if (opened == INDEX_OPENED) {
		if (index_begin(store->index, covered) < 0)
			return recovery_index_failed(store);
		if (covered->end > journal->size)
			return journal_lost(
			    journal, journal->size, NULL, covered->end);
		if (journal_has(journal, covered))
			return FAULT_NONE;
		/* Damage, or another journal of this store? */
		reader = read_whole(store, journal->name, &fault);
		if (reader == NULL)
			return fault;
		reader_close(reader);
		index_close(store->index, false);
		store->index = NULL;
	}
	if (journal->size > RECORD_HEADER_LEN)
		log_info("%s/index: %s; building it from %" PRIu64
			 " bytes of " JOURNAL_NAME,
		    store->path,
		    opened == INDEX_ABSENT   ? "there is none"
		    : opened == INDEX_STALE  ? "of another boot, or incomplete"
		    : opened == INDEX_OPENED ? "does not belong to this journal"
					     : "damaged",
		    journal->size);
	if (index_create(
		journal->dir, store->path, journal->uuid, &store->index) < 0 ||
	    index_begin(store->index, covered) < 0)
		return recovery_index_failed(store);
	return FAULT_NONE;
}

enum fault
recovery_start(struct store *store)
{
	const struct position *from = &store->journal.start;
	struct position covered = { 0 };
	enum fault fault = open_index(store, &covered);

	note_durable(store, &covered);
	/* One request is to be quick: an index that counts covers as much. */
	if (fault == FAULT_NONE && (store->prepare || covered.end == 0))
		fault = journal_read_end(
		    &store->journal, store->journal.uuid, &store->durable);
	if (covered.end > 0 &&
	    !(store->prepare && covered.end <= CHECK_BYTES_MAX))
		from = &covered;
	if (fault == FAULT_NONE)
		fault = read_on(store, from, &covered, true);
	if (store->index != NULL)
		index_abort(store->index);
	return fault;
}

/*
 * The index goes too: the device that failed a sync may have lost pages of it,
 * of which nobody would be told.
 */
enum fault
recovery_renew(struct store *store)
{
	int dir = store->journal.dir;
	struct store_reader *failed = NULL;
	char name[JOURNAL_KEPT_MAX], *path;
	struct journal fresh;
	enum fault fault;
	uint64_t end;

	if (asprintf(&path, "%s/" JOURNAL_FAILED_NAME, store->path) < 0)
		return fault_report(store->path, "cannot recover it");
	failed = read_whole(store, path, &fault);
	if (failed == NULL)
		goto done;
	end = failed->replay.at.end;
	bool copied =
	    journal_copy(&failed->journal, 0, end, &fresh, dir, NULL) == 0;
	/* Not before: until then the index has the end of what is durable. */
	if (copied)
		index_discard(dir);
	if (!copied || journal_place(&fresh, false) < 0 ||
	    journal_rename(dir, JOURNAL_FAILED_NAME, "failed", end, name) < 0)
		fault = fault_report(path,
		    "a sync had failed, and it cannot be copied to a fresh "
		    "file");
	else
		log_warning("%s: a sync had failed: the readable records, "
			    "%" PRIu64 " bytes, were copied to a fresh file; "
			    "the old one is kept as %s",
		    store->journal.name, end, name);

done:
	reader_close(failed);
	free(path);
	return fault;
}
