/* api: the steps of a request.  See api/api.h. */
#include "api/api.h"

#include <stdatomic.h>
#include <string.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "ground/metrics.h"

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
	call->failure = (struct api_error){ .error = error };
}

static bool
is_method(const struct request *request, const char *method)
{
	return request->method != NULL && strcmp(request->method, method) == 0;
}

/* The steps of the head: preflight, credential, route, framing. */
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
	if (!found)
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
find_page(const struct api *api, const struct request *request)
{
	if (request->ambiguous)
		return API_PLANT;
	if (request->check != NULL || is_for(request, api->config->health_path))
		return API_HEALTH;
	return is_for(request, api->config->metrics_path) ? API_METRICS
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

	return api->tokens != NULL &&
		       tokens_next_expiry(api->tokens, api->now_ms) != 0
		   ? api_error_of(state)
		   : HTTP_NOT_READY;
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
		api_fail(call, check_health(api));
	if (call->page == API_METRICS && store_state >= 0)
		metrics_healthy = check_health(api) == HTTP_OK;
	if (call->page != API_PLANT)
		return -1;
	api_fail(call, check_head(api, call, &request));
	return call->failure.error == HTTP_OK ? 0 : -1;
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

struct api_error
api_plant_failure(enum plant_fault fault, const struct json_error *error)
{
	static const enum http_error faults[] = {
		[PLANT_OK] = HTTP_OK,
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
		[JSON_FAULT_UTF8] = HTTP_JSON_UTF8,
		[JSON_FAULT_DEPTH] = HTTP_JSON_DEPTH,
		[JSON_FAULT_NOT_OBJECT] = HTTP_JSON_NOT_OBJECT,
	};

	if (fault != PLANT_NOT_JSON)
		return (struct api_error){ .error = faults[fault] };
	return (struct api_error){ .error = json_faults[error->fault],
		.reason = error->reason,
		.offset = error->offset };
}

int
api_body(struct api *api, struct api_call *call, const char *body, size_t len)
{
	struct json_error error;

	api_fail(call, check_body(api, call, len));
	if (call->failure.error == HTTP_OK)
		call->failure = api_plant_failure(
		    plant_read(&call->plant, body, len, &error), &error);
	return call->failure.error == HTTP_OK ? 0 : -1;
}

void
api_stored(struct api_call *call, enum store_result result)
{
	api_fail(call, api_error_of(result));
}
