/*
 * csv: RFC 4180, in pieces, with LF as a line break too.  Bytes above ASCII are
 * text.  Pure; total on hostile bytes; any thread.
 */
#ifndef PURE_CSV_H
#define PURE_CSV_H

#include <stddef.h>

/*
 * csv_field_print(field, len, buf):
 * Write a field into `buf`, which has room for 2 * len + 2 bytes, and return
 * the length.  It is quoted if it has a comma, a quote, CR or LF, begins or
 * ends with a space, or is empty ("" differs from no value).
 */
size_t csv_field_print(const char *field, size_t len, char *buf);

/*
 * csv_next_place(place, c):
 * To find the end of a record: return the place behind the byte `c`.  The first
 * place is CSV_FIELD_BEGINS.  A line break ends the record, except in
 * CSV_IN_QUOTES, and must not be given.  CSV_IN_WRONG, behind a fault that
 * csv_record_split finds, stays.
 */
enum csv_place {
	CSV_FIELD_BEGINS,
	CSV_IN_BARE,
	CSV_IN_QUOTES,
	CSV_BEHIND_QUOTE,
	CSV_IN_WRONG
};
enum csv_place csv_next_place(enum csv_place place, char c);

struct csv_field {
	char *text; /* in the buffer, unquoted in place, without a NUL */
	size_t len;
	int quoted; /* an empty field without quotes is no value */
};

/*
 * csv_record_split(buf, len, fields, n):
 * Split the record at the beginning of the buffer, up to CRLF, LF or its end,
 * into at most `*n` fields, and unquote them in place.  Return NULL with the
 * number of fields in `*n`; or, with the buffer unchanged, static English: a
 * quote in a bare field, text behind a closing quote, a CR without LF outside
 * quotes, an open quote, or too many fields.
 */
const char *csv_record_split(
    char *buf, size_t len, struct csv_field *fields, size_t *n);

#endif
