/*
 * json: a strict scanner for one JSON object; the canonical form of strings.
 *
 * The scanner accepts an RFC 8259 text if and only if it is an object, is valid
 * UTF-8 (RFC 3629), has escaped surrogates only in pairs, has no byte order
 * mark, and has at most JSON_DEPTH_MAX levels of arrays and objects.  The
 * scanner finds the wanted members of the outermost object and checks the rest.
 *
 * A string token in canonical form is a quote, valid UTF-8 and a quote.  The
 * bytes below 0x20, '"' and '\' are escaped in the shortest way (\b \t \n \f \r
 * \" \\, else \u00 and two lower-case hex digits), and nothing else is escaped.
 * A string has exactly one canonical form, which is its shortest token.
 *
 * Pure: no allocation, no I/O, no recursion, linear time; any thread.  Total on
 * hostile bytes, but json_int64 and json_string_decode need accepted tokens.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The scanner keeps one bit per level, object or array, in a 64-bit word. */
#define JSON_DEPTH_MAX 64
#define JSON_NAME_MAX 16

/* A member that the caller wants.  The scan fills all except the name. */
struct json_member {
	const char *name; /* in UTF-8, of at most JSON_NAME_MAX bytes */
	bool twice; /* occurred more than once; the span is the first one's */
	size_t at;  /* offset of the value, whose first byte shows its type */
	size_t len; /* of the value, with its quotes or brackets; 0: absent */
};

enum json_fault {
	JSON_FAULT_SYNTAX,    /* not valid RFC 8259, or incomplete */
	JSON_FAULT_UTF8,      /* not valid UTF-8 */
	JSON_FAULT_DEPTH,     /* deeper than JSON_DEPTH_MAX */
	JSON_FAULT_NOT_OBJECT /* the text begins with another JSON value */
};

struct json_error {
	enum json_fault fault;
	size_t offset;      /* of the wrong byte; of the end, if incomplete */
	const char *reason; /* static English: "expected a colon" */
};

enum json_int { JSON_INT_OK, JSON_INT_NOT_INTEGER, JSON_INT_RANGE };

/*
 * json_scan_object(text, len, members, error):
 * Scan `text`.  `members` ends with a NULL name.  Return 0 and fill it; or
 * return -1, fill `error` and leave `members` undefined.  Keys are compared
 * after their escapes are decoded.  Members that are not wanted may repeat.
 *
 * json_int64(text, len, value):
 * Read `text`, exactly one value of an accepted object.  JSON_INT_NOT_INTEGER
 * if it is not a number, or has a fraction or an exponent (OpenAPI 3.1.0,
 * int64); JSON_INT_RANGE if it is an integer outside int64.  "-0" is 0.
 *
 * json_string_decode(token, len, text):
 * Decode a string token, quotes included, into `text`, which has room for
 * len - 2 bytes, and return the length.  No NUL is added.
 *
 * json_string_print(text, len, buf):
 * Encode `text` as a string token, quotes included, into `buf`, which has room
 * for 6 * len + 2 bytes, and return its length.  The token is canonical if
 * `text` is valid UTF-8; invalid bytes are copied.
 *
 * json_canonical_string(text, len):
 * Return the length of the canonical string token at the start of `text`, or 0.
 */
int json_scan_object(const char *text, size_t len, struct json_member *members,
    struct json_error *error);
enum json_int json_int64(const char *text, size_t len, int64_t *value);
size_t json_string_decode(const char *token, size_t len, char *text);
size_t json_string_print(const char *text, size_t len, char *buf);
size_t json_canonical_string(const char *text, size_t len);
