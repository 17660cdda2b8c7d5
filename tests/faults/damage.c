/*
 * damage: a journal whose durable bytes were changed from outside is refused,
 * with the offset, and left as it is.
 *
 * A small journal of several batches, closed, is damaged in one place below its
 * last watermark: every bit is flipped, every byte replaced, removed, doubled,
 * something inserted before it; sectors are zeroed, lines removed, doubled,
 * swapped and spelt otherwise.  Each is given to a long lived process, which
 * checks a small journal whole, without an index and with the good one.
 *
 * A CGI process with an index does not read the journal from its beginning.  It
 * may start; but whatever it says of a plant must be true.
 *
 * What no journal can tell by itself is tried as well and only counted: a
 * shorter file, and a zeroed sector that takes the last closing line too.  The
 * index tells these, and so does the end mark, with which no damage is accepted.
 *
 * usage: damage [--every N] [--room]
 *
 * With --room the journal ends in room written ahead.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ground/log.h"
#include "lab.h"

#define PLANTS 12
#define LINES_MAX 32
#define SECTOR 512
#define ROOM_KEPT 700
/* A line ends in the checksum, a quote, a brace and a newline. */
#define CRC_DIGITS 8
#define CRC_BACK (CRC_DIGITS + 3)

struct count {
	uint64_t tried, refused, silent;
};

static struct lab lab;
static struct bytes good;
static struct bytes good_mark;
static struct lab_index *good_index;
static size_t lines[LINES_MAX], nlines; /* where they begin, and the end */
static size_t watermark;                /* of the last closing line */
static uint64_t every = 1, turn, wrong, untruths, unnamed, touched;
static const char *logged = "";
/* What is known of the journal besides. */
enum beside { NOTHING, INDEX, MARK, BESIDES };
static struct count below[BESIDES], beyond[BESIDES], cgi;

static void
report(uint64_t *count, const char *what, const char *damage, size_t at)
{
	if ((*count)++ < 3)
		dprintf(lab.report, "# %s: %s at byte %zu: %s\n", what, damage,
		    at, logged);
}

/* Batches of 3, 1, 4 and 4 plants, the second and the last one closed. */
static void
make_journal(bool room)
{
	struct store *store;
	struct record record = { 0 };
	size_t at = RECORD_HEADER_LEN;

	lab_renew(&lab);
	lab_put_index(&lab, NULL);
	store = lab_open_good_store(&lab, true);
	lab_commit(store, 1, 3);
	lab_commit(store, 4, 1);
	store_idle(store);
	lab_commit(store, 5, 4);
	lab_commit(store, 9, 4);
	store_idle(store);
	good = lab_read(&lab, JOURNAL_NAME);
	good_mark = lab_read(&lab, END_NAME);
	good_index = lab_take_index(&lab);
	store_close(store);
	nlines = 0;
	lines[nlines++] = 0;
	while (good.at[at] != '\n') {
		lines[nlines++] = at;
		at = lab_line(&good, at, &record);
	}
	lines[nlines] = at;
	watermark = (size_t)record.safe;
	good.len = at + (room ? ROOM_KEPT : 0);
	if (record.plant != NULL || watermark != lines[nlines - 1])
		lab_die("the last line does not close");
}

/* Whether a torn end was kept, which is removed. */
static bool
has_torn(void)
{
	DIR *dir = opendir(lab.path);
	struct dirent *entry;
	bool found = false;

	while (dir != NULL && (entry = readdir(dir)) != NULL)
		if (strstr(entry->d_name, ".torn-") != NULL) {
			unlinkat(lab.dir, entry->d_name, 0);
			found = true;
		}
	if (dir != NULL)
		closedir(dir);
	return found;
}

static size_t
first_difference(const struct bytes *bad)
{
	size_t at = 0;

	while (at < bad->len && at < good.len && bad->at[at] == good.at[at])
		at++;
	return at;
}

/*
 * Whether the message names the line of the first byte that differs, or the
 * length of a file that is shorter than what is known.
 */
static bool
names_offset(const struct bytes *bad, enum fault fault, enum beside beside)
{
	const char *found;
	size_t differs = first_difference(bad), line = 0, told;

	if (beside != NOTHING && bad->len < lines[nlines] &&
	    fault == FAULT_DAMAGED && strstr(logged, "it is shorter (") != NULL)
		return true;
	for (size_t i = 0; i < nlines && lines[i] <= differs; i++)
		line = lines[i];
	if (line == 0 && fault == FAULT_SETUP)
		return strstr(logged, "of a version that") != NULL;
	found = strstr(logged, "damaged at byte ");
	if (found == NULL || fault != FAULT_DAMAGED)
		return false;
	told = strtoul(found + strlen("damaged at byte "), NULL, 10);
	return told >= line && told <= differs;
}

static void
try_long_lived(const struct bytes *bad, enum beside beside, bool must,
    const char *damage, size_t at)
{
	struct count *count = must ? &below[beside] : &beyond[beside];
	struct store *store;
	struct bytes now;
	enum fault fault = FAULT_NONE;

	lab_write(&lab, JOURNAL_NAME, bad->at, bad->len);
	lab_put_index(&lab, beside == INDEX ? good_index : NULL);
	lab_write(&lab, END_NAME, beside == MARK ? good_mark.at : NULL,
	    good_mark.len);
	store = lab_open_store(&lab, true, &fault);
	logged = lab_logged(&lab);
	count->tried++;
	if (store != NULL) {
		count->silent++;
		if (must)
			report(&wrong,
			    beside == INDEX  ? "opened, with the index"
			    : beside == MARK ? "opened, with the end mark"
					     : "opened",
			    damage, at);
		store_close(store);
		has_torn();
		return;
	}
	count->refused++;
	now = lab_read(&lab, JOURNAL_NAME);
	if (now.len != bad->len || memcmp(now.at, bad->at, now.len) != 0 ||
	    has_torn())
		report(&touched, "touched", damage, at);
	free(now.at);
	if (must && !names_offset(bad, fault, beside))
		report(&unnamed, "without its offset", damage, at);
}

/* Ask for every plant, beginning with another one each time. */
static void
try_cgi(const struct bytes *bad, const char *damage, size_t at)
{
	struct store *store;
	enum store_result result = STORE_SAME;
	enum fault fault;

	lab_write(&lab, JOURNAL_NAME, bad->at, bad->len);
	lab_put_index(&lab, good_index);
	lab_write(&lab, END_NAME, NULL, 0);
	store = lab_open_store(&lab, false, &fault);
	cgi.tried++;
	if (store == NULL) {
		cgi.refused++;
		return;
	}
	for (uint64_t i = 0; i <= PLANTS && result != STORE_FAILED; i++) {
		int64_t id = (int64_t)((i + turn) % (PLANTS + 1)) + 1;
		struct plant plant = lab_plant(id);
		bool other = (turn / 13 + i) % 2 == 1 && id <= PLANTS;

		if (other) /* the same id, another name */
			plant.text[plant.len - 10] ^= 1;
		result = lab_put(store, &plant);
		if (result != STORE_FAILED &&
		    result != (id > PLANTS ? STORE_CREATED
				  : other  ? STORE_CONFLICT
					   : STORE_SAME))
			report(&untruths, "not the truth", damage, at);
		plant_done(&plant);
	}
	if (result == STORE_FAILED)
		cgi.refused++;
	else
		cgi.silent++;
	store_close(store);
	has_torn();
}

/* [at, at + removed) of the good journal gives way to `text`. */
static void
try_edit(size_t at, size_t removed, const char *text, size_t len, bool must,
    const char *damage)
{
	struct bytes bad = { .len = good.len - removed + len };

	if (turn++ % every != 0 ||
	    (len == removed && memcmp(good.at + at, text, len) == 0))
		return;
	bad.at = malloc(bad.len + 1);
	if (bad.at == NULL)
		lab_die("out of memory");
	memcpy(bad.at, good.at, at);
	if (len > 0)
		memcpy(bad.at + at, text, len);
	memcpy(
	    bad.at + at + len, good.at + at + removed, good.len - at - removed);
	/* A newline behind the last one below it is not below it. */
	must = must && first_difference(&bad) < watermark;
	try_long_lived(&bad, NOTHING, must, damage, at);
	try_long_lived(&bad, INDEX, must, damage, at);
	try_long_lived(&bad, MARK, true, damage, at);
	if (must)
		try_cgi(&bad, damage, at);
	free(bad.at);
}

static void
damage_bytes(void)
{
	static const char inserted[] = { '\n', '\0', ' ', '\r', '0', '"' };

	for (size_t at = 0; at < watermark; at++) {
		char byte = good.at[at];
		char twice[2] = { byte, byte };

		for (int bit = 0; bit < 8; bit++) {
			char flipped = (char)(byte ^ (1 << bit));

			try_edit(at, 1, &flipped, 1, true, "bit flipped");
		}
		try_edit(at, 1, "\0", 1, true, "byte zeroed");
		try_edit(at, 1, "\n", 1, true, "byte made a newline");
		try_edit(at, 1, "\xff", 1, true, "byte made 0xff");
		try_edit(at, 1, NULL, 0, true, "byte removed");
		try_edit(at, 1, twice, 2, true, "byte doubled");
		for (size_t i = 0; i < sizeof(inserted); i++)
			try_edit(at, 0, &inserted[i], 1, true, "byte inserted");
	}
}

static void
damage_sectors(void)
{
	static const char zeros[SECTOR];

	for (size_t at = 0; at < watermark; at += SECTOR) {
		size_t len = good.len - at < SECTOR ? good.len - at : SECTOR;
		bool closing = at + len > watermark;

		try_edit(at, len, zeros, len, !closing, "sector zeroed");
	}
}

/* Another spelling of a line, which is valid JSON of the same meaning. */
static void
respell(size_t from, size_t to)
{
	char text[CRC_DIGITS];

	for (size_t at = from; at < to; at++)
		if (good.at[at] >= 'a' && good.at[at] <= 'f') {
			char upper = (char)(good.at[at] - 'a' + 'A');

			try_edit(at, 1, &upper, 1, true, "upper-case digit");
		} else if (good.at[at] == ',' || good.at[at] == ':') {
			try_edit(at + 1, 0, " ", 1, true, "space");
			try_edit(at + 1, 0, "\t", 1, true, "tab");
		}
	try_edit(to - 1, 1, "\r\n", 2, true, "CRLF");
	for (size_t i = 0; i < CRC_DIGITS; i++) {
		text[i] = good.at[to - CRC_BACK + i];
		if (text[i] >= 'a')
			text[i] = (char)(text[i] - 'a' + 'A');
	}
	try_edit(to - CRC_BACK, CRC_DIGITS, text, CRC_DIGITS, true,
	    "upper-case checksum");
}

static void
damage_lines(void)
{
	char text[2048];

	for (size_t i = 0; i + 1 < nlines; i++) {
		size_t from = lines[i], to = lines[i + 1], past = lines[i + 2];
		const char *line = good.at + from;

		respell(from, to);
		try_edit(from, to - from, NULL, 0, true, "line removed");
		try_edit(to, 0, line, to - from, true, "line doubled");
		memcpy(text, good.at + to, past - to);
		memcpy(text + (past - to), line, to - from);
		try_edit(from, past - from, text, past - from, true,
		    "lines swapped");
		for (size_t j = i + 1; j + 1 < nlines; j++)
			try_edit(from, to - from, good.at + lines[j],
			    lines[j + 1] - lines[j], true, "line replaced");
	}
}

static void
damage_end(void)
{
	for (size_t at = RECORD_HEADER_LEN; at < lines[nlines]; at++)
		try_edit(at, good.len - at, NULL, 0, false, "cut");
	for (size_t at = watermark; at < lines[nlines]; at++)
		for (int bit = 0; bit < 8; bit++) {
			char flipped = (char)(good.at[at] ^ (1 << bit));

			try_edit(at, 1, &flipped, 1, false, "bit flipped");
		}
}

static void
try_all(bool room)
{
	make_journal(room);
	damage_bytes();
	damage_sectors();
	damage_lines();
	damage_end();
	free(good.at);
	free(good_mark.at);
	lab_free_index(good_index);
}

int
main(int argc, char **argv)
{
	bool room = false;

	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--room") == 0)
			room = true;
		else if (strcmp(argv[i], "--every") == 0 && i + 1 < argc)
			every = strtoull(argv[++i], NULL, 10);
		else
			lab_die("usage: damage [--every N] [--room]");
	if (every == 0)
		every = 1;
	log_level_max = LOG_AT_ERROR;
	lab_open(&lab);
	try_all(room);
	lab_close(&lab);

	printf("# damage below the watermark, %s room: refused "
	       "%" PRIu64 " of %" PRIu64 " without an index, %" PRIu64
	       " of %" PRIu64 " with a good one\n",
	    room ? "with" : "without", below[0].refused, below[0].tried,
	    below[1].refused, below[1].tried);
	printf("# CGI with a good index: %" PRIu64 " of %" PRIu64
	       " refused at the start or at a lookup; %" PRIu64
	       " answered, of which wrongly %" PRIu64 "\n",
	    cgi.refused, cgi.tried, cgi.silent, untruths);
	printf("# shorter files and damage that takes the last closing line: "
	       "refused %" PRIu64 " of %" PRIu64 " without an index, %" PRIu64
	       " of %" PRIu64 " with one\n",
	    beyond[0].refused, beyond[0].tried, beyond[1].refused,
	    beyond[1].tried);
	printf("# damage anywhere: refused %" PRIu64 " of %" PRIu64
	       " with the end mark\n",
	    below[MARK].refused, below[MARK].tried);
	bool untried = below[0].tried == 0 || below[1].tried == 0 ||
		       beyond[0].tried == 0 || beyond[1].tried == 0 ||
		       below[MARK].tried == 0 || cgi.tried == 0;
	lab_say(untried, "damage of each kind is tried");
	lab_say(
	    wrong, "all damage below the watermark or the end mark is refused");
	lab_say(unnamed, "the refusal names the line's offset");
	lab_say(touched, "a damaged journal is left as it is");
	lab_say(
	    untruths, "a CGI process says nothing untrue of a damaged journal");
	return untried || wrong + unnamed + touched + untruths > 0;
}
