/*
 * command: the subcommands of plant-store, and what they share: options,
 * progress, and the end by a signal.
 */
#ifndef COMMANDS_COMMAND_H
#define COMMANDS_COMMAND_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ground/fault.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "reader/reader.h"

/*
 * Common options.  An option's value is a letter, the index in call.values; h
 * and o are short options, too.  Of the values, command_run checks --by, b,
 * --format, f, and --full, u.
 */
/* clang-format off */
#define COMMAND_FLAG(name, letter) { name, no_argument, NULL, letter }
#define COMMAND_VALUE(name, letter) { name, required_argument, NULL, letter }
/* clang-format on */
#define COMMAND_HELP COMMAND_FLAG("help", 'h')
#define COMMAND_DIR COMMAND_VALUE("dir", 'd')
#define COMMAND_PROGRESS \
	COMMAND_FLAG("quiet", 'q'), COMMAND_FLAG("progress", 'p')
#define COMMAND_STORE COMMAND_DIR, COMMAND_PROGRESS, COMMAND_HELP

struct call;

/* A subcommand. */
struct command {
	const char *name, *summary;
	const char *usage; /* --help adds the lines of the common options */
	struct option options[17]; /* the last is nameless */
	char dir_alias; /* the option, or ' ' for the operand, as --dir */
	bool negative_operands; /* "-5" is an operand, not an option */
	const char *instead;    /* what serves a database; NULL: this does */
	const char *at_end;     /* progress when all is read but not yet on the
				   disk; NULL: as before */
	int operands[2];        /* at least and at most, besides a dir_alias */
	/* Return the exit status; of an error, which is logged, sysexits.h's.
	   With the option --progress command_watch was called. */
	int (*run)(const struct call *call);
};

extern const struct command check_command, import_command, query_command_export,
    query_command_get, query_command_metrics, query_command_stats,
    store_command_backup, store_command_init, recover_command,
    store_command_schema, store_command_verify, token_command;

enum format { FORMAT_NONE, FORMAT_JSON_LINES, FORMAT_CSV };

/* One call of it. */
struct call {
	const struct command *command;
	/* Of the options given; "" for one without a value. */
	const char *values[128];
	/* By --format, or by the suffix of -o FILE or of the operand. */
	enum format format;
	/* Set if the command has --dir.  Its watch is command_watch's. */
	struct store_options store;
	char **operands;
	int operands_n;
};

/*
 * command_run(command, argc, argv):
 * Read the arguments, find the store, which is that of the settings unless one
 * is named, and run the subcommand.  Return its exit status.
 *
 * command_usage_error(call, format, ...):
 * Log what is wrong and where the help is.  Return EX_USAGE.
 */
int command_run(const struct command *command, int argc, char **argv);
int command_usage_error(const struct call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * command_time(text, ms):
 * Read a time, or a date, which is its midnight in UTC.  Whether it is one.
 */
bool command_time(const char *text, int64_t *ms);

/*
 * command_watch(call, what), command_unwatch():
 * Begin long work, `what` by a word such as "verify".  The call's watch shows
 * progress on stderr, as the options demand, and stops the work after SIGINT,
 * SIGTERM or SIGHUP, which from here on only set a flag.  command_unwatch
 * clears the terminal's line and, unless a signal came, gives the signals their
 * default again.
 *
 * command_clear_line():
 * Before a line goes to stdout while progress may stand on the same terminal.
 *
 * command_interrupted():
 * The number of the signal that asked to stop, or 0.
 *
 * command_fault(fault):
 * The exit status for a fault: 128 and the signal's number if a signal stopped
 * the work.
 */
void command_watch(const struct call *call, const char *what);
void command_unwatch(void);
void command_clear_line(void);
int command_interrupted(void);
int command_fault(enum fault fault);

/*
 * What export --full puts before a plant, with the conversions of printf or
 * scanf for two strings; and how many bytes are around the plant at most.
 */
#define COMMAND_FULL(at, by) "{\"at\":\"" at "\",\"by\":\"" by "\",\"plant\":"
#define COMMAND_FULL_AROUND \
	(sizeof(COMMAND_FULL("", "") "}") + TIMESTAMP_LEN + RECORD_BY_MAX)

#endif
