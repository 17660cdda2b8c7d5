/*
 * reactor: see reactor.h.
 *
 * Happy path of a round: accept what is there, look at every connection that
 * has something new, read the requests that have arrived whole, answer those
 * that are refused, store the plants of the others with one commit, answer
 * them.  Failure modes: arrivals.c's for single peers; a store that has failed
 * ends all reactors and the process.
 */
#include "reactor.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "arrivals.h"
#include "exchange.h"
#include "ground/clock.h"
#include "ground/log.h"
#include "reactor_state.h"

#define EVENTS_MAX 256
/* How long no plant has come before the store is idle. */
#define IDLE_MS 1000
/*
 * A client that sends its next plant as soon as it has the answer to its last
 * would each time find the CPU asleep, and waking it takes about as long as the
 * web server does.  So where one plant after another comes, each so soon after
 * the one before, the reactor looks for that time before it sleeps.
 */
#define LONE_ROUNDS 8
#define LONE_PROMPT_US 500
#define LONE_LOOK_US 100
/*
 * So many plants are worth a sync as they are.  On a slow disk most have come by
 * now, and what the reactor waits for the CPU is lost.
 */
#define YIELD_MAX 64
/* How long a request may stay in its socket; see connection_stop_peeking. */
#define PEEK_MS 100

/* Deadlines need no more than the coarse clock. */
void
reactor_read_clock(struct reactor *r)
{
	r->now_ms = clock_ms(CLOCK_MONOTONIC_COARSE);
}

int
reactor_watch(
    int epoll, int operation, int fd, uint32_t events, const void *mark)
{
	struct epoll_event event = { .events = events };

	memcpy(&event.data.ptr, &mark, sizeof(mark));
	return epoll_ctl(epoll, operation, fd, &event);
}

/* The process ends, but with the answers of this round still sent. */
void
reactor_fail(struct reactor *r, int status)
{
	r->status = status;
	kill(getpid(), SIGTERM);
}

/* The time until something is due whatever arrives; -1: never. */
static int
time_left_ms(const struct reactor *r)
{
	int64_t due = INT64_MAX;

	if (r->waiting.first != NULL)
		due = r->waiting.first->deadline_ms;
	if (r->peeked.first != NULL && r->peeked.first->deadline_ms < due)
		due = r->peeked.first->deadline_ms;
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
	arrivals_end_overdue(r);
	/* Not without a last look: a commit may have taken all the time. */
	if (r->draining && r->now_ms >= r->drain_until_ms)
		arrivals_end_all(r);
	if (!r->idle_told && r->now_ms >= r->active_ms + IDLE_MS) {
		store_idle(r->store);
		r->idle_told = true;
	}
	if (!r->listening && !r->draining && r->now_ms >= r->rest_until_ms)
		arrivals_listen(r);
}

static void
free_connections(struct connection_list *list)
{
	while (list->first != NULL)
		connection_free(list->first);
}

/* Time to end: nothing new, and kept connections without a request go. */
static void
begin_drain(struct reactor *r)
{
	if (r->draining)
		return;
	r->draining = true;
	r->drain_until_ms = r->now_ms + REACTOR_DRAIN_TIMEOUT_MS;
	arrivals_refuse(r);
	/* What woke us since, and so nobody else, would wait for the next. */
	arrivals_accept(r);
	reactor_watch(r->epoll, EPOLL_CTL_DEL, r->stop, 0, NULL);
	for (struct connection *c = r->kept.first, *next; c != NULL; c = next) {
		next = c->next;
		/* What has begun to arrive by now is answered. */
		arrivals_look(r, c, false);
	}
	free_connections(&r->kept);
}

static bool
is_drained(const struct reactor *r)
{
	return r->draining && r->npending == 0 && r->waiting.first == NULL &&
	       r->peeked.first == NULL;
}

static void
take_event(struct reactor *r, struct connection *c, uint32_t events)
{
	if (c->busy) {
		/* Hung up, or too early with its next: after the answer. */
		c->last = true;
		return;
	}
	if (c->answer != NULL)
		exchange_send_more(r, c);
	else
		arrivals_look(
		    r, c, (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
}

static int
wait_for_events(struct reactor *r, struct epoll_event *events, int timeout_ms)
{
	int64_t lone_us = r->lone_us;
	int n = 0;

	if (lone_us == 0 || timeout_ms == 0)
		return epoll_wait(r->epoll, events, EVENTS_MAX, timeout_ms);
	r->lone_us = 0;
	while (r->prompt >= LONE_ROUNDS && n == 0 &&
	       clock_us(CLOCK_MONOTONIC) - lone_us < LONE_LOOK_US) {
		n = epoll_wait(r->epoll, events, EVENTS_MAX, 0);
		if (n == 0)
			sched_yield();
	}
	if (n == 0)
		n = epoll_wait(r->epoll, events, EVENTS_MAX, timeout_ms);
	if (clock_us(CLOCK_MONOTONIC) - lone_us < LONE_PROMPT_US)
		r->prompt++;
	else
		r->prompt = 0;
	return n;
}

static void
note_round(struct reactor *r, bool lone)
{
	r->lone_us = lone ? clock_us(CLOCK_MONOTONIC) : 0;
	if (!lone)
		r->prompt = 0;
}

/* Wait for events and take them.  How many there were, or -1. */
static int
take_events(struct reactor *r, int timeout_ms)
{
	struct epoll_event events[EVENTS_MAX];
	int n = wait_for_events(r, events, timeout_ms);

	if (n < 0)
		return errno == EINTR ? 0 : -1;
	reactor_read_clock(r);
	api_tick(&r->api);
	for (int i = 0; i < n; i++) {
		void *mark = events[i].data.ptr;

		if (mark == NULL)
			r->told_to_stop = true;
		else if (mark == &arrivals_mark)
			arrivals_accept(r);
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

	reactor_read_clock(r);
	r->active_ms = r->now_ms;
	arrivals_listen(r);
	while (!is_drained(r)) {
		if (take_events(r, time_left_ms(r)) < 0) {
			log_error("epoll_wait: %s", strerror(errno));
			reactor_fail(r, EX_OSERR);
			break;
		}
		do_what_is_due(r);
		if (r->npending > 0) {
			/* Whoever comes meanwhile goes with this batch. */
			store_wait(r->store);
			/* Where several send, more are about to. */
			if (r->npending > 1 && r->npending <= YIELD_MAX)
				sched_yield();
			take_events(r, 0);
			bool lone = r->npending == 1;
			exchange_commit(r);
			note_round(r, lone);
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
	r->peeked.timeout_ms = PEEK_MS;
	r->waiting.timeout_ms = REACTOR_REQUEST_TIMEOUT_MS;
	r->kept.timeout_ms = REACTOR_KEPT_TIMEOUT_MS;
	r->api.config = config;
	r->api.tokens =
	    tokens_open(config->tokens, status, error, sizeof(error));
	if (r->api.tokens == NULL) {
		log_error("PLANT_STORE_TOKENS: %s", error);
		reactor_free(r);
		return NULL;
	}
	r->scratch = malloc(REACTOR_SCRATCH_BYTES);
	/* One byte more than allowed shows that there is more. */
	r->body = malloc(config->body_bytes_max + 1);
	r->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (r->scratch == NULL || r->body == NULL || r->epoll < 0 ||
	    reactor_watch(r->epoll, EPOLL_CTL_ADD, stop, EPOLLIN, NULL) < 0)
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

void
reactor_free(struct reactor *r)
{
	if (r == NULL)
		return;
	free_connections(&r->peeked);
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
