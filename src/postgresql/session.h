/*
 * session: a connection to the database, and statements with a deadline.
 *
 * The only module that waits for the server.  A session belongs to one thread
 * at a time.
 */
#ifndef POSTGRESQL_SESSION_H
#define POSTGRESQL_SESSION_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "ground/fault.h"

/* No commit and no check takes longer. */
#define SESSION_TIMEOUT_MS 5000
/* A statement waits for another session's lock no longer. */
#define SESSION_LOCK_TIMEOUT "1000"
#define SESSION_REASON_MAX 512
#define SESSION_SQLSTATE_LEN 5

enum session_result {
	SESSION_DONE,    /* and committed */
	SESSION_REFUSED, /* by an error before its commit: nothing was done */
	SESSION_UNKNOWN  /* whether it was committed; the session is of no use
			    any more */
};

struct session {
	PGconn *conn;
	struct session *next; /* the owner's */
	bool warned;          /* the statement at hand got a warning */
	/* Of the last statement that was not done: the error's code, "" if the
	 * server gave none; and a line for people. */
	char sqlstate[SESSION_SQLSTATE_LEN + 1];
	char reason[SESSION_REASON_MAX];
	char standbys[128]; /* the setting synchronous_standby_names */
};

/* A statement, and its parameters in binary form. */
#define SESSION_VALUES_MAX 4
struct session_query {
	const char *sql;  /* or NULL, and */
	const char *name; /* of a prepared one */
	int n;
	const char *values[SESSION_VALUES_MAX];
	int lengths[SESSION_VALUES_MAX];
};

/*
 * session_open(database, writes, fault, reason):
 * Connect, and check the server, the tables and, if `writes`, our rights;
 * prepare the statements of a commit.  Waits for about 2 s for each host, and
 * for the resolver.  NULL: `fault` is FAULT_SETUP for what an operator has to
 * mend, FAULT_BUSY where the database is away, or FAULT_MEMORY; `reason` is a
 * line for people, without the connection string, and nothing is logged.
 *
 * session_close(session):
 * NULL is fine.
 */
struct session *session_open(const char *database, bool writes,
    enum fault *fault, char reason[static SESSION_REASON_MAX]);
void session_close(struct session *session);

/*
 * session_is_alive(session):
 * Whether the server has not closed an idle session, as far as is known here.
 */
bool session_is_alive(struct session *session);

/*
 * session_send(session, query):
 * Begin a statement, whose rows come in binary form.  False if the connection
 * is lost.
 *
 * session_wait(session, deadline_ms):
 * Wait until PQgetResult does not block.  0; -1 with errno: ETIMEDOUT after
 * deadline_ms of CLOCK_MONOTONIC, EIO if the connection is lost.
 *
 * session_run(session, query, deadline_ms, rows):
 * Run a whole statement, and wait for its commit.  On SESSION_DONE, `*rows` is
 * the caller's to PQclear.
 */
bool session_send(struct session *session, const struct session_query *query);
int session_wait(struct session *session, int64_t deadline_ms);
enum session_result session_run(struct session *session,
    const struct session_query *query, int64_t deadline_ms, PGresult **rows);

/*
 * session_note(session, result):
 * Keep the code and the reason of an error.
 */
void session_note(struct session *session, const PGresult *result);

/* The 64 bits of a bigint, or of a timestamptz: microseconds since 2000. */
#define SESSION_EPOCH_MS INT64_C(946684800000)
void session_put_int64(char buf[static 8], int64_t value);
int64_t session_get_int64(const char buf[static 8]);

/* schema.c: see the members of struct engine; and the version of both. */
#define SCHEMA_VERSION "1"
extern const char schema_tables[], schema_roles[];

/* The statements of a commit; prepared under these names. */
#define INSERT_NAME "plants_insert"
#define REPEAT_NAME "plants_repeat"

#endif
