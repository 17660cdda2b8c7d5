/*
 * fuzz_journal: a journal that is damaged, torn or forged, and what opening the
 * store makes of it.
 *
 * The input: choices, the shape of a good journal, and orders that change its
 * bytes.  Whatever they do,
 *
 *	an open that refuses logs why and leaves the journal as it is;
 *	one that succeeds keeps a beginning of it, all of whose lines follow
 *	from each other, with right checksums;
 *	no whole line of the journal has a watermark above what was kept;
 *	a second open finds what the first left, and changes nothing;
 *	the store has the first plant of each id that was kept;
 *
 * and if no checksum was made right again, what was kept is what was there
 * before the damage, down to the watermark of any line that is left, and with
 * an index from before, all of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "fuzz_log.h"
#include "store/journal.h"
#include "model.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "store/store.h"
#include "store_parts.h"

#define UUID "0b7c3e52-8f4d-4a61-9c0e-5d2f1a6b7c8d"
#define AT "2026-11-21T07:21:00.123Z"
#define SECTOR ((size_t)512)
#define LINES_MAX 64
#define BYTES_MAX ((size_t)32 << 10)

enum choice {
	CHOICE_LONG_LIVED = 1,
	CHOICE_INDEX = 2, /* opened once before the damage */
	CHOICE_CLOSING = 4,
	CHOICE_BLANK = 8,  /* room ahead */
	CHOICE_FAILED = 16 /* renamed by version 1.0.0 after a failed sync */
};

struct lines {
	size_t n;
	struct line {
		size_t at, len; /* with the newline */
	} line[LINES_MAX];
};

static char path[256];
static int dir = -1;

static void
remove_directory(void)
{
	parts_empty(AT_FDCWD, path);
	rmdir(path);
}

static void
make_directory(void)
{
	if (dir >= 0)
		return;
	const char *parent = getenv("TMPDIR");

	snprintf(path, sizeof(path), "%s/fuzz_journal.XXXXXX",
	    parent != NULL ? parent : "/tmp");
	REQUIRE(mkdtemp(path) != NULL);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	REQUIRE(dir >= 0);
	atexit(remove_directory);
}

static struct model_bytes
read_file(const char *name)
{
	struct model_bytes bytes = { 0 };
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	char buf[4096];
	ssize_t n;

	REQUIRE(fd >= 0);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		model_append(&bytes, buf, (size_t)n);
	close(fd);
	return bytes;
}

static void
write_file(const char *name, const struct model_bytes *bytes)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	REQUIRE(fd >= 0);
	REQUIRE(write(fd, bytes->at, bytes->len) == (ssize_t)bytes->len);
	close(fd);
}

/* CRC-32C by its definition, a bit at a time. */
static uint32_t
checksum(uint32_t crc, const char *text, size_t len)
{
	crc = ~crc;
	for (size_t i = 0; i < len; i++) {
		crc ^= (unsigned char)text[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (0x82f63b78 & -(crc & 1));
	}
	return ~crc;
}

static bool
is_prefix(
    const struct model_bytes *of, const struct model_bytes *bytes, size_t len)
{
	return len <= of->len && len <= bytes->len &&
	       (len == 0 || memcmp(of->at, bytes->at, len) == 0);
}

static bool
is_same(const struct model_bytes *a, const struct model_bytes *b)
{
	return a->len == b->len && is_prefix(a, b, a->len);
}

/* A line with a plant of this id, or a closing one, behind `prev`. */
static size_t
put_line(struct model_bytes *bytes, uint64_t seq, uint64_t safe, uint32_t prev,
    const int64_t *id, unsigned seed, uint32_t *crc)
{
	char plant[512] = "", line[RECORD_ENVELOPE_MAX + sizeof(plant)];
	struct record record = { .seq = seq, .safe = safe, .prev = prev };

	record.at = AT;
	if (id != NULL) {
		record.by = "fuzz";
		record.by_len = 4;
		record.plant = plant;
		record.id = *id;
		record.plant_len = (size_t)snprintf(plant, sizeof(plant),
		    "{\"id\":%" PRId64 ",\"name\":\"%0*u\"}", *id,
		    (int)(seed % 256), seed);
	}
	size_t len = record_encode(&record, record_seed(UUID), line);
	model_append(bytes, line, len);
	*crc = record.crc;
	return len;
}

/* A good journal: up to 4 batches of up to 4 plants, their names' lengths. */
static struct model_bytes
make_journal(struct fuzz_input *input, unsigned choices)
{
	struct model_bytes bytes = { 0 };
	char header[RECORD_HEADER_LEN];
	uint32_t crc = record_header_encode(UUID, header);
	size_t batches = fuzz_byte(input) % 5;
	uint64_t seq = 0;

	model_append(&bytes, header, sizeof(header));
	for (size_t b = 0; b < batches; b++) {
		unsigned shape = fuzz_byte(input);
		size_t safe = bytes.len;

		for (unsigned i = 0; i <= (shape & 3); i++) {
			int64_t id = (int64_t)++seq;

			put_line(&bytes, seq, safe, crc, &id, shape, &crc);
		}
	}
	if ((choices & CHOICE_CLOSING) != 0 && seq > 0)
		put_line(&bytes, seq + 1, bytes.len, crc, NULL, 0, &crc);
	if ((choices & CHOICE_BLANK) != 0) {
		char blank[600];

		memset(blank, '\n', sizeof(blank));
		model_append(&bytes, blank, sizeof(blank));
	}
	return bytes;
}

static struct lines
split(const struct model_bytes *bytes)
{
	struct lines lines = { 0 };
	size_t at = 0;

	while (at < bytes->len && lines.n < LINES_MAX) {
		const char *newline =
		    memchr(bytes->at + at, '\n', bytes->len - at);
		size_t len = newline == NULL
				 ? bytes->len - at
				 : (size_t)(newline + 1 - bytes->at) - at;

		if (len > 1)
			lines.line[lines.n++] = (struct line){ at, len };
		at += len;
	}
	return lines;
}

/* What the line says, if it is valid by itself: also by our own checksum. */
static bool
decode(const struct model_bytes *bytes, const struct line *line,
    struct record *record)
{
	const char *text = bytes->at + line->at;
	size_t covered = line->len - sizeof(",\"crc\":\"12345678\"}");

	if (record_decode(text, line->len, record_seed(UUID), record) != NULL)
		return false;
	REQUIRE(checksum(checksum(0, UUID, RECORD_UUID_LEN), text, covered) ==
		record->crc);
	return true;
}

/* Replace `len` bytes at `at`. */
static void
replace(struct model_bytes *bytes, size_t at, size_t len, const char *with,
    size_t with_len)
{
	struct model_bytes changed = { 0 };

	model_append(&changed, bytes->at, at);
	model_append(&changed, with, with_len);
	model_append(&changed, bytes->at + at + len, bytes->len - at - len);
	free(bytes->at);
	*bytes = changed;
}

static void
swap_lines(struct model_bytes *bytes, struct line a, struct line b)
{
	struct model_bytes changed = { 0 };

	if (a.at > b.at) {
		struct line c = a;

		a = b;
		b = c;
	}
	if (a.at == b.at)
		return;
	model_append(&changed, bytes->at + b.at, b.len);
	model_append(&changed, bytes->at + a.at + a.len, b.at - a.at - a.len);
	model_append(&changed, bytes->at + a.at, a.len);
	replace(bytes, a.at, b.at + b.len - a.at, changed.at, changed.len);
	free(changed.at);
}

/* Say something else in a line, or in a new one at the end; checksum right. */
static void
forge(struct model_bytes *bytes, const struct lines *lines,
    struct fuzz_input *input)
{
	struct model_bytes forged = { 0 };
	struct record record;
	unsigned how = fuzz_byte(input);
	size_t i = fuzz_byte(input) % (lines->n + 1);
	struct line line = { bytes->len, 0 };
	uint32_t crc;

	if (i < lines->n)
		line = lines->line[i];
	if (lines->n == 0 ||
	    !decode(bytes, i < lines->n ? &line : &lines->line[lines->n - 1],
		&record))
		return;
	if (i == lines->n) {
		record.seq++;
		record.prev = record.crc;
		record.id = (int64_t)record.seq;
	}
	if ((how & 1) != 0)
		record.seq += fuzz_byte(input) - UINT64_C(4);
	if ((how & 2) != 0)
		record.safe = fuzz_below(input, bytes->len + 64);
	if ((how & 4) != 0)
		record.prev ^= fuzz_byte(input);
	if ((how & 8) != 0)
		record.id = fuzz_byte(input) % 16;
	record.seq &= INT64_MAX;
	put_line(&forged, record.seq, record.safe, record.prev,
	    (how & 16) != 0 ? NULL : &record.id, how >> 4, &crc);
	replace(bytes, line.at, line.len, forged.at, forged.len);
	free(forged.at);
}

/* One order.  Whether a checksum may be right that was not there before. */
static bool
damage(struct model_bytes *bytes, struct fuzz_input *input)
{
	struct lines lines = split(bytes);
	unsigned order = fuzz_byte(input);
	size_t at = fuzz_below(input, bytes->len + 1);
	const uint8_t *text;
	size_t len;
	struct line a = { 0 }, b = { 0 };

	if (lines.n > 0) {
		a = lines.line[at % lines.n];
		b = lines.line[(order >> 4) % lines.n];
	}
	switch (order & 15) {
	case 0:
	case 1:
		bytes->len = at;
		break;
	case 2:
	case 3:
		if (at < bytes->len)
			bytes->at[at] ^= (char)(1 << (order >> 4 & 7));
		break;
	case 4: /* a sector that was never written, or holds room ahead */
	case 5:
		at -= at % SECTOR;
		len = bytes->len - at < SECTOR ? bytes->len - at : SECTOR;
		memset(bytes->at + at, (order & 1) != 0 ? '\n' : 0, len);
		break;
	case 6: /* a line twice */
		replace(bytes, b.at, 0, bytes->at + a.at, a.len);
		break;
	case 7:
		replace(bytes, a.at, a.len, "", 0);
		break;
	case 8:
		swap_lines(bytes, a, b);
		break;
	case 9: /* anything in between */
		len = fuzz_bytes(input, order >> 4, &text);
		replace(bytes, at, 0, (const char *)text, len);
		break;
	case 10: /* anything in the place of what was there */
		len = fuzz_bytes(input, order >> 4, &text);
		if (len > bytes->len - at)
			len = bytes->len - at;
		memcpy(bytes->at + at, text, len);
		break;
	case 11: /* newlines */
		replace(
		    bytes, at, 0, "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", order >> 4);
		break;
	case 12: /* a line is blanked */
		memset(bytes->at + a.at, '\n', a.len);
		break;
	case 13:
	case 14:
		forge(bytes, &lines, input);
		return true;
	case 15: /* what a torn write leaves at the end */
		replace(bytes, bytes->len, 0, bytes->at + a.at, a.len / 2);
		break;
	}
	return false;
}

/* The lines from the header on that follow from each other; where they end. */
static size_t
walk(const struct model_bytes *bytes, struct record *records, size_t *n)
{
	struct lines lines = split(bytes);
	size_t end = RECORD_HEADER_LEN;
	char uuid[RECORD_UUID_LEN];
	uint32_t crc;

	*n = 0;
	REQUIRE(record_header_decode(bytes->at, bytes->len, uuid, &crc) ==
		RECORD_HEADER_OK);
	for (size_t i = 1; i < lines.n; i++) {
		struct record *record = &records[*n];

		if (lines.line[i].at != end ||
		    !decode(bytes, &lines.line[i], record) ||
		    record->seq != *n + 1 || record->prev != crc ||
		    record->safe > end)
			break;
		crc = record->crc;
		end += lines.line[i].len;
		++*n;
	}
	return end;
}

static size_t
newlines_at(const struct model_bytes *bytes, size_t at)
{
	size_t n = 0;

	while (at + n < bytes->len && bytes->at[at + n] == '\n')
		n++;
	return n;
}

/* The highest watermark that a whole line of the bytes tells. */
static size_t
watermark(const struct model_bytes *bytes)
{
	struct lines lines = split(bytes);
	struct record record;
	size_t safe = 0;

	for (size_t i = 0; i < lines.n; i++)
		if (decode(bytes, &lines.line[i], &record) &&
		    record.safe > safe)
			safe = record.safe;
	return safe;
}

/* The store has the plants that were kept; of one id, the first. */
static void
check_plants(struct store *store, const struct record *records, size_t n)
{
	struct store_item items[LINES_MAX];
	struct plant plants[LINES_MAX];
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		if (records[i].plant == NULL)
			continue;
		plants[count] = (struct plant){ records[i].id,
			strndup(records[i].plant, records[i].plant_len),
			records[i].plant_len };
		items[count] = (struct store_item){ .plant = &plants[count],
			.by = "fuzz" };
		count++;
	}
	REQUIRE(store_commit(store, items, count) == 0);
	for (size_t i = 0; i < count; i++) {
		size_t first = 0;

		while (plants[first].id != plants[i].id)
			first++;
		REQUIRE(items[i].result ==
			(strcmp(plants[first].text, plants[i].text) == 0
				? STORE_SAME
				: STORE_CONFLICT));
	}
	for (size_t i = 0; i < count; i++)
		free(plants[i].text);
}

static struct store *
open_store(bool long_lived, enum fault *fault)
{
	const struct store_options options = { .dir = path,
		.long_lived = long_lived };

	fuzz_log_errors = 0;
	return store_open(&options, fault);
}

static void
check_refused(
    const struct model_bytes *before, enum fault fault, bool long_lived)
{
	struct model_bytes after;
	enum fault again = FAULT_NONE;

	REQUIRE(fault == FAULT_DAMAGED || fault == FAULT_SETUP);
	REQUIRE(fuzz_log_errors > 0);
	REQUIRE(open_store(long_lived, &again) == NULL && again == fault);
	after = read_file(JOURNAL_NAME);
	REQUIRE(is_same(&after, before));
	free(after.at);
}

/* How the bytes were before, and whether lines of ours are among them. */
struct origin {
	const struct model_bytes *good;
	bool forged;
	bool indexed; /* opened, and closed, when it was good */
};

static void
check_kept(const struct model_bytes *damaged, struct store *store,
    const struct origin *origin, bool long_lived)
{
	struct record records[LINES_MAX];
	struct model_bytes first = read_file(JOURNAL_NAME), second, third;
	size_t n, end = walk(&first, records, &n);
	enum fault fault;

	/* Behind the lines there is nothing, or room. */
	REQUIRE(end + newlines_at(&first, end) == first.len);
	REQUIRE(is_prefix(damaged, &first, end));
	REQUIRE(watermark(damaged) <= end);
	check_plants(store, records, n);
	if (!origin->forged) {
		REQUIRE(is_prefix(origin->good, &first, end));
		REQUIRE(
		    !origin->indexed ||
		    end + newlines_at(origin->good, end) == origin->good->len);
	}
	store_close(store);
	second = read_file(JOURNAL_NAME);
	REQUIRE(is_prefix(&first, &second, end));
	store = open_store(long_lived, &fault);
	REQUIRE(store != NULL);
	third = read_file(JOURNAL_NAME);
	REQUIRE(walk(&third, records, &n) >= end);
	check_plants(store, records, n);
	store_close(store);
	free(third.at);
	third = read_file(JOURNAL_NAME);
	REQUIRE(is_same(&third, &second));
	free(first.at);
	free(second.at);
	free(third.at);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	unsigned choices = fuzz_byte(&input);
	bool long_lived = (choices & CHOICE_LONG_LIVED) != 0;
	struct model_bytes good = make_journal(&input, choices);
	struct model_bytes bytes = { 0 };
	struct origin origin = { .good = &good };
	struct store *store;
	enum fault fault = FAULT_NONE;

	make_directory();
	parts_empty(AT_FDCWD, path);
	write_file(JOURNAL_NAME, &good);
	if ((choices & CHOICE_INDEX) != 0) {
		store = open_store(true, &fault);
		REQUIRE(store != NULL);
		store_close(store);
		free(good.at);
		good = read_file(JOURNAL_NAME);
		/* Only then the journal is checked from its beginning. */
		origin.indexed = long_lived = true;
	}
	model_append(&bytes, good.at, good.len);
	while (input.left > 0 && bytes.len < BYTES_MAX)
		origin.forged |= damage(&bytes, &input);
	unlinkat(dir, JOURNAL_NAME, 0);
	write_file(
	    (choices & CHOICE_FAILED) != 0 ? JOURNAL_FAILED_NAME : JOURNAL_NAME,
	    &bytes);
	store = open_store(long_lived, &fault);
	if (store == NULL)
		check_refused(&bytes, fault, long_lived);
	else
		check_kept(&bytes, store, &origin, long_lived);
	free(bytes.at);
	free(good.at);
	return 0;
}
