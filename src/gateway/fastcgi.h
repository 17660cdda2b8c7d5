/*
 * fastcgi: one request of one connection, read by libfcgi.  The only module
 * that knows it.
 *
 * libfcgi's reads have no timeout: it is given a connection when the request
 * has arrived whole.  It does not write: its close lingers for two seconds, and
 * what it holds of a request is better free again before the next is read than
 * when its plant is stored.
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
 * fastcgi_is_listener():
 * Whether descriptor 0 is a listening socket, so that this process was started
 * as FastCGI and not as CGI (FastCGI 1.0, section 2.2).
 */
bool fastcgi_is_listener(void);

/*
 * fastcgi_init():
 * Prepare the library: once, before any thread.  0, or -1.
 */
int fastcgi_init(void);

/*
 * fastcgi_begin(fastcgi, fd):
 * Read the head of the request that has arrived on `fd`.  0; -1 if the peer
 * broke off, and `fd` is closed.
 */
int fastcgi_begin(struct fastcgi *fastcgi, int fd);

/*
 * fastcgi_variables(fastcgi):
 * The request's parameters as "NAME=value" strings, NULL at the end; until
 * fastcgi_end.
 */
char **fastcgi_variables(const struct fastcgi *fastcgi);

/*
 * fastcgi_read_body(fastcgi, buf, size, whole):
 * Read the body to its end: at most `size` bytes of it into `buf`, the rest is
 * thrown away.  Return how many bytes are in `buf`; `whole` tells whether the
 * end was reached without an error.
 */
size_t fastcgi_read_body(
    struct fastcgi *fastcgi, char *buf, size_t size, bool *whole);

/*
 * fastcgi_end(fastcgi, keep):
 * Free what was read; `fd` stays open.  Return the request's id, for its
 * answer; `keep` tells whether the server wants the connection kept after it.
 */
unsigned fastcgi_end(struct fastcgi *fastcgi, bool *keep);

#endif
