/*
 * salvage: see store/salvage.h.
 *
 * Happy path: each readable record (salvage_scan) is written to a journal under
 * a temporary name, which takes its name when all is there and synced.  An index
 * from ids to offsets in the damaged file stands beside it meanwhile, to find
 * what is doubled in constant memory.  Failure modes: whatever ends it removes
 * both.
 */
#include "store/salvage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "dest.h"
#include "ground/clock.h"
#include "ground/log.h"
#include "index.h"
#include "journal.h"
#include "pure/timestamp.h"
#include "reader_state.h"
#include "salvage_scan.h"
#include "salvage_source.h"

/* One append; a record that does not fit in the rest begins the next. */
#define BATCH_BYTES ((size_t)2 << 20)

/* In one transaction of the index, whose pages are in memory until its end. */
#define PLANTS_MAX 1024

#define STEP_BYTES ((uint64_t)1 << 20)

struct salvage {
	const struct salvage_options *options;
	struct salvage_report *report;
	struct salvage_source from;
	uint64_t next_step;
	uint64_t line; /* the highest number of a line that was read */
	int dir;       /* `dest` */
	struct journal journal;
	struct position at;
	char *batch;
	size_t batch_len;
	struct index *index;
	struct position covered;
	unsigned entered;
};

static int
cannot_write(const struct salvage *s)
{
	return reader_error(s->options->dest, "cannot write");
}

static int
flush_batch(struct salvage *s)
{
	uint64_t from = s->at.end - s->batch_len;

	if (s->batch_len > 0 &&
	    journal_append(&s->journal, from, s->batch, s->batch_len) < 0)
		return cannot_write(s);
	s->batch_len = 0;
	return EX_OK;
}

/* Take the record's place in the new journal. */
static int
write_record(struct salvage *s, struct record *record)
{
	if (s->batch_len + RECORD_ENVELOPE_MAX + record->plant_len >
	    BATCH_BYTES) {
		int status = flush_batch(s);

		if (status != EX_OK)
			return status;
	}
	record->seq = s->at.seq + 1;
	record->prev = s->at.crc;
	size_t len =
	    record_encode(record, s->journal.seed, s->batch + s->batch_len);
	s->batch_len += len;
	s->at.last = s->at.end;
	s->at.end += len;
	s->at.seq = record->seq;
	s->at.crc = record->crc;
	return EX_OK;
}

/* An earlier record with the same id stands at `first`, this at `offset`. */
static int
compare_twins(struct salvage *s, const struct record *record, uint64_t first,
    uint64_t offset)
{
	char text[160];
	struct salvage_scan scan;
	struct salvage_lost lost;
	struct record twin;
	uint64_t found;
	bool same = false;

	if (salvage_scan_init(&scan, s->from.fd, s->from.seed, first, NULL) < 0)
		return reader_error(s->options->from, "cannot read");
	if (salvage_scan_next(&scan, &twin, &found, &lost))
		same = found == first && twin.plant != NULL &&
		       twin.plant_len == record->plant_len &&
		       memcmp(twin.plant, record->plant, twin.plant_len) == 0;
	salvage_scan_done(&scan);
	if (same) {
		s->report->doubled++;
		return EX_OK;
	}
	s->report->differing++;
	snprintf(text, sizeof(text),
	    "the plant %" PRId64 " at byte %" PRIu64
	    " differs from that at byte %" PRIu64,
	    record->id, offset, first);
	s->options->tell(s->options->context, text);
	return EX_OK;
}

/* End a transaction of the scratch index and begin another, now and then. */
static int
renew_transaction(struct salvage *s)
{
	if (++s->entered < PLANTS_MAX)
		return EX_OK;
	s->entered = 0;
	s->covered.seq++;
	if (index_commit(s->index, &s->covered) < 0 ||
	    index_begin(s->index, &s->covered) < 0)
		return cannot_write(s);
	return EX_OK;
}

static int
take_plant(struct salvage *s, struct record *record, uint64_t offset)
{
	uint64_t first;
	int status;

	switch (index_put(s->index, record->id, offset, &first)) {
	case INDEX_NEW:
		break;
	case INDEX_FOUND:
		return compare_twins(s, record, first, offset);
	case INDEX_ERROR:
		return cannot_write(s);
	}
	record->safe = 0;
	status = write_record(s, record);
	if (status != EX_OK)
		return status;
	s->report->plants++;
	return renew_transaction(s);
}

/* What stands before the line `next`; at the end, behind all that are known. */
static void
tell_lost(struct salvage *s, const struct salvage_lost *lost, uint64_t next)
{
	char text[256];
	uint64_t bytes = lost->end - lost->begin;
	bool gap = next > s->line + 1;
	int len;

	if (bytes == 0 && !gap)
		return;
	len = snprintf(text, sizeof(text),
	    "%" PRIu64 "-%" PRIu64 " (%" PRIu64 " bytes): %s", lost->begin,
	    lost->end, bytes,
	    bytes == 0 ? "nothing stands here" : lost->reason);
	if (gap && next - 1 == s->line + 1)
		snprintf(text + len, sizeof(text) - (size_t)len,
		    "; line %" PRIu64 " is missing", next - 1);
	else if (gap)
		snprintf(text + len, sizeof(text) - (size_t)len,
		    "; lines %" PRIu64 " to %" PRIu64 " are missing",
		    s->line + 1, next - 1);
	s->report->lost_bytes += bytes;
	s->report->lost_places++;
	s->options->tell(s->options->context, text);
}

static int
take_all(struct salvage *s, struct salvage_scan *scan)
{
	const struct watch *watch = &s->options->watch;
	struct salvage_lost lost;
	struct record record;
	uint64_t offset;
	int status = EX_OK;

	while (status == EX_OK &&
	       salvage_scan_next(scan, &record, &offset, &lost)) {
		if (watch->step != NULL && offset >= s->next_step) {
			if (!watch->step(
				watch->context, offset, s->report->bytes))
				return SALVAGE_STOPPED;
			s->next_step = offset + STEP_BYTES;
		}
		tell_lost(s, &lost, record.seq);
		if (record.seq > s->line)
			s->line = record.seq;
		if (record.plant != NULL)
			status = take_plant(s, &record, offset);
	}
	if (status == EX_OK)
		tell_lost(s, &lost, s->from.lines + 1);
	return status;
}

/* All is synced, then a closing line that says so, then the name. */
static int
finish(struct salvage *s)
{
	char now[TIMESTAMP_LEN];
	struct record closing = { .at = now };
	int status = flush_batch(s);

	if (status == EX_OK && journal_sync(&s->journal) < 0)
		status = cannot_write(s);
	if (status != EX_OK)
		return status;
	timestamp_print(clock_ms(CLOCK_REALTIME), now);
	closing.safe = s->at.end;
	status = write_record(s, &closing);
	if (status == EX_OK)
		status = flush_batch(s);
	if (status == EX_OK && journal_place(&s->journal) < 0)
		status = cannot_write(s);
	memcpy(s->report->store, s->journal.uuid, RECORD_UUID_LEN);
	s->report->store[RECORD_UUID_LEN] = '\0';
	return status;
}

static int
begin_dest(struct salvage *s)
{
	struct stat st;
	int status;

	s->dir = dest_open(s->options->dest, &status);
	if (s->dir < 0)
		return status;
	if (fstatat(s->dir, JOURNAL_NAME, &st, 0) == 0) {
		log_error("%s: holds a store; name another directory",
		    s->options->dest);
		return EX_CANTCREAT;
	}
	s->batch = malloc(BATCH_BYTES);
	if (s->batch == NULL || journal_begin(&s->journal, s->dir) < 0)
		return cannot_write(s);
	s->at = s->journal.start;
	/* Left by one that was killed. */
	index_discard(s->dir);
	s->index = index_open(s->dir, s->options->dest, s->journal.uuid);
	if (s->index == NULL || index_begin(s->index, &s->covered) < 0)
		return cannot_write(s);
	return EX_OK;
}

/* `placed`: the journal is not to be removed. */
static void
end_dest(struct salvage *s, bool placed)
{
	index_close(s->index, false);
	if (s->index != NULL) {
		index_discard(s->dir);
		unlinkat(s->dir, "index", AT_REMOVEDIR);
	}
	if (placed)
		journal_close(&s->journal);
	else if (s->journal.fd >= 0)
		journal_drop(&s->journal);
	free(s->batch);
	if (s->dir >= 0)
		close(s->dir);
}

int
salvage_store(
    const struct salvage_options *options, struct salvage_report *report)
{
	struct salvage s = { .options = options,
		.report = report,
		.dir = -1,
		.journal.fd = -1 };
	struct salvage_scan scan;
	int status;

	memset(report, 0, sizeof(*report));
	status = salvage_source_open(&s.from, options->from, options->uuid);
	if (status != EX_OK)
		return status;
	report->bytes = s.from.bytes;
	memcpy(report->from, s.from.uuid, sizeof(report->from));
	if (salvage_scan_init(&scan, s.from.fd, s.from.seed,
		s.from.whole ? RECORD_HEADER_LEN : 0,
		s.from.whole ? NULL : "not a journal's header") < 0)
		status = reader_error(options->from, "cannot read");
	if (status == EX_OK)
		status = begin_dest(&s);
	if (status == EX_OK)
		status = take_all(&s, &scan);
	if (status == EX_OK)
		status = finish(&s);
	end_dest(&s, status == EX_OK);
	salvage_scan_done(&scan);
	salvage_source_close(&s.from);
	return status;
}
