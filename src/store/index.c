/*
 * index: its transactions.  See index.h.
 *
 * Opening and closing is index_open.c's, the order of the entries
 * index_chain.c's, what a damaged one can do to the process index_crash.c's.
 */
#include "index.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index_parts.h"

/* LMDB gives errno values, or its own negative ones. */
int
index_fail(int error)
{
	if (error == MDB_MAP_FULL)
		error = ENOSPC;
	/* A failed write, of which LMDB does not know what it left. */
	if (error == MDB_PANIC)
		error = EIO;
	/* We ask for nothing invalid: what stands in a page is. */
	if (error < 0 || error == EINVAL)
		error = EBADMSG;
	errno = error;
	return -1;
}

/*
 * LMDB says EIO also of a write that fell short, as they do where a disk
 * becomes full, so ask for more to hear why.
 */
static int
why_short(struct index *index)
{
	static const char page[4096];
	struct stat st;
	ssize_t n;
	int fd, error = mdb_env_get_fd(index->env, &fd);

	if (error != 0 || fstat(fd, &st) < 0)
		return EIO;
	n = pwrite(fd, page, sizeof(page), st.st_size);
	if (n == (ssize_t)sizeof(page))
		error = EIO;
	else
		error = n < 0 ? errno : ENOSPC;
	if (n > 0 && ftruncate(fd, st.st_size) < 0)
		return EIO;
	return error;
}

int
index_commit_state(struct index *index)
{
	int error = index_put_state(index);

	if (error != 0)
		return error;
	if (index->cursor != NULL)
		mdb_cursor_close(index->cursor);
	index->cursor = NULL;
	error = mdb_txn_commit(index->txn);
	index->txn = NULL;
	return error == EIO ? why_short(index) : error;
}

/*
 * What is read of a mapping behind the end of its file ends the process; and a
 * damaged number of pages would have it grow without end.  statx, and not for
 * the times, for the reason at journal_check(): what one file's time moves on,
 * moves on those of all.
 */
int
index_check_size(const struct index *index)
{
	MDB_envinfo info;
	struct statx st;
	int fd, error = mdb_env_get_fd(index->env, &fd);

	if (error == 0)
		error = mdb_env_info(index->env, &info);
	if (error != 0)
		return error;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &st) < 0)
		return errno;
	/* A new file has its two meta pages; the rest is written when used. */
	return st.stx_size < (info.me_last_pgno + 1) * index->page_bytes
		   ? MDB_CORRUPTED
		   : 0;
}

static int
begin_transaction(struct index *index)
{
	int error = mdb_txn_begin(
	    index->env, NULL, index->reader ? MDB_RDONLY : 0, &index->txn);

	if (error == 0)
		error = index_get_state(index);
	if (error == 0 && !index->reader && index->state.clean != 0)
		error = index_take_over(index);
	if (error == 0)
		error = mdb_cursor_open(index->txn, index->dbi, &index->cursor);
	return error;
}

int
index_begin(struct index *index, struct position *covered)
{
	index_crash_blame(index);
	int error = index_check_size(index);

	/* A writer goes on with its own: it lacks nothing. */
	if (index->reader && !index_is_current(index))
		error = ESTALE;
	if (error == 0)
		error = begin_transaction(index);
	if (error != 0) {
		index_abort(index);
		return index_fail(error);
	}
	index->has_waiting = false;
	index->bulk = index_is_empty(index);
	*covered = index->state.covered;
	return 0;
}

enum index_put
index_find(struct index *index, int64_t id, uint64_t *offset)
{
	struct index_place place;
	int error = index_end_bulk(index);

	if (error == 0)
		error = index_locate(index, index_order(id), &place);
	if (error != 0) {
		index_fail(error);
		return INDEX_ERROR;
	}
	if (!place.found)
		return INDEX_NEW;
	*offset = place.at.offset;
	return INDEX_FOUND;
}

enum index_put
index_put(struct index *index, int64_t id, uint64_t offset, uint64_t *found)
{
	struct index_entry entry = { index_order(id), offset };
	struct index_place place;
	int error = 0;

	/*
	 * A new index is built from sorted ids: at the end of what is there
	 * they need no search, and leave full pages instead of halves.
	 */
	if (index->bulk && index->has_waiting &&
	    entry.order <= index->waiting.order)
		error = index_end_bulk(index);
	if (error == 0 && index->bulk)
		error = index_append(index, &entry);
	else if (error == 0) {
		error = index_locate(index, entry.order, &place);
		if (error == 0 && place.found) {
			*found = place.at.offset;
			return INDEX_FOUND;
		}
		if (error == 0)
			error = index_insert(index, &place, &entry);
	}
	if (error == 0)
		return INDEX_NEW;
	index_fail(error);
	return INDEX_ERROR;
}

int
index_commit(struct index *index, const struct position *covered)
{
	int error = index_end_bulk(index);

	/* Field by field: what lies between them goes to the disk too. */
	index->state.covered.end = covered->end;
	index->state.covered.last = covered->last;
	index->state.covered.seq = covered->seq;
	index->state.covered.crc = covered->crc;
	if (error == 0)
		error = index_commit_state(index);
	if (error != 0) {
		index_abort(index);
		return index_fail(error);
	}
	index_crash_blame(NULL);
	return 0;
}

/* What waits has no successor yet: it goes on waiting. */
int
index_commit_part(struct index *index)
{
	int error = index_commit_state(index);

	if (error == 0)
		error = begin_transaction(index);
	if (error == 0)
		return 0;
	index_abort(index);
	return index_fail(error);
}

void
index_abort(struct index *index)
{
	if (index->cursor != NULL)
		mdb_cursor_close(index->cursor);
	index->cursor = NULL;
	if (index->txn != NULL)
		mdb_txn_abort(index->txn);
	index->txn = NULL;
	index_crash_blame(NULL);
}
