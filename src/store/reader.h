/*
 * reader: what the store's own modules need of a reader (store/reader.h).
 */
#ifndef STORE_READER_PRIVATE_H
#define STORE_READER_PRIVATE_H

#include "ground/pairs.h"
#include "index.h"
#include "journal.h"
#include "store/engine.h"
#include "store/reader.h"

struct store_reader {
	const struct engine *engine; /* engine.h: first */
	const char *path;            /* as it was named; the caller's */
	const char *since; /* of store_reader_open, or NULL; the caller's */
	struct journal journal;
	struct replay replay;
	struct watch watch;
	uint64_t next_step; /* when to call it */
	uint64_t ahead;     /* bytes that are read once more, for the limit */
	uint64_t limit;     /* of its durable lines; UINT64_MAX until found, */
	struct position last;   /* then the place there */
	struct position before; /* the last record that was read */
	uint64_t torn;          /* where a torn batch was reported */
	struct reader_report report;
	enum fault fault;
	struct index_view view;
	struct pairs rest; /* the plants that it does not have */
	bool searching;    /* these are set, for reader_find */
};

/*
 * reader_read_all(reader), reader_collect(reader, pairs):
 * Check all lines that are left; collect their plants' ids and offsets, too,
 * sorted, for pairs_done.
 */
enum fault reader_read_all(struct store_reader *reader);
enum fault reader_collect(struct store_reader *reader, struct pairs *pairs);

/*
 * reader_figures(reader, each, context):
 * As in store/store.h.
 */
enum fault reader_figures(
    struct store_reader *reader, store_figure *each, void *context);

/*
 * reader_lock(reader):
 * Lock the journal, if it is in a directory, so that nobody is in the middle of
 * a write, and check that it still is the store's: a fault, logged, if not.
 * Otherwise the caller gives it back with journal_unlock.
 */
enum fault reader_lock(struct store_reader *reader);

#endif
