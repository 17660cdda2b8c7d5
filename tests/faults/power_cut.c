/*
 * power_cut: every state that a power cut can leave of a journal, as far as it
 * can be enumerated, given to the store to open.
 *
 * What was written and not synced may reach the disk in any subset of its
 * sectors, with the file's size before or after it or between.  The other
 * sectors keep their old content, or read as zeros, as garbage, as stale lines
 * of the journal, or as a batch that stood at this place before and was torn:
 * the same plants, sent by another.  A sector itself is old or new, so the one
 * in which the durable bytes end is never anything else.
 *
 * The bytes come from the store's own code: a base of acknowledged batches, a
 * closing line or none, synced or not, then a batch, with or without room that
 * was prepared before or is made by its write.  A state must open, and then
 * have exactly the whole lines with which it begins: so nothing acknowledged is
 * lost, nothing invented and nothing legal refused.
 *
 * usage: power_cut EVERY PART PARTS [long]
 *
 * Of EVERY states one is tried, of PARTS scenarios this part.  Prints what it has
 * counted (see `counts`).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"
#include "pure/crc32c.h"
#include "pure/record.h"
#include "store/journal.h"
#include "store/store.h"
#include "store_parts.h"

#define JOURNAL_NAME "plants.jsonl"
#define END_NAME JOURNAL_NAME ".end"

#define BATCH_MAX 64
#define BASE_MAX 9
#define LINES_MAX (BASE_MAX + BATCH_MAX + 4)
/* All subsets of so many sectors are tried; of more, a sample. */
#define SECTORS_ALL 12
#define SECTORS_ALL_OFTEN 7
#define SUBSETS_SAMPLED 192
/* So much of the room is kept in most states, since all of it is alike. */
#define ROOM_KEPT 1024
/* Of so many recoveries one is followed by the clients' retries. */
#define RETRY_EVERY 64

enum room { ROOM_NONE, ROOM_PRESENT, ROOM_MADE, ROOMS };
enum closing { CLOSING_NONE, CLOSING_WRITTEN, CLOSING_CGI, CLOSINGS };
enum filling {
	FILL_OLD,
	FILL_ZEROS,
	FILL_GARBAGE,
	FILL_STALE,
	FILL_EARLIER,
	FILLINGS
};
enum known { KNOWS_NOTHING, KNOWS_SOME, KNOWS_ALL, INDEXES };

static struct {
	uint64_t states, recoveries, retries, sectors_max;
	uint64_t lost, invented, refused, other;
} counts;

/* A store's directory in memory, whose files are taken down and put back. */
static struct {
	char path[64];
	int dir;
	int log;    /* what the store says, instead of stderr */
	int report; /* stderr as it was */
} lab;

/* Bytes of a file, from malloc. */
struct bytes {
	char *at;
	size_t len;
};

struct scenario {
	enum room room;
	enum closing closing;
	size_t base, batch;
	struct bytes before, after;
	struct bytes mark;    /* of the end, before the batch */
	struct bytes earlier; /* `after`, but with the batch of another */
	size_t durable, end;  /* what lies between was not synced */
	size_t nends, ends[LINES_MAX], plants[LINES_MAX];
	struct index_image *images[INDEXES];
	char *state;
};

static bool everything;
static uint64_t every = 1, turn;
static char garbage[1 << 16];
static uint64_t random_state = 88172645463325252u;

/* --- Stores in memory ----------------------------------------------------- */

#define INDEX_FILES_MAX 24

struct index_image {
	size_t n;
	struct {
		char name[280];
		struct bytes bytes;
	} files[INDEX_FILES_MAX];
};

static _Noreturn void
die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vdprintf(lab.report, format, arguments);
	va_end(arguments);
	dprintf(lab.report, "\n");
	_exit(70); /* EX_SOFTWARE */
}

static void
lab_open(void)
{
	const char *tmp = getenv("TMPDIR");

	/* Memory, unless told otherwise: millions of files are made. */
	if (tmp == NULL || strlen(tmp) > 40)
		tmp = "/dev/shm";
	snprintf(lab.path, sizeof(lab.path), "%s/store.XXXXXX", tmp);
	if (mkdtemp(lab.path) == NULL)
		die("%s: %s", lab.path, strerror(errno));
	lab.dir = open(lab.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lab.log = memfd_create("log", MFD_CLOEXEC);
	lab.report = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (lab.dir < 0 || lab.log < 0 || lab.report < 0 ||
	    fcntl(lab.log, F_SETFL, O_APPEND) < 0 ||
	    dup2(lab.log, STDERR_FILENO) < 0)
		die("cannot set up: %s", strerror(errno));
}

static const char *
last_logged(void)
{
	static char text[4096];
	ssize_t n = pread(lab.log, text, sizeof(text) - 1, 0);

	if (n <= 0 || ftruncate(lab.log, 0) < 0)
		return "";
	text[n] = '\0';
	if (text[n - 1] == '\n')
		text[n - 1] = '\0';
	char *last = strrchr(text, '\n');
	return last == NULL ? text : last + 1;
}

static void
renew(void)
{
	parts_empty(AT_FDCWD, lab.path);
	if (store_init(lab.path) != FAULT_NONE)
		die("cannot make a store: %s", last_logged());
}

static void
lab_close(void)
{
	parts_empty(AT_FDCWD, lab.path);
	rmdir(lab.path);
}

static struct bytes
read_file(const char *name)
{
	struct bytes bytes = { 0 };
	struct stat st;
	int fd = openat(lab.dir, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return bytes;
	if (fstat(fd, &st) < 0)
		die("%s: %s", name, strerror(errno));
	bytes.len = (size_t)st.st_size;
	bytes.at = malloc(bytes.len + 1);
	if (bytes.at == NULL ||
	    pread(fd, bytes.at, bytes.len, 0) != (ssize_t)bytes.len)
		die("%s: cannot read", name);
	close(fd);
	return bytes;
}

static void
write_file(const char *name, const char *at, size_t len)
{
	int fd;

	if (at == NULL) {
		unlinkat(lab.dir, name, 0);
		return;
	}
	fd = openat(lab.dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || pwrite(fd, at, len, 0) != (ssize_t)len ||
	    ftruncate(fd, (off_t)len) < 0)
		die("%s: %s", name, strerror(errno));
	close(fd);
}

static struct store *
open_store(bool long_lived)
{
	struct store_options options = { .dir = lab.path,
		.long_lived = long_lived };
	enum fault fault;

	return store_open(&options, &fault);
}

static struct store *
open_good_store(bool long_lived)
{
	struct store *store = open_store(long_lived);

	if (store == NULL)
		die("a good store does not open: %s", last_logged());
	return store;
}

/* Names of 8 to some 110 bytes, so that lines end anywhere in a sector. */
static struct plant
make_plant(int64_t id)
{
	char name[160];
	int fill = (int)((uint64_t)id * 2654435761u >> 7 & 0x7fffffff) % 100;

	snprintf(name, sizeof(name), "plant %" PRId64 " %.*s", id, fill,
	    "ffffffffffffffffffffffffffffffffffffffffffffffffff"
	    "gggggggggggggggggggggggggggggggggggggggggggggggggg");
	return parts_plant(id, name, id % 3 == 0 ? "\xc3\xa9" : NULL);
}

static void
commit(struct store *store, int64_t id, size_t n)
{
	struct plant *plants = calloc(n, sizeof(*plants));
	struct store_item *items = calloc(n, sizeof(*items));

	if (plants == NULL || items == NULL)
		die("out of memory");
	for (size_t i = 0; i < n; i++) {
		plants[i] = make_plant(id + (int64_t)i);
		items[i] =
		    (struct store_item){ .plant = &plants[i], .by = "tester" };
	}
	if (store_commit(store, items, n) < 0)
		die("cannot store %zu plants", n);
	for (size_t i = 0; i < n; i++) {
		if (items[i].result != STORE_CREATED)
			die("plant %" PRId64 ": result %d", plants[i].id,
			    (int)items[i].result);
		plant_done(&plants[i]);
	}
	free(plants);
	free(items);
}

static enum store_result
put(struct store *store, const struct plant *plant)
{
	struct store_item item = { .plant = plant, .by = "tester" };

	store_commit(store, &item, 1);
	return item.result;
}

static size_t
read_line(const struct bytes *journal, size_t at, struct record *record)
{
	const char *line = journal->at + at;
	const char *newline = memchr(line, '\n', journal->len - at);
	char uuid[RECORD_UUID_LEN];
	uint32_t crc;

	if (newline == NULL ||
	    record_header_decode(journal->at, journal->len, uuid, &crc) !=
		RECORD_HEADER_OK ||
	    record_decode(line, (size_t)(newline + 1 - line), record_seed(uuid),
		record) != NULL)
		die("no line at byte %zu", at);
	return (size_t)(newline + 1 - journal->at);
}

static struct index_image *
take_index(void)
{
	struct index_image *image = calloc(1, sizeof(*image));
	int fd = openat(lab.dir, INDEX_NAME, O_RDONLY | O_DIRECTORY);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (image == NULL || dir == NULL)
		die("there is no index");
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		if (image->n == INDEX_FILES_MAX)
			die("the index has too many files");
		snprintf(image->files[image->n].name,
		    sizeof(image->files[0].name), INDEX_NAME "/%s",
		    entry->d_name);
		image->files[image->n].bytes =
		    read_file(image->files[image->n].name);
		image->n++;
	}
	closedir(dir);
	return image;
}

/* Write what identifies `name` at the offset `at` of the manifest. */
static void
put_identity(char *manifest, size_t at, const char *name)
{
	char file[FILE_ID_LEN + 1];
	int fd = openat(lab.dir, name, O_RDONLY);

	if (fd < 0 || file_identify(fd, file) < 0)
		die("there is no %s", name);
	close(fd);
	memcpy(manifest + at, file, sizeof(file));
}

/* The manifest names its own file and those of the runs, which are new. */
static void
own_files(void)
{
	/* See struct manifest in src/store/index.c. */
	enum {
		FILE_AT = 48,
		RUNS_AT = 128,
		RUN_LEN = 88,
		RUN_FILE_AT = 40,
		RUNS_MAX = 16,
		CRC_AT = RUNS_AT + RUNS_MAX * RUN_LEN
	};
	const char *name = INDEX_NAME "/manifest";
	struct bytes manifest = read_file(name);
	uint32_t n, crc;
	uint64_t number;
	char run[64];

	if (manifest.len != CRC_AT + 8)
		die("the manifest has another form");
	memcpy(&n, manifest.at + sizeof(n), sizeof(n));
	put_identity(manifest.at, FILE_AT, name);
	for (size_t at = RUNS_AT; n > 0; n--, at += RUN_LEN) {
		memcpy(&number, manifest.at + at, sizeof(number));
		snprintf(run, sizeof(run), INDEX_NAME "/run-%" PRIu64, number);
		put_identity(manifest.at, at + RUN_FILE_AT, run);
	}
	crc = crc32c(0, manifest.at, CRC_AT);
	memcpy(manifest.at + CRC_AT, &crc, sizeof(crc));
	/* In place: it stays the same file. */
	int fd = openat(lab.dir, name, O_WRONLY);
	if (fd < 0 ||
	    pwrite(fd, manifest.at, manifest.len, 0) != (ssize_t)manifest.len)
		die("cannot write the manifest");
	close(fd);
	free(manifest.at);
}

/* New files each time: the old ones may be mapped still. */
static void
put_index(const struct index_image *image)
{
	parts_empty(lab.dir, INDEX_NAME);
	if (image == NULL)
		return;
	mkdirat(lab.dir, INDEX_NAME, 0700);
	for (size_t i = 0; i < image->n; i++)
		write_file(image->files[i].name, image->files[i].bytes.at,
		    image->files[i].bytes.len);
	own_files();
}

static void
free_index(struct index_image *image)
{
	for (size_t i = 0; image != NULL && i < image->n; i++)
		free(image->files[i].bytes.at);
	free(image);
}

/* --- Counting ------------------------------------------------------------- */

static uint64_t
draw(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void
report(const struct scenario *s, uint64_t *count, const char *what)
{
	if ((*count)++ < 3)
		dprintf(lab.report,
		    "# %s: room %d, closing %d, base %zu, batch %zu, durable "
		    "%zu, turn %" PRIu64 ": %s\n",
		    what, (int)s->room, (int)s->closing, s->base, s->batch,
		    s->durable, turn, last_logged());
}

/* --- Scenarios ----------------------------------------------------------- */

/* Where the lines end, and how many plants stand before each end. */
static void
find_lines(struct scenario *s, const struct bytes *journal)
{
	size_t at = RECORD_HEADER_LEN, plants = 0;
	struct record record;

	s->nends = 0;
	for (;;) {
		s->ends[s->nends] = at;
		s->plants[s->nends++] = plants;
		if (at == journal->len || journal->at[at] == '\n')
			break;
		if (s->nends == LINES_MAX)
			die("too many lines");
		at = read_line(journal, at, &record);
		plants += record.plant != NULL;
	}
	s->end = at;
}

static void
write_closing(struct scenario *s, struct store *store)
{
	struct store *other;

	switch (s->closing) {
	case CLOSING_NONE:
	case CLOSINGS:
		break;
	case CLOSING_WRITTEN:
		if (s->room == ROOM_PRESENT)
			store_idle(store);
		else
			store_close(open_good_store(true));
		break;
	case CLOSING_CGI: /* which writes none */
		other = open_good_store(false);
		commit(other, (int64_t)++s->base, 1);
		store_close(other);
		break;
	}
}

static void
keep_some_room(struct bytes *journal, size_t end)
{
	if (journal->len > end + ROOM_KEPT)
		journal->len = end + ROOM_KEPT;
}

/* The same plants at the same places by another of as long a name. */
static void
make_earlier(struct scenario *s)
{
	char uuid[RECORD_UUID_LEN];
	uint32_t crc;
	bool first = true;
	struct record record;

	s->earlier.len = s->after.len;
	s->earlier.at = malloc(s->after.len);
	if (s->earlier.at == NULL ||
	    record_header_decode(s->after.at, s->after.len, uuid, &crc) !=
		RECORD_HEADER_OK)
		die("no earlier batch can be made");
	memcpy(s->earlier.at, s->after.at, s->after.len);
	for (size_t at = s->durable, to; at < s->end; at = to) {
		to = read_line(&s->after, at, &record);
		if (record.plant == NULL)
			continue;
		record.by = "tosser";
		if (!first)
			record.prev = crc;
		first = false;
		if (record_encode(&record, record_seed(uuid),
			s->earlier.at + at) != to - at)
			die("another name is as long");
		crc = record.crc;
	}
}

static void
scenario_make(struct scenario *s, bool whole_room)
{
	struct store *store, *first;

	renew();
	put_index(NULL);
	store = open_good_store(s->room != ROOM_NONE);
	first = s->room == ROOM_PRESENT ? store : open_good_store(false);
	if (s->base > 1)
		commit(first, 1, s->base / 2);
	s->images[KNOWS_NOTHING] = NULL;
	s->images[KNOWS_SOME] = take_index();
	if (s->base > 0)
		commit(
		    first, (int64_t)(s->base / 2 + 1), s->base - s->base / 2);
	write_closing(s, store);
	s->images[KNOWS_ALL] = take_index();
	s->before = read_file(JOURNAL_NAME);
	s->mark = read_file(END_NAME);
	find_lines(s, &s->before);
	s->durable = s->ends[s->nends - 1];
	if (s->batch > 0)
		commit(store, (int64_t)s->base + 1, s->batch);
	s->after = read_file(JOURNAL_NAME);
	find_lines(s, &s->after);
	if (!whole_room) {
		keep_some_room(&s->before, s->end);
		keep_some_room(&s->after, s->end);
	}
	if (first != store)
		store_close(first);
	store_close(store);
	make_earlier(s);
	s->state = malloc(s->after.len);
	if (s->state == NULL)
		die("out of memory");
}

static void
scenario_done(struct scenario *s)
{
	free_index(s->images[KNOWS_SOME]);
	free_index(s->images[KNOWS_ALL]);
	free(s->before.at);
	free(s->mark.at);
	free(s->after.at);
	free(s->earlier.at);
	free(s->state);
}

/* --- Recoveries ---------------------------------------------------------- */

/* How many whole lines of `whole` the state begins with. */
static size_t
count_lines(const struct scenario *s, const struct bytes *whole, size_t len)
{
	size_t same = s->durable, lines = 0;

	while (same < len && same < s->end && s->state[same] == whole->at[same])
		same++;
	while (lines < s->nends && s->ends[lines] <= same)
		lines++;
	return lines;
}

/* Clients send everything again, twice: the first time opens no store. */
static void
retry(const struct scenario *s, struct store *store, size_t plants)
{
	for (size_t i = 0; i < s->base + s->batch; i++) {
		struct plant plant = make_plant((int64_t)i + 1);
		enum store_result result = put(store, &plant);

		if (i < plants && result == STORE_CREATED)
			report(s, &counts.lost, "stored, and unknown");
		else if (i >= plants && result == STORE_SAME)
			report(s, &counts.invented, "known, and not stored");
		else if (result != STORE_SAME && result != STORE_CREATED)
			report(s, &counts.other, "a retry failed");
		plant_done(&plant);
	}
	counts.retries++;
}

static void
check_torn_copy(const struct scenario *s, size_t end, size_t len)
{
	char name[64];
	struct bytes copy;
	size_t text = len;

	snprintf(name, sizeof(name), JOURNAL_NAME ".torn-%zu", end);
	copy = read_file(name);
	while (text > end && s->state[text - 1] == '\n')
		text--;
	if (text - end != copy.len ||
	    (copy.len > 0 && memcmp(copy.at, s->state + end, copy.len) != 0))
		report(s, &counts.other, "the torn end was not kept");
	free(copy.at);
}

/* What the file holds now must be those lines, and blank ones. */
static void
check_journal(const struct scenario *s, const struct bytes *whole, size_t end)
{
	struct bytes now = read_file(JOURNAL_NAME);
	size_t same = end;

	if (now.len < end || memcmp(now.at, whole->at, end) != 0) {
		report(s, &counts.lost, "lines are gone");
		free(now.at);
		return;
	}
	while (same < now.len && now.at[same] == '\n')
		same++;
	if (same != now.len)
		report(s, &counts.invented, "more lines than were written");
	free(now.at);
}

static void
recover(const struct scenario *s, size_t len, enum known known)
{
	const struct bytes *whole = &s->after;
	size_t lines = count_lines(s, whole, len);
	size_t others = count_lines(s, &s->earlier, len);
	bool thorough = counts.recoveries % RETRY_EVERY == 0;
	struct store *store;
	char name[64];

	if (others > lines) {
		whole = &s->earlier;
		lines = others;
	}
	size_t end = s->ends[lines - 1];
	counts.recoveries++;
	write_file(JOURNAL_NAME, s->state, len);
	put_index(s->images[known]);
	write_file(END_NAME, draw() % 2 == 0 ? NULL : s->mark.at, s->mark.len);
	store = open_store(draw() % 2 == 0);
	if (store == NULL) {
		report(s, &counts.refused, "refused");
		return;
	}
	check_journal(s, whole, end);
	if (thorough) {
		check_torn_copy(s, end, len);
		retry(s, store, s->plants[lines - 1]);
	}
	store_close(store);
	snprintf(name, sizeof(name), JOURNAL_NAME ".torn-%zu", end);
	unlinkat(lab.dir, name, 0);
	if (thorough) {
		put_index(NULL);
		store = open_good_store(true);
		retry(s, store, s->base + s->batch);
		store_close(store);
	}
}

/* The state, of that length, with each index in turn, or with all. */
static void
try_state(const struct scenario *s, size_t len)
{
	turn++;
	if (every > 1 && draw() % every != 0)
		return;
	counts.states++;
	for (int known = 0; known < INDEXES; known++)
		if (everything || turn % INDEXES == (uint64_t)known)
			recover(s, len, (enum known)known);
}

/* --- States -------------------------------------------------------------- */

/* What stands in [from, to) if it was not written. */
static void
fill(struct scenario *s, size_t from, size_t to, enum filling filling)
{
	size_t i, n = 0, source;

	if (from < s->durable)
		filling = FILL_OLD;
	switch (filling) {
	case FILL_OLD:
	case FILLINGS:
		if (from < s->before.len)
			n = (to < s->before.len ? to : s->before.len) - from;
		memcpy(s->state + from, s->before.at + from, n);
		memset(s->state + from + n, 0, to - from - n);
		break;
	case FILL_ZEROS:
		memset(s->state + from, 0, to - from);
		break;
	case FILL_GARBAGE:
		source = draw() % (sizeof(garbage) / 2);
		for (i = from; i < to; i++)
			s->state[i] =
			    garbage[(source + i - from) % sizeof(garbage)];
		break;
	case FILL_EARLIER:
		memcpy(s->state + from, s->earlier.at + from, to - from);
		break;
	case FILL_STALE:
		source = draw() % (s->end - (to - from < s->end ? to - from
								: s->end - 1));
		for (i = from; i < to; i++)
			s->state[i] = s->after.at[source + (i - from)];
		break;
	}
}

/* The sectors of that size in `subset` were written, the others not. */
static void
try_subset(struct scenario *s, size_t sector, uint64_t subset)
{
	size_t first = s->durable / sector * sector, past = s->after.len;

	for (int filling = 0; filling < FILLINGS; filling++) {
		memcpy(s->state, s->after.at, past);
		for (size_t i = 0, at = first; at < past; i++, at += sector) {
			size_t to = at + sector < past ? at + sector : past;

			/* What lies behind the 63rd goes with it. */
			if ((subset >> (i < 63 ? i : 63) & 1) == 0)
				fill(s, at, to, (enum filling)filling);
		}
		try_state(s, past);
		if (s->before.len < past) {
			try_state(s, s->before.len);
			try_state(
			    s, s->before.len + draw() % (past - s->before.len));
		}
	}
}

static void
try_sectors(struct scenario *s, size_t sector, size_t all_max)
{
	size_t first = s->durable / sector;
	size_t n = (s->end + sector - 1) / sector - first;

	if (n > 63)
		n = 63;
	if (n <= all_max) {
		if (counts.sectors_max < n)
			counts.sectors_max = n;
		for (uint64_t subset = 0; subset < UINT64_C(1) << n; subset++)
			try_subset(s, sector, subset);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		try_subset(s, sector, (UINT64_C(1) << i) - 1);
		try_subset(s, sector, ~((UINT64_C(1) << i) - 1));
		try_subset(s, sector, ~(UINT64_C(1) << i));
		try_subset(s, sector, UINT64_C(1) << i);
	}
	for (int i = 0; i < SUBSETS_SAMPLED; i++)
		try_subset(s, sector, draw());
}

/* Cut at a byte: the size ends there, or what was there before follows. */
static void
try_cuts(struct scenario *s, size_t step)
{
	for (size_t cut = s->durable; cut <= s->end; cut += step) {
		memcpy(s->state, s->after.at, s->after.len);
		try_state(s, cut);
		if (cut < s->before.len) {
			memcpy(s->state + cut, s->before.at + cut,
			    s->before.len - cut);
			try_state(s, s->before.len);
		}
		memset(s->state + cut, 0, s->after.len - cut);
		try_state(s, s->after.len);
	}
}

static void
try_scenario(enum room room, enum closing closing, size_t batch, bool often,
    bool whole_room)
{
	struct scenario s = { .room = room, .closing = closing };

	s.batch = batch;
	s.base = batch * 5 % BASE_MAX;
	scenario_make(&s, whole_room);
	if (!whole_room) {
		try_cuts(&s, often ? 1 : 17);
		try_sectors(&s, 512, often ? SECTORS_ALL : SECTORS_ALL_OFTEN);
	}
	try_sectors(&s, 4096, SECTORS_ALL);
	scenario_done(&s);
}

int
main(int argc, char **argv)
{
	const unsigned mixes = ROOMS * CLOSINGS;

	if (argc < 4)
		die("usage: power_cut EVERY PART PARTS [long]");
	every = strtoull(argv[1], NULL, 10);
	everything = argc > 4;
	log_level_max = LOG_AT_ERROR;
	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (char)draw();
	lab_open();
	unsigned number = (unsigned)strtoul(argv[2], NULL, 10);
	const unsigned parts = (unsigned)strtoul(argv[3], NULL, 10);
	for (; number < BATCH_MAX * mixes; number += parts) {
		size_t batch = BATCH_MAX - number / mixes;
		unsigned mix = number % mixes;
		enum room room = (enum room)(mix / CLOSINGS);
		enum closing closing = (enum closing)(mix % CLOSINGS);

		random_state = (number + 1) * UINT64_C(2654435761);
		try_scenario(room, closing, batch,
		    everything || mix == batch % mixes, false);
		if (room == ROOM_MADE && batch % 16 == 15)
			try_scenario(room, closing, batch, false, true);
	}
	lab_close();
	printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
	       " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
	    counts.sectors_max, counts.states, counts.recoveries,
	    counts.retries, counts.lost, counts.invented, counts.refused,
	    counts.other);
	return EXIT_SUCCESS;
}
