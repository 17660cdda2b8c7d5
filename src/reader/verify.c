/*
 * verify: see reader/reader.h.
 *
 * Happy path: the ids and offsets of all plants are sorted, which shows that no
 * id occurs twice.  The index must have exactly the plants of the lines that it
 * covers.  Its entries never change or disappear, so plants that are stored
 * during the check are recognized by their offsets and ignored.
 */
#include "journal_reader.h"

#include <inttypes.h>

#include "ground/log.h"

/* Between two steps of progress. */
#define STEP_PAIRS 32768

#define REMEDY "remove that directory: the next start builds it again"

struct verify {
	struct store_reader *reader;
	struct pairs pairs; /* all ids and offsets of the journal */
	struct reader_report *report;
};

static enum fault
check_entry(const struct verify *v, const struct pair *pair)
{
	const char *path = v->reader->journal.path;
	uint64_t offset = index_find(v->reader->view.index, pair->key);

	if (offset == pair->value)
		return FAULT_NONE;
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

/* Its runs do not change, so no lock is needed. */
static enum fault
compare_index(struct verify *v)
{
	const struct index_view *view = &v->reader->view;
	const uint64_t bytes = v->report->bytes;
	enum fault fault = FAULT_NONE;
	uint64_t found = 0;

	for (size_t i = 0; fault == FAULT_NONE && i < v->pairs.n; i++) {
		if (i % STEP_PAIRS == 0 &&
		    !watch_step(v->reader->watch, bytes, bytes))
			return FAULT_STOPPED;
		if (v->pairs.map[i].value >= view->covered.end)
			continue;
		fault = check_entry(v, &v->pairs.map[i]);
		found++;
	}
	if (fault == FAULT_NONE && found < v->pairs.n)
		v->report->index = INDEX_BEHIND;
	if (fault != FAULT_NONE || found == view->entries)
		return fault;
	log_error("%s/index: has %" PRIu64 " plants, and the journal %" PRIu64
		  "; " REMEDY,
	    v->reader->journal.path, view->entries, found);
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
	if (v.reader->view.state == INDEX_UNUSABLE) {
		log_error("%s/index: damaged; " REMEDY, path);
		fault = FAULT_DAMAGED;
	} else
		fault = journal_reader_collect(v.reader, &v.pairs);
	*report = v.reader->report;
	report->bytes = v.reader->replay.at.end;
	report->index = v.reader->view.state;
	if (fault == FAULT_NONE &&
	    index_twins(&v.pairs, v.reader->journal.name) > 0)
		fault = FAULT_DAMAGED;
	if (fault == FAULT_NONE && report->index == INDEX_USABLE)
		fault = compare_index(&v);
	pairs_done(&v.pairs);
	journal_reader.close(v.reader);
	return fault;
}
