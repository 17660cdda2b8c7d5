/*
 * reactor: see gateway.h.
 *
 * Happy path of a round: accept new connections, receive on every connection
 * with events, read the requests that are complete, answer those that are
 * refused, store the plants of the others with one commit, answer them, and
 * keep or close each connection as its web server asks.
 *
 * Failure modes: a connection is closed if its peer is too slow or has gone.
 * If memory or descriptors run out, new connections wait.  If the store fails,
 * the process ends once the round is answered.
 */
#include "gateway.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "connection.h"
#include "ground/clock.h"
#include "ground/file.h"
#include "ground/log.h"

/* To receive a request, from connection or first byte; to send a response. */
#define REQUEST_TIMEOUT_MS 10000
/* Between two requests of a kept connection. */
#define KEPT_TIMEOUT_MS 300000
/* After SIGTERM, to receive and answer the requests that have begun. */
#define DRAIN_TIMEOUT_MS 1000
/* The maximum wait; the deadlines are checked after each wait. */
#define WAIT_MS 1000
/* The same during a drain, and after accept has failed. */
#define WAIT_BRIEFLY_MS 50
/* The minimum interval between two warnings from a reactor. */
#define WARNING_INTERVAL_MS 60000

/* The maximum number of events that one epoll_wait returns. */
#define EVENTS_MAX 256
/* The maximum number of bytes that one read takes from a socket. */
#define RECEIVE_BYTES ((size_t)64 << 10)
/* A spool's limit: the longest body, and as much again for record headers. */
#define SPOOL_BYTES_MAX(body) (2 * (body) + ((size_t)64 << 10))
/* The maximum number of plants in a batch: one per waiting connection. */
#define BATCH_MAX 65536

/*
 * The gains in requests were measured in paired runs, on and off, on two CPUs.
 *
 * PROMPT_US: after two batches of one plant within this time, the reactor polls
 * for the same time before it sleeps: waking a CPU takes about as long as the
 * web server's work.  This gains 10 to 28 % at one connection.
 *
 * YIELD_MAX: with 2 to YIELD_MAX plants in the batch, the reactor yields the
 * CPU to the web server, which will send more.  This gains 3 to 17 % at 64
 * connections.  With more plants and 5 ms syncs, it costs 7 to 13 % at 256.
 */
#define PROMPT_US 200
#define YIELD_MAX 64

#define LISTENER 0
#define NEVER INT64_MAX

struct reactor {
	pthread_t thread;
	struct store *store;
	struct api api;
	int epoll, status;
	bool draining;
	bool starved; /* connections wait for a descriptor or memory */
	int64_t now_ms, drain_until_ms, warn_at_ms;
	int64_t alone_us;      /* when a batch of one plant ended; else 0 */
	int64_t poll_until_us; /* see PROMPT_US */
	struct connection_list waiting, kept;
	struct connection_list busy; /* those with a plant in `items` */
	size_t nitems;
	struct store_item items[BATCH_MAX]; /* in the order of `busy` */
	char body[API_ANSWER_MAX]; /* a request's body, or a CGI response */
	unsigned char bytes[];     /* received, or the response's records */
};

/* Stop the process once this round is answered. */
static void
fail(struct reactor *r, int status)
{
	r->status = status;
	kill(getpid(), SIGTERM);
}

/* Under load a shortage comes and goes many times a second. */
static void
warn(struct reactor *r, const char *what)
{
	if (r->now_ms < r->warn_at_ms)
		return;
	r->warn_at_ms = r->now_ms + WARNING_INTERVAL_MS;
	log_warning("%s: %s%s", what, strerror(errno),
	    errno == EMFILE ? "; raise the limit on open files" : "");
}

/* Wait for the next request, for more of one, or for room to send. */
static void
await(struct reactor *r, struct connection *c)
{
	struct epoll_event event = { EPOLLIN | EPOLLRDHUP | EPOLLET, { c } };
	int how = c->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

	if (c->answer != NULL)
		event.events |= EPOLLOUT;
	if (event.events == c->events)
		return;
	c->events = event.events;
	if (epoll_ctl(r->epoll, how, c->fd, &event) < 0) {
		warn(r, "cannot watch a connection");
		connection_free(c);
	}
}

/* Send a response, or the rest of one.  Once it is sent, keep or close `c`. */
static void
send_answer(struct reactor *r, struct connection *c, const unsigned char *buf,
    size_t len)
{
	int status = connection_send(c, buf, len);
	bool sent = c->answer == NULL;

	if (status < 0 || (sent && (c->last || r->draining))) {
		connection_free(c);
		return;
	}
	if (sent)
		connection_place(c, &r->kept, r->now_ms);
	await(r, c);
}

static void
answer(struct reactor *r, struct connection *c)
{
	assert(c->answer == NULL);
	size_t len = api_answer(&r->api, &c->call, r->body);

	fcgi_frame_answer(r->bytes, c->frame.id, r->body, len);
	plant_done(&c->call.plant);
	connection_place(c, &r->waiting, r->now_ms);
	send_answer(r, c, r->bytes, fcgi_frame_answer_len(len));
}

/* Answer a complete request, or add it to the batch. */
static void
serve(struct reactor *r, struct connection *c)
{
	assert(c->list != &r->busy);
	char **variables = connection_read_head(c);

	if (variables == NULL) {
		connection_free(c);
		return;
	}
	int refused = api_head(&r->api, &c->call, variables);
	/* One byte above the limit reveals a longer body. */
	size_t len = connection_read_body(
	    c, r->body, (int)r->api.config->body_bytes_max + 1);
	if (refused != 0 || api_body(&r->api, &c->call, r->body, len) != 0)
		answer(r, c);
	else if (r->nitems == BATCH_MAX) {
		api_stored(&c->call, STORE_BUSY);
		answer(r, c);
	} else {
		r->items[r->nitems++] =
		    (struct store_item){ .plant = &c->call.plant,
			    .by = c->call.by };
		connection_place(c, &r->busy, r->now_ms);
	}
}

static void
receive(struct reactor *r, struct connection *c)
{
	assert(c->answer == NULL && c->list != &r->busy);
	enum fcgi_frame_state state = connection_receive(c, r->bytes,
	    RECEIVE_BYTES, SPOOL_BYTES_MAX(r->api.config->body_bytes_max));

	if (state == FCGI_FRAME_COMPLETE)
		serve(r, c);
	else if (state == FCGI_FRAME_BAD || c->last)
		connection_free(c);
	else {
		if (c->begun && c->list == &r->kept)
			connection_place(c, &r->waiting, r->now_ms);
		await(r, c);
	}
}

/* Accept all waiting connections.  After an error, try again next round. */
static void
accept_connections(struct reactor *r)
{
	for (r->starved = false;;) {
		int fd =
		    accept4(LISTENER, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			r->starved = errno != EAGAIN;
			if (r->starved)
				warn(r, "cannot accept connections");
			return;
		}
		struct connection *c = connection_new(fd);
		if (c == NULL)
			continue;
		connection_place(c, &r->waiting, r->now_ms);
		receive(r, c);
	}
}

/* Close overdue connections.  A request that a commit delayed is answered. */
static void
end_overdue(struct reactor *r, struct connection_list *list)
{
	/* At the end of a drain, all deadlines count as passed. */
	int64_t now_ms = r->now_ms < r->drain_until_ms ? r->now_ms : NEVER;
	struct connection *c;

	while ((c = list->first) != NULL && c->deadline_ms <= now_ms) {
		c->last = true;
		if (c->answer != NULL)
			connection_free(c);
		else
			receive(r, c);
	}
}

static void
free_list(struct connection_list *list)
{
	struct connection *c;

	while ((c = list->first) != NULL)
		connection_free(c);
}

/* Stop listening, and close kept connections that have no request. */
static void
begin_drain(struct reactor *r)
{
	struct connection *c, *next;

	assert(!r->draining);
	r->draining = true;
	r->drain_until_ms = r->now_ms + DRAIN_TIMEOUT_MS;
	epoll_ctl(r->epoll, EPOLL_CTL_DEL, LISTENER, NULL);
	/* A connection that woke only this reactor would be left waiting. */
	accept_connections(r);
	r->starved = false;
	for (c = r->kept.first; c != NULL; c = next) {
		next = c->next;
		/* A request that has begun to arrive moves to `waiting`. */
		receive(r, c);
	}
	free_list(&r->kept);
}

static void
handle_event(struct reactor *r, struct connection *c, uint32_t events)
{
	bool busy = c->list == &r->busy;

	assert(c->list != NULL);
	/* The peer hung up, or sent a request before the response. */
	if (busy || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
		c->last = true;
	if (c->answer != NULL)
		send_answer(r, c, c->answer, c->answer_len);
	else if (!busy)
		receive(r, c);
}

/* Wait for events and handle them.  Return 0, or -1 if epoll fails. */
static int
handle_events(struct reactor *r, int timeout_ms)
{
	struct epoll_event events[EVENTS_MAX];
	bool stop = false;
	int n = epoll_wait(r->epoll, events, EVENTS_MAX, timeout_ms);

	if (n < 0 && errno != EINTR)
		return -1;
	r->now_ms = clock_ms(CLOCK_MONOTONIC_COARSE);
	api_tick(&r->api);
	for (int i = 0; i < n; i++) {
		void *mark = events[i].data.ptr;

		if (mark == NULL)
			stop = true;
		else if (mark == r)
			accept_connections(r);
		else
			handle_event(r, mark, events[i].events);
	}
	/* Drain last: draining frees connections that `events` may contain. */
	if (stop)
		begin_drain(r);
	end_overdue(r, &r->waiting);
	end_overdue(r, &r->kept);
	if (r->starved)
		accept_connections(r);
	return 0;
}

static void
commit(struct reactor *r)
{
	const size_t n = r->nitems;
	bool prompt = clock_us(CLOCK_MONOTONIC) - r->alone_us < PROMPT_US;
	int status = store_commit(r->store, r->items, n);

	/* The time of the commit does not count against deadlines. */
	r->now_ms = clock_ms(CLOCK_MONOTONIC_COARSE);
	for (size_t i = 0; i < n; i++) {
		struct connection *c = r->busy.first;

		assert(c != NULL && r->items[i].plant == &c->call.plant);
		api_stored(&c->call, r->items[i].result);
		answer(r, c);
	}
	assert(n > 0 && r->busy.first == NULL);
	r->nitems = 0;
	if (status < 0)
		fail(r, EX_IOERR);
	r->alone_us = n == 1 ? clock_us(CLOCK_MONOTONIC) : 0;
	r->poll_until_us = n == 1 && prompt ? r->alone_us + PROMPT_US : 0;
}

/* In a round with plants, requests that have arrived join the batch. */
static void *
run(void *argument)
{
	struct reactor *r = argument;

	while (!r->draining || r->waiting.first != NULL || r->nitems > 0) {
		const size_t n = r->nitems;
		const bool polls =
		    n == 0 && clock_us(CLOCK_MONOTONIC) < r->poll_until_us;
		int timeout_ms = WAIT_MS;

		/* Plants that arrive during another commit join this batch. */
		if (n > 0)
			store_wait(r->store);
		if (polls || (n > 1 && n <= YIELD_MAX))
			sched_yield();
		if (n > 0 || polls)
			timeout_ms = 0;
		else if (r->draining || r->starved)
			timeout_ms = WAIT_BRIEFLY_MS;
		if (handle_events(r, timeout_ms) < 0) {
			log_error("epoll_wait: %s", strerror(errno));
			fail(r, EX_OSERR);
			break;
		}
		if (n > 0)
			commit(r);
	}
	return NULL;
}

struct reactor *
reactor_start(const struct config *config, struct tokens *tokens,
    struct store *store, int stop)
{
	/* Edge-triggered, so that epoll reports the stop once. */
	struct epoll_event stopping = { EPOLLIN | EPOLLET, { NULL } };
	/* Exclusive: a connection need not wake every reactor. */
	struct epoll_event listening = { EPOLLIN | EPOLLET | EPOLLEXCLUSIVE,
		{ NULL } };
	/* r->bytes holds the longest response: unused memory costs nothing. */
	struct reactor *r =
	    calloc(1, sizeof(*r) + fcgi_frame_answer_len(API_ANSWER_MAX));

	if (r == NULL) {
		log_error("cannot start a reactor: %s", strerror(errno));
		return NULL;
	}
	listening.data.ptr = r;
	r->store = store;
	r->drain_until_ms = NEVER;
	r->waiting.timeout_ms = REQUEST_TIMEOUT_MS;
	r->kept.timeout_ms = KEPT_TIMEOUT_MS;
	r->api.config = config;
	r->api.tokens = tokens;
	r->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (r->epoll < 0 ||
	    epoll_ctl(r->epoll, EPOLL_CTL_ADD, stop, &stopping) < 0 ||
	    epoll_ctl(r->epoll, EPOLL_CTL_ADD, LISTENER, &listening) < 0 ||
	    (errno = pthread_create(&r->thread, NULL, run, r)) != 0) {
		log_error("cannot start a reactor: %s", strerror(errno));
		file_close(r->epoll);
		free(r);
		return NULL;
	}
	return r;
}

int
reactor_join(struct reactor *r)
{
	pthread_join(r->thread, NULL);
	int status = r->status;
	free_list(&r->busy);
	free_list(&r->waiting);
	free_list(&r->kept);
	close(r->epoll);
	free(r);
	return status;
}
