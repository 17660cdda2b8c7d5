/* gather: building the index.  See gather.h. */
#include "gather.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ground/log.h"

/* Entered in one index transaction.  128 MiB of memory for building an index. */
#define CHUNK_MAX ((size_t)4 << 20)
#define CHUNK_MIN ((size_t)64)

/* Seconds between two lines of progress. */
#define PROGRESS_S 2

/* A watch is asked after so many bytes read, or plants entered. */
#define WATCH_BYTES ((uint64_t)1 << 20)
#define WATCH_PLANTS ((size_t)1 << 14)

static enum fault
ask_watch(struct gather *g, const struct position *at)
{
	const struct watch *watch = g->store->watch;

	g->stepped = at->end;
	if (watch == NULL || watch->step == NULL ||
	    watch->step(watch->context, at->end, g->store->journal.size))
		return FAULT_NONE;
	log_warning("%s/index: stopped before it was built; the next start "
		    "goes on",
	    g->store->path);
	return FAULT_STOPPED;
}

static void
tell_progress(struct gather *g, const struct position *at)
{
	struct timespec now;
	uint64_t size = g->store->journal.size;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (g->told != 0 && now.tv_sec - g->told >= PROGRESS_S && size > 0)
		log_info("index: %" PRIu64 "%% of %s/" JOURNAL_NAME " read",
		    at->end * 100 / size, g->store->path);
	if (g->told == 0 || now.tv_sec - g->told >= PROGRESS_S)
		g->told = now.tv_sec;
}

enum fault
gather_watch(struct gather *g, const struct position *at)
{
	return at->end - g->stepped < WATCH_BYTES ? FAULT_NONE
						  : ask_watch(g, at);
}

/* The index has at `found` what the journal has at another place. */
static enum fault
refuse_second(struct store *store, const struct pair *pair, uint64_t found)
{
	struct record record;

	if (found != pair->offset &&
	    journal_read(&store->journal, found, &record, &store->line,
		&store->line_size) == 0 &&
	    record.plant != NULL && record.id == pair->id) {
		log_error("%s/" JOURNAL_NAME ": the plant %" PRId64
			  " is stored twice, at the bytes %" PRIu64
			  " and %" PRIu64 "; restore the journal from a backup",
		    store->path, pair->id, found, pair->offset);
		return FAULT_DAMAGED;
	}
	log_error("%s/index: has the plant %" PRId64
		  " before it was read from " JOURNAL_NAME
		  "; removing it: the next start builds it anew",
	    store->path, pair->id);
	index_condemn(store->index);
	return FAULT_FAILED;
}

/* Into the index transaction that has begun. */
static enum fault
put_pairs(struct gather *g, const struct position *at)
{
	struct store *store = g->store;
	enum fault fault = FAULT_NONE;
	uint64_t found;

	for (size_t i = 0; i < g->n && fault == FAULT_NONE; i++) {
		const struct pair *pair = &g->pairs[i];

		switch (
		    index_put(store->index, pair->id, pair->offset, &found)) {
		case INDEX_NEW:
			if (i % WATCH_PLANTS == WATCH_PLANTS - 1)
				fault = ask_watch(g, at);
			break;
		case INDEX_FOUND:
			return refuse_second(store, pair, found);
		case INDEX_ERROR:
			return state_index_failed(store);
		}
	}
	return fault;
}

static unsigned
byte_of(int64_t id, unsigned byte)
{
	/* Turned, so that the bytes sort as the number does. */
	uint64_t order = (uint64_t)id ^ (UINT64_C(1) << 63);

	return (unsigned)(order >> (8 * byte)) & 0xff;
}

static bool
is_sorted(const struct pair *pairs, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (pairs[i - 1].id > pairs[i].id)
			return false;
	return true;
}

/*
 * By id, equal ones in the order they came in: one pass a byte, from the lowest
 * on, without the bytes in which all agree.
 */
static void
sort_pairs(struct pair *pairs, struct pair *spare, size_t n)
{
	size_t counts[8][256] = { 0 };
	struct pair *from = pairs, *to = spare;

	if (is_sorted(pairs, n))
		return;
	for (size_t i = 0; i < n; i++)
		for (unsigned byte = 0; byte < 8; byte++)
			counts[byte][byte_of(pairs[i].id, byte)]++;
	for (unsigned byte = 0; byte < 8; byte++) {
		size_t *places = counts[byte], place = 0;

		if (places[byte_of(pairs[0].id, byte)] == n)
			continue;
		for (unsigned value = 0; value < 256; value++) {
			size_t count = places[value];

			places[value] = place;
			place += count;
		}
		for (size_t i = 0; i < n; i++)
			to[places[byte_of(from[i].id, byte)]++] = from[i];
		struct pair *sorted = to;
		to = from;
		from = sorted;
	}
	if (from != pairs)
		memcpy(pairs, from, n * sizeof(*pairs));
}

enum fault
gather_enter(struct gather *g, const struct position *at)
{
	struct store *store = g->store;

	if (g->n == 0)
		return FAULT_NONE;
	/* The process that wrote it may have died before its sync. */
	if (!g->synced && journal_sync(&store->journal) < 0)
		return state_poison(store, "fdatasync");
	g->synced = true;
	sort_pairs(g->pairs, g->pairs + g->size, g->n);
	for (bool again = false;; again = true) {
		enum fault fault = put_pairs(g, at);

		if (fault != FAULT_NONE)
			return fault;
		int result = index_commit(store->index, at);
		int error = errno;
		if (index_begin(store->index, &g->covered) == 0) {
			if (result == 0)
				break;
			/* Where room was made a moment ago, EIO is no more. */
			if (error == EIO && !again)
				continue;
			errno = error;
		}
		return state_index_failed(store);
	}
	g->n = 0;
	if (store->watch == NULL)
		tell_progress(g, at);
	return FAULT_NONE;
}

enum fault
gather_add(struct gather *g, int64_t id, const struct position *at)
{
	if (g->n == g->size) {
		size_t size = g->size == 0 ? CHUNK_MIN : g->size * 2;
		struct pair *pairs =
		    realloc(g->pairs, 2 * size * sizeof(*g->pairs));

		if (pairs == NULL) {
			log_error(
			    "out of memory for the ids of %zu plants", size);
			return FAULT_MEMORY;
		}
		g->pairs = pairs;
		g->size = size;
	}
	g->pairs[g->n].id = id;
	g->pairs[g->n].offset = at->last;
	g->n++;
	return g->n == CHUNK_MAX ? gather_enter(g, at) : FAULT_NONE;
}

void
gather_done(struct gather *g)
{
	free(g->pairs);
}
