/* run: see run.h. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pure/crc32c.h"

static size_t
count_firsts(uint64_t n)
{
	return (size_t)((n + RUN_PAGE_PAIRS - 1) / RUN_PAGE_PAIRS);
}

const char *
run_name(uint64_t number, char name[static RUN_NAME_MAX])
{
	snprintf(name, RUN_NAME_MAX, "run-%" PRIu64, number);
	return name;
}

int
run_open(int dir, const struct run *run, struct run_map *map)
{
	const size_t len = run->n * sizeof(struct pair) +
			   count_firsts(run->n) * sizeof(int64_t);
	char name[RUN_NAME_MAX], file[FILE_ID_LEN + 1];
	struct stat st;
	int fd = openat(dir, run_name(run->number, name),
	    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	void *at = MAP_FAILED;

	if (fd < 0 && errno == ELOOP)
		errno = ENOENT;
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && file_identify(fd, file) == 0) {
		errno = ENOENT;
		if (S_ISREG(st.st_mode) && run->n > 0 &&
		    (uint64_t)st.st_size == len && strcmp(file, run->file) == 0)
			at = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	}
	file_close(fd);
	if (at == MAP_FAILED)
		return -1;
	/* A lookup needs one page, not those around it. */
	madvise(at, len, MADV_RANDOM);
	*map = (struct run_map){ at, NULL, len };
	map->firsts = (const int64_t *)(map->pairs + run->n);
	return 0;
}

void
run_close(struct run_map *map)
{
	munmap(map->pairs, map->len);
}

/* Return the number of sorted keys that are not above the id. */
static size_t
count_up_to(const int64_t *keys, size_t n, int64_t id)
{
	size_t low = 0;

	while (low < n) {
		size_t middle = low + (n - low) / 2;

		if (keys[middle] <= id)
			low = middle + 1;
		else
			n = middle;
	}
	return low;
}

uint64_t
run_find(const struct run *run, const struct run_map *map, int64_t id)
{
	if (id < run->least || id > run->greatest)
		return 0;
	size_t page = count_up_to(map->firsts, count_firsts(run->n), id);
	size_t low = page > 0 ? (page - 1) * RUN_PAGE_PAIRS : 0;
	size_t high =
	    run->n - low < RUN_PAGE_PAIRS ? run->n : low + RUN_PAGE_PAIRS;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (map->pairs[middle].key < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < run->n && map->pairs[low].key == id ? map->pairs[low].value
							 : 0;
}

bool
run_is_whole(const struct run *run, const struct run_map *map)
{
	return crc32c(0, map->pairs, run->n * sizeof(struct pair)) == run->crc;
}

int
run_begin(struct run_writer *writer, int dir, uint64_t last, uint64_t max)
{
	char name[RUN_NAME_MAX];

	writer->run = (struct run){ .number = last };
	writer->dir = dir;
	writer->used = 0;
	writer->firsts = malloc(count_firsts(max) * sizeof(*writer->firsts));
	if (writer->firsts == NULL)
		return -1;
	/* A killed process may have left a run. */
	do
		writer->fd = openat(dir, run_name(++writer->run.number, name),
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	while (writer->fd < 0 && errno == EEXIST);
	if (writer->fd >= 0)
		return 0;
	free(writer->firsts);
	return -1;
}

static int
flush(struct run_writer *writer)
{
	const uint64_t before = writer->run.n - writer->used;
	const size_t len = writer->used * sizeof(struct pair);

	writer->used = 0;
	writer->run.crc = crc32c(writer->run.crc, writer->buffer, len);
	if (file_write_all(writer->fd, writer->buffer, len,
		before * sizeof(struct pair)) < 0)
		return -1;
	/* Sync in steps: the journal's next sync must not wait for it all. */
	return writer->run.n / RUN_STEP_PAIRS > before / RUN_STEP_PAIRS
		   ? fdatasync(writer->fd)
		   : 0;
}

int
run_put(struct run_writer *writer, struct pair pair)
{
	struct run *run = &writer->run;

	if (run->n == 0)
		run->least = pair.key;
	if (run->n % RUN_PAGE_PAIRS == 0)
		writer->firsts[run->n / RUN_PAGE_PAIRS] = pair.key;
	run->greatest = pair.key;
	run->n++;
	writer->buffer[writer->used++] = pair;
	return writer->used == RUN_BUFFER_PAIRS ? flush(writer) : 0;
}

int
run_end(struct run_writer *writer, bool good)
{
	struct run *run = &writer->run;
	char name[RUN_NAME_MAX];

	good = good && flush(writer) == 0 &&
	       file_write_all(writer->fd, writer->firsts,
		   count_firsts(run->n) * sizeof(*writer->firsts),
		   run->n * sizeof(struct pair)) == 0 &&
	       fsync(writer->fd) == 0 &&
	       file_identify(writer->fd, run->file) == 0;
	int error = errno;
	if (!good)
		unlinkat(writer->dir, run_name(run->number, name), 0);
	close(writer->fd);
	free(writer->firsts);
	errno = error;
	return good ? 0 : -1;
}
