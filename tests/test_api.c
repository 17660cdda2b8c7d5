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
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"

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
	char error[512];
	int status;

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
	fixture->api.tokens =
	    tokens_open(fixture->tokens, &status, error, sizeof error);
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

static const struct sent fern = { { POST, PATH, BEARER, JSON, FERN_LENGTH },
	FERN };

/* The first call's plant, on its way to the store. */
static void
begin_fern(struct api *api, struct api_call *call)
{
	assert_int_equal(head(api, call, &fern), 0);
	assert_int_equal(api_body(api, call, FERN, strlen(FERN), true), 0);
}

/* The whole answer to `call` as a string, which ends it. */
static void
answer(const struct api *api, struct api_call *call, char text[static 2048])
{
	size_t len = 0;
	char *buf = api_answer(api, call, &len);

	assert_non_null(buf);
	assert_in_range(len, 1, 2047);
	memcpy(text, buf, len);
	text[len] = '\0';
	free(buf);
	api_done(call);
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
		{ POST, PATH, BEARER, JSON, "HTTP_TRANSFER_ENCODING=chunked" }, ""
	};
	static const struct sent neither = { { POST, PATH, BEARER, JSON }, "" };
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

/*
 * Each request has every fault of the steps that come after the one it ends
 * at, so that a step which is taken too early shows.
 */
static void
steps_are_taken_in_their_order(void **state)
{
	static const struct {
		struct sent sent;
		enum http_error error;
	} rows[] = {
		/* Nothing can be said of a request that has two of a thing. */
		{ { { "REQUEST_METHOD=GET", "SCRIPT_NAME=/", BEARER, BEARER },
		      "" },
		    HTTP_REQUEST_AMBIGUOUS },
		{ { { "REQUEST_METHOD=GET", "SCRIPT_NAME=/", "CONTENT_TYPE=a/b",
			"HTTP_CONTENT_ENCODING=gzip", "CONTENT_LENGTH=x" },
		      "x" },
		    HTTP_CREDENTIAL_MISSING },
		{ { { "REQUEST_METHOD=GET", "SCRIPT_NAME=/",
			"HTTP_AUTHORIZATION=Basic b25lOm9uZQ==",
			"CONTENT_LENGTH=x" },
		      "x" },
		    HTTP_CREDENTIAL_SCHEME },
		{ { { "REQUEST_METHOD=GET", "SCRIPT_NAME=/",
			"HTTP_AUTHORIZATION=Bearer", "CONTENT_LENGTH=x" },
		      "x" },
		    HTTP_CREDENTIAL_MALFORMED },
		{ { { "REQUEST_METHOD=GET", "SCRIPT_NAME=/",
			"HTTP_AUTHORIZATION=Bearer one, Bearer one",
			"CONTENT_LENGTH=x" },
		      "x" },
		    HTTP_CREDENTIAL_SEVERAL },
		{ { { "REQUEST_METHOD=GET", "SCRIPT_NAME=/",
			"HTTP_AUTHORIZATION=Bearer three", "CONTENT_LENGTH=x" },
		      "x" },
		    HTTP_CREDENTIAL_UNKNOWN },
		{ { { "REQUEST_METHOD=GET", "SCRIPT_NAME=/", BEARER,
			"CONTENT_TYPE=a/b", "HTTP_CONTENT_ENCODING=gzip",
			"CONTENT_LENGTH=x" },
		      "x" },
		    HTTP_PATH_UNKNOWN },
		{ { { BEARER, POST }, "" }, HTTP_PATH_UNKNOWN },
		{ { { "REQUEST_METHOD=GET", PATH, BEARER, "CONTENT_TYPE=a/b",
			"HTTP_CONTENT_ENCODING=gzip", "CONTENT_LENGTH=x" },
		      "x" },
		    HTTP_METHOD_NOT_ALLOWED },
		{ { { "REQUEST_METHOD=post", PATH, BEARER, JSON }, FERN },
		    HTTP_METHOD_NOT_ALLOWED },
		{ { { PATH, BEARER, JSON }, FERN }, HTTP_METHOD_NOT_ALLOWED },
		{ { { POST, PATH, BEARER, "CONTENT_TYPE=a/b",
			"HTTP_CONTENT_ENCODING=gzip", "CONTENT_LENGTH=x" },
		      "x" },
		    HTTP_CONTENT_TYPE },
		{ { { POST, PATH, BEARER, JSON, "HTTP_CONTENT_ENCODING=gzip",
			"CONTENT_LENGTH=x" },
		      "x" },
		    HTTP_CONTENT_ENCODING },
		{ { { POST, PATH, BEARER, JSON, "CONTENT_LENGTH=x" }, "x" },
		    HTTP_CONTENT_LENGTH },
		{ { { POST, PATH, BEARER, JSON, "CONTENT_LENGTH=101" }, "x" },
		    HTTP_BODY_TOO_LARGE },
		{ { { POST, PATH, BEARER, JSON,
			"CONTENT_LENGTH=99999999999999999999999" },
		      "x" },
		    HTTP_BODY_TOO_LARGE },
		{ { { POST, PATH, BEARER, JSON, "CONTENT_LENGTH=1" }, "xx" },
		    HTTP_BODY_LONG },
		{ { { POST, PATH, BEARER, JSON, "CONTENT_LENGTH=2" }, "x" },
		    HTTP_BODY_SHORT },
		{ { { POST, PATH, BEARER, JSON, "CONTENT_LENGTH=2" }, "" },
		    HTTP_BODY_SHORT },
		{ { { POST, PATH, BEARER, JSON, "CONTENT_LENGTH=0" }, "" },
		    HTTP_BODY_MISSING },
		{ { { POST, PATH, BEARER, JSON }, "" }, HTTP_BODY_MISSING },
		{ { { POST, PATH, BEARER, JSON }, "x" }, HTTP_JSON_SYNTAX },
		{ { { POST, PATH, BEARER, JSON }, "{\"id\":" },
		    HTTP_JSON_SYNTAX },
		{ { { POST, PATH, BEARER, JSON }, "{\"\xff\":1}" },
		    HTTP_JSON_UTF8 },
		{ { { POST, PATH, BEARER, JSON }, "[]" },
		    HTTP_JSON_NOT_OBJECT },
		{ { { POST, PATH, BEARER, JSON }, "{}" }, HTTP_ID_MISSING },
		{ { { POST, PATH, BEARER, JSON }, "{\"id\":1,\"id\":1}" },
		    HTTP_ID_TWICE },
		{ { { POST, PATH, BEARER, JSON }, "{\"id\":1.5}" },
		    HTTP_ID_NOT_INTEGER },
		{ { { POST, PATH, BEARER, JSON },
		      "{\"id\":9223372036854775808}" },
		    HTTP_ID_RANGE },
		{ { { POST, PATH, BEARER, JSON }, "{\"id\":1,\"tag\":1}" },
		    HTTP_NAME_MISSING },
		{ { { POST, PATH, BEARER, JSON },
		      "{\"id\":1,\"name\":1,\"name\":1}" },
		    HTTP_NAME_TWICE },
		{ { { POST, PATH, BEARER, JSON },
		      "{\"id\":1,\"name\":1,\"tag\":1}" },
		    HTTP_NAME_NOT_STRING },
		{ { { POST, PATH, BEARER, JSON },
		      "{\"id\":1,\"name\":\"\",\"tag\":1,\"tag\":1}" },
		    HTTP_TAG_TWICE },
		{ { { POST, PATH, BEARER, JSON },
		      "{\"id\":1,\"name\":\"\",\"tag\":1}" },
		    HTTP_TAG_NOT_STRING },
		{ { { POST, PATH, BEARER, JSON }, "{\"id\":1,\"name\":\"\"}" },
		    HTTP_OK },
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		enum http_error error = outcome(&fixture->api, &rows[i].sent);

		if (error != rows[i].error)
			fail_msg("row %zu: %d instead of %d", i,
			    error == HTTP_OK ? 200 : errors_number(error),
			    rows[i].error == HTTP_OK
				? 200
				: errors_number(rows[i].error));
	}
}

static void
json_nested_too_deeply_is_told_so(void **state)
{
	char body[2 * BODY_BYTES_MAX] = "{\"a\":";
	struct sent sent = { { POST, PATH, BEARER, JSON }, body };
	struct fixture *fixture = *state;

	memset(body + strlen(body), '[', JSON_DEPTH_MAX);
	assert_int_equal(outcome(&fixture->api, &sent), HTTP_JSON_DEPTH);
}

/* A body of blanks behind the plant that is `len` bytes long. */
static void
pad(char *body, size_t len)
{
	memset(body, ' ', len);
	memcpy(body, FERN, strlen(FERN));
	body[len] = '\0';
}

static void
body_of_the_limit_passes_and_one_byte_more_is_too_large(void **state)
{
	char body[BODY_BYTES_MAX + 2];
	struct sent sent = { { POST, PATH, BEARER, JSON }, body };
	struct fixture *fixture = *state;

	pad(body, BODY_BYTES_MAX);
	assert_int_equal(outcome(&fixture->api, &sent), HTTP_OK);
	pad(body, BODY_BYTES_MAX + 1);
	assert_int_equal(outcome(&fixture->api, &sent), HTTP_BODY_TOO_LARGE);
}

static void
declared_length_of_the_limit_passes(void **state)
{
	char body[BODY_BYTES_MAX + 2];
	struct sent sent = { { POST, PATH, BEARER, JSON, "CONTENT_LENGTH=100" },
		body };
	struct fixture *fixture = *state;

	pad(body, BODY_BYTES_MAX);
	assert_int_equal(outcome(&fixture->api, &sent), HTTP_OK);
	pad(body, BODY_BYTES_MAX + 1);
	assert_int_equal(outcome(&fixture->api, &sent), HTTP_BODY_LONG);
}

static void
body_that_broke_off_is_refused_though_it_is_a_plant(void **state)
{
	static const struct sent unknown = { { POST, PATH, BEARER, JSON }, "" };
	struct fixture *fixture = *state;
	struct api_call call;

	assert_int_equal(head(&fixture->api, &call, &unknown), 0);
	assert_int_equal(
	    api_body(&fixture->api, &call, FERN, strlen(FERN), false), -1);
	assert_int_equal(call.failure.error, HTTP_BODY_BROKEN);
	assert_int_equal(head(&fixture->api, &call, &fern), 0);
	assert_int_equal(
	    api_body(&fixture->api, &call, FERN, strlen(FERN), false), -1);
	assert_int_equal(call.failure.error, HTTP_BODY_BROKEN);
	assert_int_equal(head(&fixture->api, &call, &fern), 0);
	assert_int_equal(api_body(&fixture->api, &call, FERN, 10, false), -1);
	assert_int_equal(call.failure.error, HTTP_BODY_SHORT);
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

static void
created_plant_is_answered_without_its_id(void **state)
{
	struct fixture *fixture = *state;
	struct api_call call;
	char text[2048];

	begin_fern(&fixture->api, &call);
	api_stored(&call, STORE_CREATED);
	answer(&fixture->api, &call, text);
	assert_string_equal(text, "Status: 200 OK\r\n"
				  "Content-Type: application/json\r\n"
				  "Content-Length: 30\r\n"
				  "\r\n"
				  "{\"name\":\"Fern\",\"tag\":\"indoor\"}");
}

static void
plant_without_a_tag_is_answered_without_one(void **state)
{
	static const struct sent sent = { { POST, PATH, BEARER, JSON },
		"{\"other\":[1],\"name\":\"a\\/\\u00e9\",\"id\":-0}" };
	struct fixture *fixture = *state;
	struct api_call call;
	char text[2048];

	assert_int_equal(head(&fixture->api, &call, &sent), 0);
	assert_int_equal(
	    api_body(&fixture->api, &call, sent.body, strlen(sent.body), true),
	    0);
	api_stored(&call, STORE_SAME);
	answer(&fixture->api, &call, text);
	assert_string_equal(
	    strstr(text, "\r\n\r\n") + 4, "{\"name\":\"a/\xc3\xa9\"}");
}

static void
conflict_is_answered_byte_for_byte(void **state)
{
	struct fixture *fixture = *state;
	struct api_call call;
	char text[2048];

	begin_fern(&fixture->api, &call);
	api_stored(&call, STORE_CONFLICT);
	answer(&fixture->api, &call, text);
	assert_string_equal(text, "Status: 409 Conflict\r\n"
				  "Content-Type: application/json\r\n"
				  "Content-Length: 89\r\n"
				  "\r\n"
				  "{\"error\":5001,\"message\":\"Another plant "
				  "with this id is stored "
				  "already: send another id.\"}");
}

static void
fault_in_the_json_is_answered_with_its_place(void **state)
{
	static const struct sent sent = { { POST, PATH, BEARER, JSON },
		"{\"id\" 1}" };
	struct fixture *fixture = *state;
	struct api_call call;
	char text[2048];

	assert_int_equal(head(&fixture->api, &call, &sent), 0);
	assert_int_equal(
	    api_body(&fixture->api, &call, sent.body, strlen(sent.body), true),
	    -1);
	answer(&fixture->api, &call, text);
	assert_non_null(strstr(text,
	    "{\"error\":4001,\"message\":\"The body is not valid JSON: "
	    "byte 6: "));
}

static void
contract_status_is_400_for_every_failure_and_200_stays(void **state)
{
	static const struct sent no_credential = { { POST, PATH, JSON }, FERN };
	struct fixture *fixture = *state;
	struct api_call call;
	char text[2048];

	fixture->config.contract_status = true;
	assert_int_equal(head(&fixture->api, &call, &no_credential), -1);
	answer(&fixture->api, &call, text);
	assert_memory_equal(text, "Status: 400 Bad Request\r\n", 25);
	assert_non_null(strstr(text, "\r\nWWW-Authenticate: Bearer "));
	assert_non_null(strstr(text, "{\"error\":1001,"));

	begin_fern(&fixture->api, &call);
	api_stored(&call, STORE_FAILED);
	answer(&fixture->api, &call, text);
	assert_memory_equal(text, "Status: 400 Bad Request\r\n", 25);
	assert_non_null(strstr(text, "{\"error\":5003,"));

	begin_fern(&fixture->api, &call);
	api_stored(&call, STORE_CREATED);
	answer(&fixture->api, &call, text);
	assert_memory_equal(text, "Status: 200 OK\r\n", 16);
}

static void
head_is_refused_without_a_body_but_with_its_length(void **state)
{
	static const struct sent sent = {
		{ "REQUEST_METHOD=HEAD", PATH, BEARER }, ""
	};
	struct fixture *fixture = *state;
	struct api_call call;
	char text[2048];

	assert_int_equal(head(&fixture->api, &call, &sent), -1);
	answer(&fixture->api, &call, text);
	assert_string_equal(text, "Status: 405 Method Not Allowed\r\n"
				  "Content-Type: application/json\r\n"
				  "Content-Length: 84\r\n"
				  "Allow: POST\r\n"
				  "\r\n");
}

static void
gateway_ends_a_call_with_an_error_of_its_own(void **state)
{
	struct fixture *fixture = *state;
	struct api_call call;
	char text[2048];

	begin_fern(&fixture->api, &call);
	api_fail(&call, HTTP_SHUTTING_DOWN);
	answer(&fixture->api, &call, text);
	assert_memory_equal(text, "Status: 503 Service Unavailable\r\n", 33);
	assert_non_null(strstr(text, "{\"error\":5005,"));
}

static void
call_that_was_refused_is_begun_anew(void **state)
{
	static const struct sent refused = { { POST, PATH, JSON }, "" };
	struct fixture *fixture = *state;
	struct api_call call;

	assert_int_equal(head(&fixture->api, &call, &refused), -1);
	begin_fern(&fixture->api, &call);
	assert_int_equal(call.failure.error, HTTP_OK);
	api_done(&call);
}

static void
done_twice_does_no_harm(void **state)
{
	struct fixture *fixture = *state;
	struct api_call call;

	begin_fern(&fixture->api, &call);
	api_done(&call);
	assert_null(call.plant.text);
	api_done(&call);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
		    good_request_becomes_its_plant, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    head_tells_how_much_body_to_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    steps_are_taken_in_their_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    json_nested_too_deeply_is_told_so, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    body_of_the_limit_passes_and_one_byte_more_is_too_large,
		    set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    declared_length_of_the_limit_passes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    body_that_broke_off_is_refused_though_it_is_a_plant, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    token_is_good_until_the_moment_it_expires, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    tick_takes_the_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    tick_takes_a_changed_token_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    each_result_of_the_store_has_its_answer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    created_plant_is_answered_without_its_id, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    plant_without_a_tag_is_answered_without_one, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    conflict_is_answered_byte_for_byte, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    fault_in_the_json_is_answered_with_its_place, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    contract_status_is_400_for_every_failure_and_200_stays,
		    set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    head_is_refused_without_a_body_but_with_its_length, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    gateway_ends_a_call_with_an_error_of_its_own, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    call_that_was_refused_is_begun_anew, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    done_twice_does_no_harm, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
