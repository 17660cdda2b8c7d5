/*
 * failing_disk: a file system of one file, "disk", for a loop device.  Its writes
 * fail, or wait and then fail, as a rule says.
 *
 * usage: failing_disk FILE RULE PLACE
 *
 * FILE has the content.  The file RULE is read at each write.  While it is
 * missing or empty, all is well.  Else it has one line:
 *
 *	hold 0 WORD      a write whose bytes have WORD makes the file RULE.held,
 *	                 and waits for another rule, which then counts
 *	fail TIMES WORD  so many writes with WORD fail with EIO (0: for ever)
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *rule_path;
static int disk;
static atomic_ulong failures, rule_inode;

/* 0, or the error with which a write of these bytes ends. */
static int
obey(const char *bytes, size_t len)
{
	static const struct timespec pause = { .tv_nsec = 2000000 };
	char text[128] = "", what[8], word[64], held[PATH_MAX];
	unsigned long times;

	for (;; nanosleep(&pause, NULL)) {
		int fd = open(rule_path, O_RDONLY | O_CLOEXEC);
		ssize_t n = read(fd, text, sizeof(text) - 1);
		struct stat st = { 0 };

		fstat(fd, &st);
		close(fd);
		text[n > 0 ? n : 0] = '\0';
		if (sscanf(text, "%7s %lu %63s", what, &times, word) != 3 ||
		    memmem(bytes, len, word, strlen(word)) == NULL)
			return 0;
		/* A new rule is a new file. */
		if (atomic_exchange(&rule_inode, st.st_ino) != st.st_ino)
			failures = 0;
		if (strcmp(what, "fail") == 0)
			return times == 0 || failures++ < times ? -EIO : 0;
		snprintf(held, sizeof(held), "%s.held", rule_path);
		close(open(held, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	}
}

static int
disk_getattr(const char *path, struct stat *st, struct fuse_file_info *info)
{
	(void)info;
	if (fstat(disk, st) < 0)
		return -errno;
	if (strcmp(path, "/") == 0)
		st->st_mode = S_IFDIR | 0755;
	return strcmp(path, "/") == 0 || strcmp(path, "/disk") == 0 ? 0
								    : -ENOENT;
}

static int
disk_read(const char *path, char *bytes, size_t len, off_t at,
    struct fuse_file_info *info)
{
	ssize_t n = pread(disk, bytes, len, at);

	(void)path;
	(void)info;
	return n < 0 ? -errno : (int)n;
}

static int
disk_write(const char *path, const char *bytes, size_t len, off_t at,
    struct fuse_file_info *info)
{
	(void)path;
	(void)info;
	if (obey(bytes, len) < 0)
		return -EIO;
	return pwrite(disk, bytes, len, at) < 0 ? -errno : (int)len;
}

int
main(int argc, char **argv)
{
	static const struct fuse_operations operations = {
		.getattr = disk_getattr,
		.read = disk_read,
		.write = disk_write,
	};
	char *arguments[] = { argv[0], "-f", argv[3], NULL };

	disk = argc == 4 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
	if (disk < 0)
		return EXIT_FAILURE;
	rule_path = argv[2];
	return fuse_main(3, arguments, &operations, NULL);
}
