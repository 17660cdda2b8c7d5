/*
 * copy: see reader/maintain.h.
 *
 * Happy path: check the source line by line (reader), copy its bytes beside
 * what is there, and rename.  Failure modes: damage ends it with its offset;
 * what is left of a copy that broke off is removed by the next one.
 */
#include "reader/maintain.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"
#include "journal_reader.h"

/* So much of an earlier copy's end must stand in the source, too. */
#define TAIL_BYTES 4096

/* To copy is to check, and in about the same time to write. */
struct halves {
	const struct watch *whole; /* or NULL */
	bool second;
};

static bool
step_half(void *halves, uint64_t done, uint64_t total)
{
	const struct halves *h = halves;

	return watch_step(h->whole, h->second ? total + done : done, 2 * total);
}

/* Of the destination it is one of output. */
static enum fault
of_dest(enum fault fault)
{
	return fault == FAULT_ABSENT || fault == FAULT_FULL ? FAULT_OUTPUT
							    : fault;
}

static enum fault
cannot(const char *path, const char *what)
{
	return of_dest(fault_report(path, what));
}

/* Whether it has the type, and belongs to root or to us. */
static bool
is_trusted(const struct stat *st, mode_t type)
{
	return (st->st_mode & S_IFMT) == type &&
	       (st->st_uid == 0 || st->st_uid == geteuid());
}

static enum fault
refuse(enum fault fault, const char *path, const char *name, const char *why)
{
	log_error("%s%s: %s; name another directory", path, name, why);
	return fault;
}

static enum fault
refuse_foreign(const char *path)
{
	return refuse(FAULT_SETUP, path, "",
	    "it or its " JOURNAL_NAME " belongs to another user, or the latter "
	    "is a symbolic link or no file");
}

static enum fault
refuse_busy(const char *path)
{
	log_error("%s: another process writes there; try again later", path);
	return FAULT_BUSY;
}

static enum fault
check_unserved(const char *path, int dir)
{
	return faccessat(dir, "index", F_OK, 0) < 0
		   ? FAULT_NONE
		   : refuse(FAULT_OUTPUT, path, "", "was served as a store");
}

/* The directory for the copy, locked until it is closed. */
static enum fault
open_dest(const char *path, int *dir)
{
	struct stat st;

	if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode) &&
	    !is_trusted(&st, S_IFLNK))
		return refuse_foreign(path);
	*dir = file_make_dir(path);
	if (*dir < 0)
		return cannot(path, "cannot make or open it");
	if (flock(*dir, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return refuse_busy(path);
	if (fstat(*dir, &st) < 0)
		return cannot(path, "cannot open");
	return is_trusted(&st, S_IFDIR) ? check_unserved(path, *dir)
					: refuse_foreign(path);
}

static bool
are_same(int a, int b, off_t at, size_t len)
{
	char x[TAIL_BYTES], y[TAIL_BYTES];

	return pread(a, x, len, at) == (ssize_t)len &&
	       pread(b, y, len, at) == (ssize_t)len && memcmp(x, y, len) == 0;
}

/*
 * The journal that is there must be an earlier copy.  It is locked until the
 * new one has its name: a service that starts there meanwhile waits, and finds
 * the new one.
 */
static enum fault
check_earlier(const struct store_reader *source, const char *dest, int dir,
    struct journal *earlier)
{
	const struct journal *journal = &source->journal;
	enum fault fault = FAULT_OUTPUT;
	const char *why = NULL;
	struct stat st;

	/* Checked once open, so nobody can exchange it; a pipe would block. */
	earlier->fd = openat(
	    dir, JOURNAL_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (earlier->fd < 0 && errno == ENOENT)
		return FAULT_NONE;
	if (earlier->fd < 0 ? errno != ELOOP : fstat(earlier->fd, &st) < 0)
		return cannot(dest, "cannot open");
	if (earlier->fd < 0 || !is_trusted(&st, S_IFREG))
		return refuse_foreign(dest);
	size_t tail = st.st_size < TAIL_BYTES ? (size_t)st.st_size : TAIL_BYTES;
	earlier->size = (uint64_t)st.st_size;
	if (st.st_ino == journal->inode && st.st_dev == journal->device) {
		why = "is the journal itself";
		fault = FAULT_SETUP;
	} else if (journal_lock_shared(earlier, 0) != FAULT_NONE)
		return refuse_busy(dest);
	else if (!are_same(earlier->fd, journal->fd, 0, RECORD_HEADER_LEN))
		why = "is a copy of another store";
	else if (earlier->size > source->replay.at.end)
		why = "holds more than what is copied";
	else if (!are_same(
		     earlier->fd, journal->fd, st.st_size - (off_t)tail, tail))
		why = "is no part of what is copied, or damaged: verify it";
	if (why == NULL)
		return check_unserved(dest, dir);
	return refuse(fault, dest, "/" JOURNAL_NAME, why);
}

enum fault
copy_backup(const char *from, const char *dest, const struct watch *watch,
    struct copy_report *report)
{
	struct halves halves = { watch, false };
	const struct watch each = { step_half, &halves };
	struct journal copy, earlier = JOURNAL_NONE, home = JOURNAL_NONE;
	enum fault fault;
	int dir = -1;
	struct store_reader *source = journal_reader_open(from, &each, &fault);

	if (source == NULL)
		return fault;
	fault = open_dest(dest, &dir);
	if (fault == FAULT_NONE)
		fault = journal_reader_check(source);
	if (fault == FAULT_NONE)
		fault = check_earlier(source, dest, dir, &earlier);
	const uint64_t end = source->replay.at.end;
	halves.second = true;
	home.path = dest;
	home.dir = dir;
	if (fault == FAULT_NONE)
		fault = of_dest(journal_new(&copy, &home));
	if (fault == FAULT_NONE &&
	    file_copy(source->journal.fd, 0, end, copy.fd, &each) < 0) {
		fault = cannot(dest, "cannot write");
		journal_drop(&copy);
	}
	if (fault == FAULT_NONE) {
		/* Written, but not on the disk; too late to stop. */
		(void)watch_step(&each, end, end);
		fault = of_dest(journal_place(&copy, true));
	}
	report->copy = source->report;
	report->added = report->copy.bytes - earlier.size;
	journal_close(&earlier);
	if (dir >= 0)
		close(dir);
	journal_reader_close(source);
	return fault;
}
