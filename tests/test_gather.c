/*
 * gather: an index that is built of many chunks is whole in the end or begun
 * anew, whatever comes between.  The chunks are small here.
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
#include <unistd.h>

#include "alloc_shim.h"
#include "fault_shim.h"
#include "gather.h"
#include "store/verify.h"
#include "store_fixture.h"

#define DATA "index/data.mdb"
#define ASIDE "index/aside"
/* As the system calls it when it has no name any more. */
#define ASIDE_OPEN ASIDE " (deleted)"

#define FEW 1000
#define FEW_CHUNK 64
/* A watch is asked once while so many are entered. */
#define MANY 17000
#define MANY_CHUNK 1000

static int64_t ids[MANY];

/* A store that has the first `n` of the ids, in no order, and no index. */
static void
make_store(const struct fixture *fixture, size_t n)
{
	struct store *store = fixture_open(fixture, false);

	for (int64_t i = 0; i < MANY; i++)
		ids[i] = i * 7919 % 20011 - 10000;
	fixture_commit(store, ids, n, STORE_CREATED);
	store_close(store);
	fixture_remove_index(fixture);
}

/* What gather needs of an open store. */
static void
open_parts(struct fixture *fixture, struct store *store)
{
	memset(store, 0, sizeof(*store));
	store->path = fixture->path;
	store->dir = fixture->dir;
	store->lock.fd = -1;
	assert_int_equal(
	    journal_open(&store->journal, fixture->dir, false), JOURNAL_OPENED);
	store->index =
	    index_open(fixture->dir, fixture->path, store->journal.uuid);
	assert_non_null(store->index);
}

static void
close_parts(struct store *store)
{
	index_close(store->index, false);
	journal_close(&store->journal);
	free(store->line);
}

/* As recovery does it; at the end the plant `again` comes, if it is no NULL. */
static enum fault
read_all(struct gather *gather, const int64_t *again)
{
	struct store *store = gather->store;
	struct replay replay;
	struct record record;
	enum fault fault = FAULT_NONE;

	if (index_begin(store->index, &gather->covered) < 0 ||
	    replay_init(&replay, store->journal.fd, store->journal.seed,
		&store->journal.start) < 0)
		return state_fault(errno);
	while (fault == FAULT_NONE &&
	       replay_next(&replay, &record) == REPLAY_RECORD) {
		if (record.plant != NULL)
			fault = gather_add(gather, record.id, &replay.at);
		if (fault == FAULT_NONE)
			fault = gather_watch(gather, &replay.at);
	}
	if (fault == FAULT_NONE && again != NULL)
		fault = gather_add(gather, *again, &replay.at);
	if (fault == FAULT_NONE)
		fault = gather_enter(gather, &replay.at);
	replay_done(&replay);
	gather_done(gather);
	index_abort(store->index);
	return fault;
}

static enum fault
build(struct fixture *fixture, size_t chunk, const struct watch *watch)
{
	struct store store;
	struct gather gather = {
		.store = &store, .chunk = chunk, .build = true
	};

	open_parts(fixture, &store);
	store.watch = watch;
	enum fault fault = read_all(&gather, NULL);
	close_parts(&store);
	return fault;
}

/* The index has what the journal has, and nothing else. */
static void
expect_whole(const struct fixture *fixture, size_t n)
{
	struct verify_report report;

	assert_false(fixture_exists(fixture, ASIDE));
	assert_int_equal(verify_store(fixture->path, NULL, &report), 0);
	assert_int_equal(report.index, VERIFY_INDEX_EQUAL);
	assert_int_equal(report.journal.plants, n);
}

/* A start has all plants, in an index that is whole. */
static void
expect_start(const struct fixture *fixture, size_t n)
{
	struct store *store = fixture_open(fixture, false);

	fixture_commit(store, ids, n, STORE_SAME);
	store_close(store);
	expect_whole(fixture, n);
}

static void
an_index_of_many_chunks_is_whole(void **state)
{
	struct fixture *fixture = *state;

	make_store(fixture, FEW);
	assert_int_equal(build(fixture, FEW_CHUNK, NULL), FAULT_NONE);
	expect_whole(fixture, FEW);
	expect_start(fixture, FEW);
	fixture_make_store(fixture, false, 20000, 20000);
	expect_whole(fixture, FEW + 1);
}

static void
plants_are_set_aside_only_where_they_fill_a_chunk(void **state)
{
	static const size_t chunks[] = { FEW + 1, FEW, FEW / 2, FEW / 2 - 1 };
	struct fixture *fixture = *state;

	make_store(fixture, FEW);
	for (unsigned i = 0; i < COUNT(chunks); i++) {
		shim_fail(SHIM_PWRITE, ASIDE_OPEN, 1, 0, 0);
		assert_int_equal(build(fixture, chunks[i], NULL), FAULT_NONE);
		assert_int_equal(shim_count(SHIM_PWRITE), i);
		expect_whole(fixture, FEW);
		fixture_remove_index(fixture);
	}
}

static void
an_index_of_parts_has_full_pages(void **state)
{
	struct fixture *fixture = *state;
	size_t at_once;

	make_store(fixture, MANY);
	assert_int_equal(build(fixture, MANY + 1, NULL), FAULT_NONE);
	at_once = fixture_size(fixture, DATA);
	fixture_remove_index(fixture);
	/* A few pages are written again by each part, and then used again. */
	assert_int_equal(build(fixture, MANY_CHUNK, NULL), FAULT_NONE);
	assert_true(fixture_size(fixture, DATA) < at_once + at_once / 8);
}

static void
catch_up(
    struct fixture *fixture, const struct watch *watch, enum fault expected)
{
	struct store store;
	struct gather gather = { .store = &store, .chunk = MANY_CHUNK };

	open_parts(fixture, &store);
	store.watch = watch;
	shim_fail(SHIM_PWRITE, ASIDE_OPEN, 1, 0, 0);
	assert_int_equal(read_all(&gather, NULL), expected);
	assert_int_equal(shim_count(SHIM_PWRITE), 0);
	assert_true(gather.covered.end > 0);
	close_parts(&store);
}

static void
an_index_that_is_in_use_is_caught_up_with_chunk_by_chunk(void **state)
{
	struct fixture *fixture = *state;

	make_store(fixture, MANY);
	catch_up(fixture, NULL, FAULT_NONE);
	expect_whole(fixture, MANY);
}

static void
catching_up_can_be_stopped_and_goes_on(void **state)
{
	struct fixture *fixture = *state;
	struct fixture_steps steps = { .last = 2 };
	struct watch watch = { fixture_step, &steps };

	make_store(fixture, MANY);
	catch_up(fixture, &watch, FAULT_STOPPED);
	assert_int_equal(fixture_logged(fixture, "the next start goes on"), 1);
	expect_start(fixture, MANY);
	assert_int_equal(fixture_logged(fixture, "anew"), 0);
}

/* While the journal is read, and while the chunks are merged. */
static void
building_can_be_stopped_anywhere_and_begins_anew(void **state)
{
	struct fixture *fixture = *state;
	unsigned nth = 0;
	enum fault fault;

	make_store(fixture, MANY);
	do {
		struct fixture_steps steps = { .last = ++nth };
		struct watch watch = { fixture_step, &steps };

		fault = build(fixture, MANY_CHUNK, &watch);
		if (fault != FAULT_NONE)
			assert_int_equal(fault, FAULT_STOPPED);
	} while (fault != FAULT_NONE);
	expect_whole(fixture, MANY);
	/* The journal's mebibytes, and once among the plants. */
	assert_int_equal(
	    nth - 1, fixture_size(fixture, JOURNAL_NAME) / (1 << 20) + 1);
	assert_int_equal(
	    fixture_logged(fixture, "the next start begins anew"), nth - 1);
	assert_int_equal(fixture_logged(fixture, "was interrupted"), 0);
}

static void
nothing_is_entered_before_the_journal_is_synced(void **state)
{
	struct fixture *fixture = *state;

	make_store(fixture, FEW);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	assert_int_equal(build(fixture, FEW_CHUNK, NULL), FAULT_FAILED);
	expect_start(fixture, FEW);
	assert_int_equal(fixture_logged(fixture, "fdatasync failed"), 1);
	assert_int_equal(fixture_logged(fixture, "building it anew"), 0);
}

static void
a_plant_that_comes_again_many_chunks_later_is_refused(void **state)
{
	struct fixture *fixture = *state;
	struct store store;
	struct gather gather = {
		.store = &store, .chunk = FEW_CHUNK, .build = true
	};
	char text[128];

	make_store(fixture, FEW);
	open_parts(fixture, &store);
	assert_int_equal(read_all(&gather, &ids[0]), FAULT_DAMAGED);
	close_parts(&store);
	/* The first one is named first. */
	snprintf(text, sizeof(text),
	    "the plant %d is stored twice, at the bytes %d and ", (int)ids[0],
	    RECORD_HEADER_LEN);
	assert_int_equal(fixture_logged(fixture, text), 1);
	assert_false(fixture_exists(fixture, DATA));
}

/* Work for fixture_in_child: die before a write of the index. */
struct death {
	struct fixture *fixture;
	enum shim_call call;
	unsigned nth;
};

static int
die_building(void *argument)
{
	const struct death *death = argument;

	shim_exit(death->call, DATA, death->nth);
	return build(death->fixture, FEW_CHUNK, NULL) == FAULT_NONE ? 1 : 2;
}

static void
an_index_whose_builder_died_is_built_anew(void **state)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_WRITEV };
	struct fixture *fixture = *state;
	unsigned deaths = 0;

	make_store(fixture, FEW);
	for (size_t i = 0; i < COUNT(calls); i++) {
		struct death death = { .fixture = fixture, .call = calls[i] };
		int status;

		do {
			death.nth++;
			status = fixture_in_child(die_building, &death);
			deaths += status == 0;
			expect_start(fixture, FEW);
			fixture_remove_index(fixture);
		} while (status == 0);
		assert_int_equal(status, 1);
	}
	/* A new file is no index yet at its first writes. */
	assert_true(deaths > FEW / FEW_CHUNK);
	assert_true(fixture_logged(fixture, "was interrupted") > deaths / 2);
}

/*
 * Fail each of the calls on a file, one after another: it is told once, nothing
 * is left, and the next start does not notice.  How many there were.
 */
static unsigned
fail_each(struct fixture *fixture, enum shim_call call, const char *file,
    int error, enum fault expected)
{
	int fd = fixture_next_fd();
	unsigned told = fixture_logged(fixture, "index: cannot");

	for (unsigned nth = 1;; nth++) {
		struct store store;
		struct gather gather = {
			.store = &store, .chunk = FEW_CHUNK, .build = true
		};

		open_parts(fixture, &store);
		shim_fail(call, file, nth, 1, error);
		enum fault fault = read_all(&gather, NULL);
		shim_reset();
		close_parts(&store);
		assert_int_equal(fixture_next_fd(), fd);
		if (fault == FAULT_NONE) {
			expect_whole(fixture, FEW);
			fixture_remove_index(fixture);
			return nth - 1;
		}
		assert_int_equal(fault, expected);
		assert_int_equal(
		    fixture_logged(fixture, "index: cannot"), told + nth);
	}
}

static void
a_building_that_fails_anywhere_is_told_and_begins_anew(void **state)
{
	struct fixture *fixture = *state;
	unsigned chunks = (FEW + FEW_CHUNK - 1) / FEW_CHUNK;

	make_store(fixture, FEW);
	assert_int_equal(
	    fail_each(fixture, SHIM_PWRITE, ASIDE_OPEN, ENOSPC, FAULT_FULL),
	    chunks);
	assert_int_equal(
	    fail_each(fixture, SHIM_PWRITE, ASIDE_OPEN, EIO, FAULT_FAILED),
	    chunks);
	assert_true(fail_each(fixture, SHIM_PREAD, ASIDE_OPEN, EIO,
			FAULT_FAILED) >= chunks);
	assert_true(fail_each(fixture, SHIM_WRITEV, DATA, ENOSPC, FAULT_FULL) >=
		    chunks);
	assert_int_equal(fixture_logged(fixture, "anew"), 0);
}

static void
a_building_that_lacks_memory_anywhere_begins_anew(void **state)
{
	struct fixture *fixture = *state;
	bool failed = true;

	if (!alloc_can_fail())
		skip();
	make_store(fixture, FEW);
	for (unsigned nth = 1; failed; nth++) {
		struct store store;
		struct gather gather = {
			.store = &store, .chunk = FEW_CHUNK, .build = true
		};

		open_parts(fixture, &store);
		alloc_fail(nth, 1);
		enum fault fault = read_all(&gather, NULL);
		failed = alloc_reset();
		close_parts(&store);
		assert_int_equal(fault, failed ? FAULT_MEMORY : FAULT_NONE);
	}
	expect_whole(fixture, FEW);
	assert_int_equal(fixture_logged(fixture, "anew"), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_index_of_many_chunks_is_whole),
		TEST(plants_are_set_aside_only_where_they_fill_a_chunk),
		TEST(an_index_of_parts_has_full_pages),
		TEST(an_index_that_is_in_use_is_caught_up_with_chunk_by_chunk),
		TEST(catching_up_can_be_stopped_and_goes_on),
		TEST(building_can_be_stopped_anywhere_and_begins_anew),
		TEST(nothing_is_entered_before_the_journal_is_synced),
		TEST(a_plant_that_comes_again_many_chunks_later_is_refused),
		TEST(an_index_whose_builder_died_is_built_anew),
		TEST(a_building_that_fails_anywhere_is_told_and_begins_anew),
		TEST(a_building_that_lacks_memory_anywhere_begins_anew),
	};

	return cmocka_run_group_tests_name("gather", tests, NULL, NULL);
}
