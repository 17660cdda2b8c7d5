/*
 * credential: what an Authorization header's value is taken for.
 */
#include "unit.h"
#include "http/credential.h"

TEST(token_is_found_in_a_bearer_credential)
{
	static const struct {
		const char *header, *token;
	} rows[] = {
		{ "Bearer x", "x" },
		{ "bearer x", "x" },
		{ "bEaReR x", "x" },
		{ "Bearer   x", "x" },
		{ " \tBearer x\t ", "x" },
		{ "Bearer pst_AZaz09-._~+/", "pst_AZaz09-._~+/" },
		{ "Bearer abc==", "abc==" },
		{ "Bearer Bearer", "Bearer" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct credential got = { 0 };

		if (credential_read(rows[i].header, &got) != HTTP_OK ||
		    got.len != strlen(rows[i].token) ||
		    memcmp(got.token, rows[i].token, got.len) != 0)
			fail_msg("'%s'", rows[i].header);
	}
}

TEST(what_is_no_credential_is_refused_with_its_reason)
{
	static const struct {
		enum http_error error;
		const char *headers[20];
	} rows[] = {
		{ HTTP_CREDENTIAL_MISSING, { NULL, "", " \t " } },
		{ HTTP_CREDENTIAL_SCHEME,
		    { "Basic x", "Basic", "Bearerx y", "Bearer=x", "Beare r",
			"Bearer: x",
			"\xef\xbc\xa2"
			"earer x",
			"pst_abc", ",", "Basic a, Basic b",
			"Digest a=\"b\", c=\"d\"", "Digest a=\"b, Bearer c\"",
			"Digest a=\"\\\", Bearer c\"", "Digest a=\"b\\" } },
		{ HTTP_CREDENTIAL_SEVERAL,
		    { "a, Bearer b", "Bearer a, Bearer b", "Bearer a,bearer b",
			"Bearer a, Basic b", "Bearer a,", "Bearer,",
			", Bearer a", "Digest a=\"b\", Bearer c",
			"Bearer a=\"b\", c=\"d\"" } },
		{ HTTP_CREDENTIAL_MALFORMED,
		    { "Bearer", "Bearer ", "Bearer\tx", "Bearer \tx",
			"Bearer a b", "Bearer =", "Bearer a=b", "Bearer \"a\"",
			"Bearer a\"", "Bearer a\r\n", "Bearer a\x01",
			"Bearer \xc3\xa9", "Bearer a%20b", "Bearer =a",
			"Bearer a\tb", "Bearer\t" } },
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		for (size_t k = 0; k == 0 || rows[i].headers[k] != NULL; k++) {
			struct credential got = { "untouched", 7 };

			if (credential_read(rows[i].headers[k], &got) !=
			    rows[i].error)
				fail_msg("'%s'", rows[i].headers[k]);
			assert_string_equal(got.token, "untouched");
			assert_int_equal(got.len, 7);
		}
}
