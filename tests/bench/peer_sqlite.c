/*
 * peer_sqlite: a peer with SQLite: a write-ahead log that is synced with each
 * transaction.  See peer.h.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "peer.h"

/* FULL: a transaction is on the disk when it has ended, with WAL too. */
static const char set_up[] =
    "PRAGMA journal_mode=WAL;"
    "PRAGMA synchronous=FULL;"
    "CREATE TABLE IF NOT EXISTS plants("
    "id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT);";

const int peer_threads = 1;

struct peer {
	sqlite3 *db;
	sqlite3_stmt *insert, *same;
};

/*
 * With a hundred writers SQLite's own handler leaves the lock idle or wakes all
 * at once.  A pause that is random, and longer the longer one has waited,
 * stored the most.
 */
static int
wait_for_lock(void *context, int times)
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

static int
prepare(struct peer *peer, const char *text, sqlite3_stmt **statement)
{
	return sqlite3_prepare_v3(
	    peer->db, text, -1, SQLITE_PREPARE_PERSISTENT, statement, NULL);
}

struct peer *
peer_open(const char *where)
{
	struct peer *peer = calloc(1, sizeof(*peer));

	if (peer != NULL && sqlite3_open(where, &peer->db) == SQLITE_OK &&
	    sqlite3_busy_handler(peer->db, wait_for_lock, NULL) == SQLITE_OK &&
	    sqlite3_exec(peer->db, set_up, NULL, NULL, NULL) == SQLITE_OK &&
	    prepare(peer,
		"INSERT INTO plants VALUES(?1, ?2, ?3) "
		"ON CONFLICT(id) DO NOTHING",
		&peer->insert) == SQLITE_OK &&
	    prepare(peer,
		"SELECT 1 FROM plants WHERE id = ?1 AND name = ?2 AND tag IS "
		"?3",
		&peer->same) == SQLITE_OK)
		return peer;
	if (peer != NULL)
		fprintf(stderr, "peer_sqlite: %s\n", sqlite3_errmsg(peer->db));
	free(peer);
	return NULL;
}

/* Bind, take one step, and make it ready for the next. */
static int
step(sqlite3_stmt *statement, const struct peer_plant *plant)
{
	int result;

	sqlite3_bind_int64(statement, 1, plant->id);
	sqlite3_bind_text(statement, 2, plant->name, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 3, plant->tag, -1, SQLITE_STATIC);
	result = sqlite3_step(statement);
	sqlite3_reset(statement);
	return result;
}

int
peer_store(struct peer *peer, const struct peer_plant *plant)
{
	if (step(peer->insert, plant) != SQLITE_DONE)
		return 503;
	if (sqlite3_changes(peer->db) == 1)
		return 200;
	switch (step(peer->same, plant)) {
	case SQLITE_ROW:
		return 200;
	case SQLITE_DONE:
		return 409;
	default:
		return 503;
	}
}
