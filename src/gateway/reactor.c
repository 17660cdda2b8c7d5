/*
 * reactor: see reactor.h.
 *
 * Happy path of a round: accept what is there, look at every connection that
 * has something new, read the requests that have arrived whole, answer those
 * that are refused, store the plants of the others with one commit, answer
 * them.  Failure modes: a peer that is late is closed by its deadline; without
 * descriptors for new connections the listener rests for a moment; a store that
 * has failed ends all reactors and the process.
 */
#include "reactor.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "connection.h"
#include "fastcgi.h"
#include "ground/clock.h"
#include "ground/log.h"

#define LISTENER 0
#define EVENTS_MAX 256
/* More than a socket that is only looked at can hold; see connection.c. */
#define SCRATCH_BYTES ((size_t)64 << 10)
/* The listener's rest when descriptors have run out. */
#define REST_MS 50
/* How long no plant has come before the store is idle. */
#define IDLE_MS 1000
/*
 * A spool holds the body up to its limit, the parameters, and the headers of
 * the records, which are small against what any server puts into them.
 */
#define SPOOL_BYTES_MAX(body) (2 * (body) + 2 * FCGI_FRAME_PARAMS_MAX)

/* A request whose plant waits for the commit. */
struct pending {
	struct connection *connection;
	struct fastcgi fastcgi;
	struct api_call call;
};

struct reactor {
	const struct config *config;
	struct store *store;
	int stop; /* an eventfd, shared: readable when it is time to end */
	struct api api;
	int epoll;
	bool listening, told_to_stop, draining;
	int status;
	int64_t now_ms, rest_until_ms, drain_until_ms, active_ms;
	bool idle_told, rest_told;
	struct connection_list waiting, kept;
	size_t npending, pending_size;
	struct pending **pending;
	struct store_item *items;
	unsigned char *scratch;
	char *body;
};

/* Deadlines need no more than the coarse clock. */
static int64_t
read_clock_ms(void)
{
	return clock_ms(CLOCK_MONOTONIC_COARSE);
}

/* Its address in an event means the listener; NULL means stop. */
static const char listener_mark;

static int
watch(int epoll, int operation, int fd, uint32_t events, const void *mark)
{
	struct epoll_event event = { .events = events };

	memcpy(&event.data.ptr, &mark, sizeof(mark));
	return epoll_ctl(epoll, operation, fd, &event);
}

static void
listen_again(struct reactor *r)
{
	/* Exclusive: one arrival wakes one reactor of one process. */
	if (watch(r->epoll, EPOLL_CTL_ADD, LISTENER, EPOLLIN | EPOLLEXCLUSIVE,
		&listener_mark) == 0)
		r->listening = true;
}

static void
stop_listening(struct reactor *r)
{
	if (r->listening)
		watch(r->epoll, EPOLL_CTL_DEL, LISTENER, 0, NULL);
	r->listening = false;
}

/* Wait for more of a request, for the next one, or for room to send. */
static void
await(struct reactor *r, struct connection *c)
{
	uint32_t events = EPOLLIN | EPOLLRDHUP | EPOLLET |
			  (c->answer >= 0 ? (uint32_t)EPOLLOUT : 0);

	if (c->registered ||
	    watch(r->epoll, EPOLL_CTL_ADD, c->fd, events, c) == 0)
		c->registered = true;
	else
		connection_free(c);
}

/* Before its number means something else, which epoll would not notice. */
static void
forget(struct reactor *r, struct connection *c, int fd)
{
	if (c->registered)
		watch(r->epoll, EPOLL_CTL_DEL, fd, 0, NULL);
	c->registered = false;
}

/* An answer has been sent. */
static void
keep_or_free(struct reactor *r, struct connection *c)
{
	c->busy = false;
	if (c->fd < 0 || c->last || r->draining) {
		connection_free(c);
		return;
	}
	connection_renew(c);
	connection_place(c, &r->kept, r->now_ms);
	await(r, c);
}

static void
send_more(struct reactor *r, struct connection *c)
{
	switch (connection_send(c)) {
	case CONNECTION_READY:
		forget(r, c, c->fd);
		keep_or_free(r, c);
		break;
	case CONNECTION_WAITING:
		await(r, c);
		break;
	case CONNECTION_GONE:
		connection_free(c);
		break;
	}
}

static void
end_request(struct reactor *r, struct connection *c, struct fastcgi *fastcgi,
    const char *answer, size_t len)
{
	bool keep;

	if (len <= FASTCGI_ANSWER_MAX) {
		c->fd =
		    fastcgi_end(fastcgi, answer, len, !r->draining && !c->last);
		keep_or_free(r, c);
		return;
	}
	/* Its reader may be slow: it is sent as the socket takes it. */
	forget(r, c, fastcgi_descriptor(fastcgi));
	c->answer = fastcgi_end_to_file(fastcgi, answer, len, &c->fd, &keep);
	if (c->answer < 0) {
		connection_free(c);
		return;
	}
	c->last |= !keep;
	c->busy = false;
	connection_place(c, &r->waiting, r->now_ms);
	send_more(r, c);
}

static void
answer(struct reactor *r, struct connection *c, struct fastcgi *fastcgi,
    struct api_call *call)
{
	char reserve[RESPONSE_HEAD_MAX];
	size_t len;
	char *text = api_answer(&r->api, call, &len);

	if (text != NULL) {
		end_request(r, c, fastcgi, text, len);
		free(text);
	} else {
		const struct response_error failure = {
			.error = HTTP_OUT_OF_MEMORY
		};

		len = response_error(&failure, r->config->contract_status,
		    call->head_method, reserve);
		end_request(r, c, fastcgi, reserve, len);
	}
	api_done(call);
}

/* A place for one more, kept from round to round. */
static struct pending *
next_pending(struct reactor *r)
{
	if (r->npending == r->pending_size) {
		size_t size = r->pending_size == 0 ? 16 : r->pending_size * 2;
		struct pending **pending =
		    realloc(r->pending, size * sizeof(struct pending *));

		if (pending == NULL)
			return NULL;
		memset(pending + r->pending_size, 0,
		    (size - r->pending_size) * sizeof(struct pending *));
		r->pending = pending;
		struct store_item *items =
		    realloc(r->items, size * sizeof(*items));
		if (items == NULL)
			return NULL;
		r->items = items;
		r->pending_size = size;
	}
	if (r->pending[r->npending] == NULL)
		r->pending[r->npending] = calloc(1, sizeof(struct pending));
	return r->pending[r->npending];
}

/* A request has arrived whole: check it, and either answer it or keep it. */
static void
take_request(struct reactor *r, struct connection *c)
{
	struct pending *p = next_pending(r);
	bool spooled = c->spool >= 0;
	bool whole;

	if (p == NULL) {
		connection_free(c);
		return;
	}
	connection_place(c, NULL, 0);
	if (spooled)
		forget(r, c, c->fd);
	int fd = spooled ? c->spool : c->fd;
	if (spooled)
		c->spool = -1;
	else
		c->fd = -1;
	if (fastcgi_begin(&p->fastcgi, fd) < 0) {
		connection_free(c);
		return;
	}
	int refused =
	    api_head(&r->api, &p->call, fastcgi_variables(&p->fastcgi));
	size_t len = fastcgi_read_body(
	    &p->fastcgi, r->body, r->config->body_bytes_max + 1, &whole);
	if (spooled) {
		if (fastcgi_redirect(&p->fastcgi, c->fd) < 0) {
			fastcgi_end(&p->fastcgi, "", 0, false);
			connection_free(c);
			return;
		}
		c->fd = -1;
	}
	if (refused == 0)
		refused = api_body(&r->api, &p->call, r->body, len, whole);
	if (refused != 0) {
		answer(r, c, &p->fastcgi, &p->call);
		return;
	}
	p->connection = c;
	c->busy = true;
	r->items[r->npending] =
	    (struct store_item){ .plant = &p->call.plant, .by = p->call.by };
	r->npending++;
}

static void
look(struct reactor *r, struct connection *c, bool hung_up)
{
	bool begun = c->begun;

	switch (connection_look(c, r->scratch, SCRATCH_BYTES,
	    SPOOL_BYTES_MAX(r->config->body_bytes_max))) {
	case CONNECTION_READY:
		take_request(r, c);
		break;
	case CONNECTION_GONE:
		connection_free(c);
		break;
	case CONNECTION_WAITING:
		if (hung_up) {
			connection_free(c);
			break;
		}
		if (!begun && c->begun)
			connection_place(c, &r->waiting, r->now_ms);
		await(r, c);
		break;
	}
}

/* No descriptors for new connections: not to spin meanwhile. */
static void
rest(struct reactor *r)
{
	if (!r->rest_told)
		log_warning("cannot accept connections: %s; raise the limit of "
			    "open files",
		    strerror(errno));
	r->rest_told = true;
	stop_listening(r);
	r->rest_until_ms = r->now_ms + REST_MS;
}

static void
accept_all(struct reactor *r)
{
	for (int i = 0; i < EVENTS_MAX; i++) {
		int fd =
		    accept4(LISTENER, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			if (errno != EAGAIN)
				rest(r);
			return;
		}
		r->rest_told = false;
		struct connection *c = connection_new(fd);
		if (c == NULL)
			continue;
		connection_place(c, &r->waiting, r->now_ms);
		look(r, c, false);
	}
}

/* The process ends, but with the answers of this round still sent. */
static void
end_process(struct reactor *r, int status)
{
	r->status = status;
	kill(getpid(), SIGTERM);
}

/* One commit for all that wait, and their answers. */
static void
commit_pending(struct reactor *r)
{
	if (store_commit(r->store, r->items, r->npending) < 0)
		end_process(r, EX_IOERR);
	size_t n = r->npending;
	r->npending = 0;
	for (size_t i = 0; i < n; i++) {
		struct pending *p = r->pending[i];

		api_stored(&p->call, r->items[i].result);
		answer(r, p->connection, &p->fastcgi, &p->call);
	}
	r->active_ms = r->now_ms;
	r->idle_told = false;
}

static void
close_overdue(struct connection_list *list, int64_t now_ms)
{
	while (list->first != NULL && list->first->deadline_ms <= now_ms)
		connection_free(list->first);
}

/* The time until something is due whatever arrives; -1: never. */
static int
time_left_ms(const struct reactor *r)
{
	int64_t due = INT64_MAX;

	if (r->waiting.first != NULL)
		due = r->waiting.first->deadline_ms;
	if (r->kept.first != NULL && r->kept.first->deadline_ms < due)
		due = r->kept.first->deadline_ms;
	if (!r->idle_told && r->active_ms + IDLE_MS < due)
		due = r->active_ms + IDLE_MS;
	if (!r->listening && !r->draining && r->rest_until_ms < due)
		due = r->rest_until_ms;
	if (r->draining && r->drain_until_ms < due)
		due = r->drain_until_ms;
	if (due == INT64_MAX)
		return -1;
	/* The coarse clock may be a tick behind: not to wake too early. */
	return due > r->now_ms ? (int)(due - r->now_ms) + 4 : 0;
}

static void
do_what_is_due(struct reactor *r)
{
	close_overdue(&r->waiting, r->now_ms);
	close_overdue(&r->kept, r->now_ms);
	if (!r->idle_told && r->now_ms >= r->active_ms + IDLE_MS) {
		store_idle(r->store);
		r->idle_told = true;
	}
	if (!r->listening && !r->draining && r->now_ms >= r->rest_until_ms)
		listen_again(r);
}

/* Time to end: nothing new, and kept connections without a request go. */
static void
begin_drain(struct reactor *r)
{
	if (r->draining)
		return;
	r->draining = true;
	r->drain_until_ms = r->now_ms + REACTOR_DRAIN_TIMEOUT_MS;
	stop_listening(r);
	watch(r->epoll, EPOLL_CTL_DEL, r->stop, 0, NULL);
	for (struct connection *c = r->kept.first, *next; c != NULL; c = next) {
		next = c->next;
		/* What has arrived by now is answered. */
		look(r, c, true);
	}
}

static bool
is_drained(const struct reactor *r)
{
	return r->draining && r->npending == 0 &&
	       (r->waiting.first == NULL || r->now_ms >= r->drain_until_ms);
}

static void
take_event(struct reactor *r, struct connection *c, uint32_t events)
{
	if (c->busy) {
		/* Hung up, or too early with its next: after the answer. */
		c->last = true;
		return;
	}
	if (c->answer >= 0)
		send_more(r, c);
	else
		look(r, c, (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
}

/* Wait for events and take them.  How many there were, or -1. */
static int
take_events(struct reactor *r, int timeout_ms)
{
	struct epoll_event events[EVENTS_MAX];
	int n = epoll_wait(r->epoll, events, EVENTS_MAX, timeout_ms);

	if (n < 0)
		return errno == EINTR ? 0 : -1;
	r->now_ms = read_clock_ms();
	api_tick(&r->api);
	for (int i = 0; i < n; i++) {
		void *mark = events[i].data.ptr;

		if (mark == NULL)
			r->told_to_stop = true;
		else if (mark == &listener_mark)
			accept_all(r);
		else
			take_event(r, mark, events[i].events);
	}
	/* Not before: it frees connections that may be among the events. */
	if (r->told_to_stop)
		begin_drain(r);
	return n;
}

void *
reactor_run(void *argument)
{
	struct reactor *r = argument;

	r->now_ms = r->active_ms = read_clock_ms();
	listen_again(r);
	while (!is_drained(r)) {
		if (take_events(r, time_left_ms(r)) < 0) {
			log_error("epoll_wait: %s", strerror(errno));
			end_process(r, EX_OSERR);
			break;
		}
		do_what_is_due(r);
		if (r->npending > 0) {
			/* Whoever comes meanwhile goes with this batch. */
			store_wait(r->store);
			take_events(r, 0);
			commit_pending(r);
		}
	}
	return NULL;
}

struct reactor *
reactor_new(
    const struct config *config, struct store *store, int stop, int *status)
{
	struct reactor *r = calloc(1, sizeof(*r));
	char error[512];

	*status = EX_OSERR;
	if (r == NULL)
		goto fail;
	r->epoll = -1;
	r->config = config;
	r->store = store;
	r->stop = stop;
	r->waiting.timeout_ms = REACTOR_REQUEST_TIMEOUT_MS;
	r->kept.timeout_ms = REACTOR_KEPT_TIMEOUT_MS;
	r->api.config = config;
	r->api.tokens = tokens_open(config->tokens, error, sizeof(error));
	if (r->api.tokens == NULL) {
		log_error("PLANT_STORE_TOKENS: %s", error);
		*status = EX_CONFIG;
		reactor_free(r);
		return NULL;
	}
	r->scratch = malloc(SCRATCH_BYTES);
	/* One byte more than allowed shows that there is more. */
	r->body = malloc(config->body_bytes_max + 1);
	r->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (r->scratch == NULL || r->body == NULL || r->epoll < 0 ||
	    watch(r->epoll, EPOLL_CTL_ADD, stop, EPOLLIN, NULL) < 0)
		goto fail;
	return r;

fail:
	log_error("cannot start a reactor: %s", strerror(errno));
	reactor_free(r);
	return NULL;
}

int
reactor_status(const struct reactor *r)
{
	return r->status;
}

static void
free_connections(struct connection_list *list)
{
	while (list->first != NULL)
		connection_free(list->first);
}

void
reactor_free(struct reactor *r)
{
	if (r == NULL)
		return;
	free_connections(&r->waiting);
	free_connections(&r->kept);
	for (size_t i = 0; i < r->pending_size; i++)
		free(r->pending[i]);
	free(r->pending);
	free(r->items);
	tokens_close(r->api.tokens);
	if (r->epoll >= 0)
		close(r->epoll);
	free(r->scratch);
	free(r->body);
	free(r);
}
