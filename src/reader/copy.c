/*
 * copy: see reader/reader.h.
 *
 * Happy path: if the source has the last line of an earlier copy, the copy is
 * extended.  The source's later lines are checked (reader), the end mark is
 * written, the lines are appended and synced, and the end mark is written
 * again.  So the mark covers only durable bytes, unless the copy was moved: a
 * backup with --verify reads it from the disk.  Otherwise the whole source is
 * checked and copied into a new file, which is renamed over an earlier copy.
 * Failure modes: damage ends the copy, and its offset is logged.  If an
 * unfinished copy has left bytes after the mark, the next copy is a full one.
 * A copy without a mark was renamed, so it is durable.
 */
#include "journal_reader.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"
#include "store/mark.h"

/* Return whether a file has the type and belongs to root or to this user. */
static bool
is_trusted(const struct stat *st, mode_t type)
{
	return (st->st_mode & S_IFMT) == type &&
	       (st->st_uid == 0 || st->st_uid == geteuid());
}

static const char busy[] = "another process is writing there";
static const char foreign[] =
    "it or its " JOURNAL_NAME " belongs to another user, or the latter is a "
    "symbolic link or not a regular file";

static enum fault
refuse(const struct journal *dest, enum fault fault, const char *why)
{
	log_error("%s: %s; %s", dest->path, why,
	    fault == FAULT_BUSY ? "try again later" : "name another directory");
	return fault;
}

/* Open the directory for the copy, and lock it until it is closed. */
static enum fault
open_dest(struct journal *dest)
{
	const char *path = dest->path;
	struct stat st;

	if (file_lstat(path, &st) == 0 && S_ISLNK(st.st_mode) &&
	    !is_trusted(&st, S_IFLNK))
		return refuse(dest, FAULT_SETUP, foreign);
	dest->dir = file_make_dir(path);
	if (dest->dir < 0 ||
	    asprintf(&dest->name, "%s/" JOURNAL_NAME, path) < 0)
		return fault_report(path, "cannot create or open");
	if (flock(dest->dir, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return refuse(dest, FAULT_BUSY, busy);
	if (fstat(dest->dir, &st) < 0)
		return fault_report(path, "cannot open");
	if (!is_trusted(&st, S_IFDIR))
		return refuse(dest, FAULT_SETUP, foreign);
	return journal_exists(dest, "index")
		   ? refuse(dest, FAULT_OUTPUT, "was used as a store")
		   : FAULT_NONE;
}

/*
 * Return whether the source has the copy's last bytes at the same offset.  Then
 * all earlier bytes are equal, since each line is chained to the previous one.
 * Set `at` to the end of the copy's last line, if it ends with a line.
 */
static bool
compare_tails(const struct store_reader *source, const struct journal *dest,
    struct position *at)
{
	const struct journal *journal = &source->journal;
	const size_t len = MIN(dest->size, RECORD_LINE_MAX);
	const uint64_t from = dest->size - len;
	char *tail = malloc(2 * len);
	bool same =
	    tail != NULL &&
	    file_read_all(dest->fd, tail, len, from) == (ssize_t)len &&
	    file_read_all(journal->fd, tail + len, len, from) == (ssize_t)len &&
	    memcmp(tail, tail + len, len) == 0;

	if (same && tail[len - 1] == '\n') {
		const char *before = memrchr(tail, '\n', len - 1);
		size_t begin = before == NULL ? 0 : (size_t)(before + 1 - tail);
		struct record record;

		if (record_decode(tail + begin, len - begin, journal->seed,
			&record) == NULL)
			*at = (struct position){ .end = dest->size,
				.last = from + begin,
				.seq = record.seq,
				.crc = record.crc,
				.closing = record.plant == NULL };
	}
	free(tail);
	return same;
}

/*
 * A journal in `dest` must be an earlier copy, and stays locked until the copy
 * is complete: a service that starts there meanwhile waits, and then opens it.
 * Set `at` to the end of a journal that can be extended: all of it is durable,
 * it has no other hard link, and it ends with a line.
 */
static enum fault
check_earlier(const struct store_reader *source, struct journal *dest,
    struct position *at)
{
	const struct journal *journal = &source->journal;
	char header[RECORD_HEADER_LEN], ours[RECORD_HEADER_LEN];
	struct stat st;

	/* Nobody can replace an open file.  O_NONBLOCK is for a FIFO. */
	dest->fd = openat(dest->dir, JOURNAL_NAME,
	    O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (dest->fd < 0 && errno == ENOENT)
		return FAULT_NONE;
	if (dest->fd < 0 ? errno != ELOOP : fstat(dest->fd, &st) < 0)
		return fault_report(dest->path, "cannot open");
	if (dest->fd < 0 || !is_trusted(&st, S_IFREG))
		return refuse(dest, FAULT_SETUP, foreign);
	if (st.st_ino == journal->inode && st.st_dev == journal->device)
		return refuse(dest, FAULT_SETUP,
		    "its " JOURNAL_NAME " is the journal itself");
	if (journal_lock(dest, JOURNAL_EXCLUSIVE, 0) != FAULT_NONE)
		return refuse(dest, FAULT_BUSY, busy);
	if (pread(dest->fd, header, sizeof(header), 0) != sizeof(header) ||
	    pread(journal->fd, ours, sizeof(ours), 0) != sizeof(ours) ||
	    memcmp(header, ours, sizeof(ours)) != 0)
		return refuse(dest, FAULT_OUTPUT,
		    "its " JOURNAL_NAME " is a copy of another store");
	memcpy(dest->uuid, journal->uuid, sizeof(dest->uuid));
	enum fault fault = mark_read_end(dest);
	if (fault != FAULT_NONE)
		return fault;
	const uint64_t size = (uint64_t)st.st_size;
	const bool marked =
	    dest->recorded > 0 || journal_exists(dest, JOURNAL_END_NAME);
	dest->size = dest->recorded > 0 ? MIN(size, dest->recorded) : size;
	if (dest->size > source->limit.end)
		return refuse(dest, FAULT_OUTPUT,
		    "its " JOURNAL_NAME " is longer than the source");
	if (!compare_tails(source, dest, at))
		return refuse(dest, FAULT_OUTPUT,
		    "its " JOURNAL_NAME " is not the beginning of the source, "
		    "or is damaged: verify it");
	if (st.st_nlink > 1 || (marked && dest->recorded != size))
		at->end = 0;
	return FAULT_NONE;
}

/* Append the source's checked bytes. */
static enum fault
extend(const struct store_reader *source, struct journal *dest)
{
	const uint64_t begin = dest->size, end = source->replay.at.end;

	assert(dest->locked && begin <= end);
	if (begin == end)
		return FAULT_NONE;
	dest->durable = begin;
	enum fault fault = mark_write_end(dest);
	if (fault != FAULT_NONE)
		return fault;
	if (file_copy(source->journal.fd, begin, end, dest->fd, begin,
		source->watch) < 0) {
		fault = fault_report(dest->path, "cannot write");
		/* Free the space.  If this fails, the next backup is whole. */
		(void)!ftruncate(dest->fd, (off_t)begin);
		return fault;
	}
	if (fsync(dest->fd) < 0)
		return fault_report(dest->path, "cannot sync");
	dest->durable = end;
	return mark_write_end(dest);
}

/* Copy the whole source into a new file, which replaces an earlier one. */
static enum fault
replace(const struct store_reader *source, struct journal *dest)
{
	const uint64_t end = source->replay.at.end;
	int copy;
	enum fault fault = journal_new(dest, &copy);

	if (fault != FAULT_NONE)
		return fault;
	if (file_copy(source->journal.fd, 0, end, copy, 0, source->watch) < 0) {
		fault = fault_report(dest->path, "cannot write");
		journal_drop(dest, copy);
		return fault;
	}
	fault = journal_place(dest, copy, JOURNAL_NAME);
	/* If a crash restores the earlier mark, the next copy is a full one. */
	if (fault == FAULT_NONE)
		unlinkat(dest->dir, JOURNAL_END_NAME, 0);
	return fault;
}

/* Check the source, and copy what the destination does not have. */
static enum fault
check_and_copy(struct store_reader *source, struct journal *dest, bool whole)
{
	struct position begin = { 0 };
	struct record record;
	enum fault fault = open_dest(dest);

	if (fault != FAULT_NONE)
		return fault;
	fault = check_earlier(source, dest, &begin);
	if (fault != FAULT_NONE)
		return fault;
	if (begin.end > 0 && !whole)
		journal_reader_move(source, &begin);
	while (journal_reader.next(source, &record))
		;
	if (source->fault != FAULT_NONE)
		return source->fault;
	return begin.end > 0 ? extend(source, dest) : replace(source, dest);
}

enum fault
copy_backup(const char *from, const char *to, bool whole,
    const struct watch *watch, struct reader_report *report)
{
	const struct store_options options = { .dir = from, .watch = watch };
	struct journal dest = JOURNAL_NONE;
	enum fault fault;
	struct store_reader *source =
	    journal_reader.open(&options, NULL, &fault);

	if (source == NULL)
		return fault;
	dest.path = to;
	fault = check_and_copy(source, &dest, whole);
	*report = source->report;
	report->bytes = source->replay.at.end;
	report->added = report->bytes - dest.size;
	journal_close(&dest);
	journal_reader.close(source);
	/* The source was opened, so these are faults of the destination. */
	return fault == FAULT_ABSENT || fault == FAULT_FULL ? FAULT_OUTPUT
							    : fault;
}
