/*
 * peer_sqlite: peer.c with SQLite.  Several of it run under multiwatch; SQLite
 * has them wait for each other.
 */
#include <sqlite3.h>
#include <stdio.h>

#include "peer.h"

#define BUSY_MS 10000

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

static int
open_db(struct peer *peer, const char *path)
{
	return sqlite3_open(path, &peer->db) == SQLITE_OK &&
		       sqlite3_busy_timeout(peer->db, BUSY_MS) == SQLITE_OK &&
		       sqlite3_exec(peer->db, set_up, NULL, NULL, NULL) ==
			   SQLITE_OK &&
		       sqlite3_prepare_v3(peer->db,
			   "INSERT INTO plants VALUES(?1, ?2, ?3) "
			   "ON CONFLICT(id) DO NOTHING",
			   -1, SQLITE_PREPARE_PERSISTENT, &peer->insert,
			   NULL) == SQLITE_OK &&
		       sqlite3_prepare_v3(peer->db,
			   "SELECT 1 FROM plants "
			   "WHERE id = ?1 AND name = ?2 AND tag IS ?3",
			   -1, SQLITE_PREPARE_PERSISTENT, &peer->same,
			   NULL) == SQLITE_OK
		   ? 0
		   : -1;
}

struct peer *
peer_open(const char *path)
{
	static struct peer peer;

	if (open_db(&peer, path) == 0)
		return &peer;
	fprintf(stderr, "peer_sqlite: %s\n", sqlite3_errmsg(peer.db));
	return NULL;
}

/* Bind, take one step, and make it ready for the next. */
static int
step(sqlite3_stmt *statement, const struct plant *plant)
{
	int result;

	sqlite3_bind_int64(statement, 1, plant->id);
	sqlite3_bind_text(statement, 2, json_object_get_string(plant->name),
	    json_object_get_string_len(plant->name), SQLITE_STATIC);
	if (plant->tag != NULL)
		sqlite3_bind_text(statement, 3,
		    json_object_get_string(plant->tag),
		    json_object_get_string_len(plant->tag), SQLITE_STATIC);
	result = sqlite3_step(statement);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return result;
}

int
peer_store(struct peer *peer, const struct plant *plant)
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
