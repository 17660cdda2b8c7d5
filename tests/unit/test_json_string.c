/*
 * Characters, escapes and the canonical form of JSON strings.
 */
#include "unit.h"
#include "pure/json_string.h"

static size_t
canonical(const char *text, size_t len)
{
	char *copy = exact_copy(text, len);
	size_t n = json_canonical_string(copy, len);

	free(copy);
	return n;
}

TEST(a_run_stops_at_each_byte_that_is_not_plain_anywhere)
{
	char text[40];

	for (size_t at = 0; at < sizeof(text); at++) {
		for (int c = 0; c < 256; c++) {
			bool stops =
			    c < 0x20 || c >= 0x80 || c == '"' || c == '\\';
			char *copy;

			memset(text, 'a', sizeof(text));
			text[at] = (char)c;
			copy = exact_copy(text, sizeof(text));
			assert_int_equal(json_string_run(copy, sizeof(text)),
			    stops ? at : sizeof(text));
			free(copy);
		}
	}
}

TEST(a_run_is_of_whole_characters_of_every_length)
{
	static const char text[] = "plain \xc3\xa9\xe2\x82\xac plain for more "
				   "than a block \xf0\x9f\x8c\xb1\x7f";

	assert_int_equal(json_string_run(BYTES(text)), sizeof(text) - 1);
	assert_int_equal(json_string_run(BYTES("abc\xf0\x9f\x8c")), 3);
}

TEST(each_escape_of_two_characters_has_its_meaning)
{
	static const char letters[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	struct json_escape escape;

	for (int c = 0; c < 256; c++) {
		const char text[2] = { '\\', (char)c };
		const char *letter = memchr(letters, c, 8);
		int result = json_string_escape(text, 2, &escape);

		if (letter != NULL) {
			assert_int_equal(result, 0);
			assert_int_equal(
			    escape.code, meanings[letter - letters]);
			assert_int_equal(escape.len, 2);
		} else if (c != 'u') {
			assert_int_equal(result, -1);
			assert_string_equal(escape.reason, "unknown escape");
			assert_int_equal(escape.len, 1);
		}
	}
}

TEST(escapes_of_code_units_and_of_pairs_are_decoded)
{
	static const struct {
		const char *text;
		uint32_t code;
	} cases[] = {
		{ "\\u0000", 0x0000 },
		{ "\\u00e9", 0x00e9 },
		{ "\\uABCD", 0xabcd },
		{ "\\uabcd", 0xabcd },
		{ "\\uD7FF", 0xd7ff },
		{ "\\uE000", 0xe000 },
		{ "\\uffff", 0xffff },
		{ "\\ud800\\udc00", 0x10000 },
		{ "\\ud83c\\udf31", 0x1f331 },
		{ "\\uDBFF\\uDFFF", 0x10ffff },
	};
	struct json_escape escape;

	for (size_t i = 0; i < COUNT(cases); i++) {
		size_t len = strlen(cases[i].text);

		assert_int_equal(
		    json_string_escape(cases[i].text, len, &escape), 0);
		assert_int_equal(escape.code, cases[i].code);
		assert_int_equal(escape.len, len);
	}
}

TEST(a_bad_escape_is_told_at_its_first_wrong_byte)
{
	static const char unknown[] = "unknown escape";
	static const char digit[] = "expected a hexadecimal digit";
	static const char lone[] = "lone surrogate escape";
	static const struct {
		const char *reason;
		size_t at;
		const char *texts[5]; /* NULL behind the last */
	} cases[] = {
		{ unknown, 1, { "\\x41", "\\U0041" } },
		{ digit, 2, { "\\ug000", "\\u-001" } },
		{ digit, 4, { "\\u00G0" } },
		{ digit, 5, { "\\u000\"" } },
		{ digit, 10, { "\\udbff\\udcxx" } },
		{ lone, 3, { "\\udc00", "\\uDFFF" } },
		{ lone, 6, { "\\ud800\"", "\\ud800a" } },
		{ lone, 7, { "\\ud800\\n" } },
		{ lone, 8, { "\\ud800\\u0041", "\\udbff\\ue000" } },
		{ lone, 9, { "\\ud800\\ud800" } },
	};
	struct json_escape escape;

	for (size_t i = 0; i < COUNT(cases); i++)
		EACH_TEXT (text, cases[i].texts) {
			assert_int_equal(
			    json_string_escape(*text, strlen(*text), &escape),
			    -1);
			assert_string_equal(escape.reason, cases[i].reason);
			assert_int_equal(escape.len, cases[i].at);
		}
}

TEST(an_escape_that_the_end_cuts_off_has_no_reason)
{
	static const char pair[] = "\\ud83c\\udf31";
	struct json_escape escape;

	for (size_t len = 1; len < sizeof(pair) - 1; len++) {
		char *copy = exact_copy(pair, len);

		assert_int_equal(json_string_escape(copy, len, &escape), -1);
		assert_null(escape.reason);
		assert_int_equal(escape.len, len);
		free(copy);
	}
}

TEST(strings_are_compared_by_what_they_mean)
{
	static const struct {
		const char *string;
		bool same;
		const char *tokens[8]; /* NULL behind the last */
	} cases[] = {
		{ "id", true,
		    { "\"id\"", "\"\\u0069d\"", "\"i\\u0064\"",
			"\"\\u0069\\u0064\"" } },
		{ "", true, { "\"\"" } },
		{ "\n/", true, { "\"\\n\\/\"" } },
		{ "\xc3\xa9", true, { "\"\\u00e9\"", "\"\xc3\xa9\"" } },
		{ "\xf0\x9f\x8c\xb1", true, { "\"\\ud83c\\udf31\"" } },
		{ "id", false,
		    { "\"\"", "\"i\"", "\"idx\"", "\"ID\"", "\"id\\u0000\"",
			"\"id\\u0000x\"", "\"\\u0069d\\u0064\"" } },
		{ "", false, { "\"\\u0000\"" } },
		/* A token that is no string means nothing. */
		{ "\\x\"", false, { "\"\\x\"" } },
		{ "\\u00\"", false, { "\"\\u00\"" } },
		{ "\n\"", false, { "\"\n\"" } },
		{ "\xff\"", false, { "\"\xff\"" } },
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		EACH_TEXT (token, cases[i].tokens)
			assert_int_equal(json_string_is(*token, strlen(*token),
					     cases[i].string),
			    cases[i].same);
}

TEST(a_token_is_decoded_and_printed_in_its_shortest_form)
{
	static const struct {
		const char *token, *canonical;
	} cases[] = {
		{ "\"\"", "\"\"" },
		{ "\"plain\"", "\"plain\"" },
		{ "\"\\u0041\"", "\"A\"" },
		{ "\"\\/\"", "\"/\"" },
		{ "\"\\u002f\"", "\"/\"" },
		{ "\"\\u007F\"", "\"\x7f\"" },
		{ "\"\\u0022\\u005c\"", "\"\\\"\\\\\"" },
		{ "\"\\\"\\\\\"", "\"\\\"\\\\\"" },
		{ "\"\\u0008\\u0009\\u000a\\u000c\\u000d\"",
		    "\"\\b\\t\\n\\f\\r\"" },
		{ "\"\\u0000\\u0007\\u000B\\u001F\"",
		    "\"\\u0000\\u0007\\u000b\\u001f\"" },
		{ "\"\\u00e9\"", "\"\xc3\xa9\"" },
		{ "\"\\u2028\"", "\"\xe2\x80\xa8\"" },
		{ "\"\\ud83c\\udf31\"", "\"\xf0\x9f\x8c\xb1\"" },
		{ "\"a\xc3\xa9\\/b\"", "\"a\xc3\xa9/b\"" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		size_t len = strlen(cases[i].token), n;
		char *means = memory(len - 2), printed[64];

		n = json_string_decode(cases[i].token, len, means);
		n = json_string_print(means, n, printed);
		assert_bytes(printed, n, cases[i].canonical);
		assert_int_equal(canonical(printed, n), n);
	}
}

TEST(only_tokens_in_canonical_form_are_known)
{
	static const char *const good[] = { "\"\"", "\"Fern\"",
		"\"a/b's \x7f\"", "\"\\b\\t\\n\\f\\r\\\"\\\\\"",
		"\"\\u0000\\u0001\\u0007\\u000b\\u000e\\u001f\"",
		"\"\xc2\x80\xe2\x80\xa8\xef\xbb\xbf\xf0\x9f\x8c\xb1\"",
		"\"a string that is longer than two blocks of sixteen\"",
		"\"a quote at the end of a block: \\\", and then some\"" };
	static const char *const bad[] = { /* other forms */ "\"\\/\"",
		"\"\\u0041\"", "\"\\u002f\"", "\"\\u0022\"", "\"\\u005c\"",
		"\"\\u0008\"", "\"\\u0009\"", "\"\\u000a\"", "\"\\u000c\"",
		"\"\\u000d\"", "\"\\u000B\"", "\"\\u001F\"", "\"\\u007f\"",
		"\"\\u00e9\"", "\"\\u2028\"", "\"\\ud83c\\udf31\"",
		/* no strings */ "", "a", "\"", "{}", "'a'", "a\"a\"", "\"a",
		"\"\\\"", "\"\\", "\"\\u00\"", "\"\\u0G00\"", "\"\\ud800\"",
		"\"\\x\"", "\"\t\"", "\"\x1f\"", "\"\n\"", "\"\x80\"",
		"\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xc3\"",
		"\"\xf4\x90\x80\x80\"", "\"\xff\"" };

	for (size_t i = 0; i < COUNT(good); i++)
		assert_int_equal(
		    canonical(good[i], strlen(good[i])), strlen(good[i]));
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(canonical(bad[i], strlen(bad[i])), 0);
	assert_int_equal(canonical(BYTES("\"\0\"")), 0);
	/* Bytes behind a token do not matter. */
	assert_int_equal(canonical(BYTES("\"Fern\",\"tag\"")), 6);
	assert_int_equal(canonical(BYTES("\"Fern\"\xff\xff\xff\xff\xff")), 6);
	assert_int_equal(canonical(BYTES("\"\"\"")), 2);
}

TEST(every_beginning_of_a_token_is_not_canonical)
{
	static const char token[] = "\"plain, \xc3\xa9, \xf0\x9f\x8c\xb1, \\n "
				    "and \\u0000 in more than two blocks\"";
	size_t len;

	for (len = 0; len < sizeof(token) - 1; len++)
		assert_int_equal(canonical(token, len), 0);
	assert_int_equal(canonical(token, len), len);
}

TEST(every_ascii_character_is_printed_in_canonical_form)
{
	char text[0x80], token[6 * sizeof(text) + 2];
	size_t len;

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)i;
	len = json_string_print(text, sizeof(text), token);
	assert_int_equal(canonical(token, len), len);
	for (size_t i = 0; i < sizeof(text); i++) {
		len = json_string_print(text + i, 1, token);
		assert_true(len <= 8);
		assert_int_equal(canonical(token, len), len);
		if (i > 0)
			assert_true(json_string_is(
			    token, len, (const char[]){ text[i], '\0' }));
	}
}

TEST(what_is_not_ascii_is_printed_as_it_is)
{
	static const char text[] = "\xc3\xa9t\xf0\x9f\x8c\xb1\xff\xe2\x80";
	char token[6 * sizeof(text) + 2];

	assert_bytes(token, json_string_print(BYTES(text), token),
	    "\"\xc3\xa9t\xf0\x9f\x8c\xb1\xff\xe2\x80\"");
}
