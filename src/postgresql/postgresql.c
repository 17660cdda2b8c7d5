/*
 * postgresql: the engine's open stores: a pool of sessions, and commits.  See
 * store/store.h.
 *
 * A commit takes an idle session, or makes one, and inserts the batch with one
 * statement, which passes over what is stored already; that is read and locked
 * with a second one (REPEAT in session.c).  The commit of each waits as the
 * server is set up, for its disk and for its standbys.
 *
 * Failure modes: a deadline that passes, a connection that is lost and a
 * warning leave it unknown whether the batch is stored; the session is closed.
 * An id that another session holds (which waits for a standby, perhaps) ends
 * the statement by its lock_timeout; then each id is tried alone.  If no
 * session can be made, the next commit after a pause tries again; until then
 * commits are STORE_AWAY at once.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "pure/timestamp.h"
#include "session.h"

/* Between attempts to connect; doubled each time. */
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 2000
/* The same trouble is logged again after so long. */
#define TROUBLE_INTERVAL_MS 60000
/* Of the plants of one statement.  An import's batches may be larger. */
#define STATEMENT_BYTES_MAX ((size_t)16 << 20)

/* The parameters of the statements, all arrays; REPEAT has the first alone. */
enum { IDS, PLANTS, BY, AT, COLUMNS };

struct store {
	const struct engine *engine; /* engine.h: first */
	const char *database;
	pthread_mutex_t mutex; /* of all below */
	struct session *idle;
	bool down;                  /* the last attempt to connect failed */
	int64_t pause_ms, retry_ms; /* then: the next one is not before */
	char trouble[SESSION_REASON_MAX]; /* that was logged last, and when */
	int64_t trouble_ms;
};

/* A plant of a batch.  Those of equal ids stand together, in their order. */
struct entry {
	struct store_item *item;
	bool open; /* the result is not known yet */
};

/* --- Sessions --- */

static void
log_session(const struct session *session, const char *what)
{
	log_info("%s: %s on %s, port %s, version %s; %s%s", what,
	    PQdb(session->conn), PQhost(session->conn), PQport(session->conn),
	    PQparameterStatus(session->conn, "server_version"),
	    session->standbys[0] != '\0'
		? "200 waits for synchronous standbys: "
		: "200 waits for this server's disk alone, as "
		  "synchronous_standby_names is empty",
	    session->standbys);
}

static struct session *
connect_session(struct store *store, bool first, enum fault *fault)
{
	char reason[SESSION_REASON_MAX];
	struct session *session =
	    session_open(store->database, true, fault, reason);

	pthread_mutex_lock(&store->mutex);
	bool was_down = store->down;
	store->down = session == NULL;
	pthread_mutex_unlock(&store->mutex);
	if (session == NULL && !was_down)
		log_error("cannot use the database: %s", reason);
	else if (session != NULL && (was_down || first))
		log_session(
		    session, first ? "the database" : "the database is back");
	return session;
}

/* While it is down, one commit tries to connect after each pause. */
static bool
may_connect(struct store *store)
{
	int64_t now_us = clock_us(CLOCK_MONOTONIC), now_ms = now_us / 1000;

	if (!store->down)
		store->pause_ms = PAUSE_MIN_MS;
	else if (now_ms < store->retry_ms)
		return false;
	/* Not all services of a site at the same moment. */
	store->retry_ms =
	    now_ms + store->pause_ms - now_us % (store->pause_ms / 2);
	if ((store->pause_ms *= 2) > PAUSE_MAX_MS)
		store->pause_ms = PAUSE_MAX_MS;
	return true;
}

/* A session for a commit, to be given back; or NULL. */
static struct session *
take_session(struct store *store)
{
	struct session *session;
	enum fault fault;

	for (;;) {
		pthread_mutex_lock(&store->mutex);
		session = store->idle;
		if (session != NULL)
			store->idle = session->next;
		bool connect = session == NULL && may_connect(store);
		pthread_mutex_unlock(&store->mutex);
		if (session == NULL)
			return connect ? connect_session(store, false, &fault)
				       : NULL;
		if (session_is_alive(session))
			return session;
		/* It ended while it was idle, and nothing with it. */
		session_close(session);
	}
}

static void
give_back(struct store *store, struct session *session, bool usable)
{
	if (!usable) {
		session_close(session);
		return;
	}
	pthread_mutex_lock(&store->mutex);
	session->next = store->idle;
	store->idle = session;
	pthread_mutex_unlock(&store->mutex);
}

/* --- A statement's parameters --- */

static bool
is_first(const struct entry *entries, size_t i)
{
	return i == 0 ||
	       entries[i].item->plant->id != entries[i - 1].item->plant->id;
}

static char *
put_element(char *at, const char *text, size_t len)
{
	*at++ = '"';
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '"' || text[i] == '\\')
			*at++ = '\\';
		*at++ = text[i];
	}
	*at++ = '"';
	return at;
}

static char *
put_column(char *at, int column, const struct store_item *item)
{
	char text[TIMESTAMP_LEN + 1];
	const char *stored_at = item->at;

	switch (column) {
	case IDS:
		return at + sprintf(at, "%" PRId64, item->plant->id);
	case PLANTS:
		return put_element(at, item->plant->text, item->plant->len);
	case BY:
		return put_element(at, item->by, strlen(item->by));
	default:
		if (stored_at == NULL) {
			timestamp_print(clock_ms(CLOCK_REALTIME), text);
			stored_at = text;
		}
		return put_element(at, stored_at, TIMESTAMP_LEN);
	}
}

/*
 * Put the first `columns` of the open entries, the first of each id, into
 * `values` as the texts of arrays.  Return their memory; NULL: there is none.
 */
static char *
encode(const struct entry *entries, size_t n, int columns, const char **values)
{
	size_t bytes = COLUMNS * sizeof("{}");

	for (size_t i = 0; i < n; i++)
		/* Each byte may need another one before it. */
		bytes += sizeof("-9223372036854775808,\"\",\"\",\"\",") +
			 TIMESTAMP_LEN + 2 * entries[i].item->plant->len +
			 2 * strlen(entries[i].item->by);
	char *buf = malloc(bytes), *at = buf;
	if (buf == NULL)
		return NULL;
	for (int column = 0; column < columns; column++) {
		char before = '{';

		values[column] = at;
		for (size_t i = 0; i < n; i++) {
			if (!entries[i].open || !is_first(entries, i))
				continue;
			*at++ = before;
			before = ',';
			at = put_column(at, column, entries[i].item);
		}
		*at++ = '}';
		*at++ = '\0';
	}
	return buf;
}

/* --- Results --- */

static size_t
count_open(const struct entry *entries, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += entries[i].open && is_first(entries, i);
	return count;
}

static void
set_result(struct entry *entry, enum store_result result)
{
	entry->item->result = result;
	entry->open = false;
}

static void
end_open(struct entry *entries, size_t n, enum store_result result)
{
	for (size_t i = 0; i < n; i++)
		if (entries[i].open)
			set_result(&entries[i], result);
}

static int
by_id(const void *id, const void *entry)
{
	const int64_t *x = id;
	const struct entry *y = entry;

	return (*x > y->item->plant->id) - (*x < y->item->plant->id);
}

static int
by_id_and_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int order = by_id(&x->item->plant->id, y);

	return order != 0 ? order : (x->item > y->item) - (x->item < y->item);
}

/*
 * A row of the answer: an id and, unless the row was made now, its plant, to
 * which all entries with this id refer.
 */
static void
settle_row(struct entry *entries, size_t n, const PGresult *rows, int row)
{
	int64_t id = strtoll(PQgetvalue(rows, row, 0), NULL, 10);
	bool created = PQnfields(rows) == 1;
	const char *text = created ? NULL : PQgetvalue(rows, row, 1);
	size_t len = created ? 0 : (size_t)PQgetlength(rows, row, 1);
	struct entry *entry = bsearch(&id, entries, n, sizeof(*entries), by_id);

	if (entry == NULL)
		return;
	while (entry > entries && entry[-1].item->plant->id == id)
		entry--;
	for (; entry < entries + n && entry->item->plant->id == id; entry++) {
		const struct plant *plant = entry->item->plant;

		if (text == NULL) {
			set_result(entry, STORE_CREATED);
			text = plant->text;
			len = plant->len;
			continue;
		}
		set_result(entry,
		    plant->len == len && memcmp(plant->text, text, len) == 0
			? STORE_SAME
			: STORE_CONFLICT);
	}
}

/* --- Commit --- */

/* Not the same again and again, as under load. */
static void
log_trouble(struct store *store, const char *what, const char *reason)
{
	int64_t now_ms = clock_ms(CLOCK_MONOTONIC);

	pthread_mutex_lock(&store->mutex);
	bool due = strcmp(store->trouble, reason) != 0 ||
		   now_ms - store->trouble_ms >= TROUBLE_INTERVAL_MS;
	if (due) {
		strcpy(store->trouble, reason);
		store->trouble_ms = now_ms;
	}
	pthread_mutex_unlock(&store->mutex);
	if (due)
		log_error("the database %s a batch: %s", what, reason);
}

static bool
is_code(const struct session *session, const char *begin)
{
	return strncmp(session->sqlstate, begin, strlen(begin)) == 0;
}

/* Run one of the two statements for the open entries. */
static enum session_result
run_statement(struct session *session, const char *name, int columns,
    struct entry *entries, size_t n, int64_t deadline_ms)
{
	const char *values[COLUMNS];
	char *texts = encode(entries, n, columns, values);
	PGresult *rows = NULL;

	if (texts == NULL) {
		session_refuse(session, "53200", "no memory");
		return SESSION_REFUSED;
	}
	enum session_result status = session_run(
	    session, NULL, name, columns, values, deadline_ms, &rows);
	for (int row = 0; row < PQntuples(rows); row++)
		settle_row(entries, n, rows, row);
	PQclear(rows);
	free(texts);
	return status;
}

/*
 * Store the open entries and find the results; those of a locked one among
 * several stay open.  False if the session is of no use any more.
 */
static bool
store_entries(struct store *store, struct session *session,
    struct entry *entries, size_t n, int64_t deadline_ms)
{
	enum session_result status;
	/* A row was deleted between the two statements. */
	enum store_result result = STORE_BUSY;

	do {
		status = run_statement(
		    session, INSERT_NAME, COLUMNS, entries, n, deadline_ms);
		if (status == SESSION_DONE && count_open(entries, n) > 0)
			status = run_statement(
			    session, REPEAT_NAME, 1, entries, n, deadline_ms);
		/* Serialization failure, deadlock. */
	} while (status == SESSION_REFUSED &&
		 (is_code(session, "40001") || is_code(session, "40P01")) &&
		 clock_ms(CLOCK_MONOTONIC) < deadline_ms);
	if (status == SESSION_UNKNOWN) {
		log_trouble(store, "did not confirm", session->reason);
		result = STORE_UNKNOWN;
	} else if (status == SESSION_REFUSED) {
		if (is_code(session, "55P03") && count_open(entries, n) > 1)
			return true;
		log_trouble(store, "refused", session->reason);
		if (is_code(session, "53100"))
			result = STORE_FULL;
		/* Not resources, locks, nor a statement that was cancelled. */
		else if (!is_code(session, "53") && !is_code(session, "55") &&
			 !is_code(session, "40") && !is_code(session, "57014"))
			result = STORE_AWAY;
	}
	end_open(entries, n, result);
	return result != STORE_UNKNOWN && result != STORE_AWAY;
}

static bool
set_lock_timeout(struct session *session, const char *sql, int64_t deadline_ms)
{
	PGresult *none;
	enum session_result status =
	    session_run(session, sql, NULL, 0, NULL, deadline_ms, &none);

	PQclear(none);
	return status == SESSION_DONE;
}

/*
 * One id among others is locked: try each alone, and wait for none, or a few
 * would take all the time there is.
 */
static bool
store_singly(struct store *store, struct session *session,
    struct entry *entries, size_t n, int64_t deadline_ms)
{
	size_t some;
	bool usable = set_lock_timeout(session,
	    "SET lock_timeout = '" SESSION_LOCK_TIMEOUT_BRIEF "'", deadline_ms);

	for (size_t i = 0; i < n && usable; i += some) {
		for (some = 1; i + some < n && !is_first(entries, i + some);)
			some++;
		if (entries[i].open && clock_ms(CLOCK_MONOTONIC) < deadline_ms)
			usable = store_entries(
			    store, session, entries + i, some, deadline_ms);
	}
	/* Not tried. */
	end_open(entries, n, STORE_BUSY);
	return usable && set_lock_timeout(session,
			     "SET lock_timeout = '" SESSION_LOCK_TIMEOUT "'",
			     deadline_ms + SESSION_TIMEOUT_MS);
}

/* Some items, whose results are set. */
static void
commit_entries(struct store *store, struct entry *entries, size_t n)
{
	struct session *session = take_session(store);
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS;

	if (session == NULL) {
		end_open(entries, n, STORE_AWAY);
		return;
	}
	/* Two batches that lock in one order do not deadlock. */
	qsort(entries, n, sizeof(*entries), by_id_and_place);
	bool usable = store_entries(store, session, entries, n, deadline_ms);
	if (usable && count_open(entries, n) > 0)
		usable = store_singly(store, session, entries, n, deadline_ms);
	give_back(store, session, usable);
}

static int
commit(struct store *store, struct store_item *items, size_t n,
    void (*answer)(void *argument), void *argument)
{
	struct entry *entries = malloc(n * sizeof(*entries));
	size_t bytes = 0, begun = 0;

	for (size_t i = 0; i < n; i++) {
		items[i].result = STORE_BUSY; /* without memory */
		if (entries == NULL)
			continue;
		entries[i] = (struct entry){ .item = &items[i], .open = true };
		bytes += items[i].plant->len;
		if (bytes < STATEMENT_BYTES_MAX && i + 1 < n)
			continue;
		commit_entries(store, entries + begun, i + 1 - begun);
		begun = i + 1;
		bytes = 0;
	}
	free(entries);
	if (answer != NULL)
		answer(argument);
	return 0;
}

static enum store_result
ready(struct store *store)
{
	struct session *session = take_session(store);

	if (session == NULL)
		return STORE_AWAY;
	give_back(store, session, true);
	return STORE_CREATED;
}

/* --- Open and close --- */

/* Each thread has a session of its own: there is nothing to wait for. */
static void
do_nothing(struct store *store)
{
	(void)store;
}

static void
close_store(struct store *store)
{
	struct session *session;

	while ((session = store->idle) != NULL) {
		store->idle = session->next;
		session_close(session);
	}
	pthread_mutex_destroy(&store->mutex);
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
	store->pause_ms = PAUSE_MIN_MS;
	pthread_mutex_init(&store->mutex, NULL);
	struct session *session =
	    connect_session(store, options->prepare, fault);
	if (session != NULL)
		give_back(store, session, true);
	else if (*fault != FAULT_BUSY || !options->prepare) {
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
	.wait = do_nothing,
	.idle = do_nothing,
	.close = close_store,
	.reader_open = reader_open,
	.reader_next = reader_next,
	.reader_end = reader_end,
	.reader_find = reader_find,
	.reader_figures = reader_figures,
	.reader_close = reader_close,
	.schema = schema_tables,
	.roles = schema_roles,
};
