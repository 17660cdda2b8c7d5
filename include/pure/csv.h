/*
 * csv: prints fields and splits records (RFC 4180, but LF also ends a line).
 * Bytes above ASCII are text.  Pure; total on hostile bytes; any thread.
 */
#pragma once

#include <stddef.h>

enum csv_place {
	CSV_FIELD_BEGINS,
	CSV_IN_BARE,
	CSV_IN_QUOTES,
	CSV_BEHIND_QUOTE,
	CSV_WRONG /* for the rest of the record */
};

struct csv_field {
	char *text; /* in the buffer, without a NUL; NULL: there is no value */
	size_t len;
};

/*
 * csv_field_print(field, len, buf):
 * Write a field into `buf`, which has room for 2 * len + 2 bytes, and return
 * the length.  A field is quoted if it has a comma, a quote, CR or LF, begins
 * or ends with a space, or is empty: an unquoted empty field means no value.
 *
 * csv_next_place(place, c):
 * Parse a record byte by byte to find its end: return the place after the byte
 * `c`.  A record begins at CSV_FIELD_BEGINS, and ends with an LF outside
 * CSV_IN_QUOTES.  `c` must not be that LF.
 *
 * csv_record_split(buf, len, fields, n):
 * Split the record at the beginning of the buffer, up to CRLF, LF or the
 * buffer's end, into at most `*n` fields, and unquote them in place.  Return
 * NULL and set `*n` to their number; or return a fault as static English.
 */
size_t csv_field_print(const char *field, size_t len, char *buf);
enum csv_place csv_next_place(enum csv_place place, char c);
const char *csv_record_split(
    char *buf, size_t len, struct csv_field *fields, size_t *n);
