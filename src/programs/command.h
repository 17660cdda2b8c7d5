/*
 * command: what the subcommands of plant-store share: their common options, the
 * progress of long work, and its end by SIGINT.
 */
#ifndef PROGRAMS_COMMAND_H
#define PROGRAMS_COMMAND_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "ground/watch.h"

/*
 * Values of the common options.  A subcommand's own are letters, which are then
 * short options too, or from COMMAND_OWN on.
 */
enum {
	COMMAND_HELP = 256,
	COMMAND_DIR,
	COMMAND_QUIET,
	COMMAND_PROGRESS,
	COMMAND_OWN
};

/* Entries for a subcommand's table of options; its usage names them. */
#define COMMAND_OPTION_HELP                             \
	{                                               \
		"help", no_argument, NULL, COMMAND_HELP \
	}
#define COMMAND_OPTION_DIR                                  \
	{                                                   \
		"dir", required_argument, NULL, COMMAND_DIR \
	}
#define COMMAND_OPTIONS_PROGRESS                                \
	{ "quiet", no_argument, NULL, COMMAND_QUIET },          \
	{                                                       \
		"progress", no_argument, NULL, COMMAND_PROGRESS \
	}

struct command {
	const char *name; /* of the subcommand, for messages */
	const char *usage;
	const char *dir; /* of the store; set by command_dir or --dir */
	enum { PROGRESS_AUTO, PROGRESS_NEVER, PROGRESS_ALWAYS } progress;
	int status; /* when command_option gives -2 */
};

/*
 * command_option(command, argc, argv, options):
 * The next option, as getopt_long gives it: the `val` of one of the
 * subcommand's own with optarg set, -1 when only operands are left (from
 * optind), -2 if the subcommand is to end with command->status: the usage was
 * printed, or a usage error was logged.  The common ones are kept in `command`
 * and not returned.  The first call is with optind 0.
 */
int command_option(struct command *command, int argc, char **argv,
    const struct option *options);

/*
 * command_usage_error(command, what):
 * Log what is wrong and where the help is.  Return EX_USAGE.
 */
int command_usage_error(const struct command *command, const char *what);

/*
 * command_dir(command):
 * Set command->dir from the settings unless --dir did.  EX_OK, or EX_CONFIG,
 * logged.
 */
int command_dir(struct command *command);

/*
 * command_watch(command, what), command_unwatch(command):
 * Begin long work: the watch to give to it draws a bar on stderr with share,
 * rate (bytes a second) and time left, if that is a terminal or --progress was
 * given and not after --quiet, and asks the work to stop after SIGINT, SIGTERM
 * or SIGHUP, which from here on only set a flag.  command_unwatch removes the
 * bar and gives the signals back.  `what` is a word such as "verify".
 */
struct watch command_watch(const struct command *command, const char *what);
void command_unwatch(void);

/*
 * command_clear_bar():
 * Before a line goes to stdout while a bar may stand on the same terminal.
 */
void command_clear_bar(void);

/*
 * command_interrupted():
 * The number of the signal that asked to stop, or 0.  The status of a
 * subcommand that was stopped is 128 + this number.
 */
int command_interrupted(void);

#endif
