/*
 * exchange: see exchange.h.
 *
 * Happy path: the head is judged, the body read and judged, the plant waits for
 * the commit of its round, the answer is sent, and the connection is kept or
 * closed as its server wishes.  Failure modes: a refusal is answered at once; a
 * peer that has gone is closed; without memory for an answer there is one in
 * reserve.
 */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sysexits.h>
#include <unistd.h>

#include "reactor_state.h"

/*
 * So many plants are answered before the index is written, which takes longer
 * than their answers; the answers of more, with the store's locks held, would
 * keep others waiting for longer than that.
 */
#define FEW 16

/* Wait for more of a request, for the next one, or for room to send. */
void
exchange_await(struct reactor *r, struct connection *c)
{
	uint32_t events = EPOLLIN | EPOLLRDHUP | EPOLLET |
			  (c->answer != NULL ? (uint32_t)EPOLLOUT : 0);

	if (c->registered ||
	    reactor_watch(r->epoll, EPOLL_CTL_ADD, c->fd, events, c) == 0)
		c->registered = true;
	else
		connection_free(c);
}

/* To be watched for something else from now on. */
static void
forget(struct reactor *r, struct connection *c)
{
	if (c->registered)
		reactor_watch(r->epoll, EPOLL_CTL_DEL, c->fd, 0, NULL);
	c->registered = false;
}

/* An answer has been sent. */
static void
keep_or_free(struct reactor *r, struct connection *c)
{
	c->busy = false;
	if (c->last || r->draining) {
		connection_free(c);
		return;
	}
	connection_renew(c);
	connection_place(c, &r->kept, r->now_ms);
	exchange_await(r, c);
}

static void
sent(struct reactor *r, struct connection *c, enum connection_look look)
{
	switch (look) {
	case CONNECTION_READY:
		keep_or_free(r, c);
		break;
	case CONNECTION_WAITING:
		exchange_await(r, c);
		break;
	case CONNECTION_GONE:
		connection_free(c);
		break;
	}
}

void
exchange_send_more(struct reactor *r, struct connection *c)
{
	enum connection_look look = connection_send_more(c);

	if (look == CONNECTION_READY)
		forget(r, c);
	sent(r, c, look);
}

/* Its reader may be slow: what the socket does not take now is kept. */
static int
send_answer(struct reactor *r, struct connection *c, unsigned id,
    const char *answer, size_t len)
{
	size_t framed = fcgi_frame_answer_len(len);
	bool large = framed > REACTOR_SCRATCH_BYTES;
	unsigned char *buf = large ? malloc(framed) : r->scratch;
	enum connection_look look;

	if (buf == NULL)
		return -1;
	fcgi_frame_answer(buf, id, answer, len);
	look = connection_send(c, buf, framed);
	if (large)
		free(buf);
	c->busy = false;
	if (look == CONNECTION_WAITING) {
		forget(r, c);
		connection_place(c, &r->waiting, r->now_ms);
	}
	sent(r, c, look);
	return 0;
}

static void
answer(struct reactor *r, struct pending *p)
{
	char reserve[RESPONSE_HEAD_MAX];
	size_t len;
	char *text = api_answer(&r->api, &p->call, &len);

	if (text == NULL ||
	    send_answer(r, p->connection, p->id, text, len) < 0) {
		const struct response_error failure = {
			.error = HTTP_OUT_OF_MEMORY
		};

		len = response_error(&failure, r->config->contract_status,
		    p->call.head_method, reserve);
		send_answer(r, p->connection, p->id, reserve, len);
	}
	free(text);
	api_done(&p->call);
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

/* Read the request and check it.  Without success the connection is gone. */
static int
read_request(struct reactor *r, struct pending *p, struct connection *c)
{
	struct fastcgi *fastcgi = &r->fastcgi;
	int *fd = c->spool >= 0 ? &c->spool : &c->fd;
	bool whole, keep;

	if (fastcgi_begin(fastcgi, *fd) < 0) {
		*fd = -1;
		return -1;
	}
	int refused = api_head(&r->api, &p->call, fastcgi_variables(fastcgi));
	size_t len = fastcgi_read_body(
	    fastcgi, r->body, r->config->body_bytes_max + 1, &whole);
	p->id = fastcgi_end(fastcgi, &keep);
	/* From a spool the connection has been read to the request's end. */
	if (!keep || (!whole && c->spool < 0))
		c->last = true;
	if (c->spool >= 0)
		close(c->spool);
	c->spool = -1;
	if (refused == 0)
		api_body(&r->api, &p->call, r->body, len, whole);
	return 0;
}

/* A request has arrived whole: check it, and either answer it or keep it. */
void
exchange_take(struct reactor *r, struct connection *c)
{
	struct pending *p = next_pending(r);

	connection_place(c, NULL, 0);
	if (p == NULL || read_request(r, p, c) < 0) {
		connection_free(c);
		return;
	}
	p->connection = c;
	if (p->call.failure.error != HTTP_OK) {
		answer(r, p);
		return;
	}
	c->busy = true;
	r->items[r->npending] =
	    (struct store_item){ .plant = &p->call.plant, .by = p->call.by };
	r->npending++;
}

static void
answer_all(void *argument)
{
	struct reactor *r = argument;
	size_t n = r->npending;

	/* The commit may have taken longer than an answer may. */
	reactor_read_clock(r);
	r->npending = 0;
	for (size_t i = 0; i < n; i++) {
		struct pending *p = r->pending[i];

		api_stored(&p->call, r->items[i].result);
		answer(r, p);
	}
}

/* One commit for all that wait, and their answers. */
void
exchange_commit(struct reactor *r)
{
	int status;

	if (r->npending <= FEW)
		status = store_commit_telling(
		    r->store, r->items, r->npending, answer_all, r);
	else {
		status = store_commit(r->store, r->items, r->npending);
		answer_all(r);
	}
	if (status < 0)
		reactor_fail(r, EX_IOERR);
	r->active_ms = r->now_ms;
	r->idle_told = false;
}
