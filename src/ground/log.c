/* log: one line per message, to stderr and syslog.  See ground/log.h. */
#include "ground/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "ground/clock.h"
#include "pure/timestamp.h"

#define LINE_BYTES_MAX 1024
/* Clears the progress line on a terminal. */
#define CLEAR "\r\033[K"

static const char *program_name = "plant-store";
static bool to_syslog, to_journal;
enum log_level log_level_max = LOG_AT_INFO;
bool log_json;
static bool progress_shown;
static char about[128]; /* the JSON member of log_set_request, or "" */

/*
 * Return whether stderr is the stream to systemd's journal, whose device and
 * inode are in JOURNAL_STREAM.  An inherited variable may name another stream.
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

/* Open closed ones in the wrong direction, so that using them still fails. */
static void
occupy_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null",
			fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			abort();
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
log_set_request(const char *id)
{
	snprintf(about, sizeof(about), ",\"request\":\"%s\"", id);
}

void
log_set_progress(bool shown)
{
	if (progress_shown && !shown)
		dprintf(STDERR_FILENO, CLEAR);
	progress_shown = shown;
}

/* Copy `text` as printable ASCII, up to `end`.  Return the copy's end. */
static char *
put(char *at, const char *end, const char *text)
{
	for (; *text != '\0' && at < end; text++) {
		if (log_json && (*text == '"' || *text == '\\'))
			*at++ = '\\';
		*at++ = (char)(*text < ' ' || *text > '~' ? '?' : *text);
	}
	return at;
}

/* Print ,"a":1,"b":"c" as " (a=1 b=c)"; of an object, only its members. */
static char *
put_members(char *at, const char *members)
{
	char *start = at = stpcpy(at, " (");

	while (*++members != '\0')
		if (*members == '{')
			at = start;
		else if (*members != '"' && *members != '}')
			*at++ = *members == ','   ? ' '
				: *members == ':' ? '='
						  : *members;
	*at++ = ')';
	return at;
}

void
log_members(enum log_level level, const char *message, const char *members)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO,
		LOG_DEBUG };
	static const char *const levels[] = { "error", "warning", "info",
		"debug" };
	char text[sizeof(CLEAR) - 1 + LINE_BYTES_MAX], time[TIMESTAMP_LEN];
	char *at = mempcpy(text, CLEAR, sizeof(CLEAR) - 1);
	char *start = progress_shown ? text : at;
	/* Only the message can be too long, so only it is cut. */
	char *end = at + LINE_BYTES_MAX - strlen("\n");
	int errno_before = errno;

	if (level > log_level_max)
		return;
	/* The priority prefix of sd-daemon(3). */
	if (to_journal)
		at += sprintf(at, "<%d>", priorities[level]);
	const char *plain = at;
	if (log_json) {
		timestamp_print(clock_ms(CLOCK_REALTIME), time);
		at += sprintf(at,
		    "{\"time\":\"%.*s\",\"level\":\"%s\",\"program\":\"%s\"%s,"
		    "\"message\":\"",
		    TIMESTAMP_LEN, time, levels[level], program_name, members);
		at = put(at, end - strlen("\\\"}"), message);
		at = stpcpy(at, "\"}");
	} else {
		plain = at = put(put(at, end, program_name), end, ": ");
		size_t len = strlen(members);
		at = put(at, len == 0 ? end : end - len - 2, message);
		if (len > 0)
			at = put_members(at, members);
	}
	*at = '\0';
	if (to_syslog)
		syslog(priorities[level], "%s", plain);
	*at++ = '\n';
	/* A single write keeps lines of several processes from interleaving. */
	(void)!write(STDERR_FILENO, start, (size_t)(at - start));
	errno = errno_before;
}

void
log_at(enum log_level level, const char *format, ...)
{
	char message[LINE_BYTES_MAX];
	int errno_before = errno;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	errno = errno_before;
	log_members(level, message, about);
}
