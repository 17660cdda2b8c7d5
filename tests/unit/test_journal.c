/* test_journal: making it, its lock, appending, and one record's reading. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault_shim.h"
#include "ground/clock.h"
#include "pure/timestamp.h"

#define HEADER_END RECORD_HEADER_LEN

static struct journal
make_journal(const struct fixture *fixture)
{
	unlinkat(fixture->dir, JOURNAL_NAME, 0);
	assert_int_equal(fixture_make_journal(fixture), FAULT_NONE);
	return fixture_journal(fixture, true);
}

static enum fault
try_append(struct journal *journal, uint64_t end, const char *bytes, size_t len)
{
	char *buf = memory(len + JOURNAL_ROOM_BYTES);

	memcpy(buf, bytes, len);
	return journal_append(journal, end, buf, len);
}

static void
append(struct journal *journal, const char *bytes, size_t len)
{
	assert_int_equal(
	    try_append(journal, HEADER_END, bytes, len), FAULT_NONE);
}

/* The file is the journal's header, and then this. */
static void
expect_text(const struct fixture *fixture, const char *text)
{
	struct contents journal = fixture_read(fixture, JOURNAL_NAME);

	assert_true(journal.len >= HEADER_END);
	assert_string_equal(journal.at + HEADER_END, text);
}

STORE_TEST(new_journal_is_a_header_that_only_its_owner_may_read)
{
	struct journal one, two;
	struct stat st;

	/* What an interrupted making left is no obstacle. */
	fixture_write(fixture, JOURNAL_NEW_NAME, 0, "half", 4);
	one = make_journal(fixture);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), HEADER_END);
	assert_int_equal(one.start.end, HEADER_END);
	assert_int_equal(one.start.seq, 0);
	assert_int_equal(one.size, HEADER_END);
	assert_false(fixture_exists(fixture, JOURNAL_NEW_NAME));
	assert_int_equal(fstatat(fixture->dir, JOURNAL_NAME, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	/* Another one is of another store. */
	two = make_journal(fixture);
	assert_memory_not_equal(one.uuid, two.uuid, RECORD_UUID_LEN);
	journal_close(&one);
	journal_close(&two);
}

STORE_TEST(new_journal_replaces_none)
{
	fixture_truncate(fixture, JOURNAL_NAME, 0);
	fixture_write(fixture, JOURNAL_NAME, 0, "mine", 4);
	/* The second time as on NFS, which knows links alone. */
	for (int i = 0; i < 2; i++) {
		assert_int_not_equal(fixture_make_journal(fixture), FAULT_NONE);
		expect_logged(fixture, "File exists", (size_t)i + 1);
		assert_string_equal(
		    fixture_read(fixture, JOURNAL_NAME).at, "mine");
		assert_false(fixture_exists(fixture, JOURNAL_NEW_NAME));
		shim_fail(SHIM_RENAMEAT2, NULL, 1, 2, EINVAL);
	}
}

STORE_TEST(one_writes_or_many_read)
{
	struct journal writer = make_journal(fixture);
	struct journal one = fixture_journal(fixture, false);
	struct journal two = fixture_journal(fixture, false);

	assert_int_equal(journal_lock(&one, JOURNAL_SHARED, 0), FAULT_NONE);
	assert_int_equal(journal_lock(&two, JOURNAL_SHARED, 0), FAULT_NONE);
	journal_unlock(&two);
	assert_int_equal(
	    journal_lock(&writer, JOURNAL_EXCLUSIVE, 0), FAULT_BUSY);
	journal_unlock(&one);
	assert_int_equal(
	    journal_lock(&writer, JOURNAL_EXCLUSIVE, 0), FAULT_NONE);
	assert_int_equal(journal_lock(&one, JOURNAL_SHARED, 0), FAULT_BUSY);
	/* Closing another descriptor of the file keeps it, unlike POSIX's. */
	journal_close(&two);
	assert_int_equal(journal_lock(&one, JOURNAL_SHARED, 0), FAULT_BUSY);
	journal_close(&writer);
	assert_int_equal(journal_lock(&one, JOURNAL_SHARED, 0), FAULT_NONE);
	journal_close(&one);
}

STORE_TEST(process_that_waits_gets_the_lock_of_a_killed_one)
{
	struct journal journal = make_journal(fixture);
	int ready[2];
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t holder = fork();
	assert_true(holder >= 0);
	if (holder == 0) {
		struct journal own = fixture_journal(fixture, true);

		if (journal_lock(&own, JOURNAL_EXCLUSIVE, 0) != FAULT_NONE ||
		    write(ready[1], "", 1) != 1)
			_exit(1);
		usleep(20000);
		raise(SIGKILL);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	assert_int_equal(journal_lock(&journal, JOURNAL_EXCLUSIVE,
			     clock_ms(CLOCK_MONOTONIC) + 10000),
	    FAULT_NONE);
	assert_int_equal(child_wait(holder), 128 + SIGKILL);
	journal_close(&journal);
}

STORE_TEST(lock_that_fails_is_no_wait)
{
	struct journal journal = make_journal(fixture);

	shim_fail(SHIM_FCNTL, NULL, 1, 1, ENOLCK);
	assert_int_equal(
	    journal_lock(&journal, JOURNAL_EXCLUSIVE, INT64_MAX), FAULT_FAILED);
	expect_logged(fixture, "No locks available", 1);
	/* A signal does not end it. */
	shim_fail(SHIM_FCNTL, NULL, 1, 3, EINTR);
	assert_int_equal(
	    journal_lock(&journal, JOURNAL_EXCLUSIVE, INT64_MAX), FAULT_NONE);
	journal_close(&journal);
}

STORE_TEST(append_that_falls_short_is_completed)
{
	for (size_t len = 0; len <= 7; len++) {
		struct journal journal = make_journal(fixture);

		/* Or there is no space for room, or signals interrupt it. */
		if (len < 6)
			shim_shorten(SHIM_PWRITE, JOURNAL_NAME, 1, len);
		else if (len == 6)
			shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 1, ENOSPC);
		else
			shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 3, EINTR);
		/* Also where the last byte alone is missing. */
		if (len % 2 == 0 || len == 5)
			journal.room = JOURNAL_ROOM_BYTES;
		append(&journal, "12345\n", 6);
		expect_text(fixture, "12345\n");
		assert_int_equal(journal.size, HEADER_END + 6);
		journal_close(&journal);
		fixture_remove(fixture, JOURNAL_NAME);
	}
}

STORE_TEST(append_on_a_full_disk_is_cut_off_again)
{
	for (size_t room = 0; room < 2; room++) {
		struct journal journal = make_journal(fixture);

		journal.room = room * JOURNAL_ROOM_BYTES;
		/* A part of it was written.  Where the cut fails, it stays. */
		for (int cut = 1; cut >= 0; cut--) {
			fixture_append(fixture, JOURNAL_NAME, "123", 3);
			shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 2, ENOSPC);
			if (!cut)
				shim_fail(
				    SHIM_FTRUNCATE, JOURNAL_NAME, 1, 1, EIO);
			assert_int_equal(
			    try_append(&journal, HEADER_END, "12345\n", 6),
			    cut ? FAULT_FULL : FAULT_FAILED);
			expect_text(fixture, cut ? "" : "123");
			assert_int_equal(journal.size, HEADER_END);
			shim_reset();
		}
		append(&journal, "12345\n", 6);
		journal_close(&journal);
		fixture_remove(fixture, JOURNAL_NAME);
	}
}

/* An inode's number is that of another file on another device. */
STORE_TEST(journal_is_known_by_its_inode_and_its_device)
{
	struct journal journal = make_journal(fixture);

	assert_null(journal_check(&journal, HEADER_END));
	journal.device++;
	assert_string_equal(
	    journal_check(&journal, HEADER_END), "was replaced");
	journal.device--;
	journal.inode++;
	assert_string_equal(
	    journal_check(&journal, HEADER_END), "was replaced");
	journal_close(&journal);
}

/* A line of a plant whose name has `len` letters, in `buf`. */
static size_t
make_line(const struct journal *journal, size_t len, char *buf)
{
	struct plant plant = fixture_plant(7, fixture_long_name(len));
	char now[TIMESTAMP_LEN];

	timestamp_print(0, now);
	struct record record = {
		.seq = 1,
		.prev = journal->start.crc,
		.at = now,
		.by = "tester",
		.by_len = 6,
		.plant = plant.text,
		.plant_len = plant.len,
	};
	size_t line = record_encode(&record, journal->seed, buf);
	plant_done(&plant);
	return line;
}

STORE_TEST(record_of_any_length_is_read_at_its_offset)
{
	static const size_t lens[] = { 1, 4, 3990, 4000, 8000, 100000,
		((size_t)1 << 20) - 18 };
	struct journal journal = make_journal(fixture);
	char *line = memory(RECORD_LINE_MAX);
	struct record record;

	for (size_t i = 0; i < COUNT(lens); i++) {
		size_t len = make_line(&journal, lens[i], line);

		append(&journal, line, len);
		assert_int_equal(
		    journal_read(&journal, HEADER_END, &record), FAULT_NONE);
		assert_int_equal(record.id, 7);
		assert_int_equal(record.plant_len, lens[i] + 18);
	}
	shim_fail(SHIM_PREAD, JOURNAL_NAME, 1, 1, EIO);
	assert_int_equal(
	    journal_read(&journal, HEADER_END, &record), FAULT_FAILED);
	journal_close(&journal);
}

STORE_TEST(no_record_is_read_where_none_begins)
{
	struct journal journal = make_journal(fixture);
	char line[512], *junk = memory(RECORD_LINE_MAX + 100);
	size_t len = make_line(&journal, 4, line);
	struct record record;

	append(&journal, line, len);
	for (uint64_t at = 0; at < HEADER_END + len + 100; at++)
		assert_int_equal(journal_read(&journal, at, &record),
		    at == HEADER_END ? FAULT_NONE : FAULT_DAMAGED);
	/* Nor is a line longer than any record one. */
	memset(junk, 'x', RECORD_LINE_MAX + 100);
	append(&journal, junk, RECORD_LINE_MAX + 100);
	assert_int_equal(
	    journal_read(&journal, HEADER_END, &record), FAULT_DAMAGED);
	journal_close(&journal);
}

STORE_TEST(journal_has_only_its_own_positions)
{
	struct journal journal = make_journal(fixture);
	char line[512];
	size_t len = make_line(&journal, 4, line);
	struct record record;

	append(&journal, line, len);
	assert_int_equal(
	    journal_read(&journal, HEADER_END, &record), FAULT_NONE);
	const struct position start = journal.start;
	const struct position end = { HEADER_END + len, HEADER_END, 1,
		record.crc, false };
	struct position others[5] = { start, start, end, end, end };
	others[0].end++;
	others[1].crc ^= 1;
	others[2].last++;
	others[3].seq++;
	others[4].crc ^= 1;
	assert_int_equal(journal_match(&journal, &start), FAULT_NONE);
	assert_int_equal(journal_match(&journal, &end), FAULT_NONE);
	for (size_t i = 0; i < COUNT(others); i++)
		if (journal_match(&journal, &others[i]) != FAULT_DAMAGED)
			fail_msg("it has the position %zu", i);
	journal_close(&journal);
}

/* One kind does not hide the next, as a lack of memory did a full disk. */
STORE_TEST(a_fault_that_passes_is_logged_once_of_each_kind)
{
	static const struct {
		int error;
		size_t logged;
	} rows[] = { { ENOMEM, 1 }, { ENOSPC, 1 }, { EIO, 3 } };
	struct journal journal = make_journal(fixture);

	for (size_t i = 0; i < COUNT(rows); i++) {
		const enum fault fault = fault_of(rows[i].error);

		for (int k = 0; k < 3; k++)
			assert_int_equal(
			    journal_unwritten(&journal, "file", rows[i].error),
			    fault);
		expect_logged(fixture, strerror(rows[i].error), rows[i].logged);
	}
	assert_int_equal(journal.passing, FAULT_FULL);
	journal_close(&journal);
}
