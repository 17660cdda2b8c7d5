/* cursor: see cursor.h. */
#include "cursor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"
#include "pure/crc32c.h"

#define LINE_BYTES (sizeof(CURSOR_BEGIN " 01234567\n") + STORE_CURSOR_MAX)
/* Nobody's link is followed, and no FIFO waited for. */
#define OPEN_FLAGS (O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

static enum fault
fail(const struct cursor *cursor, const char *what)
{
	(void)fault_report(cursor->path, what);
	return FAULT_OUTPUT;
}

static int
print_line(const char *place, char line[static LINE_BYTES])
{
	int n = snprintf(line, LINE_BYTES, CURSOR_BEGIN "%s", place);

	return n + snprintf(line + n, LINE_BYTES - (size_t)n,
		       " %08" PRIx32 "\n", crc32c(0, line, (size_t)n));
}

static enum fault
read_place(struct cursor *cursor)
{
	char line[LINE_BYTES + 1] = "", good[LINE_BYTES];
	const size_t begin = sizeof(CURSOR_BEGIN) - 1;
	int fd = open(cursor->path, O_RDONLY | OPEN_FLAGS);
	ssize_t n = -1;

	if (fd < 0 && errno == ENOENT)
		return FAULT_NONE;
	if (fd >= 0) {
		n = file_read_all(fd, line, LINE_BYTES, 0);
		close(fd);
	}
	if (n < 0)
		return fail(cursor, "cannot read");
	const char *check = strrchr(line, ' ');
	if (check >= line + begin && check < line + begin + STORE_CURSOR_MAX) {
		memcpy(cursor->place, line + begin,
		    (size_t)(check - line) - begin);
		if (print_line(cursor->place, good) == n &&
		    memcmp(line, good, (size_t)n) == 0)
			return FAULT_NONE;
	}
	log_error("%s: is damaged, or no cursor; remove it to read the store "
		  "from the beginning",
	    cursor->path);
	return FAULT_DAMAGED;
}

/* By the lock, what is there was left by a process that is dead. */
static int
begin_next(struct cursor *cursor)
{
	struct stat st;
	bool old = lstat(cursor->path, &st) == 0;

	unlink(cursor->next);
	cursor->next_fd =
	    open(cursor->next, O_WRONLY | O_CREAT | O_EXCL | OPEN_FLAGS, 0600);
	if (cursor->next_fd < 0)
		return -1;
	if (old && st.st_uid != geteuid() &&
	    fchown(cursor->next_fd, st.st_uid, st.st_gid) < 0)
		return -1;
	return old ? fchmod(cursor->next_fd, st.st_mode & 0777) : 0;
}

static enum fault
lock_file(struct cursor *cursor)
{
	char *name;

	if (asprintf(&name, "%s.lock", cursor->path) < 0)
		return fail(cursor, "cannot lock it");
	cursor->lock = open(name, O_RDONLY | O_CREAT | OPEN_FLAGS, 0600);
	free(name);
	if (cursor->lock < 0)
		return fail(cursor, "cannot make or open its .lock");
	if (flock(cursor->lock, LOCK_EX | LOCK_NB) == 0)
		return FAULT_NONE;
	log_error("%s: another process uses this cursor", cursor->path);
	return FAULT_BUSY;
}

enum fault
cursor_open(struct cursor *cursor, const char *path, bool write)
{
	struct stat st;
	enum fault fault = FAULT_NONE;

	*cursor = (struct cursor){ .path = path, .next_fd = -1, .lock = -1 };
	if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		log_error("%s: is no regular file; name another", path);
		return FAULT_OUTPUT;
	}
	if (write)
		fault = lock_file(cursor);
	if (fault == FAULT_NONE)
		fault = read_place(cursor);
	if (fault != FAULT_NONE || !write)
		return fault;
	if (asprintf(&cursor->next, "%s.new", path) < 0)
		cursor->next = NULL;
	return cursor->next != NULL && begin_next(cursor) == 0
		   ? FAULT_NONE
		   : fail(cursor, "cannot be replaced");
}

static int
sync_dir(const char *path)
{
	char *copy = strdup(path);
	int dir = copy == NULL
		      ? -1
		      : open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int result = dir < 0 ? -1 : fsync(dir);

	if (dir >= 0)
		close(dir);
	free(copy);
	return result;
}

enum fault
cursor_save(struct cursor *cursor, const char *place)
{
	char line[LINE_BYTES];
	int n = print_line(place, line);

	if (strcmp(place, cursor->place) == 0)
		return FAULT_NONE;
	if ((cursor->next_fd < 0 && begin_next(cursor) < 0) ||
	    file_write_all(cursor->next_fd, line, (size_t)n, 0) < 0 ||
	    fsync(cursor->next_fd) < 0 ||
	    rename(cursor->next, cursor->path) < 0 ||
	    sync_dir(cursor->path) < 0)
		return fault_report(cursor->path, "cannot be replaced");
	close(cursor->next_fd);
	cursor->next_fd = -1;
	strcpy(cursor->place, place);
	return FAULT_NONE;
}

void
cursor_close(struct cursor *cursor)
{
	if (cursor->next_fd >= 0) {
		unlink(cursor->next);
		close(cursor->next_fd);
	}
	free(cursor->next);
	if (cursor->lock >= 0)
		close(cursor->lock);
}
