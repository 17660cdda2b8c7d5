/* test_verify: a journal checked, and the index compared with it. */
#include "store_fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault_shim.h"
#include "store/index.h"
#include "reader/reader.h"

static void
expect_damage(const struct fixture *fixture, const char *text)
{
	expect_verified(fixture, FAULT_DAMAGED);
	expect_logged(fixture, text, 1);
}

STORE_TEST(valid_journal_is_counted_with_room_ahead_and_without)
{
	struct store *store = fixture_open(fixture, true);

	for (int64_t id = -3; id <= 3; id++)
		fixture_create(store, id);
	for (int closed = 0; closed < 2; closed++) {
		struct reader_report report =
		    expect_verified(fixture, FAULT_NONE);
		size_t size = fixture_size(fixture, JOURNAL_NAME);

		assert_int_equal(report.plants, 7);
		assert_int_equal(report.bytes == size, closed);
		assert_int_equal(strlen(report.store), 36);
		assert_int_equal(
		    report.index, closed ? INDEX_USABLE : INDEX_BEHIND);
		if (!closed)
			store_close(store);
	}
}

STORE_TEST(torn_tail_or_lost_index_is_no_damage)
{
	fixture_make_store(fixture, false, 1, 2);
	fixture_append(fixture, JOURNAL_NAME, "{\"seq\":9,", 9);
	assert_int_equal(expect_verified(fixture, FAULT_NONE).plants, 2);
	expect_logged(fixture, "is torn", 1);
	/* Nor is an index that is gone, and none is made. */
	fixture_remove_index(fixture);
	assert_int_equal(
	    expect_verified(fixture, FAULT_NONE).index, INDEX_ABSENT);
	assert_false(fixture_exists(fixture, "index"));
}

static void
spoil_first_line(const struct fixture *fixture)
{
	fixture_flip(fixture, 90);
}

static void
shorten(const struct fixture *fixture)
{
	fixture_truncate(fixture, JOURNAL_NAME, RECORD_HEADER_LEN);
}

STORE_TEST(damage_is_logged_and_nothing_is_changed)
{
	static const struct {
		void (*damage)(const struct fixture *);
		const char *logged;
	} rows[] = {
		{ spoil_first_line, "damaged at byte 82" },
		{ shorten, "is shorter" },
		{ fixture_junk_index, "/index: damaged" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		fixture_renew(fixture);
		fixture_make_store(fixture, true, 1, 3);
		rows[i].damage(fixture);
		struct contents before = fixture_read(fixture, JOURNAL_NAME);
		expect_damage(fixture, rows[i].logged);
		expect_contents(fixture, JOURNAL_NAME, &before);
	}
}

/* Where the plants of a store stand, and where its journal ends. */
#define PLACES 4
struct places {
	uint64_t offset[PLACES]; /* by id */
	struct position end;
};

static struct places
find_places(const struct fixture *fixture)
{
	struct places places = { .end = fixture_end(fixture) };
	struct fixture_line lines[2 * PLACES];
	size_t n = fixture_lines(fixture, lines, COUNT(lines), NULL);

	assert_in_range(n, 1, COUNT(lines));
	for (size_t i = 0; i < n; i++)
		if (!lines[i].closing)
			places.offset[lines[i].id] = lines[i].offset;
	return places;
}

STORE_TEST(id_that_stands_twice_is_damage_with_an_index_or_without)
{
	struct reader_report report;
	struct places before;
	char path[96], text[96];

	fixture_make_store(fixture, false, 1, 2);
	before = find_places(fixture);
	fixture_forge(fixture, 1, "again", SIZE_MAX);
	fixture_forge(fixture, 3, "again", SIZE_MAX);
	snprintf(path, sizeof(path), "%s/" JOURNAL_NAME, fixture->path);
	snprintf(text, sizeof(text),
	    "the plant 1 occurs twice, at bytes %" PRIu64 " and %" PRIu64,
	    before.offset[1], before.end.end);
	/* With an index that does not have it yet. */
	expect_verified(fixture, FAULT_DAMAGED);
	/* The start enters the first. */
	store_close(fixture_open(fixture, false));
	expect_logged(fixture, text, 2);
	expect_verified(fixture, FAULT_DAMAGED);
	fixture_remove_index(fixture);
	expect_verified(fixture, FAULT_DAMAGED);
	assert_int_equal(verify_store(path, NULL, &report), FAULT_DAMAGED);
	expect_logged(fixture, text, 5);
	expect_logged(fixture, "plant 3 stands", 0);
}

/* A clean index with these offsets for 1, 2 and so on, and one more, if not 0. */
static void
forge_index(const struct fixture *fixture, const struct places *places,
    const uint64_t offsets[static PLACES], int64_t more)
{
	int64_t ids[PLACES + 1] = { 0, 1, 2, 3, more };
	uint64_t all[PLACES + 1] = { 0 };

	memcpy(all, offsets, PLACES * sizeof(*all));
	all[PLACES] = more != 0 ? 82 : 0;
	fixture_forge_index(fixture, ids, all, COUNT(ids), &places->end);
}

STORE_TEST(first_difference_of_the_index_is_named)
{
	/* By which place each plant is entered; 0: it is not. */
	static const struct {
		size_t of[PLACES];
		int64_t more;
		const char *text;
		size_t place;
	} cases[] = {
		{ { 0, 0, 2, 3 }, 0, "has no entry for plant 1", 1 },
		{ { 0, 1, 3, 2 }, 0, "has no entry for plant 2", 2 },
		{ { 0, 1, 2, 0 }, 0, "has no entry for plant 3", 3 },
		{ { 0, 1, 2, 3 }, 9, "has 4 plants, but the journal has 3", 0 },
	};
	char text[160];

	fixture_make_store(fixture, false, 1, 3);
	const struct places places = find_places(fixture);
	for (size_t i = 0; i < COUNT(cases); i++) {
		const uint64_t *at = places.offset;
		uint64_t offsets[PLACES];
		int n =
		    snprintf(text, sizeof(text), "/index: %s", cases[i].text);

		for (size_t id = 0; id < PLACES; id++)
			offsets[id] = at[cases[i].of[id]];
		if (cases[i].place > 0)
			snprintf(text + n, sizeof(text) - (size_t)n,
			    ", at byte %" PRIu64, at[cases[i].place]);
		forge_index(fixture, &places, offsets, cases[i].more);
		expect_damage(fixture, text);
		expect_logged(fixture, "; remove that directory", i + 1);
	}
	/* The remedy helps. */
	fixture_remove_index(fixture);
	store_close(fixture_open(fixture, true));
	assert_int_equal(
	    expect_verified(fixture, FAULT_NONE).index, INDEX_USABLE);
}

STORE_TEST(index_that_does_not_have_the_last_plants_is_behind)
{
	fixture_make_store(fixture, false, 1, 2);
	const struct places early = find_places(fixture);
	fixture_make_store(fixture, false, 3, 3);
	forge_index(fixture, &early, early.offset, 0);
	struct reader_report report = expect_verified(fixture, FAULT_NONE);
	assert_int_equal(report.index, INDEX_BEHIND);
	assert_int_equal(report.plants, 3);
}

#define STORED 200

static int
store_many(void *argument)
{
	struct store *store = fixture_open(argument, true);

	/* Before and behind what is there, while it is walked. */
	for (int64_t i = 1; i <= STORED; i++)
		if (fixture_put(store, i % 2 == 0 ? i : -i, NULL) !=
		    STORE_CREATED)
			return 1;
	store_close(store);
	return 0;
}

STORE_TEST(store_that_others_write_into_holds_at_any_time)
{
	unsigned rounds = 0;
	int status;

	fixture_make_store(fixture, true, 1000, 1020);
	pid_t child = child_start(store_many, fixture);
	do {
		expect_verified(fixture, FAULT_NONE);
		rounds++;
	} while (waitpid(child, &status, WNOHANG) == 0);
	assert_int_equal(status, 0);
	assert_int_equal(
	    expect_verified(fixture, FAULT_NONE).plants, 21 + STORED);
	print_message("%u times while %d plants were stored\n", rounds, STORED);
}

static enum fault
verify_watched(const struct fixture *fixture, struct fixture_steps *steps,
    struct reader_report *report)
{
	const struct watch watch = { fixture_step, steps };

	return verify_store(fixture->path, &watch, report);
}

STORE_TEST(watch_can_stop_it_anywhere_and_the_report_has_what_was_read)
{
	struct fixture_steps steps = { .last = 1 };
	struct reader_report report;

	fixture_make_store(fixture, true, 1, 2);
	while (verify_watched(fixture, &steps, &report) != FAULT_NONE) {
		assert_int_equal(steps.n, steps.last);
		/* Before each of three lines, and before the index. */
		assert_int_equal(
		    report.plants, steps.last < 3 ? steps.last - 1 : 2);
		steps = (struct fixture_steps){ .last = steps.last + 1 };
	}
	assert_int_equal(steps.last, 5);
}

static void
replace_index(void *fixture)
{
	fixture_remove_index(fixture);
	store_close(fixture_open(fixture, true));
}

static void
replace_journal(void *fixture)
{
	fixture_remove(fixture, JOURNAL_NAME);
	fixture_write(fixture, JOURNAL_NAME, 0, "other", 5);
}

STORE_TEST(what_is_replaced_meanwhile_is_not_taken_for_damage)
{
	struct fixture_steps index = {
		.last = 2, .happens = replace_index, .argument = fixture
	};
	struct fixture_steps journal = {
		.last = 2, .happens = replace_journal, .argument = fixture
	};
	struct reader_report report;

	fixture_make_store(fixture, true, 1, 3);
	assert_int_equal(verify_watched(fixture, &index, &report), FAULT_NONE);
	assert_int_equal(report.index, INDEX_USABLE);
	assert_int_equal(
	    verify_watched(fixture, &journal, &report), FAULT_NONE);
}

STORE_TEST(call_that_fails_never_makes_it_report_damage)
{
	static const enum shim_call calls[] = { SHIM_PREAD, SHIM_FSTAT,
		SHIM_FDATASYNC };
	struct reader_report report;

	fixture_make_store(fixture, false, 1, 3);
	for (size_t i = 0; i < COUNT(calls); i++) {
		bool failed = true;

		for (unsigned nth = 1; failed; nth++) {
			store_close(fixture_open(fixture, true));
			/* So that it is read from the disk. */
			fixture_append(fixture, JOURNAL_NAME, "torn", 4);
			shim_fail(calls[i], NULL, nth, 1, EIO);
			enum fault fault =
			    verify_store(fixture->path, NULL, &report);
			failed = shim_reset();
			assert_int_not_equal(fault, FAULT_DAMAGED);
			assert_true(fault == FAULT_NONE || failed);
		}
	}
	expect_plants(fixture, 3);
}

/* More than stay in memory. */
#define MANY 20000

STORE_TEST(disk_that_is_full_of_ids_is_no_damage)
{
	struct store *store = fixture_open(fixture, true);
	struct reader_report report;
	int64_t ids[MANY];

	for (int64_t i = 0; i < MANY; i++)
		ids[i] = i * 7919 % 20011;
	fixture_commit(store, ids, MANY, STORE_CREATED);
	store_close(store);
	shim_fail(SHIM_PWRITE, NULL, 1, 1, ENOSPC);
	assert_int_equal(
	    verify_store(fixture->path, NULL, &report), FAULT_FULL);
	shim_reset();
	expect_logged(fixture, "/var/tmp", 1);
	report = expect_verified(fixture, FAULT_NONE);
	assert_int_equal(report.plants, MANY);
	assert_int_equal(report.index, INDEX_USABLE);
}
