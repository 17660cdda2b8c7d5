/*
 * journal_files: journals that appear whole or not at all, and copies of one.
 * See journal.h.
 *
 * Happy path: written under a name that means nothing, synced, given its name,
 * and the directory synced.  Failures: what was begun is removed again; a name
 * that may not last is taken back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/rename.h"
#include "journal_parts.h"
#include "lock.h"

#define TEMPORARY_NAME JOURNAL_NAME ".new"

#define COPY_BYTES ((size_t)1 << 20)

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
	if (journal_write_all(fd, header, sizeof(header), 0) < 0) {
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
	if (rename_new(dir, TEMPORARY_NAME, JOURNAL_NAME) < 0)
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
			n = journal_read_some(from, buf, want, offset);
			error = n < 0 ? errno : EIO;
		}
		if (n > 0 && journal_write_all(to, buf, (size_t)n,
				 at + (offset - begin)) < 0) {
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
