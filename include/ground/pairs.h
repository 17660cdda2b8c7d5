/*
 * pairs: a sorted list of key-value pairs, which may be larger than memory.  A
 * long list is kept in an unnamed file, which is mapped and sorted in place, so
 * the kernel can reclaim its memory.  Sorting 10 million pairs takes 1.4 s.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct pair {
	int64_t key;
	uint64_t value; /* no two pairs have the same key and value */
};

struct pairs {
	int fd; /* the file; -1: all pairs are in the buffer */
	size_t n;
	struct pair *buffer; /* the pairs that are not in the file */
	size_t buffered;
	struct pair *map; /* once sorted: n pairs, by key and then by value */
};

/*
 * pairs_init(pairs):
 * Create an empty list.  The file of a long list is in /var/tmp.  Return 0, or
 * -1 with ENOMEM.
 *
 * pairs_done(pairs):
 * Free the list.  A zeroed list is allowed.  errno is unchanged.
 *
 * pairs_add(pairs, key, value), pairs_sort(pairs):
 * Add a pair.  Sort all pairs into pairs->map, in O(n log n) even if clients
 * choose the keys to slow it down.  Return 0, or -1 with errno, such as ENOSPC.
 *
 * pairs_order(array, n):
 * Sort an array of pairs in memory in the same way.
 */
int pairs_init(struct pairs *pairs);
void pairs_done(struct pairs *pairs);
int pairs_add(struct pairs *pairs, int64_t key, uint64_t value);
int pairs_sort(struct pairs *pairs);
void pairs_order(struct pair *array, size_t n);
