/*
 * utf8: UTF-8 by RFC 3629: no overlong form, no surrogate, nothing above
 * U+10FFFF.  Pure; total on hostile bytes; any thread.
 */
#ifndef PURE_UTF8_H
#define PURE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/*
 * utf8_run(text, len):
 * Return how many bytes at the start of `text` are whole, valid characters
 * other than ASCII.
 */
size_t utf8_run(const char *text, size_t len);

/*
 * utf8_fault(text, len, at):
 * Return why the bytes at the start of `text`, of which the first is not ASCII,
 * are not a character: static English, with the offset of the first wrong byte
 * in `*at`.  NULL if they are a character, or the beginning of one that the end
 * of `text` cuts off.
 */
const char *utf8_fault(const char *text, size_t len, size_t *at);

/*
 * utf8_encode(code, buf):
 * Write the character, at most 0x10ffff, and return its length, 1 to 4.
 */
size_t utf8_encode(uint32_t code, char buf[static 4]);

#endif
