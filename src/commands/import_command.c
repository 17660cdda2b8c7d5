/*
 * import_command: import and recover, which store many plants, in batches of
 * one write to the journal each and in constant memory.
 *
 * import stores JSON lines or CSV, with the checks of the interface.  If it
 * ended early, it can be repeated: a plant's id makes its creation idempotent.
 * A line longer than the largest plant is skipped to its end.  A CSV record
 * becomes the JSON that a client would have sent: there is one set of checks.
 *
 * recover reads SRC, a damaged journal, once.  Records that are valid by
 * themselves go, with their times and tokens' names, into a new store in a
 * directory below DEST.  The store takes the first record of each id.  Finally
 * the new journal is moved into DEST, which must not have one.  The directory
 * of the new store is then removed, also after an error or a signal.  After a
 * kill, the next try removes it.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
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
#include "ground/metrics.h"
#include "http/errors.h"
#include "http/tokens.h"
#include "pure/csv.h"
#include "pure/json.h"
#include "pure/timestamp.h"
#include "store/index.h"
#include "store/journal.h"
#include "store/store.h"

/*
 * With ids in no order, each plant changes a page of the index.  The pages stay
 * in memory until the commit: 5,000 plants need some 25 MiB.
 */
#define BATCH_PLANTS 5000

struct entry {
	struct plant plant;
	char by[RECORD_BY_MAX + 1]; /* the name of its token */
	char at[TIMESTAMP_LEN + 1]; /* when it was stored; "": now */
	uint64_t begin, end;        /* bytes of SRC; of import: the line */
};

static struct {
	struct store *store;
	enum fault fault; /* the store's first */
	uint64_t results[STORE_FAILED + 1];
	void (*report)(const struct entry *entry, enum store_result result);
	size_t plant_max; /* the longest plant: there is always room for it */
	size_t n, bytes;  /* `bytes`: an upper bound of the journal's lines */
	struct entry entries[BATCH_PLANTS];
	struct store_item items[BATCH_PLANTS];
} batch;

static void
commit_batch(void)
{
	static const enum fault faults[] = { [STORE_FULL] = FAULT_FULL,
		[STORE_BUSY] = FAULT_BUSY,
		[STORE_AWAY] = FAULT_BUSY,
		[STORE_UNKNOWN] = FAULT_BUSY,
		[STORE_FAILED] = FAULT_FAILED };
	size_t n = batch.n;

	batch.n = batch.bytes = 0;
	if (n == 0)
		return;
	/* The plants' results report a failure of the store, too. */
	(void)store_commit(batch.store, batch.items, n);
	for (size_t i = 0; i < n; i++) {
		struct entry *entry = &batch.entries[i];
		enum store_result result = batch.items[i].result;

		batch.results[result]++;
		batch.report(entry, result);
		if (batch.fault == FAULT_NONE)
			batch.fault = faults[result];
		plant_done(&entry->plant);
	}
}

/* Add a copy of the entry; the batch owns its plant. */
static void
add_to_batch(const struct entry *added)
{
	struct entry *entry = &batch.entries[batch.n];

	*entry = *added;
	batch.items[batch.n++] = (struct store_item){
		.plant = &entry->plant,
		.by = entry->by,
		.at = entry->at[0] != '\0' ? entry->at : NULL,
	};
	batch.bytes += RECORD_ENVELOPE_MAX + entry->plant.len;
	if (batch.n == BATCH_PLANTS ||
	    batch.bytes + RECORD_ENVELOPE_MAX + batch.plant_max >
		JOURNAL_APPEND_MAX)
		commit_batch();
}

static const char import_usage[] =
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
	int status;       /* EX_OK, or why the input has ended early */

	const char *name; /* of the input, in messages */
	uint64_t lines;   /* read so far */
	const struct watch *watch;
	enum format format;
	size_t bytes_max; /* the longest plant, as JSON */
	size_t line_max;  /* the longest line, with its line break */
	int fd;
	FILE *in;                   /* reads `fd` with read_input */
	uint64_t done, total;       /* bytes; a total of 0: unknown */
	size_t columns;             /* in the CSV header; before it, 0 */
	size_t column[COLUMNS_MAX]; /* of a member; `columns`: missing */

	/* The current line or CSV record. */
	struct entry entry; /* .begin: the number of its first line */
	size_t len;         /* with its line break */
	char text[LINE_BYTES_MAX + 1]; /* up to line_max, and a NUL */
	char json[JSON_BYTES_MAX];     /* a CSV record as JSON */
} import = { .fd = STDIN_FILENO };

static void
report_line(const struct entry *entry, enum store_result result)
{
	enum http_error error = api_error_of(result);
	bool ends = result > STORE_CONFLICT && batch.fault == FAULT_NONE;

	if (ends || result == STORE_CONFLICT)
		log_error("%s: line %" PRIu64 ": error %d: id %" PRId64
			  ": %s%s",
		    import.name, entry->begin, errors_number(error),
		    entry->plant.id, errors_message(error),
		    ends ? "  Every line before it is done; import the file "
			   "again, which skips stored plants"
			 : "");
}

/* Count a refused line, and log the reason. */
#define refuse(why, ...)                                           \
	(import.refused++, log_error("%s: line %" PRIu64 ": " why, \
			       import.name, import.entry.begin, __VA_ARGS__))

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
	char message[API_MESSAGE_MAX];
	struct api_error failure;
	const char *mistake = find_mistake(text, len);
	struct json_error error;
	enum plant_fault fault;

	if (len > import.bytes_max) {
		refuse("error %d: %s  The largest is the setting "
		       "PLANT_STORE_BODY_BYTES_MAX.",
		    errors_number(HTTP_BODY_TOO_LARGE),
		    errors_message(HTTP_BODY_TOO_LARGE));
		return;
	}
	fault = plant_read(&import.entry.plant, text, len, &error);
	if (fault == PLANT_OK)
		add_to_batch(&import.entry);
	else if (fault == PLANT_NO_MEMORY) {
		errno = ENOMEM;
		import.status =
		    command_fault(fault_report(import.name, "cannot read"));
	} else if (mistake != NULL)
		refuse("%s", mistake);
	else {
		failure = api_plant_failure(fault, &error);
		/* The user has not seen this JSON: an offset means nothing. */
		if (text == import.json)
			failure.reason = NULL;
		api_message(&failure, message);
		refuse("error %d: %s", errors_number(failure.error), message);
	}
}

/* Read a line of export --full: the text around the plant is fixed. */
static void
read_full(char *text, size_t len)
{
	struct entry *entry = &import.entry;
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

/* Whether the field is an integer of JSON, where it stands unquoted. */
static bool
is_integer(const struct csv_field *field)
{
	const char *digits = field->text + (field->text[0] == '-');
	/* strspn stops at the NUL after the line, if not earlier. */
	size_t n = strspn(digits, "0123456789");

	return n > 0 && digits + n == field->text + field->len &&
	       (digits[0] != '0' || n == 1);
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

		if (import.column[c] == import.columns || field->text == NULL)
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

/* Read for import.in.  A fault or a signal ends the input. */
static ssize_t
read_input(void *cookie, char *buf, size_t size)
{
	struct pollfd ready = { .fd = import.fd, .events = POLLIN };
	ssize_t n = -1;

	(void)cookie;
	while (n < 0 && import.status == EX_OK) {
		if (!watch_step(import.watch, import.done, import.total))
			import.status = 128 + command_interrupted();
		/* A blocking read could miss a signal just before it. */
		else if (poll(&ready, 1, WAIT_MS) > 0) {
			n = read(import.fd, buf, size);
			if (n >= 0 || errno == EINTR || errno == EAGAIN)
				continue;
			(void)fault_report(import.name, "cannot read");
			import.status = errno == EISDIR ? EX_NOINPUT : EX_IOERR;
		}
	}
	import.done += n > 0 ? (uint64_t)n : 0;
	return n;
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
	int c = '\0', next;

	import.len = 0;
	while ((c != '\n' || place == CSV_IN_QUOTES) &&
	       (next = getc_unlocked(import.in)) != EOF) {
		c = next;
		if (import.len < import.line_max)
			import.text[import.len] = (char)c;
		import.len++;
		breaks += c == '\n';
		if (import.format == FORMAT_CSV && c != '\n')
			place = csv_next_place(place, (char)c);
	}
	if (import.len == 0 || import.status != EX_OK)
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
	if (n > 1 && column[ID] < n && column[NAME] < n &&
	    (n == 2 || column[TAG] < n))
		return;
	log_error("%s: line %" PRIu64
		  ": not the header line id,name,tag of CSV, in any order, in "
		  "small letters and with commas; add it, or say --format "
		  "jsonl if these are JSON lines; nothing was imported",
	    import.name, import.lines);
	import.status = EX_DATAERR;
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

static uint64_t
wrong_lines(void)
{
	return import.refused + batch.results[STORE_CONFLICT];
}

static void
store_lines(void)
{
	if (import.format == FORMAT_NONE) {
		int c = ungetc(getc(import.in), import.in);
		/* An array is no JSON lines: find_mistake reports it. */
		import.format =
		    c == '{' || c == '[' ? FORMAT_JSON_LINES : FORMAT_CSV;
	}
	while (import.status == EX_OK && batch.fault == FAULT_NONE &&
	       (import.keep_going || wrong_lines() == 0) && read_line()) {
		if (import.len > import.line_max) {
			/* No plant is so long: read_plant refuses it. */
			read_plant(import.text, import.len);
			continue;
		}
		import.text[import.len] = '\0';
		if (import.format == FORMAT_CSV)
			read_csv();
		else
			read_json();
	}
	commit_batch();
}

/* Print the totals; log how to import the lines that were not stored. */
static int
report(void)
{
	int status = batch.fault != FAULT_NONE ? fault_status(batch.fault)
					       : import.status;

	printf("%" PRIu64 " created, %" PRIu64 " there already, %" PRIu64
	       " conflicting, %" PRIu64 " refused; read up to line %" PRIu64
	       "\n",
	    batch.results[STORE_CREATED], batch.results[STORE_SAME],
	    batch.results[STORE_CONFLICT], import.refused, import.lines);
	if (status > 128)
		log_error("%s: interrupted; every line up to %" PRIu64
			  " is done; import the file again to go on",
		    import.name, import.lines);
	if (status != EX_OK || wrong_lines() == 0)
		return status;
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
	enum fault fault;

	options.long_lived = true;
	/* Opening may have to replay the journal, or build the index. */
	command_watch(call, "index");
	batch.store = store_open(&options, &fault);
	command_unwatch();
	if (command_interrupted() != 0) {
		store_close(batch.store);
		log_error("import: interrupted; nothing was imported");
		return command_fault(FAULT_STOPPED);
	}
	if (batch.store == NULL)
		return command_fault(fault);
	/* A line of progress would overwrite what is being typed. */
	command_watch(call, isatty(import.fd) ? NULL : "import");
	store_lines();
	command_unwatch();
	store_close(batch.store);
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
	import.in = fopencookie(
	    NULL, "r", (cookie_io_functions_t){ .read = read_input });
	if (import.in == NULL)
		return command_fault(fault_report(import.name, "cannot read"));
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
run_import(const struct call *call)
{
	const char *by = call->values['b'];
	struct config config;
	int status;

	import.keep_going = call->values['k'] != NULL;
	import.full = call->values['u'] != NULL;
	if (import.full && by != NULL)
		return command_usage_error(
		    call, "--full has the tokens' names: leave out --by");
	strcpy(import.entry.by, by != NULL ? by : "import");
	batch.report = report_line;
	import.watch = call->store.watch;
	import.format = import.full ? FORMAT_JSON_LINES : call->format;
	if (config_read(&config) != FAULT_NONE)
		return EX_CONFIG;
	batch.plant_max = import.bytes_max = config.body_bytes_max;
	status = open_input(call->operands[0]);
	if (status == EX_OK && call->store.database == NULL)
		status = command_fault(file_become_owner(call->store.dir, 0));
	return status == EX_OK ? open_and_store(call) : status;
}

const struct command import_command = {
	.name = "import",
	.summary = "store the plants of a file",
	.usage = import_usage,
	.options = { COMMAND_VALUE("by", 'b'), COMMAND_VALUE("format", 'f'),
	    COMMAND_FLAG("keep-going", 'k'), COMMAND_FLAG("full", 'u'),
	    COMMAND_STORE },
	.operands = { 0, 1 },
	.run = run_import,
};

static const char recover_usage[] =
    "Usage: plant-store recover [--store UUID] [--quiet | --progress] "
    "SRC DEST\n"
    "\n"
    "Put every plant that can still be read of SRC, a damaged store or\n"
    "journal, into a new store in the directory DEST, and print what is lost.\n"
    "Stop the service first.  Where there is a backup, restore that instead.\n"
    "\n"
    "  --store UUID    the damaged store's, as in a backup's first line\n";

#define NEW_NAME JOURNAL_NAME ".recovering"

static struct {
	const char *from, *to; /* SRC and DEST */
	int dir, fd;           /* SRC, or -1 if it is a file; its journal */
	uint64_t bytes;        /* the size of SRC's journal */
	char uuid[RECORD_UUID_LEN + 1];
	struct position start; /* after SRC's header; 0 if it is damaged */

	struct journal dest;  /* DEST, locked */
	char path[PATH_MAX];  /* the new store's directory, in DEST */
	struct journal fresh; /* the new store's journal */
	uint64_t lost, lost_bytes;
} recover;

static enum fault
open_source(void)
{
	const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	const char *path = recover.from;
	struct stat st;

	recover.dir = open(path, flags | O_DIRECTORY);
	recover.fd = recover.dir < 0 ? open(path, flags)
				     : openat(recover.dir, JOURNAL_NAME,
					   flags | O_NOFOLLOW);
	if (recover.fd < 0 || fstat(recover.fd, &st) < 0)
		return fault_report(
		    path, recover.dir < 0 ? "cannot open"
					  : "cannot open its " JOURNAL_NAME);
	recover.bytes = (uint64_t)st.st_size;
	return FAULT_NONE;
}

/* Find the uuid of SRC's store, which seeds the checksum of each record. */
static enum fault
find_uuid(const char *given)
{
	char header[RECORD_HEADER_LEN], *uuid = recover.uuid;
	uint32_t crc;
	ssize_t n = file_read_all(recover.fd, header, sizeof(header), 0);

	if (record_header_decode(header, n < 0 ? 0 : (size_t)n, uuid, &crc) ==
	    RECORD_HEADER_OK)
		recover.start.end = RECORD_HEADER_LEN;
	else if (given != NULL && strlen(given) == RECORD_UUID_LEN)
		memcpy(uuid, given, RECORD_UUID_LEN);
	else if (given != NULL || index_uuid(recover.dir, uuid) < 0) {
		log_error("%s: its first line is damaged, or of another "
			  "version; it has the uuid that every checksum needs: "
			  "give it with --store; the first line of a backup "
			  "has it",
		    recover.from);
		return FAULT_DAMAGED;
	}
	return FAULT_NONE;
}

/* Remove the new store's directory, but do not follow a link in its place. */
static void
remove_new(void)
{
	static const char *const names[] = { JOURNAL_NAME, JOURNAL_NEW_NAME,
		JOURNAL_END_NAME, METRICS_NAME };
	int dir = openat(recover.dest.dir, NEW_NAME,
	    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir < 0)
		return;
	index_discard(dir);
	unlinkat(dir, "index", AT_REMOVEDIR);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlinkat(dir, names[i], 0);
	close(dir);
	unlinkat(recover.dest.dir, NEW_NAME, AT_REMOVEDIR);
}

/* Make an empty store in DEST, as its owner, or as SRC's if that is root. */
static enum fault
open_new_store(void)
{
	struct store_options options = { .dir = recover.path,
		.long_lived = true };
	struct stat st = { 0 };

	fstat(recover.dir < 0 ? recover.fd : recover.dir, &st);
	enum fault fault = file_become_owner(recover.to, st.st_uid);
	if (fault == FAULT_NONE)
		fault = journal_claim(&recover.dest, recover.to);
	if (fault != FAULT_NONE)
		return fault;
	remove_new();
	if (journal_exists(&recover.dest, NEW_NAME) ||
	    snprintf(recover.path, sizeof(recover.path), "%s/" NEW_NAME,
		recover.to) >= (int)sizeof(recover.path)) {
		log_error("%s: " NEW_NAME " cannot be made there; name another "
			  "directory",
		    recover.to);
		return FAULT_OUTPUT;
	}
	fault = store_init(recover.path);
	if (fault == FAULT_NONE)
		batch.store = store_open(&options, &fault);
	if (fault == FAULT_NONE)
		fault = journal_open(&recover.fresh, recover.path, true);
	return fault;
}

static void
print_range(uint64_t begin, uint64_t end, const char *reason)
{
	/* Progress may be on the same terminal. */
	log_set_progress(false);
	printf("%" PRIu64 "-%" PRIu64 " (%" PRIu64 " bytes): %s\n", begin, end,
	    end - begin, reason);
}

static void
report_record(const struct entry *entry, enum store_result result)
{
	if (batch.fault == FAULT_NONE &&
	    (result == STORE_SAME || result == STORE_CONFLICT))
		print_range(entry->begin, entry->end,
		    result == STORE_SAME ? "repeats an earlier plant"
					 : "an earlier plant has this id");
}

static enum fault
add_record(const struct record *record, const struct position *at)
{
	char *text = strndup(record->plant, record->plant_len);
	struct entry entry = { { record->id, text, record->plant_len },
		.begin = at->last, .end = at->end };

	if (text == NULL)
		return fault_report(recover.from, "cannot read");
	memcpy(entry.by, record->by, record->by_len);
	memcpy(entry.at, record->at, TIMESTAMP_LEN);
	add_to_batch(&entry);
	return batch.fault;
}

static enum fault
store_records(const struct watch *watch)
{
	enum replay_result result = REPLAY_RECORD;
	enum fault fault = FAULT_NONE;
	struct replay_lost lost;
	struct record record;
	struct replay replay;

	replay_init(
	    &replay, recover.fd, record_seed(recover.uuid), &recover.start);
	while (fault == FAULT_NONE && result == REPLAY_RECORD) {
		result = replay_salvage(&replay, &record, &lost);
		if (result == REPLAY_ERROR) {
			errno = replay.error;
			fault = fault_report(recover.from, "cannot read");
		} else if (lost.begin < lost.end) {
			recover.lost++;
			recover.lost_bytes += lost.end - lost.begin;
			print_range(lost.begin, lost.end, lost.reason);
		}
		if (result == REPLAY_RECORD && record.plant != NULL)
			fault = add_record(&record, &replay.at);
		if (!watch_step(watch, replay.at.last, recover.bytes))
			fault = FAULT_STOPPED;
	}
	replay_done(&replay);
	if (fault != FAULT_NONE)
		return fault;
	commit_batch();
	/* Write the closing line; the next commit reports if that failed. */
	store_idle(batch.store);
	if (store_commit(batch.store, NULL, 0) < 0 && batch.fault == FAULT_NONE)
		batch.fault = FAULT_FAILED;
	return batch.fault;
}

static enum fault
make_store(const struct watch *watch)
{
	enum fault fault = open_new_store();

	if (fault == FAULT_NONE)
		fault = store_records(watch);
	store_close(batch.store);
	/* No process may store a plant there before the name is durable. */
	if (fault == FAULT_NONE)
		fault = journal_lock(&recover.fresh, JOURNAL_EXCLUSIVE, 1);
	if (fault == FAULT_NONE &&
	    rename_new(
		recover.dest.dir, NEW_NAME "/" JOURNAL_NAME, JOURNAL_NAME) < 0)
		fault = fault_report(recover.to, "cannot make a store there");
	else if (fault == FAULT_NONE && fsync(recover.dest.dir) < 0) {
		fault = fault_report(recover.to, "cannot make a store there");
		unlinkat(recover.dest.dir, JOURNAL_NAME, 0);
	}
	/* Without the lock, another process may write there. */
	if (recover.dest.locked)
		remove_new();
	return fault == FAULT_FULL || fault == FAULT_SETUP ? FAULT_OUTPUT
							   : fault;
}

static int
run_recover(const struct call *call)
{
	uint64_t twice;
	enum fault fault;

	recover.from = call->operands[0];
	recover.to = call->operands[1];
	recover.dest = recover.fresh = JOURNAL_NONE;
	batch.report = report_record;
	batch.plant_max = CONFIG_BODY_BYTES_MAX;
	fault = open_source();
	if (fault == FAULT_NONE)
		fault = find_uuid(call->values['s']);
	if (fault == FAULT_NONE)
		fault = make_store(call->store.watch);
	command_unwatch();
	if (fault == FAULT_STOPPED)
		log_error("%s: stopped; no store was made", recover.to);
	if (fault != FAULT_NONE)
		return command_fault(fault);
	printf("%s: store %.*s: %" PRIu64 " plants of store %s", recover.to,
	    RECORD_UUID_LEN, recover.fresh.uuid, batch.results[STORE_CREATED],
	    recover.uuid);
	twice = batch.results[STORE_SAME] + batch.results[STORE_CONFLICT];
	if (twice > 0)
		printf("; left out: %" PRIu64 " records of earlier ids", twice);
	if (recover.lost == 0)
		printf("; everything was readable\n");
	else
		printf("; lost: %" PRIu64 " of %" PRIu64 " bytes in %" PRIu64
		       " places\n",
		    recover.lost_bytes, recover.bytes, recover.lost);
	return recover.lost + twice == 0 ? EX_OK : EX_DATAERR;
}

const struct command recover_command = {
	.name = "recover",
	.summary = "make a new store of what a damaged one still has",
	.usage = recover_usage,
	.options = { COMMAND_VALUE("store", 's'), COMMAND_PROGRESS,
	    COMMAND_HELP },
	.operands = { 2, 2 },
	.run = run_recover,
};
