/* test_reader: the plants of a journal in order, while it is in use. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "fault_shim.h"
#include "lock.h"
#include "reader_state.h"
#include "store/reader.h"

/* Two of these are more than the watch waits for. */
#define LONG_NAME 600000

static struct reader *
open_reader(const struct fixture *fixture, const struct watch *watch)
{
	int status = -1;
	struct reader *reader = reader_open(fixture->path, watch, &status);

	if (reader == NULL)
		fail_msg("reader_open gave the status %d", status);
	return reader;
}

static void
expect_refused(const char *path, int expected)
{
	int status = -1;

	assert_null(reader_open(path, NULL, &status));
	assert_int_equal(status, expected);
}

/* The next plants have these ids, and then there are no more. */
static void
expect_rest(struct reader *reader, int64_t first, int64_t last)
{
	struct record record;

	for (int64_t id = first; id <= last; id++) {
		assert_int_equal(reader_next(reader, &record), READER_PLANT);
		assert_int_equal(record.id, id);
	}
	assert_int_equal(reader_next(reader, &record), READER_END);
	assert_int_equal(reader_next(reader, &record), READER_END);
	assert_int_equal(reader_status(reader), EX_OK);
}

static void
plants_come_in_their_order_with_their_text_and_name(void **state)
{
	const struct fixture *fixture = *state;
	struct record record;

	fixture_make_store(fixture, false, 1, 3);
	struct reader *reader = open_reader(fixture, NULL);
	assert_int_equal(reader_next(reader, &record), READER_PLANT);
	struct plant plant = fixture_plant(1, NULL);
	assert_int_equal(record.plant_len, plant.len);
	assert_memory_equal(record.plant, plant.text, plant.len);
	assert_int_equal(record.by_len, strlen("tester"));
	assert_memory_equal(record.by, "tester", record.by_len);
	plant_done(&plant);
	expect_rest(reader, 2, 3);
	reader_close(reader);
}

static void
report_tells_the_last_line_and_the_whole(void **state)
{
	const struct fixture *fixture = *state;
	struct reader_report report;

	fixture_make_store(fixture, false, 1, 3);
	struct reader *reader = open_reader(fixture, NULL);
	expect_rest(reader, 1, 3);
	reader_report(reader, &report);
	assert_int_equal(report.plants, 3);
	/* The closing line, which says that what is before it is durable. */
	assert_int_equal(report.seq, 4);
	assert_int_equal(report.watermark, report.offset);
	assert_int_equal(report.bytes, fixture_size(fixture, JOURNAL_NAME));
	assert_int_equal(strlen(report.store), RECORD_UUID_LEN);
	reader_close(reader);
}

static void
empty_store_has_no_plants(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 0);
	struct reader *reader = open_reader(fixture, NULL);
	expect_rest(reader, 1, 0);
	reader_close(reader);
}

static void
journal_can_be_named_as_a_file(void **state)
{
	const struct fixture *fixture = *state;
	char path[96];
	int status;

	fixture_make_store(fixture, false, 1, 2);
	/* It is read as one that has no store around it. */
	fixture_write(fixture, "lock", 0, "failed  ", 8);
	snprintf(path, sizeof(path), "%s/" JOURNAL_NAME, fixture->path);
	struct reader *reader = reader_open(path, NULL, &status);
	assert_non_null(reader);
	expect_rest(reader, 1, 2);
	reader_close(reader);
}

static void
directory_without_a_lock_gets_none(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 2);
	fixture_remove(fixture, "lock");
	fixture_remove_index(fixture);
	struct reader *reader = open_reader(fixture, NULL);
	expect_rest(reader, 1, 2);
	reader_close(reader);
	assert_false(fixture_exists(fixture, "lock"));
	assert_false(fixture_exists(fixture, "index"));
}

/* It was acknowledged, whatever is left of it. */
static void
last_plant_that_only_the_index_has_is_missing(void **state)
{
	static const char *const told[] = { "it is shorter (",
		": wrong checksum", ": incomplete line" };
	const struct fixture *fixture = *state;
	struct record record;
	size_t len;

	fixture_make_store(fixture, false, 1, 1);
	size_t end = fixture_size(fixture, JOURNAL_NAME);
	fixture_make_store(fixture, false, 2, 2);
	char *whole = fixture_read(fixture, JOURNAL_NAME, &len);
	for (size_t i = 0; i < COUNT(told); i++) {
		fixture_truncate(fixture, JOURNAL_NAME, end);
		if (i == 1) {
			char *line = whole + end;
			size_t line_len =
			    (size_t)((char *)rawmemchr(line, '\n') + 1 - line);
			char *digit = line + line_len - 4;

			*digit = *digit == '0' ? '1' : '0';
			fixture_append(fixture, JOURNAL_NAME, line, line_len);
		} else if (i == 2)
			fixture_append(fixture, JOURNAL_NAME, whole + end, 9);
		struct reader *reader = open_reader(fixture, NULL);
		assert_int_equal(reader_next(reader, &record), READER_FAILED);
		assert_int_equal(reader_status(reader), EX_DATAERR);
		assert_int_equal(fixture_logged(fixture, told[i]), 1);
		reader_close(reader);
	}
	assert_int_equal(fixture_logged(fixture, "was torn"), 0);
	/* Nothing vouches for it where the index is gone. */
	fixture_remove_index(fixture);
	struct reader *reader = open_reader(fixture, NULL);
	expect_rest(reader, 1, 1);
	reader_close(reader);
	free(whole);
}

static void
what_is_stored_after_the_end_was_found_is_left_out(void **state)
{
	const struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	struct record record;

	fixture_create(store, 1);
	struct reader *reader = open_reader(fixture, NULL);
	fixture_create(store, 2);
	assert_int_equal(reader_next(reader, &record), READER_PLANT);
	fixture_create(store, 3);
	expect_rest(reader, 2, 2);
	reader_close(reader);
	store_close(store);
}

/* A store of plants that are long, from 1 on. */
static void
make_long_store(const struct fixture *fixture, int64_t last)
{
	struct store *store = fixture_open(fixture, false);
	char *name = malloc(LONG_NAME + 1);

	assert_non_null(name);
	memset(name, 'x', LONG_NAME);
	name[LONG_NAME] = '\0';
	for (int64_t id = 1; id <= last; id++)
		assert_int_equal(
		    fixture_put(store, id, name).result, STORE_CREATED);
	free(name);
	store_close(store);
}

static void
watch_is_told_each_mebibyte_with_the_whole(void **state)
{
	const struct fixture *fixture = *state;
	struct fixture_steps steps = { 0 };
	struct watch watch = { fixture_step, &steps };
	uint64_t size;

	make_long_store(fixture, 6);
	size = fixture_size(fixture, JOURNAL_NAME);
	struct reader *reader = open_reader(fixture, &watch);
	expect_rest(reader, 1, 6);
	assert_true(steps.n >= size / (2 << 20));
	assert_true(steps.n <= 1 + size / (1 << 20));
	assert_int_equal(steps.total, size);
	reader_close(reader);
}

static void
watch_can_stop_it_and_what_was_read_is_told(void **state)
{
	const struct fixture *fixture = *state;
	struct fixture_steps steps = { .last = 2 };
	struct watch watch = { fixture_step, &steps };
	struct reader_report report;
	struct record record;

	make_long_store(fixture, 4);
	struct reader *reader = open_reader(fixture, &watch);
	assert_int_equal(reader_next(reader, &record), READER_PLANT);
	assert_int_equal(reader_next(reader, &record), READER_PLANT);
	assert_int_equal(reader_next(reader, &record), READER_STOPPED);
	reader_report(reader, &report);
	assert_int_equal(report.plants, 2);
	assert_int_equal(report.seq, 2);
	assert_int_equal(reader_status(reader), EX_OK);
	reader_close(reader);
}

static void
damage_fails_with_its_offset_behind_the_good_plants(void **state)
{
	const struct fixture *fixture = *state;
	struct reader_report report;
	struct record record;
	char text[64];

	fixture_make_store(fixture, false, 1, 3);
	struct reader *reader = open_reader(fixture, NULL);
	assert_int_equal(reader_next(reader, &record), READER_PLANT);
	reader_report(reader, &report);
	reader_close(reader);
	fixture_write(fixture, JOURNAL_NAME, report.bytes + 9, "X", 1);
	reader = open_reader(fixture, NULL);
	/* The end is looked for first, so it is found at once. */
	assert_int_equal(reader_next(reader, &record), READER_FAILED);
	assert_int_equal(reader_status(reader), EX_DATAERR);
	snprintf(text, sizeof(text), "damaged at byte %" PRIu64, report.bytes);
	assert_int_equal(fixture_logged(fixture, text), 1);
	reader_close(reader);
}

static void
store_that_is_marked_as_failed_is_not_read(void **state)
{
	const struct fixture *fixture = *state;
	struct record record;

	fixture_make_store(fixture, false, 1, 1);
	fixture_write(fixture, "lock", 0, "failed  ", 8);
	struct reader *reader = open_reader(fixture, NULL);
	assert_int_equal(reader_next(reader, &record), READER_FAILED);
	assert_int_equal(reader_status(reader), EX_IOERR);
	reader_close(reader);
}

static void
journal_that_is_replaced_meanwhile_is_told(void **state)
{
	const struct fixture *fixture = *state;
	struct record record;
	size_t len;

	fixture_make_store(fixture, false, 1, 1);
	struct reader *reader = open_reader(fixture, NULL);
	char *journal = fixture_read(fixture, JOURNAL_NAME, &len);
	fixture_write(fixture, "other", 0, journal, len);
	free(journal);
	fixture_remove(fixture, JOURNAL_NAME);
	assert_int_equal(
	    renameat(fixture->dir, "other", fixture->dir, JOURNAL_NAME), 0);
	assert_int_equal(reader_next(reader, &record), READER_FAILED);
	assert_int_equal(reader_status(reader), EX_IOERR);
	assert_int_equal(fixture_logged(fixture, "was replaced"), 1);
	reader_close(reader);
}

/*
 * A process that is in the middle of a write when the lock file is removed, and
 * takes what it has written back, as when there is no room.
 */
struct half_writer {
	const struct fixture *fixture;
	int begun[2], asked[2]; /* pipes */
};

static int
write_half(void *argument)
{
	struct half_writer *writer = argument;
	int dir = writer->fixture->dir;
	int fd = openat(dir, JOURNAL_NAME, O_RDWR | O_CLOEXEC);
	off_t end = lseek(fd, 0, SEEK_END);
	char byte;

	if (lock_file(fd, 0) < 0 || pwrite(fd, "{\"seq\":", 7, end) != 7 ||
	    unlinkat(dir, "lock", 0) < 0 ||
	    write(writer->begun[1], "", 1) != 1 ||
	    read(writer->asked[0], &byte, 1) != 1)
		return 1;
	/* Who reads without a lock would have done so by then. */
	usleep(100000);
	return ftruncate(fd, end) < 0;
}

static bool
tell_writer(void *context, uint64_t done, uint64_t total)
{
	const struct half_writer *writer = context;

	(void)done;
	(void)total;
	assert_int_equal(write(writer->asked[1], "", 1), 1);
	return true;
}

static void
half_a_write_is_not_seen_when_the_lock_file_was_removed(void **state)
{
	const struct fixture *fixture = *state;
	struct half_writer writer = { .fixture = fixture };
	struct watch watch = { tell_writer, &writer };
	int status;
	char byte;

	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(pipe2(writer.begun, O_CLOEXEC), 0);
	assert_int_equal(pipe2(writer.asked, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(write_half(&writer));
	close(writer.begun[1]);
	assert_int_equal(read(writer.begun[0], &byte, 1), 1);
	struct reader *reader = open_reader(fixture, &watch);
	expect_rest(reader, 1, 2);
	assert_int_equal(fixture_logged(fixture, "torn"), 0);
	reader_close(reader);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_false(fixture_exists(fixture, "lock"));
	close(writer.begun[0]);
	close(writer.asked[0]);
	close(writer.asked[1]);
}

static void
lock_file_that_is_removed_meanwhile_is_told_and_not_made(void **state)
{
	const struct fixture *fixture = *state;
	struct record record;

	fixture_make_store(fixture, false, 1, 1);
	struct reader *reader = open_reader(fixture, NULL);
	fixture_remove(fixture, "lock");
	assert_int_equal(reader_next(reader, &record), READER_FAILED);
	assert_int_equal(reader_status(reader), EX_TEMPFAIL);
	assert_int_equal(fixture_logged(fixture, "cannot be taken"), 1);
	assert_false(fixture_exists(fixture, "lock"));
	reader_close(reader);
}

static void
lock_file_that_says_nothing_is_no_failure(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 1);
	fixture_truncate(fixture, "lock", 0);
	struct reader *reader = open_reader(fixture, NULL);
	expect_rest(reader, 1, 1);
	reader_close(reader);
}

static void
lock_that_cannot_be_had_is_told_but_where_there_is_none(void **state)
{
	const struct fixture *fixture = *state;
	struct reader *reader;
	struct record record;

	fixture_make_store(fixture, false, 1, 1);
	reader = open_reader(fixture, NULL);
	shim_fail(SHIM_FCNTL, JOURNAL_NAME, 1, 1, ENOLCK);
	assert_int_equal(reader_next(reader, &record), READER_FAILED);
	assert_int_equal(reader_status(reader), EX_TEMPFAIL);
	assert_int_equal(fixture_logged(fixture, "cannot be taken"), 1);
	/* The lock file's was given back. */
	store_close(fixture_open(fixture, false));
	reader_close(reader);

	fixture_remove(fixture, "lock");
	reader = open_reader(fixture, NULL);
	shim_fail(SHIM_FCNTL, JOURNAL_NAME, 1, 1, ENOLCK);
	expect_rest(reader, 1, 1);
	assert_int_equal(shim_count(SHIM_FCNTL), 2);
	reader_close(reader);
}

static void
every_read_that_fails_is_told(void **state)
{
	const struct fixture *fixture = *state;
	unsigned reads, failures = 0;

	fixture_make_store(fixture, false, 1, 2);
	for (unsigned nth = 1;; nth++) {
		struct record record;
		enum reader_result result = READER_FAILED;
		int status;

		shim_fail(SHIM_PREAD, JOURNAL_NAME, nth, 1, EIO);
		struct reader *reader =
		    reader_open(fixture->path, NULL, &status);
		if (reader != NULL) {
			do
				result = reader_next(reader, &record);
			while (result == READER_PLANT);
			status = reader_status(reader);
		}
		reader_close(reader);
		reads = shim_count(SHIM_PREAD);
		if (reads < nth) {
			assert_int_equal(result, READER_END);
			break;
		}
		assert_int_equal(result, READER_FAILED);
		assert_int_equal(status, EX_IOERR);
		failures++;
	}
	/* The header, the end, and the lines. */
	assert_true(failures >= 3);
}

/* The store has the plant 1. */
static void
expect_failed_sync(const struct fixture *fixture)
{
	struct record record;

	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	struct reader *reader = open_reader(fixture, NULL);
	assert_int_equal(reader_next(reader, &record), READER_FAILED);
	assert_int_equal(reader_status(reader), EX_IOERR);
	reader_close(reader);
}

static void
sync_that_fails_is_told(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 1);
	expect_failed_sync(fixture);
	/* The next sync of this file would lie. */
	shim_reset();
	fixture_reopen_and_expect(fixture, (const int64_t[]){ 1 }, 1);
	assert_true(fixture_exists_like(fixture, JOURNAL_NAME ".failed-"));
}

static void
sync_that_fails_where_it_cannot_be_marked_is_told(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 1);
	shim_fail(SHIM_PWRITE, "lock", 1, 1, EIO);
	expect_failed_sync(fixture);
	assert_int_equal(fixture_logged(fixture, "stop all its processes"), 1);
}

static void
sync_of_a_copy_that_fails_is_told(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 1);
	fixture_remove(fixture, "lock");
	expect_failed_sync(fixture);
	assert_int_equal(fixture_logged(fixture, "marked as failed"), 0);
}

static void
what_is_no_journal_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	static const char later[] = "{\"plant-store\":2,\"store\":\"";

	expect_refused("/nowhere/at/all", EX_NOINPUT);
	expect_refused(fixture->path, EX_NOINPUT);
	fixture_write(fixture, JOURNAL_NAME, 0, "x", 1);
	expect_refused(fixture->path, EX_DATAERR);
	fixture_write(fixture, JOURNAL_NAME, 0, later, sizeof(later) - 1);
	expect_refused(fixture->path, EX_CONFIG);
	reader_close(NULL);
}

static void
reading_can_be_taken_up_behind_any_line(void **state)
{
	const struct fixture *fixture = *state;
	struct reader_report report;
	struct record record;

	fixture_make_store(fixture, false, 1, 4);
	struct reader *reader = open_reader(fixture, NULL);
	assert_int_equal(reader_next(reader, &record), READER_PLANT);
	assert_int_equal(reader_next(reader, &record), READER_PLANT);
	struct position at = reader->replay.at;
	expect_rest(reader, 3, 4);
	assert_int_equal(reader_resume(reader, &at, 2), EX_OK);
	expect_rest(reader, 3, 4);
	reader_report(reader, &report);
	assert_int_equal(report.plants, 4);
	reader_close(reader);
}

/* More than is left for the lock at the end, which is looked at first. */
static void
damage_far_before_the_end_is_found_on_the_way(void **state)
{
	const struct fixture *fixture = *state;
	struct reader_report report;
	struct record record;

	make_long_store(fixture, 16);
	struct reader *reader = open_reader(fixture, NULL);
	assert_int_equal(reader_next(reader, &record), READER_PLANT);
	reader_report(reader, &report);
	reader_close(reader);
	fixture_write(fixture, JOURNAL_NAME, report.bytes + 9, "X", 1);
	reader = open_reader(fixture, NULL);
	assert_int_equal(reader_next(reader, &record), READER_PLANT);
	assert_int_equal(record.id, 1);
	assert_int_equal(reader_next(reader, &record), READER_FAILED);
	assert_int_equal(reader_status(reader), EX_DATAERR);
	assert_int_equal(fixture_logged(fixture, "damaged at byte"), 1);
	reader_close(reader);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(plants_come_in_their_order_with_their_text_and_name),
		TEST(report_tells_the_last_line_and_the_whole),
		TEST(empty_store_has_no_plants),
		TEST(journal_can_be_named_as_a_file),
		TEST(directory_without_a_lock_gets_none),
		TEST(last_plant_that_only_the_index_has_is_missing),
		TEST(what_is_stored_after_the_end_was_found_is_left_out),
		TEST(watch_is_told_each_mebibyte_with_the_whole),
		TEST(watch_can_stop_it_and_what_was_read_is_told),
		TEST(damage_fails_with_its_offset_behind_the_good_plants),
		TEST(store_that_is_marked_as_failed_is_not_read),
		TEST(journal_that_is_replaced_meanwhile_is_told),
		TEST(half_a_write_is_not_seen_when_the_lock_file_was_removed),
		TEST(lock_file_that_is_removed_meanwhile_is_told_and_not_made),
		TEST(lock_file_that_says_nothing_is_no_failure),
		TEST(lock_that_cannot_be_had_is_told_but_where_there_is_none),
		TEST(every_read_that_fails_is_told),
		TEST(sync_that_fails_is_told),
		TEST(sync_that_fails_where_it_cannot_be_marked_is_told),
		TEST(sync_of_a_copy_that_fails_is_told),
		TEST(what_is_no_journal_is_refused),
		TEST(reading_can_be_taken_up_behind_any_line),
		TEST(damage_far_before_the_end_is_found_on_the_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
