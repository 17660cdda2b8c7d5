/*
 * copy: see reader/reader.h.
 *
 * Happy path: check the source line by line (reader), copy its bytes into a new
 * file beside an earlier copy, and rename it.  Failure modes: damage ends the
 * copy, its offset logged; the next copy removes what an unfinished one left.
 */
#include "journal_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"

/* How many of an earlier copy's last bytes are compared with the source. */
#define TAIL_BYTES 4096

/* Progress of a copy: checking and writing take about the same time. */
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
	if (dest->dir < 0)
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
 * A journal in `dest` must be an earlier copy.  It stays locked until the new
 * copy has its name: a service that starts there meanwhile waits, and then
 * opens the new copy.
 */
static enum fault
check_earlier(const struct store_reader *source, struct journal *dest)
{
	const struct journal *journal = &source->journal;
	const char *why = NULL;
	struct stat st;

	/* Checked once open: nobody can replace it.  O_NONBLOCK: for a FIFO. */
	dest->fd = openat(dest->dir, JOURNAL_NAME,
	    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (dest->fd < 0 && errno == ENOENT)
		return FAULT_NONE;
	if (dest->fd < 0 ? errno != ELOOP : fstat(dest->fd, &st) < 0)
		return fault_report(dest->path, "cannot open");
	if (dest->fd < 0 || !is_trusted(&st, S_IFREG))
		return refuse(dest, FAULT_SETUP, foreign);
	size_t tail = st.st_size < TAIL_BYTES ? (size_t)st.st_size : TAIL_BYTES;
	dest->size = (uint64_t)st.st_size;
	if (st.st_ino == journal->inode && st.st_dev == journal->device)
		return refuse(dest, FAULT_SETUP,
		    "its " JOURNAL_NAME " is the journal itself");
	if (journal_lock(dest, JOURNAL_SHARED, 0) != FAULT_NONE)
		return refuse(dest, FAULT_BUSY, busy);
	if (!are_same(dest->fd, journal->fd, 0, RECORD_HEADER_LEN))
		why = "its " JOURNAL_NAME " is a copy of another store";
	else if (dest->size > source->replay.at.end)
		why = "its " JOURNAL_NAME " holds more than what is copied";
	else if (!are_same(
		     dest->fd, journal->fd, st.st_size - (off_t)tail, tail))
		why = "its " JOURNAL_NAME " is no part of what is copied, or "
		      "damaged: verify it";
	return why == NULL ? check_unserved(dest)
			   : refuse(dest, FAULT_OUTPUT, why);
}

enum fault
copy_backup(const char *from, const char *to, const struct watch *watch,
    struct reader_report *report)
{
	struct halves halves = { watch, false };
	const struct watch each = { step_half, &halves };
	const struct store_options options = { .dir = from, .watch = &each };
	struct journal dest = JOURNAL_NONE;
	int copy;
	enum fault fault;
	struct store_reader *source =
	    journal_reader.open(&options, NULL, &fault);

	if (source == NULL)
		return fault;
	dest.path = to;
	fault = open_dest(&dest);
	if (fault == FAULT_NONE)
		fault = journal_reader_check(source);
	if (fault == FAULT_NONE)
		fault = check_earlier(source, &dest);
	const uint64_t end = source->replay.at.end;
	halves.second = true;
	if (fault == FAULT_NONE)
		fault = journal_new(&dest, &copy);
	if (fault == FAULT_NONE &&
	    file_copy(source->journal.fd, 0, end, copy, &each) < 0) {
		fault = fault_report(to, "cannot write");
		journal_drop(&dest, copy);
	}
	if (fault == FAULT_NONE) {
		/* All is written, but not yet durable; too late to stop. */
		(void)watch_step(&each, end, end);
		fault = journal_place(&dest, copy, JOURNAL_NAME);
	}
	*report = source->report;
	report->bytes = end;
	report->added = end - dest.size;
	journal_close(&dest);
	journal_reader.close(source);
	/* The source was open, so these are faults of the destination. */
	return fault == FAULT_ABSENT || fault == FAULT_FULL ? FAULT_OUTPUT
							    : fault;
}
