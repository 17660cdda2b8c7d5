/*
 * fastcgi: one request of one connection, read by libfcgi.  No other module
 * uses the library.
 *
 * libfcgi reads without a timeout, so it gets a connection only after the whole
 * request has arrived.  It does not write: its close lingers for two seconds,
 * and its memory for a request (25 allocations, two buffers of 8 KiB) can be
 * freed before the next request is read, not only after the commit.
 */
#pragma once

#include <fcgiapp.h>
#include <stdbool.h>
#include <stddef.h>

struct fastcgi {
	FCGX_Request request;
};

/*
 * fastcgi_init():
 * Initialise libfcgi, once, before any thread.  Return 0, or -1.  libfcgi then
 * handles SIGPIPE, SIGTERM and SIGUSR1, unless they are ignored or handled.
 */
int fastcgi_init(void);

/*
 * fastcgi_begin(fastcgi, fd):
 * Read the head of the request that has arrived on `fd`.  Return its parameters
 * as "NAME=value" strings, NULL at the end, valid until fastcgi_end.  If the
 * peer broke off, close `fd` and return NULL.
 */
char **fastcgi_begin(struct fastcgi *fastcgi, int fd);

/*
 * fastcgi_read_body(fastcgi, buf, size, whole):
 * Read the body to its end: store at most `size` bytes in `buf`, discard the
 * rest.  Return the number of bytes in `buf`, and set `*whole` to whether the
 * end was reached without an error.
 *
 * fastcgi_end(fastcgi, keep):
 * Free the request; `fd` stays open.  Return the request's id, for its answer,
 * and set `*keep` to whether the web server wants the connection kept open.
 */
size_t fastcgi_read_body(
    struct fastcgi *fastcgi, char *buf, int size, bool *whole);
unsigned fastcgi_end(struct fastcgi *fastcgi, bool *keep);
