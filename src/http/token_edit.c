/*
 * token_edit: changes the token file by replacing it.
 *
 * The happy path: open the file, lock it, see that the path still names it,
 * read it, write the new contents beside it, sync, rename, sync the directory.
 * The lock is on the token file itself, so that nothing else is left in its
 * directory; since the rename ends the life of the locked file, whoever waited
 * for it finds another file at the path and begins again.  Where there is no
 * file yet, the new one is linked to its name, which fails if somebody else
 * was first: begin again too.
 *
 * On a failure before the rename the file is as it was and the temporary one
 * is removed.  A file that is malformed is left to a person.
 */
#include "token_edit.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "token_file.h"

/* An edit takes some milliseconds: who waits longer waits for a mistake. */
#define WAIT_MS 2000
#define RETRY_MS 10

/* Some 500 entries; file systems take less. */
#define ACL_BYTES_MAX 4096

/* Not a status of sysexits.h: somebody else is at it, or was first. */
#define EDIT_AGAIN (-1)

struct edit {
	const char *path;
	const char *name;
	const char *line; /* to add; NULL to remove */
	char *error;
	size_t error_len;
};

static int
failed(const struct edit *edit, const char *doing)
{
	return token_file_failed(
	    edit->path, doing, edit->error, edit->error_len);
}

static int64_t
clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The directory of the path, from malloc. */
static char *
directory_of(const char *path)
{
	char *copy = strdup(path);
	char *directory = copy == NULL ? NULL : strdup(dirname(copy));

	free(copy);
	return directory;
}

static int
directory_missing(const struct edit *edit)
{
	char *directory = directory_of(edit->path);

	if (directory == NULL)
		return failed(edit, "make");
	snprintf(edit->error, edit->error_len,
	    "%s: its directory is missing; make both for the service's group: "
	    "install -d -g plant-store -m 0750 %s && "
	    "install -g plant-store -m 0640 /dev/null %s",
	    edit->path, directory, edit->path);
	free(directory);
	return EX_CANTCREAT;
}

/* Lock the open file, which may have been replaced before it was locked. */
static int
lock(const struct edit *edit, int fd)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct stat locked, named;

	if (fcntl(fd, F_OFD_SETLK, &whole) != 0)
		return errno == EAGAIN || errno == EACCES
			   ? EDIT_AGAIN
			   : failed(edit, "lock");
	if (fstat(fd, &locked) != 0)
		return failed(edit, "look at");
	if (lstat(edit->path, &named) != 0 || named.st_dev != locked.st_dev ||
	    named.st_ino != locked.st_ino)
		return EDIT_AGAIN;
	return 0;
}

/*
 * The new contents in `text`, from malloc.
 */
static int
compose(const struct edit *edit, const struct token_file *file, char **text,
    size_t *len)
{
	const struct token_line *found = NULL;
	const char *line = edit->line == NULL ? "" : edit->line;
	const char *refusal = NULL;
	size_t start = file->len, end = file->len;
	const char *newline;
	int n;

	for (size_t i = 0; i < file->count && found == NULL; i++)
		if (strcmp(file->lines[i].token.name, edit->name) == 0)
			found = &file->lines[i];
	if (edit->line != NULL && found != NULL)
		refusal = "is taken; choose another or revoke it first";
	else if (edit->line == NULL && found == NULL)
		refusal = "is unknown; see: plant-store token list";
	else if (edit->line == NULL && file->count == 1)
		refusal = "is the only token, without which the service "
			  "cannot start; add another first";
	if (refusal != NULL) {
		snprintf(edit->error, edit->error_len, "%s: the name %s %s",
		    edit->path, edit->name, refusal);
		return EX_DATAERR;
	}
	if (found != NULL) {
		start = found->start;
		end = found->end;
	}
	if (file->len + strlen(line) >= TOKENS_FILE_BYTES_MAX) {
		snprintf(edit->error, edit->error_len,
		    "%s: would be larger than %zu bytes; revoke tokens that "
		    "are no longer used",
		    edit->path, TOKENS_FILE_BYTES_MAX);
		return EX_DATAERR;
	}
	/* A person's editor may have left the last line without its end. */
	newline = *line != '\0' && start > 0 && file->text[start - 1] != '\n'
		      ? "\n"
		      : "";
	n = asprintf(text, "%.*s%s%s%s", (int)start,
	    file->text == NULL ? "" : file->text, newline, line,
	    file->text == NULL ? "" : file->text + end);
	if (n < 0)
		return failed(edit, "change");
	*len = (size_t)n;
	return 0;
}

static int
write_all(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Of the access control list that a file may have beside its mode. */
static int
copy_acl(int from, int to)
{
	static const char name[] = "system.posix_acl_access";
	char acl[ACL_BYTES_MAX];
	ssize_t len = fgetxattr(from, name, acl, sizeof(acl));

	if (len >= 0)
		return fsetxattr(to, name, acl, (size_t)len, 0);
	/* The directory may have given the new one a list of its own. */
	if (errno == ENODATA && fremovexattr(to, name) == 0)
		return 0;
	return errno == ENODATA || errno == ENOTSUP ? 0 : -1;
}

/* Who may use the old file may use the new one. */
static int
copy_rights(const struct edit *edit, int from, int to)
{
	struct stat st;

	if (fstat(from, &st) != 0)
		return failed(edit, "look at");
	if (fchown(to, st.st_uid, st.st_gid) != 0)
		return failed(edit, "keep the owner of");
	if (fchmod(to, st.st_mode & 07777) != 0 || copy_acl(from, to) != 0)
		return failed(edit, "keep the mode of");
	return 0;
}

/*
 * Write the contents to a new file beside the path, durably, with the rights of
 * `old` or, if that is -1, mode 0600.  `name` is its name, from malloc.
 */
static int
write_beside(
    const struct edit *edit, int old, const char *text, size_t len, char **name)
{
	int status = 0;
	char *temporary;
	int fd;

	if (asprintf(&temporary, "%s.XXXXXX", edit->path) < 0)
		return failed(edit, "change");
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0) {
		status = errno == ENOENT ? directory_missing(edit)
					 : failed(edit, "write beside");
		free(temporary);
		return status;
	}
	/* mkostemp made it with mode 0600. */
	if (old >= 0)
		status = copy_rights(edit, old, fd);
	if (status == 0 && (write_all(fd, text, len) != 0 || fsync(fd) != 0))
		status = failed(edit, "write");
	if (close(fd) != 0 && status == 0)
		status = failed(edit, "write");
	if (status != 0) {
		unlink(temporary);
		free(temporary);
		return status;
	}
	*name = temporary;
	return 0;
}

/* Give the temporary file the path's name. */
static int
name_it(const struct edit *edit, const char *temporary, bool replace)
{
	if (replace)
		return rename(temporary, edit->path) != 0
			   ? failed(edit, "replace")
			   : 0;
	/* Unlike rename, link does not replace another adder's file. */
	if (link(temporary, edit->path) != 0)
		return errno == EEXIST ? EDIT_AGAIN : failed(edit, "make");
	unlink(temporary);
	return 0;
}

/* The one failure after which the file is changed. */
static int
unsynced(const struct edit *edit)
{
	snprintf(edit->error, edit->error_len,
	    "%s: is changed, but a power cut may undo it: %s; check the disk, "
	    "then see: plant-store token list",
	    edit->path, strerror(errno));
	return EX_IOERR;
}

static int
publish(const struct edit *edit, int old, const char *text, size_t len)
{
	char *directory = directory_of(edit->path);
	char *temporary = NULL;
	int status;
	int fd;

	if (directory == NULL)
		return failed(edit, "change");
	/* Opened first, so that nothing but the sync can fail afterwards. */
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(directory);
	if (fd < 0)
		return errno == ENOENT ? directory_missing(edit)
				       : failed(edit, "open the directory of");
	status = write_beside(edit, old, text, len, &temporary);
	if (status == 0) {
		status = name_it(edit, temporary, old >= 0);
		if (status != 0)
			unlink(temporary);
		else if (fsync(fd) != 0)
			status = unsynced(edit);
	}
	close(fd);
	free(temporary);
	return status;
}

static int
edit_once(const struct edit *edit)
{
	struct token_file file = { 0 };
	char *text = NULL;
	size_t len = 0;
	int status = 0;
	int fd;

	fd = open(edit->path,
	    O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 && !(errno == ENOENT && edit->line != NULL))
		return failed(edit, "open");
	if (fd >= 0)
		status = lock(edit, fd);
	if (fd >= 0 && status == 0)
		status = token_file_read(
		    fd, edit->path, &file, edit->error, edit->error_len);
	if (status == 0)
		status = compose(edit, &file, &text, &len);
	if (status == 0)
		status = publish(edit, fd, text, len);
	free(text);
	token_file_free(&file);
	if (fd >= 0)
		close(fd);
	return status;
}

static int
edit_run(const struct edit *edit)
{
	const struct timespec pause = { .tv_nsec = RETRY_MS * 1000000L };
	int64_t deadline_ms = clock_ms() + WAIT_MS;
	int status;

	while ((status = edit_once(edit)) == EDIT_AGAIN) {
		if (clock_ms() >= deadline_ms) {
			snprintf(edit->error, edit->error_len,
			    "%s: another process has it locked for %d s; try "
			    "again later",
			    edit->path, WAIT_MS / 1000);
			return EX_TEMPFAIL;
		}
		nanosleep(&pause, NULL);
	}
	return status;
}

int
token_edit_add(const char *path, const char *name, const char *line,
    char *error, size_t error_len)
{
	struct edit edit = { path, name, line, error, error_len };

	return edit_run(&edit);
}

int
token_edit_remove(
    const char *path, const char *name, char *error, size_t error_len)
{
	struct edit edit = { path, name, NULL, error, error_len };

	return edit_run(&edit);
}
