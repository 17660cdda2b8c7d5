/*
 * reader: reads plants in one transaction, which sees the table as it was at
 * its begin.  A cursor gives the rows of a walk some at a time, so memory does
 * not grow with them.
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
#define SELECT                                                                 \
	"SELECT id, plant, stored_by,"                                         \
	" (extract(epoch FROM stored_at) OPERATOR(pg_catalog.*) 1000)::bigint" \
	" FROM plants"
#define COLUMNS 4

struct store_reader {
	const struct engine *engine; /* engine.h: first */
	struct session *session;
	struct watch watch;
	char since[sizeof("infinity") + TIMESTAMP_LEN];
	bool walking, ended;
	enum fault fault;
	PGresult *rows; /* that the last record points into, */
	int next;       /* and the row behind it */
	char at[TIMESTAMP_LEN];
	uint64_t plants, bytes;
};

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
	log_error("the database: cannot read: %s", reader->session->reason);
	return FAULT_BUSY;
}

struct store_reader *
reader_open(
    const struct store_options *options, const char *since, enum fault *fault)
{
	struct store_reader *reader = calloc(1, sizeof(*reader));
	char reason[SESSION_REASON_MAX];

	if (reader == NULL) {
		*fault = fault_report("the database", "cannot read");
		return NULL;
	}
	reader->engine = &store_engine;
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
	enum fault fault = FAULT_NONE;

	if (!watch_step(&reader->watch, reader->bytes, 0))
		return FAULT_STOPPED;
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

bool
reader_next(struct store_reader *reader, struct record *record)
{
	if (reader->ended)
		return false;
	if (reader->next == PQntuples(reader->rows))
		reader->fault = fetch(reader);
	reader->ended = reader->next == PQntuples(reader->rows);
	if (reader->fault == FAULT_NONE && !reader->ended)
		reader->fault = fill(reader, record);
	if (reader->fault != FAULT_NONE)
		reader->ended = true;
	else if (!reader->ended) {
		reader->plants++;
		reader->bytes += record->plant_len;
	}
	return !reader->ended;
}

enum fault
reader_end(struct store_reader *reader, char *where)
{
	snprintf(where, STORE_WHERE_MAX, "row %" PRIu64, reader->plants);
	return reader->fault;
}

enum fault
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

enum fault
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

void
reader_close(struct store_reader *reader)
{
	if (reader == NULL)
		return;
	PQclear(reader->rows);
	session_close(reader->session);
	free(reader);
}
