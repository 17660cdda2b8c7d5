/*
 * output: where a long output goes: stdout, or a file that takes its name only
 * when it is complete and on the disk.
 */
#ifndef PROGRAMS_OUTPUT_H
#define PROGRAMS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct output {
	const char *path; /* NULL: stdout */
	char *temporary;  /* the file's name until it is complete */
	int fd;
	bool replace; /* a file that is there; else it is an error */
	char *buf;
	size_t size, used;
	uint64_t items;   /* added */
	uint64_t written; /* of these, whole buffers of them */
	bool cut;         /* a part of a buffer was written too */
};

/*
 * output_open(output, path, replace, item_max):
 * Begin an output of items of at most `item_max` bytes; `path` must stay, NULL
 * is stdout.  EX_OK; else a status, logged, and nothing was made.
 */
int output_open(
    struct output *output, const char *path, bool replace, size_t item_max);

/*
 * output_prefix(output, text):
 * Put out a short text, which is no item, before the first one.
 */
void output_prefix(struct output *output, const char *text);

/*
 * output_room(output), output_end(output), output_add(output, len):
 * Make room for an item of `item_max` bytes; where it is to be put; that it was
 * put there.  output_room writes now and then: EX_OK, a status, logged, or -1 if
 * a signal broke it off (command_interrupted).
 */
int output_room(struct output *output);
char *output_end(const struct output *output);
void output_add(struct output *output, size_t len);

/*
 * output_flush(output):
 * Write what was added; the result is output_room's.
 */
int output_flush(struct output *output);

/*
 * output_finish(output):
 * Write the rest, sync the file and put it in its place; stdout is not synced.
 * The result is output_room's.
 */
int output_finish(struct output *output);

/*
 * output_close(output):
 * Free what it has; a file that was not finished is removed.
 */
void output_close(struct output *output);

#endif
