/*
 * reader: see store/reader.h, which has the happy path.  Failure modes: damage
 * ends it with its offset, also where only the index still covers what is gone;
 * a torn tail is reported and not read.
 */
#include "store/reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "pure/timestamp.h"
#include "reader.h"

/*
 * What is this far before the end of the file cannot be taken back any more,
 * and is read without the lock; the rest only once its end is known.  More than
 * an append with the room behind it.
 */
#define MARGIN (2 * JOURNAL_APPEND_MAX)

#define STEP_BYTES ((uint64_t)1 << 20)

/* stat counts in these, whatever the file system's blocks are. */
#define STAT_BLOCK_BYTES 512

struct files {
	uint64_t n, bytes, disk_bytes;
};

static enum fault
open_journal(struct store_reader *reader)
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

/* The window from before may hold bytes that have changed. */
static enum fault
begin_at(struct store_reader *reader, const struct position *at)
{
	replay_done(&reader->replay);
	if (replay_init(&reader->replay, reader->journal.fd,
		reader->journal.seed, at) < 0)
		return fault_report(reader->journal.name, "cannot read");
	return FAULT_NONE;
}

/* Go on from `at`, or if it is all zero begin, to an end to be found again. */
static enum fault
resume(struct store_reader *reader, const struct position *at)
{
	uint64_t size = reader->journal.size;

	reader->settled = false;
	reader->limit = size > MARGIN ? size - MARGIN : 0;
	reader->next_step = 0;
	reader->report.plants = 0;
	reader->fault = FAULT_NONE;
	if (at->end == 0)
		at = &reader->journal.start;
	reader->report.bytes = at->end;
	reader->report.seq = at->seq;
	return begin_at(reader, at);
}

struct store_reader *
reader_open(const char *path, const struct watch *watch, enum fault *fault)
{
	struct store_reader *reader = calloc(1, sizeof(*reader));

	if (reader == NULL) {
		*fault = fault_report(path, "cannot read");
		return NULL;
	}
	reader->engine = &engine_file;
	reader->path = path;
	if (watch != NULL)
		reader->watch = *watch;
	*fault = open_journal(reader);
	memcpy(reader->report.store, reader->journal.uuid, RECORD_UUID_LEN);
	if (*fault == FAULT_NONE)
		*fault = resume(reader, &reader->journal.start);
	if (*fault == FAULT_NONE)
		return reader;
	reader_close(reader);
	return NULL;
}

void
reader_close(struct store_reader *reader)
{
	if (reader == NULL)
		return;
	replay_done(&reader->replay);
	pairs_done(&reader->rest);
	index_close(reader->index, false);
	journal_close(&reader->journal);
	free(reader);
}

enum fault
reader_lock(struct store_reader *reader)
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
	journal_unlock(&reader->journal);
	return FAULT_FAILED;
}

static void
close_index(struct store_reader *reader)
{
	index_close(reader->index, false);
	reader->index = NULL;
	reader->covered = (struct position){ 0 };
	reader->entries = 0;
}

enum fault
reader_open_index(struct store_reader *reader)
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
	enum fault fault = reader_lock(reader);

	if (fault != FAULT_NONE)
		return fault;
	close_index(reader);
	if (journal->dir >= 0)
		result = index_open(journal->dir, reader->path, journal->uuid,
		    false, &reader->index);
	if (result == INDEX_OPENED &&
	    (index_begin(reader->index, &reader->covered) < 0 ||
		index_count(reader->index, &reader->entries) < 0))
		result = INDEX_REFUSED;
	else if (result == INDEX_OPENED &&
		 !journal_has(journal, &reader->covered))
		result = INDEX_STALE;
	if (result == INDEX_OPENED)
		index_abort(reader->index);
	else
		close_index(reader);
	journal_unlock(&reader->journal);
	reader->index_state = states[result];
	return FAULT_NONE;
}

/* Under the lock: find the end behind what was read. */
static enum fault
find_end(struct store_reader *reader)
{
	const struct journal *journal = &reader->journal;
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
		return fault_report(journal->name, "cannot read");
	fault = journal_finish(journal, &rest, reader->known, &tail_end);
	if (fault == FAULT_NONE && tail_end > rest.at.end)
		log_warning("%s: a batch was torn at byte %" PRIu64
			    " by a crash, before it was acknowledged; the "
			    "service will cut it off",
		    journal->name, rest.at.end);
	reader->limit = rest.at.end;
	replay_done(&rest);
	return fault;
}

static enum fault
settle(struct store_reader *reader)
{
	const struct position at = reader->replay.at;
	struct record record;

	/* Writers wait for the lock: check new lines before it is taken. */
	(void)journal_check(&reader->journal, 0);
	while (reader->replay.at.end + MARGIN < reader->journal.size &&
	       replay_next(&reader->replay, &record) == REPLAY_RECORD)
		;
	enum fault fault = reader_lock(reader);
	if (fault != FAULT_NONE)
		return fault;
	fault = find_end(reader);
	/* A process that died may have left lines that are not synced. */
	if (fault == FAULT_NONE && reader->journal.dir >= 0 &&
	    journal_sync(&reader->journal) < 0)
		fault = journal_fail(&reader->journal, "fdatasync");
	journal_unlock(&reader->journal);
	reader->settled = fault == FAULT_NONE;
	return reader->settled ? begin_at(reader, &at) : fault;
}

/* Whether to go on. */
static bool
take_step(struct store_reader *reader)
{
	uint64_t done = reader->replay.at.end;
	uint64_t total = reader->settled ? reader->limit : reader->journal.size;

	if (done < reader->next_step)
		return true;
	reader->next_step = done + STEP_BYTES;
	return watch_step(&reader->watch, done, total);
}

bool
reader_next(struct store_reader *reader, struct record *record)
{
	struct reader_report *report = &reader->report;

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
			report->bytes = reader->replay.at.end;
			report->seq = record->seq;
			report->watermark = record->safe;
			if (record->plant == NULL)
				continue;
			report->plants++;
			report->last_plant = reader->replay.at.last;
			/* Times of one form sort as text. */
			if (reader->since != NULL &&
			    memcmp(record->at, reader->since, TIMESTAMP_LEN) <
				0)
				continue;
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
reader_read_all(struct store_reader *reader)
{
	struct record record;

	while (reader_next(reader, &record))
		;
	return reader->fault;
}

enum fault
reader_collect(struct store_reader *reader, struct pairs *pairs)
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

enum fault
reader_end(struct store_reader *reader, char *where)
{
	snprintf(where, STORE_WHERE_MAX, "seq %" PRIu64 " at byte %" PRIu64,
	    reader->report.seq, reader->report.bytes);
	return reader->fault;
}

/*
 * Open the index, and have reader_next go on from where it ends: from the
 * beginning where there is none that can be used.
 */
static enum fault
begin_search(struct store_reader *reader, bool use_index)
{
	enum fault fault = FAULT_NONE;

	pairs_done(&reader->rest);
	if (use_index)
		fault = reader_open_index(reader);
	else
		close_index(reader);
	if (fault == FAULT_NONE)
		fault = resume(reader, &reader->covered);
	if (fault == FAULT_NONE)
		fault = reader_collect(reader, &reader->rest);
	reader->searching = fault == FAULT_NONE;
	return fault;
}

/* An entry counts where the record holds the same; false if it does not. */
static bool
ask_index(struct store_reader *reader, int64_t id, uint64_t *offset)
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

/* `offset` is 0 where there is no such plant. */
static enum fault
find_offset(struct store_reader *reader, int64_t id, uint64_t *offset)
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
		journal_unlock(&reader->journal);
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
reader_find(struct store_reader *reader, int64_t id, struct record *record)
{
	uint64_t offset;
	enum fault fault = find_offset(reader, id, &offset);

	if (fault != FAULT_NONE)
		return fault;
	if (offset == 0)
		return FAULT_ABSENT;
	if (journal_read(&reader->journal, offset, record) == 0)
		return FAULT_NONE;
	if (errno == EBADMSG)
		return journal_damaged(
		    &reader->journal, offset, "no valid line begins here");
	return fault_report(reader->journal.name, "cannot read");
}

enum fault
reader_index(
    struct store_reader *reader, enum reader_index *state, uint64_t *end)
{
	enum fault fault = reader_open_index(reader);

	if (fault != FAULT_NONE)
		return fault;
	*state = reader->index_state;
	*end = reader->covered.end;
	return resume(reader, &reader->covered);
}

/* Add the files of the directory `name` that have this prefix. */
static void
count_files(int at, const char *name, const char *prefix, struct files *files)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	struct stat st;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
		    fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		files->n++;
		files->bytes += (uint64_t)st.st_size;
		files->disk_bytes += (uint64_t)st.st_blocks * STAT_BLOCK_BYTES;
	}
	if (dir != NULL)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
}

enum fault
reader_figures(struct store_reader *reader, store_figure *each, void *context)
{
	static const char *const states[] = {
		[READER_INDEX_USABLE] = "current",
		[READER_INDEX_ABSENT] = "missing",
		[READER_INDEX_STALE] = "foreign",
		[READER_INDEX_FOREIGN] = "foreign",
		[READER_INDEX_UNUSABLE] = "unreadable",
	};
	const int dir = reader->journal.dir;
	struct files index_files = { 0 }, kept = { 0 };
	const struct reader_report *journal = &reader->report;
	uint64_t behind = 0;
	enum fault fault = reader_open_index(reader);

	if (fault != FAULT_NONE)
		return fault;
	const enum reader_index index = reader->index_state;
	const uint64_t end = reader->covered.end;
	count_files(dir, "index", "", &index_files);
	count_files(dir, ".", JOURNAL_NAME ".torn-", &kept);
	count_files(dir, ".", JOURNAL_NAME ".failed-", &kept);
	/* Plants that were stored meanwhile are not counted. */
	if (index == READER_INDEX_USABLE && journal->last_plant >= end)
		behind = journal->bytes - end;
	each(context, "store", journal->store, 0);
	each(context, "bytes", NULL, journal->bytes);
	each(context, "watermark", NULL, journal->watermark);
	each(context, "above_watermark", NULL,
	    journal->bytes - journal->watermark);
	each(context, "index", behind > 0 ? "behind" : states[index], 0);
	each(context, "index_behind", NULL, behind);
	each(context, "index_bytes", NULL, index_files.disk_bytes);
	each(context, "kept_files", NULL, kept.n);
	each(context, "kept_bytes", NULL, kept.bytes);
	return FAULT_NONE;
}
