/*
 * session: see session.h.
 *
 * Whether a statement took effect: it runs in a transaction of its own, whose
 * commit follows the statement's end (CommandComplete).  An error before that
 * is a refusal; an error, a warning or a lost connection after it may come from
 * the commit, such as a wait for a standby that was cancelled, which PostgreSQL
 * reports as a warning and a success.
 */
#include "session.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/clock.h"

/* A server that refuses at once may be asked why. */
#define PROMPT_MS 1000
#define SERVER_VERSION_MIN 120000

/*
 * The first id counts where two are equal.  Of those that are stored already,
 * nothing is returned.
 */
#define INSERT(ids, plants, by, at)                                        \
	"INSERT INTO plants (id, plant, stored_by, stored_at)"             \
	" SELECT * FROM unnest(" ids "::bigint[], " plants "::text[], " by \
	"::text[], " at "::timestamptz[])"                                 \
	" ON CONFLICT (id) DO NOTHING RETURNING id"
/*
 * A row can be seen before a standby has it.  The lock is a write, so its
 * commit waits for the standby as well, and for all that was written before.
 */
#define REPEAT(ids)                                                      \
	"SELECT id, plant FROM plants WHERE id = ANY(" ids "::bigint[])" \
	" ORDER BY id FOR KEY SHARE"

/*
 * A role or a database may have weakened the session.  CockroachDB has neither
 * fsync nor full_page_writes.
 */
#define SETUP                                                                \
	"SELECT coalesce(max(version)::text, 'none'),"                       \
	" coalesce(current_setting('fsync', true), 'on'),"                   \
	" coalesce(current_setting('full_page_writes', true), 'on'),"        \
	" coalesce(current_setting('synchronous_standby_names', true), '')," \
	" set_config('synchronous_commit', 'on', false),"                    \
	" set_config('lock_timeout', '" SESSION_LOCK_TIMEOUT "', false)"     \
	" FROM plants_schema"

/* Errors that are about one of these are ours, or the operator's, to mend. */
static const struct {
	const char *prefix, *remedy;
} setup_errors[] = {
	{ "42P01", "; make the tables with: plant-store schema | psql" },
	{ "3F000", "; make the tables with: plant-store schema | psql" },
	{ "42501", "; grant the rights with: plant-store schema --roles | "
		   "psql" },
	{ "42", "; the tables are not those of: plant-store schema" },
	{ "0A", "; the server is not one that plant-store knows" },
	{ "28", "; check role, password and the server's pg_hba.conf" },
	{ "3D000", "; create the database" },
};

void
session_put_int64(char buf[static 8], int64_t value)
{
	uint64_t bits = htobe64((uint64_t)value);

	memcpy(buf, &bits, sizeof(bits));
}

int64_t
session_get_int64(const char buf[static 8])
{
	uint64_t bits;

	memcpy(&bits, buf, sizeof(bits));
	return (int64_t)be64toh(bits);
}

/* In one line, without the place in the server's source. */
static void
print_reason(char *reason, const char *message)
{
	size_t len = 0, n;

	for (; *message != '\0'; message += n + (message[n] == '\n')) {
		n = strcspn(message, "\n");
		if (n == 0 || strncmp(message, "LOCATION:", 9) == 0)
			continue;
		len += (size_t)snprintf(reason + len, SESSION_REASON_MAX - len,
		    "%s%.*s", len > 0 ? "; " : "", (int)n, message);
		if (len >= SESSION_REASON_MAX)
			len = SESSION_REASON_MAX - 1;
	}
	if (len == 0)
		snprintf(reason, SESSION_REASON_MAX, "no reason is given");
}

static void
receive_notice(void *context, const PGresult *notice)
{
	struct session *session = context;
	const char *severity =
	    PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);

	if (severity == NULL || strcmp(severity, "WARNING") != 0)
		return;
	session->warned = true;
	session_note(session, notice);
}

void
session_note(struct session *session, const PGresult *result)
{
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	snprintf(session->sqlstate, sizeof(session->sqlstate), "%s",
	    code != NULL ? code : "");
	print_reason(session->reason,
	    text != NULL ? text : PQerrorMessage(session->conn));
}

bool
session_send(struct session *session, const struct session_query *query)
{
	static const int binary[SESSION_VALUES_MAX] = { 1, 1, 1, 1 };

	session->warned = false;
	session->sqlstate[0] = session->reason[0] = '\0';
	return query->sql != NULL
		   ? PQsendQueryParams(session->conn, query->sql, query->n,
			 NULL, query->values, query->lengths, binary, 1)
		   : PQsendQueryPrepared(session->conn, query->name, query->n,
			 query->values, query->lengths, binary, 1);
}

int
session_wait(struct session *session, int64_t deadline_ms)
{
	int unsent;

	while (
	    (unsent = PQflush(session->conn)) > 0 || PQisBusy(session->conn)) {
		int64_t left_ms = deadline_ms - clock_ms(CLOCK_MONOTONIC);
		struct pollfd ready = { .fd = PQsocket(session->conn),
			.events =
			    (short)(POLLIN | (unsent > 0 ? POLLOUT : 0)) };

		if (left_ms <= 0) {
			errno = ETIMEDOUT;
			return -1;
		}
		if (poll(&ready, 1, (int)left_ms) > 0 &&
		    !PQconsumeInput(session->conn)) {
			errno = EIO;
			return -1;
		}
	}
	return 0;
}

/* An error that came before the statement's end. */
static bool
is_refusal(const char *sqlstate)
{
	/*
	 * 08: the connection; 40003: not known by what the server says itself;
	 * 57P: it goes down; 58, XX: it may be broken.
	 */
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

	for (;;) {
		if (session_wait(session, deadline_ms) < 0) {
			if (errno == ETIMEDOUT)
				print_reason(session->reason,
				    "no answer within the deadline");
			else
				print_reason(session->reason,
				    PQerrorMessage(session->conn));
			return SESSION_UNKNOWN;
		}
		result = PQgetResult(session->conn);
		if (result == NULL)
			break;
		if (*rows == NULL &&
		    (PQresultStatus(result) == PGRES_TUPLES_OK ||
			PQresultStatus(result) == PGRES_COMMAND_OK)) {
			*rows = result;
			status = SESSION_DONE;
			continue;
		}
		session_note(session, result);
		PQclear(result);
		status = *rows == NULL && is_refusal(session->sqlstate)
			     ? SESSION_REFUSED
			     : SESSION_UNKNOWN;
	}
	if (status == SESSION_DONE && session->warned)
		status = SESSION_UNKNOWN;
	return status;
}

enum session_result
session_run(struct session *session, const struct session_query *query,
    int64_t deadline_ms, PGresult **rows)
{
	enum session_result status = SESSION_UNKNOWN;

	*rows = NULL;
	if (session_send(session, query))
		status = collect(session, deadline_ms, rows);
	else
		print_reason(session->reason, PQerrorMessage(session->conn));
	if (status != SESSION_DONE) {
		PQclear(*rows);
		*rows = NULL;
	}
	return status;
}

bool
session_is_alive(struct session *session)
{
	return PQconsumeInput(session->conn) != 0 &&
	       PQstatus(session->conn) == CONNECTION_OK;
}

static const char *
setup_remedy(const char *sqlstate)
{
	for (size_t i = 0; i < sizeof(setup_errors) / sizeof(setup_errors[0]);
	     i++)
		if (strncmp(sqlstate, setup_errors[i].prefix,
			strlen(setup_errors[i].prefix)) == 0)
			return setup_errors[i].remedy;
	return NULL;
}

/* What stands in quotes may be a part of a password. */
static void
print_unreadable(char *reason, const char *message)
{
	const char *first = strchr(message, '"');
	const char *last = strrchr(message, '"');
	char plain[SESSION_REASON_MAX];

	if (first == NULL)
		snprintf(plain, sizeof(plain), "%s", message);
	else
		snprintf(plain, sizeof(plain), "%.*s...%s",
		    (int)(first - message), message, last + 1);
	print_reason(reason, plain);
}

/* The code of a server's refusal to connect stands as ": 28P01: "; or NULL. */
static const char *
find_setup_remedy(const char *message)
{
	static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	const char *remedy = NULL;

	while (remedy == NULL && (message = strstr(message, ":  ")) != NULL) {
		message += 3;
		if (strspn(message, letters) == SESSION_SQLSTATE_LEN &&
		    message[SESSION_SQLSTATE_LEN] == ':')
			remedy = setup_remedy(message);
	}
	return remedy;
}

/* Why there is no connection. */
static enum fault
explain(PGconn *conn, const char *const *names, const char *const *values,
    bool prompt, char *reason)
{
	const char *remedy = NULL;
	bool setup = PQconnectionNeedsPassword(conn);

	if (setup)
		remedy = "; put it into the connection string or a file of "
			 "passwords";
	if (!setup && prompt) {
		remedy = find_setup_remedy(PQerrorMessage(conn));
		/* Such as an unknown sslmode. */
		setup = remedy != NULL ||
			PQpingParams(names, values, 1) == PQPING_NO_ATTEMPT;
	}
	print_reason(reason, PQerrorMessage(conn));
	if (remedy != NULL)
		strncat(
		    reason, remedy, SESSION_REASON_MAX - 1 - strlen(reason));
	return setup ? FAULT_SETUP : FAULT_BUSY;
}

/* NULL: `fault` and `reason` are set. */
static PGconn *
connect_server(const char *database, enum fault *fault, char *reason)
{
	/* The connection string may override those before it. */
	static const char *const names[] = { "connect_timeout",
		"tcp_user_timeout", "keepalives_idle", "keepalives_interval",
		"keepalives_count", "target_session_attrs", "application_name",
		"dbname", "client_encoding", NULL };
	const char *values[] = { "2", "3000", "2", "1", "2", "read-write",
		"plant-store", database, "UTF8", NULL };
	char *message = NULL;
	PQconninfoOption *options = PQconninfoParse(database, &message);

	if (options == NULL) {
		*fault = FAULT_SETUP;
		print_unreadable(
		    reason, message != NULL ? message : "no memory");
		PQfreemem(message);
		return NULL;
	}
	PQconninfoFree(options);
	int64_t begin_ms = clock_ms(CLOCK_MONOTONIC);
	PGconn *conn = PQconnectdbParams(names, values, 1);
	if (conn == NULL) {
		*fault = FAULT_MEMORY;
		print_reason(reason, "no memory");
		return NULL;
	}
	bool prompt = clock_ms(CLOCK_MONOTONIC) - begin_ms < PROMPT_MS;
	if (PQstatus(conn) != CONNECTION_OK && prompt) {
		/* Once more, to hear the code of the refusal. */
		PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
		PQreset(conn);
		PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
	}
	if (PQstatus(conn) == CONNECTION_OK)
		return conn;
	*fault = explain(conn, names, values, prompt, reason);
	PQfinish(conn);
	return NULL;
}

/* What the server is and has; NULL, or what is wrong with it. */
static const char *
judge(struct session *session, const PGresult *row)
{
	const char *encoding =
	    PQparameterStatus(session->conn, "server_encoding");

	if (PQserverVersion(session->conn) < SERVER_VERSION_MIN)
		return "the server is older than PostgreSQL 12";
	if (encoding == NULL || strcmp(encoding, "UTF8") != 0)
		return "the database's encoding is not UTF8: create one with "
		       "ENCODING 'UTF8' TEMPLATE template0";
	if (row == NULL)
		return NULL;
	if (strcmp(PQgetvalue(row, 0, 0), SCHEMA_VERSION) != 0)
		return "the table plants_schema has another version "
		       "than " SCHEMA_VERSION ": the tables are of another "
		       "version of plant-store";
	if (strcmp(PQgetvalue(row, 0, 1), "off") == 0)
		return "the server has fsync = off, so a power cut would lose "
		       "plants: set it to on";
	if (strcmp(PQgetvalue(row, 0, 2), "off") == 0)
		return "the server has full_page_writes = off, so a power cut "
		       "could damage plants: set it to on";
	snprintf(session->standbys, sizeof(session->standbys), "%s",
	    PQgetvalue(row, 0, 3));
	return NULL;
}

/* Run a statement of the check. */
static enum fault
check_query(struct session *session, const char *sql, PGresult **rows)
{
	const struct session_query query = { .sql = sql };
	enum session_result status = session_run(session, &query,
	    clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS, rows);
	const char *remedy = setup_remedy(session->sqlstate);

	if (status == SESSION_DONE)
		return FAULT_NONE;
	if (remedy == NULL)
		return FAULT_BUSY;
	strncat(session->reason, remedy,
	    SESSION_REASON_MAX - 1 - strlen(session->reason));
	return FAULT_SETUP;
}

static enum fault
check_server(struct session *session)
{
	PGresult *row = NULL;
	const char *wrong = judge(session, NULL);
	enum fault fault = FAULT_NONE;

	if (wrong == NULL)
		fault = check_query(session, SETUP, &row);
	if (wrong == NULL && fault == FAULT_NONE)
		wrong = judge(session, row);
	PQclear(row);
	if (wrong == NULL)
		return fault;
	print_reason(session->reason, wrong);
	return FAULT_SETUP;
}

/* Planning a statement shows what the tables lack and what we may. */
static enum fault
check_tables(struct session *session)
{
	static const char *const statements[] = {
		"EXPLAIN " INSERT("NULL", "NULL", "NULL", "NULL"),
		"EXPLAIN " REPEAT("NULL"),
		"PREPARE " INSERT_NAME
		" (bigint[], text[], text[], timestamptz[]) AS " INSERT(
		    "$1", "$2", "$3", "$4"),
		"PREPARE " REPEAT_NAME " (bigint[]) AS " REPEAT("$1"),
	};
	enum fault fault = FAULT_NONE;
	PGresult *rows;

	for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]) &&
			   fault == FAULT_NONE;
	     i++) {
		fault = check_query(session, statements[i], &rows);
		if (fault == FAULT_NONE)
			PQclear(rows);
	}
	return fault;
}

struct session *
session_open(const char *database, bool writes, enum fault *fault,
    char reason[static SESSION_REASON_MAX])
{
	struct session *session = calloc(1, sizeof(*session));

	if (session == NULL) {
		*fault = FAULT_MEMORY;
		print_reason(reason, "no memory");
		return NULL;
	}
	session->conn = connect_server(database, fault, reason);
	if (session->conn == NULL) {
		free(session);
		return NULL;
	}
	PQsetNoticeReceiver(session->conn, receive_notice, session);
	PQsetnonblocking(session->conn, 1);
	*fault = check_server(session);
	if (*fault == FAULT_NONE && writes)
		*fault = check_tables(session);
	if (*fault == FAULT_NONE)
		return session;
	print_reason(reason, session->reason);
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
