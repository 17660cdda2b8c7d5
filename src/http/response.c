/*
 * response: prints heads and Error bodies into the caller's buffer.  Numbers
 * and messages come from the table in errors, the body of a 200 from plant.
 */
#include "http/response.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pure/json.h"

/* Print into `buf`; return the length.  Each text has a bounded length. */
__attribute__((format(printf, 3, 4))) static size_t
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

/* A status, its text, and the header that it demands. */
struct status {
	int number;
	const char *text, *header;
};

static const struct status *
find_status(int number)
{
	static const struct status rows[] = {
		{ 200, "200 OK", "" },
		{ 204, "204 No Content", "" },
		{ 400, "400 Bad Request", "" },
		{ 401, "401 Unauthorized",
		    "WWW-Authenticate: Bearer realm=\"plant-store\", "
		    "error=\"invalid_token\"\r\n" },
		{ 404, "404 Not Found", "" },
		{ 405, "405 Method Not Allowed", "Allow: POST\r\n" },
		{ 409, "409 Conflict", "" },
		{ 413, "413 Content Too Large", "" },
		{ 429, "429 Too Many Requests", "Retry-After: 1\r\n" },
		{ 500, "500 Internal Server Error", "" },
		{ 503, "503 Service Unavailable", "Retry-After: 1\r\n" },
	};
	size_t i = 0;

	for (; rows[i].number != number; i++)
		assert(i + 1 < sizeof rows / sizeof rows[0]);
	return &rows[i];
}

static const char *
extra_header(enum http_error error)
{
	/* RFC 6750, 3.1: no error code if no token was presented. */
	if (error == HTTP_CREDENTIAL_MISSING || error == HTTP_CREDENTIAL_SCHEME)
		return "WWW-Authenticate: Bearer realm=\"plant-store\"\r\n";
	return find_status(errors_status(error))->header;
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

/* Print the first lines, which every answer has. */
static size_t
begin(const struct response_head *head, int status,
    char buf[static RESPONSE_HEAD_MAX])
{
	/* Every request comes here: printf would cost time. */
	char *at = stpcpy(buf, "Status: ");
	at = stpcpy(at, find_status(status)->text);
	at = stpcpy(at, "\r\nX-Request-Id: ");
	at = stpcpy(at, head->id);
	at = stpcpy(at, "\r\n");
	if (head->by_origin)
		at = stpcpy(at, "Vary: Origin\r\n");
	if (head->no_store)
		at = stpcpy(at, "Cache-Control: no-store\r\n");
	size_t len = (size_t)(at - buf);

	if (head->origin != NULL)
		len += print(buf + len, RESPONSE_HEAD_MAX - len,
		    "Access-Control-Allow-Origin: %.*s\r\n"
		    "Access-Control-Expose-Headers: "
		    "retry-after, x-request-id\r\n",
		    head->origin_len, head->origin);
	return len;
}

size_t
response_ok_head(const struct response_head *head, size_t body_len,
    char buf[static RESPONSE_HEAD_MAX])
{
	size_t len = begin(head, 200, buf);

	return len + print(buf + len, RESPONSE_HEAD_MAX - len,
			 "Content-Type: %s\r\n"
			 "Content-Length: %zu\r\n"
			 "\r\n",
			 head->type == NULL ? "application/json" : head->type,
			 body_len);
}

size_t
response_preflight(
    const struct response_head *head, char buf[static RESPONSE_HEAD_MAX])
{
	size_t len = begin(head, 204, buf);

	/* Two hours: Chromium keeps a preflight no longer. */
	return len + print(buf + len, RESPONSE_HEAD_MAX - len,
			 "Access-Control-Allow-Methods: POST\r\n"
			 "Access-Control-Allow-Headers: "
			 "authorization, content-type, x-request-id\r\n"
			 "Access-Control-Max-Age: 7200\r\n"
			 "\r\n");
}

size_t
response_error(const struct response_head *head,
    const struct response_error *error, char buf[static RESPONSE_HEAD_MAX])
{
	char text[RESPONSE_MESSAGE_MAX], token[6 * RESPONSE_MESSAGE_MAX + 2];
	char body[RESPONSE_HEAD_MAX];
	int status = head->contract ? 400 : errors_status(error->error);
	size_t body_len, len = begin(head, status, buf);

	response_message(error, text, sizeof text);
	size_t token_len = json_string_print(text, strlen(text), token);
	body_len = print(body, sizeof body, "{\"error\":%d,\"message\":%.*s}",
	    errors_number(error->error), (int)token_len, token);
	return len + print(buf + len, RESPONSE_HEAD_MAX - len,
			 "Content-Type: application/json\r\n"
			 "Content-Length: %zu\r\n"
			 "%s"
			 "\r\n"
			 "%s",
			 body_len, extra_header(error->error),
			 head->bodiless ? "" : body);
}
