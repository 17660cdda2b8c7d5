/*
 * command: the subcommands of plant-store, and their common options, progress
 * and signal handling.
 */
#pragma once

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ground/fault.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "reader/reader.h"

/*
 * Common options.  An option is identified by a letter, its index in
 * call.values; h and o are also short options.  The values of --by (b),
 * --format (f) and --full (u) are checked before the subcommand runs.
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

struct command {
	const char *name, *summary;
	const char *usage; /* --help adds the lines of the common options */
	struct option options[17]; /* the last has no name */
	char dir_alias;         /* synonym of --dir; ' ': an operand; 0: none */
	bool negative_operands; /* "-5" is an operand, not an option */
	const char *instead;    /* a database's tools; NULL: works with both */
	const char *apart;      /* pairs of letters of options that exclude
				   each other; or NULL */
	int operands[2];        /* minimum and maximum, without a dir_alias */
	/* Return the exit status: after an error, which is logged, one of
	   sysexits.h.  A command with --progress is under command_watch. */
	int (*run)(const struct call *call);
};

extern const struct command check_command, export_command, import_command,
    query_command_get, query_command_metrics, query_command_stats,
    recover_command, store_command_backup, store_command_init,
    store_command_schema, store_command_verify, token_command;

enum format { FORMAT_NONE, FORMAT_JSON_LINES, FORMAT_CSV };

/* One call of a subcommand. */
struct call {
	const struct command *command;
	/* By letter; NULL: not given; "": given, and takes no value. */
	const char *values[128];
	/* From --format, or the suffix of -o FILE or of the operand. */
	enum format format;
	/* Set if the command has --dir; .watch always, for command_watch. */
	struct store_options store;
	char **operands;
	int operands_n;
};

/*
 * command_usage_error(call, format, ...):
 * Log what is wrong and where the help is.  Return EX_USAGE.
 */
int command_usage_error(const struct call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * command_time(text, ms):
 * Read a time, or a date, which means its midnight in UTC.  Return whether
 * `text` is valid.
 */
bool command_time(const char *text, int64_t *ms);

/*
 * command_open_reader(options, since, engine, fault):
 * Open a reader of the store, and set its engine.  NULL with a fault, logged.
 */
struct store_reader *command_open_reader(const struct store_options *options,
    const char *since, const struct reader_engine **engine, enum fault *fault);

/*
 * command_watch(call, what), command_unwatch():
 * Call before long work, which `what` names in one word, such as "verify".  The
 * call's watch then shows progress on stderr, as the options specify, unless
 * `what` is NULL.  SIGINT, SIGTERM and SIGHUP, unless ignored, then only set a
 * flag, on which the watch stops the work.  command_unwatch clears the progress
 * line and, unless a signal came, restores the default action of the signals.
 *
 * command_interrupted():
 * Return the number of the signal that asked to stop, or 0.
 *
 * command_fault(fault):
 * Return the exit status for a fault: 128 plus the signal's number if a signal
 * stopped the work.
 */
void command_watch(const struct call *call, const char *what);
void command_unwatch(void);
int command_interrupted(void);
int command_fault(enum fault fault);

/*
 * command_count(n, noun, text), command_age(ms, text):
 * Write "no plants", "1 plant" or "2 plants"; or the time between now and `ms`
 * after 1970, such as "3 hours".  Return `text`.
 */
#define COMMAND_COUNT_MAX 64
const char *command_count(
    uint64_t n, const char *noun, char text[static COMMAND_COUNT_MAX]);
const char *command_age(int64_t ms, char text[static COMMAND_COUNT_MAX]);

/*
 * The text before a plant in export --full, with two conversions of printf or
 * scanf for `at` and `by`; and the most bytes that surround a plant.
 */
#define COMMAND_FULL(at, by) "{\"at\":\"" at "\",\"by\":\"" by "\",\"plant\":"
#define COMMAND_FULL_AROUND \
	(sizeof(COMMAND_FULL("", "") "}") + TIMESTAMP_LEN + RECORD_BY_MAX)
