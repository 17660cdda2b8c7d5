/*
 * store: the commit of a batch, and the life of a store.  See store/store.h.
 *
 * Happy path of a commit, under the lock: read on what others appended, enter
 * each id into an index transaction, which finds the repeats, append the new
 * plants with one write, sync once, commit the index, and only then are the
 * results good.  Failure modes: no room, everything is taken back; a failed
 * sync, the store is marked as failed for all processes and this one ends; a
 * failed commit of the index, the plants are stored and the next catch-up
 * enters them.
 */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "ground/log.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "recovery.h"
#include "state.h"

enum fault
state_fault(int error)
{
	switch (error) {
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return FAULT_FULL;
	case ENOMEM:
	case EMFILE:
	case ENFILE:
		return FAULT_MEMORY;
	default:
		return FAULT_FAILED;
	}
}

enum fault
state_poison(struct store *store, const char *what)
{
	log_error("%s/" JOURNAL_NAME ": %s failed: %s; nothing more is stored "
		  "in this file; the next start copies it to a fresh one",
	    store->path, what, strerror(errno));
	if (lock_set_mark(
		&store->lock, LOCK_FAILED, store->journal.uuid, true) < 0)
		log_error("%s/lock: cannot mark the store as failed: %s; stop "
			  "all its processes",
		    store->path, strerror(errno));
	store->failed = true;
	return FAULT_FAILED;
}

static int
exit_status(enum fault fault)
{
	switch (fault) {
	case FAULT_FULL:
	case FAULT_MEMORY:
		return EX_TEMPFAIL;
	case FAULT_DAMAGED:
		return EX_DATAERR;
	default:
		return EX_IOERR;
	}
}

/* The journal that belongs here, made if this store is new. */
static int
open_journal(struct store *store)
{
	char uuid[RECORD_UUID_LEN];
	enum lock_mark mark = lock_mark(&store->lock, uuid);
	enum journal_open opened =
	    journal_open(&store->journal, store->dir, store->prepare);

	if (opened == JOURNAL_ABSENT) {
		if (mark != LOCK_NEW) {
			log_error("%s/" JOURNAL_NAME ": missing; restore it "
				  "from a backup, or remove %s/lock and "
				  "%s/index to begin an empty store",
			    store->path, store->path, store->path);
			return EX_CONFIG;
		}
		if (journal_create(store->dir) < 0) {
			log_error("%s/" JOURNAL_NAME ": cannot make it: %s",
			    store->path, strerror(errno));
			return errno == EACCES
				   ? EX_NOPERM
				   : exit_status(state_fault(errno));
		}
		log_info("%s: made a new store", store->path);
		opened =
		    journal_open(&store->journal, store->dir, store->prepare);
	}
	switch (opened) {
	case JOURNAL_OPENED:
		break;
	case JOURNAL_VERSION:
		log_error("%s/" JOURNAL_NAME ": of a version that this program "
			  "does not know; use the program that wrote it",
		    store->path);
		return EX_CONFIG;
	case JOURNAL_DAMAGED:
		log_error("%s/" JOURNAL_NAME ": damaged at byte 0: its first "
			  "line is not a journal's header; restore it from a "
			  "backup",
		    store->path);
		return EX_DATAERR;
	case JOURNAL_ABSENT:
	case JOURNAL_ERROR:
		log_error("%s/" JOURNAL_NAME ": cannot open: %s", store->path,
		    strerror(errno));
		return errno == EACCES ? EX_NOPERM
				       : exit_status(state_fault(errno));
	}
	if (mark == LOCK_OK &&
	    memcmp(uuid, store->journal.uuid, RECORD_UUID_LEN) != 0) {
		log_error("%s/" JOURNAL_NAME ": of another store than this "
			  "directory was; if it is meant to be used, remove "
			  "%s/lock first",
		    store->path, store->path);
		return EX_CONFIG;
	}
	if (mark == LOCK_NEW && lock_set_mark(&store->lock, LOCK_OK,
				    store->journal.uuid, true) < 0) {
		log_error(
		    "%s/lock: cannot write: %s", store->path, strerror(errno));
		return exit_status(state_fault(errno));
	}
	if (mark == LOCK_FAILED || mark == LOCK_UNREADABLE) {
		enum fault fault = recovery_renew(store);

		if (fault != FAULT_NONE)
			return exit_status(fault);
	}
	return EX_OK;
}

static int
open_directory(struct store *store)
{
	store->dir = open(store->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->dir < 0) {
		log_error("PLANT_STORE_DIR: %s: cannot open: %s; make it with "
			  "'install -d -m 0700 %s', owned by the service's "
			  "user",
		    store->path, strerror(errno), store->path);
		return errno == EACCES ? EX_NOPERM : EX_CONFIG;
	}
	if (lock_open(&store->lock, store->dir) < 0) {
		log_error("PLANT_STORE_DIR: %s: cannot write: %s; give it to "
			  "the service's user",
		    store->path, strerror(errno));
		return errno == EACCES || errno == EPERM || errno == EROFS
			   ? EX_NOPERM
			   : exit_status(state_fault(errno));
	}
	return EX_OK;
}

static int
open_all(struct store *store)
{
	int status = open_directory(store);
	enum fault fault;

	if (status != EX_OK)
		return status;
	if (lock_acquire(&store->lock, STORE_LOCK_TIMEOUT_MS) < 0) {
		log_error("%s/lock: held by another process: %s; try again "
			  "later",
		    store->path, strerror(errno));
		return EX_TEMPFAIL;
	}
	status = open_journal(store);
	if (status == EX_OK) {
		store->index =
		    index_open(store->dir, store->path, store->journal.uuid);
		if (store->index == NULL) {
			log_error("%s/index: cannot use it: %s; mend its "
				  "rights or remove it",
			    store->path, strerror(errno));
			status = errno == EACCES
				     ? EX_NOPERM
				     : exit_status(state_fault(errno));
		}
	}
	if (status == EX_OK) {
		fault = recovery_start(store);
		if (fault != FAULT_NONE)
			status = exit_status(fault);
	}
	lock_release(&store->lock);
	return status;
}

static void
free_store(struct store *store, bool clean)
{
	index_close(store->index, clean);
	journal_close(&store->journal);
	lock_close(&store->lock);
	if (store->dir >= 0)
		close(store->dir);
	pthread_mutex_destroy(&store->mutex);
	free(store->path);
	free(store->batch);
	free(store->line);
	free(store);
}

struct store *
store_open(const struct store_options *options, int *status)
{
	struct store *store = calloc(1, sizeof(*store));

	*status = EX_TEMPFAIL;
	if (store == NULL)
		return NULL;
	pthread_mutex_init(&store->mutex, NULL);
	store->dir = store->lock.fd = store->journal.fd = -1;
	store->prepare = options->prepare;
	store->path = strdup(options->dir);
	if (store->path != NULL)
		*status = open_all(store);
	if (*status != EX_OK) {
		free_store(store, false);
		return NULL;
	}
	return store;
}

/* Whether the record at `offset` says the same as `plant`. */
static enum fault
compare_stored(struct store *store, uint64_t offset, const struct plant *plant,
    enum store_result *result)
{
	struct record record;
	int error = 0;

	if (offset >= store->at.end) {
		/* Entered a moment ago: it is in this batch. */
		const char *line = store->batch + (offset - store->at.end);
		const char *newline = rawmemchr(line, '\n');

		if (record_decode(line, (size_t)(newline + 1 - line),
			store->journal.seed, &record) != NULL)
			error = EBADMSG;
	} else if (journal_read(&store->journal, offset, &record, &store->line,
		       &store->line_size) < 0)
		error = errno;
	if (error == 0 && (record.plant == NULL || record.id != plant->id))
		error = EBADMSG;
	if (error == EBADMSG) {
		log_error("%s: no valid record of the plant %" PRId64
			  " at byte %" PRIu64 " of " JOURNAL_NAME ", where the "
			  "index has it; removing the index: the next start "
			  "builds it anew and checks the journal",
		    store->path, plant->id, offset);
		index_discard(store->dir);
		return FAULT_FAILED;
	}
	if (error != 0) {
		log_error("%s/" JOURNAL_NAME ": cannot read at byte %" PRIu64
			  ": %s",
		    store->path, offset, strerror(error));
		return state_fault(error);
	}
	*result = record.plant_len == plant->len &&
			  memcmp(record.plant, plant->text, plant->len) == 0
		      ? STORE_SAME
		      : STORE_CONFLICT;
	return FAULT_NONE;
}

static int64_t
wall_clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * Enter the plants into the index transaction and encode the new ones behind
 * each other into store->batch, from store->at, of which `*at` becomes the end.
 */
static enum fault
build_batch(struct store *store, struct store_item *items, size_t n,
    struct position *at)
{
	char now[TIMESTAMP_LEN];
	uint64_t found;

	timestamp_print(wall_clock_ms(), now);
	*at = store->at;
	for (size_t i = 0; i < n; i++) {
		const struct plant *plant = items[i].plant;
		struct record record = {
			.seq = at->seq + 1,
			.safe = store->durable,
			.prev = at->crc,
			.at = now,
			.by = items[i].by,
			.by_len = strlen(items[i].by),
			.id = plant->id,
			.plant = plant->text,
			.plant_len = plant->len,
		};
		enum fault fault;

		switch (index_put(store->index, plant->id, at->end, &found)) {
		case INDEX_NEW:
			items[i].result = STORE_CREATED;
			at->last = at->end;
			at->end += record_encode(&record, store->journal.seed,
			    store->batch + (at->end - store->at.end));
			at->seq = record.seq;
			at->crc = record.crc;
			break;
		case INDEX_FOUND:
			fault = compare_stored(
			    store, found, plant, &items[i].result);
			if (fault != FAULT_NONE)
				return fault;
			break;
		case INDEX_ERROR:
			log_error("%s/index: cannot write: %s", store->path,
			    strerror(errno));
			if (errno == EBADMSG)
				index_discard(store->dir);
			return state_fault(errno);
		}
	}
	return FAULT_NONE;
}

/* Append what is in store->batch up to `at`, and sync. */
static enum fault
write_batch(struct store *store, const struct position *at)
{
	switch (journal_append(&store->journal, store->at.end, store->batch,
	    (size_t)(at->end - store->at.end))) {
	case 0:
		break;
	case -1:
		if (state_fault(errno) == FAULT_FULL) {
			log_warning("%s/" JOURNAL_NAME ": cannot write: %s; "
				    "make room",
			    store->path, strerror(errno));
			return FAULT_FULL;
		}
		return state_poison(store, "write");
	default:
		return state_poison(store, "taking back a failed write");
	}
	if (journal_sync(&store->journal) < 0)
		return state_poison(store, "fdatasync");
	store->durable = at->end;
	return FAULT_NONE;
}

/* The index transaction ends with what is durable now. */
static void
settle(struct store *store, const struct position *at, bool closed)
{
	if (index_commit(store->index, at) < 0) {
		/* The plants are stored; reading on will enter them. */
		log_warning(
		    "%s/index: cannot write: %s", store->path, strerror(errno));
		return;
	}
	store->at = *at;
	store->closed = closed;
}

static void
set_results(struct store_item *items, size_t n, enum fault fault)
{
	enum store_result result = fault == FAULT_FULL     ? STORE_FULL
				   : fault == FAULT_MEMORY ? STORE_BUSY
							   : STORE_FAILED;

	for (size_t i = 0; i < n; i++)
		items[i].result = result;
}

/* Room for the lines of as many items as one append may hold. */
static size_t
reserve_batch(struct store *store, const struct store_item *items, size_t n)
{
	size_t need = 0, count;

	for (count = 0; count < n; count++) {
		size_t line = RECORD_ENVELOPE_MAX + items[count].plant->len;

		if (count > 0 && need + line > JOURNAL_APPEND_MAX)
			break;
		need += line;
	}
	if (need > store->batch_size) {
		char *batch = realloc(store->batch, need);

		if (batch == NULL)
			return 0;
		store->batch = batch;
		store->batch_size = need;
	}
	return count;
}

static enum fault
commit_some(struct store *store, struct store_item *items, size_t n)
{
	struct position at;
	enum fault fault = recovery_catch_up(store);

	if (fault != FAULT_NONE)
		return fault;
	fault = build_batch(store, items, n, &at);
	if (fault == FAULT_NONE && at.end > store->at.end) {
		fault = write_batch(store, &at);
		if (fault == FAULT_NONE) {
			settle(store, &at, false);
			return FAULT_NONE;
		}
	}
	index_abort(store->index);
	return fault;
}

static long
elapsed_ms(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - start->tv_sec) * 1000 +
	       (now.tv_nsec - start->tv_nsec) / 1000000;
}

/* The mutex and the lock, within one deadline.  0, or the fault. */
static enum fault
enter_store(struct store *store, int timeout_ms)
{
	struct timespec start;

	clock_gettime(CLOCK_MONOTONIC, &start);
	pthread_mutex_lock(&store->mutex);
	if (store->failed)
		return FAULT_FAILED;
	long left = timeout_ms - elapsed_ms(&start);
	if (lock_acquire(&store->lock, left > 0 ? (int)left : 0) == 0)
		return FAULT_NONE;
	if (timeout_ms > 0)
		log_warning(
		    "%s/lock: not to be had: %s", store->path, strerror(errno));
	return FAULT_MEMORY;
}

static void
leave_store(struct store *store, bool locked)
{
	if (locked)
		lock_release(&store->lock);
	pthread_mutex_unlock(&store->mutex);
}

int
store_commit(struct store *store, struct store_item *items, size_t n)
{
	enum fault fault = enter_store(store, STORE_LOCK_TIMEOUT_MS);
	bool locked = fault == FAULT_NONE;

	while (n > 0 && fault == FAULT_NONE) {
		size_t some = reserve_batch(store, items, n);

		fault =
		    some == 0 ? FAULT_MEMORY : commit_some(store, items, some);
		if (fault == FAULT_FULL) {
			/* What refers to a plant stored before may pass. */
			set_results(items, some, fault);
			fault = FAULT_NONE;
		}
		if (fault == FAULT_NONE) {
			items += some;
			n -= some;
		}
	}
	set_results(items, n, fault);
	if (fault == FAULT_FAILED || fault == FAULT_DAMAGED)
		store->failed = true;
	bool failed = store->failed;
	leave_store(store, locked);
	return failed ? -1 : 0;
}

/* Put everything below the watermark, unless that is done. */
static void
write_closing(struct store *store)
{
	char now[TIMESTAMP_LEN];
	char line[RECORD_ENVELOPE_MAX];
	struct record record = { .at = now };
	struct position at;

	if (recovery_catch_up(store) != FAULT_NONE)
		return;
	at = store->at;
	if (store->closed || store->durable != at.end) {
		index_abort(store->index);
		return;
	}
	timestamp_print(wall_clock_ms(), now);
	record.seq = at.seq + 1;
	record.safe = store->durable;
	record.prev = at.crc;
	size_t len = record_encode(&record, store->journal.seed, line);
	if (journal_append(&store->journal, at.end, line, len) < 0) {
		index_abort(store->index);
		return;
	}
	at.last = at.end;
	at.end += len;
	at.seq = record.seq;
	at.crc = record.crc;
	if (!store->prepare) {
		/*
		 * A sync would cost a CGI request as much as its plant did, and
		 * gain little: lost, the line is only missing.
		 */
		store->at = at;
		store->closed = true;
		index_abort(store->index);
	} else if (journal_sync(&store->journal) < 0) {
		index_abort(store->index);
		state_poison(store, "fdatasync");
	} else {
		store->durable = at.end;
		settle(store, &at, true);
	}
}

void
store_idle(struct store *store)
{
	if (pthread_mutex_trylock(&store->mutex) != 0)
		return;
	if (!store->failed && !store->closed &&
	    lock_acquire(&store->lock, 0) == 0) {
		write_closing(store);
		lock_release(&store->lock);
	}
	pthread_mutex_unlock(&store->mutex);
}

void
store_close(struct store *store)
{
	bool clean = false;

	if (store == NULL)
		return;
	if (enter_store(store, STORE_LOCK_TIMEOUT_MS / 10) == FAULT_NONE) {
		if (!store->closed)
			write_closing(store);
		/* The room ahead would only puzzle who looks at the file. */
		clean = store->prepare && !store->failed;
		if (clean && recovery_catch_up(store) == FAULT_NONE) {
			if (store->journal.size > store->at.end)
				journal_cut(&store->journal, store->at.end);
			index_abort(store->index);
		}
	}
	/* Closing the lock file gives the lock back, after the index. */
	pthread_mutex_unlock(&store->mutex);
	free_store(store, clean);
}
