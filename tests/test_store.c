/*
 * store: what is answered, what is on the disk afterwards, and that the two
 * agree whatever fails and whoever else uses the store.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "fault_shim.h"
#include "ground/clock.h"
#include "index.h"
#include "journal.h"
#include "lock.h"
#include "store_fixture.h"

static const int64_t one_to_nine[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };

static void
expect_put(
    struct store *store, int64_t id, const char *name, enum store_result result)
{
	struct outcome outcome = fixture_put(store, id, name);

	assert_int_equal(outcome.result, result);
	assert_int_equal(outcome.status, result == STORE_FAILED ? -1 : 0);
}

#define UNTOLD ((enum store_result)99)

/* What is so when the results are told. */
struct told {
	const struct store_item *items;
	size_t n;
	unsigned times, synced, index_writes;
	enum store_result first;
};

static void
hear(void *argument)
{
	struct told *told = argument;

	told->times++;
	told->synced = shim_count(SHIM_FDATASYNC);
	told->index_writes = shim_count(SHIM_PWRITE);
	told->first = told->items[0].result;
	for (size_t i = 0; i < told->n; i++)
		assert_int_not_equal(told->items[i].result, UNTOLD);
}

/*
 * Commit plants as one batch, at least one, and hear the results once; `names`
 * may be NULL.
 */
static int
put_telling(struct store *store, const int64_t *ids, const char *const *names,
    size_t n, enum store_result *results, struct told *told)
{
	struct plant *plants = calloc(n, sizeof(*plants));
	struct store_item *items = calloc(n, sizeof(*items));

	if (plants == NULL || items == NULL)
		abort();
	for (size_t i = 0; i < n; i++) {
		plants[i] =
		    fixture_plant(ids[i], names == NULL ? NULL : names[i]);
		items[i].plant = &plants[i];
		items[i].by = "tester";
		items[i].result = UNTOLD;
	}
	*told = (struct told){ .items = items, .n = n };
	int status = store_commit_telling(store, items, n, hear, told);
	assert_int_equal(told->times, 1);
	assert_int_equal(told->first, items[0].result);
	for (size_t i = 0; i < n; i++) {
		results[i] = items[i].result;
		plant_done(&plants[i]);
	}
	free(plants);
	free(items);
	return status;
}

static int
put_batch(struct store *store, const int64_t *ids, const char *const *names,
    size_t n, enum store_result *results)
{
	struct told told;

	return put_telling(store, ids, names, n, results, &told);
}

static void
a_new_plant_is_created_and_stays(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	expect_put(store, 1, NULL, STORE_CREATED);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
}

static void
a_plant_is_synced_before_it_is_acknowledged(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
	expect_put(store, 1, NULL, STORE_CREATED);
	assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	store_close(store);
}

/* That would make a sync slower; see journal_check. */
static void
a_commit_asks_no_file_that_it_writes_for_its_times(void **state)
{
	static const char *const files[] = { JOURNAL_NAME, "data.mdb" };
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	for (size_t i = 0; i < COUNT(files); i++) {
		shim_fail(SHIM_FSTAT, files[i], 1, 0, 0);
		shim_fail(SHIM_FSTATAT, files[i], 1, 0, 0);
		fixture_create(store, one_to_nine[i]);
		assert_int_equal(shim_count(SHIM_FSTAT), 0);
		assert_int_equal(shim_count(SHIM_FSTATAT), 0);
	}
	store_close(store);
}

static void
a_result_is_told_after_the_sync_and_before_the_index_is_written(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	enum store_result result;
	struct told told;

	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
	shim_fail(SHIM_PWRITE, "data.mdb", 1, 0, 0);
	put_telling(store, one_to_nine, NULL, 1, &result, &told);
	assert_int_equal(result, STORE_CREATED);
	assert_int_equal(told.synced, 1);
	assert_int_equal(told.index_writes, 0);
	assert_true(shim_count(SHIM_PWRITE) > 0);
	shim_reset();
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
}

/* That it is once, put_telling asserts. */
static void
a_result_is_told_once_whatever_it_is(void **state)
{
	const int64_t *one = one_to_nine, *two = one_to_nine + 1;
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	enum store_result result;

	fixture_create(store, 1);
	put_batch(store, one, NULL, 1, &result);
	assert_int_equal(result, STORE_SAME);
	shim_fail(SHIM_PWRITEV, JOURNAL_NAME, 1, 1, ENOSPC);
	put_batch(store, two, NULL, 1, &result);
	assert_int_equal(result, STORE_FULL);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	for (int i = 0; i < 2; i++) {
		put_batch(store, two, NULL, 1, &result);
		assert_int_equal(result, STORE_FAILED);
	}
	store_close(store);
}

static void
the_same_plant_again_is_the_same_and_stored_once(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	expect_put(store, 1, NULL, STORE_CREATED);
	expect_put(store, 1, NULL, STORE_SAME);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
}

static void
another_plant_with_a_stored_id_is_a_conflict_and_not_stored(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	expect_put(store, 1, NULL, STORE_CREATED);
	expect_put(store, 1, "other", STORE_CONFLICT);
	expect_put(store, 1, NULL, STORE_SAME);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
}

static void
an_empty_batch_is_fine(void **state)
{
	struct store *store = fixture_open(*state, false);

	assert_int_equal(store_commit(store, NULL, 0), 0);
	store_close(store);
}

static void
a_batch_is_stored_in_its_order_with_one_sync(void **state)
{
	static const int64_t ids[] = { 5, -3, 99, 1 };
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);
	enum store_result results[COUNT(ids)];

	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
	assert_int_equal(put_batch(store, ids, NULL, COUNT(ids), results), 0);
	assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	for (size_t i = 0; i < COUNT(ids); i++)
		assert_int_equal(results[i], STORE_CREATED);
	store_close(store);
	fixture_reopen_and_expect(fixture, ids, COUNT(ids));
}

/*
 * Every way in which the plants a and b of one id can follow each other, three
 * in a batch, in a new store and behind one that is stored already.
 */
static void
repeats_within_a_batch_refer_to_the_first(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);
	enum store_result results[3];
	int64_t id = 0;

	for (int stored = 0; stored < 3; stored++)
		for (unsigned way = 0; way < 8; way++) {
			const char *names[3], *first;
			const int64_t ids[] = { id + 1, id + 1, id + 1 };

			id++;
			for (unsigned i = 0; i < 3; i++)
				names[i] = way >> i & 1 ? "a" : "b";
			first = stored == 1   ? "a"
				: stored == 2 ? "b"
					      : names[0];
			if (stored > 0)
				expect_put(store, id, first, STORE_CREATED);
			assert_int_equal(
			    put_batch(store, ids, names, 3, results), 0);
			for (int i = 0; i < 3; i++)
				assert_int_equal(results[i],
				    stored == 0 && i == 0 ? STORE_CREATED
				    : strcmp(names[i], first) == 0
					? STORE_SAME
					: STORE_CONFLICT);
			expect_put(store, id, first, STORE_SAME);
		}
	store_close(store);
	assert_int_equal(fixture_lines(fixture), (size_t)id + 1);
}

static void
repeats_among_others_in_a_batch_store_each_id_once(void **state)
{
	static const int64_t ids[] = { 1, 2, 1, 3, 2, 1, 4 };
	static const bool created[] = { 1, 1, 0, 1, 0, 0, 1 };
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);
	enum store_result results[COUNT(ids)];

	assert_int_equal(put_batch(store, ids, NULL, COUNT(ids), results), 0);
	for (size_t i = 0; i < COUNT(ids); i++)
		assert_int_equal(
		    results[i], created[i] ? STORE_CREATED : STORE_SAME);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 4);
}

static void
ids_at_the_bounds_are_ids_like_others(void **state)
{
	static const int64_t ids[] = { INT64_MAX, INT64_MIN, 0, -1, 1,
		INT64_MAX - 1, INT64_MIN + 1 };
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	for (size_t i = 0; i < COUNT(ids); i++)
		fixture_create(store, ids[i]);
	store_close(store);
	fixture_reopen_and_expect(fixture, ids, COUNT(ids));
}

static void
a_batch_larger_than_an_append_is_stored_whole(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	size_t n = 12, len = (size_t)1 << 20;
	char *name = malloc(len);
	const char *names[12];
	int64_t ids[12];
	enum store_result results[12];

	assert_non_null(name);
	memset(name, 'x', len - 100);
	name[len - 100] = '\0';
	for (size_t i = 0; i < n; i++) {
		ids[i] = (int64_t)i;
		names[i] = name;
	}
	shim_fail(SHIM_PWRITEV, JOURNAL_NAME, 1, 0, 0);
	assert_int_equal(put_batch(store, ids, names, n, results), 0);
	assert_int_equal(shim_count(SHIM_PWRITEV), 4);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(results[i], STORE_CREATED);
	assert_int_equal(put_batch(store, ids, names, n, results), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(results[i], STORE_SAME);
	free(name);
	store_close(store);
	fixture_expect(fixture, ids, n);
}

static void
two_handles_see_each_others_plants_at_once(void **state)
{
	struct fixture *fixture = *state;
	struct store *one = fixture_open(fixture, true);
	struct store *two = fixture_open(fixture, false);

	for (size_t i = 0; i < 9; i++) {
		fixture_create(i % 2 == 0 ? one : two, one_to_nine[i]);
		expect_put(
		    i % 2 == 0 ? two : one, one_to_nine[i], NULL, STORE_SAME);
		expect_put(i % 2 == 0 ? two : one, one_to_nine[i], "other",
		    STORE_CONFLICT);
	}
	store_close(one);
	store_close(two);
	fixture_reopen_and_expect(fixture, one_to_nine, 9);
}

/* One of several who store the same plants, each in another order. */
struct rival {
	const struct fixture *fixture;
	struct store *store;
	int number;
	int created; /* told through the exit status or here */
};

#define RIVALS 4
#define RIVAL_PLANTS 48

static int
store_all(struct rival *rival)
{
	int created = 0;

	for (int i = 0; i < RIVAL_PLANTS; i++) {
		int64_t id = (i * (2 * rival->number + 5) + rival->number) %
			     RIVAL_PLANTS;
		struct outcome outcome = fixture_put(rival->store, id, NULL);

		if (outcome.status != 0 || (outcome.result != STORE_CREATED &&
					       outcome.result != STORE_SAME))
			return 255;
		created += outcome.result == STORE_CREATED;
	}
	return created;
}

static int
store_all_in_process(void *argument)
{
	struct rival *rival = argument;
	struct store_options options = { .dir = rival->fixture->path,
		.prepare = rival->number % 2 == 0 };
	int status;

	rival->store = store_open(&options, &status);
	if (rival->store == NULL)
		return 255;
	int created = store_all(rival);
	store_close(rival->store);
	return created;
}

static void
processes_that_store_the_same_plants_create_each_once(void **state)
{
	struct fixture *fixture = *state;
	struct rival rivals[RIVALS];
	pid_t pids[RIVALS];
	int status, created = 0;

	for (int i = 0; i < RIVALS; i++) {
		rivals[i] = (struct rival){ .fixture = fixture, .number = i };
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0)
			_exit(store_all_in_process(&rivals[i]));
	}
	for (int i = 0; i < RIVALS; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFEXITED(status));
		created += WEXITSTATUS(status);
	}
	assert_int_equal(created, RIVAL_PLANTS);
	struct store *store = fixture_open(fixture, false);
	for (int64_t id = 0; id < RIVAL_PLANTS; id++)
		expect_put(store, id, NULL, STORE_SAME);
	store_close(store);
	/* One order, without gaps: the journal is whole. */
	assert_true(fixture_lines(fixture) >= RIVAL_PLANTS);
}

static void *
store_all_in_thread(void *argument)
{
	struct rival *rival = argument;

	rival->created = store_all(rival);
	return NULL;
}

static void
threads_that_store_the_same_plants_create_each_once(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	struct rival rivals[RIVALS];
	pthread_t threads[RIVALS];
	int created = 0;

	for (int i = 0; i < RIVALS; i++) {
		rivals[i] = (struct rival){ .store = store, .number = i };
		assert_int_equal(pthread_create(&threads[i], NULL,
				     store_all_in_thread, &rivals[i]),
		    0);
	}
	for (int i = 0; i < RIVALS; i++) {
		pthread_join(threads[i], NULL);
		created += rivals[i].created;
	}
	assert_int_equal(created, RIVAL_PLANTS);
	store_close(store);
	assert_int_equal(fixture_lines(fixture), RIVAL_PLANTS + 1);
}

static void
a_full_disk_stores_nothing_and_passes_by_itself(void **state)
{
	struct fixture *fixture = *state;

	for (int prepare = 0; prepare < 2; prepare++) {
		struct store *store = fixture_open(fixture, prepare);

		fixture_create(store, 1 + 2 * prepare);
		shim_fail(SHIM_PWRITEV, JOURNAL_NAME, 1, 99, ENOSPC);
		expect_put(store, 2 + 2 * prepare, NULL, STORE_FULL);
		expect_put(store, 1, NULL, STORE_SAME);
		expect_put(store, 1, "other", STORE_CONFLICT);
		shim_reset();
		fixture_create(store, 2 + 2 * prepare);
		store_close(store);
	}
	fixture_reopen_and_expect(fixture, one_to_nine, 4);
}

static void
a_disk_that_fills_up_in_the_middle_of_a_batch_stores_none_of_it(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);
	enum store_result results[3];

	shim_shorten(SHIM_PWRITEV, JOURNAL_NAME, 1, 200);
	shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 1, ENOSPC);
	assert_int_equal(put_batch(store, one_to_nine, NULL, 3, results), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(results[i], STORE_FULL);
	fixture_expect(fixture, NULL, 0);
	assert_int_equal(put_batch(store, one_to_nine, NULL, 3, results), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(results[i], STORE_CREATED);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 3);
}

static void
a_full_disk_is_said_once_until_it_has_passed(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	shim_fail(SHIM_PWRITEV, JOURNAL_NAME, 1, 99, ENOSPC);
	for (int i = 0; i < 5; i++)
		expect_put(store, 1, NULL, STORE_FULL);
	assert_int_equal(fixture_logged(fixture, "make room"), 1);
	shim_reset();
	fixture_create(store, 1);
	shim_fail(SHIM_PWRITEV, JOURNAL_NAME, 1, 99, ENOSPC);
	expect_put(store, 2, NULL, STORE_FULL);
	assert_int_equal(fixture_logged(fixture, "make room"), 2);
	shim_reset();
	store_close(store);
}

static void
a_failed_sync_fails_the_store_until_it_is_opened_again(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	expect_put(store, 2, NULL, STORE_FAILED);
	/* Although the next would succeed, and although it is stored. */
	expect_put(store, 3, NULL, STORE_FAILED);
	expect_put(store, 1, NULL, STORE_FAILED);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 2);
}

static void
a_failed_sync_fails_the_store_for_everybody(void **state)
{
	struct fixture *fixture = *state;
	struct store *one = fixture_open(fixture, true);
	struct store *two = fixture_open(fixture, false);

	fixture_create(one, 1);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	expect_put(one, 2, NULL, STORE_FAILED);
	expect_put(two, 3, NULL, STORE_FAILED);
	expect_put(two, 1, NULL, STORE_FAILED);
	store_close(one);
	store_close(two);
}

static void
who_still_has_a_failed_journal_open_fails_after_it_was_renewed(void **state)
{
	struct fixture *fixture = *state;
	struct store *one = fixture_open(fixture, true);
	struct store *two = fixture_open(fixture, true);

	fixture_create(one, 1);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	expect_put(one, 2, NULL, STORE_FAILED);
	store_close(one);
	one = fixture_open(fixture, true);
	fixture_create(one, 3);
	expect_put(two, 4, NULL, STORE_FAILED);
	store_close(two);
	store_close(one);
	fixture_reopen_and_expect(fixture, one_to_nine, 3);
}

static void
a_failed_sync_is_not_forgotten_when_the_mark_cannot_be_set(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	shim_fail(SHIM_PWRITE, "/lock", 1, 1, EIO);
	expect_put(store, 2, NULL, STORE_FAILED);
	expect_put(store, 2, NULL, STORE_FAILED);
	assert_int_equal(fixture_logged(fixture, "stop all its processes"), 1);
	store_close(store);
}

static void
a_write_error_fails_the_store_and_loses_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	shim_fail(SHIM_PWRITEV, JOURNAL_NAME, 1, 9, EIO);
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	shim_reset();
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
	store = fixture_open(fixture, false);
	fixture_create(store, 2);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 2);
}

static void
a_write_that_cannot_be_taken_back_fails_the_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	shim_shorten(SHIM_PWRITEV, JOURNAL_NAME, 1, 20);
	shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 1, ENOSPC);
	shim_fail(SHIM_FTRUNCATE, JOURNAL_NAME, 1, 1, EIO);
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	shim_reset();
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
}

static void
plants_count_as_stored_when_only_the_index_cannot_be_written(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	shim_fail(SHIM_PWRITE, "data.mdb", 1, 1, ENOSPC);
	shim_fail(SHIM_WRITEV, "data.mdb", 1, 1, ENOSPC);
	expect_put(store, 2, NULL, STORE_CREATED);
	assert_int_equal(fixture_logged(fixture, "index: cannot write"), 1);
	shim_reset();
	expect_put(store, 2, NULL, STORE_SAME);
	fixture_create(store, 3);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 3);
}

static void
an_index_that_cannot_be_written_for_long_loses_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	shim_fail(SHIM_PWRITE, "data.mdb", 1, 99, ENOSPC);
	shim_fail(SHIM_WRITEV, "data.mdb", 1, 99, ENOSPC);
	expect_put(store, 2, NULL, STORE_CREATED);
	for (int i = 0; i < 3; i++)
		assert_int_not_equal(
		    fixture_put(store, 3, NULL).result, STORE_CREATED);
	shim_reset();
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 2);
}

static void
an_index_that_points_anywhere_is_not_believed(void **state)
{
	static const uint64_t offsets[] = { 0, 1, RECORD_HEADER_LEN,
		RECORD_HEADER_LEN + 1, 100000, UINT64_C(1) << 40, UINT64_MAX };
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(offsets); i++) {
		struct store *store = fixture_open(fixture, false);
		struct position covered;
		struct journal journal;
		uint64_t found;

		fixture_put(store, 1, NULL);
		assert_int_equal(journal_open(&journal, fixture->dir, false),
		    JOURNAL_OPENED);
		struct index *index =
		    index_open(fixture->dir, fixture->path, journal.uuid);
		assert_non_null(index);
		assert_int_equal(index_begin(index, &covered), 0);
		assert_int_equal(
		    index_put(index, 2, offsets[i], &found), INDEX_NEW);
		assert_int_equal(index_commit(index, &covered), 0);
		index_close(index, false);
		journal_close(&journal);
		expect_put(store, 2, NULL, STORE_FAILED);
		store_close(store);
		/* The index is gone, and with it the lie. */
		fixture_reopen_and_expect(fixture, one_to_nine, 1);
	}
}

static void
a_lock_that_is_held_is_waited_for_up_to_the_deadline(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);
	struct lock lock;
	int64_t begun;

	fixture_create(store, 1);
	assert_int_equal(lock_open(&lock, fixture->dir), 0);
	assert_int_equal(lock_acquire(&lock, 0), 0);
	begun = clock_ms(CLOCK_MONOTONIC);
	expect_put(store, 2, NULL, STORE_BUSY);
	assert_in_range(clock_ms(CLOCK_MONOTONIC) - begun,
	    STORE_LOCK_TIMEOUT_MS, 2 * STORE_LOCK_TIMEOUT_MS);
	/* Who comes behind is not told to wait as long again. */
	begun = clock_ms(CLOCK_MONOTONIC);
	expect_put(store, 2, NULL, STORE_BUSY);
	assert_in_range(
	    clock_ms(CLOCK_MONOTONIC) - begun, 0, STORE_LOCK_TIMEOUT_MS / 2);
	assert_int_equal(fixture_logged(fixture, "held by another"), 1);
	store_idle(store);
	lock_close(&lock);
	fixture_create(store, 2);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 2);
}

static void
a_journal_removed_while_open_fails_the_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	fixture_remove(fixture, JOURNAL_NAME);
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	fixture_refused(fixture, EX_CONFIG);
	assert_int_equal(fixture_logged(fixture, "was removed"), 1);
}

static void
a_journal_replaced_while_open_fails_the_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	size_t len;

	fixture_create(store, 1);
	char *bytes = fixture_read(fixture, JOURNAL_NAME, &len);
	fixture_remove(fixture, JOURNAL_NAME);
	fixture_write(fixture, JOURNAL_NAME, 0, bytes, len);
	free(bytes);
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	/* The copy is as good as the file was. */
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
}

static void
what_the_system_refuses_at_the_start_is_told_with_its_remedy(void **state)
{
	static const struct {
		int error, status;
		const char *told;
	} rows[] = {
		{ EACCES, EX_NOPERM, "give the directory and all in it" },
		{ EPERM, EX_NOPERM, "give the directory and all in it" },
		{ EROFS, EX_NOPERM, "mount it for writing" },
		{ EIO, EX_IOERR, "check the disk" },
		{ ENOSPC, EX_TEMPFAIL, "make room" },
		{ EDQUOT, EX_TEMPFAIL, "make room" },
		{ EFBIG, EX_TEMPFAIL, "make room" },
		{ ENFILE, EX_TEMPFAIL, "Too many open files" },
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		shim_fail(SHIM_FSYNC, NULL, 1, 1, rows[i].error);
		fixture_refused(fixture, rows[i].status);
		shim_reset();
		assert_int_equal(
		    fixture_logged(fixture, "cannot make it: "), i + 1);
		assert_true(fixture_logged(fixture, rows[i].told) > 0);
	}
}

/* Another one may be put in its place, and what is in this would be lost. */
static void
a_directory_moved_while_open_fails_the_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	char moved[sizeof(fixture->path) + 8];

	snprintf(moved, sizeof(moved), "%s.moved", fixture->path);
	fixture_create(store, 1);
	assert_int_equal(rename(fixture->path, moved), 0);
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	assert_int_equal(rename(moved, fixture->path), 0);
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
}

static void
a_journal_truncated_while_open_fails_the_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	fixture_truncate(fixture, JOURNAL_NAME, RECORD_HEADER_LEN);
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	fixture_refused(fixture, EX_DATAERR);
}

static void
a_lock_file_removed_while_open_fails_the_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	fixture_remove(fixture, "lock");
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
}

static void
a_lock_file_that_a_start_made_anew_is_the_one_that_all_use(void **state)
{
	struct fixture *fixture = *state;
	struct store *before = fixture_open(fixture, true), *after;
	struct lock lock;

	fixture_create(before, 1);
	fixture_remove(fixture, "lock");
	after = fixture_open(fixture, true);
	fixture_create(after, 2);
	/* Who had it open before knows what the others store, */
	expect_put(before, 2, NULL, STORE_SAME);
	fixture_create(before, 3);
	expect_put(after, 3, NULL, STORE_SAME);
	/* and waits for those who hold the new one. */
	assert_int_equal(lock_open(&lock, fixture->dir), 0);
	assert_int_equal(lock_acquire(&lock, 0), 0);
	size_t lines = fixture_lines(fixture);
	store_idle(before);
	assert_int_equal(fixture_lines(fixture), lines);
	lock_close(&lock);
	store_close(before);
	store_close(after);
	fixture_reopen_and_expect(fixture, one_to_nine, 3);
}

static void
a_directory_that_is_gone_fails_the_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_remove_index(fixture);
	fixture_remove(fixture, "lock");
	fixture_remove(fixture, JOURNAL_NAME);
	assert_int_equal(rmdir(fixture->path), 0);
	expect_put(store, 1, NULL, STORE_FAILED);
	store_close(store);
	assert_int_equal(mkdir(fixture->path, 0700), 0);
}

static void
an_idle_store_gets_exactly_one_closing_line(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	assert_int_equal(fixture_lines(fixture), 1);
	for (int i = 0; i < 3; i++)
		store_idle(store);
	assert_int_equal(fixture_lines(fixture), 2);
	store_close(store);
	assert_int_equal(fixture_lines(fixture), 2);
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
	assert_int_equal(fixture_lines(fixture), 2);
}

static void
an_idle_store_whose_index_failed_gets_its_closing_line(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	store_idle(store);
	assert_int_equal(fixture_lines(fixture), 2);
	shim_fail(SHIM_PWRITE, "data.mdb", 1, 99, ENOSPC);
	shim_fail(SHIM_WRITEV, "data.mdb", 1, 99, ENOSPC);
	fixture_create(store, 2);
	shim_reset();
	store_idle(store);
	assert_int_equal(fixture_lines(fixture), 4);
	store_close(store);
	assert_int_equal(fixture_lines(fixture), 4);
}

static void
two_idle_processes_write_one_closing_line(void **state)
{
	struct fixture *fixture = *state;
	struct store *one = fixture_open(fixture, true);
	struct store *two = fixture_open(fixture, true);

	fixture_create(one, 1);
	expect_put(two, 1, NULL, STORE_SAME);
	store_idle(two);
	store_idle(one);
	assert_int_equal(fixture_lines(fixture), 2);
	store_close(one);
	store_close(two);
	assert_int_equal(fixture_lines(fixture), 2);
}

static void
an_idle_store_that_finds_its_journal_gone_says_so_once(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	fixture_remove(fixture, JOURNAL_NAME);
	for (int i = 0; i < 3; i++)
		store_idle(store);
	assert_int_equal(fixture_logged(fixture, "was removed"), 1);
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	assert_int_equal(fixture_logged(fixture, "was removed"), 1);
}

static void
a_closing_line_whose_sync_fails_fails_the_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	store_idle(store);
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
	assert_true(fixture_exists_like(fixture, JOURNAL_NAME ".failed-"));
}

static void
a_closing_line_that_finds_no_room_is_left_out(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	shim_shorten(SHIM_PWRITEV, JOURNAL_NAME, 1, 10);
	shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 1, ENOSPC);
	store_idle(store);
	assert_int_equal(fixture_lines(fixture), 1);
	shim_reset();
	fixture_create(store, 2);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_nine, 2);
}

static void
closing_puts_the_last_plant_below_the_watermark(void **state)
{
	struct fixture *fixture = *state;

	for (int prepare = 0; prepare < 2; prepare++) {
		struct store *store = fixture_open(fixture, prepare);
		size_t lines = fixture_lines(fixture), size;

		fixture_create(store, 1 + prepare);
		store_close(store);
		assert_int_equal(fixture_lines(fixture), lines + 2);
		size = fixture_size(fixture, JOURNAL_NAME);
		char *bytes = fixture_read(fixture, JOURNAL_NAME, &size);
		assert_null(strstr(bytes, "\n\n"));
		assert_null(strstr(strrchr(bytes, '{'), "plant"));
		free(bytes);
	}
	fixture_reopen_and_expect(fixture, one_to_nine, 2);
}

static void
closing_a_store_in_which_nothing_was_stored_writes_nothing(void **state)
{
	struct fixture *fixture = *state;

	for (int i = 0; i < 4; i++) {
		store_close(fixture_open(fixture, i % 2 == 0));
		assert_int_equal(
		    fixture_size(fixture, JOURNAL_NAME), RECORD_HEADER_LEN);
	}
}

static void
room_is_written_ahead_and_trimmed_at_the_close(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	assert_true(fixture_size(fixture, JOURNAL_NAME) > JOURNAL_ROOM_BYTES);
	store_close(store);
	assert_true(fixture_size(fixture, JOURNAL_NAME) < 1000);
	fixture_reopen_and_expect(fixture, one_to_nine, 1);
}

static void
a_store_that_stays_goes_on_after_another_trimmed_the_room(void **state)
{
	struct fixture *fixture = *state;
	struct store *one = fixture_open(fixture, true);
	struct store *two = fixture_open(fixture, true);

	fixture_create(one, 1);
	fixture_create(two, 2);
	store_close(two);
	fixture_create(one, 3);
	store_close(one);
	fixture_reopen_and_expect(fixture, one_to_nine, 3);
}

static void
closing_no_store_is_fine(void **state)
{
	(void)state;
	store_close(NULL);
}

static void
a_missing_directory_is_a_matter_of_configuration(void **state)
{
	struct store_options options = { .dir = "/nonexistent/store" };
	int status;

	(void)state;
	assert_null(store_open(&options, &status));
	assert_int_equal(status, EX_CONFIG);
}

static void
a_journal_that_vanished_is_not_replaced_by_an_empty_one(void **state)
{
	struct fixture *fixture = *state;

	store_close(fixture_open(fixture, false));
	fixture_remove(fixture, JOURNAL_NAME);
	fixture_refused(fixture, EX_CONFIG);
	assert_false(fixture_exists(fixture, JOURNAL_NAME));
}

static void
a_journal_of_another_store_is_refused(void **state)
{
	struct fixture *fixture = *state;

	store_close(fixture_open(fixture, false));
	fixture_remove(fixture, JOURNAL_NAME);
	assert_int_equal(journal_create(fixture->dir), 0);
	fixture_refused(fixture, EX_CONFIG);
	fixture_remove(fixture, "lock");
	store_close(fixture_open(fixture, false));
}

static void
a_journal_of_another_version_is_refused(void **state)
{
	static const char header[] = "{\"plant-store\":2,\"any\":true}\n";
	struct fixture *fixture = *state;

	fixture_write(fixture, JOURNAL_NAME, 0, header, strlen(header));
	fixture_refused(fixture, EX_CONFIG);
}

static void
a_journal_without_a_header_is_damaged(void **state)
{
	struct fixture *fixture = *state;

	fixture_write(fixture, JOURNAL_NAME, 0, "", 0);
	fixture_refused(fixture, EX_DATAERR);
}

/*
 * Fail each system call of a commit, one after another: what was acknowledged
 * is there afterwards, once, and the store serves again.
 */
static void
a_commit_that_fails_anywhere_keeps_what_was_acknowledged(void **state)
{
	static const int errors[] = { EIO, ENOSPC };
	struct fixture *fixture = *state;
	int64_t id = 0;

	for (int prepare = 0; prepare < 2; prepare++)
		for (size_t i = 0; i < COUNT(errors); i++)
			for (int call = 0; call < SHIM_CALLS; call++)
				for (unsigned nth = 1;; nth++) {
					struct store *store =
					    fixture_open(fixture, prepare);

					fixture_create(store, ++id);
					shim_fail((enum shim_call)call, NULL,
					    nth, 1, errors[i]);
					struct outcome outcome =
					    fixture_put(store, ++id, NULL);
					unsigned count =
					    shim_count((enum shim_call)call);
					shim_reset();
					store_close(store);
					store = fixture_open(fixture, false);
					expect_put(
					    store, id - 1, NULL, STORE_SAME);
					/* It may be there if it failed. */
					struct outcome now =
					    fixture_put(store, id, NULL);
					assert_int_equal(now.status, 0);
					if (outcome.result == STORE_CREATED)
						assert_int_equal(
						    now.result, STORE_SAME);
					else if (outcome.result == STORE_FULL)
						assert_int_equal(
						    now.result, STORE_CREATED);
					else
						assert_int_equal(outcome.result,
						    STORE_FAILED);
					store_close(store);
					if (count < nth)
						break;
				}
}

/* Work for fixture_in_child: end before the nth of a kind of call. */
struct death {
	const struct fixture *fixture;
	enum shim_call call;
	unsigned nth;
	int64_t id;
	bool prepare;
};

static int
die_in_commit(void *argument)
{
	const struct death *death = argument;
	struct store_options options = { .dir = death->fixture->path,
		.prepare = death->prepare };
	int status;
	struct store *store = store_open(&options, &status);

	if (store == NULL)
		return 1;
	shim_exit(death->call, NULL, death->nth);
	if (fixture_put(store, death->id, NULL).result != STORE_CREATED)
		return 2;
	store_close(store);
	return 3;
}

static void
a_process_that_dies_anywhere_in_a_commit_leaves_a_good_store(void **state)
{
	struct fixture *fixture = *state;
	struct death death = { .fixture = fixture };
	struct store *staying = fixture_open(fixture, true);

	for (int prepare = 0; prepare < 2; prepare++)
		for (int call = 0; call < SHIM_CALLS; call++)
			for (death.nth = 1;; death.nth++) {
				death.prepare = prepare;
				death.call = (enum shim_call)call;
				death.id++;
				int status =
				    fixture_in_child(die_in_commit, &death);
				assert_true(status == 0 || status == 3);
				struct outcome outcome =
				    fixture_put(staying, death.id, NULL);
				assert_int_equal(outcome.status, 0);
				if (status == 3)
					assert_int_equal(
					    outcome.result, STORE_SAME);
				else
					assert_true(
					    outcome.result == STORE_SAME ||
					    outcome.result == STORE_CREATED);
				if (status == 3)
					break;
			}
	store_close(staying);
	staying = fixture_open(fixture, false);
	for (int64_t id = 1; id <= death.id; id++)
		expect_put(staying, id, NULL, STORE_SAME);
	store_close(staying);
}

static void
nothing_stays_open_after_a_close_or_a_refusal(void **state)
{
	struct fixture *fixture = *state;
	int before = dup(0), after;

	close(before);
	store_close(fixture_open(fixture, true));
	fixture_write(fixture, JOURNAL_NAME, 3, "x", 1);
	fixture_refused(fixture, EX_DATAERR);
	fixture_remove(fixture, JOURNAL_NAME);
	fixture_refused(fixture, EX_CONFIG);
	after = dup(0);
	close(after);
	assert_int_equal(before, after);
}

static void
nothing_is_written_into_a_journal_that_another_has_locked(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);
	size_t lines;
	int fd;

	fixture_create(store, 1);
	lines = fixture_lines(fixture);
	fd = openat(fixture->dir, JOURNAL_NAME, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(lock_file(fd, 0), 0);
	store_idle(store);
	assert_int_equal(fixture_lines(fixture), lines);
	lock_unlock_file(fd);
	store_idle(store);
	assert_int_equal(fixture_lines(fixture), lines + 1);
	/* And it is free again. */
	assert_int_equal(lock_file(fd, 0), 0);
	close(fd);
	store_close(store);
}

/* A store whose journal has several MiB, and no index. */
static size_t
leave_long_journal(const struct fixture *fixture)
{
	enum { PLANTS = 100, NAME = 60000 };
	struct store *store = fixture_open(fixture, true);
	char *name = malloc(NAME + 1);

	assert_non_null(name);
	memset(name, 'x', NAME);
	name[NAME] = '\0';
	for (int64_t id = 1; id <= PLANTS; id++)
		expect_put(store, id, name, STORE_CREATED);
	free(name);
	store_close(store);
	fixture_remove_index(fixture);
	return fixture_size(fixture, JOURNAL_NAME);
}

static void
whoever_watches_sees_the_index_being_built(void **state)
{
	struct fixture *fixture = *state;
	size_t size = leave_long_journal(fixture);
	struct fixture_steps steps = { 0 };
	struct watch watch = { fixture_step, &steps };
	struct store_options options = { fixture->path, true, &watch };
	int status;
	struct store *store = store_open(&options, &status);

	assert_non_null(store);
	assert_true(steps.n >= size >> 20);
	assert_int_equal(steps.total, size);
	unsigned n = steps.n;
	fixture_create(store, 1000);
	store_close(store);
	assert_int_equal(steps.n, n);
}

static void
an_opening_that_is_stopped_leaves_everything_to_the_next(void **state)
{
	struct fixture *fixture = *state;
	size_t size = leave_long_journal(fixture);
	struct fixture_steps steps = { .last = 2 };
	struct watch watch = { fixture_step, &steps };
	struct store_options options = { fixture->path, true, &watch };
	int status = 0;
	struct store *store = store_open(&options, &status);

	assert_null(store);
	assert_int_equal(status, EX_TEMPFAIL);
	assert_int_equal(steps.n, 2);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), size);
	store = fixture_open(fixture, true);
	expect_put(store, 100, "another", STORE_CONFLICT);
	store_close(store);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_new_plant_is_created_and_stays),
		TEST(a_plant_is_synced_before_it_is_acknowledged),
		TEST(a_commit_asks_no_file_that_it_writes_for_its_times),
		TEST(
		    a_result_is_told_after_the_sync_and_before_the_index_is_written),
		TEST(a_result_is_told_once_whatever_it_is),
		TEST(the_same_plant_again_is_the_same_and_stored_once),
		TEST(
		    another_plant_with_a_stored_id_is_a_conflict_and_not_stored),
		TEST(an_empty_batch_is_fine),
		TEST(a_batch_is_stored_in_its_order_with_one_sync),
		TEST(repeats_within_a_batch_refer_to_the_first),
		TEST(repeats_among_others_in_a_batch_store_each_id_once),
		TEST(ids_at_the_bounds_are_ids_like_others),
		TEST(a_batch_larger_than_an_append_is_stored_whole),
		TEST(two_handles_see_each_others_plants_at_once),
		TEST(processes_that_store_the_same_plants_create_each_once),
		TEST(threads_that_store_the_same_plants_create_each_once),
		TEST(a_full_disk_stores_nothing_and_passes_by_itself),
		TEST(
		    a_disk_that_fills_up_in_the_middle_of_a_batch_stores_none_of_it),
		TEST(a_full_disk_is_said_once_until_it_has_passed),
		TEST(a_failed_sync_fails_the_store_until_it_is_opened_again),
		TEST(a_failed_sync_fails_the_store_for_everybody),
		TEST(
		    who_still_has_a_failed_journal_open_fails_after_it_was_renewed),
		TEST(
		    a_failed_sync_is_not_forgotten_when_the_mark_cannot_be_set),
		TEST(a_write_error_fails_the_store_and_loses_nothing),
		TEST(a_write_that_cannot_be_taken_back_fails_the_store),
		TEST(
		    plants_count_as_stored_when_only_the_index_cannot_be_written),
		TEST(an_index_that_cannot_be_written_for_long_loses_nothing),
		TEST(an_index_that_points_anywhere_is_not_believed),
		TEST(a_lock_that_is_held_is_waited_for_up_to_the_deadline),
		TEST(a_journal_removed_while_open_fails_the_store),
		TEST(a_journal_replaced_while_open_fails_the_store),
		TEST(
		    what_the_system_refuses_at_the_start_is_told_with_its_remedy),
		TEST(a_directory_moved_while_open_fails_the_store),
		TEST(a_journal_truncated_while_open_fails_the_store),
		TEST(a_lock_file_removed_while_open_fails_the_store),
		TEST(
		    a_lock_file_that_a_start_made_anew_is_the_one_that_all_use),
		TEST(a_directory_that_is_gone_fails_the_store),
		TEST(an_idle_store_gets_exactly_one_closing_line),
		TEST(an_idle_store_whose_index_failed_gets_its_closing_line),
		TEST(two_idle_processes_write_one_closing_line),
		TEST(an_idle_store_that_finds_its_journal_gone_says_so_once),
		TEST(a_closing_line_whose_sync_fails_fails_the_store),
		TEST(a_closing_line_that_finds_no_room_is_left_out),
		TEST(closing_puts_the_last_plant_below_the_watermark),
		TEST(
		    closing_a_store_in_which_nothing_was_stored_writes_nothing),
		TEST(room_is_written_ahead_and_trimmed_at_the_close),
		TEST(a_store_that_stays_goes_on_after_another_trimmed_the_room),
		TEST(closing_no_store_is_fine),
		TEST(a_missing_directory_is_a_matter_of_configuration),
		TEST(a_journal_that_vanished_is_not_replaced_by_an_empty_one),
		TEST(a_journal_of_another_store_is_refused),
		TEST(a_journal_of_another_version_is_refused),
		TEST(a_journal_without_a_header_is_damaged),
		TEST(a_commit_that_fails_anywhere_keeps_what_was_acknowledged),
		TEST(
		    a_process_that_dies_anywhere_in_a_commit_leaves_a_good_store),
		TEST(nothing_stays_open_after_a_close_or_a_refusal),
		TEST(nothing_is_written_into_a_journal_that_another_has_locked),
		TEST(whoever_watches_sees_the_index_being_built),
		TEST(an_opening_that_is_stopped_leaves_everything_to_the_next),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
