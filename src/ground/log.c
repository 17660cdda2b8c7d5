/* log: one line a message, to stderr and syslog.  See ground/log.h. */
#include "ground/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#define LINE_BYTES_MAX 1024

static const char *program_name = "plant-store";
static bool to_syslog, to_journal;
static enum log_level level_max = LOG_AT_INFO;
static bool progress_shown;

/*
 * Whether stderr is the stream to the journal whose device and inode systemd
 * put into JOURNAL_STREAM.  The variable alone could come from a parent with
 * another stderr.
 */
static bool
is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	return stream != NULL && fstat(STDERR_FILENO, &st) == 0 &&
	       sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
	       device == st.st_dev && inode == st.st_ino;
}

/* A closed one is opened in the wrong direction, so its use still fails. */
static void
occupy_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;

		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null", flags) != fd)
			abort();
	}
}

void
log_open(const char *program, int use_syslog)
{
	occupy_standard_descriptors();
	program_name = program;
	to_journal = use_syslog && is_journal();
	to_syslog = use_syslog && !to_journal;
	if (to_syslog)
		openlog(program, LOG_PID, LOG_DAEMON);
}

void
log_set_level(enum log_level level)
{
	level_max = level;
}

void
log_set_progress(bool shown)
{
	progress_shown = shown;
}

void
log_at(enum log_level level, const char *format, ...)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO,
		LOG_DEBUG };
	static const char clear[] = "\r\033[K"; /* removes the progress */
	char text[sizeof(clear) - 1 + LINE_BYTES_MAX];
	char *line = mempcpy(text, clear, sizeof(clear) - 1);
	char *start = progress_shown ? text : line;
	int errno_before = errno, prefix = 0, body;
	va_list arguments;
	size_t len;

	if (level > level_max)
		return;
	/* The priority as sd-daemon(3) has it. */
	if (to_journal)
		prefix =
		    snprintf(line, LINE_BYTES_MAX, "<%d>", priorities[level]);
	prefix += snprintf(line + prefix, LINE_BYTES_MAX - (size_t)prefix,
	    "%s: ", program_name);
	va_start(arguments, format);
	body = vsnprintf(
	    line + prefix, LINE_BYTES_MAX - (size_t)prefix, format, arguments);
	va_end(arguments);
	len = (size_t)prefix + (size_t)(body < 0 ? 0 : body);
	if (len > LINE_BYTES_MAX - 1)
		len = LINE_BYTES_MAX - 1;
	for (size_t i = 0; i < len; i++)
		if (line[i] < ' ' || line[i] > '~')
			line[i] = '?';
	line[len] = '\0';
	if (to_syslog)
		syslog(priorities[level], "%s", line + prefix);
	line[len++] = '\n';
	/* One write, to keep the lines of several processes whole. */
	if (write(STDERR_FILENO, start, (size_t)(line + len - start)) < 0) {
		/* There is nowhere to report it. */
	}
	errno = errno_before;
}
