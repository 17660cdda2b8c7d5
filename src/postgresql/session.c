/*
 * session: see session.h.
 *
 * Whether a statement took effect: it runs in a transaction of its own, whose
 * commit follows the statement's end (CommandComplete).  An error before that
 * is a refusal; an error, a warning or a lost connection after it may come from
 * the commit: a wait for a standby that was cancelled is a warning, followed by
 * success.
 */
#include "session.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/clock.h"

/* A server that refuses so soon may be asked why. */
#define PROMPT_MS 1000
/*
 * How long a statement waits for an id that another session holds: for as long
 * as its commit takes, or its standby is away.
 */
#define LOCK_TIMEOUT "200ms"

/*
 * Each parameter is an array, a line for each element: no plant, name or time
 * contains a newline.  Nothing is returned of ids that are stored already.
 */
#define LINES(text) "string_to_array(" text "::text, chr(10))"
#define INSERT(ids, plants, by, at)                                       \
	"INSERT INTO plants (id, plant, stored_by, stored_at)"            \
	" SELECT * FROM unnest(" LINES(ids) "::bigint[], " LINES(         \
	    plants) ", " LINES(by) ", " LINES(at) "::timestamptz[])"      \
						  " ON CONFLICT (id) DO " \
						  "NOTHING RETURNING id"
/*
 * A row can be seen before a standby has it.  The lock is a write, so its
 * commit waits for the standby, which then has all that was written before.
 */
#define REPEAT(ids)                                           \
	"SELECT id, plant FROM plants WHERE id = ANY(" LINES( \
	    ids) "::bigint[]) ORDER BY id FOR KEY SHARE"

/*
 * Gives what an operator has to mend, or "", and the standbys; sets what a role
 * or a database may have weakened.  CockroachDB has neither fsync nor
 * full_page_writes.
 */
static const char check[] =
    "SELECT CASE WHEN coalesce(max(version), 0) <> " SCHEMA_VERSION
    " THEN 'the table plants_schema has version '"
    " || coalesce(max(version), 0)::text || ', not " SCHEMA_VERSION
    ": use the version of plant-store that made it'"
    " WHEN current_setting('server_encoding') <> 'UTF8'"
    " THEN 'the database''s encoding is not UTF8: create it with ENCODING"
    " ''UTF8'' TEMPLATE template0'"
    " WHEN current_setting('fsync', true) = 'off'"
    " THEN 'the server has fsync = off, so a power cut would lose plants: set"
    " it to on'"
    " WHEN current_setting('full_page_writes', true) = 'off'"
    " THEN 'the server has full_page_writes = off, so a power cut could damage"
    " plants: set it to on' ELSE '' END,"
    " coalesce(current_setting('synchronous_standby_names', true), ''),"
    " set_config('synchronous_commit', 'on', false),"
    " set_config('lock_timeout', '" LOCK_TIMEOUT "', false)"
    " FROM plants_schema";

/* What helps against errors, by how their codes begin. */
static const struct remedy {
	const char *code;
	enum fault fault; /* FAULT_SETUP: an operator has to mend it */
	const char *text;
} remedies[] = {
	{ "42P01", FAULT_SETUP,
	    "; make the tables with: plant-store schema | psql" },
	{ "3F000", FAULT_SETUP,
	    "; make the tables with: plant-store schema | psql" },
	{ "3D000", FAULT_SETUP,
	    "; create the database, and its tables with: plant-store schema | "
	    "psql" },
	{ "42501", FAULT_SETUP,
	    "; grant the rights with: plant-store schema --roles | psql" },
	{ "42", FAULT_SETUP,
	    "; the tables are not those of: plant-store schema" },
	{ "28", FAULT_SETUP,
	    "; check role, password and the server's pg_hba.conf" },
	{ "25006", FAULT_BUSY, "; name the primary in PLANT_STORE_DATABASE" },
	{ "53100", FAULT_BUSY, "; make room on the database's disk" },
	{ "53300", FAULT_BUSY,
	    "; raise max_connections or the role's limit: a service needs one "
	    "for each of its threads" },
	{ "", FAULT_BUSY, "" },
};

static const struct remedy *
find_remedy(const char *text)
{
	const struct remedy *remedy = remedies;

	while (strncmp(text, remedy->code, strlen(remedy->code)) != 0)
		remedy++;
	return remedy;
}

/* In one line, without hints, and without the place in the server's source. */
static void
print_reason(struct session *session, const char *message, const char *remedy)
{
	char *reason = session->reason;
	size_t len = 0, n;

	reason[0] = '\0';
	for (; *message != '\0'; message += n) {
		message += strspn(message, "\n");
		n = strcspn(message, "\n");
		if (n == 0 || *message == '\t' ||
		    strncmp(message, "LOCATION:", 9) == 0)
			continue;
		len += (size_t)snprintf(reason + len, SESSION_REASON_MAX - len,
		    "%s%.*s", len > 0 ? "; " : "", (int)n, message);
		if (len >= SESSION_REASON_MAX)
			return;
	}
	snprintf(reason + len, SESSION_REASON_MAX - len, "%s", remedy);
}

/* Keep the code and the reason of an error; NULL: of the connection. */
static void
note_error(struct session *session, const PGresult *result)
{
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	snprintf(session->sqlstate, sizeof(session->sqlstate), "%s",
	    code != NULL ? code : "");
	print_reason(session,
	    text != NULL ? text : PQerrorMessage(session->conn),
	    find_remedy(session->sqlstate)->text);
}

static void
receive_notice(void *context, const PGresult *notice)
{
	struct session *session = context;
	const char *severity =
	    PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);

	/* FATAL: the server ended an idle session. */
	if (severity != NULL && (strcmp(severity, "WARNING") == 0 ||
				    strcmp(severity, "FATAL") == 0)) {
		session->warned = true;
		note_error(session, notice);
	}
}

/* --- Statements --- */

/*
 * Wait until PQgetResult does not block; false, with the reason, if the
 * deadline passes or the connection is lost.
 */
static bool
wait_for_result(struct session *session, int64_t deadline_ms)
{
	int unsent;

	while (
	    (unsent = PQflush(session->conn)) > 0 || PQisBusy(session->conn)) {
		int64_t left_ms = deadline_ms - clock_ms(CLOCK_MONOTONIC);
		struct pollfd ready = { .fd = PQsocket(session->conn),
			.events =
			    (short)(POLLIN | (unsent > 0 ? POLLOUT : 0)) };

		if (left_ms <= 0) {
			print_reason(
			    session, "no answer within the deadline", "");
			return false;
		}
		if (poll(&ready, 1, (int)left_ms) > 0 &&
		    !PQconsumeInput(session->conn)) {
			note_error(session, NULL);
			return false;
		}
	}
	return true;
}

/*
 * Whether an error that came before the statement's end shows that nothing was
 * done.  08: the connection; 40003: not known to the server itself; 57P: the
 * server goes down; 58, XX: it may be damaged.
 */
static bool
is_refusal(const char *sqlstate)
{
	static const char *const unsure[] = { "08", "40003", "57P", "58",
		"XX" };

	for (size_t i = 0; i < sizeof(unsure) / sizeof(unsure[0]); i++)
		if (strncmp(sqlstate, unsure[i], strlen(unsure[i])) == 0)
			return false;
	return sqlstate[0] != '\0';
}

/* `*rows` is set if the statement came to its end. */
static enum session_result
collect(struct session *session, int64_t deadline_ms, PGresult **rows)
{
	enum session_result status = SESSION_UNKNOWN;
	PGresult *result;

	while (wait_for_result(session, deadline_ms)) {
		result = PQgetResult(session->conn);
		if (result == NULL)
			return session->warned ? SESSION_UNKNOWN : status;
		if (*rows == NULL &&
		    (PQresultStatus(result) == PGRES_TUPLES_OK ||
			PQresultStatus(result) == PGRES_COMMAND_OK)) {
			*rows = result;
			status = SESSION_DONE;
			continue;
		}
		note_error(session, result);
		PQclear(result);
		status = *rows == NULL && is_refusal(session->sqlstate)
			     ? SESSION_REFUSED
			     : SESSION_UNKNOWN;
	}
	return SESSION_UNKNOWN;
}

enum session_result
session_run(struct session *session, const char *statement, int n,
    const char *const *values, int64_t deadline_ms, PGresult **rows)
{
	enum session_result status = SESSION_UNKNOWN;

	*rows = NULL;
	session->warned = false;
	session->sqlstate[0] = '\0';
	if (n > 0 ? PQsendQueryPrepared(
			session->conn, statement, n, values, NULL, NULL, 0)
		  : PQsendQueryParams(
			session->conn, statement, 0, NULL, NULL, NULL, NULL, 0))
		status = collect(session, deadline_ms, rows);
	else
		note_error(session, NULL);
	if (status != SESSION_DONE) {
		PQclear(*rows);
		*rows = NULL;
	}
	return status;
}

bool
session_is_alive(struct session *session)
{
	session->warned = false;
	return PQconsumeInput(session->conn) && !PQisBusy(session->conn) &&
	       !session->warned && PQstatus(session->conn) == CONNECTION_OK;
}

/* --- Connecting --- */

/* The code of a server's refusal to connect stands as in ":  28P01: ". */
static const struct remedy *
find_connect_remedy(const char *message)
{
	const struct remedy *remedy = find_remedy("");

	while (remedy->code[0] == '\0' &&
	       (message = strstr(message, ":  ")) != NULL) {
		message += 3;
		if (strcspn(message, ": ") == 5)
			remedy = find_remedy(message);
	}
	return remedy;
}

/*
 * Only in calls that block does libpq pass from a host that does not answer to
 * the next.
 */
static enum fault
connect_server(struct session *session, const char *database)
{
	/* The connection string may override those before it. */
	static const char *const keys[] = { "connect_timeout",
		"tcp_user_timeout", "keepalives_idle", "keepalives_interval",
		"keepalives_count", "target_session_attrs", "application_name",
		"dbname", "client_encoding", NULL };
	const char *const values[] = { "2", "3000", "2", "1", "2", "read-write",
		"plant-store", database, "UTF8", NULL };
	int64_t begin_ms = clock_ms(CLOCK_MONOTONIC);
	PGconn *conn = PQconnectdbParams(keys, values, 1);
	struct remedy remedy = *find_remedy("");

	session->conn = conn;
	if (PQstatus(conn) != CONNECTION_OK &&
	    clock_ms(CLOCK_MONOTONIC) - begin_ms < PROMPT_MS) {
		if (PQpingParams(keys, values, 1) == PQPING_NO_ATTEMPT)
			/* Such as an unknown sslmode. */
			remedy.fault = FAULT_SETUP;
		else {
			/* Once more, to hear the code of a refusal. */
			PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
			PQreset(conn);
			PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
			remedy = *find_connect_remedy(PQerrorMessage(conn));
		}
	}
	if (PQstatus(conn) == CONNECTION_OK)
		return FAULT_NONE;
	if (PQconnectionNeedsPassword(conn))
		remedy = (struct remedy){ "", FAULT_SETUP,
			"; put it into the connection string, or into the file "
			"that its passfile= names" };
	print_reason(session, PQerrorMessage(conn), remedy.text);
	return remedy.fault;
}

static enum fault
check_query(struct session *session, const char *sql, PGresult **rows)
{
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS;

	return session_run(session, sql, 0, NULL, deadline_ms, rows) ==
		       SESSION_DONE
		   ? FAULT_NONE
		   : find_remedy(session->sqlstate)->fault;
}

static enum fault
check_server(struct session *session)
{
	PGresult *row;
	enum fault fault = check_query(session, check, &row);

	if (fault != FAULT_NONE)
		return fault;
	snprintf(session->standbys, sizeof(session->standbys), "%s",
	    PQgetvalue(row, 0, 1));
	print_reason(session, PQgetvalue(row, 0, 0), "");
	PQclear(row);
	return session->reason[0] == '\0' ? FAULT_NONE : FAULT_SETUP;
}

/* Planning a statement shows what the tables and our rights lack. */
static enum fault
prepare_commit(struct session *session)
{
	static const char *const statements[] = {
		"EXPLAIN " INSERT("NULL", "NULL", "NULL", "NULL"),
		"EXPLAIN " REPEAT("NULL"),
		"PREPARE " INSERT_NAME " AS " INSERT("$1", "$2", "$3", "$4"),
		"PREPARE " REPEAT_NAME " AS " REPEAT("$1"),
	};
	enum fault fault = FAULT_NONE;
	PGresult *rows;

	for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]) &&
			   fault == FAULT_NONE;
	     i++) {
		fault = check_query(session, statements[i], &rows);
		PQclear(rows);
	}
	return fault;
}

/* libpq's own message may have a part of a password. */
static enum fault
check_string(struct session *session, const char *database)
{
	PQconninfoOption *options = PQconninfoParse(database, NULL);

	PQconninfoFree(options);
	if (options != NULL)
		return FAULT_NONE;
	print_reason(session,
	    "PLANT_STORE_DATABASE: not a connection string of libpq, such as "
	    "postgresql://plants@db/plants; %XX stands for another character",
	    "");
	return FAULT_SETUP;
}

struct session *
session_open(const char *database, bool writes, enum fault *fault,
    char reason[static SESSION_REASON_MAX])
{
	struct session *session = calloc(1, sizeof(*session));

	if (session == NULL) {
		*fault = FAULT_MEMORY;
		strcpy(reason, "no memory");
		return NULL;
	}
	*fault = check_string(session, database);
	if (*fault == FAULT_NONE)
		*fault = connect_server(session, database);
	if (*fault == FAULT_NONE) {
		PQsetNoticeReceiver(session->conn, receive_notice, session);
		PQsetnonblocking(session->conn, 1);
		*fault = check_server(session);
	}
	if (*fault == FAULT_NONE && writes)
		*fault = prepare_commit(session);
	if (*fault == FAULT_NONE)
		return session;
	memcpy(reason, session->reason, SESSION_REASON_MAX);
	session_close(session);
	return NULL;
}

void
session_close(struct session *session)
{
	if (session == NULL)
		return;
	PQfinish(session->conn);
	free(session);
}
