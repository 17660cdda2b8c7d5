/*
 * errors: the table of all answers but 200, deploy/errors.txt, as C.
 *
 * Each row: name, number, HTTP status, message.  The families: 1000 credential,
 * 2000 route, 3000 framing, 4000 plant, 5000 store and service.  The number is
 * the body's `error`.  A released number never changes its meaning, and is
 * never reused after its removal, such as 5005.  openapi.json publishes the
 * names for generated clients, so a released name stays.
 *
 * Only web servers send CREDENTIAL_CERTIFICATE, HEAD_TOO_LARGE,
 * PROTOCOL_UNKNOWN, NO_ANSWER, TOO_MANY_AT_ONCE and TOO_MANY_FOR_TOKEN, from
 * their configurations in deploy/.  scripts/errors lists what else they send,
 * and copies the table to the documents and to deploy/.  Nothing else in the
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
