/*
 * command: the subcommands of plant-store, and their common options, progress
 * and signal handling.  A subcommand ends its process at the first fault; what
 * must be undone then is registered with atexit(3).
 */
#pragma once

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "ground/fault.h"
#include "ground/metrics.h"
#include "http/tokens.h"
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
	const char *name;
	struct option options[17]; /* the last has no name */
	char dir_alias;         /* synonym of --dir; ' ': an operand; 0: none */
	bool negative_operands; /* "-5" is an operand, not an option */
	const char *instead;    /* a database's tools; NULL: works with both */
	const char *apart;      /* pairs of letters of options that exclude
				   each other; or NULL */
	int operands[2];        /* minimum and maximum, without a dir_alias */
	/* A command with --progress is under command_watch. */
	void (*run)(const struct call *call);
	/* Log how far a signal let the command come.  NULL: nothing. */
	void (*stopped)(const struct call *call);
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
 * command_exit(status):
 * End the process.  If stdout is incomplete, log that; the status is EX_IOERR.
 *
 * command_need(fault):
 * End the process with the status of the fault, which is logged, unless it is
 * FAULT_NONE.  If a signal stopped the work, call command.stopped first; the
 * status is 128 plus the signal's number.
 *
 * command_retry(fault, again):
 * The same if there is a fault or a signal; but if `again`, return true on
 * FAULT_BUSY, which may be gone later.
 *
 * command_usage_error(format, ...):
 * Log what is wrong and where the help is; end the process with EX_USAGE.
 */
_Noreturn void command_exit(int status);
void command_need(enum fault fault);
bool command_retry(enum fault fault, bool again);
_Noreturn void command_usage_error(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/*
 * command_time(text, ms):
 * Read a time, or a date, which means its midnight in UTC.  Return whether
 * `text` is valid.
 */
bool command_time(const char *text, int64_t *ms);

/*
 * command_open_reader(options, since, engine):
 * Open a reader of the store, and set its engine; it is closed at the exit.
 */
struct store_reader *command_open_reader(const struct store_options *options,
    const char *since, const struct reader_engine **engine);

/*
 * command_watch(what), command_unwatch():
 * Call before long work, which `what` names in one word, such as "verify".  The
 * call's watch then shows progress on stderr, as the options specify, unless
 * `what` is NULL.  SIGINT, SIGTERM and SIGHUP, unless ignored, only set a flag
 * from then on, on which the watch stops the work.  command_unwatch ends the
 * progress, and clears its line.
 *
 * command_interrupted():
 * Return the number of the signal that asked to stop, or 0.
 */
void command_watch(const char *what);
void command_unwatch(void);
int command_interrupted(void);

/*
 * command_count(n, noun), command_age(ms), command_size(bytes):
 * Return "no plants", "1 plant" or "2 plants"; the time between now and `ms`
 * after 1970, such as "3 hours"; "1.5 MB".
 *
 * command_backup(dir), command_consumer(consumer), command_tokens(tokens):
 * Return the age of a store's backup; how far a consumer is behind; how many
 * tokens there are, and when the next one expires.
 *
 * Each text is valid until another three are made.
 */
const char *command_count(uint64_t n, const char *noun);
const char *command_age(int64_t ms);
const char *command_size(double bytes);
const char *command_backup(const char *dir);
const char *command_consumer(const struct metrics_consumer *consumer);
const char *command_tokens(struct tokens *tokens);

/*
 * The text before a plant in export --full, with two conversions of printf or
 * scanf for `at` and `by`; and the most bytes that surround a plant.
 */
#define COMMAND_FULL(at, by) "{\"at\":\"" at "\",\"by\":\"" by "\",\"plant\":"
#define COMMAND_FULL_AROUND \
	(sizeof(COMMAND_FULL("", "") "}") + TIMESTAMP_LEN + RECORD_BY_MAX)
