/*
 * command: see command.h.  What a subcommand does, and its own options, are its
 * own.  The state below is the process's: it has one terminal and one set of
 * signal handlers.
 */
#include "command.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/config.h"
#include "ground/log.h"

/* Often enough to look alive; in a file, one line now and then. */
#define BAR_MS 100
#define LINE_MS 1000
/* Closer than this, two signals are one. */
#define TWICE_MS 300
/* What stands beside the bar, and the widest and narrowest bar. */
#define BESIDE_COLUMNS 50
#define BAR_COLUMNS_MAX 40
#define BAR_COLUMNS_MIN 8

static const int stop_signals[] = { SIGINT, SIGTERM, SIGHUP };
#define STOP_SIGNALS (sizeof(stop_signals) / sizeof(stop_signals[0]))

static volatile sig_atomic_t stopped_by;
static volatile int64_t stopped_ms; /* of the handler alone */
static struct sigaction actions_before[STOP_SIGNALS];

static struct {
	const char *what;
	bool watching, shown, terminal;
	int64_t began_ms, next_ms;
	uint64_t first; /* done at the first step: a rate counts from here */
	bool stepped;
} progress;

int
command_usage_error(const struct command *command, const char *what)
{
	log_error("%s: %s; see: plant-store %s --help", command->name, what,
	    command->name);
	return EX_USAGE;
}

/* The short options are the long ones whose value is a letter. */
static void
print_letters(const struct option *options, char *letters, size_t size)
{
	size_t n = 0;

	/* A leading ":" tells a missing value from an unknown option. */
	letters[n++] = ':';
	letters[n++] = 'h';
	for (; options->name != NULL && n + 3 < size; options++) {
		if (options->val > 'z')
			continue;
		letters[n++] = (char)options->val;
		if (options->has_arg == required_argument)
			letters[n++] = ':';
	}
	letters[n] = '\0';
}

/* The option that getopt refused, as it was written. */
static void
print_refused(char **argv, char *text, size_t size)
{
	bool is_long = strncmp(argv[optind - 1], "--", 2) == 0;

	if (!is_long && optopt > 0 && optopt <= 'z')
		snprintf(text, size, "-%c", optopt);
	else
		snprintf(text, size, "%s", argv[optind - 1]);
}

static int
end_with(struct command *command, int status)
{
	command->status = status;
	return -2;
}

int
command_option(struct command *command, int argc, char **argv,
    const struct option *options)
{
	char letters[64], refused[128], what[192];

	print_letters(options, letters, sizeof(letters));
	opterr = 0;
	for (;;) {
		int option = getopt_long(argc, argv, letters, options, NULL);

		switch (option) {
		case 'h':
		case COMMAND_HELP:
			fputs(command->usage, stdout);
			return end_with(command, EX_OK);
		case COMMAND_DIR:
			command->dir = optarg;
			break;
		case COMMAND_QUIET:
			command->progress = PROGRESS_NEVER;
			break;
		case COMMAND_PROGRESS:
			command->progress = PROGRESS_ALWAYS;
			break;
		case '?':
		case ':':
			print_refused(argv, refused, sizeof(refused));
			snprintf(what, sizeof(what), "%s: %s",
			    option == ':' ? "a value is missing behind"
					  : "unknown option",
			    refused);
			return end_with(
			    command, command_usage_error(command, what));
		default:
			return option;
		}
	}
}

int
command_dir(struct command *command)
{
	static struct config config;
	char error[512];

	if (command->dir != NULL)
		return EX_OK;
	if (config_read(&config, error, sizeof(error)) < 0) {
		log_error("%s", error);
		return EX_CONFIG;
	}
	command->dir = config.dir;
	return EX_OK;
}

/* Who asks twice does not want to wait; timeout(1) sends each signal twice. */
static void
on_stop(int number)
{
	int64_t now_ms = clock_ms(CLOCK_MONOTONIC);

	if (stopped_by == 0) {
		stopped_by = number;
		stopped_ms = now_ms;
	} else if (now_ms - stopped_ms > TWICE_MS) {
		signal(number, SIG_DFL);
		raise(number);
	}
}

int
command_interrupted(void)
{
	return stopped_by;
}

static size_t
bar_columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 ||
	    size.ws_col < BESIDE_COLUMNS + BAR_COLUMNS_MIN)
		return 0;
	return size.ws_col - BESIDE_COLUMNS < BAR_COLUMNS_MAX
		   ? size.ws_col - (size_t)BESIDE_COLUMNS
		   : BAR_COLUMNS_MAX;
}

static size_t
print_share(char *text, size_t size, uint64_t done, uint64_t total)
{
	char bar[BAR_COLUMNS_MAX + 4] = "";
	double share = done < total ? (double)done / (double)total : 1;
	size_t columns = progress.terminal ? bar_columns() : 0;

	if (columns > 0) {
		size_t full = (size_t)((double)columns * share);

		bar[0] = '[';
		memset(bar + 1, '-', columns);
		memset(bar + 1, '#', full);
		memcpy(bar + 1 + columns, "] ", 3);
	}
	return (size_t)snprintf(
	    text, size, "%3d %% %s", (int)(share * 100), bar);
}

static void
show(uint64_t done, uint64_t total, int64_t now_ms)
{
	char text[256];
	double seconds = (double)(now_ms - progress.began_ms) / 1000;
	double rate =
	    seconds > 0 ? (double)(done - progress.first) / seconds : 0;
	size_t len = (size_t)snprintf(text, sizeof(text), "%s%s ",
	    progress.terminal ? "\r" : "plant-store: ", progress.what);

	if (total > 0)
		len += print_share(text + len, sizeof(text) - len, done, total);
	else
		len += (size_t)snprintf(text + len, sizeof(text) - len,
		    "%.1f MB ", (double)done / 1e6);
	len += (size_t)snprintf(
	    text + len, sizeof(text) - len, "%.1f MB/s", rate / 1e6);
	if (total > done && rate > 0) {
		double left = (double)(total - done) / rate;

		if (left < 360000)
			len += (size_t)snprintf(text + len, sizeof(text) - len,
			    "  %d:%02d left", (int)left / 60, (int)left % 60);
	}
	len += (size_t)snprintf(text + len, sizeof(text) - len, "%s",
	    progress.terminal ? "\033[K" : "\n");
	if (write(STDERR_FILENO, text, len) < 0) {
		/* Nobody left to tell. */
	}
	progress.shown = true;
	log_set_bar(progress.terminal);
}

static bool
step(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	if (progress.next_ms > 0) {
		int64_t now_ms = clock_ms(CLOCK_MONOTONIC);

		if (!progress.stepped) {
			progress.stepped = true;
			progress.first = done;
			progress.began_ms = now_ms;
		}
		if (now_ms >= progress.next_ms) {
			show(done, total, now_ms);
			progress.next_ms =
			    now_ms + (progress.terminal ? BAR_MS : LINE_MS);
		}
	}
	return stopped_by == 0;
}

struct watch
command_watch(const struct command *command, const char *what)
{
	/* Reads are to be broken off, so without SA_RESTART. */
	struct sigaction action = { .sa_handler = on_stop };

	for (size_t i = 0; i < STOP_SIGNALS; i++)
		sigaddset(&action.sa_mask, stop_signals[i]);
	memset(&progress, 0, sizeof(progress));
	progress.what = what;
	progress.watching = true;
	progress.terminal = isatty(STDERR_FILENO);
	/* A short work needs no bar: the first is drawn a little later. */
	if (command->progress == PROGRESS_ALWAYS)
		progress.next_ms = 1;
	else if (command->progress == PROGRESS_AUTO && progress.terminal)
		progress.next_ms = clock_ms(CLOCK_MONOTONIC) + 2 * BAR_MS;
	stopped_by = 0;
	for (size_t i = 0; i < STOP_SIGNALS; i++) {
		sigaction(stop_signals[i], NULL, &actions_before[i]);
		/* What a nohup ignores stays so. */
		if (actions_before[i].sa_handler != SIG_IGN)
			sigaction(stop_signals[i], &action, NULL);
	}
	return (struct watch){ .step = step };
}

void
command_clear_bar(void)
{
	if (progress.shown && progress.terminal &&
	    write(STDERR_FILENO, "\r\033[K", 4) < 0) {
		/* Nobody left to tell. */
	}
}

void
command_unwatch(void)
{
	if (!progress.watching)
		return;
	/* Once stopped, all that is left is to clean up and end. */
	for (size_t i = 0; i < STOP_SIGNALS && stopped_by == 0; i++)
		sigaction(stop_signals[i], &actions_before[i], NULL);
	command_clear_bar();
	log_set_bar(false);
	memset(&progress, 0, sizeof(progress));
}
