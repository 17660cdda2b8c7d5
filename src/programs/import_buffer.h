/*
 * import_buffer: the bytes of a file, or of standard input, through one buffer.
 * Whoever takes some moves `start` on.
 */
#ifndef PROGRAMS_IMPORT_BUFFER_H
#define PROGRAMS_IMPORT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ground/watch.h"

struct import_buffer {
	const char *name; /* in messages */
	int fd;
	bool ended;           /* no more can be read */
	uint64_t done, total; /* bytes of the file; 0 if that is not known */
	char *buf;
	size_t size, start, end;
};

/*
 * import_buffer_open(in, path, size):
 * Open the file, or standard input for a NULL path, with a buffer of that size.
 * EX_OK, or a value of sysexits.h, logged; close it either way.
 */
int import_buffer_open(struct import_buffer *in, const char *path, size_t size);

/*
 * import_buffer_fill(in, watch):
 * Move what is left to the front, which must leave room, and read more behind
 * it, or set `ended`.  `watch` is told the bytes read and can end the waiting.
 */
enum import_buffer_fill {
	IMPORT_BUFFER_MORE,
	IMPORT_BUFFER_STOPPED, /* by the watch */
	IMPORT_BUFFER_FAILED   /* with errno */
};
enum import_buffer_fill import_buffer_fill(
    struct import_buffer *in, const struct watch *watch);

void import_buffer_close(struct import_buffer *in);

#endif
