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

#include "reactor_state.h"

/* Wait for more of a request, for the next one, or for room to send. */
void
exchange_await(struct reactor *r, struct connection *c)
{
	uint32_t events = EPOLLIN | EPOLLRDHUP | EPOLLET |
			  (c->answer >= 0 ? (uint32_t)EPOLLOUT : 0);

	if (c->registered ||
	    reactor_watch(r->epoll, EPOLL_CTL_ADD, c->fd, events, c) == 0)
		c->registered = true;
	else
		connection_free(c);
}

/* Before its number means something else, which epoll would not notice. */
static void
forget(struct reactor *r, struct connection *c, int fd)
{
	if (c->registered)
		reactor_watch(r->epoll, EPOLL_CTL_DEL, fd, 0, NULL);
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
	exchange_await(r, c);
}

void
exchange_send_more(struct reactor *r, struct connection *c)
{
	switch (connection_send(c)) {
	case CONNECTION_READY:
		forget(r, c, c->fd);
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
	exchange_send_more(r, c);
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
void
exchange_take(struct reactor *r, struct connection *c)
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

/* One commit for all that wait, and their answers. */
void
exchange_commit(struct reactor *r)
{
	if (store_commit(r->store, r->items, r->npending) < 0)
		reactor_fail(r, EX_IOERR);
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
