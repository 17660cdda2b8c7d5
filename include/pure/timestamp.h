/* timestamp: RFC 3339 date-times, in UTC.  Pure; any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* "2026-11-21T07:21:00.123Z", without a NUL. */
#define TIMESTAMP_LEN 24
/* The printf conversion that drops the fraction: "2026-11-21T07:21:00Z". */
#define TIMESTAMP_SECONDS "%.19sZ"

/*
 * timestamp_print(ms, text):
 * Write the time `ms`, in milliseconds since 1970-01-01T00:00:00Z, as
 * TIMESTAMP_LEN bytes.  A time outside the years 0000 to 9999 is clamped.
 *
 * timestamp_read(text, len, ms):
 * Read an RFC 3339 date-time: any offset, any number of fraction digits (cut to
 * milliseconds), upper or lower case T and Z.  Second 60 is read as the next
 * minute's second 0.  Return 0; -1 unless `text` is exactly one date-time.
 *
 * timestamp_is_canonical(text):
 * Return whether timestamp_print can write these TIMESTAMP_LEN bytes.
 */
void timestamp_print(int64_t ms, char text[static TIMESTAMP_LEN]);
int timestamp_read(const char *text, size_t len, int64_t *ms);
int timestamp_is_canonical(const char text[static TIMESTAMP_LEN]);
