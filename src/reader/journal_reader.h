/*
 * journal_reader: the file engine's reader of reader/reader.h: each line is
 * checked in its place, while others write.  It writes nothing.
 *
 * The lock is taken for a moment, and the journal's durable end is found; then
 * all is read up to there.  Lines that the index does not cover may never have
 * been synced: they are read from the disk.  So what is read is one consistent,
 * durable state, and has every plant that was acknowledged before.  Where no
 * index has seen the journal, all lines are read to find its end, and then
 * again.  An end before what the index covers is damage.  Constant memory.
 */
#ifndef JOURNAL_READER_H
#define JOURNAL_READER_H

#include <stdint.h>

#include "ground/pairs.h"
#include "reader/maintain.h"
#include "reader/reader.h"
#include "store/index.h"
#include "store/journal.h"

struct store_reader {
	const struct reader_engine *engine; /* reader/reader.h: first */
	const char *path;                   /* as it was named; the caller's */
	const char *since; /* of store_reader_open, or NULL; the caller's */
	struct journal journal;
	struct replay replay;
	struct watch watch;
	uint64_t ahead;         /* bytes that were read to find the limit */
	uint64_t limit;         /* the end of its durable lines, */
	struct position last;   /* and the last one */
	struct position before; /* the last record that was read */
	uint64_t torn;          /* where a torn batch was reported */
	struct reader_report report;
	enum fault fault;
	struct index_view view;
	struct pairs rest; /* the plants that it does not have */
	bool searching;    /* these are set */
};

/*
 * The engine's table of reader/reader.h.  Closing lines are checked and passed
 * over.  Plants are found through the index, and by reading the journal from
 * where the index ends, from its beginning if there is no index that can be
 * used.
 */
extern const struct reader_engine journal_reader;

/*
 * journal_reader_open(path, watch, fault), journal_reader_close(reader):
 * Open the journal in the directory `path`, or the journal file `path`, which
 * is then read without a lock, as a file that nobody writes.  `watch` may be
 * NULL and is copied.  NULL if it cannot be read: `fault` is set, the reason is
 * logged.  Close; NULL is fine.
 *
 * journal_reader_check(reader), journal_reader_collect(reader, pairs):
 * Check all lines that are left; collect their plants' ids and offsets, too,
 * sorted, for pairs_done.
 *
 * journal_reader_lock(reader):
 * Lock the journal, if it is in a directory, so that nobody is in the middle of
 * a write, and check that it still is the store's: a fault, logged, if not.
 * Otherwise the caller gives it back with journal_unlock.
 */
struct store_reader *journal_reader_open(
    const char *path, const struct watch *watch, enum fault *fault);
void journal_reader_close(struct store_reader *reader);
enum fault journal_reader_check(struct store_reader *reader);
enum fault journal_reader_collect(
    struct store_reader *reader, struct pairs *pairs);
enum fault journal_reader_lock(struct store_reader *reader);

#endif
