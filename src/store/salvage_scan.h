/*
 * salvage_scan: the readable records of a damaged file, wherever they stand,
 * and the bytes between them.
 *
 * A record is readable if its line is valid by itself (record.h); a newline
 * that is lost does not matter, nor what stands before the line.  Bytes that the
 * disk does not give are passed over in blocks.  Constant memory, linear time.
 */
#ifndef STORE_SALVAGE_SCAN_H
#define STORE_SALVAGE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pure/record.h"

struct salvage_lost {
	uint64_t begin, end; /* bytes [begin, end); may be none */
	const char *reason;  /* static English */
};

struct salvage_scan {
	int fd; /* the caller's */
	uint32_t seed;
	char *window, *line;
	size_t fill, used;
	uint64_t base;      /* offset of the window's first byte */
	bool ended;         /* nothing behind the window: the end, or this: */
	int error;          /* why what follows cannot be read */
	uint64_t lost_from; /* what is not in a record begins here */
	uint64_t text_end;  /* behind the last of it that is no newline */
	const char *reason; /* of the first line there that is no record */
};

/*
 * salvage_scan_init(scan, fd, seed, at, reason):
 * Begin at the offset `at`.  With a `reason`, what stands there is known to be
 * no record for it.  0, or -1 if there is no memory.  salvage_scan_done frees;
 * it may be called after a failure.
 */
int salvage_scan_init(struct salvage_scan *scan, int fd, uint32_t seed,
    uint64_t at, const char *reason);
void salvage_scan_done(struct salvage_scan *scan);

/*
 * salvage_scan_next(scan, record, offset, lost):
 * The next readable record, valid until the next call, and its offset; `lost`
 * is what stands between it and the one before.  False at the end of the file,
 * with what is lost before it: the room ahead, blank lines, is not.
 */
bool salvage_scan_next(struct salvage_scan *scan, struct record *record,
    uint64_t *offset, struct salvage_lost *lost);

#endif
