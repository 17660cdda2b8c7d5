/*
 * engine_file: the file engine.  See store/store.h and store/engine.h.
 *
 * If the index cannot be written and the plants do not fit into memory, a
 * service still starts, but refuses plants until the index can be written.
 *
 * A commit, under the lock: catch up; look up each id; append the new plants
 * with one write; sync once; mark the end.  No run of the index is written.
 * Failure modes: if the disk is full or memory is short, the batch is undone
 * and refused.  After any other failed write, or a failed sync, the process
 * exits, and the next one reads the bytes from the disk.
 *
 * A thread of a long-lived process makes checkpoints of the index; a CGI
 * request makes one after its response, if many plants are in memory.  Lock
 * order: index, mutex, journal.  Opening tries to lock the index while it holds
 * the journal's lock, without waiting.
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
#include <time.h>
#include <unistd.h>

#include "files.h"
#include "ground/clock.h"
#include "ground/file.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "pure/timestamp.h"
#include "store/mark.h"

/* The space a plant needs; enough free space to skip a trial allocation. */
#define READY_BYTES (64 << 10)
#define PLENTY_BYTES (16 << 20)

/*
 * Checkpoints begin at this many plants in memory: in a service (CGI requests
 * read a thousand in 0.35 ms), in an idle service, after a CGI request.
 */
#define HELD_PLANTS ((size_t)8 << 10)
#define HELD_IDLE ((size_t)256)
#define HELD_ONCE ((size_t)1 << 10)
/* The pause before a retry: if the index is busy; after any other fault. */
#define RETRY_BUSY_MS 20
#define RETRY_FAILED_MS 1000
/* A CGI request merges at most this many plants: 4 MiB. */
#define MERGE_ONCE_MAX ((uint64_t)256 << 10)

struct store {
	const struct engine *engine; /* must be first: see engine.h */
	struct files files;
	struct position batch_end; /* the end of the batch, after files.at */
	/* The checkpoint thread.  files.mutex also protects these members. */
	pthread_t thread;
	pthread_cond_t wake;
	bool has_thread, wanted;
	bool failing; /* the last checkpoint could not be written */
	/* The lines of one append, and blank lines after them; never zeroed. */
	char batch[];
};

/* Return whether the file system has `bytes` free; true if that is unknown. */
static bool
has_bytes(const struct store *store, uint64_t bytes)
{
	struct statvfs st;

	return fstatvfs(store->files.journal.dir, &st) < 0 ||
	       st.f_bavail * st.f_frsize >= bytes;
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

static void
free_store(struct store *store)
{
	files_done(&store->files);
	pthread_cond_destroy(&store->wake);
	free(store);
}

static struct store *
new_store(const struct store_options *options)
{
	struct store *store =
	    malloc(sizeof(*store) + JOURNAL_APPEND_MAX + JOURNAL_ROOM_BYTES);
	pthread_condattr_t clock;

	if (store == NULL)
		return NULL;
	*store = (struct store){ .engine = &engine_file };
	files_init(&store->files, options);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&store->wake, &clock);
	pthread_condattr_destroy(&clock);
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
	struct files *files = &store->files;
	*fault = files_open_and_lock(files);
	/* A service starts anyway, and refuses commits until there is space. */
	if (*fault == FAULT_FULL && files->long_lived && files->index != NULL &&
	    index_held(files->index) >= FILES_HELD_MAX)
		*fault = FAULT_NONE;
	if (files->journal.fd >= 0) {
		if (files->long_lived)
			files->journal.room = JOURNAL_ROOM_BYTES;
		if (metrics_open(options->dir, true) != FAULT_NONE)
			uncounted = errno;
	}
	if (*fault != FAULT_NONE) {
		/* For a writer, a missing store is a configuration error. */
		if (*fault == FAULT_ABSENT)
			*fault = FAULT_SETUP;
		free_store(store);
		return NULL;
	}
	files->watch = NULL;
	if (uncounted != 0 && files->long_lived)
		log_warning("%s/" METRICS_NAME
			    ": %s; this process counts only for itself",
		    options->dir, strerror(uncounted));
	journal_unlock(&files->journal);
	/* If this fails, the index is written later. */
	if (index_covered(files->index)->end == 0)
		(void)files_checkpoint(files, 0);
	index_release(files->index);
	files->open = true;
	return store;
}

/* Compare the item with the record at `offset`, in the journal or the batch. */
static enum fault
compare_stored(struct store *store, uint64_t offset, struct store_item *item)
{
	struct files *files = &store->files;
	const struct plant *plant = item->plant;
	struct record record;
	bool valid = false;

	if (offset < files->at.end) {
		enum fault fault =
		    journal_read(&files->journal, offset, &record);

		if (fault != FAULT_NONE && fault != FAULT_DAMAGED)
			return fault;
		valid = fault == FAULT_NONE;
	} else if (offset < store->batch_end.end) {
		const char *line = store->batch + (offset - files->at.end);
		const char *newline =
		    memchr(line, '\n', store->batch_end.end - offset);

		valid = record_decode(line, (size_t)(newline + 1 - line),
			    files->journal.seed, &record) == NULL;
	}
	if (!valid || record.plant == NULL || record.id != plant->id) {
		log_error("%s: no valid record of the plant %" PRId64
			  " at byte %" PRIu64 ", where the index has it",
		    files->journal.name, plant->id, offset);
		/* Set it first, so that no checkpoint writes its manifest. */
		files->failed = true;
		return index_damaged(files->index);
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

	assert(store->files.journal.durable <= end->end);
	record->seq = end->seq + 1;
	record->safe = store->files.journal.durable;
	record->prev = end->crc;
	end->last = end->end;
	end->end += record_encode(record, store->files.journal.seed,
	    store->batch + (end->end - store->files.at.end));
	end->seq = record->seq;
	end->crc = record->crc;
	end->closing = record->plant == NULL;
	assert(end->end - store->files.at.end <= JOURNAL_APPEND_MAX);
}

/* If the plant is new, add it to the memtable and the batch. */
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
	const uint64_t found = index_find(store->files.index, plant->id);

	assert(record.by_len > 0 && record.by_len <= RECORD_BY_MAX);
	if (found > 0)
		return compare_stored(store, found, item);
	if (index_add(store->files.index, plant->id, store->batch_end.end) < 0)
		return journal_unwritten(
		    &store->files.journal, INDEX_NAME, errno);
	item->result = STORE_CREATED;
	put_line(store, &record);
	return FAULT_NONE;
}

/* Build a batch of the first `*some` items: those that fit into one append. */
static enum fault
build_batch(
    struct store *store, struct store_item *items, size_t n, size_t *some)
{
	char now[TIMESTAMP_LEN];
	enum fault fault = FAULT_NONE;
	size_t i;

	timestamp_print(clock_ms(CLOCK_REALTIME), now);
	store->batch_end = store->files.at;
	for (i = 0; i < n && fault == FAULT_NONE; i++) {
		if (store->batch_end.end - store->files.at.end +
			RECORD_ENVELOPE_MAX + items[i].plant->len >
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
	struct files *files = &store->files;
	struct journal *journal = &files->journal;
	const uint64_t begin = files->at.end, end = store->batch_end.end;
	assert(journal->locked && journal->durable <= begin && begin < end);
	enum fault fault =
	    journal_append(journal, begin, store->batch, (size_t)(end - begin));

	if (fault == FAULT_FAILED)
		return fault;
	/* If the disk was full, this syncs the file that was cut back. */
	if (journal_sync(journal) != FAULT_NONE)
		return FAULT_FAILED;
	if (fault != FAULT_NONE)
		return fault;
	journal->durable = end;
	files->at = store->batch_end;
	mark_write(journal, &files->at);
	metrics[METRICS_STORE_BYTES] = end;
	metrics[METRICS_STORE_PLANTS] = index_count(files->index);
	if (journal->passing == FAULT_FULL)
		log_info("%s: there is room again", journal->path);
	journal->passing = FAULT_NONE;
	return FAULT_NONE;
}

/* Store the first `*some` items as one batch; after a fault, none of them. */
static enum fault
store_batch(
    struct store *store, struct store_item *items, size_t n, size_t *some)
{
	struct files *files = &store->files;
	enum fault fault = files_catch_up(files);

	if (fault != FAULT_NONE)
		return fault;
	const size_t held = index_held(files->index);
	fault = build_batch(store, items, n, some);
	if (fault == FAULT_NONE && store->batch_end.end > files->at.end)
		fault = write_batch(store);
	if (fault != FAULT_NONE)
		index_keep(files->index, held);
	assert(fault == FAULT_NONE || index_held(files->index) == held);
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
		 * If the disk is full, refuse only this batch: a repeat among
		 * the later items needs no space.
		 */
		refuse_items(items, fault == FAULT_FULL ? some : n, fault);
		if (fault != FAULT_FULL)
			return fault;
	}
	return FAULT_NONE;
}

/* Append a closing line, which covers all plants, unless one is the last. */
static enum fault
append_closing(struct store *store)
{
	char now[TIMESTAMP_LEN];
	struct record record = { .at = now };
	enum fault fault = files_catch_up(&store->files);

	if (fault != FAULT_NONE || store->files.at.closing)
		return fault;
	timestamp_print(clock_ms(CLOCK_REALTIME), now);
	store->batch_end = store->files.at;
	put_line(store, &record);
	fault = write_batch(store);
	if (fault == FAULT_NONE)
		mark_write_end(&store->files.journal);
	return fault;
}

/* --- Checkpoints --- */

/* Call with the mutex locked; it is unlocked during the checkpoint. */
static void
make_checkpoint(struct store *store)
{
	struct files *files = &store->files;

	pthread_mutex_unlock(&files->mutex);
	enum fault fault = files_checkpoint(files, UINT64_MAX);
	index_release(files->index);
	pthread_mutex_lock(&files->mutex);
	store->wanted = false;
	store->failing = fault != FAULT_NONE && fault != FAULT_BUSY;
	if (fault == FAULT_NONE)
		return;
	const int64_t until_ms =
	    clock_ms(CLOCK_MONOTONIC) +
	    (fault == FAULT_BUSY ? RETRY_BUSY_MS : RETRY_FAILED_MS);
	const struct timespec until = { (time_t)(until_ms / 1000),
		(long)(until_ms % 1000) * 1000000 };
	while (!files->stop &&
	       pthread_cond_timedwait(&store->wake, &files->mutex, &until) == 0)
		;
}

static void *
run_checkpoints(void *argument)
{
	struct store *store = argument;

	pthread_mutex_lock(&store->files.mutex);
	while (!store->files.stop)
		if (store->wanted)
			make_checkpoint(store);
		else
			pthread_cond_wait(&store->wake, &store->files.mutex);
	pthread_mutex_unlock(&store->files.mutex);
	return NULL;
}

/* Call with the mutex locked. */
static void
want_checkpoint(struct store *store)
{
	if (!store->has_thread && !store->files.stop)
		store->has_thread = pthread_create(&store->thread, NULL,
					run_checkpoints, store) == 0;
	store->wanted = true;
	pthread_cond_signal(&store->wake);
}

/*
 * Call with the mutex locked.  Check whether the memtable can grow: FAULT_BUSY
 * while a checkpoint writes it, FAULT_FULL if the last one could not.
 */
static enum fault
check_memory(struct store *store)
{
	struct files *files = &store->files;

	if (index_held(files->index) < FILES_HELD_MAX || files->stop)
		return FAULT_NONE;
	want_checkpoint(store);
	if (store->has_thread && !store->failing)
		return FAULT_BUSY;
	if (journal_is_news(&files->journal, FAULT_FULL))
		log_error("%s/" INDEX_NAME ": %zu plants wait in memory to be "
			  "written there; no more are stored until they are",
		    files->journal.path, index_held(files->index));
	return FAULT_FULL;
}

/* Return -1 if the store has failed. */
static int
unlock(struct store *store)
{
	int status = store->files.failed ? -1 : 0;

	journal_unlock(&store->files.journal);
	pthread_mutex_unlock(&store->files.mutex);
	return status;
}

/*
 * Lock the mutex and the journal, with one deadline for both.  The mutex is
 * locked on return, even after a fault, but not between two tries: otherwise a
 * second thread would wait for two deadlines.
 */
static enum fault
lock_mutex_and_file(struct store *store, int timeout_ms)
{
	struct files *files = &store->files;
	const int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + timeout_ms;
	long pause_ns = 0;

	for (;; journal_back_off(&pause_ns)) {
		pthread_mutex_lock(&files->mutex);
		if (files->failed)
			return FAULT_FAILED;
		enum fault fault = check_memory(store);
		const bool is_index = fault == FAULT_BUSY;

		if (fault == FAULT_NONE)
			fault =
			    journal_lock(&files->journal, JOURNAL_EXCLUSIVE, 0);
		if (fault != FAULT_BUSY)
			return fault;
		if (clock_ms(CLOCK_MONOTONIC) >= deadline_ms) {
			log_warning("%s: %s for %d ms", files->journal.name,
			    is_index ? "its index is being written"
				     : "locked by another process",
			    timeout_ms);
			return FAULT_BUSY;
		}
		pthread_mutex_unlock(&files->mutex);
	}
}

/* After a fault that only a restart can fix, the process ends. */
static void
note_fault(struct store *store, enum fault fault)
{
	if (fault != FAULT_NONE && !fault_passes(fault))
		store->files.failed = true;
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
	if (store->files.long_lived &&
	    index_held(store->files.index) >= HELD_PLANTS)
		want_checkpoint(store);
	return unlock(store);
}

/* Return whether there is space for a plant and its id. */
static bool
has_room(struct store *store)
{
	struct files *files = &store->files;
	const bool full = files->journal.passing == FAULT_FULL;

	if (index_held(files->index) >= FILES_HELD_MAX) {
		want_checkpoint(store);
		return false;
	}
	/*
	 * If free space is scarce or a batch was refused, try an allocation at
	 * the journal's end, since file sizes may be limited.
	 */
	if (!full && has_bytes(store, PLENTY_BYTES))
		return true;
	int fd = openat(
	    files->journal.dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	int error = fd < 0 ? errno
			   : posix_fallocate(fd, (off_t)files->journal.size,
				 full ? JOURNAL_APPEND_MAX : READY_BYTES);
	file_close(fd);
	/* Without O_TMPFILE, rely on the free space. */
	return error == 0 ||
	       (fault_of(error) != FAULT_FULL && has_bytes(store, READY_BYTES));
}

static enum store_result
is_ready(struct store *store)
{
	struct files *files = &store->files;
	enum store_result result = STORE_FAILED;

	pthread_mutex_lock(&files->mutex);
	if (!files->failed &&
	    journal_check(&files->journal, files->at.end) == NULL)
		result = has_room(store) ? STORE_CREATED : STORE_FULL;
	pthread_mutex_unlock(&files->mutex);
	return result;
}

static void
wait_for_others(struct store *store)
{
	pthread_mutex_lock(&store->files.mutex);
	pthread_mutex_unlock(&store->files.mutex);
}

static int
close_batch(struct store *store)
{
	struct files *files = &store->files;

	if (pthread_mutex_trylock(&files->mutex) != 0)
		return 0;
	/* Otherwise, reading on would only use more memory. */
	if (!files->failed && index_held(files->index) < FILES_HELD_MAX &&
	    (!files->at.closing ||
		journal_has_text(&files->journal, files->at.end))) {
		enum fault fault =
		    journal_lock(&files->journal, JOURNAL_EXCLUSIVE, 0);

		if (fault == FAULT_NONE)
			fault = append_closing(store);
		note_fault(store, fault);
	}
	/* After a failure only commits try again, not each idle second. */
	if (!files->failed && !store->failing &&
	    index_held(files->index) >= HELD_IDLE)
		want_checkpoint(store);
	return unlock(store);
}

static void
stop_checkpoints(struct store *store)
{
	pthread_mutex_lock(&store->files.mutex);
	store->files.stop = true;
	pthread_cond_signal(&store->wake);
	pthread_mutex_unlock(&store->files.mutex);
	if (store->has_thread)
		pthread_join(store->thread, NULL);
}

/* Write a closing line, and cut off the blank lines; failure is harmless. */
static void
finish_journal(struct store *store)
{
	struct files *files = &store->files;
	struct journal *journal = &files->journal;
	enum fault fault =
	    lock_mutex_and_file(store, JOURNAL_LOCK_TIMEOUT_MS / 10);

	if (fault == FAULT_NONE && index_held(files->index) < FILES_HELD_MAX) {
		fault = append_closing(store);
		note_fault(store, fault);
		/* Only blank lines follow the closing line. */
		if (fault == FAULT_NONE && journal->size > files->at.end)
			(void)!ftruncate(journal->fd, (off_t)files->at.end);
	}
	(void)unlock(store);
}

/* CGI writes no closing line: each would cost a sync. */
static void
close_store(struct store *store)
{
	struct files *files = &store->files;

	stop_checkpoints(store);
	/* Blank lines at the end mean that a service makes the checkpoints. */
	size_t held_max =
	    files->journal.size > files->at.end ? HELD_PLANTS : HELD_ONCE;
	if (files->long_lived) {
		finish_journal(store);
		held_max = 0;
	}
	files->stop = false;
	if (!files->failed && index_held(files->index) >= held_max &&
	    index_covered(files->index)->end < files->at.end)
		(void)files_checkpoint(
		    files, files->long_lived ? 0 : MERGE_ONCE_MAX);
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
