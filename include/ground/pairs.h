/*
 * pairs: a list of key-value pairs, and their sort.  A list that may be larger
 * than memory is in an unnamed file of /var/tmp, which is mapped.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct pair {
	int64_t key;
	uint64_t value; /* no two pairs have the same key and value */
};

/* A zeroed list is empty. */
struct pairs {
	struct pair *map;
	size_t n, room;
};

/*
 * pairs_add(pairs, key, value):
 * Add a pair.  Return 0, or -1 with errno, such as ENOSPC.
 *
 * pairs_done(pairs):
 * Free the list.  errno is unchanged.
 *
 * pairs_sort(array, n):
 * Sort by key and then by value, in O(n^(4/3)) for any order of keys, since
 * clients choose them: 10 million pairs in at most 2.5 s.
 */
int pairs_add(struct pairs *pairs, int64_t key, uint64_t value);
void pairs_done(struct pairs *pairs);
void pairs_sort(struct pair *array, size_t n);
