/*
 * command: the subcommands of plant-store, and their common options, progress
 * and signal handling.  A subcommand ends its process at the first fault; what
 * must then be undone is registered with atexit(3).
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "ground/fault.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "http/tokens.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "reader/reader.h"

enum format { FORMAT_NONE, FORMAT_JSON_LINES, FORMAT_CSV };

/* One call of a subcommand. */
struct call {
	/* From --format, or the suffix of -o FILE or of the operand. */
	enum format format;
	/* Set if the command has --dir; .watch is always set. */
	struct store_options store;
	char **operands; /* ends in NULL */
};

/* The subcommands.  Those with --progress run under command_watch. */
typedef void command_run(const struct call *call);
command_run check_run, export_run, import_run, query_run_get, query_run_metrics,
    query_run_stats, recover_run, store_run_backup, store_run_init,
    store_run_schema, store_run_verify, token_run;

/* Logs how far the command got before a signal, unless NULL. */
extern void (*command_stopped)(void);

/*
 * command_option(name):
 * Return the value of an option; "" if it takes none; NULL if it is not given.
 * Values of --by, --format and --full are checked before the subcommand runs.
 */
const char *command_option(const char *name);

/*
 * command_exit(status):
 * End the process; with EX_IOERR, logged, if stdout is incomplete.
 *
 * command_status(fault):
 * Return the exit status of the fault: 128 plus the signal's number if a signal
 * stopped the work.
 *
 * command_fail(fault), command_need(fault):
 * End the process with the status of the fault, which is logged; command_need
 * only if there is one.  If a signal stopped the work, call command_stopped
 * first.
 *
 * command_refuse(fault, format, ...):
 * Log the message, and then command_fail(fault).
 *
 * command_retry(fault, again):
 * Fail on a fault or a signal; but if `again` is set, return true on
 * FAULT_BUSY, which may be transient.
 *
 * command_usage_error(format, ...):
 * Log the mistake, and refer to the help; end the process with EX_USAGE.
 */
_Noreturn void command_exit(int status);
int command_status(enum fault fault);
_Noreturn void command_fail(enum fault fault);
void command_need(enum fault fault);
#define command_refuse(fault, ...) (log_error(__VA_ARGS__), command_fail(fault))
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
 * command_open_reader(store, since, engine):
 * Open a reader of the store, and set `engine` to its engine.  Exit closes it.
 */
struct store_reader *command_open_reader(const struct store_options *store,
    const char *since, const struct reader_engine **engine);

/*
 * command_watch(what), command_unwatch():
 * Call before long work, which `what` names in one word, such as "verify".  The
 * call's watch then shows progress on stderr, as the options specify, unless
 * `what` is NULL.  From then on, SIGINT, SIGTERM and SIGHUP, unless ignored,
 * only set a flag, and the watch then stops the work.  command_unwatch ends the
 * progress, and clears its line.
 */
void command_watch(const char *what);
void command_unwatch(void);
/* The number of the signal that asked to stop, or 0. */
extern volatile sig_atomic_t command_signal;

/*
 * command_count(n, noun), command_age(ms), command_size(bytes):
 * Return "no plants", "1 plant" or "2 plants"; the time between now and `ms`
 * since 1970, such as "3 hours"; "1.5 MB".
 *
 * command_backup(dir), command_consumer(consumer), command_tokens(tokens):
 * Return the age of a store's backup; how far a consumer is behind; how many
 * tokens there are, and when the next one expires.
 *
 * Each text is valid until three more are printed.
 */
const char *command_count(uint64_t n, const char *noun);
const char *command_age(int64_t ms);
const char *command_size(double bytes);
const char *command_backup(const char *dir);
const char *command_consumer(const struct metrics_consumer *consumer);
const char *command_tokens(struct tokens *tokens);

/*
 * The text before a plant in export --full, with two conversions of printf or
 * scanf for `at` and `by`; and the maximum number of bytes around a plant.
 */
#define COMMAND_FULL(at, by) "{\"at\":\"" at "\",\"by\":\"" by "\",\"plant\":"
#define COMMAND_FULL_AROUND \
	(sizeof(COMMAND_FULL("", "") "}") + TIMESTAMP_LEN + RECORD_BY_MAX)
