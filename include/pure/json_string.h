/*
 * json_string: the inside of JSON strings (RFC 8259 section 7): characters,
 * escapes and the canonical form.  Pure; any thread.  Total on hostile bytes,
 * except for json_string_decode, which needs a valid token.
 *
 * A string token in canonical form is a quote, valid UTF-8, a quote.  The bytes
 * below 0x20, '"' and '\' are escaped in the shortest way (\b \t \n \f \r \"
 * \\, else \u00 and two lower-case hex digits), and nothing else is escaped.  A
 * string has exactly one canonical form, which is its shortest token.
 */
#pragma once

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
	uint32_t code;      /* the code point; never a surrogate */
	size_t len;         /* in bytes; a surrogate pair is one escape */
	const char *reason; /* of a failure; see below */
};

/*
 * json_string_escape(text, len, escape):
 * Read the escape at the start of `text`, whose first byte is '\'.  Return 0,
 * or -1 with escape->reason in static English and the offset of the first wrong
 * byte in escape->len.  The reason is NULL if the text ends within the escape.
 */
int json_string_escape(
    const char *text, size_t len, struct json_escape *escape);

/*
 * json_string_is(token, len, string), json_string_decode(token, len, text):
 * Return whether the string token, quotes included, decodes to the UTF-8
 * `string`: false if the token is not valid.  Decode a valid token into `text`,
 * which has room for len - 2 bytes, and return the length.  No NUL is added.
 */
bool json_string_is(const char *token, size_t len, const char *string);
size_t json_string_decode(const char *token, size_t len, char *text);

/*
 * json_string_print(text, len, buf):
 * Encode `text` as a string token, quotes included, into `buf`, which has room
 * for 6 * len + 2 bytes, and return its length.  The token is canonical if
 * `text` is valid UTF-8; invalid bytes are copied.
 *
 * json_canonical_string(text, len):
 * If `text` begins with a string token in canonical form, return the token's
 * length, quotes included; else 0.  `text` may be any bytes.
 */
size_t json_string_print(const char *text, size_t len, char *buf);
size_t json_canonical_string(const char *text, size_t len);
