/*
 * files: see files.h.
 *
 * Opening reads the plants that no run of the index covers.  It reads up to an
 * end mark without the journal's lock, while others write, and the rest under
 * the lock.  If there are many, the index is missing or far behind: one process
 * at a time builds it, in checkpoints from which an interrupted build resumes.
 *
 * Catching up: in the happy path the byte at the position is blank or absent,
 * so no line follows.  Otherwise the plants are added to the memtable; lines
 * after the known durable end are read from the disk.  A torn tail is copied to
 * a file beside the journal and cut off; a damaged journal is refused.
 */
#include "files.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/param.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/file.h"
#include "ground/log.h"
#include "store/mark.h"

/*
 * If the index covers at most this many bytes, each start of a long-lived
 * process checks the whole journal: 16 ms at 1 GB/s.  A larger journal is fully
 * checked when its index is built, and by `verify`.
 */
#define CHECK_BYTES_MAX ((uint64_t)16 << 20)

#define STEP_BYTES ((uint64_t)1 << 20)

/* Build the index if more bytes than this follow its end: 0.1 s to read. */
#define BUILD_BYTES ((uint64_t)64 << 20)

/* A build makes a checkpoint every this many plants, so that runs are large. */
#define HELD_BUILDING (FILES_HELD_MAX / 2)

/* --- Checkpoints --- */

/*
 * Use what other processes have written to the claimed index, and copy what a
 * checkpoint will write.
 */
static enum fault
collect(struct files *files)
{
	pthread_mutex_lock(&files->mutex);
	enum fault fault = files->failed
			       ? FAULT_FAILED
			       : index_collect(files->index, &files->at);
	assert(fault != FAULT_NONE ||
	       index_covered(files->index)->end <= files->at.end);
	if (files->journal.durable < index_covered(files->index)->end)
		files->journal.durable = index_covered(files->index)->end;
	pthread_mutex_unlock(&files->mutex);
	return fault;
}

/* Return whether to continue a merge. */
static bool
step_merge(void *context, uint64_t done, uint64_t total)
{
	struct files *files = context;

	(void)done, (void)total;
	return files->watch != NULL ? watch_step(files->watch, files->at.end,
					  files->journal.size)
				    : !files->stop && !files->failed;
}

enum fault
files_checkpoint(struct files *files, uint64_t merge_max)
{
	const struct watch watch = { step_merge, files };
	enum fault fault = index_claim(files->index);

	if (fault != FAULT_NONE)
		return fault;
	fault = collect(files);
	if (fault != FAULT_NONE)
		return fault;
	fault = index_write(files->index, merge_max, &watch);
	pthread_mutex_lock(&files->mutex);
	if (fault == FAULT_NONE)
		index_install(files->index);
	if (fault == FAULT_DAMAGED) {
		files->failed = true;
		fault = FAULT_FAILED;
	}
	pthread_mutex_unlock(&files->mutex);
	return fault;
}

/* --- Catching up --- */

/*
 * While the store is being opened, lock the index or else the journal.  A
 * long-lived process with a watch waits until the watch stops it; other
 * processes wait until the deadline.
 */
static enum fault
await_lock(struct files *files, bool index)
{
	const bool endless = files->long_lived && files->watch != NULL;
	int64_t late_ms = clock_ms(CLOCK_MONOTONIC) + JOURNAL_LOCK_TIMEOUT_MS;
	long pause_ns = 0;
	enum fault fault;

	if (!endless)
		late_ms = files->deadline_ms;
	for (;; journal_back_off(&pause_ns)) {
		fault =
		    index ? index_claim(files->index)
			  : journal_lock(&files->journal, JOURNAL_EXCLUSIVE, 0);
		if (fault != FAULT_BUSY)
			return fault;
		if (endless && !watch_step(files->watch, 0, 0))
			return FAULT_STOPPED;
		if (clock_ms(CLOCK_MONOTONIC) < late_ms)
			continue;
		log_warning("%s/%s: cannot lock: another process uses it: %s",
		    files->journal.path, index ? INDEX_NAME : JOURNAL_NAME,
		    endless ? "waiting for it" : "try again");
		if (!endless)
			return FAULT_BUSY;
		late_ms = INT64_MAX;
	}
}

/*
 * Many plants were read into memory.  While the files are being opened, write
 * them to the index; if that fails, up to FILES_HELD_MAX can stay in memory.
 * Once the files are open, a service's thread writes them; until then, a commit
 * that had to read too many is refused.
 */
static enum fault
relieve_memory(struct files *files)
{
	const bool must = index_held(files->index) >= FILES_HELD_MAX;

	if (files->open)
		return must && files->long_lived ? FAULT_BUSY : FAULT_NONE;
	enum fault fault = files_checkpoint(files, UINT64_MAX);
	if (fault == FAULT_STOPPED || files->failed)
		return fault;
	if (fault == FAULT_NONE || !must)
		return FAULT_NONE;
	if (fault != FAULT_BUSY)
		return FAULT_FULL;
	log_warning("%s/" INDEX_NAME ": another process writes it: try again",
	    files->dir);
	return FAULT_BUSY;
}

/* Read the lines up to `limit`, or to the end, and add their plants. */
static enum fault
read_lines(struct files *files, struct replay *replay, uint64_t limit)
{
	const struct position *at = &replay->at;
	struct journal *journal = &files->journal;
	uint64_t next_step = at->end + STEP_BYTES;
	enum replay_result result = REPLAY_END;
	enum fault fault = FAULT_NONE;
	struct record record;

	while (fault == FAULT_NONE && at->end < limit &&
	       (result = replay_next(replay, &record)) == REPLAY_RECORD) {
		/* A checkpoint may have found runs that cover the plant. */
		const bool is_new =
		    record.plant != NULL &&
		    at->last >= index_covered(files->index)->end;

		if (is_new && index_add(files->index, record.id, at->last) < 0)
			return journal_unwritten(journal, INDEX_NAME, errno);
		if (files->at.end < at->end)
			files->at = *at;
		if (is_new && index_held(files->index) % HELD_BUILDING == 0)
			fault = relieve_memory(files);
		if (at->end < next_step || fault != FAULT_NONE)
			continue;
		next_step = at->end + STEP_BYTES;
		if (!watch_step(files->watch, at->end, journal->size))
			fault = FAULT_STOPPED;
	}
	if (result != REPLAY_ERROR)
		return fault;
	fault = fault_of(replay->error);
	if (journal_is_news(journal, fault))
		journal_unreadable(journal, at->end, replay->error);
	return fault;
}

/* Read up to `limit` and judge the tail; set `settle` if it may be unsynced. */
static enum fault
read_and_judge(
    struct files *files, struct replay *replay, uint64_t limit, bool settle)
{
	struct journal *journal = &files->journal;
	/* A checkpoint may raise journal->durable. */
	const uint64_t known = journal->durable;
	uint64_t tail_end = 0; /* the end of a torn tail */
	enum fault fault = read_lines(files, replay, limit);

	/* Judge the tail after settling, or if durable lines are missing. */
	if (fault == FAULT_NONE && (settle || replay->at.end < known))
		fault = journal_finish(journal, replay, known, &tail_end);
	if (fault != FAULT_NONE)
		return fault;
	/* Cut last: a journal that is refused stays unchanged. */
	if (tail_end > replay->at.end)
		fault = journal_cut_tail(journal, replay->at.end, tail_end);
	if (fault == FAULT_NONE && settle) {
		journal->durable = files->at.end;
		files->settled = true;
		mark_write(journal, &files->at);
	}
	return fault;
}

/*
 * Read on to the known durable end or, with the lock, to the end.  Set `settle`
 * if the last lines may be unsynced.
 */
static enum fault
read_on(struct files *files, bool locked, bool settle)
{
	struct journal *journal = &files->journal;
	enum fault fault =
	    settle ? journal_settle(journal, journal->size) : FAULT_NONE;
	struct replay replay;

	assert(!locked || journal->locked);
	if (fault != FAULT_NONE)
		return fault;
	replay_init(&replay, journal->fd, journal->seed, &files->at);
	fault = read_and_judge(
	    files, &replay, locked ? UINT64_MAX : journal->durable, settle);
	replay_done(&replay);
	return fault;
}

enum fault
files_catch_up(struct files *files)
{
	struct journal *journal = &files->journal;
	const char *why = journal_check(journal, files->at.end);

	assert(journal->locked);
	if (why != NULL) {
		log_error("%s: %s while it was in use; put it back, or restore "
			  "it from a backup",
		    journal->name, why);
		return FAULT_FAILED;
	}
	/* A byte that is not blank belongs to a line, or to a part of one. */
	if (files->settled && !journal_has_text(journal, files->at.end) &&
	    files->at.end >= journal->durable)
		return FAULT_NONE;
	(void)mark_read(journal);
	return read_on(files, true,
	    !files->settled || journal_has_text(journal, journal->durable));
}

/* --- Opening --- */

/* Restore the name of a journal that version 1.0.0 renamed, or fail. */
static enum fault
find_journal(struct journal *journal, int64_t deadline_ms)
{
	if (!journal_exists(journal, JOURNAL_FAILED_NAME)) {
		/* Another process may have renamed it back meanwhile. */
		if (journal_exists(journal, JOURNAL_NAME))
			return FAULT_NONE;
		if (journal_exists(journal, INDEX_NAME) ||
		    journal_exists(journal, JOURNAL_END_NAME))
			log_error("%s: missing; restore it from a backup",
			    journal->name);
		else
			log_error(
			    "%s: no store here; mount its file system, or "
			    "create a new store with: plant-store init %s",
			    journal->path, journal->path);
		return FAULT_SETUP;
	}
	/* Version 1.0.0 locks the directory while it copies the journal. */
	enum fault fault = journal_lock(journal, JOURNAL_DIR, deadline_ms);
	if (fault != FAULT_NONE)
		return fault;
	if (rename_new(journal->dir, JOURNAL_FAILED_NAME, JOURNAL_NAME) == 0)
		log_warning("%s: a sync had failed in version 1.0.0, which "
			    "renamed it; it has its name again, and is read "
			    "from the disk",
		    journal->name);
	else if (errno != ENOENT && errno != EEXIST)
		return fault_report(
		    journal->name, "cannot rename " JOURNAL_FAILED_NAME);
	return fsync(journal->dir) == 0
		   ? FAULT_NONE
		   : fault_report(journal->path, "cannot sync");
}

/* Open the journal; wait while its name is missing. */
static enum fault
open_journal(struct journal *journal, const char *path, int64_t deadline_ms)
{
	for (;; journal_close(journal)) {
		enum fault fault = journal_open(journal, path, true);

		if (fault != FAULT_NONE || journal->fd >= 0)
			return fault;
		fault = find_journal(journal, deadline_ms);
		if (fault != FAULT_NONE)
			return fault;
		if (clock_ms(CLOCK_MONOTONIC) >= deadline_ms) {
			log_error("%s: cannot be reached", journal->name);
			return FAULT_BUSY;
		}
	}
}

/* Open the index, or start a new one, and find the known durable end. */
static enum fault
open_index(struct files *files)
{
	struct journal *journal = &files->journal;
	struct index_view view;
	enum fault fault = index_open(journal, &view);

	files->index = view.index;
	if (fault != FAULT_NONE)
		return fault;
	fault = mark_find_durable(journal, &view.covered);
	if (fault != FAULT_NONE)
		return fault;
	if (view.state != INDEX_USABLE && journal->size > RECORD_HEADER_LEN)
		log_info("%s/" INDEX_NAME ": %s; building it from %" PRIu64
			 " bytes of " JOURNAL_NAME,
		    journal->path, index_words[view.state].text, journal->size);
	files->at = view.covered;
	if (view.covered.end == 0 ||
	    (files->long_lived && view.covered.end <= CHECK_BYTES_MAX))
		files->at = journal->start;
	return FAULT_NONE;
}

/* Read what is known to be durable, without the journal's lock. */
static enum fault
read_durable(struct files *files)
{
	struct journal *journal = &files->journal;
	const uint64_t end = MIN(journal->recorded, journal->size);

	if (MAX(journal->durable, end) > files->at.end + BUILD_BYTES) {
		const struct position at = files->at;
		const uint64_t covered = index_covered(files->index)->end;
		enum fault fault = await_lock(files, true);

		if (fault == FAULT_BUSY || fault == FAULT_STOPPED)
			return fault;
		/*
		 * Another process may have built the index.  If it cannot be
		 * written, the plants may still fit in memory.
		 */
		if (fault == FAULT_NONE)
			(void)collect(files);
		if (index_covered(files->index)->end == covered)
			files->at = at;
		(void)mark_read(journal);
		/* The end mark may come from the original of this copy. */
		if (journal->durable < end) {
			fault = journal_settle(journal, end);
			if (fault != FAULT_NONE)
				return fault;
			journal->durable = end;
		}
	}
	return files->at.end < journal->durable ? read_on(files, false, false)
						: FAULT_NONE;
}

/* Open everything, read to the known durable end, and lock the journal. */
static enum fault
open_and_lock(struct files *files)
{
	enum fault fault =
	    open_journal(&files->journal, files->dir, files->deadline_ms);

	if (fault != FAULT_NONE)
		return fault;
	fault = open_index(files);
	if (fault != FAULT_NONE)
		return fault;
	fault = read_durable(files);
	index_release(files->index);
	if (fault != FAULT_NONE)
		return fault;
	return await_lock(files, false);
}

/* Close all but the mutex. */
static void
close_files(struct files *files)
{
	index_close(files->index);
	files->index = NULL;
	journal_close(&files->journal);
}

enum fault
files_open_and_lock(struct files *files)
{
	struct journal *journal = &files->journal;
	const char *why;

	for (;; close_files(files)) {
		enum fault fault = open_and_lock(files);

		if (fault != FAULT_NONE)
			return fault;
		/* The journal may have lost its name during the wait. */
		why = journal_check(journal, 0);
		if (why == NULL)
			break;
		if (clock_ms(CLOCK_MONOTONIC) >= files->deadline_ms) {
			log_error("%s: %s", journal->name, why);
			return FAULT_BUSY;
		}
	}
	(void)mark_read(journal);
	return read_on(files, true, true);
}

void
files_init(struct files *files, const struct store_options *options)
{
	*files = (struct files){ .dir = options->dir,
		.long_lived = options->long_lived,
		.watch = options->watch,
		.journal = JOURNAL_NONE };
	files->deadline_ms =
	    clock_ms(CLOCK_MONOTONIC) + JOURNAL_LOCK_TIMEOUT_MS;
	pthread_mutex_init(&files->mutex, NULL);
}

void
files_done(struct files *files)
{
	close_files(files);
	pthread_mutex_destroy(&files->mutex);
}
