/*
 * UTF-8 at its borders (RFC 3629 section 4).
 */
#include "unit.h"
#include "pure/utf8.h"

static size_t
read_one(const char *bytes, size_t len, size_t *at, const char **reason)
{
	char *copy = exact_copy(bytes, len);
	size_t n = utf8_read(copy, len, at, reason);

	free(copy);
	return n;
}

/* A beginning that the end cuts off is no character, but no fault either. */
TEST(the_first_and_last_character_of_each_class_is_valid)
{
	static const char *const valid[] = { "\xc2\x80", "\xdf\xbf",
		"\xe0\xa0\x80", "\xe0\xbf\xbf", "\xe1\x80\x80", "\xec\xbf\xbf",
		"\xed\x80\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf",
		"\xf0\x90\x80\x80", "\xf0\xbf\xbf\xbf", "\xf1\x80\x80\x80",
		"\xf3\xbf\xbf\xbf", "\xf4\x80\x80\x80", "\xf4\x8f\xbf\xbf" };

	for (size_t i = 0; i < COUNT(valid); i++) {
		size_t at, len = strlen(valid[i]), left = len;
		const char *reason;

		for (; left > 0; left--) {
			assert_int_equal(read_one(valid[i], left, &at, &reason),
			    left == len ? len : 0);
			assert_null(reason);
		}
	}
}

TEST(a_fault_is_told_at_the_first_byte_that_cannot_stand_there)
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
		EACH_TEXT (text, faults[i].texts) {
			const char *reason;
			size_t at;

			assert_int_equal(
			    read_one(*text, strlen(*text), &at, &reason), 0);
			assert_string_equal(reason, faults[i].reason);
			assert_int_equal(at, faults[i].at);
		}
}

TEST(every_character_is_written_as_it_is_read)
{
	const char *reason;
	char buf[4];
	uint32_t code;
	size_t len, at;

	for (code = 0x80; code <= 0x10ffff; code++) {
		len = utf8_encode(code, buf);
		assert_int_equal(len, code < 0x800     ? 2
				      : code < 0x10000 ? 3
						       : 4);
		assert_int_equal(utf8_read(buf, len, &at, &reason),
		    code >= 0xd800 && code <= 0xdfff ? 0 : len);
	}
}

TEST(a_known_character_of_each_length_has_its_known_bytes)
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
