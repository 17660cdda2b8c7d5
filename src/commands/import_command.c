/*
 * import_command: stores the plants of JSON lines or CSV, with the checks of
 * the interface.  Memory use is constant.
 *
 * Lines are read into a batch until it is as large as one write to the journal,
 * the batch is committed, and so on to the end of the input.  An import that
 * ended early can be repeated: a plant's id makes its creation idempotent.
 *
 * A line longer than the largest plant is skipped to its end.  A CSV record
 * becomes the JSON that a client would have sent: there is one set of checks.
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
#include "ground/file.h"
#include "ground/log.h"
#include "http/errors.h"
#include "http/tokens.h"
#include "pure/csv.h"
#include "pure/json.h"
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
    "  --by NAME        the name in the journal beside each plant (import)\n"
    "  --format FORMAT  jsonl, or csv with a header line of id, name and tag\n"
    "  --full           FILE is of export --full: keep times and token names\n"
    "  --keep-going     report such lines and go on\n";

/*
 * One append to the journal takes at most 4 MiB: a larger batch would need
 * several, each with its own sync.  Each unordered id dirties a page of the
 * index, held in memory until the commit: 5,000 plants are some 25 MiB.
 */
#define BATCH_BYTES ((size_t)4 << 20)
#define BATCH_PLANTS 5000
/* The size of one read: much longer than a line, and little memory. */
#define READ_BYTES ((size_t)1 << 20)
/* How soon a wait for input notices a signal. */
#define WAIT_MS 100
/* CR LF */
#define BREAK_MAX 2
#define BOM "\xef\xbb\xbf"
/* `text` ends in a NUL. */
#define BEGINS(text, with) (strncmp(text, with, strlen(with)) == 0)
enum { ID, NAME, TAG, COLUMNS_MAX };
static const char *const members[] = { "id", "name", "tag" };
#define LINE_BYTES_MAX (CONFIG_BODY_BYTES_MAX + COMMAND_FULL_AROUND + BREAK_MAX)
/* A CSV record as JSON: a byte becomes at most six, such as \u001f. */
#define JSON_BYTES_MAX \
	(6 * LINE_BYTES_MAX + sizeof("{\"id\":,\"name\":\"\",\"tag\":\"\"}"))

/* The name of a plant's token, and the time of its storing; "": now. */
struct stamp {
	char by[RECORD_BY_MAX + 1], at[TIMESTAMP_LEN + 1];
};

static struct {
	bool keep_going, full;
	struct store *store;
	uint64_t results[STORE_FAILED + 1], refused; /* lines */
	int status; /* EX_OK, or why the import has ended early */

	const char *name; /* of the input, in messages */
	uint64_t lines;   /* read so far */
	const struct watch *watch;
	enum format format;
	size_t bytes_max; /* the longest plant, as JSON */
	size_t line_max;  /* the longest line, with its line break */
	int fd;
	bool ended;                 /* the end of the input was reached */
	uint64_t done, total;       /* bytes; a total of 0: unknown */
	size_t at, end;             /* the unread part of `buf` */
	size_t columns;             /* in the CSV header; before it, 0 */
	size_t column[COLUMNS_MAX]; /* of a member; `columns`: missing */
	char buf[READ_BYTES];

	/* The current line or CSV record. */
	uint64_t line; /* number of its first line */
	struct stamp stamp;
	size_t len;                    /* with its line break */
	char text[LINE_BYTES_MAX + 1]; /* up to line_max, and a NUL */
	char json[JSON_BYTES_MAX];     /* a CSV record as JSON */

	/* The batch. */
	size_t n;
	size_t bytes; /* an upper bound of its size in the journal */
	struct entry {
		struct plant plant;
		struct stamp stamp;
		uint64_t line;
	} entries[BATCH_PLANTS];
	struct store_item items[BATCH_PLANTS];
} import = { .fd = STDIN_FILENO };

/* Commit the batch; log each conflict, and a failure, which ends the import. */
static void
commit_batch(void)
{
	size_t n = import.n;

	import.n = import.bytes = 0;
	if (n == 0)
		return;
	/* The plants' results report a failure of the store, too. */
	(void)store_commit(import.store, import.items, n);
	store_finish(import.store);
	for (size_t i = 0; i < n; i++) {
		struct entry *entry = &import.entries[i];
		enum store_result result = import.items[i].result;
		enum http_error error = api_error_of(result);
		bool ends = result > STORE_CONFLICT && import.status == EX_OK;

		import.results[result]++;
		if (ends)
			import.status =
			    result == STORE_FAILED ? EX_IOERR : EX_TEMPFAIL;
		if (ends || result == STORE_CONFLICT)
			log_error("%s: line %" PRIu64 ": error %d: id %" PRId64
				  ": %s%s",
			    import.name, entry->line, errors_number(error),
			    entry->plant.id, errors_message(error),
			    ends ? "  Every line before it is done; import the "
				   "file again, which skips stored plants"
				 : "");
		plant_done(&entry->plant);
	}
}

/* End the import: store the batch, and keep the first failure. */
static void
end_input(int status)
{
	commit_batch();
	if (import.status == EX_OK)
		import.status = status;
}

static void
add_to_batch(const struct plant *plant)
{
	struct entry *entry = &import.entries[import.n];
	*entry = (struct entry){ *plant, import.stamp, import.line };
	import.items[import.n++] = (struct store_item){
		.plant = &entry->plant,
		.by = entry->stamp.by,
		.at = import.full ? entry->stamp.at : NULL,
	};
	import.bytes += RECORD_ENVELOPE_MAX + plant->len;
	/* Keep room for the largest plant, which may be next. */
	if (import.n == BATCH_PLANTS ||
	    import.bytes + RECORD_ENVELOPE_MAX + import.bytes_max > BATCH_BYTES)
		commit_batch();
}

/* Count a refused line, and log the reason. */
#define refuse(why, ...)                                           \
	(import.refused++, log_error("%s: line %" PRIu64 ": " why, \
			       import.name, import.line, __VA_ARGS__))

static const struct api_error too_large = { .error = HTTP_BODY_TOO_LARGE };

static void
refuse_error(struct api_error error)
{
	char message[API_MESSAGE_MAX];

	api_message(&error, message);
	refuse("error %d: %s%s", errors_number(error.error), message,
	    error.error == HTTP_BODY_TOO_LARGE
		? "  The largest is the setting PLANT_STORE_BODY_BYTES_MAX."
		: "");
}

/* Name another format that a line has, and the remedy; NULL: none. */
static const char *
find_mistake(const char *text, size_t len)
{
	if (text[0] == '{' && strspn(text + 1, " \t") == len - 1)
		return "JSON over several lines; import wants one plant a "
		       "line: jq -c . FILE (jq 1.6 rounds ids above 2^53)";
	if (text[0] == '[')
		return "a JSON array; import wants one plant a line: "
		       "jq -c '.[]' FILE (jq 1.6 rounds ids above 2^53)";
	if (BEGINS(text, "{\"plant-store\":") || BEGINS(text, "{\"seq\":"))
		return "a line of a journal; import the output of: plant-store "
		       "export --file JOURNAL";
	return NULL;
}

/* Add the plant of a JSON text: a line, or one made from a CSV record. */
static void
read_plant(const char *text, size_t len)
{
	struct api_error failure;
	struct json_error error;
	struct plant plant;
	enum plant_fault fault;
	bool made = text == import.json;
	const char *mistake = made ? NULL : find_mistake(text, len);

	if (len > import.bytes_max) {
		refuse_error(too_large);
		return;
	}
	fault = plant_read(&plant, text, len, &error);
	if (fault == PLANT_OK)
		add_to_batch(&plant);
	else if (fault == PLANT_NO_MEMORY) {
		errno = ENOMEM;
		end_input(
		    command_fault(fault_report(import.name, "cannot read")));
	} else if (mistake != NULL)
		refuse("%s", mistake);
	else {
		failure = api_plant_failure(fault, &error);
		/* The user has not seen this JSON: an offset means nothing. */
		if (made)
			failure.reason = NULL;
		refuse_error(failure);
	}
}

/* Read a line of export --full: the text around the plant is fixed. */
static void
read_full(char *text, size_t len)
{
	struct stamp *stamp = &import.stamp;
	int64_t ms;
	int n = 0;

	static_assert(TIMESTAMP_LEN == 24 && RECORD_BY_MAX == 64, "see below");
	sscanf(text, COMMAND_FULL("%24[^\"]", "%64[^\"]") "%n", stamp->at,
	    stamp->by, &n);
	if (n > 0 && text[len - 1] == '}' && tokens_is_name(stamp->by) &&
	    timestamp_read(stamp->at, TIMESTAMP_LEN, &ms) == 0) {
		timestamp_print(ms, stamp->at);
		read_plant(text + n, len - 1 - (size_t)n);
	} else
		refuse("%s", "not a line of export --full");
}

/* Whether the field is an integer of JSON, where it stands unquoted. */
static bool
is_integer(const struct csv_field *field)
{
	const char *text = field->text;
	size_t sign = field->len > 0 && text[0] == '-';
	size_t digits = field->len - sign;

	/* strspn stops at the NUL after the line, if not earlier. */
	return digits > 0 && (text[sign] != '0' || digits == 1) &&
	       strspn(text + sign, "0123456789") >= digits;
}

static bool
is_absent(const struct csv_field *field)
{
	return field->len == 0 && !field->quoted;
}

/*
 * Convert a CSV record to JSON, and read that.  A missing or wrong field stays
 * missing or wrong; an id that is no integer becomes a string.
 */
static void
read_record(const struct csv_field *fields)
{
	char *to = import.json;

	*to++ = '{';
	for (int c = 0; c < COLUMNS_MAX; c++) {
		const struct csv_field *field = &fields[import.column[c]];

		if (import.column[c] == import.columns || is_absent(field))
			continue;
		to += sprintf(
		    to, "%s\"%s\":", to[-1] == '{' ? "" : ",", members[c]);
		if (c == ID && is_integer(field))
			to = mempcpy(to, field->text, field->len);
		else
			to += json_string_print(field->text, field->len, to);
	}
	*to++ = '}';
	read_plant(import.json, (size_t)(to - import.json));
}

/* Read more input.  False at its end, or if a fault or a signal ends it. */
static bool
fill(void)
{
	struct pollfd ready = { .fd = import.fd, .events = POLLIN };
	ssize_t n = -1;

	while (n < 0 && !import.ended) {
		if (!watch_step(import.watch, import.done, import.total)) {
			end_input(128 + command_interrupted());
			return false;
		}
		/* A blocking read could miss a signal just before it. */
		if (poll(&ready, 1, WAIT_MS) <= 0)
			continue;
		n = read(import.fd, import.buf, sizeof(import.buf));
		if (n < 0 && errno != EINTR && errno != EAGAIN) {
			(void)fault_report(import.name, "cannot read");
			end_input(errno == EISDIR ? EX_NOINPUT : EX_IOERR);
			return false;
		}
	}
	import.ended = n <= 0;
	import.at = 0;
	import.end = import.ended ? 0 : (size_t)n;
	import.done += import.end;
	return !import.ended;
}

/*
 * Read a line or a CSV record, which may have line breaks in quotes.  An
 * invalid record ends with the line of its error.  False: the input or import
 * has ended.
 */
static bool
read_line(void)
{
	enum csv_place place = CSV_FIELD_BEGINS;
	uint64_t breaks = 0;
	char c = '\0';

	import.len = 0;
	while (c != '\n' || place == CSV_IN_QUOTES) {
		if (import.at == import.end && !fill())
			break;
		c = import.buf[import.at++];
		if (import.len < import.line_max)
			import.text[import.len] = c;
		import.len++;
		breaks += c == '\n';
		if (import.format == FORMAT_CSV && c != '\n')
			place = csv_next_place(place, c);
	}
	if (import.len == 0 || import.status != EX_OK)
		return false;
	import.line = import.lines + 1;
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
	if (n > 1 && column[ID] < n && column[NAME] < n &&
	    (n == 2 || column[TAG] < n))
		return;
	log_error("%s: line %" PRIu64
		  ": not the header line id,name,tag of CSV, in any order, in "
		  "small letters and with commas; add it, or say --format "
		  "jsonl if these are JSON lines; nothing was imported",
	    import.name, import.lines);
	end_input(EX_DATAERR);
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

	if (wrong == NULL && n == 1 && is_absent(&fields[0]))
		return; /* a blank line */
	if (first)
		read_header(fields, wrong == NULL ? n : 0);
	else if (wrong != NULL || n < import.columns)
		refuse("not valid CSV: %s",
		    wrong != NULL ? wrong : "too few fields");
	else
		read_record(fields);
}

static uint64_t
wrong_lines(void)
{
	return import.refused + import.results[STORE_CONFLICT];
}

static void
store_lines(void)
{
	if (import.format == FORMAT_NONE)
		/* An array is no JSON lines: find_mistake reports it. */
		import.format =
		    fill() && (import.buf[0] == '{' || import.buf[0] == '[')
			? FORMAT_JSON_LINES
			: FORMAT_CSV;
	while (import.status == EX_OK &&
	       (import.keep_going || wrong_lines() == 0) && read_line()) {
		if (import.len > import.line_max) {
			refuse_error(too_large);
			continue;
		}
		import.text[import.len] = '\0';
		if (import.format == FORMAT_CSV)
			read_csv();
		else
			read_json();
	}
	end_input(EX_OK);
}

/* Print the totals; log how to import the lines that were not stored. */
static int
report(void)
{
	printf("%" PRIu64 " created, %" PRIu64 " there already, %" PRIu64
	       " conflicting, %" PRIu64 " refused; read up to line %" PRIu64
	       "\n",
	    import.results[STORE_CREATED], import.results[STORE_SAME],
	    import.results[STORE_CONFLICT], import.refused, import.lines);
	if (import.status > 128)
		log_error("%s: interrupted; every line up to %" PRIu64
			  " is done; import the file again to go on",
		    import.name, import.lines);
	if (import.status != EX_OK || wrong_lines() == 0)
		return import.status;
	if (!import.keep_going)
		log_error("%s: stopped at line %" PRIu64 "; correct the file, "
			  "or use --keep-going, and import it again",
		    import.name, import.lines);
	return EX_DATAERR;
}

static int
open_and_store(const struct call *call)
{
	struct store_options options = call->store;
	struct call quiet = *call;
	enum fault fault;

	/* The progress line would overwrite what is being typed. */
	if (isatty(import.fd))
		quiet.values['q'] = "";
	options.long_lived = true;
	/* Opening may have to replay the journal, or build the index. */
	command_watch(call, "index");
	import.store = store_open(&options, &fault);
	command_unwatch();
	if (command_interrupted() != 0) {
		store_close(import.store);
		log_error("import: interrupted; nothing was imported");
		return command_fault(FAULT_STOPPED);
	}
	if (import.store == NULL)
		return command_fault(fault);
	command_watch(&quiet, "import");
	store_lines();
	command_unwatch();
	store_close(import.store);
	return report();
}

/* Open the file, or standard input for NULL and "-". */
static int
open_input(const char *path)
{
	struct stat st;

	if (path != NULL && strcmp(path, "-") == 0)
		path = NULL;
	import.name = path == NULL ? "stdin" : path;
	import.line_max = import.bytes_max + BREAK_MAX +
			  (import.full ? COMMAND_FULL_AROUND : 0);
	if (path != NULL)
		import.fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	if (import.fd < 0 || fstat(import.fd, &st) < 0) {
		(void)fault_report(import.name, "cannot open");
		return command_interrupted() != 0 ? command_fault(FAULT_STOPPED)
						  : EX_NOINPUT;
	}
	if (S_ISREG(st.st_mode))
		import.total = (uint64_t)st.st_size;
	if (isatty(import.fd))
		log_info(
		    "import: type one plant per line, and end with Ctrl-D");
	return EX_OK;
}

static int
run(const struct call *call)
{
	const char *by = call->values['b'];
	struct config config;
	int status;

	import.keep_going = call->values['k'] != NULL;
	import.full = call->values['u'] != NULL;
	if (import.full && by != NULL)
		return command_usage_error(
		    call, "--full has the tokens' names: leave out --by");
	snprintf(import.stamp.by, sizeof(import.stamp.by), "%s",
	    by != NULL ? by : "import");
	import.watch = call->store.watch;
	import.format = import.full ? FORMAT_JSON_LINES : call->format;
	if (config_read(&config) != FAULT_NONE)
		return EX_CONFIG;
	import.bytes_max = config.body_bytes_max;
	status = open_input(call->operands[0]);
	if (status == EX_OK && call->store.database == NULL)
		status = command_fault(file_become_owner(call->store.dir, 0));
	if (status == EX_OK)
		status = open_and_store(call);
	return status;
}

const struct command import_command = {
	.name = "import",
	.summary = "store the plants of a file",
	.usage = usage,
	.options = { COMMAND_VALUE("by", 'b'), COMMAND_VALUE("format", 'f'),
	    COMMAND_FLAG("keep-going", 'k'), COMMAND_FLAG("full", 'u'),
	    COMMAND_STORE },
	.operands = { 0, 1 },
	.run = run,
};
