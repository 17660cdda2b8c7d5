/*
 * fastcgi: one request of one connection, read by libfcgi.  No other module
 * knows the library.
 *
 * libfcgi reads without a timeout, so it gets a connection when the request has
 * arrived whole.  It does not write: its close lingers for two seconds, and its
 * memory of a request (25 allocations, two buffers of 8 KiB) is freed before
 * the next request is read, instead of after the commit.
 */
#ifndef GATEWAY_FASTCGI_H
#define GATEWAY_FASTCGI_H

#include <fcgiapp.h>
#include <stdbool.h>
#include <stddef.h>

struct fastcgi {
	FCGX_Request request;
};

/*
 * fastcgi_init():
 * Prepare the library: once, before any thread.  0, or -1.  It handles SIGPIPE,
 * SIGTERM and SIGUSR1 from then on, unless they are ignored or handled.
 */
int fastcgi_init(void);

/*
 * fastcgi_begin(fastcgi, fd):
 * Read the head of the request that has arrived on `fd`.  Its parameters as
 * "NAME=value" strings, NULL at the end, until fastcgi_end; or NULL if the peer
 * broke off, and `fd` is closed.
 */
char **fastcgi_begin(struct fastcgi *fastcgi, int fd);

/*
 * fastcgi_read_body(fastcgi, buf, size, whole):
 * Read the body to its end: at most `size` bytes of it into `buf`, the rest is
 * discarded.  Return the number of bytes in `buf`; `whole`: the end was reached
 * without an error.
 *
 * fastcgi_end(fastcgi, keep):
 * Free the request; `fd` stays open.  Return the request's id, for its answer;
 * `keep`: the web server wants the connection kept after it.
 */
size_t fastcgi_read_body(
    struct fastcgi *fastcgi, char *buf, int size, bool *whole);
unsigned fastcgi_end(struct fastcgi *fastcgi, bool *keep);

#endif
