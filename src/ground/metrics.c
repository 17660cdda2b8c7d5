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

#define NAME "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
#define FILE_BYTES ((size_t)4096)

struct file {
	_Atomic uint64_t kind; /* KIND; 0 in a new file */
	_Atomic uint64_t unused[7];
	_Atomic uint64_t places[METRICS_COUNT];
};
_Static_assert(sizeof(struct file) <= FILE_BYTES, "FILE_BYTES");

/* Identifies the layout: another version may have other counters. */
#define KIND                             \
	((uint64_t)METRICS_COUNT << 32 | \
	    crc32c(0, PLANT_STORE_VERSION, sizeof(PLANT_STORE_VERSION)))

static struct file own;
static void *mapping;
static struct sigaction before;
_Atomic uint64_t *metrics = own.places;
_Atomic unsigned metrics_connections;

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
	/* An allocation changes the file's time; a reader must not do that. */
	bool whole = (flags & O_CREAT) == 0 && fstat(fd, &st) == 0 &&
		     st.st_size >= (off_t)FILE_BYTES;
	errno = whole ? 0 : posix_fallocate(fd, 0, FILE_BYTES);
	if (errno == 0)
		map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		    fd, 0);
	close(fd);
	return map == MAP_FAILED ? NULL : map;
}

enum fault
metrics_open(const char *dir, bool make)
{
	const struct sigaction action = { .sa_sigaction = handle_bus,
		.sa_flags = SA_SIGINFO };
	char path[PATH_MAX + sizeof(METRICS_NAME)];

	snprintf(path, sizeof(path), "%s/" METRICS_NAME, dir);
	if (mapping == NULL)
		sigaction(SIGBUS, &action, &before);
	for (;;) {
		struct file *file = map_file(path, make ? O_CREAT : 0);
		void *earlier = mapping;
		uint64_t kind = 0;

		if (file == NULL)
			return fault_of(errno);
		mapping = file; /* before the first access, for handle_bus */
		if (file->kind == KIND || /* no write in most cases */
		    atomic_compare_exchange_strong(&file->kind, &kind, KIND) ||
		    kind == KIND) {
			metrics = file->places;
			if (earlier != NULL)
				munmap(earlier, FILE_BYTES);
			return FAULT_NONE;
		}
		mapping = earlier;
		munmap(file, FILE_BYTES);
		errno = EINVAL;
		if (!make || unlink(path) < 0)
			return FAULT_SETUP;
	}
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

static bool
read_consumer(int dir, const char *name, uint64_t bytes,
    struct metrics_consumer *consumer)
{
	uint64_t offset; /* the end of what it has read */
	char text[256] = "";
	struct stat st;
	int fd =
	    openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	/* A cursor's NAME has no dot; FILE.new and FILE.lock have one. */
	bool is =
	    fd >= 0 && fstat(fd, &st) == 0 &&
	    strlen(name) < sizeof(consumer->name) &&
	    name[strspn(name, NAME)] == '\0' &&
	    file_read_all(fd, text, sizeof(text) - 1, 0) > 0 &&
	    sscanf(text, "plant-store-cursor 1 journal %*s %*u %*u %" SCNu64,
		&offset) == 1;

	file_close(fd);
	if (!is)
		return false;
	strcpy(consumer->name, name);
	consumer->read_ms =
	    (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
	consumer->behind = offset < bytes ? bytes - offset : 0;
	return true;
}

size_t
metrics_consumers(const char *dir, uint64_t bytes,
    struct metrics_consumer list[static METRICS_CONSUMERS_MAX])
{
	char path[PATH_MAX + sizeof(METRICS_CONSUMERS) + 1];
	const struct dirent *entry;
	size_t n = 0;

	snprintf(path, sizeof(path), "%s/" METRICS_CONSUMERS, dir);
	DIR *names = opendir(path);
	while (names != NULL && n < METRICS_CONSUMERS_MAX &&
	       (entry = readdir(names)) != NULL)
		n +=
		    read_consumer(dirfd(names), entry->d_name, bytes, &list[n]);
	if (names != NULL)
		closedir(names);
	return n;
}

uint64_t
metrics_free_bytes(const char *dir)
{
	struct statvfs st;

	return statvfs(dir, &st) == 0 ? (uint64_t)st.f_bavail * st.f_frsize
				      : METRICS_UNKNOWN;
}
