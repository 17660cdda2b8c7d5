/* output: see output.h. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "ground/file.h"

/* A larger buffer was no faster. */
#define FLUSH_BYTES ((size_t)256 << 10)

/* How long a signal or, with --follow, a new plant may go unnoticed. */
#define WAIT_MS 250

static struct {
	const char *path; /* NULL for stdout */
	char unfinished[PATH_MAX + sizeof(OUTPUT_UNFINISHED)];
	int fd;
	bool replace; /* whether an existing file is replaced */
	bool terminal;
	size_t used;
} output;
static char buffer[FLUSH_BYTES + OUTPUT_PUT_MAX];

_Noreturn static void
fail_output(const char *what, enum fault fault)
{
	if (output.path == NULL && errno == EPIPE) {
		/* Die of SIGPIPE, as filters do: "export | head" is silent. */
		signal(SIGPIPE, SIG_DFL);
		raise(SIGPIPE);
	}
	(void)fault_report(output.path != NULL ? output.path : "stdout", what);
	command_fail(fault);
}

static void
remove_unfinished(void)
{
	unlink(output.unfinished);
}

void
output_open(const char *path, bool replace)
{
	struct stat st, named;

	output.path = path;
	output.fd = STDOUT_FILENO;
	output.replace = replace;
	output.terminal = path == NULL && isatty(STDOUT_FILENO);
	if (path == NULL)
		return;
	/* A user who names a device made a mistake. */
	if (lstat(path, &st) == 0 && (!replace || !S_ISREG(st.st_mode)))
		command_refuse(FAULT_OUTPUT, "%s: %s", path,
		    S_ISREG(st.st_mode)
			? "already exists; name another file, or replace it "
			  "with --force"
			: "is not a regular file; name another, or redirect "
			  "stdout to it");
	snprintf(output.unfinished, sizeof(output.unfinished),
	    "%s" OUTPUT_UNFINISHED, path);
	output.fd = open(output.unfinished,
	    O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (output.fd < 0 || fstat(output.fd, &st) < 0)
		fail_output("cannot create", FAULT_OUTPUT);
	/* Another user may have created the file, or linked it to ours. */
	errno = EEXIST;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
		fail_output("cannot create", FAULT_OUTPUT);
	/* The process that held the lock may have renamed the file. */
	bool ours = flock(output.fd, LOCK_EX | LOCK_NB) == 0 &&
		    lstat(output.unfinished, &named) == 0 &&
		    named.st_ino == st.st_ino;
	errno = ETIMEDOUT;
	if (!ours)
		fail_output("cannot create", FAULT_BUSY);
	atexit(remove_unfinished);
	if (fchmod(output.fd, 0600) < 0 || ftruncate(output.fd, 0) < 0)
		fail_output("cannot create", FAULT_OUTPUT);
}

void
output_flush(void)
{
	const char *text = buffer;

	while (output.used > 0) {
		struct pollfd ready = { .fd = output.fd, .events = POLLOUT };
		/* A blocking write would miss a signal just before it. */
		ssize_t n = poll(&ready, 1, WAIT_MS) > 0
				? write(output.fd, text, output.used)
				: 0;

		/* Another process may have made the pipe non-blocking. */
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			fail_output("cannot write", FAULT_FAILED);
		if (n > 0) {
			text += n;
			output.used -= (size_t)n;
		}
		if (output.used > 0 && command_signal != 0)
			command_fail(FAULT_STOPPED);
	}
}

/* Buffer at most OUTPUT_PUT_MAX bytes. */
static void
put_bytes(const char *text, size_t len)
{
	memcpy(buffer + output.used, text, len);
	output.used += len;
	if (output.used >= FLUSH_BYTES)
		output_flush();
}

/*
 * If the text begins with a control character (C0, DEL, C1) that is not a tab
 * or part of a line break, or with a bidi control (U+202A to U+202E, U+2066 to
 * U+2069), return its length and set its code.  Otherwise return 0.
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

void
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
}

void
output_put_plant(const struct record *record, bool full)
{
	char head[COMMAND_FULL_AROUND];

	if (full)
		output_put(
		    head, (size_t)snprintf(head, sizeof(head),
			      COMMAND_FULL("%.*s", "%.*s"), TIMESTAMP_LEN,
			      record->at, (int)record->by_len, record->by));
	output_put(record->plant, record->plant_len);
	output_put(full ? "}\n" : "\n", full ? 2 : 1);
}

size_t
output_buffered(void)
{
	return output.used;
}

void
output_sync(void)
{
	if (fsync(output.fd) < 0 && errno != EINVAL && errno != EROFS)
		fail_output("cannot sync", FAULT_FAILED);
}

void
output_wait(void)
{
	struct pollfd peer = { .fd = output.fd };

	errno = EPIPE;
	if (poll(&peer, 1, WAIT_MS) > 0)
		fail_output("its reader is gone", FAULT_FAILED);
}

void
output_finish(void)
{
	char parent[PATH_MAX];

	output_flush();
	if (output.path == NULL)
		return;
	output_sync();
	if ((output.replace
		    ? rename(output.unfinished, output.path)
		    : rename_new(AT_FDCWD, output.unfinished, output.path)) < 0)
		fail_output("cannot rename the new file to it", FAULT_OUTPUT);
	/* Another process may now create a file of that name. */
	output.unfinished[0] = '\0';
	snprintf(parent, sizeof(parent), "%s", output.path);
	int dir = open(dirname(parent), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* The name is durable once its directory is synced. */
	if (dir < 0 || fsync(dir) < 0)
		fail_output("cannot sync its directory", FAULT_FAILED);
}
