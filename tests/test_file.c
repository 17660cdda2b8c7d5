/*
 * file: whole reads and writes whatever the kernel hands over at once, and a
 * rename that replaces nothing.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault_shim.h"
#include "ground/file.h"

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static char dir[] = "/tmp/file.XXXXXX";
static int at, fd;

static int
set_up(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/file.XXXXXX");
	if (mkdtemp(dir) == NULL)
		return -1;
	at = open(dir, O_RDONLY | O_DIRECTORY);
	fd = openat(at, "one", O_RDWR | O_CREAT, 0600);
	return fd < 0 ? -1 : 0;
}

static int
tear_down(void **state)
{
	(void)state;
	shim_reset();
	unlinkat(at, "one", 0);
	unlinkat(at, "two", 0);
	close(fd);
	close(at);
	return rmdir(dir);
}

static void
bytes_are_written_and_read_whole_at_their_place(void **state)
{
	char buf[16] = "";

	(void)state;
	shim_shorten(SHIM_PWRITE, NULL, 1, 3);
	assert_int_equal(file_write_all(fd, "0123456789", 10, 2), 0);
	assert_int_equal(shim_count(SHIM_PWRITE), 2);
	assert_int_equal(file_read_all(fd, buf, 4, 3), 4);
	assert_memory_equal(buf, "1234", 4);
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
	/* The file ends before. */
	assert_int_equal(file_read_all(fd, buf, sizeof buf, 0), 12);
	assert_memory_equal(buf,
	    "\0\0"
	    "0123456789",
	    12);
	assert_int_equal(file_read_all(fd, buf, sizeof buf, 12), 0);
}

static void
a_signal_is_passed_over_and_an_error_reported(void **state)
{
	char buf[4];

	(void)state;
	shim_fail(SHIM_PWRITE, NULL, 1, 1, EINTR);
	assert_int_equal(file_write_all(fd, "abcd", 4, 0), 0);
	shim_fail(SHIM_PREAD, NULL, 1, 1, EINTR);
	assert_int_equal(file_read_all(fd, buf, 4, 0), 4);
	assert_memory_equal(buf, "abcd", 4);
	shim_fail(SHIM_PWRITE, NULL, 1, 1, ENOSPC);
	assert_int_equal(file_write_all(fd, "efgh", 4, 0), -1);
	assert_int_equal(errno, ENOSPC);
	shim_fail(SHIM_PREAD, NULL, 1, 1, EIO);
	assert_int_equal(file_read_all(fd, buf, 4, 0), -1);
	assert_int_equal(errno, EIO);
}

static void
a_rename_replaces_nothing_on_any_file_system(void **state)
{
	(void)state;
	/* EINVAL: a file system without such a rename. */
	for (int error = 0; error <= EINVAL; error += EINVAL) {
		if (error != 0)
			shim_fail(SHIM_RENAMEAT2, NULL, 1, 2, error);
		assert_int_equal(rename_new(at, "one", "two"), 0);
		assert_int_equal(faccessat(at, "one", F_OK, 0), -1);
		close(openat(at, "one", O_WRONLY | O_CREAT, 0600));
		assert_int_equal(rename_new(at, "one", "two"), -1);
		assert_int_equal(errno, EEXIST);
		assert_int_equal(faccessat(at, "one", F_OK, 0), 0);
		assert_int_equal(unlinkat(at, "two", 0), 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bytes_are_written_and_read_whole_at_their_place),
		TEST(a_signal_is_passed_over_and_an_error_reported),
		TEST(a_rename_replaces_nothing_on_any_file_system),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
