/*
 * inspect_state: what the files of inspect share.  For inspect*.c alone.
 */
#ifndef STORE_INSPECT_STATE_H
#define STORE_INSPECT_STATE_H

#include "index.h"
#include "reader_state.h"
#include "store/inspect.h"

struct inspect {
	const char *path;
	struct reader *reader;
	char *line;
	size_t line_size;
};

/*
 * inspect_read_at(inspect, offset, record):
 * journal_read, into the line of `inspect`.
 */
int inspect_read_at(
    struct inspect *inspect, uint64_t offset, struct record *record);

/*
 * inspect_enter_index(inspect, index, covered):
 * Under the lock: begin to use the index.  `*index` is NULL if it is not to be
 * believed, else the caller's to close.
 */
enum inspect_index inspect_enter_index(
    struct inspect *inspect, struct index **index, struct position *covered);

#endif
