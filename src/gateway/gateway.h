/*
 * gateway: the two ways in which requests come to plant-store.fcgi.
 *
 * service: FastCGI on the listening socket at descriptor 0, with one reactor
 * per configured thread, until a signal or a failure ends it.
 *
 * cgi: one request as plain CGI (RFC 3875): environment and standard input in,
 * standard output out.
 */
#pragma once

#include <stdbool.h>

#include "ground/config.h"

/*
 * service_is_fastcgi():
 * Whether descriptor 0 is a listening socket, so that this process was started
 * as FastCGI and not as CGI (FastCGI 1.0, section 2.2).
 *
 * service_run(config):
 * Open the store and serve.  SIGTERM, SIGINT, SIGQUIT, SIGUSR1: answer what was
 * received, write the closing line, and return 0.  SIGHUP: check the token
 * file at once.  The counts of refused requests are logged at SIGHUP, once a
 * minute and at the end.  Return a status of sysexits.h, logged, if it cannot
 * start or the store has failed.  Call in a process without other threads.
 */
bool service_is_fastcgi(void);
int service_run(const struct config *config);

/*
 * cgi_begin():
 * Find or make the request's id, for its answer and for the log.  Call before
 * anything is logged.
 *
 * cgi_serve(config):
 * Answer the request.  `config` is NULL if the settings are invalid: the answer
 * is HTTP_NOT_READY.  Return 0; a status of sysexits.h, logged, if the token
 * file or the store cannot be used: the answer to a plant is then an error.
 */
void cgi_begin(void);
int cgi_serve(const struct config *config);
