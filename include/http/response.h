/*
 * response: an answer, as a CGI response (RFC 3875, section 6): header lines
 * with Status, an empty line and a JSON body.
 */
#ifndef HTTP_RESPONSE_H
#define HTTP_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>

#include "http/errors.h"

/* All of an error's answer, and all but the body of a 200. */
#define RESPONSE_HEAD_MAX 1024
/* A message with all its quotes escaped still leaves room for the head. */
#define RESPONSE_MESSAGE_MAX (RESPONSE_HEAD_MAX / 2)

struct response_error {
	enum http_error error;
	const char *reason; /* NULL, or static text without '"' or '\' */
	size_t offset;      /* of the error in the body, if `reason` is given */
};

/*
 * response_message(error, buf, size):
 * Write the message that the client receives, with a NUL: at most
 * RESPONSE_MESSAGE_MAX bytes.
 */
void response_message(
    const struct response_error *error, char *buf, size_t size);

/*
 * response_ok_head(body_len, buf):
 * Write the head of a 200.  The caller appends the body of `body_len` bytes.
 * Return the head's length, at most RESPONSE_HEAD_MAX.
 */
size_t response_ok_head(size_t body_len, char buf[static RESPONSE_HEAD_MAX]);

/*
 * response_error(error, contract, head, buf):
 * Write a whole failure, head and Error body, from the table.  `contract`: the
 * status is 400 for every error; the number and the headers stay.  `head`: the
 * method is HEAD; Content-Length stays, the body is left out.  Return the
 * length, at most RESPONSE_HEAD_MAX.
 */
size_t response_error(const struct response_error *error, bool contract,
    bool head, char buf[static RESPONSE_HEAD_MAX]);

#endif
