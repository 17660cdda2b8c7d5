/*
 * response: whole answers, byte for byte.
 */
#include "unit.h"

#include <json-c/json.h>
#include <stdio.h>

#include "http/response.h"

#define CHALLENGE "WWW-Authenticate: Bearer realm=\"plant-store\""

/* Write the answer to `error` as a string. */
static void
answer(const struct response_error *error, bool contract, bool head,
    char text[static RESPONSE_HEAD_MAX + 1])
{
	char buf[RESPONSE_HEAD_MAX];
	size_t len = response_error(error, contract, head, buf);

	assert_in_range(len, 1, RESPONSE_HEAD_MAX);
	memcpy(text, buf, len);
	text[len] = '\0';
}

static void
head_of_a_200_has_type_and_length_and_fits_with_any(void **state)
{
	char buf[RESPONSE_HEAD_MAX];
	size_t len = response_ok_head(65536, buf);

	assert_bytes(buf, len,
	    "Status: 200 OK\r\n"
	    "Content-Type: application/json\r\n"
	    "Content-Length: 65536\r\n"
	    "\r\n");
	len = response_ok_head(SIZE_MAX, buf);
	assert_in_range(len, 1, RESPONSE_HEAD_MAX);
	assert_memory_equal(buf + len - 4, "\r\n\r\n", 4);
}

static void
missing_credential_is_answered_byte_for_byte(void **state)
{
	const struct response_error error = { HTTP_CREDENTIAL_MISSING, NULL,
		0 };
	char text[RESPONSE_HEAD_MAX + 1];

	answer(&error, false, false, text);
	assert_string_equal(text,
	    "Status: 401 Unauthorized\r\n"
	    "Content-Type: application/json\r\n"
	    "Content-Length: 90\r\n" CHALLENGE "\r\n"
	    "\r\n"
	    "{\"error\":1001,\"message\":\"No credential: send the header "
	    "\\\"Authorization: Bearer TOKEN\\\".\"}");
}

static void
every_error_has_its_status_line_and_headers(void **state)
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
			char text[RESPONSE_HEAD_MAX + 1];
			char expected[RESPONSE_HEAD_MAX];
			char *body;

			answer(&error, contract, false, text);
			body = strstr(text, "\r\n\r\n");
			assert_non_null(body);
			body += 4;
			assert_true(*body != '\0');
			snprintf(expected, sizeof expected,
			    "Status: %s\r\n"
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
			answer(&error, contract, true, text);
			assert_string_equal(text, expected);
		}
	}
}

static void
every_body_is_json_with_the_tables_number_and_message(void **state)
{
	for (int e = HTTP_OK + 1; e < HTTP_ERROR_COUNT; e++) {
		struct response_error error = { (enum http_error)e, NULL, 0 };
		char text[RESPONSE_HEAD_MAX + 1];
		struct json_object *object;

		answer(&error, false, false, text);
		object = json_tokener_parse(strstr(text, "\r\n\r\n") + 4);
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

static void
reason_and_offset_follow_the_message(void **state)
{
	const struct response_error error = { HTTP_JSON_SYNTAX,
		"a comma is missing", 17 };
	char text[RESPONSE_HEAD_MAX + 1];

	answer(&error, false, false, text);
	assert_string_equal(strstr(text, "\r\n\r\n") + 4,
	    "{\"error\":4001,\"message\":\"The body is not valid JSON: "
	    "byte 17: a comma is missing.\"}");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(head_of_a_200_has_type_and_length_and_fits_with_any),
		TEST(missing_credential_is_answered_byte_for_byte),
		TEST(every_error_has_its_status_line_and_headers),
		TEST(every_body_is_json_with_the_tables_number_and_message),
		TEST(reason_and_offset_follow_the_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
