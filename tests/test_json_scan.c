/*
 * The scanner against RFC 8259: what it accepts, what it refuses and where it
 * says the fault is.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pure/json_scan.h"

/* A string literal and its length, NULs included. */
#define BYTES(literal) (literal), sizeof(literal) - 1
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct text {
	const char *bytes;
	size_t len;
};

struct refusal {
	const char *bytes;
	size_t len;
	enum json_fault fault;
	size_t offset;
	const char *reason; /* NULL: any */
};

/* Every production, nested, with every kind of space and escape. */
static const char rich[] =
    "\t{ \"id\" : -12.5e+3 ,\r\n\"\\u0069x\":[ ] , \"o\":{ },\"a\":[true, "
    "false,null,[0,{\"\":\"\"}]],\"s\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9"
    "\\ud83c\\uDF31 \xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\xb1 and more\",\"e\":1E-7"
    "\n}";

/* Scan a copy of exactly that size, so that overreads are seen. */
static int
scan_members(const char *bytes, size_t len, struct json_member *members,
    size_t nmembers, struct json_error *error)
{
	char *copy = malloc(len);
	int result;

	assert_true(copy != NULL || len == 0);
	if (len > 0)
		memcpy(copy, bytes, len);
	result = json_scan_object(copy, len, members, nmembers, error);
	free(copy);
	return result;
}

static int
scan(const char *bytes, size_t len, struct json_error *error)
{
	struct json_member id = { .name = "id" };

	return scan_members(bytes, len, &id, 1, error);
}

static void
assert_accepted(const struct text *texts, size_t n)
{
	struct json_error error;
	size_t i;

	for (i = 0; i < n; i++)
		if (scan(texts[i].bytes, texts[i].len, &error) != 0)
			fail_msg("%s: byte %zu: %s", texts[i].bytes,
			    error.offset, error.reason);
}

static void
assert_refused(const struct refusal *refusals, size_t n)
{
	const struct refusal *want;
	struct json_error error;
	size_t i;

	for (i = 0; i < n; i++) {
		want = &refusals[i];
		if (scan(want->bytes, want->len, &error) == 0)
			fail_msg("accepted: %s", want->bytes);
		if (error.fault != want->fault || error.offset != want->offset)
			fail_msg("%s: fault %d at %zu: %s", want->bytes,
			    error.fault, error.offset, error.reason);
		if (want->reason != NULL)
			assert_string_equal(error.reason, want->reason);
	}
}

static void
every_production_of_the_grammar_is_accepted(void **state)
{
	static const struct text texts[] = {
		{ BYTES("{}") },
		{ BYTES(" \t\n\r{ \t\n\r} \t\n\r") },
		{ BYTES("{\"\":0}") },
		{ BYTES("{\"a\":0,\"b\":1}") },
		{ BYTES("{ \"a\" : 0 , \"b\" : 1 }") },
		{ BYTES("{\"a\":true,\"b\":false,\"c\":null}") },
		{ BYTES("{\"a\":[]}") },
		{ BYTES("{\"a\":[ ]}") },
		{ BYTES("{\"a\":[0]}") },
		{ BYTES("{\"a\":[0,\"\",{},[],true,null]}") },
		{ BYTES("{\"a\":{}}") },
		{ BYTES("{\"a\":{\"b\":{\"c\":[{\"d\":[]}]}}}") },
		{ BYTES("{\"a\":-0}") },
		{ BYTES("{\"a\":0.0}") },
		{ BYTES("{\"a\":-0.10}") },
		{ BYTES("{\"a\":1e0}") },
		{ BYTES("{\"a\":0E+00}") },
		{ BYTES("{\"a\":10.01e-99}") },
		{ BYTES("{\"a\":123456789012345678901234567890}") },
		{ BYTES("{\"a\":1e999999}") },
		{ BYTES("{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}") },
		{ BYTES("{\"a\":\"\\u0000\\uABCD\\uabcd\"}") },
		{ BYTES("{\"a\\n\\u0000\":\"\"}") },
		{ BYTES("{\"a\":\"\x7f\"}") },
		{ BYTES("{\"other\":1,\"other\":2}") },
		{ BYTES(rich) },
	};

	(void)state;
	assert_accepted(texts, COUNT(texts));
}

static void
what_is_not_the_grammar_is_refused_at_the_wrong_byte(void **state)
{
	static const struct refusal refusals[] = {
		{ BYTES("x"), JSON_FAULT_SYNTAX, 0,
		    "expected an opening brace" },
		{ BYTES("}"), JSON_FAULT_SYNTAX, 0, NULL },
		{ BYTES("'a'"), JSON_FAULT_SYNTAX, 0, NULL },
		{ BYTES("\v{}"), JSON_FAULT_SYNTAX, 0, NULL },
		{ BYTES("\f{}"), JSON_FAULT_SYNTAX, 0, NULL },
		{ BYTES("\xc2\xa0{}"), JSON_FAULT_SYNTAX, 0, NULL },
		{ BYTES("\0{}"), JSON_FAULT_SYNTAX, 0, NULL },
		{ BYTES("{]"), JSON_FAULT_SYNTAX, 1,
		    "expected a member name in quotes" },
		{ BYTES("{,}"), JSON_FAULT_SYNTAX, 1, NULL },
		{ BYTES("{a:1}"), JSON_FAULT_SYNTAX, 1, NULL },
		{ BYTES("{'a':1}"), JSON_FAULT_SYNTAX, 1, NULL },
		{ BYTES("{1:1}"), JSON_FAULT_SYNTAX, 1, NULL },
		{ BYTES("{null:1}"), JSON_FAULT_SYNTAX, 1, NULL },
		{ BYTES("{\"a\":1,}"), JSON_FAULT_SYNTAX, 7,
		    "expected a member name in quotes" },
		{ BYTES("{\"a\" 1}"), JSON_FAULT_SYNTAX, 5,
		    "expected a colon" },
		{ BYTES("{\"a\"}"), JSON_FAULT_SYNTAX, 4, NULL },
		{ BYTES("{\"a\"=1}"), JSON_FAULT_SYNTAX, 4, NULL },
		{ BYTES("{\"a\"::1}"), JSON_FAULT_SYNTAX, 5,
		    "expected a value" },
		{ BYTES("{\"a\":}"), JSON_FAULT_SYNTAX, 5, NULL },
		{ BYTES("{\"a\":,}"), JSON_FAULT_SYNTAX, 5, NULL },
		{ BYTES("{\"a\":1 \"b\":2}"), JSON_FAULT_SYNTAX, 7,
		    "expected a comma or a closing brace" },
		{ BYTES("{\"a\":1:2}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":1]"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":[}}"), JSON_FAULT_SYNTAX, 6,
		    "expected a value" },
		{ BYTES("{\"a\":[1}}"), JSON_FAULT_SYNTAX, 7,
		    "expected a comma or a closing bracket" },
		{ BYTES("{\"a\":[1 2]}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":[1,]}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":[,1]}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":[\"b\":1]}"), JSON_FAULT_SYNTAX, 9, NULL },
		{ BYTES("{/**/}"), JSON_FAULT_SYNTAX, 1, NULL },
		{ BYTES("{\"a\":1//\n}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":1\0}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{}x"), JSON_FAULT_SYNTAX, 2,
		    "bytes after the object" },
		{ BYTES("{} {}"), JSON_FAULT_SYNTAX, 3, NULL },
		{ BYTES("{}}"), JSON_FAULT_SYNTAX, 2, NULL },
		{ BYTES("{},"), JSON_FAULT_SYNTAX, 2, NULL },
		{ BYTES("{}\0"), JSON_FAULT_SYNTAX, 2, NULL },
		{ BYTES("{}\xc3\xa9"), JSON_FAULT_SYNTAX, 2, NULL },
	};

	(void)state;
	assert_refused(refusals, COUNT(refusals));
}

static void
literals_are_taken_to_the_letter(void **state)
{
	static const struct refusal refusals[] = {
		{ BYTES("{\"a\":tru}"), JSON_FAULT_SYNTAX, 8,
		    "expected true, false or null" },
		{ BYTES("{\"a\":truE}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":True}"), JSON_FAULT_SYNTAX, 5, NULL },
		{ BYTES("{\"a\":truex}"), JSON_FAULT_SYNTAX, 9, NULL },
		{ BYTES("{\"a\":fals}"), JSON_FAULT_SYNTAX, 9, NULL },
		{ BYTES("{\"a\":nul}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":nan}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":NaN}"), JSON_FAULT_SYNTAX, 5, NULL },
		{ BYTES("{\"a\":Infinity}"), JSON_FAULT_SYNTAX, 5, NULL },
		{ BYTES("{\"a\":-Infinity}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":undefined}"), JSON_FAULT_SYNTAX, 5, NULL },
	};

	(void)state;
	assert_refused(refusals, COUNT(refusals));
}

static void
numbers_that_json_does_not_know_are_refused(void **state)
{
	static const struct refusal refusals[] = {
		{ BYTES("{\"a\":00}"), JSON_FAULT_SYNTAX, 6, "leading zero" },
		{ BYTES("{\"a\":01.5}"), JSON_FAULT_SYNTAX, 6, "leading zero" },
		{ BYTES("{\"a\":-01}"), JSON_FAULT_SYNTAX, 7, "leading zero" },
		{ BYTES("{\"a\":+1}"), JSON_FAULT_SYNTAX, 5,
		    "expected a value" },
		{ BYTES("{\"a\":.5}"), JSON_FAULT_SYNTAX, 5, NULL },
		{ BYTES("{\"a\":-}"), JSON_FAULT_SYNTAX, 6,
		    "expected a digit" },
		{ BYTES("{\"a\":--1}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":-.123}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":-2.}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":2.e3}"), JSON_FAULT_SYNTAX, 7, NULL },
		{ BYTES("{\"a\":0.e1}"), JSON_FAULT_SYNTAX, 7, NULL },
		{ BYTES("{\"a\":1.2.3}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":1e}"), JSON_FAULT_SYNTAX, 7, NULL },
		{ BYTES("{\"a\":1e+}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":1e+-1}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":1e1.5}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":1e1e1}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":0x10}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":1_000}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":1a}"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":\xef\xbc\x91}"), JSON_FAULT_SYNTAX, 5, NULL },
	};

	(void)state;
	assert_refused(refusals, COUNT(refusals));
}

static void
bad_escapes_are_refused_in_keys_and_values(void **state)
{
	static const struct refusal refusals[] = {
		{ BYTES("{\"a\":\"\\x\"}"), JSON_FAULT_SYNTAX, 7,
		    "unknown escape" },
		{ BYTES("{\"\\a\":1}"), JSON_FAULT_SYNTAX, 3,
		    "unknown escape" },
		{ BYTES("{\"a\":\"\\'\"}"), JSON_FAULT_SYNTAX, 7, NULL },
		{ BYTES("{\"a\":\"\\\n\"}"), JSON_FAULT_SYNTAX, 7, NULL },
		{ BYTES("{\"a\":\"\\\xc3\xa9\"}"), JSON_FAULT_SYNTAX, 7, NULL },
		{ BYTES("{\"a\":\"\\u12\"}"), JSON_FAULT_SYNTAX, 10,
		    "expected a hexadecimal digit" },
		{ BYTES("{\"a\":\"\\u12g4\"}"), JSON_FAULT_SYNTAX, 10, NULL },
		{ BYTES("{\"a\":\"\\ud800\"}"), JSON_FAULT_SYNTAX, 12,
		    "lone surrogate escape" },
		{ BYTES("{\"\\ud800\":1}"), JSON_FAULT_SYNTAX, 8, NULL },
		{ BYTES("{\"a\":\"\\udc00\"}"), JSON_FAULT_SYNTAX, 9,
		    "lone surrogate escape" },
		{ BYTES("{\"a\":\"\\ud800\\u0041\"}"), JSON_FAULT_SYNTAX, 14,
		    "lone surrogate escape" },
		{ BYTES("{\"a\":\"\\udf31\\ud83c\"}"), JSON_FAULT_SYNTAX, 9,
		    "lone surrogate escape" },
	};

	(void)state;
	assert_refused(refusals, COUNT(refusals));
}

static void
a_raw_control_character_in_a_string_is_refused(void **state)
{
	struct refusal refusal = { NULL, 10, JSON_FAULT_SYNTAX, 7,
		"raw control character in a string" };
	char text[] = "{\"a\":\"b?\"}";
	int c;

	(void)state;
	for (c = 0; c < 0x20; c++) {
		text[7] = (char)c;
		refusal.bytes = text;
		assert_refused(&refusal, 1);
	}
	text[7] = 0x20;
	assert_accepted(&(struct text){ text, 10 }, 1);
}

static void
utf8_is_checked_in_strings_at_the_wrong_byte(void **state)
{
	static const struct refusal refusals[] = {
		{ BYTES("{\"a\":\"\x80\"}"), JSON_FAULT_UTF8, 6, NULL },
		{ BYTES("{\"a\":\"\xc0\x80\"}"), JSON_FAULT_UTF8, 6,
		    "overlong UTF-8" },
		{ BYTES("{\"a\":\"\xe0\x80\xaf\"}"), JSON_FAULT_UTF8, 7,
		    "overlong UTF-8" },
		{ BYTES("{\"a\":\"\xf0\x8f\xbf\xbf\"}"), JSON_FAULT_UTF8, 7,
		    "overlong UTF-8" },
		{ BYTES("{\"a\":\"\xed\xa0\x80\"}"), JSON_FAULT_UTF8, 7,
		    "surrogate in UTF-8" },
		{ BYTES("{\"a\":\"\xf4\x90\x80\x80\"}"), JSON_FAULT_UTF8, 7,
		    "UTF-8 above U+10FFFF" },
		{ BYTES("{\"a\":\"\xf5\x80\x80\x80\"}"), JSON_FAULT_UTF8, 6,
		    NULL },
		{ BYTES("{\"a\":\"\xff\"}"), JSON_FAULT_UTF8, 6, NULL },
		{ BYTES("{\"a\":\"\xc3\"}"), JSON_FAULT_UTF8, 7,
		    "incomplete UTF-8 sequence" },
		{ BYTES("{\"a\":\"\xe2\x82\"}"), JSON_FAULT_UTF8, 8, NULL },
		{ BYTES("{\"a\":\"\xf0\x9f\x8c\"}"), JSON_FAULT_UTF8, 9, NULL },
		{ BYTES("{\"\xe9\":1}"), JSON_FAULT_UTF8, 3, NULL },
		{ BYTES("{\"a\":\"\xe9tage\"}"), JSON_FAULT_UTF8, 7, NULL },
	};
	static const struct text texts[] = {
		{ BYTES("{\"a\":\"\xc2\x80\xdf\xbf\"}") },
		{ BYTES("{\"a\":\"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\"}") },
		{ BYTES("{\"a\":\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"}") },
		{ BYTES("{\"a\":\"\xef\xbb\xbf\xef\xbf\xbe\"}") },
		{ BYTES("{\"\xc3\xa9\":1}") },
	};

	(void)state;
	assert_refused(refusals, COUNT(refusals));
	assert_accepted(texts, COUNT(texts));
}

static void
bytes_outside_strings_that_are_not_utf8_are_told_as_such(void **state)
{
	static const struct refusal refusals[] = {
		{ BYTES("\xff\xfe{"), JSON_FAULT_UTF8, 0, NULL },
		{ BYTES("\xef\xbb"), JSON_FAULT_UTF8, 0,
		    "incomplete UTF-8 sequence" },
		{ BYTES("{\xff"), JSON_FAULT_UTF8, 1, NULL },
		{ BYTES("{\"a\"\xc3:1}"), JSON_FAULT_UTF8, 4,
		    "incomplete UTF-8 sequence" },
		{ BYTES("{\"a\":\xc0\x80}"), JSON_FAULT_UTF8, 5, NULL },
		{ BYTES("{\"a\":t\xff}"), JSON_FAULT_UTF8, 6, NULL },
		{ BYTES("{\"a\":-\x80}"), JSON_FAULT_UTF8, 6, NULL },
		{ BYTES("{\"a\":1\xed\xa0\x80}"), JSON_FAULT_UTF8, 6, NULL },
		{ BYTES("{}\xe2\x82"), JSON_FAULT_UTF8, 2, NULL },
		{ BYTES("{\"a\":\xe2\x82\xac}"), JSON_FAULT_SYNTAX, 5, NULL },
	};

	(void)state;
	assert_refused(refusals, COUNT(refusals));
}

static void
a_byte_order_mark_is_refused(void **state)
{
	static const struct refusal refusals[] = {
		{ BYTES("\xef\xbb\xbf{}"), JSON_FAULT_SYNTAX, 0,
		    "byte order mark" },
		{ BYTES("\xef\xbb\xbf"), JSON_FAULT_SYNTAX, 0,
		    "byte order mark" },
		{ BYTES("{}\xef\xbb\xbf"), JSON_FAULT_SYNTAX, 2, NULL },
	};

	(void)state;
	assert_refused(refusals, COUNT(refusals));
}

static void
json_that_is_not_an_object_is_told_as_such(void **state)
{
	static const struct refusal refusals[] = {
		{ BYTES("[]"), JSON_FAULT_NOT_OBJECT, 0, NULL },
		{ BYTES("  [{}]"), JSON_FAULT_NOT_OBJECT, 2, NULL },
		{ BYTES("\"{}\""), JSON_FAULT_NOT_OBJECT, 0, NULL },
		{ BYTES("\n1"), JSON_FAULT_NOT_OBJECT, 1, NULL },
		{ BYTES("-1"), JSON_FAULT_NOT_OBJECT, 0, NULL },
		{ BYTES("0"), JSON_FAULT_NOT_OBJECT, 0, NULL },
		{ BYTES("9"), JSON_FAULT_NOT_OBJECT, 0, NULL },
		{ BYTES("true"), JSON_FAULT_NOT_OBJECT, 0, NULL },
		{ BYTES("false"), JSON_FAULT_NOT_OBJECT, 0, NULL },
		{ BYTES("null"), JSON_FAULT_NOT_OBJECT, 0, NULL },
	};

	(void)state;
	assert_refused(refusals, COUNT(refusals));
}

static void
every_beginning_of_an_object_is_truncated(void **state)
{
	struct refusal refusal = { rich, 0, JSON_FAULT_TRUNCATED, 0, NULL };
	size_t len;

	(void)state;
	for (len = 0; len < sizeof(rich) - 1; len++) {
		refusal.len = len;
		refusal.offset = len;
		assert_refused(&refusal, 1);
	}
}

static void
nothing_and_nothing_but_space_are_truncated(void **state)
{
	static const struct refusal refusals[] = {
		{ BYTES(""), JSON_FAULT_TRUNCATED, 0, NULL },
		{ BYTES(" \t\r\n"), JSON_FAULT_TRUNCATED, 4, NULL },
	};
	struct json_error error;

	(void)state;
	assert_refused(refusals, COUNT(refusals));
	assert_int_equal(json_scan_object(NULL, 0, NULL, 0, &error), -1);
	assert_int_equal(error.fault, JSON_FAULT_TRUNCATED);
}

static void
a_cut_text_that_no_text_continues_is_not_truncated(void **state)
{
	static const struct refusal refusals[] = {
		{ BYTES("{\"a\":\"\\udc"), JSON_FAULT_SYNTAX, 9, NULL },
		{ BYTES("{\"a\":\"\\ud800\\u0"), JSON_FAULT_SYNTAX, 14, NULL },
		{ BYTES("{\"a\":\"\\ud800\\n"), JSON_FAULT_SYNTAX, 13, NULL },
		{ BYTES("{\"a\":\"\xed\xa0"), JSON_FAULT_UTF8, 7, NULL },
		{ BYTES("{\"a\":\"\xc0"), JSON_FAULT_UTF8, 6, NULL },
		{ BYTES("{\"a\":00"), JSON_FAULT_SYNTAX, 6, NULL },
		{ BYTES("{\"a\":tx"), JSON_FAULT_SYNTAX, 6, NULL },
	};

	(void)state;
	assert_refused(refusals, COUNT(refusals));
}

/* Write `depth` levels, the top one an object, and return the length. */
static size_t
nest(char *text, size_t depth, const char *open, const char *close)
{
	char *to = stpcpy(text, "{\"a\":");
	size_t i;

	for (i = 1; i < depth; i++)
		to = stpcpy(to, open);
	to = stpcpy(to, "0");
	for (i = 1; i < depth; i++)
		to = stpcpy(to, close);
	to = stpcpy(to, "}");
	return (size_t)(to - text);
}

static void
sixty_four_levels_are_accepted_and_one_more_is_refused(void **state)
{
	char text[1024];
	struct refusal refusal = { text, 0, JSON_FAULT_DEPTH, 0, NULL };
	struct text accepted = { text, 0 };

	(void)state;
	accepted.len = nest(text, 64, "[", "]");
	assert_accepted(&accepted, 1);
	accepted.len = nest(text, 64, "{\"b\":", "}");
	assert_accepted(&accepted, 1);
	accepted.len = nest(text, 64, "[0,", "]");
	assert_accepted(&accepted, 1);
	refusal.len = nest(text, 65, "[", "]");
	refusal.offset = 5 + 63;
	assert_refused(&refusal, 1);
	refusal.len = nest(text, 65, "{\"b\":", "}");
	refusal.offset = 5 + 63 * 5;
	assert_refused(&refusal, 1);
}

static void
each_level_remembers_what_closes_it(void **state)
{
	char text[1024];
	struct refusal refusal = { text, 0, JSON_FAULT_SYNTAX, 0, NULL };
	size_t len = nest(text, 64, "[", "]");
	size_t i;

	(void)state;
	refusal.len = len;
	for (i = len - 64; i < len; i++) {
		refusal.offset = i;
		text[i] ^= ']' ^ '}';
		assert_refused(&refusal, 1);
		text[i] ^= ']' ^ '}';
	}
}

static void
many_siblings_do_not_count_as_levels(void **state)
{
	static const char item[] = "[{}],";
	struct text text = { NULL, 0 };
	char *bytes = malloc(6 + 1000 * (sizeof(item) - 1) + 3);
	char *to;
	size_t i;

	(void)state;
	assert_non_null(bytes);
	to = stpcpy(bytes, "{\"a\":[");
	for (i = 0; i < 1000; i++)
		to = stpcpy(to, item);
	memcpy(to, "0]}", 3);
	text.bytes = bytes;
	text.len = (size_t)(to - bytes) + 3;
	assert_accepted(&text, 1);
	free(bytes);
}

static void
wanted_members_are_found_with_type_and_span(void **state)
{
	static const char text[] =
	    "{ \"n\" : null ,\"b\":false,\"i\":-1.5e3 ,\"s\":\"a\\\"b\",\"x\":"
	    "{\"n\":1},\"l\":[ 1,[]] , \"o\":{\"s\":{}}}";
	static const struct {
		enum json_member_type type;
		const char *value;
	} want[] = { { JSON_NULL, "null" }, { JSON_BOOLEAN, "false" },
		{ JSON_NUMBER, "-1.5e3" }, { JSON_STRING, "\"a\\\"b\"" },
		{ JSON_ARRAY, "[ 1,[]]" }, { JSON_OBJECT, "{\"s\":{}}" } };
	struct json_member members[] = { { .name = "n" }, { .name = "b" },
		{ .name = "i" }, { .name = "s" }, { .name = "l" },
		{ .name = "o" }, { .name = "absent" } };
	struct json_error error;
	size_t i;

	(void)state;
	assert_int_equal(scan_members(text, sizeof(text) - 1, members,
			     COUNT(members), &error),
	    0);
	for (i = 0; i < COUNT(want); i++) {
		assert_int_equal(members[i].type, want[i].type);
		assert_false(members[i].twice);
		assert_int_equal(members[i].len, strlen(want[i].value));
		assert_memory_equal(
		    text + members[i].at, want[i].value, members[i].len);
	}
	assert_int_equal(members[i].type, JSON_ABSENT);
	assert_false(members[i].twice);
}

static void
a_member_is_found_by_its_decoded_name_only(void **state)
{
	static const struct {
		const char *text;
		bool found;
	} cases[] = {
		{ "{\"id\":1}", true },
		{ "{\"\\u0069d\":1}", true },
		{ "{\"\\u0069\\u0064\":1}", true },
		{ "{\"id\\u0000\":1}", false },
		{ "{\"id\\u0000x\":1}", false },
		{ "{\"\\u0000id\":1}", false },
		{ "{\"Id\":1}", false },
		{ "{\"i\":1}", false },
		{ "{\"idd\":1}", false },
		{ "{\"id \":1}", false },
		{ "{\"\":1}", false },
		{ "{\"a\":\"id\"}", false },
		{ "{\"a\":{\"id\":1}}", false },
		{ "{\"a\":[{\"id\":1}]}", false },
	};
	struct json_member id = { .name = "id" };
	struct json_error error;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(cases); i++) {
		assert_int_equal(scan_members(cases[i].text,
				     strlen(cases[i].text), &id, 1, &error),
		    0);
		assert_int_equal(
		    id.type, cases[i].found ? JSON_NUMBER : JSON_ABSENT);
	}
}

static void
a_name_beyond_ascii_is_found_raw_and_escaped(void **state)
{
	static const char *const texts[] = { "{\"\xc3\xa9\xf0\x9f\x8c\xb1\":1}",
		"{\"\\u00e9\\ud83c\\udf31\":1}" };
	struct json_member member = { .name = "\xc3\xa9\xf0\x9f\x8c\xb1" };
	struct json_error error;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(texts); i++) {
		assert_int_equal(scan_members(texts[i], strlen(texts[i]),
				     &member, 1, &error),
		    0);
		assert_int_equal(member.type, JSON_NUMBER);
	}
}

static void
a_repeated_member_is_marked_and_its_first_span_kept(void **state)
{
	static const struct text texts[] = {
		{ BYTES("{\"id\":1,\"id\":\"2\"}") },
		{ BYTES("{\"id\":1,\"\\u0069d\":[2]}") },
		{ BYTES("{\"id\":1,\"a\":{},\"i\\u0064\":{\"id\":3}}") },
		{ BYTES("{\"id\":1,\"id\":2,\"id\":3}") },
	};
	struct json_member id = { .name = "id" };
	struct json_error error;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(texts); i++) {
		assert_int_equal(
		    scan_members(texts[i].bytes, texts[i].len, &id, 1, &error),
		    0);
		assert_true(id.twice);
		assert_int_equal(id.type, JSON_NUMBER);
		assert_int_equal(id.at, 6);
		assert_int_equal(id.len, 1);
	}
}

static void
members_are_reset_before_a_scan(void **state)
{
	struct json_member id = { .name = "id" };
	struct json_error error;

	(void)state;
	assert_int_equal(
	    scan_members(BYTES("{\"id\":1,\"id\":2}"), &id, 1, &error), 0);
	assert_int_equal(scan_members(BYTES("{}"), &id, 1, &error), 0);
	assert_int_equal(id.type, JSON_ABSENT);
	assert_false(id.twice);
}

/*
 * Put every byte at every place of a document.  Whatever comes of it, what
 * stands before a fault must be the beginning of an object, or a whole one.
 */
static void
what_precedes_a_fault_is_good_whatever_byte_is_put_in(void **state)
{
	static const char original[] =
	    "{\"id\":-10.5e1,\"n\\u00e9\":[true,\"\\ud83c\\udf31\xe2\x82\xac\"]"
	    ", \"t\":null}";
	char text[sizeof(original)];
	struct json_error error;
	struct json_error before;
	size_t len = sizeof(original) - 1;
	size_t at;
	int c;

	(void)state;
	memcpy(text, original, sizeof(text));
	for (at = 0; at < len; at++) {
		for (c = 0; c < 256; c++) {
			text[at] = (char)c;
			if (scan(text, len, &error) == 0)
				continue;
			assert_true(error.offset <= len);
			assert_non_null(error.reason);
			assert_null(strpbrk(error.reason, "\"\\"));
			if (scan(text, error.offset, &before) != 0)
				assert_int_equal(
				    before.fault, JSON_FAULT_TRUNCATED);
		}
		text[at] = original[at];
	}
}

static void
integers_are_read_exactly(void **state)
{
	static const struct {
		const char *text;
		int64_t value;
	} cases[] = {
		{ "0", 0 },
		{ "-0", 0 },
		{ "7", 7 },
		{ "-7", -7 },
		{ "9007199254740993", INT64_C(9007199254740993) },
		{ "9223372036854775806", INT64_MAX - 1 },
		{ "9223372036854775807", INT64_MAX },
		{ "-9223372036854775807", INT64_MIN + 1 },
		{ "-9223372036854775808", INT64_MIN },
	};
	int64_t value;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(cases); i++) {
		assert_int_equal(
		    json_int64(cases[i].text, strlen(cases[i].text), &value),
		    JSON_INT_OK);
		assert_true(value == cases[i].value);
	}
}

static void
integers_outside_int64_are_out_of_range(void **state)
{
	static const char *const texts[] = { "9223372036854775808",
		"-9223372036854775809", "9223372036854775810",
		"10000000000000000000", "-10000000000000000000",
		"18446744073709551615", "18446744073709551616",
		"-18446744073709551616", "99999999999999999999",
		"100000000000000000000000000000000000000" };
	int64_t value = 42;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(texts); i++)
		assert_int_equal(json_int64(texts[i], strlen(texts[i]), &value),
		    JSON_INT_RANGE);
	assert_true(value == 42);
}

static void
a_fraction_or_an_exponent_is_no_integer(void **state)
{
	static const char *const texts[] = { "1.0", "-0.0", "1.5", "1e2", "1E2",
		"1e-2", "0e0", "-1e+2", "99999999999999999999.0",
		"99999999999999999999e1" };
	int64_t value = 42;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(texts); i++)
		assert_int_equal(json_int64(texts[i], strlen(texts[i]), &value),
		    JSON_INT_NOT_INTEGER);
	assert_true(value == 42);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_production_of_the_grammar_is_accepted),
		cmocka_unit_test(
		    what_is_not_the_grammar_is_refused_at_the_wrong_byte),
		cmocka_unit_test(literals_are_taken_to_the_letter),
		cmocka_unit_test(numbers_that_json_does_not_know_are_refused),
		cmocka_unit_test(bad_escapes_are_refused_in_keys_and_values),
		cmocka_unit_test(
		    a_raw_control_character_in_a_string_is_refused),
		cmocka_unit_test(utf8_is_checked_in_strings_at_the_wrong_byte),
		cmocka_unit_test(
		    bytes_outside_strings_that_are_not_utf8_are_told_as_such),
		cmocka_unit_test(a_byte_order_mark_is_refused),
		cmocka_unit_test(json_that_is_not_an_object_is_told_as_such),
		cmocka_unit_test(every_beginning_of_an_object_is_truncated),
		cmocka_unit_test(nothing_and_nothing_but_space_are_truncated),
		cmocka_unit_test(
		    a_cut_text_that_no_text_continues_is_not_truncated),
		cmocka_unit_test(
		    sixty_four_levels_are_accepted_and_one_more_is_refused),
		cmocka_unit_test(each_level_remembers_what_closes_it),
		cmocka_unit_test(many_siblings_do_not_count_as_levels),
		cmocka_unit_test(wanted_members_are_found_with_type_and_span),
		cmocka_unit_test(a_member_is_found_by_its_decoded_name_only),
		cmocka_unit_test(a_name_beyond_ascii_is_found_raw_and_escaped),
		cmocka_unit_test(
		    a_repeated_member_is_marked_and_its_first_span_kept),
		cmocka_unit_test(members_are_reset_before_a_scan),
		cmocka_unit_test(
		    what_precedes_a_fault_is_good_whatever_byte_is_put_in),
		cmocka_unit_test(integers_are_read_exactly),
		cmocka_unit_test(integers_outside_int64_are_out_of_range),
		cmocka_unit_test(a_fraction_or_an_exponent_is_no_integer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
