/*
 * reader: see store/reader.h.
 *
 * Happy path: read line after line without the lock, up to a margin before the
 * end of the file; then take the lock for a moment, so that nobody is in the
 * middle of a write, find where the journal ends, and sync it; then read on to
 * there.  Failure modes: damage ends it with its offset, also where only the
 * index still covers what is gone; a torn tail is reported and not read.
 */
#include "store/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "reader.h"

/*
 * What is this far before the end of the file cannot be taken back any more,
 * and is read without the lock; the rest only once its end is known.  More than
 * an append with the room behind it.
 */
#define MARGIN (2 * JOURNAL_APPEND_MAX)

#define STEP_BYTES ((uint64_t)1 << 20)

static enum fault
open_journal(struct reader *reader)
{
	struct journal *journal = &reader->journal;
	const char *path = reader->path;
	enum fault fault = journal_open(journal, path, false);

	if (fault != FAULT_ABSENT || errno != ENOENT)
		return fault;
	if (journal->dir < 0)
		return fault_report(path, "cannot open");
	bool failed = journal_exists(journal, JOURNAL_FAILED_NAME);
	log_error("%s: %s", path,
	    failed ? "a sync has failed; start the service, which recovers "
		     "the store, and try again"
		   : "holds no store; name the directory of " JOURNAL_NAME);
	return failed ? FAULT_FAILED : FAULT_ABSENT;
}

struct reader *
reader_open(const char *path, const struct watch *watch, enum fault *fault)
{
	struct reader *reader = calloc(1, sizeof(*reader));

	if (reader == NULL) {
		*fault = fault_report(path, "cannot read");
		return NULL;
	}
	reader->path = path;
	if (watch != NULL)
		reader->watch = *watch;
	*fault = open_journal(reader);
	if (*fault == FAULT_NONE)
		*fault = reader_resume(reader, &reader->journal.start);
	if (*fault == FAULT_NONE)
		return reader;
	reader_close(reader);
	return NULL;
}

void
reader_close(struct reader *reader)
{
	if (reader == NULL)
		return;
	replay_done(&reader->replay);
	pairs_done(&reader->rest);
	index_close(reader->index, false);
	journal_close(&reader->journal);
	free(reader);
}

/* The window from before may hold bytes that have changed. */
static enum fault
begin_at(struct reader *reader, const struct position *at)
{
	struct position from = *at;

	replay_done(&reader->replay);
	if (replay_init(&reader->replay, reader->journal.fd,
		reader->journal.seed, &from) < 0)
		return fault_report(reader->journal.name, "cannot read");
	return FAULT_NONE;
}

enum fault
reader_resume(struct reader *reader, const struct position *at)
{
	uint64_t size = reader->journal.size;

	reader->settled = false;
	reader->limit = size > MARGIN ? size - MARGIN : 0;
	reader->next_step = 0;
	reader->plants = 0;
	reader->fault = FAULT_NONE;
	return begin_at(reader, at);
}

enum fault
reader_lock(struct reader *reader)
{
	struct journal *journal = &reader->journal;
	int64_t deadline_ms =
	    clock_ms(CLOCK_MONOTONIC) + JOURNAL_LOCK_TIMEOUT_MS;
	const char *why;

	if (journal->dir < 0)
		return FAULT_NONE;
	/* Where files cannot be locked, no store is served. */
	if (journal_lock(journal, false, deadline_ms) < 0 && errno == ETIMEDOUT)
		return fault_report(journal->name, "cannot lock it");
	why = journal_check(journal, 0);
	if (why == NULL)
		return FAULT_NONE;
	log_error("%s: %s while it was read", journal->name, why);
	reader_unlock(reader);
	return FAULT_FAILED;
}

void
reader_unlock(struct reader *reader)
{
	if (reader->journal.dir >= 0)
		journal_unlock(&reader->journal);
}

enum reader_index
reader_open_index(
    struct reader *reader, struct index **index, struct position *covered)
{
	static const enum reader_index states[] = {
		[INDEX_OPENED] = READER_INDEX_USABLE,
		[INDEX_ABSENT] = READER_INDEX_ABSENT,
		[INDEX_STALE] = READER_INDEX_STALE,
		[INDEX_FOREIGN] = READER_INDEX_FOREIGN,
		[INDEX_REFUSED] = READER_INDEX_UNUSABLE,
	};
	struct journal *journal = &reader->journal;
	enum index_open result = INDEX_ABSENT;

	*index = NULL;
	if (journal->dir >= 0)
		result = index_open(
		    journal->dir, reader->path, journal->uuid, false, index);
	if (result == INDEX_OPENED && index_begin(*index, covered) < 0)
		result = INDEX_REFUSED;
	else if (result == INDEX_OPENED && !journal_has(journal, covered))
		result = INDEX_STALE;
	if (result != INDEX_OPENED) {
		int error = errno;

		*covered = (struct position){ 0 };
		index_close(*index, false);
		*index = NULL;
		errno = error;
	}
	return states[result];
}

/* Under the lock: find the end behind what was read. */
static enum fault
find_end(struct reader *reader)
{
	const struct journal *journal = &reader->journal;
	const char *name = journal->name;
	uint64_t tail_end;
	enum fault fault = FAULT_NONE;
	struct replay rest;

	if (journal->dir >= 0) {
		reader->known =
		    index_end(journal->dir, reader->path, journal->uuid);
		fault =
		    journal_read_end(journal, journal->uuid, &reader->known);
	}
	if (fault != FAULT_NONE)
		return fault;
	if (replay_init(&rest, journal->fd, journal->seed, &reader->replay.at) <
	    0)
		return fault_report(name, "cannot read");
	enum replay_tail tail = replay_finish(&rest, &tail_end);
	if (tail == REPLAY_TAIL_ERROR)
		fault = fault_report(name, "cannot read");
	else if (tail == REPLAY_DAMAGED || rest.at.end < reader->known)
		fault = journal_lost(
		    journal, rest.at.end, rest.reason, reader->known);
	else if (tail == REPLAY_TORN)
		log_warning("%s: a batch was torn at byte %" PRIu64
			    " by a crash, before it was acknowledged; the "
			    "service will cut it off",
		    name, rest.at.end);
	reader->limit = rest.at.end;
	replay_done(&rest);
	return fault;
}

static enum fault
settle(struct reader *reader)
{
	enum fault fault = reader_lock(reader);

	if (fault != FAULT_NONE)
		return fault;
	fault = find_end(reader);
	/* A process that died may have left lines that are not synced. */
	if (fault == FAULT_NONE && reader->journal.dir >= 0 &&
	    journal_sync(&reader->journal) < 0)
		fault = journal_fail(&reader->journal, "fdatasync");
	reader_unlock(reader);
	reader->settled = fault == FAULT_NONE;
	return reader->settled ? begin_at(reader, &reader->replay.at) : fault;
}

/* Whether to go on. */
static bool
take_step(struct reader *reader)
{
	uint64_t done = reader->replay.at.end;
	uint64_t total = reader->settled ? reader->limit : reader->journal.size;

	if (done < reader->next_step)
		return true;
	reader->next_step = done + STEP_BYTES;
	return watch_step(&reader->watch, done, total);
}

bool
reader_next(struct reader *reader, struct record *record)
{
	while (reader->fault == FAULT_NONE) {
		if (!take_step(reader)) {
			reader->fault = FAULT_STOPPED;
			break;
		}
		if (!reader->settled && reader->replay.at.end >= reader->limit)
			reader->fault = settle(reader);
		if (reader->fault != FAULT_NONE ||
		    (reader->settled && reader->replay.at.end == reader->limit))
			break;
		switch (replay_next(&reader->replay, record)) {
		case REPLAY_RECORD:
			reader->watermark = record->safe;
			if (record->plant == NULL)
				continue;
			reader->plants++;
			reader->last_plant = reader->replay.at.last;
			return true;
		case REPLAY_ERROR:
			reader->fault =
			    fault_report(reader->journal.name, "cannot read");
			break;
		default:
			reader->fault = journal_damaged(&reader->journal,
			    reader->replay.at.end, reader->replay.reason);
		}
	}
	return false;
}

enum fault
reader_read_all(struct reader *reader)
{
	struct record record;

	while (reader_next(reader, &record))
		;
	return reader->fault;
}

enum fault
reader_collect(struct reader *reader, struct pairs *pairs)
{
	struct record record;
	int result = pairs_init(pairs, AT_FDCWD);

	while (result == 0 && reader_next(reader, &record))
		result = pairs_add(pairs, record.id, reader->replay.at.last);
	if (reader->fault == FAULT_NONE &&
	    (result < 0 || pairs_sort(pairs) < 0))
		reader->fault = fault_report("/var/tmp", "cannot sort there");
	return reader->fault;
}

void
reader_report(const struct reader *reader, struct reader_report *report)
{
	memcpy(report->store, reader->journal.uuid, RECORD_UUID_LEN);
	report->store[RECORD_UUID_LEN] = '\0';
	report->plants = reader->plants;
	report->bytes = reader->replay.at.end;
	report->seq = reader->replay.at.seq;
	report->last_plant = reader->last_plant;
	report->watermark = reader->watermark;
}

enum fault
reader_fault(const struct reader *reader)
{
	return reader->fault;
}

/*
 * Open the index, and have reader_next go on from where it ends: from the
 * beginning where there is none that can be used.
 */
static enum fault
begin_search(struct reader *reader, bool use_index)
{
	struct position covered = { 0 };
	enum fault fault = FAULT_NONE;

	pairs_done(&reader->rest);
	index_close(reader->index, false);
	reader->index = NULL;
	if (use_index) {
		fault = reader_lock(reader);
		if (fault != FAULT_NONE)
			return fault;
		reader_open_index(reader, &reader->index, &covered);
		if (reader->index != NULL)
			index_abort(reader->index);
		reader_unlock(reader);
	}
	fault = reader_resume(
	    reader, covered.end > 0 ? &covered : &reader->journal.start);
	if (fault == FAULT_NONE)
		fault = reader_collect(reader, &reader->rest);
	reader->searching = fault == FAULT_NONE;
	return fault;
}

/* An entry counts where the record holds the same; false if it does not. */
static bool
ask_index(struct reader *reader, int64_t id, uint64_t *offset)
{
	struct position covered;
	enum index_result found = INDEX_ERROR;

	*offset = 0;
	if (index_begin(reader->index, &covered) == 0)
		found = index_find(reader->index, id, offset);
	index_abort(reader->index);
	return found == INDEX_NEW ||
	       (found == INDEX_FOUND &&
		   journal_has_plant(&reader->journal, *offset, id));
}

enum fault
reader_find(struct reader *reader, int64_t id, uint64_t *offset)
{
	enum fault fault = FAULT_NONE;

	*offset = 0;
	if (!reader->searching)
		fault = begin_search(reader, true);
	if (fault == FAULT_NONE && reader->index != NULL) {
		fault = reader_lock(reader);
		if (fault != FAULT_NONE)
			return fault;
		bool right = ask_index(reader, id, offset);
		reader_unlock(reader);
		if (!right)
			fault = begin_search(reader, false);
		else if (*offset > 0)
			return FAULT_NONE;
	}
	if (fault == FAULT_NONE)
		*offset = pairs_find(&reader->rest, id);
	return fault;
}

enum fault
reader_read(struct reader *reader, uint64_t offset, struct record *record)
{
	if (journal_read(&reader->journal, offset, record) == 0)
		return FAULT_NONE;
	if (errno == EBADMSG)
		return journal_damaged(
		    &reader->journal, offset, "no valid line begins here");
	return fault_report(reader->journal.name, "cannot read");
}

enum fault
reader_index(struct reader *reader, enum reader_index *state, uint64_t *end)
{
	struct position covered;
	struct index *index;
	enum fault fault = reader_lock(reader);

	if (fault != FAULT_NONE)
		return fault;
	*state = reader_open_index(reader, &index, &covered);
	index_close(index, false);
	reader_unlock(reader);
	*end = covered.end;
	return reader_resume(
	    reader, covered.end > 0 ? &covered : &reader->journal.start);
}
