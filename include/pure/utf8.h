/*
 * utf8: UTF-8 by RFC 3629: no overlong form, no surrogate, nothing above
 * U+10FFFF.  Pure; total on hostile bytes; any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * utf8_read(text, len, at, reason):
 * Return the length of the character at the beginning of `text`, which is not
 * ASCII; 0 if it is not valid.  Then `*reason` is static English, and `*at` the
 * offset of the first wrong byte; or `*reason` is NULL: `text` ends too early.
 */
size_t utf8_read(const char *text, size_t len, size_t *at, const char **reason);

/*
 * utf8_encode(code, buf):
 * Write the character, at most 0x10ffff, and return its length, 1 to 4.
 */
size_t utf8_encode(uint32_t code, char buf[static 4]);
