/*
 * csv: RFC 4180, in pieces.  Pure; any thread.
 */
#ifndef PURE_CSV_H
#define PURE_CSV_H

#include <stddef.h>

/*
 * csv_field_print(field, len, buf):
 * Write a field into `buf`, which has room for 2 * len + 2 bytes: as it is, or
 * in quotes where it has a comma, a quote, CR or LF, begins or ends with a
 * space, or is empty (so that "" differs from no value).  Return the length.
 */
size_t csv_field_print(const char *field, size_t len, char *buf);

enum csv_result {
	CSV_RECORD, /* a whole record was split */
	CSV_MORE,   /* the input ends inside a record */
	CSV_BAD     /* see `reason` */
};

struct csv_field {
	char *text; /* in the buffer, unquoted in place, no NUL at its end */
	size_t len;
	int quoted; /* an empty field without quotes is no value */
};

/*
 * csv_record_split(buf, len, last, fields, n, used, reason):
 * Split the record at the beginning of the buffer, up to CRLF or LF, into at
 * most `*n` fields, unquoting in place; `*n` becomes how many there are and
 * `*used` the bytes of the record with its line break.  `last`: nothing follows
 * the buffer, so that the last record needs no line break.  CSV_BAD: a quote
 * inside a bare field, text behind a closing quote, a bare CR, more fields than
 * there is room for, or, when `last`, an open quote; `*reason` says which and
 * `*used` are the bytes up to the next line break.  On CSV_MORE the buffer is
 * untouched.
 */
enum csv_result csv_record_split(char *buf, size_t len, int last,
    struct csv_field *fields, size_t *n, size_t *used, const char **reason);

#endif
