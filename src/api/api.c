/* api: the steps of a request, and its response.  See api/api.h. */
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

/* Responses by error, since the last api_log_refusals. */
static _Atomic unsigned refusals[HTTP_ERROR_COUNT];

/* From api_set_ready; -1 before its first call, as in a command and in CGI. */
static _Atomic int store_state = -1;

void
api_set_ready(enum store_result ready)
{
	store_state = (int)ready;
}

void
api_tick(struct api *api)
{
	api->now_ms = clock_ms(CLOCK_REALTIME_COARSE);
	tokens_refresh(api->tokens, clock_ms(CLOCK_MONOTONIC_COARSE));
}

void
api_set_error(struct api_call *call, enum http_error error)
{
	call->failure = (struct api_error){ .error = error };
}

static bool
is_method(const struct request *request, const char *method)
{
	return request->method != NULL && strcmp(request->method, method) == 0;
}

/* Check the head, in this order: preflight, credential, route, framing. */
static enum http_error
check_head(
    struct api *api, struct api_call *call, const struct request *request)
{
	bool found =
	    request_path_is(request, api->config->base_path, "/plants");
	struct credential credential;
	enum http_error error;

	/* A CORS preflight: may a page of that origin send a plant? */
	if (found && call->origin != NULL && !request->ambiguous &&
	    request->preflight_method != NULL && is_method(request, "OPTIONS"))
		return HTTP_PREFLIGHT;
	if (api->tokens == NULL)
		return HTTP_NOT_READY;
	if (request->ambiguous)
		return HTTP_REQUEST_AMBIGUOUS;
	error = request_credential(request, &credential);
	if (error == HTTP_OK)
		error = tokens_find(
		    api->tokens, &credential, api->now_ms, call->by);
	if (error != HTTP_OK)
		return error;
	size_t body_max = api->config->body_bytes_max;
	return !found                               ? HTTP_PATH_UNKNOWN
	       : !is_method(request, "POST")        ? HTTP_METHOD_NOT_ALLOWED
	       : !request_is_json(request)          ? HTTP_CONTENT_TYPE
	       : !request_is_identity(request)      ? HTTP_CONTENT_ENCODING
	       : call->length == REQUEST_LENGTH_BAD ? HTTP_CONTENT_LENGTH
	       : call->body_len > body_max          ? HTTP_BODY_TOO_LARGE
						    : HTTP_OK;
}

/* Return whether the path is `path`, which may be NULL or "". */
static bool
is_at(const struct request *request, const char *path)
{
	return path != NULL && path[0] != '\0' &&
	       request_path_is(request, "", path);
}

static enum api_page
find_page(const struct api *api, const struct request *request)
{
	bool reads = is_method(request, "GET") || is_method(request, "HEAD");

	return request->ambiguous                          ? API_PLANT
	       : request->check != NULL                    ? API_HEALTH
	       : !reads                                    ? API_PLANT
	       : is_at(request, api->config->health_path)  ? API_HEALTH
	       : is_at(request, api->config->metrics_path) ? API_METRICS
							   : API_PLANT;
}

enum http_error
api_error_of(enum store_result result)
{
	static const enum http_error errors[] = {
		[STORE_CREATED] = HTTP_OK,
		[STORE_SAME] = HTTP_OK,
		[STORE_CONFLICT] = HTTP_CONFLICT,
		[STORE_FULL] = HTTP_STORE_FULL,
		[STORE_BUSY] = HTTP_STORE_BUSY,
		[STORE_AWAY] = HTTP_STORE_AWAY,
		[STORE_UNKNOWN] = HTTP_STORE_UNKNOWN,
		[STORE_FAILED] = HTTP_STORE_FAILED,
	};

	return errors[result];
}

bool
api_health(const struct api *api, enum http_error *error)
{
	int state = store_state;

	*error = api->tokens != NULL &&
			 tokens_next_expiry(api->tokens, api->now_ms) != 0
		     ? api_error_of((enum store_result)(
			   state < 0 ? (int)STORE_CREATED : state))
		     : HTTP_NOT_READY;
	return state >= 0;
}

int
api_head(struct api *api, struct api_call *call, char *const *variables)
{
	struct request request;

	memset(call, 0, sizeof(*call));
	if (api->config->log_level == LOG_AT_DEBUG)
		call->began_us = clock_us(CLOCK_MONOTONIC);
	request_read(&request, variables);
	request_id(&request, call->id);
	call->origin = request_origin(&request, api->config->origins);
	call->bodiless = is_method(&request, "HEAD");
	call->length = request_length(&request, &call->body_len);
	call->page = find_page(api, &request);
	if (call->page == API_HEALTH)
		(void)api_health(api, &call->failure.error);
	if (call->page != API_PLANT)
		return -1;
	api_set_error(call, check_head(api, call, &request));
	return call->failure.error == HTTP_OK ? 0 : -1;
}

static enum http_error
check_body(const struct api *api, const struct api_call *call, size_t len)
{
	bool known = call->length == REQUEST_LENGTH_OK;

	return known && len > call->body_len       ? HTTP_BODY_LONG
	       : len > api->config->body_bytes_max ? HTTP_BODY_TOO_LARGE
	       : known && len < call->body_len     ? HTTP_BODY_SHORT
	       : !call->whole                      ? HTTP_BODY_BROKEN
	       : len == 0                          ? HTTP_BODY_MISSING
						   : HTTP_OK;
}

/* The faults of json and plant are in the same order as their errors. */
_Static_assert(HTTP_JSON_NOT_OBJECT - HTTP_JSON_SYNTAX ==
		       JSON_FAULT_NOT_OBJECT - JSON_FAULT_SYNTAX &&
		   HTTP_TAG_NOT_STRING - HTTP_ID_MISSING ==
		       PLANT_TAG_NOT_STRING - PLANT_ID_MISSING,
    "an error has no fault");

struct api_error
api_plant_failure(enum plant_fault fault, const struct json_error *error)
{
	struct api_error failure = { .error = HTTP_OK };

	if (fault == PLANT_NOT_JSON)
		failure = (struct api_error){ HTTP_JSON_SYNTAX +
						  (unsigned)error->fault,
			error->reason, error->offset };
	else if (fault == PLANT_NO_MEMORY)
		failure.error = HTTP_OUT_OF_MEMORY;
	else if (fault != PLANT_OK)
		failure.error =
		    HTTP_ID_MISSING + (unsigned)fault - PLANT_ID_MISSING;
	return failure;
}

int
api_body(struct api *api, struct api_call *call, const char *body, size_t len)
{
	struct json_error error;

	api_set_error(call, check_body(api, call, len));
	if (call->failure.error == HTTP_OK)
		call->failure = api_plant_failure(
		    plant_read(&call->plant, body, len, &error), &error);
	return call->failure.error == HTTP_OK ? 0 : -1;
}

void
api_stored(struct api_call *call, enum store_result result)
{
	/* Not ready until a probe finds space, which may take a second. */
	if (result == STORE_FULL)
		api_set_ready(result);
	api_set_error(call, api_error_of(result));
}

/* A status, its text, and the header lines that it requires. */
struct status {
	int number;
	const char *text, *header;
};

static const struct status *
find_status(int number)
{
	static const struct status rows[] = {
		{ 200, "200 OK", "" },
		/* Two hours: the longest that Chromium caches a preflight. */
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
	const char *message = http_errors[error->error].message;

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
			      http_errors[error->error].number);

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

/* Every response needs a head, so use stpcpy: it is faster than printf. */
static size_t
print_head(const struct api *api, const struct api_call *call, size_t body_len,
    char *buf)
{
	const struct config *config = api->config;
	enum http_error error = call->failure.error;
	const struct status *status = find_status(http_errors[error].status);
	const char *header = status->header;
	char *at = stpcpy(buf, "Status: ");

	/* RFC 6750, 3.1: no error code if no token was presented. */
	if (error == HTTP_CREDENTIAL_MISSING || error == HTTP_CREDENTIAL_SCHEME)
		header = "WWW-Authenticate: Bearer realm=\"plant-store\"\r\n";
	/* A monitor reads the status, so a health error never becomes 400. */
	if (http_errors[error].number != 0 && config->contract_status &&
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
	    http_errors[call->failure.error].number, call->by, body_len,
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
		metrics_add(METRICS_ANSWERS + (unsigned)error, 1);
		if (http_errors[error].number != 0)
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
			    len == 0 ? name : ",", http_errors[i].number, n);
	}
	if (len == 0)
		return;
	strcpy(members + len, "}");
	log_members(LOG_AT_INFO, "refused requests by error number", members);
}
