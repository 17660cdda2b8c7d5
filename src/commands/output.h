/*
 * output: where get and export write plants: stdout, or a file that gets its
 * name only when it is complete and durable.  Before that it is
 * FILE.unfinished, of mode 0600, and locked: the next process with the same
 * FILE overwrites what a killed one left.  A process has one output.  On a
 * terminal, control characters are escaped, as \u001b.
 *
 * One large buffer and write(2), since the output may be gigabytes of short
 * lines.  After a fault, which is logged, nothing more is written; a signal is
 * FAULT_STOPPED.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ground/fault.h"
#include "pure/record.h"

/* The most that is put at once: a field of CSV, quoted and with a comma. */
#define OUTPUT_PUT_MAX (2 * RECORD_LINE_MAX + 3)
/* The end of its name until it is complete. */
#define OUTPUT_UNFINISHED ".unfinished"
/* How long a signal or, with --follow, a new plant may go unnoticed. */
#define OUTPUT_WAIT_MS 250

/*
 * output_open(path, replace):
 * Write to the file `path`, or to stdout if it is NULL.  An existing file is
 * refused (FAULT_OUTPUT) unless it is regular and is to be replaced.
 * FAULT_BUSY: another process writes FILE.unfinished.
 *
 * output_put(text, len), output_put_plant(record, full):
 * Buffer `text`, which consists of whole characters; a line with the plant or,
 * if `full`, an object that has its time and token's name, too.  Return the
 * output's fault.
 *
 * output_buffered(), output_flush():
 * The number of bytes in the buffer.  Write them; return the output's fault.
 *
 * output_sync():
 * After a flush, make a file durable; stdout may be one.
 *
 * output_wait():
 * Wait OUTPUT_WAIT_MS.  FAULT_FAILED if the reader of a pipe is gone.
 *
 * output_finish(), output_discard():
 * Flush; make a file durable and give it its name.  Remove an unfinished file.
 */
enum fault output_open(const char *path, bool replace);
enum fault output_put(const char *text, size_t len);
enum fault output_put_plant(const struct record *record, bool full);
size_t output_buffered(void);
enum fault output_flush(void);
enum fault output_sync(void);
enum fault output_wait(void);
enum fault output_finish(void);
void output_discard(void);
