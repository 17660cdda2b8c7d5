/*
 * commit: the file engine.  See store/store.h and store/engine.h.
 *
 * Opening locks the journal, opens the index and reads on from the index's end
 * (catch_up.h).  It never makes a store: a directory without one may be a file
 * system that is not mounted, and an empty store would accept stored ids again.
 *
 * A commit, under the lock: read the lines of other processes; enter each id in
 * an index transaction, which finds repeated ids; append the new plants with
 * one write; sync once.  Then the results are final, and store_finish commits
 * the index and unlocks.
 * Failure modes: if the disk is full, the batch is undone and refused.  After
 * any other failed write, or a failed sync, the process ends, and the next one
 * reads the bytes from the disk.  If the commit of the index fails, the plants
 * are stored, and the next catch-up enters them.
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

/* The room a plant needs; the free space that needs no trial allocation. */
#define READY_BYTES (64 << 10)
#define PLENTY_BYTES (16 << 20)

/* Restore the name of a journal that version 1.0.0 renamed, or fail. */
static enum fault
find_journal(struct journal *journal, int64_t deadline_ms)
{
	if (!journal_exists(journal, JOURNAL_FAILED_NAME)) {
		/* Another process may have renamed it back meanwhile. */
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
		   : fault_report(journal->path, "cannot sync it");
}

enum fault
store_init(const char *path)
{
	struct journal home;
	enum fault fault = journal_claim(&home, path);

	if (fault == FAULT_NONE)
		fault = journal_make(&home);
	journal_close(&home);
	return fault;
}

/* Open and lock the journal; retry until its path names the locked file. */
static enum fault
open_journal(struct journal *journal, const char *path)
{
	int64_t deadline_ms =
	    clock_ms(CLOCK_MONOTONIC) + JOURNAL_LOCK_TIMEOUT_MS;
	const char *why = "cannot be reached";
	enum fault fault;

	for (;; journal_close(journal)) {
		fault = journal_open(journal, path, true);
		if (fault == FAULT_NONE && journal->fd < 0)
			fault = find_journal(journal, deadline_ms);
		else if (fault == FAULT_NONE) {
			fault = journal_lock(
			    journal, JOURNAL_EXCLUSIVE, deadline_ms);
			if (fault == FAULT_NONE)
				why = journal_check(journal, 0);
			if (why == NULL)
				return FAULT_NONE;
		}
		if (fault != FAULT_NONE)
			return fault;
		/* The journal appeared, or lost its name during the wait. */
		if (clock_ms(CLOCK_MONOTONIC) >= deadline_ms) {
			log_error("%s: %s", journal->name, why);
			return FAULT_BUSY;
		}
	}
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
	store->long_lived = options->long_lived;
	store->watch = options->watch;
	*fault = open_journal(&store->journal, options->dir);
	if (*fault == FAULT_NONE) {
		if (store->long_lived)
			store->journal.room = JOURNAL_ROOM_BYTES;
		if (metrics_open(options->dir, true) != FAULT_NONE)
			uncounted = errno;
		*fault = catch_up_start(store);
		metrics[METRICS_FAILED] =
		    *fault == FAULT_DAMAGED || *fault == FAULT_FAILED;
	}
	store->watch = NULL;
	/*
	 * A service opens even without room for the index: it answers 503, and
	 * catch_up builds the index later.
	 */
	if (*fault == FAULT_NONE ||
	    (*fault == FAULT_FULL && store->long_lived)) {
		if (uncounted != 0 && store->long_lived)
			log_warning("%s/" METRICS_NAME ": %s; this process "
				    "counts for itself alone",
			    options->dir, strerror(uncounted));
		journal_unlock(&store->journal);
		return store;
	}
	/* To a writer, an absent store is a configuration error. */
	if (*fault == FAULT_ABSENT)
		*fault = FAULT_SETUP;
	free_store(store, false);
	return NULL;
}

/* Compare the item with the record at `offset`, in the journal or the batch. */
static enum fault
compare_stored(struct store *store, uint64_t offset, struct store_item *item)
{
	const struct plant *plant = item->plant;
	struct record record;
	bool valid = false;

	if (offset < store->at.end) {
		enum fault fault =
		    journal_read(&store->journal, offset, &record);

		if (fault != FAULT_NONE && fault != FAULT_DAMAGED)
			return fault;
		valid = fault == FAULT_NONE;
	} else if (offset < store->batch_end.end) {
		const char *line = store->batch + (offset - store->at.end);
		const char *newline =
		    memchr(line, '\n', store->batch_end.end - offset);

		valid = record_decode(line, (size_t)(newline + 1 - line),
			    store->journal.seed, &record) == NULL;
	}
	if (!valid || record.plant == NULL || record.id != plant->id) {
		log_error("%s: no valid record of the plant %" PRId64
			  " at byte %" PRIu64 ", where the index has it",
		    store->journal.name, plant->id, offset);
		return index_damaged(store->index);
	}
	item->result =
	    record.plant_len == plant->len &&
		    memcmp(record.plant, plant->text, plant->len) == 0
		? STORE_SAME
		: STORE_CONFLICT;
	return FAULT_NONE;
}

/* Encode the record at the end of the batch. */
static void
put_line(struct store *store, struct record *record)
{
	struct position *end = &store->batch_end;

	record->seq = end->seq + 1;
	record->safe = store->journal.durable;
	record->prev = end->crc;
	end->last = end->end;
	end->end += record_encode(record, store->journal.seed,
	    store->batch + (end->end - store->at.end));
	end->seq = record->seq;
	end->crc = record->crc;
	end->closing = record->plant == NULL;
}

/* Put the plant into the index transaction and, if it is new, the batch. */
static enum fault
put_plant(struct store *store, struct store_item *item, const char *now)
{
	const struct plant *plant = item->plant;
	struct record record = {
		.at = item->at != NULL ? item->at : now,
		.by = item->by,
		.by_len = strlen(item->by),
		.id = plant->id,
		.plant = plant->text,
		.plant_len = plant->len,
	};
	uint64_t found;
	enum fault fault =
	    index_put(store->index, plant->id, store->batch_end.end, &found);

	assert(record.by_len > 0 && record.by_len <= RECORD_BY_MAX);
	if (fault != FAULT_NONE)
		return fault;
	if (found > 0)
		return compare_stored(store, found, item);
	item->result = STORE_CREATED;
	put_line(store, &record);
	return FAULT_NONE;
}

/* Build a batch of the first items, `*some`, that fit into one append. */
static enum fault
build_batch(
    struct store *store, struct store_item *items, size_t n, size_t *some)
{
	char now[TIMESTAMP_LEN];
	enum fault fault = FAULT_NONE;
	size_t i;

	timestamp_print(clock_ms(CLOCK_REALTIME), now);
	store->batch_end = store->at;
	for (i = 0; i < n && fault == FAULT_NONE; i++) {
		if (store->batch_end.end - store->at.end + RECORD_ENVELOPE_MAX +
			items[i].plant->len >
		    JOURNAL_APPEND_MAX)
			break;
		fault = put_plant(store, &items[i], now);
	}
	if (fault == FAULT_NONE)
		fault = index_check(store->index);
	*some = i;
	return fault;
}

/* Append the batch, and sync it. */
static enum fault
write_batch(struct store *store)
{
	struct journal *journal = &store->journal;
	const uint64_t begin = store->at.end, end = store->batch_end.end;
	enum fault fault =
	    journal_append(journal, begin, store->batch, (size_t)(end - begin));

	if (fault == FAULT_FAILED)
		return fault;
	/* After a fault, this syncs the truncation. */
	if (journal_sync(journal) != FAULT_NONE)
		return FAULT_FAILED;
	if (fault == FAULT_NONE) {
		store->written = true;
		journal->durable = end;
	}
	return fault;
}

/* If the batch was written, commit its index transaction. */
static void
enter_batch(struct store *store)
{
	if (!store->written)
		return;
	store->written = false;
	store->at = store->batch_end;
	metrics[METRICS_STORE_BYTES] = store->at.end;
	metrics[METRICS_STORE_PLANTS] = index_count(store->index);
	/* If the commit fails, the next catch-up enters the plants. */
	if (index_commit(store->index, &store->at) != FAULT_NONE)
		return;
	if (store->journal.full)
		log_info("%s: there is room again", store->journal.path);
	store->journal.full = false;
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

/* Commit the items.  finish enters the last batch into the index. */
static enum fault
commit_items(struct store *store, struct store_item *items, size_t n)
{
	enum fault fault = FAULT_NONE;
	size_t some;

	for (; n > 0 && fault == FAULT_NONE; items += some, n -= some) {
		enter_batch(store);
		some = n;
		fault = catch_up(store);
		if (fault == FAULT_NONE)
			fault = build_batch(store, items, n, &some);
		if (fault == FAULT_NONE && store->batch_end.end > store->at.end)
			fault = write_batch(store);
		if (!store->written && store->index != NULL)
			index_abort(store->index);
		if (fault == FAULT_NONE)
			continue;
		/*
		 * If the disk is full, refuse this batch only: a repeat among
		 * the later items needs no room.
		 */
		refuse_items(items, fault == FAULT_FULL ? some : n, fault);
		if (fault == FAULT_FULL)
			fault = FAULT_NONE;
	}
	return fault;
}

/* Append a closing line: its watermark is above all plants. */
static enum fault
append_closing(struct store *store)
{
	char now[TIMESTAMP_LEN];
	struct record record = { .at = now };
	enum fault fault = catch_up(store);

	if (fault == FAULT_NONE && !store->at.closing) {
		timestamp_print(clock_ms(CLOCK_REALTIME), now);
		store->batch_end = store->at;
		put_line(store, &record);
		fault = write_batch(store);
	}
	if (store->written) {
		enter_batch(store);
		journal_write_end(&store->journal);
	}
	index_abort(store->index);
	return fault_passes(fault) ? FAULT_NONE : fault;
}

/*
 * Lock the mutex and the journal, by one deadline.  The mutex is locked on
 * return, even after a fault, but not between two tries: otherwise a second
 * thread would wait for two deadlines.
 */
static enum fault
lock_mutex_and_file(struct store *store, int timeout_ms)
{
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + timeout_ms;
	long pause_ns = 0;
	enum fault fault;

	for (;; journal_back_off(&pause_ns)) {
		pthread_mutex_lock(&store->mutex);
		if (store->failed)
			return FAULT_FAILED;
		fault = journal_lock(&store->journal, JOURNAL_EXCLUSIVE, 0);
		if (fault != FAULT_BUSY)
			return fault;
		if (clock_ms(CLOCK_MONOTONIC) >= deadline_ms) {
			log_warning("%s: locked by another process for %d ms",
			    store->journal.name, timeout_ms);
			return FAULT_BUSY;
		}
		pthread_mutex_unlock(&store->mutex);
	}
}

/* The process ends after a fault that only another start can mend. */
static void
note_fault(struct store *store, enum fault fault)
{
	if (fault != FAULT_NONE && !fault_passes(fault))
		store->failed = true;
}

/* The mutex and the journal stay locked until finish. */
static int
commit(struct store *store, struct store_item *items, size_t n)
{
	enum fault fault = lock_mutex_and_file(store, JOURNAL_LOCK_TIMEOUT_MS);

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

/* Whether there is room for a plant, and for a missing index. */
static bool
has_room(const struct store *store)
{
	if (!catch_up_has_room(store, 0))
		return false;
	/* If free space is scarce or a write was refused, try an allocation. */
	if (!store->journal.full && catch_up_has_room(store, PLENTY_BYTES))
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
	/* A commit holds the mutex: return the last result. */
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
	    journal_lock(&store->journal, JOURNAL_EXCLUSIVE, 0) == FAULT_NONE) {
		note_fault(store, append_closing(store));
		journal_unlock(&store->journal);
	}
	pthread_mutex_unlock(&store->mutex);
}

static void
close_store(struct store *store)
{
	bool clean = false;

	/* CGI writes no closing line: each would cost a sync. */
	if (!store->long_lived || store->index == NULL) {
		free_store(store, false);
		return;
	}
	if (lock_mutex_and_file(store, JOURNAL_LOCK_TIMEOUT_MS / 10) ==
	    FAULT_NONE) {
		if (!store->at.closing)
			note_fault(store, append_closing(store));
		if (!store->failed)
			clean = catch_up(store) == FAULT_NONE;
		if (clean) {
			/* Cut off the room ahead; failure does no harm. */
			if (store->journal.size > store->at.end)
				(void)!ftruncate(
				    store->journal.fd, (off_t)store->at.end);
			index_abort(store->index);
		}
	}
	pthread_mutex_unlock(&store->mutex);
	/* Closing the index needs the lock, which closing the journal ends. */
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
