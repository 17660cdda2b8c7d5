/*
 * index_free: LMDB's list of free pages, which it takes on trust.  See
 * index_parts.h.
 */
#include <string.h>

#include "index_parts.h"

/* LMDB's own database of free pages, by transactions; mdb_stat reads it so. */
#define FREE_DBI 0

/* The pages that one transaction freed: how many, and from the last on. */
static bool
is_free_list(const MDB_val *value, uint64_t pages)
{
	uint64_t n, page, before = pages;
	const char *bytes = value->mv_data;

	if (value->mv_size < sizeof(n))
		return false;
	memcpy(&n, bytes, sizeof(n));
	if (n > value->mv_size / sizeof(n) - 1)
		return false;
	for (uint64_t i = 1; i <= n; i++, before = page) {
		memcpy(&page, bytes + i * sizeof(page), sizeof(page));
		if (page >= before)
			return false;
	}
	return true;
}

int
index_check_free(struct index *index)
{
	MDB_val key, value;
	MDB_cursor *cursor;
	MDB_envinfo info;
	MDB_txn *txn;
	int error = mdb_env_info(index->env, &info);

	/* Only who reads may look there. */
	if (error == 0)
		error = mdb_txn_begin(index->env, NULL, MDB_RDONLY, &txn);
	if (error != 0)
		return error;
	index_crash_blame(index);
	error = mdb_cursor_open(txn, FREE_DBI, &cursor);
	if (error == 0) {
		while ((error = mdb_cursor_get(
			    cursor, &key, &value, MDB_NEXT)) == 0)
			if (!is_free_list(&value, info.me_last_pgno + 1))
				break;
		mdb_cursor_close(cursor);
		if (error == 0)
			error = MDB_CORRUPTED;
	}
	mdb_txn_abort(txn);
	index_crash_blame(NULL);
	return error == MDB_NOTFOUND ? 0 : error;
}
