/*
 * UTF-8 at its borders (RFC 3629 section 4).
 */
#include "unit.h"
#include "pure/utf8.h"

static size_t
run(const char *bytes, size_t len)
{
	char *copy = exact_copy(bytes, len);
	size_t n = utf8_run(copy, len);

	free(copy);
	return n;
}

/* A beginning that the end cuts off is no character, but no fault either. */
static void
the_first_and_last_character_of_each_class_is_valid(void **state)
{
	static const char *const valid[] = { "\xc2\x80", "\xdf\xbf",
		"\xe0\xa0\x80", "\xe0\xbf\xbf", "\xe1\x80\x80", "\xec\xbf\xbf",
		"\xed\x80\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf",
		"\xf0\x90\x80\x80", "\xf0\xbf\xbf\xbf", "\xf1\x80\x80\x80",
		"\xf3\xbf\xbf\xbf", "\xf4\x80\x80\x80", "\xf4\x8f\xbf\xbf" };

	for (size_t i = 0; i < COUNT(valid); i++) {
		size_t at, len = strlen(valid[i]);

		assert_int_equal(run(valid[i], len), len);
		assert_null(utf8_fault(valid[i], len, &at));
		while (--len > 0) {
			assert_int_equal(run(valid[i], len), 0);
			assert_null(utf8_fault(valid[i], len, &at));
		}
	}
}

static void
a_fault_is_told_at_the_first_byte_that_cannot_stand_there(void **state)
{
	static const struct {
		const char *reason;
		size_t at;
		const char *texts[8]; /* NULL behind the last */
	} faults[] = {
		{ "UTF-8 continuation byte without a start", 0,
		    { "\x80", "\xbf" } },
		{ "overlong UTF-8", 0, { "\xc0\x80", "\xc1\xbf" } },
		{ "overlong UTF-8", 1,
		    { "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xf0\x80\x80\x80",
			"\xf0\x8f\xbf\xbf" } },
		{ "surrogate in UTF-8", 1, { "\xed\xa0\x80", "\xed\xbf\xbf" } },
		{ "UTF-8 above U+10FFFF", 0,
		    { "\xf5\x80\x80\x80", "\xfe", "\xff" } },
		{ "UTF-8 above U+10FFFF", 1, { "\xf4\x90\x80\x80" } },
		{ "incomplete UTF-8 sequence", 1,
		    { "\xc2\x7f", "\xdf\xc0", "\xe0\x7f\x80", "\xed\xc0\x80",
			"\xf0\xc0\x80\x80" } },
		{ "incomplete UTF-8 sequence", 2,
		    { "\xe1\x80\x7f", "\xef\xbf\xc0", "\xf1\x80\x7f\x80" } },
		{ "incomplete UTF-8 sequence", 3, { "\xf4\x8f\xbf\xc0" } },
	};

	for (size_t i = 0; i < COUNT(faults); i++)
		for (const char *const *text = faults[i].texts; *text != NULL;
		     text++) {
			size_t at, len = strlen(*text);

			assert_int_equal(run(*text, len), 0);
			assert_string_equal(
			    utf8_fault(*text, len, &at), faults[i].reason);
			assert_int_equal(at, faults[i].at);
		}
}

static void
every_character_is_written_as_it_is_read(void **state)
{
	char buf[4];
	uint32_t code;
	size_t len;

	for (code = 0x80; code <= 0x10ffff; code++) {
		len = utf8_encode(code, buf);
		assert_int_equal(len, code < 0x800     ? 2
				      : code < 0x10000 ? 3
						       : 4);
		if (code >= 0xd800 && code <= 0xdfff)
			assert_int_equal(utf8_run(buf, len), 0);
		else
			assert_int_equal(utf8_run(buf, len), len);
	}
}

static void
a_known_character_of_each_length_has_its_known_bytes(void **state)
{
	static const struct {
		uint32_t code;
		const char *bytes;
	} cases[] = { { 'A', "A" }, { 0xe9, "\xc3\xa9" },
		{ 0x20ac, "\xe2\x82\xac" }, { 0x1f331, "\xf0\x9f\x8c\xb1" } };
	char buf[4];

	for (size_t i = 0; i < COUNT(cases); i++)
		assert_bytes(
		    buf, utf8_encode(cases[i].code, buf), cases[i].bytes);
	assert_int_equal(utf8_encode(0x00, buf), 1);
	assert_memory_equal(buf, "\0", 1);
}

static void
a_run_ends_before_ascii_and_before_a_fault(void **state)
{
	assert_int_equal(run("\xc3\xa9\xe2\x82\xac"
			     "A\xc3\xa9",
			     8),
	    5);
	assert_int_equal(run("\xc3\xa9\xf0\x9f\x8c\xb1\x80", 7), 6);
	assert_int_equal(run("\xc3\xa9\xe2\x82", 4), 2);
	assert_int_equal(run("A", 1), 0);
	assert_int_equal(run("", 0), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_first_and_last_character_of_each_class_is_valid),
		TEST(a_fault_is_told_at_the_first_byte_that_cannot_stand_there),
		TEST(every_character_is_written_as_it_is_read),
		TEST(a_known_character_of_each_length_has_its_known_bytes),
		TEST(a_run_ends_before_ascii_and_before_a_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
