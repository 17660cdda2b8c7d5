/*
 * crc32c: the CRC-32C checksum (Castagnoli, RFC 3720 appendix B.4), computed
 * with the CPU's instruction if it has one.  Pure; any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * crc32c(crc, buf, len), crc32c_portable(crc, buf, len):
 * Extend the checksum `crc`, initially 0, by the bytes of `buf`; return it.
 * crc32c_portable, for tests, does not use the CPU's CRC instruction.
 */
uint32_t crc32c(uint32_t crc, const void *buf, size_t len);
uint32_t crc32c_portable(uint32_t crc, const void *buf, size_t len);
