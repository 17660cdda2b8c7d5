/*
 * Characters, escapes and the canonical form of JSON strings.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pure/json_string.h"

/* A string literal and its length, NULs included. */
#define BYTES(literal) (literal), sizeof(literal) - 1
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A copy of exactly that size, so that overreads are seen. */
static char *
copy_of(const char *text, size_t len)
{
	char *copy = malloc(len);

	assert_non_null(copy);
	memcpy(copy, text, len);
	return copy;
}

static size_t
canonical(const char *text, size_t len)
{
	char *copy = copy_of(text, len);
	size_t n = json_canonical_string(copy, len);

	free(copy);
	return n;
}

static void
a_run_stops_at_each_byte_that_is_not_plain_anywhere(void **state)
{
	char text[40];
	char *copy;
	size_t at;
	int c;
	int stops;

	(void)state;
	for (at = 0; at < sizeof(text); at++) {
		for (c = 0; c < 256; c++) {
			memset(text, 'a', sizeof(text));
			text[at] = (char)c;
			stops = c < 0x20 || c >= 0x80 || c == '"' || c == '\\';
			copy = copy_of(text, sizeof(text));
			assert_int_equal(json_string_run(copy, sizeof(text)),
			    stops ? at : sizeof(text));
			free(copy);
		}
	}
}

static void
a_run_passes_over_characters_of_every_length(void **state)
{
	static const char text[] = "plain \xc3\xa9\xe2\x82\xac plain for more "
				   "than a block \xf0\x9f\x8c\xb1\x7f";

	(void)state;
	assert_int_equal(
	    json_string_run(text, sizeof(text) - 1), sizeof(text) - 1);
}

static void
a_run_leaves_out_a_sequence_that_the_end_cuts_off(void **state)
{
	(void)state;
	assert_int_equal(json_string_run(BYTES("abc\xf0\x9f\x8c")), 3);
}

static void
each_escape_of_two_characters_has_its_meaning(void **state)
{
	static const char letters[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	struct json_escape escape;
	const char *letter;
	char text[2] = "\\";
	int c;

	(void)state;
	for (c = 0; c < 256; c++) {
		text[1] = (char)c;
		letter = c == 0 ? NULL : strchr(letters, c);
		if (c == 'u')
			continue;
		if (letter != NULL) {
			assert_int_equal(
			    json_string_escape(text, 2, &escape), 0);
			assert_int_equal(
			    escape.code, meanings[letter - letters]);
			assert_int_equal(escape.len, 2);
		} else {
			assert_int_equal(
			    json_string_escape(text, 2, &escape), -1);
			assert_string_equal(escape.reason, "unknown escape");
			assert_int_equal(escape.len, 1);
		}
	}
}

static void
escapes_of_code_units_and_of_pairs_are_decoded(void **state)
{
	static const struct {
		const char *text;
		uint32_t code;
	} cases[] = {
		{ "\\u0000", 0x0000 },
		{ "\\u0041", 0x0041 },
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
	size_t len;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(cases); i++) {
		len = strlen(cases[i].text);
		assert_int_equal(
		    json_string_escape(cases[i].text, len, &escape), 0);
		assert_int_equal(escape.code, cases[i].code);
		assert_int_equal(escape.len, len);
	}
}

static void
a_bad_escape_is_told_at_its_first_wrong_byte(void **state)
{
	static const struct {
		const char *text;
		size_t at;
		const char *reason;
	} cases[] = {
		{ "\\x41", 1, "unknown escape" },
		{ "\\U0041", 1, "unknown escape" },
		{ "\\ug000", 2, "expected a hexadecimal digit" },
		{ "\\u00G0", 4, "expected a hexadecimal digit" },
		{ "\\u000\"", 5, "expected a hexadecimal digit" },
		{ "\\u-001", 2, "expected a hexadecimal digit" },
		{ "\\udc00", 3, "lone surrogate escape" },
		{ "\\uDFFF", 3, "lone surrogate escape" },
		{ "\\ud800\"", 6, "lone surrogate escape" },
		{ "\\ud800a", 6, "lone surrogate escape" },
		{ "\\ud800\\n", 7, "lone surrogate escape" },
		{ "\\ud800\\u0041", 8, "lone surrogate escape" },
		{ "\\ud800\\ud800", 9, "lone surrogate escape" },
		{ "\\udbff\\ue000", 8, "lone surrogate escape" },
		{ "\\udbff\\udcxx", 10, "expected a hexadecimal digit" },
	};
	struct json_escape escape;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(cases); i++) {
		assert_int_equal(json_string_escape(cases[i].text,
				     strlen(cases[i].text), &escape),
		    -1);
		assert_string_equal(escape.reason, cases[i].reason);
		assert_int_equal(escape.len, cases[i].at);
	}
}

static void
an_escape_that_the_end_cuts_off_has_no_reason(void **state)
{
	static const char pair[] = "\\ud83c\\udf31";
	struct json_escape escape;
	char *copy;
	size_t len;

	(void)state;
	for (len = 1; len < sizeof(pair) - 1; len++) {
		copy = copy_of(pair, len);
		assert_int_equal(json_string_escape(copy, len, &escape), -1);
		assert_null(escape.reason);
		assert_int_equal(escape.len, len);
		free(copy);
	}
}

static void
strings_are_compared_by_what_they_mean(void **state)
{
	static const struct {
		const char *token;
		const char *string;
		bool same;
	} cases[] = {
		{ "\"id\"", "id", true },
		{ "\"\\u0069d\"", "id", true },
		{ "\"i\\u0064\"", "id", true },
		{ "\"\\u0069\\u0064\"", "id", true },
		{ "\"\"", "", true },
		{ "\"\\n\\/\"", "\n/", true },
		{ "\"\\u00e9\"", "\xc3\xa9", true },
		{ "\"\xc3\xa9\"", "\xc3\xa9", true },
		{ "\"\\ud83c\\udf31\"", "\xf0\x9f\x8c\xb1", true },
		{ "\"\"", "id", false },
		{ "\"i\"", "id", false },
		{ "\"idx\"", "id", false },
		{ "\"ID\"", "id", false },
		{ "\"\\u0069\"", "id", false },
		{ "\"id\\u0000\"", "id", false },
		{ "\"id\\u0000x\"", "id", false },
		{ "\"\\u0000\"", "", false },
		{ "\"\\u0069d\\u0064\"", "id", false },
	};
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(cases); i++)
		assert_int_equal(json_string_is(cases[i].token,
				     strlen(cases[i].token), cases[i].string),
		    cases[i].same);
}

static void
what_is_no_string_means_nothing(void **state)
{
	static const char *const tokens[] = { "\"\\x\"", "\"\\u00\"", "\"\n\"",
		"\"\xff\"" };
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(tokens); i++)
		assert_false(json_string_is(
		    tokens[i], strlen(tokens[i]), tokens[i] + 1));
}

static void
the_canonical_length_is_that_of_the_shortest_form(void **state)
{
	static const struct {
		const char *token;
		size_t len;
	} cases[] = {
		{ "\"\"", 2 },
		{ "\"plain\"", 7 },
		{ "\"\\u0041\"", 3 },
		{ "\"\\/\"", 3 },
		{ "\"\\u002f\"", 3 },
		{ "\"\\u007F\"", 3 },
		{ "\"\\u0022\\u005c\"", 6 },
		{ "\"\\\"\\\\\"", 6 },
		{ "\"\\u0008\\u0009\\u000a\\u000c\\u000d\"", 12 },
		{ "\"\\u0000\\u0007\\u000B\\u001F\"", 26 },
		{ "\"\\u00e9\"", 4 },
		{ "\"\\u2028\"", 5 },
		{ "\"\\ud83c\\udf31\"", 6 },
		{ "\"\xc3\xa9\"", 4 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(cases); i++)
		assert_int_equal(json_string_canonical_len(
				     cases[i].token, strlen(cases[i].token)),
		    cases[i].len);
}

static void
tokens_in_canonical_form_are_known(void **state)
{
	static const char *const tokens[] = { "\"\"", "\"Fern\"",
		"\"a/b's \x7f\"", "\"\\b\\t\\n\\f\\r\\\"\\\\\"",
		"\"\\u0000\\u0001\\u0007\\u000b\\u000e\\u001f\"",
		"\"\xc2\x80\xe2\x80\xa8\xef\xbb\xbf\xf0\x9f\x8c\xb1\"",
		"\"a string that is longer than two blocks of sixteen\"",
		"\"a quote at the end of a block: \\\", and then some\"" };
	size_t len;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(tokens); i++) {
		len = strlen(tokens[i]);
		assert_int_equal(canonical(tokens[i], len), len);
	}
}

static void
other_forms_of_a_string_are_not_canonical(void **state)
{
	static const char *const tokens[] = { "\"\\/\"", "\"\\u0041\"",
		"\"\\u002f\"", "\"\\u0022\"", "\"\\u005c\"", "\"\\u0008\"",
		"\"\\u0009\"", "\"\\u000a\"", "\"\\u000c\"", "\"\\u000d\"",
		"\"\\u000B\"", "\"\\u001F\"", "\"\\u007f\"", "\"\\u00e9\"",
		"\"\\u2028\"", "\"\\ud83c\\udf31\"" };
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(tokens); i++)
		assert_int_equal(canonical(tokens[i], strlen(tokens[i])), 0);
}

static void
what_is_no_string_is_not_canonical(void **state)
{
	static const char *const tokens[] = { "", "a", "\"", "{}", "'a'",
		"a\"a\"", "\"a", "\"\\\"", "\"\\", "\"\\u00\"", "\"\\u0G00\"",
		"\"\\ud800\"", "\"\\x\"", "\"\t\"", "\"\x1f\"", "\"\n\"",
		"\"\x80\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xc3\"",
		"\"\xf4\x90\x80\x80\"", "\"\xff\"" };
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(tokens); i++)
		assert_int_equal(canonical(tokens[i], strlen(tokens[i])), 0);
	assert_int_equal(canonical(BYTES("\"\0\"")), 0);
}

static void
every_beginning_of_a_token_is_not_canonical(void **state)
{
	static const char token[] = "\"plain, \xc3\xa9, \xf0\x9f\x8c\xb1, \\n "
				    "and \\u0000 in more than two blocks\"";
	size_t len;

	(void)state;
	for (len = 0; len < sizeof(token) - 1; len++)
		assert_int_equal(canonical(token, len), 0);
	assert_int_equal(canonical(token, len), len);
}

static void
bytes_after_a_canonical_token_do_not_matter(void **state)
{
	(void)state;
	assert_int_equal(canonical(BYTES("\"Fern\",\"tag\"")), 6);
	assert_int_equal(canonical(BYTES("\"Fern\"\xff\xff\xff\xff\xff")), 6);
	assert_int_equal(canonical(BYTES("\"\"\"")), 2);
}

static void
every_ascii_character_is_printed_in_canonical_form(void **state)
{
	char text[0x80], token[6 * sizeof(text) + 2];
	size_t len;

	(void)state;
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
	assert_int_equal(json_string_print("\0", 1, token), 8);
	assert_memory_equal(token, "\"\\u0000\"", 8);
}

static void
what_is_not_ascii_is_printed_as_it_is(void **state)
{
	static const char text[] = "\xc3\xa9t\xf0\x9f\x8c\xb1\xff\xe2\x80";
	char token[6 * sizeof(text) + 2];
	size_t len = json_string_print(text, sizeof(text) - 1, token);

	(void)state;
	assert_int_equal(len, sizeof(text) + 1);
	assert_memory_equal(token + 1, text, sizeof(text) - 1);
	assert_int_equal(json_string_print("", 0, token), 2);
	assert_memory_equal(token, "\"\"", 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    a_run_stops_at_each_byte_that_is_not_plain_anywhere),
		cmocka_unit_test(a_run_passes_over_characters_of_every_length),
		cmocka_unit_test(
		    a_run_leaves_out_a_sequence_that_the_end_cuts_off),
		cmocka_unit_test(each_escape_of_two_characters_has_its_meaning),
		cmocka_unit_test(
		    escapes_of_code_units_and_of_pairs_are_decoded),
		cmocka_unit_test(a_bad_escape_is_told_at_its_first_wrong_byte),
		cmocka_unit_test(an_escape_that_the_end_cuts_off_has_no_reason),
		cmocka_unit_test(strings_are_compared_by_what_they_mean),
		cmocka_unit_test(what_is_no_string_means_nothing),
		cmocka_unit_test(
		    the_canonical_length_is_that_of_the_shortest_form),
		cmocka_unit_test(tokens_in_canonical_form_are_known),
		cmocka_unit_test(other_forms_of_a_string_are_not_canonical),
		cmocka_unit_test(what_is_no_string_is_not_canonical),
		cmocka_unit_test(every_beginning_of_a_token_is_not_canonical),
		cmocka_unit_test(bytes_after_a_canonical_token_do_not_matter),
		cmocka_unit_test(
		    every_ascii_character_is_printed_in_canonical_form),
		cmocka_unit_test(what_is_not_ascii_is_printed_as_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
