/*
 * connection: a peer of a reactor, from its arrival to its last request.
 *
 * Tells whether a request has arrived whole, without blocking and without
 * taking anything from the socket that libfcgi will want to read.  A request
 * that may not fit into the socket's buffer is moved into a memory file as it
 * arrives, its spool, and libfcgi reads it there.  Sends the answer, as the
 * socket takes it.
 */
#ifndef GATEWAY_CONNECTION_H
#define GATEWAY_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pure/fcgi_frame.h"

struct connection {
	int fd;
	int spool;             /* of a request; -1: none */
	unsigned char *answer; /* the rest of one, still to be sent; or NULL */
	size_t answer_len;
	bool registered; /* in the reactor's epoll */
	bool begun;      /* bytes of a request have arrived */
	bool busy;       /* its request is being answered */
	bool last;       /* not to be kept: the server does not want it, has
			    hung up, or sent something behind the request, which
			    none does and libfcgi may have read */
	unsigned looks;  /* at an incomplete request */
	size_t spooled;
	struct fcgi_frame frame; /* of what is spooled */
	int64_t deadline_ms;
	struct connection *previous, *next;
	struct connection_list *list;
};

/* In the order of their deadlines, since all in a list have one timeout. */
struct connection_list {
	struct connection *first, *last;
	int64_t timeout_ms;
};

/*
 * connection_new(fd):
 * A connection of the non-blocking socket `fd`, which it then owns.  NULL, and
 * `fd` is closed, if there is no memory.
 */
struct connection *connection_new(int fd);

/*
 * connection_place(connection, list, now_ms):
 * Put it at the end of `list`, out of the list that it was in, with a new
 * deadline; `list` may be NULL.
 */
void connection_place(struct connection *connection,
    struct connection_list *list, int64_t now_ms);

enum connection_look {
	CONNECTION_READY,   /* a request has arrived whole */
	CONNECTION_WAITING, /* it has not, and all that came was looked at */
	CONNECTION_GONE     /* closed, broken or malformed: free it */
};

/*
 * connection_look(connection, buf, size, spool_max):
 * See what has arrived.  `buf` is scratch; of a spooled request no more than
 * twice its parameters and `spool_max` bytes are kept, the rest is thrown away.
 */
enum connection_look connection_look(struct connection *connection,
    unsigned char *buf, size_t size, size_t spool_max);

/*
 * connection_stop_peeking(connection):
 * From the next look on, take an incomplete request into the spool.  A socket's
 * buffer counts its peer's writes more than their bytes: one that is full of
 * small writes stays as it is, and tells of nothing new, until it is read.
 */
void connection_stop_peeking(struct connection *connection);

/*
 * connection_send(connection, buf, len):
 * Send what the socket takes of an answer and keep a copy of the rest.
 * CONNECTION_READY: all is sent; CONNECTION_WAITING: for room;
 * CONNECTION_GONE, also without memory for the rest.
 */
enum connection_look connection_send(
    struct connection *connection, const unsigned char *buf, size_t len);

/*
 * connection_send_more(connection):
 * Go on with what is kept of an answer; the same results.
 */
enum connection_look connection_send_more(struct connection *connection);

/*
 * connection_renew(connection):
 * After an answer, make ready for the next request of a kept connection.
 */
void connection_renew(struct connection *connection);

/*
 * connection_free(connection):
 * Close what is open of it and free it.
 */
void connection_free(struct connection *connection);

#endif
