/*
 * postgresql: the engine's open stores: a pool of sessions, and commits.  See
 * store/store.h.
 *
 * A commit takes an idle session, inserts the batch with one statement, which
 * passes over what is stored already, and reads and locks that with a second
 * one (REPEAT in session.c).  The commit of each waits as the server is set up,
 * for its disk and for its standbys.
 *
 * Failure modes: a deadline that passes, a connection that is lost and a
 * warning leave it unknown whether the batch is stored; the session is closed.
 * An id that another session holds (which waits for a standby, perhaps) ends
 * the statement by its lock_timeout; then each id is tried alone.  Without a
 * session: the keeper, a thread, connects again, with pauses; until then
 * commits are STORE_AWAY at once.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "pure/timestamp.h"
#include "session.h"

/* A commit waits so long for a connection that is being made. */
#define CONNECT_WAIT_MS 2000
/* Between attempts to connect; doubled each time. */
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 2000
/* Another trouble is logged, and the same trouble again, after so long. */
#define TROUBLE_PAUSE_MS 1000
#define TROUBLE_INTERVAL_MS 60000
/* Of one statement.  An import's batches may be larger. */
#define STATEMENT_IDS_MAX 10000
#define STATEMENT_BYTES_MAX ((size_t)16 << 20)

/* Binary arrays: an int32 each for dimensions, NULLs, type, size, begin. */
#define ARRAY_HEAD_BYTES 20
enum { IDS, PLANTS, BY, AT, COLUMNS };
/* The types of their elements, from pg_type.dat. */
static const size_t column_types[COLUMNS] = {
	[IDS] = 20, [PLANTS] = 25, [BY] = 25, [AT] = 1184
};

struct store {
	const struct engine *engine; /* engine.h: first */
	const char *database;
	bool prepare;
	pthread_t keeper;

	pthread_mutex_t mutex; /* of all below */
	pthread_cond_t news;   /* for commits: a session, or none to be had */
	pthread_cond_t wanted; /* for the keeper */
	struct session *idle;
	unsigned idle_n, busy_n; /* sessions that wait, or are in use */
	unsigned waiting;        /* commits that wait for a session */
	bool stop, tried, down;  /* the last attempt to connect failed */
	int64_t trying_ms;       /* since when the keeper connects; 0: not */
	enum fault fault;        /* of the first attempt */
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

/* With the mutex. */
static void
put_idle(struct store *store, struct session *session)
{
	session->next = store->idle;
	store->idle = session;
	store->idle_n++;
	pthread_cond_signal(&store->news);
}

static struct session *
get_idle(struct store *store)
{
	struct session *session = store->idle;

	if (session != NULL) {
		store->idle = session->next;
		store->idle_n--;
	}
	return session;
}

/* False at that time of CLOCK_MONOTONIC. */
static bool
wait_until(struct store *store, pthread_cond_t *cond, int64_t until_ms)
{
	struct timespec until = { .tv_sec = until_ms / 1000,
		.tv_nsec = until_ms % 1000 * 1000000 };

	return pthread_cond_timedwait(cond, &store->mutex, &until) == 0;
}

/* With the mutex, which it gives back while it connects. */
static void
try_connect(struct store *store)
{
	const bool first = !store->tried, was_down = store->down;
	char reason[SESSION_REASON_MAX];
	enum fault fault = FAULT_NONE;

	store->trying_ms = clock_ms(CLOCK_MONOTONIC);
	pthread_mutex_unlock(&store->mutex);
	struct session *session =
	    session_open(store->database, true, &fault, reason);
	if (session == NULL && !was_down)
		log_error("cannot use the database: %s", reason);
	else if (session != NULL && (was_down || (first && store->prepare)))
		log_session(
		    session, first ? "the database" : "the database is back");
	pthread_mutex_lock(&store->mutex);
	store->trying_ms = 0;
	store->tried = true;
	store->down = session == NULL;
	if (first)
		store->fault = fault;
	if (session != NULL)
		put_idle(store, session);
	else
		pthread_cond_broadcast(&store->news);
}

/* The thread that connects. */
static void *
keep(void *argument)
{
	struct store *store = argument;
	int64_t pause_ms = PAUSE_MIN_MS;

	pthread_mutex_lock(&store->mutex);
	while (!store->stop) {
		if (store->tried && !store->down &&
		    store->waiting <= store->idle_n) {
			pthread_cond_wait(&store->wanted, &store->mutex);
			continue;
		}
		try_connect(store);
		if (!store->down) {
			pause_ms = PAUSE_MIN_MS;
			continue;
		}
		/* Not all services of a site at the same moment. */
		int64_t now_us = clock_us(CLOCK_MONOTONIC);
		int64_t until_ms =
		    now_us / 1000 + pause_ms - now_us % (pause_ms / 2);
		while (
		    !store->stop && wait_until(store, &store->wanted, until_ms))
			;
		if ((pause_ms *= 2) > PAUSE_MAX_MS)
			pause_ms = PAUSE_MAX_MS;
	}
	pthread_mutex_unlock(&store->mutex);
	return NULL;
}

/* NULL: none is to be had now. */
static struct session *
await_session(struct store *store)
{
	int64_t begin_ms = clock_ms(CLOCK_MONOTONIC);
	struct session *session;

	pthread_mutex_lock(&store->mutex);
	if (store->trying_ms > 0 && store->busy_n == 0)
		begin_ms = store->trying_ms;
	store->waiting++;
	while ((session = get_idle(store)) == NULL &&
	       (store->busy_n > 0 || !store->down)) {
		pthread_cond_signal(&store->wanted);
		if (!wait_until(
			store, &store->news, begin_ms + CONNECT_WAIT_MS))
			break;
	}
	store->waiting--;
	store->busy_n += session != NULL;
	pthread_mutex_unlock(&store->mutex);
	return session;
}

static void
give_back(struct store *store, struct session *session, bool usable)
{
	pthread_mutex_lock(&store->mutex);
	store->busy_n--;
	if (usable)
		put_idle(store, session);
	else
		pthread_cond_broadcast(&store->news);
	pthread_mutex_unlock(&store->mutex);
	if (!usable)
		session_close(session);
}

/* A session for a commit, to be given back; or NULL. */
static struct session *
take_session(struct store *store)
{
	struct session *session;

	while ((session = await_session(store)) != NULL &&
	       !session_is_alive(session))
		/* It ended while it was idle, and nothing with it. */
		give_back(store, session, false);
	return session;
}

/* --- A statement's parameters --- */

static bool
is_first(const struct entry *entries, size_t i)
{
	return i == 0 ||
	       entries[i].item->plant->id != entries[i - 1].item->plant->id;
}

static char *
put_int32(char *at, size_t value)
{
	for (int shift = 24; shift >= 0; shift -= 8)
		*at++ = (char)(value >> shift);
	return at;
}

static char *
put_text(char *at, const char *text, size_t len)
{
	at = put_int32(at, len);
	memcpy(at, text, len);
	return at + len;
}

static char *
put_element(char *at, int column, const struct store_item *item, int64_t now_ms)
{
	const struct plant *plant = item->plant;
	int64_t ms;
	char number[8];

	switch (column) {
	case PLANTS:
		return put_text(at, plant->text, plant->len);
	case BY:
		return put_text(at, item->by, strlen(item->by));
	case AT:
		if (item->at == NULL ||
		    timestamp_read(item->at, TIMESTAMP_LEN, &ms) < 0)
			ms = now_ms;
		session_put_int64(number, (ms - SESSION_EPOCH_MS) * 1000);
		break;
	default:
		session_put_int64(number, plant->id);
	}
	return put_text(at, number, sizeof(number));
}

/*
 * Put the first `columns` of the open entries, the first of each id, into
 * `query` as arrays.  Return their memory; NULL: there is none.
 */
static char *
encode(const struct entry *entries, size_t n, int columns,
    struct session_query *query)
{
	int64_t now_ms = clock_ms(CLOCK_REALTIME);
	size_t bytes = COLUMNS * ARRAY_HEAD_BYTES, count = 0;

	for (size_t i = 0; i < n; i++) {
		if (!entries[i].open || !is_first(entries, i))
			continue;
		count++;
		/* Two numbers and two texts, and four lengths. */
		bytes += 2 * 8 + COLUMNS * 4 + entries[i].item->plant->len +
			 strlen(entries[i].item->by);
	}
	char *buf = malloc(bytes), *at = buf;
	if (buf == NULL)
		return NULL;
	for (int column = 0; column < columns; column++) {
		const size_t head[] = { 1, 0, column_types[column], count, 1 };

		query->values[column] = at;
		for (int i = 0; i < ARRAY_HEAD_BYTES / 4; i++)
			at = put_int32(at, head[i]);
		for (size_t i = 0; i < n; i++)
			if (entries[i].open && is_first(entries, i))
				at = put_element(
				    at, column, entries[i].item, now_ms);
		query->lengths[column] = (int)(at - query->values[column]);
	}
	query->n = columns;
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
	int64_t id = session_get_int64(PQgetvalue(rows, row, 0));
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
	bool same = strcmp(store->trouble, reason) == 0;
	bool due = store->trouble_ms == 0 ||
		   now_ms - store->trouble_ms >=
		       (same ? TROUBLE_INTERVAL_MS : TROUBLE_PAUSE_MS);
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
	struct session_query query = { .name = name };
	enum session_result status = SESSION_REFUSED;
	PGresult *rows = NULL;
	char *values = encode(entries, n, columns, &query);

	if (values != NULL)
		status = session_run(session, &query, deadline_ms, &rows);
	else {
		/* As a server reports it. */
		strcpy(session->sqlstate, "53200");
		strcpy(session->reason, "no memory");
	}
	for (int row = 0; row < PQntuples(rows); row++)
		settle_row(entries, n, rows, row);
	PQclear(rows);
	free(values);
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
	const struct session_query query = { .sql = sql };
	PGresult *none;
	enum session_result status =
	    session_run(session, &query, deadline_ms, &none);

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

/* As many items as one statement may hold.  Their results are set. */
static size_t
commit_some(struct store *store, struct store_item *items, size_t n)
{
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS;
	struct session *session = NULL;
	size_t some = 0;

	for (size_t bytes = 0; some < n && some < STATEMENT_IDS_MAX &&
			       bytes < STATEMENT_BYTES_MAX;
	     some++)
		bytes += items[some].plant->len;
	struct entry *entries = malloc(some * sizeof(*entries));
	for (size_t i = 0; i < some; i++) {
		items[i].result = entries != NULL ? STORE_AWAY : STORE_BUSY;
		if (entries != NULL)
			entries[i] =
			    (struct entry){ .item = &items[i], .open = true };
	}
	if (entries != NULL)
		session = take_session(store);
	if (session != NULL) {
		/* Two batches that lock in one order do not deadlock. */
		qsort(entries, some, sizeof(*entries), by_id_and_place);
		bool usable =
		    store_entries(store, session, entries, some, deadline_ms);
		if (usable && count_open(entries, some) > 0)
			usable = store_singly(
			    store, session, entries, some, deadline_ms);
		give_back(store, session, usable);
	}
	free(entries);
	return some;
}

static int
commit(struct store *store, struct store_item *items, size_t n,
    void (*answer)(void *argument), void *argument)
{
	for (size_t some; n > 0; items += some, n -= some)
		some = commit_some(store, items, n);
	if (answer != NULL)
		answer(argument);
	return 0;
}

/* --- Open and close --- */

/* Each thread has a session of its own: there is nothing to wait for. */
static void
do_nothing(struct store *store)
{
	(void)store;
}

static void
free_store(struct store *store)
{
	pthread_cond_destroy(&store->wanted);
	pthread_cond_destroy(&store->news);
	pthread_mutex_destroy(&store->mutex);
	free(store);
}

static void
close_store(struct store *store)
{
	struct session *session;

	pthread_mutex_lock(&store->mutex);
	store->stop = true;
	pthread_cond_signal(&store->wanted);
	pthread_mutex_unlock(&store->mutex);
	pthread_join(store->keeper, NULL);
	while ((session = get_idle(store)) != NULL)
		session_close(session);
	free_store(store);
}

/* Of the first attempt; a resolver may take longer than this waits. */
static enum fault
await_first(struct store *store)
{
	int64_t until_ms = clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS;

	pthread_mutex_lock(&store->mutex);
	while (!store->tried && wait_until(store, &store->news, until_ms))
		;
	bool tried = store->tried;
	enum fault fault = tried ? store->fault : FAULT_BUSY;
	pthread_mutex_unlock(&store->mutex);
	if (!tried)
		log_error("cannot use the database: it does not answer");
	return fault == FAULT_BUSY && store->prepare ? FAULT_NONE : fault;
}

static struct store *
open_store(const struct store_options *options, enum fault *fault)
{
	struct store *store = calloc(1, sizeof(*store));
	pthread_condattr_t attributes;

	if (store == NULL) {
		*fault = fault_report("the database", "cannot open");
		return NULL;
	}
	store->engine = &store_engine;
	store->database = options->database;
	store->prepare = options->prepare;
	pthread_mutex_init(&store->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&store->news, &attributes);
	pthread_cond_init(&store->wanted, &attributes);
	pthread_condattr_destroy(&attributes);
	errno = pthread_create(&store->keeper, NULL, keep, store);
	if (errno != 0) {
		*fault = fault_report("the database", "cannot start a thread");
		free_store(store);
		return NULL;
	}
	*fault = await_first(store);
	if (*fault == FAULT_NONE)
		return store;
	close_store(store);
	return NULL;
}

const struct engine store_engine = {
	.version = ENGINE_VERSION,
	.open = open_store,
	.commit = commit,
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
