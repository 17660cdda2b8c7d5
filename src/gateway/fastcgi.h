/*
 * fastcgi: one request of one connection, through libfcgi.  The only module
 * that knows it.
 *
 * libfcgi's reads have no timeout and its close lingers for two seconds: a
 * connection is given to it non-blocking, when the request has arrived whole,
 * and closed at once, since nothing is left unread then.
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
 * Read the head of the request that has arrived on `fd`, which from now on
 * belongs to `fastcgi`.  0; -1 if the peer broke off, and `fd` is closed.
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
 * fastcgi_redirect(fastcgi, fd):
 * What follows goes to `fd` instead, which takes over the number of the
 * descriptor that was read from, and is closed itself.  0, or -1.
 */
int fastcgi_redirect(struct fastcgi *fastcgi, int fd);

/*
 * fastcgi_end(fastcgi, answer, len, keep):
 * Send the answer and end the request.  Return the connection's descriptor if
 * the server wants it kept, `keep` allows it and nothing went wrong; else -1,
 * and it is closed.
 */
int fastcgi_end(
    struct fastcgi *fastcgi, const char *answer, size_t len, bool keep);

#endif
