/* crc32c: CRC-32C by instruction or by table.  See pure/crc32c.h. */
#include "pure/crc32c.h"

#include <string.h>

/* The polynomial 0x1edc6f41, bits reversed. */
#define POLYNOMIAL 0x82f63b78U

#define R1(c) ((c)&1 ? ((c) >> 1) ^ POLYNOMIAL : (c) >> 1)
#define R4(c) R1(R1(R1(R1((uint32_t)(c)))))

/*
 * Half a byte at a time: 16 entries that the compiler computes.  x86-64, where
 * speed matters, uses the instruction.
 */
static const uint32_t table[16] = { R4(0), R4(1), R4(2), R4(3), R4(4), R4(5),
	R4(6), R4(7), R4(8), R4(9), R4(10), R4(11), R4(12), R4(13), R4(14),
	R4(15) };

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
