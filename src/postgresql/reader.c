/*
 * reader: reads plants in one transaction, which sees the table as it was at
 * its begin.  The server sends the rows of a walk one by one, so memory does
 * not grow with them.
 */
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "pure/timestamp.h"

/* The watch is called after so much was read, and while nothing comes. */
#define STEP_BYTES ((uint64_t)1 << 20)
#define STEP_MS 200

/* The time in milliseconds since 1970, in what all these databases document. */
#define SELECT                         \
	"SELECT id, plant, stored_by," \
	" (extract(epoch FROM stored_at) * 1000)::bigint FROM plants"

struct store_reader {
	const struct engine *engine; /* engine.h: first */
	struct session *session;
	struct watch watch;
	char since[TIMESTAMP_LEN + 1]; /* "": all */
	bool walking, ended;
	enum fault fault;
	PGresult *row; /* that the last record points into */
	char at[TIMESTAMP_LEN];
	uint64_t plants, bytes, next_step;
};

/* After an error of session_wait or of a statement. */
static enum fault
end_badly(struct store_reader *reader, enum fault fault)
{
	reader->ended = true;
	reader->fault = fault;
	if (fault == FAULT_BUSY)
		log_error("the database: cannot read: %s",
		    reader->session->reason[0] != '\0'
			? reader->session->reason
			: PQerrorMessage(reader->session->conn));
	return fault;
}

/* Run a statement that is short.  NULL: `fault` is set. */
static PGresult *
run(struct store_reader *reader, const char *sql, int n,
    const char *const *values, enum fault *fault)
{
	PGresult *rows;

	*fault = FAULT_NONE;
	if (session_run(reader->session, sql, NULL, n, values,
		clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS,
		&rows) != SESSION_DONE)
		*fault = end_badly(reader, FAULT_BUSY);
	return rows;
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
	if (since != NULL)
		memcpy(reader->since, since, TIMESTAMP_LEN);
	reader->session = session_open(options->database, false, fault, reason);
	if (reader->session == NULL)
		log_error("the database: %s", reason);
	else
		PQclear(run(reader,
		    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", 0, NULL,
		    fault));
	if (*fault == FAULT_NONE)
		return reader;
	reader_close(reader);
	return NULL;
}

/*
 * The record of the first row; it points into `row`, which is kept.  Others may
 * have written it.
 */
static enum fault
fill(struct store_reader *reader, PGresult *row, struct record *record)
{
	PQclear(reader->row);
	reader->row = row;
	timestamp_print(strtoll(PQgetvalue(row, 0, 3), NULL, 10), reader->at);
	*record = (struct record){
		.at = reader->at,
		.by = PQgetvalue(row, 0, 2),
		.by_len = (size_t)PQgetlength(row, 0, 2),
		.id = strtoll(PQgetvalue(row, 0, 0), NULL, 10),
		.plant = PQgetvalue(row, 0, 1),
		.plant_len = (size_t)PQgetlength(row, 0, 1),
	};
	if (record_is_canonical(record))
		return FAULT_NONE;
	log_error("the database: the row with the id %" PRId64
		  " was not written by plant-store: restore its plant and "
		  "stored_by, or remove it",
	    record->id);
	return FAULT_DAMAGED;
}

static bool
begin_walk(struct store_reader *reader)
{
	const char *since =
	    reader->since[0] != '\0' ? reader->since : "-infinity";

	reader->walking = true;
	return session_send(reader->session,
		   SELECT " WHERE stored_at >= $1::timestamptz"
			  " ORDER BY stored_at, id",
		   NULL, 1, &since) &&
	       PQsetSingleRowMode(reader->session->conn);
}

/* The next row of the walk, NULL at the end, however long it takes. */
static enum fault
next_row(struct store_reader *reader, PGresult **row)
{
	if (!reader->walking && !begin_walk(reader))
		return FAULT_BUSY;
	while (session_wait(
		   reader->session, clock_ms(CLOCK_MONOTONIC) + STEP_MS) < 0) {
		if (errno != ETIMEDOUT)
			return FAULT_BUSY;
		if (!watch_step(&reader->watch, reader->bytes, 0))
			return FAULT_STOPPED;
	}
	*row = PQgetResult(reader->session->conn);
	if (PQresultStatus(*row) == PGRES_SINGLE_TUPLE)
		return FAULT_NONE;
	bool ended = PQresultStatus(*row) == PGRES_TUPLES_OK;
	if (!ended)
		session_note(reader->session, *row);
	PQclear(*row);
	*row = NULL;
	return ended ? FAULT_NONE : FAULT_BUSY;
}

bool
reader_next(struct store_reader *reader, struct record *record)
{
	enum fault fault;
	PGresult *row;

	if (reader->ended)
		return false;
	fault = next_row(reader, &row);
	if (fault == FAULT_NONE && row == NULL) {
		reader->ended = true;
		return false;
	}
	if (fault == FAULT_NONE)
		fault = fill(reader, row, record);
	reader->bytes += fault == FAULT_NONE ? record->plant_len : 0;
	if (fault == FAULT_NONE && reader->bytes >= reader->next_step) {
		reader->next_step = reader->bytes + STEP_BYTES;
		if (!watch_step(&reader->watch, reader->bytes, 0))
			fault = FAULT_STOPPED;
	}
	if (fault != FAULT_NONE)
		end_badly(reader, fault);
	reader->plants += fault == FAULT_NONE;
	return fault == FAULT_NONE;
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
	char text[sizeof("-9223372036854775808")];
	const char *values[] = { text };
	enum fault fault;

	snprintf(text, sizeof(text), "%" PRId64, id);
	PGresult *row =
	    run(reader, SELECT " WHERE id = $1::bigint", 1, values, &fault);
	if (fault == FAULT_NONE && PQntuples(row) > 0)
		return fill(reader, row, record);
	PQclear(row);
	return fault == FAULT_NONE ? FAULT_ABSENT : fault;
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
		snprintf(text, sizeof(text), "%s", figures[i][1]);
		for (char *c = text; *c != '\0'; c++)
			if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
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
	PQclear(reader->row);
	session_close(reader->session);
	free(reader);
}
