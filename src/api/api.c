/* api: the steps of a request.  See api/api.h. */
#include "api/api.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "http/credential.h"

#define RESOURCE "/plants"

/* Count of answers by error, since the last api_log_refusals. */
static _Atomic unsigned refusals[HTTP_ERROR_COUNT];

/* From api_set_ready; -1 before its first call. */
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
api_fail(struct api_call *call, enum http_error error)
{
	call->failure = (struct response_error){ .error = error };
}

static enum http_error
check_credential(
    struct api *api, struct api_call *call, const struct request *request)
{
	struct credential credential;
	enum http_error error =
	    credential_read(request->authorization, &credential);

	return error != HTTP_OK ? error
				: tokens_find(api->tokens, &credential,
				      api->now_ms, call->by);
}

static bool
is_method(const struct request *request, const char *method)
{
	return request->method != NULL && strcmp(request->method, method) == 0;
}

/* Check the route, then the framing in the head. */
static enum http_error
check_head(const struct api *api, const struct api_call *call,
    const struct request *request)
{
	if (!request_path_is(request, api->config->base_path, RESOURCE))
		return HTTP_PATH_UNKNOWN;
	if (!is_method(request, "POST"))
		return HTTP_METHOD_NOT_ALLOWED;
	if (!request_is_json(request))
		return HTTP_CONTENT_TYPE;
	if (!request_is_identity(request))
		return HTTP_CONTENT_ENCODING;
	if (call->length == REQUEST_LENGTH_BAD)
		return HTTP_CONTENT_LENGTH;
	return call->body_len > api->config->body_bytes_max
		   ? HTTP_BODY_TOO_LARGE
		   : HTTP_OK;
}

/* Whether this is a GET or HEAD of `path`, which may be NULL or "". */
static bool
is_for(const struct request *request, const char *path)
{
	return path != NULL && path[0] != '\0' &&
	       (is_method(request, "GET") || is_method(request, "HEAD")) &&
	       request_path_is(request, "", path);
}

static enum api_page
find_page(const struct api *api, const struct api_call *call,
    const struct request *request)
{
	if (request->check != NULL || is_for(request, api->config->health_path))
		return API_HEALTH;
	if (is_for(request, api->config->metrics_path))
		return API_METRICS;
	/* A CORS preflight: may a page of that origin send a plant? */
	return call->head.origin != NULL && request->preflight_method != NULL &&
		       is_method(request, "OPTIONS") &&
		       request_path_is(
			   request, api->config->base_path, RESOURCE)
		   ? API_PREFLIGHT
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

static enum http_error
check_health(const struct api *api)
{
	enum store_result state =
	    store_state < 0 ? STORE_CREATED : (enum store_result)store_state;
	int64_t expires_ms;

	return api->tokens != NULL &&
		       tokens_valid(api->tokens, api->now_ms, &expires_ms)
		   ? api_error_of(state)
		   : HTTP_NOT_READY;
}

int
api_head(struct api *api, struct api_call *call, char *const *variables)
{
	struct request request;
	struct response_head *head = &call->head;
	enum http_error error;

	memset(call, 0, sizeof(*call));
	if (api->config->log_level == LOG_AT_DEBUG)
		call->began_us = clock_us(CLOCK_MONOTONIC);
	bool ambiguous = request_read(&request, variables) != 0;
	request_id(&request, head->id);
	head->origin =
	    request_origin(&request, api->config->origins, &head->origin_len);
	head->by_origin =
	    api->config->origins != NULL && api->config->origins[0] != '\0';
	head->bodiless = is_method(&request, "HEAD");
	call->length = request_length(&request, &call->body_len);
	call->chunked = request_is_chunked(&request);
	if (!ambiguous)
		call->page = find_page(api, call, &request);
	head->no_store = call->page == API_HEALTH || call->page == API_METRICS;
	if (call->page == API_METRICS)
		head->type = "text/plain; version=0.0.4; charset=utf-8";
	/* A monitor reads the status, so a health error is never made 400. */
	head->contract =
	    api->config->contract_status && call->page != API_HEALTH;
	if (call->page == API_HEALTH)
		api_fail(call, check_health(api));
	if (call->page != API_PLANT)
		return -1;
	if (api->tokens == NULL)
		error = HTTP_NOT_READY;
	else if (ambiguous)
		error = HTTP_REQUEST_AMBIGUOUS;
	else
		error = check_credential(api, call, &request);
	if (error == HTTP_OK)
		error = check_head(api, call, &request);
	api_fail(call, error);
	return error == HTTP_OK ? 0 : -1;
}

static enum http_error
check_body(const struct api *api, const struct api_call *call, size_t len)
{
	bool known = call->length == REQUEST_LENGTH_OK;

	if (known && len > call->body_len)
		return HTTP_BODY_LONG;
	if (len > api->config->body_bytes_max)
		return HTTP_BODY_TOO_LARGE;
	if (known && len < call->body_len)
		return HTTP_BODY_SHORT;
	if (!call->whole)
		return HTTP_BODY_BROKEN;
	return len == 0 ? HTTP_BODY_MISSING : HTTP_OK;
}

struct response_error
api_plant_failure(enum plant_fault fault, const struct json_error *error)
{
	static const enum http_error faults[] = {
		[PLANT_ID_MISSING] = HTTP_ID_MISSING,
		[PLANT_ID_TWICE] = HTTP_ID_TWICE,
		[PLANT_ID_NOT_INTEGER] = HTTP_ID_NOT_INTEGER,
		[PLANT_ID_RANGE] = HTTP_ID_RANGE,
		[PLANT_NAME_MISSING] = HTTP_NAME_MISSING,
		[PLANT_NAME_TWICE] = HTTP_NAME_TWICE,
		[PLANT_NAME_NOT_STRING] = HTTP_NAME_NOT_STRING,
		[PLANT_TAG_TWICE] = HTTP_TAG_TWICE,
		[PLANT_TAG_NOT_STRING] = HTTP_TAG_NOT_STRING,
		[PLANT_NO_MEMORY] = HTTP_OUT_OF_MEMORY,
	};
	static const enum http_error json_faults[] = {
		[JSON_FAULT_SYNTAX] = HTTP_JSON_SYNTAX,
		[JSON_FAULT_TRUNCATED] = HTTP_JSON_SYNTAX,
		[JSON_FAULT_UTF8] = HTTP_JSON_UTF8,
		[JSON_FAULT_DEPTH] = HTTP_JSON_DEPTH,
		[JSON_FAULT_NOT_OBJECT] = HTTP_JSON_NOT_OBJECT,
	};

	if (fault != PLANT_NOT_JSON)
		return (struct response_error){ .error = faults[fault] };
	return (struct response_error){ .error = json_faults[error->fault],
		.reason = error->reason,
		.offset = error->offset };
}

int
api_body(struct api *api, struct api_call *call, const char *body, size_t len)
{
	struct json_error json_error;
	enum plant_fault fault;
	enum http_error error = check_body(api, call, len);

	api_fail(call, error);
	if (error != HTTP_OK)
		return -1;
	fault = plant_read(&call->plant, body, len, &json_error);
	if (fault == PLANT_OK)
		return 0;
	call->failure = api_plant_failure(fault, &json_error);
	return -1;
}

void
api_stored(struct api_call *call, enum store_result result)
{
	api_fail(call, api_error_of(result));
}

static void
log_answer(const struct api_call *call, const char *answer, size_t len)
{
	const char *end = memmem(answer, len, "\r\n\r\n", 4);
	char members[256];

	snprintf(members, sizeof(members),
	    ",\"request\":\"%s\",\"status\":%.3s,\"error\":%d,"
	    "\"token\":\"%s\",\"bytes\":%td,\"us\":%" PRId64,
	    call->head.id, answer + strlen("Status: "),
	    errors_number(call->failure.error), call->by,
	    answer + len - (end + 4),
	    clock_us(CLOCK_MONOTONIC) - call->began_us);
	log_members(LOG_AT_DEBUG, "answered", members);
}

static size_t
print_body(const struct api *api, const struct api_call *call, char *body)
{
	if (call->page == API_METRICS) {
		if (store_state >= 0)
			metrics_healthy = check_health(api) == HTTP_OK;
		return api_metrics(api, body);
	}
	if (call->page == API_HEALTH)
		return (size_t)sprintf(body, "{\"status\":\"ok\"}");
	return plant_answer(&call->plant, body);
}

static void
count_answer(const struct api_call *call)
{
	enum http_error error = call->failure.error;

	if (error != HTTP_OK)
		atomic_fetch_add(&refusals[error], 1);
	metrics_add(METRICS_ANSWERS + (call->page == API_PREFLIGHT
					      ? (unsigned)HTTP_ERROR_COUNT
					      : error),
	    1);
}

size_t
api_answer(const struct api *api, const struct api_call *call, char *buf)
{
	size_t len;

	if (call->page == API_PLANT || call->page == API_PREFLIGHT)
		count_answer(call);
	if (call->failure.error != HTTP_OK)
		len = response_error(&call->head, &call->failure, buf);
	else if (call->page == API_PREFLIGHT)
		len = response_preflight(&call->head, buf);
	else {
		char *body = buf + RESPONSE_HEAD_MAX;
		size_t body_len = print_body(api, call, body);

		len = response_ok_head(&call->head, body_len, buf);
		if (!call->head.bodiless)
			memmove(buf + len, body, body_len);
		len += call->head.bodiless ? 0 : body_len;
	}
	if (api->config->log_level == LOG_AT_DEBUG)
		log_answer(call, buf, len);
	return len;
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
