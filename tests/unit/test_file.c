/*
 * file: whole reads and writes whatever the kernel hands over at once, and a
 * rename that replaces nothing.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_shim.h"
#include "ground/file.h"

static char dir[DIRECTORY_PATH_MAX];
static int at, fd;

static void
set_up(char *unused)
{
	directory_make(dir);
	at = open(dir, O_RDONLY | O_DIRECTORY);
	fd = openat(at, "one", O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
}

static void
tear_down(char *unused)
{
	shim_reset();
	close(fd);
	close(at);
	directory_remove(dir);
}

#define FILE_TEST(name) FIXTURE_TEST(name, char, unused, set_up, tear_down)

FILE_TEST(bytes_are_written_and_read_whole_at_their_place)
{
	char buf[16] = "";

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

FILE_TEST(a_signal_is_passed_over_and_an_error_reported)
{
	char buf[4];

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

FILE_TEST(a_rename_replaces_nothing_on_any_file_system)
{
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

FILE_TEST(a_file_that_a_full_disk_leaves_empty_is_removed)
{
	shim_fail(SHIM_PWRITE, "new", 1, 1, ENOSPC);
	assert_int_equal(file_put(at, "new", "abcd", 4), -1);
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(faccessat(at, "new", F_OK, 0), -1);
	assert_int_equal(file_put(at, "one", "abcd", 4), 0);
	shim_fail(SHIM_PWRITE, "one", 1, 1, ENOSPC);
	assert_int_equal(file_put(at, "one", "efgh", 4), -1);
	assert_int_equal(faccessat(at, "one", F_OK, 0), 0);
}

FILE_TEST(a_link_is_not_followed_nor_a_pipe_waited_for)
{
	char buf[4] = "";

	assert_int_equal(symlinkat("one", at, "link"), 0);
	assert_int_equal(mkfifoat(at, "pipe", 0600), 0);
	assert_int_equal(file_put(at, "link", "abcd", 4), -1);
	assert_int_equal(errno, ELOOP);
	assert_int_equal(file_get(at, "link", buf, 0), -1);
	assert_int_equal(errno, ELOOP);
	assert_int_equal(file_put(at, "pipe", "abcd", 4), -1);
	assert_int_equal(errno, ENXIO);
	assert_int_equal(file_get(at, "pipe", buf, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(lseek(fd, 0, SEEK_END), 0);
	/* Files are. */
	assert_int_equal(file_put(at, "one", "abcd", 4), 0);
	assert_int_equal(file_get(at, "one", buf, 4), 0);
}
