/*
 * reader: reads plants in one transaction, which sees the table as it was at
 * its begin.  A cursor gives the rows of a walk some at a time, so memory does
 * not grow with them.
 *
 * Behind a cursor of store.h it is a feed: plants in the order of their
 * transactions' numbers, below the bound, the lowest number of those that run:
 * none can appear there later.  So none is held open; each page is a query.
 */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "pure/timestamp.h"

/* In memory at once: mostly some KiB, at most 100 MiB. */
#define FETCH "FETCH 100 FROM walk"
/* The server may sort all rows first. */
#define FETCH_TIMEOUT_MS 60000

/* The time in milliseconds since 1970, in what all these databases document. */
/* clang-format off */
#define VALUES "SELECT id, plant, stored_by," \
	" (extract(epoch FROM stored_at) OPERATOR(pg_catalog.*) 1000)::bigint"
#define SELECT VALUES " FROM plants"
#define COLUMNS 4

/* A place is the row that was read last; its sum is "-" if there is none. */
#define SUM "md5(plant || extract(epoch FROM stored_at)::text)"
#define FEED VALUES ", tx, " SUM " FROM plants WHERE " BEHIND "'%" PRIu64 \
	"'::xid8 ORDER BY tx, id LIMIT 100"
#define FEED_COLUMNS 6
#define PLACE "('%" PRIu64 "'::xid8, '%" PRId64 "'::bigint)"
#define BEHIND "(tx, id) > " PLACE " AND tx < "
/* Sorted, as then the index is used. */
#define ANY(condition) "coalesce((SELECT 't' FROM plants WHERE " condition \
	" ORDER BY tx, id LIMIT 1), '')"
/*
 * In one snapshot: the system, the bound; whether there are rows below it, some
 * that no transaction of this system can have stored, and the place's row.
 */
#define LOOK "SELECT system_identifier, pg_snapshot_xmin(s), " \
	ANY(BEHIND "pg_snapshot_xmin(s)") ", " \
	ANY("tx >= pg_snapshot_xmax(s)") ", " \
	ANY("(tx, id) = " PLACE " AND " SUM " = '%s'") \
	" FROM pg_control_system(), pg_current_snapshot() AS s"
#define LOOK_COLUMNS 5
#define SQL_MAX 1024
#define CURSOR(by, sum) "postgresql %" by##d64 " %" by##u64 " %" by##d64 " " sum
/* clang-format on */

struct place {
	uint64_t tx;
	int64_t id;
	char sum[33];
};

struct store_reader {
	const struct reader_engine *engine; /* reader.h: first */
	const char *database;
	struct session *session;
	struct watch watch;
	char since[sizeof("infinity") + TIMESTAMP_LEN];
	bool walking, ended;
	enum fault fault;
	PGresult *rows; /* that the last record points into, */
	int next;       /* and the row behind it */
	char at[TIMESTAMP_LEN];
	uint64_t plants, bytes;
	bool feed, more, count; /* more: from the place to the bound */
	struct place before, place;
	uint64_t bound;
	int64_t system;                   /* 0: not known yet */
	char trouble[SESSION_REASON_MAX]; /* that was logged last */
};

/* Who follows meets the same trouble four times a second. */
static enum fault
fail(struct store_reader *reader, const char *reason)
{
	if (strcmp(reader->trouble, reason) != 0)
		log_error("the database: cannot read: %s", reason);
	snprintf(reader->trouble, sizeof(reader->trouble), "%s", reason);
	return FAULT_BUSY;
}

/* Run a statement; its rows take the place of those before. */
static enum fault
run(struct store_reader *reader, const char *sql, int columns,
    int64_t timeout_ms)
{
	const struct statement statement = { sql, columns, 0, NULL };

	PQclear(reader->rows);
	reader->next = 0;
	if (session_run(reader->session, &statement,
		clock_ms(CLOCK_MONOTONIC) + timeout_ms,
		&reader->rows) == SESSION_DONE)
		return FAULT_NONE;
	(void)fail(reader, reader->session->reason);
	return reader->feed && strncmp(reader->session->sqlstate, "42", 2) == 0
		   ? FAULT_SETUP
		   : FAULT_BUSY;
}

static void
reader_close(struct store_reader *reader)
{
	if (reader == NULL)
		return;
	PQclear(reader->rows);
	session_close(reader->session);
	free(reader);
}

static struct store_reader *
reader_open(
    const struct store_options *options, const char *since, enum fault *fault)
{
	struct store_reader *reader = calloc(1, sizeof(*reader));
	char reason[SESSION_REASON_MAX];

	if (reader == NULL) {
		*fault = fault_report("the database", "cannot read");
		return NULL;
	}
	reader->engine = &reader_engine;
	reader->database = options->database;
	reader->count = options->count;
	if (options->watch != NULL)
		reader->watch = *options->watch;
	snprintf(reader->since, sizeof(reader->since), "%.*s", TIMESTAMP_LEN,
	    since != NULL ? since : "-infinity");
	reader->session = session_open(options->database, false, fault, reason);
	if (reader->session == NULL)
		log_error("the database: %s", reason);
	else
		*fault = run(reader,
		    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", 0,
		    SESSION_TIMEOUT_MS);
	if (*fault == FAULT_NONE)
		return reader;
	reader_close(reader);
	return NULL;
}

/* That of the row at hand; false: it was not asked for. */
static bool
take_place(struct store_reader *reader, int64_t id)
{
	int row = reader->next - 1;
	const char *sum = PQgetvalue(reader->rows, row, COLUMNS + 1);
	uint64_t tx =
	    strtoull(PQgetvalue(reader->rows, row, COLUMNS), NULL, 10);

	reader->before = reader->place;
	reader->place = (struct place){ tx, id, "" };
	snprintf(reader->place.sum, sizeof(reader->place.sum), "%s", sum);
	return strspn(reader->place.sum, "0123456789abcdef") == 32 &&
	       tx < reader->bound &&
	       (tx > reader->before.tx ||
		   (tx == reader->before.tx && id > reader->before.id));
}

/* The record of the next row, which others may have written. */
static enum fault
fill(struct store_reader *reader, struct record *record)
{
	const PGresult *rows = reader->rows;
	int row = reader->next++;

	timestamp_print(
	    strtoll(PQgetvalue(rows, row, 3), NULL, 10), reader->at);
	*record = (struct record){
		.at = reader->at,
		.by = PQgetvalue(rows, row, 2),
		.by_len = (size_t)PQgetlength(rows, row, 2),
		.id = strtoll(PQgetvalue(rows, row, 0), NULL, 10),
		.plant = PQgetvalue(rows, row, 1),
		.plant_len = (size_t)PQgetlength(rows, row, 1),
	};
	if (record_is_canonical(record))
		return FAULT_NONE;
	log_error("the database: the row with the id %" PRId64
		  " was not written by plant-store: restore its plant and "
		  "stored_by, or remove it",
	    record->id);
	return FAULT_DAMAGED;
}

/* Some more rows; none at the end. */
static enum fault
fetch(struct store_reader *reader)
{
	char sql[sizeof("DECLARE walk CURSOR FOR " SELECT
			" WHERE stored_at >= '' ORDER BY stored_at, id") +
		 sizeof(reader->since)];
	char feed[SQL_MAX];
	enum fault fault = FAULT_NONE;

	if (!watch_step(&reader->watch, reader->bytes, 0))
		return FAULT_STOPPED;
	if (reader->feed && reader->more) {
		sprintf(feed, FEED, reader->place.tx, reader->place.id,
		    reader->bound);
		fault = run(reader, feed, FEED_COLUMNS, FETCH_TIMEOUT_MS);
		reader->more = PQntuples(reader->rows) > 0;
		if (reader->more)
			reader->trouble[0] = '\0';
	}
	if (reader->feed)
		return fault;
	if (!reader->walking) {
		sprintf(sql,
		    "DECLARE walk CURSOR FOR " SELECT
		    " WHERE stored_at >= '%s' ORDER BY stored_at, id",
		    reader->since);
		reader->walking = true;
		fault = run(reader, sql, 0, SESSION_TIMEOUT_MS);
	}
	return fault == FAULT_NONE
		   ? run(reader, FETCH, COLUMNS, FETCH_TIMEOUT_MS)
		   : fault;
}

static bool
reader_next(struct store_reader *reader, struct record *record)
{
	if (reader->ended)
		return false;
	if (reader->next == PQntuples(reader->rows))
		reader->fault = fetch(reader);
	reader->ended = reader->next == PQntuples(reader->rows);
	if (reader->fault == FAULT_NONE && !reader->ended)
		reader->fault = fill(reader, record);
	if (reader->feed && reader->fault == FAULT_NONE && !reader->ended &&
	    !take_place(reader, record->id)) {
		reader->place = reader->before;
		reader->fault = fail(reader, "rows that were not asked for");
	}
	if (reader->fault != FAULT_NONE)
		reader->ended = true;
	else if (!reader->ended) {
		reader->plants++;
		reader->bytes += record->plant_len;
	}
	return !reader->ended;
}

static enum fault
reader_end(struct store_reader *reader, char *where)
{
	snprintf(where, STORE_WHERE_MAX, "row %" PRIu64, reader->plants);
	return reader->fault;
}

/* --- The feed --- */

/* Take the bound; what is below it may be on the primary alone, so `wait`. */
static enum fault
look(struct store_reader *reader, bool wait)
{
	const struct place *at = &reader->place;
	const char *why = NULL;
	char sql[SQL_MAX];

	sprintf(sql, LOOK, at->tx, at->id, at->tx, at->id, at->sum);
	enum fault fault = run(reader, sql, LOOK_COLUMNS, FETCH_TIMEOUT_MS);
	const PGresult *row = reader->rows;
	if (fault != FAULT_NONE)
		return fault;
	if (PQntuples(row) != 1)
		return fail(reader, "rows that were not asked for");
	int64_t system = strtoll(PQgetvalue(row, 0, 0), NULL, 10);
	if (system == 0)
		return fail(reader, "no system_identifier");
	if (reader->system != 0 && reader->system != system)
		why = "of another system than the cursor";
	else if (PQgetlength(row, 0, 3) > 0)
		why = "transactions have lower numbers than its plants, as in "
		      "another system after a restore; number them anew, and "
		      "begin with new cursors: plant-store schema --feed | "
		      "psql";
	fault = FAULT_SETUP;
	if (why == NULL && at->sum[0] != '-' && PQgetlength(row, 0, 4) == 0) {
		why = "without the row that was read last: it was restored, "
		      "or its plants were numbered anew";
		fault = FAULT_DAMAGED;
	}
	if (why != NULL) {
		log_error("the database: %s", why);
		return fault;
	}
	reader->system = system;
	reader->bound = strtoull(PQgetvalue(row, 0, 1), NULL, 10);
	reader->more = PQgetlength(row, 0, 2) > 0;
	fault = FAULT_NONE;
	if (reader->count) {
		reader->bound = UINT64_MAX;
		reader->more = true;
	} else if (reader->more || wait)
		fault = run(reader, session_confirm, 1, SESSION_TIMEOUT_MS);
	if (fault == FAULT_NONE && PQntuples(reader->rows) == 0)
		fault = fail(reader, "a commit is waiting; is a standby away?");
	if (fault == FAULT_NONE && !reader->more)
		reader->trouble[0] = '\0';
	return fault;
}

static enum fault
reader_more(struct store_reader *reader)
{
	char reason[SESSION_REASON_MAX];
	enum fault fault = FAULT_NONE;

	if (reader->fault != FAULT_NONE) {
		session_close(reader->session);
		reader->session =
		    session_open(reader->database, false, &fault, reason);
		if (reader->session == NULL)
			(void)fail(reader, reason);
	}
	if (fault == FAULT_NONE)
		fault = look(reader, false);
	reader->next = PQntuples(reader->rows);
	reader->fault = fault;
	reader->ended = fault != FAULT_NONE;
	return fault;
}

static enum fault
reader_resume(struct store_reader *reader, const char *cursor)
{
	struct place *place = &reader->place;

	strcpy(place->sum, "-");
	if (cursor != NULL && *cursor != '\0' &&
	    sscanf(cursor, CURSOR(SCN, "%32[-0-9a-f]"), &reader->system,
		&place->tx, &place->id, place->sum) != 4) {
		log_error("the database: the cursor is one of a journal");
		return FAULT_SETUP;
	}
	reader->feed = true;
	enum fault fault = run(reader, "ROLLBACK", 0, SESSION_TIMEOUT_MS);
	if (fault == FAULT_NONE)
		fault = look(reader, cursor == NULL);
	/* No later transaction gets these numbers, also after a failover. */
	if (cursor == NULL) {
		*place = (struct place){ reader->bound - 1, INT64_MAX, "-" };
		reader->more = false;
	}
	reader->next = PQntuples(reader->rows);
	reader->before = *place;
	return fault;
}

static void
reader_cursor(struct store_reader *reader, bool before, char *cursor)
{
	const struct place *place = before ? &reader->before : &reader->place;

	snprintf(cursor, STORE_CURSOR_MAX, CURSOR(PRI, "%s"), reader->system,
	    place->tx, place->id, place->sum);
}

static enum fault
reader_find(struct store_reader *reader, int64_t id, struct record *record)
{
	char sql[sizeof(SELECT " WHERE id = -9223372036854775808")];

	sprintf(sql, SELECT " WHERE id = %" PRId64, id);
	enum fault fault = run(reader, sql, COLUMNS, SESSION_TIMEOUT_MS);
	if (fault == FAULT_NONE && PQntuples(reader->rows) == 0)
		fault = FAULT_ABSENT;
	if (fault == FAULT_NONE)
		fault = fill(reader, record);
	if (fault != FAULT_NONE || record->id == id)
		return fault;
	log_error("the database: its answer has another id");
	return FAULT_BUSY;
}

static enum fault
reader_figures(struct store_reader *reader, store_figure *each, void *context)
{
	PGconn *conn = reader->session->conn;
	const char *standbys = reader->session->standbys;
	const char *const figures[][2] = { { "database", PQdb(conn) },
		{ "host", PQhost(conn) }, { "port", PQport(conn) },
		{ "server", PQparameterStatus(conn, "server_version") },
		{ "standbys", standbys[0] != '\0' ? standbys : "none" } };
	char text[128];

	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		/* It goes into JSON as it is; names may stand in quotes. */
		snprintf(text, sizeof(text), "%s",
		    figures[i][1] != NULL ? figures[i][1] : "unknown");
		for (char *c = text; *c != '\0'; c++)
			if (*c == '"' || *c == '\\' || *c < ' ' || *c > '~')
				*c = '\'';
		each(context, figures[i][0], text, 0);
	}
	return FAULT_NONE;
}

const struct reader_engine reader_engine = {
	.open = reader_open,
	.next = reader_next,
	.end = reader_end,
	.find = reader_find,
	.figures = reader_figures,
	.close = reader_close,
	.resume = reader_resume,
	.cursor = reader_cursor,
	.more = reader_more,
	.schema = { schema_tables, schema_roles, schema_feed },
};
