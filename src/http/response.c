/*
 * response: heads and Error bodies, printed into the caller's buffer.  The
 * numbers and messages are the table's (errors), the body of a 200 is plant's.
 */
#include "http/response.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

/*
 * Print into `buf` and return the length.  Every text comes from a table of
 * ours, so that one which does not fit is our own mistake.
 */
static size_t print(char *buf, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static size_t
print(char *buf, size_t size, const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(buf, size, format, args);
	va_end(args);
	assert(len >= 0 && (size_t)len < size);
	return (size_t)len;
}

static const char *
reason_phrase(int status)
{
	switch (status) {
	case 400:
		return "Bad Request";
	case 401:
		return "Unauthorized";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 409:
		return "Conflict";
	case 413:
		return "Content Too Large";
	case 503:
		return "Service Unavailable";
	default:
		assert(status == 500);
		return "Internal Server Error";
	}
}

/* What the error's status demands besides: RFC 9110 and RFC 6750. */
static const char *
extra_header(enum http_error error)
{
	switch (errors_status(error)) {
	case 401:
		/* RFC 6750, 3.1: no error code if nothing was presented. */
		if (error == HTTP_CREDENTIAL_MISSING ||
		    error == HTTP_CREDENTIAL_SCHEME)
			return "WWW-Authenticate: Bearer "
			       "realm=\"plant-store\"\r\n";
		return "WWW-Authenticate: Bearer realm=\"plant-store\", "
		       "error=\"invalid_token\"\r\n";
	case 405:
		return "Allow: POST\r\n";
	case 503:
		return "Retry-After: 1\r\n";
	default:
		return "";
	}
}

/* Copy `text` as the inside of a JSON string; it has no control characters. */
static void
json_escape(const char *text, char *out, size_t size)
{
	size_t len = 0;

	for (; *text != '\0'; text++) {
		assert(len + 2 < size);
		if (*text == '"' || *text == '\\')
			out[len++] = '\\';
		out[len++] = *text;
	}
	out[len] = '\0';
}

void
response_message(const struct response_error *error, char *buf, size_t size)
{
	const char *message = errors_message(error->error);

	if (error->reason == NULL)
		print(buf, size, "%s", message);
	else
		print(buf, size, "%s: byte %zu: %s.", message, error->offset,
		    error->reason);
}

static size_t
error_body(
    const struct response_error *error, char buf[static RESPONSE_HEAD_MAX])
{
	char text[RESPONSE_MESSAGE_MAX];
	char escaped[2 * RESPONSE_MESSAGE_MAX];

	response_message(error, text, sizeof text);
	json_escape(text, escaped, sizeof escaped);
	return print(buf, RESPONSE_HEAD_MAX,
	    "{\"error\":%d,\"message\":\"%s\"}", errors_number(error->error),
	    escaped);
}

size_t
response_ok_head(size_t body_len, char buf[static RESPONSE_HEAD_MAX])
{
	return print(buf, RESPONSE_HEAD_MAX,
	    "Status: 200 OK\r\n"
	    "Content-Type: application/json\r\n"
	    "Content-Length: %zu\r\n"
	    "\r\n",
	    body_len);
}

size_t
response_error(const struct response_error *error, bool contract, bool head,
    char buf[static RESPONSE_HEAD_MAX])
{
	int status = contract ? 400 : errors_status(error->error);
	char body[RESPONSE_HEAD_MAX];
	size_t body_len = error_body(error, body);

	return print(buf, RESPONSE_HEAD_MAX,
	    "Status: %d %s\r\n"
	    "Content-Type: application/json\r\n"
	    "Content-Length: %zu\r\n"
	    "%s"
	    "\r\n"
	    "%s",
	    status, reason_phrase(status), body_len, extra_header(error->error),
	    head ? "" : body);
}
