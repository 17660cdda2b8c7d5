/*
 * import_input: see import_input.h.  Here are lines, records and their numbers;
 * what plant stands in them is import_plant's to say.
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

#include "ground/log.h"
#include "import_plant.h"
#include "pure/csv.h"

/* What is read at once: much more than a line, and little memory. */
#define READ_BYTES ((size_t)1 << 20)
/* CR and LF */
#define BREAK_MAX 2
#define BOM "\xef\xbb\xbf"
/* How soon a wait for input sees that it is to stop. */
#define WAIT_MS 100

/* What a step gives that does not end in one of the results. */
enum { GO_ON = IMPORT_FAILED + 1, NEED_MORE };

struct import_input {
	const char *name;
	int fd;
	enum import_format format;
	struct import_plant plant;
	bool begun, ended; /* the format is known; no more can be read */
	size_t columns;    /* of the CSV's header; while it is read, 0 */
	uint64_t lines;
	uint64_t done, total; /* bytes of the file */
	int status;
	char *buf;
	size_t size, start, end;
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
	input->size = bytes_max + BREAK_MAX + READ_BYTES;
	input->buf = malloc(input->size);
	if (input->buf == NULL ||
	    import_plant_init(&input->plant, bytes_max) < 0)
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
	log_error("%s: line %llu: out of memory", input->name,
	    (unsigned long long)line->number);
	return fail(input, EX_TEMPFAIL);
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
	struct csv_field fields[IMPORT_COLUMNS_MAX];
	size_t n = input->columns > 0 ? input->columns : IMPORT_COLUMNS_MAX;
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
			    input->plant.bytes_max + BREAK_MAX)
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
	import_plant_done(&input->plant);
	free(input->buf);
	free(input);
}
