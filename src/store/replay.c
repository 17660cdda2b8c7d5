/* replay: lines through a window, and the verdict.  See replay.h. */
#include "replay.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Large reads are cheap; the window grows for a longer line only. */
#define WINDOW_BYTES ((size_t)256 << 10)

bool
position_is_behind(const struct position *at, const struct record *record)
{
	return record->seq == at->seq && record->crc == at->crc;
}

int
replay_init(
    struct replay *replay, int fd, uint32_t seed, const struct position *at)
{
	memset(replay, 0, sizeof(*replay));
	replay->window = malloc(WINDOW_BYTES);
	if (replay->window == NULL)
		return -1;
	replay->size = WINDOW_BYTES;
	replay->fd = fd;
	replay->seed = seed;
	replay->at = *at;
	replay->base = at->end;
	return 0;
}

void
replay_done(struct replay *replay)
{
	free(replay->window);
	replay->window = NULL;
}

/* More bytes behind what is there: 1, 0 at the end of the file, -1. */
static int
fill_window(struct replay *replay)
{
	ssize_t n;

	if (replay->used > 0) {
		replay->fill -= replay->used;
		memmove(replay->window, replay->window + replay->used,
		    replay->fill);
		replay->base += replay->used;
		replay->used = 0;
	}
	if (replay->fill == replay->size) {
		char *window = realloc(replay->window, replay->size * 2);

		if (window == NULL)
			return -1;
		replay->window = window;
		replay->size *= 2;
	}
	do
		n = pread(replay->fd, replay->window + replay->fill,
		    replay->size - replay->fill,
		    (off_t)(replay->base + replay->fill));
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return (int)n;
	replay->fill += (size_t)n;
	return 1;
}

enum line { LINE_WHOLE, LINE_CUT, LINE_LONG, LINE_NONE, LINE_ERROR };

/*
 * The line at the window's place.  LINE_CUT: the file ends before a newline;
 * LINE_LONG: longer than any record.
 */
static enum line
find_line(struct replay *replay, const char **line, size_t *len)
{
	size_t looked = 0;

	for (;;) {
		const char *start = replay->window + replay->used;
		size_t have = replay->fill - replay->used;
		const char *newline =
		    have > looked ? memchr(start + looked, '\n', have - looked)
				  : NULL;

		*line = start;
		*len = newline == NULL ? have : (size_t)(newline + 1 - start);
		if (*len > RECORD_LINE_MAX)
			return LINE_LONG;
		if (newline != NULL)
			return LINE_WHOLE;
		looked = have;
		switch (fill_window(replay)) {
		case 0:
			*line = replay->window + replay->used;
			return have == 0 ? LINE_NONE : LINE_CUT;
		case -1:
			return LINE_ERROR;
		}
	}
}

enum replay_result
replay_next(struct replay *replay, struct record *record)
{
	const char *line;
	struct record found;
	size_t len;

	switch (find_line(replay, &line, &len)) {
	case LINE_NONE:
		return REPLAY_END;
	case LINE_ERROR:
		return REPLAY_ERROR;
	case LINE_CUT:
		replay->reason = "incomplete line";
		return REPLAY_BAD;
	case LINE_LONG:
		replay->reason = "line longer than any record";
		return REPLAY_BAD;
	case LINE_WHOLE:
		break;
	}
	if (len == 1)
		return REPLAY_END;
	replay->reason = record_decode(line, len, replay->seed, &found);
	if (replay->reason != NULL)
		return REPLAY_BAD;
	if (found.seq != replay->at.seq + 1 || found.prev != replay->at.crc) {
		replay->reason = "does not follow the line before";
		return REPLAY_BAD;
	}
	if (found.safe > replay->at.end) {
		replay->reason = "its watermark is above its own place";
		return REPLAY_BAD;
	}
	replay->used += len;
	replay->at.last = replay->at.end;
	replay->at.end += len;
	replay->at.seq = found.seq;
	replay->at.crc = found.crc;
	*record = found;
	return REPLAY_RECORD;
}

/* Pass over newlines, eight at a time: the room ahead is nothing else. */
static void
skip_blank(struct replay *replay)
{
	static const char blank[8] = { '\n', '\n', '\n', '\n', '\n', '\n', '\n',
		'\n' };
	const char *window = replay->window;
	size_t used = replay->used;

	while (replay->fill - used >= sizeof(blank) &&
	       memcmp(window + used, blank, sizeof(blank)) == 0)
		used += sizeof(blank);
	while (used < replay->fill && window[used] == '\n')
		used++;
	replay->used = used;
}

/*
 * Whether a record whose watermark is above `bad` ends here.  It begins at the
 * last place that looks like a record's beginning, which nothing within a
 * record does: quotes in its strings are escaped.
 */
static bool
is_witness(
    const struct replay *replay, const char *line, size_t len, uint64_t bad)
{
	static const char begin[] = "{\"seq\":";
	const char *end = line + len, *last = NULL, *next = line;
	struct record found;

	while ((next = memmem(next, (size_t)(end - next), begin,
		    sizeof(begin) - 1)) != NULL)
		last = next++;
	return last != NULL &&
	       record_decode(
		   last, (size_t)(end - last), replay->seed, &found) == NULL &&
	       found.safe > bad;
}

enum replay_tail
replay_judge(struct replay *replay, uint64_t *tail_end)
{
	const uint64_t bad = replay->at.end;
	const char *reason = replay->reason;
	const char *line;
	size_t len;

	*tail_end = bad;
	for (;;) {
		skip_blank(replay);
		switch (find_line(replay, &line, &len)) {
		case LINE_NONE:
			if (*tail_end == bad)
				return REPLAY_CLEAN;
			if (*tail_end - bad <= JOURNAL_TAIL_MAX)
				return REPLAY_TORN;
			replay->reason = "more unreadable bytes than a torn "
					 "batch leaves";
			return REPLAY_DAMAGED;
		case LINE_ERROR:
			return REPLAY_TAIL_ERROR;
		case LINE_LONG:
			/* A record may begin in its end, and end behind it. */
			if (line[len - 1] != '\n')
				len -= RECORD_LINE_MAX;
			break;
		case LINE_WHOLE:
		case LINE_CUT:
			break;
		}
		if (is_witness(replay, line, len, bad)) {
			if (reason == NULL)
				reason = "blank lines in place of a record";
			replay->reason = reason;
			return REPLAY_DAMAGED;
		}
		size_t text = line[len - 1] == '\n' ? len - 1 : len;
		if (text > 0)
			*tail_end = replay->base + replay->used + text;
		replay->used += len;
	}
}

enum replay_tail
replay_finish(struct replay *replay, uint64_t *tail_end)
{
	struct record record;
	enum replay_result result;

	do
		result = replay_next(replay, &record);
	while (result == REPLAY_RECORD);
	return result == REPLAY_ERROR ? REPLAY_TAIL_ERROR
				      : replay_judge(replay, tail_end);
}
