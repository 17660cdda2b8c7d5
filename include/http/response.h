/*
 * response: an answer, as a CGI response (RFC 3875, section 6): header lines
 * with Status, an empty line and a JSON body.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "http/errors.h"
#include "http/request.h"

/* A whole error, and the head of a 200. */
#define RESPONSE_HEAD_MAX 2048
/* Leaves room for the head even if the message is all escaped quotes. */
#define RESPONSE_MESSAGE_MAX 512

/* What the request and the settings decide about an answer. */
struct response_head {
	char id[REQUEST_ID_MAX + 1]; /* sent as X-Request-Id */
	const char *origin; /* the request's, if CORS allows it, or NULL; stays
			       until the answer is written */
	int origin_len;
	bool by_origin;   /* send Vary: Origin, as some origins are allowed */
	bool no_store;    /* a state, which must not be cached */
	const char *type; /* Content-Type of a 200; NULL: application/json */
	bool contract;    /* send every error with status 400 */
	bool bodiless;    /* the method is HEAD: an error's body is left out */
};

struct response_error {
	enum http_error error;
	const char *reason; /* NULL, or static text without '"' or '\' */
	size_t offset;      /* of the error in the body; only with `reason` */
};

/*
 * response_message(error, buf, size):
 * Write the message that the client receives: at most RESPONSE_MESSAGE_MAX
 * bytes, the NUL included.
 *
 * response_ok_head(head, body_len, buf), response_preflight(head, buf),
 * response_error(head, error, buf):
 * Write the head of a 200, to which the caller appends the body of `body_len`
 * bytes; the 204 to a preflight of head->origin; a whole error, from the table.
 * Return the length, at most RESPONSE_HEAD_MAX.  head->contract changes neither
 * the error number nor the headers, and head->bodiless not Content-Length.
 */
void response_message(
    const struct response_error *error, char *buf, size_t size);
size_t response_ok_head(const struct response_head *head, size_t body_len,
    char buf[static RESPONSE_HEAD_MAX]);
size_t response_preflight(
    const struct response_head *head, char buf[static RESPONSE_HEAD_MAX]);
size_t response_error(const struct response_head *head,
    const struct response_error *error, char buf[static RESPONSE_HEAD_MAX]);
