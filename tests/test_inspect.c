/*
 * inspect: plants are found by what the journal says, whatever the index says,
 * and looking changes nothing.
 */
#include "store_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "alloc_shim.h"
#include "index.h"
#include "store/inspect.h"

static struct inspect *
open_inspect(const struct fixture *fixture)
{
	int status;
	struct inspect *inspect = inspect_open(fixture->path, NULL, &status);

	assert_non_null(inspect);
	return inspect;
}

static enum inspect_index
index_state(const struct fixture *fixture)
{
	struct inspect *inspect = open_inspect(fixture);
	struct inspect_report report;

	assert_int_equal(inspect_report(inspect, &report), EX_OK);
	inspect_close(inspect);
	return report.index;
}

/* Of the plants first to last, all are found where they are. */
static void
expect_found(const struct fixture *fixture, int64_t first, int64_t last)
{
	struct inspect *inspect = open_inspect(fixture);

	for (int64_t id = first; id <= last; id++) {
		struct record record;
		uint64_t offset;

		assert_int_equal(inspect_find(inspect, &id, &offset, 1), EX_OK);
		assert_int_not_equal(offset, 0);
		assert_int_equal(inspect_read(inspect, offset, &record), EX_OK);
		assert_non_null(record.plant);
		assert_int_equal(record.id, id);
	}
	inspect_close(inspect);
}

static void
expect_missing(const struct fixture *fixture, int64_t id)
{
	struct inspect *inspect = open_inspect(fixture);
	uint64_t offset;

	assert_int_equal(inspect_find(inspect, &id, &offset, 1), EX_OK);
	assert_int_equal(offset, 0);
	inspect_close(inspect);
}

static struct index *
begin_index(
    const struct fixture *fixture, const char *uuid, struct position *covered)
{
	struct index *index = index_open(fixture->dir, fixture->path, uuid);

	assert_non_null(index);
	assert_int_equal(index_begin(index, covered), 0);
	return index;
}

static void
entry_for_another_plants_record_is_not_believed(void **state)
{
	const struct fixture *fixture = *state;
	struct inspect *inspect;
	struct position covered, none;
	uint64_t offsets[3], found;
	char uuid[RECORD_UUID_LEN];

	fixture_make_store(fixture, true, 1, 3);
	inspect = open_inspect(fixture);
	memcpy(uuid, inspect_uuid(inspect), sizeof(uuid));
	assert_int_equal(
	    inspect_find(inspect, (const int64_t[]){ 1, 2, 3 }, offsets, 3),
	    EX_OK);
	inspect_close(inspect);
	index_close(begin_index(fixture, uuid, &covered), false);
	fixture_remove_index(fixture);

	/* As far as it goes it looks whole, but 1 and 2 are exchanged. */
	struct index *index = begin_index(fixture, uuid, &none);
	assert_int_equal(index_put(index, 1, offsets[1], &found), INDEX_NEW);
	assert_int_equal(index_put(index, 2, offsets[0], &found), INDEX_NEW);
	assert_int_equal(index_put(index, 3, offsets[2], &found), INDEX_NEW);
	assert_int_equal(index_put(index, 9, offsets[2], &found), INDEX_NEW);
	assert_int_equal(index_commit(index, &covered), 0);
	index_close(index, false);
	assert_int_equal(index_state(fixture), INSPECT_CURRENT);

	expect_found(fixture, 1, 3);
	expect_missing(fixture, 9);
}

static void
closing_line_that_was_not_entered_leaves_the_index_current(void **state)
{
	const struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	store_close(store);
	assert_int_equal(fixture_lines(fixture), 2);
	assert_int_equal(index_state(fixture), INSPECT_CURRENT);
}

static void
index_of_a_longer_journal_is_foreign(void **state)
{
	const struct fixture *fixture = *state;
	const int64_t gone = 3;
	uint64_t offset;
	size_t len;

	fixture_make_store(fixture, true, 1, 2);
	char *before = fixture_read(fixture, "plants.jsonl", &len);
	fixture_make_store(fixture, true, 3, 4);
	fixture_truncate(fixture, "plants.jsonl", 0);
	fixture_write(fixture, "plants.jsonl", 0, before, len);
	free(before);
	assert_int_equal(index_state(fixture), INSPECT_FOREIGN);
	/* It is not said that no plant has the id. */
	struct inspect *inspect = open_inspect(fixture);
	assert_int_equal(inspect_find(inspect, &gone, &offset, 1), EX_DATAERR);
	inspect_close(inspect);
	assert_int_equal(fixture_logged(fixture, "it is shorter"), 1);
}

/* As after a failed sync, of which the index does not know what followed. */
static void
journal_that_was_renewed_meanwhile_hides_no_plant(void **state)
{
	const struct fixture *fixture = *state;
	const int64_t id = 3;
	uint64_t offset;
	size_t journal_len, index_len;

	fixture_make_store(fixture, false, 1, 2);
	struct inspect *inspect = open_inspect(fixture);
	char *journal = fixture_read(fixture, JOURNAL_NAME, &journal_len);
	char *index = fixture_read(fixture, "index/data.mdb", &index_len);
	fixture_remove(fixture, JOURNAL_NAME);
	fixture_write(fixture, JOURNAL_NAME, 0, journal, journal_len);
	fixture_make_store(fixture, false, 3, 3);
	fixture_write(fixture, "index/data.mdb", 0, index, index_len);
	free(journal);
	free(index);
	assert_int_equal(inspect_find(inspect, &id, &offset, 1), EX_IOERR);
	assert_int_equal(fixture_logged(fixture, "was replaced"), 1);
	inspect_close(inspect);
	expect_found(fixture, 1, 3);
}

static void
plants_are_found_while_the_store_is_open(void **state)
{
	const struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	fixture_create(store, 2);
	expect_found(fixture, 1, 2);
	expect_missing(fixture, 3);
	fixture_create(store, 3);
	expect_found(fixture, 1, 3);
	store_close(store);
}

static void
torn_tail_hides_nothing(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, true, 1, 2);
	fixture_append(fixture, "plants.jsonl", "{\"seq\":9,", 9);
	expect_found(fixture, 1, 2);
	expect_missing(fixture, 3);
	assert_int_equal(fixture_logged(fixture, "was torn"), 1);
}

static void
nothing_is_made_beside_a_journal_alone(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, true, 1, 2);
	fixture_remove_index(fixture);
	fixture_remove(fixture, "lock");
	expect_found(fixture, 1, 2);
	assert_int_equal(index_state(fixture), INSPECT_MISSING);
	assert_false(fixture_exists(fixture, "lock"));
	assert_false(fixture_exists(fixture, "index"));
}

static void
search_through_the_journal_ends_when_the_watch_says_so(void **state)
{
	const struct fixture *fixture = *state;
	const struct watch watch = { fixture_stop, NULL };
	const int64_t id = 1;
	uint64_t offset;
	int status;

	fixture_make_store(fixture, true, 1, 2);
	fixture_remove_index(fixture);
	struct inspect *inspect = inspect_open(fixture->path, &watch, &status);
	assert_non_null(inspect);
	assert_int_equal(inspect_find(inspect, &id, &offset, 1), EX_TEMPFAIL);
	assert_int_equal(offset, 0);
	inspect_close(inspect);
}

static bool
is_failed(const struct fixture *fixture)
{
	struct inspect *inspect = open_inspect(fixture);
	struct inspect_report report;

	assert_int_equal(inspect_report(inspect, &report), EX_OK);
	inspect_close(inspect);
	return report.failed;
}

static void
store_has_failed_if_the_next_start_recovers_it(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, true, 1, 1);
	assert_false(is_failed(fixture));
	fixture_write(fixture, "lock", 0, "failed  ", 8);
	assert_true(is_failed(fixture));
	fixture_write(fixture, "lock", 0, "garbage ", 8);
	assert_true(is_failed(fixture));
	/* As one that was removed and made anew. */
	fixture_truncate(fixture, "lock", 0);
	assert_false(is_failed(fixture));
	fixture_remove(fixture, "lock");
	assert_false(is_failed(fixture));
}

static void
offset_where_no_line_begins_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct record record;

	fixture_make_store(fixture, true, 1, 1);
	struct inspect *inspect = open_inspect(fixture);
	assert_int_equal(inspect_read(inspect, 100, &record), EX_DATAERR);
	inspect_close(inspect);
}

static void
journal_alone_has_no_index_and_is_searched(void **state)
{
	const struct fixture *fixture = *state;
	struct inspect_report report;
	const int64_t ids[] = { 2, 9 };
	uint64_t offsets[2];
	char path[96];
	int status;

	fixture_make_store(fixture, true, 1, 3);
	snprintf(path, sizeof(path), "%s/" JOURNAL_NAME, fixture->path);
	struct inspect *inspect = inspect_open(path, NULL, &status);
	assert_non_null(inspect);
	assert_int_equal(inspect_report(inspect, &report), EX_OK);
	assert_int_equal(report.index, INSPECT_MISSING);
	assert_int_equal(report.index_bytes, 0);
	assert_int_equal(inspect_find(inspect, ids, offsets, 2), EX_OK);
	assert_int_not_equal(offsets[0], 0);
	assert_int_equal(offsets[1], 0);
	inspect_close(inspect);
}

static void
search_goes_to_the_journal_when_the_index_is_damaged(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, true, 1, 3);
	fixture_spoil_key(fixture, 2);
	expect_found(fixture, 1, 3);
	expect_missing(fixture, 4);
	assert_true(fixture_exists(fixture, "index/data.mdb"));
}

static void
whatever_lacks_memory_is_told_or_done_without(void **state)
{
	const struct fixture *fixture = *state;
	const int64_t ids[] = { 1, 2, 9 };
	bool failed = true;

	if (!alloc_can_fail())
		skip();
	fixture_make_store(fixture, true, 1, 2);
	fixture_append(fixture, JOURNAL_NAME, "torn", 4);
	for (unsigned nth = 1; failed; nth++) {
		struct inspect_report report;
		uint64_t offsets[3];
		int status = EX_OK, told = EX_OK;

		alloc_fail(nth, 1);
		struct inspect *inspect =
		    inspect_open(fixture->path, NULL, &status);
		if (inspect != NULL) {
			told = inspect_report(inspect, &report);
			status = inspect_find(inspect, ids, offsets, 3);
			inspect_close(inspect);
		}
		failed = alloc_reset();
		assert_int_equal(told, EX_OK);
		assert_int_equal(
		    status, inspect == NULL ? EX_TEMPFAIL : status);
		assert_true(status == EX_OK || status == EX_TEMPFAIL);
		if (status == EX_OK && inspect != NULL) {
			assert_true(offsets[0] > 0 && offsets[1] > 0);
			assert_int_equal(offsets[2], 0);
		}
		assert_true(failed || status == EX_OK);
		assert_true(nth < 100);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(entry_for_another_plants_record_is_not_believed),
		TEST(
		    closing_line_that_was_not_entered_leaves_the_index_current),
		TEST(index_of_a_longer_journal_is_foreign),
		TEST(journal_that_was_renewed_meanwhile_hides_no_plant),
		TEST(plants_are_found_while_the_store_is_open),
		TEST(torn_tail_hides_nothing),
		TEST(nothing_is_made_beside_a_journal_alone),
		TEST(search_through_the_journal_ends_when_the_watch_says_so),
		TEST(store_has_failed_if_the_next_start_recovers_it),
		TEST(offset_where_no_line_begins_is_refused),
		TEST(journal_alone_has_no_index_and_is_searched),
		TEST(search_goes_to_the_journal_when_the_index_is_damaged),
		TEST(whatever_lacks_memory_is_told_or_done_without),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
