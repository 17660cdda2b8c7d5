/*
 * The scanner against RFC 8259: what it accepts, what it refuses and where it
 * says the fault is.
 */
#include "unit.h"
#include "pure/json.h"

/* Every production, nested, with every kind of space and escape. */
static const char rich[] =
    "\t{ \"id\" : -12.5e+3 ,\r\n\"\\u0069x\":[ ] , \"o\":{ },\"a\":[true, "
    "false,null,[0,{\"\":\"\"}]],\"s\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9"
    "\\ud83c\\uDF31 \xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\xb1 and more\",\"e\":1E-7"
    "\n}";

/* The first and the last character of each class of UTF-8. */
static const char classes[] =
    "{\"a\":\"\xc2\x80\xdf\xbf\xe0\xa0\x80\xe0\xbf\xbf\xe1\x80\x80"
    "\xec\xbf\xbf\xed\x80\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"
    "\xf0\x90\x80\x80\xf0\xbf\xbf\xbf\xf1\x80\x80\x80\xf3\xbf\xbf\xbf"
    "\xf4\x80\x80\x80\xf4\x8f\xbf\xbf\\ud83c\\udf31\"}";

static int
scan_members(const char *bytes, size_t len, struct json_member *members,
    struct json_error *error)
{
	char *copy = exact_copy(bytes, len);
	int result = json_scan_object(copy, len, members, error);
	free(copy);
	return result;
}

static int
scan(const char *bytes, size_t len, struct json_error *error)
{
	struct json_member members[] = { { .name = "id" }, { 0 } };

	return scan_members(bytes, len, members, error);
}

static void
assert_accepted(const char *bytes, size_t len)
{
	struct json_error error;

	if (scan(bytes, len, &error) != 0)
		fail_msg("%s: byte %zu: %s", bytes, error.offset, error.reason);
}

/* A `reason` of NULL is any. */
static void
assert_refused(const char *bytes, size_t len, enum json_fault fault,
    size_t offset, const char *reason)
{
	struct json_error error;

	if (scan(bytes, len, &error) == 0)
		fail_msg("accepted: %s", bytes);
	if (error.fault != fault || error.offset != offset)
		fail_msg("%s: fault %d at %zu: %s", bytes, error.fault,
		    error.offset, error.reason);
	if (reason != NULL)
		assert_string_equal(error.reason, reason);
}

TEST(every_production_of_the_grammar_is_accepted)
{
	static const char *const texts[] = { "{}", " \t\n\r{ \t\n\r} \t\n\r",
		"{\"\":0}", "{\"a\":0,\"b\":1}", "{ \"a\" : 0 , \"b\" : 1 }",
		"{\"a\":true,\"b\":false,\"c\":null}", "{\"a\":[]}",
		"{\"a\":[ ]}", "{\"a\":[0]}",
		"{\"a\":[0,\"\",{},[],true,null]}", "{\"a\":{}}",
		"{\"a\":{\"b\":{\"c\":[{\"d\":[]}]}}}", "{\"a\":-0}",
		"{\"a\":0.0}", "{\"a\":-0.10}", "{\"a\":1e0}", "{\"a\":0E+00}",
		"{\"a\":10.01e-99}", "{\"a\":123456789012345678901234567890}",
		"{\"a\":1e999999}", "{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}",
		"{\"a\":\"\\u0000\\uABCD\\uabcd\"}", "{\"a\\n\\u0000\":\"\"}",
		"{\"a\":\"\x7f\"}", "{\"other\":1,\"other\":2}", rich, classes,
		"{\"a\":\"\xef\xbb\xbf\xef\xbf\xbe\"}", "{\"\xc3\xa9\":1}" };

	for (size_t i = 0; i < COUNT(texts); i++)
		assert_accepted(texts[i], strlen(texts[i]));
}

/*
 * In each text '@' stands before the byte where the fault is, and '%' stands
 * for a NUL.  Two tests below have what is wrong within a string.
 */
static const struct {
	enum json_fault fault;
	const char *reason;
	const char *texts[40]; /* NULL behind the last */
} refusals[] = {
	{ JSON_FAULT_SYNTAX, "expected an opening brace",
	    { "@x", "@}", "@'a'", "@\v{}", "@\f{}", "@\xc2\xa0{}", "@%{}" } },
	{ JSON_FAULT_SYNTAX, "expected a member name in quotes",
	    { "{@]", "{@,}", "{@a:1}", "{@'a':1}", "{@1:1}", "{@null:1}",
		"{\"a\":1,@}", "{@/**/}", "{\"a\":1,@,\"b\":2}", "{@\\",
		"{@\xe2\x80\x9c\":1}" } },
	{ JSON_FAULT_SYNTAX, "expected a colon",
	    { "{\"a\" @1}", "{\"a\"@}", "{\"a\"@=1}" } },
	{ JSON_FAULT_SYNTAX, "expected a value",
	    { "{\"a\":@:1}", "{\"a\":@}", "{\"a\":@,}", "{\"a\":[@}}",
		"{\"a\":[1,@]}", "{\"a\":[@,1]}", "{\"a\":[1,@,2]}",
		"{\"a\":@True}", "{\"a\":@NaN}", "{\"a\":@Infinity}",
		"{\"a\":@undefined}", "{\"a\":@+1}", "{\"a\":@.5}",
		"{\"a\":@\xef\xbc\x91}", "{\"a\":@\xe2\x82\xac}" } },
	{ JSON_FAULT_SYNTAX, "expected a comma or a closing brace",
	    { "{\"a\":1 @\"b\":2}", "{\"a\":1@:2}", "{\"a\":1@]",
		"{\"a\":1@//\n}", "{\"a\":1@%}", "{\"a\":true@x}",
		"{\"a\":1.2@.3}", "{\"a\":1e1@.5}", "{\"a\":1e1@e1}",
		"{\"a\":0@x10}", "{\"a\":1@_000}", "{\"a\":1@a}" } },
	{ JSON_FAULT_SYNTAX, "expected a comma or a closing bracket",
	    { "{\"a\":[1@}}", "{\"a\":[1 @2]}", "{\"a\":[\"b\"@:1]}" } },
	{ JSON_FAULT_SYNTAX, "bytes after the object",
	    { "{}@x", "{} @{}", "{}@}", "{}@,", "{}@]", "{}@%", "{}@\xc3\xa9",
		"{}@\xef\xbb\xbf" } },
	{ JSON_FAULT_SYNTAX, "expected true, false or null",
	    { "{\"a\":tru@}", "{\"a\":tru@E}", "{\"a\":fals@}", "{\"a\":nul@}",
		"{\"a\":n@an}", "{\"a\":t@x" } },
	{ JSON_FAULT_SYNTAX, "expected a digit",
	    { "{\"a\":-@Infinity}", "{\"a\":-@}", "{\"a\":-@-1}",
		"{\"a\":-@.123}", "{\"a\":-2.@}", "{\"a\":2.@e3}",
		"{\"a\":0.@e1}", "{\"a\":1e@}", "{\"a\":1e+@}",
		"{\"a\":1e+@-1}" } },
	{ JSON_FAULT_SYNTAX, "leading zero",
	    { "{\"a\":0@0}", "{\"a\":0@1.5}", "{\"a\":-0@1}", "{\"a\":0@0" } },
	{ JSON_FAULT_SYNTAX, "unknown escape", { "{\"\\@a\":1}" } },
	{ JSON_FAULT_SYNTAX, "lone surrogate escape",
	    { "{\"\\ud800@\":1}", "{\"a\":\"\\ud@c", "{\"a\":\"\\ud800\\u@0",
		"{\"a\":\"\\ud800\\@n" } },
	{ JSON_FAULT_UTF8, "invalid UTF-8", { "{\"a\":-@\x80}" } },
	{ JSON_FAULT_UTF8, "invalid UTF-8",
	    { "{\"a\":@\xc0\x80}", "{\"a\":\"@\xc0" } },
	{ JSON_FAULT_UTF8, "invalid UTF-8",
	    { "{\"a\":1@\xed\xa0\x80}", "{\"a\":\"\xed@\xa0" } },
	{ JSON_FAULT_UTF8, "invalid UTF-8",
	    { "@\xff\xfe{", "{@\xff", "{\"a\":t@\xff}" } },
	{ JSON_FAULT_UTF8, "invalid UTF-8",
	    { "{\"\xe9@\":1}", "@\xef\xbb", "{\"a\"@\xc3:1}", "{}@\xe2\x82" } },
	{ JSON_FAULT_SYNTAX, "byte order mark",
	    { "@\xef\xbb\xbf{}", "@\xef\xbb\xbf" } },
	{ JSON_FAULT_NOT_OBJECT, "expected an opening brace",
	    { "@[]", "  @[{}]", "@\"{}\"", "\n@1", "@-1", "@0", "@9", "@true",
		"@false", "@null" } },
	{ JSON_FAULT_SYNTAX, "the text ends before the object does",
	    { "@", " \t\r\n@" } },
};

TEST(what_is_not_json_is_refused_at_the_first_wrong_byte)
{
	for (size_t i = 0; i < COUNT(refusals); i++)
		EACH_TEXT (text, refusals[i].texts) {
			size_t offset = strcspn(*text, "@"), len = 0;
			char bytes[64];

			for (const char *c = *text; *c != '\0'; c++)
				if (*c != '@')
					bytes[len++] =
					    (char)(*c == '%' ? '\0' : *c);
			bytes[len] = '\0';
			assert_refused(bytes, len, refusals[i].fault, offset,
			    refusals[i].reason);
		}
}

/* The fault is in the string; one that the end cuts off is truncated. */
static void
assert_string_refused(
    const char *string, enum json_fault fault, size_t at, const char *reason)
{
	char text[32];
	size_t len = (size_t)(stpcpy(stpcpy(text, "{\"a\":\""), string) - text);

	assert_refused(text, len, fault, 6 + at, reason);
}

TEST(a_bad_escape_is_told_at_its_first_wrong_byte)
{
	static const char digit[] = "expected a hexadecimal digit";
	static const char lone[] = "lone surrogate escape";
	static const struct {
		const char *reason;
		size_t at;
		const char *texts[5]; /* NULL behind the last */
	} cases[] = {
		{ digit, 2, { "\\ug000", "\\u-001", "\\u+041" } },
		{ digit, 4, { "\\u00G0" } },
		{ digit, 5, { "\\u000\"" } },
		{ digit, 10, { "\\udbff\\udcxx" } },
		{ lone, 3, { "\\udc00", "\\uDFFF", "\\udf31\\ud83c" } },
		{ lone, 6, { "\\ud800\"", "\\ud800a" } },
		{ lone, 7, { "\\ud800\\n" } },
		{ lone, 8, { "\\ud800\\u0041", "\\udbff\\ue000" } },
		{ lone, 9, { "\\ud800\\ud800" } },
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		EACH_TEXT (text, cases[i].texts)
			assert_string_refused(*text, JSON_FAULT_SYNTAX,
			    cases[i].at, cases[i].reason);
	for (int c = 1; c < 256; c++)
		if (c != 'u' && strchr("\"\\/bfnrt", c) == NULL)
			assert_string_refused(
			    (const char[]){ '\\', (char)c, 0 },
			    JSON_FAULT_SYNTAX, 1, "unknown escape");
}

TEST(bad_utf8_is_told_at_the_first_byte_that_cannot_stand_there)
{
	static const struct {
		const char *reason;
		size_t at;
		const char *texts[8]; /* NULL behind the last */
	} cases[] = {
		{ "invalid UTF-8", 0, { "\x80", "\xbf" } },
		{ "invalid UTF-8", 0, { "\xc0\x80", "\xc1\xbf" } },
		{ "invalid UTF-8", 1,
		    { "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xf0\x80\x80\x80",
			"\xf0\x8f\xbf\xbf" } },
		{ "invalid UTF-8", 1, { "\xed\xa0\x80", "\xed\xbf\xbf" } },
		{ "invalid UTF-8", 0, { "\xf5\x80\x80\x80", "\xfe", "\xff" } },
		{ "invalid UTF-8", 1, { "\xf4\x90\x80\x80" } },
		{ "invalid UTF-8", 1,
		    { "\xc2\x7f", "\xdf\xc0", "\xe0\x7f\x80", "\xed\xc0\x80",
			"\xf0\xc0\x80\x80" } },
		{ "invalid UTF-8", 2,
		    { "\xe1\x80\x7f", "\xef\xbf\xc0", "\xf1\x80\x7f\x80" } },
		{ "invalid UTF-8", 3, { "\xf4\x8f\xbf\xc0" } },
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		EACH_TEXT (text, cases[i].texts)
			assert_string_refused(*text, JSON_FAULT_UTF8,
			    cases[i].at, cases[i].reason);
}

TEST(a_raw_control_character_in_a_string_is_refused)
{
	char text[] = "{\"a\":\"b?\"}";

	for (int c = 0; c < 0x20; c++) {
		text[7] = (char)c;
		assert_refused(text, 10, JSON_FAULT_SYNTAX, 7,
		    "raw control character in a string");
	}
	text[7] = 0x20;
	assert_accepted(text, 10);
}

TEST(every_beginning_of_an_object_is_truncated)
{
	static const char truncated[] = "the text ends before the object does";
	struct json_error error;

	for (size_t len = 0; len < sizeof(rich) - 1; len++)
		assert_refused(rich, len, JSON_FAULT_SYNTAX, len, truncated);
	for (size_t len = 0; len < sizeof(classes) - 1; len++)
		assert_refused(classes, len, JSON_FAULT_SYNTAX, len, truncated);
	struct json_member none = { 0 };
	assert_int_equal(json_scan_object(NULL, 0, &none, &error), -1);
	assert_string_equal(error.reason, truncated);
}

/* Write `depth` levels, the top one an object, and return the length. */
static size_t
nest(char *text, size_t depth, const char *open, const char *close)
{
	char *to = stpcpy(text, "{\"a\":");

	for (size_t i = 1; i < depth; i++)
		to = stpcpy(to, open);
	to = stpcpy(to, "0");
	for (size_t i = 1; i < depth; i++)
		to = stpcpy(to, close);
	return (size_t)(stpcpy(to, "}") - text);
}

TEST(sixty_four_levels_are_accepted_and_one_more_is_refused)
{
	static const char *const pairs[][2] = { { "[", "]" },
		{ "{\"b\":", "}" }, { "[0,", "]" } };
	char text[1024];

	for (size_t i = 0; i < COUNT(pairs); i++) {
		assert_accepted(text, nest(text, 64, pairs[i][0], pairs[i][1]));
		assert_refused(text, nest(text, 65, pairs[i][0], pairs[i][1]),
		    JSON_FAULT_DEPTH, 5 + 63 * strlen(pairs[i][0]), NULL);
	}
}

TEST(each_level_remembers_what_closes_it)
{
	char text[1024];
	size_t len = nest(text, 64, "[", "]");

	for (size_t i = len - 64; i < len; i++) {
		text[i] ^= ']' ^ '}';
		assert_refused(text, len, JSON_FAULT_SYNTAX, i, NULL);
		text[i] ^= ']' ^ '}';
	}
}

TEST(many_siblings_do_not_count_as_levels)
{
	char text[6 + 1000 * 5 + 4];
	char *to = stpcpy(text, "{\"a\":[");

	for (size_t i = 0; i < 1000; i++)
		to = stpcpy(to, "[{}],");
	to = stpcpy(to, "0]}");
	assert_accepted(text, (size_t)(to - text));
}

TEST(wanted_members_are_found_with_their_spans)
{
	static const char text[] =
	    "{ \"n\" : null ,\"b\":false,\"i\":-1.5e3 ,\"s\":\"a\\\"b\",\"x\":"
	    "{\"n\":1},\"l\":[ 1,[]] , \"o\":{\"s\":{}}}";
	static const char *const want[] = { "null", "false", "-1.5e3",
		"\"a\\\"b\"", "[ 1,[]]", "{\"s\":{}}" };
	struct json_member members[] = { { .name = "n" }, { .name = "b" },
		{ .name = "i" }, { .name = "s" }, { .name = "l" },
		{ .name = "o" }, { .name = "absent" }, { 0 } };
	struct json_error error;
	size_t i;

	assert_int_equal(
	    scan_members(text, sizeof(text) - 1, members, &error), 0);
	for (i = 0; i < COUNT(want); i++) {
		assert_false(members[i].twice);
		assert_bytes(text + members[i].at, members[i].len, want[i]);
	}
	assert_int_equal(members[i].len, 0);
	assert_false(members[i].twice);
}

TEST(a_member_is_found_by_its_decoded_name_only)
{
	/* A byte longer than any token of the longest name. */
	static const char long_key[] =
	    "{\"id........................................................."
	    "......................................\":1}";
	static const char wide[] = "\xc3\xa9\xf0\x9f\x8c\xb1";
	static const struct {
		const char *name;
		bool found;
		const char *texts[14]; /* NULL behind the last */
	} cases[] = {
		{ "id", true,
		    { "{\"id\":1}", "{\"\\u0069d\":1}",
			"{\"\\u0069\\u0064\":1}" } },
		{ "n/ ", true, { "{\"n\\/ \":1}", "{\"\\u006e\\u002F \":1}" } },
		{ "", true, { "{\"\":1}" } },
		{ "", false, { "{\"\\u0000\":1}", "{\" \":1}" } },
		{ "0123456789abcdef", true,
		    { "{\"\\u0030\\u0031\\u0032\\u0033\\u0034\\u0035"
		      "\\u0036\\u0037\\u0038\\u0039\\u0061\\u0062"
		      "\\u0063\\u0064\\u0065\\u0066\":1}" } },
		{ wide, true,
		    { "{\"\xc3\xa9\xf0\x9f\x8c\xb1\":1}",
			"{\"\\u00e9\\ud83c\\udf31\":1}" } },
		{ "id", false,
		    { "{\"id\\u0000\":1}", "{\"\\u0000id\":1}", "{\"Id\":1}",
			"{\"i\":1}", "{\"idd\":1}", "{\"\":1}", long_key,
			"{\"id\\u0000x\":1}", "{\"\\u0069d\\u0064\":1}",
			"{\"a\":\"id\"}", "{\"a\":{\"id\":1}}",
			"{\"a\":[{\"id\":1}]}" } },
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		EACH_TEXT (text, cases[i].texts) {
			struct json_member members[] = {
				{ .name = cases[i].name }, { 0 }
			};
			struct json_error error;

			assert_int_equal(
			    scan_members(*text, strlen(*text), members, &error),
			    0);
			assert_int_equal(members[0].len, cases[i].found);
		}
}

TEST(a_repeated_member_is_marked_and_its_first_span_kept)
{
	static const char *const texts[] = { "{\"id\":1,\"id\":\"2\"}",
		"{\"id\":1,\"\\u0069d\":[2]}",
		"{\"id\":1,\"a\":{},\"i\\u0064\":{\"id\":3}}",
		"{\"id\":1,\"id\":2,\"id\":3}" };
	struct json_member members[] = { { .name = "id" }, { 0 } };
	const struct json_member *id = members;
	struct json_error error;

	for (size_t i = 0; i < COUNT(texts); i++) {
		assert_int_equal(
		    scan_members(texts[i], strlen(texts[i]), members, &error),
		    0);
		assert_true(id->twice);
		assert_int_equal(id->at, 6);
		assert_int_equal(id->len, 1);
		/* The next scan begins anew. */
		assert_int_equal(scan_members("{}", 2, members, &error), 0);
		assert_int_equal(id->len, 0);
		assert_false(id->twice);
	}
}

TEST(integers_are_read_exactly_and_nothing_else_is)
{
	static const struct {
		enum json_int result;
		int64_t value;
		const char *texts[12]; /* NULL behind the last */
	} cases[] = {
		{ JSON_INT_OK, 0, { "0", "-0" } },
		{ JSON_INT_OK, -7, { "-7" } },
		{ JSON_INT_OK, INT64_C(9007199254740993),
		    { "9007199254740993" } },
		{ JSON_INT_OK, INT64_MAX - 1, { "9223372036854775806" } },
		{ JSON_INT_OK, INT64_MAX, { "9223372036854775807" } },
		{ JSON_INT_OK, INT64_MIN + 1, { "-9223372036854775807" } },
		{ JSON_INT_OK, INT64_MIN, { "-9223372036854775808" } },
		/* 42: the value is left as it was. */
		{ JSON_INT_RANGE, 42,
		    { "9223372036854775808", "-9223372036854775809",
			"9223372036854775810", "10000000000000000000",
			"-10000000000000000000", "18446744073709551615",
			"18446744073709551616", "-18446744073709551616",
			"99999999999999999999",
			"100000000000000000000000000000000000000" } },
		{ JSON_INT_NOT_INTEGER, 42,
		    { "1.0", "-0.0", "1.5", "1e2", "1E2", "1e-2", "0e0",
			"-1e+2", "99999999999999999999.0",
			"99999999999999999999e1", "\"1\"" } },
		{ JSON_INT_NOT_INTEGER, 42,
		    { "true", "null", "[1]", "{}", "\"\"" } },
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		EACH_TEXT (text, cases[i].texts) {
			int64_t value = 42;

			if (json_int64(*text, strlen(*text), &value) !=
			    cases[i].result)
				fail_msg("%s", *text);
			assert_true(value == cases[i].value);
		}
}
