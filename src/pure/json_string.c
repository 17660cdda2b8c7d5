/*
 * The inside of JSON strings.  The start checks every string of the journal, so
 * plain ASCII, nearly all of it, is passed over in blocks.
 */
#include "pure/json_string.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "pure/utf8.h"

/* How many bytes at the start are ASCII that needs no escape. */
static size_t
plain_run(const char *text, size_t len)
{
	size_t i = 0;

#ifdef __SSE2__
	for (; len - i >= sizeof(__m128i); i += sizeof(__m128i)) {
		__m128i block = _mm_loadu_si128((const void *)(text + i));
		/* A signed comparison puts the bytes above 0x7f below 0x20. */
		__m128i other = _mm_cmplt_epi8(block, _mm_set1_epi8(0x20));
		__m128i quote = _mm_cmpeq_epi8(block, _mm_set1_epi8('"'));
		__m128i slash = _mm_cmpeq_epi8(block, _mm_set1_epi8('\\'));
		__m128i stops = _mm_or_si128(other, _mm_or_si128(quote, slash));
		int mask = _mm_movemask_epi8(stops);

		if (mask != 0)
			return i + (size_t)__builtin_ctz((unsigned)mask);
	}
#endif
	while (i < len && (unsigned char)text[i] >= 0x20 &&
	       (unsigned char)text[i] < 0x80 && text[i] != '"' &&
	       text[i] != '\\')
		i++;
	return i;
}

size_t
json_string_run(const char *text, size_t len)
{
	size_t i = 0, n = 1, at;
	const char *reason;

	for (; n > 0 && i < len; i += n)
		n = (unsigned char)text[i] < 0x80
			? plain_run(text + i, len - i)
			: utf8_read(text + i, len - i, &at, &reason);
	return i;
}

static int
escape_fault(struct json_escape *escape, size_t at, const char *reason)
{
	escape->len = at;
	escape->reason = reason;
	return -1;
}

/* The value of a hexadecimal digit, or 16. */
static uint32_t
hex_value(char c)
{
	uint32_t digit = (uint32_t)c - '0', letter = ((uint32_t)c | 0x20) - 'a';

	return digit < 10 ? digit : letter < 6 ? letter + 10 : 16;
}

/*
 * Read \uXXXX, and a second one if the first is a high surrogate.  The fault of
 * a lone surrogate is at the first byte that proves it.
 */
static int
escape_unicode(const char *text, size_t len, struct json_escape *escape)
{
	static const char lone[] = "lone surrogate escape";
	uint32_t high = 0, unit = 0;
	size_t i;

	for (i = 2; i < (high == 0 ? 6 : 12); i++) {
		if (i == len)
			return escape_fault(escape, len, NULL);
		if (i == 6 || i == 7) {
			if (text[i] != "\\u"[i - 6])
				return escape_fault(escape, i, lone);
			continue;
		}
		if (hex_value(text[i]) == 16)
			return escape_fault(
			    escape, i, "expected a hexadecimal digit");
		unit = unit << 4 | hex_value(text[i]);
		/* Low surrogates, DC00 to DFFF, are valid second only. */
		if ((i == 3 && unit >> 2 == 0x37) || (i == 8 && unit != 0xd) ||
		    (i == 9 && unit >> 2 != 0x37))
			return escape_fault(escape, i, lone);
		/* High surrogates are D800 to DBFF. */
		if (i == 5 && unit >> 10 == 0x36) {
			high = unit;
			unit = 0;
		}
	}
	escape->len = i;
	escape->code =
	    high == 0 ? unit
		      : 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00);
	return 0;
}

int
json_string_escape(const char *text, size_t len, struct json_escape *escape)
{
	/* The letters of the two-character escapes, and their meanings. */
	static const char letters[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	const char *letter;

	if (len < 2)
		return escape_fault(escape, len, NULL);
	if (text[1] == 'u')
		return escape_unicode(text, len, escape);
	letter = memchr(letters, text[1], sizeof(letters) - 1);
	if (letter == NULL)
		return escape_fault(escape, 1, "unknown escape");
	escape->code = (unsigned char)meanings[letter - letters];
	escape->len = 2;
	return 0;
}

/*
 * Decode the next piece of a string: an unescaped run, or one escape, decoded
 * into `buf`.  Advance `*at` and return the piece's length; 0 if there is none.
 */
static size_t
next_piece(
    const char **at, const char *end, char buf[static 4], const char **piece)
{
	struct json_escape escape;
	size_t len = json_string_run(*at, (size_t)(end - *at));

	*piece = *at;
	*at += len;
	if (len > 0 || *at == end || **at != '\\' ||
	    json_string_escape(*at, (size_t)(end - *at), &escape) != 0)
		return len;
	*piece = buf;
	*at += escape.len;
	return utf8_encode(escape.code, buf);
}

bool
json_string_is(const char *token, size_t len, const char *string)
{
	const char *at = token + 1, *end = token + len - 1, *piece;
	size_t left = strlen(string), n;
	char buf[4];

	for (; at < end; string += n, left -= n) {
		n = next_piece(&at, end, buf, &piece);
		if (n == 0 || n > left || memcmp(piece, string, n) != 0)
			return false;
	}
	return left == 0;
}

size_t
json_string_decode(const char *token, size_t len, char *text)
{
	const char *at = token + 1, *end = token + len - 1, *piece;
	char *to = text, buf[4];
	size_t n;

	while ((n = next_piece(&at, end, buf, &piece)) > 0)
		to = mempcpy(to, piece, n);
	return (size_t)(to - text);
}

/* Write a character below 0x80 in canonical form, at most 6 bytes. */
static char *
put_ascii(char *to, unsigned char c)
{
	static const char letters[] = "btn\0fr"; /* of the characters 8 to 13 */

	if (c >= 0x20 && c != '"' && c != '\\') {
		*to++ = (char)c;
		return to;
	}
	*to++ = '\\';
	if (c >= 0x20)
		*to++ = (char)c;
	else if (c >= 8 && c <= 13 && letters[c - 8] != '\0')
		*to++ = letters[c - 8];
	else {
		to = mempcpy(to, "u00", 3);
		*to++ = (char)('0' + (c >> 4));
		*to++ = "0123456789abcdef"[c & 15];
	}
	return to;
}

/* The length of the escape at `text` if it is in canonical form; else 0. */
static size_t
canonical_escape(const char *text, size_t len)
{
	struct json_escape escape;
	char again[6];

	if (json_string_escape(text, len, &escape) != 0 || escape.code >= 0x80)
		return 0;
	len = (size_t)(put_ascii(again, (unsigned char)escape.code) - again);
	return len == escape.len && memcmp(text, again, len) == 0 ? len : 0;
}

size_t
json_canonical_string(const char *text, size_t len)
{
	size_t at = 1, n = 1;

	if (len < 2 || text[0] != '"')
		return 0;
	for (; n > 0; at += n) {
		at += json_string_run(text + at, len - at);
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
	for (size_t at = 0; at < len; at++) {
		size_t run = plain_run(text + at, len - at);

		to = mempcpy(to, text + at, run);
		at += run;
		if (at == len)
			break;
		if ((unsigned char)text[at] >= 0x80)
			*to++ = text[at];
		else
			to = put_ascii(to, (unsigned char)text[at]);
	}
	*to++ = '"';
	return (size_t)(to - buf);
}
