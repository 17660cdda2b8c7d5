/*
 * service: serves FastCGI on the listening socket that is descriptor 0, with a
 * reactor for each configured thread, until it is told to end.
 */
#ifndef GATEWAY_SERVICE_H
#define GATEWAY_SERVICE_H

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
 * file at once.  Refusals are logged at SIGHUP, once a minute and at the end.
 * Return a status of sysexits.h, logged, if it cannot start or the store has
 * failed.  Call in a process without other threads.
 */
bool service_is_fastcgi(void);
int service_run(const struct config *config);

#endif
