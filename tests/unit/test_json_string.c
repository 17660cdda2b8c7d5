/*
 * JSON strings: their decoding, printing and canonical form.
 */
#include "unit.h"

#include <stdio.h>

#include "pure/json.h"

static size_t
canonical(const char *text, size_t len)
{
	char *copy = exact_copy(text, len);
	size_t n = json_canonical_string(copy, len);

	free(copy);
	return n;
}

TEST(a_string_goes_on_after_each_byte_that_is_plain_anywhere)
{
	char text[42];

	for (size_t at = 1; at < sizeof(text) - 1; at++)
		for (int c = 0; c < 256; c++) {
			bool plain =
			    c >= 0x20 && c < 0x80 && c != '"' && c != '\\';

			memset(text, 'a', sizeof(text));
			text[0] = text[sizeof(text) - 1] = '"';
			text[at] = (char)c;
			assert_int_equal(
			    canonical(text, sizeof(text)), plain ? sizeof(text)
							   : c == '"' ? at + 1
								      : 0);
		}
}

TEST(every_character_is_decoded_as_it_is_read)
{
	for (uint32_t code = 0x80; code <= 0x10ffff; code++) {
		if (code == 0xd800)
			code = 0xe000; /* behind the surrogates */
		char token[16], text[16] = "\"";
		int len = code < 0x10000 ? sprintf(token, "\"\\u%04x\"", code)
					 : sprintf(token, "\"\\u%04x\\u%04x\"",
					       0xd7c0 + (code >> 10),
					       0xdc00 | (code & 0x3ff));
		size_t n = json_string_decode(token, (size_t)len, text + 1) + 2;

		text[n - 1] = '"';
		assert_int_equal(n, code < 0x800 ? 4 : code < 0x10000 ? 5 : 6);
		assert_int_equal(json_canonical_string(text, n), n);
	}
}

TEST(a_token_is_decoded_and_printed_in_its_shortest_form)
{
	static const struct {
		const char *token, *canonical;
	} cases[] = {
		{ "\"\"", "\"\"" },
		{ "\"plain\"", "\"plain\"" },
		{ "\"\\u0041\"", "\"A\"" },
		{ "\"\\u0080\\u07ff\"", "\"\xc2\x80\xdf\xbf\"" },
		{ "\"\\u0800\\uABCD\\uabcd\"",
		    "\"\xe0\xa0\x80\xea\xaf\x8d\xea\xaf\x8d\"" },
		{ "\"\\uD7FF\\uE000\\uffff\"",
		    "\"\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\"" },
		{ "\"\\ud800\\udc00\\uDBFF\\uDFFF\"",
		    "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"" },
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
	char text[0x80], token[6 * sizeof(text) + 2], again[6];
	size_t len;

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)i;
	len = json_string_print(text, sizeof(text), token);
	assert_int_equal(canonical(token, len), len);
	for (size_t i = 0; i < sizeof(text); i++) {
		len = json_string_print(text + i, 1, token);
		assert_true(len <= 8);
		assert_int_equal(canonical(token, len), len);
		assert_int_equal(json_string_decode(token, len, again), 1);
		assert_int_equal(again[0], text[i]);
	}
}

TEST(what_is_not_ascii_is_printed_as_it_is)
{
	static const char text[] = "\xc3\xa9t\xf0\x9f\x8c\xb1\xff\xe2\x80";
	char token[6 * sizeof(text) + 2];

	assert_bytes(token, json_string_print(BYTES(text), token),
	    "\"\xc3\xa9t\xf0\x9f\x8c\xb1\xff\xe2\x80\"");
}
