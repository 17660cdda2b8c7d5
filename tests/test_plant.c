/*
 * Plants read from what clients send, and json-c held to the canonical form.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "plant/plant.h"
#include "pure/json_string.h"
#include "pure/utf8.h"
#include "sanitized.h"

/* A string literal and its length, NULs included. */
#define BYTES(literal) (literal), sizeof(literal) - 1
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#if !SANITIZED
/*
 * Our own malloc in front of the C library's, which counts and fails one call
 * on demand; the sanitizers have one already.
 */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *block);

static long calls_to_failure = -1; /* -1: none */
static long blocks;                /* allocated and not freed */

static bool
fails_now(void)
{
	if (calls_to_failure < 0 || calls_to_failure-- > 0)
		return false;
	errno = ENOMEM;
	return true;
}

static void *
counted(void *block)
{
	if (block != NULL)
		blocks++;
	return block;
}

void *
malloc(size_t size)
{
	return fails_now() ? NULL : counted(__libc_malloc(size));
}

void *
calloc(size_t n, size_t size)
{
	return fails_now() ? NULL : counted(__libc_calloc(n, size));
}

void *
realloc(void *old, size_t size)
{
	if (fails_now())
		return NULL;
	if (old == NULL)
		return counted(__libc_malloc(size));
	return __libc_realloc(old, size);
}

void
free(void *block)
{
	if (block != NULL)
		blocks--;
	__libc_free(block);
}
#endif

/* Read a copy of exactly that size, so that overreads are seen. */
static enum plant_fault
read_plant(struct plant *plant, const char *body, size_t len)
{
	struct json_error error;
	enum plant_fault fault;
	char *copy = malloc(len);

	assert_non_null(copy);
	memcpy(copy, body, len);
	fault = plant_read(plant, copy, len, &error);
	free(copy);
	return fault;
}

static void
assert_reads(const char *body, size_t len, const char *text, size_t text_len)
{
	struct plant plant;

	assert_int_equal(read_plant(&plant, body, len), PLANT_OK);
	assert_int_equal(plant.len, text_len);
	assert_memory_equal(plant.text, text, text_len);
	assert_true(plant.len <= len);
	plant_done(&plant);
}

static void
assert_faults(const char *body, enum plant_fault fault)
{
	struct plant plant = { 42, NULL, 7 };

	if (read_plant(&plant, body, strlen(body)) != fault)
		fail_msg("another fault: %s", body);
	assert_int_equal(plant.id, 42);
	assert_null(plant.text);
	assert_int_equal(plant.len, 7);
}

static void
a_plant_becomes_its_minimal_text_in_one_order(void **state)
{
	static const char want[] = "{\"id\":1,\"name\":\"Fern\",\"tag\":\"t\"}";

	(void)state;
	assert_reads(BYTES(want), BYTES(want));
	assert_reads(
	    BYTES("{\"tag\":\"t\",\"name\":\"Fern\",\"id\":1}"), BYTES(want));
	assert_reads(BYTES(" {\n\"name\" : \"Fern\" , \"id\" : 1 ,\t\"tag\" : "
			   "\"t\" } \r\n"),
	    BYTES(want));
}

static void
a_tag_that_is_absent_stays_absent(void **state)
{
	static const char want[] = "{\"id\":1,\"name\":\"Fern\"}";

	(void)state;
	assert_reads(BYTES(want), BYTES(want));
}

static void
empty_strings_are_kept(void **state)
{
	static const char want[] = "{\"id\":0,\"name\":\"\",\"tag\":\"\"}";

	(void)state;
	assert_reads(BYTES(want), BYTES(want));
}

static void
other_members_are_allowed_and_not_kept(void **state)
{
	(void)state;
	assert_reads(BYTES("{\"x\":{\"id\":[2]},\"id\":1,\"Name\":3,\"x\":null,"
			   "\"name\":\"a\",\"id\\u0000\":4}"),
	    BYTES("{\"id\":1,\"name\":\"a\"}"));
}

static void
escaped_names_of_members_are_the_members(void **state)
{
	(void)state;
	assert_reads(BYTES("{\"\\u0069d\":1,\"n\\u0061me\":\"a\"}"),
	    BYTES("{\"id\":1,\"name\":\"a\"}"));
}

static void
every_int64_is_an_id_and_minus_zero_is_zero(void **state)
{
	struct plant plant;

	(void)state;
	assert_int_equal(read_plant(&plant, BYTES("{\"id\":9223372036854775807,"
						  "\"name\":\"\"}")),
	    PLANT_OK);
	assert_true(plant.id == INT64_MAX);
	plant_done(&plant);
	assert_int_equal(read_plant(&plant, BYTES("{\"id\":-9223372036854775808"
						  ",\"name\":\"\"}")),
	    PLANT_OK);
	assert_true(plant.id == INT64_MIN);
	assert_int_equal(plant.len, sizeof("{\"id\":-9223372036854775808,"
					   "\"name\":\"\"}") -
					1);
	plant_done(&plant);
	assert_reads(BYTES("{\"id\":-0,\"name\":\"\"}"),
	    BYTES("{\"id\":0,\"name\":\"\"}"));
}

static void
strings_are_brought_into_canonical_form(void **state)
{
	static const struct {
		const char *token;
		const char *canonical;
	} cases[] = {
		{ "\"\\/\"", "\"/\"" },
		{ "\"\\u0041\\u002f\"", "\"A/\"" },
		{ "\"\\u0022\\u005C\"", "\"\\\"\\\\\"" },
		{ "\"\\u0008\\u0009\\u000A\\u000C\\u000D\"",
		    "\"\\b\\t\\n\\f\\r\"" },
		{ "\"\\u000B\\u001F\\u007F\"", "\"\\u000b\\u001f\x7f\"" },
		{ "\"\\u00e9\\u20AC\\u2028\"",
		    "\"\xc3\xa9\xe2\x82\xac\xe2\x80\xa8\"" },
		{ "\"\\ud83c\\udf31 \\uDBFF\\uDFFF\"",
		    "\"\xf0\x9f\x8c\xb1 \xf4\x8f\xbf\xbf\"" },
		{ "\"\xc3\xa9\\/\xf0\x9f\x8c\xb1\"",
		    "\"\xc3\xa9/\xf0\x9f\x8c\xb1\"" },
		{ "\"\\u0000\\u0041\"", "\"\\u0000A\"" },
		{ "\"a\\u0000b\\u0000\\/\"", "\"a\\u0000b\\u0000/\"" },
		{ "\"\\uFEFF\\uFFFF\"", "\"\xef\xbb\xbf\xef\xbf\xbf\"" },
	};
	char body[128];
	char want[128];
	int body_len;
	int want_len;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(cases); i++) {
		body_len = snprintf(body, sizeof(body),
		    "{\"id\":1,\"name\":%s,\"tag\":%s}", cases[i].token,
		    cases[i].token);
		want_len = snprintf(want, sizeof(want),
		    "{\"id\":1,\"name\":%s,\"tag\":%s}", cases[i].canonical,
		    cases[i].canonical);
		assert_reads(body, (size_t)body_len, want, (size_t)want_len);
	}
}

static void
a_long_string_is_kept_whole(void **state)
{
	static const char head[] = "{\"id\":1,\"name\":\"";
	const size_t pairs = 100000;
	char *body = malloc(sizeof(head) + pairs * 3 + 2);
	struct plant plant;
	char *to;
	size_t i;

	(void)state;
	assert_non_null(body);
	to = stpcpy(body, head);
	for (i = 0; i < pairs; i++)
		to = stpcpy(to, "a\\/");
	to = stpcpy(to, "\"}");
	assert_int_equal(
	    read_plant(&plant, body, (size_t)(to - body)), PLANT_OK);
	assert_int_equal(plant.len, sizeof(head) - 1 + pairs * 2 + 2);
	for (i = 0; i < pairs; i++)
		assert_memory_equal(
		    plant.text + sizeof(head) - 1 + i * 2, "a/", 2);
	plant_done(&plant);
	free(body);
}

static void
what_is_no_json_object_is_told_with_place_and_reason(void **state)
{
	static const char body[] = "{\"id\":01,\"name\":\"\"}";
	struct json_error error;
	struct plant plant;

	(void)state;
	assert_int_equal(
	    plant_read(&plant, body, sizeof(body) - 1, &error), PLANT_NOT_JSON);
	assert_int_equal(error.fault, JSON_FAULT_SYNTAX);
	assert_int_equal(error.offset, 7);
	assert_string_equal(error.reason, "leading zero");
}

static void
each_fault_of_the_id_is_told(void **state)
{
	(void)state;
	assert_faults("{\"name\":\"a\"}", PLANT_ID_MISSING);
	assert_faults("{\"ID\":1,\"name\":\"a\"}", PLANT_ID_MISSING);
	assert_faults("{\"id\":1,\"id\":1,\"name\":\"a\"}", PLANT_ID_TWICE);
	assert_faults(
	    "{\"id\":1,\"\\u0069d\":2,\"name\":\"a\"}", PLANT_ID_TWICE);
	assert_faults("{\"id\":\"1\",\"name\":\"a\"}", PLANT_ID_NOT_INTEGER);
	assert_faults("{\"id\":true,\"name\":\"a\"}", PLANT_ID_NOT_INTEGER);
	assert_faults("{\"id\":null,\"name\":\"a\"}", PLANT_ID_NOT_INTEGER);
	assert_faults("{\"id\":[1],\"name\":\"a\"}", PLANT_ID_NOT_INTEGER);
	assert_faults("{\"id\":{},\"name\":\"a\"}", PLANT_ID_NOT_INTEGER);
	assert_faults("{\"id\":1.0,\"name\":\"a\"}", PLANT_ID_NOT_INTEGER);
	assert_faults("{\"id\":1e2,\"name\":\"a\"}", PLANT_ID_NOT_INTEGER);
	assert_faults(
	    "{\"id\":9223372036854775808,\"name\":\"a\"}", PLANT_ID_RANGE);
	assert_faults(
	    "{\"id\":-9223372036854775809,\"name\":\"a\"}", PLANT_ID_RANGE);
}

static void
each_fault_of_the_name_is_told(void **state)
{
	(void)state;
	assert_faults("{\"id\":1}", PLANT_NAME_MISSING);
	assert_faults(
	    "{\"id\":1,\"name\":\"a\",\"name\":\"a\"}", PLANT_NAME_TWICE);
	assert_faults("{\"id\":1,\"name\":2}", PLANT_NAME_NOT_STRING);
	assert_faults("{\"id\":1,\"name\":null}", PLANT_NAME_NOT_STRING);
	assert_faults("{\"id\":1,\"name\":[\"a\"]}", PLANT_NAME_NOT_STRING);
}

static void
each_fault_of_the_tag_is_told(void **state)
{
	(void)state;
	assert_faults("{\"id\":1,\"name\":\"a\",\"tag\":\"\",\"tag\":\"\"}",
	    PLANT_TAG_TWICE);
	assert_faults(
	    "{\"id\":1,\"name\":\"a\",\"tag\":null}", PLANT_TAG_NOT_STRING);
	assert_faults(
	    "{\"id\":1,\"name\":\"a\",\"tag\":0}", PLANT_TAG_NOT_STRING);
}

static void
of_several_faults_the_first_of_the_enumeration_is_told(void **state)
{
	(void)state;
	assert_faults("{}", PLANT_ID_MISSING);
	assert_faults("{\"tag\":1,\"name\":2}", PLANT_ID_MISSING);
	assert_faults("{\"id\":null,\"id\":null}", PLANT_ID_TWICE);
	assert_faults("{\"id\":null,\"tag\":1}", PLANT_ID_NOT_INTEGER);
	assert_faults("{\"id\":99999999999999999999}", PLANT_ID_RANGE);
	assert_faults("{\"id\":1,\"tag\":1,\"tag\":1}", PLANT_NAME_MISSING);
	assert_faults(
	    "{\"tag\":1,\"id\":1,\"name\":0,\"name\":0}", PLANT_NAME_TWICE);
	assert_faults(
	    "{\"id\":1,\"name\":\"\",\"tag\":1,\"tag\":1}", PLANT_TAG_TWICE);
	assert_faults("{\"id\":1,\"name\":\"\",\"tag\":\"", PLANT_NOT_JSON);
}

static void
the_answer_is_the_text_without_its_id(void **state)
{
	static const struct {
		const char *body;
		const char *answer;
	} cases[] = {
		{ "{\"id\":1,\"name\":\"Fern\",\"tag\":\"indoor\"}",
		    "{\"name\":\"Fern\",\"tag\":\"indoor\"}" },
		{ "{\"id\":-9223372036854775808,\"name\":\"\"}",
		    "{\"name\":\"\"}" },
		{ "{\"id\":7,\"name\":\",\\\"id\\\":7\"}",
		    "{\"name\":\",\\\"id\\\":7\"}" },
	};
	struct plant plant;
	size_t len;
	size_t i;
	char *buf;

	(void)state;
	for (i = 0; i < COUNT(cases); i++) {
		assert_int_equal(
		    read_plant(&plant, cases[i].body, strlen(cases[i].body)),
		    PLANT_OK);
		len = plant_answer_len(&plant);
		assert_int_equal(len, strlen(cases[i].answer));
		buf = malloc(len);
		assert_non_null(buf);
		plant_answer(&plant, buf);
		assert_memory_equal(buf, cases[i].answer, len);
		free(buf);
		plant_done(&plant);
	}
}

static void
a_plant_may_be_done_twice_and_zeroed(void **state)
{
	struct plant plant = { 0, NULL, 0 };

	(void)state;
	plant_done(&plant);
	assert_int_equal(
	    read_plant(&plant, BYTES("{\"id\":1,\"name\":\"\"}")), PLANT_OK);
	plant_done(&plant);
	plant_done(&plant);
	assert_null(plant.text);
}

/* What json-c prints for the string must be its canonical form. */
static void
assert_json_c_is_canonical(const char *string, size_t len)
{
	struct json_object *object =
	    json_object_new_string_len(string, (int)len);
	size_t printed;
	const char *text;

	assert_non_null(object);
	text = json_object_to_json_string_length(object,
	    JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &printed);
	assert_non_null(text);
	assert_int_equal(json_canonical_string(text, printed), printed);
	if (memchr(string, 0, len) == NULL)
		assert_true(json_string_is(
		    text, printed, json_object_get_string(object)));
	json_object_put(object);
}

static void
json_c_prints_the_canonical_form_of_every_character(void **state)
{
	char buf[4];
	uint32_t code;

	(void)state;
	for (code = 0; code <= 0x10ffff; code++)
		if (code < 0xd800 || code > 0xdfff)
			assert_json_c_is_canonical(buf, utf8_encode(code, buf));
}

static void
json_c_prints_the_canonical_form_of_mixed_strings(void **state)
{
	(void)state;
	assert_json_c_is_canonical(BYTES(""));
	assert_json_c_is_canonical(BYTES("\0\0a\0/"));
	assert_json_c_is_canonical(BYTES("a\x7f\xe2\x80\xa8\"\\\n"));
	assert_json_c_is_canonical(BYTES("\xf0\x9f\x8c\xb1\x1f\xc3\xa9\v"));
}

static void
an_allocation_that_fails_leaves_no_wrong_text_and_no_block(void **state)
{
#if SANITIZED
	(void)state;
	skip();
#else
	/* Long and mixed, so that json-c's buffers have to grow often. */
	static const char body[] =
	    "{\"id\":1,\"name\":\"\\u0041 name that is long, \\/ and longer, "
	    "\\u00e9, and \\/ longer than the sixty-four bytes, \\/ that a "
	    "buffer has at first, \\/ and the next size too, \\/ and so on, "
	    "\\/ and on, \\u001f, until it has grown more than once \\/ or "
	    "twice\",\"tag\":\"\\/\"}";
	struct plant want;
	struct plant plant;
	struct json_error error;
	enum plant_fault fault;
	bool failed = true;
	long before;
	long n;

	(void)state;
	assert_int_equal(
	    plant_read(&want, body, sizeof(body) - 1, &error), PLANT_OK);
	before = blocks;
	for (n = 0; failed; n++) {
		calls_to_failure = n;
		fault = plant_read(&plant, body, sizeof(body) - 1, &error);
		failed = calls_to_failure < 0;
		calls_to_failure = -1;
		if (fault == PLANT_OK) {
			assert_int_equal(plant.len, want.len);
			assert_memory_equal(plant.text, want.text, want.len);
			plant_done(&plant);
		} else {
			assert_int_equal(fault, PLANT_NO_MEMORY);
			assert_true(failed);
		}
		assert_int_equal(blocks, before);
	}
	assert_true(n > 10);
	plant_done(&want);
#endif
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plant_becomes_its_minimal_text_in_one_order),
		cmocka_unit_test(a_tag_that_is_absent_stays_absent),
		cmocka_unit_test(empty_strings_are_kept),
		cmocka_unit_test(other_members_are_allowed_and_not_kept),
		cmocka_unit_test(escaped_names_of_members_are_the_members),
		cmocka_unit_test(every_int64_is_an_id_and_minus_zero_is_zero),
		cmocka_unit_test(strings_are_brought_into_canonical_form),
		cmocka_unit_test(a_long_string_is_kept_whole),
		cmocka_unit_test(
		    what_is_no_json_object_is_told_with_place_and_reason),
		cmocka_unit_test(each_fault_of_the_id_is_told),
		cmocka_unit_test(each_fault_of_the_name_is_told),
		cmocka_unit_test(each_fault_of_the_tag_is_told),
		cmocka_unit_test(
		    of_several_faults_the_first_of_the_enumeration_is_told),
		cmocka_unit_test(the_answer_is_the_text_without_its_id),
		cmocka_unit_test(a_plant_may_be_done_twice_and_zeroed),
		cmocka_unit_test(
		    json_c_prints_the_canonical_form_of_every_character),
		cmocka_unit_test(
		    json_c_prints_the_canonical_form_of_mixed_strings),
		cmocka_unit_test(
		    an_allocation_that_fails_leaves_no_wrong_text_and_no_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
