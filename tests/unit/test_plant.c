/*
 * Plants read from what clients send, and json-c held to the canonical form.
 */
#include "unit.h"

#include <inttypes.h>
#include <stdio.h>

#include <json-c/json.h>

#include "fault_shim.h"
#include "plant/plant.h"
#include "pure/json.h"

static enum plant_fault
read_plant(struct plant *plant, const char *body, size_t len)
{
	struct json_error error;
	char *copy = exact_copy(body, len);
	enum plant_fault fault = plant_read(plant, copy, len, &error);

	free(copy);
	return fault;
}

TEST(a_plant_becomes_its_minimal_text_in_one_order)
{
	static const char *const cases[][2] = {
		{ "{\"id\":1,\"name\":\"Fern\",\"tag\":\"t\"}",
		    "{\"id\":1,\"name\":\"Fern\",\"tag\":\"t\"}" },
		{ "{\"tag\":\"t\",\"name\":\"Fern\",\"id\":1}",
		    "{\"id\":1,\"name\":\"Fern\",\"tag\":\"t\"}" },
		{ " {\n\"name\" : \"Fern\" , \"id\" : 1 ,\t\"tag\" : \"t\" } "
		  "\r\n",
		    "{\"id\":1,\"name\":\"Fern\",\"tag\":\"t\"}" },
		/* An absent tag stays absent, and empty strings are kept. */
		{ "{\"id\":1,\"name\":\"Fern\"}",
		    "{\"id\":1,\"name\":\"Fern\"}" },
		{ "{\"id\":0,\"name\":\"\",\"tag\":\"\"}",
		    "{\"id\":0,\"name\":\"\",\"tag\":\"\"}" },
		/* Other members are allowed and not kept. */
		{ "{\"x\":{\"id\":[2]},\"id\":1,\"Name\":3,\"x\":null,"
		  "\"name\":\"a\",\"id\\u0000\":4}",
		    "{\"id\":1,\"name\":\"a\"}" },
		/* Names of members may be escaped. */
		{ "{\"\\u0069d\":1,\"n\\u0061me\":\"a\"}",
		    "{\"id\":1,\"name\":\"a\"}" },
		/* -0 is 0. */
		{ "{\"id\":-0,\"name\":\"\"}", "{\"id\":0,\"name\":\"\"}" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct plant plant;

		if (read_plant(&plant, cases[i][0], strlen(cases[i][0])) !=
		    PLANT_OK)
			fail_msg("not read: %s", cases[i][0]);
		assert_bytes(plant.text, plant.len, cases[i][1]);
		plant_done(&plant);
	}
}

TEST(every_int64_is_an_id)
{
	static const int64_t ids[] = { INT64_MIN, INT64_MIN + 1, -1, 0, 1,
		INT64_MAX - 1, INT64_MAX };

	for (size_t i = 0; i < COUNT(ids); i++) {
		struct plant plant;
		char body[64];
		int len = snprintf(body, sizeof body,
		    "{\"id\":%" PRId64 ",\"name\":\"\"}", ids[i]);

		assert_int_equal(
		    read_plant(&plant, body, (size_t)len), PLANT_OK);
		assert_true(plant.id == ids[i]);
		assert_bytes(plant.text, plant.len, body);
		plant_done(&plant);
	}
}

TEST(a_long_string_is_kept_whole)
{
	static const char head[] = "{\"id\":1,\"name\":\"";
	const size_t pairs = 100000;
	char *body = memory(sizeof(head) + pairs * 3 + 2);
	struct plant plant;
	char *to;
	size_t i;

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
}

TEST(what_is_no_json_object_is_told_with_place_and_reason)
{
	static const char body[] = "{\"id\":01,\"name\":\"\"}";
	struct json_error error;
	struct plant plant;

	assert_int_equal(
	    plant_read(&plant, body, sizeof(body) - 1, &error), PLANT_NOT_JSON);
	assert_int_equal(error.fault, JSON_FAULT_SYNTAX);
	assert_int_equal(error.offset, 7);
	assert_string_equal(error.reason, "leading zero");
}

/* Some have several faults: the first of the enumeration counts. */
TEST(each_fault_is_reported_and_leaves_the_plant_as_it_was)
{
	static const struct {
		enum plant_fault fault;
		const char *bodies[10]; /* NULL behind the last */
	} cases[] = {
		{ PLANT_NOT_JSON, { "{\"id\":1,\"name\":\"\",\"tag\":\"" } },
		{ PLANT_ID_MISSING,
		    { "{\"name\":\"a\"}", "{\"ID\":1,\"name\":\"a\"}", "{}",
			"{\"tag\":1,\"name\":2}" } },
		{ PLANT_ID_TWICE,
		    { "{\"id\":1,\"id\":1,\"name\":\"a\"}",
			"{\"id\":1,\"\\u0069d\":2,\"name\":\"a\"}",
			"{\"id\":null,\"id\":null}" } },
		{ PLANT_ID_NOT_INTEGER, { "{\"id\":\"1\",\"name\":\"a\"}",
					    "{\"id\":true,\"name\":\"a\"}",
					    "{\"id\":null,\"name\":\"a\"}",
					    "{\"id\":[1],\"name\":\"a\"}",
					    "{\"id\":{},\"name\":\"a\"}",
					    "{\"id\":1.0,\"name\":\"a\"}",
					    "{\"id\":1e2,\"name\":\"a\"}",
					    "{\"id\":null,\"tag\":1}" } },
		{ PLANT_ID_RANGE,
		    { "{\"id\":9223372036854775808,\"name\":\"a\"}",
			"{\"id\":-9223372036854775809,\"name\":\"a\"}",
			"{\"id\":99999999999999999999}" } },
		{ PLANT_NAME_MISSING,
		    { "{\"id\":1}", "{\"id\":1,\"tag\":1,\"tag\":1}" } },
		{ PLANT_NAME_TWICE,
		    { "{\"id\":1,\"name\":\"a\",\"name\":\"a\"}",
			"{\"tag\":1,\"id\":1,\"name\":0,\"name\":0}" } },
		{ PLANT_NAME_NOT_STRING,
		    { "{\"id\":1,\"name\":2}", "{\"id\":1,\"name\":null}",
			"{\"id\":1,\"name\":[\"a\"]}" } },
		{ PLANT_TAG_TWICE,
		    { "{\"id\":1,\"name\":\"a\",\"tag\":\"\",\"tag\":\"\"}",
			"{\"id\":1,\"name\":\"\",\"tag\":1,\"tag\":1}" } },
		{ PLANT_TAG_NOT_STRING,
		    { "{\"id\":1,\"name\":\"a\",\"tag\":null}",
			"{\"id\":1,\"name\":\"a\",\"tag\":0}" } },
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		EACH_TEXT (body, cases[i].bodies) {
			struct plant plant = { 42, NULL, 7 };

			if (read_plant(&plant, *body, strlen(*body)) !=
			    cases[i].fault)
				fail_msg("another fault: %s", *body);
			assert_int_equal(plant.id, 42);
			assert_null(plant.text);
			assert_int_equal(plant.len, 7);
		}
}

TEST(the_answer_is_the_text_without_its_id)
{
	static const struct {
		const char *body, *answer;
	} cases[] = {
		{ "{\"id\":1,\"name\":\"Fern\",\"tag\":\"indoor\"}",
		    "{\"name\":\"Fern\",\"tag\":\"indoor\"}" },
		{ "{\"id\":-9223372036854775808,\"name\":\"\"}",
		    "{\"name\":\"\"}" },
		{ "{\"id\":7,\"name\":\",\\\"id\\\":7\"}",
		    "{\"name\":\",\\\"id\\\":7\"}" },
	};
	struct plant plant;

	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_int_equal(
		    read_plant(&plant, cases[i].body, strlen(cases[i].body)),
		    PLANT_OK);
		char *buf = memory(strlen(cases[i].answer));
		size_t len = plant_answer(&plant, buf);
		assert_bytes(buf, len, cases[i].answer);
		plant_done(&plant);
	}
}

TEST(a_plant_may_be_done_twice_and_zeroed)
{
	struct plant plant = { 0, NULL, 0 };

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
	char again[64];
	size_t printed;
	const char *text;

	assert_non_null(object);
	text = json_object_to_json_string_length(object,
	    JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &printed);
	assert_non_null(text);
	assert_int_equal(json_canonical_string(text, printed), printed);
	assert_true(printed - 2 <= sizeof(again));
	assert_int_equal(json_string_decode(text, printed, again), len);
	assert_memory_equal(again, string, len);
	json_object_put(object);
}

TEST(json_c_prints_the_canonical_form)
{
	for (uint32_t code = 0; code <= 0x10ffff; code++) {
		char token[16], text[16];
		int len = code < 0x10000 ? sprintf(token, "\"\\u%04x\"", code)
					 : sprintf(token, "\"\\u%04x\\u%04x\"",
					       0xd7c0 + (code >> 10),
					       0xdc00 | (code & 0x3ff));

		if (code < 0xd800 || code > 0xdfff)
			assert_json_c_is_canonical(
			    text, json_string_decode(token, (size_t)len, text));
	}
	assert_json_c_is_canonical(BYTES(""));
	assert_json_c_is_canonical(BYTES("\0\0a\0/"));
	assert_json_c_is_canonical(BYTES("a\x7f\xe2\x80\xa8\"\\\n"));
	assert_json_c_is_canonical(BYTES("\xf0\x9f\x8c\xb1\x1f\xc3\xa9\v"));
}

#if ALLOC_CAN_FAIL
TEST(an_allocation_that_fails_leaves_no_wrong_text)
{
	/* Long and mixed, so that json-c's buffers have to grow often. */
	static const char body[] =
	    "{\"id\":1,\"name\":\"\\u0041 name that is long, \\/ and longer, "
	    "\\u00e9, and \\/ longer than the sixty-four bytes, \\/ that a "
	    "buffer has at first, \\/ and the next size too, \\/ and so on, "
	    "\\/ and on, \\u001f, until it has grown more than once \\/ or "
	    "twice\",\"tag\":\"\\/\"}";
	struct plant want, plant;
	struct json_error error;
	bool failed = true;
	unsigned n;

	assert_int_equal(
	    plant_read(&want, body, sizeof(body) - 1, &error), PLANT_OK);
	for (n = 1; failed; n++) {
		alloc_fail(n, 1);
		enum plant_fault fault =
		    plant_read(&plant, body, sizeof(body) - 1, &error);
		failed = alloc_reset();
		if (fault == PLANT_OK) {
			assert_int_equal(plant.len, want.len);
			assert_memory_equal(plant.text, want.text, want.len);
			plant_done(&plant);
		} else {
			assert_int_equal(fault, PLANT_NO_MEMORY);
			assert_true(failed);
		}
	}
	assert_true(n > 10);
	plant_done(&want);
}
#endif
