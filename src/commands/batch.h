/*
 * batch: stores many plants in constant memory, in batches of one journal write
 * each.  A process has one batch.
 */
#pragma once

#include <stdint.h>

#include "plant/plant.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "store/store.h"

struct batch_entry {
	struct plant plant;
	char by[RECORD_BY_MAX + 1]; /* the name of its token */
	char at[TIMESTAMP_LEN + 1]; /* when it was stored; "": now */
	uint64_t begin, end;        /* for the caller: the entry's source */
};

extern struct batch {
	struct store *store; /* set by the caller, like the next two */
	void (*report)(
	    const struct batch_entry *entry, enum store_result result);
	size_t plant_max; /* the longest plant, as JSON */
	enum fault fault; /* the store's first, already logged */
	uint64_t results[STORE_FAILED + 1];
} batch;

/*
 * batch_add(entry), batch_commit():
 * Add a copy of the entry, and take over its plant; if the batch is then full,
 * commit it.  Store all added entries; count and report each result.
 */
void batch_add(const struct batch_entry *entry);
void batch_commit(void);
