/*
 * command: the subcommands of plant-store, and what they share: options,
 * progress, the end by a signal, and the reading of a store's plants.
 */
#ifndef PROGRAMS_COMMAND_H
#define PROGRAMS_COMMAND_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ground/watch.h"
#include "pure/record.h"
#include "store/reader.h"

/*
 * The common options in a subcommand's table.  An option's value is a letter,
 * by which call.values is indexed.
 */
/* clang-format off */
#define COMMAND_HELP { "help", no_argument, NULL, 'h' }
#define COMMAND_DIR { "dir", required_argument, NULL, 'd' }
#define COMMAND_PROGRESS { "quiet", no_argument, NULL, 'q' }, \
	{ "progress", no_argument, NULL, 'p' }
/* clang-format on */

struct call;

/* A subcommand. */
struct command {
	const char *name, *summary;
	const char *usage;   /* --help adds the lines of the common options */
	const char *letters; /* of short options, for getopt; NULL: ":h" */
	struct option options[11]; /* the last is nameless */
	/* The option, or ' ' for the operand, that may stand for --dir. */
	char dir_alias;
	bool negative_operands; /* "-5" is an operand and no option */
	int operands_min, operands_max;
	const char *missing; /* the error where there are fewer */
	/*
	 * Return the exit status: one of sysexits.h, after the error was
	 * logged, or 128 and the number of the signal that ended it.
	 */
	int (*run)(const struct call *call);
};

extern const struct command check_command, export_command, get_command,
    import_command, metrics_command, stats_command, store_command_verify,
    store_command_backup, store_command_recover, token_command;

/* One call of it. */
struct call {
	const struct command *command;
	/* Of the options that were given, "" of those without a value. */
	const char *values[128];
	const char *dir; /* of the store, if it has the option --dir */
	char **operands;
	int operands_n;
};

/*
 * command_run(command, argc, argv):
 * Read the options, the operands and the store's directory, which is that of
 * the settings unless it was given, and run the subcommand.  Return its exit
 * status.  The caller closes stdout.
 */
int command_run(const struct command *command, int argc, char **argv);

/*
 * command_usage_error(call, format, ...):
 * Log what is wrong and where the help is.  Return EX_USAGE.
 */
int command_usage_error(const struct call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * command_format(call, csv), command_by(call, by):
 * Read the options --format and --by, which must be a token's name.  Without
 * the option `*csv` is false and `*by` as before.  EX_OK, or EX_USAGE, logged.
 *
 * command_time(text, ms):
 * Read a time, or a date, which is its midnight in UTC.  Whether it is one.
 */
int command_format(const struct call *call, bool *csv);
int command_by(const struct call *call, const char **by);
bool command_time(const char *text, int64_t *ms);

/*
 * command_watch(call, what), command_unwatch():
 * Begin long work: the watch for it prints share, rate (bytes a second) and
 * time left on stderr, if that is a terminal or --progress was given, but not
 * with --quiet, and stops the work after SIGINT, SIGTERM or SIGHUP, which from
 * here on only set a flag.  command_unwatch clears the terminal's line and,
 * unless one of them came, gives the signals their default again.  `what` is a
 * word such as "verify".
 */
struct watch command_watch(const struct call *call, const char *what);
void command_unwatch(void);

/*
 * command_clear_line():
 * Before a line goes to stdout while progress may stand on the same terminal.
 */
void command_clear_line(void);

/*
 * command_interrupted():
 * The number of the signal that asked to stop, or 0.
 */
int command_interrupted(void);

/*
 * command_fault(fault):
 * The exit status for a fault: 128 and the signal's number if a signal stopped
 * the work.
 */
int command_fault(enum fault fault);

/*
 * command_each_plant(path, watch, each, context, report):
 * Call `each` for every plant of the store, or journal, `path`, in the order in
 * which they were stored.  FAULT_NONE, FAULT_STOPPED after a signal, the first
 * fault that `each` returned, or another, logged.  `report` is what was read,
 * also after a fault, or all zeros.
 */
typedef enum fault command_plant(void *context, const struct record *record);
enum fault command_each_plant(const char *path, const struct watch *watch,
    command_plant *each, void *context, struct reader_report *report);

#endif
