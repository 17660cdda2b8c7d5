/* journal_reader: see journal_reader.h. */
#include "journal_reader.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "ground/pairs.h"
#include "pure/timestamp.h"
#include "store/mark.h"

/* The cursor: the store's uuid; the last line's seq, offset, end and crc. */
#define CURSOR(uuid, n, crc) "journal " uuid " %" n " %" n " %" n " %" crc

/* How many pairs are between two steps of progress. */
#define STEP_PAIRS 32768
#define REMEDY_INDEX "remove that directory: the next start builds it again"

/* The unit of st_blocks, whatever the file system's block size is. */
#define STAT_BLOCK_BYTES 512

struct usage {
	uint64_t n, bytes, disk_bytes;
};

static enum fault
open_journal(struct journal *journal, const char *path)
{
	enum fault fault = journal_open(journal, path, false);

	if (fault != FAULT_NONE || journal->fd >= 0)
		return fault;
	bool failed = journal_exists(journal, JOURNAL_FAILED_NAME);
	log_error("%s: %s", path,
	    failed ? "a sync had failed in version 1.0.0; start the service, "
		     "which recovers the store, and try again"
		   : "holds no store; name the directory of " JOURNAL_NAME);
	return failed ? FAULT_FAILED : FAULT_ABSENT;
}

/* Drop the window: the file may contain other bytes by now. */
void
journal_reader_move(struct store_reader *reader, const struct position *at)
{
	const struct journal *journal = &reader->journal;

	replay_done(&reader->replay);
	replay_init(&reader->replay, journal->fd, journal->seed,
	    at->end > 0 ? at : &journal->start);
	reader->fault = FAULT_NONE;
}

/* Lock the journal against writers, and check that its path still names it. */
static enum fault
lock_reader(struct store_reader *reader)
{
	struct journal *journal = &reader->journal;

	/* A journal that was named as a file has no writer to lock out. */
	if (journal->dir < 0)
		return FAULT_NONE;
	assert(!journal->locked);
	enum fault fault = journal_lock(journal, JOURNAL_SHARED,
	    clock_ms(CLOCK_MONOTONIC) + JOURNAL_LOCK_TIMEOUT_MS);
	if (fault != FAULT_NONE)
		return fault;
	const char *why = journal_check(journal, 0);
	if (why == NULL)
		return FAULT_NONE;
	log_error("%s: %s while it was read", journal->name, why);
	journal_unlock(journal);
	return FAULT_FAILED;
}

/*
 * Under the lock: check the durable lines and find their end.  The index is
 * behind if a plant is missing from it; closing lines do not count.
 */
static enum fault
find_end(struct store_reader *reader, const struct position *from)
{
	const struct journal *journal = &reader->journal;
	struct index_view *view = &reader->view;
	enum fault fault = FAULT_STOPPED;
	enum replay_result result;
	struct record record;
	struct replay rest;
	uint64_t tail_end;

	replay_init(&rest, journal->fd, journal->seed, from);
	while ((result = replay_next(&rest, &record)) == REPLAY_RECORD &&
	       watch_step(reader->watch, rest.at.end, journal->size))
		if (record.plant != NULL && view->state == INDEX_USABLE)
			view->state = INDEX_BEHIND;
	if (result == REPLAY_ERROR)
		fault = journal_unreadable(journal, rest.at.end, rest.error);
	else if (result != REPLAY_RECORD)
		fault =
		    journal_finish(journal, &rest, journal->durable, &tail_end);
	replay_done(&rest);
	if (fault != FAULT_NONE)
		return fault;
	const uint64_t end = rest.at.end;
	/* Warn once about each torn tail: a follower calls this often. */
	if (tail_end > end && reader->torn != end)
		log_warning("%s: a batch is torn at byte %" PRIu64
			    ", before it was acknowledged; the service will "
			    "cut it off",
		    journal->name, end);
	reader->torn = tail_end > end ? end : 0;
	assert(end >= from->end && end >= journal->durable);
	reader->limit = rest.at;
	return FAULT_NONE;
}

/*
 * Under the lock: open the index and find the end of the snapshot.  The lines
 * up to `from`, and up to the index's end, if that is known, are durable.
 */
static enum fault
take_snapshot(struct store_reader *reader, const struct position *from)
{
	struct journal *journal = &reader->journal;
	struct index_view *view = &reader->view;

	index_close(view->index);
	*view = (struct index_view){ .state = INDEX_ABSENT };
	if (journal->dir < 0)
		return find_end(reader, from);
	enum fault fault = index_open(journal, view);
	if (fault != FAULT_NONE ||
	    (fault = mark_find_durable(journal, &view->covered)) != FAULT_NONE)
		return fault;
	if (journal->durable < from->end)
		journal->durable = from->end;
	/* Lines after the durable end may be only in the page cache. */
	if (journal_has_text(journal, journal->durable) &&
	    (fault = journal_settle(journal, journal->size)) != FAULT_NONE)
		return fault;
	return find_end(
	    reader, view->covered.end > from->end ? &view->covered : from);
}

static void
close_reader(struct store_reader *reader)
{
	if (reader == NULL)
		return;
	replay_done(&reader->replay);
	index_close(reader->view.index);
	journal_close(&reader->journal);
	free(reader);
}

static struct store_reader *
open_reader(
    const struct store_options *options, const char *since, enum fault *fault)
{
	struct store_reader *reader = calloc(1, sizeof(*reader));

	if (reader == NULL) {
		*fault = fault_report(options->dir, "cannot read");
		return NULL;
	}
	reader->since = since;
	reader->watch = options->watch;
	*fault = open_journal(&reader->journal, options->dir);
	if (*fault == FAULT_NONE)
		*fault = lock_reader(reader);
	if (*fault == FAULT_NONE) {
		*fault = take_snapshot(reader, &reader->journal.start);
		journal_unlock(&reader->journal);
	}
	if (*fault != FAULT_NONE) {
		close_reader(reader);
		return NULL;
	}
	memcpy(reader->report.store, reader->journal.uuid, RECORD_UUID_LEN);
	journal_reader_move(reader, &reader->journal.start);
	return reader;
}

static enum fault
check_line(struct store_reader *reader, struct record *record)
{
	struct replay *replay = &reader->replay;
	const uint64_t offset = replay->at.end;

	if (!watch_step(reader->watch, offset, reader->limit.end))
		return FAULT_STOPPED;
	enum replay_result result = replay_next(replay, record);
	return result == REPLAY_RECORD ? FAULT_NONE
	       : result == REPLAY_ERROR
		   ? journal_unreadable(&reader->journal, offset, replay->error)
		   : journal_damaged(&reader->journal, offset, replay->reason);
}

static bool
read_next(struct store_reader *reader, struct record *record)
{
	const struct position *at = &reader->replay.at;

	while (reader->fault == FAULT_NONE && at->end < reader->limit.end) {
		reader->fault = check_line(reader, record);
		if (reader->fault != FAULT_NONE)
			return false;
		reader->watermark = record->safe;
		if (record->plant == NULL)
			continue;
		reader->report.plants++;
		/* Times in canonical form sort as text. */
		if (reader->since == NULL ||
		    memcmp(record->at, reader->since, TIMESTAMP_LEN) >= 0)
			return true;
	}
	return false;
}

static enum fault
end_reading(struct store_reader *reader, char *where)
{
	const struct position *at = &reader->replay.at;

	snprintf(where, STORE_WHERE_MAX, "seq %" PRIu64 " at byte %" PRIu64,
	    at->seq, at->end);
	return reader->fault;
}

/* Continue at `at` if the journal still has the line that ends there. */
static enum fault
continue_at(struct store_reader *reader, const struct position *at)
{
	struct journal *journal = &reader->journal;
	enum fault fault = at->end <= reader->limit.end
			       ? journal_match(journal, at)
			       : FAULT_DAMAGED;

	if (fault == FAULT_DAMAGED)
		log_error("%s: does not have the line of seq %" PRIu64
			  " at byte %" PRIu64
			  " that was read before: it is an older copy, or "
			  "another history of this store",
		    journal->name, at->seq, at->last);
	if (fault == FAULT_NONE)
		journal_reader_move(reader, at);
	return fault;
}

static enum fault
resume_at_cursor(struct store_reader *reader, const char *cursor)
{
	char uuid[RECORD_UUID_LEN + 1];
	struct position at = { 0 };

	if (cursor == NULL)
		journal_reader_move(reader, &reader->limit);
	if (cursor == NULL || *cursor == '\0')
		return FAULT_NONE;
	if (sscanf(cursor, CURSOR("%36s", SCNu64, SCNx32), uuid, &at.seq,
		&at.last, &at.end, &at.crc) != 5 ||
	    strcmp(uuid, reader->report.store) != 0) {
		log_error("%s: this is store %s, but the cursor belongs to "
			  "another store (recover creates a new one)",
		    reader->journal.name, reader->report.store);
		return FAULT_SETUP;
	}
	return continue_at(reader, &at);
}

static void
write_cursor(struct store_reader *reader, char *cursor)
{
	const struct position *at = &reader->replay.at;

	snprintf(cursor, STORE_CURSOR_MAX, CURSOR("%s", PRIu64, "08" PRIx32),
	    reader->report.store, at->seq, at->last, at->end, at->crc);
}

/* A blank byte shows that nothing was written: reserved space is blank. */
static enum fault
poll_again(struct store_reader *reader)
{
	const struct position at = reader->replay.at;
	struct journal *journal = &reader->journal;

	/* Try again to read the lines that could not be read. */
	reader->fault = FAULT_NONE;
	if (journal_check(journal, at.end) == NULL &&
	    !journal_has_text(journal, at.end))
		return FAULT_NONE;
	enum fault fault = lock_reader(reader);
	/* Logged already: the path no longer names this file. */
	if (fault != FAULT_NONE)
		return fault == FAULT_FAILED ? FAULT_DAMAGED : fault;
	fault = take_snapshot(reader, &at);
	journal_unlock(journal);
	if (fault == FAULT_NONE)
		fault = continue_at(reader, &at);
	if (fault != FAULT_NONE)
		reader->limit = at;
	return fault;
}

/* Find a plant in the lines after `from`. */
static enum fault
search_lines(struct store_reader *reader, const struct position *from,
    int64_t id, struct record *record)
{
	journal_reader_move(reader, from);
	while (read_next(reader, record))
		if (record->id == id)
			return FAULT_NONE;
	return reader->fault != FAULT_NONE ? reader->fault : FAULT_ABSENT;
}

static enum fault
find_plant(struct store_reader *reader, int64_t id, struct record *record)
{
	struct journal *journal = &reader->journal;
	struct index_view *view = &reader->view;

	if (view->index == NULL)
		return search_lines(reader, &view->covered, id, record);
	/* A journal that was replaced has other plants. */
	enum fault fault = lock_reader(reader);
	if (fault != FAULT_NONE)
		return fault;
	journal_unlock(journal);
	uint64_t offset = index_find(view->index, id);
	if (offset == 0)
		return search_lines(reader, &view->covered, id, record);
	fault = journal_read(journal, offset, record);
	if (fault == FAULT_NONE && record->plant != NULL && record->id == id)
		return FAULT_NONE;
	/* The index or the line is damaged: read the whole journal. */
	fault = search_lines(reader, &journal->start, id, record);
	if (fault != FAULT_DAMAGED) {
		index_close(view->index);
		*view = (struct index_view){ .state = INDEX_UNUSABLE };
	}
	return fault;
}

enum fault
check_journal(
    const char *path, const struct watch *watch, enum index_state *index)
{
	const struct store_options options = { .dir = path, .watch = watch };
	enum fault fault;
	struct store_reader *reader = open_reader(&options, NULL, &fault);

	if (reader == NULL)
		return fault;
	*index = reader->view.state;
	close_reader(reader);
	return FAULT_NONE;
}

/*
 * verify: the ids and offsets of all plants are sorted, which shows that no id
 * occurs twice.  The index must have exactly the plants of the lines that it
 * covers.  Index entries never change or disappear, so plants that are stored
 * meanwhile are recognized by their offsets and ignored.
 */

/* Check all lines, and sort the ids and offsets of their plants. */
static enum fault
collect_pairs(struct store_reader *reader, struct pairs *pairs)
{
	struct record record;
	int result = pairs_init(pairs);

	while (result == 0 && read_next(reader, &record))
		result = pairs_add(pairs, record.id, reader->replay.at.last);
	if (reader->fault == FAULT_NONE &&
	    (result < 0 || pairs_sort(pairs) < 0))
		reader->fault = fault_report("/var/tmp", "cannot sort there");
	return reader->fault;
}

/* The index's runs do not change, so no lock is needed. */
static enum fault
compare_index(const struct store_reader *reader, const struct pairs *pairs)
{
	const struct index_view *view = &reader->view;
	const char *path = reader->journal.path;
	uint64_t found = 0;

	for (size_t i = 0; i < pairs->n; i++) {
		if (i % STEP_PAIRS == 0 &&
		    !watch_step(reader->watch, i, pairs->n))
			return FAULT_STOPPED;
		const struct pair *pair = &pairs->map[i];
		if (pair->value >= view->covered.end)
			continue;
		found++;
		if (index_find(view->index, pair->key) == pair->value)
			continue;
		log_error("%s/index: has no entry for plant %" PRId64
			  ", at byte %" PRIu64 " of the journal; " REMEDY_INDEX,
		    path, pair->key, pair->value);
		return FAULT_DAMAGED;
	}
	if (found == view->entries)
		return FAULT_NONE;
	log_error("%s/index: has %" PRIu64
		  " plants, but the journal has %" PRIu64 "; " REMEDY_INDEX,
	    path, view->entries, found);
	return FAULT_DAMAGED;
}

static enum fault
verify_all(struct store_reader *reader, struct pairs *pairs,
    struct reader_report *report)
{
	if (reader->view.state == INDEX_UNUSABLE) {
		log_error(
		    "%s/index: damaged; " REMEDY_INDEX, reader->journal.path);
		return FAULT_DAMAGED;
	}
	enum fault fault = collect_pairs(reader, pairs);
	*report = reader->report;
	report->bytes = reader->replay.at.end;
	report->index = reader->view.state;
	if (fault != FAULT_NONE)
		return fault;
	if (index_twins(pairs, reader->journal.name) > 0)
		return FAULT_DAMAGED;
	return report->index == INDEX_USABLE || report->index == INDEX_BEHIND
		   ? compare_index(reader, pairs)
		   : FAULT_NONE;
}

enum fault
verify_store(
    const char *path, const struct watch *watch, struct reader_report *report)
{
	const struct store_options options = { .dir = path, .watch = watch };
	struct pairs pairs = { .fd = -1 };
	enum fault fault;
	struct store_reader *reader = open_reader(&options, NULL, &fault);

	*report = (struct reader_report){ .bytes = 0 };
	if (reader != NULL)
		fault = verify_all(reader, &pairs, report);
	pairs_done(&pairs);
	close_reader(reader);
	return fault;
}

/* Add the files in the directory `path` with this prefix to `files`. */
static void
count_files(const char *path, const char *prefix, struct usage *files)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	struct stat st;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
		    fstatat(dirfd(dir), entry->d_name, &st,
			AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		files->n++;
		files->bytes += (uint64_t)st.st_size;
		files->disk_bytes += (uint64_t)st.st_blocks * STAT_BLOCK_BYTES;
	}
	if (dir != NULL)
		closedir(dir);
}

static void
give_figures(struct store_reader *reader, store_figure *each)
{
	const char *dir = reader->journal.path;
	char index_dir[PATH_MAX];
	struct usage index_files = { 0 }, kept = { 0 };
	const struct index_view *view = &reader->view;
	const uint64_t bytes = reader->replay.at.end;
	const bool behind = view->state == INDEX_BEHIND;

	snprintf(index_dir, sizeof(index_dir), "%s/index", dir);
	count_files(index_dir, "", &index_files);
	count_files(dir, JOURNAL_NAME ".torn-", &kept);
	count_files(dir, JOURNAL_FAILED_NAME, &kept);
	each("store", reader->report.store, 0);
	each("bytes", NULL, bytes);
	each("watermark", NULL, reader->watermark);
	each("above_watermark", NULL, bytes - reader->watermark);
	each("index", index_words[view->state].word, 0);
	each("index_behind", NULL, behind ? bytes - view->covered.end : 0);
	each("index_bytes", NULL, index_files.disk_bytes);
	each("kept_files", NULL, kept.n);
	each("kept_bytes", NULL, kept.bytes);
}

const struct reader_engine journal_reader = {
	.open = open_reader,
	.next = read_next,
	.end = end_reading,
	.find = find_plant,
	.figures = give_figures,
	.close = close_reader,
	.resume = resume_at_cursor,
	.cursor = write_cursor,
	.more = poll_again,
};
