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

#include "store/engine.h"

/* No commit and no check takes longer. */
#define SESSION_TIMEOUT_MS 5000
/*
 * A statement waits no longer for a lock: another service that stores the same
 * id has it for as long as a commit takes, a session whose standby is away for
 * as long as that is.
 */
#define SESSION_LOCK_TIMEOUT "500ms"
#define SESSION_LOCK_TIMEOUT_BRIEF "20ms"
#define SESSION_REASON_MAX 512
#define SESSION_SQLSTATE_MAX 6

struct session {
	PGconn *conn;
	struct session *next; /* the owner's */
	bool warned;          /* the statement at hand got a warning */
	/* Of the last statement that was not done: the error's code, "" if the
	 * server gave none; and a line for people. */
	char sqlstate[SESSION_SQLSTATE_MAX];
	char reason[SESSION_REASON_MAX];
	char standbys[128]; /* the setting synchronous_standby_names */
};

enum session_result {
	SESSION_DONE,    /* and committed */
	SESSION_REFUSED, /* by an error before its commit: nothing was done */
	SESSION_UNKNOWN  /* whether it was committed; close the session */
};

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
 */
struct session *session_open(const char *database, bool writes,
    enum fault *fault, char reason[static SESSION_REASON_MAX]);
void session_close(struct session *session);
bool session_is_alive(struct session *session);

/*
 * session_send(session, sql, name, n, values):
 * Begin the statement `sql`, or the prepared one `name`, with `n` parameters as
 * texts.  False if the connection is lost.
 *
 * session_wait(session, deadline_ms):
 * Wait until PQgetResult does not block: 0, or -1 with errno ETIMEDOUT once
 * CLOCK_MONOTONIC is at deadline_ms, or EIO if the connection is lost.
 *
 * session_run(session, sql, name, n, values, deadline_ms, rows):
 * Run a statement, and wait for its commit.  On SESSION_DONE, `*rows` is the
 * caller's to PQclear, else NULL.
 *
 * session_note(session, result):
 * Keep the code and the reason of an error; NULL: of the connection.
 *
 * session_refuse(session, sqlstate, reason):
 * Keep an error of ours as if it were the server's.
 */
bool session_send(struct session *session, const char *sql, const char *name,
    int n, const char *const *values);
int session_wait(struct session *session, int64_t deadline_ms);
enum session_result session_run(struct session *session, const char *sql,
    const char *name, int n, const char *const *values, int64_t deadline_ms,
    PGresult **rows);
void session_note(struct session *session, const PGresult *result);
void session_refuse(
    struct session *session, const char *sqlstate, const char *reason);

/* The statements of a commit are prepared under these names. */
#define INSERT_NAME "plants_insert"
#define REPEAT_NAME "plants_repeat"

/* schema.c: see the members of struct engine; and the version of the tables. */
#define SCHEMA_VERSION "1"
extern const char schema_tables[], schema_roles[];

/* reader.c: see store/store.h. */
struct store_reader *reader_open(
    const struct store_options *options, const char *since, enum fault *fault);
bool reader_next(struct store_reader *reader, struct record *record);
enum fault reader_end(struct store_reader *reader, char *where);
enum fault reader_find(
    struct store_reader *reader, int64_t id, struct record *record);
enum fault reader_figures(
    struct store_reader *reader, store_figure *each, void *context);
void reader_close(struct store_reader *reader);

/* postgresql.c: the table, which is all that the module exports. */
extern const struct engine store_engine __attribute__((visibility("default")));

#endif
