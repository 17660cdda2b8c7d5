/*
 * import_input: see import_input.h.  What is a plant is plant's to say, what
 * a refusal is called api's and http's; here are lines, records and their
 * numbers.
 *
 * There is one buffer.  What it holds is taken from its start, line by line;
 * when a line is not all there, the rest is moved to the front and more is
 * read behind it.  A line that is longer than a plant may be is passed over
 * without being kept.
 */
#include "import_input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "api/api.h"
#include "ground/log.h"
#include "pure/csv.h"
#include "pure/json_string.h"

/* What is read at once: much more than a line, and little memory. */
#define READ_BYTES ((size_t)1 << 20)
/* CR and LF */
#define BREAK_MAX 2
#define BOM "\xef\xbb\xbf"
/* How soon a wait for input sees that it is to stop. */
#define WAIT_MS 100
/* id, name, tag; and the JSON around them */
#define COLUMNS_MAX 3
#define JSON_AROUND sizeof("{\"id\":,\"name\":\"\",\"tag\":\"\"}")

/* What a step gives that does not end in one of the results. */
enum { GO_ON = IMPORT_FAILED + 1, NEED_MORE };

struct import_input {
	const char *name;
	int fd;
	enum import_format format;
	size_t bytes_max;
	bool begun, ended; /* the format is known; no more can be read */
	size_t columns;    /* of the CSV's header; while it is read, 0 */
	uint64_t lines;
	uint64_t done, total; /* bytes of the file */
	int status;
	char *json; /* CSV: the record as JSON */
	char *buf;
	size_t size, start, end;
	char why[RESPONSE_HEAD_MAX];
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

static int
open_file(struct import_input *input, const char *path)
{
	struct stat st;

	input->name = path == NULL ? "stdin" : path;
	input->fd = path == NULL ? STDIN_FILENO
				 : open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	if (input->fd < 0 || fstat(input->fd, &st) < 0) {
		log_error("%s: cannot open: %s; nothing was imported",
		    input->name, strerror(errno));
		return EX_NOINPUT;
	}
	if (S_ISREG(st.st_mode))
		input->total = (uint64_t)st.st_size;
	if (input->format == IMPORT_GUESS && path != NULL)
		input->format = format_of_suffix(path);
	return EX_OK;
}

struct import_input *
import_input_open(
    const char *path, enum import_format format, size_t bytes_max, int *status)
{
	struct import_input *input = calloc(1, sizeof(*input));

	*status = EX_OSERR;
	if (input == NULL)
		goto no_memory;
	input->fd = -1;
	input->format = format;
	input->bytes_max = bytes_max;
	input->size = bytes_max + BREAK_MAX + READ_BYTES;
	input->buf = malloc(input->size);
	/* A character is six bytes at most, as \u001f is. */
	input->json = malloc(6 * bytes_max + JSON_AROUND);
	if (input->buf == NULL || input->json == NULL)
		goto no_memory;
	*status = open_file(input, path);
	if (*status == EX_OK)
		return input;
	import_input_close(input);
	return NULL;

no_memory:
	log_error("import: out of memory; nothing was imported");
	import_input_close(input);
	return NULL;
}

static int
fail(struct import_input *input, int status)
{
	input->status = status;
	return IMPORT_FAILED;
}

/*
 * Wait until there is something to read: a read that waits could miss the
 * signal that came just before it.
 */
static int
wait_for_input(struct import_input *input, const struct watch *watch)
{
	struct pollfd ready = { .fd = input->fd, .events = POLLIN };
	int n = 0;

	while (n == 0) {
		if (watch->step != NULL &&
		    !watch->step(watch->context, input->done, input->total))
			return IMPORT_STOPPED;
		n = poll(&ready, 1, WAIT_MS);
		if (n < 0 && errno == EINTR)
			n = 0;
	}
	return GO_ON;
}

/* Read more, behind what is left. */
static int
fill(struct import_input *input, const struct watch *watch)
{
	int result;
	ssize_t n;

	memmove(
	    input->buf, input->buf + input->start, input->end - input->start);
	input->end -= input->start;
	input->start = 0;
	do {
		result = wait_for_input(input, watch);
		if (result != GO_ON)
			return result;
		n = read(input->fd, input->buf + input->end,
		    input->size - input->end);
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	if (n < 0) {
		log_error("%s: cannot read behind line %llu: %s", input->name,
		    (unsigned long long)input->lines, strerror(errno));
		return fail(input, errno == EISDIR ? EX_NOINPUT : EX_IOERR);
	}
	input->ended = n == 0;
	input->end += (size_t)n;
	input->done += (uint64_t)n;
	return GO_ON;
}

static int
refuse(struct import_input *input, struct import_line *line,
    const struct response_error *error)
{
	size_t n = (size_t)snprintf(input->why, sizeof(input->why),
	    "error %d: ", errors_number(error->error));

	response_message(error, input->why + n, sizeof(input->why) - n);
	line->why = input->why;
	return IMPORT_REFUSED;
}

static int
refuse_csv(
    struct import_input *input, struct import_line *line, const char *reason)
{
	snprintf(input->why, sizeof(input->why),
	    "The record is not valid CSV: %s.", reason);
	line->why = input->why;
	return IMPORT_REFUSED;
}

/*
 * Pass over the line, or record, that begins at the start of the buffer and is
 * too long.  In a record whose quotes are right, a line break is inside quotes
 * exactly if an odd number of them came before.
 */
static int
pass_over(struct import_input *input, const struct watch *watch,
    struct import_line *line)
{
	bool csv = input->format == IMPORT_CSV, quoted = false, partial = true;
	int result;

	line->number = input->lines + 1;
	for (;;) {
		while (input->start < input->end) {
			char c = input->buf[input->start++];

			partial = c != '\n';
			input->lines += c == '\n';
			quoted ^= csv && c == '"';
			if (c == '\n' && !quoted)
				goto passed;
		}
		if (input->ended)
			break;
		result = fill(input, watch);
		if (result != GO_ON)
			return result;
	}
	input->lines += partial;
passed:
	return refuse(input, line,
	    &(struct response_error){ .error = HTTP_BODY_TOO_LARGE });
}

static int
read_plant(struct import_input *input, struct import_line *line,
    const char *text, size_t len)
{
	struct response_error failure;
	struct json_error error;
	enum plant_fault fault;

	if (len > input->bytes_max)
		return refuse(input, line,
		    &(struct response_error){ .error = HTTP_BODY_TOO_LARGE });
	fault = plant_read(&line->plant, text, len, &error);
	if (fault == PLANT_OK)
		return IMPORT_PLANT;
	if (fault == PLANT_NO_MEMORY) {
		log_error("%s: line %llu: out of memory", input->name,
		    (unsigned long long)line->number);
		return fail(input, EX_TEMPFAIL);
	}
	failure = api_plant_failure(fault, &error);
	/* An offset into what was made of a record would say nothing. */
	if (input->format == IMPORT_CSV)
		failure.reason = NULL;
	return refuse(input, line, &failure);
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
	const char *text = input->buf + input->start;
	size_t len = input->end - input->start;
	const char *newline = memchr(text, '\n', len);

	if (newline == NULL && !input->ended)
		return NEED_MORE;
	if (newline != NULL)
		len = (size_t)(newline - text);
	input->start += len + (newline != NULL);
	line->number = ++input->lines;
	if (len > 0 && text[len - 1] == '\r')
		len--;
	if (is_blank(text, len))
		return GO_ON;
	return read_plant(input, line, text, len);
}

/* An integer as JSON has it, so that it cannot be anything else there. */
static bool
is_integer(const char *text, size_t len)
{
	size_t sign = len > 0 && text[0] == '-';

	if (len == sign || (text[sign] == '0' && len > sign + 1))
		return false;
	for (size_t i = sign; i < len; i++)
		if (text[i] < '0' || text[i] > '9')
			return false;
	return true;
}

static bool
is_absent(const struct csv_field *field)
{
	return field->len == 0 && !field->quoted;
}

static char *
put(char *to, const char *text, size_t len)
{
	memcpy(to, text, len);
	return to + len;
}

/* The record's plant, made into JSON, so that the checks are the same. */
static int
read_record(struct import_input *input, struct import_line *line,
    const struct csv_field *fields, size_t n)
{
	enum http_error error = HTTP_OK;
	char *to = input->json;

	if (n < input->columns)
		return refuse_csv(input, line, "too few fields");
	if (is_absent(&fields[0]))
		error = HTTP_ID_MISSING;
	else if (!is_integer(fields[0].text, fields[0].len))
		error = HTTP_ID_NOT_INTEGER;
	else if (is_absent(&fields[1]))
		error = HTTP_NAME_MISSING;
	if (error != HTTP_OK)
		return refuse(
		    input, line, &(struct response_error){ .error = error });
	to = put(to, "{\"id\":", 6);
	to = put(to, fields[0].text, fields[0].len);
	to = put(to, ",\"name\":", 8);
	to += json_string_print(fields[1].text, fields[1].len, to);
	if (n > 2 && !is_absent(&fields[2])) {
		to = put(to, ",\"tag\":", 7);
		to += json_string_print(fields[2].text, fields[2].len, to);
	}
	*to++ = '}';
	return read_plant(input, line, input->json, (size_t)(to - input->json));
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
			  "CSV; add it, or say --format jsonl if these are "
			  "JSON lines; nothing was imported",
		    input->name, (unsigned long long)input->lines);
		return fail(input, EX_DATAERR);
	}
	input->columns = n;
	return GO_ON;
}

static int
next_csv(struct import_input *input, struct import_line *line)
{
	struct csv_field fields[COLUMNS_MAX];
	size_t n = input->columns > 0 ? input->columns : COLUMNS_MAX;
	char *text = input->buf + input->start;
	size_t used;
	const char *reason;
	enum csv_result result =
	    csv_record_split(text, input->end - input->start, input->ended,
		fields, &n, &used, &reason);

	if (result == CSV_MORE)
		return NEED_MORE;
	input->start += used;
	line->number = input->lines + 1;
	input->lines += text[used - 1] != '\n';
	if (result == CSV_BAD) {
		input->lines += count_newlines(text, used);
		if (input->columns == 0)
			return read_header(input, NULL, 0);
		return refuse_csv(input, line, reason);
	}
	input->lines += text[used - 1] == '\n';
	for (size_t i = 0; i < n; i++)
		if (fields[i].quoted)
			input->lines +=
			    count_newlines(fields[i].text, fields[i].len);
	if (n == 1 && is_absent(&fields[0]))
		return GO_ON;
	if (input->columns == 0)
		return read_header(input, fields, n);
	if (used > input->bytes_max + BREAK_MAX)
		return refuse(input, line,
		    &(struct response_error){ .error = HTTP_BODY_TOO_LARGE });
	return read_record(input, line, fields, n);
}

/* See what the first bytes are. */
static int
begin(struct import_input *input, const struct watch *watch)
{
	int result;

	while (!input->ended && input->end < sizeof(BOM) - 1) {
		result = fill(input, watch);
		if (result != GO_ON)
			return result;
	}
	if (input->format == IMPORT_GUESS)
		input->format = input->end > 0 && input->buf[0] == '{'
				    ? IMPORT_JSON_LINES
				    : IMPORT_CSV;
	if (input->format == IMPORT_CSV && input->end >= sizeof(BOM) - 1 &&
	    memcmp(input->buf, BOM, sizeof(BOM) - 1) == 0)
		input->start = sizeof(BOM) - 1;
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
			if (input->end - input->start >
			    input->bytes_max + BREAK_MAX)
				result = pass_over(input, watch, line);
			else
				result = fill(input, watch);
		} else if (input->ended && input->start == input->end)
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
	return input->name;
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
	if (input == NULL)
		return;
	if (input->fd > STDIN_FILENO)
		close(input->fd);
	free(input->json);
	free(input->buf);
	free(input);
}
