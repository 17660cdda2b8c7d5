/*
 * response: whole answers, byte for byte.
 */
#include "unit.h"

#include <json-c/json.h>
#include <stdio.h>

#include "http/response.h"

#define CHALLENGE "WWW-Authenticate: Bearer realm=\"plant-store\""

#define ID "X-Request-Id: the-id\r\n"
#define CORS                                                 \
	"Vary: Origin\r\n"                                   \
	"Access-Control-Allow-Origin: https://a.example\r\n" \
	"Access-Control-Expose-Headers: retry-after, x-request-id\r\n"

static const char origins[] = "https://a.example http://b";
static const struct response_head plain = { .id = "the-id" };
static const struct response_head allowed = {
	.id = "the-id", .origin = origins, .origin_len = 17, .by_origin = true
};

/* The answer to `error`, as a string. */
static char *
answer(const struct response_error *error, bool contract, bool head)
{
	const struct response_head common = {
		.id = "the-id", .contract = contract, .bodiless = head
	};
	char buf[RESPONSE_HEAD_MAX];
	size_t len = response_error(&common, error, buf);

	assert_in_range(len, 1, RESPONSE_HEAD_MAX);
	return memcpy(memory(len + 1), buf, len);
}

TEST(head_of_a_200_has_type_and_length_and_fits_with_any)
{
	char buf[RESPONSE_HEAD_MAX];
	size_t len = response_ok_head(&plain, 65536, buf);

	assert_bytes(buf, len,
	    "Status: 200 OK\r\n" ID "Content-Type: application/json\r\n"
	    "Content-Length: 65536\r\n"
	    "\r\n");
	len = response_ok_head(&plain, SIZE_MAX, buf);
	assert_in_range(len, 1, RESPONSE_HEAD_MAX);
	assert_memory_equal(buf + len - 4, "\r\n\r\n", 4);
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
		for (int contract = 0; contract < 2; contract++) {
			struct response_error error = { rows[i].error, NULL,
				0 };
			char expected[RESPONSE_HEAD_MAX];
			char *text = answer(&error, contract, false);
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
			    contract ? "400 Bad Request" : rows[i].status,
			    strlen(body), rows[i].header);
			*body = '\0';
			/* cut to the head by the NUL */
			assert_string_equal(text, expected);
			/* A HEAD request gets the same without the body. */
			assert_string_equal(
			    answer(&error, contract, true), expected);
		}
	}
}

TEST(every_body_is_json_with_the_tables_number_and_message)
{
	for (int e = HTTP_OK + 1; e < HTTP_ERROR_COUNT; e++) {
		struct response_error error = { (enum http_error)e, NULL, 0 };
		const char *text = answer(&error, false, false);
		struct json_object *object =
		    json_tokener_parse(strstr(text, "\r\n\r\n") + 4);

		assert_non_null(object);
		assert_int_equal(json_object_object_length(object), 2);
		assert_int_equal(json_object_get_int(
				     json_object_object_get(object, "error")),
		    errors_number(error.error));
		assert_string_equal(
		    json_object_get_string(
			json_object_object_get(object, "message")),
		    errors_message(error.error));
		json_object_put(object);
	}
}

TEST(reason_and_offset_follow_the_message)
{
	const struct response_error error = { HTTP_JSON_SYNTAX,
		"a comma is missing", 17 };

	assert_string_equal(
	    strstr(answer(&error, false, false), "\r\n\r\n") + 4,
	    "{\"error\":4001,\"message\":\"The body is not valid JSON: "
	    "byte 17: a comma is missing.\"}");
}

TEST(allowed_origin_is_in_every_answer_and_changes_nothing_else)
{
	const struct response_error error = { HTTP_ID_MISSING, NULL, 0 };
	char with[RESPONSE_HEAD_MAX + 1], without[RESPONSE_HEAD_MAX + 1];
	size_t len, cut;

	for (int i = 0; i < 2; i++) {
		len = i == 0 ? response_ok_head(&allowed, 7, with)
			     : response_error(&allowed, &error, with);
		with[len] = '\0';
		len = i == 0 ? response_ok_head(&plain, 7, without)
			     : response_error(&plain, &error, without);
		without[len] = '\0';
		cut = (size_t)(strstr(with, ID) - with) + strlen(ID);
		assert_memory_equal(with + cut, CORS, strlen(CORS));
		memmove(with + cut, with + cut + strlen(CORS),
		    strlen(with + cut + strlen(CORS)) + 1);
		assert_string_equal(with, without);
	}
}

TEST(preflight_is_answered_byte_for_byte)
{
	char buf[RESPONSE_HEAD_MAX];
	size_t len = response_preflight(&allowed, buf);

	assert_bytes(buf, len,
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
	struct response_head head = { .origin = longest, .origin_len = 278 };
	char buf[RESPONSE_HEAD_MAX];

	memset(longest, 'o', sizeof longest - 1);
	memset(head.id, 'i', REQUEST_ID_MAX);
	for (int e = HTTP_OK + 1; e < HTTP_ERROR_COUNT; e++) {
		struct response_error error = { (enum http_error)e, longest,
			SIZE_MAX };

		/* A reason for each, and a longer one than there is. */
		longest[278] = '\0';
		assert_in_range(
		    response_error(&head, &error, buf), 600, RESPONSE_HEAD_MAX);
	}
}
