/*
 * copy: see store/copy.h.
 *
 * Happy path: check the source line by line (reader), copy its bytes, and read
 * them back.  Failure modes: damage ends it with its offset; what was added to
 * an earlier copy when it was interrupted is a torn tail of that copy, which
 * the next one cuts.
 */
#include "store/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "dest.h"
#include "ground/clock.h"
#include "ground/log.h"
#include "journal.h"
#include "reader_state.h"
#include "store/reader.h"
#include "store/store.h"

/*
 * The bytes are read, copied and read again; to the watch it is one piece of
 * work.
 */
struct phases {
	const struct watch *watch;
	uint64_t before, from; /* this phase's beginning: done, and offset */
	uint64_t total;
};

static bool
phase_step(void *context, uint64_t done, uint64_t total)
{
	const struct phases *phases = context;

	(void)total;
	return phases->watch->step(phases->watch->context,
	    phases->before + done - phases->from, phases->total);
}

static struct watch
phase_watch(struct phases *phases)
{
	bool watched = phases->watch != NULL && phases->watch->step != NULL;

	return (struct watch){ watched ? phase_step : NULL, phases };
}

/* The phase that ends at the offset `end` is done; the next begins at `from`. */
static void
phase_end(struct phases *phases, uint64_t end, uint64_t from)
{
	phases->before += end - phases->from;
	phases->from = from;
}

/* EX_OK at the end; a status; COPY_STOPPED. */
static int
read_all(struct reader *reader)
{
	struct record record;
	enum reader_result result;

	do
		result = reader_next(reader, &record);
	while (result == READER_PLANT);
	if (result == READER_STOPPED)
		return COPY_STOPPED;
	return result == READER_END ? EX_OK : reader_status(reader);
}

static int
unwritten(const char *dest)
{
	return errno == ECANCELED ? COPY_STOPPED
				  : reader_error(dest, "cannot write");
}

/* Read back what was written, from `from` on. */
static int
check_copy(
    const struct reader *source, struct reader *dest, struct phases *phases)
{
	int status = read_all(dest);

	if (status != EX_OK)
		return status;
	phase_end(phases, dest->replay.at.end, 0);
	if (dest->replay.at.end == source->replay.at.end &&
	    dest->replay.at.crc == source->replay.at.crc)
		return EX_OK;
	log_error(
	    "%s: does not equal what was read; check its disk", dest->name);
	return EX_IOERR;
}

/* A whole new copy, which takes its name only when it is complete. */
static int
copy_whole(
    struct reader *source, int dir, const char *path, struct phases *phases)
{
	struct watch watch = phase_watch(phases);
	int status = read_all(source);
	uint64_t end = source->replay.at.end;

	if (status != EX_OK)
		return status;
	phase_end(phases, end, 0);
	if (journal_publish(&source->journal, end, dir, &watch) < 0)
		return unwritten(path);
	phase_end(phases, end, 0);
	struct reader *dest = reader_open(path, &watch, &status);
	if (dest != NULL)
		status = check_copy(source, dest, phases);
	reader_close(dest);
	return status;
}

/*
 * Take up from the copy's end: the source's next line must follow from the
 * copy's last one, which ties both together down to their first byte.
 */
static int
check_lineage(struct reader *source, const struct reader *dest)
{
	if (memcmp(source->journal.uuid, dest->journal.uuid, RECORD_UUID_LEN) !=
	    0) {
		log_error("%s: is a copy of another store; name another "
			  "directory",
		    dest->name);
		return EX_CANTCREAT;
	}
	if (source->journal.size < dest->replay.at.end) {
		log_error("%s: holds more than %s; is it the copy of a later "
			  "state?",
		    dest->name, source->name);
		return EX_CANTCREAT;
	}
	if (!reader_has_line(source, &dest->replay.at)) {
		log_error("%s: its last line is not in its place in %s, which "
			  "was set back since, or is damaged: verify it, and "
			  "name another directory",
		    dest->name, source->name);
		return EX_CANTCREAT;
	}
	return reader_resume(source, &dest->replay.at, dest->plants);
}

/*
 * Whoever serves the copy makes the lock file and then locks the journal: so
 * nobody has since it was read, nor does before `fd` is closed.  Who only reads
 * it locks the journal for a moment too.
 */
static int
lock_copy(const struct reader *dest, int fd)
{
	int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + STORE_LOCK_TIMEOUT_MS;
	/* It may lie where files cannot be locked, and so none is served. */
	bool held = lock_file(fd, deadline_ms) < 0 && errno == ETIMEDOUT;

	if (faccessat(dest->dir, "lock", F_OK, 0) == 0) {
		log_error("%s: was put into service meanwhile; name another "
			  "directory",
		    dest->name);
		return EX_CANTCREAT;
	}
	if (!held)
		return EX_OK;
	log_error("%s: held by another process for %d ms; try again later",
	    dest->name, STORE_LOCK_TIMEOUT_MS);
	return EX_TEMPFAIL;
}

/* The bytes [from, to), synced; if it fails `dest` is as before. */
static int
append_bytes(const struct reader *source, const struct reader *dest,
    uint64_t from, uint64_t to, const struct watch *watch)
{
	int fd = openat(dest->dir, JOURNAL_NAME, O_RDWR | O_CLOEXEC);
	int status = EX_OK;

	if (fd >= 0) {
		status = lock_copy(dest, fd);
		if (status != EX_OK) {
			close(fd);
			return status;
		}
	}
	/* What stands behind its last line is left from an interrupted one. */
	if (fd < 0 || ftruncate(fd, (off_t)from) < 0)
		status = unwritten(dest->name);
	else if (journal_copy(&source->journal, from, to, fd, watch) < 0) {
		status = unwritten(dest->name);
		if (ftruncate(fd, (off_t)from) < 0)
			log_warning("%s: cannot cut off what was added: %s; "
				    "the next backup does",
			    dest->name, strerror(errno));
	}
	if (fd >= 0)
		close(fd);
	return status;
}

/* What the copy lacks, into it, synced. */
static int
copy_rest(struct reader *source, struct reader *dest, uint64_t *before,
    struct phases *phases)
{
	struct watch watch = phase_watch(phases);
	int status = read_all(dest);
	struct position at = dest->replay.at;

	*before = at.end;
	if (status == EX_OK)
		status = check_lineage(source, dest);
	if (status != EX_OK)
		return status;
	phase_end(phases, at.end, at.end);
	phases->total = 3 * source->journal.size - 2 * at.end;
	status = read_all(source);
	if (status != EX_OK)
		return status;
	phase_end(phases, source->replay.at.end, at.end);
	status =
	    append_bytes(source, dest, at.end, source->replay.at.end, &watch);
	if (status != EX_OK)
		return status;
	phase_end(phases, source->replay.at.end, at.end);
	/* The bytes were read twice: the second time is checked here. */
	status = reader_resume(dest, &at, dest->plants);
	return status == EX_OK ? check_copy(source, dest, phases) : status;
}

static int
copy_into(struct reader *source, int dir, const char *path, uint64_t *before,
    struct phases *phases)
{
	struct watch watch = phase_watch(phases);
	struct stat st;
	int status;

	*before = 0;
	phases->total = 3 * source->journal.size;
	if (fstatat(dir, JOURNAL_NAME, &st, 0) < 0)
		return copy_whole(source, dir, path, phases);
	struct reader *dest = reader_open(path, &watch, &status);
	if (dest != NULL)
		status = copy_rest(source, dest, before, phases);
	reader_close(dest);
	return status;
}

int
copy_backup(const char *from, const char *dest, const struct watch *watch,
    struct copy_report *report)
{
	struct phases phases = { .watch = watch };
	struct watch phase = phase_watch(&phases);
	struct reader_report read;
	uint64_t before;
	int status;
	struct reader *source = reader_open(from, &phase, &status);

	if (source == NULL)
		return status;
	int dir = dest_open(dest, &status);
	if (dir < 0)
		goto done;
	status = copy_into(source, dir, dest, &before, &phases);
	close(dir);
	if (status != EX_OK)
		goto done;
	reader_report(source, &read);
	report->plants = read.plants;
	report->bytes = read.bytes;
	report->added = read.bytes - before;
	memcpy(report->store, read.store, sizeof(report->store));

done:
	reader_close(source);
	return status;
}
