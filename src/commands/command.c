/*
 * command: the operator's command plant-store, and what its subcommands share:
 * see command.h.  The state is static: a process has one terminal and one set
 * of signal handlers.
 */
#include "command.h"

#include <assert.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sysexits.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/config.h"
#include "ground/file.h"
#include "store/engine.h"

/* The time between two reports of progress, on a terminal and in a file. */
#define TERMINAL_MS 100
#define LINE_MS 1000

static struct call call;
volatile sig_atomic_t command_signal;

static const struct command {
	const char *name;
	command_run *run;
	const char *instead;     /* a database's tools; NULL: works with both */
	int operands[2];         /* minimum and maximum, besides DIR */
	bool dir;                /* DIR is a synonym of --dir */
	bool negative_operands;  /* "-5" is an operand, not an option */
	const char *apart[8][2]; /* options that exclude each other */
} commands[] = {
	{ "init", .run = store_run_init, .dir = true },
	{ "token", .run = token_run, .operands = { 1, 2 } },
	{ "verify", .run = store_run_verify, .dir = true,
	    .instead = "pg_amcheck and data checksums" },
	{ "check", .run = check_run },
	{ "backup", .run = store_run_backup, .operands = { 1, 1 },
	    .instead = "pg_dump, pg_basebackup and pgBackRest" },
	{ "recover", .run = recover_run, .operands = { 2, 2 } },
	{ "stats", .run = query_run_stats, .dir = true,
	    .apart = { { "json", "watch" }, { "json", "all" },
		{ "all", "watch" } } },
	{ "metrics", .run = query_run_metrics,
	    .instead = "those of each process, at PLANT_STORE_METRICS_PATH" },
	{ "get", .run = query_run_get, .operands = { 1, INT_MAX },
	    .negative_operands = true },
	/* --since is a time, not a position; --follow has no end. */
	{ "export", .run = export_run,
	    .apart = { { "since", "cursor" }, { "since", "follow" },
		{ "follow", "output" }, { "follow", "limit" },
		{ "follow", "count" }, { "follow", "file" },
		{ "count", "output" } } },
	{ "import", .run = import_run, .operands = { 0, 1 },
	    .apart = { { "full", "by" } } },
	{ "schema", .run = store_run_schema, .apart = { { "roles", "feed" } } },
};
static const struct command *command;

#define OPTIONS_MAX 16
static struct option options[OPTIONS_MAX + 1]; /* the last has no name */
static const char *values[OPTIONS_MAX];

void (*command_stopped)(void);

static struct progress {
	const char *what;
	bool terminal;
	int64_t began_ms, next_ms; /* INT64_MAX: not shown */
	uint64_t first; /* bytes done by the first step: not in the rate */
} progress = { .next_ms = INT64_MAX };

void
command_exit(int status)
{
	int broken = ferror(stdout);

	command_unwatch();
	/* A full disk may be reported only now: the output is incomplete. */
	if (fclose(stdout) < 0)
		(void)fault_report("stdout", "the output is incomplete");
	else if (broken)
		log_error("stdout: the output is incomplete; check where it "
			  "goes");
	else
		exit(status);
	exit(EX_IOERR);
}

/* A wait for a lock calls no watch: a signal causes FAULT_BUSY. */
static bool
is_stop(enum fault fault)
{
	return command_signal != 0 &&
	       (fault == FAULT_STOPPED || fault == FAULT_BUSY);
}

int
command_status(enum fault fault)
{
	return is_stop(fault) ? 128 + command_signal : fault_status(fault);
}

void
command_fail(enum fault fault)
{
	if (is_stop(fault) && command_stopped != NULL)
		command_stopped();
	command_exit(command_status(fault));
}

void
command_need(enum fault fault)
{
	if (fault != FAULT_NONE)
		command_fail(fault);
}

bool
command_retry(enum fault fault, bool again)
{
	if (again && fault == FAULT_BUSY && command_signal == 0)
		return true;
	command_need(
	    fault == FAULT_NONE && command_signal != 0 ? FAULT_STOPPED : fault);
	return false;
}

void
command_usage_error(const char *format, ...)
{
	const char *name = command->name;
	char what[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	log_error("%s: %s; see: plant-store %s --help", name, what, name);
	command_exit(EX_USAGE);
}

/* Return the lines of deploy/help.txt, starting at the usage of `name`. */
static const char *const *
find_help(const char *name)
{
	static const char *const lines[] = {
#include "help.txt.h"
	};
	char begin[64];
	size_t i = 0;

	snprintf(begin, sizeof(begin), "Usage: plant-store %s", name);
	while (strncmp(lines[i], begin, strlen(begin)) != 0) {
		i++;
		assert(i < sizeof(lines) / sizeof(lines[0]));
	}
	return lines + i;
}

static void
print_help(const char *name)
{
	const char *const *line = find_help(name);

	for (; **line != '%'; line++)
		fputs(*line, stdout);
}

/*
 * Find the options in the help.  Each begins a line, like "  -o, --output
 * FILE", and two spaces precede its text.
 */
static void
find_options(void)
{
	static char names[OPTIONS_MAX][16];
	const char *const *line = find_help(command->name);

	for (int i = 0; **line != '%'; line++) {
		if (strncmp(*line, "  -", 3) != 0)
			continue;
		const char letter = (*line)[3];
		const char *name = strstr(*line, "--") + 2;
		size_t len = strcspn(name, " \n");
		assert(i < OPTIONS_MAX && len < sizeof(names[i]));
		memcpy(names[i], name, len);
		options[i] = (struct option){ .name = names[i],
			.has_arg = name[len] == ' ' && name[len + 1] != ' ',
			.val = letter != '-' ? letter : UCHAR_MAX + 1 + i };
		i++;
	}
}

/* Return the place of the option's value, or NULL. */
static const char **
find_option(const char *name)
{
	for (size_t i = 0; options[i].name != NULL; i++)
		if (strcmp(options[i].name, name) == 0)
			return &values[i];
	return NULL;
}

const char *
command_option(const char *name)
{
	const char **value = find_option(name);

	return value != NULL ? *value : NULL;
}

/*
 * Return the index at which getopt must stop: at the first word such as "-5",
 * which it would read as an option, unless the word follows --dir or "--".
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

/* Read the options and the operands; --help ends the process. */
static void
read_arguments(int argc, char **argv)
{
	int end =
	    command->negative_operands ? end_of_options(argc, argv) : argc;
	const char *letters = find_option("output") != NULL ? ":ho:" : ":h";
	int letter;

	opterr = 0;
	while (
	    (letter = getopt_long(end, argv, letters, options, NULL)) != -1) {
		const char *word = argv[optind - 1];
		const char short_word[] = { '-', (char)optopt, '\0' };
		size_t i = 0;

		if (strncmp(word, "--", 2) != 0)
			word = short_word;
		if (letter == ':')
			command_usage_error("%s needs a value", word);
		while (options[i].name != NULL && options[i].val != letter)
			i++;
		if (options[i].name == NULL)
			command_usage_error("unknown option: %s", word);
		values[i] = optarg != NULL ? optarg : "";
		if (letter == 'h') {
			print_help(command->name);
			command_exit(EX_OK);
		}
	}
	call.operands = argv + optind;
	if (argc - optind > command->operands[1] + command->dir)
		command_usage_error("too many arguments");
	if (argc - optind < command->operands[0])
		command_usage_error("an argument is missing");
	for (size_t i = 0; command->apart[i][0] != NULL; i++)
		if (command_option(command->apart[i][0]) != NULL &&
		    command_option(command->apart[i][1]) != NULL)
			command_usage_error("--%s conflicts with --%s",
			    command->apart[i][0], command->apart[i][1]);
}

/* Check --by, --format and --full. */
static void
read_values(void)
{
	static const char *const names[] = { "csv", "jsonl", "ndjson", "json" };
	const char *by = command_option("by"),
		   *given = command_option("format");
	const char *out = command_option("output"), *name = given;
	const char *path = out != NULL ? out : call.operands[0];
	const char *dot = path != NULL ? strrchr(path, '.') : NULL;

	if (by != NULL && !tokens_is_name(by))
		command_usage_error(
		    "--by: use 1 to 64 characters from A-Z a-z 0-9 . _ -");
	if (given == NULL && dot != NULL)
		name = dot + 1;
	for (size_t i = 0; i < 4 && name != NULL; i++)
		if (strcasecmp(name, names[i]) == 0)
			call.format = i == 0 ? FORMAT_CSV : FORMAT_JSON_LINES;
	if (given != NULL && call.format == FORMAT_NONE)
		command_usage_error("--format is jsonl or csv, not %s", given);
	if (command_option("full") != NULL && call.format == FORMAT_CSV)
		command_usage_error("--full needs JSON lines, not CSV");
}

/*
 * Read the settings of the machine, and find the store's directory in --dir,
 * DIR, export's --file or the settings.
 */
static void
read_dir(void)
{
	const char *dir = command_option("dir");
	const char *other =
	    command->dir ? call.operands[0] : command_option("file");
	struct config config;

	if (dir != NULL && other != NULL)
		command_usage_error("--dir conflicts with %s", other);
	call.store.dir = other != NULL ? other : dir;
	command_need(config_use_file(NULL, call.store.dir != NULL));
	if (call.store.dir != NULL)
		return;
	command_need(config_read(&config));
	call.store.dir = config.dir;
	call.store.database = config.database;
	if (config.database != NULL && command->instead != NULL)
		command_usage_error("a database has %s; name a directory with "
				    "--dir, or unset PLANT_STORE_DATABASE",
		    command->instead);
}

static const struct reader_engine *opened;
static struct store_reader *reader;

static void
close_reader(void)
{
	opened->close(reader);
}

struct store_reader *
command_open_reader(const struct store_options *store, const char *since,
    const struct reader_engine **engine)
{
	enum fault fault = FAULT_NONE;

	opened = store->database == NULL
		     ? &journal_reader
		     : engine_symbol(READER_ENGINE_SYMBOL, &fault);
	command_need(fault);
	reader = opened->open(store, since, &fault);
	command_need(fault);
	atexit(close_reader);
	*engine = opened;
	return reader;
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

/* Print into one of a few buffers; no message needs more buffers. */
__attribute__((format(printf, 1, 2))) static const char *
print_text(const char *format, ...)
{
	static char texts[4][160];
	static unsigned n;
	char *text = texts[n++ % 4];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(texts[0]), format, arguments);
	va_end(arguments);
	return text;
}

const char *
command_count(uint64_t n, const char *noun)
{
	if (n == 0)
		return print_text("no %ss", noun);
	return print_text("%" PRIu64 " %s%s", n, noun, n != 1 ? "s" : "");
}

/* The largest unit of which there are at least two. */
const char *
command_age(int64_t ms)
{
	uint64_t s = (uint64_t)llabs(clock_ms(CLOCK_REALTIME) - ms) / 1000;

	return s < 1        ? "1 second"
	       : s < 120    ? command_count(s, "second")
	       : s < 7200   ? command_count(s / 60, "minute")
	       : s < 172800 ? command_count(s / 3600, "hour")
			    : command_count(s / 86400, "day");
}

const char *
command_size(double bytes)
{
	static const char *const units[] = { "bytes", "kB", "MB", "GB", "TB" };
	size_t i = 0;

	for (; bytes >= 1000 && i < 4; i++)
		bytes /= 1000;
	return print_text("%.*f %s", i > 0, bytes, units[i]);
}

const char *
command_backup(const char *dir)
{
	int64_t backup_ms = file_get_time(dir, STORE_BACKUP_NAME);
	int64_t verified_ms = file_get_time(dir, STORE_VERIFIED_NAME);

	if (backup_ms <= 0)
		return "none yet";
	if (verified_ms <= 0)
		return print_text(
		    "%s old, none verified yet", command_age(backup_ms));
	return print_text("%s old, verified %s ago", command_age(backup_ms),
	    command_age(verified_ms));
}

const char *
command_consumer(const struct metrics_consumer *consumer)
{
	return print_text("%s: %s behind, last read %s ago", consumer->name,
	    command_size((double)consumer->behind),
	    command_age(consumer->read_ms));
}

const char *
command_tokens(struct tokens *tokens)
{
	int64_t now_ms = clock_ms(CLOCK_REALTIME);
	int64_t next_ms = tokens_next_expiry(tokens, now_ms);
	size_t n;

	(void)tokens_list(tokens, &n);
	const char *count = command_count(n, "token");
	if (next_ms == 0)
		return print_text("%s, none is valid", count);
	if (next_ms == TOKENS_NEVER)
		return print_text("%s; none expires", count);
	return print_text(
	    "%s; the next one expires in %s", count, command_age(next_ms));
}

static void
on_stop(int number)
{
	command_signal = number;
}

/* The watch: show progress when it is due; return false after a signal. */
static bool
step(void *context, uint64_t done, uint64_t total)
{
	char text[64];

	(void)context;
	/* A reader calls step for each plant, and reading the clock is slow. */
	if (progress.next_ms == INT64_MAX)
		return command_signal == 0;
	int64_t now_ms = clock_ms(CLOCK_MONOTONIC);
	/* A second step of the work begins anew. */
	if (progress.began_ms == 0 || done < progress.first) {
		progress.began_ms = now_ms;
		progress.first = done;
	}
	if (now_ms < progress.next_ms)
		return command_signal == 0;
	progress.next_ms = now_ms + (progress.terminal ? TERMINAL_MS : LINE_MS);
	/* The 1 avoids a division by zero. */
	double rate = (double)(done - progress.first + 1) * 1000 /
		      (double)(now_ms - progress.began_ms + 1);
	double left_s = total > done ? (double)(total - done) / rate : 0;
	int left = left_s < 1e5 ? (int)left_s : 100000;
	if (total > 0)
		snprintf(text, sizeof(text), "%3d %%  %.1f MB/s  %d:%02d left",
		    (int)(done < total ? 100 * done / total : 100), rate / 1e6,
		    left / 60, left % 60);
	else
		snprintf(text, sizeof(text), "%.1f MB  %.1f MB/s",
		    (double)done / 1e6, rate / 1e6);
	/* A single write, whose failure is ignored. */
	dprintf(STDERR_FILENO, "%s%s %s%s",
	    progress.terminal ? "\r" : "plant-store: ", progress.what, text,
	    progress.terminal ? "\033[K" : "\n");
	log_set_progress(progress.terminal);
	return command_signal == 0;
}

static const struct watch watch = { .step = step };

void
command_watch(const char *what)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	/* SA_RESTART is not set, so a signal ends a read. */
	struct sigaction before, action = { .sa_handler = on_stop };

	progress = (struct progress){ .what = what,
		.terminal = isatty(STDERR_FILENO),
		.next_ms = INT64_MAX };
	/* --follow has no end.  Short work is shown only with --progress. */
	bool shown = what != NULL && command_option("quiet") == NULL &&
		     command_option("follow") == NULL &&
		     command_option("watch") == NULL;
	if (shown && command_option("progress") != NULL)
		progress.next_ms = 0;
	else if (shown && progress.terminal)
		progress.next_ms = clock_ms(CLOCK_MONOTONIC) + 2 * TERMINAL_MS;
	for (size_t i = 0; i < 3; i++) {
		sigaction(signals[i], NULL, &before);
		/* Keep a signal ignored, as under nohup. */
		if (before.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	}
}

void
command_unwatch(void)
{
	log_set_progress(false);
	progress.next_ms = INT64_MAX;
}

static void
run_command(int argc, char **argv)
{
	call.store.watch = &watch;
	find_options();
	read_arguments(argc, argv);
	read_values();
	if (find_option("dir") != NULL)
		read_dir();
	if (find_option("progress") != NULL)
		command_watch(command->name);
	command->run(&call);
	command_exit(EX_OK);
}

int
main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	static char help[] = "--help";

	fault_ignore_signals();
	log_open("plant-store", 0);
	config_warn_unknown();
	if (argc > 2 && strcmp(word, "help") == 0 && argv[2][0] != '-') {
		word = argv[1] = argv[2];
		argv[2] = help;
		argc = 3;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(word, commands[i].name) == 0) {
			command = &commands[i];
			run_command(argc - 1, argv + 1);
		}
	if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
		printf("plant-store %s\n", PLANT_STORE_VERSION);
	else if (strcmp(word, "help") == 0 || strcmp(word, help) == 0 ||
		 strcmp(word, "-h") == 0) {
		print_help("SUBCOMMAND");
		printf("\n");
		config_print_help(stdout);
	} else {
		log_error("%s%s; see: plant-store --help",
		    argc < 2         ? "name a subcommand"
		    : word[0] == '-' ? "unknown option: "
				     : "unknown subcommand: ",
		    word);
		command_exit(EX_USAGE);
	}
	command_exit(EX_OK);
}
