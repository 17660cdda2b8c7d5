/*
 * postgresql: the engine's open stores: a pool of sessions, and commits.  See
 * engine.h and store/store.h.
 *
 * A commit takes an idle session, inserts the batch, in order of ids, with one
 * statement that passes over what is stored already, and reads that with a
 * second one, which locks it: see REPEAT in session.c.  The commit of each
 * waits as the server is told to, for its disk and for its standbys.
 *
 * Failure modes: a deadline that passes, a connection that is lost and a
 * warning leave it unknown whether the batch is stored; the session is closed.
 * An id that another session holds (its commit waits for a standby, perhaps)
 * ends the statement by its lock_timeout; then each id is tried alone.  Without
 * a session: the keeper, a thread of a long lived process, connects again with
 * pauses; until then commits are STORE_AWAY at once.
 */
#include <errno.h>
#include <inttypes.h>
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
/* The same trouble is logged again after so long. */
#define TROUBLE_INTERVAL_MS 60000
/* Of one statement.  An import's batches may be larger. */
#define STATEMENT_IDS_MAX 10000
#define STATEMENT_BYTES_MAX ((size_t)16 << 20)

/* pg_type.dat: the types of an array's elements. */
#define OID_INT8 20
#define OID_TEXT 25
#define OID_TIMESTAMPTZ 1184
#define ARRAY_HEAD_BYTES 20

struct store {
	const struct engine *engine; /* engine.h: first */
	const char *database;
	bool prepare;

	pthread_mutex_t mutex; /* of all below */
	pthread_cond_t news;   /* for commits: a session, or none to be had */
	pthread_cond_t wanted; /* for the keeper */
	pthread_t keeper;
	struct session *idle;
	unsigned idle_n, waiting; /* commits that wait for a session */
	bool stop, tried, down;   /* the last attempt to connect failed */
	int64_t trying_ms;        /* since when the keeper connects; 0: no */
	enum fault fault;         /* of the first attempt */
	/* What was logged last and is not over: a code, "" for none. */
	char trouble[SESSION_SQLSTATE_MAX];
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
		? "a plant is confirmed by synchronous standbys too: "
		: "no synchronous_standby_names: a plant is on this server "
		  "alone",
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

static void
wait_until(struct store *store, pthread_cond_t *cond, int64_t until_ms)
{
	struct timespec until = { .tv_sec = until_ms / 1000,
		.tv_nsec = until_ms % 1000 * 1000000 };

	pthread_cond_timedwait(cond, &store->mutex, &until);
}

/* With the mutex, which it gives back while it connects. */
static void
try_connect(struct store *store)
{
	char reason[SESSION_REASON_MAX];
	enum fault fault = FAULT_NONE;

	store->trying_ms = clock_ms(CLOCK_MONOTONIC);
	pthread_mutex_unlock(&store->mutex);
	struct session *session =
	    session_open(store->database, true, &fault, reason);
	if (session == NULL && !store->down)
		log_error("the database is away: %s", reason);
	else if (session != NULL && (store->down || !store->tried))
		log_session(session,
		    store->down ? "the database is back" : "the database");
	pthread_mutex_lock(&store->mutex);
	store->trying_ms = 0;
	store->down = session == NULL;
	if (!store->tried)
		store->fault = fault;
	store->tried = true;
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
		if (!store->tried || store->down ||
		    store->waiting > store->idle_n) {
			try_connect(store);
			if (!store->down)
				pause_ms = PAUSE_MIN_MS;
		}
		if (store->down) {
			/* Not all services of a site at the same moment. */
			int64_t now_ms = clock_ms(CLOCK_MONOTONIC);
			int64_t until_ms =
			    now_ms + pause_ms -
			    clock_us(CLOCK_MONOTONIC) % (pause_ms / 2);

			while (!store->stop && now_ms < until_ms) {
				wait_until(store, &store->wanted, until_ms);
				now_ms = clock_ms(CLOCK_MONOTONIC);
			}
			pause_ms = pause_ms * 2 < PAUSE_MAX_MS ? pause_ms * 2
							       : PAUSE_MAX_MS;
		} else if (!store->stop && store->waiting <= store->idle_n)
			pthread_cond_wait(&store->wanted, &store->mutex);
	}
	pthread_mutex_unlock(&store->mutex);
	return NULL;
}

static struct session *
await_session(struct store *store, int64_t deadline_ms)
{
	struct session *session;

	pthread_mutex_lock(&store->mutex);
	store->waiting++;
	while ((session = get_idle(store)) == NULL && !store->down) {
		int64_t now_ms = clock_ms(CLOCK_MONOTONIC);
		int64_t until_ms =
		    (store->trying_ms > 0 ? store->trying_ms : now_ms) +
		    CONNECT_WAIT_MS;

		if (until_ms > deadline_ms)
			until_ms = deadline_ms;
		if (now_ms >= until_ms)
			break;
		pthread_cond_signal(&store->wanted);
		wait_until(store, &store->news, until_ms);
	}
	store->waiting--;
	pthread_mutex_unlock(&store->mutex);
	return session;
}

/* A session for a commit; or NULL. */
static struct session *
take_session(struct store *store, int64_t deadline_ms)
{
	char reason[SESSION_REASON_MAX];
	struct session *session;
	enum fault fault;

	for (;;) {
		if (store->prepare)
			session = await_session(store, deadline_ms);
		else if ((session = get_idle(store)) == NULL) {
			session =
			    session_open(store->database, true, &fault, reason);
			if (session == NULL)
				log_error("the database is away: %s", reason);
		}
		if (session == NULL || session_is_alive(session))
			return session;
		/* It ended while it was idle: nothing is lost but itself. */
		session_close(session);
	}
}

static void
give_back(struct store *store, struct session *session)
{
	pthread_mutex_lock(&store->mutex);
	put_idle(store, session);
	pthread_mutex_unlock(&store->mutex);
}

/* --- A statement's parameters --- */

static char *
put_int32(char *at, size_t value)
{
	for (int shift = 24; shift >= 0; shift -= 8)
		*at++ = (char)(value >> shift);
	return at;
}

/* One dimension, which begins at 1, without NULLs. */
static char *
put_array(char *at, size_t type, size_t n)
{
	const size_t head[] = { 1, 0, type, n, 1 };

	for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
		at = put_int32(at, head[i]);
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
put_int64(char *at, int64_t value)
{
	at = put_int32(at, 8);
	session_put_int64(at, value);
	return at + 8;
}

static bool
is_first(const struct entry *entries, size_t i)
{
	return i == 0 ||
	       entries[i].item->plant->id != entries[i - 1].item->plant->id;
}

/* Microseconds since 2000, of an item. */
static int64_t
time_of(const struct store_item *item, int64_t now_ms)
{
	int64_t ms;

	if (item->at == NULL ||
	    timestamp_read(item->at, TIMESTAMP_LEN, &ms) < 0)
		ms = now_ms;
	return (ms - SESSION_EPOCH_MS) * 1000;
}

static void
end_value(struct session_query *query, const char *end)
{
	query->lengths[query->n] = (int)(end - query->values[query->n]);
	query->n++;
}

/* The first open entry of each id; all four arrays, or the ids alone. */
static char *
encode(const struct entry *entries, size_t n, bool all,
    struct session_query *query)
{
	int64_t now_ms = clock_ms(CLOCK_REALTIME);
	size_t bytes = 4 * ARRAY_HEAD_BYTES + 2 * 12 * n, count = 0;

	for (size_t i = 0; i < n; i++)
		if (entries[i].open && is_first(entries, i)) {
			count++;
			bytes += 8 + entries[i].item->plant->len +
				 strlen(entries[i].item->by);
		}
	char *buf = malloc(bytes), *at = buf;
	if (buf == NULL)
		return NULL;
	static const size_t types[] = { OID_INT8, OID_TEXT, OID_TEXT,
		OID_TIMESTAMPTZ };
	for (int column = 0; column < (all ? 4 : 1); column++) {
		query->values[query->n] = at;
		at = put_array(at, types[column], count);
		for (size_t i = 0; i < n; i++) {
			const struct store_item *item = entries[i].item;

			if (!entries[i].open || !is_first(entries, i))
				continue;
			if (column == 0)
				at = put_int64(at, item->plant->id);
			else if (column == 1)
				at = put_text(
				    at, item->plant->text, item->plant->len);
			else if (column == 2)
				at = put_text(at, item->by, strlen(item->by));
			else
				at = put_int64(at, time_of(item, now_ms));
		}
		end_value(query, at);
	}
	return buf;
}

/* --- Results --- */

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

static void
compare(struct entry *entry, const char *text, size_t len)
{
	const struct plant *plant = entry->item->plant;

	set_result(
	    entry, plant->len == len && memcmp(plant->text, text, len) == 0
		       ? STORE_SAME
		       : STORE_CONFLICT);
}

/* The first entry with the id, which is there. */
static size_t
find_id(const struct entry *entries, size_t n, int64_t id)
{
	size_t begin = 0;

	while (n > 1) {
		size_t half = n / 2;

		if (entries[begin + half - 1].item->plant->id < id) {
			begin += half;
			n -= half;
		} else
			n = half;
	}
	return begin;
}

/*
 * A row of the answer: the id, and, unless the row was made now, its plant.
 * The other entries of the id refer to the same.
 */
static void
settle_row(struct entry *entries, size_t n, const PGresult *rows, int row)
{
	int64_t id = session_get_int64(PQgetvalue(rows, row, 0));
	size_t i = find_id(entries, n, id);
	const struct plant *first = entries[i].item->plant;

	if (first->id != id)
		return;
	if (PQnfields(rows) == 1)
		set_result(&entries[i++], STORE_CREATED);
	for (; i < n && entries[i].item->plant->id == id; i++)
		if (PQnfields(rows) == 1)
			compare(&entries[i], first->text, first->len);
		else
			compare(&entries[i], PQgetvalue(rows, row, 1),
			    (size_t)PQgetlength(rows, row, 1));
}

static size_t
count_open(const struct entry *entries, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += entries[i].open && is_first(entries, i);
	return count;
}

/* Run one of the two statements for the open entries. */
static enum session_result
run_statement(struct session *session, const char *name, struct entry *entries,
    size_t n, int64_t deadline_ms)
{
	struct session_query query = { .name = name };
	enum session_result status = SESSION_REFUSED;
	PGresult *rows = NULL;
	char *values =
	    encode(entries, n, strcmp(name, INSERT_NAME) == 0, &query);

	if (values != NULL)
		status = session_run(session, &query, deadline_ms, &rows);
	else
		/* As the server reports that it has no memory. */
		memcpy(session->sqlstate, "53200", SESSION_SQLSTATE_MAX);
	for (int row = 0; row < PQntuples(rows); row++)
		settle_row(entries, n, rows, row);
	PQclear(rows);
	free(values);
	return status;
}

/* --- Commit --- */

/* A code once; another code, and the same after a while, again. */
static void
log_trouble(struct store *store, const char *code, const char *reason)
{
	int64_t now_ms = clock_ms(CLOCK_MONOTONIC);

	pthread_mutex_lock(&store->mutex);
	bool known = strcmp(store->trouble, code) == 0 &&
		     now_ms - store->trouble_ms < TROUBLE_INTERVAL_MS;
	if (!known) {
		strcpy(store->trouble, code);
		store->trouble_ms = now_ms;
	}
	pthread_mutex_unlock(&store->mutex);
	if (!known)
		log_error("the database did not store a batch: %s (%s)", reason,
		    code);
}

static void
log_success(struct store *store)
{
	pthread_mutex_lock(&store->mutex);
	bool trouble = store->trouble[0] != '\0';
	store->trouble[0] = '\0';
	pthread_mutex_unlock(&store->mutex);
	if (trouble)
		log_info("the database stores plants again");
}

static bool
starts_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Of a statement that was refused.  AWAY closes the session. */
static enum store_result
result_of(const char *sqlstate)
{
	if (strcmp(sqlstate, "53100") == 0)
		return STORE_FULL;
	/* Resources, locks, conflicts, cancelled by an administrator. */
	if (starts_with(sqlstate, "53") || starts_with(sqlstate, "55") ||
	    starts_with(sqlstate, "40") || strcmp(sqlstate, "57014") == 0)
		return STORE_BUSY;
	return STORE_AWAY;
}

/*
 * Store the open entries and find the results.  False if the session is of no
 * use any more.
 */
static bool
store_entries(struct store *store, struct session *session,
    struct entry *entries, size_t n, int64_t deadline_ms)
{
	enum session_result status;
	bool again;

	do {
		status = run_statement(
		    session, INSERT_NAME, entries, n, deadline_ms);
		if (status == SESSION_DONE && count_open(entries, n) > 0)
			status = run_statement(
			    session, REPEAT_NAME, entries, n, deadline_ms);
		again = status == SESSION_REFUSED &&
			(strcmp(session->sqlstate, "40001") == 0 ||
			    strcmp(session->sqlstate, "40P01") == 0) &&
			clock_ms(CLOCK_MONOTONIC) < deadline_ms;
	} while (again);
	if (status == SESSION_DONE) {
		/* Deleted between the two statements. */
		end_open(entries, n, STORE_BUSY);
		return true;
	}
	if (status == SESSION_UNKNOWN) {
		log_trouble(store,
		    session->sqlstate[0] != '\0' ? session->sqlstate : "?",
		    session->reason);
		end_open(entries, n, STORE_UNKNOWN);
		return false;
	}
	if (strcmp(session->sqlstate, "55P03") == 0 &&
	    count_open(entries, n) > 1)
		return true;
	log_trouble(store, session->sqlstate, session->reason);
	enum store_result result = result_of(session->sqlstate);
	end_open(entries, n, result);
	return result != STORE_AWAY;
}

/* The same, and each id alone where one of them is locked. */
static bool
store_batch(struct store *store, struct session *session, struct entry *entries,
    size_t n, int64_t deadline_ms)
{
	bool usable = store_entries(store, session, entries, n, deadline_ms);
	size_t some;

	for (size_t i = 0; i < n && usable; i += some) {
		for (some = 1; i + some < n && !is_first(entries, i + some);)
			some++;
		if (!entries[i].open)
			continue;
		if (clock_ms(CLOCK_MONOTONIC) >= deadline_ms)
			break;
		usable = store_entries(
		    store, session, entries + i, some, deadline_ms);
	}
	/* Not tried. */
	end_open(entries, n, usable ? STORE_BUSY : STORE_AWAY);
	return usable;
}

static int
by_id(const void *a, const void *b)
{
	const struct store_item *x = ((const struct entry *)a)->item;
	const struct store_item *y = ((const struct entry *)b)->item;

	if (x->plant->id != y->plant->id)
		return x->plant->id < y->plant->id ? -1 : 1;
	return (x > y) - (x < y);
}

/* As many items as one statement may hold.  Their results are set. */
static size_t
commit_some(struct store *store, struct store_item *items, size_t n)
{
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS;
	struct session *session = NULL;
	bool stored = false;
	size_t some = 0;

	for (size_t bytes = 0; some < n && some < STATEMENT_IDS_MAX &&
			       bytes < STATEMENT_BYTES_MAX;
	     some++)
		bytes += items[some].plant->len;
	struct entry *entries = malloc(some * sizeof(*entries));
	if (entries != NULL)
		session = take_session(store, deadline_ms);
	for (size_t i = 0; i < some; i++) {
		items[i].result = entries != NULL ? STORE_AWAY : STORE_BUSY;
		if (session != NULL)
			entries[i] =
			    (struct entry){ .item = &items[i], .open = true };
	}
	if (session != NULL) {
		/* Two batches that lock in one order do not deadlock. */
		qsort(entries, some, sizeof(*entries), by_id);
		if (store_batch(store, session, entries, some, deadline_ms))
			give_back(store, session);
		else
			session_close(session);
	}
	for (size_t i = 0; i < some; i++)
		stored |= items[i].result <= STORE_CONFLICT;
	if (stored)
		log_success(store);
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

/* Each thread has its own session: there is nothing to wait for. */
static void
do_nothing(struct store *store)
{
	(void)store;
}

static void
close_store(struct store *store)
{
	struct session *session;

	if (store->prepare) {
		pthread_mutex_lock(&store->mutex);
		store->stop = true;
		pthread_cond_signal(&store->wanted);
		pthread_mutex_unlock(&store->mutex);
		pthread_join(store->keeper, NULL);
	}
	while ((session = get_idle(store)) != NULL)
		session_close(session);
	pthread_cond_destroy(&store->wanted);
	pthread_cond_destroy(&store->news);
	pthread_mutex_destroy(&store->mutex);
	free(store);
}

/* The first attempt, which only the keeper's thread may wait for longer. */
static enum fault
start_keeper(struct store *store)
{
	int64_t until_ms = clock_ms(CLOCK_MONOTONIC) + SESSION_TIMEOUT_MS;
	enum fault fault = FAULT_NONE;

	errno = pthread_create(&store->keeper, NULL, keep, store);
	if (errno != 0) {
		store->prepare = false;
		return fault_report("the database", "cannot start a thread");
	}
	pthread_mutex_lock(&store->mutex);
	while (!store->tried && clock_ms(CLOCK_MONOTONIC) < until_ms)
		wait_until(store, &store->news, until_ms);
	if (!store->tried)
		log_warning("the database does not answer yet: until it does, "
			    "requests are answered 503");
	else if (store->fault == FAULT_SETUP || store->fault == FAULT_MEMORY)
		fault = store->fault;
	pthread_mutex_unlock(&store->mutex);
	return fault;
}

static enum fault
connect_once(struct store *store)
{
	char reason[SESSION_REASON_MAX];
	enum fault fault = FAULT_NONE;
	struct session *session =
	    session_open(store->database, true, &fault, reason);

	if (session != NULL)
		put_idle(store, session);
	else
		log_error("the database: %s", reason);
	return fault;
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
	*fault = store->prepare ? start_keeper(store) : connect_once(store);
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
