/*
 * import_command: plants from JSON lines or CSV into the store, with the checks
 * of the interface.  Constant memory.
 *
 * Happy path: lines are read into a batch until it is as large as one write to
 * the journal, the batch is committed, and so on to the end of the input.  An
 * id makes a plant's creation repeatable: after an import that ended early it
 * is safe to import again, and all that was read before the last commit is
 * stored.
 *
 * plant-store(1) has the formats.  Lines are taken from the start of the
 * buffer; when one is not whole, more is read behind it.  A line that is longer
 * than a plant may be is skipped without being kept.  A record of CSV becomes
 * the JSON that a client would have sent, so there is one set of checks.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "api/api.h"
#include "command.h"
#include "ground/config.h"
#include "ground/fault.h"
#include "ground/log.h"
#include "http/errors.h"
#include "http/response.h"
#include "http/tokens.h"
#include "output.h"
#include "pure/csv.h"
#include "pure/json_string.h"
#include "pure/timestamp.h"
#include "store/store.h"

static const char usage[] =
    "Usage: plant-store import [--dir DIR] [--by NAME] [--format jsonl|csv]\n"
    "                          [--keep-going] [--quiet | --progress] [FILE]\n"
    "       plant-store import --full [--dir DIR] [--keep-going]\n"
    "                          [--quiet | --progress] [FILE]\n"
    "\n"
    "Store the plants of FILE, or of standard input (also as -), with the\n"
    "checks of the interface.  FILE has JSON lines, a plant a line as clients\n"
    "send it, or CSV whose header line names the columns id, name and tag, in\n"
    "any order, tag if there is one.  A file may be imported again, also "
    "after\n"
    "an interruption.\n"
    "\n"
    "Every line that is refused, or whose id has another plant already, is\n"
    "named on stderr.  The first such line ends the import; what came before\n"
    "it is stored.\n"
    "\n"
    "  --by NAME        stands in the journal beside each plant (import)\n"
    "  --format FORMAT  jsonl or csv (by the suffix .jsonl, .ndjson, .json or\n"
    "                   .csv, else jsonl if the first byte is '{')\n"
    "  --full           FILE is of export --full: keep each plant's time and\n"
    "                   token name\n"
    "  --keep-going     skip lines that are refused or in conflict\n";

/*
 * One append to the journal takes 4 MiB: a larger batch would be several
 * appends, each with its own sync.  Ids in no order change a page of the index
 * each, held in memory until the commit: 5,000 plants are some 25 MiB.
 */
#define BATCH_BYTES ((size_t)4 << 20)
#define BATCH_PLANTS 5000
/* What is read at once: much more than a line, and little memory. */
#define READ_BYTES ((size_t)1 << 20)
/* How soon a wait for input notices that it is to stop. */
#define WAIT_MS 100
/* CR and LF */
#define BREAK_MAX 2
#define BOM "\xef\xbb\xbf"
enum { ID, NAME, TAG, COLUMNS_MAX };
/* The JSON around a record's fields. */
#define JSON_AROUND sizeof("{\"id\":,\"name\":\"\",\"tag\":\"\"}")

/* Lines of a kind: how many, and the first range of them. */
struct lines {
	uint64_t n, first, last;
};

/* When a plant was stored first, and by which token. */
struct stamp {
	char at[TIMESTAMP_LEN], by[RECORD_BY_MAX + 1];
};

struct import {
	const char *by;
	bool keep_going, full;
	struct store *store;
	struct lines stored, conflicting, refused;
	uint64_t same; /* of those stored, were there already */
	int status;    /* why nothing more can be stored, or EX_OK */

	const char *name; /* of the file, in messages */
	uint64_t lines;   /* read so far */
	int input_status; /* why nothing more can be read, or EX_OK */
	struct watch watch;
	enum format format;
	size_t bytes_max;   /* of a plant, as JSON */
	size_t line_max;    /* of a line, with its break */
	struct stamp stamp; /* of the line at hand, with --full */
	int fd;
	bool ended;           /* no more can be read */
	uint64_t done, total; /* bytes of the file; 0 if that is not known */
	char *buf;            /* from `start` to `end` is not used yet */
	size_t size, start, end;
	size_t columns;             /* of the CSV's header; in it, 0 */
	size_t column[COLUMNS_MAX]; /* where it has each; `columns`: not */
	char *json;                 /* a record as JSON */

	/* The batch. */
	size_t n;
	size_t bytes; /* of the journal, at most */
	struct plant plants[BATCH_PLANTS];
	struct store_item items[BATCH_PLANTS];
	uint64_t numbers[BATCH_PLANTS]; /* of their lines */
	struct stamp stamps[BATCH_PLANTS];
};

/* What follows a step of reading. */
enum step { GO_ON, NEED_MORE, END };

/* --- Lines in messages --- */

static void
note_line(struct lines *lines, uint64_t number)
{
	if (lines->n == 0)
		lines->first = number;
	if (lines->n == number - lines->first) /* no gap so far */
		lines->last = number;
	lines->n++;
}

/* " Stored: lines 1-3 and 2 more."; nothing without a line. */
static void
print_lines(FILE *out, const char *what, const struct lines *lines)
{
	uint64_t range = lines->last - lines->first + 1;

	if (lines->n == 0)
		return;
	fprintf(out, " %s: line%s %" PRIu64, what, lines->n > 1 ? "s" : "",
	    lines->first);
	if (range > 1)
		fprintf(out, "-%" PRIu64, lines->last);
	if (lines->n > range)
		fprintf(out, " and %" PRIu64 " more", lines->n - range);
	putc('.', out);
}

/* --- Batches --- */

/* Log why nothing is stored from line `number` on. */
static void
end_unstored(struct import *import, uint64_t number, enum store_result result)
{
	bool full = result == STORE_FULL, busy = result == STORE_BUSY;
	bool away = result == STORE_AWAY, unknown = result == STORE_UNKNOWN;

	import->status =
	    full || busy || away || unknown ? EX_TEMPFAIL : EX_IOERR;
	log_error("%s: line %" PRIu64 ": the store %s; every line before it is "
		  "done; %s import the file again: what is stored is skipped",
	    import->name, number,
	    full      ? "is full"
	    : busy    ? "is busy"
	    : away    ? "cannot be reached"
	    : unknown ? "did not confirm it, and may have it or not"
		      : "has failed, and may have it or not",
	    full                      ? "make room, and"
	    : busy || away || unknown ? "a little later"
				      : "when the store is repaired,");
}

static void
commit_batch(struct import *import)
{
	size_t n = import->n, unstored = n;

	import->n = import->bytes = 0;
	if (n == 0)
		return;
	int failed = store_commit(import->store, import->items, n, NULL, NULL);
	for (size_t i = 0; i < n; i++) {
		switch (import->items[i].result) {
		case STORE_SAME:
			import->same++;
			/* fallthrough */
		case STORE_CREATED:
			note_line(&import->stored, import->numbers[i]);
			break;
		case STORE_CONFLICT:
			note_line(&import->conflicting, import->numbers[i]);
			log_error("%s: line %" PRIu64 ": error %d: id %" PRId64
				  ": %s",
			    import->name, import->numbers[i],
			    errors_number(HTTP_CONFLICT), import->plants[i].id,
			    errors_message(HTTP_CONFLICT));
			break;
		default:
			if (unstored == n)
				unstored = i;
		}
		plant_done(&import->plants[i]);
	}
	if (unstored < n)
		end_unstored(import, import->numbers[unstored],
		    import->items[unstored].result);
	else if (failed != 0)
		import->status = EX_IOERR;
}

static void
add_to_batch(struct import *import, uint64_t line, const struct plant *plant)
{
	size_t bytes = RECORD_ENVELOPE_MAX + plant->len;

	if (import->n == BATCH_PLANTS || import->bytes + bytes > BATCH_BYTES)
		commit_batch(import);
	import->plants[import->n] = *plant;
	import->items[import->n] =
	    (struct store_item){ .plant = &import->plants[import->n],
		    .by = import->by };
	if (import->full) {
		struct stamp *stamp = &import->stamps[import->n];

		*stamp = import->stamp;
		import->items[import->n].at = stamp->at;
		import->items[import->n].by = stamp->by;
	}
	import->numbers[import->n] = line;
	import->bytes += bytes;
	import->n++;
}

/* --- A plant, or why there is none --- */

static void
refuse(struct import *import, uint64_t line, const char *what, const char *why)
{
	log_error("%s: line %" PRIu64 ": %s%s", import->name, line, what, why);
	note_line(&import->refused, line);
}

static void
refuse_error(
    struct import *import, uint64_t line, const struct response_error *error)
{
	char message[RESPONSE_MESSAGE_MAX], what[sizeof(message) + 16];

	response_message(error, message, sizeof(message));
	snprintf(what, sizeof(what), "error %d: %s",
	    errors_number(error->error), message);
	refuse(import, line, what,
	    error->error == HTTP_BODY_TOO_LARGE
		? "  The largest is the setting PLANT_STORE_BODY_BYTES_MAX."
		: "");
}

static void
refuse_as(struct import *import, uint64_t line, enum http_error error)
{
	refuse_error(import, line, &(struct response_error){ .error = error });
}

static bool
begins_with(const char *text, size_t len, const char *with)
{
	return len >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

/* What a line of a file that was not meant for import is, or NULL. */
static const char *
find_mistake(const char *text, size_t len)
{
	if (begins_with(text, len, "["))
		return "a JSON array; import wants one plant a line: "
		       "jq -c '.[]' FILE (jq 1.6 rounds ids above 2^53)";
	if (begins_with(text, len, "{\"plant-store\":") ||
	    begins_with(text, len, "{\"seq\":"))
		return "a line of a journal; import the output of: plant-store "
		       "export --file JOURNAL";
	return NULL;
}

/* The plant of a JSON text, which is a line or was made of a record. */
static void
read_plant(struct import *import, uint64_t line, const char *text, size_t len)
{
	struct response_error failure;
	struct json_error error;
	struct plant plant;
	enum plant_fault fault;
	bool made = text == import->json;
	const char *mistake = made ? NULL : find_mistake(text, len);

	if (len > import->bytes_max) {
		refuse_as(import, line, HTTP_BODY_TOO_LARGE);
		return;
	}
	fault = plant_read(&plant, text, len, &error);
	if (fault == PLANT_OK)
		add_to_batch(import, line, &plant);
	else if (fault == PLANT_NO_MEMORY) {
		errno = ENOMEM;
		import->input_status =
		    command_fault(fault_report(import->name, "cannot read"));
	} else if (mistake != NULL)
		refuse(import, line, mistake, "");
	else {
		failure = api_plant_failure(fault, &error);
		/* An offset into what was made here would mean nothing. */
		if (made)
			failure.reason = NULL;
		refuse_error(import, line, &failure);
	}
}

/* Pass `with`, if the text begins so. */
static bool
pass(const char **text, size_t *len, const char *with)
{
	bool passed = begins_with(*text, *len, with);

	if (passed) {
		*text += strlen(with);
		*len -= strlen(with);
	}
	return passed;
}

/* A line of export --full; its form is as strict as the journal's. */
static void
read_full(struct import *import, uint64_t line, const char *text, size_t len)
{
	struct stamp *stamp = &import->stamp;
	const char *quote;
	int64_t ms;

	if (!pass(&text, &len, OUTPUT_FULL_AT) || len < TIMESTAMP_LEN ||
	    timestamp_read(text, TIMESTAMP_LEN, &ms) < 0)
		goto refused;
	timestamp_print(ms, stamp->at);
	text += TIMESTAMP_LEN;
	len -= TIMESTAMP_LEN;
	if (!pass(&text, &len, OUTPUT_FULL_BY) ||
	    (quote = memchr(text, '"', len)) == NULL ||
	    quote - text > RECORD_BY_MAX)
		goto refused;
	*(char *)mempcpy(stamp->by, text, (size_t)(quote - text)) = '\0';
	len -= (size_t)(quote - text);
	text = quote;
	if (tokens_is_name(stamp->by) && pass(&text, &len, OUTPUT_FULL_PLANT) &&
	    len > 0 && text[len - 1] == '}') {
		read_plant(import, line, text, len - 1);
		return;
	}
refused:
	refuse(import, line, "not a line of export --full", "");
}

/* An integer as JSON has it, so that it cannot be anything else there. */
static bool
is_integer(const struct csv_field *field)
{
	const char *text = field->text;
	size_t sign = field->len > 0 && text[0] == '-';

	if (field->len == sign || (text[sign] == '0' && field->len > sign + 1))
		return false;
	for (size_t i = sign; i < field->len; i++)
		if (text[i] < '0' || text[i] > '9')
			return false;
	return true;
}

static bool
is_absent(const struct csv_field *field)
{
	return field->len == 0 && !field->quoted;
}

/* The plant of a record with the header's fields. */
static void
read_record(
    struct import *import, uint64_t line, const struct csv_field *fields)
{
	const struct csv_field *id = &fields[import->column[ID]];
	const struct csv_field *name = &fields[import->column[NAME]];
	const struct csv_field *tag = &fields[import->column[TAG]];
	char *to = import->json;
	size_t len = 0;

	for (size_t i = 0; i < import->columns; i++)
		len += fields[i].len;
	enum http_error error = len > import->bytes_max ? HTTP_BODY_TOO_LARGE
				: is_absent(id)         ? HTTP_ID_MISSING
				: !is_integer(id)       ? HTTP_ID_NOT_INTEGER
				: is_absent(name)       ? HTTP_NAME_MISSING
							: HTTP_OK;
	if (error != HTTP_OK) {
		refuse_as(import, line, error);
		return;
	}
	to = mempcpy(to, "{\"id\":", 6);
	to = mempcpy(to, id->text, id->len);
	to = mempcpy(to, ",\"name\":", 8);
	to += json_string_print(name->text, name->len, to);
	if (import->column[TAG] < import->columns && !is_absent(tag)) {
		to = mempcpy(to, ",\"tag\":", 7);
		to += json_string_print(tag->text, tag->len, to);
	}
	*to++ = '}';
	read_plant(import, line, import->json, (size_t)(to - import->json));
}

/* --- Lines and records --- */

/* Move what is left to the front and read more behind it. */
static enum step
fill(struct import *import)
{
	struct pollfd ready = { .fd = import->fd, .events = POLLIN };
	ssize_t n = -1;

	import->end -= import->start;
	memmove(import->buf, import->buf + import->start, import->end);
	import->start = 0;
	while (n < 0) {
		if (!watch_step(&import->watch, import->done, import->total)) {
			import->input_status = 128 + command_interrupted();
			return END;
		}
		/* A read that waits could miss a signal just before it. */
		if (poll(&ready, 1, WAIT_MS) <= 0)
			continue;
		n = read(import->fd, import->buf + import->end,
		    import->size - import->end);
		if (n < 0 && errno != EINTR && errno != EAGAIN) {
			import->input_status =
			    errno == EISDIR ? EX_NOINPUT : EX_IOERR;
			(void)fault_report(import->name, "cannot read");
			return END;
		}
	}
	import->ended = n == 0;
	import->end += (size_t)n;
	import->done += (uint64_t)n;
	return GO_ON;
}

/*
 * Skip the line, or record, that begins at the start of the buffer and is
 * too long.  A record that is wrong ends with the line where it is wrong.
 */
static enum step
skip_line(struct import *import)
{
	enum csv_place place = CSV_FIELD_BEGINS;
	uint64_t number = import->lines + 1;
	enum step step = GO_ON;
	bool whole = false;
	char c = '\0';

	while (!whole && step == GO_ON) {
		while (!whole && import->start < import->end) {
			c = import->buf[import->start++];
			import->lines += c == '\n';
			whole = c == '\n' && place != CSV_IN_QUOTES;
			if (!whole && import->format == FORMAT_CSV)
				place = csv_next_place(place, c);
		}
		if (!whole && import->ended) {
			import->lines += c != '\n';
			whole = true;
		} else if (!whole)
			step = fill(import);
	}
	if (whole)
		refuse_as(import, number, HTTP_BODY_TOO_LARGE);
	return step;
}

static enum step
next_json(struct import *import)
{
	const char *text = import->buf + import->start;
	size_t len = import->end - import->start, blank = 0;
	const char *newline = memchr(text, '\n', len);

	if (newline == NULL && !import->ended)
		return NEED_MORE;
	if (newline != NULL)
		len = (size_t)(newline - text);
	import->start += len + (newline != NULL);
	import->lines++;
	if (len > 0 && text[len - 1] == '\r')
		len--;
	while (blank < len && (text[blank] == ' ' || text[blank] == '\t'))
		blank++;
	if (blank < len && import->full)
		read_full(import, import->lines, text, len);
	else if (blank < len)
		read_plant(import, import->lines, text, len);
	return GO_ON;
}

static uint64_t
count_newlines(const char *text, size_t len)
{
	uint64_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += text[i] == '\n';
	return n;
}

static enum step
read_header(struct import *import, const struct csv_field *fields, size_t n)
{
	static const char *const names[] = { "id", "name", "tag" };
	size_t *column = import->column;

	for (size_t c = 0; c < COLUMNS_MAX; c++)
		for (column[c] = 0; column[c] < n; column[c]++)
			if (fields[column[c]].len == strlen(names[c]) &&
			    memcmp(fields[column[c]].text, names[c],
				strlen(names[c])) == 0)
				break;
	if (n < 2 || column[ID] == n || column[NAME] == n ||
	    (n > 2 && column[TAG] == n)) {
		log_error("%s: line %" PRIu64
			  ": not the header line id,name,tag of CSV, in any "
			  "order, in small letters and with commas; add it, or "
			  "say --format jsonl if these are JSON lines; nothing "
			  "was imported",
		    import->name, import->lines);
		import->input_status = EX_DATAERR;
		return END;
	}
	import->columns = n;
	return GO_ON;
}

static enum step
next_csv(struct import *import)
{
	struct csv_field fields[COLUMNS_MAX];
	size_t n = import->columns > 0 ? import->columns : COLUMNS_MAX;
	char *text = import->buf + import->start;
	size_t used;
	const char *reason;
	enum csv_result result =
	    csv_record_split(text, import->end - import->start, import->ended,
		fields, &n, &used, &reason);

	if (result == CSV_MORE)
		return NEED_MORE;
	import->start += used;
	uint64_t number = import->lines + 1;
	/* The last line may have no break. */
	import->lines += text[used - 1] != '\n';
	if (result == CSV_BAD) {
		import->lines += count_newlines(text, used);
		if (import->columns == 0)
			return read_header(import, NULL, 0);
		refuse(import, number, "not valid CSV: ", reason);
		return GO_ON;
	}
	/* Unquoting may have left copies of breaks between the fields. */
	import->lines += text[used - 1] == '\n';
	for (size_t i = 0; i < n; i++)
		if (fields[i].quoted)
			import->lines +=
			    count_newlines(fields[i].text, fields[i].len);
	if (n == 1 && is_absent(&fields[0]))
		return GO_ON;
	if (import->columns == 0)
		return read_header(import, fields, n);
	if (n < import->columns)
		refuse(import, number, "not valid CSV: ", "too few fields");
	else
		read_record(import, number, fields);
	return GO_ON;
}

/* Find the format by the first bytes, and skip a byte order mark. */
static enum step
begin(struct import *import)
{
	enum step step = GO_ON;

	while (!import->ended && import->end < strlen(BOM) && step == GO_ON)
		step = fill(import);
	if (import->format == FORMAT_NONE)
		import->format = begins_with(import->buf, import->end, "{")
				     ? FORMAT_JSON_LINES
				     : FORMAT_CSV;
	if (import->format == FORMAT_CSV &&
	    begins_with(import->buf, import->end, BOM))
		import->start = strlen(BOM);
	return step;
}

/* Store the plants up to the end of the input, or to what ends it earlier. */
static void
store_lines(struct import *import)
{
	enum step step = begin(import);

	while (step != END && import->status == EX_OK &&
	       import->input_status == EX_OK &&
	       (import->keep_going ||
		   import->refused.n + import->conflicting.n == 0)) {
		if (step == NEED_MORE)
			step = import->end - import->start > import->line_max
				   ? skip_line(import)
				   : fill(import);
		else if (import->ended && import->start == import->end)
			step = END;
		else
			step = import->format == FORMAT_CSV ? next_csv(import)
							    : next_json(import);
	}
	if (import->status == EX_OK)
		commit_batch(import);
	if (import->status == EX_OK)
		import->status = import->input_status;
	/* What a failure left uncommitted. */
	for (size_t i = 0; i < import->n; i++)
		plant_done(&import->plants[i]);
}

/* --- The whole --- */

/* Print what has been done, and log what to do about the rest. */
static int
report(const struct import *import)
{
	char text[512];
	FILE *out;

	printf("%" PRIu64 " created, %" PRIu64 " there already, %" PRIu64
	       " conflicting, %" PRIu64 " refused; read up to line %" PRIu64
	       "\n",
	    import->stored.n - import->same, import->same,
	    import->conflicting.n, import->refused.n, import->lines);
	if (import->status > 128)
		log_error("%s: interrupted; every line up to %" PRIu64
			  " is done; import the file again to go on",
		    import->name, import->lines);
	if (import->status != EX_OK)
		return import->status;
	if (import->refused.n + import->conflicting.n == 0)
		return EX_OK;
	out = import->keep_going ? NULL : fmemopen(text, sizeof(text), "w");
	if (out != NULL) {
		print_lines(out, "Stored", &import->stored);
		print_lines(out, "In conflict", &import->conflicting);
		print_lines(out, "Refused", &import->refused);
		fclose(out);
		log_error("%s: stopped at line %" PRIu64 ".%s Correct the "
			  "file, or use --keep-going, and import it again",
		    import->name, import->lines, text);
	}
	return EX_DATAERR;
}

static int
open_and_store(struct import *import, const struct call *call)
{
	/* Opening may have to read on in the journal, or build the index. */
	struct watch watch = command_watch(call, "index");
	struct store_options options = { .database = call->database,
		.dir = call->dir,
		.prepare = true,
		.watch = &watch };
	enum fault fault;

	import->store = store_open(&options, &fault);
	command_unwatch();
	if (command_interrupted() != 0) {
		store_close(import->store);
		log_error("import: interrupted; nothing was imported");
		return 128 + command_interrupted();
	}
	if (import->store == NULL)
		return command_fault(fault);
	import->watch = command_watch(call, "import");
	store_lines(import);
	command_unwatch();
	store_close(import->store);
	return report(import);
}

/* Open the file, or standard input for NULL and "-". */
static int
open_input(struct import *import, const char *path)
{
	struct stat st;

	if (path != NULL && strcmp(path, "-") == 0)
		path = NULL;
	import->name = path == NULL ? "stdin" : path;
	import->line_max = import->bytes_max + BREAK_MAX;
	if (import->full)
		import->line_max += OUTPUT_FULL_AROUND;
	import->size = import->line_max + READ_BYTES;
	import->buf = malloc(import->size);
	/* A character is six bytes at most, as \u001f is. */
	import->json = malloc(6 * import->bytes_max + JSON_AROUND);
	if (import->buf == NULL || import->json == NULL)
		return command_fault(fault_report("import", "cannot begin"));
	if (path != NULL)
		import->fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	if (import->fd < 0 || fstat(import->fd, &st) < 0) {
		(void)fault_report(import->name, "cannot open");
		return EX_NOINPUT;
	}
	if (S_ISREG(st.st_mode))
		import->total = (uint64_t)st.st_size;
	if (isatty(import->fd))
		log_info("import: type a plant a line, and end with Ctrl-D");
	return EX_OK;
}

static int
run(const struct call *call)
{
	static struct import import = { .by = "import", .fd = STDIN_FILENO };
	struct config config;
	int status = command_by(call, &import.by);

	if (status == EX_OK)
		status =
		    command_format(call, call->operands[0], &import.format);
	if (status != EX_OK)
		return status;
	import.keep_going = call->values['k'] != NULL;
	import.full = call->values['u'] != NULL;
	if (import.full &&
	    (import.format == FORMAT_CSV || call->values['b'] != NULL))
		return command_usage_error(call,
		    "--full has JSON lines with the token's name: leave out "
		    "--by and csv");
	if (import.full)
		import.format = FORMAT_JSON_LINES;
	if (config_read(&config) != FAULT_NONE)
		return EX_CONFIG;
	import.bytes_max = config.body_bytes_max;
	status = open_input(&import, call->operands[0]);
	if (status == EX_OK && call->database == NULL)
		status = command_become_owner(call->dir);
	if (status == EX_OK)
		status = open_and_store(&import, call);
	if (import.fd > STDIN_FILENO)
		close(import.fd);
	free(import.buf);
	free(import.json);
	return status;
}

const struct command import_command = {
	.name = "import",
	.summary = "store the plants of a file",
	.usage = usage,
	.options = { { "by", required_argument, NULL, 'b' },
	    { "format", required_argument, NULL, 'f' },
	    { "keep-going", no_argument, NULL, 'k' },
	    { "full", no_argument, NULL, 'u' }, COMMAND_DIR, COMMAND_PROGRESS,
	    COMMAND_HELP },
	.operands_max = 1,
	.run = run,
};
