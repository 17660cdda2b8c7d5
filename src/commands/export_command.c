/*
 * export_command: writes all plants of a store, as JSON lines or CSV.  A
 * consumer keeps its position in a file, the cursor.
 *
 * Happy path of an export with a cursor: the cursor is locked and read, the
 * plants after its position are written and synced, and the cursor is replaced.
 * Failure modes: if the process ends before that, the old position remains, and
 * the same plants are read again; a crash leaves the old cursor or the new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "command.h"
#include "ground/clock.h"
#include "ground/file.h"
#include "output.h"
#include "pure/crc32c.h"
#include "pure/csv.h"
#include "pure/json.h"
#include "store/journal.h"

#define JOURNAL_BEGIN "{\"plant-store\":"
/* For a file that a user names: follow no link, and wait for no FIFO. */
#define NO_LINK (O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

/* Refuse a journal, and the names of files beside one or in its index. */
static void
refuse_stores(const char *path)
{
	static const char *const names[] = { "manifest", "run-", "end",
		JOURNAL_NAME, METRICS_NAME, "last-" };
	const char *slash = strrchr(path, '/');
	const char *name = slash != NULL ? slash + 1 : path;
	char journal[PATH_MAX], begin[sizeof(JOURNAL_BEGIN) - 1];

	snprintf(journal, sizeof(journal), "%s", path);
	for (int i = 0; i <= 6; i++) {
		if (file_get(AT_FDCWD, journal, begin, sizeof(begin)) == 0 &&
		    memcmp(begin, JOURNAL_BEGIN, sizeof(begin)) == 0)
			command_refuse(FAULT_OUTPUT,
			    "%s: belongs to a store; name another file", path);
		if (i == 6 || strncmp(name, names[i], strlen(names[i])) != 0)
			continue;
		/* A cursor in a store may be named `end-of-day`. */
		const char *rest = name + strlen(names[i]);
		if (i > 2 || rest[strspn(rest, ".new0123456789")] == '\0')
			snprintf(journal, sizeof(journal), "%.*s%s",
			    (int)(name - path), path,
			    i < 3 ? "../" JOURNAL_NAME : JOURNAL_NAME);
	}
}

/* --- The cursor --- */

#define CURSOR_BEGIN "plant-store-cursor 1 "
#define CURSOR_BEGIN_LEN ((int)sizeof(CURSOR_BEGIN) - 1)
#define CHECK_LEN 10 /* a space, eight digits, newline */
#define CURSOR_BYTES (sizeof(CURSOR_BEGIN) + STORE_CURSOR_MAX + CHECK_LEN)

static struct {
	const char *path;             /* FILE */
	char place[STORE_CURSOR_MAX]; /* in the file; "" if it is absent */
	int lock; /* FILE.lock, which is never removed; -1: only read FILE */
	int dir;
	int fd; /* FILE.new, which replaces FILE; -1: not open */
	char next[PATH_MAX + sizeof(".new")];
} cursor = { .lock = -1 };

_Noreturn static void
refuse_cursor(const char *what)
{
	(void)fault_report(cursor.path, what);
	command_fail(FAULT_OUTPUT);
}

static int
encode_cursor(const char *place, char line[static CURSOR_BYTES])
{
	int n = snprintf(line, CURSOR_BYTES, CURSOR_BEGIN "%s", place);

	return n + snprintf(line + n, CHECK_LEN + 1, " %08" PRIx32 "\n",
		       crc32c(0, line, (size_t)n));
}

static void
read_cursor(void)
{
	char line[CURSOR_BYTES] = "", good[CURSOR_BYTES];
	int fd = open(cursor.path, O_RDONLY | NO_LINK), len = -1;

	if (fd < 0 && errno == ENOENT)
		return;
	if (fd >= 0)
		len = (int)file_read_all(fd, line, sizeof(line), 0);
	file_close(fd);
	if (len < 0)
		refuse_cursor("cannot read");
	int n = len - CURSOR_BEGIN_LEN - CHECK_LEN;
	if (n > 0 && n < STORE_CURSOR_MAX)
		memcpy(cursor.place, line + CURSOR_BEGIN_LEN, (size_t)n);
	if (encode_cursor(cursor.place, good) == len &&
	    memcmp(line, good, (size_t)len) == 0)
		return;
	command_refuse(FAULT_DAMAGED,
	    "%s: is damaged or not a cursor; remove it to read the store from "
	    "the beginning",
	    cursor.path);
}

/* Return whether `path` is FILE, FILE.new or FILE.lock: its lock is ours. */
static bool
is_of_cursor(const char *path)
{
	/* The suffix of `path`, and what replaces it to get FILE. */
	static const char *const ends[][2] = { { "", "" }, { ".new", "" },
		{ ".lock", "" }, { "", OUTPUT_UNFINISHED } };
	struct stat own, other;
	char lock[PATH_MAX];

	for (size_t i = 0; i < 4; i++) {
		int n = (int)(strlen(path) - strlen(ends[i][0]));

		if (n < 0 || strcmp(path + n, ends[i][0]) != 0)
			continue;
		snprintf(
		    lock, sizeof(lock), "%.*s%s.lock", n, path, ends[i][1]);
		if (stat(lock, &other) == 0 && fstat(cursor.lock, &own) == 0 &&
		    own.st_ino == other.st_ino && own.st_dev == other.st_dev)
			return true;
	}
	return false;
}

/* Create FILE.new, with FILE's owner and mode. */
static void
open_next(void)
{
	struct stat st;
	const bool old = lstat(cursor.path, &st) == 0;

	snprintf(cursor.next, sizeof(cursor.next), "%s.new", cursor.path);
	/* Under the lock, only a dead process can have left a FILE.new. */
	unlink(cursor.next);
	cursor.fd =
	    open(cursor.next, O_WRONLY | O_CREAT | O_EXCL | NO_LINK, 0600);
	if (cursor.fd < 0 ||
	    (old && st.st_uid != geteuid() &&
		fchown(cursor.fd, st.st_uid, st.st_gid) < 0) ||
	    (old && fchmod(cursor.fd, st.st_mode & 0777) < 0))
		refuse_cursor("cannot be replaced");
}

static void
remove_next(void)
{
	unlink(cursor.next);
}

/* Lock the cursor, and check that it can be replaced and is not `to`. */
static void
lock_cursor(const char *to)
{
	char name[PATH_MAX + sizeof(".lock")];

	snprintf(name, sizeof(name), "%s.lock", cursor.path);
	cursor.lock = open(name, O_RDONLY | O_CREAT | NO_LINK, 0600);
	cursor.dir = open(dirname(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (cursor.lock < 0 || cursor.dir < 0)
		refuse_cursor("cannot create or open its .lock");
	if (flock(cursor.lock, LOCK_EX | LOCK_NB) < 0)
		command_refuse(FAULT_BUSY,
		    "%s: another process uses this cursor", cursor.path);
	if (is_of_cursor(to))
		command_refuse(FAULT_OUTPUT,
		    "%s: belongs to the cursor; name another file", to);
	/* If this failed later, the plants would be printed again next time. */
	atexit(remove_next);
	open_next();
}

/* --- Export --- */

/* The minimum time between two saves of the cursor: each syncs twice. */
#define SAVE_MS 250

static const struct reader_engine *engine;
static struct store_reader *reader;

static struct {
	const struct call *call;
	bool follow, count, full;
	const char *by; /* only the plants of this token, unless NULL */
	uint64_t limit;
	char since[TIMESTAMP_LEN + 1];
	char place[STORE_CURSOR_MAX]; /* after the last plant written; or "" */
	char next[STORE_CURSOR_MAX];  /* after the last plant in the buffer */
	int64_t saved_ms;
	char at[TIMESTAMP_LEN + 1];  /* when the last plant read was stored */
	char where[STORE_WHERE_MAX]; /* the last record read */
	uint64_t plants;             /* written or counted */
	uint64_t nuls;               /* of `plants`, those with a U+0000 */
	int64_t nul_id;              /* the first of those */
} export;

/* An absent tag is an empty field; an empty tag is "". */
static void
put_csv(const struct record *record)
{
	static char text[RECORD_LINE_MAX], field[OUTPUT_PUT_MAX];
	struct json_member members[] = { { .name = "name" }, { .name = "tag" },
		{ 0 } };
	struct json_error error;
	bool nul = false;

	output_put(field, (size_t)sprintf(field, "%" PRId64, record->id));
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
		output_put(field, len + 1);
	}
	if (nul && export.nuls++ == 0)
		export.nul_id = record->id;
	output_put("\r\n", 2);
}

static void
export_plant(const struct record *record)
{
	const char *by = export.by;

	memcpy(export.at, record->at, TIMESTAMP_LEN);
	if (by != NULL && (strlen(by) != record->by_len ||
			      memcmp(by, record->by, record->by_len) != 0))
		return;
	export.plants++;
	if (export.count)
		return;
	if (export.call->format == FORMAT_CSV)
		put_csv(record);
	else
		output_put_plant(record, export.full);
}

/*
 * Sync the output, since stdout may be a file.  Then durably replace the
 * cursor, unless it already contains the position.
 */
static void
save_cursor(void)
{
	const char *place = export.place;
	char line[CURSOR_BYTES];

	if (cursor.lock < 0 || place[0] == '\0' ||
	    strcmp(place, cursor.place) == 0)
		return;
	output_sync();
	export.saved_ms = clock_ms(CLOCK_MONOTONIC);
	if (cursor.fd < 0)
		open_next();
	size_t len = (size_t)encode_cursor(place, line);
	if (file_write_all(cursor.fd, line, len, 0) < 0 ||
	    fsync(cursor.fd) < 0 || rename(cursor.next, cursor.path) < 0 ||
	    fsync(cursor.dir) < 0)
		command_fail(fault_report(cursor.path, "cannot be replaced"));
	close(cursor.fd);
	cursor.fd = -1;
	strcpy(cursor.place, place);
}

/* Write the buffer.  Move the position after its plants; save it when due. */
static void
deliver(void)
{
	output_flush();
	strcpy(export.place, export.next);
	if (clock_ms(CLOCK_MONOTONIC) >= export.saved_ms + SAVE_MS)
		save_cursor();
}

/*
 * Write all plants up to the reader's end.  With --follow, write whole lines of
 * at most PIPE_BUF bytes, unless one is longer: a pipe accepts all of such a
 * write or, if a signal ends the wait for room, none.
 */
static void
write_plants(void)
{
	struct record record;

	while (export.plants < export.limit && engine->next(reader, &record)) {
		/* Twice the length: CSV doubles quotation marks. */
		if (export.follow && output_buffered() + COMMAND_FULL_AROUND +
					     1 + 2 * record.plant_len >
					 PIPE_BUF)
			deliver();
		export_plant(&record);
		if (export.follow)
			engine->cursor(reader, export.next);
	}
	(void)command_retry(engine->end(reader, export.where), export.follow);
}

static void
read_options(const struct call *call)
{
	const char *since = command_option("since"),
		   *limit = command_option("limit");
	int64_t ms;

	export.call = call;
	export.follow = command_option("follow") != NULL;
	export.count = command_option("count") != NULL;
	export.full = command_option("full") != NULL;
	export.by = command_option("by");
	if (since != NULL && !command_time(since, &ms))
		command_usage_error("--since: invalid time: %s; use 2027-01-31 "
				    "or 2027-01-31T12:00:00Z",
		    since);
	if (since != NULL)
		timestamp_print(ms, export.since);
	export.limit = limit != NULL ? strtoull(limit, NULL, 10) : UINT64_MAX;
	if (limit != NULL &&
	    (limit[strspn(limit, "0123456789")] != '\0' || export.limit == 0))
		command_usage_error(
		    "--limit must be at least 1, not %s", limit);
	if (command_option("force") != NULL && command_option("output") == NULL)
		command_usage_error("--force needs -o FILE");
}

/* Open the cursor and the output first: opening the store may take a while. */
static void
open_export(void)
{
	struct store_options store = export.call->store;
	const char *path = command_option("cursor"),
		   *to = command_option("output");
	char standard[PATH_MAX] = "";

	store.count = export.count;
	if (to == NULL)
		(void)!readlink("/proc/self/fd/1", standard, PATH_MAX - 1);
	const char *file = to != NULL ? to : standard;
	refuse_stores(file);
	if (path != NULL) {
		cursor.path = path;
		refuse_stores(path);
		if (!store.count)
			lock_cursor(file);
		read_cursor();
	}
	output_open(to, command_option("force") != NULL);
	reader = command_open_reader(&store,
	    command_option("since") != NULL ? export.since : NULL, &engine);
	if (path == NULL && !export.follow)
		return;
	enum fault fault =
	    engine->resume(reader, path != NULL ? cursor.place : NULL);
	if ((fault == FAULT_SETUP || fault == FAULT_DAMAGED) &&
	    cursor.place[0] != '\0')
		log_error("%s: remove it to read this store from the "
			  "beginning; consumers skip the plants whose ids they "
			  "have",
		    path);
	command_need(fault);
}

/* A follower succeeds: the position is after the last plant written. */
static void
stop_export(void)
{
	const char *path = command_option("output");

	if (export.follow) {
		save_cursor();
		command_exit(EX_OK);
	}
	log_error("export: stopped after %s; %s %s",
	    command_count(export.plants, "plant"),
	    path != NULL ? path : "stdout",
	    path != NULL ? "was not made" : "is incomplete");
}

void
export_run(const struct call *call)
{
	static const char header[] = "id,name,tag\r\n";
	char digits[sizeof("18446744073709551615\n")];

	command_stopped = stop_export;
	read_options(call);
	open_export();
	if (call->format == FORMAT_CSV && !export.count)
		output_put(header, sizeof(header) - 1);
	write_plants();
	while (export.follow) {
		/* A failed connection may have left plants in the buffer. */
		engine->cursor(reader, export.next);
		deliver();
		output_wait();
		(void)command_retry(engine->more(reader), true);
		write_plants();
	}
	if (export.count)
		output_put(digits,
		    (size_t)sprintf(digits, "%" PRIu64 "\n", export.plants));
	engine->cursor(reader, export.place);
	output_finish();
	save_cursor();
	/* Consumers poll thousands of times a day: log no empty --quiet run. */
	if (export.plants > 0 || command_option("quiet") == NULL)
		log_info("exported %s, up to %s%s%s",
		    command_count(export.plants, "plant"), export.where,
		    export.at[0] != '\0' ? ", " : "", export.at);
	if (export.nuls > 0)
		log_warning("export: U+0000 in %s (the first: %" PRId64
			    "): other programs may truncate these values; "
			    "--format jsonl is exact",
		    command_count(export.nuls, "plant"), export.nul_id);
}
