/*
 * replay: the only loop over a journal's lines.
 *
 * Start, catch-up, readers, verify, copy and recover all use it.  The loop
 * reads through a window, in constant memory whatever the journal's size.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "pure/record.h"

/* A position between two lines; the next line continues its seq and crc. */
struct position {
	uint64_t end;     /* offset of the next line; 0: no position */
	uint64_t last;    /* offset of the previous line */
	uint64_t seq;     /* of the previous line; 0: the header */
	uint32_t crc;     /* of the previous line */
	uint32_t closing; /* 1: the previous line is closing or the header */
};

/*
 * An append writes at most JOURNAL_APPEND_MAX bytes of records and, after them,
 * JOURNAL_ROOM_BYTES newlines: space for about 1,300 plants, written in half a
 * millisecond.  A torn tail is at most a closing line, one append and its
 * newlines, which a crash may turn into zeros.
 */
#define JOURNAL_APPEND_MAX ((size_t)4 << 20)
#define JOURNAL_ROOM_BYTES ((size_t)256 << 10)
#define JOURNAL_TAIL_MAX \
	(RECORD_ENVELOPE_MAX + JOURNAL_APPEND_MAX + JOURNAL_ROOM_BYTES)

struct replay {
	int fd; /* owned by the caller */
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
 * Start at the position `at`.  Free the window; a zeroed struct is allowed.
 */
void replay_init(
    struct replay *replay, int fd, uint32_t seed, const struct position *at);
void replay_done(struct replay *replay);

enum replay_result {
	REPLAY_RECORD,
	REPLAY_END,  /* the end of the file, or a blank line */
	REPLAY_BAD,  /* a line is invalid or out of sequence: see `reason` */
	REPLAY_ERROR /* see `error`: ENOMEM, or a read error */
};

/*
 * replay_next(replay, record):
 * Check the next line.  On REPLAY_RECORD, `record` points into the window
 * until the next call, replay->at is after it and replay->at.last is its
 * offset.  Otherwise replay->at is unchanged.
 */
enum replay_result replay_next(struct replay *replay, struct record *record);

/*
 * replay_finish(replay, tail_end):
 * Check the remaining lines, then the bytes after the last valid line, from
 * replay->at.end on.  Return REPLAY_ERROR, or one of:
 *
 *	REPLAY_BAD  Durable bytes are damaged; see `reason`.  Either a line
 *		    there is valid by itself (even if the newline before it is
 *		    lost) and has a watermark above replay->at.end; or the
 *		    bytes exceed the longest torn tail, JOURNAL_TAIL_MAX.
 *	REPLAY_END  There are no such bytes, or they are blank lines or a torn
 *		    tail, of which nothing was acknowledged.
 *
 * `tail_end` is the end of the torn tail without its trailing newlines, or
 * replay->at.end if there is none.  Only replay_done may be called next.
 */
enum replay_result replay_finish(struct replay *replay, uint64_t *tail_end);

/* Bytes that hold no readable record. */
struct replay_lost {
	uint64_t begin, end;
	const char *reason; /* a static string, or from strerror */
};

/*
 * replay_salvage(replay, record, lost):
 * Find the next line that is valid by itself, in sequence or not, even if the
 * newline before it is lost.  Blocks that the disk cannot read are skipped.  On
 * REPLAY_RECORD, replay->at.last is the record's offset.  `lost` is the gap
 * between the previous record and this one, or the end of the file on
 * REPLAY_END; begin equals end if there is no gap.  REPLAY_ERROR: ENOMEM.  Do
 * not call replay_next or replay_finish on the same struct.
 */
enum replay_result replay_salvage(
    struct replay *replay, struct record *record, struct replay_lost *lost);
