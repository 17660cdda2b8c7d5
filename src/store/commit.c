/*
 * commit: what is appended to the journal.  See commit.h.
 *
 * Happy path, under the lock: read on what others appended, enter each id into
 * an index transaction, which finds the repeats, append the new plants with one
 * write, sync once: the results are good.  Then commit the index.
 * Failure modes: no room, everything is taken back; a failed sync, the store is
 * marked as failed for all processes and this one ends; a failed commit of the
 * index, the plants are stored and the next catch-up enters them.
 */
#include "commit.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ground/clock.h"
#include "ground/log.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "recovery.h"

/*
 * Whether the record at `offset` says the same as `plant`.  The batch built so
 * far ends at `end`.
 */
static enum fault
compare_stored(struct store *store, uint64_t offset, uint64_t end,
    const struct plant *plant, enum store_result *result)
{
	struct record record;
	int error = 0;

	if (offset >= end)
		error = EBADMSG;
	else if (offset >= store->at.end) {
		/* Entered a moment ago: it is in this batch. */
		const char *line = store->batch + (offset - store->at.end);
		const char *newline = rawmemchr(line, '\n');

		if (record_decode(line, (size_t)(newline + 1 - line),
			store->journal.seed, &record) != NULL)
			error = EBADMSG;
	} else if (journal_read(&store->journal, offset, &record, &store->line,
		       &store->line_size) < 0)
		error = errno;
	if (error == 0 && (record.plant == NULL || record.id != plant->id))
		error = EBADMSG;
	if (error == EBADMSG) {
		log_error("%s: no valid record of the plant %" PRId64
			  " at byte %" PRIu64 " of " JOURNAL_NAME ", where the "
			  "index has it; removing the index: the next start "
			  "builds it anew and checks the journal",
		    store->path, plant->id, offset);
		index_condemn(store->index);
		return FAULT_FAILED;
	}
	if (error != 0) {
		log_error("%s/" JOURNAL_NAME ": cannot read at byte %" PRIu64
			  ": %s",
		    store->path, offset, strerror(error));
		return state_fault(error);
	}
	*result = record.plant_len == plant->len &&
			  memcmp(record.plant, plant->text, plant->len) == 0
		      ? STORE_SAME
		      : STORE_CONFLICT;
	return FAULT_NONE;
}

/*
 * Enter the plants into the index transaction and encode the new ones behind
 * each other into store->batch, from store->at, of which `*at` becomes the end.
 */
static enum fault
build_batch(struct store *store, struct store_item *items, size_t n,
    struct position *at)
{
	char now[TIMESTAMP_LEN];
	uint64_t found;

	timestamp_print(clock_ms(CLOCK_REALTIME), now);
	*at = store->at;
	for (size_t i = 0; i < n; i++) {
		const struct plant *plant = items[i].plant;
		struct record record = {
			.seq = at->seq + 1,
			.safe = store->durable,
			.prev = at->crc,
			.at = now,
			.by = items[i].by,
			.by_len = strlen(items[i].by),
			.id = plant->id,
			.plant = plant->text,
			.plant_len = plant->len,
		};
		enum fault fault;

		assert(record.by_len > 0 && record.by_len <= RECORD_BY_MAX);
		switch (index_put(store->index, plant->id, at->end, &found)) {
		case INDEX_NEW:
			items[i].result = STORE_CREATED;
			at->last = at->end;
			at->end += record_encode(&record, store->journal.seed,
			    store->batch + (at->end - store->at.end));
			at->seq = record.seq;
			at->crc = record.crc;
			break;
		case INDEX_FOUND:
			fault = compare_stored(
			    store, found, at->end, plant, &items[i].result);
			if (fault != FAULT_NONE)
				return fault;
			break;
		case INDEX_ERROR:
			return state_index_failed(store);
		}
	}
	return FAULT_NONE;
}

/* Append what is in store->batch up to `at`, and sync. */
static enum fault
write_batch(struct store *store, const struct position *at)
{
	enum fault fault;

	switch (journal_append(&store->journal, store->at.end, store->batch,
	    (size_t)(at->end - store->at.end))) {
	case 0:
		break;
	case -1:
		/* All was taken back: what passes by itself does no harm. */
		if (state_fault(errno) == FAULT_FAILED)
			return state_poison(store, "write");
		fault = state_unwritten(store, JOURNAL_NAME);
		/* Nor may a power cut bring it back: it is told as refused. */
		if (journal_sync(&store->journal) < 0)
			return state_poison(store, "fdatasync");
		return fault;
	default:
		return state_poison(store, "taking back a failed write");
	}
	if (journal_sync(&store->journal) < 0)
		return state_poison(store, "fdatasync");
	store->durable = at->end;
	return FAULT_NONE;
}

/* The index transaction ends with what is durable now. */
static void
settle(struct store *store, const struct position *at, bool closed)
{
	if (index_commit(store->index, at) < 0) {
		/* The plants are stored; reading on will enter them. */
		state_index_failed(store);
		store->closed = closed;
		return;
	}
	if (store->full)
		log_info("%s: there is room again", store->path);
	store->full = false;
	store->at = *at;
	store->closed = closed;
}

void
commit_refuse(struct store_item *items, size_t n, enum fault fault)
{
	enum store_result result = fault == FAULT_FULL     ? STORE_FULL
				   : fault == FAULT_MEMORY ? STORE_BUSY
							   : STORE_FAILED;

	for (size_t i = 0; i < n; i++)
		items[i].result = result;
}

/* Room for the lines of as many items as one append may hold. */
static size_t
reserve_batch(struct store *store, const struct store_item *items, size_t n)
{
	size_t need = 0, count;

	for (count = 0; count < n; count++) {
		size_t line = RECORD_ENVELOPE_MAX + items[count].plant->len;

		if (count > 0 && need + line > JOURNAL_APPEND_MAX)
			break;
		need += line;
	}
	if (need > store->batch_size) {
		char *batch = realloc(store->batch, need);

		if (batch == NULL) {
			log_error(
			    "out of memory for a batch of %zu bytes", need);
			return 0;
		}
		store->batch = batch;
		store->batch_size = need;
	}
	return count;
}

/*
 * As many as one append may hold, up to the sync.  If `*written`, the index
 * transaction is still to be ended, by settle() with `at`.
 */
static enum fault
commit_some(struct store *store, struct store_item *items, size_t n,
    struct position *at, bool *written)
{
	enum fault fault = recovery_catch_up(store);

	*written = false;
	if (fault != FAULT_NONE)
		return fault;
	fault = build_batch(store, items, n, at);
	if (fault == FAULT_NONE && at->end > store->at.end) {
		fault = write_batch(store, at);
		*written = fault == FAULT_NONE;
	}
	if (!*written)
		index_abort(store->index);
	return fault;
}

enum fault
commit_items(struct store *store, struct store_item *items, size_t n,
    void (*tell)(void *argument), void *argument)
{
	enum fault fault = FAULT_NONE;
	struct position at;
	bool written = false;

	while (n > 0 && fault == FAULT_NONE) {
		size_t some = reserve_batch(store, items, n);

		if (some == 0) {
			fault = FAULT_MEMORY;
			break;
		}
		if (written)
			settle(store, &at, false);
		fault = commit_some(store, items, some, &at, &written);
		if (fault == FAULT_FULL) {
			/* What refers to a plant stored before may pass. */
			commit_refuse(items, some, fault);
			fault = FAULT_NONE;
		}
		if (fault == FAULT_NONE) {
			items += some;
			n -= some;
		}
	}
	commit_refuse(items, n, fault);
	tell(argument);
	if (written)
		settle(store, &at, false);
	return fault;
}

enum fault
commit_closing(struct store *store)
{
	char now[TIMESTAMP_LEN];
	char line[RECORD_ENVELOPE_MAX];
	struct record record = { .at = now };
	struct position at;
	enum fault fault = recovery_catch_up(store);

	if (fault != FAULT_NONE)
		return fault;
	at = store->at;
	if (store->closed || store->durable != at.end) {
		index_abort(store->index);
		return FAULT_NONE;
	}
	timestamp_print(clock_ms(CLOCK_REALTIME), now);
	record.seq = at.seq + 1;
	record.safe = store->durable;
	record.prev = at.crc;
	size_t len = record_encode(&record, store->journal.seed, line);
	if (journal_append(&store->journal, at.end, line, len) < 0) {
		/* Not needed; a part that stays is a torn batch to others. */
		index_abort(store->index);
		return FAULT_NONE;
	}
	at.last = at.end;
	at.end += len;
	at.seq = record.seq;
	at.crc = record.crc;
	if (!store->prepare) {
		/*
		 * A sync would cost a CGI request as much as its plant did, and
		 * gain little: lost, the line is only missing.
		 */
		store->at = at;
		store->closed = true;
		index_abort(store->index);
	} else if (journal_sync(&store->journal) < 0) {
		fault = state_poison(store, "fdatasync");
		index_abort(store->index);
	} else {
		store->durable = at.end;
		settle(store, &at, true);
	}
	return fault;
}
