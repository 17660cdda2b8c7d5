/*
 * command: the operator's command plant-store, and what its subcommands share:
 * see command.h.  The state is static: a process has one terminal and one set
 * of signal handlers.
 */
#include "command.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sysexits.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/config.h"
#include "ground/log.h"
#include "http/tokens.h"
#include "store/engine.h"

/* The time between two reports of progress, on a terminal and in a file. */
#define TERMINAL_MS 100
#define LINE_MS 1000

static volatile sig_atomic_t stopped_by;

static struct progress {
	const char *what;
	bool terminal;
	int64_t began_ms, next_ms; /* INT64_MAX: not shown */
	uint64_t first; /* bytes done by the first step: not in the rate */
} progress = { .next_ms = INT64_MAX };

int
command_usage_error(const struct call *call, const char *format, ...)
{
	const char *name = call->command->name;
	char what[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	log_error("%s: %s; see: plant-store %s --help", name, what, name);
	return EX_USAGE;
}

static const struct option *
find_option(const struct command *command, int letter)
{
	const struct option *option = command->options;

	while (option->name != NULL && option->val != letter)
		option++;
	return option->name != NULL ? option : NULL;
}

static void
print_usage(const struct command *command)
{
	fputs(command->usage, stdout);
	if (find_option(command, 'd') != NULL)
		printf("  --dir DIR       the store's directory "
		       "(PLANT_STORE_DIR)\n");
	if (find_option(command, 'p') != NULL)
		printf("  --quiet         show no progress\n"
		       "  --progress      show progress even if stderr is no "
		       "terminal\n");
	printf("  --help          show this\n");
}

/*
 * The index at which getopt has to stop: at the first word such as "-5", which
 * it would read as an option, unless that word follows --dir or "--".
 */
static int
end_of_options(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (argv[i][0] == '-' && argv[i][1] >= '0' &&
		    argv[i][1] <= '9' && strcmp(argv[i - 1], "--dir") != 0)
			return i;
	return argc;
}

/* Read the options, up to --help, and the operands. */
static int
read_arguments(struct call *call, int argc, char **argv)
{
	const struct command *command = call->command;
	const char *letters = find_option(command, 'o') != NULL ? ":ho:" : ":h";
	int end =
	    command->negative_operands ? end_of_options(argc, argv) : argc;
	int letter;

	opterr = 0;
	while ((letter = getopt_long(
		    end, argv, letters, command->options, NULL)) != -1) {
		const char *word = argv[optind - 1];
		const char short_word[] = { '-', (char)optopt, '\0' };
		if (letter == '?' || letter == ':')
			return command_usage_error(call,
			    letter == ':' ? "%s needs a value"
					  : "unknown option: %s",
			    strncmp(word, "--", 2) == 0 ? word : short_word);
		call->values[letter] = optarg != NULL ? optarg : "";
		if (letter == 'h')
			return EX_OK;
	}
	call->operands = argv + optind;
	call->operands_n = argc - optind;
	if (call->operands_n >
	    command->operands[1] + (command->dir_alias == ' '))
		return command_usage_error(call, "too many arguments%s",
		    find_option(command, 'd') != NULL &&
			    command->dir_alias != ' '
			? "; name the store with --dir DIR"
			: "");
	if (call->operands_n < command->operands[0])
		return command_usage_error(call, "an argument is missing");
	const char *pair = command->apart;
	for (; pair != NULL && *pair != '\0'; pair += 2)
		if (call->values[(int)pair[0]] != NULL &&
		    call->values[(int)pair[1]] != NULL)
			return command_usage_error(call,
			    "--%s and --%s exclude each other",
			    find_option(command, pair[0])->name,
			    find_option(command, pair[1])->name);
	return EX_OK;
}

/*
 * Read the settings of the machine, and find the store's directory: by --dir,
 * by the option or operand that is its alias, or in the settings.
 */
static int
read_dir(struct call *call)
{
	char alias = call->command->dir_alias;
	const char *other = alias == ' ' ? call->operands[0]
					 : call->values[(unsigned char)alias];
	struct config config;
	enum fault fault;

	if (find_option(call->command, 'd') == NULL)
		return EX_OK;
	if (call->values['d'] != NULL && other != NULL)
		return command_usage_error(
		    call, "--dir and %s exclude each other", other);
	call->store.dir = other != NULL ? other : call->values['d'];
	fault = config_use_file(NULL, call->store.dir != NULL);
	if (fault != FAULT_NONE || call->store.dir != NULL)
		return command_fault(fault);
	if (config_read(&config) != FAULT_NONE)
		return EX_CONFIG;
	call->store.dir = config.dir;
	call->store.database = config.database;
	if (config.database == NULL || call->command->instead == NULL)
		return EX_OK;
	log_error("%s: for a store in files; a database has %s; name a "
		  "directory with --dir, or unset PLANT_STORE_DATABASE",
	    call->command->name, call->command->instead);
	return EX_USAGE;
}

/* Check --by, --format and --full. */
static int
read_values(struct call *call)
{
	static const char *const names[] = { "csv", "jsonl", "ndjson", "json" };
	const char *by = call->values['b'], *name = call->values['f'];
	const char *path =
	    call->values['o'] != NULL ? call->values['o'] : call->operands[0];
	const char *dot = path != NULL ? strrchr(path, '.') : NULL;

	if (by != NULL && !tokens_is_name(by))
		return command_usage_error(
		    call, "--by is 1 to 64 of A-Z a-z 0-9 . _ -");
	if (name == NULL && dot != NULL)
		name = dot + 1;
	for (size_t i = 0; i < 4 && name != NULL; i++)
		if (strcasecmp(name, names[i]) == 0)
			call->format = i == 0 ? FORMAT_CSV : FORMAT_JSON_LINES;
	if (call->values['f'] != NULL && call->format == FORMAT_NONE)
		return command_usage_error(
		    call, "--format: jsonl or csv, not %s", name);
	if (call->values['u'] != NULL && call->format == FORMAT_CSV)
		return command_usage_error(
		    call, "--full is a form of JSON lines, not of CSV");
	return EX_OK;
}

struct store_reader *
command_open_reader(const struct store_options *options, const char *since,
    const struct reader_engine **engine, enum fault *fault)
{
	*engine = options->database == NULL
		      ? &journal_reader
		      : engine_symbol(READER_ENGINE_SYMBOL, fault);
	return *engine != NULL ? (*engine)->open(options, since, fault) : NULL;
}

bool
command_time(const char *text, int64_t *ms)
{
	char midnight[sizeof("2027-01-31T00:00:00Z")];

	snprintf(midnight, sizeof(midnight), "%.10sT00:00:00Z", text);
	if (strlen(text) == strlen("2027-01-31"))
		text = midnight;
	return timestamp_read(text, strlen(text), ms) == 0;
}

const char *
command_count(uint64_t n, const char *noun, char text[static COMMAND_COUNT_MAX])
{
	if (n == 0)
		snprintf(text, COMMAND_COUNT_MAX, "no %ss", noun);
	else
		snprintf(text, COMMAND_COUNT_MAX, "%" PRIu64 " %s%s", n, noun,
		    n != 1 ? "s" : "");
	return text;
}

/* The largest unit of which there are at least two. */
const char *
command_age(int64_t ms, char text[static COMMAND_COUNT_MAX])
{
	int64_t s = llabs(clock_ms(CLOCK_REALTIME) - ms) / 1000;

	if (s == 0)
		s = 1;
	return s < 120      ? command_count((uint64_t)s, "second", text)
	       : s < 7200   ? command_count((uint64_t)s / 60, "minute", text)
	       : s < 172800 ? command_count((uint64_t)s / 3600, "hour", text)
			    : command_count((uint64_t)s / 86400, "day", text);
}

static void
on_stop(int number)
{
	stopped_by = number;
}

int
command_interrupted(void)
{
	return stopped_by;
}

int
command_fault(enum fault fault)
{
	/* A wait for a lock calls no watch: a signal leaves FAULT_BUSY. */
	bool stopped = fault == FAULT_STOPPED || fault == FAULT_BUSY;

	return stopped && stopped_by != 0 ? 128 + stopped_by
					  : fault_status(fault);
}

static void
show_progress(uint64_t done, uint64_t total, int64_t now_ms)
{
	char text[64];
	double seconds = (double)(now_ms - progress.began_ms) / 1000;
	double rate =
	    seconds > 0 ? (double)(done - progress.first) / seconds : 0;
	double left_s =
	    rate > 0 && total > done ? (double)(total - done) / rate : 0;
	int left = left_s < 1e5 ? (int)left_s : 100000;

	if (total > 0)
		snprintf(text, sizeof(text), "%3d %%  %.1f MB/s  %d:%02d left",
		    (int)(done < total ? 100 * done / total : 100), rate / 1e6,
		    left / 60, left % 60);
	else
		snprintf(text, sizeof(text), "%.1f MB  %.1f MB/s",
		    (double)done / 1e6, rate / 1e6);
	/* One write; a failure is ignored. */
	dprintf(STDERR_FILENO, "%s%s %s%s",
	    progress.terminal ? "\r" : "plant-store: ", progress.what, text,
	    progress.terminal ? "\033[K" : "\n");
	log_set_progress(progress.terminal);
}

/* The watch: show progress when it is due; false after a signal. */
static bool
step(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	/* A reader calls step for each plant, and reading the clock is slow. */
	if (progress.next_ms == INT64_MAX)
		return stopped_by == 0;
	int64_t now_ms = clock_ms(CLOCK_MONOTONIC);
	if (progress.began_ms == 0) {
		progress.began_ms = now_ms;
		progress.first = done;
	}
	if (now_ms >= progress.next_ms) {
		show_progress(done, total, now_ms);
		progress.next_ms =
		    now_ms + (progress.terminal ? TERMINAL_MS : LINE_MS);
	}
	return stopped_by == 0;
}

static const struct watch watch = { .step = step };

/* Set the handler of each signal that is not ignored, as under nohup. */
static void
set_stop_signals(void (*handler)(int))
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	/* Without SA_RESTART, so that a signal ends a read. */
	struct sigaction before, action = { .sa_handler = handler };

	sigfillset(&action.sa_mask);
	for (size_t i = 0; i < 3; i++) {
		sigaction(signals[i], NULL, &before);
		if (before.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	}
}

void
command_watch(const struct call *call, const char *what)
{
	progress = (struct progress){ .what = what,
		.terminal = isatty(STDERR_FILENO),
		.next_ms = INT64_MAX };
	/* --follow has no end.  Short work is shown by --progress alone. */
	bool shown = what != NULL && call->values['q'] == NULL &&
		     call->values['w'] == NULL;
	if (shown && call->values['p'] != NULL)
		progress.next_ms = 0;
	else if (shown && progress.terminal)
		progress.next_ms = clock_ms(CLOCK_MONOTONIC) + 2 * TERMINAL_MS;
	set_stop_signals(on_stop);
}

void
command_unwatch(void)
{
	/* After a signal, a second one must not stop the cleanup. */
	if (stopped_by == 0)
		set_stop_signals(SIG_DFL);
	log_set_progress(false);
	progress = (struct progress){ .next_ms = INT64_MAX };
}

static int
run_subcommand(const struct command *command, int argc, char **argv)
{
	struct call call = { .command = command, .store.watch = &watch };
	int status = read_arguments(&call, argc, argv);

	if (call.values['h'] != NULL) {
		print_usage(command);
		return EX_OK;
	}
	if (status == EX_OK)
		status = read_values(&call);
	if (status == EX_OK)
		status = read_dir(&call);
	if (status != EX_OK)
		return status;
	if (find_option(command, 'p') != NULL)
		command_watch(&call, command->name);
	return command->run(&call);
}

static const struct command *const subcommands[] = { &store_command_init,
	&token_command, &store_command_verify, &check_command,
	&store_command_backup, &recover_command, &query_command_stats,
	&query_command_metrics, &query_command_get, &export_command,
	&import_command, &store_command_schema };
#define SUBCOMMANDS (sizeof(subcommands) / sizeof(subcommands[0]))

static void
print_help(void)
{
	printf("Usage: plant-store SUBCOMMAND [ARGUMENT ...]\n"
	       "       plant-store SUBCOMMAND --help\n"
	       "       plant-store --help | --version\n"
	       "\n");
	for (size_t i = 0; i < SUBCOMMANDS; i++)
		printf("%-10s  %s\n", subcommands[i]->name,
		    subcommands[i]->summary);
	printf("%-10s  %s\n\n", "help", "show this, or that of a subcommand");
	config_print_help(stdout);
}

static int
find_and_run(int argc, char **argv)
{
	const char *word = argc > 0 ? argv[0] : "";
	char option[] = "--help";

	if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
		printf("plant-store %s\n", PLANT_STORE_VERSION);
		return EX_OK;
	}
	if (strcmp(word, "help") == 0 && argc > 1 && argv[1][0] != '-' &&
	    strcmp(argv[1], "help") != 0)
		return find_and_run(2, (char *[]){ argv[1], option, NULL });
	if (strcmp(word, "help") == 0 || strcmp(word, option) == 0 ||
	    strcmp(word, "-h") == 0) {
		print_help();
		return EX_OK;
	}
	for (size_t i = 0; i < SUBCOMMANDS; i++)
		if (strcmp(word, subcommands[i]->name) == 0)
			return run_subcommand(subcommands[i], argc, argv);
	log_error("%s%s; see: plant-store --help",
	    argc == 0        ? "name a subcommand"
	    : word[0] == '-' ? "unknown option: "
			     : "unknown subcommand: ",
	    word);
	return EX_USAGE;
}

/* A full disk may be reported only now: the output is then incomplete. */
static int
close_output(int status)
{
	int broken = ferror(stdout);

	if (fclose(stdout) < 0)
		(void)fault_report("stdout", "the output is incomplete");
	else if (broken)
		log_error("stdout: the output is incomplete; check where it "
			  "goes");
	else
		return status;
	return EX_IOERR;
}

int
main(int argc, char **argv)
{
	/* A closed pipe is reported as an error, instead of a silent end. */
	signal(SIGPIPE, SIG_IGN);
	/* So is a file size limit: the signal would leave partial files. */
	signal(SIGXFSZ, SIG_IGN);
	log_open("plant-store", 0);
	config_warn_unknown();
	return close_output(find_and_run(argc - 1, argv + 1));
}
