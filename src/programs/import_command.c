/*
 * import_command: plants from a file into the store: options, who this runs as,
 * opening and closing.  The rest is import_run's.
 */
#include "import_command.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "command.h"
#include "ground/config.h"
#include "ground/log.h"
#include "http/tokens.h"
#include "import_run.h"

static const char usage[] =
    "Usage: plant-store import [--dir DIR] [--by NAME] [--format jsonl|csv]\n"
    "                          [--keep-going] [--quiet | --progress] [FILE]\n"
    "\n"
    "Store the plants of FILE, or of standard input (also as -), with the\n"
    "checks of the interface, the setting PLANT_STORE_BODY_BYTES_MAX "
    "included.\n"
    "FILE has JSON lines, a plant a line as a client sends it, or\n"
    "CSV with the header line id,name,tag (or id,name), in UTF-8; there an\n"
    "empty field without quotes is no value.  Blank lines are passed over, "
    "and\n"
    "so is a byte order mark at the start of CSV.  The service may go on\n"
    "meanwhile.  To import a file again is safe, also after an interruption:\n"
    "what is there already is passed over.\n"
    "\n"
    "Every line that is refused, or whose id has another plant already, is\n"
    "told on stderr.  The first such line ends the import; what came before "
    "it\n"
    "is stored, and after a conflict the rest of its batch too: the summary\n"
    "says up to which line.\n"
    "\n"
    "  --dir DIR        the store's directory (PLANT_STORE_DIR, or\n"
    "                   /var/lib/plant-store); root becomes its owner\n"
    "  --by NAME        stands in the journal beside each plant (import)\n"
    "  --format FORMAT  jsonl or csv (by the suffix .jsonl, .ndjson, .json or\n"
    "                   .csv, else jsonl if the first byte is '{')\n"
    "  --keep-going     pass over lines that are refused or in conflict\n"
    "  --quiet          no progress\n"
    "  --progress       progress also where stderr is no terminal\n"
    "  --help           show this\n"
    "\n"
    "Exit status: 0 if every line is stored; 65 if some were refused or in\n"
    "conflict; 75 if the store is full or busy, 74 if it failed: mend that "
    "and\n"
    "import again; 128 and the signal's number if interrupted.\n";

/*
 * Root must not leave files behind that the service cannot write.  The store's
 * owner is who the service runs as.
 */
static int
become_owner(const char *dir)
{
	struct stat st;

	/* What is wrong with the directory is for the store to say. */
	if (geteuid() != 0 || stat(dir, &st) < 0 || st.st_uid == 0)
		return EX_OK;
	if (setgroups(1, &st.st_gid) == 0 &&
	    setresgid(st.st_gid, st.st_gid, st.st_gid) == 0 &&
	    setresuid(st.st_uid, st.st_uid, st.st_uid) == 0)
		return EX_OK;
	log_error("%s: cannot become its owner, user %ld: %s; run this as that "
		  "user",
	    dir, (long)st.st_uid, strerror(errno));
	return EX_NOPERM;
}

/* Opening may have to read on in the journal, or build the index. */
static struct store *
open_store(const struct command *command, int *status)
{
	struct watch watch = command_watch(command, "index");
	struct store_options options = {
		.dir = command->dir, .prepare = true, .watch = &watch
	};
	struct store *store = store_open(&options, status);

	command_unwatch();
	if (command_interrupted() == 0)
		return store;
	store_close(store);
	log_error("import: interrupted; nothing was imported");
	*status = 128 + command_interrupted();
	return NULL;
}

static int
run(struct import *import, const struct command *command)
{
	int status = become_owner(command->dir);

	if (status != EX_OK)
		return status;
	/* A limit on files must not end us: errno says it. */
	signal(SIGXFSZ, SIG_IGN);
	import->store = open_store(command, &status);
	if (import->store != NULL) {
		struct watch watch = command_watch(command, "import");

		import_run_lines(import, &watch);
		command_unwatch();
		store_close(import->store);
		status = import_run_report(import);
	}
	return status;
}

static int
read_format(const char *name, enum import_format *format)
{
	if (strcmp(name, "jsonl") == 0)
		*format = IMPORT_JSON_LINES;
	else if (strcmp(name, "csv") == 0)
		*format = IMPORT_CSV;
	else
		return -1;
	return 0;
}

/* The options; -2, as command_option, if the command is to end. */
static int
read_options(struct import *import, enum import_format *format,
    struct command *command, int argc, char **argv)
{
	static const struct option options[] = {
		COMMAND_OPTION_HELP,
		COMMAND_OPTION_DIR,
		COMMAND_OPTIONS_PROGRESS,
		{ "by", required_argument, NULL, 'b' },
		{ "format", required_argument, NULL, 'f' },
		{ "keep-going", no_argument, NULL, 'k' },
		{ 0 },
	};
	const char *wrong = NULL;
	int option;

	optind = 0;
	while ((option = command_option(command, argc, argv, options)) >= 0) {
		if (option == 'k')
			import->keep_going = true;
		else if (option == 'b') {
			import->by = optarg;
			if (!tokens_is_name(optarg))
				wrong = "--by is 1 to 64 of A-Z a-z 0-9 . _ -";
		} else if (read_format(optarg, format) < 0)
			wrong = "--format is jsonl or csv";
	}
	if (option == -2)
		return -2;
	if (argc - optind > 1)
		wrong = "too many arguments";
	if (wrong == NULL)
		return 0;
	command->status = command_usage_error(command, wrong);
	return -2;
}

int
import_command_run(int argc, char **argv)
{
	struct command command = { .name = argv[0], .usage = usage };
	struct import import = { .by = "import" };
	enum import_format format = IMPORT_GUESS;
	struct config config;
	char error[512];
	int status;

	if (read_options(&import, &format, &command, argc, argv) < 0)
		return command.status;
	status = command_dir(&command);
	if (status != EX_OK)
		return status;
	const char *file = argv[optind];
	if (file != NULL && strcmp(file, "-") == 0)
		file = NULL;
	if (config_read(&config, error, sizeof(error)) < 0) {
		log_error("%s", error);
		return EX_CONFIG;
	}
	import.input =
	    import_input_open(file, format, config.body_bytes_max, &status);
	if (import.input == NULL)
		return status;
	status = run(&import, &command);
	import_input_close(import.input);
	return status;
}
