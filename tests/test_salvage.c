/* test_salvage: what is left of a damaged journal becomes a new store. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "alloc_shim.h"
#include "fault_shim.h"
#include "salvage_scan.h"
#include "sanitized.h"
#include "store/salvage.h"
#include "store/verify.h"

/* Enough for the second block of the disk. */
#define PLANTS 60
#define BLOCK 4096

struct told {
	unsigned n;
	char first[160];
};

static void
tell(void *context, const char *line)
{
	struct told *told = context;

	if (told->n++ == 0)
		snprintf(told->first, sizeof(told->first), "%s", line);
}

/* The store's directory has the damaged journal, and within it is the new. */
static int
salvage(const struct fixture *fixture, const struct watch *watch,
    struct told *told, struct salvage_report *report)
{
	char dest[80];
	struct salvage_options options = { .from = fixture->path,
		.dest = dest,
		.tell = tell,
		.context = told };

	if (watch != NULL)
		options.watch = *watch;
	memset(told, 0, sizeof(*told));
	snprintf(dest, sizeof(dest), "%s/new", fixture->path);
	return salvage_store(&options, report);
}

static int
tear_down(void **state)
{
	const struct fixture *fixture = *state;

	unlinkat(fixture->dir, "new/" JOURNAL_NAME, 0);
	unlinkat(fixture->dir, "new", AT_REMOVEDIR);
	return fixture_tear_down(state);
}

static void
expect_valid(const struct fixture *fixture, uint64_t plants)
{
	char path[80];
	struct verify_report verified;

	snprintf(path, sizeof(path), "%s/new", fixture->path);
	assert_int_equal(verify_store(path, NULL, &verified), EX_OK);
	assert_int_equal(verified.journal.plants, plants);
	assert_false(fixture_exists(fixture, "new/index"));
	assert_false(fixture_exists(fixture, "new/lock"));
	assert_false(fixture_exists(fixture, "new/" JOURNAL_NAME ".new"));
}

static void
whole_journal_is_taken_whole(void **state)
{
	const struct fixture *fixture = *state;
	struct salvage_report report;
	struct told told;

	fixture_make_store(fixture, false, 1, PLANTS);
	assert_int_equal(salvage(fixture, NULL, &told, &report), EX_OK);
	assert_int_equal(told.n, 0);
	assert_int_equal(report.plants, PLANTS);
	assert_int_equal(report.lost_places, 0);
	assert_string_not_equal(report.from, report.store);
	expect_valid(fixture, PLANTS);
}

static void
last_line_says_that_all_before_it_is_durable(void **state)
{
	const struct fixture *fixture = *state;
	struct salvage_report report;
	struct told told;
	size_t len;

	fixture_make_store(fixture, false, 1, PLANTS);
	assert_int_equal(salvage(fixture, NULL, &told, &report), EX_OK);
	/* So a record that is damaged now is no torn tail. */
	char *journal = fixture_read(fixture, "new/" JOURNAL_NAME, &len);
	char *last = memrchr(journal, '\n', len - 1);
	assert_non_null(last);
	struct record record;
	assert_null(record_decode(last + 1, (size_t)(journal + len - last - 1),
	    record_seed(report.store), &record));
	assert_null(record.plant);
	assert_int_equal(record.safe, last + 1 - journal);
	free(journal);
}

static void
block_that_cannot_be_read_costs_only_its_records(void **state)
{
	const struct fixture *fixture = *state;
	struct salvage_report report;
	struct told told;

	fixture_make_store(fixture, false, 1, PLANTS);
	/* The first is the header's; the second, the first block's, fails. */
	shim_fail(SHIM_PREAD, JOURNAL_NAME, 2, 1, EIO);
	assert_int_equal(salvage(fixture, NULL, &told, &report), EX_OK);
	assert_int_equal(told.n, 1);
	assert_int_equal(strncmp(told.first, "82-", 3), 0);
	assert_non_null(
	    strstr(told.first, ": Input/output error; lines 1 to "));
	assert_int_equal(report.lost_places, 1);
	assert_true(report.lost_bytes >= BLOCK - 82);
	assert_true(report.lost_bytes < BLOCK - 82 + 300);
	assert_true(report.plants > 0 && report.plants < PLANTS);
	shim_reset();
	expect_valid(fixture, report.plants);
}

static void
file_that_cannot_be_read_at_all_ends(void **state)
{
	const struct fixture *fixture = *state;
	struct salvage_report report;
	struct told told;
	char text[120];

	fixture_make_store(fixture, false, 1, PLANTS);
	size_t size = fixture_size(fixture, JOURNAL_NAME);
	shim_fail(SHIM_PREAD, JOURNAL_NAME, 2, 1000, EIO);
	assert_int_equal(salvage(fixture, NULL, &told, &report), EX_OK);
	/* The index knows of the plants, and not of closing lines. */
	snprintf(text, sizeof(text),
	    "82-%zu (%zu bytes): Input/output error; "
	    "lines 1 to %d are missing",
	    size, size - 82, PLANTS);
	assert_string_equal(told.first, text);
	assert_int_equal(report.plants, 0);
}

/*
 * Whatever write or sync fails, there is no new store, or it is whole; and
 * nothing is left that the next try stumbles over.
 */
static void
failure_anywhere_leaves_no_store(void **state)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_PWRITEV,
		SHIM_FDATASYNC, SHIM_FSYNC };
	const struct fixture *fixture = *state;
	struct salvage_report report;
	struct told told;
	unsigned failures = 0;

	fixture_make_store(fixture, false, 1, PLANTS);
	for (size_t i = 0; i < COUNT(calls); i++) {
		for (unsigned nth = 1;; nth++) {
			shim_fail(calls[i], NULL, nth, 1, EIO);
			int status = salvage(fixture, NULL, &told, &report);
			bool fired = shim_count(calls[i]) >= nth;
			shim_reset();
			assert_false(fixture_exists(
			    fixture, "new/" JOURNAL_NAME ".new"));
			assert_int_equal(status == EX_OK,
			    fixture_exists(fixture, "new/" JOURNAL_NAME));
			failures += status != EX_OK;
			if (status == EX_OK) {
				expect_valid(fixture, PLANTS);
				fixture_remove(fixture, "new/" JOURNAL_NAME);
			} else
				assert_true(fired);
			if (!fired)
				break;
		}
	}
	/* Header and records; the journal's two syncs; its place. */
	assert_true(failures >= 5);
}

static void
stopped_by_the_watch_it_leaves_no_store(void **state)
{
	const struct fixture *fixture = *state;
	struct watch watch = { fixture_stop, NULL };
	struct salvage_report report;
	struct told told;

	fixture_make_store(fixture, false, 1, PLANTS);
	assert_int_equal(
	    salvage(fixture, &watch, &told, &report), SALVAGE_STOPPED);
	/* The directory is empty. */
	assert_int_equal(unlinkat(fixture->dir, "new", AT_REMOVEDIR), 0);
}

/* What a scan finds in these bytes. */
struct found {
	unsigned records, lost;
	uint64_t lost_bytes;
};

static struct found
scan_bytes(const struct fixture *fixture, const char *bytes, size_t len)
{
	struct found found = { 0 };
	struct salvage_scan scan;
	struct salvage_lost lost;
	struct record record;
	uint64_t offset, before = 0;
	bool more;

	fixture_write(fixture, "bytes", 0, bytes, len);
	int fd = openat(fixture->dir, "bytes", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(salvage_scan_init(&scan, fd, 7, 0, NULL), 0);
	do {
		more = salvage_scan_next(&scan, &record, &offset, &lost);
		assert_true(lost.begin >= before && lost.end >= lost.begin);
		before = lost.end;
		found.records += more;
		found.lost += lost.end > lost.begin;
		found.lost_bytes += lost.end - lost.begin;
	} while (more);
	salvage_scan_done(&scan);
	close(fd);
	fixture_remove(fixture, "bytes");
	return found;
}

/* A line whose plant has that many bytes of name; from malloc. */
static char *
make_line(size_t name_len, size_t *len)
{
	static const char at[] = "2026-11-21T07:21:00.123Z";
	char *name = malloc(name_len + 1);

	assert_non_null(name);
	memset(name, 'x', name_len);
	name[name_len] = '\0';
	struct plant plant = fixture_plant(1, name);
	struct record record = { .seq = 1,
		.at = at,
		.by = "tester",
		.by_len = 6,
		.id = 1,
		.plant = plant.text,
		.plant_len = plant.len };
	char *line = malloc(RECORD_ENVELOPE_MAX + plant.len);
	assert_non_null(line);
	*len = record_encode(&record, 7, line);
	plant_done(&plant);
	free(name);
	return line;
}

static void
records_are_found_wherever_the_window_ends(void **state)
{
	const struct fixture *fixture = *state;
	size_t len, total = 0;
	char *line = make_line(999983, &len), *bytes = malloc(13 * (len + 9));

	assert_non_null(bytes);
	/* Each line stands elsewhere to the windows of 4 MiB. */
	for (unsigned i = 0; i < 13; i++) {
		memcpy(bytes + total, "garbage\n", 8);
		memcpy(bytes + total + 8, line, len);
		total += 8 + len;
	}
	struct found found = scan_bytes(fixture, bytes, total);
	assert_int_equal(found.records, 13);
	assert_int_equal(found.lost, 13);
	assert_int_equal(found.lost_bytes, 13 * 8);
	free(bytes);
	free(line);
}

static void
record_is_found_at_any_distance_of_the_damage(void **state)
{
	const struct fixture *fixture = *state;
	size_t len;
	char *line = make_line(3, &len), *bytes = malloc(3 * len);

	assert_non_null(bytes);
	for (size_t i = 0; i < len; i++) {
		for (unsigned part = 0; part < 3; part++)
			memcpy(bytes + part * len, line, len);
		bytes[len + i] ^= 0x10;
		struct found found = scan_bytes(fixture, bytes, 3 * len);
		/* A newline alone is no record. */
		assert_int_equal(found.records, i == len - 1 ? 3 : 2);
		assert_int_equal(found.lost_bytes, i == len - 1 ? 1 : len);
	}
	free(bytes);
	free(line);
}

/*
 * It would take hours if each beginning were looked at to the end, as the
 * sanitizers do: they check all of what memmem() may read.
 */
static void
many_beginnings_are_looked_at_once_each(void **state)
{
	const struct fixture *fixture = *state;
	const size_t len = 7 * (SANITIZED ? 10000 : 3000000);
	char *bytes = malloc(len);

	assert_non_null(bytes);
	for (size_t i = 0; i < len; i += 7)
		memcpy(bytes + i, "{\"seq\":", 7);
	struct found found = scan_bytes(fixture, bytes, len);
	assert_int_equal(found.records, 0);
	assert_int_equal(found.lost, 1);
	assert_int_equal(found.lost_bytes, len);
	free(bytes);
}

/*
 * A store of more than one batch and more than one transaction of the scratch
 * index: plants of a mebibyte, many small ones, and one that stands twice.
 */
#define LARGE 3
#define MANY 1100

static void
make_large_store(const struct fixture *fixture)
{
	static char name[(1 << 20) - 100];
	struct store *store = fixture_open(fixture, false);
	struct plant *plants = calloc(MANY, sizeof(*plants));
	struct store_item *items = calloc(MANY, sizeof(*items));
	size_t len;

	assert_true(plants != NULL && items != NULL);
	for (int64_t i = 0; i < MANY; i++) {
		plants[i] = fixture_plant(i, "");
		items[i] =
		    (struct store_item){ .plant = &plants[i], .by = "tester" };
	}
	assert_int_equal(store_commit(store, items, MANY), 0);
	memset(name, 'x', sizeof(name) - 1);
	for (int64_t i = 0; i < LARGE; i++) {
		plant_done(&plants[i]);
		plants[i] = fixture_plant(MANY + i, name);
	}
	assert_int_equal(store_commit(store, items, LARGE), 0);
	for (size_t i = 0; i < MANY; i++)
		plant_done(&plants[i]);
	free(plants);
	free(items);
	store_close(store);
	char *journal = fixture_read(fixture, JOURNAL_NAME, &len);
	const char *first = journal + RECORD_HEADER_LEN;
	const char *end = rawmemchr(first, '\n');
	fixture_append(fixture, JOURNAL_NAME, first, (size_t)(end + 1 - first));
	free(journal);
}

static void
expect_all_or_nothing(const struct fixture *fixture, int status,
    const struct salvage_report *report)
{
	assert_false(fixture_exists(fixture, "new/" JOURNAL_NAME ".new"));
	assert_int_equal(
	    status == EX_OK, fixture_exists(fixture, "new/" JOURNAL_NAME));
	if (status != EX_OK)
		return;
	assert_int_equal(report->plants, MANY + LARGE);
	assert_int_equal(report->doubled, 1);
	expect_valid(fixture, MANY + LARGE);
	fixture_remove(fixture, "new/" JOURNAL_NAME);
}

static void
large_store_is_taken_whole_or_not_at_all(void **state)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_PWRITEV,
		SHIM_WRITEV };
	const struct fixture *fixture = *state;
	struct salvage_report report;
	struct told told;
	unsigned failures = 0;

	make_large_store(fixture);
	for (size_t i = 0; i < COUNT(calls); i++)
		for (unsigned nth = 1;; nth++) {
			shim_fail(calls[i], NULL, nth, 2, EIO);
			int status = salvage(fixture, NULL, &told, &report);
			bool fired = shim_count(calls[i]) >= nth;
			shim_reset();
			expect_all_or_nothing(fixture, status, &report);
			failures += status != EX_OK;
			if (!fired)
				break;
		}
	/* Each batch and the closing line; a transaction's pages. */
	assert_true(failures >= 4);
}

static void
large_store_that_lacks_memory_is_taken_whole_or_not_at_all(void **state)
{
	const struct fixture *fixture = *state;
	struct salvage_report report;
	struct told told;
	bool failed = true;
	unsigned nth = 0;

	if (!alloc_can_fail())
		skip();
	make_large_store(fixture);
	while (failed) {
		alloc_fail(++nth, 1);
		int status = salvage(fixture, NULL, &told, &report);
		failed = alloc_reset();
		assert_true(status == EX_OK || status == EX_TEMPFAIL);
		assert_true(failed || status == EX_OK);
		expect_all_or_nothing(fixture, status, &report);
	}
	assert_true(nth > 5);
}

static void
file_whose_first_line_is_damaged_needs_its_uuid(void **state)
{
	const struct fixture *fixture = *state;
	char from[96], dest[80], uuid[RECORD_UUID_LEN + 1];
	struct salvage_report report;
	struct told told = { 0 };
	struct salvage_options options = {
		.from = from, .dest = dest, .tell = tell, .context = &told
	};
	size_t len;

	fixture_make_store(fixture, false, 1, PLANTS);
	char *journal = fixture_read(fixture, JOURNAL_NAME, &len);
	const char *at = strstr(journal, "\"store\":\"");
	assert_non_null(at);
	snprintf(uuid, sizeof(uuid), "%s", at + 9);
	free(journal);
	fixture_write(fixture, JOURNAL_NAME, 70, "?", 1);
	snprintf(from, sizeof(from), "%s/" JOURNAL_NAME, fixture->path);
	snprintf(dest, sizeof(dest), "%s/new", fixture->path);
	/* The file `lock` beside it is that of a directory only. */
	assert_int_equal(salvage_store(&options, &report), EX_DATAERR);
	assert_int_equal(fixture_logged(fixture, "give it with --store"), 1);
	options.uuid = uuid;
	assert_int_equal(salvage_store(&options, &report), EX_OK);
	assert_int_equal(report.plants, PLANTS);
	assert_int_equal(report.lost_bytes, RECORD_HEADER_LEN);
	expect_valid(fixture, PLANTS);
}

static void
record_as_long_as_the_longest_without_its_newline_is_none(void **state)
{
	static const char begin[] = "{\"seq\":";
	static const char end[] = ",\"crc\":\"00000000\"}";
	const struct fixture *fixture = *state;
	char *bytes = malloc(RECORD_LINE_MAX);

	assert_non_null(bytes);
	memset(bytes, 'x', RECORD_LINE_MAX);
	memcpy(bytes, begin, sizeof(begin) - 1);
	memcpy(
	    bytes + RECORD_LINE_MAX - (sizeof(end) - 1), end, sizeof(end) - 1);
	struct found found = scan_bytes(fixture, bytes, RECORD_LINE_MAX);
	assert_int_equal(found.records, 0);
	assert_int_equal(found.lost_bytes, RECORD_LINE_MAX);
	free(bytes);
}

static void
record_behind_bytes_longer_than_a_window_is_found(void **state)
{
	const struct fixture *fixture = *state;
	const size_t junk = 6 * RECORD_LINE_MAX;
	size_t len;
	char *line = make_line(10, &len), *bytes = malloc(junk + len);

	assert_non_null(bytes);
	memset(bytes, 'x', junk);
	memcpy(bytes + junk, line, len);
	struct found found = scan_bytes(fixture, bytes, junk + len);
	assert_int_equal(found.records, 1);
	assert_int_equal(found.lost, 1);
	assert_int_equal(found.lost_bytes, junk);
	free(bytes);
	free(line);
}

#define CASE(function) \
	cmocka_unit_test_setup_teardown(function, fixture_set_up, tear_down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(whole_journal_is_taken_whole),
		CASE(last_line_says_that_all_before_it_is_durable),
		CASE(block_that_cannot_be_read_costs_only_its_records),
		CASE(file_that_cannot_be_read_at_all_ends),
		CASE(failure_anywhere_leaves_no_store),
		CASE(stopped_by_the_watch_it_leaves_no_store),
		CASE(records_are_found_wherever_the_window_ends),
		CASE(record_is_found_at_any_distance_of_the_damage),
		CASE(many_beginnings_are_looked_at_once_each),
		CASE(large_store_is_taken_whole_or_not_at_all),
		CASE(
		    large_store_that_lacks_memory_is_taken_whole_or_not_at_all),
		CASE(file_whose_first_line_is_damaged_needs_its_uuid),
		CASE(record_as_long_as_the_longest_without_its_newline_is_none),
		CASE(record_behind_bytes_longer_than_a_window_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
