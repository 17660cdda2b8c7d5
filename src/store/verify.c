/*
 * verify: see store/verify.h.
 *
 * Happy path: the index says up to where it has read the journal; the plants
 * before that place are summed while the journal is read, and again while the
 * index is.  An entry, once made, neither changes nor goes, so what is added
 * meanwhile can be told by its offset and left out.  A sum is of 128 bits, so
 * equal sums are equal sets.  Failure modes: where the sums differ, a second,
 * slow reading looks every plant up and names the first that is wrong.
 */
#include "store/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sysexits.h>
#include <time.h>

#include "ground/log.h"
#include "index.h"
#include "reader_state.h"

/* Entries under one lock: some 3 ms, a few syncs' time. */
#define SLICE 32768
/* Then the others get it: they look for it each half millisecond. */
#define PAUSE_NS 1000000L
/* Looked up under one lock. */
#define LOOK_UPS 4096

#define REMEDY "remove that directory: the next start builds it anew"

struct sum {
	uint64_t count, a, b;
};

struct verify {
	const char *path;
	const struct watch *watch;
	struct reader *reader;
	struct index *index;     /* NULL: there is none to compare */
	struct position covered; /* by the index, when this began */
	uint64_t covered_now;
	uint64_t last_plant; /* its offset; 0 if there is none */
	struct sum in_journal, in_index;
	struct verify_report *report;
};

/* The finalizer of SplitMix64: each bit depends on all. */
static uint64_t
mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static void
sum_add(struct sum *sum, int64_t id, uint64_t offset)
{
	sum->count++;
	sum->a += mix((uint64_t)id ^ mix(offset));
	sum->b +=
	    mix(offset + mix((uint64_t)id + UINT64_C(0x9e3779b97f4a7c15)));
}

static bool
sum_equal(const struct sum *x, const struct sum *y)
{
	return x->count == y->count && x->a == y->a && x->b == y->b;
}

/* EX_OK if it only cannot be compared, which the report says. */
static int
index_trouble(struct verify *v)
{
	switch (errno) {
	case ENOENT:
		v->report->index = v->reader->lock.fd < 0
				       ? VERIFY_INDEX_NONE
				       : VERIFY_INDEX_MISSING;
		return EX_OK;
	case ESTALE:
		v->report->index = v->index == NULL ? VERIFY_INDEX_FOREIGN
						    : VERIFY_INDEX_REPLACED;
		return EX_OK;
	case EBADMSG:
		log_error("%s/index: damaged; " REMEDY, v->path);
		return EX_DATAERR;
	default:
		return reader_error(v->path, "cannot read its index");
	}
}

static int
open_index(struct verify *v)
{
	struct reader *reader = v->reader;
	int status;

	v->report->index = VERIFY_INDEX_NONE;
	if (reader->dir < 0)
		return EX_OK;
	status = reader_lock(reader);
	if (status != EX_OK)
		return status;
	struct index *index =
	    index_open_reader(reader->dir, v->path, reader->journal.uuid);
	if (index == NULL || index_begin(index, &v->covered) < 0) {
		status = index_trouble(v);
		index_close(index, false);
	} else {
		index_abort(index);
		v->index = index;
		v->report->index = VERIFY_INDEX_EQUAL;
	}
	reader_unlock(reader);
	return status;
}

/* EX_OK at the end; a status; VERIFY_STOPPED. */
static int
read_journal(struct verify *v)
{
	struct reader *reader = v->reader;
	struct record record;
	enum reader_result result;

	while ((result = reader_next(reader, &record)) == READER_PLANT) {
		v->last_plant = reader->replay.at.last;
		if (v->last_plant < v->covered.end)
			sum_add(&v->in_journal, record.id, v->last_plant);
	}
	reader_report(reader, &v->report->journal);
	if (result == READER_STOPPED)
		return VERIFY_STOPPED;
	return result == READER_END ? EX_OK : reader_status(reader);
}

static void
see_entry(void *context, int64_t id, uint64_t offset)
{
	struct verify *v = context;

	if (offset < v->covered.end)
		sum_add(&v->in_index, id, offset);
}

/* EX_OK with the lock and a transaction, unless the index is gone. */
static int
begin_slice(struct verify *v)
{
	struct position now;
	int status = reader_lock(v->reader);

	if (status != EX_OK)
		return status;
	if (index_begin(v->index, &now) == 0) {
		v->covered_now = now.end;
		return EX_OK;
	}
	status = index_trouble(v);
	reader_unlock(v->reader);
	return status;
}

static void
end_slice(struct verify *v)
{
	static const struct timespec pause = { 0, PAUSE_NS };

	index_abort(v->index);
	reader_unlock(v->reader);
	nanosleep(&pause, NULL);
}

static bool
go_on(const struct verify *v)
{
	uint64_t bytes = v->report->journal.bytes;

	return v->watch == NULL || v->watch->step == NULL ||
	       v->watch->step(v->watch->context, bytes, bytes);
}

static int
walk_index(struct verify *v)
{
	int64_t from = INT64_MIN;
	int more, status;

	do {
		if (!go_on(v))
			return VERIFY_STOPPED;
		status = begin_slice(v);
		if (status != EX_OK || v->report->index != VERIFY_INDEX_EQUAL)
			return status;
		more = index_walk(v->index, &from, SLICE, see_entry, v);
		if (more < 0)
			status = index_trouble(v);
		end_slice(v);
	} while (more > 0);
	return status;
}

/* The index says that the plant is at `found`, if it has it. */
static int
say_difference(
    struct verify *v, int64_t id, uint64_t offset, const uint64_t *found)
{
	struct record record;
	char *line = NULL;
	size_t size = 0;

	if (found == NULL)
		log_error("%s/index: lacks the plant %" PRId64
			  " at byte %" PRIu64 "; " REMEDY,
		    v->path, id, offset);
	else if (journal_read(
		     &v->reader->journal, *found, &record, &line, &size) == 0 &&
		 record.plant != NULL && record.id == id)
		log_error("%s: the plant %" PRId64
			  " is stored twice, at the bytes %" PRIu64
			  " and %" PRIu64 "; restore it from a backup",
		    v->reader->name, id, *found, offset);
	else
		log_error("%s/index: has the plant %" PRId64 " at byte %" PRIu64
			  " instead of %" PRIu64 "; " REMEDY,
		    v->path, id, *found, offset);
	free(line);
	return EX_DATAERR;
}

struct pair {
	int64_t id;
	uint64_t offset;
};

static int
look_up(struct verify *v, const struct pair *pairs, size_t n)
{
	uint64_t found;
	int status = begin_slice(v);

	if (status != EX_OK || v->report->index != VERIFY_INDEX_EQUAL)
		return status;
	for (size_t i = 0; status == EX_OK && i < n; i++) {
		int64_t id = pairs[i].id;
		uint64_t offset = pairs[i].offset;

		switch (index_find(v->index, id, &found)) {
		case INDEX_FOUND:
			if (found != offset)
				status = say_difference(v, id, offset, &found);
			break;
		case INDEX_NEW:
			status = say_difference(v, id, offset, NULL);
			break;
		case INDEX_ERROR:
			status = index_trouble(v);
			break;
		}
	}
	end_slice(v);
	return status;
}

/* Read once more, and say what differs. */
static int
find_difference(struct verify *v)
{
	static struct pair pairs[LOOK_UPS];
	struct reader *reader = v->reader;
	struct record record;
	enum reader_result result;
	size_t n = 0;
	int status = reader_resume(reader, &reader->journal.start, 0);

	bool more = true;
	while (status == EX_OK && more) {
		result = reader_next(reader, &record);
		if (result == READER_STOPPED)
			return VERIFY_STOPPED;
		if (result == READER_FAILED)
			return reader_status(reader);
		more = result == READER_PLANT &&
		       reader->replay.at.last < v->covered.end;
		if (more)
			pairs[n++] =
			    (struct pair){ record.id, reader->replay.at.last };
		if (n == LOOK_UPS || !more) {
			status = look_up(v, pairs, n);
			n = 0;
		}
	}
	if (status != EX_OK || v->report->index != VERIFY_INDEX_EQUAL)
		return status;
	log_error("%s/index: has %" PRIu64
		  " plants that the journal has not; " REMEDY,
	    v->path, v->in_index.count - v->in_journal.count);
	return EX_DATAERR;
}

static int
compare_index(struct verify *v)
{
	/* Whether the index ends at a line that this journal has. */
	if (!reader_has_line(v->reader, &v->covered)) {
		v->report->index = VERIFY_INDEX_FOREIGN;
		return EX_OK;
	}
	int status = walk_index(v);
	if (status != EX_OK || v->report->index != VERIFY_INDEX_EQUAL)
		return status;
	if (!sum_equal(&v->in_journal, &v->in_index))
		return find_difference(v);
	if (v->last_plant > 0 && v->covered_now <= v->last_plant)
		v->report->index = VERIFY_INDEX_BEHIND;
	return EX_OK;
}

int
verify_store(
    const char *path, const struct watch *watch, struct verify_report *report)
{
	struct verify v = { .path = path, .watch = watch, .report = report };
	int status;

	v.reader = reader_open(path, watch, &status);
	if (v.reader == NULL)
		return status;
	status = open_index(&v);
	if (status == EX_OK)
		status = read_journal(&v);
	if (status == EX_OK && v.index != NULL)
		status = compare_index(&v);
	index_close(v.index, false);
	reader_close(v.reader);
	return status;
}
