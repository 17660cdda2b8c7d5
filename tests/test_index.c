/*
 * index: what is entered is found, by whoever opens it, as long as it can be
 * trusted; else it is begun anew.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <lmdb.h>

#include "fault_shim.h"
#include "index.h"
#include "index_parts.h"
#include "pure/crc32c.h"
#include "sanitized.h"
#include "store_fixture.h"

#define UUID "0123abcd-0123-4567-89ab-0123456789ab"
#define OTHER "ffffffff-0123-4567-89ab-0123456789ab"
#define DATA "index/data.mdb"
#define CLEAN "index/clean"

/* Where the state keeps the boot id: behind the version and the uuid. */
#define BOOT_OFFSET 40
#define BOOT_LEN 36
/* And its checksum, behind all. */
#define CRC_BYTES sizeof(uint32_t)

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
	char *path = NULL, name = '\0';
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
	uint32_t crc = crc32c(record_seed(UUID), state, len - CRC_BYTES);
	memcpy(state + len - CRC_BYTES, &crc, CRC_BYTES);
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
an_index_made_where_the_file_alone_was_removed_is_not_clean(void **state)
{
	struct fixture *fixture = *state;

	leave_index(fixture, true);
	fixture_remove(fixture, DATA);
	leave_index(fixture, false);
	assert_false(fixture_exists(fixture, CLEAN));
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
an_index_that_is_opened_again_has_what_it_had(void **state)
{
	struct fixture *fixture = *state;
	struct index *index = open_index(fixture);

	enter(index, 7, 100);
	assert_int_equal(index_refresh(index, fixture->path), 0);
	assert_true(has(index, 7, 100));
	enter(index, 8, 200);
	index_close(index, false);
	index = open_index(fixture);
	assert_true(has(index, 7, 100));
	assert_true(has(index, 8, 200));
	index_close(index, false);
}

static void
an_index_whose_file_is_gone_is_not_opened_again(void **state)
{
	struct fixture *fixture = *state;
	struct index *index = open_index(fixture);

	enter(index, 7, 100);
	fixture_remove(fixture, DATA);
	errno = 0;
	assert_int_equal(index_refresh(index, fixture->path), -1);
	assert_int_equal(errno, EBADMSG);
	index_close(index, false);
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

/* --- Reading alone --- */

static struct index *
open_reader(const struct fixture *fixture)
{
	return index_open_reader(fixture->dir, fixture->path, UUID);
}

static void
assert_no_reader(const struct fixture *fixture, int error)
{
	errno = 0;
	assert_null(open_reader(fixture));
	assert_int_equal(errno, error);
}

static void
a_reader_finds_what_is_there_and_nothing_else(void **state)
{
	struct fixture *fixture = *state;
	struct index *reader;
	uint64_t offset = 0;

	leave_index(fixture, false);
	reader = open_reader(fixture);
	assert_non_null(reader);
	assert_int_equal(begin(reader).end, covered.end);
	assert_int_equal(index_find(reader, 7, &offset), INDEX_FOUND);
	assert_int_equal(offset, 100);
	assert_int_equal(index_find(reader, 6, &offset), INDEX_NEW);
	assert_int_equal(index_find(reader, 8, &offset), INDEX_NEW);
	index_close(reader, false);
}

static void
a_reader_sees_what_was_entered_since_it_was_opened(void **state)
{
	struct fixture *fixture = *state;
	struct index *writer = open_index(fixture), *reader;
	uint64_t offset;

	enter(writer, 7, 100);
	reader = open_reader(fixture);
	assert_non_null(reader);
	for (int64_t id = 100; id < 1000; id++) {
		enter(writer, id, (uint64_t)id);
		begin(reader);
		assert_int_equal(index_find(reader, id, &offset), INDEX_FOUND);
		assert_int_equal(offset, id);
		index_abort(reader);
	}
	index_close(reader, false);
	index_close(writer, false);
}

static void
a_reader_changes_no_file(void **state)
{
	struct fixture *fixture = *state;
	struct index *reader;
	size_t before_len, after_len;
	uint64_t offset;
	char *before, *after;

	leave_index(fixture, true);
	change_boot(fixture);
	before = fixture_read(fixture, DATA, &before_len);
	reader = open_reader(fixture);
	assert_non_null(reader);
	begin(reader);
	assert_int_equal(index_find(reader, 7, &offset), INDEX_FOUND);
	index_close(reader, true);
	after = fixture_read(fixture, DATA, &after_len);
	assert_int_equal(before_len, after_len);
	assert_memory_equal(before, after, after_len);
	assert_true(fixture_exists(fixture, CLEAN));
	assert_int_equal(fixture_logged(fixture, "index"), 0);
	free(before);
	free(after);
}

static void
without_an_index_there_is_no_reader(void **state)
{
	struct fixture *fixture = *state;

	assert_no_reader(fixture, ENOENT);
	leave_index(fixture, false);
	fixture_truncate(fixture, DATA, 0);
	assert_no_reader(fixture, ENOENT);
	assert_int_equal(fixture_size(fixture, DATA), 0);
}

static void
an_index_of_another_store_or_boot_is_not_for_a_reader(void **state)
{
	struct fixture *fixture = *state;

	leave_index(fixture, false);
	assert_null(index_open_reader(fixture->dir, fixture->path, OTHER));
	assert_int_equal(errno, ESTALE);
	change_boot(fixture);
	assert_no_reader(fixture, ESTALE);
	assert_true(fixture_exists(fixture, DATA));
}

static void
a_damaged_index_is_not_for_a_reader(void **state)
{
	struct fixture *fixture = *state;
	char junk[20000];

	memset(junk, 'x', sizeof(junk));
	leave_index(fixture, false);
	fixture_truncate(fixture, DATA, fixture_size(fixture, DATA) - 1);
	assert_no_reader(fixture, EBADMSG);
	fixture_write(fixture, DATA, 0, junk, sizeof(junk));
	assert_no_reader(fixture, EBADMSG);
}

static int
die_while_making(void *argument)
{
	const struct death *death = argument;

	shim_exit(SHIM_PWRITE, DATA, death->nth);
	index_open(death->fixture->dir, death->fixture->path, UUID);
	return 3;
}

/* It is one that is to be made, and no damage. */
static void
what_was_left_when_an_index_was_made_is_not_for_a_reader(void **state)
{
	struct fixture *fixture = *state;
	struct death death = { .fixture = fixture };
	struct index *index;

	for (death.nth = 1; fixture_in_child(die_while_making, &death) == 0;
	     death.nth++) {
		index = open_reader(fixture);
		if (index == NULL)
			assert_true(errno == ENOENT || errno == ESTALE);
		else
			assert_int_equal(begin(index).end, 0);
		index_close(index, false);
		fixture_remove_index(fixture);
	}
	assert_true(death.nth > 3);
	fixture_remove_index(fixture);
	for (unsigned nth = 1; nth < death.nth; nth++) {
		shim_fail(SHIM_PWRITE, DATA, nth, 1, ENOSPC);
		index = index_open(fixture->dir, fixture->path, UUID);
		assert_null(index);
		assert_int_equal(errno, ENOSPC);
		shim_reset();
		assert_false(fixture_exists(fixture, DATA));
	}
}

static void
a_reader_is_told_that_another_index_is_in_place_of_its_own(void **state)
{
	struct fixture *fixture = *state;
	struct position found;
	struct index *reader;

	leave_index(fixture, false);
	reader = open_reader(fixture);
	assert_non_null(reader);
	index_discard(fixture->dir);
	leave_index(fixture, false);
	assert_int_equal(index_begin(reader, &found), -1);
	assert_int_equal(errno, ESTALE);
	index_close(reader, false);
}

/* --- Walks --- */

struct seen {
	size_t n;
	int64_t ids[64];
};

static void
see(void *context, int64_t id, uint64_t offset)
{
	struct seen *seen = context;

	assert_true(seen->n < COUNT(seen->ids));
	assert_int_equal(offset, 1000 + (uint64_t)id);
	seen->ids[seen->n++] = id;
}

static void
walks_of_any_length_give_all_in_order(void **state)
{
	static const int64_t ids[] = { INT64_MIN, -2, -1, 0, 1, 7, 255, 256,
		INT64_MAX - 1, INT64_MAX };
	struct fixture *fixture = *state;
	struct index *index = open_index(fixture);

	for (size_t i = COUNT(ids); i > 0; i--)
		enter(index, ids[i - 1], 1000 + (uint64_t)ids[i - 1]);
	for (size_t step = 1; step <= COUNT(ids) + 1; step++) {
		struct seen seen = { 0 };
		int64_t from = INT64_MIN;
		int more;

		do {
			begin(index);
			more = index_walk(index, &from, step, see, &seen);
			index_abort(index);
		} while (more == 1);
		assert_int_equal(more, 0);
		assert_int_equal(seen.n, COUNT(ids));
		assert_memory_equal(seen.ids, ids, sizeof(ids));
	}
	index_close(index, false);
}

static void
a_walk_may_begin_between_two_ids(void **state)
{
	struct index *index = open_index(*state);
	struct seen seen = { 0 };
	int64_t from = 8;

	enter(index, 7, 1007);
	enter(index, 9, 1009);
	begin(index);
	assert_int_equal(index_walk(index, &from, 10, see, &seen), 0);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.ids[0], 9);
	index_close(index, false);
}

static void
a_walk_of_a_new_index_sees_nothing(void **state)
{
	struct index *index = open_index(*state);
	struct seen seen = { 0 };
	int64_t from = INT64_MIN;

	begin(index);
	assert_int_equal(index_walk(index, &from, 10, see, &seen), 0);
	assert_int_equal(seen.n, 0);
	index_close(index, false);
}

/* --- What is damaged is noticed --- */

/* Where the entry of the id stands: its key, then offset and link. */
static size_t
find_entry(const struct fixture *fixture, int64_t id)
{
	uint64_t key = htobe64((uint64_t)id ^ (UINT64_C(1) << 63));
	size_t len, at;
	char *file = fixture_read(fixture, DATA, &len);
	const char *last = NULL, *next = file;

	/* The last copy is the one in use: the others are of pages before. */
	while ((next = memmem(next, len - (size_t)(next - file), &key,
		    sizeof(key))) != NULL)
		last = next++;
	assert_non_null(last);
	at = (size_t)(last - file);
	free(file);
	return at;
}

/* Five entries, entered at once, so that there is one copy of each. */
static struct index *
five(const struct fixture *fixture)
{
	struct index *index = open_index(fixture);
	uint64_t found;

	begin(index);
	for (int64_t id = 10; id <= 50; id += 10)
		assert_int_equal(
		    index_put(index, id, 1000 + (uint64_t)id, &found),
		    INDEX_NEW);
	assert_int_equal(index_commit(index, &covered), 0);
	return index;
}

static void
turn_byte(const struct fixture *fixture, size_t at)
{
	size_t len;
	char *file = fixture_read(fixture, DATA, &len);

	assert_true(at < len);
	file[at] ^= 0x10;
	fixture_write(fixture, DATA, at, file + at, 1);
	free(file);
}

static void
any_byte_of_an_entry_overwritten_hides_no_id(void **state)
{
	struct fixture *fixture = *state;

	for (size_t byte = 0; byte < 20; byte++) {
		struct index *index = five(fixture);
		struct seen seen = { 0 };
		uint64_t offset = 1030;
		int64_t from = 15;

		turn_byte(fixture, find_entry(fixture, 30) + byte);
		begin(index);
		if (index_find(index, 30, &offset) == INDEX_FOUND)
			/* Its record is read and compared, or it is right. */
			assert_true(
			    byte >= 8 && (byte >= 16) == (offset == 1030));
		else
			assert_int_equal(errno, EBADMSG);
		assert_int_equal(index_find(index, 35, &offset), INDEX_ERROR);
		assert_int_equal(errno, EBADMSG);
		/* It says nothing of those that are not beside it. */
		assert_int_equal(index_find(index, 45, &offset), INDEX_NEW);
		assert_int_equal(index_find(index, 55, &offset), INDEX_NEW);
		assert_int_equal(index_find(index, 5, &offset), INDEX_NEW);
		assert_int_equal(index_walk(index, &from, 9, see, &seen), -1);
		assert_int_equal(errno, EBADMSG);
		index_close(index, false);
		index_discard(fixture->dir);
	}
}

static void
a_damaged_state_is_noticed(void **state)
{
	struct fixture *fixture = *state;
	size_t len, at;
	struct position found;

	for (size_t byte = 0; byte < 120; byte++) {
		struct index *index = five(fixture);
		char *file = fixture_read(fixture, DATA, &len);
		const char *last = NULL, *next = file;

		/* It is in both copies of its page: one is of no use now. */
		while ((next = memmem(next, len - (size_t)(next - file), UUID,
			    RECORD_UUID_LEN)) != NULL) {
			last = next++;
			at = (size_t)(last - file) - sizeof(uint32_t);
			turn_byte(fixture, at + byte);
		}
		assert_non_null(last);
		assert_int_equal(index_begin(index, &found), -1);
		assert_int_equal(errno, EBADMSG);
		index_close(index, false);
		free(file);
		index_discard(fixture->dir);
	}
}

static void
a_condemned_index_goes_unless_another_is_in_its_place(void **state)
{
	struct fixture *fixture = *state;
	struct index *old = five(fixture), *young;

	index_condemn(old);
	assert_false(fixture_exists(fixture, DATA));
	young = open_index(fixture);
	index_condemn(old);
	assert_true(fixture_exists(fixture, DATA));
	index_close(old, false);
	index_close(young, false);
}

/* --- What a crash in it does --- */

/* Work for fixture_in_child. */
struct crash {
	const struct fixture *fixture;
	bool reader, begun, replaced;
	void (*crash)(struct index *index);
};

static void
abort_now(struct index *index)
{
	(void)index;
	raise(SIGABRT);
}

static void
let_lmdb_assert(struct index *index)
{
	index_crash_assert(index->env, "");
}

#if !defined(__SANITIZE_ADDRESS__)
static void
look_behind_the_end(struct index *index)
{
	uint64_t offset;

	if (ftruncate(openat(index->dir, DATA, O_RDWR | O_CLOEXEC), 0) == 0)
		index_find(index, 7, &offset);
}
#endif

static int
crash(void *argument)
{
	const struct crash *crash = argument;
	const struct fixture *fixture = crash->fixture;
	struct position found;

	/* cmocka has its own. */
	signal(SIGBUS, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	struct index *index =
	    crash->reader ? open_reader(fixture)
			  : index_open(fixture->dir, fixture->path, UUID);

	if (index == NULL || index_begin(index, &found) < 0)
		return 1;
	if (!crash->begun)
		index_abort(index);
	if (crash->replaced) {
		unlinkat(fixture->dir, DATA, 0);
		close(openat(fixture->dir, DATA, O_CREAT | O_WRONLY, 0600));
	}
	crash->crash(index);
	return 2;
}

static void
a_crash_in_the_index_removes_it_and_ends_the_process(void **state)
{
	static void (*const crashes[])(struct index *) = {
		abort_now,
		let_lmdb_assert,
#if !defined(__SANITIZE_ADDRESS__)
		look_behind_the_end,
#endif
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(crashes); i++) {
		struct crash how = { fixture, false, true, false, crashes[i] };

		leave_index(fixture, false);
		assert_int_equal(fixture_in_child(crash, &how), EX_TEMPFAIL);
		assert_false(fixture_exists(fixture, DATA));
		assert_int_equal(fixture_logged(fixture, "built anew"), i + 1);
	}
}

static void
a_crash_of_a_reader_removes_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct crash how = { fixture, true, true, false, abort_now };

	leave_index(fixture, false);
	assert_int_equal(fixture_in_child(crash, &how), EX_DATAERR);
	assert_true(is_kept(fixture));
}

static void
a_crash_removes_no_index_that_took_the_place_of_ours(void **state)
{
	struct fixture *fixture = *state;
	struct crash how = { fixture, false, true, true, abort_now };

	leave_index(fixture, false);
	assert_int_equal(fixture_in_child(crash, &how), EX_TEMPFAIL);
	assert_true(fixture_exists(fixture, DATA));
}

static void
a_crash_elsewhere_is_a_crash(void **state)
{
	struct fixture *fixture = *state;
	struct crash how = { fixture, false, false, false, abort_now };

	leave_index(fixture, false);
	assert_int_equal(fixture_in_child(crash, &how), 128 + SIGABRT);
	assert_true(is_kept(fixture));
}

/* Put a key and a value into it as LMDB alone would. */
static void
put_raw(const struct fixture *fixture, MDB_val key, MDB_val value)
{
	char *path = NULL;
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	assert_true(asprintf(&path, "%s/index", fixture->path) > 0);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_open(env, path, MDB_NOLOCK, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	assert_int_equal(mdb_put(txn, dbi, &key, &value, 0), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
	free(path);
}

static void
an_index_whose_state_is_of_another_size_is_discarded(void **state)
{
	struct fixture *fixture = *state;
	char name = '\0', text[] = "short";

	leave_index(fixture, false);
	put_raw(fixture, (MDB_val){ 1, &name }, (MDB_val){ 5, text });
	assert_false(is_kept(fixture));
}

static void
expect_damaged(const struct fixture *fixture, int64_t id)
{
	struct index *index = open_index(fixture);
	uint64_t found;

	begin(index);
	assert_int_equal(index_find(index, id, &found), INDEX_ERROR);
	assert_int_equal(errno, EBADMSG);
	index_close(index, false);
}

static void
a_key_of_another_size_is_damage(void **state)
{
	struct fixture *fixture = *state;
	uint64_t order = htobe64(index_order(9));
	char key[sizeof(order) + 1] = "", value[12] = "";

	leave_index(fixture, false);
	memcpy(key, &order, sizeof(order));
	put_raw(fixture, (MDB_val){ sizeof(key), key },
	    (MDB_val){ sizeof(value), value });
	/* It stands behind 9. */
	expect_damaged(fixture, 8);
	expect_damaged(fixture, 1000);
	assert_true(is_kept(fixture));
}

static void
an_entry_of_another_size_is_damage(void **state)
{
	struct fixture *fixture = *state;
	uint64_t order = htobe64(index_order(7));
	char value[11] = "";

	leave_index(fixture, false);
	put_raw(fixture, (MDB_val){ sizeof(order), &order },
	    (MDB_val){ sizeof(value), value });
	expect_damaged(fixture, 7);
	expect_damaged(fixture, 6);
	expect_damaged(fixture, 8);
}

/* Overwrite a number in all copies of the list of free pages that is first. */
static void
spoil_free_list(const struct fixture *fixture, size_t place, uint64_t number)
{
	char *path = NULL, list[64];
	MDB_env *env;
	MDB_txn *txn;
	MDB_cursor *cursor;
	MDB_val key, value;
	size_t len, n = 0;

	assert_true(asprintf(&path, "%s/index", fixture->path) > 0);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(
	    mdb_env_open(env, path, MDB_NOLOCK | MDB_RDONLY, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
	assert_int_equal(mdb_cursor_open(txn, 0, &cursor), 0);
	assert_int_equal(mdb_cursor_get(cursor, &key, &value, MDB_FIRST), 0);
	assert_in_range(value.mv_size, 2 * sizeof(number), sizeof(list));
	memcpy(list, value.mv_data, value.mv_size);
	mdb_cursor_close(cursor);
	mdb_txn_abort(txn);
	mdb_env_close(env);
	free(path);
	char *file = fixture_read(fixture, DATA, &len);
	for (size_t at = 0; at + value.mv_size <= len; at++) {
		if (memcmp(file + at, list, value.mv_size) != 0)
			continue;
		fixture_write(fixture, DATA, at + place * sizeof(number),
		    &number, sizeof(number));
		n++;
	}
	free(file);
	assert_true(n > 0);
}

/* LMDB would ask for endless memory, or overwrite what it has. */
static void
a_wrong_list_of_free_pages_is_damage(void **state)
{
	static const uint64_t numbers[] = { UINT64_MAX, UINT64_C(1) << 62,
		UINT64_C(1) << 31, 512 };
	struct fixture *fixture = *state;

	for (size_t i = 0; i < 2 * COUNT(numbers); i++) {
		leave_index(fixture, false);
		assert_true(is_kept(fixture));
		/* Their number, or the first of them. */
		spoil_free_list(fixture, i % 2, numbers[i / 2]);
		assert_no_reader(fixture, EBADMSG);
		assert_false(is_kept(fixture));
		index_discard(fixture->dir);
	}
	/* A list of 4 bytes: its size stands before its key, as LMDB has it. */
	leave_index(fixture, false);
	spoil_free_list(fixture, (size_t)-2, 4 | UINT64_C(8) << 48);
	assert_no_reader(fixture, EBADMSG);
}

static void
a_path_longer_than_any_is_refused(void **state)
{
	struct fixture *fixture = *state;
	char path[4096];

	memset(path, '/', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	memcpy(path, fixture->path, strlen(fixture->path));
	leave_index(fixture, false);
	assert_null(index_open(fixture->dir, path, UUID));
	assert_int_equal(errno, ENAMETOOLONG);
}

/* A sanitizer has more mapped already than is allowed here. */
static int
open_in_little_space(void *argument)
{
	const struct fixture *fixture = argument;
	const struct rlimit limit = { (rlim_t)1 << 30, (rlim_t)1 << 30 };

	if (setrlimit(RLIMIT_AS, &limit) < 0)
		return 1;
	return index_open(fixture->dir, fixture->path, UUID) != NULL ||
	       errno != ENOMEM;
}

static void
an_index_is_not_to_blame_for_a_limit_on_memory(void **state)
{
	struct fixture *fixture = *state;

	if (SANITIZED)
		skip();
	leave_index(fixture, false);
	assert_int_equal(fixture_in_child(open_in_little_space, fixture), 0);
	assert_int_equal(fixture_logged(fixture, "building it anew"), 0);
	assert_true(is_kept(fixture));
}

#define PAGE_BYTES 4096
#define PAGE_BRANCH 1
#define PAGE_HEAD 16
#define ENTRIES 1000

/* Let the second of the pages below a branch page be one that is not there. */
static void
lose_second_leaf(const struct fixture *fixture)
{
	static const char nowhere[4] = "\xff\xff\xff\x7f";
	size_t len;
	char *file = fixture_read(fixture, DATA, &len);
	unsigned found = 0;

	for (size_t page = 2 * PAGE_BYTES; page < len; page += PAGE_BYTES) {
		uint16_t flags, node;

		memcpy(&flags, file + page + 10, sizeof(flags));
		memcpy(&node, file + page + PAGE_HEAD + sizeof(node),
		    sizeof(node));
		if (flags != PAGE_BRANCH)
			continue;
		fixture_write(
		    fixture, DATA, page + node, nowhere, sizeof(nowhere));
		found++;
	}
	assert_int_equal(found, 1);
	free(file);
}

static void
see_right(void *context, int64_t id, uint64_t offset)
{
	int64_t *next = context;

	assert_int_equal(id, *next);
	assert_int_equal(offset, 1000 + (uint64_t)id);
	++*next;
}

static void
a_page_that_is_not_there_is_damage_to_who_needs_it(void **state)
{
	struct fixture *fixture = *state;
	struct index *index = open_index(fixture);
	unsigned whole = 0, damaged = 0;
	uint64_t found;

	begin(index);
	for (int64_t id = 0; id < ENTRIES; id++)
		assert_int_equal(
		    index_put(index, id, 1000 + (uint64_t)id, &found),
		    INDEX_NEW);
	assert_int_equal(index_commit(index, &covered), 0);
	lose_second_leaf(fixture);
	/* From within the page before, from within, and from behind it. */
	for (int64_t id = 0; id < ENTRIES; id++) {
		int64_t from = id, next = id;

		begin(index);
		if (index_walk(index, &from, ENTRIES, see_right, &next) == 0) {
			assert_int_equal(next, ENTRIES);
			whole++;
		} else {
			assert_int_equal(errno, EBADMSG);
			damaged++;
		}
		index_abort(index);
	}
	assert_true(whole > 0 && damaged > 0);
	index_close(index, false);
}

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
		TEST(
		    an_index_made_where_the_file_alone_was_removed_is_not_clean),
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
		TEST(an_index_that_is_opened_again_has_what_it_had),
		TEST(an_index_whose_file_is_gone_is_not_opened_again),
		TEST(only_its_owner_may_read_the_index),
		TEST(an_index_that_cannot_be_discarded_is_not_used),
		TEST(a_commit_that_fails_enters_nothing),
		TEST(
		    a_process_that_dies_in_its_commit_leaves_the_index_as_it_was),
		TEST(a_reader_finds_what_is_there_and_nothing_else),
		TEST(a_reader_sees_what_was_entered_since_it_was_opened),
		TEST(a_reader_changes_no_file),
		TEST(without_an_index_there_is_no_reader),
		TEST(an_index_of_another_store_or_boot_is_not_for_a_reader),
		TEST(a_damaged_index_is_not_for_a_reader),
		TEST(what_was_left_when_an_index_was_made_is_not_for_a_reader),
		TEST(
		    a_reader_is_told_that_another_index_is_in_place_of_its_own),
		TEST(walks_of_any_length_give_all_in_order),
		TEST(a_walk_may_begin_between_two_ids),
		TEST(a_walk_of_a_new_index_sees_nothing),
		TEST(any_byte_of_an_entry_overwritten_hides_no_id),
		TEST(a_damaged_state_is_noticed),
		TEST(a_condemned_index_goes_unless_another_is_in_its_place),
		TEST(a_crash_in_the_index_removes_it_and_ends_the_process),
		TEST(a_crash_of_a_reader_removes_nothing),
		TEST(a_crash_removes_no_index_that_took_the_place_of_ours),
		TEST(a_crash_elsewhere_is_a_crash),
		TEST(an_index_whose_state_is_of_another_size_is_discarded),
		TEST(a_key_of_another_size_is_damage),
		TEST(an_entry_of_another_size_is_damage),
		TEST(a_wrong_list_of_free_pages_is_damage),
		TEST(a_path_longer_than_any_is_refused),
		TEST(an_index_is_not_to_blame_for_a_limit_on_memory),
		TEST(a_page_that_is_not_there_is_damage_to_who_needs_it),
	};

	return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
