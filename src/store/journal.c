/*
 * journal: the file.  See journal.h.
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
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lock.h"

#define TEMPORARY_NAME JOURNAL_NAME ".new"

/*
 * How much room to write ahead: some 1,300 plants' worth, half a millisecond of
 * writing.  Four pieces of one constant block.
 */
#define ROOM_PIECES 4
#define ROOM_PIECE (JOURNAL_ROOM_BYTES / ROOM_PIECES)

#define COPY_BYTES ((size_t)1 << 20)

/* The first read of one record: a plant's line rarely is longer. */
#define LINE_BYTES ((size_t)4 << 10)

static int
write_all(int fd, const char *buf, size_t len, uint64_t offset)
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

/* As many bytes as there are, up to `len`; -1 on an error. */
static ssize_t
read_some(int fd, char *buf, size_t len, uint64_t offset)
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
	n = read_some(journal->fd, header, sizeof(header), 0);
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

/* A random one: RFC 9562, section 5.4. */
static int
make_uuid(char uuid[static RECORD_UUID_LEN])
{
	unsigned char raw[16];
	char text[RECORD_UUID_LEN + 1];

	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
		return -1;
	raw[6] = (raw[6] & 0x0f) | 0x40;
	raw[8] = (raw[8] & 0x3f) | 0x80;
	snprintf(text, sizeof(text),
	    "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
	    "%02x%02x%02x%02x%02x%02x",
	    raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7],
	    raw[8], raw[9], raw[10], raw[11], raw[12], raw[13], raw[14],
	    raw[15]);
	memcpy(uuid, text, RECORD_UUID_LEN);
	return 0;
}

/* An empty file of that name; what an interrupted try left is removed. */
static int
open_new(int dir, const char *name)
{
	unlinkat(dir, name, 0);
	return openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static void
discard(int dir, const char *name, int fd)
{
	int error = errno;

	close(fd);
	unlinkat(dir, name, 0);
	errno = error;
}

int
journal_begin(struct journal *journal, int dir)
{
	char uuid[RECORD_UUID_LEN], header[RECORD_HEADER_LEN];
	int fd;

	if (make_uuid(uuid) < 0)
		return -1;
	record_header_encode(uuid, header);
	fd = open_new(dir, TEMPORARY_NAME);
	if (fd < 0)
		return -1;
	if (write_all(fd, header, sizeof(header), 0) < 0) {
		discard(dir, TEMPORARY_NAME, fd);
		return -1;
	}
	if (journal_open_file(journal, dir, fd) == JOURNAL_OPENED)
		return 0;
	unlinkat(dir, TEMPORARY_NAME, 0);
	errno = EIO;
	return -1;
}

/*
 * Give the temporary file the journal's name.  A name that may not last is
 * taken back: nobody is told of a store that is gone after a power cut.
 */
static int
place(int dir)
{
	if (renameat2(
		dir, TEMPORARY_NAME, dir, JOURNAL_NAME, RENAME_NOREPLACE) < 0)
		return -1;
	if (fsync(dir) == 0)
		return 0;
	int error = errno;
	unlinkat(dir, JOURNAL_NAME, 0);
	errno = error;
	return -1;
}

int
journal_place(const struct journal *journal)
{
	return fsync(journal->fd) < 0 ? -1 : place(journal->dir);
}

void
journal_drop(struct journal *journal)
{
	discard(journal->dir, TEMPORARY_NAME, journal->fd);
	journal->fd = -1;
}

int
journal_create(int dir)
{
	struct journal journal;

	if (journal_begin(&journal, dir) < 0)
		return -1;
	if (journal_place(&journal) < 0) {
		journal_drop(&journal);
		return -1;
	}
	journal_close(&journal);
	return 0;
}

/*
 * statx, since it can leave the times out.  A file system with fine-grained
 * timestamps (Linux 6.13) gives a file that was asked for them a new one with
 * the next write, which makes the next fdatasync write its inode too: measured
 * on ext4, 80 microseconds become 120.
 */
const char *
journal_check(struct journal *journal, uint64_t end)
{
	struct statx st;

	if (statx(journal->dir, JOURNAL_NAME, AT_STATX_SYNC_AS_STAT,
		STATX_INO | STATX_SIZE, &st) < 0)
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
	    write_all(
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

static bool
go_on(const struct watch *watch, uint64_t done, uint64_t total)
{
	return watch == NULL || watch->step == NULL ||
	       watch->step(watch->context, done, total);
}

/*
 * The bytes [begin, end) of one file to the offset `at` of another; synced.
 * `watch` may be NULL.
 */
static int
copy_bytes(int from, int to, uint64_t begin, uint64_t end, uint64_t at,
    const struct watch *watch)
{
	char *buf = malloc(COPY_BYTES);
	uint64_t offset = begin;

	if (buf == NULL)
		return -1;
	while (offset < end) {
		size_t want = end - offset < COPY_BYTES ? (size_t)(end - offset)
							: COPY_BYTES;
		ssize_t n = 0;
		int error = ECANCELED;

		if (go_on(watch, offset, end)) {
			n = read_some(from, buf, want, offset);
			error = n < 0 ? errno : EIO;
		}
		if (n > 0 &&
		    write_all(to, buf, (size_t)n, at + (offset - begin)) < 0) {
			error = errno;
			n = -1;
		}
		if (n <= 0) {
			free(buf);
			errno = error;
			return -1;
		}
		offset += (uint64_t)n;
	}
	free(buf);
	return fsync(to);
}

int
journal_keep(const struct journal *journal, uint64_t from, uint64_t to,
    char *name, size_t size)
{
	int fd;

	/* Several torn tails may have begun at one offset, one after another. */
	for (unsigned n = 1;; n++) {
		snprintf(name, size, JOURNAL_NAME ".torn-%llu.%u",
		    (unsigned long long)from, n);
		fd = openat(journal->dir, name,
		    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0)
			break;
		if (errno != EEXIST)
			return -1;
	}
	if (copy_bytes(journal->fd, fd, from, to, 0, NULL) < 0) {
		discard(journal->dir, name, fd);
		return -1;
	}
	close(fd);
	return fsync(journal->dir);
}

/* Give the file another name, by which it stays. */
static int
keep_file(const struct journal *journal, uint64_t end)
{
	char name[64];

	/* A store may fail at one place more than once. */
	for (unsigned n = 1;; n++) {
		snprintf(name, sizeof(name), JOURNAL_NAME ".failed-%llu.%u",
		    (unsigned long long)end, n);
		if (linkat(journal->dir, JOURNAL_NAME, journal->dir, name, 0) ==
		    0)
			return 0;
		if (errno != EEXIST)
			return -1;
	}
}

int
journal_copy(const struct journal *journal, uint64_t from, uint64_t to, int fd,
    const struct watch *watch)
{
	return copy_bytes(journal->fd, fd, from, to, from, watch);
}

int
journal_publish(const struct journal *journal, uint64_t end, int dir,
    const struct watch *watch)
{
	int fd = open_new(dir, TEMPORARY_NAME);

	if (fd < 0)
		return -1;
	if (copy_bytes(journal->fd, fd, 0, end, 0, watch) < 0 ||
	    place(dir) < 0) {
		discard(dir, TEMPORARY_NAME, fd);
		return -1;
	}
	close(fd);
	return 0;
}

int
journal_renew(struct journal *journal, uint64_t end)
{
	struct stat st;
	int fd = open_new(journal->dir, TEMPORARY_NAME);

	if (fd < 0)
		return -1;
	/* It is locked as the old one is, before others can find it. */
	if (lock_file(fd, 0) < 0 ||
	    copy_bytes(journal->fd, fd, 0, end, 0, NULL) < 0 ||
	    fstat(fd, &st) < 0 || keep_file(journal, end) < 0 ||
	    renameat(journal->dir, TEMPORARY_NAME, journal->dir, JOURNAL_NAME) <
		0) {
		discard(journal->dir, TEMPORARY_NAME, fd);
		return -1;
	}
	if (fsync(journal->dir) < 0) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	close(journal->fd);
	journal->fd = fd;
	journal->device = st.st_dev;
	journal->inode = st.st_ino;
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
		ssize_t n = read_some(journal->fd, *buf, want, offset);
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
