/*
 * arrivals: see arrivals.h.
 *
 * Happy path: accept, look, and what has arrived whole is exchange's.  Failure
 * modes: a peer that is late or has gone is closed; without descriptors for new
 * connections the listener rests for a moment.
 */
#include "arrivals.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "exchange.h"
#include "ground/log.h"
#include "reactor_state.h"

#define LISTENER 0
/* At a time, so that those who came before them are answered meanwhile. */
#define ACCEPT_MAX 256
/* The listener's rest when descriptors have run out. */
#define REST_MS 50
/* Under load a shortage comes and goes many times a second: said so often. */
#define REST_TELL_MS 60000
/*
 * Besides its parameters a spool holds the body up to its limit, and the headers
 * of the records, which are small against what any server puts into them.
 */
#define SPOOL_BYTES_MAX(body) (2 * (body) + ((size_t)64 << 10))

const char arrivals_mark;

void
arrivals_listen(struct reactor *r)
{
	/* Exclusive: one arrival wakes one reactor of one process. */
	if (reactor_watch(r->epoll, EPOLL_CTL_ADD, LISTENER,
		EPOLLIN | EPOLLEXCLUSIVE, &arrivals_mark) == 0)
		r->listening = true;
}

void
arrivals_refuse(struct reactor *r)
{
	if (r->listening)
		reactor_watch(r->epoll, EPOLL_CTL_DEL, LISTENER, 0, NULL);
	r->listening = false;
}

void
arrivals_look(struct reactor *r, struct connection *c, bool hung_up)
{
	bool begun = c->begun;

	switch (connection_look(c, r->scratch, REACTOR_SCRATCH_BYTES,
	    SPOOL_BYTES_MAX(r->config->body_bytes_max))) {
	case CONNECTION_READY:
		c->last |= hung_up;
		exchange_take(r, c);
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
			connection_place(c, &r->peeked, r->now_ms);
		exchange_await(r, c);
		break;
	}
}

/* No descriptors for new connections: not to spin meanwhile. */
static void
rest(struct reactor *r)
{
	if (r->now_ms >= r->rest_tell_ms) {
		log_warning("cannot accept connections: %s; raise the limit of "
			    "open files",
		    strerror(errno));
		r->rest_tell_ms = r->now_ms + REST_TELL_MS;
	}
	arrivals_refuse(r);
	r->rest_until_ms = r->now_ms + REST_MS;
}

void
arrivals_accept(struct reactor *r)
{
	for (int i = 0; i < ACCEPT_MAX; i++) {
		int fd =
		    accept4(LISTENER, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			if (errno != EAGAIN)
				rest(r);
			return;
		}
		struct connection *c = connection_new(fd);
		if (c == NULL)
			continue;
		connection_place(c, &r->waiting, r->now_ms);
		arrivals_look(r, c, false);
	}
}

/* What has arrived whole by now is answered: we may be who is late. */
static void
close_overdue(struct reactor *r, struct connection_list *list, int64_t now_ms)
{
	struct connection *c;

	while ((c = list->first) != NULL && c->deadline_ms <= now_ms) {
		if (c->answer != NULL)
			connection_free(c);
		else
			arrivals_look(r, c, true);
	}
}

static void
spool_overdue(struct reactor *r)
{
	struct connection *c;

	while ((c = r->peeked.first) != NULL && c->deadline_ms <= r->now_ms) {
		connection_place(c, &r->waiting, r->now_ms);
		connection_stop_peeking(c);
		arrivals_look(r, c, false);
	}
}

void
arrivals_end_overdue(struct reactor *r)
{
	spool_overdue(r);
	close_overdue(r, &r->waiting, r->now_ms);
	close_overdue(r, &r->kept, r->now_ms);
}

void
arrivals_end_all(struct reactor *r)
{
	close_overdue(r, &r->peeked, INT64_MAX);
	close_overdue(r, &r->waiting, INT64_MAX);
}
