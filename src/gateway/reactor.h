/*
 * reactor: a thread with an epoll of its own that serves FastCGI.
 *
 * It reads every request that has arrived whole, stores their plants in one
 * batch, and then answers them.  A request that has not arrived whole waits
 * under a deadline, so that a slow, mute or dripping peer delays nobody else.
 */
#ifndef GATEWAY_REACTOR_H
#define GATEWAY_REACTOR_H

#include "ground/config.h"
#include "store/store.h"

struct reactor;
struct tokens;

/*
 * reactor_start(config, tokens, store, stop):
 * Start a reactor on the non-blocking listener that is descriptor 0.  Once the
 * eventfd `stop` is readable, it answers the requests that have begun to arrive
 * and ends.  All four belong to the caller, until after reactor_join.  NULL,
 * logged, if memory, threads or descriptors have run out.  If the store or
 * epoll fails later, it sends SIGTERM to its own process.
 *
 * reactor_join(reactor):
 * Wait for its end and free it.  Return 0; a value of sysexits.h if the store
 * or epoll has failed.
 */
struct reactor *reactor_start(const struct config *config,
    struct tokens *tokens, struct store *store, int stop);
int reactor_join(struct reactor *reactor);

#endif
