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
#include "store/store.h"

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
	const char *instead;    /* what serves a database; NULL: this does */
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
    store_command_backup, store_command_recover, store_command_init,
    store_command_schema, token_command;

/* One call of it. */
struct call {
	const struct command *command;
	/* Of the options that were given, "" of those without a value. */
	const char *values[128];
	const char *dir;      /* of the store, if it has the option --dir */
	const char *database; /* NULL: the store is in `dir` */
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
 * command_format(call, path, format):
 * Read the option --format, else the suffix of `path`, which may be NULL.
 * FORMAT_NONE if there is neither.  EX_OK, or EX_USAGE, logged.
 *
 * command_by(call, by):
 * Read the option --by, which must be a token's name.  Without it `*by` is as
 * before.  EX_OK, or EX_USAGE, logged.
 *
 * command_time(text, ms):
 * Read a time, or a date, which is its midnight in UTC.  Whether it is one.
 */
enum format { FORMAT_NONE, FORMAT_JSON_LINES, FORMAT_CSV };
int command_format(
    const struct call *call, const char *path, enum format *format);
int command_by(const struct call *call, const char **by);
bool command_time(const char *text, int64_t *ms);

/*
 * command_become_owner(dir):
 * Of root, become the owner of the store's directory, if there is one: root
 * must not leave files behind that the service cannot write.  EX_OK, or
 * EX_NOPERM, logged.
 */
int command_become_owner(const char *dir);

/*
 * command_watch(call, what), command_unwatch():
 * Begin long work: the watch for it prints share, rate (bytes a second) and
 * time left on stderr, if that is a terminal or --progress was given, but not
 * with --quiet, and stops the work after SIGINT, SIGTERM or SIGHUP, which from
 * here on only set a flag.  command_unwatch clears the terminal's line and,
 * unless one of them came, gives the signals their default again.  `what` is a
 * word such as "verify".  The watch's context may be made the text, a char [],
 * that is shown instead when all is read but not yet on the disk.
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
 * command_open(call, watch, since, fault):
 * Open the store, or the journal, of the call for reading: store/store.h.
 *
 * command_each_plant(reader, each, context, where):
 * Call `each` for every plant that is left in the reader.  FAULT_NONE,
 * FAULT_STOPPED after a signal, the first fault that `each` returned, or
 * another, logged.  `where` is what was read, also after a fault.
 */
typedef enum fault command_plant(void *context, const struct record *record);
struct store_reader *command_open(const struct call *call,
    const struct watch *watch, const char *since, enum fault *fault);
enum fault command_each_plant(struct store_reader *reader, command_plant *each,
    void *context, char where[STORE_WHERE_MAX]);

#endif
