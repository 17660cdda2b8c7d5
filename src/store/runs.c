/*
 * runs: sorted runs written one behind the other, and merged.  See runs.h.
 *
 * Failure modes: what cannot be written or read is told, and the file is gone
 * with the process.  A run has a checksum: a pair that comes back as another
 * would become an entry of the index that looks right.
 */
#include "runs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "journal_parts.h"
#include "pure/crc32c.h"

#define RUNS_MIN ((size_t)16)

struct run {
	uint64_t at, end; /* what is not read yet: pairs of the file */
	uint32_t crc;     /* CRC-32C of all, */
	uint32_t crc_at;  /* and of what is read */
	const struct pair *next, *last; /* of its window, what is not given */
};

/* The first pair that a run still has. */
struct head {
	struct pair pair;
	size_t run;
};

struct runs {
	int fd;
	struct run *list;
	size_t n, size;
	struct pair *room;
	size_t window;     /* pairs of the room that are one run's */
	struct head *heap; /* the least comes first */
	size_t heads;
};

struct runs *
runs_new(int dir, const char *name)
{
	struct runs *runs = calloc(1, sizeof(*runs));

	if (runs == NULL)
		return NULL;
	unlinkat(dir, name, 0);
	runs->fd =
	    openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (runs->fd >= 0 && unlinkat(dir, name, 0) == 0)
		return runs;
	int error = errno;
	runs_free(runs);
	errno = error;
	return NULL;
}

int
runs_add(struct runs *runs, const struct pair *pairs, size_t n)
{
	uint64_t at = runs->n > 0 ? runs->list[runs->n - 1].end : 0;
	size_t len = n * sizeof(*pairs);

	if (runs->n == runs->size) {
		size_t size = runs->size == 0 ? RUNS_MIN : runs->size * 2;
		struct run *list =
		    realloc(runs->list, size * sizeof(*runs->list));

		if (list == NULL)
			return -1;
		runs->list = list;
		runs->size = size;
	}
	if (journal_write_all(
		runs->fd, (const char *)pairs, len, at * sizeof(*pairs)) < 0)
		return -1;
	runs->list[runs->n++] = (struct run){
		.at = at, .end = at + n, .crc = crc32c(0, pairs, len)
	};
	return 0;
}

static int
read_window(struct runs *runs, struct run *run)
{
	struct pair *window =
	    runs->room + (size_t)(run - runs->list) * runs->window;
	uint64_t left = run->end - run->at;
	size_t n = left < runs->window ? (size_t)left : runs->window;
	size_t len = n * sizeof(*window);
	ssize_t got = journal_read_some(
	    runs->fd, (char *)window, len, run->at * sizeof(*window));

	if (got < 0)
		return -1;
	run->crc_at = crc32c(run->crc_at, window, (size_t)got);
	run->at += n;
	if ((size_t)got < len ||
	    (run->at == run->end && run->crc_at != run->crc)) {
		errno = EIO;
		return -1;
	}
	run->next = window;
	run->last = window + n;
	return 0;
}

/* 1 with the run's next pair, 0 at its end, -1. */
static int
advance(struct runs *runs, struct head *head)
{
	struct run *run = &runs->list[head->run];

	if (run->next == run->last) {
		if (run->at == run->end)
			return 0;
		if (read_window(runs, run) < 0)
			return -1;
	}
	head->pair = *run->next++;
	return 1;
}

static bool
is_before(const struct pair *a, const struct pair *b)
{
	return a->id != b->id ? a->id < b->id : a->offset < b->offset;
}

/* Let the head sink to its place among those below it. */
static void
sink(struct runs *runs, size_t place)
{
	struct head *heap = runs->heap, head = heap[place];
	size_t child;

	while ((child = 2 * place + 1) < runs->heads) {
		if (child + 1 < runs->heads &&
		    is_before(&heap[child + 1].pair, &heap[child].pair))
			child++;
		if (!is_before(&heap[child].pair, &head.pair))
			break;
		heap[place] = heap[child];
		place = child;
	}
	heap[place] = head;
}

int
runs_merge(struct runs *runs, struct pair *room, size_t n)
{
	assert(n >= runs->n);
	if (runs->n == 0)
		return 0;
	runs->room = room;
	runs->window = n / runs->n;
	runs->heap = calloc(runs->n, sizeof(*runs->heap));
	if (runs->heap == NULL)
		return -1;
	for (size_t i = 0; i < runs->n; i++) {
		struct head *head = &runs->heap[runs->heads];

		head->run = i;
		int more = advance(runs, head);
		if (more < 0)
			return -1;
		runs->heads += (size_t)more;
	}
	for (size_t place = runs->heads / 2; place-- > 0;)
		sink(runs, place);
	return 0;
}

int
runs_next(struct runs *runs, struct pair *pair)
{
	struct head *least = runs->heap;

	if (runs->heads == 0)
		return 0;
	struct pair next = least->pair;
	int more = advance(runs, least);
	if (more < 0)
		return -1;
	if (more == 0)
		*least = runs->heap[--runs->heads];
	sink(runs, 0);
	*pair = next;
	return 1;
}

void
runs_free(struct runs *runs)
{
	if (runs == NULL)
		return;
	if (runs->fd >= 0)
		close(runs->fd);
	free(runs->list);
	free(runs->heap);
	free(runs);
}
