/* answer: prints, counts and logs the answer to a call.  See api/api.h. */
#include "api/api.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "pure/json.h"

/* Count of answers by error, since the last api_log_refusals. */
static _Atomic unsigned refusals[HTTP_ERROR_COUNT];

/* A status, its text, and the header lines that it demands. */
struct status {
	int number;
	const char *text, *header;
};

static const struct status *
find_status(int number)
{
	static const struct status rows[] = {
		{ 200, "200 OK", "" },
		/* Two hours: Chromium keeps a preflight no longer. */
		{ 204, "204 No Content",
		    "Access-Control-Allow-Methods: POST\r\n"
		    "Access-Control-Allow-Headers: "
		    "authorization, content-type, x-request-id\r\n"
		    "Access-Control-Max-Age: 7200\r\n" },
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

void
api_message(const struct api_error *error, char buf[static API_MESSAGE_MAX])
{
	const char *message = errors_message(error->error);

	if (error->reason == NULL)
		strcpy(buf, message);
	else
		snprintf(buf, API_MESSAGE_MAX, "%s: byte %zu: %s.", message,
		    error->offset, error->reason);
}

static size_t
print_error(const struct api_error *error, char *body)
{
	char message[API_MESSAGE_MAX];
	char *at = body + sprintf(body, "{\"error\":%d,\"message\":",
			      errors_number(error->error));

	api_message(error, message);
	at += json_string_print(message, strlen(message), at);
	*at++ = '}';
	return (size_t)(at - body);
}

/* Print the body, whatever the method. */
static size_t
print_body(const struct api *api, const struct api_call *call, char *body)
{
	if (call->failure.error == HTTP_PREFLIGHT)
		return 0;
	if (call->failure.error != HTTP_OK)
		return print_error(&call->failure, body);
	if (call->page == API_METRICS)
		return api_metrics(api, body);
	if (call->page == API_HEALTH)
		return (size_t)sprintf(body, "{\"status\":\"ok\"}");
	return plant_answer(&call->plant, body);
}

/* Every request comes here: stpcpy takes less time than printf. */
static size_t
print_head(const struct api *api, const struct api_call *call, size_t body_len,
    char *buf)
{
	const struct config *config = api->config;
	enum http_error error = call->failure.error;
	const struct status *status = find_status(errors_status(error));
	const char *header = status->header;
	char *at = stpcpy(buf, "Status: ");

	/* RFC 6750, 3.1: no error code if no token was presented. */
	if (error == HTTP_CREDENTIAL_MISSING || error == HTTP_CREDENTIAL_SCHEME)
		header = "WWW-Authenticate: Bearer realm=\"plant-store\"\r\n";
	/* A monitor reads the status, so a health error is never made 400. */
	if (errors_number(error) != 0 && config->contract_status &&
	    call->page != API_HEALTH)
		status = find_status(400);
	at = stpcpy(at, status->text);
	at = stpcpy(at, "\r\nX-Request-Id: ");
	at = stpcpy(at, call->id);
	at = stpcpy(at, "\r\n");
	if (config->origins != NULL && config->origins[0] != '\0')
		at = stpcpy(at, "Vary: Origin\r\n");
	if (call->page != API_PLANT)
		at = stpcpy(at, "Cache-Control: no-store\r\n");
	if (call->origin != NULL)
		at += sprintf(at,
		    "Access-Control-Allow-Origin: %.*s\r\n"
		    "Access-Control-Expose-Headers: "
		    "retry-after, x-request-id\r\n",
		    (int)strcspn(call->origin, CONFIG_SEPARATORS),
		    call->origin);
	if (error != HTTP_PREFLIGHT)
		at += sprintf(at,
		    "Content-Type: %s\r\n"
		    "Content-Length: %zu\r\n",
		    call->page == API_METRICS
			? "text/plain; version=0.0.4; charset=utf-8"
			: "application/json",
		    body_len);
	at = stpcpy(at, header);
	at = stpcpy(at, "\r\n");
	return (size_t)(at - buf);
}

static void
log_answer(const struct api_call *call, const char *answer, size_t body_len)
{
	char members[256];

	snprintf(members, sizeof(members),
	    ",\"request\":\"%s\",\"status\":%.3s,\"error\":%d,"
	    "\"token\":\"%s\",\"bytes\":%zu,\"us\":%" PRId64,
	    call->id, answer + strlen("Status: "),
	    errors_number(call->failure.error), call->by, body_len,
	    clock_us(CLOCK_MONOTONIC) - call->began_us);
	log_members(LOG_AT_DEBUG, "answered", members);
}

size_t
api_answer(const struct api *api, const struct api_call *call, char *buf)
{
	enum http_error error = call->failure.error;
	char *body = buf + API_HEAD_MAX;
	size_t body_len = print_body(api, call, body);
	size_t len = print_head(api, call, body_len, buf);

	if (call->page == API_PLANT) {
		metrics_add(METRICS_ANSWERS + error, 1);
		if (errors_number(error) != 0)
			atomic_fetch_add(&refusals[error], 1);
	}
	if (call->bodiless)
		body_len = 0;
	memmove(buf + len, body, body_len);
	if (api->config->log_level == LOG_AT_DEBUG)
		log_answer(call, buf, body_len);
	return len + body_len;
}

void
api_log_refusals(void)
{
	static const char name[] = ",\"errors\":{";
	char members[sizeof(name) + sizeof("}") +
		     HTTP_ERROR_COUNT * sizeof(",\"1001\":4294967295")];
	int len = 0;

	for (int i = HTTP_OK + 1; i < HTTP_ERROR_COUNT; i++) {
		unsigned n = atomic_exchange(&refusals[i], 0);

		if (n > 0)
			len += sprintf(members + len, "%s\"%d\":%u",
			    len == 0 ? name : ",",
			    errors_number((enum http_error)i), n);
	}
	if (len == 0)
		return;
	strcpy(members + len, "}");
	log_members(LOG_AT_INFO, "refused requests by error number", members);
}
