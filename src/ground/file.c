/* file: see ground/file.h. */
#include "ground/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "ground/compat.h"

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
file_put(int dir, const char *name, const void *buf, size_t len)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	int result = fd < 0 || file_write_all(fd, buf, len, 0) < 0 ||
			     fsync(fd) < 0 || fsync(dir) < 0
			 ? -1
			 : 0;
	int error = errno;

	if (fd >= 0)
		close(fd);
	errno = error;
	return result;
}

int
file_get(int dir, const char *name, void *buf, size_t len)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : file_read_all(fd, buf, len, 0);
	int error = n < 0 ? errno : EBADMSG;

	if (fd >= 0)
		close(fd);
	errno = error;
	return n == (ssize_t)len ? 0 : -1;
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
