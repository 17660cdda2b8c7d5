/* output: see output.h. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "ground/file.h"
#include "ground/log.h"

/* A larger buffer was no faster. */
#define FLUSH_BYTES ((size_t)256 << 10)

static struct {
	const char *path; /* NULL for stdout */
	char unfinished[PATH_MAX + sizeof(OUTPUT_UNFINISHED)];
	int fd;       /* -1: no file is open, or it has its name */
	bool replace; /* whether an existing file is replaced */
	bool terminal;
	enum fault fault;
	size_t used;
} output;
static char buffer[FLUSH_BYTES + OUTPUT_PUT_MAX];

static enum fault
fail_output(const char *what, enum fault fault)
{
	if (output.path == NULL && errno == EPIPE) {
		/* Die of SIGPIPE, as filters do: "export | head" is silent. */
		signal(SIGPIPE, SIG_DFL);
		raise(SIGPIPE);
	}
	(void)fault_report(output.path != NULL ? output.path : "stdout", what);
	return output.fault = fault;
}

enum fault
output_open(const char *path, bool replace)
{
	struct stat st, named;

	output.path = path;
	output.fd = path != NULL ? -1 : STDOUT_FILENO;
	output.replace = replace;
	output.terminal = path == NULL && isatty(STDOUT_FILENO);
	if (path == NULL)
		return FAULT_NONE;
	/* A device is a mistake. */
	if (lstat(path, &st) == 0 && (!replace || !S_ISREG(st.st_mode))) {
		log_error("%s: %s", path,
		    S_ISREG(st.st_mode)
			? "already exists; name another file, or replace it "
			  "with --force"
			: "is not a regular file; name another, or redirect "
			  "stdout to it");
		return FAULT_OUTPUT;
	}
	snprintf(output.unfinished, sizeof(output.unfinished),
	    "%s" OUTPUT_UNFINISHED, path);
	int fd = open(output.unfinished,
	    O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		return fail_output("cannot create it", FAULT_OUTPUT);
	/* Another user may have made it, or a link to a file of ours. */
	errno = EEXIST;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
		return fail_output("cannot create it", FAULT_OUTPUT);
	/* The process that had the lock may have renamed it. */
	bool ours = flock(fd, LOCK_EX | LOCK_NB) == 0 &&
		    lstat(output.unfinished, &named) == 0 &&
		    named.st_ino == st.st_ino;
	errno = ETIMEDOUT;
	if (!ours)
		return fail_output("cannot create it", FAULT_BUSY);
	output.fd = fd;
	return fchmod(fd, 0600) == 0 && ftruncate(fd, 0) == 0
		   ? FAULT_NONE
		   : fail_output("cannot create it", FAULT_OUTPUT);
}

enum fault
output_flush(void)
{
	const char *text = buffer;

	while (output.used > 0 && output.fault == FAULT_NONE) {
		struct pollfd ready = { .fd = output.fd, .events = POLLOUT };
		/* A blocking write would miss a signal just before it. */
		ssize_t n = poll(&ready, 1, OUTPUT_WAIT_MS) > 0
				? write(output.fd, text, output.used)
				: 0;

		if (n > 0) {
			text += n;
			output.used -= (size_t)n;
		}
		/* Another process may have made the pipe non-blocking. */
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			(void)fail_output("cannot write", FAULT_FAILED);
		else if (output.used > 0 && command_interrupted() != 0)
			output.fault = FAULT_STOPPED;
	}
	return output.fault;
}

/* Buffer at most OUTPUT_PUT_MAX bytes. */
static void
put_bytes(const char *text, size_t len)
{
	if (output.fault != FAULT_NONE)
		return;
	memcpy(buffer + output.used, text, len);
	output.used += len;
	if (output.used >= FLUSH_BYTES)
		(void)output_flush();
}

/*
 * Return the length of a character that a terminal would execute, or that would
 * change the direction of text (C0, C1, U+202A to U+202E, U+2066 to U+2069),
 * and set its code; 0 if another character or line break begins here.
 */
static size_t
control_len(const char *text, size_t len, unsigned *code)
{
	const unsigned char *c = (const unsigned char *)text;

	*code = c[0];
	if (c[0] == 0xc2 && len > 1) {
		*code = c[1];
		return c[1] < 0xa0 ? 2 : 0;
	}
	if (c[0] == 0xe2 && len > 2) {
		*code = 0x2000 | (c[1] & 0x3fU) << 6 | (c[2] & 0x3fU);
		return (*code >= 0x202a && *code <= 0x202e) ||
			       (*code >= 0x2066 && *code <= 0x2069)
			   ? 3
			   : 0;
	}
	return c[0] == 0x7f || (c[0] < 0x20 && c[0] != '\n' && c[0] != '\t' &&
				   (c[0] != '\r' || len == 1 || c[1] != '\n'));
}

enum fault
output_put(const char *text, size_t len)
{
	char escape[sizeof("\\u001b")];
	unsigned code;

	if (!output.terminal)
		put_bytes(text, len);
	for (size_t n; output.terminal && len > 0; text += n, len -= n) {
		n = control_len(text, len, &code);
		snprintf(escape, sizeof(escape), "\\u%04x", code & 0xffff);
		put_bytes(n > 0 ? escape : text, n > 0 ? strlen(escape) : 1);
		n = n > 0 ? n : 1;
	}
	return output.fault;
}

enum fault
output_put_plant(const struct record *record, bool full)
{
	char head[COMMAND_FULL_AROUND];

	if (full)
		output_put(
		    head, (size_t)snprintf(head, sizeof(head),
			      COMMAND_FULL("%.*s", "%.*s"), TIMESTAMP_LEN,
			      record->at, (int)record->by_len, record->by));
	output_put(record->plant, record->plant_len);
	return output_put(full ? "}\n" : "\n", full ? 2 : 1);
}

size_t
output_buffered(void)
{
	return output.used;
}

enum fault
output_sync(void)
{
	return output.fd < 0 || fsync(output.fd) == 0 || errno == EINVAL ||
		       errno == EROFS
		   ? FAULT_NONE
		   : fail_output("cannot sync", FAULT_FAILED);
}

enum fault
output_wait(void)
{
	struct pollfd peer = { .fd = output.fd };

	if (poll(&peer, 1, OUTPUT_WAIT_MS) <= 0)
		return FAULT_NONE;
	errno = EPIPE;
	return fail_output("its reader is gone", FAULT_FAILED);
}

enum fault
output_finish(void)
{
	char parent[PATH_MAX];

	if (output_flush() != FAULT_NONE || output.path == NULL)
		return output.fault;
	if (fsync(output.fd) < 0)
		return fail_output("cannot sync", FAULT_FAILED);
	if ((output.replace
		    ? rename(output.unfinished, output.path)
		    : rename_new(AT_FDCWD, output.unfinished, output.path)) < 0)
		return fail_output(
		    "cannot rename the new file to it", FAULT_OUTPUT);
	output.fd = -1;
	snprintf(parent, sizeof(parent), "%s", output.path);
	int dir = open(dirname(parent), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* The name is durable once its directory is synced. */
	return dir >= 0 && fsync(dir) == 0
		   ? FAULT_NONE
		   : fail_output("cannot sync its directory", FAULT_FAILED);
}

void
output_discard(void)
{
	if (output.path != NULL && output.fd >= 0)
		unlink(output.unfinished);
}
