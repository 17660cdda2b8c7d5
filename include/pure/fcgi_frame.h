/*
 * fcgi_frame: finds the end of a FastCGI request, and frames a response.
 *
 * Besides what FastCGI 1.0 forbids, it refuses what no web server sends:
 * records of a second request on the connection, management records (request id
 * 0), a role other than responder, more than FCGI_FRAME_PARAMS_MAX bytes of
 * parameters, and padding in a begin record or an empty one.  Pure: no
 * allocation, no I/O; total on hostile bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * Apache sends the most: 100 headers of 8190 bytes, and a request line of up to
 * 8190 bytes, repeated in about six variables.
 */
#define FCGI_FRAME_PARAMS_MAX ((size_t)1 << 20)

enum fcgi_frame_state {
	FCGI_FRAME_MORE,     /* more bytes of the request follow */
	FCGI_FRAME_COMPLETE, /* the last byte was read */
	FCGI_FRAME_BAD       /* malformed, aborted, or refused as above */
};

/* Zero it before each request on a connection. */
struct fcgi_frame {
	enum fcgi_frame_state state;
	unsigned char header[8];
	size_t header_len;       /* bytes of the header read so far */
	unsigned type;           /* of the current record */
	size_t content, padding; /* unread bytes of the record */
	unsigned id;             /* of the request; 0 before its begin record */
	bool params_ended;
	size_t params_len;     /* content of the parameter records so far */
	size_t length;         /* of a name or value, as read so far */
	unsigned length_bytes; /* bytes of `length` read so far, of 1 or 4 */
	bool value_next;       /* the value's length comes next, not a name's */
	size_t pair_left;      /* unread bytes of the name and value */
};

/*
 * fcgi_frame_feed(frame, buf, len):
 * Read the next bytes from the connection.  Return how many belong to the
 * request: fewer than `len` only if frame->state is no longer FCGI_FRAME_MORE.
 *
 * fcgi_frame_answer_len(len), fcgi_frame_answer(buf, id, answer, len):
 * Write the response to the request `id` as output records and an end record
 * (FastCGI 1.0, sections 5.3 and 5.5): fcgi_frame_answer_len(len) bytes.
 */
size_t fcgi_frame_feed(
    struct fcgi_frame *frame, const unsigned char *buf, size_t len);
size_t fcgi_frame_answer_len(size_t len);
void fcgi_frame_answer(
    unsigned char *buf, unsigned id, const char *answer, size_t len);
