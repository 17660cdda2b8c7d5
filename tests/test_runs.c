/*
 * runs: what is put in comes out in order, whole, or not at all.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc_shim.h"
#include "fault_shim.h"
#include "runs.h"
#include "store_fixture.h"

#define NAME "aside"
#define PAIRS 1000

/* Each id below PAIRS / 2 twice, the second time behind all the first ones. */
static void
fill(struct pair *pairs)
{
	for (size_t i = 0; i < PAIRS; i++)
		pairs[i] =
		    (struct pair){ (int64_t)(i * 367 % (PAIRS / 2)) - PAIRS / 4,
			    100 + i };
}

static int
compare(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	return x->id != y->id
		   ? (x->id > y->id) - (x->id < y->id)
		   : (x->offset > y->offset) - (x->offset < y->offset);
}

static struct runs *
new_runs(const struct fixture *fixture)
{
	struct runs *runs = runs_new(fixture->dir, NAME);

	assert_non_null(runs);
	return runs;
}

/* Of the pairs, runs of so many, the last one of what is left. */
static int
add(struct runs *runs, size_t pairs_each)
{
	struct pair pairs[PAIRS];

	fill(pairs);
	for (size_t i = 0; i < PAIRS; i += pairs_each) {
		size_t n = PAIRS - i < pairs_each ? PAIRS - i : pairs_each;

		qsort(pairs + i, n, sizeof(*pairs), compare);
		if (runs_add(runs, pairs + i, n) < 0)
			return -1;
	}
	return 0;
}

/* With windows in a room for so many pairs; how many came, or -1. */
static int
take(struct runs *runs, size_t room_pairs, struct pair *pairs)
{
	struct pair *room = calloc(room_pairs, sizeof(*room));
	int n = 0, more = -1;

	if (room != NULL && runs_merge(runs, room, room_pairs) == 0)
		while ((more = runs_next(runs, &pairs[n])) > 0)
			assert_true(++n <= PAIRS);
	free(room);
	return more < 0 ? -1 : n;
}

static void
expect_all(struct runs *runs, size_t room_pairs)
{
	struct pair expected[PAIRS], pairs[PAIRS + 1];

	fill(expected);
	qsort(expected, PAIRS, sizeof(*expected), compare);
	assert_int_equal(take(runs, room_pairs, pairs), PAIRS);
	assert_memory_equal(pairs, expected, sizeof(expected));
}

static void
without_a_run_there_is_nothing(void **state)
{
	struct runs *runs = new_runs(*state);
	struct pair pair;

	assert_int_equal(take(runs, 1, &pair), 0);
	runs_free(runs);
	runs_free(NULL);
}

static void
an_empty_run_adds_nothing(void **state)
{
	struct runs *runs = new_runs(*state);
	struct pair pair = { 7, 100 }, taken[2];

	assert_int_equal(runs_add(runs, NULL, 0), 0);
	assert_int_equal(runs_add(runs, &pair, 1), 0);
	assert_int_equal(runs_add(runs, NULL, 0), 0);
	assert_int_equal(take(runs, 3, taken), 1);
	assert_memory_equal(taken, &pair, sizeof(pair));
	runs_free(runs);
}

static void
one_run_comes_out_as_it_was(void **state)
{
	struct runs *runs = new_runs(*state);

	assert_int_equal(add(runs, PAIRS), 0);
	expect_all(runs, PAIRS);
	runs_free(runs);
}

/* Also the same id again and again: in the order of the journal. */
static void
many_runs_come_out_as_one_through_windows_of_any_size(void **state)
{
	static const size_t sizes[] = { 1, 2, 7, 64, 333, 500, 999 };

	for (size_t i = 0; i < COUNT(sizes); i++) {
		size_t runs_n = (PAIRS + sizes[i] - 1) / sizes[i];

		for (size_t window = 1; window < 2 * sizes[i]; window += 13) {
			struct runs *runs = new_runs(*state);

			assert_int_equal(add(runs, sizes[i]), 0);
			expect_all(runs, runs_n * window + runs_n / 2);
			runs_free(runs);
		}
	}
}

static void
the_smallest_and_the_largest_ids_keep_their_places(void **state)
{
	static const struct pair odd[] = { { INT64_MIN, 3 }, { 0, 1 },
		{ INT64_MAX, UINT64_MAX } },
				 even[] = { { -1, 2 }, { INT64_MAX, 4 } };
	struct runs *runs = new_runs(*state);
	struct pair pairs[6];

	assert_int_equal(runs_add(runs, odd, COUNT(odd)), 0);
	assert_int_equal(runs_add(runs, even, COUNT(even)), 0);
	assert_int_equal(take(runs, 2, pairs), 5);
	assert_memory_equal(&pairs[0], &odd[0], sizeof(odd[0]));
	assert_memory_equal(&pairs[1], &even[0], sizeof(odd[0]));
	assert_memory_equal(&pairs[2], &odd[1], sizeof(odd[0]));
	assert_memory_equal(&pairs[3], &even[1], sizeof(odd[0]));
	assert_memory_equal(&pairs[4], &odd[2], sizeof(odd[0]));
	runs_free(runs);
}

static void
the_file_has_no_name_and_what_another_left_is_removed(void **state)
{
	struct fixture *fixture = *state;

	fixture_write(fixture, NAME, 0, "left", 4);
	struct runs *runs = new_runs(fixture);
	assert_false(fixture_exists(fixture, NAME));
	assert_int_equal(add(runs, 100), 0);
	expect_all(runs, 10);
	runs_free(runs);
}

static void
a_file_that_would_keep_its_name_is_not_used(void **state)
{
	struct fixture *fixture = *state;

	shim_fail(SHIM_UNLINKAT, NAME, 2, 1, EACCES);
	assert_null(runs_new(fixture->dir, NAME));
	assert_int_equal(errno, EACCES);
	assert_null(runs_new(fixture->dir, "nowhere/" NAME));
	assert_int_equal(errno, ENOENT);
}

static void
a_write_that_falls_short_or_is_interrupted_goes_on(void **state)
{
	struct runs *runs = new_runs(*state);

	shim_shorten(SHIM_PWRITE, NULL, 2, 9);
	assert_int_equal(add(runs, 100), 0);
	assert_int_equal(shim_count(SHIM_PWRITE), 11);
	shim_fail(SHIM_PREAD, NULL, 3, 2, EINTR);
	expect_all(runs, 100);
	runs_free(runs);
	runs = new_runs(*state);
	shim_fail(SHIM_PWRITE, NULL, 2, 1, EINTR);
	assert_int_equal(add(runs, 100), 0);
	expect_all(runs, 100);
	runs_free(runs);
}

static void
a_write_that_fails_is_told(void **state)
{
	for (unsigned nth = 1; nth <= 10; nth++) {
		struct runs *runs = new_runs(*state);

		shim_fail(SHIM_PWRITE, NULL, nth, 1, ENOSPC);
		assert_int_equal(add(runs, 100), -1);
		assert_int_equal(errno, ENOSPC);
		runs_free(runs);
	}
}

static void
a_read_that_fails_is_told(void **state)
{
	struct pair pairs[PAIRS + 1];

	/* Ten runs of ten windows. */
	for (unsigned nth = 1; nth <= 100; nth++) {
		struct runs *runs = new_runs(*state);

		assert_int_equal(add(runs, 100), 0);
		shim_fail(SHIM_PREAD, NULL, nth, 1, EIO);
		assert_int_equal(take(runs, 100, pairs), -1);
		assert_int_equal(errno, EIO);
		runs_free(runs);
	}
}

static void
a_run_that_is_not_what_was_written_is_told(void **state)
{
	struct pair pairs[PAIRS + 1];

	for (off_t at = 0; at <= (off_t)(PAIRS * sizeof(*pairs)); at += 500) {
		int fd = fixture_next_fd();
		struct pair pair;

		struct runs *runs = new_runs(*state);
		assert_int_equal(add(runs, 100), 0);
		if (at == 0)
			assert_int_equal(
			    ftruncate(fd, (PAIRS - 1) * sizeof(pair)), 0);
		else {
			assert_int_equal(pread(fd, &pair, 1, at - 1), 1);
			*(char *)&pair ^= 16;
			assert_int_equal(pwrite(fd, &pair, 1, at - 1), 1);
		}
		errno = 0;
		assert_int_equal(take(runs, 100, pairs), -1);
		assert_int_equal(errno, EIO);
		runs_free(runs);
	}
}

static void
without_memory_it_fails_and_leaves_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct pair pairs[PAIRS + 1];
	bool failed = true;

	if (!alloc_can_fail())
		skip();
	for (unsigned nth = 1; failed; nth++) {
		int n = -1;

		alloc_fail(nth, 1);
		struct runs *runs = runs_new(fixture->dir, NAME);
		if (runs != NULL && add(runs, 20) == 0)
			n = take(runs, 100, pairs);
		int error = errno;
		failed = alloc_reset();
		assert_int_equal(n, failed ? -1 : PAIRS);
		if (failed)
			assert_int_equal(error, ENOMEM);
		runs_free(runs);
		assert_false(fixture_exists(fixture, NAME));
		/* Itself, the list that grows twice, a room, the heap. */
		assert_true(nth <= 7);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(without_a_run_there_is_nothing),
		TEST(an_empty_run_adds_nothing),
		TEST(one_run_comes_out_as_it_was),
		TEST(many_runs_come_out_as_one_through_windows_of_any_size),
		TEST(the_smallest_and_the_largest_ids_keep_their_places),
		TEST(the_file_has_no_name_and_what_another_left_is_removed),
		TEST(a_file_that_would_keep_its_name_is_not_used),
		TEST(a_write_that_falls_short_or_is_interrupted_goes_on),
		TEST(a_write_that_fails_is_told),
		TEST(a_read_that_fails_is_told),
		TEST(a_run_that_is_not_what_was_written_is_told),
		TEST(without_memory_it_fails_and_leaves_nothing),
	};

	return cmocka_run_group_tests_name("runs", tests, NULL, NULL);
}
