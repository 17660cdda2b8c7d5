/*
 * crc32c: the published values, and that instruction and table agree.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pure/crc32c.h"

/* Around every multiple of the instruction's eight bytes, and then some. */
#define LEN_MAX 257
#define OFFSET_MAX 8

/* RFC 3720, appendix B.4, whose table gives the bytes in the wire's order. */
static const unsigned char zeros[32];
static const unsigned char ones[32] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff };
static const unsigned char up[32] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
	13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
	31 };
static const unsigned char down[32] = { 31, 30, 29, 28, 27, 26, 25, 24, 23, 22,
	21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2,
	1, 0 };
/* clang-format off */
static const unsigned char iscsi_read[48] = {
	0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
	0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18,
	0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
};
/* clang-format on */

static const struct {
	const void *buf;
	size_t len;
	uint32_t crc;
} published[] = {
	{ zeros, sizeof zeros, 0x8a9136aa },
	{ ones, sizeof ones, 0x62a8ab43 },
	{ up, sizeof up, 0x46dd794e },
	{ down, sizeof down, 0x113fdb5c },
	{ iscsi_read, sizeof iscsi_read, 0xd9963a56 },
	{ "123456789", 9, 0xe3069283 },
};

static void
published_values_are_met_by_both(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
		assert_int_equal(crc32c(0, published[i].buf, published[i].len),
		    published[i].crc);
		assert_int_equal(
		    crc32c_portable(0, published[i].buf, published[i].len),
		    published[i].crc);
	}
}

static void
nothing_leaves_the_checksum_as_it_was(void **state)
{
	(void)state;
	assert_int_equal(crc32c(0, "", 0), 0);
	assert_int_equal(crc32c(0xe3069283, "", 0), 0xe3069283);
	assert_int_equal(crc32c_portable(0xe3069283, "", 0), 0xe3069283);
}

/* Bytes that differ, the same in every run. */
static void
fill(unsigned char *buf, size_t len)
{
	uint32_t x = 1;

	for (size_t i = 0; i < len; i++) {
		x = x * 1664525 + 1013904223;
		buf[i] = (unsigned char)(x >> 24);
	}
}

static void
instruction_and_table_agree_at_every_length_and_offset(void **state)
{
	unsigned char bytes[OFFSET_MAX + LEN_MAX];

	(void)state;
	fill(bytes, sizeof bytes);
	for (size_t len = 0; len <= LEN_MAX; len++) {
		for (size_t offset = 0; offset < OFFSET_MAX; offset++) {
			/* Of the very size, so that a byte too far shows. */
			size_t size = offset + len;
			unsigned char *buf = malloc(size > 0 ? size : 1);
			uint32_t seed = (uint32_t)len * 0x01000193;

			assert_non_null(buf);
			memcpy(buf, bytes, size);
			assert_int_equal(crc32c(seed, buf + offset, len),
			    crc32c_portable(seed, buf + offset, len));
			free(buf);
		}
	}
}

static void
two_parts_have_the_checksum_of_the_whole_wherever_they_meet(void **state)
{
	unsigned char buf[LEN_MAX];
	uint32_t whole;

	(void)state;
	fill(buf, sizeof buf);
	whole = crc32c_portable(0, buf, sizeof buf);
	for (size_t cut = 0; cut <= sizeof buf; cut++) {
		uint32_t first = crc32c(0, buf, cut);

		assert_int_equal(
		    crc32c(first, buf + cut, sizeof buf - cut), whole);
		first = crc32c_portable(0, buf, cut);
		assert_int_equal(
		    crc32c_portable(first, buf + cut, sizeof buf - cut), whole);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_values_are_met_by_both),
		cmocka_unit_test(nothing_leaves_the_checksum_as_it_was),
		cmocka_unit_test(
		    instruction_and_table_agree_at_every_length_and_offset),
		cmocka_unit_test(
		    two_parts_have_the_checksum_of_the_whole_wherever_they_meet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
