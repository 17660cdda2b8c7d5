/*
 * test_index: every process finds what another has entered, as long as the
 * index can be trusted; otherwise it is not opened.  Pairs are sorted in any
 * order, and an index is built of them.
 */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_shim.h"
#include "store/index.h"
#include "sanitized.h"

#define UUID "0123abcd-0123-4567-89ab-0123456789ab"
#define OTHER "ffffffff-0123-4567-89ab-0123456789ab"
#define DATA "index/data.mdb"
#define BOOT "index/boot"

/* More than one buffer of pairs, and more than one step of the building. */
#define MANY ((size_t)70000)
#define MANY_MORE 600000

static const struct position covered = { 500, 400, 3, 0x1234abcd, true };

/* For a long lived process; a reader; one request. */
#define USES 3
static const enum index_use uses[USES] = { INDEX_SERVE, INDEX_READ,
	INDEX_ONCE };

/* Its index needs no more of it. */
static struct journal *
journal_of(const struct fixture *fixture, const char *uuid)
{
	static char name[] = "journal";
	static struct journal journals[2];
	struct journal *journal = &journals[strcmp(uuid, UUID) == 0];

	*journal = (struct journal){ .path = fixture->path,
		.dir = fixture->dir,
		.fd = -1,
		.name = name };
	memcpy(journal->uuid, uuid, RECORD_UUID_LEN);
	return journal;
}

static struct index_view
look(const struct fixture *fixture, enum index_use use)
{
	struct index_view view;

	assert_int_equal(
	    index_open(journal_of(fixture, UUID), use, &view), FAULT_NONE);
	assert_int_equal(view.index != NULL, view.state == INDEX_USABLE);
	return view;
}

static struct index *
open_index(const struct fixture *fixture, enum index_use use)
{
	struct index_view view = look(fixture, use);

	assert_int_equal(view.state, INDEX_USABLE);
	assert_memory_equal(&view.seen, &covered, sizeof(covered));
	return view.index;
}

static void
expect_stale(const struct fixture *fixture)
{
	for (size_t i = 0; i < USES; i++)
		assert_int_equal(look(fixture, uses[i]).state, INDEX_STALE);
}

static struct index *
create_for(const struct fixture *fixture, enum index_use use)
{
	struct index *index;

	assert_int_equal(
	    index_create(journal_of(fixture, UUID), use, &index), FAULT_NONE);
	return index;
}

static struct index *
create(const struct fixture *fixture)
{
	return create_for(fixture, INDEX_SERVE);
}

static struct position
begin(struct index *index)
{
	struct position found;

	assert_int_equal(index_begin(index, &found), FAULT_NONE);
	return found;
}

static void
enter(struct index *index, int64_t id, uint64_t offset)
{
	uint64_t found;

	begin(index);
	assert_int_equal(index_put(index, id, offset, &found), FAULT_NONE);
	assert_int_equal(found, 0);
	assert_int_equal(index_commit(index, &covered), FAULT_NONE);
}

/* Whether the index has the id; it must have it at that offset. */
static bool
has(struct index *index, int64_t id, uint64_t offset)
{
	uint64_t found;

	begin(index);
	assert_int_equal(index_find(index, id, &found), FAULT_NONE);
	index_abort(index);
	if (found > 0)
		assert_int_equal(found, offset);
	return found > 0;
}

/* An index with the plant 7 at 100, closed. */
static void
leave_index_of(const struct fixture *fixture, enum index_use use, bool clean)
{
	struct index *index = create_for(fixture, use);

	enter(index, 7, 100);
	index_close(index, clean);
}

static void
leave_index(const struct fixture *fixture, bool clean)
{
	leave_index_of(fixture, INDEX_SERVE, clean);
}

/* It is used, and again after a clean close. */
static bool
is_kept(const struct fixture *fixture)
{
	struct index *index = open_index(fixture, INDEX_SERVE);
	bool kept = has(index, 7, 100);

	index_close(index, true);
	return kept;
}

static bool
is_clean(const struct fixture *fixture)
{
	return strncmp(fixture_read(fixture, BOOT).at, "clean ", 6) == 0;
}

/* As if the machine had been started again. */
static void
change_boot(const struct fixture *fixture)
{
	if (!is_clean(fixture))
		fixture_write(fixture, BOOT, 0, "00000000", 8);
}

STORE_TEST(new_index_covers_nothing_and_is_stale_until_it_does)
{
	struct index *index = create(fixture);

	assert_int_equal(begin(index).end, 0);
	index_abort(index);
	expect_stale(fixture);
	enter(index, 7, 100);
	index_close(index, true);
	assert_true(is_kept(fixture));
}

STORE_TEST(every_id_is_new_once_and_found_from_then_on)
{
	static const int64_t ids[] = { INT64_MIN, INT64_MIN + 1, -256, -1, 0, 1,
		255, 256, 0x7300000000000000, 0x73, INT64_MAX - 1, INT64_MAX };
	struct index *index = create(fixture);
	uint64_t found;

	for (size_t i = 0; i < COUNT(ids); i++) {
		assert_false(has(index, ids[i], 0));
		enter(index, ids[i], 1000 + i);
	}
	begin(index);
	for (int64_t i = 1; i < 20000; i++) {
		int64_t id = (1 + i * 7919 % 20011) << 10;

		for (uint64_t twice = 0; twice < 2; twice++) {
			assert_int_equal(
			    index_put(index, id, (uint64_t)i + twice, &found),
			    FAULT_NONE);
			assert_int_equal(found, twice * (uint64_t)i);
		}
	}
	assert_int_equal(index_commit(index, &covered), FAULT_NONE);
	for (size_t i = 0; i < COUNT(ids); i++)
		assert_true(has(index, ids[i], 1000 + i));
	for (int64_t i = 1; i < 20000; i++)
		assert_true(
		    has(index, (1 + i * 7919 % 20011) << 10, (uint64_t)i));
	assert_false(has(index, 2, 0));
	index_close(index, false);
}

/* A file of the same bytes in its place. */
static void
copy_data(const struct fixture *fixture)
{
	struct contents data = fixture_read(fixture, DATA);

	fixture_remove(fixture, DATA);
	fixture_restore(fixture, DATA, &data);
}

STORE_TEST(index_is_used_only_if_none_of_its_pages_can_be_missing)
{
	static const struct {
		enum index_use left_by;
		bool clean, rebooted, copied;
		bool used[USES]; /* by the uses */
		bool seen;       /* or its end is known */
	} cases[] = {
		{ INDEX_SERVE, true, false, false, { 1, 1, 1 }, true },
		{ INDEX_SERVE, true, true, false, { 1, 1, 1 }, true },
		{ INDEX_SERVE, true, false, true, { 0, 0, 0 }, false },
		{ INDEX_SERVE, false, false, false, { 0, 0, 0 }, true },
		{ INDEX_SERVE, false, true, false, { 0, 0, 0 }, false },
		{ INDEX_SERVE, false, false, true, { 0, 0, 0 }, false },
		{ INDEX_ONCE, false, false, false, { 0, 0, 1 }, true },
		{ INDEX_ONCE, false, true, false, { 0, 0, 0 }, false },
		{ INDEX_ONCE, false, false, true, { 0, 0, 0 }, false },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		leave_index_of(fixture, cases[i].left_by, cases[i].clean);
		assert_int_equal(is_clean(fixture), cases[i].clean);
		if (cases[i].rebooted)
			change_boot(fixture);
		if (cases[i].copied)
			copy_data(fixture);
		for (size_t k = 0; k < USES; k++) {
			struct index_view view = look(fixture, uses[k]);

			assert_int_equal(view.index != NULL, cases[i].used[k]);
			assert_int_equal(
			    view.seen.end, cases[i].seen ? covered.end : 0);
			index_close(view.index, false);
		}
	}
}

STORE_TEST(index_that_is_taken_over_is_not_clean_any_more)
{
	leave_index(fixture, true);
	assert_true(is_kept(fixture));
	assert_true(is_clean(fixture));
	struct index *index = open_index(fixture, INDEX_SERVE);
	assert_true(has(index, 7, 100));
	index_close(index, false);
	assert_false(is_clean(fixture));
	expect_stale(fixture);
}

/* No crash leaves a process, nor its lock in what is mounted again. */
STORE_TEST(index_that_a_long_lived_process_has_open_is_used_in_any_boot)
{
	leave_index(fixture, true);
	for (int created = 0; created < 2; created++) {
		struct index *staying = created
					    ? create(fixture)
					    : open_index(fixture, INDEX_SERVE);

		if (created)
			enter(staying, 7, 100);
		assert_true(has(staying, 7, 100));
		change_boot(fixture);
		for (size_t i = 0; i < USES; i++)
			index_close(open_index(fixture, uses[i]), false);
		index_close(staying, false);
		expect_stale(fixture);
	}
}

STORE_TEST(index_that_a_request_has_open_is_not_used_for_that)
{
	struct index *once = create_for(fixture, INDEX_ONCE);

	enter(once, 7, 100);
	assert_int_equal(look(fixture, INDEX_SERVE).state, INDEX_STALE);
	index_close(once, false);
}

STORE_TEST(index_of_version_1_0_0_is_built_again_but_its_end_is_known)
{
	leave_index(fixture, false);
	fixture_truncate(fixture, BOOT, 74);
	struct index_view view = look(fixture, INDEX_SERVE);
	assert_int_equal(view.state, INDEX_STALE);
	assert_int_equal(view.seen.end, covered.end);
}

STORE_TEST(index_in_use_after_anothers_clean_close_is_not_clean)
{
	struct index *staying, *leaving;

	leave_index(fixture, true);
	staying = open_index(fixture, INDEX_SERVE);
	assert_true(has(staying, 7, 100));
	leaving = open_index(fixture, INDEX_SERVE);
	index_close(leaving, true);
	assert_true(is_clean(fixture));
	assert_true(has(staying, 7, 100));
	assert_false(is_clean(fixture));
	index_close(staying, false);
}

STORE_TEST(no_page_is_written_before_the_mark_of_the_boot_is_durable)
{
	static const char *const syncs[] = { BOOT, "/index" };
	struct position found;
	struct index *index;

	for (size_t i = 0; i < COUNT(syncs); i++) {
		leave_index(fixture, true);
		index = open_index(fixture, INDEX_SERVE);
		shim_fail(SHIM_FSYNC, syncs[i], 1, 1, EIO);
		shim_fail(SHIM_PWRITE, DATA, 1, 0, 0);
		shim_fail(SHIM_WRITEV, DATA, 1, 0, 0);
		assert_int_equal(index_begin(index, &found), FAULT_FAILED);
		assert_int_equal(shim_count(SHIM_PWRITE), 0);
		assert_int_equal(shim_count(SHIM_WRITEV), 0);
		index_close(index, false);
		shim_reset();
	}
}

STORE_TEST(index_that_was_discarded_does_not_mark_the_next_one)
{
	struct index *old = create(fixture);

	enter(old, 7, 100);
	leave_index(fixture, false);
	index_close(old, true);
	assert_false(is_clean(fixture));
}

STORE_TEST(index_is_opened_for_its_own_store_only)
{
	char uuid[RECORD_UUID_LEN];
	struct index_view view;

	assert_int_equal(index_uuid(fixture->dir, uuid), -1);
	leave_index(fixture, true);
	assert_int_equal(index_uuid(fixture->dir, uuid), 0);
	assert_memory_equal(uuid, UUID, RECORD_UUID_LEN);
	for (size_t i = 0; i < USES; i++)
		assert_int_equal(
		    index_open(journal_of(fixture, OTHER), uses[i], &view),
		    FAULT_SETUP);
	assert_true(is_kept(fixture));
}

STORE_TEST(mark_that_a_crash_left_unwritten_makes_the_index_stale)
{
	static const char zeros[128];
	char uuid[RECORD_UUID_LEN];
	size_t size;

	/* No file, of any shorter length, or zeros. */
	leave_index(fixture, true);
	size = fixture_size(fixture, BOOT);
	fixture_write(fixture, BOOT, 0, zeros, size);
	expect_stale(fixture);
	assert_int_equal(index_uuid(fixture->dir, uuid), -1);
	leave_index(fixture, true);
	while (size-- > 0) {
		fixture_truncate(fixture, BOOT, size);
		expect_stale(fixture);
	}
	fixture_remove(fixture, BOOT);
	expect_stale(fixture);
}

STORE_TEST(only_the_owner_may_read_the_index)
{
	static const char *const names[] = { "index", DATA, BOOT };
	struct stat st;

	leave_index(fixture, true);
	for (size_t i = 0; i < COUNT(names); i++) {
		assert_int_equal(fstatat(fixture->dir, names[i], &st, 0), 0);
		assert_int_equal(st.st_mode & 0077, 0);
	}
}

STORE_TEST(index_is_not_built_upon_a_file_that_cannot_be_removed)
{
	struct index *index = NULL;

	leave_index(fixture, false);
	shim_fail(SHIM_UNLINKAT, DATA, 1, 9, EACCES);
	assert_int_equal(
	    index_create(journal_of(fixture, OTHER), INDEX_SERVE, &index),
	    FAULT_RIGHTS);
}

STORE_TEST(reader_changes_no_file)
{
	static const char *const names[] = { DATA, BOOT };
	struct contents before[COUNT(names)];
	uint64_t found;

	leave_index(fixture, true);
	for (size_t i = 0; i < COUNT(names); i++)
		before[i] = fixture_read(fixture, names[i]);
	struct index *reader = open_index(fixture, INDEX_READ);
	assert_true(has(reader, 7, 100));
	begin(reader);
	assert_int_not_equal(index_put(reader, 8, 100, &found), FAULT_NONE);
	index_close(reader, true);
	for (size_t i = 0; i < COUNT(names); i++)
		expect_contents(fixture, names[i], &before[i]);
}

/* In which no index can be mapped, but in 1 GiB one can. */
static int
open_in_little_space(void *argument)
{
	struct rlimit limit = { (rlim_t)1 << 30, (rlim_t)1 << 30 };
	struct index_view view;

	if (setrlimit(RLIMIT_AS, &limit) < 0 ||
	    (view = look(argument, INDEX_ONCE)).index == NULL)
		return 1;
	index_close(view.index, false);
	limit.rlim_cur = (rlim_t)100 << 20;
	if (setrlimit(RLIMIT_AS, &limit) < 0)
		return 2;
	return index_open(journal_of(argument, UUID), INDEX_ONCE, &view) !=
	       FAULT_MEMORY;
}

STORE_TEST(index_is_not_to_blame_for_a_limit_on_memory)
{
	leave_index(fixture, true);
	/* A sanitizer has more mapped already than is allowed there. */
	if (!SANITIZED)
		assert_int_equal(in_child(open_in_little_space, fixture), 0);
	assert_true(is_kept(fixture));
}

/* The largest part of the address space that is of an index. */
static size_t
largest_map(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	size_t begin, end, largest = 0;
	char line[512];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) != NULL)
		if (strstr(line, DATA) != NULL &&
		    sscanf(line, "%zx-%zx", &begin, &end) == 2 &&
		    end - begin > largest)
			largest = end - begin;
	fclose(maps);
	return largest;
}

STORE_TEST(map_grows_ahead_of_the_file)
{
	static const struct position none;
	struct index *index = create(fixture), *other;
	int64_t id = 0;
	struct pairs pairs;

	begin(index);
	size_t before = largest_map();
	/* 26 bytes each: a step of the map's size. */
	while (id < 5500000) {
		assert_int_equal(pairs_init(&pairs, fixture->dir), 0);
		for (int i = 0; i < 500000; i++, id++)
			if (pairs_add(&pairs, id, (uint64_t)id) < 0)
				fail();
		assert_int_equal(
		    index_build(index, &pairs, &none, NULL), FAULT_NONE);
		pairs_done(&pairs);
	}
	index_abort(index);
	enter(index, id, 100);
	other = open_index(fixture, INDEX_SERVE);
	assert_true(has(index, id - 1, (uint64_t)id - 1));
	assert_true(has(other, id - 1, (uint64_t)id - 1));
	assert_true(largest_map() > before);
	assert_true(largest_map() > 2 * fixture_size(fixture, DATA));
	index_close(index, false);
	index_close(other, false);
}

/* --- Pairs, and the building --------------------------------------------- */

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

STORE_TEST(pairs_are_sorted_whatever_their_order_was)
{
	static const size_t sizes[] = { 0, 1, 2, 3, 24, 25, 26, 1000, MANY };
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

STORE_TEST(first_record_of_an_id_is_found)
{
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

STORE_TEST(ids_that_stand_twice_are_counted_and_ten_are_logged)
{
	static const struct {
		size_t n, twins;
	} cases[] = { { 0, 0 }, { 100, 0 }, { 101, 1 }, { 110, 10 },
		{ 211, 111 } };
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
		expect_logged(fixture, "stands twice, at", lines);
		expect_logged(fixture, "more plants stand twice", more);
	}
	expect_logged(fixture,
	    "the journal: the plant 0 stands twice, at the bytes 100 and "
	    "200",
	    3);
}

/* What index_build returns; pairs and index are closed. */
static enum fault
build_and_close(struct index *index, struct pairs *pairs,
    const struct position *to, const struct watch *watch)
{
	enum fault fault = index_build(index, pairs, to, watch);
	pairs_done(pairs);
	index_close(index, fault == FAULT_NONE);
	return fault;
}

static enum fault
build(
    const struct fixture *fixture, enum order order, size_t n, unsigned stop_at)
{
	struct fixture_steps steps = { .last = stop_at };
	const struct watch watch = { fixture_step, &steps };
	struct index *index = create(fixture);
	struct pairs pairs;

	assert_int_equal(begin(index).end, 0);
	add_pairs(&pairs, fixture->dir, order, n);
	return build_and_close(index, &pairs, &covered, &watch);
}

STORE_TEST(built_index_finds_the_first_record_of_every_id)
{
	static const struct {
		enum order order;
		size_t n, ids;
	} cases[] = { { SCATTERED, 0, 0 }, { SCATTERED, 1, 1 },
		{ SCATTERED, MANY, MANY }, { SAWTOOTH, 1000, 100 },
		/* More than one transaction. */
		{ ASCENDING, MANY_MORE, MANY_MORE } };
	uint64_t offset;

	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_int_equal(
		    build(fixture, cases[i].order, cases[i].n, 0), FAULT_NONE);
		struct index *index = open_index(fixture, INDEX_SERVE);
		struct position found = begin(index);
		assert_int_equal(found.end, covered.end);
		assert_int_equal(found.crc, covered.crc);
		for (size_t k = 0; k < cases[i].ids; k++) {
			int64_t id = id_at(cases[i].order, k, cases[i].n);

			assert_int_equal(
			    index_find(index, id, &offset), FAULT_NONE);
			assert_int_equal(offset, 100 + k);
		}
		assert_int_equal(index_count(index), cases[i].ids);
		index_close(index, false);
	}
	expect_logged(fixture, "stands twice", 10);
}

STORE_TEST(index_whose_building_was_stopped_is_not_used)
{
	enum fault fault = FAULT_STOPPED;

	for (unsigned stop_at = 1; fault == FAULT_STOPPED; stop_at += 7) {
		fault = build(fixture, ASCENDING, MANY_MORE, stop_at);
		if (fault == FAULT_STOPPED)
			expect_stale(fixture);
	}
	assert_int_equal(fault, FAULT_NONE);
	index_close(open_index(fixture, INDEX_SERVE), false);
}

/* The ids from `first` to `last`, at 1,000 and their number. */
static enum fault
add(const struct fixture *fixture, int64_t first, int64_t last)
{
	const struct position later = { 900, 800, 5, 1, false };
	struct index *index = look(fixture, INDEX_SERVE).index;
	struct pairs pairs;

	begin(index);
	assert_int_equal(pairs_init(&pairs, fixture->dir), 0);
	for (int64_t id = first; id <= last; id++)
		assert_int_equal(pairs_add(&pairs, id, 1000 + (uint64_t)id), 0);
	return build_and_close(index, &pairs, &later, NULL);
}

STORE_TEST(plants_are_added_to_what_an_index_has)
{
	assert_int_equal(build(fixture, SAWTOOTH, 90, 0), FAULT_NONE);
	assert_int_equal(add(fixture, 90, 100), FAULT_NONE);
	struct index *index = look(fixture, INDEX_SERVE).index;
	assert_int_equal(begin(index).end, 900);
	index_abort(index);
	assert_true(has(index, 89, 189));
	assert_true(has(index, 90, 1090));
	index_close(index, true);
	/* But no more than one append may be behind it. */
	assert_int_equal(add(fixture, 1000, 1000 + (64 << 10)), FAULT_FAILED);
	assert_int_equal(look(fixture, INDEX_SERVE).state, INDEX_ABSENT);
}

STORE_TEST(full_disk_is_an_error_wherever_it_is_met)
{
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
