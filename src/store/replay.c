/*
 * replay: reads lines through a window, and judges the bytes after the last
 * good one.  See replay.h.
 *
 * A record begins with {"seq": and cannot contain it, since quotes in strings
 * are escaped.  So a record is found even after bytes that are not a line.
 */
#include "store/replay.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Large reads are cheap; the window grows only for a longer line. */
#define WINDOW_BYTES ((size_t)256 << 10)

/* A disk reads whole blocks: salvage skips one that it cannot read. */
#define BLOCK_BYTES ((uint64_t)4096)

void
replay_init(
    struct replay *replay, int fd, uint32_t seed, const struct position *at)
{
	*replay = (struct replay){
		.fd = fd, .seed = seed, .at = *at, .base = at->end
	};
}

void
replay_done(struct replay *replay)
{
	free(replay->window);
	replay->window = NULL;
}

/* Fill the window.  Return 1; 0 at end of file; -1 with replay->error. */
static int
fill_window(struct replay *replay)
{
	ssize_t n;

	assert(replay->used <= replay->fill && replay->fill <= replay->size);
	if (replay->used > 0) {
		replay->fill -= replay->used;
		memmove(replay->window, replay->window + replay->used,
		    replay->fill);
		replay->base += replay->used;
		replay->used = 0;
	}
	if (replay->fill == replay->size) {
		size_t size =
		    replay->size > 0 ? 2 * replay->size : WINDOW_BYTES;
		char *window = realloc(replay->window, size);

		if (window == NULL) {
			replay->error = ENOMEM;
			return -1;
		}
		replay->window = window;
		replay->size = size;
	}
	do
		n = pread(replay->fd, replay->window + replay->fill,
		    replay->size - replay->fill,
		    (off_t)(replay->base + replay->fill));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		replay->error = errno;
	if (n <= 0)
		return (int)n;
	replay->fill += (size_t)n;
	return 1;
}

/*
 * Find the line at window + used.  Return REPLAY_RECORD if there is one.  The
 * last line may have no newline.  A line longer than any record is cut short.
 */
static enum replay_result
find_line(struct replay *replay, const char **line, size_t *len)
{
	size_t looked = 0;
	int filled = replay->window == NULL ? fill_window(replay) : 1;

	while (filled >= 0) {
		const char *start = replay->window + replay->used;
		size_t have = replay->fill - replay->used;
		const char *newline =
		    have > looked ? memchr(start + looked, '\n', have - looked)
				  : NULL;

		*line = start;
		*len = newline == NULL ? have : (size_t)(newline + 1 - start);
		if (newline != NULL || *len > RECORD_LINE_MAX)
			return REPLAY_RECORD;
		if (filled == 0)
			return have == 0 ? REPLAY_END : REPLAY_RECORD;
		looked = have;
		filled = fill_window(replay);
	}
	return REPLAY_ERROR;
}

enum replay_result
replay_next(struct replay *replay, struct record *record)
{
	const char *line;
	struct record found;
	size_t len;
	enum replay_result result = find_line(replay, &line, &len);

	if (result != REPLAY_RECORD)
		return result;
	if (*line == '\n')
		return REPLAY_END;
	replay->reason = len > RECORD_LINE_MAX
			     ? "line longer than any record"
			     : record_decode(line, len, replay->seed, &found);
	if (replay->reason != NULL)
		return REPLAY_BAD;
	if (found.seq != replay->at.seq + 1 || found.prev != replay->at.crc) {
		replay->reason = "does not follow the line before";
		return REPLAY_BAD;
	}
	if (found.safe > replay->at.end) {
		replay->reason = "its watermark is above its own offset";
		return REPLAY_BAD;
	}
	assert(replay->base + replay->used == replay->at.end);
	replay->used += len;
	assert(replay->used <= replay->fill);
	replay->at.last = replay->at.end;
	replay->at.end += len;
	replay->at.seq = found.seq;
	replay->at.crc = found.crc;
	replay->at.closing = found.plant == NULL;
	*record = found;
	return REPLAY_RECORD;
}

/* Skip newlines, eight at a time: reserved space has no other byte. */
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

/* Find the next line that is not blank, or the next part of an overlong one. */
static enum replay_result
next_text(struct replay *replay, const char **line, size_t *len)
{
	enum replay_result result;

	/* More blank lines may follow once the window is refilled. */
	do {
		skip_blank(replay);
		result = find_line(replay, line, len);
	} while (result == REPLAY_RECORD && **line == '\n');
	/* Leave the last RECORD_LINE_MAX bytes: a record may begin there. */
	if (result == REPLAY_RECORD && *len > RECORD_LINE_MAX &&
	    (*line)[*len - 1] != '\n')
		*len -= RECORD_LINE_MAX;
	return result;
}

/*
 * Read the record at the end of the line, even if the newline before it is
 * lost: it begins at the last {"seq": in the line.  Return NULL with `record`
 * and `*begin`, or the reason why there is no record.
 */
static const char *
last_record(const struct replay *replay, const char *line, size_t len,
    struct record *record, const char **begin)
{
	static const char mark[] = "{\"seq\":";
	const char *end = line + len, *next = line;

	*begin = NULL;
	while ((next = memmem(next, (size_t)(end - next), mark,
		    sizeof(mark) - 1)) != NULL)
		*begin = next++;
	if (*begin == NULL)
		return *line == '\0' ? "NUL bytes in place of a record"
				     : "not a record";
	if (end - *begin > (ptrdiff_t)RECORD_LINE_MAX)
		return "line longer than any record";
	return record_decode(
	    *begin, (size_t)(end - *begin), replay->seed, record);
}

/* Skip the line.  Return the offset of its newline, or of its end. */
static uint64_t
pass_line(struct replay *replay, const char *line, size_t len)
{
	replay->used += len;
	return replay->base + replay->used - (line[len - 1] == '\n');
}

enum replay_result
replay_finish(struct replay *replay, uint64_t *tail_end)
{
	const char *line, *begin;
	struct record record;
	enum replay_result result;
	size_t len;

	while ((result = replay_next(replay, &record)) == REPLAY_RECORD)
		;
	if (result == REPLAY_ERROR)
		return REPLAY_ERROR;
	const uint64_t bad = replay->at.end;
	const char *reason = replay->reason;
	*tail_end = bad;
	while ((result = next_text(replay, &line, &len)) == REPLAY_RECORD) {
		if (last_record(replay, line, len, &record, &begin) == NULL &&
		    record.safe > bad) {
			replay->reason =
			    reason != NULL ? reason
					   : "blank lines in place of a record";
			return REPLAY_BAD;
		}
		*tail_end = pass_line(replay, line, len);
	}
	if (result == REPLAY_ERROR || *tail_end - bad <= JOURNAL_TAIL_MAX)
		return result;
	replay->reason = "more unreadable bytes than a torn batch leaves";
	return REPLAY_BAD;
}

/* Skip the unreadable block; return false if the file ends with it. */
static bool
pass_block(struct replay *replay)
{
	uint64_t next =
	    ((replay->base + replay->fill) / BLOCK_BYTES + 1) * BLOCK_BYTES;
	off_t size = lseek(replay->fd, 0, SEEK_END);

	replay->fill = replay->used = 0;
	replay->base = next;
	if (size >= 0 && next < (uint64_t)size)
		return true;
	replay->base = size < 0 ? next : (uint64_t)size;
	return false;
}

enum replay_result
replay_salvage(
    struct replay *replay, struct record *record, struct replay_lost *lost)
{
	const char *line, *begin, *why;
	enum replay_result result;
	size_t len;

	*lost = (struct replay_lost){ replay->at.end, replay->at.end,
		replay->reason };
	replay->reason = NULL;
	while ((result = next_text(replay, &line, &len)) != REPLAY_END) {
		bool readable = result == REPLAY_RECORD;

		if (!readable && replay->error == ENOMEM)
			return REPLAY_ERROR;
		why = readable ? last_record(replay, line, len, record, &begin)
			       : strerror(replay->error);
		if (lost->reason == NULL)
			lost->reason = why != NULL ? why : "not a record";
		if (why == NULL) {
			replay->at.last = replay->base + replay->used +
					  (uint64_t)(begin - line);
			replay->used += len;
			replay->at.end = replay->base + replay->used;
			lost->end = replay->at.last;
			return REPLAY_RECORD;
		}
		if (readable) {
			lost->end = pass_line(replay, line, len);
			continue;
		}
		bool more = pass_block(replay);
		lost->end = replay->base;
		if (!more)
			break;
	}
	return REPLAY_END;
}
