/*
 * output: where plants go: stdout, or a file that takes its name only when it
 * is complete and on the disk.
 */
#ifndef PROGRAMS_OUTPUT_H
#define PROGRAMS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "ground/fault.h"
#include "pure/record.h"
#include "pure/timestamp.h"

struct output {
	const char *path; /* NULL: stdout */
	char *temporary;  /* the file's name until it is complete */
	int fd;
	bool replace;  /* a file that is there; else it is an error */
	bool terminal; /* so control characters are escaped, as \u001b */
	size_t used;
	/* Larger made it no faster. */
	char buf[(size_t)256 << 10];
};

/*
 * output_open(output, path, replace):
 * Begin an output; `path` must stay, NULL is stdout.  A fault is logged, and no
 * file was made.  A journal is never replaced.
 *
 * output_put(output, text, len):
 * Add text, of whole characters.  FAULT_FAILED, logged, where it cannot be
 * written; FAULT_STOPPED if a signal broke that off.  If the reader of stdout
 * has gone, SIGPIPE ends the process.
 *
 * output_put_plant(output, record, full):
 * Put the plant's line; `full`: that of --full, which import --full reads: when
 * it was stored, by which token, and what.
 *
 * output_finish(output):
 * Write the rest, sync the file and put it in its place; stdout is not synced.
 * The faults are those of output_put and, for a file, of output_open.
 *
 * output_close(output):
 * A file that was not finished is removed.
 */
enum fault output_open(struct output *output, const char *path, bool replace);
enum fault output_put(struct output *output, const char *text, size_t len);
enum fault output_put_plant(
    struct output *output, const struct record *record, bool full);
enum fault output_finish(struct output *output);
void output_close(struct output *output);

/* What --full puts around a plant, and how many bytes at most. */
#define OUTPUT_FULL_AT "{\"at\":\""
#define OUTPUT_FULL_BY "\",\"by\":\""
#define OUTPUT_FULL_PLANT "\",\"plant\":"
#define OUTPUT_FULL_AROUND                                             \
	(sizeof(OUTPUT_FULL_AT OUTPUT_FULL_BY OUTPUT_FULL_PLANT "}") + \
	    TIMESTAMP_LEN + RECORD_BY_MAX)

#endif
