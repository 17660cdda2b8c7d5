/* crc32c: CRC-32C by instruction or by table.  See pure/crc32c.h. */
#include "pure/crc32c.h"

#include <string.h>

/*
 * The CRC of each half byte: polynomial 0x1edc6f41, bits reversed.  x86-64,
 * where speed matters, uses the CPU's instruction instead of the table.
 */
static const uint32_t table[16] = { 0x00000000, 0x105ec76f, 0x20bd8ede,
	0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d, 0x82f63b78,
	0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a,
	0xf36e6f75 };

uint32_t
crc32c_portable(uint32_t crc, const void *buf, size_t len)
{
	const unsigned char *p = buf;

	crc = ~crc;
	for (; len > 0; len--, p++) {
		crc ^= *p;
		crc = (crc >> 4) ^ table[crc & 15];
		crc = (crc >> 4) ^ table[crc & 15];
	}
	return ~crc;
}

#if defined(__x86_64__)
/* The instruction of SSE4.2: 8 bytes at a time. */
__attribute__((target("sse4.2"))) static uint32_t
crc32c_x86(uint32_t crc, const void *buf, size_t len)
{
	const unsigned char *p = buf;
	unsigned long long wide = (uint32_t)~crc;
	unsigned long long word;

	for (; len >= sizeof(word); len -= sizeof(word), p += sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = (uint32_t)wide;
	for (; len > 0; len--, p++)
		crc = __builtin_ia32_crc32qi(crc, *p);
	return ~crc;
}
#endif

uint32_t
crc32c(uint32_t crc, const void *buf, size_t len)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return crc32c_x86(crc, buf, len);
#endif
	return crc32c_portable(crc, buf, len);
}
