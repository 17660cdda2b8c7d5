/*
 * memtable: open addressing, with at most half of the slots in use.  See
 * memtable.h.
 */
#include "memtable.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The minimum number of slots, as a power of two. */
#define SLOT_BITS_MIN 10

/* Return the id's slot, or the free slot where it belongs. */
static uint32_t *
find_slot(const struct memtable *table, int64_t id)
{
	const size_t mask = ((size_t)1 << table->bits) - 1;
	uint64_t x = (uint64_t)id ^ table->seed;

	/* An xorshift-multiply mix: two rounds reach every bit. */
	x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
	x = (x ^ (x >> 32) ^ table->seed) * UINT64_C(0xd6e8feb86659fd93);
	size_t slot = (size_t)(x >> 32) & mask;
	for (;; slot = (slot + 1) & mask) {
		uint32_t place = table->slots[slot];

		if (place == 0 || table->pairs[place - 1].key == id)
			return &table->slots[slot];
	}
}

uint64_t
memtable_find(const struct memtable *table, int64_t id)
{
	uint32_t place = table->n > 0 ? *find_slot(table, id) : 0;

	return place > 0 ? table->pairs[place - 1].value : 0;
}

static void
enter_all(struct memtable *table)
{
	memset(table->slots, 0, sizeof(*table->slots) << table->bits);
	for (size_t i = 0; i < table->n; i++)
		*find_slot(table, table->pairs[i].key) = (uint32_t)i + 1;
}

static int
grow(struct memtable *table)
{
	unsigned bits = table->bits == 0 ? SLOT_BITS_MIN : table->bits + 1;
	size_t max = (size_t)1 << (bits - 1);
	struct pair *pairs = realloc(table->pairs, max * sizeof(*pairs));

	if (pairs == NULL)
		return -1;
	table->pairs = pairs;
	/* If this fails, a client could at worst make lookups slow. */
	if (table->seed == 0)
		(void)!getentropy(&table->seed, sizeof(table->seed));
	uint32_t *slots = malloc(sizeof(*slots) << bits);
	if (slots == NULL)
		return -1;
	free(table->slots);
	table->slots = slots;
	table->bits = bits;
	table->max = max;
	enter_all(table);
	return 0;
}

int
memtable_add(struct memtable *table, int64_t id, uint64_t offset)
{
	if (table->n == table->max && grow(table) < 0)
		return -1;
	uint32_t *place = find_slot(table, id);
	if (*place > 0)
		return 1;
	table->pairs[table->n++] = (struct pair){ id, offset };
	*place = (uint32_t)table->n;
	return 0;
}

/* The last pair can simply be removed: no other's search passes its slot. */
void
memtable_keep(struct memtable *table, size_t n)
{
	assert(n <= table->n);
	for (; table->n > n; table->n--) {
		uint32_t *slot =
		    find_slot(table, table->pairs[table->n - 1].key);

		assert(*slot == table->n);
		*slot = 0;
	}
}

void
memtable_drop(struct memtable *table, size_t n)
{
	assert(n <= table->n);
	if (n == table->n) {
		/* Free the memory: a build used much of it. */
		memtable_done(table);
	} else if (n > 0) {
		table->n -= n;
		memmove(table->pairs, table->pairs + n,
		    table->n * sizeof(*table->pairs));
		enter_all(table);
	}
}

void
memtable_done(struct memtable *table)
{
	free(table->pairs);
	free(table->slots);
	*table = (struct memtable){ .seed = table->seed };
}
