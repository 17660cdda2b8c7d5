/*
 * engine_lmdb: LMDB, which syncs its pages and then its root with each
 * transaction.  See engine.h.
 */
#include "engine.h"

#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>

/* Address space, more than any measurement fills. */
#define MAP_BYTES ((size_t)16 << 30)

static MDB_env *env;
static MDB_dbi dbi;

/* Its transactions need nothing of a thread. */
struct session {
	char none;
};

static int
fail(const char *what, int error)
{
	fprintf(stderr, "lmdb: %s: %s\n", what, mdb_strerror(error));
	return -1;
}

static int
open_database(void)
{
	MDB_txn *txn;
	int error = mdb_txn_begin(env, NULL, 0, &txn);

	if (error != 0)
		return error;
	error = mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &dbi);
	if (error == 0)
		return mdb_txn_commit(txn);
	mdb_txn_abort(txn);
	return error;
}

void
engine_open(const char *dir)
{
	int error = mdb_env_create(&env);

	if (error == 0)
		error = mdb_env_set_mapsize(env, MAP_BYTES);
	if (error == 0)
		error = mdb_env_open(env, dir,
		    MDB_NOTLS | MDB_NORDAHEAD | MDB_NOMEMINIT
#ifdef WRITEMAP
			| MDB_WRITEMAP
#endif
		    ,
		    0600);
	if (error == 0)
		error = open_database();
	if (error != 0)
		exit(-fail("open", error));
}

void
engine_close(void)
{
	mdb_env_close(env);
}

struct session *
engine_session(size_t batch_max)
{
	(void)batch_max;
	return calloc(1, sizeof(struct session));
}

void
engine_session_end(struct session *session)
{
	free(session);
}

void
engine_wait(struct session *session)
{
	(void)session;
}

static int
put(MDB_txn *txn, const struct sample *sample)
{
	int64_t id = sample->plant.id;
	MDB_val key = { sizeof(id), &id };
	MDB_val value = { sample->plant.len, sample->plant.text };

	return mdb_put(txn, dbi, &key, &value, MDB_NOOVERWRITE);
}

int
engine_commit(struct session *session, const struct sample *samples, size_t n)
{
	MDB_txn *txn;
	int error = mdb_txn_begin(env, NULL, 0, &txn);

	(void)session;
	if (error != 0)
		return fail("begin", error);
	for (size_t i = 0; i < n; i++) {
		error = put(txn, &samples[i]);
		if (error != 0) {
			mdb_txn_abort(txn);
			return fail("put", error);
		}
	}
	error = mdb_txn_commit(txn);
	return error == 0 ? 0 : fail("commit", error);
}

int64_t
engine_count(void)
{
	MDB_stat stat;
	int error = mdb_env_stat(env, &stat);

	return error == 0 ? (int64_t)stat.ms_entries : fail("stat", error);
}
