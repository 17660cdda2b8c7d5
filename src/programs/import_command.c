/*
 * import_command: plants from JSON lines or CSV into the store, with the checks
 * of the interface.  Constant memory.
 *
 * Lines are read into a batch until it is as large as one write to the journal,
 * the batch is committed, and so on to the end of the input.  After an import
 * that ended early it is safe to import again: an id makes a plant's creation
 * repeatable.
 *
 * Lines are taken from the start of the buffer; when one is not whole, more is
 * read behind it.  A line that is longer than a plant may be is skipped without
 * being kept.  A record of CSV becomes the JSON that a client would have sent,
 * so there is one set of checks.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "api/api.h"
#include "command.h"
#include "ground/config.h"
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
    "Usage: plant-store import [--dir DIR] [--by NAME | --full]\n"
    "           [--format jsonl|csv] [--keep-going] [--quiet | --progress]\n"
    "           [FILE]\n"
    "\n"
    "Store the plants of FILE, or of standard input, with the checks of the\n"
    "interface.  The first line that is refused, or whose id has another\n"
    "plant already, ends the import.  A file may be imported again.\n"
    "\n"
    "  --by NAME        stands in the journal beside each plant (import)\n"
    "  --format FORMAT  jsonl, or csv with a header line of id, name and tag\n"
    "  --full           FILE is of export --full: keep times and token names\n"
    "  --keep-going     report such lines and go on\n";

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
#define LINE_BYTES_MAX (CONFIG_BODY_BYTES_MAX + OUTPUT_FULL_AROUND + BREAK_MAX)
/* A record as JSON: a character is six bytes at most, as \u001f is. */
#define JSON_BYTES_MAX               \
	(6 * CONFIG_BODY_BYTES_MAX + \
	    sizeof("{\"id\":,\"name\":\"\",\"tag\":\"\"}"))

/* Lines of a kind: how many, and the first of them. */
struct lines {
	uint64_t n, first;
};

/* By which token a plant was stored first, and when; "" for now. */
struct stamp {
	char by[RECORD_BY_MAX + 1], at[TIMESTAMP_LEN + 1];
};

struct import {
	bool keep_going, full;
	struct store *store;
	struct lines stored, conflicting, refused;
	uint64_t same; /* of those stored, were there already */
	int status;    /* EX_OK, or why it is over, and the batch with it */

	const char *name; /* of the file, in messages */
	uint64_t lines;   /* read so far */
	struct watch watch;
	enum format format;
	size_t bytes_max;   /* of a plant, as JSON */
	size_t line_max;    /* of a line, with its break */
	uint64_t line;      /* at hand */
	struct stamp stamp; /* of the line at hand */
	int fd;
	bool ended;           /* no more can be read */
	uint64_t done, total; /* bytes of the file; 0 if that is not known */
	size_t start, end;    /* between them `buf` is not used yet */
	size_t columns;       /* of the CSV's header; in it, 0 */
	size_t column[COLUMNS_MAX]; /* where it has each; `columns`: not */
	char buf[LINE_BYTES_MAX + READ_BYTES + 1]; /* and a NUL behind it */
	char json[JSON_BYTES_MAX];                 /* a record as JSON */

	/* The batch. */
	size_t n;
	size_t bytes; /* of the journal, at most */
	struct entry {
		struct plant plant;
		struct stamp stamp;
		uint64_t line;
	} entries[BATCH_PLANTS];
	struct store_item items[BATCH_PLANTS];
};

/* What follows a step of reading. */
enum step { GO_ON, NEED_MORE, END };

static void
note_line(struct lines *lines, uint64_t number)
{
	if (lines->n++ == 0)
		lines->first = number;
}

/* Log why nothing is stored from this line on. */
static void
end_unstored(struct import *import, uint64_t line, enum store_result result)
{
	static const struct {
		const char *what, *remedy;
	} words[] = {
		[STORE_FULL] = { "is full", "make room, and" },
		[STORE_BUSY] = { "is busy", "a little later" },
		[STORE_AWAY] = { "cannot be reached", "a little later" },
		[STORE_UNKNOWN] = { "did not confirm it, and may have it or "
				    "not",
		    "a little later" },
		[STORE_FAILED] = { "has failed, and may have it or not",
		    "when the store is repaired," },
	};

	import->status = result == STORE_FAILED ? EX_IOERR : EX_TEMPFAIL;
	log_error("%s: line %" PRIu64 ": the store %s; every line before it is "
		  "done; %s import the file again: what is stored is skipped",
	    import->name, line, words[result].what, words[result].remedy);
}

static void
commit_batch(struct import *import)
{
	size_t n = import->n;

	import->n = import->bytes = 0;
	if (n == 0)
		return;
	int failed = store_commit(import->store, import->items, n, NULL, NULL);
	for (size_t i = 0; i < n; i++) {
		struct entry *entry = &import->entries[i];
		enum store_result result = import->items[i].result;

		import->same += result == STORE_SAME;
		if (result == STORE_SAME || result == STORE_CREATED)
			note_line(&import->stored, entry->line);
		else if (result == STORE_CONFLICT) {
			note_line(&import->conflicting, entry->line);
			log_error("%s: line %" PRIu64 ": error %d: id %" PRId64
				  ": %s",
			    import->name, entry->line,
			    errors_number(HTTP_CONFLICT), entry->plant.id,
			    errors_message(HTTP_CONFLICT));
		} else if (import->status == EX_OK)
			end_unstored(import, entry->line, result);
		plant_done(&entry->plant);
	}
	if (failed != 0 && import->status == EX_OK)
		import->status = EX_IOERR;
}

/* Nothing more can be read; what was is stored. */
static enum step
end_input(struct import *import, int status)
{
	commit_batch(import);
	if (import->status == EX_OK)
		import->status = status;
	return END;
}

static void
add_to_batch(struct import *import, const struct plant *plant)
{
	size_t bytes = RECORD_ENVELOPE_MAX + plant->len;

	if (import->n == BATCH_PLANTS || import->bytes + bytes > BATCH_BYTES)
		commit_batch(import);
	struct entry *entry = &import->entries[import->n];
	*entry = (struct entry){ *plant, import->stamp, import->line };
	import->items[import->n++] = (struct store_item){
		.plant = &entry->plant,
		.by = entry->stamp.by,
		.at = import->full ? entry->stamp.at : NULL,
	};
	import->bytes += bytes;
}

static void
refuse(struct import *import, const char *what, const char *why)
{
	log_error("%s: line %" PRIu64 ": %s%s", import->name, import->line,
	    what, why);
	note_line(&import->refused, import->line);
}

static void
refuse_error(struct import *import, struct response_error error)
{
	char what[RESPONSE_MESSAGE_MAX + 16];
	int n = snprintf(
	    what, sizeof(what), "error %d: ", errors_number(error.error));

	response_message(&error, what + n, RESPONSE_MESSAGE_MAX);
	refuse(import, what,
	    error.error == HTTP_BODY_TOO_LARGE
		? "  The largest is the setting PLANT_STORE_BODY_BYTES_MAX."
		: "");
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
read_plant(struct import *import, const char *text, size_t len)
{
	struct response_error failure;
	struct json_error error;
	struct plant plant;
	enum plant_fault fault;
	bool made = text == import->json;
	const char *mistake = made ? NULL : find_mistake(text, len);

	if (len > import->bytes_max) {
		refuse_error(import,
		    (struct response_error){ .error = HTTP_BODY_TOO_LARGE });
		return;
	}
	fault = plant_read(&plant, text, len, &error);
	if (fault == PLANT_OK)
		add_to_batch(import, &plant);
	else if (fault == PLANT_NO_MEMORY) {
		errno = ENOMEM;
		end_input(import,
		    command_fault(fault_report(import->name, "cannot read")));
	} else if (mistake != NULL)
		refuse(import, mistake, "");
	else {
		failure = api_plant_failure(fault, &error);
		/* An offset into what was made here would mean nothing. */
		if (made)
			failure.reason = NULL;
		refuse_error(import, failure);
	}
}

/* A line of export --full; its form is as strict as the journal's. */
static void
read_full(struct import *import, char *text, size_t len)
{
	struct stamp *stamp = &import->stamp;
	int64_t ms;
	int n = 0;

	static_assert(TIMESTAMP_LEN == 24 && RECORD_BY_MAX == 64, "see below");
	sscanf(text,
	    OUTPUT_FULL_AT "%24[^\"]" OUTPUT_FULL_BY
			   "%64[^\"]" OUTPUT_FULL_PLANT "%n",
	    stamp->at, stamp->by, &n);
	if (n > 0 && text[len - 1] == '}' && tokens_is_name(stamp->by) &&
	    timestamp_read(stamp->at, TIMESTAMP_LEN, &ms) == 0) {
		timestamp_print(ms, stamp->at);
		read_plant(import, text + n, len - 1 - (size_t)n);
	} else
		refuse(import, "not a line of export --full", "");
}

/* An integer as JSON has it, so that it cannot be anything else there. */
static bool
is_integer(const struct csv_field *field)
{
	const char *text = field->text;
	size_t sign = field->len > 0 && text[0] == '-';
	size_t digits = field->len - sign;

	/* There is a NUL behind the buffer, if not earlier. */
	return digits > 0 && (text[sign] != '0' || digits == 1) &&
	       strspn(text + sign, "0123456789") >= digits;
}

static bool
is_absent(const struct csv_field *field)
{
	return field->len == 0 && !field->quoted;
}

/* The plant of a record with the header's fields. */
static void
read_record(struct import *import, const struct csv_field *fields)
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
		refuse_error(import, (struct response_error){ .error = error });
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
	read_plant(import, import->json, (size_t)(to - import->json));
}

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
			return end_input(import, 128 + command_interrupted());
		}
		/* A read that waits could miss a signal just before it. */
		if (poll(&ready, 1, WAIT_MS) <= 0)
			continue;
		n = read(import->fd, import->buf + import->end,
		    sizeof(import->buf) - 1 - import->end);
		if (n < 0 && errno != EINTR && errno != EAGAIN) {
			int status = errno == EISDIR ? EX_NOINPUT : EX_IOERR;

			(void)fault_report(import->name, "cannot read");
			return end_input(import, status);
		}
	}
	import->ended = n == 0;
	import->end += (size_t)n;
	import->buf[import->end] = '\0';
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
	char c = '\0';

	for (;;) {
		while (import->start < import->end) {
			c = import->buf[import->start++];
			import->lines += c == '\n';
			if (c == '\n' && place != CSV_IN_QUOTES)
				goto whole;
			if (import->format == FORMAT_CSV)
				place = csv_next_place(place, c);
		}
		if (import->ended)
			break;
		if (fill(import) == END)
			return END;
	}
	import->lines += c != '\n';
whole:
	refuse_error(
	    import, (struct response_error){ .error = HTTP_BODY_TOO_LARGE });
	return GO_ON;
}

static enum step
next_json(struct import *import)
{
	char *text = import->buf + import->start;
	size_t len = import->end - import->start;
	char *newline = memchr(text, '\n', len);

	if (newline == NULL && !import->ended)
		return NEED_MORE;
	if (newline != NULL)
		len = (size_t)(newline - text);
	import->start += len + (newline != NULL);
	import->lines++;
	if (len > 0 && text[len - 1] == '\r')
		len--;
	text[len] = '\0'; /* in place of a break, or behind the buffer */
	if (strspn(text, " \t") < len && import->full)
		read_full(import, text, len);
	else if (strspn(text, " \t") < len)
		read_plant(import, text, len);
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
			    begins_with(fields[column[c]].text,
				fields[column[c]].len, names[c]))
				break;
	if (n < 2 || column[ID] == n || column[NAME] == n ||
	    (n > 2 && column[TAG] == n)) {
		log_error("%s: line %" PRIu64
			  ": not the header line id,name,tag of CSV, in any "
			  "order, in small letters and with commas; add it, or "
			  "say --format jsonl if these are JSON lines; nothing "
			  "was imported",
		    import->name, import->lines);
		return end_input(import, EX_DATAERR);
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
	if (result == CSV_BAD) {
		/* The last line may have no break. */
		import->lines +=
		    count_newlines(text, used) + (text[used - 1] != '\n');
		if (import->columns == 0)
			return read_header(import, NULL, 0);
		refuse(import, "not valid CSV: ", reason);
		return GO_ON;
	}
	/* Unquoting may have left copies of breaks between the fields. */
	import->lines++;
	for (size_t i = 0; i < n; i++)
		if (fields[i].quoted)
			import->lines +=
			    count_newlines(fields[i].text, fields[i].len);
	if (n == 1 && is_absent(&fields[0]))
		return GO_ON;
	if (import->columns == 0)
		return read_header(import, fields, n);
	if (n < import->columns)
		refuse(import, "not valid CSV: ", "too few fields");
	else
		read_record(import, fields);
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
	       (import->keep_going ||
		   import->refused.n + import->conflicting.n == 0)) {
		import->line = import->lines + 1;
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
}

/* " Stored: line 1 and 17 more."; nothing without a line. */
static void
print_lines(FILE *out, const char *what, const struct lines *lines)
{
	if (lines->n == 0)
		return;
	fprintf(out, " %s: line %" PRIu64, what, lines->first);
	if (lines->n > 1)
		fprintf(out, " and %" PRIu64 " more", lines->n - 1);
	putc('.', out);
}

/* Print what has been done, and log what to do about the rest. */
static int
report(const struct import *import)
{
	char text[256];
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
	if (import->status != EX_OK ||
	    import->refused.n + import->conflicting.n == 0)
		return import->status;
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
	import->line_max = import->bytes_max + BREAK_MAX +
			   (import->full ? OUTPUT_FULL_AROUND : 0);
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
	static struct import import = { .fd = STDIN_FILENO };
	const char *by = "import";
	struct config config;
	int status = command_by(call, &by);

	if (status == EX_OK)
		status =
		    command_format(call, call->operands[0], &import.format);
	if (status != EX_OK)
		return status;
	snprintf(import.stamp.by, sizeof(import.stamp.by), "%s", by);
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
	return status;
}

const struct command import_command = {
	.name = "import",
	.summary = "store the plants of a file",
	.usage = usage,
	.options = { { "by", required_argument, NULL, 'b' },
	    { "format", required_argument, NULL, 'f' },
	    { "keep-going", no_argument, NULL, 'k' },
	    { "full", no_argument, NULL, 'u' }, COMMAND_STORE },
	.operands = { 0, 1 },
	.run = run,
};
