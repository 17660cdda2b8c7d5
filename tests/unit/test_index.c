/*
 * test_index: what one process has written, every process finds, and what is in
 * memory; whatever fails or is killed, the manifest names an index that is
 * whole.  Pairs are sorted in any order.
 */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault_shim.h"
#include "store/index.h"
#include "sanitized.h"

#define UUID "0123abcd-0123-4567-89ab-0123456789ab"
#define OTHER "ffffffff-0123-4567-89ab-0123456789ab"
#define MANIFEST "index/manifest"

/* More than one buffer of pairs. */
#define MANY ((size_t)70000)

static struct position
position_at(uint64_t end)
{
	return (struct position){ end, end - 100, 3, 0x1234abcd, true };
}

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
		.end_fd = -1,
		.name = name };
	memcpy(journal->uuid, uuid, RECORD_UUID_LEN);
	return journal;
}

static struct index_view
look(const struct fixture *fixture)
{
	struct index_view view;

	assert_int_equal(
	    index_open(journal_of(fixture, UUID), &view), FAULT_NONE);
	assert_non_null(view.index);
	return view;
}

static enum index_state
state_of(const struct fixture *fixture)
{
	struct index_view view = look(fixture);

	index_close(view.index);
	return view.state;
}

/* The index of the directory, or a new one. */
static struct index *
open_index(const struct fixture *fixture)
{
	return look(fixture).index;
}

/* The ids [first, last], each at 1,000 and its number. */
static void
add(struct index *index, int64_t first, int64_t last)
{
	for (int64_t id = first; id <= last; id++)
		assert_int_equal(index_add(index, id, 1000 + (uint64_t)id), 0);
}

static void
expect_has(const struct index *index, int64_t first, int64_t last)
{
	for (int64_t id = first; id <= last; id++)
		assert_int_equal(index_find(index, id), 1000 + id);
	assert_int_equal(index_find(index, last + 1), 0);
}

/* A checkpoint of all plants, which end before `end`. */
static enum fault
save_with(
    struct index *index, uint64_t end, uint64_t max, const struct watch *watch)
{
	struct position at = position_at(end);
	enum fault fault = index_claim(index);

	if (fault == FAULT_NONE)
		fault = index_collect(index, &at);
	if (fault == FAULT_NONE)
		fault = index_write(index, max, watch);
	if (fault == FAULT_NONE)
		index_install(index);
	index_release(index);
	return fault;
}

static void
save(struct index *index, uint64_t end)
{
	assert_int_equal(save_with(index, end, UINT64_MAX, NULL), FAULT_NONE);
}

static unsigned
count_runs(const struct fixture *fixture)
{
	char name[32];
	unsigned n = 0;

	for (int i = 1; i < 1000; i++) {
		snprintf(name, sizeof(name), "index/run-%d", i);
		n += fixture_exists(fixture, name);
	}
	return n;
}

/* An index with the plants 1 to 3, closed. */
static void
leave_index(const struct fixture *fixture)
{
	struct index *index = open_index(fixture);

	add(index, 1, 3);
	save(index, 1004);
	index_close(index);
}

STORE_TEST(plants_are_found_in_memory_and_after_each_checkpoint)
{
	struct index *index = open_index(fixture);
	int64_t last = 0;

	assert_int_equal(state_of(fixture), INDEX_ABSENT);
	for (int i = 0; i < 40; i++) {
		int64_t next = last + 1 + i % 7 * 300;

		add(index, last + 1, next);
		last = next;
		expect_has(index, 1, last);
		save(index, 1001 + (uint64_t)last);
		assert_int_equal(index_held(index), 0);
		expect_has(index, 1, last);
		assert_int_equal(index_count(index), last);
		/* What is left of earlier runs is removed. */
		assert_in_range(count_runs(fixture), 1, 8);
	}
	index_close(index);
	struct index_view view = look(fixture);
	assert_int_equal(view.covered.end, 1001 + last);
	assert_int_equal(view.covered.crc, 0x1234abcd);
	assert_int_equal(view.entries, last);
	expect_has(view.index, 1, last);
	index_close(view.index);
}

STORE_TEST(every_id_is_found_from_the_least_to_the_greatest)
{
	static const int64_t ids[] = { INT64_MIN, INT64_MIN + 1, -256, -1, 0, 1,
		255, 256, 0x7300000000000000, 0x73, INT64_MAX - 1, INT64_MAX };
	struct index *index = open_index(fixture);

	for (int saved = 0; saved < 2; saved++) {
		for (size_t i = 0; i < COUNT(ids); i++) {
			assert_int_equal(
			    index_find(index, ids[i]), saved ? 100 + i : 0);
			if (!saved)
				index_add(index, ids[i], 100 + i);
		}
		save(index, 500);
	}
	/* Around the edges of the pages of a run. */
	for (int64_t id = 1; id < 2000; id++)
		index_add(index, 2 * id, 1000 + (uint64_t)id);
	save(index, 5000);
	for (int64_t id = 257; id < 2000; id++) {
		assert_int_equal(index_find(index, 2 * id), 1000 + id);
		assert_int_equal(index_find(index, 2 * id + 1), 0);
	}
	index_close(index);
}

STORE_TEST(many_scattered_ids_are_found_in_any_number_of_runs)
{
	struct index *index = open_index(fixture);

	for (uint64_t i = 0; i < 20 * MANY; i++) {
		assert_int_equal(
		    index_add(
			index, (int64_t)(i * 0x9e3779b97f4a7c15), 1000 + i),
		    0);
		if (i % MANY == MANY - 1)
			save(index, 1001 + i);
	}
	for (uint64_t i = 0; i < 20 * MANY; i += 7) {
		int64_t id = (int64_t)(i * 0x9e3779b97f4a7c15);

		assert_int_equal(index_find(index, id), 1000 + i);
		assert_int_equal(index_find(index, id + 1), 0);
	}
	assert_in_range(count_runs(fixture), 1, 4);
	index_close(index);
}

STORE_TEST(plants_that_are_taken_out_of_memory_are_gone)
{
	struct index *index = open_index(fixture);

	add(index, 1, 3000);
	index_keep(index, 1000);
	expect_has(index, 1, 1000);
	for (int64_t id = 1001; id <= 3000; id++)
		assert_int_equal(index_find(index, id), 0);
	add(index, 1001, 1500);
	expect_has(index, 1, 1500);
	index_close(index);
}

STORE_TEST(plants_that_came_during_a_checkpoint_stay_in_memory)
{
	struct index *index = open_index(fixture);
	struct position at = position_at(2000);

	add(index, 1, 999);
	assert_int_equal(index_claim(index), FAULT_NONE);
	assert_int_equal(index_collect(index, &at), FAULT_NONE);
	add(index, 1000, 1010);
	assert_int_equal(index_write(index, 0, NULL), FAULT_NONE);
	expect_has(index, 1, 1010);
	index_install(index);
	index_release(index);
	assert_int_equal(index_held(index), 11);
	expect_has(index, 1, 1010);
	index_close(index);
}

/* Else it would need several times its room. */
STORE_TEST(a_build_removes_the_runs_that_it_replaces)
{
	struct index *index = open_index(fixture);

	assert_int_equal(index_claim(index), FAULT_NONE);
	for (int64_t last = 10; last <= 50; last += 10) {
		struct position at = position_at(1001 + (uint64_t)last);

		add(index, last - 9, last);
		assert_int_equal(index_collect(index, &at), FAULT_NONE);
		assert_int_equal(
		    index_write(index, UINT64_MAX, NULL), FAULT_NONE);
		index_install(index);
		assert_in_range(count_runs(fixture), 1, 4);
	}
	index_close(index);
	assert_in_range(count_runs(fixture), 1, 2);
}

STORE_TEST(one_process_at_a_time_makes_checkpoints)
{
	struct index *one = open_index(fixture), *two = open_index(fixture);

	assert_int_equal(index_claim(one), FAULT_NONE);
	assert_int_equal(index_claim(two), FAULT_BUSY);
	index_release(one);
	assert_int_equal(index_claim(two), FAULT_NONE);
	index_close(two);
	assert_int_equal(index_claim(one), FAULT_NONE);
	index_close(one);
}

/* It need not write again what another one has written. */
STORE_TEST(a_process_takes_over_what_another_one_has_written)
{
	struct index *one = open_index(fixture), *two = open_index(fixture);
	struct position at = position_at(1500);

	for (int64_t last = 100; last < 2000; last += 100) {
		add(one, last - 99, last);
		add(two, last - 99, last);
		save(one, 1001 + (uint64_t)last);
		expect_has(two, 1, last);
	}
	add(two, 1901, 1910);
	assert_int_equal(index_claim(two), FAULT_NONE);
	assert_int_equal(index_collect(two, &at), FAULT_NONE);
	assert_int_equal(at.end, 2901);
	assert_int_equal(index_held(two), 10);
	expect_has(two, 1, 1910);
	index_close(two);
	index_close(one);
}

static void
remove_manifest(const struct fixture *fixture)
{
	fixture_remove(fixture, MANIFEST);
}

/* Another process has built it, and was stopped. */
static void
build_less(const struct fixture *fixture)
{
	const struct position at = position_at(1002);
	const int64_t id = 1;
	const uint64_t offset = 1001;

	fixture_forge_index(fixture, &id, &offset, 1, &at);
}

STORE_TEST(a_process_whose_index_was_removed_writes_all_of_it_again)
{
	static void (*const losses[])(const struct fixture *) = {
		remove_manifest, fixture_remove_index, fixture_junk_index
	};

	for (size_t i = 0; i < COUNT(losses); i++) {
		fixture_remove_index(fixture);
		struct index *index = open_index(fixture);
		add(index, 1, 3000);
		save(index, 4001);
		losses[i](fixture);
		add(index, 3001, 3010);
		expect_has(index, 1, 3010);
		save(index, 4011);
		expect_has(index, 1, 3010);
		index_close(index);
		index = look(fixture).index;
		expect_has(index, 1, 3010);
		assert_int_equal(count_runs(fixture), 1);
		index_close(index);
	}
}

STORE_TEST(an_index_that_covers_less_is_replaced)
{
	static char uuid[RECORD_UUID_LEN + 1];
	struct journal owner = fixture_owner(fixture);
	struct index_view view;

	assert_int_equal(index_open(&owner, &view), FAULT_NONE);
	struct index *index = view.index;
	memcpy(uuid, owner.uuid, RECORD_UUID_LEN);
	add(index, 1, 300);
	save(index, 1301);
	build_less(fixture);
	add(index, 301, 310);
	save(index, 1311);
	expect_has(index, 1, 310);
	index_close(index);
	assert_int_equal(index_open(&owner, &view), FAULT_NONE);
	expect_has(view.index, 1, 310);
	index_close(view.index);
}

/* --- Failures and kills -------------------------------------------------- */

struct attempt {
	const struct fixture *fixture;
	enum shim_call call;
	unsigned nth;
};

static int
save_more(void *argument)
{
	const struct attempt *attempt = argument;
	struct index *index = look(attempt->fixture).index;

	add(index, 4, 3000);
	shim_exit(attempt->call, NULL, attempt->nth);
	return save_with(index, 4001, UINT64_MAX, NULL) == FAULT_NONE ? 1 : 2;
}

/* Before each call of a checkpoint: there is the old index, or the new one. */
STORE_TEST(a_checkpoint_that_is_killed_anywhere_leaves_a_whole_index)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_FDATASYNC,
		SHIM_FSYNC, SHIM_UNLINKAT };
	unsigned before = 0, after = 0;

	for (size_t i = 0; i < COUNT(calls); i++) {
		int status = 0;

		for (unsigned nth = 1; status != 1; nth++) {
			struct attempt attempt = { fixture, calls[i], nth };

			fixture_remove_index(fixture);
			leave_index(fixture);
			status = in_child(save_more, &attempt);
			assert_int_not_equal(status, 2);
			struct index_view view = look(fixture);
			assert_int_equal(view.state, INDEX_USABLE);
			bool more = view.covered.end == 4001;
			before += !more;
			after += more;
			expect_has(view.index, 1, more ? 3000 : 3);
			/* The next one removes what is left over. */
			if (!more)
				add(view.index, 4, 3000);
			add(view.index, 3001, 3001);
			save(view.index, 4002);
			expect_has(view.index, 1, 3001);
			assert_in_range(count_runs(fixture), 1, 2);
			index_close(view.index);
		}
	}
	assert_true(before > 4 && after > 4);
}

STORE_TEST(a_checkpoint_that_fails_anywhere_keeps_its_plants)
{
	static const struct {
		enum shim_call call;
		int error;
	} rows[] = { { SHIM_PWRITE, ENOSPC }, { SHIM_PREAD, EIO },
		{ SHIM_FSYNC, EIO }, { SHIM_FSTAT, EIO } };
	unsigned failures = 0;

	for (size_t i = 0; i < COUNT(rows); i++) {
		bool failed = true;

		for (unsigned nth = 1; failed; nth++) {
			fixture_remove_index(fixture);
			leave_index(fixture);
			struct index *index = look(fixture).index;
			add(index, 4, 3000);
			shim_fail(rows[i].call, NULL, nth, 1, rows[i].error);
			enum fault fault =
			    save_with(index, 4001, UINT64_MAX, NULL);
			failed = shim_reset();
			failures += fault != FAULT_NONE;
			expect_has(index, 1, 3000);
			/* To others, too, it is whole. */
			struct index_view view = look(fixture);
			assert_int_equal(view.state, INDEX_USABLE);
			expect_has(
			    view.index, 1, view.covered.end == 4001 ? 3000 : 3);
			index_close(view.index);
			add(index, 3001, 3001);
			save(index, 4002);
			expect_has(index, 1, 3001);
			assert_in_range(count_runs(fixture), 1, 2);
			index_close(index);
		}
	}
	assert_true(failures > 6);
}

STORE_TEST(a_checkpoint_without_memory_keeps_its_plants)
{
	bool failed = true;

	for (unsigned nth = 1; failed; nth++) {
		fixture_remove_index(fixture);
		leave_index(fixture);
		struct index *index = look(fixture).index;
		add(index, 4, 3000);
		alloc_fail(nth, 1);
		save_with(index, 4001, UINT64_MAX, NULL);
		failed = alloc_reset();
		expect_has(index, 1, 3000);
		index_close(index);
	}
}

STORE_TEST(a_row_of_failures_is_logged_once)
{
	struct index *index = open_index(fixture);

	add(index, 1, 3);
	shim_fail(SHIM_FSYNC, "manifest.new", 1, 3, EIO);
	for (int i = 0; i < 3; i++)
		save_with(index, 2000, 0, NULL);
	/* Nor do they fill the disk. */
	assert_int_equal(count_runs(fixture), 0);
	assert_false(fixture_exists(fixture, "index/manifest.new"));
	save(index, 2000);
	expect_logged(fixture, "/index: cannot write: ", 1);
	expect_logged(fixture, "can be written again", 1);
	index_close(index);
}

/* Another process may have made the directory again, with another mark. */
STORE_TEST(a_checkpoint_lets_the_mark_be_opened_again)
{
	struct journal *journal = journal_of(fixture, UUID);
	struct index_view view;

	assert_int_equal(index_open(journal, &view), FAULT_NONE);
	for (int i = 0; i < 2; i++) {
		journal->end_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
		add(view.index, 3 * i + 1, 3 * i + 3);
		save(view.index, 2000);
		assert_int_equal(journal->end_fd, -1);
	}
	index_close(view.index);
}

STORE_TEST(a_merge_can_be_stopped)
{
	struct fixture_steps steps = { .last = 2 };
	const struct watch watch = { fixture_step, &steps };
	struct index *index = open_index(fixture);

	for (int64_t id = 1; id < 600000; id++)
		index_add(index, id, 1000 + (uint64_t)id);
	assert_int_equal(
	    save_with(index, 700000, UINT64_MAX, &watch), FAULT_STOPPED);
	assert_int_equal(state_of(fixture), INDEX_ABSENT);
	assert_int_equal(count_runs(fixture), 0);
	expect_logged(fixture, "index", 0);
	expect_has(index, 1, 599999);
	index_close(index);
}

/* --- What is believed ---------------------------------------------------- */

STORE_TEST(a_manifest_of_other_bytes_is_not_believed)
{
	leave_index(fixture);
	struct contents manifest = fixture_read(fixture, MANIFEST);
	for (size_t i = 0; i < manifest.len - 8; i += 5) {
		manifest.at[i] ^= 1;
		fixture_write(fixture, MANIFEST, 0, manifest.at, manifest.len);
		assert_int_equal(state_of(fixture), INDEX_UNUSABLE);
		manifest.at[i] ^= 1;
		fixture_truncate(fixture, MANIFEST, i);
		assert_int_equal(state_of(fixture), INDEX_UNUSABLE);
	}
	fixture_write(fixture, MANIFEST, 0, manifest.at, manifest.len);
	assert_int_equal(state_of(fixture), INDEX_USABLE);
}

STORE_TEST(a_copied_cut_or_lost_file_of_an_index_is_not_believed)
{
	static const char *const files[] = { MANIFEST, "index/run-1" };

	for (size_t i = 0; i < COUNT(files); i++) {
		leave_index(fixture);
		assert_int_equal(state_of(fixture), INDEX_USABLE);
		fixture_copy(fixture, files[i]);
		assert_int_equal(state_of(fixture), INDEX_STALE);
		fixture_remove_index(fixture);
	}
	leave_index(fixture);
	fixture_truncate(
	    fixture, files[1], fixture_size(fixture, files[1]) - 1);
	assert_int_equal(state_of(fixture), INDEX_STALE);
	fixture_remove(fixture, files[1]);
	assert_int_equal(state_of(fixture), INDEX_STALE);
}

/* Else the new run would have it, with a checksum of its own. */
STORE_TEST(a_bit_that_the_disk_has_flipped_is_not_handed_on)
{
	struct index *index = open_index(fixture);

	add(index, 1, 3000);
	save(index, 4001);
	struct contents run = fixture_read(fixture, "index/run-1");
	for (size_t i = 0; i < run.len; i += 4097) {
		const bool counts = i < 3000 * sizeof(struct pair);

		run.at[i] ^= 1;
		fixture_write(fixture, "index/run-1", i, &run.at[i], 1);
		add(index, 3001, 4000);
		assert_int_equal(
		    save_with(index, 5001, UINT64_MAX, NULL) == FAULT_DAMAGED,
		    counts);
		assert_int_equal(!fixture_exists(fixture, MANIFEST), counts);
		index_close(index);
		fixture_remove_index(fixture);
		index = open_index(fixture);
		add(index, 1, 3000);
		save(index, 4001);
		run = fixture_read(fixture, "index/run-1");
	}
	assert_true(fixture_logged(fixture, "damaged and removed") > 5);
	index_close(index);
}

STORE_TEST(index_is_opened_for_its_own_store_only)
{
	struct index_view view;
	char uuid[RECORD_UUID_LEN];

	assert_int_equal(index_uuid(fixture->dir, uuid), -1);
	leave_index(fixture);
	assert_int_equal(
	    index_open(journal_of(fixture, OTHER), &view), FAULT_SETUP);
	expect_logged(fixture,
	    "belongs to a different store from the index beside it", 1);
	assert_int_equal(index_uuid(fixture->dir, uuid), 0);
	assert_memory_equal(uuid, UUID, RECORD_UUID_LEN);
	index_discard(fixture->dir);
	assert_int_equal(state_of(fixture), INDEX_ABSENT);
	assert_int_equal(unlinkat(fixture->dir, "index", AT_REMOVEDIR), 0);
}

/* Its files give way; what it enters is not read. */
STORE_TEST(index_of_version_1_0_0_is_built_again)
{
	static const char *const names[] = { "index/data.mdb", "index/lock.mdb",
		"index/boot", "index/clean" };

	assert_int_equal(mkdirat(fixture->dir, "index", 0700), 0);
	/* The second time it was used beside ours, or after it. */
	for (int i = 0; i < 2; i++) {
		for (size_t k = 0; k < COUNT(names); k++)
			fixture_write(fixture, names[k], 0, "data", 4);
		assert_int_equal(
		    state_of(fixture), i == 0 ? INDEX_ABSENT : INDEX_USABLE);
		leave_index(fixture);
		assert_int_equal(state_of(fixture), INDEX_USABLE);
		for (size_t k = 0; k < COUNT(names); k++)
			assert_false(fixture_exists(fixture, names[k]));
	}
}

STORE_TEST(only_the_owner_may_read_the_index)
{
	static const char *const names[] = { "index/run-1", MANIFEST };
	struct stat st;

	leave_index(fixture);
	for (size_t i = 0; i < COUNT(names); i++) {
		assert_int_equal(fstatat(fixture->dir, names[i], &st, 0), 0);
		assert_int_equal(st.st_mode & 077, 0);
	}
	assert_int_equal(fstatat(fixture->dir, "index", &st, 0), 0);
	assert_int_equal(st.st_mode & 077, 0);
}

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
add_pairs(struct pairs *pairs, enum order order, size_t n)
{
	assert_int_equal(pairs_init(pairs), 0);
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

		add_pairs(&pairs, order, n);
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

		add_pairs(&pairs, SAWTOOTH, cases[i].n);
		assert_int_equal(pairs_sort(&pairs), 0);
		assert_int_equal(index_twins(&pairs, "the journal"), twins);
		pairs_done(&pairs);
		lines += twins < 10 ? (unsigned)twins : 10;
		more += twins > 10;
		expect_logged(fixture, "occurs twice, at", lines);
		expect_logged(fixture, "more plants occur twice", more);
	}
	expect_logged(fixture,
	    "the journal: the plant 0 occurs twice, at bytes 100 and 200", 3);
}

STORE_TEST(full_disk_is_an_error_wherever_it_is_met)
{
	struct pairs pairs;
	unsigned failures = 0;

	/* While pairs are added, and while the last of them are sorted. */
	for (unsigned nth = 1;; nth++) {
		int result = 0;

		assert_int_equal(pairs_init(&pairs), 0);
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
