/*
 * credential: what an Authorization header's value is taken for.
 */
#include "unit.h"
#include "http/credential.h"

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
what_is_no_credential_is_refused_with_its_reason(void **state)
{
	static const struct {
		enum http_error error;
		const char *headers[16];
	} rows[] = {
		{ HTTP_CREDENTIAL_MISSING, { NULL, "", " \t " } },
		{ HTTP_CREDENTIAL_SCHEME,
		    { "Basic x", "Basic", "Bearerx y", "Bearer=x", "Beare r",
			"pst_abc", ",", "Basic a, Basic b",
			"Digest a=\"b\", c=\"d\"", "Digest a=\"b, Bearer c\"",
			"Digest a=\"\\\", Bearer c\"", "Digest a=\"b\\" } },
		{ HTTP_CREDENTIAL_SEVERAL,
		    { "a, Bearer b", "Bearer a, Bearer b", "Bearer a,bearer b",
			"Bearer a, Basic b", "Bearer a,", ", Bearer a",
			"Digest a=\"b\", Bearer c" } },
		{ HTTP_CREDENTIAL_MALFORMED,
		    { "Bearer", "Bearer ", "Bearer\tx", "Bearer \tx",
			"Bearer a b", "Bearer =", "Bearer a=b", "Bearer \"a\"",
			"Bearer a\"", "Bearer a\r\n", "Bearer a\x01",
			"Bearer \xc3\xa9", "Bearer a%20b" } },
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		for (size_t k = 0; k == 0 || rows[i].headers[k] != NULL; k++) {
			const char *token = "untouched";
			size_t len = 7;

			if (credential_read(rows[i].headers[k], &token, &len) !=
			    rows[i].error)
				fail_msg("'%s'", rows[i].headers[k]);
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

	for (unsigned code = 0; code < 7 * 7 * 7 * 7 * 7 * 7; code++) {
		char text[64] = "", *header;
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
		TEST(token_is_found_in_a_bearer_credential),
		TEST(what_is_no_credential_is_refused_with_its_reason),
		TEST(every_short_string_has_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
