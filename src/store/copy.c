/*
 * copy: see store/copy.h.
 *
 * Happy path: read line after line without the lock, up to a margin before the
 * end of the file; then take the lock for a moment, so that nobody is in the
 * middle of a write, find where the journal ends, and sync it; then read on to
 * there.  Failure
 * modes: damage ends it with its offset; what was added to an earlier copy when
 * it was interrupted is a torn tail of that copy, which the next one cuts.
 */
#include "store/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "journal.h"
#include "lock.h"
#include "replay.h"
#include "store/store.h"

/*
 * What is this far before the end of the file cannot be taken back any more,
 * and is read without the lock; the rest only once its end is known.  More than
 * an append with the room behind it.
 */
#define MARGIN (2 * JOURNAL_APPEND_MAX)

/* A journal that is read, to where it ends under the lock. */
struct source {
	const char *path;
	int dir;
	struct lock lock;
	struct journal journal;
	struct replay replay;
	bool settled;
	uint64_t limit; /* once settled: where it ends; before, see MARGIN */
	uint64_t plants;
};

static int
status_of(int error)
{
	switch (error) {
	case EACCES:
	case EPERM:
		return EX_NOPERM;
	case ENOENT:
	case ENOTDIR:
		return EX_NOINPUT;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return EX_CANTCREAT;
	default:
		return EX_IOERR;
	}
}

static int
say_damage(const char *path, const struct replay *replay)
{
	log_error("%s/" JOURNAL_NAME ": damaged at byte %" PRIu64 ": %s", path,
	    replay->at.end,
	    replay->reason != NULL ? replay->reason : "the end is missing");
	return EX_DATAERR;
}

static int
say_error(const char *path, const char *what)
{
	int status = status_of(errno);

	log_error("%s: %s: %s", path, what, strerror(errno));
	return status;
}

static int
open_directory(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The journal in source->dir, which stays open if it fails. */
static int
open_journal(struct source *source)
{
	switch (journal_open(&source->journal, source->dir, false)) {
	case JOURNAL_OPENED:
		break;
	case JOURNAL_ABSENT:
		log_error(
		    "%s: holds no store; name the directory of " JOURNAL_NAME,
		    source->path);
		return EX_NOINPUT;
	case JOURNAL_VERSION:
		log_error("%s/" JOURNAL_NAME ": of a version that this program "
			  "does not know",
		    source->path);
		return EX_CONFIG;
	case JOURNAL_DAMAGED:
		log_error("%s/" JOURNAL_NAME ": damaged at byte 0: not a "
			  "journal's header",
		    source->path);
		return EX_DATAERR;
	case JOURNAL_ERROR:
		return say_error(source->path, "cannot open " JOURNAL_NAME);
	}
	if (replay_init(&source->replay, source->journal.fd,
		source->journal.seed, &source->journal.start) < 0)
		return say_error(source->path, "cannot read");
	if (source->journal.size > MARGIN)
		source->limit = source->journal.size - MARGIN;
	return EX_OK;
}

static int
open_source(struct source *source, const char *path)
{
	struct stat st;

	memset(source, 0, sizeof(*source));
	source->path = path;
	source->lock.fd = source->journal.fd = -1;
	source->dir = open_directory(path);
	if (source->dir < 0)
		return say_error(path, "cannot open");
	int status = open_journal(source);
	/* A copy that was never served has no lock file, and needs none. */
	if (status == EX_OK && fstatat(source->dir, "lock", &st, 0) == 0 &&
	    lock_open(&source->lock, source->dir) < 0)
		status = say_error(path, "cannot open lock");
	return status;
}

static void
close_source(struct source *source)
{
	replay_done(&source->replay);
	journal_close(&source->journal);
	lock_close(&source->lock);
	if (source->dir >= 0)
		close(source->dir);
}

/* Under the lock: find the end behind what was read, and sync it. */
static int
find_end(struct source *source)
{
	struct replay rest;
	struct record record;
	enum replay_result result;
	uint64_t tail_end;
	int status = EX_OK;

	if (replay_init(&rest, source->journal.fd, source->journal.seed,
		&source->replay.at) < 0)
		return say_error(source->path, "cannot read");
	do
		result = replay_next(&rest, &record);
	while (result == REPLAY_RECORD);
	source->limit = rest.at.end;
	if (result == REPLAY_ERROR) {
		status = say_error(source->path, "cannot read " JOURNAL_NAME);
		goto done;
	}
	switch (replay_judge(&rest, &tail_end)) {
	case REPLAY_CLEAN:
		break;
	case REPLAY_TORN:
		log_warning("%s/" JOURNAL_NAME ": a batch was torn at byte "
			    "%" PRIu64 " by a crash, before it was "
			    "acknowledged; the service will cut it off",
		    source->path, source->limit);
		break;
	case REPLAY_DAMAGED:
		status = say_damage(source->path, &rest);
		break;
	case REPLAY_TAIL_ERROR:
		status = say_error(source->path, "cannot read " JOURNAL_NAME);
		break;
	}
	/* A process that died may have left lines that are not synced. */
	if (status == EX_OK && journal_sync(&source->journal) < 0)
		status = say_error(source->path, "cannot sync " JOURNAL_NAME);

done:
	replay_done(&rest);
	return status;
}

static int
settle(struct source *source)
{
	bool shared = source->lock.fd >= 0;
	int status;

	if (shared &&
	    lock_acquire(&source->lock,
		clock_ms(CLOCK_MONOTONIC) + STORE_LOCK_TIMEOUT_MS) < 0) {
		log_error("%s/lock: held by another process: %s; try again "
			  "later",
		    source->path, strerror(errno));
		return EX_TEMPFAIL;
	}
	const char *why = journal_check(&source->journal, 0);
	if (why != NULL) {
		log_error("%s/" JOURNAL_NAME ": %s while it was read",
		    source->path, why);
		status = EX_IOERR;
	} else if (shared && lock_mark(&source->lock, NULL) != LOCK_OK) {
		log_error("%s: marked as failed after a sync that failed; "
			  "start the service, which recovers it, and try again",
		    source->path);
		status = EX_IOERR;
	} else
		status = find_end(source);
	source->settled = status == EX_OK;
	if (shared)
		lock_release(&source->lock);
	return status;
}

/* From here on the end is known. */
static int
begin_rest(struct source *source)
{
	struct position at = source->replay.at;
	int status = settle(source);

	/* The window may hold bytes from before. */
	replay_done(&source->replay);
	if (status == EX_OK && replay_init(&source->replay, source->journal.fd,
				   source->journal.seed, &at) < 0)
		status = say_error(source->path, "cannot read");
	return status;
}

/* The next line: EX_OK, with `*more` false at the end; or a status. */
static int
read_line(struct source *source, bool *more)
{
	struct record record;
	int status = EX_OK;

	*more = false;
	if (!source->settled && source->replay.at.end >= source->limit)
		status = begin_rest(source);
	if (status != EX_OK || source->replay.at.end == source->limit)
		return status;
	switch (replay_next(&source->replay, &record)) {
	case REPLAY_RECORD:
		source->plants += record.plant != NULL;
		*more = true;
		return EX_OK;
	case REPLAY_ERROR:
		return say_error(source->path, "cannot read " JOURNAL_NAME);
	default:
		return say_damage(source->path, &source->replay);
	}
}

static int
read_all(struct source *source)
{
	bool more;
	int status;

	do
		status = read_line(source, &more);
	while (status == EX_OK && more);
	return status;
}

static void
fill_report(
    const struct source *source, uint64_t before, struct copy_report *report)
{
	report->plants = source->plants;
	report->bytes = source->replay.at.end;
	report->added = source->replay.at.end - before;
	memcpy(report->store, source->journal.uuid, RECORD_UUID_LEN);
	report->store[RECORD_UUID_LEN] = '\0';
}

int
copy_verify(const char *dir, struct copy_report *report)
{
	struct source source;
	int status = open_source(&source, dir);

	if (status == EX_OK)
		status = read_all(&source);
	if (status == EX_OK)
		fill_report(&source, 0, report);
	close_source(&source);
	return status;
}

/*
 * Take up from the copy's end: the source's next line must follow from the
 * copy's last one, which ties both together down to their first byte.
 */
static int
check_lineage(struct source *source, const struct source *dest)
{
	if (memcmp(source->journal.uuid, dest->journal.uuid, RECORD_UUID_LEN) !=
	    0) {
		log_error("%s: holds a copy of another store; name another "
			  "directory",
		    dest->path);
		return EX_CANTCREAT;
	}
	replay_done(&source->replay);
	if (replay_init(&source->replay, source->journal.fd,
		source->journal.seed, &dest->replay.at) < 0)
		return say_error(source->path, "cannot read");
	source->plants = dest->plants;
	if (journal_check(&source->journal, dest->replay.at.end) != NULL) {
		log_error("%s: holds more than %s; is it the copy of a later "
			  "state?",
		    dest->path, source->path);
		return EX_CANTCREAT;
	}
	return EX_OK;
}

/* What the copy lacks, into it, synced. */
static int
add_rest(struct source *source, struct source *dest)
{
	uint64_t from = dest->replay.at.end;
	int status = check_lineage(source, dest);

	if (status == EX_OK)
		status = read_all(source);
	if (status != EX_OK)
		return status;
	if (journal_cut(&dest->journal, from) < 0 ||
	    journal_copy(&source->journal, from, source->replay.at.end,
		dest->journal.fd) < 0)
		return say_error(dest->path, "cannot write");
	/* The bytes were read twice: the second time is checked here. */
	dest->settled = false;
	return read_all(dest);
}

/* A whole new copy, which takes its name only when it is complete. */
static int
copy_whole(struct source *source, int dest, const char *dest_path)
{
	int status = read_all(source);

	if (status == EX_OK &&
	    journal_publish(&source->journal, source->replay.at.end, dest) < 0)
		status = say_error(dest_path, "cannot write");
	return status;
}

int
copy_backup(const char *dir, const char *dest_path, struct copy_report *report)
{
	struct source source, dest;
	struct stat st;
	uint64_t before = 0;
	int status = open_source(&source, dir);

	memset(&dest, 0, sizeof(dest));
	dest.path = dest_path;
	dest.dir = dest.lock.fd = dest.journal.fd = -1;
	if (status != EX_OK)
		goto done;
	if (mkdir(dest_path, 0700) < 0 && errno != EEXIST) {
		status = say_error(dest_path, "cannot make it");
		goto done;
	}
	dest.dir = open_directory(dest_path);
	if (dest.dir < 0) {
		status = say_error(dest_path, "cannot open");
		goto done;
	}
	if (fstatat(dest.dir, "lock", &st, 0) == 0) {
		log_error("%s: was served as a store; name another directory",
		    dest_path);
		status = EX_CANTCREAT;
	} else if (fstatat(dest.dir, JOURNAL_NAME, &st, 0) < 0) {
		status = copy_whole(&source, dest.dir, dest_path);
		/* Read back what was written. */
		if (status == EX_OK)
			status = open_journal(&dest);
		if (status == EX_OK)
			status = read_all(&dest);
	} else {
		status = open_journal(&dest);
		if (status == EX_OK)
			status = read_all(&dest);
		before = dest.replay.at.end;
		if (status == EX_OK)
			status = add_rest(&source, &dest);
	}
	if (status == EX_OK && dest.replay.at.end != source.replay.at.end) {
		log_error("%s: the copy does not equal what was read; check "
			  "its disk",
		    dest_path);
		status = EX_IOERR;
	}
	if (status == EX_OK)
		fill_report(&source, before, report);

done:
	close_source(&dest);
	close_source(&source);
	return status;
}
