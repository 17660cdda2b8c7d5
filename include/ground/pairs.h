/*
 * pairs: pairs of a key and a value, of any number, sorted.
 *
 * Many of them are in a file without a name, which is mapped and sorted in
 * place: memory that the kernel may take back.  10 million take 1.4 s to sort.
 */
#ifndef GROUND_PAIRS_H
#define GROUND_PAIRS_H

#include <stddef.h>
#include <stdint.h>

struct pair {
	int64_t key;
	uint64_t value; /* no two pairs have the same key and value */
};

struct pairs {
	int fd; /* of the file; -1: all are in the buffer */
	int dir;
	size_t n;
	struct pair *buffer; /* those not in the file */
	size_t buffered;
	struct pair *map; /* once sorted: n pairs, by key and then by value */
};

/*
 * pairs_init(pairs, dir):
 * Begin a list whose file, if it needs one, is in the directory `dir`; with
 * AT_FDCWD, in /var/tmp.  0; -1 with ENOMEM.
 *
 * pairs_done(pairs):
 * Free it; also if it was not begun, but all zero.  errno stays.
 *
 * pairs_add(pairs, key, value), pairs_sort(pairs):
 * Add a pair; sort all into pairs->map, in n log n for any order of keys, which
 * clients may have chosen.  0, or -1 with errno: ENOSPC and the like.
 *
 * pairs_find(pairs, key):
 * Return the least value of that key in a sorted list, or 0.
 */
int pairs_init(struct pairs *pairs, int dir);
void pairs_done(struct pairs *pairs);
int pairs_add(struct pairs *pairs, int64_t key, uint64_t value);
int pairs_sort(struct pairs *pairs);
uint64_t pairs_find(const struct pairs *pairs, int64_t key);

#endif
