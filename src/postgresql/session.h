/*
 * session: a connection to the database, and statements with a deadline.
 *
 * A session belongs to one thread at a time.
 */
#ifndef POSTGRESQL_SESSION_H
#define POSTGRESQL_SESSION_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "reader/reader.h"
#include "store/engine.h"

/* No commit and no check takes longer. */
#define SESSION_TIMEOUT_MS 5000
#define SESSION_REASON_MAX 512

struct session {
	PGconn *conn;
	PGresult *rows; /* of the last statement if it was done, or NULL */
	struct session *next; /* the owner's */
	/* The limits of what is waited for. */
	int64_t deadline_ms;
	uint64_t bytes_max; /* received in all */
	bool warned;        /* the statement at hand got a warning */
	/* Of the last statement that was not done: the error's code, "" if the
	 * server gave none; and a line for people. */
	char sqlstate[6];
	char reason[SESSION_REASON_MAX];
	char standbys[128]; /* the setting synchronous_standby_names */
	bool has_tx;        /* the table has the column of the feed */
};

enum session_result {
	SESSION_DONE,    /* and committed */
	SESSION_REFUSED, /* by an error before its commit: nothing was done */
	SESSION_UNKNOWN  /* whether it was committed; close the session */
};

/*
 * SQL or, with n > 0 texts as its parameters, the name of a prepared statement;
 * and the columns of its rows, in which no value is NULL.
 */
struct statement {
	const char *text;
	int columns, n;
	const char *const *values;
};

/*
 * session_open(database, setup, fault, reason):
 * Connect, check the server and its tables, and run the statements of `setup`,
 * which end with one without a text.  Takes up to connect_timeout seconds for
 * each host, and what the resolver takes.  NULL: `fault` is FAULT_SETUP for
 * what an operator has to mend, FAULT_BUSY where the database is away, or
 * FAULT_MEMORY; `reason` is a line for people without the connection string,
 * and nothing is logged.
 *
 * session_close(session):
 * NULL is fine.
 *
 * session_is_alive(session):
 * Whether, as far as is known here, the server has not closed an idle session.
 *
 * session_run(session, statement, deadline_ms):
 * Run a statement and wait for its commit until CLOCK_MONOTONIC is at
 * deadline_ms.  An answer of another form, or one that is too large, is
 * SESSION_UNKNOWN.
 *
 * session_query(session, sql, columns, timeout_ms):
 * The same for SQL without parameters: FAULT_NONE; or FAULT_SETUP, FAULT_BUSY.
 *
 * session_is_code(session, begin):
 * Whether the last error's code begins so.
 */
struct session *session_open(const char *database,
    const struct statement *setup, enum fault *fault,
    char reason[static SESSION_REASON_MAX]);
void session_close(struct session *session);
bool session_is_alive(struct session *session);
enum session_result session_run(struct session *session,
    const struct statement *statement, int64_t deadline_ms);
enum fault session_query(
    struct session *session, const char *sql, int columns, int timeout_ms);
bool session_is_code(const struct session *session, const char *begin);

/*
 * SQL that needs the rights of a statement, changes nothing, and whose commit
 * waits as a plant's does: its message goes into the write-ahead log alone.  A
 * commit that waits keeps a session of our role, even after its client has
 * gone.  So it gives no row, and does not wait, if one of this process or
 * another one has been waiting for about SESSION_TIMEOUT_MS.
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

/* What was logged last, and when. */
struct trouble {
	char reason[SESSION_REASON_MAX];
	int64_t logged_ms;
};

/*
 * trouble_is_new(trouble, reason):
 * Whether to log it: not the same for a minute, as it comes with each batch.
 */
bool trouble_is_new(struct trouble *trouble, const char *reason);

/* postgresql.c and query.c: the tables, all that the module exports. */
#define EXPORTED __attribute__((visibility("default")))
extern const struct engine store_engine EXPORTED;
extern const struct reader_engine reader_engine EXPORTED;

#endif
