/*
 * postgresql: the engine of store/store.h: a pool of sessions, and commits.
 *
 * A commit inserts the batch with one statement (INSERT), which skips the ids
 * that are already stored.  A second one (REPEAT) reads and locks the skipped
 * rows.  Each statement commits, and waits for the server's disk and standbys.
 *
 * Failure modes: after a missed deadline, a lost connection or a warning, it is
 * unknown whether the batch is stored; the session is closed.  If another
 * session has locked an id (perhaps while it waits for a standby), lock_timeout
 * ends the statement, and each id is tried alone.  If no session can be opened,
 * commits return STORE_AWAY; after a pause, one of them tries again.
 *
 * The store counts as ready for PROBE_MS after a confirmed commit; then it is
 * probed.  Once a probe finds a waiting commit, others return STORE_UNKNOWN at
 * once: each would occupy another of the server's few sessions.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/clock.h"
#include "ground/config.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "pure/timestamp.h"
#include "session.h"

/* Between attempts to connect: varied, so that not all services try at once. */
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 2000
/* From a confirmed commit to the next probe. */
#define PROBE_MS 2000
/* The size of one statement's plants.  An import's batches may be larger. */
#define STATEMENT_BYTES_MAX ((size_t)16 << 20)

#define INSERT "plants_insert"
#define REPEAT "plants_repeat"
/* clang-format off */
/* Arrays are sent as lines: no plant, name or time contains a newline. */
#define LINES(text) "string_to_array(" text "::text, chr(10))"
#define UNNEST(text, type) "pg_catalog.unnest(" LINES(text) type ")"
/*
 * The statements of a commit are prepared in each session.  A row that INSERT
 * skips may be visible before a standby has it.  REPEAT locks the row: this
 * writes WAL, so the commit waits until the standby has all earlier WAL.
 */
static const struct {
	const char *sql;
	int columns;
} setup[] = {
	{ .sql = "PREPARE " INSERT " AS"
	    " INSERT INTO plants (id, plant, stored_by, stored_at)"
	    " SELECT * FROM ROWS FROM (" UNNEST("$1", "::bigint[]") ", "
	    UNNEST("$2", "") ", " UNNEST("$3", "") ", "
	    UNNEST("$4", "::timestamptz[]") ")"
	    " ON CONFLICT (id) DO NOTHING RETURNING id" },
	{ .sql = "PREPARE " REPEAT " AS SELECT id, plant FROM plants"
	    " WHERE id = ANY(" LINES("$1") "::bigint[])"
	    " ORDER BY id FOR KEY SHARE" },
	/* Run without plants: a missing table or privilege makes them fail. */
	{ .sql = "EXECUTE " INSERT "(NULL, NULL, NULL, NULL)", .columns = 1 },
	{ .sql = "EXECUTE " REPEAT "(NULL)", .columns = 2 },
};
#define SETUP_N (sizeof(setup) / sizeof(setup[0]))
/* clang-format on */
static const char probe_sql[] = SESSION_PROBE(
    "INSERT INTO plants (id, plant, stored_by, stored_at)"
    " SELECT id, plant, stored_by, stored_at FROM plants WHERE false");
/* A plant of 64 KiB that does not compress, under a random id. */
static const char trial_sql[] =
    "INSERT INTO plants (id, plant, stored_by, stored_at)"
    " SELECT (random() * 9e18)::bigint, string_agg(md5(random()::text), ''),"
    " 'probe', now() FROM generate_series(1, 2048) RETURNING id";

/* The parameters of INSERT; REPEAT has only IDS. */
enum { IDS, PLANTS, BY, AT, COLUMNS };
/* Each thread uses one session at a time. */
#define IDLE_MAX CONFIG_THREADS_MAX

struct store {
	const struct engine *engine; /* engine.h: first */
	const char *database;
	_Atomic unsigned commits;     /* that hold a session or wait for one */
	_Atomic int64_t confirmed_ms; /* the last commit; 0: it failed */
	_Atomic int64_t retry_ms;     /* the next try to connect; 0: not away */
	_Atomic bool waiting;         /* a commit hangs: others are UNKNOWN */
	_Atomic bool refused;         /* the last batch, or its trial */
	_Atomic(struct session *) idle[IDLE_MAX];
	struct trouble trouble;
};

/* An item's result until it is known. */
#define RESULT_OPEN STORE_UNKNOWN

/* The plants of one statement, sorted by id, then in the caller's order. */
struct batch {
	struct session *session;
	struct store_item **items;
	size_t n;
	char *texts; /* memory for the parameters */
};

/* --- Sessions --- */

static void
log_session(const struct session *session, const char *what)
{
	log_info("%s: %s on %s, port %s, version %s; %s%s", what,
	    PQdb(session->conn), PQhost(session->conn), PQport(session->conn),
	    PQparameterStatus(session->conn, "server_version"),
	    session->standbys[0] != '\0'
		? "a 200 response waits for synchronous standbys: "
		: "a 200 response waits only for this server's disk, as "
		  "synchronous_standby_names is empty",
	    session->standbys);
}

static void
drop_session(struct session *session)
{
	if (session != NULL)
		session_close(session);
	free(session);
}

/* Return NULL while the database is away; after a pause, one call connects. */
static struct session *
connect_session(struct store *store, enum fault *fault)
{
	int64_t now_us = clock_us(CLOCK_MONOTONIC), retry_ms = store->retry_ms;

	if (retry_ms != 0 && (now_us / 1000 < retry_ms ||
				 !atomic_compare_exchange_strong(
				     &store->retry_ms, &retry_ms, INT64_MAX)))
		return NULL;
	struct session *session = malloc(sizeof(*session));
	*fault = session != NULL ? session_open(session, store->database)
				 : FAULT_MEMORY;
	for (size_t i = 0; *fault == FAULT_NONE && i < SETUP_N; i++)
		*fault = session_query(session, setup[i].sql, setup[i].columns,
		    SESSION_TIMEOUT_MS);
	if (*fault == FAULT_NONE) {
		if (atomic_exchange(&store->retry_ms, 0) != 0)
			log_session(session, "the database is back");
		return session;
	}
	retry_ms = clock_ms(CLOCK_MONOTONIC) + PAUSE_MIN_MS +
		   now_us % (PAUSE_MAX_MS - PAUSE_MIN_MS);
	if (atomic_exchange(&store->retry_ms, retry_ms) == 0)
		log_error("cannot use the database: %s",
		    session != NULL ? session->reason : "no memory");
	drop_session(session);
	return NULL;
}

/* Return an idle or new session, which the caller gives back; or NULL. */
static struct session *
take_session(struct store *store, bool may_connect)
{
	enum fault fault;

	for (size_t i = 0; i < IDLE_MAX; i++) {
		struct session *session =
		    atomic_exchange(&store->idle[i], NULL);

		if (session != NULL && session_is_alive(session))
			return session;
		/* It was closed while idle, so no commit is lost. */
		drop_session(session);
	}
	return may_connect ? connect_session(store, &fault) : NULL;
}

/* Keep the session for the next commit, unless it is lost.  NULL is allowed. */
static void
give_back(struct store *store, struct session *session)
{
	size_t i = session != NULL && session->lost ? IDLE_MAX : 0;

	for (; session != NULL && i < IDLE_MAX; i++)
		if (store->idle[i] == NULL)
			session = atomic_exchange(&store->idle[i], session);
	drop_session(session);
}

/* --- State --- */

/* After a deadline, no commit is sent until a probe is confirmed. */
static void
note_lost(struct store *store, const struct session *session)
{
	store->confirmed_ms = 0;
	store->waiting |= clock_ms(CLOCK_MONOTONIC) >= session->deadline_ms;
}

/* With "*" any standby confirms, even one that is not promoted later. */
static void
note_standbys(const char *standbys)
{
	bool any = strchr(standbys, '*') != NULL;

	if (atomic_exchange(&metrics[METRICS_ANY_STANDBY], any) != any)
		log_at(any ? LOG_AT_WARNING : LOG_AT_INFO,
		    "synchronous_standby_names is '%s'%s", standbys,
		    any ? ": any standby confirms, and a failover to another "
			  "one would lose plants; see plant-store-postgresql(7)"
			: "");
}

static void
confirm(struct store *store)
{
	store->confirmed_ms = clock_ms(CLOCK_MONOTONIC);
	if (atomic_exchange(&store->waiting, false))
		log_info("the database confirms commits again");
}

/* --- A statement --- */

/* Return whether item `i` is the first with its id and has no result yet. */
static bool
is_open(const struct batch *batch, size_t i)
{
	struct store_item *const *item = &batch->items[i];

	return item[0]->result == RESULT_OPEN &&
	       (i == 0 || item[0]->plant->id != item[-1]->plant->id);
}

static size_t
count_open(const struct batch *batch)
{
	size_t count = 0;

	for (size_t i = 0; i < batch->n; i++)
		count += is_open(batch, i);
	return count;
}

/* Print the first `columns` parameters of the open items into batch->texts. */
static void
encode(const struct batch *batch, int columns, const char **values)
{
	char now[TIMESTAMP_LEN], *at = batch->texts;

	timestamp_print(clock_ms(CLOCK_REALTIME), now);
	for (int column = 0; column < columns; column++) {
		values[column] = at;
		for (size_t i = 0; i < batch->n; i++) {
			const struct store_item *item = batch->items[i];

			if (!is_open(batch, i))
				continue;
			if (column == IDS)
				at += sprintf(at, "%" PRId64, item->plant->id);
			else if (column == PLANTS)
				at = mempcpy(
				    at, item->plant->text, item->plant->len);
			else if (column == BY)
				at = stpcpy(at, item->by);
			else
				at = mempcpy(at,
				    item->at != NULL ? item->at : now,
				    TIMESTAMP_LEN);
			*at++ = '\n';
		}
		at[-1] = '\0';
	}
}

/*
 * Set the result of all items with the row's id.  A row of REPEAT also contains
 * the stored plant.  Return false if no open item has this id.
 */
static bool
set_result(const struct batch *batch, int row)
{
	const PGresult *rows = batch->session->rows;
	int64_t id = strtoll(PQgetvalue(rows, row, 0), NULL, 10);
	size_t i = 0, end = batch->n;

	while (i < end) {
		size_t middle = i + (end - i) / 2;

		if (batch->items[middle]->plant->id < id)
			i = middle + 1;
		else
			end = middle;
	}
	if (i == batch->n || batch->items[i]->plant->id != id ||
	    !is_open(batch, i))
		return false;
	struct plant stored = *batch->items[i]->plant;
	if (PQnfields(rows) == 1)
		batch->items[i++]->result = STORE_CREATED;
	else {
		stored.text = PQgetvalue(rows, row, 1);
		stored.len = (size_t)PQgetlength(rows, row, 1);
	}
	for (; i < batch->n && batch->items[i]->plant->id == id; i++) {
		const struct plant *plant = batch->items[i]->plant;

		batch->items[i]->result =
		    plant->len == stored.len &&
			    memcmp(plant->text, stored.text, stored.len) == 0
			? STORE_SAME
			: STORE_CONFLICT;
	}
	return true;
}

/* An unexpected row makes all results of the batch unknown. */
static bool
run_statement(struct store *store, const struct batch *batch, const char *name,
    int parameters)
{
	struct session *session = batch->session;
	const char *values[COLUMNS + 1] = { NULL };

	encode(batch, parameters, values);
	bool done =
	    session_run(session, name, parameters == COLUMNS ? 1 : 2, values);
	int n = PQntuples(session->rows), row = 0;
	while (row < n && set_result(batch, row))
		row++;
	if (row < n) {
		for (size_t i = 0; i < batch->n; i++)
			batch->items[i]->result = RESULT_OPEN;
		strcpy(session->reason, "unexpected rows");
		session->lost = true;
		return false;
	}
	/* A row was inserted or locked, so the commit waited for standbys. */
	if (n > 0) {
		confirm(store);
		store->refused &= parameters != COLUMNS;
	}
	return done;
}

/* --- Commit --- */

/* Return the result for the plants of a failed statement. */
static enum store_result
find_result(struct session *session)
{
	if (session->lost)
		return STORE_UNKNOWN;
	if (session_is_code(session, "53100"))
		return STORE_FULL;
	/* Temporary: no resources, a lock, a rollback, a cancellation. */
	if (session_is_code(session, "53 55 40 57014"))
		return STORE_BUSY;
	session->lost = true; /* a new session may reach a better server */
	return STORE_AWAY;
}

static void
set_results(const struct batch *batch, enum store_result result)
{
	for (size_t i = 0; i < batch->n; i++)
		if (batch->items[i]->result == RESULT_OPEN)
			batch->items[i]->result = result;
}

/*
 * Store the plants and set their results.  If one of several ids is locked, the
 * results stay open.  If a single id is locked, the holder may still store it.
 */
static void
store_batch(struct store *store, const struct batch *batch)
{
	struct session *session = batch->session;
	bool done;

	do {
		done = run_statement(store, batch, INSERT, COLUMNS) &&
		       (count_open(batch) == 0 ||
			   run_statement(store, batch, REPEAT, 1));
		/* Retry after a serialization failure or a deadlock. */
	} while (!session->lost && session_is_code(session, "40001 40P01") &&
		 clock_ms(CLOCK_MONOTONIC) < session->deadline_ms);
	bool locked = !session->lost && session_is_code(session, "55P03");
	if (locked && count_open(batch) > 1)
		return;
	if (session->lost)
		note_lost(store, session);
	else
		store->refused |= !done && !locked;
	if (!done)
		trouble_log(&store->trouble,
		    session->lost ? "the database did not confirm a batch"
				  : "the database refused a batch",
		    session->reason);
	/* A row that neither statement returned was deleted between them. */
	set_results(batch, done     ? STORE_BUSY
			   : locked ? STORE_UNKNOWN
				    : find_result(session));
}

/* One of several ids is locked: try each alone. */
static void
store_singly(struct store *store, const struct batch *batch)
{
	struct batch one = *batch;

	for (size_t i = 0; i < batch->n; i += one.n) {
		one.items = batch->items + i;
		one.n = 1;
		while (i + one.n < batch->n &&
		       one.items[one.n]->plant->id == one.items[0]->plant->id)
			one.n++;
		if (!one.session->lost && count_open(&one) > 0 &&
		    clock_ms(CLOCK_MONOTONIC) < one.session->deadline_ms)
			store_batch(store, &one);
		else
			set_results(&one, STORE_BUSY);
	}
}

static int
by_id_and_place(const void *a, const void *b)
{
	struct store_item *const *x = a, *const *y = b;
	int64_t x_id = (*x)->plant->id, y_id = (*y)->plant->id;

	return x_id != y_id ? (x_id > y_id) - (x_id < y_id)
			    : (*x > *y) - (*x < *y);
}

/* Commit items and set their results.  Their parameters fit into `bytes`. */
static void
commit_part(
    struct store *store, struct store_item **items, size_t n, size_t bytes)
{
	struct batch batch = { .items = items, .n = n };

	if (store->waiting) {
		set_results(
		    &batch, store->retry_ms != 0 ? STORE_AWAY : STORE_UNKNOWN);
		return;
	}
	batch.texts = malloc(bytes);
	if (batch.texts == NULL) {
		set_results(&batch, STORE_BUSY);
		return;
	}
	store->commits++;
	batch.session = take_session(store, true);
	if (batch.session == NULL)
		set_results(&batch, STORE_AWAY);
	else {
		/* Batches that lock in the same order do not deadlock. */
		qsort(items, n, sizeof(*items), by_id_and_place);
		batch.session->deadline_ms =
		    clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS;
		store_batch(store, &batch);
		if (!batch.session->lost && count_open(&batch) > 0)
			store_singly(store, &batch);
		give_back(store, batch.session);
	}
	store->commits--;
	free(batch.texts);
}

static int
commit(struct store *store, struct store_item *items, size_t n)
{
	struct store_item **part = malloc(n * sizeof(*part));
	size_t len = 0, bytes = 0;

	for (size_t i = 0; i < n; i++) {
		items[i].result = part != NULL ? RESULT_OPEN : STORE_BUSY;
		if (part == NULL)
			continue;
		part[len++] = &items[i];
		/* The envelope exceeds an id, a name, a time and newlines. */
		bytes += RECORD_ENVELOPE_MAX + items[i].plant->len;
		if (bytes < STATEMENT_BYTES_MAX && i + 1 < n)
			continue;
		commit_part(store, part, len, bytes);
		len = bytes = 0;
	}
	free(part);
	return 0;
}

/* --- Readiness --- */

/* Try to store a plant.  Until that succeeds, a load balancer sends none. */
static enum store_result
try_plant(struct store *store, struct session *session)
{
	enum store_result result = STORE_CREATED;

	if (session_run(session, "BEGIN", 0, NULL) &&
	    session_run(session, trial_sql, 1, NULL))
		store->refused = false;
	else {
		trouble_log(&store->trouble, "the database refused a probe",
		    session->reason);
		result = find_result(session);
	}
	if (!session->lost)
		(void)session_run(session, "ROLLBACK", 0, NULL);
	return result;
}

static enum store_result
probe(struct store *store, struct session *session)
{
	enum store_result result = STORE_CREATED;

	session->deadline_ms = clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS;
	if (store->refused)
		result = try_plant(store, session);
	if (result != STORE_CREATED)
		return result;
	bool done = session_run(session, probe_sql, 1, NULL);
	bool waits = done && PQntuples(session->rows) == 0;
	/* A server without the probe's function has at least answered. */
	bool lacks = !session->lost && session_is_code(session, "42883 0A");
	if ((done && !waits) || lacks)
		confirm(store);
	else {
		trouble_log(&store->trouble,
		    "the database did not confirm a probe",
		    waits ? "a commit is waiting; is a standby down?"
			  : session->reason);
		result = waits ? STORE_UNKNOWN : find_result(session);
		store->waiting |= waits;
		note_lost(store, session);
	}
	return result;
}

static enum store_result
ready(struct store *store)
{
	enum store_result result = STORE_CREATED;
	int64_t confirmed_ms = store->confirmed_ms;

	/* No probe while commits succeed: they may need all sessions. */
	bool due = confirmed_ms == 0 || store->refused ||
		   (store->commits == 0 &&
		       clock_ms(CLOCK_MONOTONIC) - confirmed_ms >= PROBE_MS);
	struct session *session = take_session(store, due);

	if (due)
		result = session != NULL ? probe(store, session) : STORE_AWAY;
	if (session != NULL && !session->lost &&
	    session_query(session, "SELECT " SESSION_STANDBYS, 1,
		SESSION_TIMEOUT_MS) == FAULT_NONE &&
	    PQntuples(session->rows) == 1)
		note_standbys(PQgetvalue(session->rows, 0, 0));
	give_back(store, session);
	return store->retry_ms != 0 ? STORE_AWAY : result;
}

/* --- Open and close --- */

static void
close_store(struct store *store)
{
	for (size_t i = 0; i < IDLE_MAX; i++)
		drop_session(store->idle[i]);
	free(store);
}

static struct store *
open_store(const struct store_options *options, enum fault *fault)
{
	struct store *store = calloc(1, sizeof(*store));

	if (store == NULL) {
		*fault = fault_report("the database", "cannot open");
		return NULL;
	}
	store->engine = &store_engine;
	store->database = options->database;
	struct session *session = connect_session(store, fault);
	if (session != NULL) {
		if (options->long_lived)
			log_session(session, "the database");
		give_back(store, session);
	} else if (*fault != FAULT_BUSY || !options->long_lived) {
		close_store(store);
		return NULL;
	}
	*fault = FAULT_NONE;
	return store;
}

const struct engine store_engine = {
	.version = ENGINE_VERSION,
	.open = open_store,
	.commit = commit,
	.ready = ready,
	.close = close_store,
};
