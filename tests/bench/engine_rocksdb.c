/*
 * engine_rocksdb: RocksDB with a write-ahead log that is synced with each
 * write; it writes those of waiting threads as one group.  See engine.h.
 *
 * Its defaults: pipelined writes, recycled logs and threads that sleep at once
 * while they wait made no difference.  A put asks nobody whether the id is
 * taken, which all others do.
 */
#include "engine.h"

#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>

static rocksdb_t *db;
static rocksdb_options_t *options;
static rocksdb_writeoptions_t *synced;

struct session {
	rocksdb_writebatch_t *batch;
};

static int
fail(const char *what, char *error)
{
	fprintf(stderr, "rocksdb: %s: %s\n", what, error);
	rocksdb_free(error);
	return -1;
}

void
engine_open(const char *dir)
{
	char *error = NULL;

	options = rocksdb_options_create();
	rocksdb_options_set_create_if_missing(options, 1);
	synced = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(synced, 1);
	db = rocksdb_open(options, dir, &error);
	if (error != NULL)
		exit(-fail("open", error));
}

void
engine_close(void)
{
	rocksdb_close(db);
	rocksdb_options_destroy(options);
	rocksdb_writeoptions_destroy(synced);
}

struct session *
engine_session(size_t batch_max)
{
	struct session *session = malloc(sizeof(*session));

	(void)batch_max;
	if (session != NULL)
		session->batch = rocksdb_writebatch_create();
	return session;
}

void
engine_session_end(struct session *session)
{
	rocksdb_writebatch_destroy(session->batch);
	free(session);
}

void
engine_wait(struct session *session)
{
	(void)session;
}

int
engine_commit(struct session *session, const struct sample *samples, size_t n)
{
	char *error = NULL;

	rocksdb_writebatch_clear(session->batch);
	for (size_t i = 0; i < n; i++) {
		const struct plant *plant = &samples[i].plant;

		rocksdb_writebatch_put(session->batch, (const char *)&plant->id,
		    sizeof(plant->id), plant->text, plant->len);
	}
	rocksdb_write(db, synced, session->batch, &error);
	return error == NULL ? 0 : fail("write", error);
}

int64_t
engine_count(void)
{
	rocksdb_readoptions_t *reading = rocksdb_readoptions_create();
	rocksdb_iterator_t *iterator = rocksdb_create_iterator(db, reading);
	int64_t count = 0;
	char *error = NULL;

	rocksdb_iter_seek_to_first(iterator);
	for (; rocksdb_iter_valid(iterator); rocksdb_iter_next(iterator))
		count++;
	rocksdb_iter_get_error(iterator, &error);
	rocksdb_iter_destroy(iterator);
	rocksdb_readoptions_destroy(reading);
	return error == NULL ? count : fail("count", error);
}
