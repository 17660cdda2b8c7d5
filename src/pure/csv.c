/* csv: RFC 4180 section 2.  See pure/csv.h. */
#include "pure/csv.h"

#include <stdbool.h>
#include <string.h>

size_t
csv_field_print(const char *field, size_t len, char *buf)
{
	bool quoted = len == 0 || field[0] == ' ' || field[len - 1] == ' ';
	char *to = buf;

	for (size_t i = 0; i < len && !quoted; i++)
		quoted = memchr(",\"\r\n", field[i], 4) != NULL;
	if (!quoted) {
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

enum csv_place
csv_next_place(enum csv_place place, char c)
{
	if (place == CSV_WRONG)
		return place;
	if (place == CSV_IN_QUOTES)
		return c == '"' ? CSV_BEHIND_QUOTE : CSV_IN_QUOTES;
	if (c == '"')
		return place == CSV_IN_BARE ? CSV_WRONG : CSV_IN_QUOTES;
	if (c == ',')
		return CSV_FIELD_BEGINS;
	return c == '\r' || place == CSV_BEHIND_QUOTE ? CSV_WRONG : CSV_IN_BARE;
}

const char *
csv_record_split(char *buf, size_t len, struct csv_field *fields, size_t *n)
{
	enum csv_place place = CSV_FIELD_BEGINS;
	char *text = buf, *to = buf; /* the field's beginning and end */
	size_t count = 0;

	for (size_t at = 0;; at++) {
		bool cr = at + 1 < len && buf[at] == '\r';
		bool ends = at == len ||
			    (buf[at + cr] == '\n' && place != CSV_IN_QUOTES);
		if (ends || (buf[at] == ',' && place != CSV_IN_QUOTES)) {
			if (count < *n)
				fields[count] = (struct csv_field){
					place == CSV_FIELD_BEGINS ? NULL : text,
					(size_t)(to - text)
				};
			count++;
			text = to = buf + at + 1;
		} else if (place == CSV_FIELD_BEGINS && buf[at] == '"')
			text = to = buf + at + 1;
		else if (buf[at] != '"' || place == CSV_BEHIND_QUOTE)
			*to++ = buf[at];
		if (ends)
			break;
		place = csv_next_place(place, buf[at]);
	}
	if (place == CSV_IN_QUOTES)
		return "a quote that is never closed";
	if (place == CSV_WRONG)
		return "a quote or a CR in the wrong place";
	if (count > *n)
		return "too many fields";
	*n = count;
	return NULL;
}
