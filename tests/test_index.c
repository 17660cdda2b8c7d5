/*
 * index: what is entered is found, by whoever opens it, as long as it can be
 * trusted; else it is begun anew.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lmdb.h>

#include "fault_shim.h"
#include "index.h"
#include "store_fixture.h"

#define UUID "0123abcd-0123-4567-89ab-0123456789ab"
#define OTHER "ffffffff-0123-4567-89ab-0123456789ab"
#define DATA "index/data.mdb"
#define CLEAN "index/clean"

/* Where the state keeps the boot id: behind the version and the uuid. */
#define BOOT_OFFSET 40
#define BOOT_LEN 36

static const struct position covered = { 500, 400, 3, 0x1234abcd };

static struct index *
open_index(const struct fixture *fixture)
{
	struct index *index = index_open(fixture->dir, fixture->path, UUID);

	assert_non_null(index);
	return index;
}

static struct position
begin(struct index *index)
{
	struct position found;

	assert_int_equal(index_begin(index, &found), 0);
	return found;
}

static void
enter(struct index *index, int64_t id, uint64_t offset)
{
	uint64_t found;

	begin(index);
	assert_int_equal(index_put(index, id, offset, &found), INDEX_NEW);
	assert_int_equal(index_commit(index, &covered), 0);
}

/* Whether the index has the id; at `offset`, if it has. */
static bool
has(struct index *index, int64_t id, uint64_t offset)
{
	uint64_t found;

	begin(index);
	enum index_put put = index_put(index, id, 1, &found);
	index_abort(index);
	assert_int_not_equal(put, INDEX_ERROR);
	if (put == INDEX_FOUND)
		assert_int_equal(found, offset);
	return put == INDEX_FOUND;
}

/* An index with the plant 7 at 100, closed. */
static void
leave_index(const struct fixture *fixture, bool clean)
{
	struct index *index = open_index(fixture);

	enter(index, 7, 100);
	index_close(index, clean);
}

/* As if the machine had been started again. */
static void
change_boot(const struct fixture *fixture)
{
	size_t len;
	char *path = NULL, name = 's';
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;
	MDB_val key = { 1, &name }, value;
	char state[256];

	assert_true(asprintf(&path, "%s/index", fixture->path) > 0);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_open(env, path, MDB_NOLOCK, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	assert_int_equal(mdb_get(txn, dbi, &key, &value), 0);
	len = value.mv_size;
	assert_true(len <= sizeof(state));
	memcpy(state, value.mv_data, len);
	assert_memory_equal(state + 4, UUID, RECORD_UUID_LEN);
	memset(state + BOOT_OFFSET, 'x', BOOT_LEN);
	value.mv_data = state;
	assert_int_equal(mdb_put(txn, dbi, &key, &value, 0), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
	free(path);
}

static bool
is_kept(const struct fixture *fixture)
{
	struct index *index = open_index(fixture);
	bool kept = has(index, 7, 100);

	index_close(index, false);
	return kept;
}

static void
a_new_index_covers_nothing(void **state)
{
	static const struct position none;
	struct index *index = open_index(*state);
	struct position found = begin(index);

	assert_memory_equal(&found, &none, sizeof(none));
	index_close(index, false);
}

static void
an_id_is_new_once_and_found_from_then_on(void **state)
{
	struct index *index = open_index(*state);

	assert_false(has(index, 7, 100));
	enter(index, 7, 100);
	assert_true(has(index, 7, 100));
	assert_false(has(index, 8, 100));
	index_close(index, false);
}

static void
an_id_is_found_within_its_own_transaction(void **state)
{
	struct index *index = open_index(*state);
	uint64_t found;

	begin(index);
	assert_int_equal(index_put(index, 7, 100, &found), INDEX_NEW);
	assert_int_equal(index_put(index, 7, 200, &found), INDEX_FOUND);
	assert_int_equal(found, 100);
	index_close(index, false);
}

static void
what_is_aborted_is_not_entered(void **state)
{
	struct index *index = open_index(*state);
	uint64_t found;

	begin(index);
	assert_int_equal(index_put(index, 7, 100, &found), INDEX_NEW);
	index_abort(index);
	assert_false(has(index, 7, 100));
	index_close(index, false);
}

static void
closing_within_a_transaction_enters_nothing(void **state)
{
	struct index *index = open_index(*state);
	uint64_t found;

	begin(index);
	assert_int_equal(index_put(index, 7, 100, &found), INDEX_NEW);
	index_close(index, true);
	assert_false(is_kept(*state));
}

static void
every_kind_of_id_has_its_own_place(void **state)
{
	static const int64_t ids[] = { INT64_MIN, INT64_MIN + 1, -256, -1, 0, 1,
		255, 256, 0x7300000000000000, 0x73, INT64_MAX - 1, INT64_MAX };
	struct index *index = open_index(*state);

	for (size_t i = 0; i < COUNT(ids); i++)
		enter(index, ids[i], 1000 + i);
	for (size_t i = 0; i < COUNT(ids); i++)
		assert_true(has(index, ids[i], 1000 + i));
	assert_false(has(index, 2, 0));
	index_close(index, false);
}

static void
many_ids_in_any_order_are_found(void **state)
{
	struct index *index = open_index(*state);
	uint64_t found;

	begin(index);
	for (int64_t i = 0; i < 20000; i++)
		assert_int_equal(index_put(index, i * 7919 % 20011 - 10000,
				     (uint64_t)i + 1, &found),
		    INDEX_NEW);
	assert_int_equal(index_commit(index, &covered), 0);
	for (int64_t i = 0; i < 20000; i++)
		assert_true(
		    has(index, i * 7919 % 20011 - 10000, (uint64_t)i + 1));
	index_close(index, false);
}

static void
the_position_comes_back_as_it_was_committed(void **state)
{
	struct fixture *fixture = *state;
	struct index *index = open_index(fixture);
	struct position found;

	begin(index);
	assert_int_equal(index_commit(index, &covered), 0);
	for (int i = 0; i < 2; i++) {
		found = begin(index);
		assert_int_equal(found.end, covered.end);
		assert_int_equal(found.last, covered.last);
		assert_int_equal(found.seq, covered.seq);
		assert_int_equal(found.crc, covered.crc);
		index_close(index, false);
		index = open_index(fixture);
	}
	index_close(index, false);
}

static void
an_aborted_position_is_not_kept(void **state)
{
	struct index *index = open_index(*state);
	struct position found;

	enter(index, 7, 100);
	begin(index);
	index_abort(index);
	found = begin(index);
	assert_int_equal(found.end, covered.end);
	index_close(index, false);
}

static void
two_who_take_turns_see_what_the_other_entered(void **state)
{
	struct index *one = open_index(*state), *two = open_index(*state);

	for (int64_t i = 0; i < 200; i++) {
		enter(i % 2 == 0 ? one : two, i, (uint64_t)i + 1);
		assert_true(has(i % 2 == 0 ? two : one, i, (uint64_t)i + 1));
	}
	for (int64_t i = 0; i < 200; i++)
		assert_true(has(one, i, (uint64_t)i + 1));
	index_close(one, false);
	index_close(two, false);
}

static void
an_index_of_this_boot_is_kept_when_it_was_not_closed(void **state)
{
	leave_index(*state, false);
	assert_true(is_kept(*state));
}

static void
an_index_that_was_closed_cleanly_is_kept(void **state)
{
	leave_index(*state, true);
	assert_true(is_kept(*state));
}

static void
an_index_of_another_boot_is_kept_if_closed_cleanly(void **state)
{
	leave_index(*state, true);
	change_boot(*state);
	assert_true(is_kept(*state));
}

static void
an_index_of_another_boot_is_discarded_if_not_closed_cleanly(void **state)
{
	leave_index(*state, false);
	change_boot(*state);
	assert_false(is_kept(*state));
}

static void
an_index_used_since_its_clean_close_is_not_clean(void **state)
{
	struct fixture *fixture = *state;
	struct index *index;

	leave_index(fixture, true);
	assert_true(fixture_exists(fixture, CLEAN));
	index = open_index(fixture);
	begin(index);
	assert_false(fixture_exists(fixture, CLEAN));
	index_close(index, false);
	change_boot(fixture);
	assert_false(is_kept(fixture));
}

static void
an_index_taken_over_by_a_boot_is_kept_by_it(void **state)
{
	struct fixture *fixture = *state;

	leave_index(fixture, true);
	change_boot(fixture);
	assert_true(is_kept(fixture));
	assert_true(is_kept(fixture));
}

static void
an_index_still_used_after_anothers_clean_close_is_not_clean(void **state)
{
	struct fixture *fixture = *state;
	struct index *staying = open_index(fixture);

	leave_index(fixture, true);
	assert_true(fixture_exists(fixture, CLEAN));
	assert_true(has(staying, 7, 100));
	assert_false(fixture_exists(fixture, CLEAN));
	index_close(staying, false);
}

static void
nothing_is_written_before_the_end_of_cleanness_is_durable(void **state)
{
	struct fixture *fixture = *state;
	struct index *index;
	struct position found;

	leave_index(fixture, true);
	index = open_index(fixture);
	shim_fail(SHIM_FSYNC, "/index", 1, 1, EIO);
	shim_fail(SHIM_PWRITE, DATA, 1, 0, 0);
	assert_int_equal(index_begin(index, &found), -1);
	assert_int_equal(errno, EIO);
	assert_int_equal(shim_count(SHIM_PWRITE), 0);
	index_close(index, false);
}

static void
an_index_whose_sync_fails_is_not_marked_clean(void **state)
{
	struct fixture *fixture = *state;
	struct index *index = open_index(fixture);

	enter(index, 7, 100);
	shim_fail(SHIM_FDATASYNC, DATA, 1, 9, EIO);
	index_close(index, true);
	assert_false(fixture_exists(fixture, CLEAN));
}

static void
an_index_that_was_discarded_does_not_vouch_for_the_next(void **state)
{
	struct fixture *fixture = *state;
	struct index *old = open_index(fixture);

	index_discard(fixture->dir);
	leave_index(fixture, false);
	index_close(old, true);
	assert_false(fixture_exists(fixture, CLEAN));
}

static void
an_index_of_another_store_is_discarded(void **state)
{
	struct fixture *fixture = *state;
	struct index *index;

	leave_index(fixture, false);
	index = index_open(fixture->dir, fixture->path, OTHER);
	assert_non_null(index);
	assert_false(has(index, 7, 100));
	index_close(index, false);
	assert_int_equal(fixture_logged(fixture, "building it anew"), 1);
}

static void
a_file_that_is_no_index_is_discarded(void **state)
{
	struct fixture *fixture = *state;
	char junk[20000];

	memset(junk, 'x', sizeof(junk));
	leave_index(fixture, false);
	fixture_write(fixture, DATA, 0, junk, sizeof(junk));
	assert_false(is_kept(fixture));
}

static void
an_empty_file_becomes_an_index(void **state)
{
	struct fixture *fixture = *state;

	leave_index(fixture, true);
	fixture_truncate(fixture, DATA, 0);
	assert_false(is_kept(fixture));
	leave_index(fixture, false);
	assert_true(is_kept(fixture));
}

static void
a_file_cut_short_anywhere_is_discarded(void **state)
{
	struct fixture *fixture = *state;

	leave_index(fixture, false);
	for (size_t size = fixture_size(fixture, DATA); size > 0;
	     size -= size % 4096 == 0 ? 1 : size % 4096) {
		fixture_truncate(fixture, DATA, size - 1);
		assert_false(is_kept(fixture));
		fixture_remove_index(fixture);
		leave_index(fixture, false);
	}
}

static void
a_missing_directory_is_made_anew(void **state)
{
	struct fixture *fixture = *state;

	leave_index(fixture, true);
	fixture_remove_index(fixture);
	assert_false(is_kept(fixture));
}

static void
only_its_owner_may_read_the_index(void **state)
{
	struct fixture *fixture = *state;
	struct stat st;

	leave_index(fixture, false);
	assert_int_equal(fstatat(fixture->dir, "index", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(fstatat(fixture->dir, DATA, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void
an_index_that_cannot_be_discarded_is_not_used(void **state)
{
	struct fixture *fixture = *state;

	leave_index(fixture, false);
	shim_fail(SHIM_UNLINKAT, DATA, 1, 1, EACCES);
	assert_null(index_open(fixture->dir, fixture->path, OTHER));
}

/*
 * Fail the nth write of a commit, for all there are.  LMDB itself gives up an
 * environment whose last write has failed, so look with another.
 */
static void
a_commit_that_fails_enters_nothing(void **state)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_WRITEV };
	struct fixture *fixture = *state;
	uint64_t found;
	unsigned failures = 0;

	leave_index(fixture, false);
	for (size_t i = 0; i < COUNT(calls); i++)
		for (unsigned nth = 1;; nth++) {
			struct index *index = open_index(fixture);
			int64_t first = 1000 * (int64_t)(10 * i + nth);

			begin(index);
			for (int64_t id = first; id < first + 500; id++)
				assert_int_equal(
				    index_put(index, id, 100, &found),
				    INDEX_NEW);
			shim_fail(calls[i], DATA, nth, 1, ENOSPC);
			int result = index_commit(index, &covered);
			int error = errno;
			bool untouched = shim_count(calls[i]) < nth;
			shim_reset();
			index_close(index, false);
			index = open_index(fixture);
			assert_true(has(index, 7, 100));
			assert_int_equal(has(index, first, 100), untouched);
			index_close(index, false);
			if (untouched)
				break;
			assert_int_equal(result, -1);
			assert_int_equal(error, ENOSPC);
			failures++;
		}
	assert_true(failures > 1);
}

/* Work for fixture_in_child: end in the middle of a commit. */
struct death {
	const struct fixture *fixture;
	unsigned nth;
};

static int
die_in_commit(void *argument)
{
	const struct death *death = argument;
	struct index *index =
	    index_open(death->fixture->dir, death->fixture->path, UUID);
	struct position found;
	uint64_t offset;

	if (index == NULL || index_begin(index, &found) < 0)
		return 1;
	for (int64_t id = 1000; id < 3000; id++)
		if (index_put(index, id, 100, &offset) != INDEX_NEW)
			return 2;
	shim_exit(SHIM_PWRITE, DATA, death->nth);
	index_commit(index, &covered);
	return 3;
}

static void
a_process_that_dies_in_its_commit_leaves_the_index_as_it_was(void **state)
{
	struct fixture *fixture = *state;
	struct death death = { .fixture = fixture };
	int status;

	leave_index(fixture, false);
	do {
		death.nth++;
		status = fixture_in_child(die_in_commit, &death);
		struct index *index = open_index(fixture);
		assert_true(has(index, 7, 100));
		for (int64_t id = 1000; id < 3000; id += 100)
			assert_int_equal(has(index, id, 100), status != 0);
		index_close(index, false);
	} while (status == 0);
	assert_int_equal(status, 3);
	assert_true(death.nth > 1);
}

#define TEST(function)                   \
	cmocka_unit_test_setup_teardown( \
	    function, fixture_set_up, fixture_tear_down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_new_index_covers_nothing),
		TEST(an_id_is_new_once_and_found_from_then_on),
		TEST(an_id_is_found_within_its_own_transaction),
		TEST(what_is_aborted_is_not_entered),
		TEST(closing_within_a_transaction_enters_nothing),
		TEST(every_kind_of_id_has_its_own_place),
		TEST(many_ids_in_any_order_are_found),
		TEST(the_position_comes_back_as_it_was_committed),
		TEST(an_aborted_position_is_not_kept),
		TEST(two_who_take_turns_see_what_the_other_entered),
		TEST(an_index_of_this_boot_is_kept_when_it_was_not_closed),
		TEST(an_index_that_was_closed_cleanly_is_kept),
		TEST(an_index_of_another_boot_is_kept_if_closed_cleanly),
		TEST(
		    an_index_of_another_boot_is_discarded_if_not_closed_cleanly),
		TEST(an_index_used_since_its_clean_close_is_not_clean),
		TEST(an_index_taken_over_by_a_boot_is_kept_by_it),
		TEST(
		    an_index_still_used_after_anothers_clean_close_is_not_clean),
		TEST(nothing_is_written_before_the_end_of_cleanness_is_durable),
		TEST(an_index_whose_sync_fails_is_not_marked_clean),
		TEST(an_index_that_was_discarded_does_not_vouch_for_the_next),
		TEST(an_index_of_another_store_is_discarded),
		TEST(a_file_that_is_no_index_is_discarded),
		TEST(an_empty_file_becomes_an_index),
		TEST(a_file_cut_short_anywhere_is_discarded),
		TEST(a_missing_directory_is_made_anew),
		TEST(only_its_owner_may_read_the_index),
		TEST(an_index_that_cannot_be_discarded_is_not_used),
		TEST(a_commit_that_fails_enters_nothing),
		TEST(
		    a_process_that_dies_in_its_commit_leaves_the_index_as_it_was),
	};

	return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
