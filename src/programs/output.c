/*
 * output: see output.h.  One large buffer and write(2): what is put out may be
 * gigabytes of short lines.
 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "command.h"
#include "ground/log.h"
#include "ground/rename.h"

/* Written at once: more made it no faster, and it stays in the cache. */
#define FLUSH_BYTES ((size_t)256 << 10)

static const char *
name_of(const struct output *output)
{
	return output->path != NULL ? output->path : "stdout";
}

static int
fail(const struct output *output, const char *what, int status)
{
	log_error("%s: %s: %s%s", name_of(output), what, strerror(errno),
	    output->path != NULL
		? errno == ENOSPC || errno == EDQUOT ? "; make room" : ""
		: "; the output is incomplete; check where "
		  "it goes");
	return status;
}

/* A file may be replaced; a device, a pipe or a link never is meant. */
static int
check_path(const struct output *output)
{
	struct stat st;

	if (lstat(output->path, &st) < 0)
		return errno == ENOENT
			   ? EX_OK
			   : fail(output, "cannot make it", EX_CANTCREAT);
	if (!S_ISREG(st.st_mode)) {
		log_error("%s: is there and no regular file; name another, or "
			  "redirect stdout to it",
		    output->path);
		return EX_CANTCREAT;
	}
	if (output->replace)
		return EX_OK;
	log_error("%s: is there already; name another file, or replace it with "
		  "--force",
	    output->path);
	return EX_CANTCREAT;
}

static int
make_temporary(struct output *output)
{
	int status = check_path(output);

	if (status != EX_OK)
		return status;
	if (asprintf(&output->temporary, "%s.XXXXXX", output->path) < 0) {
		output->temporary = NULL;
		return fail(output, "cannot make it", EX_TEMPFAIL);
	}
	/* Of mode 0600: plants are nobody else's business. */
	output->fd = mkostemp(output->temporary, O_CLOEXEC);
	if (output->fd >= 0)
		return EX_OK;
	status = fail(output, "cannot make it", EX_CANTCREAT);
	free(output->temporary);
	output->temporary = NULL;
	return status;
}

int
output_open(
    struct output *output, const char *path, bool replace, size_t item_max)
{
	int status;

	*output = (struct output){ .path = path,
		.fd = STDOUT_FILENO,
		.replace = replace,
		.size = FLUSH_BYTES + item_max };
	output->buf = malloc(output->size);
	if (output->buf == NULL)
		return fail(output, "no memory to write it", EX_TEMPFAIL);
	status = path == NULL ? EX_OK : make_temporary(output);
	if (status != EX_OK) {
		free(output->buf);
		output->buf = NULL;
	}
	return status;
}

void
output_prefix(struct output *output, const char *text)
{
	size_t len = strlen(text);

	memcpy(output_end(output), text, len);
	output->used += len;
}

int
output_room(struct output *output)
{
	return output->used >= FLUSH_BYTES ? output_flush(output) : EX_OK;
}

char *
output_end(const struct output *output)
{
	return output->buf + output->used;
}

void
output_add(struct output *output, size_t len)
{
	output->used += len;
	output->items++;
}

int
output_flush(struct output *output)
{
	while (output->used > 0) {
		ssize_t n = write(output->fd, output->buf, output->used);

		if (n < 0 && errno == EAGAIN) {
			/* A pipe that does not block, as others left it. */
			struct pollfd ready = { .fd = output->fd,
				.events = POLLOUT };

			n = poll(&ready, 1, -1) < 0 ? -1 : 0;
		}
		if (n < 0 && errno != EINTR)
			return fail(output, "cannot write", EX_IOERR);
		if (n > 0) {
			/* Mostly all of it, so nothing is moved. */
			output->used -= (size_t)n;
			memmove(output->buf, output->buf + n, output->used);
			output->cut = output->used > 0;
		}
		if (output->used > 0 && command_interrupted() != 0)
			return -1;
	}
	output->written = output->items;
	return EX_OK;
}

/* The name is on the disk when its directory is. */
static int
sync_directory(const struct output *output)
{
	char *path = strdup(output->path);
	int fd, result;

	if (path == NULL)
		return -1;
	fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(path);
	if (fd < 0)
		return -1;
	result = fsync(fd);
	int error = errno;
	close(fd);
	errno = error;
	return result;
}

static int
rename_output(const struct output *output)
{
	if (output->replace)
		return rename(output->temporary, output->path);
	return rename_new(AT_FDCWD, output->temporary, output->path);
}

static int
put_in_place(struct output *output)
{
	if (fsync(output->fd) < 0)
		return fail(output, "cannot sync", EX_IOERR);
	if (rename_output(output) < 0)
		return fail(output, "cannot give it its name", EX_CANTCREAT);
	free(output->temporary);
	output->temporary = NULL;
	if (sync_directory(output) < 0)
		return fail(output, "cannot sync its directory", EX_IOERR);
	return EX_OK;
}

int
output_finish(struct output *output)
{
	int status = output_flush(output);

	if (status != EX_OK || output->path == NULL)
		return status;
	return put_in_place(output);
}

void
output_close(struct output *output)
{
	if (output->temporary != NULL)
		unlink(output->temporary);
	free(output->temporary);
	if (output->path != NULL && output->fd >= 0 && output->buf != NULL)
		close(output->fd);
	free(output->buf);
	*output = (struct output){ .fd = -1 };
}
