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
	struct session *next; /* the owner's */
	bool warned;          /* the statement at hand got a warning */
	/* Of the last statement that was not done: the error's code, "" if the
	 * server gave none; and a line for people. */
	char sqlstate[6];
	char reason[SESSION_REASON_MAX];
	char standbys[128]; /* the setting synchronous_standby_names */
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

/* The statements of a commit are prepared under these names. */
#define INSERT_NAME "plants_insert"
#define REPEAT_NAME "plants_repeat"

/*
 * session_open(database, writes, fault, reason):
 * Connect, and check the server and its tables; if `writes`, also our rights,
 * and prepare the statements of a commit.  Waits for about 2 s for each host,
 * and for the resolver.  NULL: `fault` is FAULT_SETUP for what an operator has
 * to mend, FAULT_BUSY where the database is away, or FAULT_MEMORY; `reason` is
 * a line for people without the connection string, and nothing is logged.
 *
 * session_close(session):
 * NULL is fine.
 *
 * session_is_alive(session):
 * Whether, as far as is known here, the server has not closed an idle session.
 *
 * session_run(session, statement, deadline_ms, rows):
 * Run a statement and wait for its commit until CLOCK_MONOTONIC is at
 * deadline_ms.  On SESSION_DONE, `*rows` is the caller's to PQclear, else NULL.
 * An answer of another form, or one that is too large, is SESSION_UNKNOWN.
 *
 */
struct session *session_open(const char *database, bool writes,
    enum fault *fault, char reason[static SESSION_REASON_MAX]);
void session_close(struct session *session);
bool session_is_alive(struct session *session);
enum session_result session_run(struct session *session,
    const struct statement *statement, int64_t deadline_ms, PGresult **rows);

/*
 * Needs the rights of a commit, changes no plant, and its commit waits as a
 * plant's does.  No row: it did not wait, as an earlier commit of our role, of
 * this process or another one, has been waiting for about SESSION_TIMEOUT_MS.
 */
extern const struct statement session_probe;
/* The same, for a role that may only read. */
extern const char session_confirm[];

/* schema.c: see struct reader_engine; and the version of the tables. */
#define SCHEMA_VERSION "1"
extern const char schema_tables[], schema_roles[], schema_feed[];

/* postgresql.c and reader.c: the tables, all that the module exports. */
#define EXPORTED __attribute__((visibility("default")))
extern const struct engine store_engine EXPORTED;
extern const struct reader_engine reader_engine EXPORTED;

#endif
