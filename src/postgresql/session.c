/*
 * session: see session.h.
 *
 * Whether a statement took effect: it runs in its own transaction, whose commit
 * follows the statement's end (CommandComplete).  An error before that end is a
 * refusal.  An error, a warning or a lost connection after it may come from the
 * commit: if the wait for a standby is cancelled, the server sends a warning
 * and then success.
 *
 * No libpq call blocks, except to resolve names: a server that never stops
 * sending could hold a blocking call forever.
 */
#include "session.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "ground/clock.h"
#include "ground/log.h"

#define TROUBLE_INTERVAL_MS 60000
/* The messages of several hosts, one after the other. */
#define MESSAGES_MAX (4 * SESSION_REASON_MAX)
/* Seconds for each host: the default connect_timeout, and the maximum. */
#define CONNECT_TIMEOUT_S 2
#define CONNECT_TIMEOUT_MAX_S 60
#define ANOTHER_FORM "an unexpected reply"
/* The limit of a reply: more than a reader's rows or a batch's plants. */
#define ANSWER_BYTES_MAX ((uint64_t)256 << 20)
/* The limit before the first statement: certificates, parameters, notices. */
#define HANDSHAKE_BYTES_MAX ((uint64_t)1 << 20)

/* The version of the tables in deploy/postgresql/tables.sql. */
#define SCHEMA_VERSION "1"

/*
 * The first column of both checks is what an operator must correct, or "".
 *
 * The tables' schema is found in search_path without "$user": any role that may
 * create schemas could create one named after ours.  pg_catalog precedes it: a
 * function that others created there is called only if it matches better, so
 * statements qualify each name without an exact match in pg_catalog.
 */
#define NO_TABLES "; create the tables with: plant-store schema | psql"
static const char find_tables[] =
    "SELECT CASE WHEN (SELECT pg_catalog.set_config('search_path',"
    " pg_catalog.format('pg_catalog, %I, pg_temp', nspname), false)"
    " FROM pg_catalog.pg_namespace WHERE oid OPERATOR(pg_catalog.=)"
    " (SELECT relnamespace FROM pg_catalog.pg_class"
    " WHERE oid OPERATOR(pg_catalog.=) (SELECT pg_catalog.to_regclass("
    "CASE WHEN pg_catalog.set_config('search_path', pg_catalog.regexp_replace("
    "pg_catalog.current_setting('search_path'), '[$]user', 'pg_catalog',"
    " 'gi'), false) IS NOT NULL THEN 'plants_schema' END)))) IS NULL THEN"
    " 'no schema in search_path has the table plants_schema" NO_TABLES
    "' ELSE '' END";

/*
 * check sets what a role, a database or the connection string may have weakened
 * (client_min_messages could suppress the warning of a commit), and how long a
 * statement waits for an id that another session has locked.  CockroachDB has
 * neither fsync nor full_page_writes.
 */
static const char check[] =
    "SELECT CASE WHEN set_config('synchronous_commit', 'on', false) <> 'on'"
    " OR set_config('client_min_messages', 'warning', false) <> 'warning'"
    " THEN 'a setting was not accepted'"
    " WHEN coalesce(max(version), 0) <> " SCHEMA_VERSION
    " THEN 'the table plants_schema has version '"
    " || coalesce(max(version), 0)::text || ', not " SCHEMA_VERSION
    ": use the version of plant-store that created it'"
    " WHEN current_setting('server_encoding') <> 'UTF8'"
    " THEN 'the database''s encoding is not UTF8: create it with ENCODING"
    " ''UTF8'' TEMPLATE template0'"
    " WHEN current_setting('fsync', true) = 'off'"
    " THEN 'the server has fsync = off, so a power cut would lose plants: set"
    " it to on'"
    " WHEN current_setting('full_page_writes', true) = 'off'"
    " THEN 'the server has full_page_writes = off, so a power cut could damage"
    " plants: set it to on' ELSE '' END,"
    " " SESSION_STANDBYS ","
    " set_config('lock_timeout', '200ms', false),"
    " (SELECT count(*) FROM pg_attribute WHERE attrelid ="
    " 'plants'::regclass::oid AND attname = 'tx' AND NOT attisdropped)"
    " FROM plants_schema";

/* The remedies, by prefix of the SQLSTATE; the first match counts. */
#define POOLER "; sessions are mixed up: set pgbouncer's pool_mode to session"
static const struct remedy {
	const char *code;
	enum fault fault; /* FAULT_SETUP if an operator has to act */
	const char *text;
} remedies[] = {
	{ "42P01", FAULT_SETUP, NO_TABLES },
	{ "3F000", FAULT_SETUP, NO_TABLES },
	{ "3D000", FAULT_SETUP,
	    "; create the database, and its tables with: plant-store schema | "
	    "psql" },
	{ "42P05", FAULT_SETUP, POOLER },
	{ "26000", FAULT_BUSY, POOLER },
	{ "42501", FAULT_SETUP,
	    "; grant the privileges with: plant-store schema --roles | psql" },
	{ "42", FAULT_SETUP,
	    "; the tables are not those of: plant-store schema; --cursor and "
	    "--follow need PostgreSQL 13, and: plant-store schema --feed" },
	{ "28", FAULT_SETUP,
	    "; check role, password and the server's pg_hba.conf" },
	{ "25006", FAULT_BUSY, "; name the primary in PLANT_STORE_DATABASE" },
	{ "53100", FAULT_BUSY, "; make room on the database's disk" },
	{ "53300", FAULT_BUSY,
	    "; raise max_connections or the role's limit: a service needs a "
	    "connection for each thread" },
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

/* Print one line, without libpq's hints and the server's source location. */
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

/* Keep an error's code and reason; if `result` is NULL, the connection's. */
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

	/* The server sends FATAL as a notice if it ends an idle session. */
	if (severity != NULL && (strcmp(severity, "WARNING") == 0 ||
				    strcmp(severity, "FATAL") == 0)) {
		session->warned = true;
		note_error(session, notice);
	}
}

/* --- Waiting --- */

/* Bytes received by TCP; 0 on a Unix socket, which is not limited. */
static uint64_t
count_received(const struct session *session)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	getsockopt(PQsocket(session->conn), IPPROTO_TCP, TCP_INFO, &info, &len);
	return info.tcpi_bytes_received;
}

/* Wait for an event.  False, with the reason, at the deadline or bytes_max. */
static bool
wait_for(struct session *session, int events)
{
	struct pollfd ready = { PQsocket(session->conn), (short)events, 0 };
	int64_t left_ms;

	do {
		left_ms = session->deadline_ms - clock_ms(CLOCK_MONOTONIC);
		if (left_ms > 0 &&
		    count_received(session) <= session->bytes_max)
			continue;
		strcpy(session->reason, left_ms <= 0
					    ? "no answer within the deadline"
					    : "a reply that is too large");
		return false;
	} while (poll(&ready, 1, (int)left_ms) <= 0);
	return true;
}

/* Wait until PQgetResult does not block; false, with the reason, on failure. */
static bool
wait_for_result(struct session *session)
{
	int left;

	while ((left = PQflush(session->conn)) > 0 || PQisBusy(session->conn)) {
		if (!wait_for(session, POLLIN | (left > 0 ? POLLOUT : 0)))
			return false;
		if (!PQconsumeInput(session->conn)) {
			note_error(session, NULL);
			return false;
		}
	}
	return true;
}

/* --- Statements --- */

/*
 * An error before a statement's end shows that nothing was done, unless the
 * error has no code or one of UNSURE: the connection failed (08), or the server
 * does not know (40003), is going down (57P) or may be damaged (58, XX).
 */
#define UNSURE "08 40003 57P 58 XX"

/* Return whether a result is a success with that many columns and no NULL. */
static bool
is_expected(const PGresult *result, int columns)
{
	bool is = PQnfields(result) == columns &&
		  PQresultStatus(result) ==
		      (columns > 0 ? PGRES_TUPLES_OK : PGRES_COMMAND_OK);

	for (int i = 0; is && i < PQntuples(result) * columns; i++)
		is = !PQgetisnull(result, i / columns, i % columns);
	return is;
}

/* Read all results; keep the rows if the statement completed. */
static void
collect(struct session *session, int columns)
{
	for (int n = 0; wait_for_result(session); n++) {
		PGresult *result = PQgetResult(session->conn);
		if (result == NULL && session->warned)
			break;
		if (result == NULL)
			return;
		if (n == 0 && is_expected(result, columns)) {
			session->rows = result;
			session->lost = false;
			continue;
		}
		bool is_error = PQresultStatus(result) == PGRES_FATAL_ERROR;
		note_error(session, result);
		PQclear(result);
		/* PQgetResult would return the result of a COPY forever. */
		if (!is_error || n > 1) {
			strcpy(session->reason, ANOTHER_FORM);
			break;
		}
		session->lost = n > 0 || session->sqlstate[0] == '\0' ||
				session_is_code(session, UNSURE);
	}
	session->lost = true;
}

static void
drop_rows(struct session *session)
{
	PQclear(session->rows);
	session->rows = NULL;
}

bool
session_run(struct session *session, const char *text, int columns,
    const char *const *values)
{
	int n = 0;

	drop_rows(session);
	session->lost = true;
	session->bytes_max = count_received(session) + ANSWER_BYTES_MAX;
	session->warned = false;
	session->sqlstate[0] = '\0';
	strcpy(session->reason, "no answer");
	while (values != NULL && values[n] != NULL)
		n++;
	if (values != NULL ? PQsendQueryPrepared(
				 session->conn, text, n, values, NULL, NULL, 0)
			   : PQsendQueryParams(session->conn, text, 0, NULL,
				 NULL, NULL, NULL, 0))
		collect(session, columns);
	else
		note_error(session, NULL);
	if (session->lost)
		drop_rows(session);
	return session->rows != NULL;
}

enum fault
session_query(
    struct session *session, const char *sql, int columns, int timeout_ms)
{
	session->deadline_ms = clock_ms(CLOCK_MONOTONIC) + timeout_ms;
	return session_run(session, sql, columns, NULL)
		   ? FAULT_NONE
		   : find_remedy(session->sqlstate)->fault;
}

bool
session_is_code(const struct session *session, const char *begins)
{
	size_t len = 0;

	do {
		begins += len + strspn(begins + len, " ");
		len = strcspn(begins, " ");
	} while (strncmp(session->sqlstate, begins, len) != 0);
	return len > 0; /* the empty word at the end matches every code */
}

bool
session_is_alive(struct session *session)
{
	session->warned = false;
	return PQconsumeInput(session->conn) && !PQisBusy(session->conn) &&
	       !session->warned && PQstatus(session->conn) == CONNECTION_OK;
}

/* --- Connecting --- */

/* Connect to one host; if that fails, add the reason to `messages`. */
static struct remedy
try_host(struct session *session, const char *const *keys,
    const char *const *values, char messages[static MESSAGES_MAX])
{
	PostgresPollingStatusType next = PGRES_POLLING_WRITING;
	PGconn *conn = PQconnectStartParams(keys, values, 1);
	int error = errno;

	PQfinish(session->conn);
	session->conn = conn;
	session->bytes_max = HANDSHAKE_BYTES_MAX;
	PQsetNoticeReceiver(conn, receive_notice, session);
	PQsetErrorVerbosity(conn, PQERRORS_VERBOSE); /* adds the SQLSTATE */
	PQsetnonblocking(conn, 1);
	while (
	    PQstatus(conn) != CONNECTION_BAD && next != PGRES_POLLING_OK &&
	    wait_for(session, next == PGRES_POLLING_READING ? POLLIN : POLLOUT))
		next = PQconnectPoll(conn);
	PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
	if (next == PGRES_POLLING_OK)
		return (struct remedy){ "", FAULT_NONE, "" };
	const char *message = PQstatus(conn) == CONNECTION_BAD
				  ? PQerrorMessage(conn)
				  : session->reason;
	/* libpq 17 returns no text if it cannot create a socket. */
	if (message[0] == '\0')
		message = strerror(error);
	/* A server's refusal has its code, as in "FATAL:  28P01: ". */
	const char *code = strstr(message, ":  ");
	size_t len = strlen(messages);
	snprintf(messages + len, MESSAGES_MAX - len, "%s, port %s: %s\n",
	    PQhost(conn), PQport(conn), message);
	struct remedy remedy = *find_remedy(code != NULL ? code + 3 : "");
	if (strstr(message, strerror(EAFNOSUPPORT)) != NULL)
		remedy.text = "; the unit's drop-in database.conf lets the "
			      "service reach a network";
	if (PQconnectionNeedsPassword(conn))
		remedy = (struct remedy){ "", FAULT_SETUP,
			"; put it into the connection string, or into the file "
			"that its passfile= names" };
	return remedy;
}

/* Try one host after another: PQconnectPoll never gives up on a silent one. */
static enum fault
connect_server(
    struct session *session, const char *database, PQconninfoOption *options)
{
	enum { HOST = 7, HOSTADDR, PORT, LISTS = 3 };
	/* What follows "dbname" overrides the connection string. */
	const char *keys[] = { "tcp_user_timeout", "keepalives_idle",
		"keepalives_interval", "keepalives_count",
		"target_session_attrs", "application_name", "dbname", "host",
		"hostaddr", "port", "client_encoding", NULL };
	const char *values[] = { "3000", "2", "1", "2", "read-write",
		"plant-store", database, NULL, NULL, NULL, "UTF8", NULL };
	char *left[LISTS] = { NULL }, messages[MESSAGES_MAX] = "";
	int timeout_s = CONNECT_TIMEOUT_S;
	struct remedy remedy;

	for (; options->keyword != NULL; options++) {
		for (int i = 0; i < LISTS; i++)
			if (strcmp(options->keyword, keys[HOST + i]) == 0)
				left[i] = options->val;
		if (strcmp(options->keyword, "connect_timeout") == 0 &&
		    options->val != NULL)
			timeout_s = atoi(options->val);
	}
	if (timeout_s <= 0 || timeout_s > CONNECT_TIMEOUT_MAX_S)
		timeout_s = CONNECT_TIMEOUT_MAX_S;
	do {
		for (int i = 0; i < LISTS; i++)
			if (left[i] != NULL)
				values[HOST + i] = strsep(&left[i], ",");
		session->deadline_ms =
		    clock_ms(CLOCK_MONOTONIC) + 1000 * timeout_s;
		remedy = try_host(session, keys, values, messages);
	} while (
	    remedy.fault == FAULT_BUSY && (left[0] != NULL || left[1] != NULL));
	/*
	 * Only PQping reports that libpq refuses a setting, such as an unknown
	 * sslmode.  A ping without an address does not block.
	 */
	values[HOST] = values[HOSTADDR] = "none";
	values[PORT] = "1";
	if (remedy.fault == FAULT_BUSY &&
	    PQpingParams(keys, values, 1) == PQPING_NO_ATTEMPT)
		remedy.fault = FAULT_SETUP;
	print_reason(session, messages, remedy.text);
	return remedy.fault;
}

/*
 * libpq ends a password at an unescaped '@' or '/', and takes the rest for a
 * host, a port or a database, which are logged and sent.  libpq's message may
 * also contain a part of the password.
 */
static enum fault
connect_string(struct session *session, const char *database)
{
	PQconninfoOption *options = PQconninfoParse(database, NULL);
	const char *rest = database + strspn(database, "postgresql");
	bool good = options != NULL;

	for (PQconninfoOption *o = options; good && o->keyword != NULL; o++)
		good = o->val == NULL || strcmp(o->keyword, "port") != 0 ||
		       o->val[strspn(o->val, "0123456789,")] == '\0';
	if (strncmp(rest, "://", 3) == 0) {
		rest += 3;
		rest += strcspn(rest, "@/");
		rest += *rest != '\0';
		size_t n = strcspn(rest, "@?");
		const char *address = memrchr(rest, '[', n);
		good = good && rest[n] != '@' &&
		       (address == NULL ||
			   memchr(address, ']', (size_t)(rest + n - address)));
	}
	strcpy(session->reason,
	    "PLANT_STORE_DATABASE: not a libpq connection string, such as "
	    "postgresql://plants@db/plants; in the password, write %40 for @, "
	    "%2F for /, and %XX for other characters");
	enum fault fault =
	    good ? connect_server(session, database, options) : FAULT_SETUP;
	PQconninfoFree(options);
	return fault;
}

/* Run SQL whose one row begins with what an operator must correct, or "". */
static enum fault
check_server(struct session *session, const char *sql, int columns)
{
	enum fault fault =
	    session_query(session, sql, columns, SESSION_TIMEOUT_MS);

	if (fault != FAULT_NONE)
		return fault;
	if (PQntuples(session->rows) != 1) {
		strcpy(session->reason, ANOTHER_FORM);
		return FAULT_BUSY;
	}
	print_reason(session, PQgetvalue(session->rows, 0, 0), "");
	return session->reason[0] == '\0' ? FAULT_NONE : FAULT_SETUP;
}

enum fault
session_open(struct session *session, const char *database)
{
	memset(session, 0, sizeof(*session));
	enum fault fault = connect_string(session, database);
	if (fault != FAULT_NONE)
		return fault;
	fault = check_server(session, find_tables, 1);
	if (fault != FAULT_NONE)
		return fault;
	fault = check_server(session, check, 4);
	if (fault != FAULT_NONE)
		return fault;
	snprintf(session->standbys, sizeof(session->standbys), "%s",
	    PQgetvalue(session->rows, 0, 1));
	session->has_tx = PQgetvalue(session->rows, 0, 3)[0] == '1';
	drop_rows(session);
	return FAULT_NONE;
}

void
session_close(struct session *session)
{
	drop_rows(session);
	PQfinish(session->conn);
}

void
trouble_log(struct trouble *trouble, const char *what, const char *reason)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	int64_t now_ms = clock_ms(CLOCK_MONOTONIC);

	pthread_mutex_lock(&mutex);
	if (strcmp(trouble->reason, reason) != 0 ||
	    now_ms - trouble->logged_ms >= TROUBLE_INTERVAL_MS) {
		log_error("%s: %s", what, reason);
		strcpy(trouble->reason, reason);
		trouble->logged_ms = now_ms;
	}
	pthread_mutex_unlock(&mutex);
}
