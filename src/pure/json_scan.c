/*
 * json_scan: RFC 8259's grammar in one pass, the open brackets as bits of one
 * word instead of a call stack.  json_string and utf8 check the inside of
 * strings; the caller interprets the members.
 *
 * A fault is reported at the first byte that cannot continue a valid text: the
 * bytes before it are a prefix of some valid text, as is a truncated text.
 */
#include "pure/json_scan.h"

#include <string.h>

#include "pure/utf8.h"

struct scan {
	const char *text;
	size_t len, at;
	uint64_t objects; /* a bit per level, innermost lowest; 1: object */
	unsigned depth;
	bool opened; /* the last token was an opening bracket */
	struct json_member *members;
	struct json_member *open; /* the wanted one being scanned */
	struct json_error *error;
};

static int
fail(struct scan *scan, enum json_fault fault, size_t at, const char *reason)
{
	*scan->error = (struct json_error){ fault, at, reason };
	return -1;
}

static int
fail_truncated(struct scan *scan)
{
	return fail(scan, JSON_FAULT_TRUNCATED, scan->len,
	    "the text ends before the object does");
}

/* Fail at the cursor, outside a string: invalid UTF-8, or `reason`. */
static int
fail_expected(struct scan *scan, const char *reason)
{
	size_t left = scan->len - scan->at, ignored;
	const char *rest = scan->text + scan->at, *why;

	if (left == 0)
		return fail_truncated(scan);
	if ((unsigned char)*rest < 0x80 ||
	    utf8_read(rest, left, &ignored, &why) > 0)
		return fail(scan, JSON_FAULT_SYNTAX, scan->at, reason);
	return fail(scan, JSON_FAULT_UTF8, scan->at,
	    why != NULL ? why : "incomplete UTF-8 sequence");
}

/* The byte at the cursor, or -1 at the end. */
static int
peek(const struct scan *scan)
{
	if (scan->at == scan->len)
		return -1;
	return (unsigned char)scan->text[scan->at];
}

static bool
skip(struct scan *scan, int c)
{
	if (peek(scan) != c)
		return false;
	scan->at++;
	return true;
}

static void
skip_space(struct scan *scan)
{
	while (skip(scan, ' ') || skip(scan, '\n') || skip(scan, '\r') ||
	       skip(scan, '\t'))
		;
}

static int
scan_string(struct scan *scan)
{
	struct json_escape escape;
	const char *rest, *reason;
	size_t left, at;

	scan->at++;
	for (;;) {
		scan->at += json_string_run(
		    scan->text + scan->at, scan->len - scan->at);
		if (skip(scan, '"'))
			return 0;
		rest = scan->text + scan->at;
		left = scan->len - scan->at;
		if (left == 0)
			return fail_truncated(scan);
		if (*rest != '\\')
			break;
		if (json_string_escape(rest, left, &escape) == 0)
			scan->at += escape.len;
		else if (escape.reason == NULL)
			return fail_truncated(scan);
		else
			return fail(scan, JSON_FAULT_SYNTAX,
			    scan->at + escape.len, escape.reason);
	}
	if ((unsigned char)*rest < 0x20)
		return fail(scan, JSON_FAULT_SYNTAX, scan->at,
		    "raw control character in a string");
	utf8_read(rest, left, &at, &reason);
	if (reason == NULL)
		return fail_truncated(scan);
	return fail(scan, JSON_FAULT_UTF8, scan->at + at, reason);
}

static bool
is_digit(int c)
{
	return c >= '0' && c <= '9';
}

static int
scan_digits(struct scan *scan)
{
	if (!is_digit(peek(scan)))
		return fail_expected(scan, "expected a digit");
	while (is_digit(peek(scan)))
		scan->at++;
	return 0;
}

static int
scan_number(struct scan *scan)
{
	skip(scan, '-');
	if (skip(scan, '0')) {
		if (is_digit(peek(scan)))
			return fail_expected(scan, "leading zero");
	} else if (scan_digits(scan) != 0) {
		return -1;
	}
	if (skip(scan, '.') && scan_digits(scan) != 0)
		return -1;
	if (skip(scan, 'e') || skip(scan, 'E')) {
		if (!skip(scan, '+'))
			skip(scan, '-');
		if (scan_digits(scan) != 0)
			return -1;
	}
	return 0;
}

static int
scan_literal(struct scan *scan)
{
	int c = peek(scan);
	const char *literal = c == 't' ? "true" : c == 'f' ? "false" : "null";

	for (; *literal != '\0'; literal++)
		if (!skip(scan, *literal))
			return fail_expected(
			    scan, "expected true, false or null");
	return 0;
}

/* The type of the values that begin with `c`; JSON_ABSENT if none do. */
static enum json_member_type
type_by_first(int c)
{
	return c == '{'                  ? JSON_OBJECT
	       : c == '['                ? JSON_ARRAY
	       : c == '"'                ? JSON_STRING
	       : c == 't' || c == 'f'    ? JSON_BOOLEAN
	       : c == 'n'                ? JSON_NULL
	       : c == '-' || is_digit(c) ? JSON_NUMBER
					 : JSON_ABSENT;
}

/* Scan a key and its colon; in the top object, look for a wanted member. */
static int
scan_key(struct scan *scan)
{
	size_t start = scan->at;

	if (peek(scan) != '"')
		return fail_expected(scan, "expected a member name in quotes");
	if (scan_string(scan) != 0)
		return -1;
	for (struct json_member *member = scan->members;
	     scan->depth == 1 && member->name != NULL; member++) {
		if (!json_string_is(
			scan->text + start, scan->at - start, member->name))
			continue;
		if (member->type == JSON_ABSENT)
			scan->open = member;
		else
			member->twice = true;
	}
	skip_space(scan);
	if (!skip(scan, ':'))
		return fail_expected(scan, "expected a colon");
	skip_space(scan);
	return 0;
}

static bool
in_object(const struct scan *scan)
{
	return (scan->objects & 1) != 0;
}

/* Scan a value, or only the opening bracket of an array or object. */
static int
scan_value(struct scan *scan)
{
	enum json_member_type type = type_by_first(peek(scan));

	if (scan->depth == 1 && scan->open != NULL) {
		scan->open->type = type;
		scan->open->at = scan->at;
	}
	scan->opened = type == JSON_OBJECT || type == JSON_ARRAY;
	switch (type) {
	case JSON_OBJECT:
	case JSON_ARRAY:
		if (scan->depth == JSON_DEPTH_MAX)
			return fail(scan, JSON_FAULT_DEPTH, scan->at,
			    "nested too deeply");
		scan->at++;
		scan->depth++;
		scan->objects = scan->objects << 1 | (type == JSON_OBJECT);
		return 0;
	case JSON_STRING:
		return scan_string(scan);
	case JSON_NUMBER:
		return scan_number(scan);
	case JSON_BOOLEAN:
	case JSON_NULL:
		return scan_literal(scan);
	case JSON_ABSENT:
		break;
	}
	return fail_expected(scan, "expected a value");
}

/*
 * After a value or an opening bracket, scan the closing brackets that follow.
 * Return 0 at the next member or element, or at the end of the whole object.
 */
static int
scan_ends(struct scan *scan)
{
	for (; scan->depth > 0; scan->opened = false) {
		if (scan->depth == 1 && scan->open != NULL) {
			scan->open->len = scan->at - scan->open->at;
			scan->open = NULL;
		}
		skip_space(scan);
		if (!skip(scan, in_object(scan) ? '}' : ']'))
			break;
		scan->depth--;
		scan->objects >>= 1;
	}
	if (scan->depth == 0 || scan->opened)
		return 0;
	if (!skip(scan, ','))
		return fail_expected(scan,
		    in_object(scan) ? "expected a comma or a closing brace"
				    : "expected a comma or a closing bracket");
	skip_space(scan);
	return 0;
}

/* Skip to the opening brace of the text's object. */
static int
scan_begin(struct scan *scan)
{
	if (scan->len >= 3 && memcmp(scan->text, "\xef\xbb\xbf", 3) == 0)
		return fail(scan, JSON_FAULT_SYNTAX, 0, "byte order mark");
	skip_space(scan);
	if (peek(scan) == '{')
		return 0;
	if (type_by_first(peek(scan)) != JSON_ABSENT)
		return fail(scan, JSON_FAULT_NOT_OBJECT, scan->at,
		    "expected an opening brace");
	return fail_expected(scan, "expected an opening brace");
}

int
json_scan_object(const char *text, size_t len, struct json_member *members,
    struct json_error *error)
{
	struct scan scan = {
		.text = text, .len = len, .members = members, .error = error
	};

	for (; members->name != NULL; members++)
		*members = (struct json_member){ .name = members->name };
	if (scan_begin(&scan) != 0)
		return -1;
	do {
		if (in_object(&scan) && scan_key(&scan) != 0)
			return -1;
		if (scan_value(&scan) != 0 || scan_ends(&scan) != 0)
			return -1;
	} while (scan.depth > 0);
	skip_space(&scan);
	if (scan.at < len)
		return fail_expected(&scan, "bytes after the object");
	return 0;
}

enum json_int
json_int64(const char *text, size_t len, int64_t *value)
{
	bool negative = text[0] == '-';
	int64_t number = 0;

	for (size_t i = negative; i < len; i++)
		if (!is_digit(text[i]))
			return JSON_INT_NOT_INTEGER;
	/* Accumulate below 0: -INT64_MIN does not fit into an int64_t. */
	for (size_t i = negative; i < len; i++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_sub_overflow(number, text[i] - '0', &number))
			return JSON_INT_RANGE;
	if (!negative && __builtin_sub_overflow(INT64_C(0), number, &number))
		return JSON_INT_RANGE;
	*value = number;
	return JSON_INT_OK;
}
