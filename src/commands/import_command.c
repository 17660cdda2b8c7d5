/*
 * import_command: stores JSON lines or CSV, with the service's checks.
 *
 * An import that ended early can be repeated: a plant's id makes its creation
 * idempotent.  A line longer than the largest plant is skipped to its end.  A
 * CSV record becomes the JSON that a client would have sent, so there is only
 * one set of checks.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "api/api.h"
#include "batch.h"
#include "command.h"
#include "ground/config.h"
#include "ground/file.h"
#include "http/errors.h"
#include "pure/csv.h"
#include "pure/json.h"

#define WAIT_MS 100 /* how soon a wait for input notices a signal */
#define BREAK_MAX 2 /* CR LF */
#define BOM "\xef\xbb\xbf"
/* `text` ends in a NUL. */
#define BEGINS(text, with) (strncmp(text, with, strlen(with)) == 0)
enum { ID, NAME, TAG, COLUMNS_MAX };
static const char *const members[] = { "id", "name", "tag" };
#define LINE_BYTES_MAX (CONFIG_BODY_BYTES_MAX + COMMAND_FULL_AROUND + BREAK_MAX)
/* A CSV record as JSON: a byte becomes at most six, such as \u001f. */
#define JSON_BYTES_MAX \
	(6 * LINE_BYTES_MAX + sizeof("{\"id\":,\"name\":\"\",\"tag\":\"\"}"))

static struct {
	bool keep_going, full;
	uint64_t refused; /* lines */

	const char *name; /* of the input, in messages */
	uint64_t lines;   /* read so far */
	const struct watch *watch;
	enum format format;
	size_t line_max; /* the longest line, with its line break */
	int fd;
	unsigned char buffer[64 << 10];
	size_t next, end;           /* the part not yet parsed */
	uint64_t done, total;       /* bytes; a total of 0: unknown */
	size_t columns;             /* in the CSV header; before it, 0 */
	size_t column[COLUMNS_MAX]; /* of a member; `columns`: missing */

	/* The current line or CSV record. */
	struct batch_entry entry; /* .begin: the number of its first line */
	size_t len;               /* with its line break */
	char text[LINE_BYTES_MAX + 1]; /* up to line_max, and a NUL */
	char json[JSON_BYTES_MAX];     /* a CSV record as JSON */
} import = { .fd = STDIN_FILENO };

static void
report_line(const struct batch_entry *entry, enum store_result result)
{
	enum http_error error = api_error_of(result);
	bool ends = result > STORE_CONFLICT && batch.fault == FAULT_NONE;

	if (ends || result == STORE_CONFLICT)
		log_error("%s: line %" PRIu64 ": error %d: id %" PRId64
			  ": %s%s",
		    import.name, entry->begin, http_errors[error].number,
		    entry->plant.id, http_errors[error].message,
		    ends ? "  Every line before it is done; import the file "
			   "again to continue"
			 : "");
}

static uint64_t
wrong_lines(void)
{
	return import.refused + batch.results[STORE_CONFLICT];
}

/* Store what was read, print the totals, and end with this status or fault. */
_Noreturn static void
end_import(int status)
{
	batch_commit();
	command_unwatch();
	store_close(batch.store);
	if (batch.fault != FAULT_NONE)
		status = command_status(batch.fault);
	printf("%" PRIu64 " created, %" PRIu64 " already stored, %" PRIu64
	       " conflicting, %" PRIu64 " refused; read up to line %" PRIu64
	       "\n",
	    batch.results[STORE_CREATED], batch.results[STORE_SAME],
	    batch.results[STORE_CONFLICT], import.refused, import.lines);
	if (status > 128 && batch.fault == FAULT_NONE)
		log_error("%s: interrupted; every line up to %" PRIu64
			  " is done; import the file again to continue",
		    import.name, import.lines);
	if (status == EX_OK && wrong_lines() > 0) {
		status = EX_DATAERR;
		if (!import.keep_going)
			log_error("%s: stopped at line %" PRIu64
				  "; correct the file, or use --keep-going, "
				  "and import it again",
			    import.name, import.lines);
	}
	command_exit(status);
}

#define refuse(why, ...)                                           \
	(import.refused++, log_error("%s: line %" PRIu64 ": " why, \
			       import.name, import.entry.begin, __VA_ARGS__))

/* Return which other format a line has, and the remedy, or NULL. */
static const char *
find_mistake(const char *text, size_t len)
{
	if (text[0] == '{' && strspn(text + 1, " \t") == len - 1)
		return "JSON that spans several lines; import needs one plant "
		       "per line: jq -c . FILE (jq 1.6 rounds ids above 2^53)";
	if (text[0] == '[')
		return "a JSON array; import needs one plant per line: "
		       "jq -c '.[]' FILE (jq 1.6 rounds ids above 2^53)";
	if (BEGINS(text, "{\"plant-store\":") || BEGINS(text, "{\"seq\":"))
		return "a line of a journal; import the output of: plant-store "
		       "export --file JOURNAL";
	return NULL;
}

/* Add the plant in `text`: an input line, or JSON made from a CSV record. */
static void
read_plant(const char *text, size_t len)
{
	struct api_error failure = { .error = HTTP_BODY_TOO_LARGE };
	const char *mistake = find_mistake(text, len);
	char message[API_MESSAGE_MAX];
	struct json_error error;

	if (len <= batch.plant_max) {
		enum plant_fault fault =
		    plant_read(&import.entry.plant, text, len, &error);

		if (fault == PLANT_OK) {
			batch_add(&import.entry);
			return;
		}
		errno = ENOMEM;
		if (fault == PLANT_NO_MEMORY)
			end_import(fault_status(
			    fault_report(import.name, "cannot read")));
		failure = api_plant_failure(fault, &error);
		/* The user has not seen this JSON, so an offset is useless. */
		if (text == import.json)
			failure.reason = NULL;
	}
	api_message(&failure, message);
	if (mistake != NULL)
		refuse("%s", mistake);
	else
		refuse(
		    "error %d: %s", http_errors[failure.error].number, message);
}

/* Read a line of export --full: the text around the plant is fixed. */
static void
read_full(char *text, size_t len)
{
	struct batch_entry *entry = &import.entry;
	int64_t ms;
	int n = 0;

	static_assert(TIMESTAMP_LEN == 24 && RECORD_BY_MAX == 64, "see below");
	sscanf(text, COMMAND_FULL("%24[^\"]", "%64[^\"]") "%n", entry->at,
	    entry->by, &n);
	if (n > 0 && text[len - 1] == '}' && tokens_is_name(entry->by) &&
	    timestamp_read(entry->at, TIMESTAMP_LEN, &ms) == 0) {
		timestamp_print(ms, entry->at);
		read_plant(text + n, len - 1 - (size_t)n);
	} else
		refuse("%s", "not a line of export --full");
}

/*
 * Convert a CSV record to JSON, and read that.  A missing or wrong field stays
 * missing or wrong; an id that is not a JSON integer becomes a string.
 */
static void
read_record(const struct csv_field *fields)
{
	char *to = import.json;

	*to++ = '{';
	for (int c = 0; c < COLUMNS_MAX; c++) {
		const struct csv_field *field = &fields[import.column[c]];

		if (import.column[c] == import.columns || field->text == NULL)
			continue;
		const char *digits = field->text + (field->text[0] == '-');
		/* strspn stops at the NUL after the line, if not earlier. */
		size_t n = strspn(digits, "0123456789");
		bool integer = n > 0 && (digits[0] != '0' || n == 1) &&
			       digits + n == field->text + field->len;

		to += sprintf(
		    to, "%s\"%s\":", to[-1] == '{' ? "" : ",", members[c]);
		if (c == ID && integer)
			to = mempcpy(to, field->text, field->len);
		else
			to += json_string_print(field->text, field->len, to);
	}
	*to++ = '}';
	read_plant(import.json, (size_t)(to - import.json));
}

/* Return the next byte without consuming it, or EOF. */
static int
peek_byte(void)
{
	struct pollfd ready = { .fd = import.fd, .events = POLLIN };

	while (import.next == import.end) {
		if (!watch_step(import.watch, import.done, import.total))
			end_import(command_status(FAULT_STOPPED));
		/* A blocking read would miss a signal just before it. */
		if (poll(&ready, 1, WAIT_MS) <= 0)
			continue;
		ssize_t n =
		    read(import.fd, import.buffer, sizeof(import.buffer));
		if (n == 0)
			return EOF;
		if (n > 0) {
			import.next = 0;
			import.end = (size_t)n;
			import.done += (uint64_t)n;
		} else if (errno != EINTR && errno != EAGAIN) {
			(void)fault_report(import.name, "cannot read");
			end_import(errno == EISDIR ? EX_NOINPUT : EX_IOERR);
		}
	}
	return import.buffer[import.next];
}

/*
 * Read a line or a CSV record, which may contain quoted line breaks.  An
 * invalid record ends at the line with the error.  Return false at the end.
 */
static bool
read_line(void)
{
	enum csv_place place = CSV_FIELD_BEGINS;
	uint64_t breaks = 0;
	int c = '\0', next;

	import.len = 0;
	while ((c != '\n' || place == CSV_IN_QUOTES) &&
	       (next = peek_byte()) != EOF) {
		import.next++;
		c = next;
		if (import.len < import.line_max)
			import.text[import.len] = (char)c;
		import.len++;
		breaks += c == '\n';
		if (import.format == FORMAT_CSV && c != '\n')
			place = csv_next_place(place, (char)c);
	}
	import.text[MIN(import.len, import.line_max)] = '\0';
	if (import.len == 0)
		return false;
	import.entry.begin = import.lines + 1;
	/* The last line may have no line break. */
	import.lines += breaks + (c != '\n');
	return true;
}

static void
read_json(void)
{
	char *text = import.text;
	size_t len = import.len;

	len -= text[len - 1] == '\n';
	len -= len > 0 && text[len - 1] == '\r';
	text[len] = '\0';
	if (strspn(text, " \t") == len)
		return;
	if (import.full)
		read_full(text, len);
	else
		read_plant(text, len);
}

static void
read_header(const struct csv_field *fields, size_t n)
{
	size_t *column = import.column;

	for (size_t c = 0; c < COLUMNS_MAX; c++)
		for (column[c] = 0; column[c] < n; column[c]++)
			if (fields[column[c]].len == strlen(members[c]) &&
			    memcmp(fields[column[c]].text, members[c],
				strlen(members[c])) == 0)
				break;
	import.columns = n;
	if (column[ID] < n && column[NAME] < n && (n == 2 || column[TAG] < n))
		return;
	log_error("%s: line %" PRIu64
		  ": expected the CSV header id,name,tag (any order, lower "
		  "case); add it, or use --format jsonl; nothing was imported",
	    import.name, import.lines);
	end_import(EX_DATAERR);
}

static void
read_csv(void)
{
	struct csv_field fields[COLUMNS_MAX];
	size_t n = import.columns > 0 ? import.columns : COLUMNS_MAX;
	bool first = import.columns == 0;
	size_t mark = first && BEGINS(import.text, BOM) ? strlen(BOM) : 0;
	const char *wrong =
	    csv_record_split(import.text + mark, import.len - mark, fields, &n);

	if (wrong == NULL && n == 1 && fields[0].text == NULL)
		return; /* a blank line */
	if (first)
		read_header(fields, wrong == NULL ? n : 0);
	else if (wrong != NULL || n < import.columns)
		refuse("not valid CSV: %s",
		    wrong != NULL ? wrong : "too few fields");
	else
		read_record(fields);
}

static void
store_lines(void)
{
	if (import.format == FORMAT_NONE) {
		int c = peek_byte();
		/* An array is not JSON Lines; find_mistake reports it. */
		import.format =
		    c == '{' || c == '[' ? FORMAT_JSON_LINES : FORMAT_CSV;
	}
	while (batch.fault == FAULT_NONE &&
	       (import.keep_going || wrong_lines() == 0) && read_line()) {
		/* No plant is that long: read_plant refuses it. */
		if (import.len > import.line_max)
			read_plant(import.text, import.len);
		else if (import.format == FORMAT_CSV)
			read_csv();
		else
			read_json();
	}
}

static void
open_input(const char *path)
{
	bool standard = path == NULL || strcmp(path, "-") == 0;
	struct stat st;

	import.name = standard ? "stdin" : path;
	import.line_max = batch.plant_max + BREAK_MAX +
			  (import.full ? COMMAND_FULL_AROUND : 0);
	if (!standard)
		import.fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	if (command_signal != 0)
		command_fail(FAULT_STOPPED);
	if (import.fd < 0 || fstat(import.fd, &st) < 0) {
		(void)fault_report(import.name, "cannot open");
		command_exit(EX_NOINPUT);
	}
	if (S_ISREG(st.st_mode))
		import.total = (uint64_t)st.st_size;
	if (isatty(import.fd))
		log_info(
		    "import: type one plant per line, and end with Ctrl-D");
}

static void
stop_import(void)
{
	log_error("import: interrupted; nothing was imported");
}

void
import_run(const struct call *call)
{
	const char *by = command_option("by");
	struct store_options options = call->store;
	enum fault fault = FAULT_NONE;
	struct config config;

	command_stopped = stop_import;
	import.keep_going = command_option("keep-going") != NULL;
	import.full = command_option("full") != NULL;
	strcpy(import.entry.by, by != NULL ? by : "import");
	batch.report = report_line;
	import.watch = call->store.watch;
	import.format = import.full ? FORMAT_JSON_LINES : call->format;
	command_need(config_read(&config));
	batch.plant_max = config.body_bytes_max;
	open_input(call->operands[0]);
	if (call->store.database == NULL)
		command_need(file_become_owner(call->store.dir, 0));
	options.long_lived = true;
	/* Opening may have to replay the journal, or build the index. */
	command_watch("index");
	batch.store = store_open(&options, &fault);
	if (command_signal != 0)
		fault = FAULT_STOPPED;
	command_need(fault);
	/* A line of progress would overwrite what is being typed. */
	command_watch(isatty(import.fd) ? NULL : "import");
	store_lines();
	end_import(EX_OK);
}
