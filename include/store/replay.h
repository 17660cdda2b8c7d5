/*
 * replay: the one loop over a journal's lines.
 *
 * Start, catch-up, reading, verify, copy and recover all read through it.  It
 * reads through a window, in constant memory at any size of the journal.
 */
#ifndef STORE_REPLAY_H
#define STORE_REPLAY_H

#include <stddef.h>
#include <stdint.h>

#include "pure/record.h"

/* A place between two lines, and what the next line must follow from. */
struct position {
	uint64_t end;     /* offset behind the last line; 0: no position */
	uint64_t last;    /* offset of that line */
	uint64_t seq;     /* its number; 0 for the header */
	uint32_t crc;     /* its checksum */
	uint32_t closing; /* whether it is a closing line, or the header */
};

/*
 * The most bytes of records that one append writes, and the room that it writes
 * behind them: some 1,300 plants' worth, half a millisecond.  A torn tail
 * cannot be longer than a closing line and one append, of which the room too
 * may come back from a crash as zeros.
 */
#define JOURNAL_APPEND_MAX ((size_t)4 << 20)
#define JOURNAL_ROOM_BYTES ((size_t)256 << 10)
#define JOURNAL_TAIL_MAX \
	(RECORD_ENVELOPE_MAX + JOURNAL_APPEND_MAX + JOURNAL_ROOM_BYTES)

struct replay {
	int fd; /* the caller's */
	uint32_t seed;
	struct position at;
	const char *reason; /* why a line or a tail is refused */
	int error;          /* errno of REPLAY_ERROR */
	char *window;
	size_t size, fill, used;
	uint64_t base; /* offset of the window's first byte */
};

/*
 * replay_init(replay, fd, seed, at), replay_done(replay):
 * Start at the position `at`.  Free the window; a struct of zeros has none.
 */
void replay_init(
    struct replay *replay, int fd, uint32_t seed, const struct position *at);
void replay_done(struct replay *replay);

enum replay_result {
	REPLAY_RECORD,
	REPLAY_END,  /* the file ends here, or a blank line begins */
	REPLAY_BAD,  /* not a valid line in its place: see `reason` */
	REPLAY_ERROR /* see `error`: EIO and the like, ENOMEM */
};

/*
 * replay_next(replay, record):
 * Check the next line.  On REPLAY_RECORD, `record` points into the window
 * until the next call, replay->at is behind it and replay->at.last is its
 * offset.  On anything else replay->at stays.
 */
enum replay_result replay_next(struct replay *replay, struct record *record);

/*
 * replay_finish(replay, tail_end):
 * Check all lines that are left, and judge the bytes behind them.  REPLAY_BAD:
 * something durable is damaged, see `reason`.  REPLAY_END or REPLAY_ERROR:
 *
 *	A later line, valid by itself, whose watermark is above replay->at.end
 *	proves that the bytes there were durable: they are damaged.  It counts
 *	also where the newline before it is lost.
 *	More than JOURNAL_TAIL_MAX bytes are more than one batch: damaged.
 *	Otherwise a batch was torn, and none of it was acknowledged.
 *
 * `tail_end` is the offset behind the last byte that is not a newline: not
 * replay->at.end where a batch was torn.  Only replay_done may follow.
 */
enum replay_result replay_finish(struct replay *replay, uint64_t *tail_end);

/* Bytes that hold no readable record. */
struct replay_lost {
	uint64_t begin, end;
	const char *reason; /* static English */
};

/*
 * replay_salvage(replay, record, lost):
 * Find the next line that is valid by itself, in its place or not: also behind
 * a line whose newline is lost.  Bytes that the disk does not give are passed
 * over in blocks.  On REPLAY_RECORD, replay->at.last is its offset; `lost` is
 * what lies between it, or the end of the file on REPLAY_END, and the record
 * before, with begin and end equal where nothing does.  REPLAY_ERROR: ENOMEM.
 * Not mixed with the functions above.
 */
enum replay_result replay_salvage(
    struct replay *replay, struct record *record, struct replay_lost *lost);

#endif
