/* session: a connection to the database; statements.  One thread at a time. */
#pragma once

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "reader/reader.h"
#include "store/engine.h"

/* The deadline of a commit, a check, and each other short statement. */
#define SESSION_TIMEOUT_MS 5000
#define SESSION_REASON_MAX 512
#define SESSION_STANDBYS \
	"coalesce(current_setting('synchronous_standby_names', true), '')"

struct session {
	PGconn *conn;
	PGresult *rows;      /* of the last statement; NULL if it failed */
	int64_t deadline_ms; /* of the next statements, by CLOCK_MONOTONIC */
	uint64_t bytes_max;  /* received since the connection began */
	bool warned;         /* the current statement got a warning */
	bool lost;           /* not to be used again */
	/* Why the last statement failed. */
	char sqlstate[6];                /* "" if the server sent none */
	char reason[SESSION_REASON_MAX]; /* one line */
	char standbys[128]; /* the setting synchronous_standby_names */
	bool has_tx;        /* plants.tx exists: schema --feed was run */
};

/*
 * session_open(session, database), session_close(session):
 * Connect, and check the server and its tables.  This takes up to
 * connect_timeout seconds for each host, SESSION_TIMEOUT_MS for each statement,
 * and the time of the resolver.  Return FAULT_NONE; FAULT_SETUP if an operator
 * must act; FAULT_BUSY if the database is unavailable.  The reason does not
 * contain the connection string, and is not logged.  Always close the session.
 *
 * session_is_alive(session):
 * Return whether an idle session is still open, as far as the client knows.
 *
 * session_run(session, text, columns, values):
 * Run the SQL `text` or, with parameters that end with a NULL, the prepared
 * statement of this name, and wait for its commit until session->deadline_ms.
 * Return true if it was committed, false if it was refused before the commit.
 * If the outcome is unknown, or the reply is too large, contains a NULL or has
 * other columns, return false and set session->lost.
 *
 * session_query(session, sql, columns, timeout_ms):
 * Like session_run, within `timeout_ms`.  Return FAULT_NONE, _SETUP or _BUSY.
 *
 * session_is_code(session, begins):
 * Return whether the last SQLSTATE has a prefix in `begins` (as "40001 53").
 */
enum fault session_open(struct session *session, const char *database);
void session_close(struct session *session);
bool session_is_alive(struct session *session);
bool session_run(struct session *session, const char *text, int columns,
    const char *const *values);
enum fault session_query(
    struct session *session, const char *sql, int columns, int timeout_ms);
bool session_is_code(const struct session *session, const char *begins);

/*
 * A probe needs the privileges of `statement` and changes no row, but its
 * commit waits for standbys: it writes a message to the write-ahead log.  Each
 * waiting commit occupies a session, even after its client has gone.  So if a
 * commit of our role, in any process, has waited for about SESSION_TIMEOUT_MS,
 * the probe does not wait, and returns no row.
 */
#define SESSION_PROBE(statement)                                           \
	"WITH probe AS (" statement ")"                                    \
	" SELECT pg_catalog.pg_logical_emit_message(true, 'plant-store', " \
	"'')::text"                                                        \
	" WHERE NOT EXISTS (SELECT FROM pg_stat_activity"                  \
	" WHERE usename = current_user"                                    \
	" AND (wait_event = 'SyncRep' OR state = 'active' AND query LIKE " \
	"'WITH probe%')"                                                   \
	" AND coalesce(query_start, backend_start)"                        \
	" < clock_timestamp() - interval '4.5 s')"

/*
 * trouble_log(trouble, what, reason):
 * Log an error, "what: reason": the same reason only once a minute, since it
 * recurs with each batch.  Any thread.
 */
struct trouble {
	char reason[SESSION_REASON_MAX];
	int64_t logged_ms;
};
void trouble_log(struct trouble *trouble, const char *what, const char *reason);

/* postgresql.c and query.c: the tables of functions, the module's exports. */
#define EXPORTED __attribute__((visibility("default")))
extern const struct engine store_engine EXPORTED;
extern const struct reader_engine reader_engine EXPORTED;
