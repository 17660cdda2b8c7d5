/*
 * store: what is answered, what is on the disk afterwards, and that the two
 * agree whatever fails and whichever processes use the store.
 */
#include "store_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fault_shim.h"
#include "ground/clock.h"
#include "store/index.h"

/* That would make a sync slower; see journal_check. */
STORE_TEST(a_commit_asks_no_file_that_it_writes_for_its_times)
{
	static const char *const files[] = { JOURNAL_NAME, "data.mdb" };
	struct store *store = fixture_open(fixture, true);

	for (size_t i = 0; i < COUNT(files); i++) {
		shim_fail(SHIM_FSTAT, files[i], 1, 0, 0);
		shim_fail(SHIM_FSTATAT, files[i], 1, 0, 0);
		fixture_create(store, (int64_t)i + 1);
		assert_int_equal(shim_count(SHIM_FSTAT), 0);
		assert_int_equal(shim_count(SHIM_FSTATAT), 0);
	}
	store_close(store);
}

STORE_TEST(a_batch_is_one_sync_and_one_mark)
{
	for (int long_lived = 0; long_lived < 2; long_lived++) {
		struct store *store = fixture_open(fixture, long_lived);
		struct plant plant = fixture_plant(1 + long_lived, NULL);
		struct store_item item = { .plant = &plant, .by = "tester" };

		shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
		shim_fail(SHIM_PWRITE, "index/end", 1, 0, 0);
		store_commit(store, &item, 1);
		assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
		assert_int_equal(shim_count(SHIM_PWRITE), 1);
		shim_reset();
		plant_done(&plant);
		store_close(store);
	}
	expect_plants(fixture, 2);
}

/* That there are results, fixture_batch asserts. */
STORE_TEST(a_batch_has_results_whatever_they_are)
{
	struct store *store = fixture_open(fixture, true);

	fixture_commit(store, NULL, 0, STORE_CREATED);
	fixture_create(store, 1);
	expect_put(store, 1, NULL, STORE_SAME);
	shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 2, ENOSPC);
	expect_put(store, 2, NULL, STORE_FULL);
	shim_fail(SHIM_FCNTL, JOURNAL_NAME, 1, 1, ENOMEM);
	expect_put(store, 2, NULL, STORE_BUSY);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	for (int i = 0; i < 2; i++)
		expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
}

STORE_TEST(a_batch_is_stored_in_its_order_with_one_sync)
{
	static const int64_t ids[] = { 5, INT64_MAX, -3, INT64_MIN, 99, 0, 1,
		INT64_MAX - 1, INT64_MIN + 1, -1 };
	struct store *store = fixture_open(fixture, false);

	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
	fixture_commit(store, ids, COUNT(ids), STORE_CREATED);
	assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	store_close(store);
	store = fixture_open(fixture, false);
	fixture_commit(store, ids, COUNT(ids), STORE_SAME);
	store_close(store);
	expect_ids(fixture, ids, COUNT(ids));
}

/*
 * Every way in which the plants a and b of one id can follow each other, three
 * in a batch, in a new store and behind one that is stored already.
 */
STORE_TEST(repeats_within_a_batch_refer_to_the_first)
{
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
			fixture_batch(store, ids, names, 3, results);
			for (int i = 0; i < 3; i++)
				assert_int_equal(results[i],
				    stored == 0 && i == 0 ? STORE_CREATED
				    : strcmp(names[i], first) == 0
					? STORE_SAME
					: STORE_CONFLICT);
			expect_put(store, id, first, STORE_SAME);
		}
	store_close(store);
	assert_int_equal(fixture_count_lines(fixture), (size_t)id);
}

#define LONG_PLANTS 12

STORE_TEST(a_batch_larger_than_an_append_is_stored_whole)
{
	static const int64_t ids[LONG_PLANTS] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
		11, 12 };
	struct store *store = fixture_open(fixture, true);
	/* Four would fit but for the envelope of the last. */
	char *name = fixture_long_name(((size_t)1 << 20) - 140);
	const char *names[LONG_PLANTS];
	enum store_result results[LONG_PLANTS];

	for (size_t i = 0; i < LONG_PLANTS; i++)
		names[i] = name;
	/* The second of the four appends finds no room, and is left out. */
	shim_fail(SHIM_PWRITE, JOURNAL_NAME, 2, 2, ENOSPC);
	assert_int_equal(
	    fixture_batch(store, ids, names, LONG_PLANTS, results), 0);
	assert_int_equal(shim_count(SHIM_PWRITE), 5);
	for (size_t i = 0; i < LONG_PLANTS; i++)
		assert_int_equal(
		    results[i], i >= 3 && i < 6 ? STORE_FULL : STORE_CREATED);
	shim_reset();
	fixture_batch(store, ids, names, LONG_PLANTS, results);
	for (size_t i = 0; i < LONG_PLANTS; i++)
		assert_int_equal(
		    results[i], i >= 3 && i < 6 ? STORE_CREATED : STORE_SAME);
	store_close(store);
	expect_ids(fixture,
	    (const int64_t[]){ 1, 2, 3, 7, 8, 9, 10, 11, 12, 4, 5, 6 },
	    LONG_PLANTS);
}

STORE_TEST(the_watermark_is_what_was_synced_before_the_batch)
{
	static const int64_t ids[] = { 1, 2, 3, 5, 6, 7 };
	struct fixture_line lines[9];

	for (int long_lived = 0; long_lived < 2; long_lived++) {
		struct store *store = fixture_open(fixture, long_lived);

		fixture_commit(store, ids + 3 * long_lived, 3, STORE_CREATED);
		fixture_create(store, 4 + 4 * long_lived);
		store_close(store);
	}
	assert_int_equal(fixture_lines(fixture, lines, COUNT(lines), NULL), 9);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(lines[i].safe, lines[0].offset);
		assert_int_equal(lines[4 + i].safe, lines[4].offset);
	}
	assert_int_equal(lines[3].safe, lines[3].offset);
	assert_int_equal(lines[7].safe, lines[7].offset);
	assert_int_equal(lines[8].safe, lines[8].offset);
}

/* One of several that store the same plants, each in another order. */
struct rival {
	const struct fixture *fixture;
	struct store *store;
	int number, go;
	int created; /* or 255 */
};

#define RIVALS 4
#define RIVAL_PLANTS 48

static void *
store_all(void *argument)
{
	struct rival *rival = argument;

	for (int i = 0; i < RIVAL_PLANTS; i++) {
		int64_t id = (i * (2 * rival->number + 5) + rival->number) %
			     RIVAL_PLANTS;
		enum store_result result = fixture_put(rival->store, id, NULL);

		if (result == STORE_CREATED)
			rival->created++;
		else if (result != STORE_SAME)
			rival->created = 255;
	}
	return NULL;
}

/* All of them try to make the store, too. */
static int
make_and_store_all(void *argument)
{
	struct rival *rival = argument;
	enum fault fault;
	char byte;

	if (read(rival->go, &byte, 1) != 1)
		return 255;
	store_init(rival->fixture->path);
	rival->store =
	    fixture_try(rival->fixture, rival->number % 2 == 0, NULL, &fault);
	if (rival->store == NULL)
		return 255;
	store_all(rival);
	store_close(rival->store);
	return rival->created;
}

STORE_TEST(processes_that_store_the_same_plants_create_each_once)
{
	pid_t children[RIVALS];
	int go[2], created = 0;

	fixture_remove(fixture, JOURNAL_NAME);
	assert_int_equal(pipe(go), 0);
	for (int i = 0; i < RIVALS; i++)
		children[i] = child_start(make_and_store_all,
		    &(struct rival){
			.fixture = fixture, .number = i, .go = go[0] });
	assert_int_equal(write(go[1], "go!!", RIVALS), RIVALS);
	for (int i = 0; i < RIVALS; i++)
		created += child_wait(children[i]);
	close(go[0]);
	close(go[1]);
	assert_int_equal(created, RIVAL_PLANTS);
	expect_logged(fixture, "holds a store", RIVALS - 1);
	struct store *store = fixture_open(fixture, false);
	for (int64_t id = 0; id < RIVAL_PLANTS; id++)
		expect_put(store, id, NULL, STORE_SAME);
	store_close(store);
	/* One order, without gaps: the journal is whole. */
	assert_true(fixture_count_lines(fixture) >= RIVAL_PLANTS);
}

STORE_TEST(threads_that_store_the_same_plants_create_each_once)
{
	struct store *store = fixture_open(fixture, true);
	struct rival rivals[RIVALS];
	pthread_t threads[RIVALS];
	int created = 0;

	for (int i = 0; i < RIVALS; i++) {
		rivals[i] = (struct rival){ .store = store, .number = i };
		pthread_create(&threads[i], NULL, store_all, &rivals[i]);
	}
	store_wait(store);
	for (int i = 0; i < RIVALS; i++) {
		pthread_join(threads[i], NULL);
		created += rivals[i].created;
	}
	assert_int_equal(created, RIVAL_PLANTS);
	store_close(store);
	assert_int_equal(fixture_count_lines(fixture), RIVAL_PLANTS + 1);
}

STORE_TEST(a_full_disk_stores_nothing_and_passes_by_itself)
{
	static const int errors[] = { ENOSPC, EDQUOT, EFBIG };
	int64_t id = 0;

	for (size_t i = 0; i < 2 * COUNT(errors); i++) {
		struct store *store = fixture_open(fixture, i % 2 == 0);
		unsigned logged = fixture_logged(fixture, "make room");

		fixture_create(store, ++id);
		shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 99, errors[i / 2]);
		for (int k = 0; k < 3; k++)
			expect_put(store, id + 1, NULL, STORE_FULL);
		expect_put(store, 1, NULL, STORE_SAME);
		expect_put(store, 1, "other", STORE_CONFLICT);
		/* It is logged once, until it has passed. */
		expect_logged(fixture, "make room", logged + 1);
		shim_reset();
		fixture_create(store, ++id);
		expect_logged(fixture, "there is room again", i + 1);
		store_close(store);
	}
	store_close(fixture_open(fixture, false));
	assert_int_equal(id, 12);
	assert_int_equal(fixture_count_lines(fixture), 12 + 3);
}

/* The next sync of the same file may succeed, and would prove nothing. */
STORE_TEST(a_failed_sync_fails_its_process_and_each_that_meets_it)
{
	struct store *one = fixture_open(fixture, true);
	struct store *two = fixture_open(fixture, false);

	fixture_create(one, 1);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 2, EIO);
	expect_put(one, 2, NULL, STORE_FAILED);
	for (int64_t id = 3; id >= 1; id--)
		expect_put(one, id, NULL, STORE_FAILED);
	assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	expect_logged(fixture, "were not acknowledged", 1);
	/* It finds a line that, for all it knows, was acknowledged. */
	expect_put(two, 1, NULL, STORE_FAILED);
	expect_put(two, 1, NULL, STORE_FAILED);
	store_close(one);
	store_close(two);
	assert_int_equal(shim_count(SHIM_FDATASYNC), 2);
	expect_logged(fixture, "fdatasync failed", 2);
	expect_logged(fixture, "were not acknowledged", 1);
	expect_plants(fixture, 2);
}

STORE_TEST(a_write_error_fails_the_store_and_loses_nothing)
{
	for (int i = 0; i < 3; i++) {
		struct store *store = fixture_open(fixture, false);

		fixture_create(store, i + 1);
		shim_fail(
		    SHIM_PWRITE, JOURNAL_NAME, 1, 2, i == 0 ? EIO : ENOSPC);
		/* It cannot be taken back, or a power cut could bring it back. */
		if (i > 0)
			shim_fail(i == 1 ? SHIM_FTRUNCATE : SHIM_FDATASYNC,
			    JOURNAL_NAME, 1, 1, EIO);
		expect_put(store, 9, NULL, STORE_FAILED);
		store_close(store);
		shim_reset();
		expect_plants(fixture, i + 1);
	}
}

/* A checkpoint writes new files, with the plants of the failed one. */
STORE_TEST(a_plant_is_stored_though_its_index_cannot_be_written)
{
	static const struct {
		enum shim_call call;
		const char *file;
		int error;
	} rows[] = { { SHIM_PWRITE, "run-1", ENOSPC },
		{ SHIM_FSYNC, "run-1", EIO }, { SHIM_FSYNC, "run-2", EIO },
		{ SHIM_PWRITE, "manifest.new", EDQUOT },
		{ SHIM_FSYNC, "manifest.new", EIO },
		{ SHIM_FSYNC, "index", EIO } };

	for (unsigned i = 0; i < COUNT(rows); i++) {
		fixture_renew(fixture);
		if (i == 2)
			fixture_make_store(fixture, true, 100, 100);
		struct store *store = fixture_open(fixture, true);
		fixture_create(store, 1);
		shim_fail(rows[i].call, rows[i].file, 1, 99, rows[i].error);
		fixture_create(store, 2);
		store_close(store);
		assert_true(shim_reset());
		expect_logged(fixture, "/index: cannot write: ", 1);
		assert_int_equal(
		    expect_verified(fixture, FAULT_NONE).plants, 2 + (i == 2));
		store = fixture_open(fixture, true);
		expect_put(store, 1, NULL, STORE_SAME);
		expect_put(store, 2, "other", STORE_CONFLICT);
		store_close(store);
		assert_int_equal(
		    expect_verified(fixture, FAULT_NONE).index, INDEX_USABLE);
	}
}

static uint64_t room = UINT64_MAX;

/* Its own: the file system has the room that a test wants. */
int
fstatvfs(int fd, struct statvfs *st)
{
	(void)fd;
	*st = (struct statvfs){ .f_frsize = 1, .f_bavail = room };
	return 0;
}

static void *
put_in_thread(void *argument)
{
	struct rival *rival = argument;
	int64_t begun = clock_ms(CLOCK_MONOTONIC);

	store_wait(rival->store);
	rival->created = (int)fixture_put(rival->store, 2, NULL);
	rival->number = (int)(clock_ms(CLOCK_MONOTONIC) - begun);
	return NULL;
}

STORE_TEST(all_threads_wait_for_the_lock_of_another_by_one_deadline)
{
	struct store *store = fixture_open(fixture, false);
	struct rival rivals[RIVALS] = { 0 };
	pthread_t threads[RIVALS];
	struct journal other = fixture_journal(fixture, true);

	fixture_create(store, 1);
	assert_int_equal(
	    journal_lock(&other, JOURNAL_EXCLUSIVE, 0), FAULT_NONE);
	for (int i = 0; i < RIVALS; i++) {
		rivals[i].store = store;
		pthread_create(&threads[i], NULL, put_in_thread, &rivals[i]);
	}
	for (int i = 0; i < RIVALS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(rivals[i].created, STORE_BUSY);
		assert_in_range(rivals[i].number, JOURNAL_LOCK_TIMEOUT_MS,
		    JOURNAL_LOCK_TIMEOUT_MS * 3 / 2);
	}
	expect_logged(fixture, "locked by another process", RIVALS);
	/* Nor is anything written without it. */
	store_idle(store);
	assert_int_equal(fixture_count_lines(fixture), 1);
	journal_unlock(&other);
	store_idle(store);
	assert_int_equal(fixture_count_lines(fixture), 2);
	/* And it is given back. */
	assert_int_equal(
	    journal_lock(&other, JOURNAL_EXCLUSIVE, 0), FAULT_NONE);
	journal_close(&other);
	fixture_create(store, 2);
	store_close(store);
	expect_plants(fixture, 2);
}

static void
remove_journal(const struct fixture *fixture)
{
	fixture_remove(fixture, JOURNAL_NAME);
}

static void
truncate_journal(const struct fixture *fixture)
{
	fixture_truncate(fixture, JOURNAL_NAME, RECORD_HEADER_LEN);
}

/* Another may be put in its place, and what is stored in this one be lost. */
static void
move_directory(const struct fixture *fixture)
{
	char moved[sizeof(fixture->path) + 8];

	snprintf(moved, sizeof(moved), "%s.moved", fixture->path);
	if (access(moved, F_OK) < 0)
		assert_int_equal(rename(fixture->path, moved), 0);
	else
		assert_int_equal(rename(moved, fixture->path), 0);
}

/* The store's threads may meet it first in a commit, or when it is idle. */
STORE_TEST(a_journal_that_is_changed_while_in_use_fails_the_store)
{
	static const struct {
		void (*change)(const struct fixture *);
		void (*undo)(const struct fixture *);
		const char *logged;
		enum fault next;
	} rows[] = {
		{ remove_journal, NULL, "was removed", FAULT_SETUP },
		{ fixture_copy_journal, NULL, "was replaced", FAULT_NONE },
		{ truncate_journal, NULL, "was truncated", FAULT_DAMAGED },
		{ move_directory, move_directory, "was removed", FAULT_NONE },
	};

	for (size_t i = 0; i < 2 * COUNT(rows); i++) {
		bool idle = i >= COUNT(rows);
		const size_t row = i % COUNT(rows);
		fixture_renew(fixture);
		struct store *store = fixture_open(fixture, true);

		fixture_create(store, 1);
		rows[row].change(fixture);
		for (int k = 0; idle && k < 3; k++)
			store_idle(store);
		expect_put(store, 2, NULL, STORE_FAILED);
		store_close(store);
		expect_logged(fixture, rows[row].logged, 1);
		if (rows[row].undo != NULL)
			rows[row].undo(fixture);
		if (rows[row].next == FAULT_NONE)
			expect_plants(fixture, 1);
		else
			expect_refused(fixture, false, rows[row].next);
	}
}

STORE_TEST(an_index_without_its_journal_keeps_a_store_from_being_made)
{
	fixture_make_store(fixture, false, 1, 1);
	fixture_remove(fixture, JOURNAL_NAME);
	assert_int_equal(store_init(fixture->path), FAULT_SETUP);
	assert_false(fixture_exists(fixture, JOURNAL_NAME));
	fixture_remove_index(fixture);
	assert_int_equal(store_init(fixture->path), FAULT_NONE);
}

STORE_TEST(a_store_that_cannot_be_made_leaves_none)
{
	static const struct {
		enum shim_call call;
		unsigned nth;
		int error;
		enum fault fault;
		const char *logged;
	} rows[] = {
		{ SHIM_FSYNC, 1, EACCES, FAULT_RIGHTS,
		    "run this as its owner" },
		{ SHIM_FSYNC, 1, EPERM, FAULT_RIGHTS, "run this as its owner" },
		{ SHIM_FSYNC, 1, EROFS, FAULT_RIGHTS, "mount it for writing" },
		{ SHIM_FSYNC, 1, EIO, FAULT_FAILED, "check the disk" },
		{ SHIM_FSYNC, 2, EIO, FAULT_FAILED, "check the disk" },
		{ SHIM_PWRITE, 1, ENOSPC, FAULT_FULL, "make room" },
		{ SHIM_PWRITE, 1, EDQUOT, FAULT_FULL, "make room" },
		{ SHIM_FSYNC, 1, EFBIG, FAULT_FULL, "make room" },
		{ SHIM_FSYNC, 1, ENFILE, FAULT_MEMORY,
		    "raise the limit on open files" },
	};

	fixture_remove(fixture, JOURNAL_NAME);
	for (size_t i = 0; i < COUNT(rows); i++) {
		shim_fail(rows[i].call, NULL, rows[i].nth, 1, rows[i].error);
		assert_int_equal(store_init(fixture->path), rows[i].fault);
		shim_reset();
		expect_logged(fixture, "cannot create a store there: ", i + 1);
		assert_true(fixture_logged(fixture, rows[i].logged) > 0);
		/* Nothing is left by which the next start would be misled. */
		assert_false(fixture_exists_like(fixture, JOURNAL_NAME));
	}
}

static void
lock_meanwhile(void *fixture)
{
	struct journal journal = fixture_journal(fixture, true);

	assert_int_equal(
	    journal_lock(&journal, JOURNAL_EXCLUSIVE, 0), FAULT_BUSY);
	journal_close(&journal);
}

/* What is stored by then would be gone with the name. */
STORE_TEST(a_store_is_nobodys_before_its_name_is_durable)
{
	fixture_remove(fixture, JOURNAL_NAME);
	shim_fail(SHIM_FSYNC, fixture->path, 1, 1, EIO);
	shim_meet(SHIM_FSYNC, lock_meanwhile, fixture);
	assert_int_equal(store_init(fixture->path), FAULT_FAILED);
	assert_true(shim_reset());
	assert_false(fixture_exists(fixture, JOURNAL_NAME));
}

static int
init_killed(void *fixture)
{
	return (int)store_init(((struct fixture *)fixture)->path);
}

STORE_TEST(a_kill_while_a_store_is_made_leaves_it_whole_or_none)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_FSYNC,
		SHIM_RENAMEAT2 };

	for (size_t i = 0; i < COUNT(calls); i++)
		for (int nth = 1, ended = 1; ended != 0; nth++) {
			fixture_renew(fixture);
			fixture_remove(fixture, JOURNAL_NAME);
			shim_exit(calls[i], NULL, (unsigned)nth);
			ended = in_child(init_killed, fixture);
			shim_reset();
			if (!fixture_exists(fixture, JOURNAL_NAME)) {
				expect_refused(fixture, false, FAULT_SETUP);
				assert_int_equal(
				    store_init(fixture->path), FAULT_NONE);
			}
			expect_plants(fixture, 0);
		}
}

/* With room for blank lines behind it. */
STORE_TEST(a_first_write_that_fails_is_not_repeated)
{
	struct store *store = fixture_open(fixture, true);

	shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 1, EIO);
	expect_put(store, 1, NULL, STORE_FAILED);
	assert_int_equal(shim_count(SHIM_PWRITE), 1);
	shim_reset();
	store_close(store);
	expect_plants(fixture, 0);
}

STORE_TEST(an_idle_store_gets_exactly_one_closing_line)
{
	struct store *one = fixture_open(fixture, true);
	struct store *two = fixture_open(fixture, true);

	fixture_create(one, 1);
	expect_put(two, 1, NULL, STORE_SAME);
	assert_int_equal(fixture_count_lines(fixture), 1);
	for (int i = 0; i < 3; i++) {
		store_idle(two);
		store_idle(one);
	}
	assert_int_equal(fixture_count_lines(fixture), 2);
	/* Also for the plant of a process that has ended. */
	store_close(two);
	two = fixture_open(fixture, false);
	fixture_create(two, 2);
	store_close(two);
	assert_int_equal(fixture_count_lines(fixture), 3);
	for (int i = 0; i < 3; i++)
		store_idle(one);
	assert_int_equal(fixture_count_lines(fixture), 4);
	store_close(one);
	assert_int_equal(fixture_count_lines(fixture), 4);
	expect_plants(fixture, 2);
	assert_int_equal(fixture_count_lines(fixture), 4);
}

STORE_TEST(a_closing_line_may_lack_room_but_not_a_sync)
{
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 1, ENOSPC);
	assert_int_equal(store_idle(store), 0);
	assert_int_equal(fixture_count_lines(fixture), 1);
	shim_reset();
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	assert_int_equal(store_idle(store), -1);
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	expect_plants(fixture, 1);
}

STORE_TEST(an_entry_that_leads_to_a_closing_line_is_not_believed)
{
	fixture_make_store(fixture, true, 1, 3);
	const struct position end = fixture_end(fixture);
	const int64_t id = 0;
	fixture_forge_index(fixture, &id, &end.last, 1, &end);
	struct store *store = fixture_open(fixture, true);
	/* A record without a plant has this id. */
	expect_put(store, 0, NULL, STORE_FAILED);
	expect_logged(fixture, "no valid record of the plant 0", 1);
	store_close(store);
}

/* After a request it would cost the next one a sync. */
STORE_TEST(closing_a_service_puts_the_last_plant_below_the_watermark)
{
	for (int long_lived = 0; long_lived < 2; long_lived++) {
		fixture_make_store(
		    fixture, long_lived, 1 + long_lived, 1 + long_lived);
		assert_int_equal(
		    fixture_count_lines(fixture), 1 + 2 * (size_t)long_lived);
		const char *bytes = fixture_read(fixture, JOURNAL_NAME).at;
		assert_null(strstr(bytes, "\n\n"));
		assert_int_equal(
		    strstr(strrchr(bytes, '{'), "plant") == NULL, long_lived);
	}
	expect_plants(fixture, 2);
}

/* It has not seen them before it closes, and trims the room behind them. */
STORE_TEST(closing_an_idle_service_keeps_what_others_stored_since)
{
	for (int long_lived = 0; long_lived < 2; long_lived++) {
		struct store *store = fixture_open(fixture, true);
		const int64_t id = 2 * long_lived + 1;

		fixture_create(store, id);
		store_idle(store);
		fixture_make_store(fixture, long_lived, id + 1, id + 1);
		store_close(store);
		expect_plants(fixture, id + 1);
	}
}

STORE_TEST(closing_a_store_that_was_not_used_writes_nothing)
{
	store_close(NULL);
	for (int i = 0; i < 4; i++) {
		store_close(fixture_open(fixture, i % 2 == 0));
		assert_int_equal(
		    fixture_size(fixture, JOURNAL_NAME), RECORD_HEADER_LEN);
	}
}

STORE_TEST(room_is_written_ahead_and_trimmed_at_the_close)
{
	struct store *one = fixture_open(fixture, true);
	struct store *two = fixture_open(fixture, true);

	fixture_create(one, 1);
	fixture_create(two, 2);
	assert_true(fixture_size(fixture, JOURNAL_NAME) > JOURNAL_ROOM_BYTES);
	store_close(two);
	assert_true(fixture_size(fixture, JOURNAL_NAME) < 1000);
	/* The one that stays goes on. */
	fixture_create(one, 3);
	assert_true(fixture_size(fixture, JOURNAL_NAME) > JOURNAL_ROOM_BYTES);
	store_close(one);
	assert_true(fixture_size(fixture, JOURNAL_NAME) < 1000);
	expect_plants(fixture, 3);
}

STORE_TEST(a_directory_without_a_journal_of_ours_is_refused)
{
	static const char later[] = "{\"plant-store\":2,\"any\":true}\n";
	struct store_options options = { .dir = "/nonexistent/store" };
	enum fault fault;

	assert_null(store_open(&options, &fault));
	assert_int_equal(fault, FAULT_SETUP);
	/* The file system of the store may not be mounted. */
	fixture_remove(fixture, JOURNAL_NAME);
	expect_refused(fixture, false, FAULT_SETUP);
	assert_false(fixture_exists_like(fixture, JOURNAL_NAME));
	expect_logged(fixture,
	    "mount its file system, or create a new store with: plant-store "
	    "init /",
	    2);
	assert_int_equal(store_init(fixture->path), FAULT_NONE);
	store_close(fixture_open(fixture, false));
	/* One that vanished is not replaced by an empty one. */
	fixture_remove(fixture, JOURNAL_NAME);
	expect_refused(fixture, false, FAULT_SETUP);
	assert_false(fixture_exists(fixture, JOURNAL_NAME));
	fixture_write(fixture, JOURNAL_NAME, 0, "", 0);
	expect_refused(fixture, false, FAULT_DAMAGED);
	fixture_write(fixture, JOURNAL_NAME, 0, later, strlen(later));
	expect_refused(fixture, false, FAULT_SETUP);
}

/*
 * Fail each system call of a commit, one after another: what was acknowledged
 * is there afterwards, once, and the store serves again.
 */
static void
expect_after_failure(
    const struct fixture *fixture, int64_t id, enum store_result result)
{
	struct store *store = fixture_open(fixture, false);

	expect_put(store, id - 1, NULL, STORE_SAME);
	/* It may be there if the store failed. */
	enum store_result now = fixture_put(store, id, NULL);
	if (result == STORE_CREATED)
		assert_int_equal(now, STORE_SAME);
	else if (result == STORE_FULL || result == STORE_BUSY)
		assert_int_equal(now, STORE_CREATED);
	else {
		assert_int_equal(result, STORE_FAILED);
		assert_true(now == STORE_SAME || now == STORE_CREATED);
	}
	store_close(store);
}

STORE_TEST(a_commit_that_fails_anywhere_keeps_what_was_acknowledged)
{
	static const int errors[] = { EIO, ENOSPC };
	int64_t id = 0;
	unsigned failures = 0;

	for (size_t i = 0; i < 2 * COUNT(errors) * SHIM_CALLS; i++) {
		enum shim_call call = (enum shim_call)(i % SHIM_CALLS);
		bool failed = true;

		for (unsigned nth = 1; failed; nth++) {
			struct store *store =
			    fixture_open(fixture, i / SHIM_CALLS % 2 == 0);
			fixture_create(store, ++id);
			shim_fail(
			    call, NULL, nth, 1, errors[i / SHIM_CALLS / 2]);
			enum store_result result =
			    fixture_put(store, ++id, NULL);
			failed = shim_reset();
			store_close(store);
			expect_after_failure(fixture, id, result);
			failures += failed;
		}
	}
	assert_true(failures > 20);
}

/* Work for in_child: end before the nth of a kind of call. */
struct death {
	const struct fixture *fixture;
	enum shim_call call;
	unsigned nth;
	int64_t id;
	bool long_lived;
};

static int
die_in_commit(void *argument)
{
	const struct death *death = argument;
	enum fault fault;
	struct store *store =
	    fixture_try(death->fixture, death->long_lived, NULL, &fault);

	if (store == NULL)
		return 1;
	shim_exit(death->call, NULL, death->nth);
	if (fixture_put(store, death->id, NULL) != STORE_CREATED)
		return 2;
	store_close(store);
	return 3;
}

STORE_TEST(a_kill_anywhere_in_a_commit_leaves_a_good_store)
{
	struct death death = { .fixture = fixture };
	struct store *staying = fixture_open(fixture, true);
	int status;

	for (size_t i = 0; i < 2 * SHIM_CALLS; i++) {
		death.long_lived = i < SHIM_CALLS;
		death.call = (enum shim_call)(i % SHIM_CALLS);
		death.nth = 0;
		do {
			death.nth++;
			death.id++;
			status = in_child(die_in_commit, &death);
			assert_true(status == 0 || status == 3);
			enum store_result result =
			    fixture_put(staying, death.id, NULL);
			assert_true(result == STORE_SAME ||
				    (status == 0 && result == STORE_CREATED));
		} while (status == 0);
	}
	assert_true(death.id > 2 * SHIM_CALLS + 20);
	store_close(staying);
	staying = fixture_open(fixture, false);
	for (int64_t id = 1; id <= death.id; id++)
		expect_put(staying, id, NULL, STORE_SAME);
	store_close(staying);
}

STORE_TEST(readiness_follows_room_and_failures)
{
	struct store *store = fixture_open(fixture, true);
	const struct rlimit none = { 0, RLIM_INFINITY };
	const struct rlimit any = { RLIM_INFINITY, RLIM_INFINITY };

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(store_ready(store), STORE_CREATED);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	enum store_result result = fixture_put(store, 1, NULL);
	enum store_result ready = store_ready(store);
	setrlimit(RLIMIT_FSIZE, &any);
	assert_int_equal(result, STORE_FULL);
	assert_int_equal(ready, STORE_FULL);
	assert_int_equal(store_ready(store), STORE_CREATED);
	expect_put(store, 1, NULL, STORE_CREATED);
	/* The journal may not grow; a file that is small might. */
	struct rlimit some = { (rlim_t)fixture_size(fixture, JOURNAL_NAME),
		RLIM_INFINITY };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &some), 0);
	int64_t id = 2;
	while ((result = fixture_put(store, id++, NULL)) != STORE_FULL)
		assert_int_equal(result, STORE_CREATED);
	ready = store_ready(store);
	setrlimit(RLIMIT_FSIZE, &any);
	assert_int_equal(ready, STORE_FULL);
	assert_int_equal(store_ready(store), STORE_CREATED);
	fixture_fail_journal(fixture);
	assert_int_equal(store_ready(store), STORE_FAILED);
	expect_put(store, 2, NULL, STORE_FAILED);
	assert_int_equal(store_ready(store), STORE_FAILED);
	store_close(store);
	store = fixture_open(fixture, true);
	assert_int_equal(store_ready(store), STORE_CREATED);
	store_close(store);
}

STORE_TEST(nothing_stays_open_after_a_close_or_a_refusal)
{
	int before = fixture_next_fd();

	store_close(fixture_open(fixture, true));
	fixture_write(fixture, JOURNAL_NAME, 3, "x", 1);
	expect_refused(fixture, false, FAULT_DAMAGED);
	fixture_remove(fixture, JOURNAL_NAME);
	expect_refused(fixture, false, FAULT_SETUP);
	assert_int_equal(fixture_next_fd(), before);
}
