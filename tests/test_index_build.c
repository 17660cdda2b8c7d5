/* test_index_build: pairs sorted in any order, and the index built of them. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>

#include "fault_shim.h"
#include "index.h"

#define UUID "0123abcd-0123-4567-89ab-0123456789ab"

/* More than one buffer of pairs, and more than one step of the building. */
#define MANY ((size_t)70000)
#define MANY_MORE 600000

static const struct position covered = { 500, 400, 3, 0x1234abcd, true };

enum order {
	ASCENDING,
	DESCENDING,
	ALL_EQUAL,
	TWO_VALUES,
	ORGAN_PIPE, /* bad for a quicksort whose pivot is a middle one */
	SAWTOOTH,
	ONE_AT_THE_END,
	SCATTERED,
	ORDERS
};

/* The id of the pair i of n. */
static int64_t
id_at(enum order order, size_t i, size_t n)
{
	switch (order) {
	case DESCENDING:
		return (int64_t)(n - i) - (int64_t)(n / 2);
	case ALL_EQUAL:
		return 7;
	case TWO_VALUES:
		return i % 2 == 0 ? INT64_MAX : INT64_MIN;
	case ORGAN_PIPE:
		return (int64_t)(i < n / 2 ? i : n - i);
	case SAWTOOTH:
		return (int64_t)(i % 100);
	case ONE_AT_THE_END:
		return i == n - 1 ? INT64_MIN : (int64_t)i;
	case SCATTERED:
		return (int64_t)((i + 1) * UINT64_C(0x9e3779b97f4a7c15));
	default:
		return (int64_t)i - (int64_t)(n / 2);
	}
}

static void
add_pairs(struct pairs *pairs, int dir, enum order order, size_t n)
{
	assert_int_equal(pairs_init(pairs, dir), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(
		    pairs_add(pairs, id_at(order, i, n), 100 + i), 0);
}

static void
pairs_are_sorted_whatever_their_order_was(void **state)
{
	static const size_t sizes[] = { 0, 1, 2, 3, 24, 25, 26, 1000, MANY };
	const struct fixture *fixture = *state;
	struct pairs pairs;

	for (size_t k = 0; k < ORDERS * COUNT(sizes); k++) {
		enum order order = (enum order)(k / COUNT(sizes));
		size_t n = sizes[k % COUNT(sizes)];
		uint64_t sum = 0;

		add_pairs(&pairs, fixture->dir, order, n);
		assert_int_equal(pairs_sort(&pairs), 0);
		assert_int_equal(pairs.n, n);
		for (size_t i = 0; i < n; i++) {
			const struct pair *pair = &pairs.map[i];
			size_t place = (size_t)pair->value - 100;

			sum += pair->value;
			assert_int_equal(pair->key, id_at(order, place, n));
			if (i > 0 && pair[-1].key == pair->key)
				assert_true(pair[-1].value < pair->value);
			else if (i > 0)
				assert_true(pair[-1].key < pair->key);
		}
		assert_int_equal(sum, 100 * n + n * (n - (n > 0)) / 2);
		pairs_done(&pairs);
	}
}

static void
first_record_of_an_id_is_found(void **state)
{
	const struct fixture *fixture = *state;
	struct pairs pairs;

	add_pairs(&pairs, fixture->dir, SAWTOOTH, 1000);
	assert_int_equal(pairs_sort(&pairs), 0);
	for (int64_t id = 0; id < 100; id++)
		assert_int_equal(pairs_find(&pairs, id), 100 + id);
	assert_int_equal(pairs_find(&pairs, -1), 0);
	assert_int_equal(pairs_find(&pairs, 100), 0);
	pairs_done(&pairs);
	add_pairs(&pairs, AT_FDCWD, SAWTOOTH, 0);
	assert_int_equal(pairs_sort(&pairs), 0);
	assert_int_equal(pairs_find(&pairs, 0), 0);
	pairs_done(&pairs);
}

static void
ids_that_stand_twice_are_counted_and_ten_are_logged(void **state)
{
	static const struct {
		size_t n, twins;
	} cases[] = { { 0, 0 }, { 100, 0 }, { 101, 1 }, { 110, 10 },
		{ 211, 111 } };
	const struct fixture *fixture = *state;
	unsigned lines = 0, more = 0;
	struct pairs pairs;

	for (size_t i = 0; i < COUNT(cases); i++) {
		size_t twins = cases[i].twins;

		add_pairs(&pairs, fixture->dir, SAWTOOTH, cases[i].n);
		assert_int_equal(pairs_sort(&pairs), 0);
		assert_int_equal(index_twins(&pairs, "the journal"), twins);
		pairs_done(&pairs);
		lines += twins < 10 ? (unsigned)twins : 10;
		more += twins > 10;
		assert_int_equal(
		    fixture_logged(fixture, "stands twice, at"), lines);
		assert_int_equal(
		    fixture_logged(fixture, "more plants stand twice"), more);
	}
	assert_int_equal(
	    fixture_logged(fixture,
		"the journal: the plant 0 stands twice, at the bytes 100 and "
		"200"),
	    3);
}

static struct index *
create(const struct fixture *fixture)
{
	struct position begun;
	struct index *index;

	assert_int_equal(
	    index_create(fixture->dir, fixture->path, UUID, &index), 0);
	assert_int_equal(index_begin(index, &begun), 0);
	assert_int_equal(begun.end, 0);
	return index;
}

/* It has no records. */
static struct journal journal = { .fd = -1, .name = (char[]){ "none" } };

static int
build(
    const struct fixture *fixture, enum order order, size_t n, unsigned stop_at)
{
	struct fixture_steps steps = { .last = stop_at };
	const struct watch watch = { fixture_step, &steps };
	struct index *index = create(fixture);
	struct pairs pairs;

	add_pairs(&pairs, fixture->dir, order, n);
	assert_int_equal(pairs_sort(&pairs), 0);
	int result =
	    index_build(index, &pairs, true, &covered, &journal, &watch);
	int error = errno;
	pairs_done(&pairs);
	index_close(index, false);
	errno = error;
	return result;
}

static struct index *
open_index(const struct fixture *fixture, enum index_open expected)
{
	struct index *index = NULL;

	assert_int_equal(
	    index_open(fixture->dir, fixture->path, UUID, true, &index),
	    expected);
	return index;
}

static void
built_index_finds_the_first_record_of_every_id(void **state)
{
	static const struct {
		enum order order;
		size_t n, ids;
	} cases[] = { { SCATTERED, 0, 0 }, { SCATTERED, 1, 1 },
		{ SCATTERED, MANY, MANY }, { SAWTOOTH, 1000, 100 },
		/* More than one transaction. */
		{ ASCENDING, MANY_MORE, MANY_MORE } };
	const struct fixture *fixture = *state;
	struct position found;
	uint64_t offset;

	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_int_equal(
		    build(fixture, cases[i].order, cases[i].n, 0), 0);
		struct index *index = open_index(fixture, INDEX_OPENED);
		assert_int_equal(index_begin(index, &found), 0);
		assert_int_equal(found.end, covered.end);
		assert_int_equal(found.crc, covered.crc);
		for (size_t k = 0; k < cases[i].ids; k++) {
			int64_t id = id_at(cases[i].order, k, cases[i].n);

			assert_int_equal(
			    index_find(index, id, &offset), INDEX_FOUND);
			assert_int_equal(offset, 100 + k);
		}
		assert_int_equal(index_count(index, &offset), 0);
		assert_int_equal(offset, cases[i].ids);
		index_close(index, false);
	}
	assert_int_equal(fixture_logged(fixture, "stands twice"), 10);
}

static void
index_whose_building_was_stopped_is_not_used(void **state)
{
	const struct fixture *fixture = *state;
	int result = -1;

	for (unsigned stop_at = 1; result < 0; stop_at += 7) {
		result = build(fixture, ASCENDING, MANY_MORE, stop_at);
		if (result < 0)
			assert_int_equal(errno, ECANCELED);
		index_close(open_index(fixture,
				result < 0 ? INDEX_STALE : INDEX_OPENED),
		    false);
	}
}

/* The ids from `first` to `last`, at 1,000 and their number. */
static int
add(const struct fixture *fixture, int64_t first, int64_t last)
{
	const struct position later = { 900, 800, 5, 1, false };
	struct index *index = open_index(fixture, INDEX_OPENED);
	struct position from;
	struct pairs pairs;

	assert_int_equal(index_begin(index, &from), 0);
	assert_int_equal(pairs_init(&pairs, fixture->dir), 0);
	for (int64_t id = first; id <= last; id++)
		assert_int_equal(pairs_add(&pairs, id, 1000 + (uint64_t)id), 0);
	assert_int_equal(pairs_sort(&pairs), 0);
	int result = index_build(index, &pairs, false, &later, &journal, NULL);
	int error = errno;
	pairs_done(&pairs);
	index_close(index, false);
	errno = error;
	return result;
}

static void
plants_are_added_to_what_an_index_has(void **state)
{
	const struct fixture *fixture = *state;
	struct position from;
	uint64_t offset;

	assert_int_equal(build(fixture, SAWTOOTH, 90, 0), 0);
	assert_int_equal(add(fixture, 90, 100), 0);
	struct index *index = open_index(fixture, INDEX_OPENED);
	assert_int_equal(index_begin(index, &from), 0);
	assert_int_equal(from.end, 900);
	assert_int_equal(index_find(index, 89, &offset), INDEX_FOUND);
	assert_int_equal(offset, 189);
	assert_int_equal(index_find(index, 90, &offset), INDEX_FOUND);
	assert_int_equal(offset, 1090);
	index_close(index, false);
	/* But no more than one append may be behind it. */
	assert_int_equal(add(fixture, 1000, 1000 + (64 << 10)), -1);
	assert_int_equal(errno, EBADMSG);
}

static void
full_disk_is_an_error_wherever_it_is_met(void **state)
{
	const struct fixture *fixture = *state;
	struct pairs pairs;
	unsigned failures = 0;

	/* While pairs are added, and while the last of them are sorted. */
	for (unsigned nth = 1;; nth++) {
		int result = 0;

		assert_int_equal(pairs_init(&pairs, fixture->dir), 0);
		shim_fail(SHIM_PWRITE, NULL, nth, 1, ENOSPC);
		for (size_t i = 0; i < MANY && result == 0; i++)
			result = pairs_add(&pairs, (int64_t)i, i + 1);
		if (result == 0)
			result = pairs_sort(&pairs);
		int error = errno;
		shim_reset();
		pairs_done(&pairs);
		if (result == 0)
			break;
		assert_int_equal(error, ENOSPC);
		failures++;
	}
	assert_int_equal(failures, MANY / 16384 + 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pairs_are_sorted_whatever_their_order_was),
		TEST(first_record_of_an_id_is_found),
		TEST(ids_that_stand_twice_are_counted_and_ten_are_logged),
		TEST(built_index_finds_the_first_record_of_every_id),
		TEST(index_whose_building_was_stopped_is_not_used),
		TEST(plants_are_added_to_what_an_index_has),
		TEST(full_disk_is_an_error_wherever_it_is_met),
	};

	return cmocka_run_group_tests_name("index_build", tests, NULL, NULL);
}
