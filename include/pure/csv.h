/*
 * csv: RFC 4180, in pieces, with LF as a line break too.  Bytes above ASCII are
 * text like any other.  Pure; total on hostile bytes; any thread.
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
	CSV_MORE,   /* the buffer ends before the record's line break */
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
 * inside a bare field, text behind a closing quote, a bare CR outside quotes,
 * more fields than there is room for, or, when `last`, an open quote; `*reason`
 * says which, static English, and `*used` are the bytes up to the first line
 * break behind what is wrong, that one included, or all if there is none.  On
 * CSV_MORE, which an empty buffer gives too, and on CSV_BAD the buffer is
 * untouched.  A record gives the same result however much follows it.
 */
enum csv_result csv_record_split(char *buf, size_t len, int last,
    struct csv_field *fields, size_t *n, size_t *used, const char **reason);

/*
 * csv_next_place(place, c):
 * For a record that no buffer holds: where it stands behind the byte `c`, from
 * CSV_FIELD_BEGINS on.  A line break ends the record but in CSV_IN_QUOTES, and
 * is not to be given; CSV_IN_WRONG, as CSV_BAD for a quote, text or a CR where
 * it may not be, stays.
 */
enum csv_place {
	CSV_FIELD_BEGINS,
	CSV_IN_BARE,
	CSV_IN_QUOTES,
	CSV_BEHIND_QUOTE,
	CSV_IN_WRONG
};
enum csv_place csv_next_place(enum csv_place place, char c);

#endif
