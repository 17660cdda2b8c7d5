/*
 * store: the life of an open store.  See store/store.h.
 *
 * Opening takes the lock, finds or makes the journal, opens the index and reads
 * on from where it ends (recovery.h).  Using it is commit.h's.
 */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "pure/record.h"
#include "commit.h"
#include "recovery.h"
#include "state.h"

/*
 * A thread that waits for the lock so soon after another gave it up goes on with
 * that one's wait, and looks at least so long: some turns of those who hold it,
 * and little for a reactor that has others before it.
 */
#define BUSY_GAP_MS 1000
#define BUSY_LOOK_MS 5

static int
exit_status(enum fault fault)
{
	switch (fault) {
	case FAULT_FULL:
	case FAULT_MEMORY:
	case FAULT_STOPPED:
		return EX_TEMPFAIL;
	case FAULT_DAMAGED:
		return EX_DATAERR;
	default:
		return EX_IOERR;
	}
}

static void
leave_store(struct store *store)
{
	if (store->journal.fd >= 0)
		lock_unlock_file(store->journal.fd);
	lock_release(&store->lock);
}

/*
 * Whoever held the lock when its file was removed may still be writing; or have
 * put another journal in the place of the one that we opened.
 */
static int
lock_journal(struct store *store, int64_t deadline_ms)
{
	const char *why = NULL;

	if (lock_file(store->journal.fd, deadline_ms) < 0)
		why = strerror(errno);
	else
		why = journal_check(&store->journal, store->path, 0);
	if (why == NULL)
		return EX_OK;
	log_error("%s/" JOURNAL_NAME ": in use by another process: %s; try "
		  "again later",
	    store->path, why);
	return EX_TEMPFAIL;
}

/*
 * Tell what the system has refused of the directory, or of the name in it, and
 * what an operator does about it.  The exit status.
 */
static int
refused(const struct store *store, const char *name, const char *what)
{
	int error = errno, status = exit_status(state_fault(error));
	const char *remedy = "";

	switch (error) {
	case EACCES:
	case EPERM:
		remedy = "; give the directory and all in it to the service's "
			 "user";
		status = EX_NOPERM;
		break;
	case EROFS:
		remedy = "; mount it for writing";
		status = EX_NOPERM;
		break;
	case ENOTDIR:
	case ELOOP:
	case ENAMETOOLONG:
		status = EX_CONFIG;
		break;
	case EIO:
		remedy = "; check the disk";
		break;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		remedy = "; make room";
		break;
	}
	log_error("%s%s%s: %s: %s%s", *name == '\0' ? "PLANT_STORE_DIR: " : "",
	    store->path, name, what, strerror(error), remedy);
	return status;
}

/* The journal that belongs here, made if this store is new. */
static int
open_journal(struct store *store, int64_t deadline_ms)
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
		if (journal_create(store->dir) < 0)
			return refused(
			    store, "/" JOURNAL_NAME, "cannot make it");
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
			  "line is not a journal's header; " JOURNAL_REMEDY,
		    store->path);
		return EX_DATAERR;
	case JOURNAL_ABSENT:
	case JOURNAL_ERROR:
		return refused(store, "/" JOURNAL_NAME, "cannot open");
	}
	int status = lock_journal(store, deadline_ms);
	if (status != EX_OK)
		return status;
	if (mark == LOCK_OK &&
	    memcmp(uuid, store->journal.uuid, RECORD_UUID_LEN) != 0) {
		log_error("%s/" JOURNAL_NAME ": of another store than this "
			  "directory was; if it is meant to be used, remove "
			  "%s/lock first",
		    store->path, store->path);
		return EX_CONFIG;
	}
	if (mark == LOCK_NEW &&
	    lock_set_mark(&store->lock, LOCK_OK, store->journal.uuid, true) < 0)
		return refused(store, "/lock", "cannot write");
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
	if (store->dir < 0 && errno == ENOENT) {
		log_error("PLANT_STORE_DIR: %s: cannot open: %s; make it with "
			  "'install -d -m 0700 %s', owned by the service's "
			  "user",
		    store->path, strerror(errno), store->path);
		return EX_CONFIG;
	}
	if (store->dir < 0)
		return refused(store, "", "cannot open");
	if (lock_open(&store->lock, store->dir) < 0)
		return refused(store, "/lock", "cannot open or make it");
	return EX_OK;
}

static int
open_all(struct store *store)
{
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + STORE_LOCK_TIMEOUT_MS;
	int status = open_directory(store);
	enum fault fault;

	if (status != EX_OK)
		return status;
	if (lock_acquire(&store->lock, deadline_ms) < 0) {
		log_error("%s/lock: held by another process: %s; try again "
			  "later",
		    store->path, strerror(errno));
		return EX_TEMPFAIL;
	}
	status = open_journal(store, deadline_ms);
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
	leave_store(store);
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
	if (store == NULL) {
		log_error("%s: out of memory", options->dir);
		return NULL;
	}
	pthread_mutex_init(&store->mutex, NULL);
	store->dir = store->lock.fd = store->journal.fd = -1;
	store->busy_ms = INT64_MIN / 2;
	store->prepare = options->prepare;
	store->watch = options->watch;
	store->path = strdup(options->dir);
	if (store->path != NULL)
		*status = open_all(store);
	else
		log_error("%s: out of memory", options->dir);
	store->watch = NULL;
	if (*status != EX_OK) {
		free_store(store, false);
		return NULL;
	}
	return store;
}

/*
 * Until when to wait for the lock.  While others hold it, the waits of our
 * threads, one after another, count as one, so that a request that came during
 * one of them is not told to wait for another; once that has failed, the next
 * ones look for a moment only.
 */
static int64_t
lock_deadline_ms(struct store *store, int timeout_ms)
{
	int64_t now_ms = clock_ms(CLOCK_MONOTONIC);

	if (now_ms - store->busy_ms > BUSY_GAP_MS) {
		store->busy_since_ms = now_ms;
		store->busy_told = false;
	}
	int64_t deadline_ms = store->busy_since_ms + timeout_ms;
	return deadline_ms > now_ms + BUSY_LOOK_MS ? deadline_ms
						   : now_ms + BUSY_LOOK_MS;
}

static int
take_locks(struct store *store, int64_t deadline_ms)
{
	if (lock_both(&store->lock, store->journal.fd, deadline_ms) < 0)
		return -1;
	store->busy_ms = INT64_MIN / 2;
	return 0;
}

/* The mutex and the locks.  0, or the fault. */
static enum fault
enter_store(struct store *store, int timeout_ms)
{
	pthread_mutex_lock(&store->mutex);
	if (store->failed)
		return FAULT_FAILED;
	if (take_locks(store, lock_deadline_ms(store, timeout_ms)) == 0)
		return FAULT_NONE;
	if (errno == ETIMEDOUT) {
		store->busy_ms = clock_ms(CLOCK_MONOTONIC);
		if (!store->busy_told)
			log_warning("%s/lock: held by another process for %d "
				    "ms",
			    store->path, timeout_ms);
		store->busy_told = true;
		return FAULT_MEMORY;
	}
	log_error("%s/lock: cannot be used: %s", store->path, strerror(errno));
	return state_fault(errno);
}

/* What the next start must see to, ends this one. */
static void
note_fault(struct store *store, enum fault fault)
{
	if (fault == FAULT_FAILED || fault == FAULT_DAMAGED)
		store->failed = true;
}

static void
tell_nobody(void *unused)
{
	(void)unused;
}

int
store_commit(struct store *store, struct store_item *items, size_t n)
{
	return store_commit_telling(store, items, n, tell_nobody, NULL);
}

int
store_commit_telling(struct store *store, struct store_item *items, size_t n,
    void (*tell)(void *argument), void *argument)
{
	enum fault fault = enter_store(store, STORE_LOCK_TIMEOUT_MS);

	if (fault == FAULT_NONE) {
		fault = commit_items(store, items, n, tell, argument);
		leave_store(store);
	} else {
		commit_refuse(items, n, fault);
		tell(argument);
	}
	note_fault(store, fault);
	bool failed = store->failed;
	pthread_mutex_unlock(&store->mutex);
	return failed ? -1 : 0;
}

void
store_wait(struct store *store)
{
	pthread_mutex_lock(&store->mutex);
	pthread_mutex_unlock(&store->mutex);
}

void
store_idle(struct store *store)
{
	if (pthread_mutex_trylock(&store->mutex) != 0)
		return;
	if (!store->failed && !store->closed && take_locks(store, 0) == 0) {
		note_fault(store, commit_closing(store));
		leave_store(store);
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
			note_fault(store, commit_closing(store));
		/* The room ahead would only puzzle who looks at the file. */
		if (store->prepare && !store->failed)
			clean = recovery_catch_up(store) == FAULT_NONE;
		if (clean) {
			if (store->journal.size > store->at.end)
				journal_cut(&store->journal, store->at.end);
			index_abort(store->index);
		}
	}
	/* Closing the files gives their locks back, after the index. */
	pthread_mutex_unlock(&store->mutex);
	free_store(store, clean);
}
