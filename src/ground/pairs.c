/* pairs: a sorted list that may be larger than memory.  See ground/pairs.h. */
#include "ground/pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ground/file.h"

#define BUFFER_PAIRS ((size_t)16 << 10)

int
pairs_init(struct pairs *pairs)
{
	*pairs = (struct pairs){ .fd = -1 };
	pairs->buffer = malloc(BUFFER_PAIRS * sizeof(*pairs->buffer));
	return pairs->buffer == NULL ? -1 : 0;
}

void
pairs_done(struct pairs *pairs)
{
	int error = errno;

	if (pairs->map != NULL && pairs->map != pairs->buffer)
		munmap(pairs->map, pairs->n * sizeof(*pairs->map));
	if (pairs->buffer != NULL && pairs->fd >= 0)
		close(pairs->fd);
	free(pairs->buffer);
	*pairs = (struct pairs){ .fd = -1 };
	errno = error;
}

/* Write instead of mapping: a full disk gives an error, not SIGBUS. */
static int
flush(struct pairs *pairs)
{
	size_t len = pairs->buffered * sizeof(*pairs->buffer);
	uint64_t at = (pairs->n - pairs->buffered) * sizeof(*pairs->buffer);
	char name[] = "/var/tmp/plant-store-XXXXXX";

	if (pairs->fd < 0) {
		pairs->fd = mkostemp(name, O_CLOEXEC);
		if (pairs->fd < 0)
			return -1;
		unlink(name);
	}
	pairs->buffered = 0;
	return file_write_all(pairs->fd, pairs->buffer, len, at);
}

int
pairs_add(struct pairs *pairs, int64_t key, uint64_t value)
{
	if (pairs->buffered == BUFFER_PAIRS && flush(pairs) < 0)
		return -1;
	pairs->buffer[pairs->buffered++] = (struct pair){ key, value };
	pairs->n++;
	return 0;
}

static bool
is_less(const struct pair *x, const struct pair *y)
{
	return x->key < y->key || (x->key == y->key && x->value < y->value);
}

/* Quicksort; it recurses into the smaller part, so the stack stays small. */
static void
sort(struct pair *pairs, size_t n, uint64_t *seed)
{
	while (n > 1) {
		/* Knuth's MMIX LCG; a random seed hides the pivots. */
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
pairs_order(struct pair *array, size_t n)
{
	uint64_t seed = 0;

	/* If this fails, a client could at worst make the sort slow. */
	(void)!getentropy(&seed, sizeof(seed));
	sort(array, n, &seed);
}

int
pairs_sort(struct pairs *pairs)
{
	void *map = pairs->buffer;

	if (pairs->fd >= 0) {
		if (flush(pairs) < 0)
			return -1;
		map = mmap(NULL, pairs->n * sizeof(*pairs->map),
		    PROT_READ | PROT_WRITE, MAP_SHARED, pairs->fd, 0);
		if (map == MAP_FAILED)
			return -1;
	}
	pairs->map = map;
	pairs_order(pairs->map, pairs->n);
	return 0;
}
