/*
 * recovery: what the next open, or the next commit, makes of what others left:
 * torn ends, damage, an index that is gone or behind, a failed store.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "alloc_shim.h"
#include "fault_shim.h"
#include "gather.h"
#include "index.h"
#include "journal.h"
#include "lock.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "replay.h"
#include "store/verify.h"
#include "store_fixture.h"

static const int64_t one_to_five[] = { 1, 2, 3, 4, 5 };

/* Where the journal's good lines end. */
static struct position
find_end(const struct fixture *fixture)
{
	struct journal journal;
	struct replay replay;
	struct record record;

	assert_int_equal(
	    journal_open(&journal, fixture->dir, false), JOURNAL_OPENED);
	assert_int_equal(
	    replay_init(&replay, journal.fd, journal.seed, &journal.start), 0);
	while (replay_next(&replay, &record) == REPLAY_RECORD)
		;
	replay_done(&replay);
	journal_close(&journal);
	return replay.at;
}

/*
 * The line that comes next behind `at`, of a plant with that id, as a process
 * that knew everything to be durable would write it; `at` is then behind it.
 */
static size_t
forge_next(struct position *at, uint32_t seed, int64_t id, char *line)
{
	struct plant plant = fixture_plant(id, NULL);
	char now[TIMESTAMP_LEN];

	timestamp_print(0, now);
	struct record record = { .seq = at->seq + 1,
		.safe = at->end,
		.prev = at->crc,
		.at = now,
		.by = "dead",
		.by_len = 4,
		.plant = plant.text,
		.plant_len = plant.len };
	size_t len = record_encode(&record, seed, line);
	plant_done(&plant);
	*at = (struct position){ .end = at->end + len,
		.last = at->end,
		.seq = record.seq,
		.crc = record.crc };
	return len;
}

static uint32_t
find_seed(const struct fixture *fixture)
{
	struct journal journal;

	assert_int_equal(
	    journal_open(&journal, fixture->dir, false), JOURNAL_OPENED);
	journal_close(&journal);
	return journal.seed;
}

static size_t
forge(const struct fixture *fixture, int64_t id, char *line)
{
	struct position at = find_end(fixture);

	return forge_next(&at, find_seed(fixture), id, line);
}

/* Append it, or its first `len` bytes. */
static void
append_forged(const struct fixture *fixture, int64_t id, size_t len)
{
	char line[512];
	size_t whole = forge(fixture, id, line);

	fixture_write(fixture, JOURNAL_NAME, find_end(fixture).end, line,
	    len < whole ? len : whole);
}

static void
flip(const struct fixture *fixture, uint64_t offset)
{
	size_t len;
	char *bytes = fixture_read(fixture, JOURNAL_NAME, &len);

	assert_true(offset < len);
	bytes[offset] ^= 1;
	fixture_write(fixture, JOURNAL_NAME, offset, &bytes[offset], 1);
	free(bytes);
}

/* It is refused as damaged, and the journal stays as it is. */
static void
expect_refused_untouched(const struct fixture *fixture)
{
	size_t before, after;
	char *was = fixture_read(fixture, JOURNAL_NAME, &before);

	fixture_refused(fixture, EX_DATAERR);
	char *is = fixture_read(fixture, JOURNAL_NAME, &after);
	assert_int_equal(before, after);
	assert_memory_equal(was, is, before);
	assert_false(fixture_exists_like(fixture, JOURNAL_NAME "."));
	free(was);
	free(is);
}

static void
a_torn_end_is_kept_beside_and_cut_off(void **state)
{
	struct fixture *fixture = *state;
	char line[512], name[64];
	size_t len, kept;
	uint64_t end;

	fixture_make_store(fixture, false, 1, 3);
	end = find_end(fixture).end;
	len = forge(fixture, 4, line);
	for (size_t part = 1; part < len; part += 7) {
		fixture_append(fixture, JOURNAL_NAME, line, part);
		fixture_reopen_and_expect(fixture, one_to_five, 3);
		assert_int_equal(fixture_size(fixture, JOURNAL_NAME), end);
		snprintf(name, sizeof(name),
		    JOURNAL_NAME ".torn-%" PRIu64 ".%zu", end, part / 7 + 1);
		char *bytes = fixture_read(fixture, name, &kept);
		assert_int_equal(kept, part);
		assert_memory_equal(bytes, line, part);
		free(bytes);
	}
}

static void
a_torn_end_is_cut_off_also_without_an_index(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	append_forged(fixture, 4, 30);
	fixture_remove_index(fixture);
	fixture_reopen_and_expect(fixture, one_to_five, 3);
	assert_int_equal(fixture_logged(fixture, "torn"), 1);
}

static void
a_torn_end_left_while_the_store_is_open_is_cut_off_by_the_next_commit(
    void **state)
{
	struct fixture *fixture = *state;

	for (int prepare = 0; prepare < 2; prepare++) {
		struct store *store = fixture_open(fixture, prepare);

		fixture_create(store, 1 + 2 * prepare);
		append_forged(fixture, 9, 30);
		fixture_create(store, 2 + 2 * prepare);
		store_close(store);
		assert_int_equal(
		    fixture_logged(fixture, "torn"), 1U + (unsigned)prepare);
	}
	fixture_reopen_and_expect(fixture, one_to_five, 4);
}

static void
a_torn_end_of_zeros_is_cut_off(void **state)
{
	static const char zeros[5000];
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	fixture_append(fixture, JOURNAL_NAME, zeros, sizeof(zeros));
	fixture_reopen_and_expect(fixture, one_to_five, 3);
}

static void
junk_behind_the_room_is_cut_off(void **state)
{
	static const char junk[] = "\n\n\n\njunk";
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	fixture_append(fixture, JOURNAL_NAME, junk, sizeof(junk) - 1);
	fixture_reopen_and_expect(fixture, one_to_five, 3);
	assert_true(fixture_exists_like(fixture, JOURNAL_NAME ".torn-"));
}

static void
a_torn_end_is_not_cut_when_it_cannot_be_kept(void **state)
{
	struct fixture *fixture = *state;
	size_t size;

	fixture_make_store(fixture, false, 1, 3);
	append_forged(fixture, 4, 30);
	size = fixture_size(fixture, JOURNAL_NAME);
	shim_fail(SHIM_PWRITE, ".1", 1, 1, ENOSPC);
	fixture_refused(fixture, EX_TEMPFAIL);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), size);
	shim_reset();
	fixture_reopen_and_expect(fixture, one_to_five, 3);
}

static void
a_flipped_bit_below_the_watermark_refuses_and_changes_nothing(void **state)
{
	struct fixture *fixture = *state;
	uint64_t end;

	fixture_make_store(fixture, false, 1, 3);
	end = find_end(fixture).last;
	for (uint64_t at = RECORD_HEADER_LEN; at < end; at += 5) {
		flip(fixture, at);
		fixture_remove_index(fixture);
		expect_refused_untouched(fixture);
		flip(fixture, at);
	}
	fixture_remove_index(fixture);
	fixture_reopen_and_expect(fixture, one_to_five, 3);
}

static void
damage_below_what_the_index_knows_is_refused_by_a_long_lived_process(
    void **state)
{
	struct fixture *fixture = *state;
	struct store_options options = { .dir = fixture->path,
		.prepare = true };
	int status;

	fixture_make_store(fixture, false, 1, 3);
	flip(fixture, RECORD_HEADER_LEN + 10);
	assert_null(store_open(&options, &status));
	assert_int_equal(status, EX_DATAERR);
	assert_int_equal(fixture_logged(fixture, "damaged at byte 82"), 1);
}

static void
a_tail_longer_than_a_batch_refuses_and_changes_nothing(void **state)
{
	struct fixture *fixture = *state;
	char *junk = malloc(JOURNAL_TAIL_MAX + 1);

	assert_non_null(junk);
	memset(junk, 'x', JOURNAL_TAIL_MAX + 1);
	fixture_make_store(fixture, false, 1, 3);
	fixture_append(fixture, JOURNAL_NAME, junk, JOURNAL_TAIL_MAX + 1);
	free(junk);
	expect_refused_untouched(fixture);
}

static void
a_journal_cut_below_what_the_index_knows_is_refused(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);
	uint64_t end;

	fixture_create(store, 1);
	end = find_end(fixture).end;
	fixture_create(store, 2);
	store_close(store);
	fixture_truncate(fixture, JOURNAL_NAME, end);
	expect_refused_untouched(fixture);
	assert_int_equal(fixture_logged(fixture, "shorter"), 1);
}

static void
durable_plants_turned_to_blank_lines_are_refused(void **state)
{
	struct fixture *fixture = *state;
	struct position end;
	char blank[1000];

	memset(blank, '\n', sizeof(blank));
	fixture_make_store(fixture, false, 1, 3);
	end = find_end(fixture);
	fixture_write(fixture, JOURNAL_NAME, RECORD_HEADER_LEN, blank,
	    (size_t)end.end - RECORD_HEADER_LEN);
	expect_refused_untouched(fixture);
}

/* Work for fixture_in_child: store a plant, and die before closing. */
static int
put_and_die(void *argument)
{
	const struct fixture *fixture = argument;
	struct store_options options = { .dir = fixture->path };
	int status;
	struct store *store = store_open(&options, &status);

	return store == NULL ||
	       fixture_put(store, 4, NULL).result != STORE_CREATED;
}

static void
damage_that_only_the_index_knows_of_is_refused(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	assert_int_equal(fixture_in_child(put_and_die, fixture), 0);
	flip(fixture, find_end(fixture).last + 20);
	expect_refused_untouched(fixture);
	/* Also the second time. */
	expect_refused_untouched(fixture);
}

/* Work for fixture_in_child: store two plants as one batch, and die. */
static int
put_two_and_die(void *argument)
{
	const struct fixture *fixture = argument;
	struct store_options options = { .dir = fixture->path };
	struct plant plants[] = { fixture_plant(4, NULL),
		fixture_plant(5, NULL) };
	struct store_item items[] = { { .plant = &plants[0], .by = "tester" },
		{ .plant = &plants[1], .by = "tester" } };
	int status;
	struct store *store = store_open(&options, &status);

	return store == NULL || store_commit(store, items, 2) != 0;
}

/* No watermark is above the batch, and its last record is as it was. */
static void
damage_within_the_last_batch_is_refused_for_the_index_knows_its_end(
    void **state)
{
	struct fixture *fixture = *state;
	struct store_options options = { .dir = fixture->path,
		.prepare = true };
	struct position end;
	int status;

	fixture_make_store(fixture, false, 1, 3);
	end = find_end(fixture);
	assert_int_equal(fixture_in_child(put_two_and_die, fixture), 0);
	flip(fixture, end.end + 20);
	assert_null(store_open(&options, &status));
	assert_int_equal(status, EX_DATAERR);
	assert_int_equal(fixture_logged(fixture, "wrong checksum"), 1);
	assert_false(fixture_exists_like(fixture, JOURNAL_NAME "."));
	flip(fixture, end.end + 20);
	fixture_reopen_and_expect(fixture, one_to_five, 5);
}

static void
damage_to_what_was_synced_is_refused_though_the_index_lacks_it(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);
	uint64_t last;

	fixture_create(store, 1);
	shim_fail(SHIM_WRITEV, "index/data.mdb", 1, 1, ENOSPC);
	shim_fail(SHIM_PWRITE, "index/data.mdb", 1, 1, ENOSPC);
	fixture_create(store, 2);
	shim_reset();
	last = find_end(fixture).last;
	flip(fixture, last + 20);
	struct outcome outcome = fixture_put(store, 3, NULL);
	assert_int_equal(outcome.result, STORE_FAILED);
	assert_int_equal(outcome.status, -1);
	store_close(store);
	assert_int_equal(fixture_logged(fixture, "nothing was changed"), 1);
	assert_false(fixture_exists_like(fixture, JOURNAL_NAME "."));
	flip(fixture, last + 20);
	fixture_reopen_and_expect(fixture, one_to_five, 2);
}

static void
plants_of_others_turned_to_blank_lines_fail_an_open_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *one = fixture_open(fixture, false);
	struct store *two = fixture_open(fixture, false);
	struct position at;
	char blank[1000];
	size_t len;

	fixture_create(one, 1);
	fixture_create(two, 2);
	at = find_end(fixture);
	len = (size_t)(at.end - at.last);
	assert_true(len <= sizeof(blank));
	memset(blank, '\n', sizeof(blank));
	fixture_write(fixture, JOURNAL_NAME, at.last, blank, len);
	struct outcome outcome = fixture_put(one, 3, NULL);
	assert_int_equal(outcome.result, STORE_FAILED);
	assert_int_equal(outcome.status, -1);
	assert_int_equal(fixture_logged(fixture, "the end is missing"), 1);
	store_close(one);
	store_close(two);
	expect_refused_untouched(fixture);
}

/* More than a long lived process checks from its beginning at each start. */
static void
damage_far_before_the_end_of_a_large_journal_does_not_delay_a_start(
    void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	const size_t len = ((size_t)1 << 20) - 100;
	char *name = malloc(len + 1);

	assert_non_null(name);
	memset(name, 'x', len);
	name[len] = '\0';
	fixture_create(store, 1);
	for (int64_t id = 2; id < 19; id++)
		assert_int_equal(
		    fixture_put(store, id, name).result, STORE_CREATED);
	free(name);
	store_close(store);
	flip(fixture, RECORD_HEADER_LEN + 10);
	store = fixture_open(fixture, true);
	assert_int_equal(fixture_put(store, 18, NULL).result, STORE_CONFLICT);
	/* It is found by who asks for the plant. */
	assert_int_equal(fixture_put(store, 1, NULL).result, STORE_FAILED);
	store_close(store);
	expect_refused_untouched(fixture);
}

static void
a_deleted_index_is_built_anew(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 5);
	fixture_remove_index(fixture);
	fixture_reopen_and_expect(fixture, one_to_five, 5);
}

/* So large that a start which enters it opens its index twice. */
static void
a_large_index_is_built_anew_or_the_start_fails(void **state)
{
	struct fixture *fixture = *state;
	static char name[100000];
	struct store *store = fixture_open(fixture, false);
	const int64_t n = 20;
	int status = EX_IOERR;
	unsigned nth;

	memset(name, 'x', sizeof(name) - 1);
	for (int64_t id = 1; id <= n; id++)
		assert_int_equal(
		    fixture_put(store, id, name).result, STORE_CREATED);
	store_close(store);
	for (nth = 1; status != EX_OK; nth++) {
		struct store_options options = { .dir = fixture->path };

		fixture_remove_index(fixture);
		shim_fail(SHIM_PREAD, "index/data.mdb", nth, 1, EIO);
		store = store_open(&options, &status);
		shim_reset();
		assert_int_equal(store != NULL, status == EX_OK);
		if (store == NULL)
			assert_int_equal(status, EX_IOERR);
	}
	/* A new file is read once when it is made, and again when reopened. */
	assert_true(nth > 3);
	for (int64_t id = 1; id <= n; id++)
		assert_int_equal(
		    fixture_put(store, id, name).result, STORE_SAME);
	store_close(store);
}

static void
an_index_of_junk_is_built_anew(void **state)
{
	struct fixture *fixture = *state;
	char junk[20000];

	memset(junk, 'x', sizeof(junk));
	fixture_make_store(fixture, false, 1, 5);
	fixture_write(fixture, "index/data.mdb", 0, junk, sizeof(junk));
	fixture_reopen_and_expect(fixture, one_to_five, 5);
}

static void
an_index_of_an_older_copy_of_the_store_catches_up(void **state)
{
	struct fixture *fixture = *state;
	size_t len;

	fixture_make_store(fixture, false, 1, 2);
	char *index = fixture_read(fixture, "index/data.mdb", &len);
	struct store *store = fixture_open(fixture, false);
	fixture_create(store, 3);
	fixture_create(store, 4);
	fixture_create(store, 5);
	store_close(store);
	fixture_remove_index(fixture);
	store_close(fixture_open(fixture, false));
	fixture_truncate(fixture, "index/data.mdb", 0);
	fixture_write(fixture, "index/data.mdb", 0, index, len);
	free(index);
	fixture_reopen_and_expect(fixture, one_to_five, 5);
	assert_int_equal(fixture_logged(fixture, "building it anew"), 0);
}

/* Let the index say that it has read the journal up to another place. */
static void
forge_covered(const struct fixture *fixture,
    void (*change)(struct position *covered, const struct position *start))
{
	struct journal journal;
	struct index *index;
	struct position covered;

	assert_int_equal(
	    journal_open(&journal, fixture->dir, false), JOURNAL_OPENED);
	index = index_open(fixture->dir, fixture->path, journal.uuid);
	assert_non_null(index);
	assert_int_equal(index_begin(index, &covered), 0);
	change(&covered, &journal.start);
	assert_int_equal(index_commit(index, &covered), 0);
	index_close(index, false);
	journal_close(&journal);
}

static void
other_crc(struct position *covered, const struct position *start)
{
	(void)start;
	covered->crc ^= 1;
}

static void
other_seq(struct position *covered, const struct position *start)
{
	(void)start;
	covered->seq++;
}

static void
within_a_line(struct position *covered, const struct position *start)
{
	(void)start;
	covered->last++;
}

static void
only_the_header(struct position *covered, const struct position *start)
{
	*covered = *start;
}

static void
another_header(struct position *covered, const struct position *start)
{
	*covered = *start;
	covered->crc ^= 1;
}

static void
no_line_behind_the_header(
    struct position *covered, const struct position *start)
{
	*covered = *start;
	covered->end++;
}

static void
an_index_that_ends_where_no_line_does_is_built_anew(void **state)
{
	static void (*const changes[])(struct position *,
	    const struct position *) = { other_crc, other_seq, within_a_line,
		another_header, no_line_behind_the_header };
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 5);
	for (unsigned i = 0; i < COUNT(changes); i++) {
		forge_covered(fixture, changes[i]);
		fixture_reopen_and_expect(fixture, one_to_five, 5);
		assert_int_equal(
		    fixture_logged(fixture, "does not belong"), i + 1);
	}
}

static void
an_index_that_has_read_the_header_only_reads_on(void **state)
{
	struct fixture *fixture = *state;

	store_close(fixture_open(fixture, false));
	forge_covered(fixture, only_the_header);
	fixture_reopen_and_expect(fixture, one_to_five, 0);
	fixture_make_store(fixture, false, 1, 5);
	fixture_reopen_and_expect(fixture, one_to_five, 5);
	assert_int_equal(fixture_logged(fixture, "does not belong"), 0);
}

static void
an_index_that_does_not_belong_and_cannot_be_replaced_refuses(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 5);
	forge_covered(fixture, other_crc);
	shim_fail(SHIM_FSYNC, "/index", 1, 1, EIO);
	fixture_refused(fixture, EX_IOERR);
	shim_reset();
	assert_int_equal(
	    fixture_logged(fixture, "index: cannot use it: Input"), 1);
	fixture_reopen_and_expect(fixture, one_to_five, 5);
}

/* The root of LMDB's list of free pages, in its two meta pages. */
static void
spoil_free_list(const struct fixture *fixture)
{
	static const uint64_t nowhere = UINT64_C(1) << 40;

	for (uint64_t page = 0; page < 2; page++)
		fixture_write(fixture, "index/data.mdb", page * 4096 + 80,
		    &nowhere, sizeof(nowhere));
}

static void
an_index_whose_free_pages_cannot_be_found_is_built_anew(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	fixture_create(store, 2);
	store_close(store);
	assert_true(fixture_exists(fixture, "index/clean"));
	spoil_free_list(fixture);
	store_close(fixture_open(fixture, true));
	assert_int_equal(fixture_logged(fixture, "building it anew"), 1);
	fixture_reopen_and_expect(fixture, one_to_five, 2);
}

static void
plants_of_a_process_that_died_before_its_sync_are_entered_after_one(
    void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 2);
	append_forged(fixture, 3, SIZE_MAX);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
	struct store *store = fixture_open(fixture, false);
	assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	assert_int_equal(fixture_put(store, 3, NULL).result, STORE_SAME);
	assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	store_close(store);
	fixture_expect(fixture, one_to_five, 3);
}

static void
plants_of_a_process_that_died_are_entered_by_the_next_commit(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	append_forged(fixture, 2, SIZE_MAX);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 0, 0);
	assert_int_equal(fixture_put(store, 2, NULL).result, STORE_SAME);
	assert_int_equal(shim_count(SHIM_FDATASYNC), 1);
	assert_int_equal(fixture_put(store, 2, "other").result, STORE_CONFLICT);
	fixture_create(store, 3);
	store_close(store);
	fixture_expect(fixture, one_to_five, 3);
}

static void
plants_of_the_dead_are_not_acknowledged_when_their_sync_fails(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	append_forged(fixture, 2, SIZE_MAX);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	struct outcome outcome = fixture_put(store, 2, NULL);
	assert_int_equal(outcome.result, STORE_FAILED);
	assert_int_equal(outcome.status, -1);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_five, 2);
	assert_true(fixture_exists_like(fixture, JOURNAL_NAME ".failed-"));
}

static void
a_plant_that_stands_twice_in_the_journal_is_refused(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 2);
	append_forged(fixture, 1, SIZE_MAX);
	expect_refused_untouched(fixture);
	fixture_remove_index(fixture);
	expect_refused_untouched(fixture);
	assert_int_equal(fixture_logged(fixture, "stored twice"), 2);
}

static void
mark(const struct fixture *fixture, const char *text)
{
	fixture_write(fixture, "lock", 0, text, strlen(text));
}

/* What follows a mark that is not good. */
static void
expect_renewed(const struct fixture *fixture)
{
	size_t len;

	fixture_reopen_and_expect(fixture, one_to_five, 3);
	assert_true(fixture_exists_like(fixture, JOURNAL_NAME ".failed-"));
	assert_int_equal(fixture_logged(fixture, "the readable records"), 1);
	char *lock = fixture_read(fixture, "lock", &len);
	assert_memory_equal(lock, "ok      ", 8);
	free(lock);
	/* Once is enough. */
	fixture_reopen_and_expect(fixture, one_to_five, 3);
	assert_int_equal(fixture_logged(fixture, "the readable records"), 1);
}

static void
a_failed_store_is_copied_to_a_fresh_file(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	mark(fixture, "failed  ");
	expect_renewed(fixture);
}

static void
a_store_whose_mark_is_unreadable_is_copied_to_a_fresh_file(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	mark(fixture, "????????");
	expect_renewed(fixture);
}

static void
a_store_whose_mark_is_cut_short_is_copied_to_a_fresh_file(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	fixture_truncate(fixture, "lock", 20);
	expect_renewed(fixture);
}

static void
a_store_without_a_lock_file_is_taken_as_it_is(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	fixture_remove(fixture, "lock");
	fixture_reopen_and_expect(fixture, one_to_five, 3);
	assert_false(fixture_exists_like(fixture, JOURNAL_NAME ".failed-"));
}

static void
a_failed_store_gets_a_fresh_index_too(void **state)
{
	struct fixture *fixture = *state;
	struct index *index;
	struct journal journal;
	struct position covered;
	uint64_t found;

	/* An index that has lost the plant 3 and does not know it. */
	fixture_make_store(fixture, false, 1, 3);
	assert_int_equal(
	    journal_open(&journal, fixture->dir, false), JOURNAL_OPENED);
	index = index_open(fixture->dir, fixture->path, journal.uuid);
	assert_int_equal(index_begin(index, &covered), 0);
	index_close(index, false);
	index_discard(fixture->dir);
	index = index_open(fixture->dir, fixture->path, journal.uuid);
	struct position none;
	assert_int_equal(index_begin(index, &none), 0);
	assert_int_equal(index_put(index, 1, 82, &found), INDEX_NEW);
	assert_int_equal(index_commit(index, &covered), 0);
	index_close(index, false);
	journal_close(&journal);
	mark(fixture, "failed  ");
	fixture_reopen_and_expect(fixture, one_to_five, 3);
}

static void
a_failed_store_that_lost_what_its_index_knows_is_refused(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);
	uint64_t end;

	fixture_create(store, 1);
	end = find_end(fixture).end;
	fixture_create(store, 2);
	store_close(store);
	fixture_truncate(fixture, JOURNAL_NAME, end);
	mark(fixture, "failed  ");
	expect_refused_untouched(fixture);
	expect_refused_untouched(fixture);
}

static void
a_failed_store_leaves_its_torn_end_in_the_old_file(void **state)
{
	struct fixture *fixture = *state;
	char name[64];
	uint64_t end;

	fixture_make_store(fixture, false, 1, 3);
	end = find_end(fixture).end;
	append_forged(fixture, 4, 30);
	mark(fixture, "failed  ");
	expect_renewed(fixture);
	snprintf(name, sizeof(name), JOURNAL_NAME ".failed-%" PRIu64 ".1", end);
	assert_int_equal(fixture_size(fixture, name), end + 30);
}

static void
a_failed_store_that_is_damaged_is_refused(void **state)
{
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	flip(fixture, RECORD_HEADER_LEN + 10);
	mark(fixture, "failed  ");
	expect_refused_untouched(fixture);
}

static void
a_failed_store_that_cannot_be_copied_stays_failed_until_it_can(void **state)
{
	static const struct {
		enum shim_call call;
		int error, status;
	} faults[] = { { SHIM_PWRITE, ENOSPC, EX_TEMPFAIL },
		{ SHIM_FSYNC, EIO, EX_IOERR } };
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	mark(fixture, "failed  ");
	for (size_t i = 0; i < COUNT(faults); i++) {
		shim_fail(
		    faults[i].call, JOURNAL_NAME ".new", 1, 1, faults[i].error);
		fixture_refused(fixture, faults[i].status);
		shim_reset();
	}
	expect_renewed(fixture);
}

static void
leave_torn(const struct fixture *fixture)
{
	append_forged(fixture, 4, 30);
	fixture_remove_index(fixture);
}

static void
leave_failed(const struct fixture *fixture)
{
	mark(fixture, "failed  ");
}

static void
leave_index_of_another(const struct fixture *fixture)
{
	forge_covered(fixture, other_crc);
}

static void
leave_well(const struct fixture *fixture)
{
	(void)fixture;
}

/* What an opening may find; in each of them there are the plants 1 to 3. */
static void (*const leavings[])(const struct fixture *) = { leave_torn,
	leave_failed, leave_index_of_another, leave_well };

/*
 * Fail each system call of an opening that has a torn end to cut, an index to
 * build and a dead process's plant to sync, or a store to renew, one after
 * another: whatever the failure, the plants are there in the end.
 */
static void
a_recovery_that_fails_anywhere_loses_nothing(void **state)
{
	static const int errors[] = { EIO, ENOSPC };
	struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 2);
	append_forged(fixture, 3, SIZE_MAX);
	for (size_t i = 0; i < COUNT(leavings) * COUNT(errors); i++)
		for (int call = 0; call < SHIM_CALLS; call++)
			for (unsigned nth = 1;; nth++) {
				struct store_options options = {
					.dir = fixture->path
				};
				int status;

				leavings[i / COUNT(errors)](fixture);
				shim_fail((enum shim_call)call, NULL, nth, 1,
				    errors[i % COUNT(errors)]);
				struct store *store =
				    store_open(&options, &status);
				unsigned count =
				    shim_count((enum shim_call)call);
				shim_reset();
				store_close(store);
				fixture_reopen_and_expect(
				    fixture, one_to_five, 3);
				if (count < nth)
					break;
			}
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
			struct store_options options = { .dir = fixture->path };
			int status = -1;

			leavings[i](fixture);
			alloc_fail(nth, 1);
			struct store *store = store_open(&options, &status);
			failed = alloc_reset();
			assert_int_equal(
			    status, store == NULL ? EX_TEMPFAIL : EX_OK);
			assert_true(failed || store != NULL);
			store_close(store);
			fixture_reopen_and_expect(fixture, one_to_five, 3);
		}
	}
}

static void
a_commit_that_lacks_memory_anywhere_passes_when_there_is_some(void **state)
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

		append_forged(fixture, id, SIZE_MAX);
		alloc_fail(nth, 1);
		int status = store_commit(store, &item, 1);
		failed = alloc_reset();
		assert_int_equal(status, 0);
		if (failed && item.result != STORE_CREATED)
			assert_int_equal(item.result, STORE_BUSY);
		assert_true(failed || item.result == STORE_CREATED);
		plant_done(&plant);
		enum store_result result =
		    fixture_put(store, id + 1, NULL).result;
		assert_int_equal(result,
		    item.result == STORE_CREATED ? STORE_SAME : STORE_CREATED);
		assert_int_equal(
		    fixture_put(store, id, NULL).result, STORE_SAME);
		store_close(store);
	}
	assert_true(id > 5);
}

static void
whole_records_before_a_torn_one_are_entered_by_the_next_commit(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	append_forged(fixture, 2, SIZE_MAX);
	append_forged(fixture, 3, 40);
	assert_int_equal(fixture_put(store, 2, NULL).result, STORE_SAME);
	assert_true(fixture_exists_like(fixture, JOURNAL_NAME ".torn-"));
	fixture_create(store, 3);
	store_close(store);
	fixture_expect(fixture, one_to_five, 3);
}

static void
a_stored_id_appended_by_another_fails_the_store_and_is_refused(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	fixture_create(store, 2);
	append_forged(fixture, 1, SIZE_MAX);
	struct outcome outcome = fixture_put(store, 3, NULL);
	assert_int_equal(outcome.result, STORE_FAILED);
	assert_int_equal(outcome.status, -1);
	store_close(store);
	expect_refused_untouched(fixture);
	fixture_remove_index(fixture);
	expect_refused_untouched(fixture);
	assert_true(fixture_logged(fixture, "stored twice") >= 3);
}

static void
an_index_write_that_fails_once_is_tried_again(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	append_forged(fixture, 2, SIZE_MAX);
	shim_fail(SHIM_WRITEV, "index/data.mdb", 1, 1, EIO);
	assert_int_equal(fixture_put(store, 2, NULL).result, STORE_SAME);
	assert_int_equal(shim_count(SHIM_WRITEV), 2);
	shim_reset();
	fixture_create(store, 3);
	store_close(store);
	fixture_expect(fixture, one_to_five, 3);
}

/* LMDB calls a write that falls short EIO; more is asked for to hear why. */
static void
an_index_write_that_finds_no_room_passes_by_itself(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	for (int i = 0; i < 2; i++) {
		int64_t id = 2 * i + 1;

		fixture_create(store, id);
		append_forged(fixture, id + 1, SIZE_MAX);
		shim_fail(SHIM_WRITEV, "index/data.mdb", 1, 1, EIO);
		if (i == 0)
			shim_shorten(SHIM_PWRITE, "index/data.mdb", 1, 100);
		else
			shim_fail(SHIM_PWRITE, "index/data.mdb", 1, 1, ENOSPC);
		assert_int_equal(
		    fixture_put(store, id + 1, NULL).result, STORE_FULL);
		shim_reset();
		assert_int_equal(
		    fixture_put(store, id + 1, NULL).result, STORE_SAME);
	}
	store_close(store);
	fixture_expect(fixture, one_to_five, 4);
}

static void
an_index_that_cannot_be_written_at_all_fails_the_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	append_forged(fixture, 2, SIZE_MAX);
	shim_fail(SHIM_PWRITE, "index/data.mdb", 1, 99, EIO);
	struct outcome outcome = fixture_put(store, 2, NULL);
	shim_reset();
	assert_int_equal(outcome.result, STORE_FAILED);
	assert_int_equal(outcome.status, -1);
	/* That says nothing against it. */
	assert_true(fixture_exists(fixture, "index/data.mdb"));
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_five, 2);
}

static void
an_older_index_put_in_the_place_of_ours_loses_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct store *one = fixture_open(fixture, false), *two;
	size_t len;

	fixture_create(one, 1);
	char *index = fixture_read(fixture, "index/data.mdb", &len);
	fixture_create(one, 2);
	fixture_create(one, 3);
	/* Another file: `one` goes on with its own. */
	fixture_remove(fixture, "index/data.mdb");
	fixture_write(fixture, "index/data.mdb", 0, index, len);
	two = fixture_open(fixture, false);
	assert_int_equal(fixture_put(two, 3, "other").result, STORE_CONFLICT);
	fixture_create(one, 4);
	assert_int_equal(fixture_put(two, 4, NULL).result, STORE_SAME);
	fixture_create(two, 5);
	assert_int_equal(fixture_put(one, 5, NULL).result, STORE_SAME);
	/* The same file, while it is in use. */
	fixture_write(fixture, "index/data.mdb", 0, index, len);
	free(index);
	assert_int_equal(fixture_put(two, 2, NULL).result, STORE_SAME);
	assert_int_equal(fixture_put(two, 5, NULL).result, STORE_SAME);
	store_close(one);
	store_close(two);
	fixture_reopen_and_expect(fixture, one_to_five, 5);
}

static void
a_damaged_index_is_removed_and_built_anew_by_the_next_start(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	for (int64_t id = 1; id <= 3; id++)
		fixture_create(store, id);
	fixture_spoil_key(fixture, 3);
	struct outcome outcome = fixture_put(store, 3, NULL);
	assert_int_equal(outcome.result, STORE_FAILED);
	assert_int_equal(outcome.status, -1);
	assert_false(fixture_exists(fixture, "index/data.mdb"));
	assert_int_equal(fixture_logged(fixture, "index: damaged"), 1);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_five, 3);
}

/* Enter a plant that the journal does not have at that place. */
static void
forge_entry(const struct fixture *fixture, int64_t id, uint64_t offset)
{
	struct journal journal;
	struct position covered;
	uint64_t found;

	assert_int_equal(
	    journal_open(&journal, fixture->dir, false), JOURNAL_OPENED);
	struct index *index =
	    index_open(fixture->dir, fixture->path, journal.uuid);
	assert_non_null(index);
	assert_int_equal(index_begin(index, &covered), 0);
	assert_int_equal(index_put(index, id, offset, &found), INDEX_NEW);
	assert_int_equal(index_commit(index, &covered), 0);
	index_close(index, false);
	journal_close(&journal);
}

static void
expect_condemned(const struct fixture *fixture, struct outcome outcome)
{
	assert_int_equal(outcome.result, STORE_FAILED);
	assert_int_equal(outcome.status, -1);
	assert_false(fixture_exists(fixture, "index/data.mdb"));
}

/* The record that the index names is another plant's; or the very one. */
static void
an_index_that_has_a_plant_before_it_was_read_is_removed(void **state)
{
	struct fixture *fixture = *state;

	for (int64_t i = 0; i < 2; i++) {
		int64_t id = 2 + 2 * i;
		struct store *store = fixture_open(fixture, false);

		fixture_create(store, id - 1);
		forge_entry(fixture, id,
		    i == 0 ? RECORD_HEADER_LEN : find_end(fixture).end);
		append_forged(fixture, id, SIZE_MAX);
		expect_condemned(fixture, fixture_put(store, 9, NULL));
		store_close(store);
		assert_int_equal(
		    fixture_logged(fixture, "before it was read from"),
		    (unsigned)i + 1);
		fixture_reopen_and_expect(fixture, one_to_five, (size_t)id);
	}
}

static void
an_index_that_names_a_place_within_the_batch_is_removed(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);
	struct plant plants[] = { fixture_plant(2, NULL),
		fixture_plant(7, NULL) };
	struct store_item items[] = { { .plant = &plants[0], .by = "tester" },
		{ .plant = &plants[1], .by = "tester" } };
	struct outcome outcome;

	fixture_create(store, 1);
	/* Within the line of plant 2, which is not written yet. */
	forge_entry(fixture, 7, find_end(fixture).end + 3);
	outcome.status = store_commit(store, items, COUNT(items));
	outcome.result = items[1].result;
	plant_done(&plants[0]);
	plant_done(&plants[1]);
	expect_condemned(fixture, outcome);
	assert_int_equal(items[0].result, STORE_FAILED);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_five, 1);
}

/* A power cut could bring back what was told as refused. */
static void
a_refused_write_that_is_not_durably_taken_back_fails_the_store(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	shim_fail(SHIM_PWRITEV, JOURNAL_NAME, 1, 2, ENOSPC);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	struct outcome outcome = fixture_put(store, 2, NULL);
	shim_reset();
	assert_int_equal(outcome.result, STORE_FAILED);
	assert_int_equal(outcome.status, -1);
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_five, 1);
	assert_true(fixture_exists_like(fixture, JOURNAL_NAME ".failed-"));
}

static void
an_index_that_cannot_be_cut_again_is_tried_again(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, false);

	fixture_create(store, 1);
	append_forged(fixture, 2, SIZE_MAX);
	shim_fail(SHIM_WRITEV, "index/data.mdb", 1, 1, EIO);
	shim_fail(SHIM_FTRUNCATE, "index/data.mdb", 1, 1, EIO);
	assert_int_equal(fixture_put(store, 2, NULL).result, STORE_SAME);
	assert_int_equal(shim_count(SHIM_FTRUNCATE), 1);
	shim_reset();
	store_close(store);
	fixture_reopen_and_expect(fixture, one_to_five, 2);
}

#define MANY 17000

/* It is asked while they are read, and while they are entered. */
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
		struct store_options options = { .dir = fixture->path,
			.watch = &watch };
		int status = -1;

		fixture_remove_index(fixture);
		store = store_open(&options, &status);
		assert_int_equal(status, steps.n == nth ? EX_TEMPFAIL : EX_OK);
	} while (store == NULL);
	/* The journal's mebibytes, and once among the plants. */
	assert_int_equal(
	    nth - 1, fixture_size(fixture, JOURNAL_NAME) / (1 << 20) + 1);
	assert_int_equal(
	    fixture_logged(fixture, "next start begins anew"), nth - 1);
	fixture_commit(store, ids, MANY, STORE_SAME);
	store_close(store);
}

/* More than are sorted at once, in no order. */
#define VERY_MANY (GATHER_CHUNK + 1000)

static void
leave_very_many(const struct fixture *fixture)
{
	const size_t size = (size_t)4 << 20;
	char *lines = malloc(size);
	size_t len = 0;

	assert_non_null(lines);
	store_close(fixture_open(fixture, false));
	fixture_remove_index(fixture);
	struct position at = find_end(fixture);
	uint32_t seed = find_seed(fixture);
	uint64_t begin = at.end;
	for (uint64_t i = 0; i < VERY_MANY; i++) {
		/* An odd factor reaches each number once. */
		int64_t id = (int64_t)(i * UINT64_C(0x9e3779b97f4a7c15));

		len += forge_next(&at, seed, id, lines + len);
		if (size - len < 512 || i == VERY_MANY - 1) {
			fixture_write(fixture, JOURNAL_NAME, begin, lines, len);
			begin = at.end;
			len = 0;
		}
	}
	free(lines);
}

/* Work for fixture_in_child: die when some of the index is on the disk. */
static int
die_building(void *argument)
{
	const struct fixture *fixture = argument;
	struct store_options options = { .dir = fixture->path };
	int status;

	/* It takes 62 writes of 256 KiB. */
	shim_exit(SHIM_WRITEV, "index/data.mdb", 40);
	return store_open(&options, &status) == NULL ? 2 : 1;
}

static void
a_large_index_whose_building_was_interrupted_is_built_anew(void **state)
{
	struct fixture *fixture = *state;
	struct verify_report report;

	leave_very_many(fixture);
	assert_int_equal(fixture_in_child(die_building, fixture), 0);
	assert_true(fixture_size(fixture, "index/data.mdb") > 1 << 20);
	store_close(fixture_open(fixture, false));
	assert_int_equal(fixture_logged(fixture,
			     "its building was interrupted; building it anew"),
	    1);
	assert_int_equal(verify_store(fixture->path, NULL, &report), 0);
	assert_int_equal(report.index, VERIFY_INDEX_EQUAL);
	assert_int_equal(report.journal.plants, VERY_MANY);
	store_close(fixture_open(fixture, false));
	assert_int_equal(fixture_logged(fixture, "building it anew"), 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_torn_end_is_kept_beside_and_cut_off),
		TEST(a_torn_end_is_cut_off_also_without_an_index),
		TEST(
		    a_torn_end_left_while_the_store_is_open_is_cut_off_by_the_next_commit),
		TEST(a_torn_end_of_zeros_is_cut_off),
		TEST(junk_behind_the_room_is_cut_off),
		TEST(a_torn_end_is_not_cut_when_it_cannot_be_kept),
		TEST(
		    a_flipped_bit_below_the_watermark_refuses_and_changes_nothing),
		TEST(
		    damage_below_what_the_index_knows_is_refused_by_a_long_lived_process),
		TEST(a_tail_longer_than_a_batch_refuses_and_changes_nothing),
		TEST(a_journal_cut_below_what_the_index_knows_is_refused),
		TEST(durable_plants_turned_to_blank_lines_are_refused),
		TEST(damage_that_only_the_index_knows_of_is_refused),
		TEST(
		    damage_within_the_last_batch_is_refused_for_the_index_knows_its_end),
		TEST(
		    damage_to_what_was_synced_is_refused_though_the_index_lacks_it),
		TEST(plants_of_others_turned_to_blank_lines_fail_an_open_store),
		TEST(
		    damage_far_before_the_end_of_a_large_journal_does_not_delay_a_start),
		TEST(a_deleted_index_is_built_anew),
		TEST(a_large_index_is_built_anew_or_the_start_fails),
		TEST(an_index_of_junk_is_built_anew),
		TEST(an_index_of_an_older_copy_of_the_store_catches_up),
		TEST(an_index_that_ends_where_no_line_does_is_built_anew),
		TEST(an_index_that_has_read_the_header_only_reads_on),
		TEST(
		    an_index_that_does_not_belong_and_cannot_be_replaced_refuses),
		TEST(an_index_whose_free_pages_cannot_be_found_is_built_anew),
		TEST(
		    plants_of_a_process_that_died_before_its_sync_are_entered_after_one),
		TEST(
		    plants_of_a_process_that_died_are_entered_by_the_next_commit),
		TEST(
		    plants_of_the_dead_are_not_acknowledged_when_their_sync_fails),
		TEST(a_plant_that_stands_twice_in_the_journal_is_refused),
		TEST(a_failed_store_is_copied_to_a_fresh_file),
		TEST(
		    a_store_whose_mark_is_unreadable_is_copied_to_a_fresh_file),
		TEST(a_store_whose_mark_is_cut_short_is_copied_to_a_fresh_file),
		TEST(a_store_without_a_lock_file_is_taken_as_it_is),
		TEST(a_failed_store_gets_a_fresh_index_too),
		TEST(a_failed_store_that_lost_what_its_index_knows_is_refused),
		TEST(a_failed_store_leaves_its_torn_end_in_the_old_file),
		TEST(a_failed_store_that_is_damaged_is_refused),
		TEST(
		    a_failed_store_that_cannot_be_copied_stays_failed_until_it_can),
		TEST(a_recovery_that_fails_anywhere_loses_nothing),
		TEST(an_opening_that_lacks_memory_anywhere_loses_nothing),
		TEST(
		    a_commit_that_lacks_memory_anywhere_passes_when_there_is_some),
		TEST(
		    whole_records_before_a_torn_one_are_entered_by_the_next_commit),
		TEST(
		    a_stored_id_appended_by_another_fails_the_store_and_is_refused),
		TEST(an_index_write_that_fails_once_is_tried_again),
		TEST(an_index_write_that_finds_no_room_passes_by_itself),
		TEST(an_index_that_cannot_be_written_at_all_fails_the_store),
		TEST(an_older_index_put_in_the_place_of_ours_loses_nothing),
		TEST(
		    a_damaged_index_is_removed_and_built_anew_by_the_next_start),
		TEST(an_index_that_has_a_plant_before_it_was_read_is_removed),
		TEST(an_index_that_names_a_place_within_the_batch_is_removed),
		TEST(
		    a_refused_write_that_is_not_durably_taken_back_fails_the_store),
		TEST(an_index_that_cannot_be_cut_again_is_tried_again),
		TEST(the_building_of_an_index_can_be_stopped_anywhere),
		TEST(
		    a_large_index_whose_building_was_interrupted_is_built_anew),
	};

	return cmocka_run_group_tests_name("recovery", tests, NULL, NULL);
}
