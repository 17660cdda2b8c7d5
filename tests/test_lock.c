/* lock: one at a time, for a bounded while, and the mark. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault_shim.h"
#include "ground/clock.h"
#include "lock.h"
#include "store_fixture.h"

#define UUID "0123abcd-0123-4567-89ab-0123456789ab"
#define OTHER "ffffffff-0123-4567-89ab-0123456789ab"

static void
two_descriptors_exclude_each_other(void **state)
{
	struct fixture *fixture = *state;
	struct lock one, two;

	assert_int_equal(lock_open(&one, fixture->dir), 0);
	assert_int_equal(lock_open(&two, fixture->dir), 0);
	assert_int_equal(lock_acquire(&one, 0), 0);
	assert_int_equal(lock_acquire(&two, 0), -1);
	assert_int_equal(errno, ETIMEDOUT);
	lock_release(&one);
	assert_int_equal(lock_acquire(&two, 0), 0);
	lock_close(&one);
	lock_close(&two);
}

static void
closing_gives_the_lock_back(void **state)
{
	struct fixture *fixture = *state;
	struct lock one, two;

	assert_int_equal(lock_open(&one, fixture->dir), 0);
	assert_int_equal(lock_open(&two, fixture->dir), 0);
	assert_int_equal(lock_acquire(&one, 0), 0);
	lock_close(&one);
	assert_int_equal(lock_acquire(&two, 0), 0);
	lock_close(&two);
}

static void
closing_another_descriptor_of_the_file_keeps_the_lock(void **state)
{
	struct fixture *fixture = *state;
	struct lock one, two, three;

	assert_int_equal(lock_open(&one, fixture->dir), 0);
	assert_int_equal(lock_acquire(&one, 0), 0);
	assert_int_equal(lock_open(&two, fixture->dir), 0);
	lock_close(&two);
	assert_int_equal(lock_open(&three, fixture->dir), 0);
	assert_int_equal(lock_acquire(&three, 0), -1);
	lock_close(&three);
	lock_close(&one);
}

/* A process that holds the lock until it is killed. */
static pid_t
start_holder(const struct fixture *fixture)
{
	int ready[2];
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct lock lock;

		if (lock_open(&lock, fixture->dir) < 0 ||
		    lock_acquire(&lock, 0) < 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void
end_holder(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void
another_process_is_waited_for_no_longer_than_asked(void **state)
{
	struct fixture *fixture = *state;
	pid_t holder = start_holder(fixture);
	int64_t before = clock_ms(CLOCK_MONOTONIC);
	struct lock lock;

	assert_int_equal(lock_open(&lock, fixture->dir), 0);
	assert_int_equal(lock_acquire(&lock, before + 50), -1);
	assert_int_equal(errno, ETIMEDOUT);
	assert_in_range(clock_ms(CLOCK_MONOTONIC) - before, 50, 3000);
	end_holder(holder);
	lock_close(&lock);
}

static void
a_killed_process_gives_the_lock_back(void **state)
{
	struct fixture *fixture = *state;
	struct lock lock;

	end_holder(start_holder(fixture));
	assert_int_equal(lock_open(&lock, fixture->dir), 0);
	assert_int_equal(lock_acquire(&lock, 0), 0);
	lock_close(&lock);
}

static void
who_waits_gets_the_lock_when_the_holder_is_killed(void **state)
{
	struct fixture *fixture = *state;
	pid_t holder = start_holder(fixture);
	struct lock lock;

	assert_int_equal(lock_open(&lock, fixture->dir), 0);
	pid_t killer = fork();
	assert_true(killer >= 0);
	if (killer == 0) {
		usleep(20000);
		_exit(kill(holder, SIGKILL) != 0);
	}
	assert_int_equal(
	    lock_acquire(&lock, clock_ms(CLOCK_MONOTONIC) + 10000), 0);
	assert_int_equal(waitpid(killer, NULL, 0), killer);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	lock_close(&lock);
}

static void
a_removed_lock_file_is_made_anew(void **state)
{
	struct fixture *fixture = *state;
	struct lock one, two;

	assert_int_equal(lock_open(&one, fixture->dir), 0);
	fixture_remove(fixture, "lock");
	assert_int_equal(lock_acquire(&one, 0), 0);
	assert_true(fixture_exists(fixture, "lock"));
	assert_int_equal(lock_open(&two, fixture->dir), 0);
	assert_int_equal(lock_acquire(&two, 0), -1);
	lock_close(&one);
	lock_close(&two);
}

static void
a_replaced_lock_file_is_opened_anew(void **state)
{
	struct fixture *fixture = *state;
	struct lock one, two;

	assert_int_equal(lock_open(&one, fixture->dir), 0);
	fixture_remove(fixture, "lock");
	assert_int_equal(lock_open(&two, fixture->dir), 0);
	assert_int_equal(lock_acquire(&two, 0), 0);
	assert_int_equal(lock_acquire(&one, 0), -1);
	assert_int_equal(errno, ETIMEDOUT);
	lock_close(&one);
	lock_close(&two);
}

static void
a_directory_that_is_gone_is_an_error_at_once(void **state)
{
	struct fixture *fixture = *state;
	struct lock lock;

	assert_int_equal(mkdirat(fixture->dir, "gone", 0700), 0);
	int dir = openat(fixture->dir, "gone", O_RDONLY | O_DIRECTORY);
	assert_int_equal(lock_open(&lock, dir), 0);
	fixture_remove(fixture, "gone/lock");
	assert_int_equal(unlinkat(fixture->dir, "gone", AT_REMOVEDIR), 0);
	assert_int_equal(
	    lock_acquire(&lock, clock_ms(CLOCK_MONOTONIC) + 1000), -1);
	assert_int_equal(errno, ENOENT);
	lock_close(&lock);
	close(dir);
}

static void
a_new_file_has_no_mark(void **state)
{
	struct fixture *fixture = *state;
	struct lock lock;

	assert_int_equal(lock_open(&lock, fixture->dir), 0);
	assert_int_equal(lock_mark(&lock, NULL), LOCK_NEW);
	lock_close(&lock);
}

static void
a_mark_is_read_as_it_was_set_by_whoever_opens_the_file(void **state)
{
	static const enum lock_mark marks[] = { LOCK_OK, LOCK_FAILED, LOCK_OK };
	static const char *const uuids[] = { UUID, OTHER, UUID };
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(marks); i++) {
		struct lock one, two;
		char uuid[RECORD_UUID_LEN];

		assert_int_equal(lock_open(&one, fixture->dir), 0);
		assert_int_equal(lock_open(&two, fixture->dir), 0);
		assert_int_equal(
		    lock_set_mark(&one, marks[i], uuids[i], true), 0);
		assert_int_equal(lock_mark(&two, uuid), marks[i]);
		assert_memory_equal(uuid, uuids[i], RECORD_UUID_LEN);
		lock_close(&one);
		lock_close(&two);
	}
}

static void
the_mark_can_be_read_by_people(void **state)
{
	struct fixture *fixture = *state;
	struct lock lock;
	size_t len;

	assert_int_equal(lock_open(&lock, fixture->dir), 0);
	assert_int_equal(lock_set_mark(&lock, LOCK_FAILED, UUID, false), 0);
	char *text = fixture_read(fixture, "lock", &len);
	assert_string_equal(text, "failed  " UUID "\n");
	free(text);
	lock_close(&lock);
}

static void
a_mark_that_says_nothing_known_is_unreadable(void **state)
{
	static const char *const texts[] = { "x", "ok      ", "failed",
		"ok      0123abcd-0123-4567-89ab-0123456789a",
		"OK      " UUID "\n", "ok\0     " UUID "\n",
		"good    " UUID "\n" };
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(texts); i++) {
		struct lock lock;

		assert_int_equal(lock_open(&lock, fixture->dir), 0);
		fixture_truncate(fixture, "lock", 0);
		fixture_write(fixture, "lock", 0, texts[i],
		    i == 5 ? 45 : strlen(texts[i]));
		assert_int_equal(lock_mark(&lock, NULL), LOCK_UNREADABLE);
		lock_close(&lock);
	}
}

static void
a_mark_that_cannot_be_read_is_unreadable(void **state)
{
	struct fixture *fixture = *state;
	struct lock lock;

	assert_int_equal(lock_open(&lock, fixture->dir), 0);
	assert_int_equal(lock_set_mark(&lock, LOCK_OK, UUID, false), 0);
	shim_fail(SHIM_PREAD, "/lock", 1, 1, EIO);
	assert_int_equal(lock_mark(&lock, NULL), LOCK_UNREADABLE);
	lock_close(&lock);
}

static void
a_mark_is_set_only_when_its_write_and_sync_succeed(void **state)
{
	struct fixture *fixture = *state;
	struct lock lock;

	assert_int_equal(lock_open(&lock, fixture->dir), 0);
	shim_fail(SHIM_PWRITE, "/lock", 1, 1, EIO);
	assert_int_equal(lock_set_mark(&lock, LOCK_OK, UUID, true), -1);
	assert_int_equal(errno, EIO);
	shim_shorten(SHIM_PWRITE, "/lock", 1, 10);
	assert_int_equal(lock_set_mark(&lock, LOCK_OK, UUID, true), -1);
	assert_int_equal(errno, ENOSPC);
	shim_fail(SHIM_FSYNC, "/lock", 1, 1, EIO);
	assert_int_equal(lock_set_mark(&lock, LOCK_OK, UUID, true), -1);
	assert_int_equal(errno, EIO);
	lock_close(&lock);
}

static void
a_lock_file_that_cannot_be_looked_at_is_not_locked(void **state)
{
	struct fixture *fixture = *state;
	struct lock one, two;

	assert_int_equal(lock_open(&one, fixture->dir), 0);
	shim_fail(SHIM_FSTATAT, "lock", 1, 1, EIO);
	assert_int_equal(lock_acquire(&one, 0), -1);
	assert_int_equal(errno, EIO);
	assert_int_equal(lock_open(&two, fixture->dir), 0);
	assert_int_equal(lock_acquire(&two, 0), 0);
	lock_close(&one);
	lock_close(&two);
}

static void
a_lock_file_that_cannot_be_looked_at_is_not_opened(void **state)
{
	struct fixture *fixture = *state;
	struct lock lock = { .fd = -1 };
	int before = dup(0), after;

	close(before);
	shim_fail(SHIM_FSTAT, "/lock", 1, 1, EIO);
	assert_int_equal(lock_open(&lock, fixture->dir), -1);
	assert_int_equal(errno, EIO);
	assert_int_equal(shim_count(SHIM_FSTAT), 1);
	assert_int_equal(lock.fd, -1);
	/* And no descriptor is left. */
	after = dup(0);
	close(after);
	assert_int_equal(before, after);
}

static void
one_that_must_be_there_is_never_made(void **state)
{
	struct fixture *fixture = *state;
	struct lock lock, present;

	assert_int_equal(lock_open_present(&present, fixture->dir), -1);
	assert_int_equal(errno, ENOENT);
	assert_false(fixture_exists(fixture, "lock"));
	assert_int_equal(lock_open(&lock, fixture->dir), 0);
	lock_close(&lock);
	assert_int_equal(lock_open_present(&present, fixture->dir), 0);
	fixture_remove(fixture, "lock");
	assert_int_equal(lock_acquire(&present, 0), -1);
	assert_int_equal(errno, ENOENT);
	assert_false(fixture_exists(fixture, "lock"));
	lock_close(&present);
}

static void
those_who_read_share_a_file_with_nobody_who_writes(void **state)
{
	struct fixture *fixture = *state;
	int writer, one, two;

	fixture_write(fixture, "file", 0, "x", 1);
	writer = openat(fixture->dir, "file", O_RDWR | O_CLOEXEC);
	one = openat(fixture->dir, "file", O_RDONLY | O_CLOEXEC);
	two = openat(fixture->dir, "file", O_RDONLY | O_CLOEXEC);
	assert_true(writer >= 0 && one >= 0 && two >= 0);
	assert_int_equal(lock_file_shared(one, 0), 0);
	assert_int_equal(lock_file_shared(two, 0), 0);
	lock_unlock_file(one);
	assert_int_equal(lock_file(writer, 0), -1);
	assert_int_equal(errno, ETIMEDOUT);
	lock_unlock_file(two);
	assert_int_equal(lock_file(writer, 0), 0);
	assert_int_equal(lock_file_shared(one, 0), -1);
	assert_int_equal(errno, ETIMEDOUT);
	close(writer);
	assert_int_equal(lock_file_shared(one, 0), 0);
	close(one);
	close(two);
}

static void
a_mark_reaches_those_who_use_another_lock_file_by_now(void **state)
{
	struct fixture *fixture = *state;
	char uuid[RECORD_UUID_LEN];
	struct lock old, young;

	assert_int_equal(lock_open(&old, fixture->dir), 0);
	assert_int_equal(lock_acquire(&old, 0), 0);
	fixture_remove(fixture, "lock");
	assert_int_equal(lock_open(&young, fixture->dir), 0);
	assert_int_equal(lock_set_mark(&young, LOCK_OK, UUID, false), 0);
	assert_int_equal(lock_set_mark(&old, LOCK_FAILED, UUID, true), 0);
	assert_int_equal(lock_mark(&young, uuid), LOCK_FAILED);
	assert_memory_equal(uuid, UUID, RECORD_UUID_LEN);
	lock_close(&old);
	lock_close(&young);
}

static void
a_mark_that_does_not_reach_the_others_is_not_set(void **state)
{
	struct fixture *fixture = *state;
	struct lock old, young;

	assert_int_equal(lock_open(&old, fixture->dir), 0);
	fixture_remove(fixture, "lock");
	assert_int_equal(lock_open(&young, fixture->dir), 0);
	shim_fail(SHIM_FSYNC, "/lock", 1, 1, EIO);
	assert_int_equal(lock_set_mark(&old, LOCK_FAILED, UUID, true), -1);
	assert_int_equal(errno, EIO);
	lock_close(&old);
	lock_close(&young);
}

static void
of_two_locks_both_are_taken_or_neither(void **state)
{
	struct fixture *fixture = *state;
	struct lock one, two;
	int writer, reader;

	fixture_write(fixture, "file", 0, "x", 1);
	writer = openat(fixture->dir, "file", O_RDWR | O_CLOEXEC);
	reader = openat(fixture->dir, "file", O_RDONLY | O_CLOEXEC);
	assert_true(writer >= 0 && reader >= 0);
	assert_int_equal(lock_open(&one, fixture->dir), 0);
	assert_int_equal(lock_open(&two, fixture->dir), 0);
	assert_int_equal(lock_file_shared(reader, 0), 0);
	assert_int_equal(lock_both(&one, writer, 0), -1);
	assert_int_equal(errno, ETIMEDOUT);
	assert_int_equal(lock_both_shared(&two, reader, 0), 0);
	assert_int_equal(lock_both(&one, writer, 0), -1);
	assert_int_equal(errno, ETIMEDOUT);
	lock_unlock_file(reader);
	assert_int_equal(lock_file(writer, 0), 0);
	lock_release(&two);
	assert_int_equal(lock_both_shared(&two, reader, 0), -1);
	assert_int_equal(errno, ETIMEDOUT);
	assert_int_equal(lock_both(&one, writer, 0), 0);
	assert_int_equal(lock_acquire(&two, 0), -1);
	lock_close(&one);
	lock_close(&two);
	close(writer);
	close(reader);
}

static void
a_renewed_journal_is_locked_before_others_find_it(void **state)
{
	struct fixture *fixture = *state;
	struct journal journal;
	int fd;

	assert_int_equal(journal_create(fixture->dir), 0);
	assert_int_equal(
	    journal_open(&journal, fixture->dir, false), JOURNAL_OPENED);
	assert_int_equal(journal_renew(&journal, journal.size), 0);
	fd = openat(fixture->dir, JOURNAL_NAME, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(lock_file(fd, 0), -1);
	assert_int_equal(errno, ETIMEDOUT);
	journal_close(&journal);
	assert_int_equal(lock_file(fd, 0), 0);
	close(fd);
}

static void
a_mark_is_not_set_where_the_directory_is_gone(void **state)
{
	struct fixture *fixture = *state;
	struct lock lock;

	assert_int_equal(mkdirat(fixture->dir, "gone", 0700), 0);
	int dir =
	    openat(fixture->dir, "gone", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	assert_int_equal(lock_open(&lock, dir), 0);
	assert_int_equal(unlinkat(dir, "lock", 0), 0);
	assert_int_equal(unlinkat(fixture->dir, "gone", AT_REMOVEDIR), 0);
	assert_int_equal(lock_set_mark(&lock, LOCK_FAILED, UUID, true), -1);
	assert_int_equal(errno, ENOENT);
	lock_close(&lock);
	close(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(two_descriptors_exclude_each_other),
		TEST(closing_gives_the_lock_back),
		TEST(closing_another_descriptor_of_the_file_keeps_the_lock),
		TEST(another_process_is_waited_for_no_longer_than_asked),
		TEST(a_killed_process_gives_the_lock_back),
		TEST(who_waits_gets_the_lock_when_the_holder_is_killed),
		TEST(a_removed_lock_file_is_made_anew),
		TEST(a_replaced_lock_file_is_opened_anew),
		TEST(a_directory_that_is_gone_is_an_error_at_once),
		TEST(a_new_file_has_no_mark),
		TEST(a_mark_is_read_as_it_was_set_by_whoever_opens_the_file),
		TEST(the_mark_can_be_read_by_people),
		TEST(a_mark_that_says_nothing_known_is_unreadable),
		TEST(a_mark_that_cannot_be_read_is_unreadable),
		TEST(a_mark_is_set_only_when_its_write_and_sync_succeed),
		TEST(a_lock_file_that_cannot_be_looked_at_is_not_locked),
		TEST(a_lock_file_that_cannot_be_looked_at_is_not_opened),
		TEST(one_that_must_be_there_is_never_made),
		TEST(those_who_read_share_a_file_with_nobody_who_writes),
		TEST(of_two_locks_both_are_taken_or_neither),
		TEST(a_mark_reaches_those_who_use_another_lock_file_by_now),
		TEST(a_mark_that_does_not_reach_the_others_is_not_set),
		TEST(a_renewed_journal_is_locked_before_others_find_it),
		TEST(a_mark_is_not_set_where_the_directory_is_gone),
	};

	return cmocka_run_group_tests_name("lock", tests, NULL, NULL);
}
