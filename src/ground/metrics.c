/* metrics: the mapped file of counters.  See ground/metrics.h. */
#include "ground/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ground/file.h"
#include "pure/crc32c.h"
#include "pure/timestamp.h"

#define NAME "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
#define BACKUP_NAME "last-backup"
#define VERIFIED_NAME "last-verified"
#define FILE_BYTES ((size_t)4096)

struct file {
	_Atomic uint64_t kind; /* KIND; 0 in a new file */
	_Atomic uint64_t unused[7];
	_Atomic uint64_t places[METRICS_COUNT];
};
_Static_assert(sizeof(struct file) <= FILE_BYTES, "FILE_BYTES");

/* Marks the layout: another version may have other counters. */
#define KIND                             \
	((uint64_t)METRICS_COUNT << 32 | \
	    crc32c(0, PLANT_STORE_VERSION, sizeof(PLANT_STORE_VERSION)))

static struct file own;
static void *mapping;
static char directory[PATH_MAX]; /* of the mapped file, or "" */
static struct sigaction before;
_Atomic uint64_t *metrics = own.places;
_Atomic unsigned metrics_connections;
_Atomic uint64_t metrics_healthy = METRICS_UNKNOWN;

/* On SIGBUS from the mapped file, count in private memory instead. */
static void
handle_bus(int number, siginfo_t *info, void *context)
{
	char *at = info->si_addr, *begin = mapping;

	(void)number;
	(void)context;
	if (at < begin || at >= begin + FILE_BYTES ||
	    mmap(mapping, FILE_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		sigaction(SIGBUS, &before, NULL);
}

/* Allocate and map the file; NULL with errno. */
static struct file *
map_file(const char *path, int flags)
{
	int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
	void *map = MAP_FAILED;
	struct stat st;

	if (fd < 0)
		return NULL;
	/* It changes the time of the file, which a reader shall not. */
	bool whole = (flags & O_CREAT) == 0 && fstat(fd, &st) == 0 &&
		     st.st_size >= (off_t)FILE_BYTES;
	errno = whole ? 0 : posix_fallocate(fd, 0, FILE_BYTES);
	if (errno == 0)
		map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		    fd, 0);
	close(fd);
	return map == MAP_FAILED ? NULL : (mapping = map);
}

enum fault
metrics_open(const char *dir, bool make)
{
	const struct sigaction action = { .sa_sigaction = handle_bus,
		.sa_flags = SA_SIGINFO };
	enum fault fault = FAULT_SETUP;
	char path[PATH_MAX + sizeof(METRICS_NAME)];

	snprintf(path, sizeof(path), "%s/" METRICS_NAME, dir);
	if (mapping == NULL)
		sigaction(SIGBUS, &action, &before);
	do {
		void *earlier = mapping;
		struct file *file = map_file(path, make ? O_CREAT : 0);
		uint64_t kind = 0;

		if (file == NULL)
			fault = fault_of(errno);
		else if (file->kind == KIND || /* no write in most cases */
			 atomic_compare_exchange_strong(
			     &file->kind, &kind, KIND) ||
			 kind == KIND) {
			metrics = file->places;
			snprintf(directory, sizeof(directory), "%s", dir);
			fault = FAULT_NONE;
			if (earlier != NULL)
				munmap(earlier, FILE_BYTES);
		} else {
			munmap(mapping, FILE_BYTES);
			mapping = earlier;
			errno = EINVAL;
		}
	} while (fault == FAULT_SETUP && make && unlink(path) == 0);
	return fault;
}

uint64_t
metrics_bound(enum metrics_place histogram, unsigned i)
{
	static const uint64_t bounds[METRICS_BUCKETS - 1] = { 1, 3, 10, 30, 100,
		300, 1000, 3000, 10000, 30000 };

	/* Times are in microseconds: from 100 us to 3 s. */
	return bounds[i] * (histogram == METRICS_BATCH_PLANTS ? 1 : 100);
}

void
metrics_observe(enum metrics_place histogram, uint64_t value)
{
	unsigned i = 0;

	while (i < METRICS_BUCKETS - 1 && value > metrics_bound(histogram, i))
		i++;
	metrics_add(histogram + i, 1);
	metrics_add(histogram + METRICS_SUM, value);
}

int
metrics_note_backup(const char *dir, int64_t ms, bool verified)
{
	char text[TIMESTAMP_LEN + 1];
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), result = -1;

	timestamp_print(ms, text);
	text[TIMESTAMP_LEN] = '\n';
	if (fd >= 0)
		result = file_put(fd, BACKUP_NAME, text, sizeof(text));
	if (result == 0 && verified)
		result = file_put(fd, VERIFIED_NAME, text, sizeof(text));
	file_close(fd);
	return result;
}

static int64_t
read_time(const char *dir, const char *name)
{
	char path[PATH_MAX + sizeof(VERIFIED_NAME)], text[TIMESTAMP_LEN];
	int64_t ms;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return dir[0] != '\0' &&
		       file_get(AT_FDCWD, path, text, TIMESTAMP_LEN) == 0 &&
		       timestamp_read(text, TIMESTAMP_LEN, &ms) == 0
		   ? ms
		   : 0;
}

int64_t
metrics_backup_ms(const char *dir)
{
	return read_time(dir != NULL ? dir : directory, BACKUP_NAME);
}

int64_t
metrics_verified_ms(const char *dir)
{
	return read_time(dir, VERIFIED_NAME);
}

static bool
read_consumer(int dir, const char *name, struct metrics_consumer *consumer)
{
	char text[256] = "";
	struct stat st;
	int fd =
	    openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	/* FILE.new and FILE.lock are no cursors. */
	bool is =
	    fd >= 0 && fstat(fd, &st) == 0 && strchr(name, '.') == NULL &&
	    strlen(name) < sizeof(consumer->name) &&
	    name[strspn(name, NAME)] == '\0' &&
	    file_read_all(fd, text, sizeof(text) - 1, 0) > 0 &&
	    sscanf(text, "plant-store-cursor 1 journal %*s %*u %*u %" SCNu64,
		&consumer->offset) == 1;

	file_close(fd);
	if (!is)
		return false;
	strcpy(consumer->name, name);
	consumer->read_ms =
	    (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
	uint64_t bytes = metrics[METRICS_STORE_BYTES];
	consumer->behind =
	    consumer->offset < bytes ? bytes - consumer->offset : 0;
	return true;
}

size_t
metrics_consumers(
    const char *dir, struct metrics_consumer list[static METRICS_CONSUMERS_MAX])
{
	char path[PATH_MAX + sizeof(METRICS_CONSUMERS) + 1];
	const struct dirent *entry;
	size_t n = 0;

	snprintf(path, sizeof(path), "%s/" METRICS_CONSUMERS,
	    dir != NULL ? dir : directory);
	DIR *names = opendir(path);
	while (names != NULL && n < METRICS_CONSUMERS_MAX &&
	       (entry = readdir(names)) != NULL)
		n += read_consumer(dirfd(names), entry->d_name, &list[n]);
	if (names != NULL)
		closedir(names);
	return n;
}

uint64_t
metrics_free_bytes(void)
{
	struct statvfs st;

	return statvfs(directory, &st) == 0
		   ? (uint64_t)st.f_bavail * st.f_frsize
		   : METRICS_UNKNOWN;
}
