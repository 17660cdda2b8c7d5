/* journal: the file, its header, its end, and the reading of one record. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_shim.h"
#include "journal.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "store_fixture.h"

#define HEADER_END RECORD_HEADER_LEN

static struct journal
open_journal(const struct fixture *fixture, bool prepare)
{
	struct journal journal;

	assert_int_equal(
	    journal_open(&journal, fixture->dir, prepare), JOURNAL_OPENED);
	return journal;
}

static struct journal
make_journal(const struct fixture *fixture, bool prepare)
{
	assert_int_equal(journal_create(fixture->dir), 0);
	return open_journal(fixture, prepare);
}

/* A line of a plant whose name has `len` letters, in `buf`. */
static size_t
make_line(const struct journal *journal, size_t len, char *buf)
{
	char now[TIMESTAMP_LEN];
	char *text = malloc(len + 32);
	int n;

	assert_non_null(text);
	timestamp_print(0, now);
	n = snprintf(text, 32, "{\"id\":7,\"name\":\"");
	memset(text + n, 'x', len);
	memcpy(text + n + len, "\"}", 2);
	struct record record = {
		.seq = 1,
		.prev = journal->start.crc,
		.at = now,
		.by = "tester",
		.by_len = 6,
		.plant = text,
		.plant_len = (size_t)n + len + 2,
	};
	size_t line = record_encode(&record, journal->seed, buf);
	free(text);
	return line;
}

static void
an_absent_journal_is_said_to_be_absent(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal;

	assert_int_equal(
	    journal_open(&journal, fixture->dir, false), JOURNAL_ABSENT);
}

static void
a_new_journal_is_a_header_and_can_be_opened(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);

	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), HEADER_END);
	assert_int_equal(journal.start.end, HEADER_END);
	assert_int_equal(journal.start.seq, 0);
	assert_int_equal(journal.size, HEADER_END);
	assert_false(fixture_exists(fixture, JOURNAL_NAME ".new"));
	journal_close(&journal);
}

static void
two_new_journals_are_of_two_stores(void **state)
{
	struct fixture *fixture = *state;
	struct journal one = make_journal(fixture, false);

	fixture_remove(fixture, JOURNAL_NAME);
	struct journal two = make_journal(fixture, false);
	assert_memory_not_equal(one.uuid, two.uuid, RECORD_UUID_LEN);
	journal_close(&one);
	journal_close(&two);
}

static void
only_its_owner_may_read_a_new_journal(void **state)
{
	struct fixture *fixture = *state;
	struct stat st;

	assert_int_equal(journal_create(fixture->dir), 0);
	assert_int_equal(fstatat(fixture->dir, JOURNAL_NAME, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void
making_never_replaces_a_journal(void **state)
{
	struct fixture *fixture = *state;
	size_t len;

	fixture_write(fixture, JOURNAL_NAME, 0, "mine", 4);
	assert_int_equal(journal_create(fixture->dir), -1);
	assert_int_equal(errno, EEXIST);
	char *bytes = fixture_read(fixture, JOURNAL_NAME, &len);
	assert_string_equal(bytes, "mine");
	free(bytes);
	assert_false(fixture_exists(fixture, JOURNAL_NAME ".new"));
}

static void
where_a_rename_cannot_spare_what_is_there_a_link_does(void **state)
{
	struct fixture *fixture = *state;

	/* As on NFS. */
	shim_fail(SHIM_RENAMEAT2, NULL, 1, 2, EINVAL);
	assert_int_equal(journal_create(fixture->dir), 0);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), HEADER_END);
	assert_false(fixture_exists(fixture, JOURNAL_NAME ".new"));
	assert_int_equal(journal_create(fixture->dir), -1);
	assert_int_equal(errno, EEXIST);
	assert_false(fixture_exists(fixture, JOURNAL_NAME ".new"));
}

static void
what_an_interrupted_making_left_is_no_obstacle(void **state)
{
	struct fixture *fixture = *state;

	fixture_write(fixture, JOURNAL_NAME ".new", 0, "half", 4);
	struct journal journal = make_journal(fixture, false);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), HEADER_END);
	journal_close(&journal);
}

static void
a_making_that_fails_leaves_no_journal(void **state)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_FSYNC };
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(calls); i++) {
		shim_fail(calls[i], ".new", 1, 1, ENOSPC);
		assert_int_equal(journal_create(fixture->dir), -1);
		assert_int_equal(errno, ENOSPC);
		assert_false(fixture_exists(fixture, JOURNAL_NAME));
		assert_false(fixture_exists(fixture, JOURNAL_NAME ".new"));
		shim_reset();
	}
}

static void
a_making_is_not_done_before_the_directory_is_synced(void **state)
{
	struct fixture *fixture = *state;

	shim_fail(SHIM_FSYNC, NULL, 2, 1, EIO);
	assert_int_equal(journal_create(fixture->dir), -1);
	assert_int_equal(errno, EIO);
}

static void
a_header_of_another_version_is_told(void **state)
{
	static const char header[] = "{\"plant-store\":2,\"any\":true}\n";
	struct fixture *fixture = *state;
	struct journal journal;

	fixture_write(fixture, JOURNAL_NAME, 0, header, strlen(header));
	assert_int_equal(
	    journal_open(&journal, fixture->dir, false), JOURNAL_VERSION);
}

static void
a_header_with_any_bit_flipped_is_not_opened(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	size_t len;
	char *bytes = fixture_read(fixture, JOURNAL_NAME, &len);

	journal_close(&journal);
	for (size_t i = 0; i < len * 8; i++) {
		char byte = (char)(bytes[i / 8] ^ 1 << i % 8);

		fixture_write(fixture, JOURNAL_NAME, i / 8, &byte, 1);
		enum journal_open opened =
		    journal_open(&journal, fixture->dir, false);
		assert_true(
		    opened == JOURNAL_DAMAGED || opened == JOURNAL_VERSION);
		fixture_write(fixture, JOURNAL_NAME, i / 8, &bytes[i / 8], 1);
	}
	free(bytes);
}

static void
a_header_cut_short_is_damage(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal;

	assert_int_equal(journal_create(fixture->dir), 0);
	for (uint64_t size = HEADER_END; size-- > 0;) {
		fixture_truncate(fixture, JOURNAL_NAME, size);
		assert_int_equal(journal_open(&journal, fixture->dir, false),
		    JOURNAL_DAMAGED);
	}
}

static void
a_header_that_cannot_be_read_is_an_error(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal;

	assert_int_equal(journal_create(fixture->dir), 0);
	shim_fail(SHIM_PREAD, JOURNAL_NAME, 1, 1, EIO);
	assert_int_equal(
	    journal_open(&journal, fixture->dir, false), JOURNAL_ERROR);
	assert_int_equal(errno, EIO);
}

static void
an_append_without_room_grows_the_file_by_itself_only(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);

	assert_int_equal(journal_append(&journal, HEADER_END, "12345\n", 6), 0);
	assert_int_equal(journal.size, HEADER_END + 6);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), HEADER_END + 6);
	journal_close(&journal);
}

static void
an_append_with_room_leaves_blank_lines_behind_it(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, true);
	size_t len;

	assert_int_equal(journal_append(&journal, HEADER_END, "12345\n", 6), 0);
	char *bytes = fixture_read(fixture, JOURNAL_NAME, &len);
	assert_int_equal(len, HEADER_END + 6 + JOURNAL_ROOM_BYTES);
	assert_int_equal(journal.size, len);
	assert_memory_equal(bytes + HEADER_END, "12345\n", 6);
	for (size_t i = HEADER_END + 6; i < len; i++)
		assert_int_equal(bytes[i], '\n');
	free(bytes);
	journal_close(&journal);
}

static void
an_append_into_room_does_not_grow_the_file(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, true);
	char *batch = malloc(JOURNAL_ROOM_BYTES);

	assert_non_null(batch);
	memset(batch, 'x', JOURNAL_ROOM_BYTES);
	assert_int_equal(journal_append(&journal, HEADER_END, "12345\n", 6), 0);
	uint64_t size = journal.size;
	assert_int_equal(
	    journal_append(&journal, HEADER_END + 6, batch, JOURNAL_ROOM_BYTES),
	    0);
	assert_int_equal(journal.size, size);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), size);
	free(batch);
	journal_close(&journal);
}

static void
an_append_that_falls_short_is_completed(void **state)
{
	struct fixture *fixture = *state;

	for (size_t len = 0; len < 6; len++) {
		struct journal journal = make_journal(fixture, len % 2 == 0);
		size_t size;

		shim_shorten(SHIM_PWRITEV, JOURNAL_NAME, 1, len);
		shim_shorten(SHIM_PWRITE, JOURNAL_NAME, 1, 1);
		assert_int_equal(
		    journal_append(&journal, HEADER_END, "12345\n", 6), 0);
		char *bytes = fixture_read(fixture, JOURNAL_NAME, &size);
		assert_int_equal(size, HEADER_END + 6);
		assert_int_equal(journal.size, size);
		assert_string_equal(bytes + HEADER_END, "12345\n");
		free(bytes);
		journal_close(&journal);
		fixture_remove(fixture, JOURNAL_NAME);
	}
}

static void
an_interrupted_append_is_taken_up_again(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);

	shim_fail(SHIM_PWRITEV, JOURNAL_NAME, 1, 3, EINTR);
	assert_int_equal(journal_append(&journal, HEADER_END, "12345\n", 6), 0);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), HEADER_END + 6);
	journal_close(&journal);
}

static void
without_space_for_room_the_append_goes_without(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, true);

	shim_fail(SHIM_PWRITEV, JOURNAL_NAME, 1, 1, ENOSPC);
	assert_int_equal(journal_append(&journal, HEADER_END, "12345\n", 6), 0);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), HEADER_END + 6);
	journal_close(&journal);
}

static void
an_append_on_a_full_disk_is_cut_off_again(void **state)
{
	struct fixture *fixture = *state;

	for (int prepare = 0; prepare < 2; prepare++) {
		struct journal journal = make_journal(fixture, prepare);

		shim_shorten(SHIM_PWRITEV, JOURNAL_NAME, 1, 3);
		shim_fail(SHIM_PWRITE, JOURNAL_NAME, 1, 1, ENOSPC);
		assert_int_equal(
		    journal_append(&journal, HEADER_END, "12345\n", 6), -1);
		assert_int_equal(errno, ENOSPC);
		assert_int_equal(
		    fixture_size(fixture, JOURNAL_NAME), HEADER_END);
		assert_int_equal(journal.size, HEADER_END);
		shim_reset();
		assert_int_equal(
		    journal_append(&journal, HEADER_END, "12345\n", 6), 0);
		journal_close(&journal);
		fixture_remove(fixture, JOURNAL_NAME);
	}
}

static void
an_append_that_cannot_be_cut_off_is_told(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);

	shim_fail(SHIM_PWRITEV, JOURNAL_NAME, 1, 1, ENOSPC);
	shim_fail(SHIM_FTRUNCATE, JOURNAL_NAME, 1, 1, EIO);
	assert_int_equal(
	    journal_append(&journal, HEADER_END, "12345\n", 6), -2);
	assert_int_equal(errno, ENOSPC);
	journal_close(&journal);
}

static void
the_check_finds_nothing_wrong_with_a_file_that_grew(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);

	fixture_append(fixture, JOURNAL_NAME, "more", 4);
	assert_null(journal_check(&journal, fixture->path, HEADER_END));
	assert_int_equal(journal.size, HEADER_END + 4);
	journal_close(&journal);
}

static void
the_check_says_that_the_file_was_removed(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);

	fixture_remove(fixture, JOURNAL_NAME);
	assert_string_equal(
	    journal_check(&journal, fixture->path, HEADER_END), "was removed");
	journal_close(&journal);
}

static void
the_check_says_that_the_file_was_replaced(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);

	fixture_remove(fixture, JOURNAL_NAME);
	fixture_write(fixture, JOURNAL_NAME, 0, "other", 5);
	assert_string_equal(
	    journal_check(&journal, fixture->path, HEADER_END), "was replaced");
	journal_close(&journal);
}

static void
the_check_says_that_the_file_was_truncated(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);

	fixture_truncate(fixture, JOURNAL_NAME, HEADER_END - 1);
	assert_string_equal(journal_check(&journal, fixture->path, HEADER_END),
	    "was truncated");
	journal_close(&journal);
}

static void
a_kept_copy_is_exactly_what_stood_there(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	char name[64];
	size_t len;

	assert_int_equal(journal_append(&journal, HEADER_END,
			     "123\0"
			     "45\n\n",
			     8),
	    0);
	assert_int_equal(journal_keep(&journal, HEADER_END + 1, HEADER_END + 7,
			     name, sizeof(name)),
	    0);
	char *bytes = fixture_read(fixture, name, &len);
	assert_int_equal(len, 6);
	assert_memory_equal(bytes,
	    "23\0"
	    "45\n",
	    6);
	free(bytes);
	assert_int_equal(journal.size, HEADER_END + 8);
	journal_close(&journal);
}

static void
a_second_copy_from_one_place_does_not_replace_the_first(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	char one[64], two[64];
	size_t len;

	assert_int_equal(journal_append(&journal, HEADER_END, "12", 2), 0);
	assert_int_equal(journal_keep(&journal, HEADER_END, HEADER_END + 1, one,
			     sizeof(one)),
	    0);
	assert_int_equal(journal_keep(&journal, HEADER_END, HEADER_END + 2, two,
			     sizeof(two)),
	    0);
	assert_string_not_equal(one, two);
	char *bytes = fixture_read(fixture, one, &len);
	assert_string_equal(bytes, "1");
	free(bytes);
	journal_close(&journal);
}

static void
a_copy_that_fails_leaves_no_file(void **state)
{
	static const struct {
		enum shim_call call;
		int error;
	} faults[] = { { SHIM_PREAD, EIO }, { SHIM_PWRITE, ENOSPC },
		{ SHIM_FSYNC, EIO } };
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	char name[64];

	for (size_t i = 0; i < COUNT(faults); i++) {
		shim_fail(faults[i].call, NULL, 1, 1, faults[i].error);
		assert_int_equal(
		    journal_keep(&journal, 0, HEADER_END, name, sizeof(name)),
		    -1);
		assert_int_equal(errno, faults[i].error);
		assert_false(
		    fixture_exists_like(fixture, JOURNAL_NAME ".torn"));
		shim_reset();
	}
	journal_close(&journal);
}

static void
a_renewed_journal_is_a_new_file_and_the_old_one_is_kept(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	ino_t inode = journal.inode;
	size_t len;

	assert_int_equal(journal_append(&journal, HEADER_END, "123456", 6), 0);
	assert_int_equal(journal_renew(&journal, HEADER_END + 4), 0);
	assert_int_not_equal(journal.inode, inode);
	assert_null(journal_check(&journal, fixture->path, HEADER_END + 4));
	char *bytes = fixture_read(fixture, JOURNAL_NAME, &len);
	assert_string_equal(bytes + HEADER_END, "1234");
	free(bytes);
	bytes = fixture_read(fixture, JOURNAL_NAME ".failed-86.1", &len);
	assert_string_equal(bytes + HEADER_END, "123456");
	free(bytes);
	assert_int_equal(journal_append(&journal, HEADER_END + 4, "78", 2), 0);
	assert_int_equal(fixture_size(fixture, JOURNAL_NAME), HEADER_END + 6);
	journal_close(&journal);
}

static void
a_second_renewal_at_one_place_keeps_its_old_file_too(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	size_t len;

	assert_int_equal(journal_append(&journal, HEADER_END, "one", 3), 0);
	assert_int_equal(journal_renew(&journal, HEADER_END), 0);
	assert_int_equal(journal_append(&journal, HEADER_END, "two", 3), 0);
	assert_int_equal(journal_renew(&journal, HEADER_END), 0);
	char *bytes = fixture_read(fixture, JOURNAL_NAME ".failed-82.1", &len);
	assert_string_equal(bytes + HEADER_END, "one");
	free(bytes);
	bytes = fixture_read(fixture, JOURNAL_NAME ".failed-82.2", &len);
	assert_string_equal(bytes + HEADER_END, "two");
	free(bytes);
	journal_close(&journal);
}

static void
a_renewal_that_fails_leaves_the_old_journal_in_its_place(void **state)
{
	static const struct {
		enum shim_call call;
		int error;
	} faults[] = { { SHIM_PREAD, EIO }, { SHIM_PWRITE, ENOSPC },
		{ SHIM_FSYNC, EIO } };
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);

	for (size_t i = 0; i < COUNT(faults); i++) {
		shim_fail(faults[i].call, NULL, 1, 1, faults[i].error);
		assert_int_equal(journal_renew(&journal, HEADER_END), -1);
		assert_int_equal(errno, faults[i].error);
		shim_reset();
		assert_null(journal_check(&journal, fixture->path, HEADER_END));
		assert_false(fixture_exists(fixture, JOURNAL_NAME ".new"));
	}
	journal_close(&journal);
}

static void
a_record_is_read_at_its_offset(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	char line[512], *buf = NULL;
	size_t size = 0, len = make_line(&journal, 4, line);
	struct record record;

	assert_int_equal(journal_append(&journal, HEADER_END, line, len), 0);
	assert_int_equal(
	    journal_read(&journal, HEADER_END, &record, &buf, &size), 0);
	assert_int_equal(record.id, 7);
	assert_memory_equal(record.plant, "{\"id\":7,\"name\":\"xxxx\"}", 22);
	free(buf);
	journal_close(&journal);
}

static void
a_long_record_is_read_whole(void **state)
{
	static const size_t lens[] = { 3990, 4000, 8000, 100000,
		((size_t)1 << 20) - 18 };
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	char *line = malloc(RECORD_LINE_MAX), *buf = NULL;
	size_t size = 0;
	struct record record;

	assert_non_null(line);
	for (size_t i = 0; i < COUNT(lens); i++) {
		size_t len = make_line(&journal, lens[i], line);

		assert_int_equal(
		    journal_append(&journal, HEADER_END, line, len), 0);
		assert_int_equal(
		    journal_read(&journal, HEADER_END, &record, &buf, &size),
		    0);
		assert_int_equal(record.plant_len, lens[i] + 18);
	}
	free(line);
	free(buf);
	journal_close(&journal);
}

static void
no_record_is_read_where_none_begins(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	char line[512], *buf = NULL;
	size_t size = 0, len = make_line(&journal, 4, line);
	struct record record;

	assert_int_equal(journal_append(&journal, HEADER_END, line, len), 0);
	for (uint64_t offset = 0; offset < HEADER_END + len + 100; offset++) {
		if (offset == HEADER_END)
			continue;
		assert_int_equal(
		    journal_read(&journal, offset, &record, &buf, &size), -1);
		assert_int_equal(errno, EBADMSG);
	}
	free(buf);
	journal_close(&journal);
}

static void
a_line_longer_than_any_record_is_none(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	size_t len = RECORD_LINE_MAX + 100, size = 0;
	char *junk = malloc(len), *buf = NULL;
	struct record record;

	assert_non_null(junk);
	memset(junk, 'x', len);
	assert_int_equal(journal_append(&journal, HEADER_END, junk, len), 0);
	assert_int_equal(
	    journal_read(&journal, HEADER_END, &record, &buf, &size), -1);
	assert_int_equal(errno, EBADMSG);
	free(junk);
	free(buf);
	journal_close(&journal);
}

static void
a_record_that_cannot_be_read_is_an_error(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);
	char *buf = NULL;
	size_t size = 0;
	struct record record;

	shim_fail(SHIM_PREAD, JOURNAL_NAME, 1, 1, EIO);
	assert_int_equal(
	    journal_read(&journal, HEADER_END, &record, &buf, &size), -1);
	assert_int_equal(errno, EIO);
	free(buf);
	journal_close(&journal);
}

static void
a_sync_that_fails_is_told(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal = make_journal(fixture, false);

	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	assert_int_equal(journal_sync(&journal), -1);
	assert_int_equal(errno, EIO);
	journal_close(&journal);
}

static void
a_write_that_writes_nothing_is_a_full_disk(void **state)
{
	struct fixture *fixture = *state;

	shim_shorten(SHIM_PWRITE, JOURNAL_NAME ".new", 1, 0);
	assert_int_equal(journal_create(fixture->dir), -1);
	assert_int_equal(errno, ENOSPC);
	assert_false(fixture_exists_like(fixture, JOURNAL_NAME));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_absent_journal_is_said_to_be_absent),
		TEST(a_new_journal_is_a_header_and_can_be_opened),
		TEST(two_new_journals_are_of_two_stores),
		TEST(only_its_owner_may_read_a_new_journal),
		TEST(making_never_replaces_a_journal),
		TEST(where_a_rename_cannot_spare_what_is_there_a_link_does),
		TEST(what_an_interrupted_making_left_is_no_obstacle),
		TEST(a_making_that_fails_leaves_no_journal),
		TEST(a_making_is_not_done_before_the_directory_is_synced),
		TEST(a_header_of_another_version_is_told),
		TEST(a_header_with_any_bit_flipped_is_not_opened),
		TEST(a_header_cut_short_is_damage),
		TEST(a_header_that_cannot_be_read_is_an_error),
		TEST(an_append_without_room_grows_the_file_by_itself_only),
		TEST(an_append_with_room_leaves_blank_lines_behind_it),
		TEST(an_append_into_room_does_not_grow_the_file),
		TEST(an_append_that_falls_short_is_completed),
		TEST(an_interrupted_append_is_taken_up_again),
		TEST(without_space_for_room_the_append_goes_without),
		TEST(an_append_on_a_full_disk_is_cut_off_again),
		TEST(an_append_that_cannot_be_cut_off_is_told),
		TEST(the_check_finds_nothing_wrong_with_a_file_that_grew),
		TEST(the_check_says_that_the_file_was_removed),
		TEST(the_check_says_that_the_file_was_replaced),
		TEST(the_check_says_that_the_file_was_truncated),
		TEST(a_kept_copy_is_exactly_what_stood_there),
		TEST(a_second_copy_from_one_place_does_not_replace_the_first),
		TEST(a_copy_that_fails_leaves_no_file),
		TEST(a_renewed_journal_is_a_new_file_and_the_old_one_is_kept),
		TEST(a_second_renewal_at_one_place_keeps_its_old_file_too),
		TEST(a_renewal_that_fails_leaves_the_old_journal_in_its_place),
		TEST(a_record_is_read_at_its_offset),
		TEST(a_long_record_is_read_whole),
		TEST(no_record_is_read_where_none_begins),
		TEST(a_line_longer_than_any_record_is_none),
		TEST(a_record_that_cannot_be_read_is_an_error),
		TEST(a_sync_that_fails_is_told),
		TEST(a_write_that_writes_nothing_is_a_full_disk),
	};

	return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
