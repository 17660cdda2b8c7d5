/* lock: mutual exclusion of processes, and the mark.  See lock.h. */
#include "lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ground/clock.h"

#define LOCK_NAME "lock"
#define MARK_LEN 8
#define MARK_OK "ok      "
#define MARK_FAILED "failed  "

/* Short enough to be no delay behind a sync, long enough to be no load. */
#define RETRY_NS_MIN 20000L
#define RETRY_NS_MAX 500000L

static int
open_lock(struct lock *lock, int dir, bool make)
{
	struct stat st;
	int flags = O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0);
	int fd = openat(dir, LOCK_NAME, flags, 0600);

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	lock->dir = dir;
	lock->fd = fd;
	lock->inode = st.st_ino;
	lock->make = make;
	return 0;
}

int
lock_open(struct lock *lock, int dir)
{
	return open_lock(lock, dir, true);
}

int
lock_open_present(struct lock *lock, int dir)
{
	return open_lock(lock, dir, false);
}

/* Whether the name still means the file that we locked; -1 with errno. */
static int
is_current(const struct lock *lock)
{
	struct stat st;

	if (fstatat(lock->dir, LOCK_NAME, &st, 0) < 0)
		return errno == ENOENT ? 0 : -1;
	return st.st_ino == lock->inode;
}

/* F_WRLCK or F_RDLCK on the whole file. */
static int
take(int fd, short type, int64_t deadline_ms)
{
	struct flock whole = { .l_type = type, .l_whence = SEEK_SET };
	struct timespec pause = { 0, RETRY_NS_MIN };

	while (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return -1;
		/*
		 * A blocking wait would need a signal to end it, and a signal
		 * would break libfcgi's reads; so look again, soon.
		 */
		if (clock_ms(CLOCK_MONOTONIC) >= deadline_ms) {
			errno = ETIMEDOUT;
			return -1;
		}
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < RETRY_NS_MAX)
			pause.tv_nsec *= 2;
	}
	return 0;
}

int
lock_file(int fd, int64_t deadline_ms)
{
	return take(fd, F_WRLCK, deadline_ms);
}

int
lock_file_shared(int fd, int64_t deadline_ms)
{
	return take(fd, F_RDLCK, deadline_ms);
}

void
lock_unlock_file(int fd)
{
	struct flock whole = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	fcntl(fd, F_OFD_SETLK, &whole);
}

int
lock_acquire(struct lock *lock, int64_t deadline_ms)
{
	while (lock_file(lock->fd, deadline_ms) == 0) {
		int current = is_current(lock);
		struct lock again;

		if (current > 0)
			return 0;
		if (current < 0 ||
		    open_lock(&again, lock->dir, lock->make) < 0) {
			int error = errno;

			lock_release(lock);
			errno = error;
			return -1;
		}
		close(lock->fd);
		*lock = again;
	}
	return -1;
}

void
lock_release(struct lock *lock)
{
	lock_unlock_file(lock->fd);
}

static int
take_both(struct lock *lock, int fd, short type, int64_t deadline_ms)
{
	if (lock_acquire(lock, deadline_ms) < 0)
		return -1;
	if (take(fd, type, deadline_ms) == 0)
		return 0;
	int error = errno;
	lock_release(lock);
	errno = error;
	return -1;
}

int
lock_both(struct lock *lock, int fd, int64_t deadline_ms)
{
	return take_both(lock, fd, F_WRLCK, deadline_ms);
}

int
lock_both_shared(struct lock *lock, int fd, int64_t deadline_ms)
{
	return take_both(lock, fd, F_RDLCK, deadline_ms);
}

enum lock_mark
lock_mark(const struct lock *lock, char uuid[RECORD_UUID_LEN])
{
	char text[MARK_LEN + RECORD_UUID_LEN];
	ssize_t n = pread(lock->fd, text, sizeof(text), 0);

	if (n < 0)
		return LOCK_UNREADABLE;
	if (n == 0)
		return LOCK_NEW;
	if (n < (ssize_t)sizeof(text))
		return LOCK_UNREADABLE;
	if (uuid != NULL)
		memcpy(uuid, text + MARK_LEN, RECORD_UUID_LEN);
	if (memcmp(text, MARK_OK, MARK_LEN) == 0)
		return LOCK_OK;
	return memcmp(text, MARK_FAILED, MARK_LEN) == 0 ? LOCK_FAILED
							: LOCK_UNREADABLE;
}

static int
write_mark(int fd, const char *text, size_t len, bool sync)
{
	ssize_t n = pwrite(fd, text, len, 0);

	if (n != (ssize_t)len) {
		if (n >= 0)
			errno = ENOSPC;
		return -1;
	}
	return sync ? fsync(fd) : 0;
}

int
lock_set_mark(const struct lock *lock, enum lock_mark mark,
    const char uuid[static RECORD_UUID_LEN], bool sync)
{
	char text[MARK_LEN + RECORD_UUID_LEN + 1];
	struct lock current;
	int result;

	memcpy(text, mark == LOCK_FAILED ? MARK_FAILED : MARK_OK, MARK_LEN);
	memcpy(text + MARK_LEN, uuid, RECORD_UUID_LEN);
	text[MARK_LEN + RECORD_UUID_LEN] = '\n';
	result = write_mark(lock->fd, text, sizeof(text), sync);
	/* Removed since it was locked, it would be read by nobody. */
	if (result < 0 || is_current(lock) > 0)
		return result;
	if (lock_open(&current, lock->dir) < 0)
		return -1;
	result = write_mark(current.fd, text, sizeof(text), sync);
	int error = errno;
	lock_close(&current);
	errno = error;
	return result;
}

void
lock_close(struct lock *lock)
{
	if (lock->fd >= 0)
		close(lock->fd);
	lock->fd = -1;
}
