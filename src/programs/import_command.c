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
#include <strings.h>
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
#include "pure/csv.h"
#include "pure/json_string.h"
#include "store/store.h"

static const char usage[] =
    "Usage: plant-store import [--dir DIR] [--by NAME] [--format jsonl|csv]\n"
    "                          [--keep-going] [--quiet | --progress] [FILE]\n"
    "\n"
    "Store the plants of FILE, or of standard input (also as -), with the\n"
    "checks of the interface.  FILE has JSON lines, a plant a line as clients\n"
    "send it, or CSV with the header line id,name,tag (or id,name).  A file\n"
    "may be imported again, also after an interruption.\n"
    "\n"
    "Every line that is refused, or whose id has another plant already, is\n"
    "named on stderr.  The first such line ends the import; what came before\n"
    "it is stored.\n"
    "\n"
    "  --by NAME        stands in the journal beside each plant (import)\n"
    "  --format FORMAT  jsonl or csv (by the suffix .jsonl, .ndjson, .json or\n"
    "                   .csv, else jsonl if the first byte is '{')\n"
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
/* id, name, tag */
#define COLUMNS_MAX 3
/* The JSON around a record's fields. */
#define JSON_AROUND sizeof("{\"id\":,\"name\":\"\",\"tag\":\"\"}")

enum format {
	FORMAT_GUESS, /* by the file's suffix, else by its first byte */
	FORMAT_JSON_LINES,
	FORMAT_CSV
};

struct import {
	const char *by;
	bool keep_going;
	struct store *store;
	uint64_t created, same, conflicting, refused;
	int status; /* why nothing more can be stored, or EX_OK */

	const char *name; /* of the file, in messages */
	uint64_t lines;   /* read so far */
	int input_status; /* why nothing more can be read, or EX_OK */
	struct watch watch;
	enum format format;
	size_t bytes_max; /* of a plant, as JSON */
	int fd;
	bool ended;           /* no more can be read */
	uint64_t done, total; /* bytes of the file; 0 if that is not known */
	char *buf;            /* from `start` to `end` is not used yet */
	size_t size, start, end;
	size_t columns; /* of the CSV's header; while it is read, 0 */
	char *json;     /* a record as JSON */

	/* The batch. */
	size_t n;
	size_t bytes; /* of the journal, at most */
	struct plant plants[BATCH_PLANTS];
	struct store_item items[BATCH_PLANTS];
	uint64_t numbers[BATCH_PLANTS]; /* of their lines */
};

/* What follows a step of reading. */
enum step { GO_ON, NEED_MORE, END };

/* --- Batches --- */

/* Log why nothing is stored from line `number` on. */
static void
end_unstored(struct import *import, uint64_t number, enum store_result result)
{
	bool full = result == STORE_FULL, busy = result == STORE_BUSY;

	import->status = full || busy ? EX_TEMPFAIL : EX_IOERR;
	log_error("%s: line %" PRIu64 ": the store %s; every line before it is "
		  "done; %s import the file again: what is stored is skipped",
	    import->name, number,
	    full   ? "is full"
	    : busy ? "is busy"
		   : "has failed, and may have it or not",
	    full   ? "make room, and"
	    : busy ? "a little later"
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
		case STORE_CREATED:
			import->created++;
			break;
		case STORE_SAME:
			import->same++;
			break;
		case STORE_CONFLICT:
			import->conflicting++;
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
	import->numbers[import->n] = line;
	import->bytes += bytes;
	import->n++;
}

/* --- A plant, or why there is none --- */

static void
refuse(struct import *import, uint64_t line, const struct response_error *error,
    const char *hint)
{
	char message[RESPONSE_MESSAGE_MAX];

	response_message(error, message, sizeof(message));
	log_error("%s: line %" PRIu64 ": error %d: %s%s", import->name, line,
	    errors_number(error->error), message, hint);
	import->refused++;
}

static void
refuse_as(struct import *import, uint64_t line, enum http_error error)
{
	refuse(import, line, &(struct response_error){ .error = error },
	    error == HTTP_BODY_TOO_LARGE
		? "  The largest is the setting PLANT_STORE_BODY_BYTES_MAX."
		: "");
}

static void
refuse_csv(struct import *import, uint64_t line, const char *reason)
{
	log_error("%s: line %" PRIu64 ": The record is not valid CSV: %s.",
	    import->name, line, reason);
	import->refused++;
}

static bool
begins_with(const char *text, size_t len, const char *with)
{
	return len >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

/* What to do about a file that was not meant for import. */
static const char *
hint_of(const char *text, size_t len)
{
	if (begins_with(text, len, "["))
		return "  For a JSON array, make a plant a line of it: "
		       "jq -c '.[]' FILE (jq 1.6 rounds ids above 2^53).";
	if (begins_with(text, len, "{\"plant-store\":") ||
	    begins_with(text, len, "{\"seq\":"))
		return "  This is a journal: import the output of "
		       "plant-store export --file JOURNAL.";
	return "";
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
	} else {
		failure = api_plant_failure(fault, &error);
		/* An offset into what was made here would mean nothing. */
		if (made)
			failure.reason = NULL;
		refuse(import, line, &failure, made ? "" : hint_of(text, len));
	}
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

/* The plant of a record with `n` fields, two or three. */
static void
read_record(struct import *import, uint64_t line,
    const struct csv_field *fields, size_t n)
{
	char *to = import->json;
	size_t len = 0;

	for (size_t i = 0; i < n; i++)
		len += fields[i].len;
	enum http_error error = len > import->bytes_max   ? HTTP_BODY_TOO_LARGE
				: is_absent(&fields[0])   ? HTTP_ID_MISSING
				: !is_integer(&fields[0]) ? HTTP_ID_NOT_INTEGER
				: is_absent(&fields[1])   ? HTTP_NAME_MISSING
							  : HTTP_OK;
	if (error != HTTP_OK) {
		refuse_as(import, line, error);
		return;
	}
	to = mempcpy(to, "{\"id\":", 6);
	to = mempcpy(to, fields[0].text, fields[0].len);
	to = mempcpy(to, ",\"name\":", 8);
	to += json_string_print(fields[1].text, fields[1].len, to);
	if (n > 2 && !is_absent(&fields[2])) {
		to = mempcpy(to, ",\"tag\":", 7);
		to += json_string_print(fields[2].text, fields[2].len, to);
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
	if (blank < len)
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
	bool good = n == 2 || n == 3;

	for (size_t i = 0; good && i < n; i++)
		good = fields[i].len == strlen(names[i]) &&
		       memcmp(fields[i].text, names[i], fields[i].len) == 0;
	if (!good) {
		log_error("%s: line %" PRIu64
			  ": not the header line id,name,tag of CSV, in small "
			  "letters and with commas; add it, or say --format "
			  "jsonl if these are JSON lines; nothing was imported",
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
		refuse_csv(import, number, reason);
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
		refuse_csv(import, number, "too few fields");
	else
		read_record(import, number, fields, n);
	return GO_ON;
}

/* Find the format by the first bytes, and skip a byte order mark. */
static enum step
begin(struct import *import)
{
	enum step step = GO_ON;

	while (!import->ended && import->end < strlen(BOM) && step == GO_ON)
		step = fill(import);
	if (import->format == FORMAT_GUESS)
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
		   import->refused + import->conflicting == 0)) {
		if (step == NEED_MORE)
			step = import->end - import->start >
				       import->bytes_max + BREAK_MAX
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
	printf("%" PRIu64 " created, %" PRIu64 " there already, %" PRIu64
	       " conflicting, %" PRIu64 " refused; read up to line %" PRIu64
	       "\n",
	    import->created, import->same, import->conflicting, import->refused,
	    import->lines);
	if (import->status > 128)
		log_error("%s: interrupted; every line up to %" PRIu64
			  " is done; import the file again to go on",
		    import->name, import->lines);
	if (import->status != EX_OK)
		return import->status;
	if (import->refused + import->conflicting == 0)
		return EX_OK;
	if (!import->keep_going)
		log_error(
		    "%s: stopped at line %" PRIu64
		    "; all lines up to there are stored, except for those "
		    "named above; correct the file, or use --keep-going, "
		    "and import it again",
		    import->name, import->lines);
	return EX_DATAERR;
}

static int
open_and_store(struct import *import, const struct call *call)
{
	/* Opening may have to read on in the journal, or build the index. */
	struct watch watch = command_watch(call, "index");
	struct store_options options = {
		.dir = call->dir, .prepare = true, .watch = &watch
	};
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

static enum format
format_of_suffix(const char *path)
{
	static const char *const suffixes[] = { ".csv", ".jsonl", ".ndjson",
		".json" };
	const char *dot = strrchr(path, '.');

	for (size_t i = 0; dot != NULL && i < 4; i++)
		if (dot > path && strcasecmp(dot, suffixes[i]) == 0)
			return i == 0 ? FORMAT_CSV : FORMAT_JSON_LINES;
	return FORMAT_GUESS;
}

/* Open the file, or standard input for NULL and "-". */
static int
open_input(struct import *import, const char *path)
{
	struct stat st;

	if (path != NULL && strcmp(path, "-") == 0)
		path = NULL;
	import->name = path == NULL ? "stdin" : path;
	if (import->format == FORMAT_GUESS)
		import->format = format_of_suffix(import->name);
	import->size = import->bytes_max + BREAK_MAX + READ_BYTES;
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
	bool csv;
	int status = command_by(call, &import.by);

	if (status == EX_OK)
		status = command_format(call, &csv);
	if (status != EX_OK)
		return status;
	import.keep_going = call->values['k'] != NULL;
	if (call->values['f'] != NULL)
		import.format = csv ? FORMAT_CSV : FORMAT_JSON_LINES;
	if (config_read(&config) != FAULT_NONE)
		return EX_CONFIG;
	import.bytes_max = config.body_bytes_max;
	status = open_input(&import, call->operands[0]);
	if (status == EX_OK)
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
	    { "keep-going", no_argument, NULL, 'k' }, COMMAND_DIR,
	    COMMAND_PROGRESS, COMMAND_HELP },
	.operands_max = 1,
	.run = run,
};
