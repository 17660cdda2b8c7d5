/*
 * reader: see store/reader.h.
 *
 * Happy path: read line after line without the lock, up to a margin before the
 * end of the file; then take the lock for a moment, so that nobody is in the
 * middle of a write, find where the journal ends, and sync it; then read on to
 * there.  Failure modes: damage ends it with its offset, also where only the
 * index still knows of what is gone; what a torn batch left behind the last line
 * is told and not read.
 */
#include "store/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "index.h"
#include "reader_state.h"
#include "store/store.h"

/*
 * What is this far before the end of the file cannot be taken back any more,
 * and is read without the lock; the rest only once its end is known.  More than
 * an append with the room behind it.
 */
#define MARGIN (2 * JOURNAL_APPEND_MAX)

#define STEP_BYTES ((uint64_t)1 << 20)

int
reader_error(const char *name, const char *what)
{
	int error = errno;
	const char *remedy = "";
	int status = EX_IOERR;

	switch (error) {
	case EACCES:
	case EPERM:
		remedy = "; run this as its owner";
		status = EX_NOPERM;
		break;
	case ENOENT:
	case ENOTDIR:
		remedy = "; check its name";
		status = EX_NOINPUT;
		break;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		remedy = "; make room";
		status = EX_CANTCREAT;
		break;
	case ENOMEM:
		status = EX_TEMPFAIL;
		break;
	}
	log_error("%s: %s: %s%s", name, what, strerror(error), remedy);
	return status;
}

int
reader_damaged(const struct reader *reader, uint64_t offset, const char *reason)
{
	log_error("%s: damaged at byte %" PRIu64 ": %s; " JOURNAL_REMEDY,
	    reader->name, offset, reason);
	return EX_DATAERR;
}

static int
damaged_line(const struct reader *reader, const struct replay *replay)
{
	return reader_damaged(reader, replay->at.end,
	    replay->reason != NULL
		? replay->reason
		: "blank lines, or the file's end, in place of a record");
}

static int
begin_at(struct reader *reader, const struct position *at)
{
	struct replay replay;

	if (replay_init(&replay, reader->journal.fd, reader->journal.seed, at) <
	    0)
		return reader_error(reader->name, "cannot read");
	/* The window from before may hold other bytes. */
	replay_done(&reader->replay);
	reader->replay = replay;
	return EX_OK;
}

int
reader_resume(struct reader *reader, const struct position *at, uint64_t plants)
{
	uint64_t size = reader->journal.size;
	int status = begin_at(reader, at);

	if (status != EX_OK)
		return status;
	reader->settled = false;
	reader->limit = size > MARGIN ? size - MARGIN : 0;
	reader->next_step = 0;
	reader->plants = plants;
	return EX_OK;
}

/*
 * The journal's own lock as well, as those who write take it: somebody may have
 * removed the lock file in the middle of their write, or begun to serve what was
 * a copy without one.
 */
static int
take_locks(struct reader *reader)
{
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + STORE_LOCK_TIMEOUT_MS;
	int fd = reader->journal.fd;

	if (reader->lock.fd >= 0)
		return lock_both_shared(&reader->lock, fd, deadline_ms);
	/* A copy may lie where files cannot be locked, and so none is served. */
	int locked = lock_file_shared(fd, deadline_ms);
	return locked == 0 || errno != ETIMEDOUT ? 0 : -1;
}

int
reader_lock(struct reader *reader)
{
	if (reader->dir < 0 || take_locks(reader) == 0)
		return EX_OK;
	if (errno == ETIMEDOUT)
		log_error("%s: held by another process for %d ms; try again "
			  "later",
		    reader->name, STORE_LOCK_TIMEOUT_MS);
	else
		log_error("%s: its lock cannot be taken: %s; try again later",
		    reader->name, strerror(errno));
	return EX_TEMPFAIL;
}

void
reader_unlock(struct reader *reader)
{
	if (reader->dir < 0)
		return;
	lock_unlock_file(reader->journal.fd);
	if (reader->lock.fd >= 0)
		lock_release(&reader->lock);
}

/* Up to where the index vouches for the journal; 0 where none does. */
static uint64_t
known_end(const struct reader *reader)
{
	struct position covered = { 0 };

	if (reader->dir < 0)
		return 0;
	struct index *index =
	    index_open_reader(reader->dir, reader->path, reader->journal.uuid);
	if (index == NULL || index_begin(index, &covered) < 0)
		covered.end = 0;
	index_close(index, false);
	return covered.end;
}

/* What follows on the last line was stored, and cannot be read. */
static int
missing_end(
    const struct reader *reader, const struct replay *rest, uint64_t known)
{
	if (rest->reason != NULL)
		return damaged_line(reader, rest);
	log_error("%s: it is shorter (%" PRIu64
		  " bytes) than what was stored in it (%" PRIu64
		  "): restore it from a backup",
	    reader->name, rest->at.end, known);
	return EX_DATAERR;
}

/* Under the lock: find the end behind what was read. */
static int
find_end(struct reader *reader)
{
	struct replay rest;
	uint64_t tail_end, known = known_end(reader);
	int status = EX_OK;

	if (replay_init(&rest, reader->journal.fd, reader->journal.seed,
		&reader->replay.at) < 0)
		return reader_error(reader->name, "cannot read");
	enum replay_tail tail = replay_finish(&rest, &tail_end);
	if (tail == REPLAY_TAIL_ERROR)
		status = reader_error(reader->name, "cannot read");
	else if (tail == REPLAY_DAMAGED)
		status = damaged_line(reader, &rest);
	else if (rest.at.end < known)
		status = missing_end(reader, &rest, known);
	else if (tail == REPLAY_TORN)
		log_warning("%s: a batch was torn at byte %" PRIu64
			    " by a crash, before it was acknowledged; the "
			    "service will cut it off",
		    reader->name, rest.at.end);
	reader->limit = rest.at.end;
	replay_done(&rest);
	return status;
}

enum lock_mark
reader_mark(const struct reader *reader)
{
	return reader->lock.fd < 0 ? LOCK_NEW : lock_mark(&reader->lock, NULL);
}

int
reader_check_place(struct reader *reader)
{
	const char *why = NULL;

	if (reader->dir >= 0)
		why = journal_check(&reader->journal, reader->path, 0);
	if (why == NULL)
		return EX_OK;
	log_error("%s: %s while it was read", reader->name, why);
	return EX_IOERR;
}

bool
reader_has_line(const struct reader *reader, const struct position *at)
{
	struct record record;
	char *line = NULL;
	size_t size = 0;
	bool has = at->seq == 0 || (journal_read(&reader->journal, at->last,
					&record, &line, &size) == 0 &&
				       position_is_behind(at, &record));

	free(line);
	return has;
}

/* Under the lock: whether what is read is the store's, and good. */
static int
check_store(struct reader *reader)
{
	enum lock_mark mark = reader_mark(reader);
	int status = reader_check_place(reader);

	if (status != EX_OK)
		return status;
	if (mark == LOCK_FAILED || mark == LOCK_UNREADABLE) {
		log_error("%s: %s; start the service, which recovers it, and "
			  "try again",
		    reader->name,
		    mark == LOCK_FAILED
			? "marked as failed after a sync that failed"
			: "its lock file cannot be read");
		return EX_IOERR;
	}
	return EX_OK;
}

/*
 * A sync has failed: the kernel may have told nobody else, so those who write
 * must learn it from the mark.
 */
static int
fail_store(const struct reader *reader)
{
	int status = reader_error(reader->name, "cannot sync");

	if (reader->lock.fd < 0)
		return status;
	if (lock_set_mark(
		&reader->lock, LOCK_FAILED, reader->journal.uuid, true) == 0)
		log_error("%s: the store is marked as failed; the service's "
			  "next start copies it to a fresh file",
		    reader->name);
	else
		log_error("%s: the store cannot be marked as failed: %s; stop "
			  "all its processes",
		    reader->name, strerror(errno));
	return status;
}

static int
settle(struct reader *reader)
{
	int status = reader_lock(reader);

	if (status != EX_OK)
		return status;
	status = check_store(reader);
	if (status == EX_OK)
		status = find_end(reader);
	/* A process that died may have left lines that are not synced. */
	if (status == EX_OK && reader->dir >= 0 &&
	    journal_sync(&reader->journal) < 0)
		status = fail_store(reader);
	reader_unlock(reader);
	if (status != EX_OK)
		return status;
	reader->settled = true;
	struct position at = reader->replay.at;
	return begin_at(reader, &at);
}

/* Whether to go on. */
static bool
take_step(struct reader *reader)
{
	uint64_t done = reader->replay.at.end;
	uint64_t total = reader->settled ? reader->limit : reader->journal.size;

	if (done < reader->next_step || reader->watch.step == NULL)
		return true;
	if (!reader->watch.step(reader->watch.context, done, total))
		return false;
	reader->next_step = done + STEP_BYTES;
	return true;
}

static enum reader_result
give_up(struct reader *reader, int status)
{
	reader->status = status;
	return READER_FAILED;
}

enum reader_result
reader_next(struct reader *reader, struct record *record)
{
	int status;

	do {
		if (!take_step(reader))
			return READER_STOPPED;
		if (!reader->settled &&
		    reader->replay.at.end >= reader->limit) {
			status = settle(reader);
			if (status != EX_OK)
				return give_up(reader, status);
		}
		if (reader->settled && reader->replay.at.end == reader->limit)
			return READER_END;
		switch (replay_next(&reader->replay, record)) {
		case REPLAY_RECORD:
			reader->watermark = record->safe;
			break;
		case REPLAY_ERROR:
			return give_up(
			    reader, reader_error(reader->name, "cannot read"));
		default:
			return give_up(
			    reader, damaged_line(reader, &reader->replay));
		}
	} while (record->plant == NULL);
	reader->plants++;
	return READER_PLANT;
}

void
reader_report(const struct reader *reader, struct reader_report *report)
{
	memcpy(report->store, reader->journal.uuid, RECORD_UUID_LEN);
	report->store[RECORD_UUID_LEN] = '\0';
	report->plants = reader->plants;
	report->bytes = reader->replay.at.end;
	report->seq = reader->replay.at.seq;
	report->offset = reader->replay.at.last;
	report->watermark = reader->watermark;
}

int
reader_status(const struct reader *reader)
{
	return reader->status;
}
