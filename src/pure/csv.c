/*
 * csv: fields to bytes and records to fields (RFC 4180 section 2).  A record is
 * looked through to its end before a byte of it is changed, so that one which
 * is not all there can be tried again.  What the fields mean, the header line
 * and a byte order mark are left to others.
 */
#include "pure/csv.h"

#include <stdbool.h>
#include <string.h>

static bool
is_structure(char c)
{
	return c == ',' || c == '"' || c == '\r' || c == '\n';
}

static bool
needs_quotes(const char *field, size_t len)
{
	if (len == 0 || field[0] == ' ' || field[len - 1] == ' ')
		return true;
	for (size_t i = 0; i < len; i++)
		if (is_structure(field[i]))
			return true;
	return false;
}

size_t
csv_field_print(const char *field, size_t len, char *buf)
{
	char *to = buf;

	if (!needs_quotes(field, len)) {
		memcpy(buf, field, len);
		return len;
	}
	*to++ = '"';
	for (size_t i = 0; i < len; i++) {
		if (field[i] == '"')
			*to++ = '"';
		*to++ = field[i];
	}
	*to++ = '"';
	return (size_t)(to - buf);
}

/* Where the bare field that begins at `at` ends. */
static size_t
bare_end(const char *buf, size_t at, size_t len)
{
	while (at < len && !is_structure(buf[at]))
		at++;
	return at;
}

/*
 * Where the field that begins with the quote at `at` ends; `open`: it does not,
 * as far as the buffer goes.
 */
static size_t
quoted_end(const char *buf, size_t at, size_t len, bool *open)
{
	for (;;) {
		const char *quote = memchr(buf + at + 1, '"', len - at - 1);

		*open = quote == NULL;
		if (*open)
			return len;
		at = (size_t)(quote - buf) + 1;
		if (at == len || buf[at] != '"')
			return at;
	}
}

/* Take off the quotes around the field, and one of each two inside it. */
static void
unquote(struct csv_field *field)
{
	const char *from = field->text + 1;
	const char *end = field->text + field->len - 1;
	char *to = memchr(from, '"', (size_t)(end - from));

	field->text++;
	field->len -= 2;
	if (to == NULL)
		return;
	for (from = to; from < end; from++) {
		*to++ = *from;
		if (*from == '"')
			from++;
	}
	field->len = (size_t)(to - field->text);
}

enum ending { END_COMMA, END_RECORD, END_MORE, END_WRONG };

/* What ends the field at `*at`, which moves behind it. */
static enum ending
field_ending(const char *buf, size_t *at, size_t len, bool last)
{
	if (*at == len)
		return last ? END_RECORD : END_MORE;
	if (buf[*at] == ',') {
		++*at;
		return END_COMMA;
	}
	if (buf[*at] == '\n') {
		++*at;
		return END_RECORD;
	}
	if (buf[*at] == '\r') {
		if (*at + 1 == len && !last)
			return END_MORE;
		if (*at + 1 < len && buf[*at + 1] == '\n') {
			*at += 2;
			return END_RECORD;
		}
	}
	return END_WRONG;
}

static const char *
wrong_reason(char c, bool quoted)
{
	if (c == '\r')
		return "a CR without LF outside quotes";
	return quoted ? "text behind a closing quote"
		      : "a quote inside a field without quotes";
}

/* The record is wrong at `at`, for this reason. */
static enum csv_result
refuse_record(const char *buf, size_t at, size_t len, bool last,
    const char *why, size_t *used, const char **reason)
{
	const char *newline = memchr(buf + at, '\n', len - at);

	if (newline == NULL && !last)
		return CSV_MORE;
	*used = newline == NULL ? len : (size_t)(newline - buf) + 1;
	*reason = why;
	return CSV_BAD;
}

enum csv_result
csv_record_split(char *buf, size_t len, int last, struct csv_field *fields,
    size_t *n, size_t *used, const char **reason)
{
	size_t room = *n, count = 0, at = 0;
	enum ending ending;

	if (len == 0)
		return CSV_MORE;
	do {
		size_t start = at;
		bool quoted = at < len && buf[at] == '"';
		bool open = false;

		at = quoted ? quoted_end(buf, at, len, &open)
			    : bare_end(buf, at, len);
		if (count < room)
			fields[count] = (struct csv_field){ buf + start,
				at - start, quoted };
		count++;
		ending = field_ending(buf, &at, len, last != 0);
		if (ending == END_MORE)
			return CSV_MORE;
		if (open)
			return refuse_record(buf, at, len, true,
			    "a quote that is never closed", used, reason);
		if (ending == END_WRONG)
			return refuse_record(buf, at, len, last != 0,
			    wrong_reason(buf[at], quoted), used, reason);
	} while (ending == END_COMMA);
	*used = at;
	if (count > room) {
		*reason = "too many fields";
		return CSV_BAD;
	}
	for (size_t i = 0; i < count; i++)
		if (fields[i].quoted)
			unquote(&fields[i]);
	*n = count;
	return CSV_RECORD;
}

enum csv_place
csv_next_place(enum csv_place place, char c)
{
	if (place == CSV_IN_WRONG)
		return CSV_IN_WRONG;
	if (place == CSV_IN_QUOTES)
		return c == '"' ? CSV_BEHIND_QUOTE : CSV_IN_QUOTES;
	if (c == '"')
		return place == CSV_IN_BARE ? CSV_IN_WRONG : CSV_IN_QUOTES;
	if (c == ',')
		return CSV_FIELD_BEGINS;
	return place == CSV_BEHIND_QUOTE || c == '\r' ? CSV_IN_WRONG
						      : CSV_IN_BARE;
}
