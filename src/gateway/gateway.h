/* gateway: the parts of plant-store.fcgi. */
#pragma once

#include "ground/config.h"

struct reactor;
struct store;
struct tokens;

/*
 * service_notify(state):
 * Send `state`, such as "READY=1", to the socket that NOTIFY_SOCKET names, if
 * it is set (sd_notify(3)).  Log a failure.
 *
 * service_run(config):
 * Open the store, and serve FastCGI on descriptor 0, with a reactor for each
 * configured thread.  On SIGTERM, SIGINT, SIGQUIT or SIGUSR1, answer the
 * requests that were received, write the closing line, and return 0.  On
 * SIGHUP, check the token file at once.  The counts of refused requests are
 * logged on SIGHUP, once a minute and at the end.  Return a status of
 * sysexits.h, logged, if the service cannot start or the store has failed.
 * Call in a process without other threads.
 */
void service_notify(const char *state);
int service_run(const struct config *config);

/*
 * reactor_start(config, tokens, store, stop):
 * Start a thread that serves connections of descriptor 0, a non-blocking
 * listener.  Once the eventfd `stop` is readable, it answers the requests that
 * have begun to arrive, waiting at most a second for the rest, and ends.  The
 * arguments must stay valid until reactor_join returns.  Return NULL, logged,
 * if memory, threads or descriptors run out.  If the store or epoll fails
 * later, the reactor sends SIGTERM to its own process.
 *
 * reactor_join(reactor):
 * Wait until the reactor ends, and free it.  Return 0, or a value of sysexits.h
 * if the store or epoll has failed.
 */
struct reactor *reactor_start(const struct config *config,
    struct tokens *tokens, struct store *store, int stop);
int reactor_join(struct reactor *reactor);

/*
 * sandbox_enter(config):
 * Drop all capabilities of this thread and of the threads it starts later, and
 * restrict them to the files and calls under SANDBOX in plant-store.fcgi(8).
 * Log and skip a restriction that the kernel does not support.  If
 * config->sandbox is false, only log a warning.  It needs free descriptors.
 */
void sandbox_enter(const struct config *config);

/*
 * cgi_begin():
 * Find or create the id of a CGI request (RFC 3875).  Call before any message.
 *
 * cgi_serve(config):
 * Answer the request, with HTTP_NOT_READY if config->tokens is NULL, which
 * means invalid settings.  Return 0.  If the token file or the store cannot be
 * used, log this, answer a plant with an error, and return a sysexits.h status.
 */
void cgi_begin(void);
int cgi_serve(const struct config *config);
