/*
 * crc32c: the published values, and that instruction and table agree.
 */
#include "unit.h"

#include "pure/crc32c.h"

/* Around every multiple of the instruction's eight bytes, and then some. */
#define LEN_MAX 257
#define OFFSET_MAX 8

/* RFC 3720, appendix B.4, whose table gives the bytes in the wire's order. */
static const struct {
	const char *what;
	unsigned char first, step; /* of the 32 bytes */
	uint32_t crc;
} published[] = {
	{ "zeros", 0, 0, 0x8a9136aa },
	{ "ones", 0xff, 0, 0x62a8ab43 },
	{ "up", 0, 1, 0x46dd794e },
	{ "down", 31, 0xff, 0x113fdb5c },
};
static const char iscsi_read[48] =
    "\x01\xc0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x14\0\0\0\0\0\x04\0\0\0\0\x14\0\0\0"
    "\x18\x28\0\0\0\0\0\0\0\x02";

static void
assert_crc(const void *buf, size_t len, uint32_t crc)
{
	assert_int_equal(crc32c(0, buf, len), crc);
	assert_int_equal(crc32c_portable(0, buf, len), crc);
}

TEST(published_values_are_met_by_both)
{
	for (size_t i = 0; i < COUNT(published); i++) {
		unsigned char buf[32];

		for (unsigned j = 0; j < sizeof buf; j++)
			buf[j] = (unsigned char)(published[i].first +
						 j * published[i].step);
		assert_crc(buf, sizeof buf, published[i].crc);
	}
	assert_crc(iscsi_read, sizeof iscsi_read, 0xd9963a56);
	assert_crc("123456789", 9, 0xe3069283);
}

TEST(nothing_leaves_the_checksum_as_it_was)
{
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

TEST(instruction_and_table_agree_at_every_length_and_offset)
{
	unsigned char bytes[OFFSET_MAX + LEN_MAX];

	fill(bytes, sizeof bytes);
	for (size_t len = 0; len <= LEN_MAX; len++) {
		for (size_t offset = 0; offset < OFFSET_MAX; offset++) {
			/* Of the very size, so that a byte too far shows. */
			unsigned char *buf = exact_copy(bytes, offset + len);
			uint32_t seed = (uint32_t)len * 0x01000193;

			assert_int_equal(crc32c(seed, buf + offset, len),
			    crc32c_portable(seed, buf + offset, len));
			free(buf);
		}
	}
}

TEST(two_parts_have_the_checksum_of_the_whole_wherever_they_meet)
{
	unsigned char buf[LEN_MAX];
	uint32_t whole;

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
