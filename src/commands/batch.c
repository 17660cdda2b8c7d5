/* batch: see batch.h. */
#include "batch.h"

#include "command.h"
#include "store/replay.h"

/* A checkpoint of the index starts at about 8,000 plants. */
#define BATCH_PLANTS 5000

/* Each try waits up to 5 s; writing a large index may take a minute. */
#define BUSY_TRIES 24

struct batch batch;
static size_t added, bytes; /* an upper bound of the journal's lines */
static struct batch_entry entries[BATCH_PLANTS];
static struct store_item items[BATCH_PLANTS];

void
batch_commit(void)
{
	static const enum fault faults[] = { [STORE_FULL] = FAULT_FULL,
		[STORE_BUSY] = FAULT_BUSY,
		[STORE_AWAY] = FAULT_BUSY,
		[STORE_UNKNOWN] = FAULT_BUSY,
		[STORE_FAILED] = FAULT_FAILED };
	size_t n = added, done = 0;
	int tries = BUSY_TRIES;

	added = bytes = 0;
	if (n == 0)
		return;
	/* The plants' results also report a failure of the store. */
	do {
		(void)store_commit(batch.store, items + done, n - done);
		while (done < n && items[done].result != STORE_BUSY)
			done++;
	} while (done < n && --tries > 0 && command_signal == 0);
	for (size_t i = 0; i < n; i++) {
		enum store_result result = items[i].result;

		batch.results[result]++;
		batch.report(&entries[i], result);
		if (batch.fault == FAULT_NONE)
			batch.fault = faults[result];
		plant_done(&entries[i].plant);
	}
}

void
batch_add(const struct batch_entry *entry)
{
	struct batch_entry *copy = &entries[added];

	*copy = *entry;
	items[added++] = (struct store_item){ .plant = &copy->plant,
		.by = copy->by,
		.at = copy->at[0] != '\0' ? copy->at : NULL };
	bytes += RECORD_ENVELOPE_MAX + copy->plant.len;
	if (added == BATCH_PLANTS ||
	    bytes + RECORD_ENVELOPE_MAX + batch.plant_max > JOURNAL_APPEND_MAX)
		batch_commit();
}
