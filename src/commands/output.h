/*
 * output: where get and export write plants: stdout, or a file that gets its
 * name only when it is complete and durable.  Until then it is FILE.unfinished,
 * which is locked and has mode 0600.  If the process is killed, the next one
 * with the same FILE overwrites FILE.unfinished.  A process has one output.  On
 * a terminal, control characters are escaped: \u001b.
 *
 * It has one large buffer and uses write(2): the output may be gigabytes of
 * short lines.  A fault or a signal ends the process (command_need).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "pure/record.h"

/* The maximum length of one call's text: a quoted CSV field and a comma. */
#define OUTPUT_PUT_MAX (2 * RECORD_LINE_MAX + 3)
/* The suffix of the name of an unfinished file. */
#define OUTPUT_UNFINISHED ".unfinished"

/*
 * output_open(path, replace):
 * Write to the file `path`, or to stdout if `path` is NULL.  An existing file
 * is refused unless it is regular and is to be replaced.
 *
 * output_put(text, len), output_put_plant(record, full):
 * Buffer `text`, which consists of whole characters.  Buffer a line with the
 * plant or, if `full`, with an object that also has its time and token's name.
 *
 * output_buffered():
 * Return the number of bytes in the buffer.
 *
 * output_flush(), output_sync():
 * Write the buffer.  Make the output durable; stdout may be a file.
 *
 * output_wait():
 * Wait a moment.  If the output is a pipe and its reader is gone, fail.
 *
 * output_finish():
 * Flush; make a file durable and give it its name.
 */
void output_open(const char *path, bool replace);
void output_put(const char *text, size_t len);
void output_put_plant(const struct record *record, bool full);
size_t output_buffered(void);
void output_flush(void);
void output_sync(void);
void output_wait(void);
void output_finish(void);
