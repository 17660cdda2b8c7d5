/*
 * fcgi_frame: whether a FastCGI request has arrived whole, by its bytes alone,
 * and the records of an answer.
 *
 * Besides what FastCGI 1.0 forbids, these are refused, which no web server
 * sends: records of a second request on the connection (multiplexing), records
 * about the connection itself (request id 0), another role than responder, more
 * than FCGI_FRAME_PARAMS_MAX bytes of parameters, padding of a begin record or
 * of an empty one.  Pure: no allocation, no I/O; total on hostile bytes.
 */
#ifndef PURE_FCGI_FRAME_H
#define PURE_FCGI_FRAME_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Apache sends most: 100 headers of 8190 bytes, and the request line, which has
 * as many at most, in some six variables.
 */
#define FCGI_FRAME_PARAMS_MAX ((size_t)1 << 20)

enum fcgi_frame_state {
	FCGI_FRAME_MORE,     /* the request goes on */
	FCGI_FRAME_COMPLETE, /* its last byte was seen */
	FCGI_FRAME_BAD       /* malformed, aborted, or refused as above */
};

/* Zeroed, it is ready for a connection's next request. */
struct fcgi_frame {
	enum fcgi_frame_state state;
	unsigned char header[8];
	size_t header_len;       /* bytes of it so far */
	unsigned type;           /* of the record */
	size_t content, padding; /* still to come of the record */
	unsigned id;             /* of the request; 0 before its begin */
	bool params_ended;
	size_t params_len;     /* of all records so far */
	size_t length;         /* of a name or value, as far as it was read */
	unsigned length_bytes; /* read of it, of 1 or 4 */
	bool value_next;       /* the name's length is known */
	size_t pair_left;      /* bytes of the name and value still to come */
};

/*
 * fcgi_frame_feed(frame, buf, len):
 * Read the next bytes of the connection.  Return how many of them belong to the
 * request: fewer than `len` only if frame->state is no longer FCGI_FRAME_MORE.
 */
size_t fcgi_frame_feed(
    struct fcgi_frame *frame, const unsigned char *buf, size_t len);

/*
 * fcgi_frame_answer_len(len), fcgi_frame_answer(buf, id, answer, len):
 * Write the answer to the request `id` into `buf`, of fcgi_frame_answer_len, as
 * records of its output and of its end (FastCGI 1.0, sections 5.3 and 5.5).
 */
size_t fcgi_frame_answer_len(size_t len);
void fcgi_frame_answer(
    unsigned char *buf, unsigned id, const char *answer, size_t len);

#endif
