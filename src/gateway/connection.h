/*
 * connection: one FastCGI connection.  It belongs to its reactor's thread.
 *
 * A connection detects without blocking when a request is complete.  Only then
 * does libfcgi, which has no timeout, read it.  No other module uses libfcgi.
 * A request that arrives in parts is moved from the socket into a memory file,
 * its spool.  libfcgi does not send the response: it would wait two seconds to
 * close, and keep 25 allocations and two buffers of 8 KiB until the commit.
 */
#pragma once

#include <fcgiapp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/api.h"
#include "pure/fcgi_frame.h"

struct connection {
	int fd;
	int spool;             /* the memory file; -1: none */
	unsigned char *answer; /* the unsent rest of a response */
	size_t answer_len;
	uint32_t events; /* watched by the reactor's epoll; 0: none */
	bool begun;      /* a part of a request has arrived */
	bool last;       /* no further request is read: the peer wants none, was
			    late, or sent bytes after the request */
	size_t spooled;
	struct fcgi_frame frame; /* fed with the bytes received or peeked at */
	FCGX_Request request;    /* valid while libfcgi reads a request */
	struct api_call call;    /* of the last request, until its response */
	int64_t deadline_ms;
	struct connection_list *list;
	struct connection *before, *next;
};

/* Sorted by deadline: all connections of a list have the same timeout. */
struct connection_list {
	struct connection *first, *last;
	int64_t timeout_ms;
};

/*
 * connection_init():
 * Initialise libfcgi, once, before any thread starts.  Return 0; nonzero if out
 * of memory.  libfcgi then handles SIGPIPE, SIGTERM and SIGUSR1, unless we do.
 *
 * connection_new(fd), connection_free(connection):
 * Return a connection that owns the non-blocking socket `fd`; or close `fd` and
 * return NULL if out of memory.  Remove it from its list, close and free it.
 *
 * connection_place(connection, list, now_ms):
 * Move the connection to the end of `list`, unless NULL, with a new deadline.
 */
int connection_init(void);
struct connection *connection_new(int fd);
void connection_free(struct connection *connection);
void connection_place(struct connection *connection,
    struct connection_list *list, int64_t now_ms);

/*
 * connection_receive(connection, buf, size, spool_max):
 * Examine all bytes that have arrived.  Return connection->frame.state.
 * FCGI_FRAME_BAD also means that the connection is closed or broken: free it.
 * `buf` is scratch space.  A spool holds at most `spool_max` bytes plus twice
 * the length of the parameters; the rest of the request is discarded.
 */
enum fcgi_frame_state connection_receive(struct connection *connection,
    unsigned char *buf, size_t size, size_t spool_max);

/*
 * connection_read_head(connection):
 * Read the head of the request that has arrived.  Return its parameters as
 * "NAME=value" strings, NULL at the end, valid until connection_read_body.
 * Return NULL if the request is cut off.
 *
 * connection_read_body(connection, buf, size):
 * Read the body to its end: store at most `size` bytes in `buf`, discard the
 * rest.  Return the number of bytes in `buf`, and set connection->call.whole.
 * The connection is then ready for the next request.  Until that arrives,
 * connection->frame.id is the id for the response.
 */
char **connection_read_head(struct connection *connection);
size_t connection_read_body(struct connection *connection, char *buf, int size);

/*
 * connection_send(connection, buf, len):
 * Send a response, or the rest of one.  Return 0; bytes that the socket did not
 * accept are in connection->answer, for the next call.  Return -1 if the
 * connection is broken, or there is no memory for the rest.
 */
int connection_send(
    struct connection *connection, const unsigned char *buf, size_t len);
