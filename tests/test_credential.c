/*
 * credential: what an Authorization header's value is taken for.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "http/credential.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void
token_is_found_in_a_bearer_credential(void **state)
{
	static const struct {
		const char *header, *token;
	} rows[] = {
		{ "Bearer x", "x" },
		{ "bearer x", "x" },
		{ "BEARER x", "x" },
		{ "Bearer   x", "x" },
		{ " \tBearer x\t ", "x" },
		{ "Bearer pst_AZaz09-._~+/", "pst_AZaz09-._~+/" },
		{ "Bearer abc==", "abc==" },
		{ "Bearer Bearer", "Bearer" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		const char *token = NULL;
		size_t len = 0;

		if (credential_read(rows[i].header, &token, &len) != HTTP_OK ||
		    len != strlen(rows[i].token) ||
		    memcmp(token, rows[i].token, len) != 0)
			fail_msg("'%s'", rows[i].header);
	}
}

static void
token_points_into_the_header(void **state)
{
	const char *header = "Bearer abc";
	const char *token;
	size_t len;

	(void)state;
	assert_int_equal(credential_read(header, &token, &len), HTTP_OK);
	assert_ptr_equal(token, header + 7);
}

static void
what_is_no_credential_is_refused_with_its_reason(void **state)
{
	static const struct {
		const char *header;
		enum http_error error;
	} rows[] = {
		{ NULL, HTTP_CREDENTIAL_MISSING },
		{ "", HTTP_CREDENTIAL_MISSING },
		{ " \t ", HTTP_CREDENTIAL_MISSING },
		{ "Basic x", HTTP_CREDENTIAL_SCHEME },
		{ "Basic", HTTP_CREDENTIAL_SCHEME },
		{ "Bearerx y", HTTP_CREDENTIAL_SCHEME },
		{ "Bearer=x", HTTP_CREDENTIAL_SCHEME },
		{ "Beare r", HTTP_CREDENTIAL_SCHEME },
		{ "pst_abc", HTTP_CREDENTIAL_SCHEME },
		{ ",", HTTP_CREDENTIAL_SCHEME },
		{ "Basic a, Basic b", HTTP_CREDENTIAL_SCHEME },
		{ "Digest a=\"b\", c=\"d\"", HTTP_CREDENTIAL_SCHEME },
		{ "Digest a=\"b, Bearer c\"", HTTP_CREDENTIAL_SCHEME },
		{ "Digest a=\"\\\", Bearer c\"", HTTP_CREDENTIAL_SCHEME },
		{ "Digest a=\"b\\", HTTP_CREDENTIAL_SCHEME },
		{ "a, Bearer b", HTTP_CREDENTIAL_SEVERAL },
		{ "Bearer a, Bearer b", HTTP_CREDENTIAL_SEVERAL },
		{ "Bearer a,bearer b", HTTP_CREDENTIAL_SEVERAL },
		{ "Bearer a, Basic b", HTTP_CREDENTIAL_SEVERAL },
		{ "Bearer a,", HTTP_CREDENTIAL_SEVERAL },
		{ ", Bearer a", HTTP_CREDENTIAL_SEVERAL },
		{ "Digest a=\"b\", Bearer c", HTTP_CREDENTIAL_SEVERAL },
		{ "Bearer", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer ", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer\tx", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer \tx", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer a b", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer =", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer a=b", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer \"a\"", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer a\"", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer a\r\n", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer a\x01", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer \xc3\xa9", HTTP_CREDENTIAL_MALFORMED },
		{ "Bearer a%20b", HTTP_CREDENTIAL_MALFORMED },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		const char *token = "untouched";
		size_t len = 7;

		if (credential_read(rows[i].header, &token, &len) !=
		    rows[i].error)
			fail_msg("row %zu: '%s'", i, rows[i].header);
		assert_string_equal(token, "untouched");
		assert_int_equal(len, 7);
	}
}

/* All strings of up to six of these: the sanitizers watch the bounds. */
static void
every_short_string_has_an_answer(void **state)
{
	static const char *const parts[] = { "Bearer", " ", ",", "\"", "\\",
		"x", "=" };
	char *header;

	(void)state;
	for (unsigned code = 0; code < 7 * 7 * 7 * 7 * 7 * 7; code++) {
		char text[64] = "";
		const char *token;
		size_t len;
		enum http_error error;

		for (unsigned rest = code; rest > 0; rest /= 7)
			strcat(text, parts[rest % 7]);
		header = strdup(text); /* just as long as the string */
		assert_non_null(header);
		error = credential_read(header, &token, &len);
		if (error == HTTP_OK) {
			assert_in_range(token - header, 7, strlen(header));
			assert_in_range(
			    len, 1, strlen(header) - (size_t)(token - header));
		} else {
			assert_in_range(error, HTTP_CREDENTIAL_MISSING,
			    HTTP_CREDENTIAL_SEVERAL);
		}
		free(header);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(token_is_found_in_a_bearer_credential),
		cmocka_unit_test(token_points_into_the_header),
		cmocka_unit_test(
		    what_is_no_credential_is_refused_with_its_reason),
		cmocka_unit_test(every_short_string_has_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
