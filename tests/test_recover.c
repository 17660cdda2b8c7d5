/* test_recover: what can be read of a damaged journal becomes a new store. */
#include "store_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_shim.h"
#include "store/recover.h"
#include "store/verify.h"
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

static enum fault
recover_from(const struct fixture *fixture, const char *from, const char *uuid,
    const struct watch *watch, struct lost *lost, struct recover_report *report)
{
	char dest[80];
	struct recover_options options = { .from = from,
		.dest = dest,
		.uuid = uuid,
		.lost = note_lost,
		.context = lost };

	if (watch != NULL)
		options.watch = *watch;
	memset(lost, 0, sizeof(*lost));
	snprintf(dest, sizeof(dest), "%s/" DEST, fixture->path);
	return recover_store(&options, report);
}

static enum fault
recover(const struct fixture *fixture, struct lost *lost,
    struct recover_report *report)
{
	return recover_from(fixture, fixture->path, NULL, NULL, lost, report);
}

static struct fixture
dest_of(const struct fixture *fixture)
{
	struct fixture dest = *fixture;

	snprintf(dest.path, sizeof(dest.path), "%.50s/" DEST, fixture->path);
	return dest;
}

/* It is a whole store of so many plants, which starts. */
static void
expect_store(const struct fixture *fixture, uint64_t plants)
{
	const struct fixture dest = dest_of(fixture);
	struct verify_report verified;

	store_close(fixture_open(&dest, false));
	assert_int_equal(verify_store(dest.path, NULL, &verified), FAULT_NONE);
	assert_int_equal(verified.journal.plants, plants);
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

/* The `n`th line of a journal, 1 for the first record; from malloc. */
static char *
read_line(const struct fixture *fixture, const char *name, size_t n)
{
	size_t len;
	char *bytes = fixture_read(fixture, name, &len), *line = bytes;

	while (n-- > 0)
		line = strchr(line, '\n') + 1;
	line = strndup(line, strcspn(line, "\n") + 1);
	assert_non_null(line);
	free(bytes);
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

static void
whole_journal_is_taken_whole_with_times_and_names(void **state)
{
	const struct fixture *fixture = *state;
	struct recover_report report;
	struct lost lost;

	fixture_make_store(fixture, false, 1, PLANTS);
	/* So that now is another time. */
	usleep(2000);
	assert_int_equal(recover(fixture, &lost, &report), FAULT_NONE);
	assert_int_equal(lost.n, 0);
	assert_int_equal(report.plants, PLANTS);
	assert_int_equal(report.lost_ranges + report.lost_bytes, 0);
	assert_int_equal(report.later, 0);
	assert_int_equal(report.bytes, fixture_size(fixture, JOURNAL_NAME));
	assert_string_not_equal(report.from, report.store);
	expect_store(fixture, PLANTS);
	assert_false(fixture_exists(fixture, DEST "/" RECOVER_LATER_NAME));
	for (size_t n = 1; n <= PLANTS; n++) {
		char *old = read_line(fixture, JOURNAL_NAME, n);
		char *new = read_line(fixture, DEST "/" JOURNAL_NAME, n);
		expect_same_content(old, new);
		free(old);
		free(new);
	}
}

static void
last_line_shows_that_all_before_it_is_durable(void **state)
{
	const struct fixture *fixture = *state;
	struct recover_report report;
	struct record record;
	struct lost lost;
	size_t len;

	fixture_make_store(fixture, false, 1, PLANTS);
	assert_int_equal(recover(fixture, &lost, &report), FAULT_NONE);
	/* So a record that is damaged then is no torn tail. */
	char *journal = fixture_read(fixture, DEST "/" JOURNAL_NAME, &len);
	const char *last = memrchr(journal, '\n', len - 1);
	assert_non_null(last);
	assert_null(record_decode(last + 1, (size_t)(journal + len - last - 1),
	    record_seed(report.store), &record));
	assert_null(record.plant);
	assert_int_equal(record.safe, last + 1 - journal);
	free(journal);
}

static void
lost_bytes_cost_only_their_records(void **state)
{
	const struct fixture *fixture = *state;
	struct recover_report report;
	struct lost lost;
	char source[96];

	/* Not the new journal. */
	snprintf(source, sizeof(source), "%s/" JOURNAL_NAME, fixture->path);
	fixture_make_store(fixture, false, 1, PLANTS);
	size_t size = fixture_size(fixture, JOURNAL_NAME);
	/* The first read is the header's; the second one fails. */
	shim_fail(SHIM_PREAD, source, 2, 1, EIO);
	assert_int_equal(recover(fixture, &lost, &report), FAULT_NONE);
	shim_reset();
	assert_int_equal(lost.n, 1);
	assert_int_equal(lost.begin, RECORD_HEADER_LEN);
	assert_in_range(lost.end, BLOCK, BLOCK + 300);
	assert_string_equal(lost.reason, "Input/output error");
	assert_int_equal(report.lost_ranges, 1);
	assert_int_equal(report.lost_bytes, lost.end - lost.begin);
	assert_in_range(report.plants, 1, PLANTS - 1);
	expect_store(fixture, report.plants);
	parts_empty(fixture->dir, DEST);
	/* All of them. */
	shim_fail(SHIM_PREAD, source, 2, 1000, EIO);
	assert_int_equal(recover(fixture, &lost, &report), FAULT_NONE);
	shim_reset();
	assert_int_equal(report.plants, 0);
	assert_int_equal(report.lost_bytes, size - RECORD_HEADER_LEN);
	expect_store(fixture, 0);
	parts_empty(fixture->dir, DEST);
	/* One byte. */
	fixture_write(fixture, JOURNAL_NAME, RECORD_HEADER_LEN + 3, "X", 1);
	assert_int_equal(recover(fixture, &lost, &report), FAULT_NONE);
	assert_int_equal(report.plants, PLANTS - 1);
	assert_int_equal(report.lost_ranges, 1);
	expect_store(fixture, PLANTS - 1);
}

static void
later_records_of_an_id_go_to_a_file_of_their_own(void **state)
{
	const struct fixture *fixture = *state;
	struct recover_report report;
	struct lost lost;
	size_t len;

	fixture_make_store(fixture, false, 1, PLANTS);
	char *first = read_line(fixture, JOURNAL_NAME, 1);
	char *second = read_line(fixture, JOURNAL_NAME, 2);
	fixture_append(fixture, JOURNAL_NAME, first, strlen(first));
	fixture_append(fixture, JOURNAL_NAME, second, strlen(second));
	assert_int_equal(recover(fixture, &lost, &report), FAULT_NONE);
	assert_int_equal(report.plants, PLANTS);
	assert_int_equal(report.later, 2);
	assert_int_equal(report.lost_ranges, 0);
	expect_store(fixture, PLANTS);
	char *later = fixture_read(fixture, DEST "/" RECOVER_LATER_NAME, &len);
	assert_int_equal(len, strlen(first) + strlen(second));
	assert_memory_equal(later, first, strlen(first));
	assert_string_equal(later + strlen(first), second);
	free(later);
	free(first);
	free(second);
}

static void
uuid_of_a_damaged_header_is_in_the_index_or_given(void **state)
{
	const struct fixture *fixture = *state;
	char from[96], uuid[RECORD_UUID_LEN + 1] = "";
	struct recover_report report;
	struct lost lost;
	size_t len;

	fixture_make_store(fixture, false, 1, PLANTS);
	char *journal = fixture_read(fixture, JOURNAL_NAME, &len);
	memcpy(uuid, strstr(journal, "\"store\":\"") + 9, RECORD_UUID_LEN);
	free(journal);
	snprintf(from, sizeof(from), "%s/" JOURNAL_NAME, fixture->path);
	/* It must be the header's. */
	assert_int_equal(
	    recover_from(fixture, from, "0123abcd-0123-4567-89ab-0123456789ab",
		NULL, &lost, &report),
	    FAULT_SETUP);
	assert_int_equal(
	    recover_from(fixture, from, "short", NULL, &lost, &report),
	    FAULT_SETUP);
	fixture_write(fixture, JOURNAL_NAME, 70, "?", 1);
	/* A file has no index beside it. */
	assert_int_equal(
	    recover_from(fixture, from, NULL, NULL, &lost, &report),
	    FAULT_DAMAGED);
	assert_int_equal(fixture_logged(fixture, "give it with --store"), 1);
	expect_none(fixture);
	for (int given = 0; given < 2; given++) {
		assert_int_equal(
		    recover_from(fixture, given ? from : fixture->path,
			given ? uuid : NULL, NULL, &lost, &report),
		    FAULT_NONE);
		assert_string_equal(report.from, uuid);
		assert_int_equal(report.plants, PLANTS);
		assert_int_equal(report.lost_bytes, RECORD_HEADER_LEN);
		expect_store(fixture, PLANTS);
		parts_empty(fixture->dir, DEST);
	}
}

static void
journal_of_a_failed_sync_is_recovered(void **state)
{
	const struct fixture *fixture = *state;
	struct recover_report report;
	struct lost lost;

	fixture_make_store(fixture, false, 1, PLANTS);
	fixture_fail_journal(fixture);
	assert_int_equal(recover(fixture, &lost, &report), FAULT_NONE);
	assert_int_equal(report.plants, PLANTS);
	expect_store(fixture, PLANTS);
}

static void
destination_that_has_any_file_of_a_store_is_refused(void **state)
{
	static const char *const names[] = { JOURNAL_NAME, JOURNAL_FAILED_NAME,
		RECOVER_LATER_NAME, "index" };
	const struct fixture *fixture = *state;
	struct recover_report report;
	struct lost lost;
	char name[64];

	fixture_make_store(fixture, false, 1, 2);
	for (size_t i = 0; i < COUNT(names); i++) {
		mkdirat(fixture->dir, DEST, 0700);
		snprintf(name, sizeof(name), DEST "/%s", names[i]);
		fixture_write(fixture, name, 0, "mine", 4);
		assert_int_equal(
		    recover(fixture, &lost, &report), FAULT_OUTPUT);
		assert_int_equal(fixture_size(fixture, name), 4);
		parts_empty(fixture->dir, DEST);
	}
	fixture_write(fixture, DEST "/else", 0, "mine", 4);
	assert_int_equal(recover(fixture, &lost, &report), FAULT_NONE);
	assert_int_equal(fixture_size(fixture, DEST "/else"), 4);
}

static void
source_that_is_no_journal_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct recover_report report;
	struct lost lost;

	fixture_remove(fixture, JOURNAL_NAME);
	assert_int_equal(recover(fixture, &lost, &report), FAULT_ABSENT);
	assert_int_equal(
	    recover_from(fixture, "/dev/null", NULL, NULL, &lost, &report),
	    FAULT_DAMAGED);
	expect_none(fixture);
}

static void
stopped_by_the_watch_it_leaves_no_store(void **state)
{
	const struct fixture *fixture = *state;
	struct watch watch = { fixture_stop, NULL };
	struct recover_report report;
	struct lost lost;

	fixture_make_store(fixture, false, 1, PLANTS);
	assert_int_equal(
	    recover_from(fixture, fixture->path, NULL, &watch, &lost, &report),
	    FAULT_STOPPED);
	expect_none(fixture);
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
		assert_int_equal(
		    fixture_put(store, MANY + i, name).result, STORE_CREATED);
	store_close(store);
	char *first = read_line(fixture, JOURNAL_NAME, 1);
	fixture_append(fixture, JOURNAL_NAME, first, strlen(first));
	free(first);
}

static void
expect_all_or_nothing(const struct fixture *fixture, enum fault fault,
    const struct recover_report *report)
{
	if (fault != FAULT_NONE) {
		expect_none(fixture);
		return;
	}
	assert_int_equal(report->plants, MANY + LARGE);
	assert_int_equal(report->later, 1);
	assert_true(fixture_exists(fixture, DEST "/" RECOVER_LATER_NAME));
	expect_store(fixture, MANY + LARGE);
	parts_empty(fixture->dir, DEST);
}

static void
store_is_recovered_whole_or_not_at_all_whatever_fails(void **state)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_PWRITEV,
		SHIM_WRITEV, SHIM_FDATASYNC, SHIM_FSYNC };
	const struct fixture *fixture = *state;
	struct recover_report report;
	struct lost lost;
	unsigned failures = 0;

	make_large_store(fixture);
	/* In the last row it is memory that is missing. */
	for (size_t i = 0; i < COUNT(calls) + alloc_can_fail(); i++) {
		bool untouched = false;

		for (unsigned nth = 1; !untouched; nth++) {
			if (i < COUNT(calls))
				shim_fail(calls[i], NULL, nth, 1, EIO);
			else
				alloc_fail(nth, 1);
			enum fault fault = recover(fixture, &lost, &report);
			untouched = i < COUNT(calls)
					? shim_count(calls[i]) < nth
					: !alloc_reset();
			shim_reset();
			assert_true(fault == FAULT_NONE || !untouched);
			expect_all_or_nothing(fixture, fault, &report);
			failures += fault != FAULT_NONE;
		}
	}
	assert_true(failures > 20);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(whole_journal_is_taken_whole_with_times_and_names),
		TEST(last_line_shows_that_all_before_it_is_durable),
		TEST(lost_bytes_cost_only_their_records),
		TEST(later_records_of_an_id_go_to_a_file_of_their_own),
		TEST(uuid_of_a_damaged_header_is_in_the_index_or_given),
		TEST(journal_of_a_failed_sync_is_recovered),
		TEST(destination_that_has_any_file_of_a_store_is_refused),
		TEST(source_that_is_no_journal_is_refused),
		TEST(stopped_by_the_watch_it_leaves_no_store),
		TEST(store_is_recovered_whole_or_not_at_all_whatever_fails),
	};

	return cmocka_run_group_tests_name("recover", tests, NULL, NULL);
}
