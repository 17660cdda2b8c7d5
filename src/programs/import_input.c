/*
 * import_input: see import_input.h.  Here are lines, records and their numbers;
 * what plant stands in them is import_plant's to say.
 *
 * What the buffer holds is taken from its start, line by line; when a line is
 * not all there, more is read behind it.  A line that is longer than a plant may be is passed over
 * without being kept.
 */
#include "import_input.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sysexits.h>

#include "ground/log.h"
#include "import_buffer.h"
#include "import_plant.h"
#include "pure/csv.h"

/* What is read at once: much more than a line, and little memory. */
#define READ_BYTES ((size_t)1 << 20)
/* CR and LF */
#define BREAK_MAX 2
#define BOM "\xef\xbb\xbf"

/* What a step gives that does not end in one of the results. */
enum { GO_ON = IMPORT_FAILED + 1, NEED_MORE };

struct import_input {
	struct import_buffer in;
	enum import_format format;
	struct import_plant plant;
	bool begun;     /* the format is known */
	size_t columns; /* of the CSV's header; while it is read, 0 */
	uint64_t lines;
	int status;
};

static enum import_format
format_of_suffix(const char *path)
{
	static const struct {
		const char *suffix;
		enum import_format format;
	} suffixes[] = { { ".jsonl", IMPORT_JSON_LINES },
		{ ".ndjson", IMPORT_JSON_LINES },
		{ ".json", IMPORT_JSON_LINES }, { ".csv", IMPORT_CSV } };
	size_t len = strlen(path);

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		size_t n = strlen(suffixes[i].suffix);

		if (len > n &&
		    strcasecmp(path + len - n, suffixes[i].suffix) == 0)
			return suffixes[i].format;
	}
	return IMPORT_GUESS;
}

struct import_input *
import_input_open(
    const char *path, enum import_format format, size_t bytes_max, int *status)
{
	struct import_input *input = calloc(1, sizeof(*input));

	*status = EX_OSERR;
	if (input == NULL || import_plant_init(&input->plant, bytes_max) < 0) {
		log_error("import: out of memory; nothing was imported");
		free(input);
		return NULL;
	}
	*status = import_buffer_open(
	    &input->in, path, bytes_max + BREAK_MAX + READ_BYTES);
	if (*status != EX_OK) {
		import_input_close(input);
		return NULL;
	}
	input->format = format;
	if (format == IMPORT_GUESS && path != NULL)
		input->format = format_of_suffix(path);
	return input;
}

static int
fail(struct import_input *input, int status)
{
	input->status = status;
	return IMPORT_FAILED;
}

/* Read more, behind what is left. */
static int
fill(struct import_input *input, const struct watch *watch)
{
	switch (import_buffer_fill(&input->in, watch)) {
	case IMPORT_BUFFER_MORE:
		return GO_ON;
	case IMPORT_BUFFER_STOPPED:
		return IMPORT_STOPPED;
	case IMPORT_BUFFER_FAILED:
		break;
	}
	if (errno == EISDIR) {
		log_error("%s: is a directory; name a file", input->in.name);
		return fail(input, EX_NOINPUT);
	}
	log_error("%s: cannot read behind line %llu: %s", input->in.name,
	    (unsigned long long)input->lines, strerror(errno));
	return fail(input, EX_IOERR);
}

/* What import_plant gave, for the line. */
static int
result_of(struct import_input *input, struct import_line *line, int found)
{
	if (found == 0)
		return IMPORT_PLANT;
	if (found == IMPORT_PLANT_REFUSED) {
		line->why = input->plant.why;
		return IMPORT_REFUSED;
	}
	log_error("%s: line %llu: out of memory", input->in.name,
	    (unsigned long long)line->number);
	return fail(input, EX_TEMPFAIL);
}

/*
 * Pass over the line, or record, that begins at the start of the buffer and is
 * too long.  A record that is wrong ends with the line where it is wrong.
 */
static int
pass_over(struct import_input *input, const struct watch *watch,
    struct import_line *line)
{
	bool csv = input->format == IMPORT_CSV, partial = true;
	enum csv_place place = CSV_FIELD_BEGINS;
	int result;

	line->number = input->lines + 1;
	for (;;) {
		while (input->in.start < input->in.end) {
			char c = input->in.buf[input->in.start++];

			partial = c != '\n';
			input->lines += c == '\n';
			if (c == '\n' && place != CSV_IN_QUOTES)
				goto passed;
			if (csv)
				place = csv_next_place(place, c);
		}
		if (input->in.ended)
			break;
		result = fill(input, watch);
		if (result != GO_ON)
			return result;
	}
	input->lines += partial;
passed:
	return result_of(input, line, import_plant_too_large(&input->plant));
}

static bool
is_blank(const char *text, size_t len)
{
	while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
		len--;
	return len == 0;
}

static int
next_json(struct import_input *input, struct import_line *line)
{
	const char *text = input->in.buf + input->in.start;
	size_t len = input->in.end - input->in.start;
	const char *newline = memchr(text, '\n', len);

	if (newline == NULL && !input->in.ended)
		return NEED_MORE;
	if (newline != NULL)
		len = (size_t)(newline - text);
	input->in.start += len + (newline != NULL);
	line->number = ++input->lines;
	if (len > 0 && text[len - 1] == '\r')
		len--;
	if (is_blank(text, len))
		return GO_ON;
	return result_of(input, line,
	    import_plant_json(&input->plant, text, len, &line->plant));
}

static uint64_t
count_newlines(const char *text, size_t len)
{
	const char *end = text + len;
	uint64_t n = 0;

	while ((text = memchr(text, '\n', (size_t)(end - text))) != NULL) {
		text++;
		n++;
	}
	return n;
}

static int
read_header(
    struct import_input *input, const struct csv_field *fields, size_t n)
{
	static const char *const names[] = { "id", "name", "tag" };
	bool good = n == 2 || n == 3;

	for (size_t i = 0; good && i < n; i++)
		good = fields[i].len == strlen(names[i]) &&
		       memcmp(fields[i].text, names[i], fields[i].len) == 0;
	if (!good) {
		log_error("%s: line %llu: not the header line id,name,tag of "
			  "CSV, in small letters and with commas; add it, or "
			  "say --format jsonl if these are JSON lines; nothing "
			  "was imported",
		    input->in.name, (unsigned long long)input->lines);
		return fail(input, EX_DATAERR);
	}
	input->columns = n;
	return GO_ON;
}

static int
next_csv(struct import_input *input, struct import_line *line)
{
	struct csv_field fields[IMPORT_COLUMNS_MAX];
	size_t n = input->columns > 0 ? input->columns : IMPORT_COLUMNS_MAX;
	char *text = input->in.buf + input->in.start;
	size_t used;
	const char *reason;
	enum csv_result result =
	    csv_record_split(text, input->in.end - input->in.start,
		input->in.ended, fields, &n, &used, &reason);

	if (result == CSV_MORE)
		return NEED_MORE;
	input->in.start += used;
	line->number = input->lines + 1;
	/* The last line may have no break. */
	input->lines += text[used - 1] != '\n';
	if (result == CSV_BAD) {
		input->lines += count_newlines(text, used);
		if (input->columns == 0)
			return read_header(input, NULL, 0);
		return result_of(
		    input, line, import_plant_bad_csv(&input->plant, reason));
	}
	/* Unquoting may have left copies of breaks between the fields. */
	input->lines += text[used - 1] == '\n';
	for (size_t i = 0; i < n; i++)
		if (fields[i].quoted)
			input->lines +=
			    count_newlines(fields[i].text, fields[i].len);
	if (n == 1 && fields[0].len == 0 && !fields[0].quoted)
		return GO_ON;
	if (input->columns == 0)
		return read_header(input, fields, n);
	if (n < input->columns)
		return result_of(input, line,
		    import_plant_bad_csv(&input->plant, "too few fields"));
	return result_of(input, line,
	    import_plant_csv(&input->plant, fields, n, &line->plant));
}

/* See what the first bytes are. */
static int
begin(struct import_input *input, const struct watch *watch)
{
	int result;

	while (!input->in.ended && input->in.end < sizeof(BOM) - 1) {
		result = fill(input, watch);
		if (result != GO_ON)
			return result;
	}
	if (input->format == IMPORT_GUESS)
		input->format = input->in.end > 0 && input->in.buf[0] == '{'
				    ? IMPORT_JSON_LINES
				    : IMPORT_CSV;
	if (input->format == IMPORT_CSV && input->in.end >= sizeof(BOM) - 1 &&
	    memcmp(input->in.buf, BOM, sizeof(BOM) - 1) == 0)
		input->in.start = sizeof(BOM) - 1;
	input->begun = true;
	return GO_ON;
}

enum import_result
import_input_next(struct import_input *input, const struct watch *watch,
    struct import_line *line)
{
	int result = GO_ON;

	if (!input->begun)
		result = begin(input, watch);
	while (result >= GO_ON) {
		if (result == NEED_MORE) {
			if (input->in.end - input->in.start >
			    input->plant.bytes_max + BREAK_MAX)
				result = pass_over(input, watch, line);
			else
				result = fill(input, watch);
		} else if (input->in.ended && input->in.start == input->in.end)
			result = IMPORT_END;
		else
			result = input->format == IMPORT_CSV
				     ? next_csv(input, line)
				     : next_json(input, line);
	}
	return (enum import_result)result;
}

const char *
import_input_name(const struct import_input *input)
{
	return input->in.name;
}

uint64_t
import_input_lines(const struct import_input *input)
{
	return input->lines;
}

int
import_input_status(const struct import_input *input)
{
	return input->status;
}

void
import_input_close(struct import_input *input)
{
	import_buffer_close(&input->in);
	import_plant_done(&input->plant);
	free(input);
}
