/*
 * api: the order of the steps, the errors they end with, and whole answers.
 */
#include "unit.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "ground/metrics.h"

/* SHA-256 of "one", "two" and "three" */
#define ONE "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
#define TWO "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"
#define THREE "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f"

/* 2026-11-21T07:21:00Z, when "two" expires. */
#define EXPIRES "2026-11-21T07:21:00Z"
#define EXPIRES_MS INT64_C(1795245660000)

#define BODY_BYTES_MAX 100
#define VARIABLES_MAX 12

#define FERN "{\"id\":1,\"name\":\"Fern\",\"tag\":\"indoor\"}"
#define FERN_LENGTH "CONTENT_LENGTH=37"

/* What a server passes of a request that is good. */
#define POST "REQUEST_METHOD=POST"
#define PATH "SCRIPT_NAME=/api/plants"
#define BEARER "HTTP_AUTHORIZATION=Bearer one"
#define JSON "CONTENT_TYPE=application/json"
#define GIVEN_ID "HTTP_X_REQUEST_ID=the-id"
#define GOOD POST, PATH, BEARER, JSON, GIVEN_ID
#define ID "X-Request-Id: the-id\r\n"

struct fixture {
	char dir[DIRECTORY_PATH_MAX];
	char tokens[80];
	struct config config;
	struct api api;
};

static void
write_tokens(const struct fixture *fixture, const char *text)
{
	file_replace(fixture->tokens, text, strlen(text), 0600);
}

static void
set_up(struct fixture *fixture)
{
	enum fault fault;

	directory_make(fixture->dir);
	log_level_max = LOG_AT_ERROR;
	snprintf(
	    fixture->tokens, sizeof fixture->tokens, "%s/tokens", fixture->dir);
	write_tokens(fixture, "first " ONE "\nsecond " TWO " " EXPIRES "\n");
	fixture->config = (struct config){ .dir = fixture->dir,
		.base_path = "/api",
		.body_bytes_max = BODY_BYTES_MAX };
	fixture->api.config = &fixture->config;
	fixture->api.tokens = tokens_open(fixture->tokens, geteuid(), &fault);
	fixture->api.now_ms = EXPIRES_MS - 1;
	assert_non_null(fixture->api.tokens);
}

static void
tear_down(struct fixture *fixture)
{
	api_set_ready(STORE_CREATED);
	tokens_close(fixture->api.tokens);
	directory_remove(fixture->dir);
}

#define API_TEST(name) \
	FIXTURE_TEST(name, struct fixture, fixture, set_up, tear_down)

/* A request: its variables, NULL behind the last, and its body. */
struct sent {
	const char *variables[VARIABLES_MAX + 1];
	const char *body;
};

/* api_head takes them as environ is: not const, though left alone. */
static int
head(struct api *api, struct api_call *call, const struct sent *sent)
{
	char text[2048];
	char *variables[VARIABLES_MAX + 1];
	char *to = text;
	size_t n;

	for (n = 0; sent->variables[n] != NULL; n++) {
		size_t size = strlen(sent->variables[n]) + 1;

		assert_true(n < VARIABLES_MAX);
		assert_true(size <= (size_t)(text + sizeof text - to));
		variables[n] = memcpy(to, sent->variables[n], size);
		to += size;
	}
	variables[n] = NULL;
	int result = api_head(api, call, variables);
	call->whole = true;
	return result;
}

/* Both steps as a gateway takes them.  How the call ends before the store. */
static enum http_error
outcome(struct api *api, const struct sent *sent)
{
	struct api_call call;
	enum http_error error;
	int result = head(api, &call, sent);

	if (result == 0)
		result = api_body(api, &call, sent->body, strlen(sent->body));
	error = call.failure.error;
	assert_int_equal(result, error == HTTP_OK ? 0 : -1);
	if (error != HTTP_OK)
		assert_null(call.plant.text);
	plant_done(&call.plant);
	return error;
}

static const struct sent fern = { { GOOD, FERN_LENGTH }, FERN };

/* The first call's plant, on its way to the store. */
static void
begin_fern(struct api *api, struct api_call *call)
{
	assert_int_equal(head(api, call, &fern), 0);
	assert_int_equal(api_body(api, call, FERN, strlen(FERN)), 0);
}

/* The whole answer to `call`, which ends it. */
static const char *
answer(const struct api *api, struct api_call *call)
{
	static char text[API_HEAD_MAX + BODY_BYTES_MAX + API_METRICS_MAX];
	size_t len = api_answer(api, call, text);

	assert_in_range(len, 1, sizeof text - 1);
	text[len] = '\0';
	plant_done(&call->plant);
	return text;
}

/* The whole answer to a request, of which the store says `result`. */
static const char *
answer_to(struct api *api, const struct sent *sent, enum store_result result)
{
	struct api_call call;

	if (head(api, &call, sent) == 0 &&
	    api_body(api, &call, sent->body, strlen(sent->body)) == 0)
		api_stored(&call, result);
	return answer(api, &call);
}

API_TEST(good_request_becomes_its_plant)
{
	struct api_call call;

	begin_fern(&fixture->api, &call);
	assert_int_equal(call.failure.error, HTTP_OK);
	assert_int_equal(call.plant.id, 1);
	assert_int_equal(call.plant.len, strlen(FERN));
	assert_memory_equal(call.plant.text, FERN, strlen(FERN));
	assert_string_equal(call.by, "first");
	plant_done(&call.plant);
}

API_TEST(head_tells_how_much_body_to_read)
{
	static const struct sent chunked = {
		{ GOOD, "HTTP_TRANSFER_ENCODING=chunked" }, ""
	};
	static const struct sent neither = { { GOOD }, "" };
	struct api_call call;

	assert_int_equal(head(&fixture->api, &call, &fern), 0);
	assert_int_equal(call.length, REQUEST_LENGTH_OK);
	assert_int_equal(call.body_len, strlen(FERN));
	assert_int_equal(head(&fixture->api, &call, &chunked), 0);
	assert_int_equal(call.length, REQUEST_LENGTH_CHUNKED);
	assert_int_equal(head(&fixture->api, &call, &neither), 0);
	assert_int_equal(call.length, REQUEST_LENGTH_ABSENT);
}

static void
assert_outcome(
    struct api *api, const struct sent *sent, enum http_error error, size_t row)
{
	enum http_error is = outcome(api, sent);

	if (is != error)
		fail_msg("row %zu: %d instead of %d", row,
		    is == HTTP_OK ? 200 : http_errors[is].number,
		    error == HTTP_OK ? 200 : http_errors[error].number);
}

/*
 * Each request has every fault of the steps that come after the one it ends
 * at, so that a step which is taken too early shows.
 */
API_TEST(steps_of_the_head_are_taken_in_their_order)
{
#define GET_ROOT "REQUEST_METHOD=GET", "SCRIPT_NAME=/"
#define BAD_LENGTH "CONTENT_LENGTH=x"
#define BAD_CONTENT "CONTENT_TYPE=a/b", "HTTP_CONTENT_ENCODING=gzip", BAD_LENGTH
#define CREDENTIAL "HTTP_AUTHORIZATION="
	static const struct {
		enum http_error error;
		const char *variables[VARIABLES_MAX + 1];
	} rows[] = {
		/* What follows two of one header is not read. */
		{ HTTP_REQUEST_AMBIGUOUS, { GET_ROOT, BEARER, BEARER } },
		{ HTTP_CREDENTIAL_MISSING, { GET_ROOT, BAD_CONTENT } },
		{ HTTP_CREDENTIAL_SCHEME,
		    { GET_ROOT, CREDENTIAL "Basic b25lOm9uZQ==", BAD_LENGTH } },
		{ HTTP_CREDENTIAL_MALFORMED,
		    { GET_ROOT, CREDENTIAL "Bearer", BAD_LENGTH } },
		{ HTTP_CREDENTIAL_SEVERAL,
		    { GET_ROOT, CREDENTIAL "Bearer one, Bearer one",
			BAD_LENGTH } },
		{ HTTP_CREDENTIAL_UNKNOWN,
		    { GET_ROOT, CREDENTIAL "Bearer three", BAD_LENGTH } },
		{ HTTP_PATH_UNKNOWN, { GET_ROOT, BEARER, BAD_CONTENT } },
		{ HTTP_PATH_UNKNOWN, { BEARER, POST } },
		{ HTTP_METHOD_NOT_ALLOWED,
		    { "REQUEST_METHOD=GET", PATH, BEARER, BAD_CONTENT } },
		{ HTTP_METHOD_NOT_ALLOWED,
		    { "REQUEST_METHOD=post", PATH, BEARER, JSON } },
		{ HTTP_METHOD_NOT_ALLOWED,
		    { "REQUEST_METHOD=POSTS", PATH, BEARER, JSON } },
		{ HTTP_METHOD_NOT_ALLOWED,
		    { "REQUEST_METHOD=POS", PATH, BEARER, JSON } },
		{ HTTP_METHOD_NOT_ALLOWED, { PATH, BEARER, JSON } },
		{ HTTP_CONTENT_TYPE, { POST, PATH, BEARER, BAD_CONTENT } },
		{ HTTP_CONTENT_ENCODING,
		    { GOOD, "HTTP_CONTENT_ENCODING=gzip", BAD_LENGTH } },
		{ HTTP_CONTENT_LENGTH, { GOOD, BAD_LENGTH } },
		{ HTTP_BODY_TOO_LARGE, { GOOD, "CONTENT_LENGTH=101" } },
		{ HTTP_BODY_TOO_LARGE,
		    { GOOD, "CONTENT_LENGTH=99999999999999999999999" } },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct sent sent = { .body = "x" };

		memcpy(
		    sent.variables, rows[i].variables, sizeof sent.variables);
		assert_outcome(&fixture->api, &sent, rows[i].error, i);
	}
}

API_TEST(steps_of_the_body_are_taken_in_their_order)
{
	static const struct {
		enum http_error error;
		const char *length, *body;
	} rows[] = {
		{ HTTP_BODY_LONG, "CONTENT_LENGTH=1", "xx" },
		{ HTTP_BODY_SHORT, "CONTENT_LENGTH=2", "x" },
		{ HTTP_BODY_SHORT, "CONTENT_LENGTH=2", "" },
		{ HTTP_BODY_MISSING, "CONTENT_LENGTH=0", "" },
		{ HTTP_BODY_MISSING, NULL, "" },
		{ HTTP_JSON_SYNTAX, NULL, "x" },
		{ HTTP_JSON_SYNTAX, NULL, "{\"id\":" },
		{ HTTP_JSON_UTF8, NULL, "{\"\xff\":1}" },
		{ HTTP_JSON_DEPTH, NULL,
		    "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
		    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[" },
		{ HTTP_JSON_NOT_OBJECT, NULL, "[]" },
		{ HTTP_ID_MISSING, NULL, "{}" },
		{ HTTP_ID_TWICE, NULL, "{\"id\":1,\"id\":1}" },
		{ HTTP_ID_NOT_INTEGER, NULL, "{\"id\":1.5}" },
		{ HTTP_ID_RANGE, NULL, "{\"id\":9223372036854775808}" },
		{ HTTP_NAME_MISSING, NULL, "{\"id\":1,\"tag\":1}" },
		{ HTTP_NAME_TWICE, NULL, "{\"id\":1,\"name\":1,\"name\":1}" },
		{ HTTP_NAME_NOT_STRING, NULL,
		    "{\"id\":1,\"name\":1,\"tag\":1}" },
		{ HTTP_TAG_TWICE, NULL,
		    "{\"id\":1,\"name\":\"\",\"tag\":1,\"tag\":1}" },
		{ HTTP_TAG_NOT_STRING, NULL,
		    "{\"id\":1,\"name\":\"\",\"tag\":1}" },
		{ HTTP_OK, NULL, "{\"id\":1,\"name\":\"\"}" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct sent sent = { { GOOD, rows[i].length }, rows[i].body };

		assert_outcome(&fixture->api, &sent, rows[i].error, i);
	}
}

API_TEST(body_of_the_limit_passes_and_one_byte_more_does_not)
{
	static const struct {
		const char *length;
		size_t body_len;
		enum http_error error;
	} rows[] = {
		{ NULL, BODY_BYTES_MAX, HTTP_OK },
		{ NULL, BODY_BYTES_MAX + 1, HTTP_BODY_TOO_LARGE },
		{ "CONTENT_LENGTH=100", BODY_BYTES_MAX, HTTP_OK },
		{ "CONTENT_LENGTH=100", BODY_BYTES_MAX + 1, HTTP_BODY_LONG },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		char body[BODY_BYTES_MAX + 2];
		struct sent sent = { { GOOD, rows[i].length }, body };

		snprintf(
		    body, sizeof body, "%-*s", (int)rows[i].body_len, FERN);
		assert_outcome(&fixture->api, &sent, rows[i].error, i);
	}
}

API_TEST(body_that_broke_off_is_refused_though_it_is_a_plant)
{
	static const struct {
		const char *length;
		size_t len;
		enum http_error error;
	} rows[] = {
		{ NULL, sizeof FERN - 1, HTTP_BODY_BROKEN },
		{ FERN_LENGTH, sizeof FERN - 1, HTTP_BODY_BROKEN },
		{ FERN_LENGTH, 10, HTTP_BODY_SHORT },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct sent sent = { { GOOD, rows[i].length }, FERN };
		struct api_call call;

		assert_int_equal(head(&fixture->api, &call, &sent), 0);
		call.whole = false;
		assert_int_equal(
		    api_body(&fixture->api, &call, FERN, rows[i].len), -1);
		assert_int_equal(call.failure.error, rows[i].error);
	}
}

API_TEST(token_is_good_until_the_moment_it_expires)
{
	static const struct sent sent = {
		{ POST, PATH, JSON, "HTTP_AUTHORIZATION=Bearer two" }, FERN
	};

	fixture->api.now_ms = EXPIRES_MS - 1;
	assert_int_equal(outcome(&fixture->api, &sent), HTTP_OK);
	fixture->api.now_ms = EXPIRES_MS;
	assert_int_equal(
	    outcome(&fixture->api, &sent), HTTP_CREDENTIAL_EXPIRED);
	/* The other one does not. */
	assert_int_equal(outcome(&fixture->api, &fern), HTTP_OK);
}

API_TEST(tick_takes_the_time)
{
	/* The coarse clock is up to a tick late: a second covers any. */
	int64_t before = ((int64_t)time(NULL) - 1) * 1000;

	api_tick(&fixture->api);
	assert_true(fixture->api.now_ms >= before);
	assert_true(fixture->api.now_ms < ((int64_t)time(NULL) + 1) * 1000);
}

API_TEST(tick_takes_a_changed_token_file)
{
	static const struct sent sent = {
		{ POST, PATH, JSON, "HTTP_AUTHORIZATION=Bearer three" }, FERN
	};

	assert_int_equal(
	    outcome(&fixture->api, &sent), HTTP_CREDENTIAL_UNKNOWN);
	write_tokens(fixture, "third " THREE "\n");
	api_tick(&fixture->api);
	assert_int_equal(outcome(&fixture->api, &sent), HTTP_OK);
	assert_int_equal(
	    outcome(&fixture->api, &fern), HTTP_CREDENTIAL_UNKNOWN);
}

/* An answer begins with `begins` and has `has`, or ends there if it is NULL. */
static const struct {
	const char *what;
	struct sent sent;
	enum store_result result; /* if the store is asked */
	bool contract;
	const char *begins, *has;
} answers[] = {
	{ "a created plant, without its id", { { GOOD }, FERN }, STORE_CREATED,
	    false,
	    "Status: 200 OK\r\n" ID "Content-Type: application/json\r\n"
	    "Content-Length: 30\r\n"
	    "\r\n"
	    "{\"name\":\"Fern\",\"tag\":\"indoor\"}",
	    NULL },
	{ "a plant without a tag, without one",
	    { { GOOD }, "{\"other\":[1],\"name\":\"a\\/\\u00e9\",\"id\":-0}" },
	    STORE_SAME, false, "Status: 200 OK\r\n",
	    "\r\n\r\n{\"name\":\"a/\xc3\xa9\"}" },
	{ "a conflict", { { GOOD }, FERN }, STORE_CONFLICT, false,
	    "Status: 409 ", "{\"error\":5001," },
	{ "a fault in the JSON, with its place", { { GOOD }, "{\"id\" 1}" },
	    STORE_CREATED, false, "Status: 400 Bad Request\r\n",
	    "{\"error\":4001,\"message\":\"The body is not valid JSON: "
	    "byte 6: " },
	{ "HEAD, without a body but with its length",
	    { { "REQUEST_METHOD=HEAD", PATH, BEARER, GIVEN_ID }, "" },
	    STORE_CREATED, false,
	    "Status: 405 Method Not Allowed\r\n" ID
	    "Content-Type: application/json\r\n"
	    "Content-Length: 84\r\n"
	    "Allow: POST\r\n"
	    "\r\n",
	    NULL },
	{ "the store's failure, 400 by contract", { { GOOD }, FERN },
	    STORE_FAILED, true, "Status: 400 Bad Request\r\n",
	    "{\"error\":5003," },
	{ "no room", { { GOOD }, FERN }, STORE_FULL, false, "Status: 503 ",
	    "{\"error\":5002," },
	{ "a store in use", { { GOOD }, FERN }, STORE_BUSY, false,
	    "Status: 503 ", "{\"error\":5004," },
	{ "success, 200 by contract too", { { GOOD }, FERN }, STORE_CREATED,
	    true, "Status: 200 OK\r\n", "\r\n\r\n{\"name\":" },
};

API_TEST(each_end_of_a_request_has_its_answer)
{
	for (size_t i = 0; i < COUNT(answers); i++) {
		size_t len = strlen(answers[i].begins);

		fixture->config.contract_status = answers[i].contract;
		const char *text = answer_to(
		    &fixture->api, &answers[i].sent, answers[i].result);
		if (strncmp(text, answers[i].begins, len) != 0 ||
		    (answers[i].has != NULL
			    ? strstr(text, answers[i].has) == NULL
			    : text[len] != '\0'))
			fail_msg("%s: %s", answers[i].what, text);
	}
}

API_TEST(gateway_ends_a_call_with_an_error_of_its_own)
{
	struct api_call call;
	const char *text;

	begin_fern(&fixture->api, &call);
	api_set_error(&call, HTTP_STORE_BUSY);
	text = answer(&fixture->api, &call);
	assert_begins(text, "Status: 503 Service Unavailable\r\n");
	assert_contains(text, "{\"error\":5004,");
}

/* What the log gets of two answers, and of what both were, in text or JSON. */
static const char *
logged_of_two_answers(struct api *api)
{
	static const struct sent refused = { { POST, PATH, JSON, GIVEN_ID },
		"" };
	static char text[2048];
	struct api_call call;

	stderr_capture();
	begin_fern(api, &call);
	answer(api, &call);
	head(api, &call, &refused);
	answer(api, &call);
	api_log_refusals();
	api_log_refusals();
	snprintf(text, sizeof text, "%s", stderr_captured());
	/* The times differ. */
	for (char *at = text; (at = strpbrk(at, " ,")) != NULL;) {
		at++;
		if (strncmp(at, "us=", 3) == 0 ||
		    strncmp(at, "\"us\":", 5) == 0) {
			at += *at == '"' ? 5 : 3;
			while (*at >= '0' && *at <= '9')
				memmove(at, at + 1, strlen(at));
		}
	}
	return text;
}

API_TEST(answers_are_logged_at_debug_and_refusals_summed_up)
{
	const char *text;

	/* Other tests have been refused, too. */
	log_level_max = LOG_AT_ERROR;
	api_log_refusals();
	log_level_max = LOG_AT_DEBUG;
	fixture->config.log_level = LOG_AT_INFO;
	text = logged_of_two_answers(&fixture->api);
	assert_string_equal(
	    text, "plant-store: refused requests by error number (1001=1)\n");
	fixture->config.log_level = LOG_AT_DEBUG;
	text = logged_of_two_answers(&fixture->api);
	assert_string_equal(text,
	    "plant-store: answered (request=the-id status=200 error=0 "
	    "token=first bytes=30 us=)\n"
	    "plant-store: answered (request=the-id status=401 error=1001 "
	    "token= bytes=90 us=)\n"
	    "plant-store: refused requests by error number (1001=1)\n");
	log_json = true;
	text = logged_of_two_answers(&fixture->api);
	log_json = false;
	assert_contains(text,
	    "Z\",\"level\":\"debug\",\"program\":\"plant-store\","
	    "\"request\":\"the-id\",\"status\":401,\"error\":1001,"
	    "\"token\":\"\",\"bytes\":90,\"us\":,"
	    "\"message\":\"answered\"}\n");
	assert_contains(text,
	    ",\"program\":\"plant-store\",\"errors\":{\"1001\":1},"
	    "\"message\":\"refused requests by error number\"}\n");
}

#define ORIGIN "HTTP_ORIGIN=https://a.example"
#define OPTIONS "REQUEST_METHOD=OPTIONS"
#define ASKS "HTTP_ACCESS_CONTROL_REQUEST_METHOD=POST"
#define ALLOWED "\r\nAccess-Control-Allow-Origin: https://a.example\r\n"

API_TEST(allowed_origin_gets_its_headers_and_preflights_no_other_gets_any)
{
#define ONE_ORIGIN "https://a.example"
	static const struct {
		const char *origins, *begins;
		bool allowed;
		const char *variables[VARIABLES_MAX + 1];
	} rows[] = {
		{ ONE_ORIGIN, "Status: 204 No Content\r\n", true,
		    { PATH, OPTIONS, ORIGIN, ASKS } },
		{ "http://b, " ONE_ORIGIN ",http://c", "Status: 204 ", true,
		    { PATH, OPTIONS, ORIGIN, ASKS } },
		/* What is no preflight goes on as ever. */
		{ ONE_ORIGIN, "Status: 401 ", true, { PATH, OPTIONS, ORIGIN } },
		{ ONE_ORIGIN, "Status: 401 ", true,
		    { PATH, POST, ORIGIN, ASKS } },
		{ ONE_ORIGIN, "Status: 401 ", true,
		    { "SCRIPT_NAME=/api", OPTIONS, ORIGIN, ASKS } },
		{ ONE_ORIGIN, "Status: 400 ", true,
		    { PATH, OPTIONS, OPTIONS, ORIGIN, ASKS } },
		{ ONE_ORIGIN, "Status: 200 ", true, { GOOD, ORIGIN } },
		/* No part of the list, and nothing beyond it, is an origin. */
		{ NULL, "Status: 401 ", false,
		    { PATH, OPTIONS, ORIGIN, ASKS } },
		{ "", "Status: 200 ", false, { GOOD, ORIGIN } },
		{ ONE_ORIGIN, "Status: 401 ", false, { PATH, OPTIONS, ASKS } },
		{ ONE_ORIGIN " http://b", "Status: 401 ", false,
		    { PATH, OPTIONS, ASKS, ORIGIN " http://b" } },
		{ ONE_ORIGIN ", ", "Status: 401 ", false,
		    { PATH, OPTIONS, ASKS, "HTTP_ORIGIN=" } },
		{ ONE_ORIGIN, "Status: 401 ", false,
		    { PATH, OPTIONS, ASKS, ORIGIN, ORIGIN } },
		{ ONE_ORIGIN ".org http://a.example https://a.exampl",
		    "Status: 401 ", false, { PATH, OPTIONS, ORIGIN, ASKS } },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct sent sent = { .body = FERN };

		memcpy(
		    sent.variables, rows[i].variables, sizeof sent.variables);
		fixture->config.origins = rows[i].origins;
		const char *text =
		    answer_to(&fixture->api, &sent, STORE_CREATED);
		if (strncmp(text, rows[i].begins, strlen(rows[i].begins)) !=
			0 ||
		    (strstr(text, ALLOWED) != NULL) != rows[i].allowed ||
		    (strstr(text, "\r\nVary: Origin\r\n") != NULL) !=
			(rows[i].origins != NULL && *rows[i].origins))
			fail_msg("row %zu: %s", i, text);
	}
}

API_TEST(preflight_is_204_by_contract_and_without_tokens)
{
	static const struct sent sent = { { PATH, OPTIONS, ORIGIN, ASKS }, "" };
	struct api api = { .config = &fixture->config };

	fixture->config.contract_status = true;
	fixture->config.origins = "https://a.example";
	assert_begins(answer_to(&api, &sent, STORE_FAILED), "Status: 204 ");
	/* Without tokens, all else is refused as a service that cannot start. */
	assert_int_equal(outcome(&api, &fern), HTTP_NOT_READY);
}

#define GET "REQUEST_METHOD=GET"
#define HEAD "REQUEST_METHOD=HEAD"
#define NO_STORE "Cache-Control: no-store\r\n"

API_TEST(health_and_metrics_need_no_credential_and_only_where_they_are_wanted)
{
	static const struct {
		const char *begins, *has;
		const char *variables[VARIABLES_MAX + 1];
	} rows[] = {
		{ "Status: 200 OK\r\n" ID NO_STORE
		  "Content-Type: application/json\r\n"
		  "Content-Length: 15\r\n\r\n{\"status\":\"ok\"}",
		    NULL, { GET, "SCRIPT_NAME=/health", GIVEN_ID } },
		{ "Status: 200 OK\r\n" ID NO_STORE
		  "Content-Type: application/json\r\n"
		  "Content-Length: 15\r\n\r\n",
		    NULL, { HEAD, "PATH_INFO=/health", GIVEN_ID } },
		{ "Status: 200 OK\r\n" ID NO_STORE "Content-Type: text/plain; "
		  "version=0.0.4; charset=utf-8\r\n",
		    "\r\n\r\n# HELP plant_store_answers_total ",
		    { GET, "SCRIPT_NAME=/metrics", GIVEN_ID } },
		{ "Status: 200 ", NULL, { HEAD, "SCRIPT_NAME=/metrics" } },
		/* All else is answered as anywhere. */
		{ "Status: 401 ", NULL, { POST, "SCRIPT_NAME=/health" } },
		{ "Status: 404 ", NULL,
		    { POST, "SCRIPT_NAME=/metrics", BEARER } },
		{ "Status: 401 ", NULL, { GET, "SCRIPT_NAME=/health/" } },
		{ "Status: 401 ", NULL, { GET, "SCRIPT_NAME=/api/health" } },
		{ "Status: 400 ", NULL, { GET, GET, "SCRIPT_NAME=/health" } },
		{ "Status: 401 ", NULL, { GET, "SCRIPT_NAME=" } },
	};
	char buf[API_HEAD_MAX + API_METRICS_MAX + 1];
	struct api_call call;

	for (size_t i = 0; i < 2 * COUNT(rows); i++) {
		struct sent sent = { .body = "" };
		bool wanted = i < COUNT(rows);

		memcpy(sent.variables, rows[i % COUNT(rows)].variables,
		    sizeof sent.variables);
		fixture->config.health_path = wanted ? "/health" : "";
		fixture->config.metrics_path = wanted ? "/metrics" : NULL;
		assert_int_equal(head(&fixture->api, &call, &sent), -1);
		buf[api_answer(&fixture->api, &call, buf)] = '\0';
		plant_done(&call.plant);
		const char *begins = rows[i % COUNT(rows)].begins;
		const char *has = rows[i % COUNT(rows)].has;
		if (!wanted && strncmp(begins, "Status: 200", 11) == 0)
			assert_begins(buf, "Status: 401");
		else if (strncmp(buf, begins, strlen(begins)) != 0 ||
			 (has != NULL && strstr(buf, has) == NULL))
			fail_msg("row %zu: %s", i, buf);
		if (strcmp(sent.variables[0], HEAD) == 0 && wanted)
			assert_string_equal(
			    strstr(buf, "\r\n\r\n"), "\r\n\r\n");
	}
}

API_TEST(health_is_503_without_a_valid_token_or_store_whatever_the_contract)
{
	static const struct sent sent = { { GET, "SCRIPT_NAME=/health" }, "" };
	static const struct {
		const char *tokens;
		bool good;
	} rows[] = { { "", false }, { "second " TWO " " EXPIRES "\n", false },
		{ "second " TWO " " EXPIRES "\nfirst " ONE "\n", true } };
	struct api api = fixture->api;
	struct api_call call;

	fixture->config.health_path = "/health";
	fixture->config.contract_status = true;
	assert_int_equal(
	    tokens_next_expiry(api.tokens, EXPIRES_MS - 1), EXPIRES_MS);
	for (size_t i = 0; i < COUNT(rows); i++) {
		write_tokens(fixture, rows[i].tokens);
		tokens_recheck(api.tokens);
		api.now_ms = EXPIRES_MS;
		head(&api, &call, &sent);
		assert_int_equal(call.failure.error,
		    rows[i].good ? HTTP_OK : HTTP_NOT_READY);
		assert_memory_equal(answer(&api, &call),
		    rows[i].good ? "Status: 200" : "Status: 503", 11);
	}
	/* From the first plant that was refused, before the next probe. */
	api_stored(&call, STORE_FULL);
	head(&api, &call, &sent);
	assert_int_equal(call.failure.error, HTTP_STORE_FULL);
	api_set_ready(STORE_CREATED);
	api.tokens = NULL;
	head(&api, &call, &sent);
	assert_begins(answer(&api, &call), "Status: 503");
}

API_TEST(check_is_told_the_health_without_a_path_and_no_header_is_a_check)
{
	static const struct sent check = { { REQUEST_CHECK "=" }, "" };
	static const struct sent header = { { GET, "HTTP_" REQUEST_CHECK "=1" },
		"" };
	struct api_call call;

	fixture->config.health_path = "";
	head(&fixture->api, &call, &check);
	assert_contains(answer(&fixture->api, &call), "{\"status\":\"ok\"}");
	api_set_ready(STORE_UNKNOWN);
	head(&fixture->api, &call, &check);
	assert_contains(answer(&fixture->api, &call), "{\"error\":5009,");
	api_set_ready(STORE_CREATED);
	head(&fixture->api, &call, &header);
	assert_begins(answer(&fixture->api, &call), "Status: 401");
}

API_TEST(answers_are_counted_by_status_and_error_but_not_an_operators)
{
	static const struct {
		const char *line;
		struct sent sent;
	} rows[] = {
		{ "status=\"200\",error=\"0\"",
		    { { GOOD, FERN_LENGTH }, FERN } },
		{ "status=\"401\",error=\"1001\"", { { POST, PATH }, "" } },
		{ "status=\"404\",error=\"2001\"",
		    { { POST, "SCRIPT_NAME=/x", BEARER }, "" } },
		{ NULL, { { GET, "SCRIPT_NAME=/health" }, "" } },
		{ "status=\"204\",error=\"0\"",
		    { { PATH, "REQUEST_METHOD=OPTIONS",
			  "HTTP_ORIGIN=https://a.example",
			  "HTTP_ACCESS_CONTROL_REQUEST_METHOD=POST" },
			"" } },
	};
	char before[API_METRICS_MAX], after[API_METRICS_MAX], line[128];

	fixture->config.health_path = "/health";
	fixture->config.origins = "https://a.example";
	for (size_t i = 0; i < COUNT(rows); i++) {
		unsigned long was, is;

		before[api_metrics(&fixture->api, before)] = '\0';
		answer_to(&fixture->api, &rows[i].sent, STORE_CREATED);
		after[api_metrics(&fixture->api, after)] = '\0';
		if (rows[i].line == NULL) {
			assert_string_equal(after, before);
			continue;
		}
		snprintf(line, sizeof line, "\nplant_store_answers_total{%s} ",
		    rows[i].line);
		was = strtoul(strstr(before, line) + strlen(line), NULL, 10);
		is = strtoul(strstr(after, line) + strlen(line), NULL, 10);
		assert_int_equal(is, was + 1);
	}
	/* By contract, all errors have the status 400; the numbers stay. */
	fixture->config.contract_status = true;
	after[api_metrics(&fixture->api, after)] = '\0';
	assert_contains(after, "{status=\"400\",error=\"1001\"}");
}

API_TEST(metrics_have_room_when_every_counter_is_at_its_end)
{
	char *buf = memory(API_METRICS_MAX);

	for (unsigned i = 0; i < METRICS_COUNT; i++)
		metrics[i] = UINT64_MAX;
	assert_in_range(api_metrics(&fixture->api, buf), API_METRICS_MAX / 8,
	    API_METRICS_MAX * 3 / 4);
	for (unsigned i = 0; i < METRICS_COUNT; i++)
		metrics[i] = 0;
}
