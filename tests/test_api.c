/*
 * api: the order of the steps, the errors they end with, and whole answers.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "ground/metrics.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

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
	char dir[64];
	char tokens[80];
	struct config config;
	struct api api;
};

static void
write_tokens(const struct fixture *fixture, const char *text)
{
	char temporary[96];
	FILE *file;

	snprintf(temporary, sizeof temporary, "%s.new", fixture->tokens);
	file = fopen(temporary, "w");
	assert_non_null(file);
	assert_int_equal(fchmod(fileno(file), 0600), 0);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(rename(temporary, fixture->tokens), 0);
}

static int
set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);
	const char *tmp = getenv("TMPDIR");
	enum fault fault;

	if (fixture == NULL)
		return -1;
	snprintf(fixture->dir, sizeof fixture->dir, "%s/api.XXXXXX",
	    tmp == NULL || strlen(tmp) > 40 ? "/tmp" : tmp);
	if (mkdtemp(fixture->dir) == NULL)
		return -1;
	log_set_level(LOG_AT_ERROR);
	snprintf(
	    fixture->tokens, sizeof fixture->tokens, "%s/tokens", fixture->dir);
	write_tokens(fixture, "first " ONE "\nsecond " TWO " " EXPIRES "\n");
	fixture->config = (struct config){ .base_path = "/api",
		.body_bytes_max = BODY_BYTES_MAX };
	fixture->api.config = &fixture->config;
	fixture->api.tokens = tokens_open(fixture->tokens, geteuid(), &fault);
	fixture->api.now_ms = EXPIRES_MS - 1;
	*state = fixture;
	return fixture->api.tokens == NULL ? -1 : 0;
}

static int
tear_down(void **state)
{
	struct fixture *fixture = *state;

	tokens_close(fixture->api.tokens);
	unlink(fixture->tokens);
	if (rmdir(fixture->dir) != 0)
		return -1;
	free(fixture);
	return 0;
}

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
	return api_head(api, call, variables);
}

/* Both steps as a gateway takes them.  How the call ends before the store. */
static enum http_error
outcome(struct api *api, const struct sent *sent)
{
	struct api_call call;
	enum http_error error;
	int result = head(api, &call, sent);

	if (result == 0)
		result =
		    api_body(api, &call, sent->body, strlen(sent->body), true);
	error = call.failure.error;
	assert_int_equal(result, error == HTTP_OK ? 0 : -1);
	if (error != HTTP_OK)
		assert_null(call.plant.text);
	api_done(&call);
	return error;
}

static const struct sent fern = { { GOOD, FERN_LENGTH }, FERN };

/* The first call's plant, on its way to the store. */
static void
begin_fern(struct api *api, struct api_call *call)
{
	assert_int_equal(head(api, call, &fern), 0);
	assert_int_equal(api_body(api, call, FERN, strlen(FERN), true), 0);
}

/* The whole answer to `call`, which ends it. */
static const char *
answer(const struct api *api, struct api_call *call)
{
	static char text[RESPONSE_HEAD_MAX + BODY_BYTES_MAX + 1];
	size_t len = api_answer(api, call, text);

	assert_in_range(len, 1, sizeof text - 1);
	text[len] = '\0';
	api_done(call);
	return text;
}

static void
good_request_becomes_its_plant(void **state)
{
	struct fixture *fixture = *state;
	struct api_call call;

	begin_fern(&fixture->api, &call);
	assert_int_equal(call.failure.error, HTTP_OK);
	assert_int_equal(call.plant.id, 1);
	assert_int_equal(call.plant.len, strlen(FERN));
	assert_memory_equal(call.plant.text, FERN, strlen(FERN));
	assert_string_equal(call.by, "first");
	api_done(&call);
}

static void
head_tells_how_much_body_to_read(void **state)
{
	static const struct sent chunked = {
		{ GOOD, "HTTP_TRANSFER_ENCODING=chunked" }, ""
	};
	static const struct sent neither = { { GOOD }, "" };
	struct fixture *fixture = *state;
	struct api_call call;

	assert_int_equal(head(&fixture->api, &call, &fern), 0);
	assert_true(call.length_known);
	assert_int_equal(call.body_len, strlen(FERN));
	assert_false(call.chunked);
	assert_int_equal(head(&fixture->api, &call, &chunked), 0);
	assert_false(call.length_known);
	assert_true(call.chunked);
	assert_int_equal(head(&fixture->api, &call, &neither), 0);
	assert_false(call.length_known);
	assert_false(call.chunked);
}

static void
assert_outcome(
    struct api *api, const struct sent *sent, enum http_error error, size_t row)
{
	enum http_error is = outcome(api, sent);

	if (is != error)
		fail_msg("row %zu: %d instead of %d", row,
		    is == HTTP_OK ? 200 : errors_number(is),
		    error == HTTP_OK ? 200 : errors_number(error));
}

/*
 * Each request has every fault of the steps that come after the one it ends
 * at, so that a step which is taken too early shows.
 */
static void
steps_of_the_head_are_taken_in_their_order(void **state)
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
		{ HTTP_METHOD_NOT_ALLOWED, { PATH, BEARER, JSON } },
		{ HTTP_CONTENT_TYPE, { POST, PATH, BEARER, BAD_CONTENT } },
		{ HTTP_CONTENT_ENCODING,
		    { GOOD, "HTTP_CONTENT_ENCODING=gzip", BAD_LENGTH } },
		{ HTTP_CONTENT_LENGTH, { GOOD, BAD_LENGTH } },
		{ HTTP_BODY_TOO_LARGE, { GOOD, "CONTENT_LENGTH=101" } },
		{ HTTP_BODY_TOO_LARGE,
		    { GOOD, "CONTENT_LENGTH=99999999999999999999999" } },
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct sent sent = { .body = "x" };

		memcpy(
		    sent.variables, rows[i].variables, sizeof sent.variables);
		assert_outcome(&fixture->api, &sent, rows[i].error, i);
	}
}

static void
steps_of_the_body_are_taken_in_their_order(void **state)
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
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct sent sent = { { GOOD, rows[i].length }, rows[i].body };

		assert_outcome(&fixture->api, &sent, rows[i].error, i);
	}
}

static void
body_of_the_limit_passes_and_one_byte_more_does_not(void **state)
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
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		char body[BODY_BYTES_MAX + 2];
		struct sent sent = { { GOOD, rows[i].length }, body };

		snprintf(
		    body, sizeof body, "%-*s", (int)rows[i].body_len, FERN);
		assert_outcome(&fixture->api, &sent, rows[i].error, i);
	}
}

static void
body_that_broke_off_is_refused_though_it_is_a_plant(void **state)
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
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct sent sent = { { GOOD, rows[i].length }, FERN };
		struct api_call call;

		assert_int_equal(head(&fixture->api, &call, &sent), 0);
		assert_int_equal(
		    api_body(&fixture->api, &call, FERN, rows[i].len, false),
		    -1);
		assert_int_equal(call.failure.error, rows[i].error);
	}
}

static void
token_is_good_until_the_moment_it_expires(void **state)
{
	static const struct sent sent = {
		{ POST, PATH, JSON, "HTTP_AUTHORIZATION=Bearer two" }, FERN
	};
	struct fixture *fixture = *state;

	fixture->api.now_ms = EXPIRES_MS - 1;
	assert_int_equal(outcome(&fixture->api, &sent), HTTP_OK);
	fixture->api.now_ms = EXPIRES_MS;
	assert_int_equal(
	    outcome(&fixture->api, &sent), HTTP_CREDENTIAL_EXPIRED);
	/* The other one does not. */
	assert_int_equal(outcome(&fixture->api, &fern), HTTP_OK);
}

static void
tick_takes_the_time(void **state)
{
	struct fixture *fixture = *state;
	/* The coarse clock is up to a tick late: a second covers any. */
	int64_t before = ((int64_t)time(NULL) - 1) * 1000;

	api_tick(&fixture->api);
	assert_true(fixture->api.now_ms >= before);
	assert_true(fixture->api.now_ms < ((int64_t)time(NULL) + 1) * 1000);
}

static void
tick_takes_a_changed_token_file(void **state)
{
	static const struct sent sent = {
		{ POST, PATH, JSON, "HTTP_AUTHORIZATION=Bearer three" }, FERN
	};
	struct fixture *fixture = *state;

	assert_int_equal(
	    outcome(&fixture->api, &sent), HTTP_CREDENTIAL_UNKNOWN);
	write_tokens(fixture, "third " THREE "\n");
	api_tick(&fixture->api);
	assert_int_equal(outcome(&fixture->api, &sent), HTTP_OK);
	assert_int_equal(
	    outcome(&fixture->api, &fern), HTTP_CREDENTIAL_UNKNOWN);
}

static void
each_result_of_the_store_has_its_answer(void **state)
{
	static const struct {
		enum store_result result;
		enum http_error error;
	} rows[] = {
		{ STORE_CREATED, HTTP_OK },
		{ STORE_SAME, HTTP_OK },
		{ STORE_CONFLICT, HTTP_CONFLICT },
		{ STORE_FULL, HTTP_STORE_FULL },
		{ STORE_BUSY, HTTP_STORE_BUSY },
		{ STORE_FAILED, HTTP_STORE_FAILED },
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct api_call call;

		begin_fern(&fixture->api, &call);
		api_stored(&call, rows[i].result);
		assert_int_equal(call.failure.error, rows[i].error);
		api_done(&call);
	}
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
	{ "a conflict, byte for byte", { { GOOD }, FERN }, STORE_CONFLICT,
	    false,
	    "Status: 409 Conflict\r\n" ID "Content-Type: application/json\r\n"
	    "Content-Length: 89\r\n"
	    "\r\n"
	    "{\"error\":5001,\"message\":\"Another plant with this id is "
	    "stored already: send another id.\"}",
	    NULL },
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
	{ "a challenge, 400 by contract", { { POST, PATH, JSON }, FERN },
	    STORE_CREATED, true, "Status: 400 Bad Request\r\n",
	    "\r\nWWW-Authenticate: Bearer " },
	{ "no credential, 400 by contract", { { POST, PATH, JSON }, FERN },
	    STORE_CREATED, true, "Status: 400 Bad Request\r\n",
	    "{\"error\":1001," },
	{ "the store's failure, 400 by contract", { { GOOD }, FERN },
	    STORE_FAILED, true, "Status: 400 Bad Request\r\n",
	    "{\"error\":5003," },
	{ "success, 200 by contract too", { { GOOD }, FERN }, STORE_CREATED,
	    true, "Status: 200 OK\r\n", "\r\n\r\n{\"name\":" },
};

static void
each_end_of_a_request_has_its_answer(void **state)
{
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(answers); i++) {
		const struct sent *sent = &answers[i].sent;
		size_t len = strlen(answers[i].begins);
		struct api_call call;
		const char *text;

		fixture->config.contract_status = answers[i].contract;
		if (head(&fixture->api, &call, sent) == 0 &&
		    api_body(&fixture->api, &call, sent->body,
			strlen(sent->body), true) == 0)
			api_stored(&call, answers[i].result);
		text = answer(&fixture->api, &call);
		if (strncmp(text, answers[i].begins, len) != 0 ||
		    (answers[i].has != NULL
			    ? strstr(text, answers[i].has) == NULL
			    : text[len] != '\0'))
			fail_msg("%s: %s", answers[i].what, text);
	}
}

static void
gateway_ends_a_call_with_an_error_of_its_own(void **state)
{
	struct fixture *fixture = *state;
	struct api_call call;
	const char *text;

	begin_fern(&fixture->api, &call);
	api_fail(&call, HTTP_STORE_BUSY);
	text = answer(&fixture->api, &call);
	assert_memory_equal(text, "Status: 503 Service Unavailable\r\n", 33);
	assert_non_null(strstr(text, "{\"error\":5004,"));
}

/* What the log gets of two answers, and of what both were, in text or JSON. */
static const char *
logged_of_two_answers(struct api *api)
{
	static const struct sent refused = { { POST, PATH, JSON, GIVEN_ID },
		"" };
	static char text[2048];
	int before = dup(STDERR_FILENO), fd = memfd_create("stderr", 0);
	struct api_call call;
	ssize_t len;

	dup2(fd, STDERR_FILENO);
	begin_fern(api, &call);
	answer(api, &call);
	head(api, &call, &refused);
	answer(api, &call);
	api_log_refusals();
	api_log_refusals();
	dup2(before, STDERR_FILENO);
	len = pread(fd, text, sizeof text - 1, 0);
	close(before);
	close(fd);
	assert_in_range(len, 0, sizeof text - 1);
	text[len] = '\0';
	/* The times differ. */
	for (char *at = text; (at = strpbrk(at, " ,")) != NULL;) {
		at++;
		if (strncmp(at, "us=", 3) == 0 ||
		    strncmp(at, "\"us\":", 5) == 0)
			for (at += *at == '"' ? 5 : 3;
			     *at >= '0' && *at <= '9';)
				memmove(at, at + 1, strlen(at));
	}
	return text;
}

static void
answers_are_logged_at_debug_and_refusals_summed_up(void **state)
{
	struct fixture *fixture = *state;
	const char *text;

	/* Other tests have been refused, too. */
	log_set_level(LOG_AT_ERROR);
	api_log_refusals();
	log_set_level(LOG_AT_DEBUG);
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
	log_set_json(true);
	text = logged_of_two_answers(&fixture->api);
	log_set_json(false);
	assert_non_null(
	    strstr(text, "Z\",\"level\":\"debug\",\"program\":\"plant-store\","
			 "\"request\":\"the-id\",\"status\":401,\"error\":1001,"
			 "\"token\":\"\",\"bytes\":90,\"us\":,"
			 "\"message\":\"answered\"}\n"));
	assert_non_null(strstr(text,
	    ",\"program\":\"plant-store\",\"1001\":1,"
	    "\"message\":\"refused requests by error number\"}\n"));
}

#define ORIGIN "HTTP_ORIGIN=https://a.example"
#define OPTIONS "REQUEST_METHOD=OPTIONS"
#define ASKS "HTTP_ACCESS_CONTROL_REQUEST_METHOD=POST"
#define ALLOWED "\r\nAccess-Control-Allow-Origin: https://a.example\r\n"

static void
allowed_origin_gets_its_headers_and_preflights_no_other_gets_any(void **state)
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
		{ ONE_ORIGIN, "Status: 401 ", false,
		    { PATH, OPTIONS, ASKS, "HTTP_ORIGIN=" } },
		{ ONE_ORIGIN, "Status: 401 ", false,
		    { PATH, OPTIONS, ASKS, ORIGIN, ORIGIN } },
		{ ONE_ORIGIN ".org http://a.example https://a.exampl",
		    "Status: 401 ", false, { PATH, OPTIONS, ORIGIN, ASKS } },
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct sent sent = { .body = FERN };
		struct api_call call;
		const char *text;

		memcpy(
		    sent.variables, rows[i].variables, sizeof sent.variables);
		fixture->config.origins = rows[i].origins;
		if (head(&fixture->api, &call, &sent) == 0)
			assert_int_equal(api_body(&fixture->api, &call, FERN,
					     strlen(FERN), true),
			    0);
		text = answer(&fixture->api, &call);
		if (strncmp(text, rows[i].begins, strlen(rows[i].begins)) !=
			0 ||
		    (strstr(text, ALLOWED) != NULL) != rows[i].allowed ||
		    (strstr(text, "Vary") != NULL) != rows[i].allowed)
			fail_msg("row %zu: %s", i, text);
	}
}

static void
preflight_is_204_by_contract_and_without_tokens(void **state)
{
	static const struct sent sent = { { PATH, OPTIONS, ORIGIN, ASKS }, "" };
	struct fixture *fixture = *state;
	struct api api = { .config = &fixture->config };
	struct api_call call;

	fixture->config.contract_status = true;
	fixture->config.origins = "https://a.example";
	assert_int_equal(head(&api, &call, &sent), -1);
	assert_memory_equal(answer(&api, &call), "Status: 204 ", 12);
	/* Without tokens, all else is refused as a service that cannot start. */
	assert_int_equal(outcome(&api, &fern), HTTP_NOT_READY);
}

#define GET "REQUEST_METHOD=GET"
#define HEAD "REQUEST_METHOD=HEAD"

static void
health_and_metrics_need_no_credential_and_only_where_they_are_wanted(
    void **state)
{
	static const struct {
		const char *begins, *has;
		const char *variables[VARIABLES_MAX + 1];
	} rows[] = {
		{ "Status: 200 OK\r\n" ID "Content-Type: application/json\r\n"
		  "Content-Length: 15\r\n\r\n{\"status\":\"ok\"}",
		    NULL, { GET, "SCRIPT_NAME=/health", GIVEN_ID } },
		{ "Status: 200 OK\r\n" ID "Content-Type: application/json\r\n"
		  "Content-Length: 15\r\n\r\n",
		    NULL, { HEAD, "PATH_INFO=/health", GIVEN_ID } },
		{ "Status: 200 OK\r\n" ID "Content-Type: text/plain; "
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
	struct fixture *fixture = *state;
	char buf[RESPONSE_HEAD_MAX + API_METRICS_MAX + 1];
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
		api_done(&call);
		const char *begins = rows[i % COUNT(rows)].begins;
		const char *has = rows[i % COUNT(rows)].has;
		if (!wanted && strncmp(begins, "Status: 200", 11) == 0)
			assert_memory_equal(buf, "Status: 401", 11);
		else if (strncmp(buf, begins, strlen(begins)) != 0 ||
			 (has != NULL && strstr(buf, has) == NULL))
			fail_msg("row %zu: %s", i, buf);
		if (strcmp(sent.variables[0], HEAD) == 0 && wanted)
			assert_string_equal(
			    strstr(buf, "\r\n\r\n"), "\r\n\r\n");
	}
}

static void
health_is_503_without_a_valid_token_or_store_whatever_the_contract(void **state)
{
	static const struct sent sent = { { GET, "SCRIPT_NAME=/health" }, "" };
	static const struct {
		const char *tokens;
		bool good;
	} rows[] = { { "", false }, { "second " TWO " " EXPIRES "\n", false },
		{ "second " TWO " " EXPIRES "\nfirst " ONE "\n", true } };
	struct fixture *fixture = *state;
	struct api api = fixture->api;
	struct api_call call;
	int64_t expires_ms;

	fixture->config.health_path = "/health";
	fixture->config.contract_status = true;
	assert_true(tokens_valid(api.tokens, EXPIRES_MS - 1, &expires_ms));
	assert_int_equal(expires_ms, EXPIRES_MS);
	for (size_t i = 0; i < COUNT(rows); i++) {
		write_tokens(fixture, rows[i].tokens);
		tokens_recheck(api.tokens);
		tokens_refresh(api.tokens, 0);
		api.now_ms = EXPIRES_MS;
		head(&api, &call, &sent);
		assert_int_equal(call.failure.error,
		    rows[i].good ? HTTP_OK : HTTP_NOT_READY);
		assert_memory_equal(answer(&api, &call),
		    rows[i].good ? "Status: 200" : "Status: 503", 11);
	}
	api_set_ready(STORE_FULL);
	head(&api, &call, &sent);
	assert_int_equal(call.failure.error, HTTP_STORE_FULL);
	api_set_ready(STORE_CREATED);
	api.tokens = NULL;
	head(&api, &call, &sent);
	assert_memory_equal(answer(&api, &call), "Status: 503", 11);
}

static void
answers_are_counted_by_status_and_error_but_not_an_operators(void **state)
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
	struct fixture *fixture = *state;
	char before[API_METRICS_MAX], after[API_METRICS_MAX], line[128];
	struct api_call call;

	fixture->config.health_path = "/health";
	fixture->config.origins = "https://a.example";
	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct sent *sent = &rows[i].sent;
		unsigned long was, is;

		before[api_metrics(NULL, false, before)] = '\0';
		if (head(&fixture->api, &call, sent) == 0)
			assert_int_equal(
			    api_body(&fixture->api, &call, sent->body,
				strlen(sent->body), true),
			    0);
		answer(&fixture->api, &call);
		after[api_metrics(NULL, false, after)] = '\0';
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
	after[api_metrics(NULL, true, after)] = '\0';
	assert_non_null(strstr(after, "{status=\"400\",error=\"1001\"}"));
}

static void
metrics_have_room_when_every_counter_is_at_its_end(void **state)
{
	struct fixture *fixture = *state;
	char *buf = malloc(API_METRICS_MAX);

	for (unsigned i = 0; i < METRICS_COUNT; i++)
		metrics[i] = UINT64_MAX;
	assert_in_range(api_metrics(fixture->api.tokens, true, buf),
	    API_METRICS_MAX / 8, API_METRICS_MAX * 3 / 4);
	for (unsigned i = 0; i < METRICS_COUNT; i++)
		metrics[i] = 0;
	free(buf);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(good_request_becomes_its_plant),
		TEST(head_tells_how_much_body_to_read),
		TEST(steps_of_the_head_are_taken_in_their_order),
		TEST(steps_of_the_body_are_taken_in_their_order),
		TEST(body_of_the_limit_passes_and_one_byte_more_does_not),
		TEST(body_that_broke_off_is_refused_though_it_is_a_plant),
		TEST(token_is_good_until_the_moment_it_expires),
		TEST(tick_takes_the_time),
		TEST(tick_takes_a_changed_token_file),
		TEST(each_result_of_the_store_has_its_answer),
		TEST(each_end_of_a_request_has_its_answer),
		TEST(gateway_ends_a_call_with_an_error_of_its_own),
		TEST(
		    allowed_origin_gets_its_headers_and_preflights_no_other_gets_any),
		TEST(preflight_is_204_by_contract_and_without_tokens),
		TEST(
		    health_and_metrics_need_no_credential_and_only_where_they_are_wanted),
		TEST(
		    health_is_503_without_a_valid_token_or_store_whatever_the_contract),
		TEST(
		    answers_are_counted_by_status_and_error_but_not_an_operators),
		TEST(metrics_have_room_when_every_counter_is_at_its_end),
		TEST(answers_are_logged_at_debug_and_refusals_summed_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
