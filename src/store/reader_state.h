/*
 * reader_state: what the store's own files may know of a reader (reader.h),
 * to copy the journal that it reads, or to compare the index with it.
 */
#ifndef STORE_READER_STATE_H
#define STORE_READER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "journal.h"
#include "lock.h"
#include "replay.h"
#include "store/reader.h"

struct reader {
	char *path;       /* of the directory; NULL: a file was named */
	char *name;       /* of the journal, for messages */
	int dir;          /* -1: a file was named */
	struct lock lock; /* fd -1: there was none */
	struct journal journal;
	struct replay replay;
	struct watch watch;
	uint64_t next_step; /* when to call it */
	bool settled;
	uint64_t
	    limit; /* once settled: the journal's end; before, see MARGIN */
	uint64_t plants;
	uint64_t watermark;
	int status;
};

/*
 * reader_resume(reader, at, plants):
 * Go on from the position `at`, before which there are `plants`, to an end that
 * is looked for anew.  EX_OK or a status, logged.
 */
int reader_resume(
    struct reader *reader, const struct position *at, uint64_t plants);

/*
 * reader_lock(reader), reader_unlock(reader):
 * Take the store's lock, if it has one, and the journal's, so that nobody is in
 * the middle of a write.  EX_OK or EX_TEMPFAIL, logged.
 *
 * reader_mark(reader):
 * The store's mark; LOCK_NEW also where there is no lock file.
 */
int reader_lock(struct reader *reader);
void reader_unlock(struct reader *reader);
enum lock_mark reader_mark(const struct reader *reader);

/*
 * reader_check_place(reader):
 * Under the lock: whether the journal is still the store's, and not one whose
 * place another has taken, as after a failed sync.  EX_OK or EX_IOERR, logged.
 */
int reader_check_place(struct reader *reader);

/*
 * reader_has_line(reader, at):
 * Whether the journal has the line that `at` follows from, in its place; where
 * it follows from the header, it has.
 */
bool reader_has_line(const struct reader *reader, const struct position *at);

/*
 * reader_error(name, what):
 * Log what could not be done and errno; the value of sysexits.h for it.
 */
int reader_error(const char *name, const char *what);

/*
 * reader_damaged(reader, offset, reason):
 * Log that the journal is damaged there; EX_DATAERR.
 */
int reader_damaged(
    const struct reader *reader, uint64_t offset, const char *reason);

#endif
