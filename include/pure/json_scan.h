/*
 * json_scan: a strict scanner for one JSON object, over raw bytes.
 *
 * It accepts exactly the texts of RFC 8259 whose top is an object, in valid
 * UTF-8 (RFC 3629), with every escaped surrogate in a pair, without a byte
 * order mark, and with at most JSON_DEPTH_MAX levels of arrays and objects, the
 * top one included.  It finds the wanted members of the top object, and checks
 * the others too.  Pure: no allocation, no I/O, no recursion, total on hostile
 * bytes, linear in time.  Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pure/json_string.h"

/* The scanner keeps one bit per level, object or array, in a 64-bit word. */
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

/* A member that the caller wants.  The scan fills all but the name. */
struct json_member {
	const char *name; /* in UTF-8; compared with the decoded key */
	enum json_member_type type;
	bool twice; /* occurred more than once; the span is the first one's */
	size_t at;  /* offset of the value in the text */
	size_t len; /* of the value, with its quotes or brackets */
};

enum json_fault {
	JSON_FAULT_SYNTAX,    /* not valid by RFC 8259 */
	JSON_FAULT_TRUNCATED, /* a prefix of a JSON text; empty included */
	JSON_FAULT_UTF8,      /* not valid UTF-8 */
	JSON_FAULT_DEPTH,     /* deeper than JSON_DEPTH_MAX */
	JSON_FAULT_NOT_OBJECT /* the text begins with another JSON value */
};

struct json_error {
	enum json_fault fault;
	size_t offset;      /* of the wrong byte; the text's length for
			       JSON_FAULT_TRUNCATED */
	const char *reason; /* static English: "expected a colon" */
};

/*
 * json_scan_object(text, len, members, error):
 * Scan `text`.  `members` ends with a NULL name.  Return 0 with it filled; -1
 * with `error` filled and `members` undefined.  Keys are compared after their
 * escapes are decoded, so "\u0069d" is "id" and "id\u0000" is not.  A wanted
 * member that is repeated is marked `twice`; other members may repeat.
 */
int json_scan_object(const char *text, size_t len, struct json_member *members,
    struct json_error *error);

enum json_int { JSON_INT_OK, JSON_INT_NOT_INTEGER, JSON_INT_RANGE };

/*
 * json_int64(text, len, value):
 * Read the number token `text`, which json_scan_object accepted, exactly.  A
 * number with a fraction or an exponent is JSON_INT_NOT_INTEGER, whatever its
 * value (OpenAPI 3.1.0, int64); outside int64 it is JSON_INT_RANGE.  "-0" is 0.
 * `*value` is written on JSON_INT_OK only.
 */
enum json_int json_int64(const char *text, size_t len, int64_t *value);
