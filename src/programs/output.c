/*
 * output: see output.h.  One large buffer and write(2): the output may be
 * gigabytes of short lines.
 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "ground/file.h"
#include "ground/log.h"

#define JOURNAL_BEGIN "{\"plant-store\":"

static enum fault
fail(const struct output *output, const char *what, enum fault fault)
{
	if (output->path == NULL && errno == EPIPE) {
		/* As for every filter: "export | head" ends silently. */
		signal(SIGPIPE, SIG_DFL);
		raise(SIGPIPE);
	}
	(void)fault_report(
	    output->path != NULL ? output->path : "stdout", what);
	return fault;
}

/* Why what has the name may not be replaced: a device was not meant. */
static const char *
why_not_replaced(const struct output *output)
{
	char begin[sizeof(JOURNAL_BEGIN) - 1];
	struct stat st;

	if (lstat(output->path, &st) < 0)
		return NULL;
	if (!S_ISREG(st.st_mode))
		return "is no regular file; name another, or redirect stdout "
		       "to it";
	if (file_get(AT_FDCWD, output->path, begin, sizeof(begin)) == 0 &&
	    memcmp(begin, JOURNAL_BEGIN, sizeof(begin)) == 0)
		return "is a store's journal; name another file";
	return output->replace ? NULL
			       : "is there already; name another file, or "
				 "replace it with --force";
}

enum fault
output_open(struct output *output, const char *path, bool replace)
{
	const char *why;

	output->path = path;
	output->temporary = NULL;
	output->fd = path == NULL ? STDOUT_FILENO : -1;
	output->replace = replace;
	output->terminal = path == NULL && isatty(STDOUT_FILENO);
	output->used = 0;
	if (path == NULL)
		return FAULT_NONE;
	why = why_not_replaced(output);
	if (why != NULL) {
		log_error("%s: %s", path, why);
		return FAULT_OUTPUT;
	}
	/* Of mode 0600: plants are nobody else's business. */
	if (asprintf(&output->temporary, "%s.XXXXXX", path) < 0)
		output->temporary = NULL;
	else
		output->fd = mkostemp(output->temporary, O_CLOEXEC);
	return output->fd >= 0 ? FAULT_NONE
			       : fail(output, "cannot make it", FAULT_OUTPUT);
}

static enum fault
flush(struct output *output)
{
	const char *text = output->buf;

	while (output->used > 0) {
		struct pollfd ready = { .fd = output->fd, .events = POLLOUT };
		ssize_t n = write(output->fd, text, output->used);

		/* A pipe that does not block, as others left it. */
		if (n < 0 && errno == EAGAIN)
			n = poll(&ready, 1, -1) < 0 ? -1 : 0;
		if (n < 0 && errno != EINTR)
			return fail(output, "cannot write", FAULT_FAILED);
		if (n > 0) {
			text += n;
			output->used -= (size_t)n;
		}
		if (output->used > 0 && command_interrupted() != 0)
			return FAULT_STOPPED;
	}
	return FAULT_NONE;
}

static enum fault
add(struct output *output, const char *text, size_t len)
{
	enum fault fault = FAULT_NONE;

	while (fault == FAULT_NONE && len > 0) {
		size_t room = sizeof(output->buf) - output->used;
		size_t n = len < room ? len : room;

		memcpy(output->buf + output->used, text, n);
		output->used += n;
		text += n;
		len -= n;
		if (n == room)
			fault = flush(output);
	}
	return fault;
}

/*
 * The code of the character if a terminal would obey it or turn the text
 * around it (C0, C1, U+202A to U+202E, U+2066 to U+2069), else 0; `*n` becomes
 * how many bytes were looked at.
 */
static unsigned
control_code(const unsigned char *c, size_t len, size_t *n)
{
	unsigned code = c[0];

	*n = 1;
	if (c[0] == 0xc2 && len > 1) {
		*n = 2;
		code = c[1];
	} else if (c[0] == 0xe2 && len > 2) {
		*n = 3;
		code = 0x2000 | (c[1] & 0x3fU) << 6 | (c[2] & 0x3fU);
	} else if (c[0] > 0x7f || c[0] == '\n' || c[0] == '\t' ||
		   (c[0] == '\r' && len > 1 && c[1] == '\n'))
		return 0;
	return code < 0x20 || (code >= 0x7f && code < 0xa0) ||
		       (code >= 0x202a && code <= 0x202e) ||
		       (code >= 0x2066 && code <= 0x2069)
		   ? code
		   : 0;
}

enum fault
output_put(struct output *output, const char *text, size_t len)
{
	enum fault fault = FAULT_NONE;
	char escape[sizeof("\\u001b")];
	size_t n;

	if (!output->terminal)
		return add(output, text, len);
	for (size_t i = 0; i < len && fault == FAULT_NONE; i += n) {
		unsigned code =
		    control_code((const unsigned char *)text + i, len - i, &n);

		snprintf(escape, sizeof(escape), "\\u%04x", code & 0xffff);
		fault = code != 0 ? add(output, escape, strlen(escape))
				  : add(output, text + i, n);
	}
	return fault;
}

/* The name is on the disk when its directory is. */
static enum fault
sync_directory(const struct output *output)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", output->path);
	int fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	enum fault fault =
	    fd >= 0 && fsync(fd) == 0
		? FAULT_NONE
		: fail(output, "cannot sync its directory", FAULT_FAILED);

	close(fd);
	return fault;
}

enum fault
output_finish(struct output *output)
{
	enum fault fault = flush(output);
	int renamed;

	if (fault != FAULT_NONE || output->path == NULL)
		return fault;
	if (fsync(output->fd) < 0)
		return fail(output, "cannot sync", FAULT_FAILED);
	renamed = output->replace
		      ? rename(output->temporary, output->path)
		      : rename_new(AT_FDCWD, output->temporary, output->path);
	if (renamed < 0)
		return fail(output, "cannot give it its name", FAULT_OUTPUT);
	free(output->temporary);
	output->temporary = NULL;
	return sync_directory(output);
}

void
output_close(struct output *output)
{
	if (output->path != NULL && output->fd >= 0) {
		close(output->fd);
		if (output->temporary != NULL)
			unlink(output->temporary);
	}
	free(output->temporary);
}

enum fault
output_put_plant(struct output *output, const struct record *record, bool full)
{
	char head[OUTPUT_FULL_AROUND];
	int len = snprintf(head, sizeof(head),
	    OUTPUT_FULL_AT "%.*s" OUTPUT_FULL_BY "%.*s" OUTPUT_FULL_PLANT,
	    TIMESTAMP_LEN, record->at, (int)record->by_len, record->by);
	enum fault fault = output_put(output, head, full ? (size_t)len : 0);

	if (fault == FAULT_NONE)
		fault = output_put(output, record->plant, record->plant_len);
	if (fault == FAULT_NONE && full)
		fault = output_put(output, "}", 1);
	return fault == FAULT_NONE ? output_put(output, "\n", 1) : fault;
}
