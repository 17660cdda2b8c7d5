/* pairs: a sorted list that may be larger than memory.  See ground/pairs.h. */
#include "ground/pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ground/file.h"

/* The most pairs that are in memory alone. */
#define MEMORY_PAIRS ((size_t)16 << 10)
/* The last gap is 2^40: no list has as many pairs. */
#define GAPS 21

void
pairs_done(struct pairs *pairs)
{
	if (pairs->map != NULL)
		munmap(pairs->map, pairs->room * sizeof(*pairs->map));
	*pairs = (struct pairs){ 0 };
}

/* Move the pairs to a map of twice the size. */
static int
grow(struct pairs *pairs)
{
	size_t room = pairs->map == NULL ? MEMORY_PAIRS : 2 * pairs->room;
	size_t len = room * sizeof(*pairs->map);
	char name[] = "/var/tmp/plant-store-XXXXXX";
	int fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *map = MAP_FAILED;

	errno = 0;
	if (room > MEMORY_PAIRS) {
		flags = MAP_SHARED;
		fd = mkostemp(name, O_CLOEXEC);
		if (fd >= 0) {
			unlink(name);
			/* Without room, SIGBUS would end the process later. */
			errno = posix_fallocate(fd, 0, (off_t)len);
		}
	}
	if (errno == 0)
		map = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);
	file_close(fd);
	if (map == MAP_FAILED)
		return -1;
	size_t n = pairs->n;
	if (n > 0)
		memcpy(map, pairs->map, n * sizeof(*pairs->map));
	pairs_done(pairs);
	*pairs = (struct pairs){ map, n, room };
	return 0;
}

int
pairs_add(struct pairs *pairs, int64_t key, uint64_t value)
{
	if (pairs->n == pairs->room && grow(pairs) < 0)
		return -1;
	pairs->map[pairs->n++] = (struct pair){ key, value };
	return 0;
}

static bool
is_less(const struct pair *x, const struct pair *y)
{
	return x->key < y->key || (x->key == y->key && x->value < y->value);
}

/*
 * Shellsort, with the gaps 4^k + 3 * 2^(k-1) + 1 and 1 (Sedgewick, 1986), which
 * no order of keys makes slower than n^(4/3).  It sorts in place, and reads the
 * list from its begin to its end, in parallel streams.
 */
void
pairs_sort(struct pair *array, size_t n)
{
	for (unsigned k = GAPS; k-- > 0;) {
		size_t power = (size_t)1 << k;
		size_t gap = k == 0 ? 1 : power * power + 3 * power / 2 + 1;

		for (size_t i = gap; i < n; i++) {
			const struct pair pair = array[i];
			size_t to = i;

			while (to >= gap && is_less(&pair, &array[to - gap])) {
				array[to] = array[to - gap];
				to -= gap;
			}
			array[to] = pair;
		}
	}
}
