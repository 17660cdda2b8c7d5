/*
 * journal: the open file.  See journal.h.  Making one, and copies of it, is
 * journal_files.c's.
 *
 * Happy path: journal_append writes a batch at the end with one pwritev,
 * journal_sync makes it durable.  Failures: a write that fails or falls short
 * is cut off again; a sync that fails is the caller's to end the store with.
 */
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "journal_parts.h"

/*
 * How much room to write ahead: some 1,300 plants' worth, half a millisecond of
 * writing.  Four pieces of one constant block.
 */
#define ROOM_PIECES 4
#define ROOM_PIECE (JOURNAL_ROOM_BYTES / ROOM_PIECES)

/* The first read of one record: a plant's line rarely is longer. */
#define LINE_BYTES ((size_t)4 << 10)

int
journal_write_all(int fd, const char *buf, size_t len, uint64_t offset)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, buf, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			if (n == 0)
				errno = ENOSPC;
			return -1;
		}
		buf += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

ssize_t
journal_read_some(int fd, char *buf, size_t len, uint64_t offset)
{
	size_t have = 0;

	while (have < len) {
		ssize_t n =
		    pread(fd, buf + have, len - have, (off_t)(offset + have));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

/* Read the header of journal->fd. */
static enum journal_open
read_header(struct journal *journal)
{
	char header[RECORD_HEADER_LEN];
	struct stat st;
	ssize_t n;

	if (fstat(journal->fd, &st) < 0)
		return JOURNAL_ERROR;
	n = journal_read_some(journal->fd, header, sizeof(header), 0);
	if (n < 0)
		return JOURNAL_ERROR;
	switch (record_header_decode(
	    header, (size_t)n, journal->uuid, &journal->start.crc)) {
	case RECORD_HEADER_OK:
		break;
	case RECORD_HEADER_VERSION:
		return JOURNAL_VERSION;
	case RECORD_HEADER_BAD:
		return JOURNAL_DAMAGED;
	}
	journal->device = st.st_dev;
	journal->inode = st.st_ino;
	journal->size = (uint64_t)st.st_size;
	journal->seed = record_seed(journal->uuid);
	journal->start.end = RECORD_HEADER_LEN;
	return JOURNAL_OPENED;
}

enum journal_open
journal_open_file(struct journal *journal, int dir, int fd)
{
	enum journal_open result;

	memset(journal, 0, sizeof(*journal));
	journal->dir = dir;
	journal->fd = fd;
	result = read_header(journal);
	if (result != JOURNAL_OPENED)
		journal_close(journal);
	return result;
}

enum journal_open
journal_open(struct journal *journal, int dir, bool prepare)
{
	enum journal_open result;
	int fd = openat(dir, JOURNAL_NAME, O_RDWR | O_CLOEXEC);

	journal->fd = fd;
	journal->room = NULL;
	if (fd < 0)
		return errno == ENOENT ? JOURNAL_ABSENT : JOURNAL_ERROR;
	result = journal_open_file(journal, dir, fd);
	if (result != JOURNAL_OPENED || !prepare)
		return result;
	journal->room = malloc(ROOM_PIECE);
	if (journal->room == NULL) {
		journal_close(journal);
		return JOURNAL_ERROR;
	}
	memset(journal->room, '\n', ROOM_PIECE);
	return JOURNAL_OPENED;
}

/*
 * statx, since it can leave the times out.  A file system with fine-grained
 * timestamps (Linux 6.13) gives a file that was asked for them a new one with
 * the next write, which makes the next fdatasync write its inode too: measured
 * on ext4, 80 microseconds become 120.
 */
const char *
journal_check(struct journal *journal, const char *path, uint64_t end)
{
	struct statx st;
	char name[4096];

	/* By its whole name: the directory may be another one by now. */
	if (snprintf(name, sizeof(name), "%s/" JOURNAL_NAME, path) >=
		(int)sizeof(name) ||
	    statx(AT_FDCWD, name, AT_STATX_SYNC_AS_STAT, STATX_INO | STATX_SIZE,
		&st) < 0)
		return errno == ENOENT ? "was removed" : "cannot be reached";
	if (st.stx_ino != journal->inode ||
	    makedev(st.stx_dev_major, st.stx_dev_minor) != journal->device)
		return "was replaced";
	journal->size = st.stx_size;
	return journal->size < end ? "was truncated" : NULL;
}

/* One pwritev: the batch, and room behind it if `room`. */
static ssize_t
write_batch(const struct journal *journal, uint64_t end, const char *buf,
    size_t len, bool room)
{
	struct iovec parts[1 + ROOM_PIECES];
	ssize_t n;

	/* pwritev takes no const, and changes nothing. */
	memcpy(&parts[0].iov_base, &buf, sizeof(buf));
	parts[0].iov_len = len;
	for (int i = 1; i <= ROOM_PIECES; i++) {
		parts[i].iov_base = journal->room;
		parts[i].iov_len = ROOM_PIECE;
	}
	do
		n = pwritev(
		    journal->fd, parts, room ? 1 + ROOM_PIECES : 1, (off_t)end);
	while (n < 0 && errno == EINTR);
	return n;
}

int
journal_append(
    struct journal *journal, uint64_t end, const char *buf, size_t len)
{
	bool room = journal->room != NULL && end + len > journal->size;
	ssize_t n = write_batch(journal, end, buf, len, room);

	/* Less room than wished for does no harm; a part of a batch would. */
	if (n < 0 && room)
		n = write_batch(journal, end, buf, len, false);
	if (n >= 0 && (size_t)n < len &&
	    journal_write_all(
		journal->fd, buf + n, len - (size_t)n, end + (uint64_t)n) < 0)
		n = -1;
	if (n >= 0) {
		uint64_t reached = end + ((size_t)n > len ? (size_t)n : len);

		if (reached > journal->size)
			journal->size = reached;
		return 0;
	}
	int error = errno;
	int result = journal_cut(journal, end) < 0 ? -2 : -1;
	errno = error;
	return result;
}

int
journal_sync(const struct journal *journal)
{
	return fdatasync(journal->fd);
}

int
journal_cut(struct journal *journal, uint64_t end)
{
	if (ftruncate(journal->fd, (off_t)end) < 0)
		return -1;
	journal->size = end;
	return 0;
}

int
journal_read(const struct journal *journal, uint64_t offset,
    struct record *record, char **buf, size_t *size)
{
	size_t want = LINE_BYTES;

	for (;;) {
		if (*size < want) {
			char *larger = realloc(*buf, want);

			if (larger == NULL)
				return -1;
			*buf = larger;
			*size = want;
		}
		ssize_t n = journal_read_some(journal->fd, *buf, want, offset);
		if (n < 0)
			return -1;
		const char *newline = memchr(*buf, '\n', (size_t)n);
		if (newline != NULL) {
			size_t len = (size_t)(newline + 1 - *buf);

			if (record_decode(*buf, len, journal->seed, record) ==
			    NULL)
				return 0;
		} else if ((size_t)n == want && want < RECORD_LINE_MAX) {
			want *= 2;
			continue;
		}
		errno = EBADMSG;
		return -1;
	}
}

void
journal_close(struct journal *journal)
{
	int error = errno;

	if (journal->fd >= 0)
		close(journal->fd);
	journal->fd = -1;
	free(journal->room);
	journal->room = NULL;
	errno = error;
}
