/*
 * url_check: whether a client that uses this URL reaches the service, and if
 * not, which part of the way to it is wrong.
 */
#ifndef COMMANDS_URL_CHECK_H
#define COMMANDS_URL_CHECK_H

#include <stdbool.h>
#include <stddef.h>

/*
 * url_check(url, token, body_bytes_max, answers):
 * Send requests to `url`/plants that cannot create anything, with the token,
 * which is a valid one, or NULL to try what can be tried without.  The limit of
 * bodies is left out if it is 0.  `answers`: the service does at its socket.
 * Print a line for each, log what is wrong and what to do.  Return how many
 * were wrong.
 */
int url_check(
    const char *url, const char *token, size_t body_bytes_max, bool answers);

#endif
