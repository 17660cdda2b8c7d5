/*
 * reader: the plants of a store in the order in which they were stored, each
 * line checked in its place, while others write.  Never changes the store, but
 * for the mark of a sync that failed, which nobody else may be told of.
 *
 * Lines are read without the lock up to a margin before the end of the file;
 * then the lock is taken for a moment, so that nobody is in the middle of a
 * write, the journal's end is found and synced, and the rest is read up to
 * there.  So what is read is one consistent, durable state.  An end before what
 * the index has read, where there is one, is damage.  Constant memory.
 */
#ifndef STORE_READER_H
#define STORE_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "ground/watch.h"
#include "pure/record.h"

struct reader;

/*
 * reader_open(path, watch, status):
 * Open the journal in the directory `path`, or the journal file `path`, which
 * is then read without a lock, as a file that nobody writes.  `watch` may be
 * NULL and is copied.  NULL if it cannot be read: `status` is a value of
 * sysexits.h, the reason is logged.
 */
struct reader *reader_open(
    const char *path, const struct watch *watch, int *status);

enum reader_result {
	READER_PLANT,
	READER_END,
	READER_STOPPED, /* by the watch */
	READER_FAILED   /* logged; reader_status says which status */
};

/*
 * reader_next(reader, record):
 * The next plant; `record` points into the reader until the next call.  Closing
 * lines are checked and passed over.
 */
enum reader_result reader_next(struct reader *reader, struct record *record);

/* What has been read so far; after READER_END, the whole. */
struct reader_report {
	char store[RECORD_UUID_LEN + 1]; /* its uuid */
	uint64_t plants;
	uint64_t bytes;     /* up to the last line read */
	uint64_t seq;       /* of that line */
	uint64_t offset;    /* of that line */
	uint64_t watermark; /* of that line: `safe` */
};
void reader_report(const struct reader *reader, struct reader_report *report);

/*
 * reader_status(reader):
 * EX_OK, or why reader_next gave READER_FAILED, a value of sysexits.h.
 */
int reader_status(const struct reader *reader);

/*
 * reader_close(reader):
 * NULL is fine.
 */
void reader_close(struct reader *reader);

#endif
