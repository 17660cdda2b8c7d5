/*
 * copy: see reader/reader.h.
 *
 * Happy path: an earlier copy whose last line the source has, too, is extended:
 * its end mark is written, the source's later lines are checked (reader),
 * appended and synced, and the end mark is written again.  So the mark covers
 * only durable bytes.  Otherwise the source is checked and copied whole into a
 * new file, which is then renamed over an earlier copy.  Failure modes: damage
 * ends the copy, and its offset is logged.  Bytes that an unfinished copy has
 * left after the mark are not trusted: the next copy copies the source whole.
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
#include <sys/stat.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"

/* How many of an earlier copy's last bytes are compared with the source. */
#define TAIL_BYTES 4096

/* Whether a file has the type, and belongs to root or to us. */
static bool
is_trusted(const struct stat *st, mode_t type)
{
	return (st->st_mode & S_IFMT) == type &&
	       (st->st_uid == 0 || st->st_uid == geteuid());
}

static const char busy[] = "another process writes there";
static const char foreign[] =
    "it or its " JOURNAL_NAME " belongs to another user, or the latter is a "
    "symbolic link or no file";

static enum fault
refuse(const struct journal *dest, enum fault fault, const char *why)
{
	log_error("%s: %s; %s", dest->path, why,
	    fault == FAULT_BUSY ? "try again later" : "name another directory");
	return fault;
}

static enum fault
check_unserved(const struct journal *dest)
{
	return journal_exists(dest, "index")
		   ? refuse(dest, FAULT_OUTPUT, "was served as a store")
		   : FAULT_NONE;
}

/* Open the directory for the copy, and lock it until it is closed. */
static enum fault
open_dest(struct journal *dest)
{
	const char *path = dest->path;
	struct stat st;

	if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode) &&
	    !is_trusted(&st, S_IFLNK))
		return refuse(dest, FAULT_SETUP, foreign);
	dest->dir = file_make_dir(path);
	if (dest->dir < 0 ||
	    asprintf(&dest->name, "%s/" JOURNAL_NAME, path) < 0)
		return fault_report(path, "cannot make or open it");
	if (flock(dest->dir, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return refuse(dest, FAULT_BUSY, busy);
	if (fstat(dest->dir, &st) < 0)
		return fault_report(path, "cannot open");
	return is_trusted(&st, S_IFDIR) ? check_unserved(dest)
					: refuse(dest, FAULT_SETUP, foreign);
}

static bool
are_same(int a, int b, off_t at, size_t len)
{
	char x[TAIL_BYTES], y[TAIL_BYTES];

	return pread(a, x, len, at) == (ssize_t)len &&
	       pread(b, y, len, at) == (ssize_t)len && memcmp(x, y, len) == 0;
}

/*
 * A journal in `dest` must be an earlier copy.  It stays locked until the copy
 * is complete: a service that starts there meanwhile waits, and then opens it.
 */
static enum fault
check_earlier(const struct store_reader *source, struct journal *dest)
{
	const struct journal *journal = &source->journal;
	const char *why = NULL;
	struct stat st;

	/* Checked once open: nobody can replace it.  O_NONBLOCK: for a FIFO. */
	dest->fd = openat(dest->dir, JOURNAL_NAME,
	    O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (dest->fd < 0 && errno == ENOENT)
		return FAULT_NONE;
	if (dest->fd < 0 ? errno != ELOOP : fstat(dest->fd, &st) < 0)
		return fault_report(dest->path, "cannot open");
	if (dest->fd < 0 || !is_trusted(&st, S_IFREG))
		return refuse(dest, FAULT_SETUP, foreign);
	dest->size = (uint64_t)st.st_size;
	if (st.st_ino == journal->inode && st.st_dev == journal->device)
		return refuse(dest, FAULT_SETUP,
		    "its " JOURNAL_NAME " is the journal itself");
	if (journal_lock(dest, JOURNAL_EXCLUSIVE, 0) != FAULT_NONE)
		return refuse(dest, FAULT_BUSY, busy);
	if (!are_same(dest->fd, journal->fd, 0, RECORD_HEADER_LEN))
		return refuse(dest, FAULT_OUTPUT,
		    "its " JOURNAL_NAME " is a copy of another store");
	memcpy(dest->uuid, journal->uuid, sizeof(dest->uuid));
	enum fault fault = journal_read_end(dest);
	if (fault != FAULT_NONE)
		return fault;
	/* What an unfinished copy has after its mark is not trusted. */
	if (dest->durable > 0 && dest->durable < dest->size)
		dest->size = dest->durable;
	size_t tail = dest->size < TAIL_BYTES ? (size_t)dest->size : TAIL_BYTES;
	if (dest->size > source->limit.end)
		why = "its " JOURNAL_NAME " has more than the source";
	else if (!are_same(
		     dest->fd, journal->fd, (off_t)(dest->size - tail), tail))
		why =
		    "its " JOURNAL_NAME " is not the beginning of the source, "
		    "or is damaged: verify it";
	return why == NULL ? check_unserved(dest)
			   : refuse(dest, FAULT_OUTPUT, why);
}

/*
 * Find the last line of the copy.  Return whether the source has that line at
 * the same place: then it has all before it, since each line is chained to the
 * one before.
 */
static bool
find_common(struct store_reader *source, const struct journal *dest,
    struct position *at)
{
	const struct journal *journal = &source->journal;
	const uint64_t size = dest->size;
	size_t len = size < RECORD_LINE_MAX ? (size_t)size : RECORD_LINE_MAX;
	char *buf = malloc(len);
	struct record record;
	bool found = false;

	*at = journal->start;
	if (buf != NULL && size > RECORD_HEADER_LEN &&
	    file_read_all(dest->fd, buf, len, size - len) == (ssize_t)len &&
	    buf[len - 1] == '\n') {
		const char *before = memrchr(buf, '\n', len - 1);
		size_t from = before == NULL ? 0 : (size_t)(before + 1 - buf);

		*at = (struct position){ .last = size - len + from };
		found = record_decode(buf + from, len - from, journal->seed,
			    &record) == NULL;
	}
	if (found) {
		at->end = size;
		at->seq = record.seq;
		at->crc = record.crc;
		at->closing = record.plant == NULL;
		found = journal_match(&source->journal, at) == FAULT_NONE;
	}
	free(buf);
	return found;
}

/*
 * Whether the earlier copy can be extended: all of it is durable, no hard link
 * keeps it as it is, and it has its last line in common with the source.
 */
static bool
is_extensible(struct store_reader *source, const struct journal *dest,
    struct position *at)
{
	struct stat st;

	return dest->fd >= 0 && fstat(dest->fd, &st) == 0 && st.st_nlink == 1 &&
	       dest->size == (uint64_t)st.st_size &&
	       (dest->durable == dest->size ||
		   !journal_exists(dest, JOURNAL_END_NAME)) &&
	       find_common(source, dest, at);
}

/* Append the bytes of the source that were checked. */
static enum fault
extend(const struct store_reader *source, struct journal *dest)
{
	const uint64_t begin = dest->size, end = source->replay.at.end;

	assert(dest->locked && begin <= end);
	if (begin == end)
		return FAULT_NONE;
	dest->durable = begin;
	enum fault fault = journal_write_end(dest);
	if (fault != FAULT_NONE)
		return fault;
	if (file_copy(source->journal.fd, begin, end, dest->fd, begin,
		source->watch) < 0) {
		fault = fault_report(dest->path, "cannot write");
		/* Give the room back; if it fails, see above. */
		(void)!ftruncate(dest->fd, (off_t)begin);
		return fault;
	}
	if (fsync(dest->fd) < 0)
		return fault_report(dest->path, "cannot sync");
	dest->durable = end;
	return journal_write_end(dest);
}

/* Copy them all into a new file, which replaces an earlier one. */
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
	/* An earlier mark that comes back costs one more whole copy. */
	if (fault == FAULT_NONE)
		unlinkat(dest->dir, JOURNAL_END_NAME, 0);
	return fault;
}

/* Check the source, and copy what the destination does not have. */
static enum fault
check_and_copy(struct store_reader *source, struct journal *dest, bool whole)
{
	struct position begin;
	enum fault fault = open_dest(dest);

	if (fault == FAULT_NONE)
		fault = check_earlier(source, dest);
	if (fault != FAULT_NONE)
		return fault;
	const bool extends = is_extensible(source, dest, &begin);
	if (extends && !whole)
		journal_reader_move(source, &begin);
	fault = journal_reader_check(source);
	return fault != FAULT_NONE ? fault
	       : extends           ? extend(source, dest)
				   : replace(source, dest);
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
	/* The source was open, so these are faults of the destination. */
	return fault == FAULT_ABSENT || fault == FAULT_FULL ? FAULT_OUTPUT
							    : fault;
}

int
copy_note(const char *path, int64_t ms, bool verified)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), result = -1;

	if (dir >= 0)
		result = file_put_time(dir, STORE_BACKUP_NAME, ms);
	if (result == 0 && verified)
		result = file_put_time(dir, STORE_VERIFIED_NAME, ms);
	file_close(dir);
	return result;
}
