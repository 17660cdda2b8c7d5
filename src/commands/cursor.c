/* cursor: see cursor.h. */
#include "cursor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"
#include "pure/crc32c.h"

#define BEGIN "plant-store-cursor 1 "
#define BEGIN_LEN ((int)sizeof(BEGIN) - 1)
#define CHECK_LEN 10 /* a space, eight digits, newline */
#define LINE_BYTES (sizeof(BEGIN) + STORE_CURSOR_MAX + CHECK_LEN)

/* No link is followed, and no FIFO waited for. */
#define FLAGS (O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

static enum fault
fail(const struct cursor *cursor, const char *what)
{
	(void)fault_report(cursor->path, what);
	return FAULT_OUTPUT;
}

static int
encode(const char *place, char line[static LINE_BYTES])
{
	int n = snprintf(line, LINE_BYTES, BEGIN "%s", place);

	return n + snprintf(line + n, CHECK_LEN + 1, " %08" PRIx32 "\n",
		       crc32c(0, line, (size_t)n));
}

static enum fault
read_place(struct cursor *cursor)
{
	char line[LINE_BYTES] = "", good[LINE_BYTES];
	int fd = open(cursor->path, O_RDONLY | FLAGS);
	int len = -1;

	if (fd < 0 && errno == ENOENT)
		return FAULT_NONE;
	if (fd >= 0) {
		len = (int)file_read_all(fd, line, sizeof(line), 0);
		close(fd);
	}
	if (len < 0)
		return fail(cursor, "cannot read");
	int n = len - BEGIN_LEN - CHECK_LEN;
	if (n > 0 && n < STORE_CURSOR_MAX)
		memcpy(cursor->place, line + BEGIN_LEN, (size_t)n);
	if (encode(cursor->place, good) == len &&
	    memcmp(line, good, (size_t)len) == 0)
		return FAULT_NONE;
	log_error("%s: is damaged or not a cursor; remove it to read the store "
		  "from the beginning",
	    cursor->path);
	return FAULT_DAMAGED;
}

/* Whether `path` is FILE, FILE.new or FILE.lock: then that .lock is ours. */
static bool
is_own(const struct cursor *cursor, const char *path)
{
	static const char *const suffixes[] = { "", ".new", ".lock" };
	struct stat own, other;
	char lock[PATH_MAX];

	for (size_t i = 0; i < 3; i++) {
		int n = (int)(strlen(path) - strlen(suffixes[i]));

		if (n < 0 || strcmp(path + n, suffixes[i]) != 0)
			continue;
		snprintf(lock, sizeof(lock), "%.*s.lock", n, path);
		if (stat(lock, &other) == 0 && fstat(cursor->lock, &own) == 0 &&
		    own.st_ino == other.st_ino && own.st_dev == other.st_dev) {
			log_error("%s: is the cursor's; name another file for "
				  "the plants",
			    path);
			return true;
		}
	}
	return false;
}

/* Under the lock, a FILE.new can only be a dead process's. */
static int
begin_next(struct cursor *cursor)
{
	struct stat st;
	bool old = lstat(cursor->path, &st) == 0;

	unlink(cursor->next);
	cursor->fd =
	    open(cursor->next, O_WRONLY | O_CREAT | O_EXCL | FLAGS, 0600);
	if (cursor->fd < 0 || !old)
		return cursor->fd;
	bool mine = st.st_uid == geteuid() ||
		    fchown(cursor->fd, st.st_uid, st.st_gid) == 0;
	return mine ? fchmod(cursor->fd, st.st_mode & 0777) : -1;
}

static enum fault
lock_file(struct cursor *cursor)
{
	char *copy = strdup(cursor->path);

	if (copy != NULL && asprintf(&cursor->next, "%s.lock", copy) > 0) {
		cursor->lock =
		    open(cursor->next, O_RDONLY | O_CREAT | FLAGS, 0600);
		cursor->dir =
		    open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	free(copy);
	if (cursor->lock < 0 || cursor->dir < 0)
		return fail(cursor, "cannot create or open its .lock");
	strcpy(strrchr(cursor->next, '.'), ".new");
	if (flock(cursor->lock, LOCK_EX | LOCK_NB) == 0)
		return FAULT_NONE;
	log_error("%s: another process uses this cursor", cursor->path);
	return FAULT_BUSY;
}

enum fault
cursor_open(struct cursor *cursor, const char *path, const char *output)
{
	*cursor = (struct cursor){ path, .lock = -1, .dir = -1, .fd = -1 };
	enum fault fault = output != NULL ? lock_file(cursor) : FAULT_NONE;
	if (fault == FAULT_NONE && output != NULL && is_own(cursor, output))
		fault = FAULT_OUTPUT;
	if (fault == FAULT_NONE)
		fault = read_place(cursor);
	return fault == FAULT_NONE && output != NULL && begin_next(cursor) < 0
		   ? fail(cursor, "cannot be replaced")
		   : fault;
}

enum fault
cursor_save(struct cursor *cursor, const char *place)
{
	char line[LINE_BYTES];
	size_t len = (size_t)encode(place, line);

	if (strcmp(place, cursor->place) == 0)
		return FAULT_NONE;
	if ((cursor->fd < 0 && begin_next(cursor) < 0) ||
	    file_write_all(cursor->fd, line, len, 0) < 0 ||
	    fsync(cursor->fd) < 0 || rename(cursor->next, cursor->path) < 0 ||
	    fsync(cursor->dir) < 0)
		return fault_report(cursor->path, "cannot be replaced");
	close(cursor->fd);
	cursor->fd = -1;
	strcpy(cursor->place, place);
	return FAULT_NONE;
}

/* Keep the lock until the process ends: FILE.new must be removed under it. */
void
cursor_close(struct cursor *cursor)
{
	if (cursor->fd >= 0)
		unlink(cursor->next);
	free(cursor->next);
}
