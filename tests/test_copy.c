/* test_copy: a journal checked, and copied while it is in use. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "fault_shim.h"
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
		"copy/plants.jsonl.new", "copy/lock", "copy/index/data.mdb" };

	for (size_t i = 0; i < COUNT(names); i++)
		unlinkat(fixture->dir, names[i], 0);
	unlinkat(fixture->dir, "copy/index", AT_REMOVEDIR);
	unlinkat(fixture->dir, "copy", AT_REMOVEDIR);
}

static int
tear_down(void **state)
{
	remove_dest(*state);
	return fixture_tear_down(state);
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
	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(copy_backup(fixture->path, dest, NULL, &first), EX_OK);
	fixture_make_store(fixture, false, 3, 4);
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
	fixture_make_store(fixture, false, 1, 3);
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
	fixture_make_store(fixture, false, 1, 1);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	char *before = fixture_read(fixture, "copy/plants.jsonl", &len);
	fixture_remove(fixture, "plants.jsonl");
	fixture_remove(fixture, "lock");
	fixture_remove_index(fixture);
	fixture_make_store(fixture, false, 1, 1);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_CANTCREAT);
	char *after = fixture_read(fixture, "copy/plants.jsonl", &len_after);
	assert_int_equal(len_after, len);
	assert_memory_equal(after, before, len);
	free(before);
	free(after);
}

/* Copied with the plants 1 to `last`, the store is set back to the first. */
static void
set_back(const struct fixture *fixture, bool prepare, int64_t last)
{
	struct copy_report report;
	char dest[80];

	dest_path(fixture, dest);
	fixture_make_store(fixture, prepare, 1, 1);
	size_t len = fixture_size(fixture, "plants.jsonl");
	fixture_make_store(fixture, prepare, 2, last);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	fixture_truncate(fixture, "plants.jsonl", len);
}

static void
expect_refused(const struct fixture *fixture)
{
	struct copy_report report;
	char dest[80];

	dest_path(fixture, dest);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_CANTCREAT);
}

static void
backup_that_holds_more_than_the_store_is_refused(void **state)
{
	set_back(*state, false, 2);
	expect_refused(*state);
}

static void
backup_whose_end_the_store_does_not_continue_is_refused(void **state)
{
	const struct fixture *fixture = *state;

	set_back(fixture, false, 2);
	/* It went another way since. */
	fixture_remove_index(fixture);
	fixture_make_store(fixture, false, 7, 9);
	expect_refused(fixture);
}

static void
backup_whose_end_the_store_has_only_room_for_is_refused(void **state)
{
	const struct fixture *fixture = *state;

	set_back(fixture, true, 9);
	fixture_remove_index(fixture);
	struct store *store = fixture_open(fixture, true);
	fixture_create(store, 77);
	expect_refused(fixture);
	store_close(store);
}

/* At its nth step, the copy is put into service, or copied to by another. */
struct meddler {
	const struct fixture *fixture;
	unsigned n, nth;
	bool serve;
	bool created; /* its plant was acknowledged */
	int status;   /* of the other copying */
};

static void
serve_copy(struct meddler *meddler, const char *dest)
{
	struct store_options options = { .dir = dest };
	int status;
	struct store *store = store_open(&options, &status);

	if (store == NULL)
		return;
	meddler->created =
	    fixture_put(store, 4242, NULL).result == STORE_CREATED;
	store_close(store);
}

static bool
meddle(void *context, uint64_t done, uint64_t total)
{
	struct meddler *meddler = context;
	struct copy_report report;
	char dest[80];

	(void)done;
	(void)total;
	if (++meddler->n != meddler->nth)
		return true;
	dest_path(meddler->fixture, dest);
	if (meddler->serve)
		serve_copy(meddler, dest);
	else
		meddler->status =
		    copy_backup(meddler->fixture->path, dest, NULL, &report);
	return true;
}

static void
backup_that_is_put_into_service_meanwhile_keeps_its_new_plants(void **state)
{
	const struct fixture *fixture = *state;
	unsigned refused = 0;
	char dest[80];

	dest_path(fixture, dest);
	fixture_make_store(fixture, false, 1, 3);
	for (unsigned nth = 1;; nth++) {
		struct meddler meddler = {
			.fixture = fixture, .nth = nth, .serve = true
		};
		struct watch watch = { meddle, &meddler };
		struct copy_report report;
		size_t len;

		assert_int_equal(
		    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
		fixture_make_store(fixture, false, 3 + nth, 3 + nth);
		int status = copy_backup(fixture->path, dest, &watch, &report);
		if (meddler.n < nth)
			break;
		char *copy = fixture_read(fixture, "copy/plants.jsonl", &len);
		assert_true(
		    meddler.created == (strstr(copy, "\"id\":4242") != NULL));
		free(copy);
		if (status == EX_CANTCREAT)
			refused++;
		remove_dest(fixture);
	}
	assert_true(refused > 0);
}

static void
backup_to_where_another_is_being_made_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80];

	dest_path(fixture, dest);
	/* A whole copy, and then what is new. */
	for (int64_t id = 1; id <= 2; id++) {
		struct meddler meddler = { .fixture = fixture, .nth = 2 };
		struct watch watch = { meddle, &meddler };

		fixture_make_store(fixture, false, id, id);
		assert_int_equal(
		    copy_backup(fixture->path, dest, &watch, &report), EX_OK);
		assert_int_equal(meddler.status, EX_TEMPFAIL);
		expect_equal(fixture);
	}
}

static void
backup_to_what_cannot_be_made_is_told(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[96];

	fixture_make_store(fixture, false, 1, 1);
	snprintf(dest, sizeof(dest), "%s/none/copy", fixture->path);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_CANTCREAT);
	snprintf(dest, sizeof(dest), "%s/plants.jsonl", fixture->path);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_CANTCREAT);
}

static void
backup_to_a_store_that_was_served_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;

	fixture_make_store(fixture, false, 1, 1);
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
	fixture_make_store(fixture, false, 1, 3);
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
	fixture_make_store(fixture, false, 1, 3);
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

/* Stop at the first step, the second, and so on until it is not stopped. */
static unsigned
stop_everywhere(const struct fixture *fixture, const char *dest,
    const char *before, size_t len)
{
	for (unsigned nth = 1;; nth++) {
		struct fixture_steps steps = { .last = nth };
		struct watch watch = { fixture_step, &steps };
		struct copy_report report;
		size_t len_after;
		int status = copy_backup(fixture->path, dest, &watch, &report);

		if (status == EX_OK)
			return nth - 1;
		assert_int_equal(status, COPY_STOPPED);
		assert_false(fixture_exists(fixture, "copy/plants.jsonl.new"));
		if (before == NULL) {
			/* Read back only when it has its name. */
			if (!fixture_exists(fixture, "copy/plants.jsonl"))
				continue;
			expect_equal(fixture);
			return nth;
		}
		char *after =
		    fixture_read(fixture, "copy/plants.jsonl", &len_after);
		assert_true(len_after >= len);
		assert_memory_equal(after, before, len);
		free(after);
	}
}

static void
backup_that_is_stopped_leaves_none_or_a_whole_one(void **state)
{
	const struct fixture *fixture = *state;
	char dest[80];

	dest_path(fixture, dest);
	fixture_make_store(fixture, false, 1, 2);
	/* Reading, copying, reading back. */
	assert_int_equal(stop_everywhere(fixture, dest, NULL, 0), 3);
}

static void
backup_that_is_stopped_keeps_the_earlier_one(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80];
	size_t len;

	dest_path(fixture, dest);
	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	char *before = fixture_read(fixture, "copy/plants.jsonl", &len);
	fixture_make_store(fixture, false, 3, 4);
	assert_int_equal(stop_everywhere(fixture, dest, before, len), 4);
	expect_equal(fixture);
	free(before);
}

static void
backup_can_be_made_of_a_file(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80], from[96];

	dest_path(fixture, dest);
	snprintf(from, sizeof(from), "%s/plants.jsonl", fixture->path);
	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(copy_backup(from, dest, NULL, &report), EX_OK);
	assert_int_equal(report.plants, 2);
	expect_equal(fixture);
}

/* Where the copy is read back, another program cuts it. */
struct cutter {
	const struct fixture *fixture;
	uint64_t end;
};

static bool
cut_copy(void *context, uint64_t done, uint64_t total)
{
	const struct cutter *cutter = context;

	(void)done;
	(void)total;
	if (fixture_exists(cutter->fixture, "copy/plants.jsonl"))
		fixture_truncate(
		    cutter->fixture, "copy/plants.jsonl", cutter->end);
	return true;
}

static void
copy_that_does_not_equal_what_was_read_is_told(void **state)
{
	const struct fixture *fixture = *state;
	struct cutter cutter = { .fixture = fixture };
	const struct watch watch = { cut_copy, &cutter };
	struct copy_report report;
	char dest[80];

	dest_path(fixture, dest);
	fixture_make_store(fixture, false, 1, 1);
	cutter.end = fixture_size(fixture, "plants.jsonl");
	fixture_make_store(fixture, false, 2, 2);
	assert_int_equal(
	    copy_backup(fixture->path, dest, &watch, &report), EX_IOERR);
	assert_int_equal(fixture_logged(fixture, "does not equal"), 1);
}

static void
addition_that_fails_leaves_the_earlier_backup(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80];
	size_t len;

	dest_path(fixture, dest);
	fixture_make_store(fixture, false, 1, 1);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	len = fixture_size(fixture, "copy/plants.jsonl");
	fixture_make_store(fixture, false, 2, 2);
	shim_fail(SHIM_FTRUNCATE, "copy/plants.jsonl", 1, 1, EIO);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_IOERR);
	shim_reset();
	assert_int_equal(fixture_size(fixture, "copy/plants.jsonl"), len);
	/* What was added cannot be cut off again; the next backup does. */
	shim_fail(SHIM_FTRUNCATE, "copy/plants.jsonl", 2, 1, EIO);
	shim_fail(SHIM_FSYNC, "copy/plants.jsonl", 1, 1, EIO);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_IOERR);
	shim_reset();
	assert_int_equal(fixture_logged(fixture, "cannot cut off"), 1);
	assert_int_equal(
	    copy_backup(fixture->path, dest, NULL, &report), EX_OK);
	expect_equal(fixture);
}

#define CASE(function) \
	cmocka_unit_test_setup_teardown(function, fixture_set_up, tear_down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(backup_of_a_store_in_use_equals_it),
		CASE(second_backup_adds_only_what_is_new),
		CASE(backup_that_was_interrupted_is_completed_by_the_next),
		CASE(backup_over_one_of_another_store_is_refused),
		CASE(backup_that_holds_more_than_the_store_is_refused),
		CASE(backup_whose_end_the_store_does_not_continue_is_refused),
		CASE(backup_whose_end_the_store_has_only_room_for_is_refused),
		CASE(
		    backup_that_is_put_into_service_meanwhile_keeps_its_new_plants),
		CASE(backup_to_where_another_is_being_made_is_refused),
		CASE(backup_to_what_cannot_be_made_is_told),
		CASE(backup_to_a_store_that_was_served_is_refused),
		CASE(backup_of_a_damaged_store_is_refused_and_leaves_nothing),
		CASE(backup_served_as_a_store_knows_its_plants),
		CASE(backup_that_is_stopped_leaves_none_or_a_whole_one),
		CASE(backup_that_is_stopped_keeps_the_earlier_one),
		CASE(backup_can_be_made_of_a_file),
		CASE(copy_that_does_not_equal_what_was_read_is_told),
		CASE(addition_that_fails_leaves_the_earlier_backup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
