/* test_copy: a journal checked, and copied while it is in use. */
#include "store_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "store/copy.h"
#include "store/verify.h"

/* The directory of the copy, within that of the store. */
static void
dest_path(const struct fixture *fixture, char path[static 80])
{
	snprintf(path, 80, "%s/copy", fixture->path);
}

static void
remove_dest(const struct fixture *fixture)
{
	static const char *const names[] = { "copy/plants.jsonl",
		"copy/plants.jsonl.new", "copy/lock" };

	for (size_t i = 0; i < COUNT(names); i++)
		unlinkat(fixture->dir, names[i], 0);
	unlinkat(fixture->dir, "copy", AT_REMOVEDIR);
}

static int
tear_down(void **state)
{
	remove_dest(*state);
	return fixture_tear_down(state);
}

/* A store with the plants 1 to n, closed. */
static void
make_store(const struct fixture *fixture, int64_t first, int64_t last)
{
	struct store *store = fixture_open(fixture, false);

	for (int64_t id = first; id <= last; id++)
		fixture_create(store, id);
	store_close(store);
}

static void
expect_equal(const struct fixture *fixture)
{
	size_t len, copy_len;
	char *journal = fixture_read(fixture, "plants.jsonl", &len);
	char *copy = fixture_read(fixture, "copy/plants.jsonl", &copy_len);

	/* The room ahead is no part of a copy. */
	assert_true(copy_len <= len);
	assert_memory_equal(journal, copy, copy_len);
	for (size_t i = copy_len; i < len; i++)
		assert_int_equal(journal[i], '\n');
	free(journal);
	free(copy);
}

static void
a_valid_journal_is_counted(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	make_store(fixture, 1, 3);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.journal.plants, 3);
	assert_int_equal(
	    verified.journal.bytes, fixture_size(fixture, "plants.jsonl"));
	assert_int_equal(strlen(verified.journal.store), 36);
}

static void
room_ahead_is_no_damage(void **state)
{
	const struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	struct verify_report verified;

	fixture_create(store, 1);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.journal.plants, 1);
	assert_true(
	    verified.journal.bytes < fixture_size(fixture, "plants.jsonl"));
	store_close(store);
}

static void
damage_is_told_with_its_offset_and_nothing_is_changed(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;
	size_t len, len_after;

	make_store(fixture, 1, 3);
	fixture_write(fixture, "plants.jsonl", 90, "X", 1);
	char *before = fixture_read(fixture, "plants.jsonl", &len);
	assert_int_equal(
	    verify_store(fixture->path, NULL, &verified), EX_DATAERR);
	assert_int_equal(fixture_logged(fixture, "damaged at byte 82"), 1);
	char *after = fixture_read(fixture, "plants.jsonl", &len_after);
	assert_int_equal(len_after, len);
	assert_memory_equal(after, before, len);
	free(before);
	free(after);
}

static void
torn_tail_is_told_and_is_no_damage(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	make_store(fixture, 1, 2);
	fixture_append(fixture, "plants.jsonl", "{\"seq\":9,", 9);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.journal.plants, 2);
	assert_int_equal(fixture_logged(fixture, "was torn"), 1);
}

static void
directory_without_a_store_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	assert_int_equal(
	    verify_store(fixture->path, NULL, &verified), EX_NOINPUT);
	assert_int_equal(
	    verify_store("/nowhere/at/all", NULL, &verified), EX_NOINPUT);
}

static void
backup_of_a_store_in_use_equals_it(void **state)
{
	const struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	struct copy_report report;
	char dest[80];

	dest_path(fixture, dest);
	fixture_create(store, 1);
	fixture_create(store, 2);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	assert_int_equal(report.plants, 2);
	assert_int_equal(report.added, report.bytes);
	expect_equal(fixture);
	/* The store went on being usable. */
	fixture_create(store, 3);
	store_close(store);
}

static void
second_backup_adds_only_what_is_new(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report first, second;
	char dest[80];

	dest_path(fixture, dest);
	make_store(fixture, 1, 2);
	assert_int_equal(copy_backup(fixture->path, dest, NULL, &first), EX_OK);
	make_store(fixture, 3, 4);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &second), EX_OK);
	assert_int_equal(second.plants, 4);
	assert_int_equal(second.added, second.bytes - first.bytes);
	expect_equal(fixture);
	struct verify_report verified;
	assert_int_equal(verify_store(dest, NULL, &verified), EX_OK);
	assert_int_equal(verified.journal.plants, 4);
}

static void
backup_that_was_interrupted_is_completed_by_the_next(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80];

	dest_path(fixture, dest);
	make_store(fixture, 1, 3);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	/* As if its last 50 bytes had not been written yet. */
	fixture_truncate(fixture, "copy/plants.jsonl", report.bytes - 50);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	assert_true(report.added > 50);
	expect_equal(fixture);
}

static void
backup_over_one_of_another_store_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80];
	size_t len, len_after;

	dest_path(fixture, dest);
	make_store(fixture, 1, 1);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	char *before = fixture_read(fixture, "copy/plants.jsonl", &len);
	fixture_remove(fixture, "plants.jsonl");
	fixture_remove(fixture, "lock");
	fixture_remove_index(fixture);
	make_store(fixture, 1, 1);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_CANTCREAT);
	char *after = fixture_read(fixture, "copy/plants.jsonl", &len_after);
	assert_int_equal(len_after, len);
	assert_memory_equal(after, before, len);
	free(before);
	free(after);
}

static void
backup_that_holds_more_than_the_store_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80];
	size_t len;

	dest_path(fixture, dest);
	make_store(fixture, 1, 1);
	char *early = fixture_read(fixture, "plants.jsonl", &len);
	make_store(fixture, 2, 2);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	/* The store is set back to its earlier state. */
	fixture_truncate(fixture, "plants.jsonl", len);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_CANTCREAT);
	free(early);
}

static void
backup_whose_end_the_store_does_not_continue_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80];
	size_t len;

	dest_path(fixture, dest);
	make_store(fixture, 1, 1);
	char *early = fixture_read(fixture, "plants.jsonl", &len);
	make_store(fixture, 2, 2);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	/* Set back, the store went another way since. */
	fixture_truncate(fixture, "plants.jsonl", len);
	fixture_remove_index(fixture);
	make_store(fixture, 7, 9);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_DATAERR);
	free(early);
}

static void
backup_to_a_store_that_was_served_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;

	make_store(fixture, 1, 1);
	assert_int_equal(
	    copy_backup(fixture->path, fixture->path, NULL, &report),
	    EX_CANTCREAT);
	fixture_reopen_and_expect(fixture, (const int64_t[]){ 1 }, 1);
}

static void
backup_of_a_damaged_store_is_refused_and_leaves_nothing(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80];

	dest_path(fixture, dest);
	make_store(fixture, 1, 3);
	fixture_write(fixture, "plants.jsonl", 90, "X", 1);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_DATAERR);
	assert_false(fixture_exists(fixture, "copy/plants.jsonl"));
	assert_false(fixture_exists(fixture, "copy/plants.jsonl.new"));
}

static void
backup_served_as_a_store_knows_its_plants(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80];

	dest_path(fixture, dest);
	make_store(fixture, 1, 3);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	/* Restored: the copy alone, in an empty directory. */
	fixture_remove(fixture, "plants.jsonl");
	fixture_remove(fixture, "lock");
	fixture_remove_index(fixture);
	assert_int_equal(renameat(fixture->dir, "copy/plants.jsonl",
			     fixture->dir, "plants.jsonl"),
	    0);
	fixture_reopen_and_expect(fixture, (const int64_t[]){ 1, 2, 3 }, 3);
}

#define TEST(function) \
	cmocka_unit_test_setup_teardown(function, fixture_set_up, tear_down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_valid_journal_is_counted),
		TEST(room_ahead_is_no_damage),
		TEST(damage_is_told_with_its_offset_and_nothing_is_changed),
		TEST(torn_tail_is_told_and_is_no_damage),
		TEST(directory_without_a_store_is_refused),
		TEST(backup_of_a_store_in_use_equals_it),
		TEST(second_backup_adds_only_what_is_new),
		TEST(backup_that_was_interrupted_is_completed_by_the_next),
		TEST(backup_over_one_of_another_store_is_refused),
		TEST(backup_that_holds_more_than_the_store_is_refused),
		TEST(backup_whose_end_the_store_does_not_continue_is_refused),
		TEST(backup_to_a_store_that_was_served_is_refused),
		TEST(backup_of_a_damaged_store_is_refused_and_leaves_nothing),
		TEST(backup_served_as_a_store_knows_its_plants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
