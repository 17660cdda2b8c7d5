/*
 * UTF-8, checked byte by byte against the table of RFC 3629 section 4.  The
 * caller passes over ASCII, since it can do so faster.
 */
#include "pure/utf8.h"

size_t
utf8_read(const char *text, size_t len, size_t *at, const char **reason)
{
	unsigned char lead = (unsigned char)text[0];
	size_t n = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
	/* The bounds of byte 2; those of bytes 3 and 4 are 0x80 and 0xbf. */
	unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
	unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;

	*at = 0;
	*reason = lead < 0xc0   ? "UTF-8 continuation byte without a start"
		  : lead < 0xc2 ? "overlong UTF-8"
		  : lead > 0xf4 ? "UTF-8 above U+10FFFF"
				: NULL;
	for (size_t i = 1; *reason == NULL && i < n && i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		*at = i;
		if ((c & 0xc0) != 0x80)
			*reason = "incomplete UTF-8 sequence";
		else if (i == 1 && c < low)
			*reason = "overlong UTF-8";
		else if (i == 1 && c > high)
			*reason = lead == 0xed ? "surrogate in UTF-8"
					       : "UTF-8 above U+10FFFF";
	}
	return *reason == NULL && n <= len ? n : 0;
}

size_t
utf8_encode(uint32_t code, char buf[static 4])
{
	size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	static const unsigned char marks[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

	for (size_t i = n - 1; i > 0; i--) {
		buf[i] = (char)(0x80 | (code & 0x3f));
		code >>= 6;
	}
	buf[0] = (char)(marks[n] | code);
	return n;
}
