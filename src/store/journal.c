/*
 * journal: the file plants.jsonl.  See journal.h.
 *
 * Happy path: journal_append writes a batch at the end with one pwrite, and
 * journal_sync makes it durable.  Failure modes: the bytes of a failed write
 * are cut off; a failed sync ends the process, and the next process reads the
 * end from the disk.  A new file is written under a temporary name, synced and
 * renamed, and then the directory is synced.  A failure removes the temporary
 * file.
 */
#include "store/journal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/compat.h"
#include "ground/file.h"
#include "ground/log.h"
#include "ground/metrics.h"

/* The size of the first read of a record: few lines are longer. */
#define LINE_BYTES 4096

#define REMEDY_OTHER                                                 \
	"restore it from a backup; to use this copy anyway, remove " \
	"`index` and `" JOURNAL_END_NAME "` beside it first"

#define NOT_ACKNOWLEDGED ", and were not acknowledged"

/*
 * Pauses between tries for the lock: short compared with a sync, but long
 * enough to leave the holder a CPU if many processes wait.
 */
#define RETRY_NS_MIN 20000L
#define RETRY_NS_MAX 640000L

enum fault
journal_damaged(
    const struct journal *journal, uint64_t offset, const char *reason)
{
	log_error("%s: damaged at byte %" PRIu64 ": %s; nothing was changed; "
		  "restore it from a backup, or save what can be read with: "
		  "plant-store recover",
	    journal->name, offset,
	    reason != NULL ? reason
			   : "blank lines, or its end, in place of a record");
	return FAULT_DAMAGED;
}

static enum fault
refuse_short(const struct journal *journal, uint64_t known)
{
	log_error("%s: is shorter (%" PRIu64 " bytes) than what was stored "
		  "in it (%" PRIu64 "): " REMEDY_OTHER,
	    journal->name, journal->size, known);
	return FAULT_DAMAGED;
}

enum fault
journal_unreadable(const struct journal *journal, uint64_t offset, int error)
{
	log_error("%s: cannot read from byte %" PRIu64 " on: %s%s",
	    journal->name, offset, strerror(error),
	    error == EIO ? "; the disk has failed there: restore it from a "
			   "backup, or save what can be read with: "
			   "plant-store recover"
			 : fault_remedy(error));
	return fault_of(error);
}

bool
journal_is_news(struct journal *journal, enum fault fault)
{
	const bool is_news = !fault_passes(fault) || journal->passing != fault;

	if (fault_passes(fault))
		journal->passing = fault;
	return is_news;
}

enum fault
journal_unwritten(struct journal *journal, const char *name, int error)
{
	enum fault fault = fault_of(error);

	if (journal_is_news(journal, fault))
		log_error("%s/%s: cannot write: %s%s", journal->path, name,
		    strerror(error), fault_remedy(error));
	return fault;
}

/* `note` goes into the message: whether the bytes were acknowledged. */
static enum fault
fail(const struct journal *journal, const char *what, const char *note,
    int error)
{
	log_error("%s: %s failed: %s; the bytes after byte %" PRIu64
		  " may not be on the disk%s; this process ends, and the next "
		  "one reads it from the disk again; if this recurs, the disk "
		  "is failing: copy the store to another disk with "
		  "`plant-store backup`, and serve the copy",
	    journal->name, what, strerror(error), journal->durable, note);
	return FAULT_FAILED;
}

enum fault
journal_finish(const struct journal *journal, struct replay *replay,
    uint64_t known, uint64_t *tail_end)
{
	enum replay_result tail = replay_finish(replay, tail_end);

	if (tail == REPLAY_ERROR)
		return journal_unreadable(
		    journal, replay->at.end, replay->error);
	if (known < journal->recorded)
		known = journal->recorded;
	if (tail != REPLAY_BAD && journal->size < known)
		return refuse_short(journal, known);
	if (tail == REPLAY_BAD || replay->at.end < known)
		return journal_damaged(journal, replay->at.end, replay->reason);
	return FAULT_NONE;
}

enum fault
journal_check_seen(struct journal *journal, const struct position *seen)
{
	struct replay replay;
	uint64_t tail_end;
	enum fault fault;

	if (seen->end > journal->size)
		return refuse_short(journal, seen->end);
	if (seen->end == 0)
		return FAULT_NONE;
	fault = journal_match(journal, seen);
	if (fault != FAULT_DAMAGED)
		return fault;
	/*
	 * Read all lines: a damaged one is reported with its offset.  If all
	 * are valid, this is a copy of the store that has diverged.
	 */
	replay_init(&replay, journal->fd, journal->seed, &journal->start);
	fault = journal_finish(journal, &replay, seen->end, &tail_end);
	replay_done(&replay);
	if (fault != FAULT_NONE)
		return fault;
	log_error("%s: another history of this store: the line at byte %" PRIu64
		  " is not the one that was stored there; " REMEDY_OTHER,
	    journal->name, seen->last);
	return FAULT_DAMAGED;
}

/* Check that the file is a journal, and fill the fields that describe it. */
static enum fault
read_header(struct journal *journal)
{
	char header[RECORD_HEADER_LEN];
	struct stat st = { .st_mode = S_IFREG };
	ssize_t n = -1;

	if (fstat(journal->fd, &st) == 0 && S_ISREG(st.st_mode))
		n = file_read_all(journal->fd, header, sizeof(header), 0);
	if (!S_ISREG(st.st_mode)) {
		log_error(
		    "%s: is not a regular file; name a journal, or restore "
		    "it from a backup",
		    journal->name);
		return FAULT_SETUP;
	}
	if (n < 0)
		return fault_report(journal->name, "cannot read");
	switch (record_header_decode(
	    header, (size_t)n, journal->uuid, &journal->start.crc)) {
	case RECORD_HEADER_OK:
		break;
	case RECORD_HEADER_VERSION:
		log_error("%s: has a version that this program does not know; "
			  "use the program that wrote it",
		    journal->name);
		return FAULT_SETUP;
	case RECORD_HEADER_BAD:
		return journal_damaged(
		    journal, 0, "its first line is not a journal's header");
	}
	journal->device = st.st_dev;
	journal->inode = st.st_ino;
	journal->size = (uint64_t)st.st_size;
	journal->seed = record_seed(journal->uuid);
	journal->start.end = RECORD_HEADER_LEN;
	journal->start.closing = true;
	return FAULT_NONE;
}

enum fault
journal_open(struct journal *journal, const char *path, bool write)
{
	/* Another user may have put a pipe or a link there. */
	int flags =
	    O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (write ? O_RDWR : O_RDONLY);
	struct stat st;

	*journal = JOURNAL_NONE;
	journal->path = path;
	if (!write && stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
		journal->name = strdup(path);
		if (journal->name != NULL)
			journal->fd = open(path, flags);
	} else if (asprintf(&journal->name, "%s/" JOURNAL_NAME, path) < 0) {
		journal->name = NULL;
	} else {
		journal->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (journal->dir >= 0)
			journal->fd = openat(
			    journal->dir, JOURNAL_NAME, flags | O_NOFOLLOW);
		if (journal->fd < 0 && errno == ENOENT &&
		    (write || journal->dir >= 0))
			return FAULT_NONE;
	}
	return journal->fd < 0 ? fault_report(path, "cannot open")
			       : read_header(journal);
}

bool
journal_exists(const struct journal *journal, const char *name)
{
	return journal->dir >= 0 &&
	       (faccessat(journal->dir, name, F_OK, 0) == 0 || errno != ENOENT);
}

void
journal_back_off(long *pause_ns)
{
	if (*pause_ns < RETRY_NS_MAX)
		*pause_ns = *pause_ns == 0 ? RETRY_NS_MIN : 2 * *pause_ns;
	nanosleep(&(struct timespec){ .tv_nsec = *pause_ns }, NULL);
}

static int
try_lock(const struct journal *journal, enum journal_lock lock)
{
	struct flock whole = { .l_whence = SEEK_SET };

	whole.l_type = lock == JOURNAL_SHARED ? F_RDLCK : F_WRLCK;
	return lock == JOURNAL_DIR ? flock(journal->dir, LOCK_EX | LOCK_NB)
				   : fcntl(journal->fd, F_OFD_SETLK, &whole);
}

/* Try until the deadline.  The lock is polled: see ARCHITECTURE, decision 8. */
enum fault
journal_lock(
    struct journal *journal, enum journal_lock lock, int64_t deadline_ms)
{
	const char *name = lock == JOURNAL_DIR ? journal->path : journal->name;
	long pause_ns = 0;

	while (try_lock(journal, lock) < 0) {
		/* A file system without locks: see journal.h. */
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return lock == JOURNAL_SHARED
				   ? FAULT_NONE
				   : fault_report(name, "cannot lock");
		if (clock_ms(CLOCK_MONOTONIC) >= deadline_ms) {
			if (deadline_ms > 0)
				log_error("%s: cannot lock: another process "
					  "uses it: try again",
				    name);
			return FAULT_BUSY;
		}
		journal_back_off(&pause_ns);
	}
	journal->locked = true;
	return FAULT_NONE;
}

void
journal_unlock(struct journal *journal)
{
	struct flock whole = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	if (!journal->locked)
		return;
	fcntl(journal->fd, F_OFD_SETLK, &whole);
	journal->locked = false;
}

/*
 * statx, unlike stat, need not read the timestamps.  If they are fine-grained
 * (Linux 6.13), reading them makes the next write change them, so the next
 * fdatasync also writes the inode: 120 microseconds instead of 80 on ext4.
 */
const char *
journal_check(struct journal *journal, uint64_t end)
{
	struct statx st;

	/* Use the whole path: the directory may also have been replaced. */
	if (file_stat(AT_FDCWD, journal->name, STATX_INO | STATX_SIZE, &st) < 0)
		return errno == ENOENT ? "was removed" : "cannot be reached";
	if (st.stx_ino != journal->inode ||
	    makedev(st.stx_dev_major, st.stx_dev_minor) != journal->device)
		return "was replaced";
	journal->size = st.stx_size;
	return journal->size < end ? "was truncated" : NULL;
}

enum fault
journal_match(struct journal *journal, const struct position *at)
{
	struct record record = { .seq = 0, .crc = journal->start.crc };
	enum fault fault = FAULT_NONE;

	if (at->seq != 0)
		fault = journal_read(journal, at->last, &record);
	else if (at->end != journal->start.end)
		fault = FAULT_DAMAGED;
	if (fault == FAULT_NONE &&
	    (record.seq != at->seq || record.crc != at->crc))
		fault = FAULT_DAMAGED;
	/* A cursor's positions come from a file, and may be wrong. */
	if (fault == FAULT_NONE && at->seq != 0 &&
	    at->end - at->last != journal->line_len)
		fault = FAULT_DAMAGED;
	return fault;
}

bool
journal_has_text(const struct journal *journal, uint64_t offset)
{
	char byte;
	ssize_t n = pread(journal->fd, &byte, 1, (off_t)offset);

	return n < 0 || (n > 0 && byte != '\n');
}

/* Cut off the bytes after `end`. */
static enum fault
cut(struct journal *journal, uint64_t end)
{
	assert(end >= journal->durable);
	if (ftruncate(journal->fd, (off_t)end) < 0)
		return fail(
		    journal, "cutting off its end", NOT_ACKNOWLEDGED, errno);
	journal->size = end;
	return FAULT_NONE;
}

enum fault
journal_append(struct journal *journal, uint64_t end, char *buf, size_t len)
{
	size_t done = 0;
	ssize_t n = 0;

	assert(end >= journal->durable);
	assert(len > 0 && len <= JOURNAL_APPEND_MAX);
	if (journal->room > 0 && end + len > journal->size) {
		memset(buf + len, '\n', journal->room);
		n = pwrite(journal->fd, buf, len + journal->room, (off_t)end);
	}
	/*
	 * After a short write, or if there is no room for the blank lines, the
	 * rest of the batch is written next, without them.
	 */
	const bool goes_on =
	    n >= 0 || errno == EINTR || fault_passes(fault_of(errno));
	if (n > 0)
		done = (size_t)n;
	if (done >= len || (goes_on && file_write_all(journal->fd, buf + done,
					   len - done, end + done) == 0)) {
		done = done > len ? done : len;
		if (end + done > journal->size)
			journal->size = end + done;
		return FAULT_NONE;
	}
	int error = errno;
	bool passes = fault_passes(fault_of(error));
	if (!passes)
		fail(journal, "write", NOT_ACKNOWLEDGED, error);
	if (cut(journal, end) != FAULT_NONE || !passes)
		return FAULT_FAILED;
	return journal_unwritten(journal, JOURNAL_NAME, error);
}

static int
sync_file(const struct journal *journal)
{
	int64_t began_us = clock_us(CLOCK_MONOTONIC);
	int result = fdatasync(journal->fd);

	metrics_observe(
	    METRICS_SYNC_US, (uint64_t)(clock_us(CLOCK_MONOTONIC) - began_us));
	if (result == 0)
		metrics[METRICS_SYNC_MS] =
		    (uint64_t)clock_ms(CLOCK_REALTIME_COARSE);
	return result;
}

enum fault
journal_sync(const struct journal *journal)
{
	return sync_file(journal) == 0
		   ? FAULT_NONE
		   : fail(journal, "fdatasync", NOT_ACKNOWLEDGED, errno);
}

enum fault
journal_settle(const struct journal *journal, uint64_t end)
{
	const bool settled = end <= journal->durable;

	/* A read-only file system (squashfs, ISO 9660) may not support sync. */
	if (!settled && sync_file(journal) < 0 && errno != EINVAL &&
	    errno != EROFS)
		return fail(journal, "fdatasync", "", errno);
	const char *failed =
	    settled ? file_can_forget(journal->fd)
		    : file_forget(journal->fd, journal->durable, end);
	if (failed == NULL)
		return FAULT_NONE;
	if (errno == EBUSY) {
		log_warning("%s: its end cannot be read from the disk again, "
			    "since another program has it mapped, or this user "
			    "does not own it; end that program, or run this as "
			    "its owner",
		    journal->name);
		return FAULT_BUSY;
	}
	if (fault_passes(fault_of(errno)))
		return fault_report(journal->name, failed);
	log_error("%s: its end cannot be read from the disk again: %s: %s; "
		  "this needs Linux's mmap, posix_fadvise and mincore: allow "
		  "them, or use another file system; gVisor lacks mincore",
	    journal->name, failed, strerror(errno));
	return FAULT_SETUP;
}

enum fault
journal_read(struct journal *journal, uint64_t offset, struct record *record)
{
	ssize_t n = -1;

	if (journal->line == NULL)
		journal->line = malloc(RECORD_LINE_MAX);
	if (journal->line != NULL)
		n = file_read_all(
		    journal->fd, journal->line, LINE_BYTES, offset);
	if (n == LINE_BYTES && memchr(journal->line, '\n', LINE_BYTES) == NULL)
		n = file_read_all(
		    journal->fd, journal->line, RECORD_LINE_MAX, offset);
	if (n < 0)
		return journal_unreadable(journal, offset, errno);
	const char *end = memchr(journal->line, '\n', (size_t)n);
	journal->line_len = end != NULL ? (size_t)(end + 1 - journal->line) : 0;
	return end != NULL && record_decode(journal->line, journal->line_len,
				  journal->seed, record) == NULL
		   ? FAULT_NONE
		   : FAULT_DAMAGED;
}

enum fault
journal_claim(struct journal *journal, const char *path)
{
	static const char *const names[] = { JOURNAL_NAME, JOURNAL_FAILED_NAME,
		JOURNAL_END_NAME, "index" };
	int64_t deadline_ms =
	    clock_ms(CLOCK_MONOTONIC) + JOURNAL_LOCK_TIMEOUT_MS;
	enum fault fault;

	*journal = JOURNAL_NONE;
	journal->path = path;
	journal->dir = file_make_dir(path);
	if (journal->dir < 0)
		return fault_report(path, "cannot create or open");
	/* A second process waits here, and then finds the first one's store. */
	fault = journal_lock(journal, JOURNAL_DIR, deadline_ms);
	if (fault != FAULT_NONE)
		return fault;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (journal_exists(journal, names[i])) {
			log_error("%s: holds a store, or a part of one: %s; "
				  "nothing was changed; name another directory",
			    path, names[i]);
			return FAULT_SETUP;
		}
	return FAULT_NONE;
}

enum fault
journal_new(struct journal *home, int *fd)
{
	/* An interrupted process may have left the file. */
	unlinkat(home->dir, JOURNAL_NEW_NAME, 0);
	*fd = openat(home->dir, JOURNAL_NEW_NAME,
	    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return *fd >= 0 ? FAULT_NONE
			: journal_unwritten(home, JOURNAL_NEW_NAME, errno);
}

enum fault
journal_place(struct journal *home, int fd, const char *name)
{
	if (fsync(fd) == 0 &&
	    renameat(home->dir, JOURNAL_NEW_NAME, home->dir, name) == 0 &&
	    fsync(home->dir) == 0) {
		close(fd);
		return FAULT_NONE;
	}
	enum fault fault = journal_unwritten(home, name, errno);
	journal_drop(home, fd);
	return fault;
}

void
journal_drop(const struct journal *home, int fd)
{
	unlinkat(home->dir, JOURNAL_NEW_NAME, 0);
	close(fd);
}

enum fault
journal_make(struct journal *home)
{
	char uuid[RECORD_UUID_LEN], header[RECORD_HEADER_LEN];
	struct journal fresh = JOURNAL_NONE;
	bool named = false;
	enum fault fault = journal_new(home, &fresh.fd);

	if (fault != FAULT_NONE)
		return fault;
	/* A random UUID: RFC 9562, section 5.4. */
	if (file_get(AT_FDCWD, "/proc/sys/kernel/random/uuid", uuid,
		sizeof(uuid)) == 0) {
		record_header_encode(uuid, header);
		named =
		    file_write_all(fresh.fd, header, sizeof(header), 0) == 0 &&
		    fsync(fresh.fd) == 0 &&
		    (try_lock(&fresh, JOURNAL_EXCLUSIVE) == 0 ||
			errno != EAGAIN) &&
		    rename_new(home->dir, JOURNAL_NEW_NAME, JOURNAL_NAME) == 0;
	}
	if (named && fsync(home->dir) == 0) {
		close(fresh.fd);
		return FAULT_NONE;
	}
	fault = fault_report(home->path, "cannot create a store there");
	/*
	 * A power cut could still undo the rename, so remove the name.  Until
	 * then the lock keeps other processes from storing plants.
	 */
	if (named)
		unlinkat(home->dir, JOURNAL_NAME, 0);
	journal_drop(home, fresh.fd);
	return fault;
}

enum fault
journal_cut_tail(struct journal *journal, uint64_t end, uint64_t tail_end)
{
	char name[sizeof(JOURNAL_NAME ".torn-18446744073709551615")];
	int fd;
	assert(end < tail_end);
	enum fault fault = journal_new(journal, &fd);

	if (fault != FAULT_NONE)
		return fault;
	sprintf(name, JOURNAL_NAME ".torn-%" PRIu64, end);
	if (file_copy(journal->fd, end, tail_end, fd, 0, NULL) < 0) {
		fault = journal_unwritten(journal, name, errno);
		journal_drop(journal, fd);
		return fault;
	}
	fault = journal_place(journal, fd, name);
	if (fault == FAULT_NONE)
		fault = cut(journal, end);
	if (fault == FAULT_NONE)
		fault = journal_sync(journal);
	if (fault == FAULT_NONE)
		log_warning("%s: a batch is torn at byte %" PRIu64
			    ", by a crash or a failed write, before it was "
			    "acknowledged; its %" PRIu64
			    " bytes were moved to %s",
		    journal->name, end, tail_end - end, name);
	return fault;
}

void
journal_close(struct journal *journal)
{
	file_close(journal->fd);
	file_close(journal->dir);
	file_close(journal->end_fd);
	free(journal->name);
	free(journal->line);
	*journal = JOURNAL_NONE;
}
