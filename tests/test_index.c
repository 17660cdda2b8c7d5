/*
 * test_index: every process finds what another has entered, as long as the
 * index can be trusted; otherwise it is not opened.
 */
#include "store_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_shim.h"
#include "index.h"
#include "sanitized.h"

#define UUID "0123abcd-0123-4567-89ab-0123456789ab"
#define OTHER "ffffffff-0123-4567-89ab-0123456789ab"
#define DATA "index/data.mdb"
#define BOOT "index/boot"

static const struct position covered = { 500, 400, 3, 0x1234abcd, true };

static enum index_open
try_open(const struct fixture *fixture, bool write, struct index **index)
{
	*index = NULL;
	return index_open(fixture->dir, fixture->path, UUID, write, index);
}

static struct index *
open_index(const struct fixture *fixture, bool write)
{
	struct index *index;

	assert_int_equal(try_open(fixture, write, &index), INDEX_OPENED);
	return index;
}

static void
expect_not_opened(const struct fixture *fixture, enum index_open expected)
{
	struct index *index;

	assert_int_equal(try_open(fixture, false, &index), expected);
	assert_int_equal(try_open(fixture, true, &index), expected);
}

static struct index *
create(const struct fixture *fixture)
{
	struct index *index;

	assert_int_equal(
	    index_create(fixture->dir, fixture->path, UUID, &index), 0);
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

/* Whether the index has the id; it must have it at that offset. */
static bool
has(struct index *index, int64_t id, uint64_t offset)
{
	uint64_t found = 0;

	begin(index);
	enum index_result result = index_find(index, id, &found);
	index_abort(index);
	assert_int_not_equal(result, INDEX_ERROR);
	if (result == INDEX_FOUND)
		assert_int_equal(found, offset);
	return result == INDEX_FOUND;
}

/* An index with the plant 7 at 100, closed. */
static void
leave_index(const struct fixture *fixture, bool clean)
{
	struct index *index = create(fixture);

	enter(index, 7, 100);
	index_close(index, clean);
}

static bool
is_kept(const struct fixture *fixture)
{
	struct index *index = open_index(fixture, true);
	bool kept = has(index, 7, 100);

	index_close(index, false);
	return kept;
}

static bool
is_clean(const struct fixture *fixture)
{
	size_t len;
	char *mark = fixture_read(fixture, BOOT, &len);
	bool clean = strncmp(mark, "clean ", 6) == 0;

	free(mark);
	return clean;
}

/* As if the machine had been started again. */
static void
change_boot(const struct fixture *fixture)
{
	if (!is_clean(fixture))
		fixture_write(fixture, BOOT, 0, "00000000", 8);
}

static void
new_index_covers_nothing_and_is_stale_until_it_does(void **state)
{
	struct index *index = create(*state);

	assert_int_equal(begin(index).end, 0);
	index_abort(index);
	expect_not_opened(*state, INDEX_STALE);
	enter(index, 7, 100);
	index_close(index, false);
	assert_true(is_kept(*state));
}

static void
every_id_is_new_once_and_found_from_then_on(void **state)
{
	static const int64_t ids[] = { INT64_MIN, INT64_MIN + 1, -256, -1, 0, 1,
		255, 256, 0x7300000000000000, 0x73, INT64_MAX - 1, INT64_MAX };
	struct index *index = create(*state);
	uint64_t found;

	for (size_t i = 0; i < COUNT(ids); i++) {
		assert_false(has(index, ids[i], 0));
		enter(index, ids[i], 1000 + i);
	}
	begin(index);
	for (int64_t i = 1; i < 20000; i++) {
		int64_t id = (1 + i * 7919 % 20011) << 10;

		assert_int_equal(
		    index_put(index, id, (uint64_t)i, &found), INDEX_NEW);
		assert_int_equal(
		    index_put(index, id, 99999, &found), INDEX_FOUND);
		assert_int_equal(found, i);
	}
	assert_int_equal(index_commit(index, &covered), 0);
	for (size_t i = 0; i < COUNT(ids); i++)
		assert_true(has(index, ids[i], 1000 + i));
	for (int64_t i = 1; i < 20000; i++)
		assert_true(
		    has(index, (1 + i * 7919 % 20011) << 10, (uint64_t)i));
	assert_false(has(index, 2, 0));
	index_close(index, false);
}

static void
index_outlives_its_boot_only_after_a_clean_close(void **state)
{
	const struct fixture *fixture = *state;

	for (int rebooted = 0; rebooted < 2; rebooted++)
		for (int clean = 0; clean < 2; clean++) {
			leave_index(fixture, clean != 0);
			assert_int_equal(is_clean(fixture), clean);
			if (rebooted)
				change_boot(fixture);
			if (!clean && rebooted)
				expect_not_opened(fixture, INDEX_STALE);
			else
				assert_true(is_kept(fixture));
		}
	/* The last one was taken over by this boot, which keeps it. */
	assert_false(is_clean(fixture));
	assert_true(is_kept(fixture));
	change_boot(fixture);
	expect_not_opened(fixture, INDEX_STALE);
}

/* Only a crash of the machine loses pages, and it leaves no process. */
static void
index_that_a_process_writes_is_of_this_boot_whatever_its_id(void **state)
{
	const struct fixture *fixture = *state;

	leave_index(fixture, false);
	for (int created = 0; created < 2; created++) {
		struct index *staying =
		    created ? create(fixture) : open_index(fixture, true);

		if (created)
			enter(staying, 7, 100);
		change_boot(fixture);
		index_close(open_index(fixture, false), false);
		assert_true(is_kept(fixture));
		index_close(staying, false);
		expect_not_opened(fixture, INDEX_STALE);
	}
}

static void
index_in_use_after_anothers_clean_close_is_not_clean(void **state)
{
	const struct fixture *fixture = *state;
	struct index *staying, *leaving;

	leave_index(fixture, false);
	staying = open_index(fixture, true);
	leaving = open_index(fixture, true);
	index_close(leaving, true);
	assert_true(is_clean(fixture));
	assert_true(has(staying, 7, 100));
	assert_false(is_clean(fixture));
	index_close(staying, false);
}

static void
no_page_is_written_before_the_mark_of_the_boot_is_durable(void **state)
{
	static const char *const syncs[] = { BOOT, "/index" };
	const struct fixture *fixture = *state;
	struct position found;
	struct index *index;

	for (size_t i = 0; i < COUNT(syncs); i++) {
		leave_index(fixture, true);
		index = open_index(fixture, true);
		shim_fail(SHIM_FSYNC, syncs[i], 1, 1, EIO);
		shim_fail(SHIM_PWRITE, DATA, 1, 0, 0);
		shim_fail(SHIM_WRITEV, DATA, 1, 0, 0);
		assert_int_equal(index_begin(index, &found), -1);
		assert_int_equal(errno, EIO);
		assert_int_equal(shim_count(SHIM_PWRITE), 0);
		assert_int_equal(shim_count(SHIM_WRITEV), 0);
		index_close(index, false);
		shim_reset();
	}
}

static void
index_is_clean_only_if_its_pages_were_synced(void **state)
{
	const struct fixture *fixture = *state;
	struct index *index = create(fixture);

	enter(index, 7, 100);
	shim_fail(SHIM_FDATASYNC, DATA, 1, 9, EIO);
	index_close(index, true);
	assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	assert_false(is_clean(fixture));
}

static void
index_that_was_discarded_does_not_mark_the_next_one(void **state)
{
	const struct fixture *fixture = *state;
	struct index *old = create(fixture);

	enter(old, 7, 100);
	leave_index(fixture, false);
	index_close(old, true);
	assert_false(is_clean(fixture));
}

static void
index_is_opened_for_its_own_store_only(void **state)
{
	const struct fixture *fixture = *state;
	char uuid[RECORD_UUID_LEN];
	struct index *index = NULL;

	assert_int_equal(index_uuid(fixture->dir, uuid), -1);
	leave_index(fixture, false);
	assert_int_equal(index_uuid(fixture->dir, uuid), 0);
	assert_memory_equal(uuid, UUID, RECORD_UUID_LEN);
	for (int write = 0; write < 2; write++)
		assert_int_equal(index_open(fixture->dir, fixture->path, OTHER,
				     write != 0, &index),
		    INDEX_FOREIGN);
	assert_int_equal(index_end(fixture->dir, fixture->path, OTHER), 0);
	assert_true(is_kept(fixture));
}

static void
mark_that_a_crash_left_unwritten_makes_the_index_stale(void **state)
{
	static const char zeros[128];
	const struct fixture *fixture = *state;
	char uuid[RECORD_UUID_LEN];
	size_t size;

	/* No file, of any shorter length, or zeros. */
	leave_index(fixture, true);
	size = fixture_size(fixture, BOOT);
	fixture_write(fixture, BOOT, 0, zeros, size);
	expect_not_opened(fixture, INDEX_STALE);
	assert_int_equal(index_uuid(fixture->dir, uuid), -1);
	leave_index(fixture, true);
	while (size-- > 0) {
		fixture_truncate(fixture, BOOT, size);
		expect_not_opened(fixture, INDEX_STALE);
	}
	fixture_remove(fixture, BOOT);
	expect_not_opened(fixture, INDEX_STALE);
}

static void
only_the_owner_may_read_the_index(void **state)
{
	static const char *const names[] = { "index", DATA, BOOT };
	const struct fixture *fixture = *state;
	struct stat st;

	leave_index(fixture, true);
	for (size_t i = 0; i < COUNT(names); i++) {
		assert_int_equal(fstatat(fixture->dir, names[i], &st, 0), 0);
		assert_int_equal(st.st_mode & 0077, 0);
	}
}

static void
index_is_not_built_upon_a_file_that_cannot_be_removed(void **state)
{
	const struct fixture *fixture = *state;
	struct index *index = NULL;

	leave_index(fixture, false);
	shim_fail(SHIM_UNLINKAT, DATA, 1, 9, EACCES);
	assert_int_equal(
	    index_create(fixture->dir, fixture->path, OTHER, &index), -1);
	assert_int_equal(errno, EACCES);
}

static void
reader_changes_no_file(void **state)
{
	static const char *const names[] = { DATA, BOOT };
	const struct fixture *fixture = *state;
	char *before[COUNT(names)];
	size_t len[COUNT(names)];
	uint64_t found;

	leave_index(fixture, true);
	for (size_t i = 0; i < COUNT(names); i++)
		before[i] = fixture_read(fixture, names[i], &len[i]);
	struct index *reader = open_index(fixture, false);
	assert_true(has(reader, 7, 100));
	begin(reader);
	assert_int_equal(index_put(reader, 8, 100, &found), INDEX_ERROR);
	index_close(reader, true);
	for (size_t i = 0; i < COUNT(names); i++) {
		fixture_expect_bytes(fixture, names[i], before[i], len[i]);
		free(before[i]);
	}
}

/* In which no index can be mapped, but in 1 GiB one can. */
static int
open_in_little_space(void *argument)
{
	struct rlimit limit = { (rlim_t)1 << 30, (rlim_t)1 << 30 };
	struct index *index;

	if (setrlimit(RLIMIT_AS, &limit) < 0 ||
	    try_open(argument, true, &index) != INDEX_OPENED)
		return 1;
	index_close(index, false);
	limit.rlim_cur = (rlim_t)100 << 20;
	if (setrlimit(RLIMIT_AS, &limit) < 0 ||
	    try_open(argument, true, &index) != INDEX_REFUSED)
		return 2;
	return errno != ENOMEM;
}

static void
index_is_not_to_blame_for_a_limit_on_memory(void **state)
{
	leave_index(*state, false);
	/* A sanitizer has more mapped already than is allowed there. */
	if (!SANITIZED)
		assert_int_equal(
		    fixture_in_child(open_in_little_space, *state), 0);
	assert_true(is_kept(*state));
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

static void
map_grows_ahead_of_the_file(void **state)
{
	struct index *index = create(*state), *other;
	int64_t id = 0;
	struct pairs pairs = { .n = 500000 };

	pairs.map = calloc(pairs.n, sizeof(*pairs.map));
	assert_non_null(pairs.map);
	enter(index, -1, 100);
	size_t before = largest_map();
	/* 26 bytes each: a step of the map's size. */
	while (id < 5500000) {
		begin(index);
		for (size_t i = 0; i < pairs.n; i++, id++)
			pairs.map[i] = (struct pair){ id, (uint64_t)id };
		assert_int_equal(
		    index_build(index, &pairs, true, &covered, NULL, NULL), 0);
	}
	free(pairs.map);
	other = open_index(*state, true);
	assert_true(has(index, id - 1, (uint64_t)id - 1));
	assert_true(has(other, id - 1, (uint64_t)id - 1));
	assert_true(largest_map() > before);
	assert_true(largest_map() > 2 * fixture_size(*state, DATA));
	index_close(index, false);
	index_close(other, false);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(new_index_covers_nothing_and_is_stale_until_it_does),
		TEST(every_id_is_new_once_and_found_from_then_on),
		TEST(index_outlives_its_boot_only_after_a_clean_close),
		TEST(
		    index_that_a_process_writes_is_of_this_boot_whatever_its_id),
		TEST(index_in_use_after_anothers_clean_close_is_not_clean),
		TEST(no_page_is_written_before_the_mark_of_the_boot_is_durable),
		TEST(index_is_clean_only_if_its_pages_were_synced),
		TEST(index_that_was_discarded_does_not_mark_the_next_one),
		TEST(index_is_opened_for_its_own_store_only),
		TEST(mark_that_a_crash_left_unwritten_makes_the_index_stale),
		TEST(only_the_owner_may_read_the_index),
		TEST(index_is_not_built_upon_a_file_that_cannot_be_removed),
		TEST(reader_changes_no_file),
		TEST(index_is_not_to_blame_for_a_limit_on_memory),
		TEST(map_grows_ahead_of_the_file),
	};

	return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
