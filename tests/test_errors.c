/*
 * errors: the table keeps what its header promises of every row.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "http/errors.h"

static void
every_error_has_a_number_of_its_own(void **state)
{
	(void)state;
	for (int a = HTTP_OK + 1; a < HTTP_ERROR_COUNT; a++)
		for (int b = a + 1; b < HTTP_ERROR_COUNT; b++)
			assert_int_not_equal(errors_number((enum http_error)a),
			    errors_number((enum http_error)b));
}

static void
every_number_is_of_a_known_family(void **state)
{
	(void)state;
	for (int e = HTTP_OK + 1; e < HTTP_ERROR_COUNT; e++)
		assert_in_range(errors_number((enum http_error)e), 1001, 5999);
}

static void
released_numbers_and_statuses_stay(void **state)
{
	static const struct {
		enum http_error error;
		int number;
		int status;
	} rows[] = {
		{ HTTP_CREDENTIAL_MISSING, 1001, 401 },
		{ HTTP_CREDENTIAL_SCHEME, 1002, 401 },
		{ HTTP_CREDENTIAL_MALFORMED, 1003, 401 },
		{ HTTP_CREDENTIAL_SEVERAL, 1004, 401 },
		{ HTTP_CREDENTIAL_UNKNOWN, 1005, 401 },
		{ HTTP_CREDENTIAL_EXPIRED, 1006, 401 },
		{ HTTP_PATH_UNKNOWN, 2001, 404 },
		{ HTTP_METHOD_NOT_ALLOWED, 2002, 405 },
		{ HTTP_CONTENT_TYPE, 3001, 400 },
		{ HTTP_CONTENT_ENCODING, 3002, 400 },
		{ HTTP_CONTENT_LENGTH, 3003, 400 },
		{ HTTP_BODY_SHORT, 3004, 400 },
		{ HTTP_BODY_LONG, 3005, 400 },
		{ HTTP_BODY_MISSING, 3006, 400 },
		{ HTTP_BODY_TOO_LARGE, 3007, 413 },
		{ HTTP_BODY_BROKEN, 3008, 400 },
		{ HTTP_REQUEST_AMBIGUOUS, 3009, 400 },
		{ HTTP_HEAD_TOO_LARGE, 3010, 400 },
		{ HTTP_JSON_SYNTAX, 4001, 400 },
		{ HTTP_JSON_UTF8, 4002, 400 },
		{ HTTP_JSON_DEPTH, 4003, 400 },
		{ HTTP_JSON_NOT_OBJECT, 4004, 400 },
		{ HTTP_ID_MISSING, 4101, 400 },
		{ HTTP_ID_TWICE, 4102, 400 },
		{ HTTP_ID_NOT_INTEGER, 4103, 400 },
		{ HTTP_ID_RANGE, 4104, 400 },
		{ HTTP_NAME_MISSING, 4201, 400 },
		{ HTTP_NAME_TWICE, 4202, 400 },
		{ HTTP_NAME_NOT_STRING, 4203, 400 },
		{ HTTP_TAG_TWICE, 4301, 400 },
		{ HTTP_TAG_NOT_STRING, 4302, 400 },
		{ HTTP_CONFLICT, 5001, 409 },
		{ HTTP_STORE_FULL, 5002, 503 },
		{ HTTP_STORE_FAILED, 5003, 503 },
		{ HTTP_STORE_BUSY, 5004, 503 },
		{ HTTP_SHUTTING_DOWN, 5005, 503 },
		{ HTTP_NOT_READY, 5006, 503 },
		{ HTTP_NO_ANSWER, 5007, 503 },
		{ HTTP_OUT_OF_MEMORY, 5101, 500 },
		{ HTTP_INTERNAL, 5102, 500 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(errors_number(rows[i].error), rows[i].number);
		assert_int_equal(errors_status(rows[i].error), rows[i].status);
	}
}

static void
every_message_is_printable_ascii(void **state)
{
	(void)state;
	for (int e = HTTP_OK + 1; e < HTTP_ERROR_COUNT; e++) {
		const char *message = errors_message((enum http_error)e);

		assert_true(strlen(message) > 0);
		for (; *message != '\0'; message++)
			assert_in_range(*message, ' ', '~');
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_error_has_a_number_of_its_own),
		cmocka_unit_test(every_number_is_of_a_known_family),
		cmocka_unit_test(released_numbers_and_statuses_stay),
		cmocka_unit_test(every_message_is_printable_ascii),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
