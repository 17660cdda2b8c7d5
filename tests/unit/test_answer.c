/*
 * answer: whole answers of the api, byte for byte.
 */
#include "unit.h"

#include <json-c/json.h>
#include <stdio.h>

#include "api/api.h"

#define CHALLENGE "WWW-Authenticate: Bearer realm=\"plant-store\""

#define ID "X-Request-Id: the-id\r\n"
#define CORS                                                 \
	"Vary: Origin\r\n"                                   \
	"Access-Control-Allow-Origin: https://a.example\r\n" \
	"Access-Control-Expose-Headers: retry-after, x-request-id\r\n"

#define BODY_BYTES_MAX 100000
static const struct config plain = { .body_bytes_max = BODY_BYTES_MAX };
static const struct config contract = { .body_bytes_max = BODY_BYTES_MAX,
	.contract_status = true };
static const struct config allowing = { .body_bytes_max = BODY_BYTES_MAX,
	.origins = "https://a.example http://b" };

/* The answer to `call`, as a string. */
static char *
print(const struct config *config, const struct api_call *call)
{
	const struct api api = { .config = config };
	char *buf = memory(API_ANSWER_MAX + 1);
	size_t len = api_answer(&api, call, buf);

	assert_in_range(len, 1, API_ANSWER_MAX);
	buf[len] = '\0';
	return buf;
}

/* The answer to `error`, as a string. */
static char *
answer(const struct api_error *error, const struct config *config, bool head)
{
	const struct api_call call = {
		.id = "the-id", .failure = *error, .bodiless = head
	};

	return print(config, &call);
}

TEST(head_of_a_200_has_type_and_length)
{
	static char text[65536 + 7] = "{\"id\":1,";
	const struct api_call call = { .id = "the-id",
		.plant = { 1, text, sizeof text } };

	/* The body is "{" and zeros. */
	assert_string_equal(print(&plain, &call),
	    "Status: 200 OK\r\n" ID "Content-Type: application/json\r\n"
	    "Content-Length: 65536\r\n"
	    "\r\n{");
}

TEST(every_error_has_its_status_line_and_headers)
{
	static const char unauthorized[] = "401 Unauthorized";
	static const char asks[] = CHALLENGE "\r\n";
	static const char refuses[] = CHALLENGE ", error=\"invalid_token\"\r\n";
	static const struct {
		enum http_error error;
		const char *status;
		const char *header; /* besides type and length */
	} rows[] = {
		{ HTTP_CREDENTIAL_MISSING, unauthorized, asks },
		{ HTTP_CREDENTIAL_SCHEME, unauthorized, asks },
		{ HTTP_CREDENTIAL_MALFORMED, unauthorized, refuses },
		{ HTTP_CREDENTIAL_SEVERAL, unauthorized, refuses },
		{ HTTP_CREDENTIAL_UNKNOWN, unauthorized, refuses },
		{ HTTP_CREDENTIAL_EXPIRED, unauthorized, refuses },
		{ HTTP_PATH_UNKNOWN, "404 Not Found", "" },
		{ HTTP_METHOD_NOT_ALLOWED, "405 Method Not Allowed",
		    "Allow: POST\r\n" },
		{ HTTP_CONTENT_TYPE, "400 Bad Request", "" },
		{ HTTP_BODY_TOO_LARGE, "413 Content Too Large", "" },
		{ HTTP_ID_MISSING, "400 Bad Request", "" },
		{ HTTP_CONFLICT, "409 Conflict", "" },
		{ HTTP_STORE_FULL, "503 Service Unavailable",
		    "Retry-After: 1\r\n" },
		{ HTTP_STORE_FAILED, "503 Service Unavailable",
		    "Retry-After: 1\r\n" },
		{ HTTP_OUT_OF_MEMORY, "500 Internal Server Error", "" },
		{ HTTP_INTERNAL, "500 Internal Server Error", "" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		/* In contract mode the status line alone is another. */
		for (int by = 0; by < 2; by++) {
			const struct config *config =
			    by == 0 ? &plain : &contract;
			struct api_error error = { rows[i].error, NULL, 0 };
			char expected[API_HEAD_MAX];
			char *text = answer(&error, config, false);
			char *body = strstr(text, "\r\n\r\n");

			assert_non_null(body);
			body += 4;
			assert_true(*body != '\0');
			snprintf(expected, sizeof expected,
			    "Status: %s\r\n" ID
			    "Content-Type: application/json\r\n"
			    "Content-Length: %zu\r\n"
			    "%s"
			    "\r\n",
			    by == 1 ? "400 Bad Request" : rows[i].status,
			    strlen(body), rows[i].header);
			*body = '\0';
			/* cut to the head by the NUL */
			assert_string_equal(text, expected);
			/* A HEAD request gets the same without the body. */
			assert_string_equal(
			    answer(&error, config, true), expected);
		}
	}
}

TEST(every_body_is_json_with_the_tables_number_and_message)
{
	for (int e = HTTP_OK + 1; e < HTTP_ERROR_COUNT; e++) {
		struct api_error error = { (enum http_error)e, NULL, 0 };
		const char *text = answer(&error, &plain, false);
		struct json_object *object =
		    json_tokener_parse(strstr(text, "\r\n\r\n") + 4);

		assert_non_null(object);
		assert_int_equal(json_object_object_length(object), 2);
		assert_int_equal(json_object_get_int(
				     json_object_object_get(object, "error")),
		    http_errors[error.error].number);
		assert_string_equal(
		    json_object_get_string(
			json_object_object_get(object, "message")),
		    http_errors[error.error].message);
		json_object_put(object);
	}
}

TEST(reason_and_offset_follow_the_message)
{
	const struct api_error error = { HTTP_JSON_SYNTAX, "a comma is missing",
		17 };

	assert_string_equal(
	    strstr(answer(&error, &plain, false), "\r\n\r\n") + 4,
	    "{\"error\":4001,\"message\":\"The body is not valid JSON: "
	    "byte 17: a comma is missing.\"}");
}

TEST(allowed_origin_is_in_every_answer_and_changes_nothing_else)
{
	static char text[] = "{\"id\":1,\"name\":\"\"}";

	for (int i = 0; i < 2; i++) {
		struct api_call call = { .id = "the-id",
			.failure.error = i == 0 ? HTTP_OK : HTTP_ID_MISSING,
			.plant = { 1, text, strlen(text) } };

		char *without = print(&plain, &call);
		call.origin = allowing.origins;
		char *with = print(&allowing, &call);
		size_t cut = (size_t)(strstr(with, ID) - with) + strlen(ID);
		assert_memory_equal(with + cut, CORS, strlen(CORS));
		memmove(with + cut, with + cut + strlen(CORS),
		    strlen(with + cut + strlen(CORS)) + 1);
		assert_string_equal(with, without);
	}
}

TEST(preflight_is_answered_byte_for_byte)
{
	const struct api_call call = { .id = "the-id",
		.failure.error = HTTP_PREFLIGHT,
		.origin = allowing.origins };

	assert_string_equal(print(&allowing, &call),
	    "Status: 204 No Content\r\n" ID CORS
	    "Access-Control-Allow-Methods: POST\r\n"
	    "Access-Control-Allow-Headers: "
	    "authorization, content-type, x-request-id\r\n"
	    "Access-Control-Max-Age: 7200\r\n"
	    "\r\n");
}

TEST(longest_head_fits)
{
	static char longest[400];
	struct config config = allowing;
	struct api_call call = { .origin = longest };

	memset(longest, 'o', 278);
	memset(call.id, 'i', REQUEST_ID_MAX);
	config.origins = longest;
	for (int e = HTTP_OK + 1; e < HTTP_ERROR_COUNT; e++) {
		/* A reason for each, and a longer one than there is. */
		call.failure =
		    (struct api_error){ (enum http_error)e, longest, SIZE_MAX };
		assert_in_range(
		    strlen(print(&config, &call)), 600, API_HEAD_MAX);
	}
}
