/*
 * import_input: plants from JSON lines or CSV, one after the other, with the
 * checks of the interface, and the lines they stand in.  Constant memory.
 *
 * JSON lines: a NewPlant a line; blank lines are passed over.  CSV: a header
 * line "id,name" or "id,name,tag", then a plant a record; a byte order mark at
 * the start and blank lines are passed over, an empty field without quotes is
 * no value.  In both a line ends in LF or CRLF, the last in nothing too.
 */
#ifndef PROGRAMS_IMPORT_INPUT_H
#define PROGRAMS_IMPORT_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "ground/watch.h"
#include "plant/plant.h"

enum import_format {
	IMPORT_GUESS, /* by the file's suffix, else by its first byte */
	IMPORT_JSON_LINES,
	IMPORT_CSV
};

struct import_input;

/*
 * import_input_open(path, format, bytes_max, status):
 * Open the file, or standard input for a NULL path.  `bytes_max` is that of a
 * plant, as JSON.  NULL, logged, with a value of sysexits.h in `status`.
 */
struct import_input *import_input_open(
    const char *path, enum import_format format, size_t bytes_max, int *status);

/*
 * import_input_name(input):
 * What to call it in messages.
 */
const char *import_input_name(const struct import_input *input);

enum import_result {
	IMPORT_PLANT,
	IMPORT_REFUSED,
	IMPORT_END,
	IMPORT_STOPPED, /* by the watch; nothing is half read */
	IMPORT_FAILED   /* logged; see import_input_status */
};

struct import_line {
	uint64_t number;    /* of the plant's line, or its first, from 1 */
	struct plant plant; /* of IMPORT_PLANT: the caller's to free */
	const char *why;    /* of IMPORT_REFUSED, until the next call */
};

/*
 * import_input_next(input, watch, line):
 * The next plant, or why the next line is none.  `watch` is told the bytes read
 * of the file; it can also end the waiting for input.
 */
enum import_result import_input_next(struct import_input *input,
    const struct watch *watch, struct import_line *line);

/*
 * import_input_lines(input):
 * How many lines were read so far.
 */
uint64_t import_input_lines(const struct import_input *input);

/*
 * import_input_status(input):
 * Why import_input_next gave IMPORT_FAILED: a value of sysexits.h.
 */
int import_input_status(const struct import_input *input);

/*
 * import_input_close(input):
 * Close the file, free all of it.
 */
void import_input_close(struct import_input *input);

#endif
