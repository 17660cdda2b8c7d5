/*
 * reactor: a thread with an epoll of its own that serves FastCGI.
 *
 * It takes every request that has arrived whole, stores their plants in one
 * batch, and then answers them.  What has not arrived whole waits in the epoll
 * under a deadline, so that a slow, mute or dripping peer holds nobody up.
 */
#ifndef GATEWAY_REACTOR_H
#define GATEWAY_REACTOR_H

#include "ground/config.h"
#include "store/store.h"

/* From the connection, or the first byte, to the last byte of a request. */
#define REACTOR_REQUEST_TIMEOUT_MS 10000
/* A kept connection between two requests. */
#define REACTOR_KEPT_TIMEOUT_MS 300000
/* From the order to stop, for requests that have begun to arrive. */
#define REACTOR_DRAIN_TIMEOUT_MS 1000

struct reactor;

/*
 * reactor_new(config, store, stop):
 * A reactor on the non-blocking listener that is descriptor 0.  `stop` is an
 * eventfd, which tells it to end once it is readable; all three stay the
 * caller's.  NULL, logged, if the token file cannot be used or something has
 * run out; `status` then is one of sysexits.h.
 */
struct reactor *reactor_new(
    const struct config *config, struct store *store, int stop, int *status);

/*
 * reactor_run(reactor):
 * Serve until told to stop, then answer what was received.  The argument and
 * the result (always NULL) are of the type that pthread_create wants.  If the
 * store or the reactor fails, it sends SIGTERM to its own process, and
 * reactor_status tells why.
 */
void *reactor_run(void *reactor);

/*
 * reactor_status(reactor):
 * After reactor_run: 0, or a status of sysexits.h.
 */
int reactor_status(const struct reactor *reactor);

/*
 * reactor_free(reactor):
 * NULL is fine.
 */
void reactor_free(struct reactor *reactor);

#endif
