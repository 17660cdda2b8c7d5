/*
 * commit: the file engine: the life of an open store, and its commits.  See
 * engine.h and store/store.h.
 *
 * Opening takes the journal's lock, opens the index and reads on from where it
 * ends (recovery.h).  It never makes a store: a directory without one may be a
 * file system that is not mounted, and an empty store would take its ids anew.
 *
 * A commit, under the lock: read on what others appended, enter each id into an
 * index transaction, which finds the repeats, append the new plants with one
 * write, sync once: the results are good.  Then commit the index.
 * Failure modes: no room, everything is taken back; a failed sync, the journal
 * is marked for all processes and this one ends; a failed commit of the index,
 * the plants are stored and the next catch-up enters them.
 */
#include "recovery.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "pure/timestamp.h"
#include "reader.h"

/* The room that a plant needs, and what need not be tried. */
#define READY_BYTES (64 << 10)
#define PLENTY_BYTES (16 << 20)
/* How long to wait for the lock while somebody waits for the store's state. */
#define PROMPT_MS 100

/* With the directory locked, if there is one: the journal is absent. */
static enum fault
replace_journal(struct store *store)
{
	const struct journal *journal = &store->journal;

	if (journal_exists(journal, JOURNAL_NAME))
		return FAULT_NONE;
	if (journal_exists(journal, JOURNAL_FAILED_NAME))
		return recovery_renew(store);
	if (journal_exists(journal, "index") ||
	    journal_exists(journal, JOURNAL_END_NAME))
		log_error(
		    "%s: missing; restore it from a backup", journal->name);
	else
		log_error("%s: no store here; mount its file system, or make "
			  "a new store with: plant-store init %s",
		    store->path, store->path);
	return FAULT_SETUP;
}

enum fault
store_init(const char *path)
{
	static const char *const names[] = { JOURNAL_NAME, JOURNAL_FAILED_NAME,
		JOURNAL_END_NAME, "index" };
	int64_t deadline_ms =
	    clock_ms(CLOCK_MONOTONIC) + JOURNAL_LOCK_TIMEOUT_MS;
	struct journal here = { .dir = journal_make_dir(path), .fd = -1 };
	struct journal fresh;
	enum fault fault = FAULT_NONE;

	/* Two may begin at once: the second finds the first one's store. */
	if (here.dir < 0 || journal_lock_dir(&here, deadline_ms) < 0)
		fault = fault_report(path, "cannot make or open it");
	for (size_t i = 0; i < 4 && fault == FAULT_NONE; i++)
		if (journal_exists(&here, names[i])) {
			log_error("%s: holds a store, or a part of one: %s; "
				  "nothing was changed; name another directory",
			    path, names[i]);
			fault = FAULT_SETUP;
		}
	if (fault == FAULT_NONE && (journal_begin(&fresh, here.dir) < 0 ||
				       journal_place(&fresh, false) < 0))
		fault = fault_report(path, "cannot make a store there");
	journal_close(&here);
	return fault;
}

/* The journal that belongs here, locked. */
static enum fault
open_journal(struct store *store, int64_t deadline_ms)
{
	struct journal *journal = &store->journal;
	char name[JOURNAL_KEPT_MAX];
	const char *moved = "cannot be reached";
	enum fault fault;

	for (;;) {
		fault = journal_open(journal, store->path, true);
		if (fault == FAULT_ABSENT && errno == ENOENT) {
			/* Until it is closed: one renews a failed journal. */
			bool locked =
			    journal->dir < 0 ||
			    journal_lock_dir(journal, deadline_ms) == 0;
			int64_t began_ms = clock_ms(CLOCK_MONOTONIC);
			fault = locked ? replace_journal(store)
				       : fault_report(
					     store->path, "cannot lock it");
			/* That was no wait. */
			deadline_ms += clock_ms(CLOCK_MONOTONIC) - began_ms;
		} else if (fault == FAULT_NONE &&
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
	/* Left by a start that was killed when it had copied the journal. */
	if (journal_exists(journal, JOURNAL_FAILED_NAME))
		journal_rename(
		    journal->dir, JOURNAL_FAILED_NAME, "failed", 0, name);
	return FAULT_NONE;
}

static void
free_store(struct store *store, bool clean)
{
	index_close(store->index, clean);
	journal_close(&store->journal);
	pthread_mutex_destroy(&store->mutex);
	free(store->path);
	free(store);
}

static struct store *
open_store(const struct store_options *options, enum fault *fault)
{
	int64_t deadline_ms =
	    clock_ms(CLOCK_MONOTONIC) +
	    (options->prompt ? PROMPT_MS : JOURNAL_LOCK_TIMEOUT_MS);
	struct store *store = calloc(1, sizeof(*store));
	int uncounted = 0;

	if (store == NULL) {
		*fault = fault_report(options->dir, "cannot open");
		return NULL;
	}
	pthread_mutex_init(&store->mutex, NULL);
	store->engine = &engine_file;
	store->journal = JOURNAL_NONE;
	store->path = strdup(options->dir);
	store->prepare = options->prepare;
	store->watch = options->watch;
	if (store->path == NULL)
		*fault = fault_report(options->dir, "cannot open");
	else
		*fault = open_journal(store, deadline_ms);
	if (*fault == FAULT_NONE) {
		if (metrics_open(store->path, true) != FAULT_NONE)
			uncounted = errno;
		*fault = recovery_start(store);
		metrics[METRICS_FAILED] =
		    *fault == FAULT_DAMAGED || *fault == FAULT_FAILED;
	}
	store->watch = NULL;
	if (*fault == FAULT_NONE) {
		if (uncounted != 0 && store->prepare)
			log_warning("%s/" METRICS_NAME ": %s; this process "
				    "counts for itself alone",
			    store->path, strerror(uncounted));
		journal_unlock(&store->journal);
		return store;
	}
	/* Whoever starts a service has named the wrong directory. */
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
		return recovery_index_failed(store);
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
			fault = recovery_index_failed(store);
		}
	}
	*some = i;
	return fault;
}

/* Append what is in store->batch up to `at`, and sync it. */
static enum fault
write_batch(struct store *store, const struct position *at, bool sync)
{
	struct journal *journal = &store->journal;
	enum fault fault = FAULT_NONE;
	int result = journal_append(journal, store->at.end, store->batch,
	    (size_t)(at->end - store->at.end), store->prepare);

	if (result < -1)
		return journal_fail(journal, "taking back a failed write");
	if (result < 0 && !fault_passes(fault_of(errno)))
		return journal_fail(journal, "write");
	/* All was taken back: what passes by itself does no harm. */
	if (result < 0)
		fault = recovery_unwritten(store, JOURNAL_NAME);
	/* Nor may a power cut bring back what is refused. */
	if ((sync || result < 0) && journal_sync(journal) < 0)
		return journal_fail(journal, "fdatasync");
	if (fault == FAULT_NONE && sync)
		store->durable = at->end;
	return fault;
}

/* The index transaction ends with what is durable now. */
static void
settle(struct store *store, const struct position *at)
{
	uint64_t plants;

	store->at = *at;
	metrics[METRICS_STORE_BYTES] = at->end;
	if (index_count(store->index, &plants) == 0)
		metrics[METRICS_STORE_PLANTS] = plants;
	if (index_commit(store->index, at) < 0) {
		/* The plants are stored; reading on will enter them. */
		recovery_index_failed(store);
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
 * As many as one append may hold, `*some`, up to the sync.  If `*written`, the
 * index transaction is still to be ended, by settle() with `at`.
 */
static enum fault
commit_some(struct store *store, struct store_item *items, size_t n,
    struct position *at, size_t *some, bool *written)
{
	enum fault fault = recovery_catch_up(store);

	*some = n;
	*written = false;
	if (fault != FAULT_NONE)
		return fault;
	fault = build_batch(store, items, n, at, some);
	if (fault == FAULT_NONE && at->end > store->at.end) {
		fault = write_batch(store, at, true);
		*written = fault == FAULT_NONE;
	}
	if (!*written)
		index_abort(store->index);
	return fault;
}

static enum fault
commit_items(struct store *store, struct store_item *items, size_t n,
    void (*answer)(void *argument), void *argument)
{
	enum fault fault = FAULT_NONE;
	struct position at;
	bool written = false;
	size_t some;

	for (; n > 0 && fault == FAULT_NONE; items += some, n -= some) {
		if (written)
			settle(store, &at);
		fault = commit_some(store, items, n, &at, &some, &written);
		if (fault == FAULT_NONE)
			continue;
		/* Where it is full, a plant stored before may still pass. */
		refuse_items(items, fault == FAULT_FULL ? some : n, fault);
		if (fault == FAULT_FULL)
			fault = FAULT_NONE;
	}
	answer(argument);
	if (written)
		settle(store, &at);
	return fault;
}

/*
 * Put all plants below the watermark with a closing line.  A sync would cost a
 * CGI request as much as its plant did, and gain little: without it, the line
 * may be lost.
 */
static enum fault
append_closing(struct store *store)
{
	char now[TIMESTAMP_LEN];
	struct record record = { .at = now };
	enum fault fault = recovery_catch_up(store);
	struct position at = store->at;

	if (fault != FAULT_NONE)
		return fault;
	if (!at.closing && store->durable == at.end) {
		timestamp_print(clock_ms(CLOCK_REALTIME), now);
		put_line(store, &at, &record);
		fault = write_batch(store, &at, store->prepare);
		if (fault == FAULT_NONE && store->prepare) {
			settle(store, &at);
			if (journal_write_end(&store->journal, at.end) < 0)
				recovery_unwritten(store, JOURNAL_END_NAME);
		} else if (fault == FAULT_NONE)
			store->at = at;
	}
	index_abort(store->index);
	return fault_passes(fault) ? FAULT_NONE : fault;
}

/*
 * The mutex and the lock, by one deadline.  A thread that kept the mutex from
 * try to try would let another wait for two deadlines.
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

static int
commit(struct store *store, struct store_item *items, size_t n,
    void (*answer)(void *argument), void *argument)
{
	enum fault fault = enter_store(store, JOURNAL_LOCK_TIMEOUT_MS);

	if (fault == FAULT_NONE) {
		fault = commit_items(store, items, n, answer, argument);
		journal_unlock(&store->journal);
	} else {
		refuse_items(items, n, fault);
		answer(argument);
	}
	note_fault(store, fault);
	bool failed = store->failed;
	pthread_mutex_unlock(&store->mutex);
	return failed ? -1 : 0;
}

/* For a plant, and for what the index may need. */
static bool
has_room(const struct store *store)
{
	struct statvfs st;

	/* Else what was refused, or is about to be, is tried. */
	if (!store->full && fstatvfs(store->journal.dir, &st) == 0 &&
	    st.f_bavail * st.f_frsize >= PLENTY_BYTES)
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
	if (!store->failed && !store->at.closing &&
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

	if (enter_store(store, JOURNAL_LOCK_TIMEOUT_MS / 10) == FAULT_NONE) {
		if (!store->at.closing)
			note_fault(store, append_closing(store));
		if (store->prepare && !store->failed)
			clean = recovery_catch_up(store) == FAULT_NONE;
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

static struct store_reader *
open_reader(
    const struct store_options *options, const char *since, enum fault *fault)
{
	struct store_reader *reader =
	    reader_open(options->dir, options->watch, fault);

	if (reader != NULL)
		reader->since = since;
	return reader;
}

const struct engine engine_file = {
	.version = ENGINE_VERSION,
	.open = open_store,
	.commit = commit,
	.ready = is_ready,
	.wait = wait_for_others,
	.idle = close_batch,
	.close = close_store,
	.reader_open = open_reader,
	.reader_next = reader_next,
	.reader_end = reader_end,
	.reader_find = reader_find,
	.reader_figures = reader_figures,
	.reader_close = reader_close,
};
