/* file: see ground/file.h. */
#include "ground/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int
file_write_all(int fd, const void *buf, size_t len, uint64_t offset)
{
	const char *from = buf;

	while (len > 0) {
		ssize_t n = pwrite(fd, from, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = ENOSPC;
		if (n <= 0)
			return -1;
		from += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

ssize_t
file_read_all(int fd, void *buf, size_t len, uint64_t offset)
{
	char *to = buf;
	size_t have = 0;

	while (have < len) {
		ssize_t n =
		    pread(fd, to + have, len - have, (off_t)(offset + have));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

int
rename_new(int dir, const char *from, const char *to)
{
	if (renameat2(dir, from, dir, to, RENAME_NOREPLACE) == 0)
		return 0;
	/* NFS has no such rename, but its links replace nothing either. */
	if (errno != EINVAL || linkat(dir, from, dir, to, 0) < 0)
		return -1;
	return unlinkat(dir, from, 0);
}
