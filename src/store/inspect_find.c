/*
 * inspect_find: plants, by their ids.  See store/inspect.h.
 *
 * Happy path: under the lock nobody changes the index, so ids are looked up
 * there, some at a time, and believed once their records were read.  What the
 * index cannot tell, because it is missing, behind or not to be believed, is
 * looked for in the journal, from where the index ends or from its beginning.
 */
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "inspect_state.h"
#include "store/reader.h"

/* Ids looked up before others get the lock again: a millisecond. */
#define LOOK_UP_MAX ((size_t)1000)

/* What is being looked for. */
struct search {
	const int64_t *ids;
	uint64_t *offsets;
	size_t n;
	bool rest;            /* the journal's rest must be read too, ... */
	struct position from; /* ... from here */
};

/* The rest of the journal is to be read, from no later than `at`. */
static void
want_rest(struct search *search, const struct position *at)
{
	if (!search->rest || at->end < search->from.end)
		search->from = *at;
	search->rest = true;
}

static int
look_up(struct inspect *inspect, struct search *search, size_t at, size_t n)
{
	struct reader *reader = inspect->reader;
	struct position covered;
	struct index *index;
	int status = reader_lock(reader);

	if (status != EX_OK)
		return status;
	status = reader_check_place(reader);
	if (status != EX_OK) {
		reader_unlock(reader);
		return status;
	}
	enum inspect_index state =
	    inspect_enter_index(inspect, &index, &covered);
	for (size_t i = at; index != NULL && i < at + n; i++) {
		switch (
		    index_find(index, search->ids[i], &search->offsets[i])) {
		case INDEX_FOUND:
			break;
		case INDEX_ERROR:
			covered = (struct position){ 0 };
			state = INSPECT_UNREADABLE;
			/* fallthrough */
		case INDEX_NEW:
			search->offsets[i] = 0;
			break;
		}
	}
	index_close(index, false);
	reader_unlock(reader);
	if (state != INSPECT_CURRENT)
		want_rest(search,
		    covered.end > 0 ? &covered : &reader->journal.start);
	return EX_OK;
}

/* What the index says is believed where the record says it too. */
static void
check_found(struct inspect *inspect, struct search *search)
{
	struct record record;

	for (size_t i = 0; i < search->n; i++) {
		if (search->offsets[i] == 0 ||
		    (inspect_read_at(inspect, search->offsets[i], &record) ==
			    0 &&
			record.plant != NULL && record.id == search->ids[i]))
			continue;
		search->offsets[i] = 0;
		want_rest(search, &inspect->reader->journal.start);
	}
}

/* An id that was not found, and its place in the question. */
struct wanted {
	int64_t id;
	size_t place;
};

static int
compare_wanted(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

/* Note the offset wherever the id was asked for; how often it was. */
static size_t
note_plant(const struct search *search, const struct wanted *wanted, size_t n,
    int64_t id, uint64_t offset)
{
	size_t low = 0, high = n, found;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (wanted[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	for (found = low; found < n && wanted[found].id == id; found++)
		search->offsets[wanted[found].place] = offset;
	return found - low;
}

static int
read_rest(struct inspect *inspect, const struct search *search)
{
	struct wanted *wanted = malloc(search->n * sizeof(*wanted));
	struct reader *reader = inspect->reader;
	enum reader_result result = READER_PLANT;
	struct record record;
	size_t n = 0, found = 0;
	int status;

	if (wanted == NULL)
		return reader_error(reader->name, "cannot look for the ids");
	for (size_t i = 0; i < search->n; i++)
		if (search->offsets[i] == 0)
			wanted[n++] = (struct wanted){ search->ids[i], i };
	qsort(wanted, n, sizeof(*wanted), compare_wanted);
	status = reader_resume(reader, &search->from, 0);
	while (status == EX_OK && found < n && result == READER_PLANT) {
		result = reader_next(reader, &record);
		if (result == READER_PLANT)
			found += note_plant(search, wanted, n, record.id,
			    reader->replay.at.last);
	}
	free(wanted);
	if (status == EX_OK && result == READER_STOPPED)
		status = EX_TEMPFAIL;
	if (status == EX_OK && result == READER_FAILED)
		status = reader_status(reader);
	return status;
}

int
inspect_find(
    struct inspect *inspect, const int64_t *ids, uint64_t *offsets, size_t n)
{
	struct search search = { .ids = ids, .offsets = offsets, .n = n };

	memset(offsets, 0, n * sizeof(*offsets));
	for (size_t at = 0; at < n; at += LOOK_UP_MAX) {
		size_t some = n - at < LOOK_UP_MAX ? n - at : LOOK_UP_MAX;
		int status = look_up(inspect, &search, at, some);

		if (status != EX_OK)
			return status;
	}
	check_found(inspect, &search);
	return search.rest ? read_rest(inspect, &search) : EX_OK;
}
