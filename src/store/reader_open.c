/*
 * reader_open: opening and closing a reader, whose journal may be a store's or
 * stand alone.  Nothing is made here: the lock file is opened where there is
 * one.  See store/reader.h.
 */
#include "store/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "ground/log.h"
#include "reader_state.h"

/* Anything but a directory is taken for a journal. */
static enum journal_open
open_path(struct reader *reader, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return JOURNAL_ERROR;
	reader->journal.fd = fd;
	if (fstat(fd, &st) < 0)
		return JOURNAL_ERROR;
	if (!S_ISDIR(st.st_mode))
		return journal_open_file(&reader->journal, -1, fd);
	reader->journal.fd = -1;
	reader->dir = fd;
	reader->path = reader->name;
	if (asprintf(&reader->name, "%s/" JOURNAL_NAME, path) < 0) {
		reader->name = NULL;
		return JOURNAL_ERROR;
	}
	fd = openat(reader->dir, JOURNAL_NAME, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? JOURNAL_ABSENT : JOURNAL_ERROR;
	return journal_open_file(&reader->journal, reader->dir, fd);
}

static int
open_journal(struct reader *reader, const char *path)
{
	switch (open_path(reader, path)) {
	case JOURNAL_OPENED:
		return EX_OK;
	case JOURNAL_ABSENT:
		log_error(
		    "%s: holds no store; name the directory of " JOURNAL_NAME,
		    path);
		return EX_NOINPUT;
	case JOURNAL_VERSION:
		log_error(
		    "%s: of a version that this program does not know; use "
		    "the program that wrote it",
		    reader->name);
		return EX_CONFIG;
	case JOURNAL_DAMAGED:
		return reader_damaged(reader, 0, "not a journal's header");
	case JOURNAL_ERROR:
		break;
	}
	return reader_error(
	    reader->name != NULL ? reader->name : path, "cannot open");
}

struct reader *
reader_open(const char *path, const struct watch *watch, int *status)
{
	struct reader *reader = calloc(1, sizeof(*reader));

	if (reader != NULL)
		reader->name = strdup(path);
	if (reader == NULL || reader->name == NULL) {
		*status = reader_error(path, "cannot read");
		free(reader);
		return NULL;
	}
	reader->dir = reader->lock.fd = reader->journal.fd = -1;
	if (watch != NULL)
		reader->watch = *watch;
	*status = open_journal(reader, path);
	/*
	 * A copy that was never served has no lock file, and needs none; nor
	 * does a snapshot that is mounted for reading: the journal's own does.
	 */
	if (*status == EX_OK && reader->dir >= 0 &&
	    lock_open_present(&reader->lock, reader->dir) < 0 &&
	    errno != ENOENT && errno != EROFS)
		*status = reader_error(path, "cannot open its lock");
	if (*status == EX_OK)
		*status = reader_resume(reader, &reader->journal.start, 0);
	if (*status == EX_OK)
		return reader;
	reader_close(reader);
	return NULL;
}

void
reader_close(struct reader *reader)
{
	if (reader == NULL)
		return;
	replay_done(&reader->replay);
	journal_close(&reader->journal);
	lock_close(&reader->lock);
	if (reader->dir >= 0)
		close(reader->dir);
	free(reader->path);
	free(reader->name);
	free(reader);
}
