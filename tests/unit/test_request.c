/*
 * request: the variables of a request's head and what they mean.
 */
#include "unit.h"
#include <sys/wait.h>
#include <unistd.h>

#include "http/request.h"

/* A string that may be written to, as those of an environment. */
#define V(text) ((char[]){ text })

TEST(every_variable_that_is_read_is_found)
{
	char *const texts[] = { V("HTTP_HOST=a"), V("HTTP_HOST=b"),
		V("REQUEST_METHOD=POST"), V("SCRIPT_NAME=/api"),
		V("PATH_INFO=/plants"), V("HTTP_AUTHORIZATION=Bearer x"),
		V("CONTENT_TYPE=application/json"), V("CONTENT_LENGTH=2"),
		V("HTTP_CONTENT_ENCODING=identity"),
		V("HTTP_TRANSFER_ENCODING=chunked"), V("HTTP_X_REQUEST_ID=id"),
		V("HTTP_ORIGIN=https://a"),
		V("HTTP_ACCESS_CONTROL_REQUEST_METHOD=POST"), NULL };
	struct request request;

	request_read(&request, texts);
	assert_false(request.ambiguous);
	assert_string_equal(request.method, "POST");
	assert_string_equal(request.script_name, "/api");
	assert_string_equal(request.path_info, "/plants");
	assert_string_equal(request.authorization, "Bearer x");
	assert_string_equal(request.content_type, "application/json");
	assert_string_equal(request.content_length, "2");
	assert_string_equal(request.content_encoding, "identity");
	assert_string_equal(request.transfer_encoding, "chunked");
	assert_string_equal(request.id, "id");
	assert_string_equal(request.origin, "https://a");
	assert_string_equal(request.preflight_method, "POST");
}

TEST(variables_that_are_not_there_are_null)
{
	char *const texts[] = { V("REQUEST_METHOD"), V("REQUEST_METHODS=GET"),
		V("XREQUEST_METHOD=GET"), V(""), V("="), V("path_info=/plants"),
		NULL };
	struct request request;

	request_read(&request, texts);
	assert_false(request.ambiguous);
	assert_null(request.method);
	assert_null(request.script_name);
	assert_null(request.path_info);
	assert_null(request.authorization);
	assert_null(request.content_type);
	assert_null(request.content_length);
	assert_null(request.content_encoding);
	assert_null(request.transfer_encoding);
	assert_null(request.id);
	assert_null(request.origin);
	assert_null(request.preflight_method);
}

TEST(a_variable_that_is_read_must_not_occur_twice)
{
	char *const names[] = { V("REQUEST_METHOD="), V("SCRIPT_NAME="),
		V("PATH_INFO="), V("HTTP_AUTHORIZATION="), V("CONTENT_TYPE="),
		V("CONTENT_LENGTH="), V("HTTP_CONTENT_ENCODING="),
		V("HTTP_TRANSFER_ENCODING=") };

	for (size_t i = 0; i < COUNT(names); i++) {
		char *const texts[] = { names[i], V("HTTP_HOST=a"), names[i],
			NULL };
		struct request request;

		request_read(&request, texts);
		assert_true(request.ambiguous);
	}
}

TEST(a_header_that_may_be_left_out_is_empty_if_it_occurs_twice)
{
	char *const texts[] = { V("HTTP_X_REQUEST_ID=a"), V("HTTP_ORIGIN=a"),
		V("HTTP_ORIGIN=a"), V("HTTP_X_REQUEST_ID=a"),
		V("HTTP_ORIGIN=a"), NULL };
	struct request request;

	request_read(&request, texts);
	assert_false(request.ambiguous);
	assert_string_equal(request.id, "");
	assert_string_equal(request.origin, "");
}

TEST(only_an_id_of_the_form_is_taken)
{
#define SIXTY_FOUR                         \
	"0123456789ABCDEFGHIJKLMNOPQRSTUV" \
	"abcdefghijklmnopqrstuvwxyz._-WYZ"
	static const char *const good[] = { "a", "-", SIXTY_FOUR };
	static const char *const bad[] = { NULL, "", SIXTY_FOUR "x", "a b",
		" a", "a\r\nX: y", "a,b", "a\"b", "a/b", "\xc3\xa9", "a\x7f",
		"pst_0123456789", "a-pst_" };
	char id[REQUEST_ID_MAX + 1], last[REQUEST_ID_MAX + 1] = "";
	int ends[2];

	/* Another process, before this one has made an id. */
	assert_int_equal(pipe(ends), 0);
	if (fork() == 0) {
		request_id(&(struct request){ 0 }, id);
		_exit(write(ends[1], id, sizeof(id)) < 0);
	}
	for (size_t i = 0; i < COUNT(good); i++) {
		struct request request = { .id = good[i] };

		request_id(&request, id);
		assert_string_equal(id, good[i]);
	}
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct request request = { .id = bad[i] };

		request_id(&request, id);
		assert_int_equal(strspn(id, "0123456789abcdef"), 16);
		assert_int_equal(id[16], '-');
		assert_int_equal(
		    strspn(id + 17, "0123456789abcdef"), strlen(id + 17));
		assert_true(strlen(id) > 17);
		/* Each is new, with the beginning of its process. */
		assert_string_not_equal(id, last);
		if (i > 0)
			assert_memory_equal(id, last, 17);
		strcpy(last, id);
	}
	assert_int_equal(read(ends[0], id, sizeof(id)), sizeof(id));
	assert_memory_not_equal(id, last, 17);
	close(ends[0]);
	close(ends[1]);
	wait(NULL);
}

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
		struct request request = { .authorization = rows[i].header };
		struct credential got = { 0 };

		if (request_credential(&request, &got) != HTTP_OK ||
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
			struct request request = { .authorization =
						       rows[i].headers[k] };
			struct credential got = { "untouched", 7 };

			if (request_credential(&request, &got) != rows[i].error)
				fail_msg("'%s'", rows[i].headers[k]);
			assert_string_equal(got.token, "untouched");
			assert_int_equal(got.len, 7);
		}
}

TEST(only_so_many_variables_are_taken)
{
	static char other[] = "HTTP_X=1";
	static char *variables[REQUEST_VARIABLES_MAX + 2];
	struct request request;

	for (size_t i = 0; i < REQUEST_VARIABLES_MAX; i++)
		variables[i] = other;
	variables[REQUEST_VARIABLES_MAX] = NULL;
	request_read(&request, variables);
	assert_false(request.ambiguous);
	variables[REQUEST_VARIABLES_MAX] = other;
	variables[REQUEST_VARIABLES_MAX + 1] = NULL;
	request_read(&request, variables);
	assert_true(request.ambiguous);
}

TEST(path_is_script_name_and_path_info_however_split)
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
		{ "/", "api/v1/plants", "/api/v1", true },
		{ "/api/v1/", "plants", "/api/v1", true },
		{ "/api/v1/", "/plants", "/api/v1", false },
		{ "/api/v1", "plants", "/api/v1", false },
		{ "/api/v1/plants", "/plants", "/api/v1", false },
		{ "/api/v1", NULL, "/api/v1", false },
		{ NULL, NULL, "", false },
		{ "", "", "", false },
		{ "/plants", "plants", "", false },
		{ "/plantsx", NULL, "", false },
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
		{ "/pl%61nts", NULL, "", false },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct request request = { .script_name = rows[i].script_name,
			.path_info = rows[i].path_info };

		if (request_path_is(&request, rows[i].base_path, "/plants") !=
		    rows[i].expected)
			fail_msg("row %zu", i);
	}
}

TEST(json_is_application_json_with_or_without_parameters)
{
	static const char *const json[] = { "application/json",
		"Application/JSON", "application/json;charset=utf-8",
		"application/json \t; charset=utf-8", "application/json;",
		"application/json " };
	static const char *const others[] = { NULL, "", "application",
		"application/jsonx", "application/json x",
		"application/json, text/plain", "application/json-patch+json",
		"application/ld+json", "text/json", " application/json",
		"application / json", "application/jso", "*/*",
		"application/x-www-form-urlencoded" };
	struct request request = { 0 };

	for (size_t i = 0; i < COUNT(json) + COUNT(others); i++) {
		bool expected = i < COUNT(json);

		request.content_type =
		    expected ? json[i] : others[i - COUNT(json)];
		if (request_is_json(&request) != expected)
			fail_msg("'%s'", request.content_type);
	}
}

TEST(only_identity_counts_as_no_encoding)
{
	static const char *const texts[] = { NULL, "", "identity", "Identity",
		"gzip", "identity, gzip", "identityx", "identit", ",",
		"x-gzip" };

	for (size_t i = 0; i < COUNT(texts); i++) {
		struct request request = { .content_encoding = texts[i] };

		assert_int_equal(request_is_identity(&request), i < 4);
	}
}

TEST(length_is_digits_only)
{
	static const struct {
		enum request_length result;
		size_t length; /* 7: left as it was */
		const char *texts[24];
	} rows[] = {
		{ REQUEST_LENGTH_ABSENT, 7, { NULL, "" } },
		{ REQUEST_LENGTH_OK, 0, { "0" } },
		{ REQUEST_LENGTH_OK, 12, { "000012" } },
		{ REQUEST_LENGTH_OK, SIZE_MAX - 1, { "18446744073709551614" } },
		{ REQUEST_LENGTH_OK, SIZE_MAX,
		    { "18446744073709551615", "18446744073709551616",
			"184467440737095516150",
			"99999999999999999999999999" } },
		{ REQUEST_LENGTH_BAD, 7,
		    { "99999999999999999999999999x", "-1", "+1", " 1", "1 ",
			"1,1", "0x10", "1.0", "\xd9\xa1", "1,", "1, 1", "1;1",
			"3_7", "1e0", "-0", "+", "--1", " ", "\t1", "1 1",
			"many", "-99999999999999999999999999" } },
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		for (size_t k = 0; k == 0 || rows[i].texts[k] != NULL; k++) {
			struct request request = {
				.content_length = rows[i].texts[k],
			};
			size_t length = 7;

			if (request_length(&request, &length) !=
				rows[i].result ||
			    length != rows[i].length)
				fail_msg("'%s'", rows[i].texts[k]);
		}
}

TEST(chunked_counts_only_without_a_length)
{
	static const struct {
		const char *encoding, *length;
		enum request_length result;
	} rows[] = {
		{ "chunked", NULL, REQUEST_LENGTH_CHUNKED },
		{ "Chunked", "", REQUEST_LENGTH_CHUNKED },
		{ "chunked", "5", REQUEST_LENGTH_OK },
		{ "chunked", "x", REQUEST_LENGTH_BAD },
		{ NULL, NULL, REQUEST_LENGTH_ABSENT },
		{ "", NULL, REQUEST_LENGTH_ABSENT },
		{ "gzip, chunked", NULL, REQUEST_LENGTH_ABSENT },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct request request = { .transfer_encoding =
					       rows[i].encoding,
			.content_length = rows[i].length };
		size_t length;

		if (request_length(&request, &length) != rows[i].result)
			fail_msg("row %zu", i);
	}
}
