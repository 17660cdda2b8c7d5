/*
 * json_string: the inside of JSON strings (RFC 8259 section 7): characters,
 * escapes and the canonical form.  Pure; total on hostile bytes, except where a
 * valid token is asked for.  Any thread.
 *
 * A string token in canonical form is a quote, valid UTF-8, a quote.  The bytes
 * below 0x20, '"' and '\' are escaped in the shortest way (\b \t \n \f \r \"
 * \\, else \u00 and two lower-case hex digits), and nothing else is escaped.  A
 * string has exactly one canonical form, and no token of it is shorter.
 */
#ifndef PURE_JSON_STRING_H
#define PURE_JSON_STRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * json_string_run(text, len):
 * Return how many bytes at the start of `text` are whole, valid UTF-8
 * characters that may stand in a string unescaped.
 */
size_t json_string_run(const char *text, size_t len);

struct json_escape {
	uint32_t code;      /* the character; never a surrogate */
	size_t len;         /* of the escape; of both in a surrogate pair */
	const char *reason; /* on failure; see below */
};

/*
 * json_string_escape(text, len, escape):
 * Read the escape at the start of `text`, whose first byte is '\'.  Return 0;
 * -1 with escape->reason, static English, and escape->len the offset of the
 * first wrong byte.  The reason is NULL if only the rest of the escape is
 * missing.
 */
int json_string_escape(
    const char *text, size_t len, struct json_escape *escape);

/*
 * json_string_is(token, len, string), json_string_decode(token, len, text):
 * Return whether the string token, quotes included, means `string`, in UTF-8:
 * false for a token that is not valid.  Write what a valid one means into
 * `text`, which has room for len - 2 bytes, and return the length, without a
 * terminating NUL.
 */
bool json_string_is(const char *token, size_t len, const char *string);
size_t json_string_decode(const char *token, size_t len, char *text);

/*
 * json_string_print(text, len, buf):
 * Write the token that means `text`, quotes included, into `buf`, which has
 * room for 6 * len + 2 bytes, and return its length.  It is in canonical form
 * if `text` is valid UTF-8; bytes that are not valid are copied.
 *
 * json_canonical_string(text, len):
 * If `text` begins with a string token in canonical form, return the token's
 * length, quotes included; else 0.  `text` may be any bytes.
 */
size_t json_string_print(const char *text, size_t len, char *buf);
size_t json_canonical_string(const char *text, size_t len);

#endif
