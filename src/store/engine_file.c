/*
 * engine_file: the file engine.  See store/store.h and store/engine.h.
 *
 * Opening locks the journal, opens the index and catches up.  It never makes a
 * store: a directory without one may be a file system that is not mounted, and
 * an empty store would accept stored ids again.
 *
 * Catching up brings the index and this process's position to the journal's
 * end, which others may have moved.  Happy path: the byte at the index's end is
 * blank or absent, so no line follows.  Otherwise the lines are entered into
 * the index; those past the known durable end are read from the disk.  A torn
 * tail is kept in a file beside the journal, and cut off; a damaged journal is
 * refused.
 *
 * A commit, under the lock: catch up; enter each id in an index transaction,
 * which finds repeated ids; append the new plants with one write; sync once.
 * Then the results are final, and store_finish commits the index and unlocks.
 * Failure modes: if the disk is full or memory is short, the batch is undone
 * and refused.  After any other failed write, or a failed sync, the process
 * ends; the next process reads the bytes from the disk.  If the commit of the
 * index fails, the plants are stored, and the next catch-up enters them.
 */
#include "store/engine.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
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

/* An index and the sorting of its ids take at most 1/4 of the journal. */
#define INDEX_PART 4

struct store {
	const struct engine *engine; /* must be first: see engine.h */
	pthread_mutex_t mutex;       /* for threads; lock before the journal */
	bool long_lived;             /* see struct store_options */
	bool failed;                 /* nothing is acknowledged any more */
	const struct watch *watch;   /* NULL once the store is open */
	struct journal journal;
	struct index *index;       /* NULL: there was no room for it */
	struct position at;        /* the journal is read up to here */
	struct position batch_end; /* of the batch that is built after `at` */
	bool written;              /* the batch is durable, not indexed yet */
	enum store_result ready;   /* the last result of store_ready */
	/* The lines of one append, and the blank room after them. */
	char batch[JOURNAL_APPEND_MAX + JOURNAL_ROOM_BYTES];
};

/*
 * Whether the file system has `bytes` of room, besides what a missing index
 * needs; true if that cannot be found out.
 */
static bool
has_bytes(const struct store *store, uint64_t bytes)
{
	struct statvfs st;

	if (store->index == NULL)
		bytes += store->journal.size / INDEX_PART;
	return fstatvfs(store->journal.dir, &st) < 0 ||
	       st.f_bavail * st.f_frsize >= bytes;
}

/* --- Catching up --- */

struct reading {
	struct replay replay;
	struct pairs pairs; /* the plants to enter */
	uint64_t covered;   /* the index's end; 0 if it is empty */
	bool settle;        /* some lines may be unsynced */
};

/* Read the lines to the journal's end, and collect the plants to enter. */
static enum fault
read_lines(struct store *store, struct reading *r)
{
	const struct position *at = &r->replay.at;
	struct journal *journal = &store->journal;
	uint64_t next_step = at->end + STEP_BYTES;
	enum replay_result result;
	struct record record;

	while ((result = replay_next(&r->replay, &record)) == REPLAY_RECORD) {
		if (record.plant != NULL && at->last >= r->covered &&
		    pairs_add(&r->pairs, record.id, at->last) < 0)
			return journal_unwritten(journal, "index", errno);
		if (at->end < next_step)
			continue;
		next_step = at->end + STEP_BYTES;
		/* Reading is half of the progress: entering takes as long. */
		if (!watch_step(store->watch, at->end, 2 * journal->size))
			return FAULT_STOPPED;
	}
	return result == REPLAY_ERROR
		   ? journal_unreadable(journal, at->end, r->replay.error)
		   : FAULT_NONE;
}

/* Read from `from` to the journal's end; cut off a torn tail. */
static enum fault
read_on(struct store *store, struct reading *r, const struct position *from)
{
	const struct position *at = &r->replay.at;
	struct journal *journal = &store->journal;
	enum fault fault = FAULT_NONE;
	uint64_t tail_end = 0; /* the end of a torn tail */

	replay_init(&r->replay, journal->fd, journal->seed, from);
	if (r->settle)
		fault = journal_settle(journal);
	if (fault == FAULT_NONE && pairs_init(&r->pairs, journal->dir) < 0)
		fault = fault_report(journal->path, "cannot read on");
	if (fault == FAULT_NONE)
		fault = read_lines(store, r);
	/* Judge the tail after settling, or if durable lines are missing. */
	if (fault == FAULT_NONE && (r->settle || at->end < journal->durable))
		fault = journal_finish(
		    journal, &r->replay, journal->durable, &tail_end);
	if (fault == FAULT_NONE && r->settle)
		journal->durable = at->end;
	if (fault == FAULT_NONE && (r->covered == 0 || r->pairs.n > 0))
		fault = index_build(
		    store->index, &r->pairs, &r->replay.at, store->watch);
	if (fault == FAULT_STOPPED)
		log_warning("%s/index: stopped before it was built; the next "
			    "start begins again",
		    journal->path);
	/* A partly built index is useless, and takes room. */
	if (fault != FAULT_NONE && r->covered == 0)
		index_discard(journal->dir);
	/* Cut last: a journal that is refused stays unchanged. */
	if (fault == FAULT_NONE && tail_end > at->end)
		fault = journal_cut_tail(journal, at->end, tail_end);
	if (fault == FAULT_NONE)
		store->at = *at;
	replay_done(&r->replay);
	pairs_done(&r->pairs);
	return fault;
}

/*
 * Open the index, or make one if none is usable, and read the journal to its
 * end.  An index transaction has begun then.  After a fault store->index is
 * NULL.
 */
static enum fault
start(struct store *store)
{
	const enum index_use use = store->long_lived ? INDEX_SERVE : INDEX_ONCE;
	struct journal *journal = &store->journal;
	struct reading reading = { .settle = true };
	struct position covered;
	struct index_view view;
	enum fault fault = index_open(journal, use, &view);

	store->index = view.index;
	if (fault == FAULT_NONE)
		fault = journal_find_durable(journal, &view.seen);
	/* index_create removes the old index: save its end. */
	if (fault == FAULT_NONE && view.index == NULL && view.seen.end > 0)
		fault = journal_write_end(journal);
	if (fault == FAULT_NONE && view.index == NULL) {
		if (journal->size > RECORD_HEADER_LEN && !journal->full)
			log_info("%s/index: %s; building it from %" PRIu64
				 " bytes of " JOURNAL_NAME,
			    journal->path, index_words[view.state].text,
			    journal->size);
		fault = index_create(journal, use, &store->index);
	}
	if (fault == FAULT_NONE)
		fault = index_begin(store->index, &covered);
	if (fault == FAULT_NONE) {
		bool whole =
		    covered.end == 0 ||
		    (store->long_lived && covered.end <= CHECK_BYTES_MAX);

		reading.covered = covered.end;
		fault = read_on(
		    store, &reading, whole ? &journal->start : &covered);
	}
	if (fault != FAULT_NONE) {
		index_close(store->index, false);
		store->index = NULL;
	}
	return fault;
}

/*
 * Check that the open journal still has its name, and read what others have
 * appended.  Then an index transaction has begun, and store->at is the
 * journal's end.  A missing index is built first; FAULT_FULL without room.
 */
static enum fault
catch_up(struct store *store)
{
	struct journal *journal = &store->journal;
	const char *why = journal_check(journal, store->at.end);
	struct position covered;

	if (why != NULL) {
		log_error("%s: %s while it was in use; put it back, or restore "
			  "it from a backup",
		    journal->name, why);
		return FAULT_FAILED;
	}
	/* Without room a build of the index would take long and fail. */
	if (store->index == NULL)
		return has_bytes(store, 0) ? start(store) : FAULT_FULL;
	enum fault fault = index_begin(store->index, &covered);
	if (fault != FAULT_NONE)
		return fault;
	/* An index covers synced lines only. */
	if (journal->durable < covered.end)
		journal->durable = covered.end;
	/* After others' commits the journal must have the index's last line. */
	if (covered.end != store->at.end)
		fault = journal_check_seen(journal, &covered);
	/* A byte that is not blank belongs to a line, or to a part of one. */
	if (fault == FAULT_NONE && (journal_has_text(journal, covered.end) ||
				       covered.end < journal->durable)) {
		struct reading reading = { .covered = covered.end,
			.settle = journal_has_text(journal, journal->durable) };

		fault = read_on(store, &reading, &covered);
	} else if (fault == FAULT_NONE)
		store->at = covered;
	if (fault != FAULT_NONE)
		index_abort(store->index);
	return fault;
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
		*fault = start(store);
		if (*fault == FAULT_NONE)
			index_abort(store->index);
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
	/* After a fault that passes, this syncs the cut. */
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
	if (!has_bytes(store, 0))
		return false;
	/*
	 * If free space is scarce or a batch was refused, try an allocation, at
	 * the journal's end: a file's size may have a limit.
	 */
	if (!store->journal.full && has_bytes(store, PLENTY_BYTES))
		return true;
	int fd = openat(
	    store->journal.dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	int error = fd < 0 ? errno
			   : posix_fallocate(fd, (off_t)store->journal.size,
				 store->journal.full ? JOURNAL_APPEND_MAX
						     : READY_BYTES);
	file_close(fd);
	/* Without O_TMPFILE the free space has to do. */
	return error == 0 ||
	       (fault_of(error) != FAULT_FULL && has_bytes(store, READY_BYTES));
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
