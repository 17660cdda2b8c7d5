/*
 * log: one line a message, to stderr and syslog, or to stderr alone where that
 * is systemd's journal.  See ground/log.h.
 */
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
static bool bar_shown;

/* Removes a progress bar. */
static const char clear[] = { '\r', '\033', '[', 'K' };

/*
 * Whether stderr is the stream to the journal that systemd made for it, which
 * JOURNAL_STREAM tells by device and inode: the variable alone could be left
 * from a parent whose stderr was another.
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

/*
 * A closed one of descriptors 0 to 2 would go to the next file that is opened,
 * which then got our messages.  Opened the wrong way round, so that its use
 * still fails.
 */
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
log_set_bar(bool shown)
{
	bar_shown = shown;
}

/* One write a line, so that the lines of several processes stay whole. */
__attribute__((format(printf, 3, 0))) static void
say(enum log_level level, int priority, const char *format, va_list arguments)
{
	char text[sizeof(clear) + LINE_BYTES_MAX];
	char *line = text + sizeof(clear);
	int errno_before = errno, prefix = 0, body;
	size_t len;

	if (level > level_max)
		return;
	/* The priority as sd-daemon(3) has it. */
	if (to_journal)
		prefix = snprintf(line, LINE_BYTES_MAX, "<%d>", priority);
	prefix += snprintf(line + prefix, LINE_BYTES_MAX - (size_t)prefix,
	    "%s: ", program_name);
	body = vsnprintf(
	    line + prefix, LINE_BYTES_MAX - (size_t)prefix, format, arguments);
	if (body < 0) {
		errno = errno_before;
		return;
	}
	len = (size_t)prefix + (size_t)body;
	if (len > LINE_BYTES_MAX - 1)
		len = LINE_BYTES_MAX - 1;
	for (size_t i = 0; i < len; i++)
		if (line[i] < ' ' || line[i] > '~')
			line[i] = '?';
	line[len] = '\0';
	if (to_syslog)
		syslog(priority, "%s", line + prefix);
	line[len] = '\n';
	memcpy(text, clear, sizeof(clear));
	len++;
	if ((bar_shown ? write(STDERR_FILENO, text, sizeof(clear) + len)
		       : write(STDERR_FILENO, line, len)) < 0) {
		/* Nobody left to tell. */
	}
	errno = errno_before;
}

#define DEFINE(function, level, priority)                \
	void function(const char *format, ...)           \
	{                                                \
		va_list arguments;                       \
                                                         \
		va_start(arguments, format);             \
		say(level, priority, format, arguments); \
		va_end(arguments);                       \
	}

DEFINE(log_error, LOG_AT_ERROR, LOG_ERR)
DEFINE(log_warning, LOG_AT_WARNING, LOG_WARNING)
DEFINE(log_info, LOG_AT_INFO, LOG_INFO)
DEFINE(log_debug, LOG_AT_DEBUG, LOG_DEBUG)
