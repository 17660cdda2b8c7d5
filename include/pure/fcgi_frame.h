/*
 * fcgi_frame: tells whether a FastCGI request has arrived whole, from its bytes
 * alone, and refuses what the library behind it must not see; and puts an
 * answer into records.
 *
 * libfcgi reads with blocking calls and trusts its peer, so a request is given
 * to it only when nothing is missing.  Beyond what FastCGI 1.0 forbids these
 * are refused, which no web server sends: records of a second request on the
 * connection (multiplexing), records about the connection itself (request id
 * 0), another role than responder, more than FCGI_FRAME_PARAMS_MAX bytes of
 * parameters, padding of a begin record or of an empty one.  Pure: no
 * allocation, no I/O; total on hostile bytes.
 */
#ifndef PURE_FCGI_FRAME_H
#define PURE_FCGI_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Zeroed, it stands before a connection's next request. */
struct fcgi_frame {
	enum fcgi_frame_state state;
	unsigned char header[8];
	size_t header_len;
	size_t content, padding; /* still to come of the record */
	unsigned type;           /* of the record */
	unsigned id;             /* of the request; 0 before its begin */
	bool params_ended;
	size_t params_len;
	size_t role_at;   /* place within a begin record */
	size_t pair_skip; /* bytes of a name and value to pass */
	size_t length_at; /* bytes read of the length at hand */
	size_t length;    /* so far */
	bool length_is_value;
	size_t name_len;
};

/*
 * fcgi_frame_feed(frame, buf, len):
 * Take the next bytes of the connection and return how many of them belong to
 * the request; fewer than `len` only when frame->state has left
 * FCGI_FRAME_MORE.
 */
size_t fcgi_frame_feed(
    struct fcgi_frame *frame, const unsigned char *buf, size_t len);

/*
 * fcgi_frame_answer_len(len):
 * What the records of an answer of `len` bytes take.
 */
size_t fcgi_frame_answer_len(size_t len);

/*
 * fcgi_frame_answer(buf, id, answer, len):
 * Put the answer to the request `id` into `buf`, which has room for it, as the
 * records of its output and of its end (FastCGI 1.0, sections 5.3 and 5.5).
 */
void fcgi_frame_answer(
    unsigned char *buf, unsigned id, const char *answer, size_t len);

#endif
