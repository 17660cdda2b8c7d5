/* api: the order of the steps.  See api/api.h. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "http/credential.h"

#define RESOURCE "/plants"

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

/* Step 1. */
static enum http_error
check_credential(
    struct api *api, struct api_call *call, const struct request *request)
{
	const char *token;
	size_t len;
	enum http_error error =
	    credential_read(request->authorization, &token, &len);

	if (error == HTTP_OK)
		error =
		    tokens_find(api->tokens, token, len, api->now_ms, call->by);
	return error;
}

/* Step 2. */
static enum http_error
check_route(const struct api *api, const struct request *request)
{
	if (!request_path_is(request, api->config->base_path, RESOURCE))
		return HTTP_PATH_UNKNOWN;
	if (request->method == NULL || strcmp(request->method, "POST") != 0)
		return HTTP_METHOD_NOT_ALLOWED;
	return HTTP_OK;
}

/* Step 3, as far as the head tells. */
static enum http_error
check_framing(
    const struct api *api, struct api_call *call, const struct request *request)
{
	if (!request_is_json(request))
		return HTTP_CONTENT_TYPE;
	if (!request_is_identity(request))
		return HTTP_CONTENT_ENCODING;
	switch (request_length(request, &call->body_len)) {
	case REQUEST_LENGTH_BAD:
		return HTTP_CONTENT_LENGTH;
	case REQUEST_LENGTH_ABSENT:
		return HTTP_OK;
	case REQUEST_LENGTH_OK:
		call->length_known = true;
	}
	return call->body_len > api->config->body_bytes_max
		   ? HTTP_BODY_TOO_LARGE
		   : HTTP_OK;
}

int
api_head(struct api *api, struct api_call *call, char *const *variables)
{
	struct request request;
	enum http_error error;

	memset(call, 0, sizeof(*call));
	int ambiguous = request_read(&request, variables);
	call->head_method =
	    request.method != NULL && strcmp(request.method, "HEAD") == 0;
	call->chunked = ambiguous == 0 && request_is_chunked(&request);
	error = ambiguous != 0 ? HTTP_REQUEST_AMBIGUOUS
			       : check_credential(api, call, &request);
	if (error == HTTP_OK)
		error = check_route(api, &request);
	if (error == HTTP_OK)
		error = check_framing(api, call, &request);
	api_fail(call, error);
	return error == HTTP_OK ? 0 : -1;
}

static enum http_error
check_body(
    const struct api *api, const struct api_call *call, size_t len, bool whole)
{
	if (call->length_known && len > call->body_len)
		return HTTP_BODY_LONG;
	if (len > api->config->body_bytes_max)
		return HTTP_BODY_TOO_LARGE;
	if (call->length_known && len < call->body_len)
		return HTTP_BODY_SHORT;
	if (!whole)
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

/* Step 4. */
int
api_body(struct api *api, struct api_call *call, const char *body, size_t len,
    bool whole)
{
	struct json_error json_error;
	enum plant_fault fault;
	enum http_error error = check_body(api, call, len, whole);

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

	api_fail(call, errors[result]);
}

char *
api_answer(const struct api *api, const struct api_call *call, size_t *len)
{
	bool good = call->failure.error == HTTP_OK;
	size_t body_len = good ? plant_answer_len(&call->plant) : 0;
	char *answer = malloc(RESPONSE_HEAD_MAX + body_len);

	if (answer == NULL)
		return NULL;
	if (good) {
		*len = response_ok_head(body_len, answer);
		plant_answer(&call->plant, answer + *len);
		*len += body_len;
	} else {
		*len = response_error(&call->failure,
		    api->config->contract_status, call->head_method, answer);
		log_debug("error %d for %s", errors_number(call->failure.error),
		    *call->by == '\0' ? "a client without a valid token"
				      : call->by);
	}
	return answer;
}

void
api_done(struct api_call *call)
{
	plant_done(&call->plant);
}
