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
 * fastcgi_descriptor(fastcgi):
 * Of the connection.
 */
int fastcgi_descriptor(const struct fastcgi *fastcgi);

/*
 * fastcgi_end(fastcgi, answer, len, keep):
 * Send the answer, of at most FASTCGI_ANSWER_MAX bytes, and end the request.
 * Return the connection's descriptor if the server wants it kept, `keep` allows
 * it and nothing went wrong; else -1, and it is closed.
 *
 * That many bytes fit into any socket's empty buffer, so that the write neither
 * blocks nor falls short.
 */
#define FASTCGI_ANSWER_MAX ((size_t)32 << 10)
int fastcgi_end(
    struct fastcgi *fastcgi, const char *answer, size_t len, bool keep);

/*
 * fastcgi_end_to_file(fastcgi, answer, len, fd, keep):
 * The same for an answer of any size, but put the records to send into a memory
 * file.  Return its descriptor; `fd` is the connection's, and `keep` whether the
 * server wants it kept.  -1 if that fails, and the connection is closed.
 */
int fastcgi_end_to_file(struct fastcgi *fastcgi, const char *answer, size_t len,
    int *fd, bool *keep);

#endif
