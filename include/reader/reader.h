/*
 * reader: reads stored plants, for commands that export, check or copy them
 * while other processes write.  It never changes the store.  One thread.
 */
#pragma once

#include <stdint.h>

#include "store/store.h"

/* Each engine defines its own. */
struct store_reader;

#define STORE_WHERE_MAX 80
#define STORE_CURSOR_MAX 192
typedef void store_figure(const char *name, const char *text, uint64_t number);

/*
 * .open(options, since, fault):
 * Open a read-only snapshot of the plants stored at `since` or later, or of all
 * if `since` is NULL, in the order in which they were stored.  `since`, of
 * TIMESTAMP_LEN bytes, and options->watch, which may be NULL, must stay valid
 * while the reader is open.  Return NULL if the store cannot be read: `fault`
 * is set and the reason is logged.  .close(reader) accepts NULL.
 *
 * .next(reader, record):
 * Read the next plant: `record` receives its id, plant, by and at, and points
 * into the reader until the next call.  Return false at the end and on a fault.
 *
 * .end(reader, where):
 * Call it once `next` has returned false.  Return FAULT_NONE at the end; else
 * the fault, such as FAULT_STOPPED by the watch.  Write the last position, such
 * as "seq 12 at byte 3456", to `where`, of STORE_WHERE_MAX bytes.
 *
 * .find(reader, id, record):
 * Read the plant with this id.  FAULT_ABSENT, not logged: no plant has the id.
 * FAULT_DAMAGED, logged: the plant is damaged; others may be readable.
 *
 * .figures(reader, each):
 * After the last plant, call `each` with every figure of the engine for
 * `plant-store stats`: a name and a text or, if the text is NULL, a number.
 *
 * A cursor is a position between two plants, as text of up to STORE_CURSOR_MAX
 * bytes.  Plants stored later are always after it, even if a clock is set back.
 *
 * .resume(reader, cursor):
 * Continue after `cursor`; start at the beginning for "", at the end for NULL.
 * Call before the first `next`, `cursor` or `more`.  FAULT_SETUP, logged: the
 * cursor belongs to another store, or the database is not set up for cursors.
 * FAULT_DAMAGED, logged: the store does not have the cursor's line.
 *
 * .cursor(reader, cursor):
 * Write the position after the last plant read.
 *
 * .more(reader):
 * After the last plant, check whether more have been stored; `next` then
 * returns them.  This is cheap enough to call often.  FAULT_BUSY: try again
 * later.  FAULT_DAMAGED, logged: this is not the store that was read before.
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
	void (*cursor)(struct store_reader *reader, char *cursor);
	enum fault (*more)(struct store_reader *reader);
};

/* The file engine's table; a module exports its own under this name. */
extern const struct reader_engine journal_reader;
#define READER_ENGINE_SYMBOL "reader_engine"

/* The result of reading a journal from its beginning. */
struct reader_report {
	char store[RECORD_UUID_LEN + 1]; /* the store's uuid */
	uint64_t plants;        /* of copy_backup: the plants that it read */
	uint64_t bytes;         /* the offset at which the last line ends */
	enum index_state index; /* of verify_store */
	uint64_t added;         /* by copy_backup: bytes added to `to` */
};

/*
 * check_journal(path, watch, index):
 * Find the state of the index, and check the lines that it does not cover.
 * Return a fault, logged, if the next start would refuse the journal or index.
 */
enum fault check_journal(
    const char *path, const struct watch *watch, enum index_state *index);

/*
 * verify_store(path, watch, report):
 * Check every line of the journal in the directory `path`, or of the journal
 * file `path`: checksum, form, chain and order, and that no id occurs twice.
 * Then compare the index with the plants that were stored when the call began.
 * The ids are sorted in an unnamed file in /var/tmp, at 16 bytes each.
 *
 * FAULT_DAMAGED, logged: the first invalid line, the ids that occur twice, or
 * damage to the index.  A torn tail is logged, but is not damage.  `report` is
 * set on FAULT_NONE and FAULT_STOPPED.  `watch` may be NULL, here and below.
 */
enum fault verify_store(
    const char *path, const struct watch *watch, struct reader_report *report);

/*
 * copy_backup(from, to, whole, watch, report):
 * Copy the journal in the directory `from`, or the journal file `from`, to the
 * directory `to`, which is created if it is absent.  The copy has every plant
 * that was acknowledged before the call, and the service can serve it.  Each
 * line is checked before it is copied, and the copy is synced.  An earlier copy
 * of the store is extended: only the new lines are written and, unless `whole`
 * is set, only they are read.  If the copy has another hard link or was left
 * unfinished, a new copy is renamed over it.
 *
 * FAULT_OUTPUT: `to` cannot be written, has an index, or has a journal that is
 * not the beginning of this one.  FAULT_BUSY: another process writes there.
 * FAULT_SETUP: `to` or its plants.jsonl belongs to neither root nor the caller,
 * or its plants.jsonl is the source or is not a regular file.  After a fault
 * the earlier copy is unchanged, or extended by a part of the new lines; if
 * only the sync of the directory failed, the new copy is in place.
 */
enum fault copy_backup(const char *from, const char *to, bool whole,
    const struct watch *watch, struct reader_report *report);
