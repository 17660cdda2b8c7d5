/*
 * request: the variables of a request's head and what they mean.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "http/request.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Read the variables, which end with NULL, from writable copies. */
static int
read_copies(struct request *request, const char *const *texts, char **copies)
{
	size_t n = 0;

	for (; texts[n] != NULL; n++) {
		copies[n] = strdup(texts[n]);
		assert_non_null(copies[n]);
	}
	copies[n] = NULL;
	return request_read(request, copies);
}

static void
free_copies(char **copies)
{
	for (; *copies != NULL; copies++)
		free(*copies);
}

static void
every_variable_that_is_read_is_found(void **state)
{
	static const char *const texts[] = { "SERVER_NAME=x",
		"REQUEST_METHOD=POST", "SCRIPT_NAME=/api", "PATH_INFO=/plants",
		"HTTP_AUTHORIZATION=Bearer x", "CONTENT_TYPE=application/json",
		"CONTENT_LENGTH=2", "HTTP_CONTENT_ENCODING=identity",
		"HTTP_TRANSFER_ENCODING=chunked", NULL };
	struct request request;
	char *copies[COUNT(texts)];

	(void)state;
	assert_int_equal(read_copies(&request, texts, copies), 0);
	assert_string_equal(request.method, "POST");
	assert_string_equal(request.script_name, "/api");
	assert_string_equal(request.path_info, "/plants");
	assert_string_equal(request.authorization, "Bearer x");
	assert_string_equal(request.content_type, "application/json");
	assert_string_equal(request.content_length, "2");
	assert_string_equal(request.content_encoding, "identity");
	assert_string_equal(request.transfer_encoding, "chunked");
	free_copies(copies);
}

static void
variables_that_are_not_there_are_null(void **state)
{
	static const char *const texts[] = { "REQUEST_METHOD",
		"REQUEST_METHODS=GET", "XREQUEST_METHOD=GET", "", "=",
		"path_info=/plants", NULL };
	struct request request;
	char *copies[COUNT(texts)];

	(void)state;
	assert_int_equal(read_copies(&request, texts, copies), 0);
	assert_null(request.method);
	assert_null(request.script_name);
	assert_null(request.path_info);
	assert_null(request.authorization);
	assert_null(request.content_type);
	assert_null(request.content_length);
	assert_null(request.content_encoding);
	assert_null(request.transfer_encoding);
	free_copies(copies);
}

static void
one_that_is_read_must_not_occur_twice(void **state)
{
	static const char *const names[] = { "REQUEST_METHOD=", "SCRIPT_NAME=",
		"PATH_INFO=", "HTTP_AUTHORIZATION=", "CONTENT_TYPE=",
		"CONTENT_LENGTH=", "HTTP_CONTENT_ENCODING=",
		"HTTP_TRANSFER_ENCODING=" };

	(void)state;
	for (size_t i = 0; i < COUNT(names); i++) {
		const char *const texts[] = { names[i], "HTTP_HOST=a", names[i],
			NULL };
		struct request request;
		char *copies[COUNT(texts)];

		assert_int_equal(read_copies(&request, texts, copies), -1);
		free_copies(copies);
	}
}

static void
one_that_is_not_read_may_occur_twice(void **state)
{
	static const char *const texts[] = { "HTTP_HOST=a", "HTTP_HOST=b",
		"REQUEST_METHOD=POST", NULL };
	struct request request;
	char *copies[COUNT(texts)];

	(void)state;
	assert_int_equal(read_copies(&request, texts, copies), 0);
	free_copies(copies);
}

static void
only_so_many_variables_are_taken(void **state)
{
	static char other[] = "HTTP_X=1";
	static char *variables[REQUEST_VARIABLES_MAX + 2];
	struct request request;

	(void)state;
	for (size_t i = 0; i < REQUEST_VARIABLES_MAX; i++)
		variables[i] = other;
	variables[REQUEST_VARIABLES_MAX] = NULL;
	assert_int_equal(request_read(&request, variables), 0);
	variables[REQUEST_VARIABLES_MAX] = other;
	variables[REQUEST_VARIABLES_MAX + 1] = NULL;
	assert_int_equal(request_read(&request, variables), -1);
}

static void
path_is_script_name_and_path_info_however_split(void **state)
{
	static const struct {
		const char *script_name, *path_info, *base_path;
		bool expected;
	} rows[] = {
		{ "/plants", NULL, "", true },
		{ "", "/plants", "", true },
		{ NULL, "/plants", "", true },
		{ "/pla", "nts", "", true },
		{ "/api/v1", "/plants", "/api/v1", true },
		{ "/api/v1/plants", "", "/api/v1", true },
		{ "/api", "/v1/plants", "/api/v1", true },
		{ NULL, NULL, "", false },
		{ "", "", "", false },
		{ "/plants", "/plants", "", false },
		{ "/plants", "/", "", false },
		{ "/plants/", NULL, "", false },
		{ "/plant", NULL, "", false },
		{ "/Plants", NULL, "", false },
		{ "plants", NULL, "", false },
		{ "//plants", NULL, "", false },
		{ "/plants", NULL, "/api", false },
		{ "/api/plants", NULL, "", false },
		{ "/api", "/plants", "/api/v1", false },
		{ "/plants?x", NULL, "", false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct request request = { .script_name = rows[i].script_name,
			.path_info = rows[i].path_info };

		if (request_path_is(&request, rows[i].base_path, "/plants") !=
		    rows[i].expected)
			fail_msg("row %zu", i);
	}
}

static void
json_is_application_json_with_or_without_parameters(void **state)
{
	static const struct {
		const char *type;
		bool expected;
	} rows[] = {
		{ "application/json", true },
		{ "Application/JSON", true },
		{ "application/json;charset=utf-8", true },
		{ "application/json \t; charset=utf-8", true },
		{ "application/json;", true },
		{ "application/json ", true },
		{ NULL, false },
		{ "", false },
		{ "application", false },
		{ "application/jsonx", false },
		{ "application/json x", false },
		{ "application/json, text/plain", false },
		{ "application/json-patch+json", false },
		{ "application/ld+json", false },
		{ "text/json", false },
		{ "application/x-www-form-urlencoded", false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct request request = { .content_type = rows[i].type };

		if (request_is_json(&request) != rows[i].expected)
			fail_msg("row %zu", i);
	}
}

static void
only_identity_counts_as_no_encoding(void **state)
{
	static const struct {
		const char *encoding;
		bool expected;
	} rows[] = {
		{ NULL, true },
		{ "", true },
		{ "identity", true },
		{ "Identity", true },
		{ "gzip", false },
		{ "identity, gzip", false },
		{ "identityx", false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct request request = { .content_encoding =
					       rows[i].encoding };

		if (request_is_identity(&request) != rows[i].expected)
			fail_msg("row %zu", i);
	}
}

static void
length_is_digits_only(void **state)
{
	static const struct {
		const char *text;
		enum request_length result;
		size_t length;
	} rows[] = {
		{ NULL, REQUEST_LENGTH_ABSENT, 7 },
		{ "", REQUEST_LENGTH_ABSENT, 7 },
		{ "0", REQUEST_LENGTH_OK, 0 },
		{ "000012", REQUEST_LENGTH_OK, 12 },
		{ "18446744073709551614", REQUEST_LENGTH_OK, SIZE_MAX - 1 },
		{ "18446744073709551615", REQUEST_LENGTH_OK, SIZE_MAX },
		{ "18446744073709551616", REQUEST_LENGTH_OK, SIZE_MAX },
		{ "184467440737095516150", REQUEST_LENGTH_OK, SIZE_MAX },
		{ "99999999999999999999999999", REQUEST_LENGTH_OK, SIZE_MAX },
		{ "99999999999999999999999999x", REQUEST_LENGTH_BAD, 7 },
		{ "-1", REQUEST_LENGTH_BAD, 7 },
		{ "+1", REQUEST_LENGTH_BAD, 7 },
		{ " 1", REQUEST_LENGTH_BAD, 7 },
		{ "1 ", REQUEST_LENGTH_BAD, 7 },
		{ "1,1", REQUEST_LENGTH_BAD, 7 },
		{ "0x10", REQUEST_LENGTH_BAD, 7 },
		{ "1.0", REQUEST_LENGTH_BAD, 7 },
		{ "\xd9\xa1", REQUEST_LENGTH_BAD, 7 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct request request = { .content_length = rows[i].text };
		size_t length = 7;

		if (request_length(&request, &length) != rows[i].result ||
		    length != rows[i].length)
			fail_msg("row %zu", i);
	}
}

static void
chunked_counts_only_without_a_length(void **state)
{
	static const struct {
		const char *encoding, *length;
		bool expected;
	} rows[] = {
		{ "chunked", NULL, true },
		{ "Chunked", "", true },
		{ "chunked", "5", false },
		{ "chunked", "x", false },
		{ NULL, NULL, false },
		{ "", NULL, false },
		{ "gzip, chunked", NULL, false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct request request = { .transfer_encoding =
					       rows[i].encoding,
			.content_length = rows[i].length };

		if (request_is_chunked(&request) != rows[i].expected)
			fail_msg("row %zu", i);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_variable_that_is_read_is_found),
		cmocka_unit_test(variables_that_are_not_there_are_null),
		cmocka_unit_test(one_that_is_read_must_not_occur_twice),
		cmocka_unit_test(one_that_is_not_read_may_occur_twice),
		cmocka_unit_test(only_so_many_variables_are_taken),
		cmocka_unit_test(
		    path_is_script_name_and_path_info_however_split),
		cmocka_unit_test(
		    json_is_application_json_with_or_without_parameters),
		cmocka_unit_test(only_identity_counts_as_no_encoding),
		cmocka_unit_test(length_is_digits_only),
		cmocka_unit_test(chunked_counts_only_without_a_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
