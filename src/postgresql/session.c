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

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "ground/clock.h"

/* A server that refuses so soon may be asked why. */
#define PROMPT_MS 1000
/*
 * How long a statement waits for an id that another session holds: for as long
 * as its commit takes, or its standby is away.
 */
#define LOCK_TIMEOUT "200ms"
#define ANOTHER_FORM "an answer of another form"
/* Of an answer: more than a reader's rows, or the plants of a batch. */
#define ANSWER_BYTES_MAX ((uint64_t)256 << 20)

/*
 * Each parameter is an array, a line for each element: no plant, name or time
 * contains a newline.  Nothing is returned of ids that are stored already.
 */
#define LINES(text) "string_to_array(" text "::text, chr(10))"
/* clang-format off */
#define INSERT(ids, plants, by, at) \
	"INSERT INTO plants (id, plant, stored_by, stored_at)" \
	" SELECT * FROM ROWS FROM (pg_catalog.unnest(" LINES(ids) \
	"::bigint[]), pg_catalog.unnest(" LINES(plants) ")," \
	" pg_catalog.unnest(" LINES(by) "), pg_catalog.unnest(" LINES(at) \
	"::timestamptz[]))" \
	" ON CONFLICT (id) DO NOTHING RETURNING id"
/* clang-format on */
/*
 * A row can be seen before a standby has it.  The lock is a write, so its
 * commit waits for the standby, which then has all that was written before.
 */
#define REPEAT(ids)                                           \
	"SELECT id, plant FROM plants WHERE id = ANY(" LINES( \
	    ids) "::bigint[]) ORDER BY id FOR KEY SHARE"

/*
 * The tables' schema is one that search_path names: not "$user", as whoever may
 * create schemas could make one of our role's name.  From then on pg_catalog is
 * before it; a function there that others made is used only if it fits better,
 * so statements qualify what does not fit exactly.
 */
static const char find_tables[] =
    "SELECT coalesce((SELECT pg_catalog.set_config('search_path',"
    " pg_catalog.format('pg_catalog, %I, pg_temp', nspname), false)"
    " FROM pg_catalog.pg_namespace WHERE oid OPERATOR(pg_catalog.=)"
    " (SELECT relnamespace FROM pg_catalog.pg_class"
    " WHERE oid OPERATOR(pg_catalog.=) (SELECT pg_catalog.to_regclass("
    "CASE WHEN pg_catalog.set_config('search_path', pg_catalog.regexp_replace("
    "pg_catalog.current_setting('search_path'), '[$]user', 'pg_catalog',"
    " 'gi'), false) IS NOT NULL THEN 'plants_schema' END)))), '')";

/*
 * Gives what an operator has to mend, or "", and the standbys; sets what a
 * role, a database or the connection string may have weakened, and gives that:
 * a message that is not sent would hide the warning of a commit.  CockroachDB
 * has neither fsync nor full_page_writes.
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
    " set_config('client_min_messages', 'warning', false),"
    " set_config('lock_timeout', '" LOCK_TIMEOUT "', false)"
    " FROM plants_schema";

/*
 * The message goes into the log alone.  A commit that waits keeps a session of
 * our role, even after its client has gone: then one more does not wait.
 */
#define PROBE(statement)                                                   \
	"WITH probe AS (" statement ")"                                    \
	" SELECT pg_catalog.pg_logical_emit_message(true, 'plant-store', " \
	"'')::text"                                                        \
	" WHERE NOT EXISTS (SELECT FROM pg_stat_activity"                  \
	" WHERE usename = current_user"                                    \
	" AND (wait_event = 'SyncRep' OR state = 'active' AND query LIKE " \
	"'WITH probe%')"                                                   \
	" AND coalesce(query_start, backend_start)"                        \
	" < clock_timestamp() - interval '4.5 s')"
const struct statement session_probe = {
	PROBE(
	    "INSERT INTO plants (id, plant, stored_by, stored_at)"
	    " SELECT id, plant, stored_by, stored_at FROM plants WHERE false"),
	.columns = 1
};
const char session_confirm[] = PROBE("SELECT");

/* What helps against errors, by how their codes begin. */
#define POOLER "; sessions are mixed up: set pgbouncer's pool_mode to session"
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
	{ "42P05", FAULT_SETUP, POOLER },
	{ "26000", FAULT_BUSY, POOLER },
	{ "42501", FAULT_SETUP,
	    "; grant the rights with: plant-store schema --roles | psql" },
	{ "42", FAULT_SETUP,
	    "; the tables are not those of: plant-store schema; --cursor and "
	    "--follow need PostgreSQL 13, and: plant-store schema --feed" },
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

/* By TCP; 0 for a server on this machine's socket, which is not limited. */
static uint64_t
count_received(const struct session *session)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	getsockopt(PQsocket(session->conn), IPPROTO_TCP, TCP_INFO, &info, &len);
	return info.tcpi_bytes_received;
}

/*
 * Wait until PQgetResult does not block; false, with the reason, if the
 * deadline passes, the connection is lost or too much is received.
 */
static bool
wait_for_result(struct session *session, int64_t deadline_ms, uint64_t max)
{
	int unsent;

	while (
	    (unsent = PQflush(session->conn)) > 0 || PQisBusy(session->conn)) {
		int64_t left_ms = deadline_ms - clock_ms(CLOCK_MONOTONIC);
		struct pollfd ready = { .fd = PQsocket(session->conn),
			.events =
			    (short)(POLLIN | (unsent > 0 ? POLLOUT : 0)) };

		if (left_ms <= 0 || count_received(session) > max) {
			print_reason(session,
			    left_ms <= 0 ? "no answer within the deadline"
					 : "an answer that is too large",
			    "");
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

/* Whether it has the columns of the statement, and no NULL. */
static bool
is_expected(const PGresult *result, int columns)
{
	bool is = PQnfields(result) == columns &&
		  PQresultStatus(result) ==
		      (columns > 0 ? PGRES_TUPLES_OK : PGRES_COMMAND_OK);

	for (int row = 0; is && row < PQntuples(result); row++)
		for (int column = 0; column < columns; column++)
			is &= !PQgetisnull(result, row, column);
	return is;
}

/* `*rows` is set if the statement came to its end. */
static enum session_result
collect(
    struct session *session, int columns, int64_t deadline_ms, PGresult **rows)
{
	enum session_result status = SESSION_UNKNOWN;
	uint64_t max = count_received(session) + ANSWER_BYTES_MAX;
	PGresult *result;

	for (int n = 0; wait_for_result(session, deadline_ms, max); n++) {
		result = PQgetResult(session->conn);
		if (result == NULL)
			return session->warned ? SESSION_UNKNOWN : status;
		if (n == 0 && is_expected(result, columns)) {
			*rows = result;
			status = SESSION_DONE;
			continue;
		}
		bool is_error = PQresultStatus(result) == PGRES_FATAL_ERROR;
		note_error(session, result);
		PQclear(result);
		/* That of a COPY would come again for ever. */
		if (!is_error || n > 1) {
			print_reason(session, ANOTHER_FORM, "");
			break;
		}
		status = n == 0 && is_refusal(session->sqlstate)
			     ? SESSION_REFUSED
			     : SESSION_UNKNOWN;
	}
	return SESSION_UNKNOWN;
}

enum session_result
session_run(struct session *session, const struct statement *statement,
    int64_t deadline_ms, PGresult **rows)
{
	enum session_result status = SESSION_UNKNOWN;
	const char *text = statement->text;

	*rows = NULL;
	session->warned = false;
	session->sqlstate[0] = '\0';
	strcpy(session->reason, "no answer");
	if (statement->n > 0
		? PQsendQueryPrepared(session->conn, text, statement->n,
		      statement->values, NULL, NULL, 0)
		: PQsendQueryParams(
		      session->conn, text, 0, NULL, NULL, NULL, NULL, 0))
		status =
		    collect(session, statement->columns, deadline_ms, rows);
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
	if (strstr(PQerrorMessage(conn), strerror(EAFNOSUPPORT)) != NULL)
		remedy.text = "; the unit's drop-in database.conf lets the "
			      "service reach a network";
	if (PQconnectionNeedsPassword(conn))
		remedy = (struct remedy){ "", FAULT_SETUP,
			"; put it into the connection string, or into the file "
			"that its passfile= names" };
	print_reason(session, PQerrorMessage(conn), remedy.text);
	return remedy.fault;
}

/* `row`: the only one, or NULL if its statement may have any number. */
static enum fault
run_query(struct session *session, const char *sql, int columns, PGresult **row)
{
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS;
	const struct statement statement = { sql, columns, 0, NULL };
	PGresult *rows;

	if (session_run(session, &statement, deadline_ms, &rows) !=
	    SESSION_DONE)
		return find_remedy(session->sqlstate)->fault;
	if (row != NULL && PQntuples(rows) == 1) {
		*row = rows;
		return FAULT_NONE;
	}
	PQclear(rows);
	print_reason(session, ANOTHER_FORM, "");
	return row == NULL ? FAULT_NONE : FAULT_BUSY;
}

static enum fault
check_server(struct session *session)
{
	PGresult *row;
	enum fault fault = run_query(session, find_tables, 1, &row);

	if (fault != FAULT_NONE)
		return fault;
	bool found = PQgetvalue(row, 0, 0)[0] != '\0';
	PQclear(row);
	print_reason(session,
	    "no schema that search_path names has the table plants_schema",
	    find_remedy("42P01")->text);
	fault = found ? run_query(session, check, 5, &row) : FAULT_SETUP;
	if (fault != FAULT_NONE)
		return fault;
	snprintf(session->standbys, sizeof(session->standbys), "%s",
	    PQgetvalue(row, 0, 1));
	print_reason(session, PQgetvalue(row, 0, 0), "");
	if (strcmp(PQgetvalue(row, 0, 2), "on") != 0 ||
	    strcmp(PQgetvalue(row, 0, 3), "warning") != 0)
		print_reason(session, "a setting was not taken", "");
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

	for (int i = 0; i < 4 && fault == FAULT_NONE; i++)
		fault = run_query(session, statements[i], i < 2, NULL);
	return fault;
}

/*
 * A password is cut at an unescaped '@' or '/': what follows it is taken for a
 * host or a database, which are logged and sent.  Also libpq's own message may
 * have a part of it.
 */
static enum fault
check_string(struct session *session, const char *database)
{
	PQconninfoOption *options = PQconninfoParse(database, NULL);
	const char *rest = database + strspn(database, "postgresql");
	bool good = options != NULL;

	if (strncmp(rest, "://", 3) == 0) {
		rest += 3;
		rest += strcspn(rest, "@/");
		rest += *rest != '\0';
		good = good && rest[strcspn(rest, "@?")] != '@';
	}
	PQconninfoFree(options);
	if (good)
		return FAULT_NONE;
	print_reason(session,
	    "PLANT_STORE_DATABASE: not a connection string of libpq, such as "
	    "postgresql://plants@db/plants; write %40 for an @ of the "
	    "password, %2F for a /, %XX for another character",
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
