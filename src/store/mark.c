/* mark: see mark.h. */
#include "store/mark.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"
#include "pure/crc32c.h"

/* The end mark: uuid, offset and checksum, with spaces between; a newline. */
#define END_LEN ((size_t)RECORD_UUID_LEN + 1 + 20 + 1 + 8 + 1)
/* index/end, in the same form: file, end, last, seq, crc, checksum. */
#define MARK_LEN ((size_t)FILE_ID_LEN + 3 * (1 + 20) + 2 * (1 + 8) + 1)

/*
 * `uuid` may be any 36 bytes: mark_read_end checks a mark by encoding its
 * values again.
 */
static void
encode_end(const char *uuid, uint64_t end, char mark[static END_LEN + 1])
{
	int n = snprintf(mark, END_LEN + 1, "%.36s %020" PRIu64, uuid, end);

	snprintf(mark + n, END_LEN + 1 - (size_t)n, " %08x\n",
	    crc32c(0, mark, (size_t)n));
}

enum fault
mark_write_end(struct journal *journal)
{
	char mark[END_LEN + 1];

	assert(journal->durable >= journal->start.end);
	encode_end(journal->uuid, journal->durable, mark);
	return file_put(journal->dir, JOURNAL_END_NAME, mark, END_LEN) == 0
		   ? FAULT_NONE
		   : journal_unwritten(journal, JOURNAL_END_NAME, errno);
}

static void
encode_mark(const struct journal *journal, const char *file,
    const struct position *at, char mark[static MARK_LEN + 1])
{
	int n = snprintf(mark, MARK_LEN + 1,
	    "%s %020" PRIu64 " %020" PRIu64 " %020" PRIu64 " %08" PRIx32, file,
	    at->end, at->last, at->seq, at->crc);

	snprintf(mark + n, MARK_LEN + 1 - (size_t)n, " %08x\n",
	    crc32c(journal->seed, mark, (size_t)n));
}

/* Open index/end, and identify it.  Return the descriptor, or -1. */
static int
open_mark(const struct journal *journal, int flags, char *file)
{
	int fd = openat(journal->dir, INDEX_NAME "/" INDEX_END_NAME,
	    flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

	if (fd < 0 || file_identify(fd, file) == 0)
		return fd;
	close(fd);
	return -1;
}

void
mark_write(struct journal *journal, const struct position *at)
{
	char mark[MARK_LEN + 1];

	assert(at->last < at->end && at->end <= journal->durable);
	if (journal->end_fd < 0)
		journal->end_fd =
		    open_mark(journal, O_WRONLY | O_CREAT, journal->end_file);
	if (journal->end_fd < 0)
		return;
	encode_mark(journal, journal->end_file, at, mark);
	(void)!pwrite(journal->end_fd, mark, MARK_LEN, 0);
}

struct position
mark_read(struct journal *journal)
{
	char mark[MARK_LEN + 1] = "", good[MARK_LEN + 1];
	char file[FILE_ID_LEN + 1] = "";
	struct position at = { 0 };
	int fd = open_mark(journal, O_RDONLY, file);

	if (fd >= 0 && file_read_all(fd, mark, MARK_LEN, 0) == MARK_LEN)
		sscanf(mark + FILE_ID_LEN,
		    "%20" SCNu64 "%20" SCNu64 "%20" SCNu64 "%8" SCNx32, &at.end,
		    &at.last, &at.seq, &at.crc);
	file_close(fd);
	encode_mark(journal, file, &at, good);
	if (strcmp(mark, good) != 0)
		return (struct position){ 0 };
	if (journal->durable < at.end)
		journal->durable = at.end;
	return at;
}

enum fault
mark_read_end(struct journal *journal)
{
	char mark[END_LEN + 1] = "", good[END_LEN + 1];

	if (file_get(journal->dir, JOURNAL_END_NAME, mark, END_LEN) < 0) {
		if (errno == ENOENT)
			return FAULT_NONE;
		if (errno == EINVAL || errno == ELOOP || errno == ENXIO) {
			log_error("%s.end: is not a regular file; remove it",
			    journal->name);
			return FAULT_SETUP;
		}
		/* Out of memory or descriptors: the mark may be good. */
		if (fault_passes(fault_of(errno)))
			return fault_report(journal->name, "cannot read .end");
	}
	uint64_t end = strtoull(mark + RECORD_UUID_LEN, NULL, 10);
	encode_end(mark, end, good);
	if (strcmp(mark, good) != 0) {
		log_warning("%s.end: unreadable; the service writes it again "
			    "after the next plant",
		    journal->name);
		return FAULT_NONE;
	}
	if (memcmp(mark, journal->uuid, RECORD_UUID_LEN) != 0) {
		log_error("%s.end: belongs to another store; to use this "
			  "journal anyway, remove that file first",
		    journal->name);
		return FAULT_SETUP;
	}
	journal->recorded = end;
	return FAULT_NONE;
}

enum fault
mark_find_durable(struct journal *journal, const struct position *seen)
{
	journal->durable = seen->end;
	const struct position marked = mark_read(journal);
	/* Without the lock, others may have made the journal longer. */
	const char *why = journal_check(journal, 0);
	if (why != NULL) {
		log_error("%s: %s", journal->name, why);
		return FAULT_BUSY;
	}
	enum fault fault = journal_check_seen(
	    journal, marked.end > seen->end ? &marked : seen);
	return fault == FAULT_NONE ? mark_read_end(journal) : fault;
}
