/*
 * reactor_state: what reactor.c, the events, arrivals.c, the peers, and
 * exchange.c, the requests, share of a reactor.
 */
#ifndef GATEWAY_REACTOR_STATE_H
#define GATEWAY_REACTOR_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/api.h"
#include "connection.h"
#include "fastcgi.h"
#include "reactor.h"

/* A request whose plant waits for the commit. */
struct pending {
	struct connection *connection;
	struct api_call call;
	unsigned id; /* of the request on its connection */
};

/*
 * More than a socket that is only looked at can hold, see connection.c; what
 * libfcgi has read is no longer needed there, and an answer is put together in
 * it.
 */
#define REACTOR_SCRATCH_BYTES ((size_t)64 << 10)

struct reactor {
	const struct config *config;
	struct store *store;
	int stop; /* an eventfd, shared: readable when it is time to end */
	struct api api;
	int epoll;
	bool listening, told_to_stop, draining;
	int status;
	int64_t now_ms, rest_until_ms, rest_tell_ms, drain_until_ms, active_ms;
	bool idle_told;
	int64_t lone_us; /* when a round of one plant ended; 0: of more */
	unsigned prompt; /* so many of them, and soon after each the next */
	struct connection_list peeked, waiting, kept;
	size_t npending, pending_size; /* whose plants wait for the commit */
	struct pending **pending;
	struct store_item *items;
	struct fastcgi fastcgi; /* the request at hand */
	unsigned char *scratch;
	char *body;
};

/*
 * reactor_watch(epoll, operation, fd, events, mark):
 * epoll_ctl with `mark` to be told with the events.
 */
int reactor_watch(
    int epoll, int operation, int fd, uint32_t events, const void *mark);

/*
 * reactor_read_clock(reactor):
 * What time it is, into reactor->now_ms, from which deadlines begin.
 */
void reactor_read_clock(struct reactor *reactor);

/*
 * reactor_fail(reactor, status):
 * The process is to end with that status of sysexits.h, but with the answers of
 * this round still sent.
 */
void reactor_fail(struct reactor *reactor, int status);

#endif
