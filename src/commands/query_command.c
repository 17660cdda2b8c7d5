/*
 * query_command: reads a store: plants by their ids (get), all plants as JSON
 * lines or CSV (export), its figures (stats), and the counters of its processes
 * (metrics).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <search.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sysexits.h>
#include <unistd.h>

#include "api/api.h"
#include "command.h"
#include "cursor.h"
#include "ground/clock.h"
#include "ground/config.h"
#include "ground/file.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "http/tokens.h"
#include "pure/csv.h"
#include "pure/json.h"
#include "pure/timestamp.h"
#include "store/engine.h"
#include "store/journal.h"

#define JOURNAL_BEGIN "{\"plant-store\":"
#define STATUS_MISSING 1
/* The longest delay of a signal or, with --follow, of a new plant. */
#define WAIT_MS 250

/* A larger buffer was no faster. */
#define FLUSH_BYTES ((size_t)256 << 10)
/* A field of CSV, with a comma and quotation marks around doubled ones. */
#define FIELD_MAX (2 * RECORD_LINE_MAX + 3)

/*
 * The output: stdout, or a file that gets its name only when it is complete and
 * durable.  Before that it has no name, so that a killed process leaves none.
 * If it replaces a file, or the file system has no O_TMPFILE, it has the name
 * FILE.unfinished and is locked: the next process with the same FILE overwrites
 * what a killed one left.  One large buffer and write(2), since the output may
 * be gigabytes of short lines.
 */
static struct {
	const char *path;          /* NULL for stdout */
	char unfinished[PATH_MAX]; /* of FILE.unfinished; "": no such file */
	int fd;
	bool replace;     /* whether an existing file is replaced */
	bool terminal;    /* escape control characters, as \u001b */
	enum fault fault; /* after the first, nothing more is written */
	size_t used;
} output = { .fd = STDOUT_FILENO };
static char output_buf[FLUSH_BYTES + FIELD_MAX];

static enum fault
fail_output(const char *what, enum fault fault)
{
	if (output.path == NULL && errno == EPIPE) {
		/* Die of SIGPIPE, as filters do: "export | head" is silent. */
		signal(SIGPIPE, SIG_DFL);
		raise(SIGPIPE);
	}
	(void)fault_report(output.path != NULL ? output.path : "stdout", what);
	return fault;
}

/* Refuse a journal, and the names of files beside one or in its index. */
static enum fault
refuse_stores(const char *path)
{
	static const char *const names[] = { "manifest", "run-", "end", "lock",
		JOURNAL_NAME, METRICS_NAME, "last-" };
	const char *slash = strrchr(path, '/');
	const char *name = slash != NULL ? slash + 1 : path;
	char journal[PATH_MAX], begin[sizeof(JOURNAL_BEGIN) - 1];

	snprintf(journal, sizeof(journal), "%s", path);
	for (int i = 0; i <= 7; i++) {
		if (file_get(AT_FDCWD, journal, begin, sizeof(begin)) == 0 &&
		    memcmp(begin, JOURNAL_BEGIN, sizeof(begin)) == 0) {
			log_error("%s: is a store's file; name another", path);
			return FAULT_OUTPUT;
		}
		if (i < 7 && strncmp(name, names[i], strlen(names[i])) == 0)
			snprintf(journal, sizeof(journal), "%.*s%s",
			    (int)(name - path), path,
			    i < 4 ? "../" JOURNAL_NAME : JOURNAL_NAME);
	}
	return FAULT_NONE;
}

/* Open, lock and empty FILE.unfinished.  -1, ETIMEDOUT: it is in use. */
static int
open_unfinished(void)
{
	int fd = open(output.unfinished,
	    O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	struct stat st, named;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fd;
	/* Another user may have made it, or a link to a file of ours. */
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
		errno = EEXIST;
	/* The process that had the lock may have renamed it. */
	else if (flock(fd, LOCK_EX | LOCK_NB) < 0 ||
		 lstat(output.unfinished, &named) < 0 ||
		 named.st_ino != st.st_ino)
		errno = ETIMEDOUT;
	else if (fchmod(fd, 0600) == 0 && ftruncate(fd, 0) == 0)
		return fd;
	file_close(fd);
	return -1;
}

/* Open a file for the output `path`, of mode 0600, since plants are private. */
static enum fault
open_file(const char *path, bool replace)
{
	const int flags = O_TMPFILE | O_RDWR | O_CLOEXEC;
	char copy[PATH_MAX];
	const char *why = NULL;
	struct stat st;

	output.path = path;
	output.replace = replace;
	output.fd = -1;
	bool there = lstat(path, &st) == 0;
	if (there && !S_ISREG(st.st_mode)) /* a device is a mistake */
		why = "is not a regular file; name another, or redirect stdout "
		      "to it";
	else if (there && !replace)
		why = "already exists; name another file, or replace it with "
		      "--force";
	if (why != NULL) {
		log_error("%s: %s", path, why);
		return FAULT_OUTPUT;
	}
	snprintf(copy, sizeof(copy), "%s", path);
	/* linkat(2) replaces no file, and finds an unnamed one in /proc. */
	if (!replace && access("/proc/self/fd", X_OK) == 0)
		output.fd = open(dirname(copy), flags, 0600);
	if (output.fd < 0) {
		snprintf(output.unfinished, sizeof(output.unfinished),
		    "%s.unfinished", path);
		output.fd = open_unfinished();
	}
	return output.fd >= 0 ? FAULT_NONE
	       : errno == ETIMEDOUT
		   ? fail_output("cannot create it", FAULT_BUSY)
		   : fail_output("cannot create it", FAULT_OUTPUT);
}

static void
flush_output(void)
{
	const char *text = output_buf;

	while (output.used > 0 && output.fault == FAULT_NONE) {
		struct pollfd ready = { .fd = output.fd, .events = POLLOUT };
		/* A blocking write would miss a signal just before it. */
		ssize_t n = poll(&ready, 1, WAIT_MS) > 0
				? write(output.fd, text, output.used)
				: 0;

		if (n > 0) {
			text += n;
			output.used -= (size_t)n;
		}
		/* Another process may have made the pipe non-blocking. */
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			output.fault =
			    fail_output("cannot write", FAULT_FAILED);
		else if (output.used > 0 && command_interrupted() != 0)
			output.fault = FAULT_STOPPED;
	}
}

/* Buffer at most FIELD_MAX bytes. */
static void
put_bytes(const char *text, size_t len)
{
	if (output.fault != FAULT_NONE)
		return;
	memcpy(output_buf + output.used, text, len);
	output.used += len;
	if (output.used >= FLUSH_BYTES)
		flush_output();
}

/*
 * Return the character's code if a terminal would execute it or change the
 * text's direction (C0, C1, U+202A to U+202E, U+2066 to U+2069), else 0.  Set
 * `*n` to the number of bytes read.
 */
static unsigned
control_code(const unsigned char *c, size_t len, size_t *n)
{
	unsigned code = c[0];

	*n = 1;
	if (c[0] == 0xc2 && len > 1) {
		*n = 2;
		code = c[1];
	} else if (c[0] == 0xe2 && len > 2) {
		*n = 3;
		code = 0x2000 | (c[1] & 0x3fU) << 6 | (c[2] & 0x3fU);
	} else if (c[0] > 0x7f || c[0] == '\n' || c[0] == '\t' ||
		   (c[0] == '\r' && len > 1 && c[1] == '\n'))
		return 0;
	return code < 0x20 || (code >= 0x7f && code < 0xa0) ||
		       (code >= 0x202a && code <= 0x202e) ||
		       (code >= 0x2066 && code <= 0x2069)
		   ? code
		   : 0;
}

/* Buffer `text`, which consists of whole characters. */
static void
put(const char *text, size_t len)
{
	char escape[sizeof("\\u001b")];
	size_t n = len;

	if (!output.terminal)
		put_bytes(text, len);
	else
		for (size_t i = 0; i < len; i += n) {
			unsigned code = control_code(
			    (const unsigned char *)text + i, len - i, &n);

			snprintf(
			    escape, sizeof(escape), "\\u%04x", code & 0xffff);
			put_bytes(code != 0 ? escape : text + i,
			    code != 0 ? strlen(escape) : n);
		}
}

/* With `full`, wrap the plant in an object with its time and token's name. */
static void
put_json(const struct record *record, bool full)
{
	char head[COMMAND_FULL_AROUND];

	if (full)
		put(head, (size_t)snprintf(head, sizeof(head),
			      COMMAND_FULL("%.*s", "%.*s"), TIMESTAMP_LEN,
			      record->at, (int)record->by_len, record->by));
	put(record->plant, record->plant_len);
	put(full ? "}\n" : "\n", full ? 2 : 1);
}

/* Flush the output.  Sync a file, and give it its final name. */
static enum fault
finish_output(void)
{
	char path[PATH_MAX];

	flush_output();
	if (output.fault != FAULT_NONE || output.path == NULL)
		return output.fault;
	if (fsync(output.fd) < 0)
		return fail_output("cannot sync", FAULT_FAILED);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", output.fd);
	int named = output.unfinished[0] == '\0'
			? linkat(AT_FDCWD, path, AT_FDCWD, output.path,
			      AT_SYMLINK_FOLLOW)
		    : output.replace
			? rename(output.unfinished, output.path)
			: rename_new(AT_FDCWD, output.unfinished, output.path);
	if (named < 0)
		return fail_output(
		    "cannot rename the new file to it", FAULT_OUTPUT);
	output.unfinished[0] = '\0';
	snprintf(path, sizeof(path), "%s", output.path);
	int dir = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* The name is durable once its directory is synced; btrfs syncs no file
	   without a name. */
	bool durable = dir >= 0 && fsync(output.fd) == 0 && fsync(dir) == 0;
	output.fd = -1;
	return durable ? FAULT_NONE
		       : fail_output("cannot sync its directory", FAULT_FAILED);
}

/* The reader; `where` is the last record's place, set when reading ends. */
static const struct reader_engine *engine;
static struct store_reader *reader;
static char where[STORE_WHERE_MAX];

static enum fault
open_reader(const struct store_options *options, const char *since)
{
	enum fault fault = FAULT_NONE;

	engine = options->database == NULL
		     ? &journal_reader
		     : engine_symbol(READER_ENGINE_SYMBOL, &fault);
	if (engine != NULL)
		reader = engine->open(options, since, &fault);
	return fault;
}

static const char get_usage[] =
    "Usage: plant-store get [--dir DIR] [--full] [--quiet | --progress] ID...\n"
    "\n"
    "Print the plants with these ids as JSON, a line each, in that order.\n"
    "Missing ids are listed on stderr; the exit status is then 1.\n"
    "\n"
    "  ID              a whole number; put options before a negative one\n"
    "  --full          also when it was stored, and by which token\n";

static bool
read_id(const char *text, int64_t *id)
{
	const char *digits = text + (text[0] == '-');
	size_t n = strspn(digits, "0123456789");

	errno = 0;
	*id = strtoll(text, NULL, 10);
	return n > 0 && digits[n] == '\0' && errno == 0;
}

static int
run_get(const struct call *call)
{
	enum fault fault, damage = FAULT_NONE;
	bool missing = false;
	struct record record;
	int64_t id;

	for (int i = 0; i < call->operands_n; i++)
		if (!read_id(call->operands[i], &id))
			return command_usage_error(
			    call, "not an id: %s", call->operands[i]);
	fault = open_reader(&call->store, NULL);
	output.terminal = isatty(STDOUT_FILENO);
	for (int i = 0; i < call->operands_n && fault == FAULT_NONE; i++) {
		read_id(call->operands[i], &id);
		fault = engine->find(reader, id, &record);
		if (fault == FAULT_NONE) {
			put_json(&record, call->values['u'] != NULL);
			fault = output.fault;
		} else if (fault == FAULT_ABSENT) {
			log_error("get: %" PRId64 ": no plant has this id in "
				  "%s",
			    id,
			    call->store.database != NULL ? "the database"
							 : call->store.dir);
			missing = true;
			fault = FAULT_NONE;
		} else if (fault == FAULT_DAMAGED) {
			damage = fault; /* logged; read the other ids */
			fault = FAULT_NONE;
		}
	}
	command_unwatch();
	if (reader != NULL)
		engine->close(reader);
	/* Print the plants found even after a fault, not after a signal. */
	enum fault written =
	    fault != FAULT_STOPPED ? finish_output() : FAULT_NONE;
	if (fault == FAULT_NONE)
		fault = written != FAULT_NONE ? written : damage;
	return fault == FAULT_NONE && missing ? STATUS_MISSING
					      : command_fault(fault);
}

const struct command query_command_get = {
	.name = "get",
	.summary = "print plants by their ids",
	.usage = get_usage,
	.options = { COMMAND_FLAG("full", 'u'), COMMAND_STORE },
	.negative_operands = true,
	.operands = { 1, INT_MAX },
	.run = run_get,
};

/*
 * Return `fault` or, if it is FAULT_NONE, the fault that ended the reader.  If
 * a signal came, return FAULT_STOPPED instead of FAULT_NONE or FAULT_BUSY.
 */
static enum fault
end_reading(enum fault fault)
{
	if (fault == FAULT_NONE)
		fault = engine->end(reader, where);
	return (fault == FAULT_NONE || fault == FAULT_BUSY) &&
		       command_interrupted() != 0
		   ? FAULT_STOPPED
		   : fault;
}

static const char export_usage[] =
    "Usage: plant-store export [--dir DIR | --file JOURNAL] [--format FORMAT]\n"
    "           [--since TIME | --cursor FILE [--count]] [--by NAME] [--full]\n"
    "           [[--limit N] [-o FILE [--force]] | --follow]\n"
    "           [--quiet | --progress]\n"
    "\n"
    "Write the plants of a store in the order in which they were stored, as\n"
    "they are at one moment; stderr names the last one.\n"
    "\n"
    "  --format jsonl  a plant's JSON on each line (the default)\n"
    "  --format csv    RFC 4180: id,name,tag; warns of each U+0000\n"
    "  --full          with the time and the token's name, for import --full\n"
    "  --since TIME    only what was stored at that time or later:\n"
    "                  2027-01-31T12:00:00Z, or 2027-01-31 (midnight UTC)\n"
    "  --cursor FILE   only what is behind the place in FILE, all if it is\n"
    "                  absent; then FILE gets the new place\n"
    "  --count         print only how many these are; FILE keeps its place\n"
    "  --limit N       at most N plants\n"
    "  --follow        go on until SIGTERM or SIGINT, without --cursor from\n"
    "                  the end on\n"
    "  --by NAME       only what was stored with the token of that name\n"
    "  -o, --output FILE  write to FILE, which appears once complete\n"
    "  --force         replace FILE if it is there; a journal never is\n"
    "  --file JOURNAL  read this journal, which nobody may be writing\n";

/* The least time between two saves of the cursor: each syncs twice. */
#define SAVE_MS 250

static struct {
	const struct call *call;
	const char *const *values; /* of the call */
	bool follow;
	uint64_t limit;
	char since[TIMESTAMP_LEN + 1];
	struct cursor cursor;
	char place[STORE_CURSOR_MAX]; /* after the last plant written; or "" */
	int64_t saved_ms;
	char at[TIMESTAMP_LEN + 1]; /* when the last plant read was stored */
	uint64_t plants;            /* written or counted */
	uint64_t nuls;              /* of `plants`, those with a U+0000 */
	int64_t nul_id;             /* the first of those */
} export = { .cursor = { .lock = -1, .fd = -1 } };

/* An absent tag is an empty field; an empty tag is "". */
static void
put_csv(const struct record *record)
{
	static char text[RECORD_LINE_MAX], field[FIELD_MAX];
	struct json_member members[] = { { .name = "name" }, { .name = "tag" },
		{ 0 } };
	struct json_error error;
	bool nul = false;

	put(field, (size_t)sprintf(field, "%" PRId64, record->id));
	/* Cannot fail: the reader has checked the plant. */
	(void)json_scan_object(
	    record->plant, record->plant_len, members, &error);
	for (size_t i = 0; i < 2; i++) {
		size_t len = 0;

		field[0] = ',';
		if (members[i].len > 0) {
			len = json_string_decode(record->plant + members[i].at,
			    members[i].len, text);
			nul = nul || memchr(text, '\0', len) != NULL;
			len = csv_field_print(text, len, field + 1);
		}
		put(field, len + 1);
	}
	put("\r\n", 2);
	if (nul && export.nuls++ == 0)
		export.nul_id = record->id;
}

static enum fault
export_plant(const struct record *record)
{
	const char *by = export.values['b'];

	memcpy(export.at, record->at, TIMESTAMP_LEN);
	if (by != NULL && (strlen(by) != record->by_len ||
			      memcmp(by, record->by, record->by_len) != 0))
		return FAULT_NONE;
	export.plants++;
	if (export.values['n'] != NULL)
		return FAULT_NONE;
	if (export.call->format == FORMAT_CSV)
		put_csv(record);
	else
		put_json(record, export.values['u'] != NULL);
	return output.fault;
}

/* Save the cursor once the output is durable: stdout may be a file. */
static enum fault
save(void)
{
	if (export.cursor.lock < 0 || export.place[0] == '\0')
		return FAULT_NONE;
	if (output.fd >= 0 && fsync(output.fd) < 0 && errno != EINVAL &&
	    errno != EROFS)
		return fail_output("cannot sync", FAULT_FAILED);
	export.saved_ms = clock_ms(CLOCK_MONOTONIC);
	return cursor_save(&export.cursor, export.place);
}

/* Flush, and save the place after the last plant or, if `before`, before it. */
static enum fault
deliver(bool before)
{
	flush_output();
	if (output.fault != FAULT_NONE)
		return output.fault;
	engine->cursor(reader, before, export.place);
	return clock_ms(CLOCK_MONOTONIC) < export.saved_ms + SAVE_MS
		   ? FAULT_NONE
		   : save();
}

/*
 * Write all plants up to the reader's end.  With --follow, flush whole lines of
 * at most PIPE_BUF bytes, unless one is longer: a pipe takes such a write whole
 * or, if a signal ends the wait for room, not at all.
 */
static enum fault
read_plants(void)
{
	const size_t around = COMMAND_FULL_AROUND + 1;
	enum fault fault = FAULT_NONE;
	struct record record;

	while (fault == FAULT_NONE && export.plants < export.limit &&
	       engine->next(reader, &record)) {
		/* Twice the length: CSV doubles quotation marks. */
		if (export.follow && output.used > 0 &&
		    output.used + around + 2 * record.plant_len > PIPE_BUF)
			fault = deliver(true);
		if (fault == FAULT_NONE)
			fault = export_plant(&record);
	}
	return fault;
}

/* Follow until a signal.  The next run writes the plants left unwritten. */
static enum fault
follow(void)
{
	struct pollfd peer = { .fd = output.fd };
	enum fault fault = FAULT_NONE;

	while (fault == FAULT_NONE) {
		fault = end_reading(read_plants());
		/* Also write the rows read before the connection failed. */
		if (fault == FAULT_NONE || fault == FAULT_BUSY)
			fault = deliver(false);
		if (fault == FAULT_NONE && poll(&peer, 1, WAIT_MS) > 0) {
			errno = EPIPE;
			fault = fail_output("its reader is gone", FAULT_FAILED);
		}
		if (fault == FAULT_NONE)
			fault = engine->more(reader);
		if (fault == FAULT_BUSY)
			fault = FAULT_NONE;
	}
	enum fault saved = save();
	return fault != FAULT_STOPPED ? fault : saved;
}

/* Read and check the options.  Return EX_OK or EX_USAGE. */
static int
read_options(const struct call *call)
{
	/* --since is a time, not a place, and --follow has no end. */
	static const char *const apart[] = { "sc", "sw", "wo", "wl", "wn", "wj",
		"no" };
	const char *const *values = call->values;
	const char *since = values['s'], *limit = values['l'];
	int64_t ms;

	export.call = call;
	export.values = values;
	export.follow = values['w'] != NULL;
	if (since != NULL && !command_time(since, &ms))
		return command_usage_error(call,
		    "--since: not a time: %s; say 2027-01-31 or "
		    "2027-01-31T12:00:00Z",
		    since);
	if (since != NULL)
		timestamp_print(ms, export.since);
	export.limit = limit != NULL ? strtoull(limit, NULL, 10) : UINT64_MAX;
	if (limit != NULL &&
	    (limit[strspn(limit, "0123456789")] != '\0' || export.limit == 0))
		return command_usage_error(
		    call, "--limit: a number from 1 on, not %s", limit);
	if (values['F'] != NULL && values['o'] == NULL)
		return command_usage_error(call, "--force is for -o FILE");
	for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++)
		if (values[(int)apart[i][0]] != NULL &&
		    values[(int)apart[i][1]] != NULL)
			return command_usage_error(call,
			    "--since, --cursor, --count, --follow, --limit, "
			    "-o, --file: not all go together");
	return EX_OK;
}

/* Open the cursor and the output first: opening the store may take long. */
static enum fault
open_export(void)
{
	const char *const *values = export.values;
	const char *path = values['c'], *place = export.cursor.place;
	struct store_options store = export.call->store;
	char standard[PATH_MAX] = "";
	const char *to = values['o'] != NULL ? values['o'] : standard;

	if (readlink("/proc/self/fd/1", standard, sizeof(standard) - 1) < 0)
		standard[0] = '\0';
	store.count = values['n'] != NULL;
	enum fault fault = refuse_stores(to);
	if (fault == FAULT_NONE && path != NULL)
		fault = refuse_stores(path);
	if (fault == FAULT_NONE && path != NULL)
		fault =
		    cursor_open(&export.cursor, path, store.count ? NULL : to);
	if (fault == FAULT_NONE && values['o'] != NULL)
		fault = open_file(values['o'], values['F'] != NULL);
	if (fault == FAULT_NONE)
		fault = open_reader(
		    &store, values['s'] != NULL ? export.since : NULL);
	if (fault != FAULT_NONE || (path == NULL && !export.follow))
		return fault;
	fault = engine->resume(reader, path != NULL ? place : NULL);
	if ((fault == FAULT_SETUP || fault == FAULT_DAMAGED) &&
	    place[0] != '\0')
		log_error("%s: remove it to read this store from the "
			  "beginning; consumers pass over the plants whose "
			  "ids they have",
		    path);
	return fault;
}

static void
report_export(enum fault fault)
{
	const char *path = export.values['o'];

	/* Consumers poll thousands of times a day: log no empty --quiet run. */
	if (fault == FAULT_NONE && !export.follow &&
	    (export.plants > 0 || export.values['q'] == NULL))
		log_info("exported %" PRIu64 " plants, up to %s%s%s",
		    export.plants, where, export.at[0] != '\0' ? ", " : "",
		    export.at);
	if (fault == FAULT_NONE && export.nuls > 0)
		log_warning("export: %" PRIu64 " plants have a U+0000 (the "
			    "first: %" PRId64 "), where other programs may "
			    "cut the value off; they are exact in --format "
			    "jsonl",
		    export.nuls, export.nul_id);
	if (fault == FAULT_STOPPED)
		log_error("export: stopped after %" PRIu64 " plants; %s %s",
		    export.plants, path != NULL ? path : "stdout",
		    path != NULL ? "was not made" : "is incomplete");
}

static int
run_export(const struct call *call)
{
	static const char header[] = "id,name,tag\r\n";
	bool counts = call->values['n'] != NULL;
	char count[32];

	if (read_options(call) != EX_OK)
		return EX_USAGE;
	output.terminal = call->values['o'] == NULL && isatty(STDOUT_FILENO);
	if (call->format == FORMAT_CSV && !counts)
		put(header, sizeof(header) - 1);
	enum fault fault = open_export();
	if (fault == FAULT_NONE)
		fault = export.follow ? follow() : read_plants();
	if (reader != NULL && !export.follow)
		fault = end_reading(fault);
	if (counts)
		put(count,
		    (size_t)sprintf(count, "%" PRIu64 "\n", export.plants));
	if (fault == FAULT_NONE && !export.follow) {
		if (export.cursor.lock >= 0)
			engine->cursor(reader, false, export.place);
		fault = finish_output();
		if (fault == FAULT_NONE)
			fault = save();
	}
	if (reader != NULL)
		engine->close(reader);
	if (output.unfinished[0] != '\0' && output.fd >= 0)
		unlink(output.unfinished);
	command_unwatch();
	report_export(fault);
	cursor_close(&export.cursor);
	return command_fault(fault);
}

const struct command query_command_export = {
	.name = "export",
	.summary = "write all plants, as JSON lines or CSV",
	.usage = export_usage,
	.options = { COMMAND_VALUE("output", 'o'), COMMAND_VALUE("format", 'f'),
	    COMMAND_VALUE("since", 's'), COMMAND_VALUE("by", 'b'),
	    COMMAND_FLAG("force", 'F'), COMMAND_FLAG("full", 'u'),
	    COMMAND_VALUE("file", 'j'), COMMAND_VALUE("cursor", 'c'),
	    COMMAND_FLAG("count", 'n'), COMMAND_VALUE("limit", 'l'),
	    COMMAND_FLAG("follow", 'w'), COMMAND_STORE },
	.dir_alias = 'j',
	.run = run_export,
};

static const char stats_usage[] =
    "Usage: plant-store stats [--dir DIR | DIR] [--all | --json | --watch]\n"
    "           [--quiet | --progress]\n"
    "\n"
    "Show what a store holds, and its state.  Every line of the journal is\n"
    "read and checked.  plant-store(1) has what each value means.\n"
    "\n"
    "  --all           all figures, a line each\n"
    "  --json          all figures, as one JSON object\n"
    "  --watch         show the summary each second, until Ctrl-C\n";

/* The time of the rate. */
#define RATE_S 60
#define WATCH_MS 1000

/* How many plants were stored with one token. */
struct token_plants {
	char name[RECORD_BY_MAX + 1];
	uint64_t plants;
};

static struct {
	bool json;             /* print a JSON object, not lines of text */
	const char *separator; /* printed before the next member */
	uint64_t plants;
	char first[TIMESTAMP_LEN + 1];
	char last[TIMESTAMP_LEN + 1];
	void *tokens;   /* tsearch(3): of token_plants, by name */
	uint64_t bytes; /* of the journal */
	char recent[TIMESTAMP_LEN + 1]; /* a minute before the command began */
	struct {
		int64_t second;
		uint64_t plants;
	} seconds[RATE_S]; /* of the last minute, in a ring */
} stats = { .separator = "{" };

static int
compare_names(const void *a, const void *b)
{
	const struct token_plants *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static enum fault
count_plant(const struct record *record)
{
	struct token_plants *token = calloc(1, sizeof(*token)), **place = NULL;

	if (token != NULL) {
		memcpy(token->name, record->by, record->by_len);
		place = tsearch(token, &stats.tokens, compare_names);
	}
	if (place == NULL || *place != token)
		free(token);
	if (place == NULL)
		return fault_report("stats", "cannot count");
	(*place)->plants++;
	stats.plants++;
	if (stats.first[0] == '\0')
		memcpy(stats.first, record->at, TIMESTAMP_LEN);
	memcpy(stats.last, record->at, TIMESTAMP_LEN);
	int64_t second;
	if (memcmp(record->at, stats.recent, TIMESTAMP_LEN) >= 0 &&
	    timestamp_read(record->at, TIMESTAMP_LEN, &second) == 0) {
		size_t i = (size_t)((second /= 1000) % RATE_S);

		if (stats.seconds[i].second != second)
			stats.seconds[i].plants = 0;
		stats.seconds[i].second = second;
		stats.seconds[i].plants++;
	}
	return FAULT_NONE;
}

/* Print `text`, which may be empty, or `number` if it is NULL. */
static void
print_figure(const char *name, const char *text, uint64_t number)
{
	bool none = text != NULL && text[0] == '\0';
	/* `text` is escaped already, or needs no escaping. */
	const char *quote = text != NULL && !none ? "\"" : "";
	char digits[sizeof("18446744073709551615")];

	snprintf(digits, sizeof(digits), "%" PRIu64, number);
	if (text == NULL)
		text = digits;
	if (stats.json)
		printf("%s\"%s\":%s%s%s", stats.separator, name, quote,
		    none ? "null" : text, quote);
	else
		printf("%-15s  %s\n", name, none ? "-" : text);
	stats.separator = ",";
}

/* Print the directory of a file store and the times of its backups. */
static void
print_place(const char *dir)
{
	static char text[6 * PATH_MAX + 2];
	char at[TIMESTAMP_LEN + 1] = "";
	int64_t ms = metrics_backup_ms(dir);

	/* Escaped in both forms: a terminal executes control characters. */
	text[json_string_print(dir, strnlen(dir, PATH_MAX), text) - 1] = '\0';
	timestamp_print(ms, at);
	print_figure("directory", text + 1, 0);
	print_figure("backup", ms > 0 ? at : "", 0);
	ms = metrics_verified_ms(dir);
	timestamp_print(ms, at);
	print_figure("backup_verified", ms > 0 ? at : "", 0);
}

static void
print_token(const void *node, VISIT visit, int depth)
{
	const struct token_plants *token =
	    *(const struct token_plants *const *)node;

	(void)depth;
	if (visit == postorder || visit == leaf)
		print_figure(token->name, NULL, token->plants);
}

static void
keep_bytes(const char *name, const char *text, uint64_t number)
{
	(void)text;
	if (strcmp(name, "bytes") == 0)
		stats.bytes = number;
}

/* The consumers of the store, compared with what was read of it. */
static size_t
read_consumers(
    const char *dir, struct metrics_consumer list[METRICS_CONSUMERS_MAX])
{
	engine->figures(reader, keep_bytes);
	metrics[METRICS_STORE_BYTES] = stats.bytes; /* this process's own */
	return metrics_consumers(dir, list);
}

static void
print_all(const struct call *call)
{
	struct metrics_consumer list[METRICS_CONSUMERS_MAX];
	size_t n = 0;

	engine->figures(reader, print_figure);
	if (call->store.database == NULL) {
		print_place(call->store.dir);
		n = read_consumers(call->store.dir, list);
	}
	print_figure("plants", NULL, stats.plants);
	print_figure("first", stats.first, 0);
	print_figure("last", stats.last, 0);
	printf("%s", stats.json ? ",\"tokens\":{" : "\ntokens\n");
	stats.separator = "";
	twalk(stats.tokens, print_token);
	printf("%s", stats.json ? "},\"consumers\":{"
		     : n > 0    ? "\nconsumers, bytes behind\n"
				: "");
	stats.separator = "";
	for (size_t i = 0; i < n; i++)
		print_figure(list[i].name, NULL, list[i].behind);
	printf("%s", stats.json ? "}}\n" : "");
}

static const char *
size_text(double bytes, char text[static COMMAND_COUNT_MAX])
{
	static const char *const units[] = { "bytes", "kB", "MB", "GB", "TB" };
	size_t i = 0;

	for (; bytes >= 1000 && i < 4; i++)
		bytes /= 1000;
	snprintf(text, COMMAND_COUNT_MAX, "%.*f %s", i > 0, bytes, units[i]);
	return text;
}

/* Print size, free room, backup and consumers of a store in files. */
static void
print_files(const char *dir, uint64_t recent)
{
	struct metrics_consumer list[METRICS_CONSUMERS_MAX];
	char text[COMMAND_COUNT_MAX], age[COMMAND_COUNT_MAX];
	struct statvfs fs = { 0 };
	int64_t backup_ms = metrics_backup_ms(dir);

	(void)statvfs(dir, &fs);
	double room = (double)fs.f_bavail * (double)fs.f_frsize;
	size_t n = read_consumers(dir, list);
	printf("size       %s; ", size_text((double)stats.bytes, text));
	printf("%s are free", size_text(room, text));
	double days = room * (double)stats.plants / (double)stats.bytes /
		      ((double)recent / RATE_S * 86400);
	if (recent > 0 && days < 10000)
		printf(", full in %.0f days at this rate", days);
	if (backup_ms > 0)
		printf("\nbackup     %s old\n", command_age(backup_ms, age));
	else
		printf("\nbackup     none is verified yet\n");
	for (size_t i = 0; i < n; i++)
		printf("consumer   %s: %s behind, has read %s ago\n",
		    list[i].name, size_text((double)list[i].behind, text),
		    command_age(list[i].read_ms, age));
	if (n == 0)
		printf("consumers  none in %s/" METRICS_CONSUMERS "\n", dir);
}

static void
print_tokens(void)
{
	struct config config;
	struct tokens *tokens = NULL;
	char text[COMMAND_COUNT_MAX], age[COMMAND_COUNT_MAX];
	enum fault fault;
	size_t n;

	if (config_read(&config) == FAULT_NONE &&
	    access(config.tokens, R_OK) == 0)
		tokens = tokens_open(config.tokens, TOKENS_ANY_USER, &fault);
	if (tokens == NULL) {
		printf("tokens     cannot be read\n");
		return;
	}
	(void)tokens_list(tokens, &n);
	int64_t next_ms = tokens_next_expiry(tokens, clock_ms(CLOCK_REALTIME));
	printf("tokens     %s", command_count(n, "token", text));
	if (next_ms == 0)
		printf(", none is valid\n");
	else if (next_ms == TOKENS_NEVER)
		printf("; none expires\n");
	else
		printf("; the next one expires in %s\n",
		    command_age(next_ms, age));
	tokens_close(tokens);
}

static void
print_summary(const struct call *call)
{
	char text[COMMAND_COUNT_MAX], age[COMMAND_COUNT_MAX];
	int64_t last_ms, now_s = clock_ms(CLOCK_REALTIME) / 1000;
	uint64_t recent = 0;

	for (size_t i = 0; i < RATE_S; i++)
		if (stats.seconds[i].second > now_s - RATE_S)
			recent += stats.seconds[i].plants;
	printf("plants     %" PRIu64, stats.plants);
	if (timestamp_read(stats.last, strlen(stats.last), &last_ms) == 0)
		printf("; the last one %s ago", command_age(last_ms, age));
	printf("\nrate       %s in the last minute\n",
	    command_count(recent, "plant", text));
	if (call->store.database == NULL)
		print_files(call->store.dir, recent);
	print_tokens();
}

/* Count the plants up to the reader's end, and print what was asked for. */
static enum fault
show_stats(const struct call *call)
{
	struct record record;
	enum fault fault = FAULT_NONE;
	bool watch = call->values['w'] != NULL;

	while (fault == FAULT_NONE && engine->next(reader, &record))
		fault = count_plant(&record);
	fault = end_reading(fault);
	if (fault != FAULT_NONE)
		return fault;
	if (!watch)
		command_unwatch();
	if (stats.json || call->values['a'] != NULL) {
		print_all(call);
		return FAULT_NONE;
	}
	printf("%s", watch ? "\033[H\033[J" : "");
	print_summary(call);
	fflush(stdout);
	return FAULT_NONE;
}

static int
run_stats(const struct call *call)
{
	bool watch = call->values['w'] != NULL;

	stats.json = call->values['j'] != NULL;
	if (stats.json + watch + (call->values['a'] != NULL) > 1)
		return command_usage_error(
		    call, "--all, --json and --watch exclude each other");
	if (watch && !isatty(STDOUT_FILENO))
		return command_usage_error(call, "--watch is for a terminal");
	timestamp_print(clock_ms(CLOCK_REALTIME) - RATE_S * 1000, stats.recent);
	enum fault fault = open_reader(&call->store, NULL);
	if (fault == FAULT_NONE && watch)
		fault = engine->resume(reader, "");
	if (fault == FAULT_NONE)
		fault = show_stats(call);
	while (watch && (fault == FAULT_NONE || fault == FAULT_BUSY)) {
		(void)poll(NULL, 0, WATCH_MS);
		fault = engine->more(reader);
		if (fault == FAULT_NONE)
			fault = show_stats(call);
	}
	command_unwatch();
	if (fault == FAULT_STOPPED && watch)
		fault = FAULT_NONE;
	if (fault == FAULT_STOPPED)
		log_error(
		    "stats: stopped after %" PRIu64 " plants", stats.plants);
	if (reader != NULL)
		engine->close(reader);
	tdestroy(stats.tokens, free);
	return command_fault(fault);
}

const struct command query_command_stats = {
	.name = "stats",
	.summary = "show what a store holds, and its state",
	.usage = stats_usage,
	.options = { COMMAND_FLAG("json", 'j'), COMMAND_FLAG("all", 'a'),
	    COMMAND_FLAG("watch", 'w'), COMMAND_STORE },
	.dir_alias = ' ',
	.run = run_stats,
};

static const char metrics_usage[] =
    "Usage: plant-store metrics [--dir DIR]\n"
    "\n"
    "Print what all processes of a store have counted, in Prometheus' text\n"
    "format.  plant-store.fcgi(8) has what each metric means.\n"
    "\n";

static int
run_metrics(const struct call *call)
{
	static char text[API_METRICS_MAX];
	struct config config;
	struct api api = { .config = &config };
	enum fault fault;

	if (config_read(&config) != FAULT_NONE)
		return EX_CONFIG;
	fault = metrics_open(call->store.dir, false);
	if (fault != FAULT_NONE) {
		(void)fault_report(call->store.dir, "cannot open its metrics");
		return command_fault(fault);
	}
	api.tokens = tokens_open(config.tokens, TOKENS_ANY_USER, &fault);
	if (api.tokens != NULL)
		fwrite(text, api_metrics(&api, text), 1, stdout);
	tokens_close(api.tokens);
	return command_fault(fault);
}

const struct command query_command_metrics = {
	.name = "metrics",
	.summary = "print what all processes of a store have counted",
	.usage = metrics_usage,
	.options = { COMMAND_DIR, COMMAND_HELP },
	.instead = "those of each process, at PLANT_STORE_METRICS_PATH",
	.run = run_metrics,
};
