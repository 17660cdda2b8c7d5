/*
 * catch_up: what the next open, or the next commit, makes of what others left:
 * torn ends, damage, an index that is gone, behind or wrong, a failed sync.
 */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "fault_shim.h"
#include "ground/clock.h"
#include "store/index.h"
#include "store/mark.h"
#include "reader/reader.h"

static void
blank(const struct fixture *fixture, uint64_t begin, uint64_t end)
{
	char newlines[1000];

	assert_true(end - begin <= sizeof(newlines));
	memset(newlines, '\n', sizeof(newlines));
	fixture_write(
	    fixture, JOURNAL_NAME, begin, newlines, (size_t)(end - begin));
}

/* Openings and readers refuse the journal as damaged and leave it as it is. */
static void
expect_refused_untouched(const struct fixture *fixture)
{
	struct contents was = fixture_read(fixture, JOURNAL_NAME);

	for (int long_lived = 0; long_lived < 2; long_lived++)
		expect_refused(fixture, long_lived, FAULT_DAMAGED);
	expect_verified(fixture, FAULT_DAMAGED);
	expect_contents(fixture, JOURNAL_NAME, &was);
	assert_false(fixture_exists_like(fixture, JOURNAL_NAME ".torn"));
}

/* The latest of each offset. */
STORE_TEST(a_torn_end_is_kept_beside_and_cut_off)
{
	char name[64];

	fixture_make_store(fixture, false, 1, 3);
	uint64_t end = fixture_forge(fixture, 4, NULL, SIZE_MAX);
	struct contents journal = fixture_read(fixture, JOURNAL_NAME);
	snprintf(name, sizeof(name), JOURNAL_NAME ".torn-%" PRIu64, end);
	fixture_truncate(fixture, JOURNAL_NAME, end);
	for (size_t part = 1; part < journal.len - end; part += 7) {
		struct contents line = { journal.at + end, part };

		fixture_append(fixture, JOURNAL_NAME, line.at, part);
		expect_plants(fixture, 3);
		assert_int_equal(fixture_size(fixture, JOURNAL_NAME), end);
		expect_contents(fixture, name, &line);
	}
}

/* Zeros are what a crash may leave of blocks that were not written. */
STORE_TEST(a_torn_end_is_cut_off_with_and_without_an_index)
{
	static const char zeros[5000], junk[] = "\n\n\n\njunk";

	fixture_make_store(fixture, false, 1, 3);
	for (unsigned i = 0; i < 6; i++) {
		if (i % 3 == 0)
			fixture_append(
			    fixture, JOURNAL_NAME, zeros, sizeof(zeros));
		else if (i % 3 == 1)
			fixture_forge(fixture, 4, NULL, 30);
		else
			fixture_append(
			    fixture, JOURNAL_NAME, junk, sizeof(junk) - 1);
		if (i >= 3)
			fixture_remove_index(fixture);
		expect_plants(fixture, 3);
		expect_logged(fixture, "is torn", i + 1);
		assert_true(
		    fixture_exists_like(fixture, JOURNAL_NAME ".torn-"));
		fixture_remove_kept(fixture);
	}
}

/* More than a window of the replay. */
STORE_TEST(room_that_a_kill_left_is_no_torn_end)
{
	static char room[JOURNAL_ROOM_BYTES];

	memset(room, '\n', sizeof(room));
	fixture_make_store(fixture, false, 1, 3);
	fixture_append(fixture, JOURNAL_NAME, room, sizeof(room));
	for (int long_lived = 0; long_lived < 2; long_lived++)
		store_close(fixture_open(fixture, long_lived));
	/* Its blank lines are settled, too. */
	fixture_append(fixture, JOURNAL_NAME, room, sizeof(room));
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	expect_refused(fixture, true, FAULT_FAILED);
	expect_plants(fixture, 3);
	expect_logged(fixture, "torn", 0);
}

/* Its copy is not written, not durable, or has no durable name. */
STORE_TEST(a_torn_end_is_not_cut_when_it_cannot_be_kept)
{
	const char *const files[] = { JOURNAL_NEW_NAME, JOURNAL_NEW_NAME,
		fixture->path };

	fixture_make_store(fixture, false, 1, 3);
	fixture_forge(fixture, 4, NULL, 30);
	size_t size = fixture_size(fixture, JOURNAL_NAME);
	for (size_t i = 0; i < COUNT(files); i++) {
		shim_fail(
		    i == 0 ? SHIM_PWRITE : SHIM_FSYNC, files[i], 1, 1, ENOSPC);
		expect_refused(fixture, false, FAULT_FULL);
		assert_int_equal(fixture_size(fixture, JOURNAL_NAME), size);
		assert_true(shim_reset());
	}
	expect_plants(fixture, 3);
}

STORE_TEST(a_cut_that_cannot_be_synced_fails_the_opening)
{
	fixture_make_store(fixture, false, 1, 3);
	fixture_forge(fixture, 4, NULL, 30);
	/* The first is of what is to be read. */
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 2, 1, EIO);
	expect_refused(fixture, false, FAULT_FAILED);
	expect_logged(fixture, "fdatasync failed", 1);
	expect_plants(fixture, 3);
}

STORE_TEST(whole_records_before_a_torn_one_are_kept)
{
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	fixture_forge(fixture, 2, NULL, SIZE_MAX);
	fixture_forge(fixture, 3, NULL, 40);
	expect_put(store, 2, NULL, STORE_SAME);
	assert_true(fixture_exists_like(fixture, JOURNAL_NAME ".torn-"));
	fixture_create(store, 3);
	store_close(store);
	expect_plants(fixture, 3);
}

/* Work for in_child: store the plants 4 and 5 as a batch, and die. */
static int
put_two_and_die(void *argument)
{
	static const int64_t ids[] = { 4, 5 };

	fixture_commit(fixture_open(argument, false), ids, 2, STORE_CREATED);
	return 0;
}

static void
add_long_tail(const struct fixture *fixture)
{
	static char junk[JOURNAL_TAIL_MAX + 1];

	memset(junk, 'x', sizeof(junk));
	fixture_append(fixture, JOURNAL_NAME, junk, sizeof(junk));
}

/* Where the batch of 4 and 5 begins: the last two lines, of one length. */
static uint64_t
last_batch(const struct fixture *fixture)
{
	struct position at = fixture_end(fixture);

	return at.end - 2 * (at.end - at.last);
}

static void
cut_last_batch(const struct fixture *fixture)
{
	fixture_truncate(fixture, JOURNAL_NAME, last_batch(fixture));
}

static void
blank_all(const struct fixture *fixture)
{
	blank(fixture, RECORD_HEADER_LEN, fixture_end(fixture).end);
}

static void
blank_last_batch(const struct fixture *fixture)
{
	blank(fixture, last_batch(fixture), fixture_end(fixture).end);
}

static void
spoil_last_line(const struct fixture *fixture)
{
	fixture_flip(fixture, fixture_end(fixture).last + 20);
}

/* As an older copy of the journal that was served elsewhere. */
static void
go_another_way(const struct fixture *fixture)
{
	cut_last_batch(fixture);
	for (int64_t id = 6; id <= 8; id++)
		fixture_forge(fixture, id, NULL, SIZE_MAX);
}

/* A large enough tail, or what the index has of a process that died. */
STORE_TEST(damage_that_only_the_index_or_length_shows_is_refused)
{
	static const struct {
		void (*damage)(const struct fixture *);
		const char *logged;
	} rows[] = {
		{ add_long_tail, "more unreadable bytes" },
		{ cut_last_batch, "shorter" },
		{ blank_all, "in place of a record" },
		{ blank_last_batch, "in place of a record" },
		{ spoil_last_line, "wrong checksum" },
		{ go_another_way, "another history" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		fixture_renew(fixture);
		fixture_make_store(fixture, false, 1, 3);
		/* An index has seen a line once a checkpoint covers it. */
		if (rows[i].damage == go_another_way)
			fixture_make_store(fixture, true, 4, 5);
		else
			assert_int_equal(in_child(put_two_and_die, fixture), 0);
		struct contents good = fixture_read(fixture, JOURNAL_NAME);
		rows[i].damage(fixture);
		/* Also the second time. */
		expect_refused_untouched(fixture);
		expect_refused_untouched(fixture);
		expect_logged(fixture, rows[i].logged, 6);
		fixture_restore(fixture, JOURNAL_NAME, &good);
		expect_plants(fixture, 5);
	}
}

/* Its records behind the damage are as they were, and the index has them. */
STORE_TEST(damage_before_the_last_line_is_refused_by_a_service)
{
	fixture_make_store(fixture, false, 1, 3);
	assert_int_equal(in_child(put_two_and_die, fixture), 0);
	const uint64_t offsets[] = { RECORD_HEADER_LEN + 20,
		last_batch(fixture) + 20 };
	for (unsigned i = 0; i < COUNT(offsets); i++) {
		fixture_flip(fixture, offsets[i]);
		expect_refused(fixture, true, FAULT_DAMAGED);
		expect_logged(fixture, "nothing was changed", i + 1);
		assert_false(
		    fixture_exists_like(fixture, JOURNAL_NAME ".torn"));
		fixture_flip(fixture, offsets[i]);
	}
	expect_plants(fixture, 5);
}

/* The second plant is another process's, which the store has not read. */
STORE_TEST(damage_to_synced_plants_fails_the_next_commit)
{
	for (int i = 0; i < 3; i++) {
		struct store *store = fixture_open(fixture, true);
		struct position at;

		fixture_create(store, 2 * i + 1);
		fixture_make_store(fixture, true, 2 * i + 2, 2 * i + 2);
		at = fixture_end(fixture);
		struct contents good = fixture_read(fixture, JOURNAL_NAME);
		if (i % 3 == 0)
			fixture_flip(fixture, at.last + 20);
		else if (i % 3 == 1)
			blank(fixture, at.last, at.end);
		else
			fixture_truncate(fixture, JOURNAL_NAME, at.last);
		expect_put(store, 99, NULL, STORE_FAILED);
		store_close(store);
		assert_false(
		    fixture_exists_like(fixture, JOURNAL_NAME ".torn"));
		fixture_restore(fixture, JOURNAL_NAME, &good);
		expect_plants(fixture, 2 * i + 2);
	}
	expect_logged(fixture, "nothing was changed", 2);
	expect_logged(fixture, "is shorter", 1);
}

/* More than a long lived process checks from its beginning at each start. */
STORE_TEST(damage_far_before_the_end_is_found_by_its_reader)
{
	struct store *store = fixture_open(fixture, true);
	char *name = fixture_long_name(((size_t)1 << 20) - 100);

	fixture_create(store, 1);
	for (int64_t id = 2; id < 19; id++)
		expect_put(store, id, name, STORE_CREATED);
	store_close(store);
	fixture_flip(fixture, RECORD_HEADER_LEN + 10);
	store = fixture_open(fixture, true);
	expect_put(store, 18, NULL, STORE_CONFLICT);
	expect_put(store, 1, NULL, STORE_FAILED);
	store_close(store);
	expect_refused_untouched(fixture);
	assert_true(fixture_logged(fixture, "damaged at byte 82") > 0);
}

static void
expect_index_equal(const struct fixture *fixture)
{
	assert_int_equal(
	    expect_verified(fixture, FAULT_NONE).index, INDEX_USABLE);
}

/* test_index has every reason why one cannot be. */
STORE_TEST(an_index_that_cannot_be_used_is_built_again)
{
	static const struct {
		void (*change)(const struct fixture *);
		const char *logged; /* and nothing else of the index */
	} rows[] = {
		{ fixture_remove_index, "index: missing" },
		{ fixture_junk_index, "index: damaged; building it" },
		{ fixture_copy_manifest, "index: a copy, or" },
	};

	fixture_make_store(fixture, true, 1, 5);
	for (size_t i = 0; i < COUNT(rows); i++) {
		unsigned logged = fixture_logged(fixture, "/index: ");

		rows[i].change(fixture);
		store_close(fixture_open(fixture, true));
		expect_logged(fixture, "/index: ", logged + 1);
		assert_true(fixture_logged(fixture, rows[i].logged) > 0);
		expect_index_equal(fixture);
	}
	expect_plants(fixture, 5);
}

/* --- The end mark -------------------------------------------------------- */

/* Work for in_child, which ends it as a kill does. */
static int
create_and_idle(void *argument)
{
	struct store *store = fixture_open(argument, true);

	for (int64_t id = 1; id <= 3; id++)
		fixture_create(store, id);
	store_idle(store);
	return 0;
}

enum loss { ZEROS, NEWLINES, CUT, LOSSES };

/* Lose the bytes [from, to), and the index, as the next boot does. */
static void
lose(const struct fixture *fixture, enum loss loss, uint64_t from, uint64_t to)
{
	static const char zeros[4096];

	fixture_remove_index(fixture);
	if (loss == ZEROS)
		fixture_write(fixture, JOURNAL_NAME, from, zeros, to - from);
	else if (loss == NEWLINES)
		blank(fixture, from, to);
	else
		fixture_truncate(fixture, JOURNAL_NAME, from);
}

STORE_TEST(a_journal_that_lost_its_end_is_refused_by_the_end_mark)
{
	char logged[40];

	for (int i = 0; i < 4 * LOSSES; i++) {
		bool long_lived = i / LOSSES % 2 == 0;

		fixture_renew(fixture);
		assert_int_equal(in_child(create_and_idle, fixture), 0);
		struct position at = fixture_end(fixture);
		/* Its closing line, or all plants as well. */
		uint64_t from =
		    i / LOSSES / 2 % 2 == 0 ? at.last : RECORD_HEADER_LEN;
		lose(fixture, (enum loss)(i % LOSSES), from, at.end);
		struct contents was = fixture_read(fixture, JOURNAL_NAME);
		expect_verified(fixture, FAULT_DAMAGED);
		expect_refused(fixture, long_lived, FAULT_DAMAGED);
		snprintf(logged, sizeof(logged),
		    i % LOSSES == CUT ? "shorter (%" PRIu64 " bytes)"
				      : "damaged at byte %" PRIu64 ": ",
		    from);
		expect_logged(fixture, logged, 2);
		expect_logged(fixture, "torn", 0);
		expect_contents(fixture, JOURNAL_NAME, &was);
		/* Nothing else shows that it is gone. */
		fixture_remove(fixture, JOURNAL_END_NAME);
		store_close(fixture_open(fixture, long_lived));
	}
}

STORE_TEST(an_end_mark_that_cannot_be_read_counts_as_none)
{
	assert_int_equal(in_child(create_and_idle, fixture), 0);
	struct contents mark = fixture_read(fixture, JOURNAL_END_NAME);
	assert_true(mark.len < 512 && mark.at[mark.len - 1] == '\n');
	for (size_t i = 0; i < mark.len; i++) {
		fixture_write(fixture, JOURNAL_END_NAME, i, "?", 1);
		store_close(fixture_open(fixture, true));
		expect_logged(fixture, "end: unreadable", i + 1);
		fixture_restore(fixture, JOURNAL_END_NAME, &mark);
	}
	for (size_t size = 0; size < mark.len; size += 41) {
		fixture_truncate(fixture, JOURNAL_END_NAME, size);
		store_close(fixture_open(fixture, true));
	}
	/* The next closing line makes it good. */
	fixture_make_store(fixture, true, 4, 4);
	lose(fixture, CUT, RECORD_HEADER_LEN, 0);
	expect_refused(fixture, false, FAULT_DAMAGED);
}

STORE_TEST(an_end_mark_of_another_store_is_refused)
{
	assert_int_equal(in_child(create_and_idle, fixture), 0);
	fixture_remove(fixture, JOURNAL_NAME);
	fixture_remove_index(fixture);
	/* A store whose journal is missing is not made anew. */
	expect_refused(fixture, false, FAULT_SETUP);
	expect_logged(fixture, "missing; restore it", 1);
	assert_int_equal(store_init(fixture->path), FAULT_SETUP);
	assert_int_equal(fixture_make_journal(fixture), FAULT_NONE);
	expect_refused(fixture, false, FAULT_SETUP);
	expect_logged(fixture, "end: belongs to another store", 1);
	expect_verified(fixture, FAULT_SETUP);
	fixture_fail_journal(fixture);
	expect_refused(fixture, false, FAULT_SETUP);
	fixture_remove(fixture, JOURNAL_END_NAME);
	expect_plants(fixture, 0);
}

static void
expect_end_mark(const struct fixture *fixture)
{
	struct journal journal = fixture_journal(fixture, false);

	assert_int_equal(mark_read_end(&journal), FAULT_NONE);
	assert_int_equal(journal.recorded, fixture_end(fixture).end);
	journal_close(&journal);
}

STORE_TEST(an_end_mark_that_is_no_file_is_refused_by_all)
{
	fixture_make_store(fixture, false, 1, 1);
	assert_int_equal(mkdirat(fixture->dir, JOURNAL_END_NAME, 0700), 0);
	for (int long_lived = 0; long_lived < 2; long_lived++)
		expect_refused(fixture, long_lived, FAULT_SETUP);
	expect_verified(fixture, FAULT_SETUP);
	expect_logged(fixture, "end: is not a regular file; remove it", 3);
	assert_int_equal(
	    unlinkat(fixture->dir, JOURNAL_END_NAME, AT_REMOVEDIR), 0);
	expect_plants(fixture, 1);
}

/* A request pays nothing for it, and its failure harms no plant. */
STORE_TEST(only_an_idle_or_closing_service_writes_the_end_mark)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_FSYNC };
	struct store *store = fixture_open(fixture, true);

	fixture_make_store(fixture, false, 1, 2);
	fixture_create(store, 3);
	assert_false(fixture_exists(fixture, JOURNAL_END_NAME));
	for (size_t i = 0; i < COUNT(calls); i++) {
		fixture_create(store, 4 + (int64_t)i);
		shim_fail(calls[i], JOURNAL_END_NAME, 1, 1, EIO);
		store_idle(store);
		shim_reset();
		expect_logged(fixture, "end: cannot write", i + 1);
	}
	fixture_create(store, 7);
	store_idle(store);
	expect_end_mark(fixture);
	fixture_create(store, 8);
	store_close(store);
	expect_end_mark(fixture);
}

STORE_TEST(an_index_removed_while_in_use_loses_nothing)
{
	struct store *one = fixture_open(fixture, true), *two;

	fixture_create(one, 1);
	fixture_remove_index(fixture);
	fixture_create(one, 2);
	two = fixture_open(fixture, true);
	fixture_create(two, 3);
	expect_put(one, 3, NULL, STORE_SAME);
	fixture_create(one, 4);
	expect_put(two, 4, NULL, STORE_SAME);
	store_close(two);
	fixture_create(one, 5);
	store_close(one);
	store_close(fixture_open(fixture, true));
	expect_index_equal(fixture);
	expect_plants(fixture, 5);
}

STORE_TEST(an_older_copy_of_the_index_is_built_again)
{
	struct store *one, *two;

	fixture_make_store(fixture, true, 1, 1);
	struct contents index = fixture_read(fixture, "index/manifest");
	one = fixture_open(fixture, true);
	fixture_create(one, 2);
	fixture_create(one, 3);
	fixture_remove(fixture, "index/manifest");
	fixture_restore(fixture, "index/manifest", &index);
	two = fixture_open(fixture, false);
	expect_put(two, 3, "other", STORE_CONFLICT);
	fixture_create(one, 4);
	expect_put(two, 4, NULL, STORE_SAME);
	fixture_create(two, 5);
	expect_put(one, 5, NULL, STORE_SAME);
	store_close(one);
	store_close(two);
	expect_plants(fixture, 5);
	expect_index_equal(fixture);
	expect_logged(fixture, "building it", 1);
}

STORE_TEST(a_journal_without_the_line_that_the_index_has_seen_is_refused)
{
	fixture_make_store(fixture, false, 1, 5);
	const struct position covered = fixture_end(fixture);
	struct position places[] = { covered, covered, covered,
		{ .end = RECORD_HEADER_LEN, .crc = 1 },
		{ .end = RECORD_HEADER_LEN + 1 } };
	places[0].crc ^= 1;
	places[1].seq++;
	places[2].last++;
	for (unsigned i = 0; i < COUNT(places); i++) {
		fixture_forge_index(fixture, NULL, NULL, 0, &places[i]);
		expect_refused_untouched(fixture);
		expect_logged(fixture, "is not the one that", 3 * i + 3);
	}
	fixture_remove_index(fixture);
	expect_plants(fixture, 5);
}

STORE_TEST(an_entry_without_a_record_of_its_id_is_condemned)
{
	static const uint64_t offsets[] = { 1, RECORD_HEADER_LEN,
		RECORD_HEADER_LEN + 1, 100000, UINT64_C(1) << 40, UINT64_MAX,
		UINT64_MAX - 1 };
	static const int64_t ids[] = { 2, 7 };
	enum store_result results[COUNT(ids)];

	for (size_t i = 0; i < COUNT(offsets); i++) {
		fixture_make_store(fixture, true, 1, (int64_t)(i == 0));
		const struct position end = fixture_end(fixture);
		const int64_t entries[] = { 1, 7 };
		const uint64_t places[] = { RECORD_HEADER_LEN,
			offsets[i] == UINT64_MAX - 1 ? end.end + 3
						     : offsets[i] };
		fixture_forge_index(fixture, entries, places, 2, &end);
		struct store *store = fixture_open(fixture, false);
		assert_int_equal(
		    fixture_batch(store, ids, NULL, 2, results), -1);
		assert_int_equal(results[0], STORE_FAILED);
		assert_int_equal(results[1], STORE_FAILED);
		assert_false(fixture_exists(fixture, "index/manifest"));
		store_close(store);
		expect_plants(fixture, 1);
	}
}

/* The service has not been idle: the mark of the batch has the end. */
STORE_TEST(damage_that_condemns_the_index_is_no_torn_end)
{
	static const int64_t batch[] = { 2, 3, 4 };
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	uint64_t offset = fixture_end(fixture).end;
	fixture_commit(store, batch, COUNT(batch), STORE_CREATED);
	fixture_flip(fixture, offset + 20);
	expect_put(store, 2, NULL, STORE_FAILED);
	assert_false(fixture_exists(fixture, "index/manifest"));
	store_close(store);
	expect_refused_untouched(fixture);
}

STORE_TEST(an_index_that_replaced_the_one_in_use_is_not_removed)
{
	struct store *one = fixture_open(fixture, true), *two;

	fixture_create(one, 1);
	fixture_remove_index(fixture);
	two = fixture_open(fixture, false);
	fixture_flip(fixture, RECORD_HEADER_LEN + 20);
	expect_put(one, 1, NULL, STORE_FAILED);
	assert_true(fixture_exists(fixture, "index/manifest"));
	expect_logged(fixture, "index: damaged, and removed or replaced", 1);
	fixture_flip(fixture, RECORD_HEADER_LEN + 20);
	store_close(one);
	fixture_create(two, 2);
	store_close(two);
	expect_plants(fixture, 2);
}

STORE_TEST(plants_of_the_dead_are_entered_after_a_sync)
{
	struct store *store;

	fixture_make_store(fixture, false, 1, 2);
	for (int64_t id = 3; id <= 4; id++) {
		if (id == 3)
			fixture_forge(fixture, id, NULL, SIZE_MAX);
		shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
		if (id == 3)
			store = fixture_open(fixture, false);
		else
			fixture_forge(fixture, id, NULL, SIZE_MAX);
		expect_put(store, id, NULL, STORE_SAME);
		assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
		expect_put(store, id, "other", STORE_CONFLICT);
		assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	}
	fixture_create(store, 5);
	store_close(store);
	expect_plants(fixture, 5);
}

STORE_TEST(plants_of_the_dead_whose_sync_fails_are_not_confirmed)
{
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	fixture_forge(fixture, 2, NULL, SIZE_MAX);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 2, EIO);
	expect_put(store, 2, NULL, STORE_FAILED);
	store_close(store);
	expect_refused(fixture, false, FAULT_FAILED);
	expect_logged(fixture, "fdatasync failed", 2);
	expect_plants(fixture, 2);
}

/* Where pages cannot be dropped. */
static bool
has_disk(const struct fixture *fixture)
{
	struct statfs fs;

	assert_int_equal(fstatfs(fixture->dir, &fs), 0);
	return fs.f_type != TMPFS_MAGIC;
}

/* As if a write-back had failed before: the disk has another last line. */
static void
show_the_disk(void *argument)
{
	const struct fixture *fixture = argument;
	int fd = openat(fixture->dir, JOURNAL_NAME, O_RDWR | O_CLOEXEC);

	assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	assert_int_equal(pwrite(fd, "?", 1, lseek(fd, -9, SEEK_END)), 1);
	assert_int_equal(fsync(fd), 0);
	close(fd);
}

STORE_TEST(plants_of_the_dead_are_read_from_the_disk_behind_a_sync)
{
	struct store *store = NULL;

	if (!has_disk(fixture))
		skip();
	fixture_make_store(fixture, true, 1, 1);
	/* By a reader, by an opening, by a commit. */
	for (unsigned i = 0; i < 3; i++) {
		if (i == 2)
			store = fixture_open(fixture, true);
		fixture_forge(fixture, 2, NULL, SIZE_MAX);
		shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
		shim_fail(SHIM_FADVISE, JOURNAL_NAME, 1, 0, 0);
		shim_meet(SHIM_FADVISE, show_the_disk, fixture);
		if (i == 0)
			assert_int_equal(
			    expect_verified(fixture, FAULT_NONE).plants, 1);
		else if (i == 1)
			store_close(fixture_open(fixture, true));
		else
			expect_put(store, 2, NULL, STORE_CREATED);
		assert_true(shim_count(SHIM_FADVISE) > 0);
		shim_reset();
		expect_logged(fixture, "is torn", i + 1);
	}
	store_close(store);
	expect_plants(fixture, 2);
}

/* A copy of the store may be in the page cache only, with its end mark. */
STORE_TEST(an_end_mark_covers_no_page_of_a_copy)
{
	char *name = fixture_long_name(((size_t)1 << 20) - 100);

	if (!has_disk(fixture))
		skip();
	/* By a reader, by an opening, by one that builds the index. */
	for (int i = 0; i < 3; i++) {
		fixture_renew(fixture);
		struct store *store = fixture_open(fixture, true);
		for (int64_t id = 1; id <= (i == 2 ? 66 : 3); id++)
			expect_put(store, id, name, STORE_CREATED);
		store_close(store);
		fixture_remove_index(fixture);
		shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
		shim_fail(SHIM_FADVISE, JOURNAL_NAME, 1, 0, 0);
		shim_meet(SHIM_FADVISE, show_the_disk, fixture);
		if (i == 0)
			expect_verified(fixture, FAULT_DAMAGED);
		else
			expect_refused(fixture, true, FAULT_DAMAGED);
		assert_true(shim_count(SHIM_FADVISE) > 0);
		shim_reset();
		expect_logged(fixture, "damaged at byte", 1);
	}
}

STORE_TEST(bytes_that_another_program_has_mapped_are_waited_for)
{
	struct store *store = NULL;

	if (!has_disk(fixture))
		skip();
	fixture_make_store(fixture, true, 1, 1);
	for (unsigned commit = 0; commit < 2; commit++) {
		if (commit)
			store = fixture_open(fixture, true);
		fixture_forge(fixture, 2 + commit, NULL, SIZE_MAX);
		struct journal journal = fixture_journal(fixture, false);
		char *map =
		    mmap(NULL, 4096, PROT_READ, MAP_SHARED, journal.fd, 0);
		assert_ptr_not_equal(map, MAP_FAILED);
		assert_int_equal(*map, '{');
		if (commit)
			expect_put(store, 3, NULL, STORE_BUSY);
		else
			expect_refused(fixture, true, FAULT_BUSY);
		expect_logged(fixture, "has it mapped", commit + 1);
		munmap(map, 4096);
		journal_close(&journal);
		if (commit)
			expect_put(store, 3, NULL, STORE_SAME);
		else
			store_close(fixture_open(fixture, true));
	}
	store_close(store);
	expect_plants(fixture, 3);
}

STORE_TEST(nothing_is_read_from_a_page_cache_that_cannot_be_dropped)
{
	struct store *store;

	if (!has_disk(fixture))
		skip();
	fixture_make_store(fixture, true, 1, 1);
	/* Known at a start that has nothing to drop; by a reader; a commit. */
	shim_fail(SHIM_FADVISE, JOURNAL_NAME, 1, 1, ENOSYS);
	expect_refused(fixture, true, FAULT_SETUP);
	expect_logged(fixture, "again: posix_fadvise: ", 1);
	fixture_forge(fixture, 2, NULL, SIZE_MAX);
	shim_fail(SHIM_FADVISE, JOURNAL_NAME, 1, 1, EPERM);
	expect_verified(fixture, FAULT_SETUP);
	shim_reset();
	store = fixture_open(fixture, true);
	fixture_forge(fixture, 3, NULL, SIZE_MAX);
	shim_fail(SHIM_FADVISE, JOURNAL_NAME, 1, 1, ENOSYS);
	expect_put(store, 4, NULL, STORE_FAILED);
	assert_true(shim_reset());
	store_close(store);
	expect_plants(fixture, 3);
}

STORE_TEST(of_an_id_that_stands_twice_the_first_counts)
{
	struct store *store = NULL;
	char logged[128];

	/* Met by a start that builds the index, by another, by a commit. */
	for (int i = 0; i < 3; i++) {
		fixture_renew(fixture);
		fixture_make_store(fixture, false, 1, 3);
		if (i == 2)
			store = fixture_open(fixture, true);
		uint64_t offset = fixture_forge(fixture, 1, "twin", SIZE_MAX);
		if (i == 0)
			fixture_remove_index(fixture);
		if (i < 2)
			store = fixture_open(fixture, true);
		for (int k = 0; k < 2; k++) {
			expect_put(store, 1, NULL, STORE_SAME);
			expect_put(store, 1, "twin", STORE_CONFLICT);
		}
		snprintf(logged, sizeof(logged),
		    "the plant 1 occurs twice, at bytes %d and %" PRIu64,
		    RECORD_HEADER_LEN, offset);
		expect_logged(fixture, logged, 1);
		fixture_create(store, 4);
		store_close(store);
		/* It does not pass for good. */
		expect_verified(fixture, FAULT_DAMAGED);
		expect_logged(fixture, logged, 2);
	}
}

/* As version 1.0.0 leaves it; where there is another, nothing is renamed. */
STORE_TEST(a_journal_that_a_failed_sync_renamed_gets_its_name_again)
{
	fixture_make_store(fixture, false, 1, 2);
	fixture_forge(fixture, 3, NULL, SIZE_MAX);
	for (int long_lived = 0; long_lived < 2; long_lived++) {
		fixture_fail_journal(fixture);
		shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
		struct store *store = fixture_open(fixture, long_lived);
		/* The first time there is something to settle. */
		assert_int_equal(shim_count(SHIM_FDATASYNC), 1 - long_lived);
		store_close(store);
		assert_false(fixture_exists(fixture, JOURNAL_FAILED_NAME));
	}
	expect_logged(fixture, "it has its name again", 2);
	fixture_write(fixture, JOURNAL_FAILED_NAME, 0, "other", 5);
	assert_int_equal(store_init(fixture->path), FAULT_SETUP);
	expect_plants(fixture, 3);
	assert_int_equal(fixture_size(fixture, JOURNAL_FAILED_NAME), 5);
}

/* What version 1.0.0 does with the directory locked, here at once. */
static void *
renew_as_1_0_0(void *argument)
{
	int *dir = argument;
	const struct timespec pause = { .tv_nsec = 100000000 };

	nanosleep(&pause, NULL);
	renameat(*dir, JOURNAL_FAILED_NAME, *dir, JOURNAL_NAME);
	close(*dir);
	return NULL;
}

/* Else it would put its copy in the place of what was stored meanwhile. */
STORE_TEST(a_renewal_by_version_1_0_0_is_waited_for)
{
	pthread_t thread;

	fixture_make_store(fixture, false, 1, 2);
	fixture_fail_journal(fixture);
	int dir = openat(fixture->dir, ".", O_RDONLY | O_DIRECTORY);
	assert_int_equal(flock(dir, LOCK_EX), 0);
	assert_int_equal(
	    pthread_create(&thread, NULL, renew_as_1_0_0, &dir), 0);
	store_close(fixture_open(fixture, true));
	pthread_join(thread, NULL);
	expect_logged(fixture, "it has its name again", 0);
	expect_plants(fixture, 2);
}

static void
leave_torn(const struct fixture *fixture)
{
	fixture_forge(fixture, 4, NULL, 30);
	fixture_remove_index(fixture);
}

/* Its index is not closed, and knows where the journal was durable. */
static int
open_service(void *fixture)
{
	fixture_open(fixture, true);
	return 0;
}

static void
leave_kill(const struct fixture *fixture)
{
	struct fixture own = *fixture;

	assert_int_equal(in_child(open_service, &own), 0);
}

static void
leave_well(const struct fixture *fixture)
{
	(void)fixture;
}

/* What an opening may find; in each of them there are the plants 1 to 3. */
static void (*const leavings[])(const struct fixture *) = { leave_torn,
	fixture_fail_journal, leave_kill, fixture_remove_index, leave_well };

struct attempt {
	const struct fixture *fixture;
	enum shim_call call;
	unsigned nth;
	bool long_lived;
};

/* Work for in_child: die before the nth of a kind of call. */
static int
die_opening(void *argument)
{
	const struct attempt *attempt = argument;
	enum fault fault;

	shim_exit(attempt->call, NULL, attempt->nth);
	struct store *store =
	    fixture_try(attempt->fixture, attempt->long_lived, NULL, &fault);
	if (store == NULL)
		return 2;
	store_close(store);
	return 1;
}

static unsigned
count_errors(const struct fixture *fixture)
{
	return fixture_logged(fixture, ": ") -
	       fixture_logged(fixture, "; building it") -
	       fixture_logged(fixture, "it has its name again");
}

/*
 * Whether the call was reached.  A refusal is logged once, with its cause; but
 * in memory the call may have been of the probe of whether pages can be dropped
 * there, and then it is logged that they cannot be.
 */
static bool
fail_opening(const struct attempt *attempt, int error)
{
	unsigned errors = count_errors(attempt->fixture);
	unsigned causes = fixture_logged(attempt->fixture, strerror(error));
	enum fault fault;

	shim_fail(attempt->call, NULL, attempt->nth, 1, error);
	struct store *store =
	    fixture_try(attempt->fixture, attempt->long_lived, NULL, &fault);
	bool reached = shim_reset();

	if (store == NULL) {
		errors = count_errors(attempt->fixture) - errors;
		causes =
		    fixture_logged(attempt->fixture, strerror(error)) - causes;
		assert_int_equal(errors, 1);
		if (has_disk(attempt->fixture) || fault != FAULT_BUSY)
			assert_int_equal(causes, 1);
	}
	store_close(store);
	return reached;
}

/*
 * Each system call of an opening that has a torn end to cut, an index to build
 * and a dead process's plant to sync, or a journal to renew, fails, or ends the
 * process: the plants are there in the end.
 */
STORE_TEST(an_opening_that_fails_or_dies_anywhere_loses_nothing)
{
	static const int errors[] = { 0, EIO, ENOSPC };
	struct attempt attempt = { .fixture = fixture };
	unsigned failures = 0;

	fixture_make_store(fixture, false, 1, 2);
	fixture_forge(fixture, 3, NULL, SIZE_MAX);
	for (size_t i = 0; i < COUNT(leavings) * COUNT(errors); i++)
		for (int call = 0; call < SHIM_CALLS; call++) {
			int error = errors[i % COUNT(errors)];
			bool reached;

			attempt.long_lived = i % 2 == 0;
			attempt.call = (enum shim_call)call;
			attempt.nth = 0;
			do {
				attempt.nth++;
				leavings[i / COUNT(errors)](fixture);
				reached =
				    error != 0
					? fail_opening(&attempt, error)
					: in_child(die_opening, &attempt) == 0;
				expect_plants(fixture, 3);
				fixture_remove_kept(fixture);
				failures += reached;
			} while (reached);
		}
	assert_true(failures > 100);
}

#if ALLOC_CAN_FAIL
STORE_TEST(an_opening_that_lacks_memory_anywhere_loses_nothing)
{
	fixture_make_store(fixture, false, 1, 3);
	for (size_t i = 0; i < COUNT(leavings); i++) {
		bool failed = true;

		for (unsigned nth = 1; failed; nth++) {
			enum fault fault;

			leavings[i](fixture);
			alloc_fail(nth, 1);
			struct store *store =
			    fixture_try(fixture, nth % 2 == 0, NULL, &fault);
			failed = alloc_reset();
			assert_int_equal(
			    fault, store == NULL ? FAULT_MEMORY : FAULT_NONE);
			assert_true(failed || store != NULL);
			store_close(store);
			expect_plants(fixture, 3);
			fixture_remove_kept(fixture);
		}
	}
}
#endif

#if ALLOC_CAN_FAIL
STORE_TEST(a_commit_without_memory_passes_when_there_is_some)
{
	bool failed = true;
	int64_t id = 1;

	/* A store each, so that it has no buffers from before. */
	for (unsigned nth = 1; failed; nth++, id += 2) {
		struct store *store = fixture_open(fixture, false);
		struct plant plant = fixture_plant(id + 1, NULL);
		struct store_item item = { .plant = &plant, .by = "tester" };

		fixture_forge(fixture, id, NULL, SIZE_MAX);
		alloc_fail(nth, 1);
		int status = store_commit(store, &item, 1);
		failed = alloc_reset();
		assert_int_equal(status, 0);
		if (failed && item.result != STORE_CREATED)
			assert_int_equal(item.result, STORE_BUSY);
		assert_true(failed || item.result == STORE_CREATED);
		plant_done(&plant);
		expect_put(store, id + 1, NULL,
		    item.result == STORE_CREATED ? STORE_SAME : STORE_CREATED);
		expect_put(store, id, NULL, STORE_SAME);
		store_close(store);
	}
	assert_true(id > 3);
}
#endif

#define MANY 17000

STORE_TEST(the_building_of_an_index_can_be_stopped_anywhere)
{
	static int64_t ids[MANY];
	struct store *store = fixture_open(fixture, false);
	unsigned nth = 0;

	for (int64_t i = 0; i < MANY; i++)
		ids[i] = i;
	fixture_commit(store, ids, MANY, STORE_CREATED);
	store_close(store);
	do {
		struct fixture_steps steps = { .last = ++nth };
		struct watch watch = { fixture_step, &steps };
		enum fault fault;

		fixture_remove_index(fixture);
		store = fixture_try(fixture, false, &watch, &fault);
		assert_int_equal(
		    fault, steps.n == nth ? FAULT_STOPPED : FAULT_NONE);
	} while (store == NULL);
	/* The journal's mebibytes. */
	assert_int_equal(
	    nth - 1, fixture_size(fixture, JOURNAL_NAME) / (1 << 20));
	fixture_commit(store, ids, MANY, STORE_SAME);
	store_close(store);
}

/* Another process builds the index; an opening that waits for it. */
struct builder {
	const struct fixture *fixture;
	struct index *index;
	unsigned last; /* the step that ends the wait; 0: none */
	unsigned n;
};

/* It ends once the wait is logged. */
static bool
wait_for_builder(void *context, uint64_t done, uint64_t total)
{
	struct builder *builder = context;

	(void)done;
	if (total == 0 && ++builder->n == builder->last)
		return false;
	if (fixture_logged(builder->fixture, "uses it: waiting for it") > 0)
		index_release(builder->index);
	return true;
}

STORE_TEST(an_index_that_another_process_builds_is_waited_for)
{
	struct store *store = fixture_open(fixture, true);
	char *name = fixture_long_name(((size_t)1 << 20) - 100);
	struct builder builder = { .fixture = fixture, .last = 3 };
	struct watch watch = { wait_for_builder, &builder };
	struct journal owner = fixture_owner(fixture);
	struct index_view view;
	enum fault fault;

	for (int64_t id = 1; id <= 66; id++)
		expect_put(store, id, name, STORE_CREATED);
	store_close(store);
	fixture_remove_index(fixture);
	assert_int_equal(index_open(&owner, &view), FAULT_NONE);
	builder.index = view.index;
	assert_int_equal(index_claim(view.index), FAULT_NONE);
	/* A signal ends the wait, a request has a deadline. */
	assert_null(fixture_try(fixture, true, &watch, &fault));
	assert_int_equal(fault, FAULT_STOPPED);
	expect_logged(fixture, "uses it", 0);
	assert_null(fixture_try(fixture, false, NULL, &fault));
	assert_int_equal(fault, FAULT_BUSY);
	expect_logged(fixture, "uses it: try again", 1);
	builder.last = 0;
	store = fixture_try(fixture, true, &watch, &fault);
	assert_non_null(store);
	expect_logged(fixture, "uses it: waiting for it", 1);
	expect_put(store, 66, name, STORE_SAME);
	store_close(store);
	index_close(view.index);
}

/* More than memory may have, and than a build writes at once. */
enum { STEP = 20000, STEPS = 28 };
static int64_t many_ids[STEP];

static void
put_many(struct store *store, int64_t step, enum store_result result)
{
	for (int64_t n = 0; n < STEP; n++)
		many_ids[n] = step * STEP + n;
	fixture_commit(store, many_ids, STEP, result);
}

static void
make_large_store(const struct fixture *fixture)
{
	struct store *store = fixture_open(fixture, true);

	for (int64_t i = 0; i < STEPS; i++)
		put_many(store, i, STORE_CREATED);
	store_close(store);
	fixture_remove_index(fixture);
}

static bool
stop_late(void *context, uint64_t done, uint64_t total)
{
	uint64_t *first = context;

	if (*first == 0 && total > 0)
		*first = done;
	return done < total * 3 / 4;
}

/* A start that fails would leave clients without an answer. */
static void
expect_refusals_without_room(const struct fixture *fixture)
{
	enum store_result result = STORE_FULL;
	enum fault fault;

	shim_fail(SHIM_PWRITE, "index/run-1", 1, 1000000, ENOSPC);
	assert_null(fixture_try(fixture, false, NULL, &fault));
	assert_int_equal(fault, FAULT_FULL);
	struct store *store = fixture_open(fixture, true);
	int64_t begun_ms = clock_ms(CLOCK_MONOTONIC);
	for (int i = 0; i < 20; i++)
		expect_put(store, i, NULL, STORE_FULL);
	/* Nobody waits for what cannot be written. */
	assert_in_range(clock_ms(CLOCK_MONOTONIC) - begun_ms, 0, 4000);
	assert_int_equal(store_ready(store), STORE_FULL);
	store_idle(store);
	expect_logged(fixture, "plants wait in memory", 1);
	shim_reset();
	for (int i = 0; i < 1000 && result != STORE_CREATED; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
		result = fixture_put(store, -1, NULL);
		assert_true(result == STORE_FULL || result == STORE_BUSY ||
			    result == STORE_CREATED);
	}
	assert_int_equal(result, STORE_CREATED);
	/* The start has not settled the bytes after the durable end. */
	assert_int_not_equal(shim_count(SHIM_FADVISE), 0);
	assert_int_equal(store_ready(store), STORE_CREATED);
	put_many(store, 0, STORE_SAME);
	put_many(store, STEPS - 1, STORE_SAME);
	store_close(store);
	expect_index_equal(fixture);
}

STORE_TEST(a_large_build_goes_on_where_it_was_stopped_and_waits_for_room)
{
	uint64_t first = 0;
	struct watch watch = { stop_late, &first };
	enum fault fault;

	make_large_store(fixture);
	const size_t size = fixture_size(fixture, JOURNAL_NAME);
	assert_null(fixture_try(fixture, true, &watch, &fault));
	assert_int_equal(fault, FAULT_STOPPED);
	assert_in_range(first, 1, size / 10);
	first = 0;
	assert_null(fixture_try(fixture, true, &watch, &fault));
	assert_in_range(first, size / 3, size);
	struct store *store = fixture_open(fixture, true);
	put_many(store, 0, STORE_SAME);
	put_many(store, STEPS - 1, STORE_SAME);
	store_close(store);
	expect_logged(fixture, "building it", 1);
	expect_index_equal(fixture);
	fixture_remove_index(fixture);
	expect_refusals_without_room(fixture);
}

/* Once as much as a commit reads, and once more than it may keep in memory. */
STORE_TEST(a_store_takes_in_what_another_one_has_imported)
{
	struct store *store = fixture_open(fixture, true);
	struct store *other = fixture_open(fixture, true);
	enum store_result result = STORE_BUSY;

	for (int64_t i = 0; i < STEPS; i++) {
		put_many(other, i, STORE_CREATED);
		if (i == STEPS / 2)
			expect_put(store, -1, NULL, STORE_CREATED);
	}
	/* Each try waits for the thread, up to a second. */
	for (int i = 0; i < 60 && result == STORE_BUSY; i++)
		result = fixture_put(store, -2, NULL);
	assert_int_equal(result, STORE_CREATED);
	put_many(store, STEPS - 1, STORE_SAME);
	store_close(other);
	store_close(store);
}
