/*
 * The bytes of JSON strings.  Everything here looks at one run of characters or
 * one escape; where strings begin and what they are for is json_scan's to know.
 *
 * The journal's replay checks every string it holds, so plain ASCII, which is
 * nearly all of it, is passed over in blocks.
 */
#include "pure/json_string.h"

#include <assert.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "pure/utf8.h"

/* Plain: ASCII that may stand in a string unescaped. */
static bool
is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

#ifdef __SSE2__

#define BLOCK 16

static size_t
plain_in_block(const char *text)
{
	__m128i block = _mm_loadu_si128((const void *)text);
	/* Signed, so that the bytes above 0x7f are below 0x20 too. */
	__m128i other = _mm_cmplt_epi8(block, _mm_set1_epi8(0x20));
	__m128i quote = _mm_cmpeq_epi8(block, _mm_set1_epi8('"'));
	__m128i slash = _mm_cmpeq_epi8(block, _mm_set1_epi8('\\'));
	__m128i stops = _mm_or_si128(other, _mm_or_si128(quote, slash));
	int mask = _mm_movemask_epi8(stops);

	return mask == 0 ? BLOCK : (size_t)__builtin_ctz((unsigned)mask);
}

#else

#define BLOCK 8
#define EACH_BYTE(c) (UINT64_C(0x0101010101010101) * (c))

/* The high bit is set in some byte if some byte of `word` is below `n`. */
static uint64_t
has_less(uint64_t word, unsigned n)
{
	return (word - EACH_BYTE(n)) & ~word & EACH_BYTE(0x80);
}

static size_t
plain_in_block(const char *text)
{
	uint64_t word;
	size_t i = 0;

	memcpy(&word, text, sizeof(word));
	if (((word & EACH_BYTE(0x80)) | has_less(word, 0x20) |
		has_less(word ^ EACH_BYTE('"'), 1) |
		has_less(word ^ EACH_BYTE('\\'), 1)) == 0)
		return BLOCK;
	while (i < BLOCK && is_plain((unsigned char)text[i]))
		i++;
	return i;
}

#endif

static size_t
plain_run(const char *text, size_t len)
{
	size_t i = 0;
	size_t n;

	for (; len - i >= BLOCK; i += BLOCK) {
		n = plain_in_block(text + i);
		if (n < BLOCK)
			return i + n;
	}
	while (i < len && is_plain((unsigned char)text[i]))
		i++;
	return i;
}

size_t
json_string_run(const char *text, size_t len)
{
	size_t i = 0;
	size_t n;

	for (;;) {
		i += plain_run(text + i, len - i);
		if (i == len || (unsigned char)text[i] < 0x80)
			return i;
		n = utf8_run(text + i, len - i);
		if (n == 0)
			return i;
		i += n;
	}
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
	if (c >= '0' && c <= '9')
		return (uint32_t)(c - '0');
	if (c >= 'a' && c <= 'f')
		return (uint32_t)(c - 'a') + 10;
	if (c >= 'A' && c <= 'F')
		return (uint32_t)(c - 'A') + 10;
	return 16;
}

/*
 * Read the four digits of a UTF-16 code unit at `at`.  A low surrogate is
 * refused where none is wanted, and anything else where one is, at the first
 * digit that says so.
 */
static int
escape_unit(const char *text, size_t len, size_t at, bool want_low,
    struct json_escape *escape)
{
	uint32_t code = 0;
	uint32_t digit;
	bool low;
	size_t i;

	for (i = 0; i < 4; i++) {
		if (at + i >= len)
			return escape_fault(escape, len, NULL);
		digit = hex_value(text[at + i]);
		if (digit == 16)
			return escape_fault(
			    escape, at + i, "expected a hexadecimal digit");
		code = code << 4 | digit;
		low = i == 0 ? want_low && code == 0xd : code >> 2 == 0x37;
		if (i < 2 && low != want_low)
			return escape_fault(
			    escape, at + i, "lone surrogate escape");
	}
	escape->code = code;
	return 0;
}

/* Read \uXXXX, and a second one if the first is a high surrogate. */
static int
escape_unicode(const char *text, size_t len, struct json_escape *escape)
{
	uint32_t high;
	size_t i;

	if (escape_unit(text, len, 2, false, escape) != 0)
		return -1;
	escape->len = 6;
	if (escape->code >> 10 != 0x36)
		return 0;
	high = escape->code - 0xd800;
	for (i = 6; i < 8; i++) {
		if (i == len)
			return escape_fault(escape, len, NULL);
		if (text[i] != (i == 6 ? '\\' : 'u'))
			return escape_fault(escape, i, "lone surrogate escape");
	}
	if (escape_unit(text, len, 8, true, escape) != 0)
		return -1;
	escape->code = 0x10000 + (high << 10) + (escape->code - 0xdc00);
	escape->len = 12;
	return 0;
}

/* The letters of the two-character escapes, and what they stand for. */
static const char letters[] = "\"\\/bfnrt";
static const char meanings[] = "\"\\/\b\f\n\r\t";

int
json_string_escape(const char *text, size_t len, struct json_escape *escape)
{
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

bool
json_string_is(const char *token, size_t len, const char *string)
{
	struct json_escape escape;
	size_t left = strlen(string);
	size_t end = len - 1;
	size_t at = 1;
	char buf[4];
	size_t step;
	size_t n;
	const char *from;

	for (; at < end; at += step) {
		if (token[at] == '\\') {
			if (json_string_escape(token + at, end - at, &escape) !=
			    0)
				return false;
			n = utf8_encode(escape.code, buf);
			step = escape.len;
			from = buf;
		} else {
			n = step = json_string_run(token + at, end - at);
			from = token + at;
		}
		if (n == 0 || n > left || memcmp(from, string, n) != 0)
			return false;
		string += n;
		left -= n;
	}
	return left == 0;
}

/* The length of the character's canonical form. */
static size_t
canonical_char_len(uint32_t code)
{
	char buf[4];

	if (code == '"' || code == '\\')
		return 2;
	if (code >= 0x20)
		return utf8_encode(code, buf);
	/* \b \t \n \f \r; 0x0b has no letter. */
	return code >= 0x08 && code <= 0x0d && code != 0x0b ? 2 : 6;
}

size_t
json_string_canonical_len(const char *token, size_t len)
{
	struct json_escape escape;
	size_t canonical = 2;
	size_t end = len - 1;
	size_t at = 1;
	size_t n;
	int failed;

	while (at < end) {
		n = json_string_run(token + at, end - at);
		at += n;
		canonical += n;
		if (at == end)
			break;
		failed = json_string_escape(token + at, end - at, &escape);
		assert(failed == 0);
		(void)failed;
		at += escape.len;
		canonical += canonical_char_len(escape.code);
	}
	return canonical;
}

/* The length of the escape at `text` if it is in canonical form; else 0. */
static size_t
canonical_escape(const char *text, size_t len)
{
	struct json_escape escape;

	if (json_string_escape(text, len, &escape) != 0)
		return 0;
	if (escape.code >= 0x20 && escape.code != '"' && escape.code != '\\')
		return 0;
	if (escape.len != canonical_char_len(escape.code))
		return 0;
	/* Of six bytes, only the last can be a letter: \u0000 to \u001f. */
	if (escape.len == 6 && text[5] >= 'A' && text[5] <= 'F')
		return 0;
	return escape.len;
}

size_t
json_canonical_string(const char *text, size_t len)
{
	size_t at = 1;
	size_t n;

	if (len < 2 || text[0] != '"')
		return 0;
	for (;;) {
		at += json_string_run(text + at, len - at);
		if (at == len)
			return 0;
		if (text[at] == '"')
			return at + 1;
		if (text[at] != '\\')
			return 0;
		n = canonical_escape(text + at, len - at);
		if (n == 0)
			return 0;
		at += n;
	}
}

/* Write the canonical form of a character that must be escaped. */
static char *
put_escape(char *to, unsigned char c)
{
	static const char from_8[] = "btn\0fr";

	*to++ = '\\';
	if (c == '"' || c == '\\')
		*to++ = (char)c;
	else if (canonical_char_len(c) == 2)
		*to++ = from_8[c - 8];
	else {
		memcpy(to, "u00", 3);
		to[3] = (char)('0' + (c >> 4));
		to[4] = "0123456789abcdef"[c & 15];
		to += 5;
	}
	return to;
}

size_t
json_string_print(const char *text, size_t len, char *buf)
{
	char *to = buf;

	*to++ = '"';
	for (size_t at = 0; at < len;) {
		size_t run = plain_run(text + at, len - at);
		unsigned char c;

		memcpy(to, text + at, run);
		to += run;
		at += run;
		if (at == len)
			break;
		c = (unsigned char)text[at++];
		if (c >= 0x80)
			*to++ = (char)c;
		else
			to = put_escape(to, c);
	}
	*to++ = '"';
	return (size_t)(to - buf);
}
