/*
 * reader: plants that are stored, for who exports, checks or maintains them.
 * The service needs none of it.
 */
#ifndef READER_READER_H
#define READER_READER_H

#include "store/store.h"

/*
 * A reader: the plants in the order in which they were stored, as they are at
 * one moment, or single plants by their ids; not both.  One thread.  An engine
 * defines its own struct store_reader, which begins with the pointer to its
 * table.
 */
struct store_reader;

#define STORE_WHERE_MAX 80
#define STORE_CURSOR_MAX 192
typedef void store_figure(
    void *context, const char *name, const char *text, uint64_t number);

/*
 * .open(options, since, fault), as store_reader_open.
 *
 * .next(reader, record):
 * Read the next plant: `record` has its id, plant, by and at, and points into
 * the reader until the next call.  False at the end, and where a fault ended
 * it.
 *
 * .end(reader, where):
 * After the last one: FAULT_NONE, or the fault, FAULT_STOPPED by the watch.
 * `where`, of STORE_WHERE_MAX, gets the place of the last record that was read,
 * such as "seq 12 at byte 3456".
 *
 * .find(reader, id, record):
 * Read the plant with an id: FAULT_NONE; FAULT_ABSENT if there is none, not
 * logged; FAULT_DAMAGED, logged, if it is damaged, and others may be read; or
 * another fault.
 *
 * .figures(reader, each, context):
 * Call `each` with the engine's own figures for `plant-store stats`: a name and
 * a text, or with NULL for that a number.  After the last plant.  On a fault,
 * which is logged, it was not called.
 *
 * A cursor is a place between two plants, as text of STORE_CURSOR_MAX: whatever
 * the clocks say, nothing is stored before it later.
 *
 * .resume(reader, cursor):
 * Before the first `next`, and before the functions below: begin behind the
 * cursor's place, at the store's beginning for "", at its end for NULL.
 * FAULT_SETUP, logged: the cursor is another store's, or the engine has none.
 * FAULT_DAMAGED, logged: the store does not have that place.
 *
 * .cursor(reader, before, cursor):
 * Write the place behind the last plant read; with `before`, the place before
 * it.
 *
 * .more(reader):
 * Behind the last plant: find out whether there are more, for the next `next`.
 * To be called often: it costs little.  FAULT_BUSY passes; FAULT_DAMAGED,
 * logged: the store is not the one that was read.
 */
#define READER_ENGINE_SYMBOL "reader_engine"
struct reader_engine {
	struct store_reader *(*open)(const struct store_options *options,
	    const char *since, enum fault *fault);
	bool (*next)(struct store_reader *reader, struct record *record);
	enum fault (*end)(struct store_reader *reader, char *where);
	enum fault (*find)(
	    struct store_reader *reader, int64_t id, struct record *record);
	enum fault (*figures)(
	    struct store_reader *reader, store_figure *each, void *context);
	void (*close)(struct store_reader *reader);
	enum fault (*resume)(struct store_reader *reader, const char *cursor);
	void (*cursor)(struct store_reader *reader, bool before, char *cursor);
	enum fault (*more)(struct store_reader *reader);
};

/*
 * store_reader_open(options, since, fault):
 * Open the store for reading, which changes nothing in it.  The reader has the
 * plants that were stored at `since`, TIMESTAMP_LEN bytes, or later; all of
 * them for NULL.  options->watch is copied, called while it reads, and may be
 * NULL.  NULL if the store cannot be read: `fault` is set, the reason is
 * logged.
 *
 * reader_calls(reader):
 * Its table, for the calls above.
 *
 * store_reader_close(reader):
 * NULL is fine.
 */
struct store_reader *store_reader_open(
    const struct store_options *options, const char *since, enum fault *fault);
const struct reader_engine *reader_calls(const struct store_reader *reader);
void store_reader_close(struct store_reader *reader);

#endif
