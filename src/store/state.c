/*
 * state: what a failure means to an open store, told once.  See state.h.
 */
#include "state.h"

#include <errno.h>
#include <string.h>

#include "ground/log.h"

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
state_unwritten(struct store *store, const char *name)
{
	int error = errno;
	enum fault fault = state_fault(error);

	if (fault == FAULT_FAILED)
		log_error("%s/%s: cannot write: %s", store->path, name,
		    strerror(error));
	else if (!store->full)
		log_warning("%s/%s: cannot write: %s; make room", store->path,
		    name, strerror(error));
	if (fault != FAULT_FAILED)
		store->full = true;
	errno = error;
	return fault;
}

enum fault
state_poison(struct store *store, const char *what)
{
	int error = errno;
	int marked =
	    lock_set_mark(&store->lock, LOCK_FAILED, store->journal.uuid, true);
	int mark_error = errno;

	/* Told after it is marked: telling may take its time. */
	store->failed = true;
	log_error("%s/" JOURNAL_NAME ": %s failed: %s; nothing more is stored "
		  "in this file; the next start copies it to a fresh one",
	    store->path, what, strerror(error));
	if (marked < 0)
		log_error("%s/lock: cannot mark the store as failed: %s; stop "
			  "all its processes",
		    store->path, strerror(mark_error));
	return FAULT_FAILED;
}

enum fault
state_index_failed(struct store *store)
{
	if (errno != EBADMSG)
		return state_unwritten(store, "index");
	log_error("%s/index: damaged; removing it: the next start builds it "
		  "anew from " JOURNAL_NAME,
	    store->path);
	if (store->index != NULL)
		index_condemn(store->index);
	errno = EBADMSG;
	return FAULT_FAILED;
}
