/*
 * response: an answer, as a CGI response (RFC 3875, section 6): header lines
 * with Status, an empty line and a JSON body.
 */
#ifndef HTTP_RESPONSE_H
#define HTTP_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>

#include "http/errors.h"
#include "http/request.h"

/* All of an error's answer, and all but the body of a 200. */
#define RESPONSE_HEAD_MAX 2048
/* A message with all its quotes escaped still leaves room for the head. */
#define RESPONSE_MESSAGE_MAX 512

/* What every answer has in its head. */
struct response_head {
	char id[REQUEST_ID_MAX + 1]; /* of the request: X-Request-Id */
	const char *origin; /* an allowed one, for CORS, until the answer is
			       written; or NULL */
	int origin_len;
	bool by_origin;   /* some origins are allowed: answers vary */
	bool no_store;    /* a state, which is not to be cached */
	const char *type; /* of a 200's body; NULL: JSON */
	bool contract;    /* every error's status is 400 */
	bool bodiless;    /* the method is HEAD: an error's body is left out */
};

struct response_error {
	enum http_error error;
	const char *reason; /* NULL, or static text without '"' or '\' */
	size_t offset;      /* of the error in the body, if `reason` is given */
};

/*
 * response_message(error, buf, size):
 * Write the message that the client receives, with a NUL: at most
 * RESPONSE_MESSAGE_MAX bytes.
 *
 * response_ok_head(head, body_len, buf), response_preflight(head, buf),
 * response_error(head, error, buf):
 * Write the head of a 200, to which the caller appends the body of `body_len`
 * bytes; the 204 to a preflight of head->origin; a whole failure, from the
 * table.  Its number and headers do not depend on head->contract, nor
 * Content-Length on head->bodiless.  Return the length, at most
 * RESPONSE_HEAD_MAX.
 */
void response_message(
    const struct response_error *error, char *buf, size_t size);
size_t response_ok_head(const struct response_head *head, size_t body_len,
    char buf[static RESPONSE_HEAD_MAX]);
size_t response_preflight(
    const struct response_head *head, char buf[static RESPONSE_HEAD_MAX]);
size_t response_error(const struct response_head *head,
    const struct response_error *error, char buf[static RESPONSE_HEAD_MAX]);

#endif
