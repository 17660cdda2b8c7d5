/*
 * engine_file: the file engine.  See store/store.h and store/engine.h.
 *
 * Opening locks the journal, opens the index and catches up.  It never creates
 * a store: a directory without one may be the mount point of a file system that
 * is not mounted, and an empty store would accept stored ids again.
 *
 * Opening reads the plants that no run of the index covers: up to an end mark
 * without the journal's lock, so that others can write, and the rest under the
 * lock.  If there are many, the index is missing: one process at a time builds
 * it, in checkpoints, and an interrupted build resumes at the last one.
 * If it cannot be written, and memory cannot have them all, a service starts
 * and refuses plants until it can.
 *
 * Catching up moves this process's position to the journal's end, after which
 * others may have appended.  Happy path: the byte at the position is blank or
 * absent, so no line follows.  Otherwise the plants are added to the index's
 * memory; lines after the known durable end are read from the disk.  A torn
 * tail is copied to a file beside the journal and cut off; a damaged journal is
 * refused.
 *
 * A commit, under the lock: catch up; look up each id; append the new plants
 * with one write; sync once; mark the end.  Nothing of the index is written.
 * Failure modes: if the disk is full or memory is short, the batch is undone
 * and refused.  After any other failed write, or a failed sync, the process
 * exits, and the next one reads the bytes from the disk.
 *
 * A thread of a long-lived process makes checkpoints of the index; a single
 * request (CGI) makes one after its answer, if many plants are in memory.
 * Locks, in this order: of the index, the mutex, of the journal.
 */
#include "store/engine.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/file.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "pure/timestamp.h"
#include "store/index.h"
#include "store/journal.h"

/* The room a plant needs; the free space that needs no trial allocation. */
#define READY_BYTES (64 << 10)
#define PLENTY_BYTES (16 << 20)

/*
 * A long-lived process checks a journal of up to this size whole at every
 * start: 16 ms at 1 GB/s.  A larger one is checked whole when its index is
 * built, and by `verify`.
 */
#define CHECK_BYTES_MAX ((uint64_t)16 << 20)

#define STEP_BYTES ((uint64_t)1 << 20)

/* More than this after the index is a build: 0.1 s to read. */
#define BUILD_BYTES ((uint64_t)64 << 20)

/*
 * A checkpoint begins at this many plants in memory: 0.35 ms a thousand for a
 * request (CGI), which reads them; of an idle service; after a request.  A
 * build has the most, so that its runs are large.
 */
#define HELD_PLANTS ((size_t)8 << 10)
#define HELD_IDLE ((size_t)256)
#define HELD_ONCE ((size_t)1 << 10)
#define HELD_BUILDING ((size_t)256 << 10)
/* Commits are refused: 12 MiB.  A multiple of HELD_BUILDING. */
#define HELD_MAX (2 * HELD_BUILDING)
/* A checkpoint is tried again after this: another's turn, or a failure. */
#define RETRY_BUSY_MS 20
#define RETRY_FAILED_MS 1000
/* A request merges at most this many plants: 4 MiB. */
#define MERGE_ONCE_MAX ((uint64_t)256 << 10)

struct store {
	const struct engine *engine; /* must be first: see engine.h */
	pthread_mutex_t mutex;       /* for threads; lock before the journal */
	bool long_lived;             /* see struct store_options */
	bool failed;                 /* nothing is acknowledged any more */
	bool open;                   /* open_store has ended */
	const struct watch *watch;   /* NULL once the store is open */
	int64_t deadline_ms;         /* for locks while it is opened */
	struct journal journal;
	struct index *index;
	struct position at;        /* the journal is read up to here */
	struct position batch_end; /* of the batch that is built after `at` */
	/* The thread that makes checkpoints; `mutex` is of these, too. */
	pthread_t thread;
	pthread_cond_t wake;
	bool has_thread, wanted;
	bool failing; /* the last checkpoint could not be written */
	atomic_bool stop;
	/* The lines of one append, and the blank room after them. */
	char batch[JOURNAL_APPEND_MAX + JOURNAL_ROOM_BYTES];
};

/* Whether the file system has `bytes` of room; true if that is unknown. */
static bool
has_bytes(const struct store *store, uint64_t bytes)
{
	struct statvfs st;

	return fstatvfs(store->journal.dir, &st) < 0 ||
	       st.f_bavail * st.f_frsize >= bytes;
}

/* --- Catching up --- */

static enum fault checkpoint(struct store *store, uint64_t merge_max);
static enum fault collect(struct store *store);
static void want_checkpoint(struct store *store);

/*
 * While the store is opened, lock the index or else the journal.  A service
 * waits until it is stopped, others until the deadline.
 */
static enum fault
await_lock(struct store *store, bool index)
{
	const bool endless = store->long_lived && store->watch != NULL;
	int64_t late_ms = clock_ms(CLOCK_MONOTONIC) + JOURNAL_LOCK_TIMEOUT_MS;
	long pause_ns = 0;
	enum fault fault;

	if (!endless)
		late_ms = store->deadline_ms;
	for (;; journal_back_off(&pause_ns)) {
		fault =
		    index ? index_claim(store->index)
			  : journal_lock(&store->journal, JOURNAL_EXCLUSIVE, 0);
		if (fault != FAULT_BUSY)
			return fault;
		if (endless && !watch_step(store->watch, 0, 0))
			return FAULT_STOPPED;
		if (clock_ms(CLOCK_MONOTONIC) < late_ms)
			continue;
		log_warning("%s/%s: cannot lock it: another process uses it: "
			    "%s",
		    store->journal.path, index ? INDEX_NAME : JOURNAL_NAME,
		    endless ? "waiting for it" : "try again");
		if (!endless)
			return FAULT_BUSY;
		late_ms = INT64_MAX;
	}
}

/*
 * Many plants were read into memory.  While the store is being opened, write
 * them; if that fails, more can stay, up to HELD_MAX.  Afterwards the mutex is
 * locked, and the thread writes them, or uses what other processes have
 * written: a commit that had to read too many is refused.
 */
static enum fault
relieve_memory(struct store *store)
{
	const bool must = index_held(store->index) >= HELD_MAX;

	if (store->open && (!must || !store->long_lived))
		return FAULT_NONE;
	if (store->open) {
		want_checkpoint(store);
		return FAULT_BUSY;
	}
	enum fault fault = checkpoint(store, UINT64_MAX);
	if (fault == FAULT_STOPPED || store->failed)
		return fault;
	if (fault == FAULT_NONE || !must)
		return FAULT_NONE;
	return fault == FAULT_BUSY ? FAULT_BUSY : FAULT_FULL;
}

/* Read the lines to `limit`, or to the end, and enter their plants. */
static enum fault
read_lines(struct store *store, struct replay *replay, uint64_t limit)
{
	const struct position *at = &replay->at;
	struct journal *journal = &store->journal;
	uint64_t next_step = at->end + STEP_BYTES;
	enum replay_result result = REPLAY_END;
	enum fault fault = FAULT_NONE;
	struct record record;

	while (fault == FAULT_NONE && at->end < limit &&
	       (result = replay_next(replay, &record)) == REPLAY_RECORD) {
		/* A checkpoint may have found runs that cover more. */
		const bool is_new =
		    record.plant != NULL &&
		    at->last >= index_covered(store->index)->end;

		if (is_new && index_add(store->index, record.id, at->last) < 0)
			return journal_unwritten(journal, INDEX_NAME, errno);
		if (store->at.end < at->end)
			store->at = *at;
		if (is_new && index_held(store->index) % HELD_BUILDING == 0)
			fault = relieve_memory(store);
		if (at->end < next_step || fault != FAULT_NONE)
			continue;
		next_step = at->end + STEP_BYTES;
		if (!watch_step(store->watch, at->end, journal->size))
			fault = FAULT_STOPPED;
	}
	if (result != REPLAY_ERROR)
		return fault;
	fault = fault_of(replay->error);
	if (journal_is_news(journal, fault))
		journal_unreadable(journal, at->end, replay->error);
	return fault;
}

/* Read to `limit`, and judge the tail; with `settle`, it may be unsynced. */
static enum fault
read_and_judge(
    struct store *store, struct replay *replay, uint64_t limit, bool settle)
{
	struct journal *journal = &store->journal;
	/* A checkpoint may raise journal->durable. */
	const uint64_t known = journal->durable;
	uint64_t tail_end = 0; /* the end of a torn tail */
	enum fault fault = read_lines(store, replay, limit);

	/* Judge the tail after settling, or if durable lines are missing. */
	if (fault == FAULT_NONE && (settle || replay->at.end < known))
		fault = journal_finish(journal, replay, known, &tail_end);
	if (fault != FAULT_NONE)
		return fault;
	/* Cut last: a journal that is refused stays unchanged. */
	if (tail_end > replay->at.end)
		fault = journal_cut_tail(journal, replay->at.end, tail_end);
	if (fault == FAULT_NONE && settle) {
		journal->durable = store->at.end;
		journal_mark_end(journal, &store->at);
	}
	return fault;
}

/*
 * Read on to the known durable end; or, with the lock, to the end.  With
 * `settle`, the last lines may be unsynced.
 */
static enum fault
read_on(struct store *store, bool locked, bool settle)
{
	struct journal *journal = &store->journal;
	enum fault fault = settle ? journal_settle(journal) : FAULT_NONE;
	struct replay replay;

	assert(!locked || journal->locked);
	if (fault != FAULT_NONE)
		return fault;
	replay_init(&replay, journal->fd, journal->seed, &store->at);
	fault = read_and_judge(
	    store, &replay, locked ? UINT64_MAX : journal->durable, settle);
	replay_done(&replay);
	return fault;
}

/*
 * Check that the open journal still has its name, and read what others have
 * appended: store->at is then the journal's end.
 */
static enum fault
catch_up(struct store *store)
{
	struct journal *journal = &store->journal;
	const char *why = journal_check(journal, store->at.end);
	struct position marked;

	assert(journal->locked);
	if (why != NULL) {
		log_error("%s: %s while it was in use; put it back, or restore "
			  "it from a backup",
		    journal->name, why);
		return FAULT_FAILED;
	}
	/* A byte that is not blank belongs to a line, or to a part of one. */
	if (!journal_has_text(journal, store->at.end) &&
	    store->at.end >= journal->durable)
		return FAULT_NONE;
	journal_read_mark(journal, &marked);
	return read_on(
	    store, true, journal_has_text(journal, journal->durable));
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

/* Open the journal; wait until it has its name. */
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

/* Open the index, or begin a new one, and find the known durable end. */
static enum fault
open_index(struct store *store)
{
	struct journal *journal = &store->journal;
	struct index_view view;
	enum fault fault = index_open(journal, &view);

	store->index = view.index;
	if (fault != FAULT_NONE)
		return fault;
	fault = journal_find_durable(journal, &view.covered);
	if (fault != FAULT_NONE)
		return fault;
	if (view.state != INDEX_USABLE && journal->size > RECORD_HEADER_LEN)
		log_info("%s/" INDEX_NAME ": %s; building it from %" PRIu64
			 " bytes of " JOURNAL_NAME,
		    journal->path, index_words[view.state].text, journal->size);
	store->at = view.covered;
	if (view.covered.end == 0 ||
	    (store->long_lived && view.covered.end <= CHECK_BYTES_MAX))
		store->at = journal->start;
	return FAULT_NONE;
}

/* Read what is known to be durable, without the journal's lock. */
static enum fault
read_durable(struct store *store)
{
	const struct journal *journal = &store->journal;

	if (journal->durable > store->at.end + BUILD_BYTES) {
		enum fault fault = await_lock(store, true);

		if (fault == FAULT_BUSY || fault == FAULT_STOPPED)
			return fault;
		/*
		 * Another process may have built it meanwhile.  If it cannot be
		 * written, the plants may still fit into memory.
		 */
		if (fault == FAULT_NONE)
			(void)collect(store);
	}
	return store->at.end < journal->durable ? read_on(store, false, false)
						: FAULT_NONE;
}

/* Open all, read to the known durable end, and lock the journal. */
static enum fault
open_and_lock(struct store *store, const char *path)
{
	enum fault fault =
	    open_journal(&store->journal, path, store->deadline_ms);

	if (fault != FAULT_NONE)
		return fault;
	fault = open_index(store);
	if (fault != FAULT_NONE)
		return fault;
	fault = read_durable(store);
	index_release(store->index);
	if (fault != FAULT_NONE)
		return fault;
	return await_lock(store, false);
}

static void
close_index(struct store *store)
{
	index_close(store->index);
	store->index = NULL;
}

/* Open and lock the journal, open the index, and read to the end. */
static enum fault
start_and_lock(struct store *store, const char *path)
{
	struct journal *journal = &store->journal;
	struct position marked;
	const char *why;

	for (;; close_index(store), journal_close(journal)) {
		enum fault fault = open_and_lock(store, path);

		if (fault != FAULT_NONE)
			return fault;
		/* The journal may have lost its name during the wait. */
		why = journal_check(journal, 0);
		if (why == NULL)
			break;
		if (clock_ms(CLOCK_MONOTONIC) >= store->deadline_ms) {
			log_error("%s: %s", journal->name, why);
			return FAULT_BUSY;
		}
	}
	journal_read_mark(journal, &marked);
	return read_on(store, true, true);
}

static void
free_store(struct store *store)
{
	close_index(store);
	journal_close(&store->journal);
	pthread_cond_destroy(&store->wake);
	pthread_mutex_destroy(&store->mutex);
	free(store);
}

static struct store *
new_store(const struct store_options *options)
{
	struct store *store = calloc(1, sizeof(*store));
	pthread_condattr_t clock;

	if (store == NULL)
		return NULL;
	pthread_mutex_init(&store->mutex, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&store->wake, &clock);
	pthread_condattr_destroy(&clock);
	store->engine = &engine_file;
	store->journal = JOURNAL_NONE;
	store->long_lived = options->long_lived;
	store->watch = options->watch;
	store->deadline_ms =
	    clock_ms(CLOCK_MONOTONIC) + JOURNAL_LOCK_TIMEOUT_MS;
	return store;
}

static struct store *
open_store(const struct store_options *options, enum fault *fault)
{
	struct store *store = new_store(options);
	int uncounted = 0;

	if (store == NULL) {
		*fault = fault_report(options->dir, "cannot open");
		return NULL;
	}
	*fault = start_and_lock(store, options->dir);
	/* Without room for the index, commits are refused until there is. */
	if (*fault == FAULT_FULL && store->long_lived && store->index != NULL &&
	    index_held(store->index) >= HELD_MAX)
		*fault = FAULT_NONE;
	if (store->journal.fd >= 0) {
		if (store->long_lived)
			store->journal.room = JOURNAL_ROOM_BYTES;
		if (metrics_open(options->dir, true) != FAULT_NONE)
			uncounted = errno;
	}
	if (*fault != FAULT_NONE) {
		/* To a writer, an absent store is a configuration error. */
		if (*fault == FAULT_ABSENT)
			*fault = FAULT_SETUP;
		free_store(store);
		return NULL;
	}
	store->watch = NULL;
	if (uncounted != 0 && store->long_lived)
		log_warning("%s/" METRICS_NAME ": %s; this process counts for "
			    "itself alone",
		    options->dir, strerror(uncounted));
	journal_unlock(&store->journal);
	/* Without room, it is written later. */
	if (index_covered(store->index)->end == 0)
		(void)checkpoint(store, 0);
	index_release(store->index);
	store->open = true;
	return store;
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

	assert(store->journal.durable <= end->end);
	record->seq = end->seq + 1;
	record->safe = store->journal.durable;
	record->prev = end->crc;
	end->last = end->end;
	end->end += record_encode(record, store->journal.seed,
	    store->batch + (end->end - store->at.end));
	end->seq = record->seq;
	end->crc = record->crc;
	end->closing = record->plant == NULL;
	assert(end->end - store->at.end <= JOURNAL_APPEND_MAX);
}

/* Put the plant, if it is new, into the index's memory and the batch. */
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
	const uint64_t found = index_find(store->index, plant->id);

	assert(record.by_len > 0 && record.by_len <= RECORD_BY_MAX);
	if (found > 0)
		return compare_stored(store, found, item);
	if (index_add(store->index, plant->id, store->batch_end.end) < 0)
		return journal_unwritten(&store->journal, INDEX_NAME, errno);
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
	*some = i;
	return fault;
}

/* Append the batch, sync it, and mark the end. */
static enum fault
write_batch(struct store *store)
{
	struct journal *journal = &store->journal;
	const uint64_t begin = store->at.end, end = store->batch_end.end;
	assert(journal->locked && journal->durable <= begin && begin < end);
	enum fault fault =
	    journal_append(journal, begin, store->batch, (size_t)(end - begin));

	if (fault == FAULT_FAILED)
		return fault;
	/* After a fault that passes, this syncs the cut. */
	if (journal_sync(journal) != FAULT_NONE)
		return FAULT_FAILED;
	if (fault != FAULT_NONE)
		return fault;
	journal->durable = end;
	store->at = store->batch_end;
	journal_mark_end(journal, &store->at);
	metrics[METRICS_STORE_BYTES] = end;
	metrics[METRICS_STORE_PLANTS] = index_count(store->index);
	if (journal->passing == FAULT_FULL)
		log_info("%s: there is room again", journal->path);
	journal->passing = FAULT_NONE;
	return FAULT_NONE;
}

/* Store a batch of the first items, `*some`; after a fault, none of them. */
static enum fault
store_batch(
    struct store *store, struct store_item *items, size_t n, size_t *some)
{
	enum fault fault = catch_up(store);

	if (fault != FAULT_NONE)
		return fault;
	const size_t held = index_held(store->index);
	fault = build_batch(store, items, n, some);
	if (fault == FAULT_NONE && store->batch_end.end > store->at.end)
		fault = write_batch(store);
	if (fault != FAULT_NONE)
		index_keep(store->index, held);
	assert(fault == FAULT_NONE || index_held(store->index) == held);
	return fault;
}

static void
refuse_items(struct store_item *items, size_t n, enum fault fault)
{
	enum store_result result =
	    fault_passes(fault) ? STORE_BUSY : STORE_FAILED;

	if (fault == FAULT_FULL)
		result = STORE_FULL;
	for (size_t i = 0; i < n; i++)
		items[i].result = result;
}

static enum fault
commit_items(struct store *store, struct store_item *items, size_t n)
{
	for (size_t some = n; n > 0; items += some, some = n -= some) {
		enum fault fault = store_batch(store, items, n, &some);

		if (fault == FAULT_NONE)
			continue;
		/*
		 * If the disk is full, refuse this batch only: a repeat among
		 * the later items needs no room.
		 */
		refuse_items(items, fault == FAULT_FULL ? some : n, fault);
		if (fault != FAULT_FULL)
			return fault;
	}
	return FAULT_NONE;
}

/* Append a closing line, unless the last line is one: it covers all plants. */
static enum fault
append_closing(struct store *store)
{
	char now[TIMESTAMP_LEN];
	struct record record = { .at = now };
	enum fault fault = catch_up(store);

	if (fault != FAULT_NONE || store->at.closing)
		return fault;
	timestamp_print(clock_ms(CLOCK_REALTIME), now);
	store->batch_end = store->at;
	put_line(store, &record);
	fault = write_batch(store);
	if (fault == FAULT_NONE)
		journal_write_end(&store->journal);
	return fault;
}

/* --- Checkpoints --- */

/* Copy what a checkpoint of the claimed index will write. */
static enum fault
collect(struct store *store)
{
	pthread_mutex_lock(&store->mutex);
	enum fault fault = store->failed
			       ? FAULT_FAILED
			       : index_collect(store->index, &store->at);
	assert(fault != FAULT_NONE ||
	       index_covered(store->index)->end <= store->at.end);
	if (store->journal.durable < index_covered(store->index)->end)
		store->journal.durable = index_covered(store->index)->end;
	pthread_mutex_unlock(&store->mutex);
	return fault;
}

/* Whether to continue a merge. */
static bool
step_merge(void *context, uint64_t done, uint64_t total)
{
	struct store *store = context;

	(void)done, (void)total;
	return store->watch != NULL ? watch_step(store->watch, store->at.end,
					  store->journal.size)
				    : !store->stop;
}

/* The index stays claimed.  After damage the next start builds it again. */
static enum fault
checkpoint(struct store *store, uint64_t merge_max)
{
	const struct watch watch = { step_merge, store };
	enum fault fault = index_claim(store->index);

	if (fault != FAULT_NONE)
		return fault;
	fault = collect(store);
	if (fault != FAULT_NONE)
		return fault;
	fault = index_write(store->index, merge_max, &watch);
	pthread_mutex_lock(&store->mutex);
	if (fault == FAULT_NONE)
		index_install(store->index);
	if (fault == FAULT_DAMAGED) {
		store->failed = true;
		fault = FAULT_FAILED;
	}
	pthread_mutex_unlock(&store->mutex);
	return fault;
}

static struct timespec
timespec_of(int64_t ms)
{
	return (struct timespec){ (time_t)(ms / 1000),
		(long)(ms % 1000) * 1000000 };
}

/* Under the mutex, which is unlocked meanwhile. */
static void
make_checkpoint(struct store *store)
{
	pthread_mutex_unlock(&store->mutex);
	enum fault fault = checkpoint(store, UINT64_MAX);
	index_release(store->index);
	pthread_mutex_lock(&store->mutex);
	store->wanted = false;
	store->failing = fault != FAULT_NONE && fault != FAULT_BUSY;
	if (fault == FAULT_NONE)
		return;
	const struct timespec until = timespec_of(
	    clock_ms(CLOCK_MONOTONIC) +
	    (fault == FAULT_BUSY ? RETRY_BUSY_MS : RETRY_FAILED_MS));
	while (!store->stop &&
	       pthread_cond_timedwait(&store->wake, &store->mutex, &until) == 0)
		;
}

static void *
run_checkpoints(void *argument)
{
	struct store *store = argument;

	pthread_mutex_lock(&store->mutex);
	while (!store->stop)
		if (store->wanted)
			make_checkpoint(store);
		else
			pthread_cond_wait(&store->wake, &store->mutex);
	pthread_mutex_unlock(&store->mutex);
	return NULL;
}

/* Under the mutex. */
static void
want_checkpoint(struct store *store)
{
	if (!store->has_thread && !store->stop)
		store->has_thread = pthread_create(&store->thread, NULL,
					run_checkpoints, store) == 0;
	store->wanted = true;
	pthread_cond_signal(&store->wake);
}

/*
 * Under the mutex: whether memory can have more plants.  FAULT_BUSY while a
 * checkpoint writes them, FAULT_FULL if the last one could not.
 */
static enum fault
check_memory(struct store *store)
{
	if (index_held(store->index) < HELD_MAX || store->stop)
		return FAULT_NONE;
	want_checkpoint(store);
	if (store->has_thread && !store->failing)
		return FAULT_BUSY;
	if (journal_is_news(&store->journal, FAULT_FULL))
		log_error("%s/" INDEX_NAME ": %zu plants wait in memory to be "
			  "written there; no more are stored until they are",
		    store->journal.path, index_held(store->index));
	return FAULT_FULL;
}

static void
unlock(struct store *store)
{
	journal_unlock(&store->journal);
	pthread_mutex_unlock(&store->mutex);
}

/*
 * Lock the mutex and the journal, by one deadline.  The mutex is locked on
 * return, even after a fault, but not between two tries: otherwise a second
 * thread would wait for two deadlines.
 */
static enum fault
lock_mutex_and_file(struct store *store, int timeout_ms)
{
	const int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + timeout_ms;
	long pause_ns = 0;

	for (;; journal_back_off(&pause_ns)) {
		pthread_mutex_lock(&store->mutex);
		if (store->failed)
			return FAULT_FAILED;
		enum fault fault = check_memory(store);
		const bool is_index = fault == FAULT_BUSY;

		if (fault == FAULT_NONE)
			fault =
			    journal_lock(&store->journal, JOURNAL_EXCLUSIVE, 0);
		if (fault != FAULT_BUSY)
			return fault;
		if (clock_ms(CLOCK_MONOTONIC) >= deadline_ms) {
			log_warning("%s: %s for %d ms", store->journal.name,
			    is_index ? "its index is being written"
				     : "locked by another process",
			    timeout_ms);
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

static int
commit(struct store *store, struct store_item *items, size_t n)
{
	enum fault fault = lock_mutex_and_file(store, JOURNAL_LOCK_TIMEOUT_MS);

	if (fault == FAULT_NONE)
		fault = commit_items(store, items, n);
	else
		refuse_items(items, n, fault);
	note_fault(store, fault);
	int status = store->failed ? -1 : 0;
	if (store->long_lived && index_held(store->index) >= HELD_PLANTS)
		want_checkpoint(store);
	unlock(store);
	return status;
}

/* Whether there is room for a plant, and for its id. */
static bool
has_room(struct store *store)
{
	const bool full = store->journal.passing == FAULT_FULL;

	if (index_held(store->index) >= HELD_MAX) {
		want_checkpoint(store);
		return false;
	}
	/*
	 * If free space is scarce or a batch was refused, try an allocation, at
	 * the journal's end: a file's size may have a limit.
	 */
	if (!full && has_bytes(store, PLENTY_BYTES))
		return true;
	int fd = openat(
	    store->journal.dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	int error = fd < 0 ? errno
			   : posix_fallocate(fd, (off_t)store->journal.size,
				 full ? JOURNAL_APPEND_MAX : READY_BYTES);
	file_close(fd);
	/* Without O_TMPFILE the free space has to do. */
	return error == 0 ||
	       (fault_of(error) != FAULT_FULL && has_bytes(store, READY_BYTES));
}

static enum store_result
is_ready(struct store *store)
{
	enum store_result result = STORE_FAILED;

	pthread_mutex_lock(&store->mutex);
	if (!store->failed &&
	    journal_check(&store->journal, store->at.end) == NULL)
		result = has_room(store) ? STORE_CREATED : STORE_FULL;
	pthread_mutex_unlock(&store->mutex);
	return result;
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
	/* Else reading on would only put more into memory. */
	if (!store->failed && !store->at.closing &&
	    index_held(store->index) < HELD_MAX &&
	    journal_lock(&store->journal, JOURNAL_EXCLUSIVE, 0) == FAULT_NONE)
		note_fault(store, append_closing(store));
	if (!store->failed && index_held(store->index) >= HELD_IDLE)
		want_checkpoint(store);
	unlock(store);
}

static void
stop_checkpoints(struct store *store)
{
	pthread_mutex_lock(&store->mutex);
	store->stop = true;
	pthread_cond_signal(&store->wake);
	pthread_mutex_unlock(&store->mutex);
	if (store->has_thread)
		pthread_join(store->thread, NULL);
}

/* Write a closing line, and cut off the room ahead; failure does no harm. */
static void
finish_journal(struct store *store)
{
	struct journal *journal = &store->journal;
	enum fault fault =
	    lock_mutex_and_file(store, JOURNAL_LOCK_TIMEOUT_MS / 10);

	if (fault == FAULT_NONE && index_held(store->index) < HELD_MAX) {
		fault = append_closing(store);
		note_fault(store, fault);
		/* Nothing is after the closing line but blank room. */
		if (fault == FAULT_NONE && journal->size > store->at.end)
			(void)!ftruncate(journal->fd, (off_t)store->at.end);
	}
	unlock(store);
}

/* CGI writes no closing line: each would cost a sync. */
static void
close_store(struct store *store)
{
	stop_checkpoints(store);
	/* A service, which writes room ahead, makes the checkpoints. */
	size_t held_max =
	    store->journal.size > store->at.end ? HELD_PLANTS : HELD_ONCE;
	if (store->long_lived) {
		finish_journal(store);
		held_max = 0;
	}
	store->stop = false;
	if (!store->failed && index_held(store->index) >= held_max &&
	    index_covered(store->index)->end < store->at.end)
		(void)checkpoint(store, store->long_lived ? 0 : MERGE_ONCE_MAX);
	free_store(store);
}

const struct engine engine_file = {
	.version = ENGINE_VERSION,
	.open = open_store,
	.commit = commit,
	.ready = is_ready,
	.wait = wait_for_others,
	.idle = close_batch,
	.close = close_store,
};
