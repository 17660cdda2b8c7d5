/*
 * UTF-8, checked byte by byte against the table of RFC 3629 section 4.  ASCII
 * is left to the caller, who can pass over it faster.
 */
#include "pure/utf8.h"

#include <stdbool.h>

/*
 * The length of a sequence that begins with `lead`, and the bounds of its
 * second byte; the bytes after that are 0x80 to 0xbf (RFC 3629 section 4).  0
 * if none begins so.
 */
static size_t
shape(unsigned char lead, unsigned char *low, unsigned char *high)
{
	*low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
	*high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
	if (lead < 0xc2 || lead > 0xf4)
		return 0;
	return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

static bool
is_continuation(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* The length of the sequence of two bytes or more at `text`; 0 if none. */
static size_t
sequence(const char *text, size_t len)
{
	unsigned char low;
	unsigned char high;
	unsigned char second;
	size_t n = shape((unsigned char)text[0], &low, &high);

	if (n == 0 || n > len)
		return 0;
	second = (unsigned char)text[1];
	if (second < low || second > high)
		return 0;
	if (n > 2 && !is_continuation(text[2]))
		return 0;
	if (n > 3 && !is_continuation(text[3]))
		return 0;
	return n;
}

size_t
utf8_run(const char *text, size_t len)
{
	size_t i = 0;
	size_t n;

	while (i < len && (unsigned char)text[i] >= 0x80) {
		n = sequence(text + i, len - i);
		if (n == 0)
			break;
		i += n;
	}
	return i;
}

const char *
utf8_fault(const char *text, size_t len, size_t *at)
{
	unsigned char low;
	unsigned char high;
	unsigned char lead = (unsigned char)text[0];
	unsigned char c;
	size_t n = shape(lead, &low, &high);
	size_t i;

	*at = 0;
	if (lead < 0xc0)
		return "UTF-8 continuation byte without a start";
	if (lead < 0xc2)
		return "overlong UTF-8";
	if (n == 0)
		return "UTF-8 above U+10FFFF";
	for (i = 1; i < n && i < len; i++) {
		c = (unsigned char)text[i];
		*at = i;
		if (!is_continuation(text[i]))
			return "incomplete UTF-8 sequence";
		if (i == 1 && c < low)
			return "overlong UTF-8";
		if (i == 1 && c > high)
			return lead == 0xed ? "surrogate in UTF-8"
					    : "UTF-8 above U+10FFFF";
	}
	return NULL;
}

size_t
utf8_encode(uint32_t code, char buf[static 4])
{
	size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	static const unsigned char marks[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
	size_t i;

	for (i = n - 1; i > 0; i--) {
		buf[i] = (char)(0x80 | (code & 0x3f));
		code >>= 6;
	}
	buf[0] = (char)(marks[n] | code);
	return n;
}
