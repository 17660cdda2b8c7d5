/*
 * recovery: what the next open, or the next commit, makes of what others left:
 * torn ends, damage, an index that is gone, behind or wrong, a failed sync.
 */
#include "store_fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault_shim.h"
#include "index.h"
#include "store/verify.h"

#define ANOTHER_BOOT "11111111-2222-4333-8444-555555555555"

static const int64_t one_to_five[] = { 1, 2, 3, 4, 5 };

/* Put the bytes of the journal back, and free them. */
static void
restore(const struct fixture *fixture, char *bytes, size_t len)
{
	fixture_truncate(fixture, JOURNAL_NAME, 0);
	fixture_write(fixture, JOURNAL_NAME, 0, bytes, len);
	free(bytes);
}

static void
blank(const struct fixture *fixture, uint64_t begin, uint64_t end)
{
	char newlines[1000];

	assert_true(end - begin <= sizeof(newlines));
	memset(newlines, '\n', sizeof(newlines));
	fixture_write(
	    fixture, JOURNAL_NAME, begin, newlines, (size_t)(end - begin));
}

/* Any opening refuses the journal as damaged and leaves it as it is. */
static void
expect_refused_untouched(const struct fixture *fixture)
{
	size_t len;
	char *was = fixture_read(fixture, JOURNAL_NAME, &len);
	enum fault fault;

	fixture_refused(fixture, FAULT_DAMAGED);
	assert_null(fixture_try(fixture, true, NULL, &fault));
	assert_int_equal(fault, FAULT_DAMAGED);
	fixture_expect_bytes(fixture, JOURNAL_NAME, was, len);
	assert_false(fixture_exists_like(fixture, JOURNAL_NAME ".torn"));
	free(was);
}

static void
expect_failed(struct outcome outcome)
{
	assert_int_equal(outcome.result, STORE_FAILED);
	assert_int_equal(outcome.status, -1);
}

static void
a_torn_end_is_kept_beside_and_cut_off(void **state)
{
	struct fixture *fixture = *state;
	char name[64];
	size_t len;

	fixture_make_store(fixture, false, 1, 3);
	uint64_t end = fixture_forge(fixture, 4, NULL, SIZE_MAX);
	char *journal = fixture_read(fixture, JOURNAL_NAME, &len);
	const char *line = journal + end;
	fixture_truncate(fixture, JOURNAL_NAME, end);
	for (size_t part = 1; part < len - end; part += 7) {
		fixture_append(fixture, JOURNAL_NAME, line, part);
		fixture_reopen_and_expect(fixture, one_to_five, 3);
		assert_int_equal(fixture_size(fixture, JOURNAL_NAME), end);
		snprintf(name, sizeof(name),
		    JOURNAL_NAME ".torn-%" PRIu64 ".%zu", end, part / 7 + 1);
		fixture_expect_bytes(fixture, name, line, part);
	}
	free(journal);
}

/* Zeros are what a crash may leave of blocks that were not written. */
static void
a_torn_end_is_cut_off_with_and_without_an_index(void **state)
{
	static const char zeros[5000], junk[] = "\n\n\n\njunk";
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	for (unsigned i = 0; i < 6; i++) {
		if (i % 3 == 0)
			fixture_forge(fixture, 4, NULL, 30);
		else if (i % 3 == 1)
			fixture_append(
			    fixture, JOURNAL_NAME, zeros, sizeof(zeros));
		else
			fixture_append(
			    fixture, JOURNAL_NAME, junk, sizeof(junk) - 1);
		if (i >= 3)
			fixture_remove_index(fixture);
		fixture_reopen_and_expect(fixture, one_to_five, 3);
		assert_int_equal(fixture_logged(fixture, "was torn"), i + 1);
	}
}

/* More than a window of the replay. */
static void
room_that_a_kill_left_is_no_torn_end(void **state)
{
	struct fixture *fixture = *state;
	char *room = fixture_long_name(JOURNAL_ROOM_BYTES);

	memset(room, '\n', JOURNAL_ROOM_BYTES);
	fixture_make_store(fixture, false, 1, 3);
	fixture_append(fixture, JOURNAL_NAME, room, JOURNAL_ROOM_BYTES);
	free(room);
	for (int prepare = 0; prepare < 2; prepare++)
		store_close(fixture_open(fixture, prepare));
	fixture_reopen_and_expect(fixture, one_to_five, 3);
	assert_int_equal(fixture_logged(fixture, "torn"), 0);
}

static void
a_torn_end_is_cut_off_by_the_next_commit(void **state)
{
	struct fixture *fixture = *state;

	for (int prepare = 0; prepare < 2; prepare++) {
		struct store *store = fixture_open(fixture, prepare);

		fixture_create(store, 1 + 2 * prepare);
		fixture_forge(fixture, 9, NULL, 30);
		fixture_create(store, 2 + 2 * prepare);
		store_close(store);
		assert_int_equal(
		    fixture_logged(fixture, "torn"), 1U + (unsigned)prepare);
	}
	fixture_reopen_and_expect(fixture, one_to_five, 4);
}

static void
a_torn_end_is_not_cut_when_it_cannot_be_kept(void **state)
{
	struct fixture *fixture = *state;
	size_t size;

	fixture_make_store(fixture, false, 1, 3);
	fixture_forge(fixture, 4, NULL, 30);
	size = fixture_size(fixture, JOURNAL_NAME);
	shim_fail(SHIM_PWRITE, JOURNAL_NEW_NAME, 1, 1, ENOSPC);
	fixture_refused(fixture, FAULT_FULL);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), size);
	shim_reset();
	fixture_reopen_and_expect(fixture, one_to_five, 3);
}

static void
whole_records_before_a_torn_one_are_kept(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	fixture_forge(fixture, 2, NULL, SIZE_MAX);
	fixture_forge(fixture, 3, NULL, 40);
	assert_int_equal(fixture_put(store, 2, NULL).result, STORE_SAME);
	assert_true(fixture_exists_like(fixture, JOURNAL_NAME ".torn-"));
	fixture_create(store, 3);
	store_close(store);
	fixture_expect(fixture, one_to_five, 3);
}

static void
a_flipped_bit_below_the_watermark_is_refused(void **state)
{
	struct fixture *fixture = *state;
	uint64_t end;

	fixture_make_store(fixture, false, 1, 3);
	end = fixture_end(fixture).last;
	for (uint64_t at = RECORD_HEADER_LEN; at < end; at += 5) {
		fixture_flip(fixture, at);
		fixture_remove_index(fixture);
		expect_refused_untouched(fixture);
		fixture_flip(fixture, at);
	}
	fixture_remove_index(fixture);
	fixture_reopen_and_expect(fixture, one_to_five, 3);
}

/* Work for fixture_in_child: store the plants 4 and 5 as a batch, and die. */
static int
put_two_and_die(void *argument)
{
	struct plant plants[] = { fixture_plant(4, NULL),
		fixture_plant(5, NULL) };
	struct store_item items[] = { { .plant = &plants[0], .by = "tester" },
		{ .plant = &plants[1], .by = "tester" } };
	enum fault fault;
	struct store *store = fixture_try(argument, false, NULL, &fault);

	return store == NULL || store_commit(store, items, 2, NULL, NULL) != 0;
}

static void
add_long_tail(const struct fixture *fixture)
{
	char *junk = fixture_long_name(JOURNAL_TAIL_MAX + 1);

	fixture_append(fixture, JOURNAL_NAME, junk, JOURNAL_TAIL_MAX + 1);
	free(junk);
}

static void
cut_last_batch(const struct fixture *fixture)
{
	/* 4 and 5 were the last two lines, of one length. */
	struct position at = fixture_end(fixture);

	fixture_truncate(
	    fixture, JOURNAL_NAME, at.end - 2 * (at.end - at.last));
}

static void
blank_all(const struct fixture *fixture)
{
	blank(fixture, RECORD_HEADER_LEN, fixture_end(fixture).end);
}

static void
blank_last_batch(const struct fixture *fixture)
{
	struct position at = fixture_end(fixture);

	blank(fixture, at.end - 2 * (at.end - at.last), at.end);
}

static void
spoil_last_line(const struct fixture *fixture)
{
	fixture_flip(fixture, fixture_end(fixture).last + 20);
}

/* A large enough tail, or what the index has of a process that died. */
static void
damage_that_only_the_index_or_length_shows_is_refused(void **state)
{
	static const struct {
		void (*damage)(const struct fixture *);
		const char *logged;
	} rows[] = {
		{ add_long_tail, "more unreadable bytes" },
		{ cut_last_batch, "shorter" },
		{ blank_all, "blank lines" },
		{ blank_last_batch, "blank lines" },
		{ spoil_last_line, "wrong checksum" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct fixture *fixture = fixture_renew(state);
		size_t len;

		fixture_make_store(fixture, false, 1, 3);
		assert_int_equal(fixture_in_child(put_two_and_die, fixture), 0);
		char *good = fixture_read(fixture, JOURNAL_NAME, &len);
		rows[i].damage(fixture);
		/* Also the second time. */
		expect_refused_untouched(fixture);
		expect_refused_untouched(fixture);
		assert_int_equal(fixture_logged(fixture, rows[i].logged), 4);
		restore(fixture, good, len);
		fixture_reopen_and_expect(fixture, one_to_five, 5);
	}
}

/* Its records behind the damage are as they were, and the index has them. */
static void
damage_before_the_last_line_is_refused_by_a_service(void **state)
{
	struct fixture *fixture = *state;
	struct position at;
	enum fault fault;

	fixture_make_store(fixture, false, 1, 3);
	assert_int_equal(fixture_in_child(put_two_and_die, fixture), 0);
	at = fixture_end(fixture);
	const uint64_t offsets[] = { RECORD_HEADER_LEN + 20,
		2 * at.last - at.end + 20 };
	for (unsigned i = 0; i < COUNT(offsets); i++) {
		fixture_flip(fixture, offsets[i]);
		assert_null(fixture_try(fixture, true, NULL, &fault));
		assert_int_equal(fault, FAULT_DAMAGED);
		assert_int_equal(
		    fixture_logged(fixture, "nothing was changed"), i + 1);
		assert_false(
		    fixture_exists_like(fixture, JOURNAL_NAME ".torn"));
		fixture_flip(fixture, offsets[i]);
	}
	fixture_reopen_and_expect(fixture, one_to_five, 5);
}

/*
 * The second plant is one that the index does not have, since it could not be
 * written; or the store does not know it, since another process wrote it.
 */
static void
damage_to_synced_plants_fails_the_next_commit(void **state)
{
	static const int64_t ids[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
	struct fixture *fixture = *state;

	for (int i = 0; i < 6; i++) {
		struct store *store = fixture_open(fixture, true);
		struct position at;
		size_t len;

		fixture_create(store, 2 * i + 1);
		if (i < 3) {
			shim_fail(SHIM_WRITEV, "index/data.mdb", 1, 1, ENOSPC);
			shim_fail(SHIM_PWRITE, "index/data.mdb", 1, 1, ENOSPC);
			fixture_create(store, 2 * i + 2);
			shim_reset();
		} else
			fixture_make_store(fixture, true, 2 * i + 2, 2 * i + 2);
		at = fixture_end(fixture);
		char *good = fixture_read(fixture, JOURNAL_NAME, &len);
		if (i % 3 == 0)
			fixture_flip(fixture, at.last + 20);
		else if (i % 3 == 1)
			blank(fixture, at.last, at.end);
		else
			fixture_truncate(fixture, JOURNAL_NAME, at.last);
		expect_failed(fixture_put(store, 99, NULL));
		store_close(store);
		assert_false(
		    fixture_exists_like(fixture, JOURNAL_NAME ".torn"));
		restore(fixture, good, len);
		fixture_reopen_and_expect(fixture, ids, 2 * (size_t)i + 2);
	}
	assert_int_equal(fixture_logged(fixture, "nothing was changed"), 5);
}

/* More than a long lived process checks from its beginning at each start. */
static void
damage_far_before_the_end_is_found_by_its_reader(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	char *name = fixture_long_name(((size_t)1 << 20) - 100);

	fixture_create(store, 1);
	for (int64_t id = 2; id < 19; id++)
		assert_int_equal(
		    fixture_put(store, id, name).result, STORE_CREATED);
	free(name);
	store_close(store);
	fixture_flip(fixture, RECORD_HEADER_LEN + 10);
	store = fixture_open(fixture, true);
	assert_int_equal(fixture_put(store, 18, NULL).result, STORE_CONFLICT);
	expect_failed(fixture_put(store, 1, NULL));
	store_close(store);
	expect_refused_untouched(fixture);
	assert_true(fixture_logged(fixture, "damaged at byte 82") > 0);
}

/* The store's index, in a transaction. */
static struct index *
begin_index(const struct fixture *fixture, struct position *covered)
{
	struct journal journal = fixture_journal(fixture, false);
	struct index *index;

	assert_int_equal(
	    index_open(fixture->dir, fixture->path, journal.uuid, true, &index),
	    INDEX_OPENED);
	assert_int_equal(index_begin(index, covered), 0);
	journal_close(&journal);
	return index;
}

static void
expect_index_equal(const struct fixture *fixture)
{
	struct verify_report report;

	assert_int_equal(
	    verify_store(fixture->path, NULL, &report), FAULT_NONE);
	assert_int_equal(report.index, READER_INDEX_USABLE);
}

/* What the file index/boot has. */
static bool
is_marked(const struct fixture *fixture, const char *boot)
{
	size_t len;
	char *mark = fixture_read(fixture, "index/boot", &len);
	bool result = strncmp(mark, boot, strlen(boot)) == 0;

	free(mark);
	return result;
}

static void
empty_index(const struct fixture *fixture)
{
	fixture_truncate(fixture, "index/data.mdb", 0);
}

static void
unmark_index(const struct fixture *fixture)
{
	fixture_remove(fixture, "index/boot");
}

static void
leave_another_boot(const struct fixture *fixture)
{
	fixture_write(
	    fixture, "index/boot", 0, ANOTHER_BOOT, sizeof(ANOTHER_BOOT) - 1);
}

/* LMDB would find it damaged, but does not read it. */
static void
junk_index_of_another_boot(const struct fixture *fixture)
{
	leave_another_boot(fixture);
	fixture_junk_index(fixture);
}

static void
an_index_that_cannot_be_used_is_built_again(void **state)
{
	static const struct {
		void (*change)(const struct fixture *);
		const char *logged; /* and nothing else of the index */
	} rows[] = {
		{ fixture_remove_index, "index: there is none" },
		{ fixture_junk_index, "index: damaged; building it" },
		{ empty_index, "index: of another boot" },
		{ unmark_index, "index: of another boot" },
		{ leave_another_boot, "index: of another boot" },
		{ junk_index_of_another_boot, "index: of another boot" },
	};
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 5);
	for (size_t i = 0; i < COUNT(rows); i++) {
		unsigned logged = fixture_logged(fixture, "/index: ");

		rows[i].change(fixture);
		fixture_reopen_and_expect(fixture, one_to_five, 5);
		assert_int_equal(
		    fixture_logged(fixture, "/index: "), logged + 1);
		assert_true(fixture_logged(fixture, rows[i].logged) > 0);
		expect_index_equal(fixture);
	}
}

/* --- The end mark -------------------------------------------------------- */

/* Work for fixture_in_child, which ends it as a kill does. */
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

	leave_another_boot(fixture);
	if (loss == ZEROS)
		fixture_write(fixture, JOURNAL_NAME, from, zeros, to - from);
	else if (loss == NEWLINES)
		blank(fixture, from, to);
	else
		fixture_truncate(fixture, JOURNAL_NAME, from);
}

static void
a_journal_that_lost_its_end_is_refused_by_the_end_mark(void **state)
{
	struct fixture *fixture = *state;
	struct verify_report report;
	char logged[40];
	enum fault fault;
	size_t len;

	for (int i = 0; i < 8 * LOSSES; i++) {
		bool prepare = i / LOSSES % 2 == 0, failed = i / LOSSES >= 4;
		const char *name = failed ? JOURNAL_FAILED_NAME : JOURNAL_NAME;

		fixture = fixture_renew(state);
		assert_int_equal(fixture_in_child(create_and_idle, fixture), 0);
		struct position at = fixture_end(fixture);
		/* Its closing line, or all plants as well. */
		uint64_t from =
		    i / LOSSES / 2 % 2 == 0 ? at.last : RECORD_HEADER_LEN;
		lose(fixture, (enum loss)(i % LOSSES), from, at.end);
		char *bytes = fixture_read(fixture, JOURNAL_NAME, &len);
		assert_int_equal(
		    verify_store(fixture->path, NULL, &report), FAULT_DAMAGED);
		if (failed)
			fixture_fail_journal(fixture);
		assert_null(fixture_try(fixture, prepare, NULL, &fault));
		assert_int_equal(fault, FAULT_DAMAGED);
		snprintf(logged, sizeof(logged),
		    i % LOSSES == CUT ? "shorter (%" PRIu64 " bytes)"
				      : "damaged at byte %" PRIu64 ": ",
		    from);
		assert_int_equal(fixture_logged(fixture, logged), 2);
		assert_int_equal(fixture_logged(fixture, "torn"), 0);
		fixture_expect_bytes(fixture, name, bytes, len);
		free(bytes);
		/* Nothing else shows that it is gone. */
		fixture_remove(fixture, JOURNAL_END_NAME);
		store_close(fixture_open(fixture, prepare));
	}
}

static void
an_end_mark_that_cannot_be_read_counts_as_none(void **state)
{
	struct fixture *fixture = *state;
	size_t len;

	assert_int_equal(fixture_in_child(create_and_idle, fixture), 0);
	char *mark = fixture_read(fixture, JOURNAL_END_NAME, &len);
	assert_true(len < 512 && mark[len - 1] == '\n');
	for (size_t i = 0; i < len; i++) {
		fixture_write(fixture, JOURNAL_END_NAME, i, "?", 1);
		store_close(fixture_open(fixture, true));
		assert_int_equal(
		    fixture_logged(fixture, "end: unreadable"), i + 1);
		fixture_write(fixture, JOURNAL_END_NAME, 0, mark, len);
	}
	for (size_t size = 0; size < len; size += 41) {
		fixture_truncate(fixture, JOURNAL_END_NAME, size);
		store_close(fixture_open(fixture, true));
	}
	free(mark);
	/* The next closing line makes it good. */
	struct store *store = fixture_open(fixture, true);
	fixture_create(store, 4);
	store_close(store);
	lose(fixture, CUT, RECORD_HEADER_LEN, 0);
	fixture_refused(fixture, FAULT_DAMAGED);
}

static void
an_end_mark_of_another_store_is_refused(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(fixture_in_child(create_and_idle, fixture), 0);
	fixture_remove(fixture, JOURNAL_NAME);
	fixture_remove_index(fixture);
	/* A store whose journal is missing is not made anew. */
	fixture_refused(fixture, FAULT_SETUP);
	assert_int_equal(fixture_logged(fixture, "missing; restore it"), 1);
	assert_int_equal(store_init(fixture->path), FAULT_SETUP);
	struct journal other;
	assert_int_equal(journal_begin(&other, fixture->dir), 0);
	assert_int_equal(journal_place(&other, false), 0);
	fixture_refused(fixture, FAULT_SETUP);
	assert_int_equal(fixture_logged(fixture, "end: of another store"), 1);
	fixture_remove(fixture, JOURNAL_END_NAME);
	fixture_reopen_and_expect(fixture, NULL, 0);
}

/* A request pays nothing for it, and its failure harms no plant. */
static void
only_an_idle_or_closing_service_writes_the_end_mark(void **state)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_FSYNC };
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_make_store(fixture, false, 1, 2);
	fixture_create(store, 3);
	assert_false(fixture_exists(fixture, JOURNAL_END_NAME));
	for (size_t i = 0; i < COUNT(calls); i++) {
		fixture_create(store, 4 + (int64_t)i);
		shim_fail(calls[i], JOURNAL_END_NAME, 1, 1, EIO);
		store_idle(store);
		shim_reset();
		assert_int_equal(
		    fixture_logged(fixture, "end: cannot write"), i + 1);
	}
	fixture_create(store, 7);
	store_idle(store);
	uint64_t end = 0;
	struct journal journal = fixture_journal(fixture, false);
	assert_int_equal(
	    journal_read_end(&journal, journal.uuid, &end), FAULT_NONE);
	assert_int_equal(end, fixture_end(fixture).end);
	fixture_create(store, 8);
	store_close(store);
	assert_int_equal(
	    journal_read_end(&journal, journal.uuid, &end), FAULT_NONE);
	assert_int_equal(end, fixture_end(fixture).end);
	journal_close(&journal);
}

/* Work for fixture_in_child. */
static int
just_open(void *argument)
{
	enum fault fault;

	/* cmocka's handlers would go on with the tests. */
	signal(SIGBUS, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGABRT, SIG_DFL);
	return fixture_try(argument, false, NULL, &fault) == NULL;
}

/* LMDB trusts its pages: one that leads beyond the map ends the process. */
static void
an_index_whose_reading_ends_the_process_may_be_removed(void **state)
{
	struct fixture *fixture = *state;
	size_t len;

	fixture_make_store(fixture, false, 1, 5);
	char *data = fixture_read(fixture, "index/data.mdb", &len);
	memset(data + 2 * 4096 + 16, 0xff, len - 2 * 4096 - 16);
	fixture_write(fixture, "index/data.mdb", 0, data, len);
	free(data);
	for (int i = 0; i < 2; i++)
		assert_true(fixture_in_child(just_open, fixture) > 128);
	fixture_remove_index(fixture);
	fixture_reopen_and_expect(fixture, one_to_five, 5);
}

static void
a_clean_close_is_trusted_until_the_next_transaction(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, true, 1, 5);
	assert_true(is_marked(fixture, "clean "));
	struct store *store = fixture_open(fixture, true);
	assert_int_equal(fixture_logged(fixture, "building it"), 0);
	assert_false(is_marked(fixture, "clean "));
	store_close(store);
	assert_true(is_marked(fixture, "clean "));
	/* A process that stores one plant does not sync the index. */
	store_close(fixture_open(fixture, false));
	assert_false(is_marked(fixture, "clean "));
}

static void
an_index_removed_while_in_use_loses_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct store *one = fixture_open(fixture, true), *two;

	fixture_create(one, 1);
	fixture_remove_index(fixture);
	fixture_create(one, 2);
	two = fixture_open(fixture, true);
	fixture_create(two, 3);
	assert_int_equal(fixture_put(one, 3, NULL).result, STORE_SAME);
	fixture_create(one, 4);
	assert_int_equal(fixture_put(two, 4, NULL).result, STORE_SAME);
	store_close(two);
	fixture_create(one, 5);
	store_close(one);
	fixture_reopen_and_expect(fixture, one_to_five, 5);
	expect_index_equal(fixture);
}

static void
an_older_copy_of_the_index_catches_up(void **state)
{
	struct fixture *fixture = *state;
	struct store *one, *two;
	size_t len;

	fixture_make_store(fixture, true, 1, 1);
	char *index = fixture_read(fixture, "index/data.mdb", &len);
	one = fixture_open(fixture, false);
	fixture_create(one, 2);
	fixture_create(one, 3);
	/* Another file: `one` goes on with its own. */
	fixture_remove(fixture, "index/data.mdb");
	fixture_write(fixture, "index/data.mdb", 0, index, len);
	free(index);
	two = fixture_open(fixture, false);
	assert_int_equal(fixture_put(two, 3, "other").result, STORE_CONFLICT);
	fixture_create(one, 4);
	assert_int_equal(fixture_put(two, 4, NULL).result, STORE_SAME);
	fixture_create(two, 5);
	assert_int_equal(fixture_put(one, 5, NULL).result, STORE_SAME);
	store_close(one);
	store_close(two);
	fixture_reopen_and_expect(fixture, one_to_five, 5);
	assert_int_equal(fixture_logged(fixture, "building it"), 0);
}

/* Let the index cover the journal up to `at`.  The place from before. */
static struct position
forge_covered(const struct fixture *fixture, const struct position *at)
{
	struct position covered;
	struct index *index = begin_index(fixture, &covered);

	assert_int_equal(index_commit(index, at != NULL ? at : &covered), 0);
	index_close(index, false);
	return covered;
}

static void
an_index_that_ends_where_no_line_does_is_built_again(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 5);
	struct position places[] = { forge_covered(fixture, NULL),
		forge_covered(fixture, NULL), forge_covered(fixture, NULL),
		{ .end = RECORD_HEADER_LEN, .crc = 1 },
		{ .end = RECORD_HEADER_LEN + 1 } };
	places[0].crc ^= 1;
	places[1].seq++;
	places[2].last++;
	for (unsigned i = 0; i < COUNT(places); i++) {
		forge_covered(fixture, &places[i]);
		fixture_reopen_and_expect(fixture, one_to_five, 5);
		assert_int_equal(
		    fixture_logged(fixture, "does not belong"), i + 1);
	}
	/* Or the start fails. */
	forge_covered(fixture, &places[0]);
	shim_fail(SHIM_FSYNC, "/index", 1, 1, EIO);
	fixture_refused(fixture, FAULT_FAILED);
	shim_reset();
	fixture_reopen_and_expect(fixture, one_to_five, 5);
}

/* Enter a plant that the journal does not have at that place. */
static void
forge_entry(const struct fixture *fixture, int64_t id, uint64_t offset)
{
	struct position covered;
	uint64_t found;
	struct index *index = begin_index(fixture, &covered);

	assert_int_equal(index_put(index, id, offset, &found), INDEX_NEW);
	assert_int_equal(index_commit(index, &covered), 0);
	index_close(index, false);
}

static void
expect_condemned(const struct fixture *fixture, struct outcome outcome)
{
	expect_failed(outcome);
	assert_false(fixture_exists(fixture, "index/data.mdb"));
}

/* The offset behind the last line is within the batch that is stored. */
static void
an_entry_without_a_record_of_its_id_is_condemned(void **state)
{
	static const uint64_t offsets[] = { 0, 1, RECORD_HEADER_LEN,
		RECORD_HEADER_LEN + 1, 100000, UINT64_C(1) << 40, UINT64_MAX,
		UINT64_MAX - 1 };
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(offsets); i++) {
		struct store *store = fixture_open(fixture, false);
		struct plant plants[] = { fixture_plant(2, NULL),
			fixture_plant(7, NULL) };
		struct store_item items[] = { { .plant = &plants[0],
						  .by = "tester" },
			{ .plant = &plants[1], .by = "tester" } };

		fixture_put(store, 1, NULL);
		forge_entry(fixture, 7,
		    offsets[i] == UINT64_MAX - 1 ? fixture_end(fixture).end + 3
						 : offsets[i]);
		int status =
		    store_commit(store, items, COUNT(items), NULL, NULL);
		for (size_t k = 0; k < COUNT(items); k++) {
			expect_condemned(fixture,
			    (struct outcome){ items[k].result, status });
			plant_done(&plants[k]);
		}
		store_close(store);
		fixture_reopen_and_expect(fixture, one_to_five, 1);
	}
}

/* The record that the index names is another plant's; or the very one. */
static void
an_index_that_has_a_plant_before_it_was_read_is_condemned(void **state)
{
	struct fixture *fixture = *state;

	for (int64_t i = 0; i < 2; i++) {
		int64_t id = 2 + 2 * i;
		struct store *store = fixture_open(fixture, false);

		fixture_create(store, id - 1);
		forge_entry(fixture, id,
		    i == 0 ? RECORD_HEADER_LEN : fixture_end(fixture).end);
		fixture_forge(fixture, id, NULL, SIZE_MAX);
		expect_condemned(fixture, fixture_put(store, 9, NULL));
		store_close(store);
		fixture_reopen_and_expect(fixture, one_to_five, (size_t)id);
	}
}

static void
plants_of_the_dead_are_entered_after_a_sync(void **state)
{
	struct fixture *fixture = *state;
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
		assert_int_equal(
		    fixture_put(store, id, NULL).result, STORE_SAME);
		assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
		assert_int_equal(
		    fixture_put(store, id, "other").result, STORE_CONFLICT);
		assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	}
	fixture_create(store, 5);
	store_close(store);
	fixture_expect(fixture, one_to_five, 5);
}

static void
plants_of_the_dead_whose_sync_fails_are_not_confirmed(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	fixture_forge(fixture, 2, NULL, SIZE_MAX);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	expect_failed(fixture_put(store, 2, NULL));
	store_close(store);
	assert_true(fixture_exists(fixture, JOURNAL_FAILED_NAME));
	fixture_reopen_and_expect(fixture, one_to_five, 2);
}

static void
of_an_id_that_stands_twice_the_first_counts(void **state)
{
	struct verify_report report;
	struct store *store;
	char logged[128];

	/* Met by a start that builds the index, by another, by a commit. */
	for (int i = 0; i < 3; i++) {
		struct fixture *fixture = fixture_renew(state);

		fixture_make_store(fixture, false, 1, 3);
		if (i == 2)
			store = fixture_open(fixture, true);
		uint64_t offset = fixture_forge(fixture, 1, "twin", SIZE_MAX);
		if (i == 0)
			fixture_remove_index(fixture);
		if (i < 2)
			store = fixture_open(fixture, true);
		for (int k = 0; k < 2; k++) {
			assert_int_equal(
			    fixture_put(store, 1, NULL).result, STORE_SAME);
			assert_int_equal(fixture_put(store, 1, "twin").result,
			    STORE_CONFLICT);
		}
		snprintf(logged, sizeof(logged),
		    "the plant 1 stands twice, at the bytes %d and %" PRIu64,
		    RECORD_HEADER_LEN, offset);
		assert_int_equal(fixture_logged(fixture, logged), 1);
		fixture_create(store, 4);
		store_close(store);
		/* It does not pass for good. */
		assert_int_equal(
		    verify_store(fixture->path, NULL, &report), FAULT_DAMAGED);
		assert_int_equal(fixture_logged(fixture, logged), 2);
	}
}

static void
expect_renewed(const struct fixture *fixture)
{
	unsigned logged = fixture_logged(fixture, "copied to a fresh file");

	fixture_reopen_and_expect(fixture, one_to_five, 3);
	assert_true(fixture_exists_like(fixture, JOURNAL_FAILED_NAME "-"));
	assert_false(fixture_exists(fixture, JOURNAL_FAILED_NAME));
	/* Once is enough. */
	fixture_reopen_and_expect(fixture, one_to_five, 3);
	assert_int_equal(
	    fixture_logged(fixture, "copied to a fresh file"), logged + 1);
}

/* The device may have lost pages of it, of which nobody was informed. */
static void
a_failed_journal_gets_a_fresh_index_too(void **state)
{
	struct fixture *fixture = *state;
	struct position covered, none;
	struct index *index;
	uint64_t found;

	fixture_make_store(fixture, false, 1, 3);
	struct journal journal = fixture_journal(fixture, false);
	index_close(begin_index(fixture, &covered), false);
	assert_int_equal(
	    index_create(fixture->dir, fixture->path, journal.uuid, &index), 0);
	assert_int_equal(index_begin(index, &none), 0);
	assert_int_equal(
	    index_put(index, 1, RECORD_HEADER_LEN, &found), INDEX_NEW);
	assert_int_equal(index_commit(index, &covered), 0);
	index_close(index, false);
	journal_close(&journal);
	fixture_fail_journal(fixture);
	fixture_reopen_and_expect(fixture, one_to_five, 3);
}

static void
a_failed_journal_that_is_damaged_is_refused_and_stays(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct fixture *fixture = fixture_renew(state);
		size_t len;

		fixture_make_store(fixture, false, 1, 3);
		/* The index has all plants. */
		if (i == 0)
			fixture_flip(fixture, RECORD_HEADER_LEN + 10);
		else
			fixture_truncate(fixture, JOURNAL_NAME,
			    fixture_end(fixture).last - 1);
		fixture_fail_journal(fixture);
		char *was = fixture_read(fixture, JOURNAL_FAILED_NAME, &len);
		for (int k = 0; k < 2; k++)
			fixture_refused(fixture, FAULT_DAMAGED);
		fixture_expect_bytes(fixture, JOURNAL_FAILED_NAME, was, len);
		assert_false(fixture_exists(fixture, JOURNAL_NAME));
		free(was);
	}
}

static void
a_failed_journal_is_copied_but_for_its_torn_end(void **state)
{
	struct fixture *fixture = *state;
	char name[64];

	fixture_make_store(fixture, false, 1, 3);
	for (size_t torn = 0; torn <= 30; torn += 30) {
		uint64_t end = fixture_forge(fixture, 4, NULL, torn);

		fixture_fail_journal(fixture);
		expect_renewed(fixture);
		snprintf(name, sizeof(name),
		    JOURNAL_FAILED_NAME "-%" PRIu64 ".%d", end,
		    torn == 0 ? 1 : 2);
		assert_int_equal(fixture_size(fixture, name), end + torn);
	}
}

static void
a_failed_journal_that_cannot_be_copied_stays_until_it_can(void **state)
{
	static const struct {
		enum shim_call call;
		int error;
		enum fault fault;
	} rows[] = { { SHIM_PWRITE, ENOSPC, FAULT_FULL },
		{ SHIM_FSYNC, EIO, FAULT_FAILED } };
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	fixture_fail_journal(fixture);
	for (size_t i = 0; i < COUNT(rows); i++) {
		shim_fail(rows[i].call, JOURNAL_NEW_NAME, 1, 1, rows[i].error);
		fixture_refused(fixture, rows[i].fault);
		shim_reset();
		assert_false(fixture_exists(fixture, JOURNAL_NAME));
		assert_false(fixture_exists(fixture, JOURNAL_NEW_NAME));
	}
	expect_renewed(fixture);
}

static void
leave_torn(const struct fixture *fixture)
{
	fixture_forge(fixture, 4, NULL, 30);
	fixture_remove_index(fixture);
}

static void
leave_index_of_another(const struct fixture *fixture)
{
	struct position covered = forge_covered(fixture, NULL);

	covered.crc ^= 1;
	forge_covered(fixture, &covered);
}

static void
leave_well(const struct fixture *fixture)
{
	(void)fixture;
}

/* What an opening may find; in each of them there are the plants 1 to 3. */
static void (*const leavings[])(const struct fixture *) = { leave_torn,
	fixture_fail_journal, leave_index_of_another, leave_another_boot,
	leave_well };

struct attempt {
	const struct fixture *fixture;
	enum shim_call call;
	unsigned nth;
	bool prepare;
};

/* Work for fixture_in_child: die before the nth of a kind of call. */
static int
die_opening(void *argument)
{
	const struct attempt *attempt = argument;
	enum fault fault;

	shim_exit(attempt->call, NULL, attempt->nth);
	struct store *store =
	    fixture_try(attempt->fixture, attempt->prepare, NULL, &fault);
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
	       fixture_logged(fixture, "were copied to a fresh file");
}

/* Whether the call was reached.  A refusal is logged once, with its cause. */
static bool
fail_opening(const struct attempt *attempt, int error)
{
	unsigned errors = count_errors(attempt->fixture);
	unsigned causes = fixture_logged(attempt->fixture, strerror(error));
	enum fault fault;

	shim_fail(attempt->call, NULL, attempt->nth, 1, error);
	struct store *store =
	    fixture_try(attempt->fixture, attempt->prepare, NULL, &fault);
	bool reached = shim_count(attempt->call) >= attempt->nth;

	shim_reset();
	if (store == NULL) {
		errors = count_errors(attempt->fixture) - errors;
		causes =
		    fixture_logged(attempt->fixture, strerror(error)) - causes;
		assert_true(errors == 1 && causes == 1);
	}
	store_close(store);
	return reached;
}

/*
 * Each system call of an opening that has a torn end to cut, an index to build
 * and a dead process's plant to sync, or a journal to renew, fails, or ends the
 * process: the plants are there in the end.
 */
static void
an_opening_that_fails_or_dies_anywhere_loses_nothing(void **state)
{
	static const int errors[] = { 0, EIO, ENOSPC };
	struct fixture *fixture = *state;
	struct attempt attempt = { .fixture = fixture };
	unsigned failures = 0;

	fixture_make_store(fixture, false, 1, 2);
	fixture_forge(fixture, 3, NULL, SIZE_MAX);
	for (size_t i = 0; i < COUNT(leavings) * COUNT(errors); i++)
		for (int call = 0; call < SHIM_CALLS; call++) {
			int error = errors[i % COUNT(errors)];
			bool reached;

			attempt.prepare = i % 2 == 0;
			attempt.call = (enum shim_call)call;
			attempt.nth = 0;
			do {
				attempt.nth++;
				leavings[i / COUNT(errors)](fixture);
				reached = error != 0
					      ? fail_opening(&attempt, error)
					      : fixture_in_child(
						    die_opening, &attempt) == 0;
				fixture_reopen_and_expect(
				    fixture, one_to_five, 3);
				fixture_remove_kept(fixture);
				failures += reached;
			} while (reached);
		}
	assert_true(failures > 100);
}

static void
an_opening_that_lacks_memory_anywhere_loses_nothing(void **state)
{
	struct fixture *fixture = *state;

	if (!alloc_can_fail())
		skip();
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
			fixture_reopen_and_expect(fixture, one_to_five, 3);
			fixture_remove_kept(fixture);
		}
	}
}

static void
a_commit_without_memory_passes_when_there_is_some(void **state)
{
	struct fixture *fixture = *state;
	bool failed = true;
	int64_t id = 1;

	if (!alloc_can_fail())
		skip();
	/* A store each, so that it has no buffers from before. */
	for (unsigned nth = 1; failed; nth++, id += 2) {
		struct store *store = fixture_open(fixture, false);
		struct plant plant = fixture_plant(id + 1, NULL);
		struct store_item item = { .plant = &plant, .by = "tester" };

		fixture_forge(fixture, id, NULL, SIZE_MAX);
		alloc_fail(nth, 1);
		int status = store_commit(store, &item, 1, NULL, NULL);
		failed = alloc_reset();
		assert_int_equal(status, 0);
		if (failed && item.result != STORE_CREATED)
			assert_int_equal(item.result, STORE_BUSY);
		assert_true(failed || item.result == STORE_CREATED);
		plant_done(&plant);
		assert_int_equal(fixture_put(store, id + 1, NULL).result,
		    item.result == STORE_CREATED ? STORE_SAME : STORE_CREATED);
		assert_int_equal(
		    fixture_put(store, id, NULL).result, STORE_SAME);
		store_close(store);
	}
	assert_true(id > 5);
}

#define MANY 17000

/* The watch is asked while they are read, and while they are entered. */
static void
the_building_of_an_index_can_be_stopped_anywhere(void **state)
{
	struct fixture *fixture = *state;
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
	/* The journal's mebibytes, and once among the plants. */
	assert_int_equal(
	    nth - 1, fixture_size(fixture, JOURNAL_NAME) / (1 << 20) + 1);
	assert_int_equal(
	    fixture_logged(fixture, "next start begins again"), nth - 1);
	fixture_commit(store, ids, MANY, STORE_SAME);
	store_close(store);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_torn_end_is_kept_beside_and_cut_off),
		TEST(a_torn_end_is_cut_off_with_and_without_an_index),
		TEST(room_that_a_kill_left_is_no_torn_end),
		TEST(a_torn_end_is_cut_off_by_the_next_commit),
		TEST(a_torn_end_is_not_cut_when_it_cannot_be_kept),
		TEST(whole_records_before_a_torn_one_are_kept),
		TEST(a_flipped_bit_below_the_watermark_is_refused),
		TEST(damage_that_only_the_index_or_length_shows_is_refused),
		TEST(damage_before_the_last_line_is_refused_by_a_service),
		TEST(damage_to_synced_plants_fails_the_next_commit),
		TEST(damage_far_before_the_end_is_found_by_its_reader),
		TEST(an_index_that_cannot_be_used_is_built_again),
		TEST(a_journal_that_lost_its_end_is_refused_by_the_end_mark),
		TEST(an_end_mark_that_cannot_be_read_counts_as_none),
		TEST(an_end_mark_of_another_store_is_refused),
		TEST(only_an_idle_or_closing_service_writes_the_end_mark),
		TEST(an_index_whose_reading_ends_the_process_may_be_removed),
		TEST(a_clean_close_is_trusted_until_the_next_transaction),
		TEST(an_index_removed_while_in_use_loses_nothing),
		TEST(an_older_copy_of_the_index_catches_up),
		TEST(an_index_that_ends_where_no_line_does_is_built_again),
		TEST(an_entry_without_a_record_of_its_id_is_condemned),
		TEST(an_index_that_has_a_plant_before_it_was_read_is_condemned),
		TEST(plants_of_the_dead_are_entered_after_a_sync),
		TEST(plants_of_the_dead_whose_sync_fails_are_not_confirmed),
		TEST(of_an_id_that_stands_twice_the_first_counts),
		TEST(a_failed_journal_gets_a_fresh_index_too),
		TEST(a_failed_journal_that_is_damaged_is_refused_and_stays),
		TEST(a_failed_journal_is_copied_but_for_its_torn_end),
		TEST(a_failed_journal_that_cannot_be_copied_stays_until_it_can),
		TEST(an_opening_that_fails_or_dies_anywhere_loses_nothing),
		TEST(an_opening_that_lacks_memory_anywhere_loses_nothing),
		TEST(a_commit_without_memory_passes_when_there_is_some),
		TEST(the_building_of_an_index_can_be_stopped_anywhere),
	};

	return cmocka_run_group_tests_name("recovery", tests, NULL, NULL);
}
