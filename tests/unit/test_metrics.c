/*
 * metrics: the counters of several processes in one file, whatever becomes of
 * that file.
 */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/metrics.h"

#define FILE_BYTES 4096
#define THREADS 4
#define EACH 50000

static void
open_good(const struct fixture *fixture)
{
	assert_int_equal(metrics_open(fixture->path, true), FAULT_NONE);
}

/*
 * cmocka handles SIGBUS during a test: a process that opens the file for the
 * first time, without that handler.  These tests come first, while this process
 * has none open.
 */
static int
open_in_child(const char *path)
{
	const struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	signal(SIGBUS, SIG_DFL);
	return (int)metrics_open(path, true);
}

static int
count_while_it_is_truncated(void *path)
{
	char name[96];

	if (open_in_child(path) != FAULT_NONE)
		return 1;
	snprintf(name, sizeof(name), "%s/" METRICS_NAME, (char *)path);
	if (truncate(name, 0) < 0)
		return 2;
	metrics_add(METRICS_CREATED, 3);
	metrics_observe(METRICS_SYNC_US, 7);
	if (metrics[METRICS_CREATED] != 3 ||
	    metrics_open(path, true) != FAULT_NONE)
		return 3;
	metrics_add(METRICS_CREATED, 1);
	return metrics[METRICS_CREATED] == 1 ? 0 : 4;
}

STORE_TEST(truncated_file_harms_no_process_that_counts_in_it)
{
	assert_int_equal(
	    in_child(count_while_it_is_truncated, fixture->path), 0);
	assert_int_equal(fixture_size(fixture, METRICS_NAME), FILE_BYTES);
}

static int
touch_another_file(void *path)
{
	int fd = memfd_create("empty", 0);

	if (open_in_child(path) != FAULT_NONE)
		return 1;
	char *map =
	    mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	*(volatile char *)map = 1;
	return 0;
}

STORE_TEST(truncation_of_any_other_mapped_file_ends_the_process_as_before)
{
	assert_int_equal(
	    in_child(touch_another_file, fixture->path), 128 + SIGBUS);
}

static int
count_in_child(void *path)
{
	if (metrics_open(path, false) != FAULT_NONE)
		return 1;
	metrics_add(METRICS_CREATED, 5);
	return 0;
}

STORE_TEST(processes_and_later_ones_count_together)
{
	open_good(fixture);
	metrics_add(METRICS_CREATED, 2);
	assert_int_equal(in_child(count_in_child, fixture->path), 0);
	assert_int_equal(metrics[METRICS_CREATED], 7);
	open_good(fixture);
	assert_int_equal(metrics[METRICS_CREATED], 7);
}

STORE_TEST(file_is_allocated_and_only_made_when_that_is_wanted)
{
	struct stat st;

	assert_int_equal(metrics_open(fixture->path, false), FAULT_ABSENT);
	assert_false(fixture_exists(fixture, METRICS_NAME));
	open_good(fixture);
	assert_int_equal(fstatat(fixture->dir, METRICS_NAME, &st, 0), 0);
	assert_int_equal(st.st_size, FILE_BYTES);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_true(st.st_blocks * 512 >= FILE_BYTES);
}

STORE_TEST(lost_file_is_made_anew_and_the_old_one_can_still_be_counted_in)
{
	open_good(fixture);
	fixture_remove(fixture, METRICS_NAME);
	metrics_add(METRICS_CREATED, 1);
	assert_int_equal(metrics[METRICS_CREATED], 1);
	open_good(fixture);
	assert_int_equal(metrics[METRICS_CREATED], 0);
}

STORE_TEST(file_of_another_kind_is_replaced_and_a_short_one_filled)
{
	static const struct {
		size_t size;
		const char *begin;
	} rows[] = { { 0, "" }, { 1, "" }, { 4095, "" }, { 4096, "x" },
		{ 4096, "plant-store of another version" }, { 9000, "" },
		{ 100, "x" } };

	for (size_t i = 0; i < COUNT(rows); i++) {
		fixture_renew(fixture);
		fixture_write(fixture, METRICS_NAME, 0, rows[i].begin,
		    strlen(rows[i].begin));
		fixture_truncate(fixture, METRICS_NAME, rows[i].size);
		if (rows[i].begin[0] != '\0')
			assert_int_equal(
			    metrics_open(fixture->path, false), FAULT_SETUP);
		open_good(fixture);
		assert_int_equal(metrics[METRICS_CREATED], 0);
		metrics_add(METRICS_CREATED, 1);
		open_good(fixture);
		assert_int_equal(metrics[METRICS_CREATED], 1);
	}
}

/* A test that opens stores one after another reaches the limit otherwise. */
STORE_TEST(a_process_maps_one_file_at_a_time)
{
	open_good(fixture);
	open_good(fixture);
	fixture_renew(fixture);
	open_good(fixture);
	fixture_write(fixture, METRICS_NAME, 0, "x", 1);
	assert_int_equal(metrics_open(fixture->path, false), FAULT_SETUP);

	FILE *maps = fopen("/proc/self/maps", "re");
	char line[1000];
	int n = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) != NULL)
		n += strstr(line, "/" METRICS_NAME) != NULL;
	fclose(maps);
	assert_int_equal(n, 1);
}

static int
open_without_room(void *path)
{
	const struct rlimit none = { 0, 0 };

	signal(SIGXFSZ, SIG_IGN);
	metrics_add(METRICS_CREATED, 1);
	uint64_t n = metrics[METRICS_CREATED];
	if (setrlimit(RLIMIT_FSIZE, &none) < 0 ||
	    metrics_open(path, true) != FAULT_FULL || errno != EFBIG)
		return 1;
	metrics_add(METRICS_CREATED, 1);
	return metrics[METRICS_CREATED] == n + 1 ? 0 : 2;
}

STORE_TEST(without_room_a_process_counts_for_itself)
{
	assert_int_equal(in_child(open_without_room, fixture->path), 0);
}

STORE_TEST(store_serves_where_there_can_be_no_file)
{
	assert_int_equal(mkdirat(fixture->dir, METRICS_NAME, 0700), 0);
	struct store *store = fixture_open(fixture, true);
	expect_put(store, 1, "1", STORE_CREATED);
	store_close(store);
	expect_logged(fixture, "counts only for itself", 1);
	assert_int_equal(unlinkat(fixture->dir, METRICS_NAME, AT_REMOVEDIR), 0);
}

static void *
count_often(void *unused)
{
	for (int i = 0; i < EACH; i++) {
		metrics_add(METRICS_CREATED, 1);
		metrics_observe(METRICS_BATCH_PLANTS, 2);
	}
	return unused;
}

STORE_TEST(threads_lose_no_count)
{
	pthread_t threads[THREADS];

	open_good(fixture);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(
		    pthread_create(&threads[i], NULL, count_often, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(metrics[METRICS_CREATED], THREADS * EACH);
	assert_int_equal(
	    metrics[METRICS_BATCH_PLANTS + METRICS_SUM], 2 * THREADS * EACH);
}

STORE_TEST(value_is_in_the_bucket_whose_bound_it_does_not_exceed)
{
	open_good(fixture);
	for (unsigned i = 0; i < METRICS_BUCKETS - 1; i++) {
		metrics_observe(
		    METRICS_SYNC_US, metrics_bound(METRICS_SYNC_US, i));
		metrics_observe(
		    METRICS_COMMIT_US, metrics_bound(METRICS_SYNC_US, i) + 1);
	}
	for (unsigned i = 0; i < METRICS_BUCKETS; i++) {
		assert_int_equal(
		    metrics[METRICS_SYNC_US + i], i < METRICS_BUCKETS - 1);
		assert_int_equal(metrics[METRICS_COMMIT_US + i], i > 0);
	}
	assert_int_equal(metrics[METRICS_COMMIT_US + METRICS_SUM],
	    metrics[METRICS_SYNC_US + METRICS_SUM] + METRICS_BUCKETS - 1);
}

STORE_TEST(commit_counts_its_plants_by_result_its_sync_and_the_store)
{
	struct store *store = fixture_open(fixture, true);

	fixture_put(store, 1, "1");
	fixture_put(store, 2, "2");
	fixture_put(store, 2, "2");
	fixture_put(store, 2, "other");
	assert_int_equal(metrics[METRICS_CREATED], 2);
	assert_int_equal(metrics[METRICS_REPEATED], 1);
	assert_int_equal(metrics[METRICS_CONFLICT], 1);
	assert_int_equal(metrics[METRICS_BATCHES], 4);
	assert_int_equal(metrics[METRICS_BATCH_PLANTS], 4);
	assert_int_equal(metrics[METRICS_STORE_PLANTS], 2);
	assert_int_equal(
	    metrics[METRICS_STORE_BYTES], fixture_end(fixture).end);
	assert_true(metrics[METRICS_SYNC_MS] > 0);
	assert_int_equal(metrics[METRICS_FAILED], 0);
	fixture_fail_journal(fixture);
	fixture_put(store, 3, "3");
	assert_int_equal(metrics[METRICS_FAILED], 1);
	store_close(store);
	store_close(fixture_open(fixture, true));
	assert_int_equal(metrics[METRICS_FAILED], 0);
}
