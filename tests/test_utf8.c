/*
 * UTF-8 at its borders (RFC 3629 section 4).
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pure/utf8.h"

struct sequence {
	const char *bytes;
	const char *reason; /* NULL: a character, or the beginning of one */
	size_t at;
};

/* utf8_run on a copy of exactly that size, so that overreads are seen. */
static size_t
run(const char *bytes, size_t len)
{
	char *copy = malloc(len);
	size_t n;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	n = utf8_run(copy, len);
	free(copy);
	return n;
}

static void
the_first_and_last_character_of_each_class_is_valid(void **state)
{
	static const char *const valid[] = { "\xc2\x80", "\xdf\xbf",
		"\xe0\xa0\x80", "\xe0\xbf\xbf", "\xe1\x80\x80", "\xec\xbf\xbf",
		"\xed\x80\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf",
		"\xf0\x90\x80\x80", "\xf0\xbf\xbf\xbf", "\xf1\x80\x80\x80",
		"\xf3\xbf\xbf\xbf", "\xf4\x80\x80\x80", "\xf4\x8f\xbf\xbf" };
	size_t len;
	size_t at;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(valid) / sizeof(valid[0]); i++) {
		len = strlen(valid[i]);
		assert_int_equal(run(valid[i], len), len);
		assert_null(utf8_fault(valid[i], len, &at));
	}
}

static void
a_fault_is_told_at_the_first_byte_that_cannot_stand_there(void **state)
{
	static const struct sequence faults[] = {
		{ "\x80", "UTF-8 continuation byte without a start", 0 },
		{ "\xbf", "UTF-8 continuation byte without a start", 0 },
		{ "\xc0\x80", "overlong UTF-8", 0 },
		{ "\xc1\xbf", "overlong UTF-8", 0 },
		{ "\xe0\x80\xaf", "overlong UTF-8", 1 },
		{ "\xe0\x9f\xbf", "overlong UTF-8", 1 },
		{ "\xf0\x80\x80\x80", "overlong UTF-8", 1 },
		{ "\xf0\x8f\xbf\xbf", "overlong UTF-8", 1 },
		{ "\xed\xa0\x80", "surrogate in UTF-8", 1 },
		{ "\xed\xbf\xbf", "surrogate in UTF-8", 1 },
		{ "\xf4\x90\x80\x80", "UTF-8 above U+10FFFF", 1 },
		{ "\xf5\x80\x80\x80", "UTF-8 above U+10FFFF", 0 },
		{ "\xfe", "UTF-8 above U+10FFFF", 0 },
		{ "\xff", "UTF-8 above U+10FFFF", 0 },
		{ "\xc2\x7f", "incomplete UTF-8 sequence", 1 },
		{ "\xdf\xc0", "incomplete UTF-8 sequence", 1 },
		{ "\xe0\x7f\x80", "incomplete UTF-8 sequence", 1 },
		{ "\xe1\x80\x7f", "incomplete UTF-8 sequence", 2 },
		{ "\xed\xc0\x80", "incomplete UTF-8 sequence", 1 },
		{ "\xef\xbf\xc0", "incomplete UTF-8 sequence", 2 },
		{ "\xf0\xc0\x80\x80", "incomplete UTF-8 sequence", 1 },
		{ "\xf1\x80\x7f\x80", "incomplete UTF-8 sequence", 2 },
		{ "\xf4\x8f\xbf\xc0", "incomplete UTF-8 sequence", 3 },
	};
	const struct sequence *fault;
	size_t at;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		fault = &faults[i];
		assert_int_equal(run(fault->bytes, strlen(fault->bytes)), 0);
		assert_string_equal(
		    utf8_fault(fault->bytes, strlen(fault->bytes), &at),
		    fault->reason);
		assert_int_equal(at, fault->at);
	}
}

static void
a_sequence_the_end_cuts_off_is_no_character_but_no_fault(void **state)
{
	static const char *const whole[] = { "\xc2\x80", "\xe0\xa0\x80",
		"\xed\x9f\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf" };
	size_t len;
	size_t at;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		for (len = 1; len < strlen(whole[i]); len++) {
			assert_int_equal(run(whole[i], len), 0);
			assert_null(utf8_fault(whole[i], len, &at));
		}
	}
}

static void
every_character_is_written_as_it_is_read(void **state)
{
	char buf[4];
	uint32_t code;
	size_t len;

	(void)state;
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
	char buf[4];

	(void)state;
	assert_int_equal(utf8_encode(0x00, buf), 1);
	assert_memory_equal(buf, "\0", 1);
	assert_int_equal(utf8_encode('A', buf), 1);
	assert_memory_equal(buf, "A", 1);
	assert_int_equal(utf8_encode(0xe9, buf), 2);
	assert_memory_equal(buf, "\xc3\xa9", 2);
	assert_int_equal(utf8_encode(0x20ac, buf), 3);
	assert_memory_equal(buf, "\xe2\x82\xac", 3);
	assert_int_equal(utf8_encode(0x1f331, buf), 4);
	assert_memory_equal(buf, "\xf0\x9f\x8c\xb1", 4);
}

static void
a_run_ends_before_ascii_and_before_a_fault(void **state)
{
	(void)state;
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
		cmocka_unit_test(
		    the_first_and_last_character_of_each_class_is_valid),
		cmocka_unit_test(
		    a_fault_is_told_at_the_first_byte_that_cannot_stand_there),
		cmocka_unit_test(
		    a_sequence_the_end_cuts_off_is_no_character_but_no_fault),
		cmocka_unit_test(every_character_is_written_as_it_is_read),
		cmocka_unit_test(
		    a_known_character_of_each_length_has_its_known_bytes),
		cmocka_unit_test(a_run_ends_before_ascii_and_before_a_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
