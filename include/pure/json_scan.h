/*
 * json_scan: a strict scanner for one JSON object, over raw bytes.
 *
 * Accepts exactly the texts of RFC 8259 whose top is an object and that are
 * valid UTF-8 (RFC 3629: no overlong form, no surrogate, nothing above
 * U+10FFFF), with every escaped surrogate in a pair, no byte order mark, and at
 * most JSON_DEPTH_MAX levels of arrays and objects, the top one included.
 * Finds the wanted members of the top object; others are checked and passed
 * over.  Pure: no allocation, no I/O, no recursion, total on hostile bytes,
 * linear in time.  Any thread.
 */
#ifndef PURE_JSON_SCAN_H
#define PURE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pure/json_string.h" /* json_canonical_string */

/* One bit of a 64-bit word a level tells an array from an object. */
#define JSON_DEPTH_MAX 64

enum json_member_type {
	JSON_ABSENT, /* the member did not occur */
	JSON_NULL,
	JSON_BOOLEAN,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT
};

/* A member the caller looks for.  The scan fills all but the name. */
struct json_member {
	const char *name; /* in UTF-8; compared with the decoded key */
	enum json_member_type type;
	bool twice; /* occurred more than once; the span is the first */
	size_t at;  /* the value's first byte in the text ... */
	size_t len; /* ... and its length, quotes and brackets included */
};

enum json_fault {
	JSON_FAULT_SYNTAX,    /* not RFC 8259 */
	JSON_FAULT_TRUNCATED, /* a prefix of a JSON text; empty included */
	JSON_FAULT_UTF8,      /* not valid UTF-8 */
	JSON_FAULT_DEPTH,     /* deeper than JSON_DEPTH_MAX */
	JSON_FAULT_NOT_OBJECT /* JSON begins, but not with an object */
};

struct json_error {
	enum json_fault fault;
	size_t offset;      /* of the byte that is wrong, from 0; for
			       JSON_FAULT_TRUNCATED it is the length */
	const char *reason; /* static English: "expected a colon" */
};

/*
 * json_scan_object(text, len, members, nmembers, error):
 * Scan `text`.  Return 0 with `members` filled; -1 with `error` filled and
 * `members` undefined.  Keys are compared after their escapes are decoded, so
 * "\u0069d" is "id" and "id\u0000" is not.  A repeated member that is wanted
 * is marked `twice`, others may repeat.
 */
int json_scan_object(const char *text, size_t len, struct json_member *members,
    size_t nmembers, struct json_error *error);

enum json_int { JSON_INT_OK, JSON_INT_NOT_INTEGER, JSON_INT_RANGE };

/*
 * json_int64(text, len, value):
 * Read the number token `text`, which json_scan_object passed, exactly.  A
 * fraction or an exponent is JSON_INT_NOT_INTEGER, whatever its value (OpenAPI
 * 3.1.0, int64); outside int64 is JSON_INT_RANGE.  "-0" is 0.
 */
enum json_int json_int64(const char *text, size_t len, int64_t *value);

#endif
