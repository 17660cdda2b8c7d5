/*
 * commit: the file engine: the life of an open store, and its commits.  See
 * engine.h and store/store.h.
 *
 * Opening takes the journal's lock, opens the index and reads on from where it
 * ends (catch_up.h).  It never makes a store: a directory without one may be a
 * file system that is not mounted, and an empty store would take its ids anew.
 *
 * A commit, under the lock: read on what others appended, enter each id into an
 * index transaction, which finds the repeats, append the new plants with one
 * write, sync once: the results are good.  store_finish commits the index and
 * gives the lock back.
 * Failure modes: no room, everything is taken back; a failed write or sync,
 * this process ends, and the next one reads from the disk what is there; a
 * failed commit of the index, the plants are stored and the next catch-up
 * enters them.
 */
#include "catch_up.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/file.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "pure/timestamp.h"

/* The room that a plant needs, and enough to skip the trial allocation. */
#define READY_BYTES (64 << 10)
#define PLENTY_BYTES (16 << 20)

/* Where there is no journal: version 1.0.0 may have renamed it. */
static enum fault
find_journal(struct store *store, int64_t deadline_ms)
{
	struct journal *journal = &store->journal;

	if (!journal_exists(journal, JOURNAL_FAILED_NAME)) {
		/* Another process may have been first. */
		if (journal_exists(journal, JOURNAL_NAME))
			return FAULT_NONE;
		if (journal_exists(journal, "index") ||
		    journal_exists(journal, JOURNAL_END_NAME))
			log_error("%s: missing; restore it from a backup",
			    journal->name);
		else
			log_error("%s: no store here; mount its file system, "
				  "or make a new store with: plant-store init "
				  "%s",
			    store->path, store->path);
		return FAULT_SETUP;
	}
	/* Version 1.0.0 may be copying it: what it has copied would count. */
	if (journal_lock_dir(journal, deadline_ms) < 0)
		return fault_report(store->path, "cannot lock it");
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
		   : fault_report(store->path, "cannot sync it");
}

enum fault
store_init(const char *path)
{
	struct journal here, fresh;
	enum fault fault = journal_claim(&here, path);

	if (fault == FAULT_NONE && (journal_begin(&fresh, here.dir) < 0 ||
				       journal_place(&fresh, false) < 0))
		fault = fault_report(path, "cannot make a store there");
	journal_close(&here);
	return fault;
}

/* The journal that belongs here, locked. */
static enum fault
open_journal(struct store *store)
{
	int64_t deadline_ms =
	    clock_ms(CLOCK_MONOTONIC) + JOURNAL_LOCK_TIMEOUT_MS;
	struct journal *journal = &store->journal;
	const char *moved = "cannot be reached";
	enum fault fault;

	for (;;) {
		fault = journal_open(journal, store->path, true);
		if (fault == FAULT_ABSENT && errno == ENOENT)
			fault = find_journal(store, deadline_ms);
		else if (fault == FAULT_NONE &&
			 journal_lock(journal, true, deadline_ms) < 0)
			fault = fault_report(journal->name, "cannot lock it");
		else if (fault == FAULT_NONE &&
			 (moved = journal_check(journal, 0)) == NULL)
			break;
		if (fault == FAULT_NONE &&
		    clock_ms(CLOCK_MONOTONIC) >= deadline_ms) {
			log_error("%s: %s", journal->name, moved);
			fault = FAULT_BUSY;
		}
		/* Made just now, or renamed while we waited for the lock. */
		if (fault != FAULT_NONE)
			return fault;
		journal_close(journal);
	}
	return FAULT_NONE;
}

static void
free_store(struct store *store, bool clean)
{
	index_close(store->index, clean);
	journal_close(&store->journal);
	pthread_mutex_destroy(&store->mutex);
	free(store);
}

static struct store *
open_store(const struct store_options *options, enum fault *fault)
{
	struct store *store = calloc(1, sizeof(*store));
	int uncounted = 0;

	if (store == NULL) {
		*fault = fault_report(options->dir, "cannot open");
		return NULL;
	}
	pthread_mutex_init(&store->mutex, NULL);
	store->engine = &engine_file;
	store->journal = JOURNAL_NONE;
	store->path = options->dir;
	store->long_lived = options->long_lived;
	store->watch = options->watch;
	*fault = open_journal(store);
	if (*fault == FAULT_NONE) {
		if (metrics_open(store->path, true) != FAULT_NONE)
			uncounted = errno;
		*fault = catch_up_start(store);
		metrics[METRICS_FAILED] =
		    *fault == FAULT_DAMAGED || *fault == FAULT_FAILED;
	}
	store->watch = NULL;
	/* A service answers, and starts again once there is room. */
	if (*fault == FAULT_NONE ||
	    (*fault == FAULT_FULL && store->long_lived)) {
		if (uncounted != 0 && store->long_lived)
			log_warning("%s/" METRICS_NAME ": %s; this process "
				    "counts for itself alone",
			    store->path, strerror(uncounted));
		journal_unlock(&store->journal);
		return store;
	}
	/* To a service, an absent store is a configuration error. */
	if (*fault == FAULT_ABSENT)
		*fault = FAULT_SETUP;
	free_store(store, false);
	return NULL;
}

/*
 * Whether the record at `offset` says the same as `plant`.  The batch built so
 * far ends at `end`.
 */
static enum fault
compare_stored(struct store *store, uint64_t offset, uint64_t end,
    const struct plant *plant, enum store_result *result)
{
	struct record record;
	bool valid = false;

	if (offset < store->at.end) {
		valid = journal_read(&store->journal, offset, &record) == 0;
		if (!valid && errno != EBADMSG)
			return fault_report(store->journal.name, "cannot read");
	} else if (offset < end) {
		/* Entered a moment ago: it is in this batch. */
		const char *line = store->batch + (offset - store->at.end);
		const char *newline = memchr(line, '\n', end - offset);

		valid = record_decode(line, (size_t)(newline + 1 - line),
			    store->journal.seed, &record) == NULL;
	}
	if (!valid || record.plant == NULL || record.id != plant->id) {
		log_error("%s: no valid record of the plant %" PRId64
			  " at byte %" PRIu64 ", where the index has it",
		    store->journal.name, plant->id, offset);
		errno = EBADMSG;
		return catch_up_index_failed(store);
	}
	*result = record.plant_len == plant->len &&
			  memcmp(record.plant, plant->text, plant->len) == 0
		      ? STORE_SAME
		      : STORE_CONFLICT;
	return FAULT_NONE;
}

/* Encode the record behind the batch built so far, which ends at `at`. */
static void
put_line(struct store *store, struct position *at, struct record *record)
{
	record->seq = at->seq + 1;
	record->safe = store->durable;
	record->prev = at->crc;
	at->last = at->end;
	at->end += record_encode(record, store->journal.seed,
	    store->batch + (at->end - store->at.end));
	at->seq = record->seq;
	at->crc = record->crc;
	at->closing = record->plant == NULL;
}

/*
 * Enter as many plants as one append may hold into the index transaction, and
 * encode the new ones behind each other into store->batch, from store->at, of
 * which `*at` becomes the end.  `*some` of them.
 */
static enum fault
build_batch(struct store *store, struct store_item *items, size_t n,
    struct position *at, size_t *some)
{
	char now[TIMESTAMP_LEN];
	enum fault fault = FAULT_NONE;
	uint64_t found;
	size_t i;

	timestamp_print(clock_ms(CLOCK_REALTIME), now);
	*at = store->at;
	for (i = 0; i < n && fault == FAULT_NONE; i++) {
		const struct plant *plant = items[i].plant;
		struct record record = {
			.at = items[i].at != NULL ? items[i].at : now,
			.by = items[i].by,
			.by_len = strlen(items[i].by),
			.id = plant->id,
			.plant = plant->text,
			.plant_len = plant->len,
		};

		assert(record.by_len > 0 && record.by_len <= RECORD_BY_MAX);
		if (at->end - store->at.end + RECORD_ENVELOPE_MAX + plant->len >
		    JOURNAL_APPEND_MAX)
			break;
		switch (index_put(store->index, plant->id, at->end, &found)) {
		case INDEX_NEW:
			items[i].result = STORE_CREATED;
			put_line(store, at, &record);
			break;
		case INDEX_FOUND:
			fault = compare_stored(
			    store, found, at->end, plant, &items[i].result);
			break;
		case INDEX_ERROR:
			fault = catch_up_index_failed(store);
		}
	}
	if (fault == FAULT_NONE && index_check(store->index) < 0)
		fault = catch_up_index_failed(store);
	*some = i;
	return fault;
}

/* Append what is in store->batch up to `at`, and sync it. */
static enum fault
write_batch(struct store *store, const struct position *at)
{
	struct journal *journal = &store->journal;
	const uint64_t end = store->at.end;
	enum fault fault = FAULT_NONE;
	int result = journal_append(journal, end, store->batch,
	    (size_t)(at->end - end), store->long_lived);

	if (result < -1)
		return journal_failed(journal, "taking back a write", end);
	if (result < 0 && !fault_passes(fault_of(errno)))
		return journal_failed(journal, "write", end);
	/* Rolled back, so a transient error is harmless. */
	if (result < 0)
		fault = catch_up_unwritten(store, JOURNAL_NAME);
	/* Sync the truncation too. */
	if (journal_sync(journal) < 0)
		return journal_failed(journal, "fdatasync", end);
	if (fault == FAULT_NONE) {
		store->next = *at;
		store->durable = at->end;
	}
	return fault;
}

/* The index transaction ends with the batch that is durable now, if any. */
static void
enter_batch(struct store *store)
{
	const struct position at = store->next;
	uint64_t plants;

	if (at.end == 0)
		return;
	store->at = at;
	store->next.end = 0;
	metrics[METRICS_STORE_BYTES] = at.end;
	if (index_count(store->index, &plants) == 0)
		metrics[METRICS_STORE_PLANTS] = plants;
	if (index_commit(store->index, &at) < 0) {
		/* The plants are stored; reading on will enter them. */
		catch_up_index_failed(store);
		return;
	}
	if (store->full)
		log_info("%s: there is room again", store->path);
	store->full = false;
}

static void
refuse_items(struct store_item *items, size_t n, enum fault fault)
{
	enum store_result result = fault == FAULT_FULL   ? STORE_FULL
				   : fault_passes(fault) ? STORE_BUSY
							 : STORE_FAILED;

	for (size_t i = 0; i < n; i++)
		items[i].result = result;
}

/*
 * As many as one append may hold, `*some`, up to the sync: enter_batch ends the
 * index transaction.
 */
static enum fault
commit_some(
    struct store *store, struct store_item *items, size_t n, size_t *some)
{
	struct position at;
	enum fault fault = catch_up(store);

	*some = n;
	if (fault != FAULT_NONE)
		return fault;
	fault = build_batch(store, items, n, &at, some);
	if (fault == FAULT_NONE && at.end > store->at.end)
		fault = write_batch(store, &at);
	if (store->next.end == 0)
		index_abort(store->index);
	return fault;
}

static enum fault
commit_items(struct store *store, struct store_item *items, size_t n)
{
	enum fault fault = FAULT_NONE;
	size_t some;

	for (; n > 0 && fault == FAULT_NONE; items += some, n -= some) {
		enter_batch(store);
		fault = commit_some(store, items, n, &some);
		if (fault == FAULT_NONE)
			continue;
		/* Where it is full, a plant stored before may still pass. */
		refuse_items(items, fault == FAULT_FULL ? some : n, fault);
		if (fault == FAULT_FULL)
			fault = FAULT_NONE;
	}
	return fault;
}

/* Put all plants below the watermark with a closing line. */
static enum fault
append_closing(struct store *store)
{
	char now[TIMESTAMP_LEN];
	struct record record = { .at = now };
	enum fault fault = catch_up(store);
	struct position at = store->at;

	if (fault == FAULT_NONE && !at.closing) {
		timestamp_print(clock_ms(CLOCK_REALTIME), now);
		put_line(store, &at, &record);
		fault = write_batch(store, &at);
	}
	if (store->next.end > 0) {
		enter_batch(store);
		if (journal_write_end(&store->journal, at.end) < 0)
			catch_up_unwritten(store, JOURNAL_END_NAME);
	}
	index_abort(store->index);
	return fault_passes(fault) ? FAULT_NONE : fault;
}

/*
 * The mutex, also after a fault, and the lock, by one deadline.  A thread that
 * kept the mutex from try to try would let another wait for two deadlines.
 */
static enum fault
enter_store(struct store *store, int timeout_ms)
{
	const char *name = store->journal.name;
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + timeout_ms;
	long pause_ns = 0;

	/* Another thread may have the mutex during the pause. */
	for (;; journal_back_off(&pause_ns)) {
		pthread_mutex_lock(&store->mutex);
		if (store->failed)
			return FAULT_FAILED;
		if (journal_lock(&store->journal, true, 0) == 0)
			return FAULT_NONE;
		if (errno != ETIMEDOUT)
			return fault_report(name, "cannot lock it");
		if (clock_ms(CLOCK_MONOTONIC) >= deadline_ms) {
			log_warning("%s: locked by another process for %d ms",
			    name, timeout_ms);
			return FAULT_BUSY;
		}
		pthread_mutex_unlock(&store->mutex);
	}
}

/* A fault that the next start must mend ends this one. */
static void
note_fault(struct store *store, enum fault fault)
{
	if (fault != FAULT_NONE && !fault_passes(fault))
		store->failed = true;
}

/* Return with the mutex held: finish gives it back, and the lock. */
static int
commit(struct store *store, struct store_item *items, size_t n)
{
	enum fault fault = enter_store(store, JOURNAL_LOCK_TIMEOUT_MS);

	if (fault == FAULT_NONE)
		fault = commit_items(store, items, n);
	else
		refuse_items(items, n, fault);
	note_fault(store, fault);
	return store->failed ? -1 : 0;
}

static void
finish(struct store *store)
{
	enter_batch(store);
	journal_unlock(&store->journal);
	pthread_mutex_unlock(&store->mutex);
}

/* For a plant, and for what the index may need. */
static bool
has_room(const struct store *store)
{
	if (!catch_up_has_room(store, 0))
		return false;
	/* Else what was refused, or is about to be, is tried. */
	if (!store->full && catch_up_has_room(store, PLENTY_BYTES))
		return true;
	int fd = openat(
	    store->journal.dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	int error = fd < 0 ? errno : posix_fallocate(fd, 0, READY_BYTES);
	if (fd >= 0)
		close(fd);
	return fault_of(error) != FAULT_FULL;
}

static enum store_result
is_ready(struct store *store)
{
	/* During a commit, what was found last. */
	if (pthread_mutex_trylock(&store->mutex) != 0)
		return store->ready;
	store->ready = store->failed || journal_check(&store->journal,
					    store->at.end) != NULL
			   ? STORE_FAILED
		       : has_room(store) ? STORE_CREATED
					 : STORE_FULL;
	pthread_mutex_unlock(&store->mutex);
	return store->ready;
}

static void
wait_for_others(struct store *store)
{
	pthread_mutex_lock(&store->mutex);
	pthread_mutex_unlock(&store->mutex);
}

static void
close_batch(struct store *store)
{
	if (pthread_mutex_trylock(&store->mutex) != 0)
		return;
	if (!store->failed && store->index != NULL && !store->at.closing &&
	    journal_lock(&store->journal, true, 0) == 0) {
		note_fault(store, append_closing(store));
		journal_unlock(&store->journal);
	}
	pthread_mutex_unlock(&store->mutex);
}

static void
close_store(struct store *store)
{
	bool clean = false;

	/* After a request a line would cost the next one a sync. */
	if (!store->long_lived || store->index == NULL) {
		free_store(store, false);
		return;
	}
	if (enter_store(store, JOURNAL_LOCK_TIMEOUT_MS / 10) == FAULT_NONE) {
		if (!store->at.closing)
			note_fault(store, append_closing(store));
		if (!store->failed)
			clean = catch_up(store) == FAULT_NONE;
		if (clean) {
			/* Room ahead is of no use now. */
			if (store->journal.size > store->at.end)
				journal_cut(&store->journal, store->at.end);
			index_abort(store->index);
		}
	}
	/* Closing the journal gives its lock back, after the index. */
	pthread_mutex_unlock(&store->mutex);
	free_store(store, clean);
}

const struct engine engine_file = {
	.version = ENGINE_VERSION,
	.open = open_store,
	.commit = commit,
	.finish = finish,
	.ready = is_ready,
	.wait = wait_for_others,
	.idle = close_batch,
	.close = close_store,
};
