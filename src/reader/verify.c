/*
 * verify: see reader/reader.h.
 *
 * Happy path: the ids and offsets of all plants are sorted, which shows that no
 * id occurs twice.  The index must have exactly the plants of the lines that it
 * covers.  Its entries never change or disappear, so the plants that are stored
 * during the check are left out by their offsets.
 */
#include "journal_reader.h"

#include <assert.h>
#include <inttypes.h>
#include <time.h>

#include "ground/log.h"

/* Ids looked up in one hold of the lock, which takes some 10 ms. */
#define SLICE 32768
/* Between slices others get the lock: they try every 0.64 ms or sooner. */
#define PAUSE_NS 1000000L

#define REMEDY "remove that directory: the next start builds it again"

struct verify {
	struct store_reader *reader;
	struct pairs pairs;  /* all ids and offsets of the journal */
	size_t next;         /* the first pair not looked up yet */
	uint64_t found;      /* pairs that the index must have and has */
	struct position now; /* the index's end, as last seen */
	struct reader_report *report;
};

static enum fault
check_index(const struct verify *v, enum fault fault)
{
	if (fault == FAULT_DAMAGED)
		log_error(
		    "%s/index: damaged; " REMEDY, v->reader->journal.path);
	return fault;
}

static enum fault
check_entry(const struct verify *v, const struct pair *pair)
{
	const char *path = v->reader->journal.path;
	uint64_t offset;
	enum fault fault = check_index(
	    v, index_find(v->reader->view.index, pair->key, &offset));

	if (fault != FAULT_NONE || offset == pair->value)
		return fault;
	if (offset == 0)
		log_error("%s/index: does not have the plant %" PRId64
			  " at byte %" PRIu64 "; " REMEDY,
		    path, pair->key, pair->value);
	else
		log_error("%s/index: has the plant %" PRId64 " at byte %" PRIu64
			  " instead of %" PRIu64 "; " REMEDY,
		    path, pair->key, offset, pair->value);
	return FAULT_DAMAGED;
}

static enum fault
compare_slice(struct verify *v)
{
	const struct index_view *view = &v->reader->view;
	assert(v->next <= v->pairs.n && v->found <= v->next);
	const size_t end = v->next + SLICE;
	enum fault fault = journal_reader_lock(v->reader);

	if (fault != FAULT_NONE)
		return fault;
	if (index_is_current(view->index))
		fault = check_index(v, index_begin(view->index, &v->now));
	else {
		v->report->index = INDEX_REPLACED;
		v->next = v->pairs.n;
	}
	while (fault == FAULT_NONE && v->next < v->pairs.n && v->next < end) {
		const struct pair *pair = &v->pairs.map[v->next++];

		if (pair->value < view->covered.end) {
			fault = check_entry(v, pair);
			v->found++;
		}
	}
	index_abort(view->index);
	journal_unlock(&v->reader->journal);
	return fault;
}

static enum fault
compare_index(struct verify *v)
{
	static const struct timespec pause = { 0, PAUSE_NS };
	const uint64_t bytes = v->report->bytes;
	const uint64_t entries = v->reader->view.entries;
	enum fault fault;

	do {
		if (!watch_step(v->reader->watch, bytes, bytes))
			return FAULT_STOPPED;
		fault = compare_slice(v);
		nanosleep(&pause, NULL);
	} while (fault == FAULT_NONE && v->next < v->pairs.n);
	if (fault != FAULT_NONE || v->report->index == INDEX_REPLACED)
		return fault;
	if (v->now.end < bytes && v->found < v->pairs.n)
		v->report->index = INDEX_BEHIND;
	if (v->found == entries)
		return FAULT_NONE;
	log_error("%s/index: has %" PRIu64 " plants, and the journal %" PRIu64
		  "; " REMEDY,
	    v->reader->journal.path, entries, v->found);
	return FAULT_DAMAGED;
}

enum fault
verify_store(
    const char *path, const struct watch *watch, struct reader_report *report)
{
	const struct store_options options = { .dir = path, .watch = watch };
	struct verify v = { .report = report };
	enum fault fault;

	*report = (struct reader_report){ .bytes = 0 };
	v.reader = journal_reader.open(&options, NULL, &fault);
	if (v.reader == NULL)
		return fault;
	fault = v.reader->view.state == INDEX_UNUSABLE
		    ? check_index(&v, FAULT_DAMAGED)
		    : journal_reader_collect(v.reader, &v.pairs);
	*report = v.reader->report;
	report->bytes = v.reader->replay.at.end;
	report->index = v.reader->view.state;
	if (fault == FAULT_NONE &&
	    index_twins(&v.pairs, v.reader->journal.name) > 0)
		fault = FAULT_DAMAGED;
	if (fault == FAULT_NONE && v.reader->view.index != NULL)
		fault = compare_index(&v);
	pairs_done(&v.pairs);
	journal_reader.close(v.reader);
	return fault;
}
