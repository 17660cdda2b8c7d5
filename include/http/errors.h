/*
 * errors: deploy/errors.txt, the table of all error responses, in C.
 *
 * Each row: name, number, HTTP status, message.  The ranges: 1000 credential,
 * 2000 route, 3000 framing, 4000 plant, 5000 store and service.  The number is
 * the body's `error`.  A released number never changes its meaning; a removed
 * one, such as 5005, is never reused.  openapi.json publishes the names for
 * generated clients, so a released name does not change.
 *
 * Only web servers, configured as in deploy/, send CREDENTIAL_CERTIFICATE,
 * HEAD_TOO_LARGE, PROTOCOL_UNKNOWN, NO_ANSWER, TOO_MANY_AT_ONCE and
 * TOO_MANY_FOR_TOKEN.  scripts/errors lists the other errors that they send,
 * and copies the table to the documents and to deploy/.  No other part of the
 * program knows an error's number, message or status.
 */
#pragma once

enum http_error {
	HTTP_OK,
#define X(name, number, status, message) HTTP_##name,
#include "errors.txt.h"
#undef X
	HTTP_ERROR_COUNT,
	HTTP_PREFLIGHT = HTTP_ERROR_COUNT /* no error */
};

/* HTTP_OK has the status 200, HTTP_PREFLIGHT 204; both have the number 0. */
extern const struct errors_row {
	int number, status;
	const char *message;
} http_errors[HTTP_ERROR_COUNT + 1];
