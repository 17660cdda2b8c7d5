/*
 * api: the steps of the only operation, POST {base_url}/plants, in order.
 *
 *	api_head    preflight, credential, route, framing of the head
 *	            (the gateway reads or drains the body)
 *	api_body    lengths, JSON, fields
 *	            (the gateway stores the plants of a batch together)
 *	api_stored  the store's result
 *	api_answer  the response
 *
 * A GET or HEAD request for the health or metrics path, and a request from the
 * command `check` (REQUEST_CHECK), end in api_head and need no credential.
 *
 * The only I/O is the log and the token file (api_tick).  One thread per api.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ground/config.h"
#include "http/request.h"
#include "http/tokens.h"
#include "plant/plant.h"
#include "store/store.h"

/* The maximum length of a response's head. */
#define API_HEAD_MAX 2048
#define API_METRICS_MAX ((size_t)32 << 10)
#define API_ANSWER_MAX (API_HEAD_MAX + CONFIG_BODY_BYTES_MAX + API_METRICS_MAX)
#define API_MESSAGE_MAX 512

struct api {
	const struct config *config;
	struct tokens *tokens; /* NULL: each API_PLANT request is NOT_READY */
	int64_t now_ms;        /* see api_tick */
};

/* The body of a 200. */
enum api_page { API_PLANT, API_HEALTH, API_METRICS };

struct api_error {
	enum http_error error;
	const char *reason; /* NULL, or static text */
	size_t offset;      /* of the error in the body; only with `reason` */
};

/* A request in progress. */
struct api_call {
	struct api_error failure;    /* HTTP_OK until another result is known */
	char id[REQUEST_ID_MAX + 1]; /* sent as X-Request-Id */
	const char *origin;          /* see request_origin */
	bool bodiless;               /* the method is HEAD */
	enum api_page page;
	enum request_length length;
	size_t body_len; /* CONTENT_LENGTH for REQUEST_LENGTH_OK; else 0 */
	bool whole;      /* set before api_body: the body was read to its end,
			    not cut short by a connection error */
	char by[TOKENS_NAME_MAX + 1];
	struct plant plant; /* set by api_body; plant_done frees it */
	int64_t began_us;   /* set at log level debug */
};

/*
 * api_tick(api):
 * Read the clock and, at most once a second, check the token file for changes.
 * Call before each group of requests.
 *
 * api_head(api, call, variables):
 * Start `call` from the request's CGI variables.  Return 0 if the caller must
 * read the body, up to config->body_bytes_max + 1 bytes: the extra byte reveals
 * a body that is too large.  Return -1 if the response does not need the body.
 *
 * api_body(api, call, body, len):
 * Check the body of a call that passed api_head.  Return 0 if call->plant is to
 * be stored, or -1 if the request is refused.
 */
void api_tick(struct api *api);
int api_head(struct api *api, struct api_call *call, char *const *variables);
int api_body(
    struct api *api, struct api_call *call, const char *body, size_t len);

/*
 * api_plant_failure(fault, error), api_error_of(result):
 * Return the error that the client receives for a result of plant_read or of
 * the store; HTTP_OK if there is none.
 *
 * api_message(error, buf):
 * Write the message that the client receives, NUL-terminated.
 */
struct api_error api_plant_failure(
    enum plant_fault fault, const struct json_error *error);
enum http_error api_error_of(enum store_result result);
void api_message(
    const struct api_error *error, char buf[static API_MESSAGE_MAX]);

/*
 * api_set_error(call, error), api_stored(call, result):
 * End a call with an error of the gateway, such as HTTP_OUT_OF_MEMORY.  End it
 * with the result of store_commit or, for a health request, of store_ready.
 *
 * api_set_ready(ready):
 * Set the store's state, as returned by store_ready, for api_health.
 * api_stored also sets STORE_FULL, until the next api_set_ready.  Any thread.
 *
 * api_health(api, error):
 * Set `*error` to the result of a health request: HTTP_OK if a plant sent now
 * could be stored.  Return false if the state is unknown because api_set_ready
 * was never called: in CGI, which opens the store next, and in commands.
 */
void api_set_error(struct api_call *call, enum http_error error);
void api_stored(struct api_call *call, enum store_result result);
void api_set_ready(enum store_result ready);
bool api_health(const struct api *api, enum http_error *error);

/*
 * api_answer(api, call, buf):
 * Write the complete CGI response (RFC 3875, section 6) into `buf`, which has
 * room for API_ANSWER_MAX bytes.  Return its length.  Log the response at level
 * debug.  Count it, unless the request was for the health or metrics path.
 *
 * api_log_refusals():
 * Log how many times this process has sent each error since the last call.
 *
 * api_metrics(api, buf):
 * Write the counters, and the time when the next token expires, in the
 * Prometheus text format 0.0.4.  Return the length.
 */
size_t api_answer(
    const struct api *api, const struct api_call *call, char *buf);
void api_log_refusals(void);
size_t api_metrics(const struct api *api, char buf[static API_METRICS_MAX]);
