/* file: see ground/file.h. */
#include "ground/file.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <libgen.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/compat.h"
#include "ground/log.h"
#include "pure/timestamp.h"

#define COPY_BYTES ((size_t)1 << 20)

/* The page cache drops whole pages, of up to 2 MiB. */
#define PAGE_BYTES_MAX ((uint64_t)2 << 20)
#define PAGE_BYTES_MIN 4096
/* The maximum number of bytes that are mapped at once. */
#define MAP_BYTES ((size_t)16 << 20)
/* A program that reads the file holds a page only for microseconds. */
#define FORGET_TIMEOUT_MS 1000
#define FORGET_PAUSE_NS 500000L

/* No file has a page at this offset, so a call there waits for none. */
#define NO_PAGE ((uint64_t)1 << 62)

int
file_write_all(int fd, const void *buf, size_t len, uint64_t offset)
{
	const char *from = buf;

	while (len > 0) {
		ssize_t n = pwrite(fd, from, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
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

		if (n == 0)
			break;
		if (n < 0 && errno != EINTR)
			return -1;
		have += n > 0 ? (size_t)n : 0;
	}
	return (ssize_t)have;
}

void
file_close(int fd)
{
	int error = errno;

	if (fd >= 0)
		close(fd);
	errno = error;
}

/*
 * Open a regular file.  Another user may have put a symbolic link or a FIFO in
 * its place: do not follow the link, and do not wait for the FIFO.
 */
static int
open_regular(int dir, const char *name, int flags)
{
	int fd = openat(dir, name,
	    flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0) {
		if (S_ISREG(st.st_mode))
			return fd;
		errno = EINVAL;
	}
	file_close(fd);
	return -1;
}

int
file_copy(int from, uint64_t begin, uint64_t end, int to, uint64_t at,
    const struct watch *watch)
{
	char *buf = malloc(COPY_BYTES);
	uint64_t offset = begin;
	int error = buf == NULL ? errno : 0;

	while (error == 0 && offset < end) {
		size_t want = (size_t)MIN(end - offset, COPY_BYTES);
		ssize_t n = file_read_all(from, buf, want, offset);

		if (!watch_step(watch, offset, end))
			error = ECANCELED;
		else if (n <= 0)
			error = n < 0 ? errno : EIO;
		else if (file_write_all(
			     to, buf, (size_t)n, at + offset - begin) < 0)
			error = errno;
		offset += (uint64_t)n;
	}
	free(buf);
	errno = error;
	return error == 0 ? 0 : -1;
}

/*
 * Drop the pages of [begin, end), and set `*stays` if a page of [from, end)
 * stays cached.  Return NULL; or the failed call, with errno.  Map before
 * dropping: valgrind reads, and so caches, the beginning of a new mapping.
 */
static const char *
drop_pages(int fd, uint64_t begin, uint64_t from, uint64_t end, bool *stays)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char cached[MAP_BYTES / PAGE_BYTES_MIN];

	for (*stays = false; begin < end && !*stays; begin += MAP_BYTES) {
		size_t len = (size_t)MIN(end - begin, MAP_BYTES);
		void *map =
		    mmap(NULL, len, PROT_READ, MAP_SHARED, fd, (off_t)begin);

		if (map == MAP_FAILED)
			return "mmap";
		/* A page that extends past the range would be kept. */
		int error = posix_fadvise(
		    fd, (off_t)begin, (off_t)MAP_BYTES, POSIX_FADV_DONTNEED);
		/* If mincore does nothing, as in a sandbox, all seem cached. */
		memset(cached, 1, sizeof(cached));
		int result = mincore(map, len, cached);
		munmap(map, len);
		errno = error != 0 ? error : errno;
		if (error != 0 || result < 0)
			return error != 0 ? "posix_fadvise" : "mincore";
		for (size_t i = 0; i * page < len; i++)
			if ((cached[i] & 1) && begin + (i + 1) * page > from)
				*stays = true;
	}
	return NULL;
}

/*
 * Return whether the file is in memory, and so keeps its pages: in a tmpfs, or
 * in an overlay over one, which has the overlay's type but no extents.
 */
static bool
is_memory(int fd)
{
	struct fiemap extents = { .fm_length = FIEMAP_MAX_OFFSET };
	struct statfs fs;

	/* The number does not fit into the int of musl's ioctl. */
	return fstatfs(fd, &fs) == 0 &&
	       (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC ||
		   (fs.f_type == OVERLAYFS_SUPER_MAGIC &&
		       syscall(SYS_ioctl, fd, FS_IOC_FIEMAP, &extents) < 0 &&
		       errno == EOPNOTSUPP));
}

const char *
file_can_forget(int fd)
{
	struct stat st;
	bool stays;
	const char *failed =
	    drop_pages(fd, NO_PAGE, NO_PAGE, NO_PAGE + 1, &stays);

	if (failed != NULL || !stays)
		return failed;
	/* To a user without rights to the file, all pages seem cached. */
	errno =
	    fstat(fd, &st) == 0 && st.st_uid != geteuid() ? EBUSY : EOPNOTSUPP;
	return "mincore";
}

const char *
file_forget(int fd, uint64_t from, uint64_t end)
{
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + FORGET_TIMEOUT_MS;
	bool stays;
	const char *failed =
	    drop_pages(fd, from - from % PAGE_BYTES_MAX, from, end, &stays);

	if (failed != NULL || !stays || is_memory(fd))
		return failed;
	failed = file_can_forget(fd);
	while (failed == NULL && stays) {
		if (clock_ms(CLOCK_MONOTONIC) >= deadline_ms) {
			errno = EBUSY;
			return "mincore";
		}
		nanosleep(
		    &(struct timespec){ .tv_nsec = FORGET_PAUSE_NS }, NULL);
		failed = drop_pages(fd, 0, from, end, &stays);
	}
	return failed;
}

int
file_stat(int dir, const char *name, unsigned mask, struct statx *st)
{
	const int flags = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
	struct stat plain;

	if (statx(dir, name, flags | AT_STATX_SYNC_AS_STAT, mask, st) == 0)
		return 0;
	/* glibc does this on ENOSYS; a seccomp profile may return EPERM. */
	if ((errno != ENOSYS && errno != EPERM) ||
	    fstatat(dir, name, &plain, flags) < 0)
		return -1;
	*st = (struct statx){ .stx_ino = plain.st_ino,
		.stx_size = (uint64_t)plain.st_size,
		.stx_dev_major = major(plain.st_dev),
		.stx_dev_minor = minor(plain.st_dev) };
	return 0;
}

int
file_identify(int fd, char id[static FILE_ID_LEN + 1])
{
	struct statx st;

	if (file_stat(fd, "", STATX_INO | STATX_BTIME, &st) < 0)
		return -1;
	snprintf(id, FILE_ID_LEN + 1,
	    "%020" PRIu64 " %010" PRIu64 "%010" PRIu32, (uint64_t)st.stx_ino,
	    (uint64_t)st.stx_btime.tv_sec % 10000000000, st.stx_btime.tv_nsec);
	return 0;
}

int
file_put(int dir, const char *name, const void *buf, size_t len)
{
	int fd = open_regular(dir, name, O_WRONLY | O_CREAT);
	bool good = fd >= 0 && file_write_all(fd, buf, len, 0) == 0 &&
		    fsync(fd) == 0 && fsync(dir) == 0;
	int error = errno;
	struct stat st;

	/* Remove the empty file that a full disk leaves. */
	if (!good && fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 0)
		unlinkat(dir, name, 0);
	file_close(fd);
	errno = error;
	return good ? 0 : -1;
}

int
file_get(int dir, const char *name, void *buf, size_t len)
{
	int fd = open_regular(dir, name, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : file_read_all(fd, buf, len, 0);

	file_close(fd);
	if (n >= 0 && n < (ssize_t)len)
		errno = ENODATA;
	return n == (ssize_t)len ? 0 : -1;
}

int
file_put_time(const char *path, const char *name, int64_t ms)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), result = -1;
	char text[TIMESTAMP_LEN + 1];

	timestamp_print(ms, text);
	text[TIMESTAMP_LEN] = '\n';
	if (dir >= 0)
		result = file_put(dir, name, text, sizeof(text));
	file_close(dir);
	return result;
}

int64_t
file_get_time(const char *dir, const char *name)
{
	char path[PATH_MAX], text[TIMESTAMP_LEN];
	int64_t ms;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return file_get(AT_FDCWD, path, text, TIMESTAMP_LEN) == 0 &&
		       timestamp_read(text, TIMESTAMP_LEN, &ms) == 0
		   ? ms
		   : 0;
}

int
rename_new(int dir, const char *from, const char *to)
{
	if (renameat2(dir, from, dir, to, RENAME_NOREPLACE) == 0)
		return 0;
	/*
	 * NFS has no such rename, and a seccomp profile may refuse it.  linkat
	 * does not replace a file either.
	 */
	if ((errno != EINVAL && errno != ENOSYS && errno != EPERM) ||
	    linkat(dir, from, dir, to, 0) < 0)
		return -1;
	return unlinkat(dir, from, 0);
}

int
file_make_dir(const char *path)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	bool made = mkdir(path, 0700) == 0;
	int dir = made || errno == EEXIST ? open(path, flags) : -1;
	/* A new directory is durable once its parent is synced. */
	int parent = made && dir >= 0 ? openat(dir, "..", flags) : -1;
	bool good = !made || (parent >= 0 && fsync(parent) == 0);

	file_close(parent);
	if (!good)
		file_close(dir);
	return good ? dir : -1;
}

int
file_lstat(const char *path, struct stat *st)
{
	char name[PATH_MAX];
	size_t len = strnlen(path, sizeof(name) - 1);

	while (len > 1 && path[len - 1] == '/')
		len--;
	memcpy(name, path, len);
	name[len] = '\0';
	return lstat(name, st);
}

enum fault
file_become_owner(const char *path, uid_t owner)
{
	char parent[PATH_MAX];
	struct stat st;
	const char *why = NULL;

	snprintf(parent, sizeof(parent), "%s", path);
	if (geteuid() != 0)
		return FAULT_NONE;
	if (file_lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && st.st_uid != 0)
		why = "is another user's link";
	else if (stat(path, &st) < 0) {
		/* The caller opens `path` next and reports the error. */
		if (errno != ENOENT || stat(dirname(parent), &st) < 0)
			return FAULT_NONE;
		if (st.st_uid == 0 && owner != 0)
			why = "would belong to root, but the store does not";
		else if (st.st_uid == 0 && (st.st_mode & 022) != 0)
			why = "others could create a link there first";
	}
	if (why != NULL) {
		log_error("%s: %s; create that directory first: install -d -o "
			  "plant-store -m 0700 %s",
		    path, why, path);
		return FAULT_OUTPUT;
	}
	if (st.st_uid == 0 ||
	    (setgroups(1, &st.st_gid) == 0 &&
		setresgid(st.st_gid, st.st_gid, st.st_gid) == 0 &&
		setresuid(st.st_uid, st.st_uid, st.st_uid) == 0))
		return FAULT_NONE;
	return fault_report(path, "cannot become its owner");
}

bool
file_beside_program(const char *installed, char path[static PATH_MAX])
{
	ssize_t len =
	    readlink("/proc/self/exe", path, PATH_MAX - strlen(installed) - 1);

	if (len < 0)
		return false;
	while (len > 0 && path[len - 1] != '/')
		len--;
	strcpy(path + len, strrchr(installed, '/') + 1);
	if (access(path, F_OK) != 0)
		strcpy(path + len, installed);
	return true;
}
