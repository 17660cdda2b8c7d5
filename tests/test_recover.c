/* test_recover: what can be read of a damaged journal becomes a new store. */
#include "store_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_shim.h"
#include "reader/maintain.h"
#include "store_parts.h"

/* Enough for the second block of the disk. */
#define PLANTS 60
#define BLOCK 4096

/* The new store, within the directory of the damaged one. */
#define DEST "new"

struct lost {
	unsigned n;
	uint64_t begin, end; /* of the first range */
	char reason[80];
};

static void
note_lost(void *context, uint64_t begin, uint64_t end, const char *reason)
{
	struct lost *lost = context;

	assert_true(begin < end);
	if (lost->n++ > 0)
		return;
	lost->begin = begin;
	lost->end = end;
	snprintf(lost->reason, sizeof(lost->reason), "%s", reason);
}

/* It is a whole store of so many plants, which starts. */
static void
expect_store(const struct fixture *fixture, uint64_t plants)
{
	struct fixture dest = *fixture;

	snprintf(dest.path, sizeof(dest.path), "%.50s/" DEST, fixture->path);
	store_close(fixture_open(&dest, false));
	assert_int_equal(
	    expect_verified(&dest, FAULT_NONE).journal.plants, plants);
}

/* What a recovery came to. */
struct recovered {
	enum fault fault;
	struct lost lost;
	struct recover_report report;
};

static struct recovered
recover_from(const struct fixture *fixture, const char *from, const char *uuid,
    const struct watch *watch)
{
	struct recovered got = { 0 };
	char dest[80];
	struct recover_options options = { .from = from,
		.dest = dest,
		.uuid = uuid,
		.lost = note_lost,
		.context = &got.lost };

	if (watch != NULL)
		options.watch = *watch;
	snprintf(dest, sizeof(dest), "%s/" DEST, fixture->path);
	got.fault = recover_store(&options, &got.report);
	return got;
}

static struct recovered
recover(const struct fixture *fixture)
{
	return recover_from(fixture, fixture->path, NULL, NULL);
}

/* So many plants are recovered, and so many ranges are lost. */
static struct recovered
expect_recovered(const struct fixture *fixture, uint64_t plants, uint64_t lost)
{
	struct recovered got = recover(fixture);

	assert_int_equal(got.fault, FAULT_NONE);
	assert_int_equal(got.report.plants, plants);
	assert_int_equal(got.report.lost_ranges, lost);
	assert_int_equal(got.lost.n, lost);
	expect_store(fixture, plants);
	return got;
}

/* Nothing is left that the next try, or a service, would take for a store. */
static void
expect_none(const struct fixture *fixture)
{
	static const char *const names[] = { DEST "/" JOURNAL_NAME,
		DEST "/" JOURNAL_NEW_NAME, DEST "/" JOURNAL_FAILED_NAME,
		DEST "/" RECOVER_LATER_NAME, DEST "/index" };

	for (size_t i = 0; i < COUNT(names); i++)
		if (fixture_exists(fixture, names[i]))
			fail_msg("%s is there", names[i]);
}

/* The `n`th line of a journal, 1 for the first record. */
static char *
read_line(const struct fixture *fixture, const char *name, size_t n)
{
	char *line = fixture_read(fixture, name).at;

	while (n-- > 0)
		line = strchr(line, '\n') + 1;
	line[strcspn(line, "\n") + 1] = '\0';
	return line;
}

/* From `"at"` to the plant's end: what a record keeps. */
static void
expect_same_content(const char *one, const char *two)
{
	const char *at = strstr(one, "\"at\":"), *end = strstr(at, ",\"crc\"");
	const char *there = strstr(two, "\"at\":");

	assert_non_null(end);
	assert_non_null(there);
	assert_memory_equal(at, there, (size_t)(end - at));
}

STORE_TEST(whole_journal_is_taken_whole_with_times_and_names)
{
	fixture_make_store(fixture, false, 1, PLANTS);
	/* So that now is another time. */
	usleep(2000);
	struct recover_report report =
	    expect_recovered(fixture, PLANTS, 0).report;
	assert_int_equal(report.lost_bytes, 0);
	assert_int_equal(report.later, 0);
	assert_int_equal(report.bytes, fixture_size(fixture, JOURNAL_NAME));
	assert_string_not_equal(report.from, report.store);
	assert_false(fixture_exists(fixture, DEST "/" RECOVER_LATER_NAME));
	for (size_t n = 1; n <= PLANTS; n++)
		expect_same_content(read_line(fixture, JOURNAL_NAME, n),
		    read_line(fixture, DEST "/" JOURNAL_NAME, n));
}

STORE_TEST(last_line_shows_that_all_before_it_is_durable)
{
	struct record record;

	fixture_make_store(fixture, false, 1, PLANTS);
	struct recovered got = expect_recovered(fixture, PLANTS, 0);
	/* So a record that is damaged then is no torn tail. */
	struct contents journal = fixture_read(fixture, DEST "/" JOURNAL_NAME);
	const char *last = memrchr(journal.at, '\n', journal.len - 1);
	assert_non_null(last);
	assert_null(record_decode(last + 1,
	    (size_t)(journal.at + journal.len - last - 1),
	    record_seed(got.report.store), &record));
	assert_null(record.plant);
	assert_int_equal(record.safe, last + 1 - journal.at);
}

STORE_TEST(lost_bytes_cost_only_their_records)
{
	char source[96];

	/* Not the new journal. */
	snprintf(source, sizeof(source), "%s/" JOURNAL_NAME, fixture->path);
	fixture_make_store(fixture, false, 1, PLANTS);
	size_t size = fixture_size(fixture, JOURNAL_NAME);
	/* The first read is the header's; the second one fails. */
	shim_fail(SHIM_PREAD, source, 2, 1, EIO);
	struct recovered got = recover(fixture);
	shim_reset();
	assert_int_equal(got.fault, FAULT_NONE);
	assert_int_equal(got.lost.n, 1);
	assert_int_equal(got.lost.begin, RECORD_HEADER_LEN);
	assert_in_range(got.lost.end, BLOCK, BLOCK + 300);
	assert_string_equal(got.lost.reason, strerror(EIO));
	assert_int_equal(got.report.lost_ranges, 1);
	assert_int_equal(got.report.lost_bytes, got.lost.end - got.lost.begin);
	assert_in_range(got.report.plants, 1, PLANTS - 1);
	expect_store(fixture, got.report.plants);
	parts_empty(fixture->dir, DEST);
	/* All of them. */
	shim_fail(SHIM_PREAD, source, 2, 1000, EIO);
	got = recover(fixture);
	shim_reset();
	assert_int_equal(got.fault, FAULT_NONE);
	assert_int_equal(got.report.lost_bytes, size - RECORD_HEADER_LEN);
	expect_store(fixture, 0);
	parts_empty(fixture->dir, DEST);
	/* One byte. */
	fixture_write(fixture, JOURNAL_NAME, RECORD_HEADER_LEN + 3, "X", 1);
	expect_recovered(fixture, PLANTS - 1, 1);
}

STORE_TEST(later_records_of_an_id_go_to_a_file_of_their_own)
{
	fixture_make_store(fixture, false, 1, PLANTS);
	char *first = read_line(fixture, JOURNAL_NAME, 1);
	char *second = read_line(fixture, JOURNAL_NAME, 2);
	fixture_append(fixture, JOURNAL_NAME, first, strlen(first));
	fixture_append(fixture, JOURNAL_NAME, second, strlen(second));
	assert_int_equal(expect_recovered(fixture, PLANTS, 0).report.later, 2);
	const char *later =
	    fixture_read(fixture, DEST "/" RECOVER_LATER_NAME).at;
	assert_begins(later, first);
	assert_string_equal(later + strlen(first), second);
}

STORE_TEST(uuid_of_a_damaged_header_is_in_the_index_or_given)
{
	static const char *const wrong[] = {
		"0123abcd-0123-4567-89ab-0123456789ab", "short"
	};
	char from[96], uuid[RECORD_UUID_LEN + 1] = "";

	fixture_make_store(fixture, false, 1, PLANTS);
	const char *journal = fixture_read(fixture, JOURNAL_NAME).at;
	memcpy(uuid, strstr(journal, "\"store\":\"") + 9, RECORD_UUID_LEN);
	snprintf(from, sizeof(from), "%s/" JOURNAL_NAME, fixture->path);
	/* It must be the header's. */
	for (size_t i = 0; i < COUNT(wrong); i++)
		assert_int_equal(
		    recover_from(fixture, from, wrong[i], NULL).fault,
		    FAULT_SETUP);
	fixture_write(fixture, JOURNAL_NAME, 70, "?", 1);
	/* A file has no index beside it. */
	assert_int_equal(
	    recover_from(fixture, from, NULL, NULL).fault, FAULT_DAMAGED);
	expect_logged(fixture, "give it with --store", 1);
	expect_none(fixture);
	for (int given = 0; given < 2; given++) {
		struct recovered got =
		    given ? recover_from(fixture, from, uuid, NULL)
			  : recover(fixture);

		assert_int_equal(got.fault, FAULT_NONE);
		assert_string_equal(got.report.from, uuid);
		assert_int_equal(got.report.plants, PLANTS);
		assert_int_equal(got.report.lost_bytes, RECORD_HEADER_LEN);
		expect_store(fixture, PLANTS);
		parts_empty(fixture->dir, DEST);
	}
}

STORE_TEST(journal_of_a_failed_sync_is_recovered)
{
	fixture_make_store(fixture, false, 1, PLANTS);
	fixture_fail_journal(fixture);
	expect_recovered(fixture, PLANTS, 0);
}

STORE_TEST(destination_that_has_any_file_of_a_store_is_refused)
{
	static const char *const names[] = { JOURNAL_NAME, JOURNAL_FAILED_NAME,
		RECOVER_LATER_NAME, "index" };
	char name[64];

	fixture_make_store(fixture, false, 1, 2);
	for (size_t i = 0; i < COUNT(names); i++) {
		mkdirat(fixture->dir, DEST, 0700);
		snprintf(name, sizeof(name), DEST "/%s", names[i]);
		fixture_write(fixture, name, 0, "mine", 4);
		assert_int_equal(recover(fixture).fault, FAULT_OUTPUT);
		assert_int_equal(fixture_size(fixture, name), 4);
		parts_empty(fixture->dir, DEST);
	}
	fixture_write(fixture, DEST "/else", 0, "mine", 4);
	expect_recovered(fixture, 2, 0);
	assert_int_equal(fixture_size(fixture, DEST "/else"), 4);
}

STORE_TEST(source_that_is_no_journal_is_refused)
{
	fixture_remove(fixture, JOURNAL_NAME);
	assert_int_equal(recover(fixture).fault, FAULT_ABSENT);
	assert_int_equal(recover_from(fixture, "/dev/null", NULL, NULL).fault,
	    FAULT_DAMAGED);
	expect_none(fixture);
}

STORE_TEST(stopped_by_the_watch_it_leaves_no_store)
{
	struct fixture_steps steps = { .last = 1 };
	struct watch watch = { fixture_step, &steps };

	fixture_make_store(fixture, false, 1, PLANTS);
	assert_int_equal(
	    recover_from(fixture, fixture->path, NULL, &watch).fault,
	    FAULT_STOPPED);
	expect_none(fixture);
}

STORE_TEST(what_can_be_read_only_once_is_not_left_out_silently)
{
	char source[96];
	bool failed = true;

	snprintf(source, sizeof(source), "%s/" JOURNAL_NAME, fixture->path);
	fixture_make_store(fixture, false, 1, PLANTS);
	for (unsigned nth = 1; failed; nth++) {
		shim_fail(SHIM_PREAD, source, nth, 1, EIO);
		struct recovered got = recover(fixture);
		failed = shim_reset();
		if (got.fault != FAULT_NONE)
			expect_none(fixture);
		else
			assert_true(got.report.plants == PLANTS ||
				    got.report.lost_bytes > 0);
		parts_empty(fixture->dir, DEST);
	}
}

STORE_TEST(place_without_room_is_no_fault_of_the_source)
{
	bool failed = true;

	fixture_make_store(fixture, false, 1, PLANTS);
	for (unsigned nth = 1; failed; nth++) {
		shim_fail(SHIM_PWRITE, NULL, nth, 1, ENOSPC);
		enum fault fault = recover(fixture).fault;
		failed = shim_reset();
		if (failed) {
			assert_int_equal(fault, FAULT_OUTPUT);
			expect_none(fixture);
		}
	}
}

/*
 * A store of more than one batch: plants of a mebibyte, many small ones, and
 * one that stands twice.
 */
#define LARGE 4
#define MANY 5000

static void
make_large_store(const struct fixture *fixture)
{
	static char name[(1 << 20) - 100];
	struct store *store = fixture_open(fixture, false);
	int64_t ids[MANY];

	for (int64_t i = 0; i < MANY; i++)
		ids[i] = i;
	fixture_commit(store, ids, MANY, STORE_CREATED);
	memset(name, 'x', sizeof(name) - 1);
	for (int64_t i = 0; i < LARGE; i++)
		expect_put(store, MANY + i, name, STORE_CREATED);
	store_close(store);
	char *first = read_line(fixture, JOURNAL_NAME, 1);
	fixture_append(fixture, JOURNAL_NAME, first, strlen(first));
}

static void
expect_all_or_nothing(
    const struct fixture *fixture, const struct recovered *got)
{
	if (got->fault != FAULT_NONE) {
		expect_none(fixture);
		return;
	}
	assert_int_equal(got->report.plants, MANY + LARGE);
	assert_int_equal(got->report.later, 1);
	assert_true(fixture_exists(fixture, DEST "/" RECOVER_LATER_NAME));
	expect_store(fixture, MANY + LARGE);
	parts_empty(fixture->dir, DEST);
}

STORE_TEST(store_is_recovered_whole_or_not_at_all_whatever_fails)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_WRITEV,
		SHIM_FDATASYNC, SHIM_FSYNC };
	unsigned failures = 0;

	make_large_store(fixture);
	/* In the last row it is memory that is missing. */
	for (size_t i = 0; i < COUNT(calls) + alloc_can_fail(); i++) {
		bool failed = true;

		for (unsigned nth = 1; failed; nth++) {
			if (i < COUNT(calls))
				shim_fail(calls[i], NULL, nth, 1, EIO);
			else
				alloc_fail(nth, 1);
			struct recovered got = recover(fixture);
			failed = shim_reset();
			failed = alloc_reset() || failed;
			assert_true(got.fault == FAULT_NONE || failed);
			expect_all_or_nothing(fixture, &got);
			failures += got.fault != FAULT_NONE;
		}
	}
	/* Of writes, syncs, and memory. */
	assert_true(failures > 5);
}
