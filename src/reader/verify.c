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
#include "ground/pairs.h"

/* Between two steps of progress. */
#define STEP_PAIRS 32768

#define REMEDY "remove that directory: the next start builds it again"

/* Check all lines, and sort the ids and offsets of their plants. */
static enum fault
collect_pairs(struct store_reader *reader, struct pairs *pairs)
{
	struct record record;
	int result = 0;

	while (result == 0 && journal_reader.next(reader, &record))
		result = pairs_add(pairs, record.id, reader->replay.at.last);
	if (reader->fault == FAULT_NONE && result < 0)
		reader->fault = fault_report("/var/tmp", "cannot write there");
	pairs_sort(pairs->map, pairs->n);
	return reader->fault;
}

/* Its runs do not change, so no lock is needed. */
static enum fault
compare_index(const struct store_reader *reader, const struct pairs *pairs)
{
	const struct index_view *view = &reader->view;
	const char *path = reader->journal.path;
	uint64_t found = 0;

	for (size_t i = 0; i < pairs->n; i++) {
		if (i % STEP_PAIRS == 0 &&
		    !watch_step(reader->watch, i, pairs->n))
			return FAULT_STOPPED;
		const struct pair *pair = &pairs->map[i];
		if (pair->value >= view->covered.end)
			continue;
		found++;
		if (index_find(view->index, pair->key) == pair->value)
			continue;
		log_error("%s/index: does not have the plant %" PRId64
			  " at byte %" PRIu64 "; " REMEDY,
		    path, pair->key, pair->value);
		return FAULT_DAMAGED;
	}
	if (found == view->entries)
		return FAULT_NONE;
	log_error("%s/index: has %" PRIu64 " plants, and the journal %" PRIu64
		  "; " REMEDY,
	    path, view->entries, found);
	return FAULT_DAMAGED;
}

static enum fault
verify_all(struct store_reader *reader, struct pairs *pairs,
    struct reader_report *report)
{
	if (reader->view.state == INDEX_UNUSABLE) {
		log_error("%s/index: damaged; " REMEDY, reader->journal.path);
		return FAULT_DAMAGED;
	}
	enum fault fault = collect_pairs(reader, pairs);
	*report = reader->report;
	report->bytes = reader->replay.at.end;
	report->index = reader->view.state;
	if (fault != FAULT_NONE)
		return fault;
	if (index_twins(pairs, reader->journal.name) > 0)
		return FAULT_DAMAGED;
	return report->index == INDEX_USABLE || report->index == INDEX_BEHIND
		   ? compare_index(reader, pairs)
		   : FAULT_NONE;
}

enum fault
verify_store(
    const char *path, const struct watch *watch, struct reader_report *report)
{
	const struct store_options options = { .dir = path, .watch = watch };
	struct pairs pairs = { 0 };
	enum fault fault;
	struct store_reader *reader =
	    journal_reader.open(&options, NULL, &fault);

	*report = (struct reader_report){ .bytes = 0 };
	if (reader != NULL)
		fault = verify_all(reader, &pairs, report);
	pairs_done(&pairs);
	journal_reader.close(reader);
	return fault;
}
