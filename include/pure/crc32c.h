/*
 * crc32c: the CRC-32C checksum (Castagnoli, RFC 3720 appendix B.4), by the
 * processor's instruction if it has one.  Pure; any thread.
 */
#ifndef PURE_CRC32C_H
#define PURE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * crc32c(crc, buf, len):
 * Return the checksum of the bytes whose checksum is `crc`, followed by `buf`.
 * Start with 0:
 * crc32c(0, "123456789", 9) is 0xe3069283, and
 * crc32c(crc32c(0, a, n), b, m) is the checksum of a then b.
 */
uint32_t crc32c(uint32_t crc, const void *buf, size_t len);

/*
 * crc32c_portable(crc, buf, len):
 * The same without the instruction; exported for tests.
 */
uint32_t crc32c_portable(uint32_t crc, const void *buf, size_t len);

#endif
