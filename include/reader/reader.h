/*
 * reader: read access to stored plants, for the commands that export, check or
 * maintain them.  The service does not use it.
 */
#pragma once

#include "store/store.h"

/*
 * A reader gives the plants of one moment in the order in which they were
 * stored, or single plants by id; not both.  One thread.  Each engine defines
 * its own struct store_reader.
 */
struct store_reader;

#define STORE_WHERE_MAX 80
#define STORE_CURSOR_MAX 192
typedef void store_figure(const char *name, const char *text, uint64_t number);

/*
 * .open(options, since, fault):
 * Open the store read-only.  The reader gives the plants that were stored at
 * `since`, TIMESTAMP_LEN bytes, or later; all for NULL.  `since` must stay
 * while the reader is open.  options->watch is copied, called during reads, and
 * may be NULL.  NULL if the store cannot be read: `fault` is set, the reason is
 * logged.  .close(reader) closes it; NULL is fine.
 *
 * .next(reader, record):
 * Read the next plant: `record` has its id, plant, by and at, and points into
 * the reader until the next call.  Return false at the end and on a fault.
 *
 * .end(reader, where):
 * Call after `next` returned false.  Return FAULT_NONE at the end; else the
 * fault, FAULT_STOPPED from the watch.  Write the last record's place, such as
 * "seq 12 at byte 3456", to `where`, of STORE_WHERE_MAX.
 *
 * .find(reader, id, record):
 * Read the plant with this id.  FAULT_ABSENT, not logged: there is none.
 * FAULT_DAMAGED, logged: it is damaged; others may be readable.  Or another
 * fault.
 *
 * .figures(reader, each):
 * Call `each` with every figure of the engine for `plant-store stats`: a name,
 * and a text or, if the text is NULL, a number.  Call after the last plant.
 *
 * A cursor is a place between two plants, as text of STORE_CURSOR_MAX.  A plant
 * that is stored later is always behind it, even if a clock goes back.
 *
 * .resume(reader, cursor):
 * Start behind the cursor's place, at the store's beginning for "", at its end
 * for NULL.  Call before the first `next`, `cursor` or `more`.
 * FAULT_SETUP, logged: the cursor is of another store, or the database is not
 * set up for cursors.  FAULT_DAMAGED, logged: the store lacks that place.
 *
 * .cursor(reader, before, cursor):
 * Write the place behind the last plant read or, with `before`, in front of it.
 *
 * .more(reader):
 * After the last plant: check whether others were stored; `next` then returns
 * them.  Cheap enough to be called often.  FAULT_BUSY: try again later.
 * FAULT_DAMAGED, logged: the store is not the one that was read before.
 */
struct reader_engine {
	struct store_reader *(*open)(const struct store_options *options,
	    const char *since, enum fault *fault);
	bool (*next)(struct store_reader *reader, struct record *record);
	enum fault (*end)(struct store_reader *reader, char *where);
	enum fault (*find)(
	    struct store_reader *reader, int64_t id, struct record *record);
	void (*figures)(struct store_reader *reader, store_figure *each);
	void (*close)(struct store_reader *reader);
	enum fault (*resume)(struct store_reader *reader, const char *cursor);
	void (*cursor)(struct store_reader *reader, bool before, char *cursor);
	enum fault (*more)(struct store_reader *reader);
};

/*
 * The file engine's table, and the name by which the module of a database
 * exports its own (engine_symbol).
 */
extern const struct reader_engine journal_reader;
#define READER_ENGINE_SYMBOL "reader_engine"
