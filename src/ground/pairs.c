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

/* Quicksort; it recurses into the smaller part: the stack stays small. */
static void
sort(struct pair *pairs, size_t n, uint64_t *seed)
{
	while (n > 1) {
		/* Knuth's MMIX; a random seed hides pivots from clients. */
		*seed = *seed * 6364136223846793005 + 1442695040888963407;
		const struct pair pivot = pairs[(*seed >> 32) % n];
		size_t i = 0, j = n - 1;

		for (;; i++, j--) {
			while (is_less(&pairs[i], &pivot))
				i++;
			while (is_less(&pivot, &pairs[j]))
				j--;
			if (i >= j)
				break;
			struct pair pair = pairs[i];
			pairs[i] = pairs[j];
			pairs[j] = pair;
		}
		/* No two pairs are equal: if i is 0, pairs[0] is the least. */
		size_t left = i > 0 ? i : 1;
		bool first = left < n - left;
		sort(first ? pairs : pairs + left, first ? left : n - left,
		    seed);
		pairs += first ? left : 0;
		n = first ? n - left : left;
	}
}

void
pairs_sort(struct pair *array, size_t n)
{
	uint64_t seed = 0;

	/* Without a random seed, a client could only make this slow. */
	(void)!getentropy(&seed, sizeof(seed));
	sort(array, n, &seed);
}
