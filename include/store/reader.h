/*
 * reader: the file engine's store_reader of store/store.h: each line is checked
 * in its place, while others write.  It writes nothing.
 *
 * The lock is taken for a moment, and the journal's durable end is found; then
 * all is read up to there.  Lines that the index does not cover may never have
 * been synced: they are read from the disk.  So what is read is one consistent,
 * durable state, and has every plant that was acknowledged before.  Where no
 * index has seen the journal, all lines are read to find its end, and then
 * again.  An end before what the index covers is damage.  Constant memory.
 */
#ifndef STORE_READER_H
#define STORE_READER_H

#include <stdint.h>

#include "store/store.h"

/*
 * reader_open(path, watch, fault):
 * Open the journal in the directory `path`, or the journal file `path`, which
 * is then read without a lock, as a file that nobody writes.  `watch` may be
 * NULL and is copied.  NULL if it cannot be read: `fault` is set, the reason is
 * logged.
 *
 * reader_next(reader, record), reader_end(reader, where),
 * reader_find(reader, id, record), reader_resume(reader, cursor),
 * reader_cursor(reader, before, cursor), reader_more(reader),
 * reader_close(reader):
 * As in store/store.h.  Closing lines are checked and passed over.  Plants are
 * found through the index, and by reading the journal from where the index
 * ends, from its beginning if there is no index that can be used.
 */
struct store_reader *reader_open(
    const char *path, const struct watch *watch, enum fault *fault);
bool reader_next(struct store_reader *reader, struct record *record);
enum fault reader_end(struct store_reader *reader, char *where);
enum fault reader_find(
    struct store_reader *reader, int64_t id, struct record *record);
enum fault reader_resume(struct store_reader *reader, const char *cursor);
void reader_cursor(struct store_reader *reader, bool before, char *cursor);
enum fault reader_more(struct store_reader *reader);
void reader_close(struct store_reader *reader);

/* What has been read so far; after the last plant, the whole. */
struct reader_report {
	char store[RECORD_UUID_LEN + 1]; /* its uuid */
	uint64_t plants;
	uint64_t bytes;      /* up to the last line read */
	uint64_t seq;        /* of that line */
	uint64_t last_plant; /* its offset; 0 if there is none */
	uint64_t watermark;  /* of that line: `safe` */
};

/*
 * reader_index(reader, state, end):
 * Check the index: its state, and the end of the lines that it covers, or 0.
 * After it reader_next goes on from there.  A fault, logged, if the next start
 * would refuse the journal or the index.
 */
enum fault reader_index(
    struct store_reader *reader, enum index_state *state, uint64_t *end);

#endif
