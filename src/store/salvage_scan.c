/*
 * salvage_scan: see salvage_scan.h.
 *
 * A record begins with {"seq": and ends with its crc, and neither stands within
 * one: quotes in its strings are escaped.  So its bytes are found without
 * trusting any newline, and what lies between two beginnings is looked at once.
 */
#include "salvage_scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_BYTES (4 * RECORD_LINE_MAX)

/* What a disk reads at once: behind a block that it does not give, go on. */
#define BLOCK_BYTES ((uint64_t)4096)

#define BEGIN "{\"seq\":"
#define BEGIN_LEN (sizeof(BEGIN) - 1)
#define TRAILER ",\"crc\":\""
/* With the 8 digits and the end, without the newline. */
#define TRAILER_LEN (sizeof(TRAILER) - 1 + 8 + 2)

int
salvage_scan_init(struct salvage_scan *scan, int fd, uint32_t seed, uint64_t at,
    const char *reason)
{
	memset(scan, 0, sizeof(*scan));
	scan->fd = fd;
	scan->seed = seed;
	scan->base = scan->lost_from = at;
	scan->text_end = at;
	scan->reason = reason;
	scan->window = malloc(WINDOW_BYTES);
	scan->line = malloc(RECORD_LINE_MAX);
	if (scan->window != NULL && scan->line != NULL)
		return 0;
	salvage_scan_done(scan);
	return -1;
}

void
salvage_scan_done(struct salvage_scan *scan)
{
	free(scan->window);
	free(scan->line);
	scan->window = scan->line = NULL;
}

static uint64_t
offset_of(const struct salvage_scan *scan)
{
	return scan->base + scan->used;
}

/* Have the longest line in the window, unless what can be read ends. */
static void
fill_window(struct salvage_scan *scan)
{
	if (scan->ended || scan->fill - scan->used >= RECORD_LINE_MAX)
		return;
	scan->fill -= scan->used;
	memmove(scan->window, scan->window + scan->used, scan->fill);
	scan->base += scan->used;
	scan->used = 0;
	while (!scan->ended && scan->fill < WINDOW_BYTES) {
		ssize_t n = pread(scan->fd, scan->window + scan->fill,
		    WINDOW_BYTES - scan->fill,
		    (off_t)(scan->base + scan->fill));

		if (n > 0)
			scan->fill += (size_t)n;
		else if (n == 0 || errno != EINTR) {
			scan->ended = true;
			scan->error = n < 0 ? errno : 0;
		}
	}
}

/* Behind the block that cannot be read; false if the file ends there. */
static bool
pass_block(struct salvage_scan *scan)
{
	uint64_t bad = offset_of(scan);
	uint64_t next = (bad / BLOCK_BYTES + 1) * BLOCK_BYTES;
	off_t size = lseek(scan->fd, 0, SEEK_END);

	if (scan->text_end < next)
		scan->text_end = next;
	if (scan->reason == NULL)
		scan->reason = strerrordesc_np(scan->error);
	if (size < 0 || next >= (uint64_t)size) {
		scan->text_end = size < 0 ? next : (uint64_t)size;
		return false;
	}
	scan->base = next;
	scan->fill = scan->used = 0;
	scan->ended = false;
	scan->error = 0;
	return true;
}

/* Whether a record begins at the window's place; `len` are its bytes. */
static bool
take_record(struct salvage_scan *scan, struct record *record, size_t *len)
{
	const char *p = scan->window + scan->used, *next, *end;
	size_t have = scan->fill - scan->used;
	const char *why = NULL;

	if (have < BEGIN_LEN || memcmp(p, BEGIN, BEGIN_LEN) != 0)
		return false;
	if (have > RECORD_LINE_MAX)
		have = RECORD_LINE_MAX;
	next = memmem(p + 1, have - 1, BEGIN, BEGIN_LEN);
	if (next != NULL)
		have = (size_t)(next - p);
	end = memmem(p, have, TRAILER, sizeof(TRAILER) - 1);
	if (end == NULL || (size_t)(end - p) + TRAILER_LEN > have)
		why = "incomplete line";
	else {
		*len = (size_t)(end - p) + TRAILER_LEN;
		if (*len < have && p[*len] == '\n')
			why = record_decode(p, ++*len, scan->seed, record);
		else if (*len < RECORD_LINE_MAX) {
			memcpy(scan->line, p, *len);
			scan->line[*len] = '\n';
			why = record_decode(
			    scan->line, *len + 1, scan->seed, record);
		} else
			why = "line longer than any record";
	}
	if (why != NULL && scan->reason == NULL)
		scan->reason = why;
	return why == NULL;
}

/* To the next place where a record may begin, or where the window ends. */
static void
skip(struct salvage_scan *scan)
{
	const char *p = scan->window + scan->used;
	size_t have = scan->fill - scan->used;
	const char *next = memmem(p + 1, have - 1, BEGIN, BEGIN_LEN);
	size_t len = have, text;

	if (next != NULL)
		len = (size_t)(next - p);
	else if (!scan->ended && have > BEGIN_LEN)
		len = have - BEGIN_LEN;
	for (text = len; text > 0 && p[text - 1] == '\n'; text--)
		;
	if (text > 0)
		scan->text_end = offset_of(scan) + text;
	if (text > 0 && scan->reason == NULL)
		scan->reason = p[0] == '\0' ? "NUL bytes in place of a record"
					    : "not a record";
	scan->used += len;
}

bool
salvage_scan_next(struct salvage_scan *scan, struct record *record,
    uint64_t *offset, struct salvage_lost *lost)
{
	bool found = false;
	size_t len = 0;

	for (;;) {
		fill_window(scan);
		if (scan->used < scan->fill) {
			found = take_record(scan, record, &len);
			if (found)
				break;
			skip(scan);
		} else if (scan->error == 0 || !pass_block(scan))
			break;
	}
	*offset = offset_of(scan);
	lost->begin = scan->lost_from;
	lost->end = found ? *offset : scan->text_end;
	lost->reason = scan->reason != NULL
			   ? scan->reason
			   : "blank lines in place of a record";
	scan->used += len;
	scan->lost_from = scan->text_end = *offset + len;
	scan->reason = NULL;
	return found;
}
