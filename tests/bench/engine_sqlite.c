/*
 * engine_sqlite: SQLite with a write-ahead log that is synced with each
 * transaction.  See engine.h.
 */
#include "engine.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static char path[4096];

struct session {
	sqlite3 *db;
	sqlite3_stmt *begin, *insert, *commit, *rollback;
};

static int
fail(sqlite3 *db, const char *what)
{
	fprintf(stderr, "sqlite: %s: %s\n", what, sqlite3_errmsg(db));
	return -1;
}

/*
 * With a hundred threads SQLite's own handler leaves the lock idle or has all
 * look at once; looking every 100 microseconds takes the CPU.  A pause that is
 * random, and longer the longer one has waited, stored the most.
 */
static int
look_again(void *context, int times)
{
	unsigned random, longest_ms = times < 20 ? (unsigned)times + 4 : 24;

	(void)context;
	sqlite3_randomness(sizeof(random), &random);
	const struct timespec pause = {
		.tv_nsec = (1 + (long)(random % longest_ms)) * 1000000
	};
	nanosleep(&pause, NULL);
	return 1;
}

/*
 * A log that is soon begun again need not grow, which makes a sync of one plant
 * cheaper; many plants touch too many pages to copy them that often.  mmap_size
 * made nothing faster.
 */
static sqlite3 *
connect(bool batches)
{
	sqlite3 *db;

	if (sqlite3_open_v2(path, &db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
		    SQLITE_OPEN_NOMUTEX,
		NULL) != SQLITE_OK ||
	    sqlite3_busy_handler(db, look_again, NULL) != SQLITE_OK ||
	    sqlite3_exec(db,
		"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
		"PRAGMA cache_size=-65536",
		NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_wal_autocheckpoint(db, batches ? 10000 : 1000) !=
		SQLITE_OK) {
		fail(db, "open");
		sqlite3_close(db);
		return NULL;
	}
	return db;
}

void
engine_open(const char *dir)
{
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/plants.sqlite", dir);
	db = connect(false);
	if (db == NULL)
		exit(EXIT_FAILURE);
	if (sqlite3_exec(db,
		"CREATE TABLE IF NOT EXISTS plant"
		" (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
		NULL, NULL, NULL) != SQLITE_OK)
		exit(-fail(db, "create"));
	sqlite3_close(db);
}

void
engine_close(void)
{
}

static sqlite3_stmt *
prepare(sqlite3 *db, const char *text)
{
	sqlite3_stmt *statement = NULL;

	if (sqlite3_prepare_v3(db, text, -1, SQLITE_PREPARE_PERSISTENT,
		&statement, NULL) != SQLITE_OK)
		fail(db, text);
	return statement;
}

struct session *
engine_session(size_t batch_max)
{
	struct session *session = calloc(1, sizeof(*session));

	if (session == NULL)
		return NULL;
	session->db = connect(batch_max > 1);
	if (session->db == NULL) {
		free(session);
		return NULL;
	}
	session->begin = prepare(session->db, "BEGIN IMMEDIATE");
	session->insert =
	    prepare(session->db, "INSERT INTO plant VALUES (?,?)");
	session->commit = prepare(session->db, "COMMIT");
	session->rollback = prepare(session->db, "ROLLBACK");
	if (session->begin != NULL && session->insert != NULL &&
	    session->commit != NULL && session->rollback != NULL)
		return session;
	engine_session_end(session);
	return NULL;
}

void
engine_session_end(struct session *session)
{
	sqlite3_finalize(session->begin);
	sqlite3_finalize(session->insert);
	sqlite3_finalize(session->commit);
	sqlite3_finalize(session->rollback);
	sqlite3_close(session->db);
	free(session);
}

void
engine_wait(struct session *session)
{
	(void)session;
}

static int
step(struct session *session, sqlite3_stmt *statement)
{
	int result = sqlite3_step(statement);

	sqlite3_reset(statement);
	return result == SQLITE_DONE ? 0 : fail(session->db, "step");
}

static int
insert(struct session *session, const struct sample *sample)
{
	sqlite3_bind_int64(session->insert, 1, sample->plant.id);
	sqlite3_bind_text(session->insert, 2, sample->plant.text,
	    (int)sample->plant.len, SQLITE_STATIC);
	return step(session, session->insert);
}

int
engine_commit(struct session *session, const struct sample *samples, size_t n)
{
	/* A statement alone is a transaction. */
	if (n == 1)
		return insert(session, samples);
	if (step(session, session->begin) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (insert(session, &samples[i]) < 0) {
			step(session, session->rollback);
			return -1;
		}
	return step(session, session->commit);
}

int64_t
engine_count(void)
{
	sqlite3 *db = connect(false);
	sqlite3_stmt *statement;
	int64_t count = -1;

	if (db == NULL)
		return -1;
	statement = prepare(db, "SELECT count(*) FROM plant");
	if (statement != NULL && sqlite3_step(statement) == SQLITE_ROW)
		count = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	sqlite3_close(db);
	return count;
}
