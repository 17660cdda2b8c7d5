/*
 * url_check: whether a client that uses this URL reaches the service, and if
 * not, which part of the way to it is wrong.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * url_check(url, token, body_bytes_max, answers):
 * Send requests that cannot create a plant to `url`/plants, with the valid
 * `token`; if it is NULL, only those that need none.  The limit of bodies is
 * not tested if body_bytes_max is 0.  `answers`: the service answers at its
 * socket.  Print a line for each request that succeeded, and log each problem
 * with its remedy.  Return the number of problems.
 */
int url_check(
    const char *url, const char *token, size_t body_bytes_max, bool answers);
