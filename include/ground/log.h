/*
 * log: diagnostics for the operator, never data.
 *
 * Each message is one line, to stderr as "PROGRAM: message" and to syslog
 * (facility LOG_DAEMON, ident PROGRAM).  Where stderr is systemd's journal,
 * each goes there once, with its priority before it as "<3>".  An error says
 * what, where and what to do.  No message ever holds a token or a request's body.
 */
#ifndef GROUND_LOG_H
#define GROUND_LOG_H

#include <stdbool.h>

enum log_level { LOG_AT_ERROR, LOG_AT_WARNING, LOG_AT_INFO, LOG_AT_DEBUG };

/*
 * log_open(program, use_syslog):
 * Name the program, which must be a string that stays.  Call once, before any
 * thread starts and any file is opened: a closed one of descriptors 0 to 2 is
 * occupied, or the file that got its number would get our messages.  Before it,
 * and without `use_syslog`, messages go to stderr only and plainly, before it
 * as "plant-store".
 */
void log_open(const char *program, int use_syslog);

/*
 * log_set_level(level):
 * Drop messages above `level`.  The default is LOG_AT_INFO.
 */
void log_set_level(enum log_level level);

/*
 * log_set_bar(shown):
 * Whether a progress bar stands in the terminal's line on stderr, which each
 * message then clears first.  The default is that none does.
 */
void log_set_bar(bool shown);

/*
 * log_error(format, ...), log_warning(...), log_info(...), log_debug(...):
 * Say one line, of at most 1 KiB; bytes that are not printable ASCII become
 * '?'.  errno is left as it was.  Any thread.
 */
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
