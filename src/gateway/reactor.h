/*
 * reactor: a thread with an epoll of its own that serves FastCGI.
 *
 * It reads the requests that have arrived whole, stores their plants in one
 * batch, and then answers them.  A request that is still arriving waits, with a
 * deadline, so that a slow or silent peer delays nobody else.
 */
#pragma once

#include "ground/config.h"
#include "store/store.h"

struct reactor;
struct tokens;

/*
 * reactor_start(config, tokens, store, stop):
 * Start a reactor on descriptor 0, a non-blocking listener.  Once the eventfd
 * `stop` is readable, the reactor answers the requests that have begun to
 * arrive, waiting at most a second for the rest, and ends.  The caller owns the
 * arguments and keeps them until after reactor_join.  NULL, logged, if memory,
 * threads or descriptors have run out.  If the store or epoll fails later, the
 * reactor sends SIGTERM to its own process.
 *
 * reactor_join(reactor):
 * Wait until the reactor ends, and free it.  Return 0; or a value of sysexits.h
 * if the store or epoll has failed.
 */
struct reactor *reactor_start(const struct config *config,
    struct tokens *tokens, struct store *store, int stop);
int reactor_join(struct reactor *reactor);
