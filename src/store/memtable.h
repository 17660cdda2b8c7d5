/*
 * memtable: the plants after those in the runs that this process uses: pairs of
 * ids and offsets, in order of offset, with a hash table of the ids.  A zeroed
 * struct is an empty table.  Threads: one at a time.
 */
#pragma once

#include "ground/pairs.h"

struct memtable {
	struct pair *pairs;
	size_t n, max;   /* in use; allocated */
	uint32_t *slots; /* an index into `pairs`, plus 1; 0: free */
	unsigned bits;   /* the number of slots, as a power of two */
	uint64_t seed;   /* so that clients cannot choose ids that collide */
};

/*
 * memtable_find(table, id):
 * Return the offset of the plant, or 0 if the table does not have it.
 *
 * memtable_add(table, id, offset):
 * Add the plant; its offset must be above all others.  Return 0; 1 if the table
 * has the id already; -1 with ENOMEM.
 *
 * memtable_keep(table, n), memtable_drop(table, n):
 * Remove all but the first n plants.  Remove the first n plants.
 *
 * memtable_done(table):
 * Remove all plants, and free the memory.
 */
uint64_t memtable_find(const struct memtable *table, int64_t id);
int memtable_add(struct memtable *table, int64_t id, uint64_t offset);
void memtable_keep(struct memtable *table, size_t n);
void memtable_drop(struct memtable *table, size_t n);
void memtable_done(struct memtable *table);
