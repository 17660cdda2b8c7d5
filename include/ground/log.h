/*
 * log: diagnostics for the operator, never data.  Each message is one line,
 * written to stderr as "PROGRAM: message" and to syslog (facility LOG_DAEMON,
 * ident PROGRAM).  If stderr is systemd's journal, the line goes only there,
 * prefixed with its priority, such as "<3>".  An error states what failed,
 * where, and the remedy.  No message contains a token or a request body.
 *
 * In JSON, a line is an object with "time" (RFC 3339), "level", "program",
 * other members and "message".  Only the message of a long line is truncated.
 */
#pragma once

#include <stdbool.h>

enum log_level { LOG_AT_ERROR, LOG_AT_WARNING, LOG_AT_INFO, LOG_AT_DEBUG };

/* Set before any thread starts.  Messages above log_level_max are dropped. */
extern enum log_level log_level_max; /* LOG_AT_INFO */
extern bool log_json;                /* false */

/*
 * log_open(program, use_syslog):
 * Set the program's name, which must stay valid; the default is "plant-store".
 * Open /dev/null on each of descriptors 0 to 2 that is closed: a file with that
 * number could receive messages.  Call log_open first.  Until then, and if
 * `use_syslog` is 0, messages go only to stderr, without a priority.
 *
 * log_set_request(id), log_set_progress(shown):
 * Add the request's id to all messages except those of log_members.  After
 * log_set_progress with `shown`, each message first clears the progress line on
 * the terminal.  Without `shown`, clear it.  Call both before threads start.
 *
 * log_error(format, ...), log_warning(format, ...), log_info(format, ...):
 * Write one line, of at most 1 KiB; bytes that are not printable ASCII become
 * '?'.  errno is unchanged.  Any thread.
 *
 * log_members(level, message, members):
 * Write one line with extra members, such as ,"a":1,"b":"c" (at most 832
 * bytes), or one object, such as ,"o":{"a":1}.  A text line has "message (a=1
 * b=c)" or "message (a=1)".  Names and values use A-Z a-z 0-9 . _ and -.
 */
void log_open(const char *program, int use_syslog);
void log_set_request(const char *id);
void log_set_progress(bool shown);
#define log_error(...) log_at(LOG_AT_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_AT_WARNING, __VA_ARGS__)
#define log_info(...) log_at(LOG_AT_INFO, __VA_ARGS__)
void log_at(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void log_members(
    enum log_level level, const char *message, const char *members);
