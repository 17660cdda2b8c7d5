/*
 * query: reads plants.  A walk is one transaction, which sees a snapshot of the
 * table.  An SQL cursor returns a few rows at a time, so memory does not grow.
 *
 * A reader that resumes at a cursor is a feed: it reads plants in the order of
 * their transactions' numbers, below a bound.  The bound is the lowest number
 * of a running transaction: no row can appear below it later.  So the feed
 * needs no open transaction; each page is a separate query.
 */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/log.h"
#include "pure/timestamp.h"

/* The rows in memory at once: usually a few KiB, at most 100 MiB. */
#define FETCH "FETCH 100 FROM walk"
/* The server may sort all rows first. */
#define FETCH_TIMEOUT_MS 60000

/* clang-format off */
/* Times in ms since 1970, in SQL that other databases also document. */
#define VALUES "SELECT id, plant, stored_by," \
	" (extract(epoch FROM stored_at) OPERATOR(pg_catalog.*) 1000)::bigint"
#define COLUMNS 4
#define BEGIN "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
#define WALK "DECLARE walk CURSOR FOR " VALUES " FROM plants" \
	" WHERE stored_at >= '%.*s' ORDER BY %s, id"
#define FIND VALUES " FROM plants WHERE id = %" PRId64

/* A position: tx, id, SUM of the row read last; SUM is "-" before the first. */
#define SUM "left(encode(sha256(convert_to(plant ||" \
	" extract(epoch FROM stored_at)::text, 'UTF8')), 'hex'), 32)"
#define PLACE "('%" PRIu64 "'::xid8, '%" PRId64 "'::bigint)"
#define BEHIND "(tx, id) > " PLACE " AND tx < "
#define FEED VALUES ", tx, " SUM " FROM plants WHERE " BEHIND "'%" PRIu64 \
	"'::xid8 ORDER BY tx, id LIMIT 100"
#define FEED_COLUMNS 6
/* ORDER BY makes the database use the index. */
#define ANY(condition) "coalesce((SELECT 't' FROM plants WHERE " condition \
	" ORDER BY tx, id LIMIT 1), '')"
/*
 * Read in one snapshot: the system, the bound, whether rows lie between the
 * position and the bound, whether any row cannot be from a transaction of this
 * system, and whether the position's row exists.
 */
#define BOUND "SELECT system_identifier, pg_snapshot_xmin(s), " \
	ANY(BEHIND "pg_snapshot_xmin(s)") ", " \
	ANY("tx >= pg_snapshot_xmax(s)") ", " \
	ANY("(tx, id) = " PLACE " AND " SUM " = '%s'") \
	" FROM pg_control_system(), pg_current_snapshot() AS s"
enum { SYSTEM, XMIN, ROWS_BELOW, ROWS_ABOVE, ROW_OF_PLACE, BOUND_COLUMNS };
#define SQL_MAX 1024
#define CURSOR(by, sum) "postgresql %" by##d64 " %" by##u64 " %" by##d64 " " sum
/* clang-format on */

struct place {
	uint64_t tx;
	int64_t id;
	char sum[33];
};

struct store_reader {
	struct store_options options;
	struct session session; /* its rows hold the last record's strings */
	int row;                /* the current one */
	const char *since;
	enum fault fault;
	char at[TIMESTAMP_LEN];
	uint64_t plants, bytes;
	bool feed, more; /* more: rows remain up to the bound */
	struct place place;
	uint64_t bound;
	int64_t system; /* 0: not known yet */
	struct trouble trouble;
};

/* A follower repeats the same fault four times a second. */
static enum fault
fail(struct store_reader *reader, const char *reason)
{
	trouble_log(&reader->trouble, "the database: cannot read", reason);
	return FAULT_BUSY;
}

/* Run SQL; its rows replace those of the last statement. */
static enum fault
run(struct store_reader *reader, const char *sql, int columns, int timeout_ms)
{
	enum fault fault =
	    session_query(&reader->session, sql, columns, timeout_ms);

	reader->row = 0;
	if (fault != FAULT_NONE)
		(void)fail(reader, reader->session.reason);
	return fault;
}

static void
reader_close(struct store_reader *reader)
{
	if (reader == NULL)
		return;
	session_close(&reader->session);
	free(reader);
}

static struct store_reader *
reader_open(
    const struct store_options *options, const char *since, enum fault *fault)
{
	struct store_reader *reader = calloc(1, sizeof(*reader));

	if (reader == NULL) {
		*fault = fault_report("the database", "cannot read");
		return NULL;
	}
	reader->options = *options;
	reader->since = since != NULL ? since : "-infinity";
	*fault = session_open(&reader->session, options->database);
	if (*fault == FAULT_NONE)
		return reader;
	log_error("the database: %s", reader->session.reason);
	reader_close(reader);
	return NULL;
}

/* Return a value of the current row. */
static const char *
value(const struct store_reader *reader, int column)
{
	return PQgetvalue(reader->session.rows, reader->row, column);
}

/* Read the current row, which another program may have written. */
static enum fault
read_record(struct store_reader *reader, struct record *record)
{
	timestamp_print(strtoll(value(reader, 3), NULL, 10), reader->at);
	*record = (struct record){
		.at = reader->at,
		.by = value(reader, 2),
		.by_len = strlen(value(reader, 2)),
		.id = strtoll(value(reader, 0), NULL, 10),
		.plant = value(reader, 1),
		.plant_len = strlen(value(reader, 1)),
	};
	if (record_is_canonical(record))
		return FAULT_NONE;
	log_error("the database: the row with the id %" PRId64
		  " was not written by plant-store: restore its plant and "
		  "stored_by, or remove it",
	    record->id);
	return FAULT_DAMAGED;
}

static enum fault
reader_find(struct store_reader *reader, int64_t id, struct record *record)
{
	char sql[SQL_MAX];

	sprintf(sql, FIND, id);
	enum fault fault = run(reader, sql, COLUMNS, SESSION_TIMEOUT_MS);
	if (fault != FAULT_NONE)
		return fault;
	if (PQntuples(reader->session.rows) == 0)
		return FAULT_ABSENT;
	fault = read_record(reader, record);
	return fault != FAULT_NONE || record->id == id
		   ? fault
		   : fail(reader, "unexpected rows");
}

/* Set the position to the current row; fail if FEED cannot return that row. */
static enum fault
set_place(struct store_reader *reader, int64_t id)
{
	const struct place *before = &reader->place;
	struct place place = { strtoull(value(reader, COLUMNS), NULL, 10), id,
		"" };

	snprintf(
	    place.sum, sizeof(place.sum), "%s", value(reader, COLUMNS + 1));
	if (strspn(place.sum, "0123456789abcdef") != 32 ||
	    place.tx >= reader->bound || place.tx < before->tx ||
	    (place.tx == before->tx && id <= before->id))
		return fail(reader, "unexpected rows");
	reader->place = place;
	return FAULT_NONE;
}

/* Fetch more rows; at the end there are none. */
static enum fault
fetch(struct store_reader *reader)
{
	char sql[SQL_MAX];
	enum fault fault = FAULT_NONE;

	if (!watch_step(reader->options.watch, reader->bytes, 0))
		return FAULT_STOPPED;
	if (reader->more) {
		sprintf(sql, FEED, reader->place.tx, reader->place.id,
		    reader->bound);
		fault = run(reader, sql, FEED_COLUMNS, FETCH_TIMEOUT_MS);
		reader->more = PQntuples(reader->session.rows) > 0;
	}
	if (reader->feed)
		return fault;
	if (reader->session.rows == NULL) { /* the first rows of a walk */
		fault = run(reader, BEGIN, 0, SESSION_TIMEOUT_MS);
		if (fault != FAULT_NONE)
			return fault;
		/* The order of the table's only index. */
		sprintf(sql, WALK, TIMESTAMP_LEN, reader->since,
		    reader->session.has_tx ? "tx" : "stored_at");
		fault = run(reader, sql, 0, SESSION_TIMEOUT_MS);
		if (fault != FAULT_NONE)
			return fault;
	}
	return run(reader, FETCH, COLUMNS, FETCH_TIMEOUT_MS);
}

static bool
reader_next(struct store_reader *reader, struct record *record)
{
	if (reader->fault == FAULT_NONE &&
	    ++reader->row >= PQntuples(reader->session.rows))
		reader->fault = fetch(reader);
	if (reader->fault != FAULT_NONE ||
	    reader->row >= PQntuples(reader->session.rows))
		return false;
	reader->fault = read_record(reader, record);
	if (reader->fault == FAULT_NONE && reader->feed)
		reader->fault = set_place(reader, record->id);
	if (reader->fault != FAULT_NONE)
		return false;
	reader->plants++;
	reader->bytes += record->plant_len;
	return true;
}

static enum fault
reader_end(struct store_reader *reader, char *where)
{
	snprintf(where, STORE_WHERE_MAX, "row %" PRIu64, reader->plants);
	return reader->fault;
}

/* --- The feed --- */

/*
 * Find the bound.  If rows are below it, set reader->more, once a probe has
 * shown that the standbys have all earlier commits.  A count needs no probe.
 */
static enum fault
find_bound(struct store_reader *reader)
{
	const struct place *at = &reader->place;
	char sql[SQL_MAX];

	sprintf(sql, BOUND, at->tx, at->id, at->tx, at->id, at->sum);
	enum fault fault = run(reader, sql, BOUND_COLUMNS, FETCH_TIMEOUT_MS);
	if (fault != FAULT_NONE)
		return fault;
	int64_t system = PQntuples(reader->session.rows) == 1
			     ? strtoll(value(reader, SYSTEM), NULL, 10)
			     : 0;
	if (system == 0)
		return fail(reader, "unexpected rows");
	if (reader->system != 0 && reader->system != system) {
		log_error("the database: the cursor is from another system");
		return FAULT_SETUP;
	}
	reader->system = system;
	if (value(reader, ROWS_ABOVE)[0] != '\0') {
		log_error("the database: transaction numbers are lower than "
			  "those of the stored plants, as after a restore into "
			  "another system; renumber the plants, and start with "
			  "new cursors: plant-store schema --feed | psql");
		return FAULT_SETUP;
	}
	if (at->sum[0] != '-' && value(reader, ROW_OF_PLACE)[0] == '\0') {
		log_error("the database: the row that was read last is "
			  "missing: the database was restored, or its plants "
			  "were renumbered");
		return FAULT_DAMAGED;
	}
	const bool count = reader->options.count;
	reader->bound =
	    count ? UINT64_MAX : strtoull(value(reader, XMIN), NULL, 10);
	reader->more |= count || value(reader, ROWS_BELOW)[0] != '\0';
	if (!reader->more || count)
		return FAULT_NONE;
	fault = run(reader, SESSION_PROBE("SELECT"), 1, SESSION_TIMEOUT_MS);
	return fault != FAULT_NONE || PQntuples(reader->session.rows) == 1
		   ? fault
		   : fail(reader, "a commit is waiting; is a standby down?");
}

static enum fault
reader_more(struct store_reader *reader)
{
	if (reader->fault == FAULT_NONE)
		reader->trouble.reason[0] = '\0';
	else {
		session_close(&reader->session);
		reader->fault =
		    session_open(&reader->session, reader->options.database);
		if (reader->fault != FAULT_NONE)
			(void)fail(reader, reader->session.reason);
	}
	if (reader->fault == FAULT_NONE)
		reader->fault = find_bound(reader);
	return reader->fault;
}

static enum fault
reader_resume(struct store_reader *reader, const char *cursor)
{
	struct place *place = &reader->place;

	strcpy(place->sum, "-");
	if (cursor != NULL && *cursor != '\0' &&
	    sscanf(cursor, CURSOR(SCN, "%32[-0-9a-f]"), &reader->system,
		&place->tx, &place->id, place->sum) != 4) {
		log_error("the database: the cursor belongs to a journal");
		return FAULT_SETUP;
	}
	reader->feed = true;
	reader->more = cursor == NULL;
	enum fault fault = find_bound(reader);
	/* Later transactions are not below the bound, even after a failover. */
	if (cursor == NULL) {
		*place = (struct place){ reader->bound - 1, INT64_MAX, "-" };
		reader->more = false;
	}
	return fault;
}

static void
reader_cursor(struct store_reader *reader, char *cursor)
{
	const struct place *place = &reader->place;

	snprintf(cursor, STORE_CURSOR_MAX, CURSOR(PRI, "%s"), reader->system,
	    place->tx, place->id, place->sum);
}

static void
reader_figures(struct store_reader *reader, store_figure *each)
{
	PGconn *conn = reader->session.conn;
	const char *standbys = reader->session.standbys;
	const char *const figures[][2] = { { "database", PQdb(conn) },
		{ "host", PQhost(conn) }, { "port", PQport(conn) },
		{ "server", PQparameterStatus(conn, "server_version") },
		{ "standbys", standbys[0] != '\0' ? standbys : "none" } };
	char text[128];

	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		/* `each` escapes nothing, and a name can contain quotes. */
		snprintf(text, sizeof(text), "%s",
		    figures[i][1] != NULL ? figures[i][1] : "unknown");
		for (char *c = text; *c != '\0'; c++)
			if (*c == '"' || *c == '\\' || *c < ' ' || *c > '~')
				*c = '\'';
		each(figures[i][0], text, 0);
	}
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
};
