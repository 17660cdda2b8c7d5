/*
 * json: scans JSON (RFC 8259) in one pass.  The open brackets are bits of a
 * word, not a call stack; the caller interprets the members.  Each start checks
 * all strings of a journal, so plain ASCII is skipped in blocks.
 *
 * A fault is reported at the first byte that cannot continue a valid text: the
 * bytes before it are a prefix of some valid text, as is a truncated text.
 */
#include "pure/json.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The letters of the two-character escapes, and their meanings. */
static const char letters[] = "\"\\bfnrt/";
static const char meanings[] = "\"\\\b\f\n\r\t/";

static const char not_utf8[] = "invalid UTF-8";

/*
 * Unless `wrong` is NULL, note why an escape or a character is invalid, and at
 * which of its bytes.  The reason is NULL if the text ends too early.
 */
static size_t
refuse(struct json_error *wrong, size_t at, const char *reason)
{
	if (wrong != NULL)
		*wrong = (struct json_error){ .offset = at, .reason = reason };
	return 0;
}

/*
 * Return the length of the first character of `text`, which is not plain ASCII;
 * 0 if it is invalid (RFC 3629, section 4) or a control character.
 */
static size_t
read_utf8(const char *text, size_t len, struct json_error *wrong)
{
	unsigned char lead = (unsigned char)text[0];
	size_t n = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
	/* The bounds of byte 2; those of bytes 3 and 4 are 0x80 and 0xbf. */
	unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
	unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;

	if (lead < 0x20)
		return refuse(wrong, 0, "raw control character in a string");
	if (lead < 0xc2 || lead > 0xf4)
		return refuse(wrong, 0, not_utf8);
	for (size_t at = 1; at < n; at++, low = 0x80, high = 0xbf) {
		if (at == len)
			return refuse(wrong, at, NULL);
		unsigned char c = (unsigned char)text[at];
		if (c < low || c > high)
			return refuse(wrong, at, not_utf8);
	}
	return n;
}

static char *
put_utf8(char *to, uint32_t code)
{
	/* The number of continuation bytes; each has six bits of `code`. */
	int n = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;

	*to++ = (char)(n > 0 ? 0xff80U >> n | code >> 6 * n : code);
	while (n-- > 0)
		*to++ = (char)(0x80 | (code >> 6 * n & 0x3f));
	return to;
}

#define EACH_BYTE(c) (UINT64_C(0x0101010101010101) * (c))

/* Return how many bytes at the start are ASCII that needs no escape. */
static size_t
plain_run(const char *text, size_t len)
{
	size_t i = 0;
	uint64_t word;

	for (; len - i >= sizeof(word); i += sizeof(word)) {
		memcpy(&word, text + i, sizeof(word));
		uint64_t quote = word ^ EACH_BYTE('"');
		uint64_t slash = word ^ EACH_BYTE('\\');
		/* No high bit is set unless a byte ends the run. */
		uint64_t stops = word | (word - EACH_BYTE(0x20)) |
				 (quote - EACH_BYTE(1)) |
				 (slash - EACH_BYTE(1));
		if ((stops & EACH_BYTE(0x80)) != 0)
			break;
	}
	while (i < len && (unsigned char)text[i] >= 0x20 &&
	       (unsigned char)text[i] < 0x80 && text[i] != '"' &&
	       text[i] != '\\')
		i++;
	return i;
}

/* Return how many bytes at the start are characters that need no escape. */
static size_t
text_run(const char *text, size_t len)
{
	size_t i = 0, n = 1;

	for (; n > 0 && i < len; i += n)
		n = (unsigned char)text[i] < 0x80
			? plain_run(text + i, len - i)
			: read_utf8(text + i, len - i, NULL);
	return i;
}

/* Return the value of a hexadecimal digit; 16 if it is not one. */
static uint32_t
hex_value(char c)
{
	uint32_t digit = (uint32_t)c - '0', letter = ((uint32_t)c | 0x20) - 'a';

	return digit < 10 ? digit : letter < 6 ? letter + 10 : 16;
}

/*
 * Read \uXXXX, and a second one if the first is a high surrogate.  A lone
 * surrogate is reported at the first byte that proves it.
 */
static size_t
read_unicode(
    const char *text, size_t len, uint32_t *code, struct json_error *wrong)
{
	static const char lone[] = "lone surrogate escape";
	uint32_t high = 0, unit = 0;
	size_t i;

	for (i = 2; i < (high == 0 ? 6 : 12); i++) {
		if (i == len)
			return refuse(wrong, i, NULL);
		if (i == 6 || i == 7) {
			if (text[i] != "\\u"[i - 6])
				return refuse(wrong, i, lone);
			continue;
		}
		if (hex_value(text[i]) == 16)
			return refuse(wrong, i, "expected a hexadecimal digit");
		unit = unit << 4 | hex_value(text[i]);
		/* Low surrogates, DC00 to DFFF, are valid only second. */
		if ((i == 3 && unit >> 2 == 0x37) || (i == 8 && unit != 0xd) ||
		    (i == 9 && unit >> 2 != 0x37))
			return refuse(wrong, i, lone);
		/* High surrogates are D800 to DBFF. */
		if (i == 5 && unit >> 10 == 0x36) {
			high = unit;
			unit = 0;
		}
	}
	*code = high == 0 ? unit
			  : 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00);
	return i;
}

/* Return the length of the escape that begins at `text`; 0 if it is invalid. */
static size_t
read_escape(
    const char *text, size_t len, uint32_t *code, struct json_error *wrong)
{
	const char *letter;

	if (len < 2)
		return refuse(wrong, len, NULL);
	if (text[1] == 'u')
		return read_unicode(text, len, code, wrong);
	letter = memchr(letters, text[1], strlen(letters));
	if (letter == NULL)
		return refuse(wrong, 1, "unknown escape");
	*code = (unsigned char)meanings[letter - letters];
	return 2;
}

size_t
json_string_decode(const char *token, size_t len, char *text)
{
	const char *at = token + 1, *end = token + len - 1, *escape;
	char *to = text;
	uint32_t code;

	while ((escape = memchr(at, '\\', (size_t)(end - at))) != NULL) {
		to = mempcpy(to, at, (size_t)(escape - at));
		at = escape +
		     read_escape(escape, (size_t)(end - escape), &code, NULL);
		to = put_utf8(to, code);
	}
	to = mempcpy(to, at, (size_t)(end - at));
	return (size_t)(to - text);
}

/* Write a byte in canonical form: at most 6 bytes, and after 6 a NUL. */
static char *
put_canonical(char *to, unsigned char c)
{
	/* The solidus, last in the list, needs no escape. */
	const char *meaning = memchr(meanings, c, strlen(meanings) - 1);

	if (meaning == NULL && c < 0x20)
		return to + sprintf(to, "\\u%04x", c);
	if (meaning != NULL) {
		*to++ = '\\';
		c = (unsigned char)letters[meaning - meanings];
	}
	*to++ = (char)c;
	return to;
}

/* Return the length of the escape at `text`; 0 if it is not canonical. */
static size_t
canonical_escape(const char *text, size_t len)
{
	uint32_t code = 0x80;
	char again[7];
	size_t n = read_escape(text, len, &code, NULL);

	if (n == 0 || code >= 0x80)
		return 0;
	len = (size_t)(put_canonical(again, (unsigned char)code) - again);
	return len == n && memcmp(text, again, n) == 0 ? n : 0;
}

size_t
json_canonical_string(const char *text, size_t len)
{
	size_t at = 1, n = 1;

	if (len == 0 || text[0] != '"')
		return 0;
	for (; n > 0; at += n) {
		at += text_run(text + at, len - at);
		if (at == len)
			return 0;
		if (text[at] == '"')
			return at + 1;
		n = text[at] == '\\' ? canonical_escape(text + at, len - at)
				     : 0;
	}
	return 0;
}

size_t
json_string_print(const char *text, size_t len, char *buf)
{
	char *to = buf;

	*to++ = '"';
	for (size_t at = 0; at < len;) {
		size_t run = plain_run(text + at, len - at);

		to = mempcpy(to, text + at, run);
		at += run;
		if (at < len)
			to = put_canonical(to, (unsigned char)text[at++]);
	}
	*to++ = '"';
	return (size_t)(to - buf);
}

struct scan {
	const char *text;
	size_t len, at;
	uint64_t objects; /* a bit per level, innermost lowest; 1: object */
	unsigned depth;
	bool opened; /* the last token was an opening bracket */
	struct json_member *members;
	struct json_member *open; /* the wanted member being scanned */
	struct json_error *error;
};

/* A NULL reason means that the text ends too early. */
static int
fail(struct scan *scan, enum json_fault fault, size_t at, const char *reason)
{
	*scan->error = (struct json_error){ fault, at, reason };
	if (reason == NULL)
		*scan->error = (struct json_error){ JSON_FAULT_SYNTAX,
			scan->len, "the text ends before the object does" };
	return -1;
}

/* Fail at the cursor, outside a string: invalid UTF-8, or `reason`. */
static int
fail_expected(struct scan *scan, const char *reason)
{
	size_t left = scan->len - scan->at;
	const char *rest = scan->text + scan->at;

	if (left > 0 && (unsigned char)*rest >= 0x80 &&
	    read_utf8(rest, left, NULL) == 0)
		return fail(scan, JSON_FAULT_UTF8, scan->at, not_utf8);
	return fail(
	    scan, JSON_FAULT_SYNTAX, scan->at, left > 0 ? reason : NULL);
}

/* Return the byte at the cursor, or -1 at the end. */
static int
peek(const struct scan *scan)
{
	return scan->at < scan->len ? (unsigned char)scan->text[scan->at] : -1;
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
	struct json_error wrong;
	uint32_t code;
	size_t n = 1; /* the length of the opening quote */

	do {
		scan->at += n;
		scan->at +=
		    text_run(scan->text + scan->at, scan->len - scan->at);
		if (skip(scan, '"'))
			return 0;
		const char *rest = scan->text + scan->at;
		size_t left = scan->len - scan->at;
		n = left > 0 && *rest != '\\'
			? read_utf8(rest, left, &wrong)
			: read_escape(rest, left, &code, &wrong);
	} while (n > 0);
	return fail(scan,
	    wrong.reason == not_utf8 ? JSON_FAULT_UTF8 : JSON_FAULT_SYNTAX,
	    scan->at + wrong.offset, wrong.reason);
}

static int
scan_digits(struct scan *scan)
{
	if (!isdigit(peek(scan)))
		return fail_expected(scan, "expected a digit");
	while (isdigit(peek(scan)))
		scan->at++;
	return 0;
}

static int
scan_number(struct scan *scan)
{
	skip(scan, '-');
	if (skip(scan, '0')) {
		if (isdigit(peek(scan)))
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

/* Scan a key and its colon; in the outermost object, find a wanted member. */
static int
scan_key(struct scan *scan)
{
	const char *token = scan->text + scan->at;
	char key[6 * JSON_NAME_MAX]; /* each byte may be escaped, as \u0061 */

	if (peek(scan) != '"')
		return fail_expected(scan, "expected a member name in quotes");
	if (scan_string(scan) != 0)
		return -1;
	size_t len = (size_t)(scan->text + scan->at - token);
	bool wanted = scan->depth == 1 && len - 2 <= sizeof(key);
	if (wanted)
		len = json_string_decode(token, len, key);
	struct json_member *member = scan->members;
	for (; wanted && member->name != NULL; member++) {
		if (strlen(member->name) != len ||
		    memcmp(member->name, key, len) != 0)
			continue;
		if (member->len == 0)
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

/* Scan a value, or only the opening bracket of an array or object. */
static int
scan_value(struct scan *scan)
{
	int c = peek(scan);

	if (scan->depth == 1 && scan->open != NULL)
		scan->open->at = scan->at;
	scan->opened = false;
	if (c == '"')
		return scan_string(scan);
	if (c == '-' || isdigit(c))
		return scan_number(scan);
	if (c == 't' || c == 'f' || c == 'n')
		return scan_literal(scan);
	if (c != '{' && c != '[')
		return fail_expected(scan, "expected a value");
	if (scan->depth == JSON_DEPTH_MAX)
		return fail(
		    scan, JSON_FAULT_DEPTH, scan->at, "nested too deeply");
	scan->at++;
	scan->depth++;
	scan->objects = scan->objects << 1 | (c == '{');
	scan->opened = true;
	return 0;
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
		if (!skip(scan, scan->objects & 1 ? '}' : ']'))
			break;
		scan->depth--;
		scan->objects >>= 1;
	}
	if (scan->depth == 0 || scan->opened)
		return 0;
	if (!skip(scan, ','))
		return fail_expected(
		    scan, scan->objects & 1
			      ? "expected a comma or a closing brace"
			      : "expected a comma or a closing bracket");
	skip_space(scan);
	return 0;
}

int
json_scan_object(const char *text, size_t len, struct json_member *members,
    struct json_error *error)
{
	static const char brace[] = "expected an opening brace";
	struct scan scan = {
		.text = text, .len = len, .members = members, .error = error
	};

	for (; members->name != NULL; members++)
		*members = (struct json_member){ .name = members->name };
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		return fail(&scan, JSON_FAULT_SYNTAX, 0, "byte order mark");
	skip_space(&scan);
	int c = peek(&scan);
	if (c > 0 && strchr("[\"-0123456789tfn", c) != NULL)
		return fail(&scan, JSON_FAULT_NOT_OBJECT, scan.at, brace);
	if (c != '{')
		return fail_expected(&scan, brace);
	do {
		if (scan.objects & 1 && scan_key(&scan) != 0)
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
	long long number;

	if (strspn(text, "-0123456789") < len)
		return JSON_INT_NOT_INTEGER;
	errno = 0;
	number = strtoll(text, NULL, 10);
	if (errno == ERANGE)
		return JSON_INT_RANGE;
	*value = number;
	return JSON_INT_OK;
}
