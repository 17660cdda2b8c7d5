/* gather: building the index.  See gather.h. */
#include "gather.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ground/log.h"

#define CHUNK_MIN ((size_t)64)

/* The file of what is set aside, for the moment in which it has a name. */
#define ASIDE_NAME "index/aside"

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
	log_warning("%s/index: stopped before it was built; the next start %s",
	    g->store->path, g->build ? "begins anew" : "goes on");
	return FAULT_STOPPED;
}

/* In the log, where nobody watches. */
static void
tell_progress(struct gather *g, uint64_t done, uint64_t all, const char *what)
{
	struct timespec now;

	if (g->store->watch != NULL)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (g->told != 0 && now.tv_sec - g->told >= PROGRESS_S)
		log_info("index: %" PRIu64 "%% of %s/" JOURNAL_NAME " %s",
		    done * 100 / all, g->store->path, what);
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

/* Into the index transaction that has begun; the first one has `nth` 1. */
static enum fault
put_pair(struct gather *g, const struct pair *pair, uint64_t nth,
    const struct position *at)
{
	uint64_t found;

	switch (index_put(g->store->index, pair->id, pair->offset, &found)) {
	case INDEX_FOUND:
		return refuse_second(g->store, pair, found);
	case INDEX_ERROR:
		return state_index_failed(g->store);
	case INDEX_NEW:
		break;
	}
	return nth % WATCH_PLANTS == 0 ? ask_watch(g, at) : FAULT_NONE;
}

static enum fault
put_chunk(struct gather *g, const struct position *at)
{
	enum fault fault = FAULT_NONE;

	for (size_t i = 0; i < g->n && fault == FAULT_NONE; i++)
		fault = put_pair(g, &g->pairs[i], i + 1, at);
	return fault;
}

static enum fault
commit_part(struct gather *g, uint64_t plants)
{
	if (index_commit_part(g->store->index) < 0)
		return state_index_failed(g->store);
	tell_progress(g, plants, g->aside, "entered");
	return FAULT_NONE;
}

static enum fault
aside_unreadable(const struct store *store)
{
	log_error("%s/index: cannot read back what was sorted for it: %s",
	    store->path, strerror(errno));
	return state_fault(errno);
}

/* All but the last of it is committed on the way. */
static enum fault
put_aside(struct gather *g, const struct position *at)
{
	struct pair pair;
	uint64_t nth = 0;
	int more;

	if (runs_merge(g->runs, g->pairs, 2 * g->size) < 0)
		return aside_unreadable(g->store);
	while ((more = runs_next(g->runs, &pair)) > 0) {
		enum fault fault = put_pair(g, &pair, ++nth, at);

		if (fault == FAULT_NONE && nth % (g->chunk / 2) == 0)
			fault = commit_part(g, nth);
		if (fault != FAULT_NONE)
			return fault;
	}
	return more < 0 ? aside_unreadable(g->store) : FAULT_NONE;
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

static enum fault
set_aside(struct gather *g)
{
	sort_pairs(g->pairs, g->pairs + g->size, g->n);
	if (g->runs == NULL)
		g->runs = runs_new(g->store->dir, ASIDE_NAME);
	if (g->runs == NULL || runs_add(g->runs, g->pairs, g->n) < 0)
		return state_unwritten(g->store, "index");
	g->aside += g->n;
	g->n = 0;
	return FAULT_NONE;
}

/* The sorted chunk, or all that was set aside. */
static enum fault
enter(struct gather *g, const struct position *at)
{
	struct store *store = g->store;

	for (bool again = false;; again = true) {
		enum fault fault =
		    g->runs == NULL ? put_chunk(g, at) : put_aside(g, at);

		if (fault != FAULT_NONE)
			return fault;
		int result = index_commit(store->index, at);
		int error = errno;
		if (index_begin(store->index, &g->covered) == 0) {
			if (result == 0)
				return FAULT_NONE;
			/*
			 * Where room was made a moment ago, EIO is no more.
			 * Of what was set aside some is entered already.
			 */
			if (error == EIO && !again && g->runs == NULL)
				continue;
			errno = error;
		}
		return state_index_failed(store);
	}
}

enum fault
gather_enter(struct gather *g, const struct position *at)
{
	struct store *store = g->store;
	enum fault fault = FAULT_NONE;

	if (g->n == 0 && g->runs == NULL)
		return FAULT_NONE;
	/* The process that wrote it may have died before its sync. */
	if (!g->synced && journal_sync(&store->journal) < 0)
		return state_poison(store, "fdatasync");
	g->synced = true;
	if (g->runs == NULL)
		sort_pairs(g->pairs, g->pairs + g->size, g->n);
	else if (g->n > 0)
		fault = set_aside(g);
	if (fault == FAULT_NONE)
		fault = enter(g, at);
	g->n = 0;
	/* A part of an index only takes room. */
	if (fault != FAULT_NONE && g->runs != NULL)
		index_condemn(store->index);
	return fault;
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
	if (g->n < g->chunk)
		return FAULT_NONE;
	enum fault fault = g->build ? set_aside(g) : gather_enter(g, at);
	if (fault == FAULT_NONE)
		tell_progress(g, at->end, g->store->journal.size, "read");
	return fault;
}

void
gather_done(struct gather *g)
{
	runs_free(g->runs);
	free(g->pairs);
}
