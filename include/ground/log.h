/*
 * log: diagnostics for the operator, never data.
 *
 * Each message is one line, to stderr as "PROGRAM: message" and to syslog
 * (facility LOG_DAEMON, ident PROGRAM).  If stderr is systemd's journal, it
 * goes there alone, with its priority before it as "<3>".  An error names what,
 * where and the remedy.  No message ever holds a token or a request's body.
 *
 * As JSON, a line is an object: "time" (RFC 3339), "level", "program", other
 * members, "message".  A message that is too long is cut, never the object.
 */
#ifndef GROUND_LOG_H
#define GROUND_LOG_H

#include <stdbool.h>

enum log_level { LOG_AT_ERROR, LOG_AT_WARNING, LOG_AT_INFO, LOG_AT_DEBUG };

/*
 * log_open(program, use_syslog):
 * Name the program, which must be a string that stays.  Call once, before any
 * file is opened: if one of the descriptors 0 to 2 is closed, it is occupied,
 * or the file that got its number would get our messages.  Before the call,
 * messages are "plant-store: message"; before it and without `use_syslog` they
 * go to stderr only, without a priority.
 *
 * log_set_level(level), log_set_json(json), log_set_request(id),
 * log_set_progress(shown):
 * Drop messages above `level`; write JSON; all lines are about the request with
 * that id; the terminal's last line shows progress, and each message clears it
 * first.  The defaults are LOG_AT_INFO, false, none and false.
 *
 * Call all of these before any thread starts.
 */
void log_open(const char *program, int use_syslog);
void log_set_level(enum log_level level);
void log_set_json(bool json);
void log_set_request(const char *id);
void log_set_progress(bool shown);

/*
 * log_error(format, ...), log_warning(format, ...), log_info(format, ...):
 * Write one line, of at most 1 KiB; bytes that are not printable ASCII become
 * '?'.  errno is left as it was.  Any thread.
 */
#define log_error(...) log_at(LOG_AT_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_AT_WARNING, __VA_ARGS__)
#define log_info(...) log_at(LOG_AT_INFO, __VA_ARGS__)
void log_at(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * log_members(level, message, members):
 * Write one line with more members, as ,"a":1,"b":"c" of at most 832 bytes; in
 * text it is "message (a=1 b=c)".  Names and values are of A-Z a-z 0-9 . _ -
 * Instead the only member may be an object of such; in text its members alone.
 */
void log_members(
    enum log_level level, const char *message, const char *members);

#endif
