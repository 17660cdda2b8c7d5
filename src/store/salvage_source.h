/*
 * salvage_source: the damaged journal, open for reading only, and whose records
 * it has.
 */
#ifndef STORE_SALVAGE_SOURCE_H
#define STORE_SALVAGE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "pure/record.h"

struct salvage_source {
	int fd;
	uint64_t bytes;
	char uuid[RECORD_UUID_LEN + 1];
	uint32_t seed;  /* of that uuid's checksums */
	bool whole;     /* it begins with a header, and that has this uuid */
	uint64_t lines; /* so many an index beside it knows of; or 0 */
};

/*
 * salvage_source_open(source, path, uuid):
 * Open the journal in the directory `path`, or the file `path`, without a lock.
 * Its uuid is `uuid`; where that is NULL, the one in its header, or in the file
 * `lock` beside it.  EX_OK, and then salvage_source_close; or a status, logged.
 */
int salvage_source_open(
    struct salvage_source *source, const char *path, const char *uuid);
void salvage_source_close(struct salvage_source *source);

#endif
