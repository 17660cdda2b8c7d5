/*
 * import_command: plants from a file into the store, in large batches.  What
 * stands in the file is import_input's, what is durable the store's.
 *
 * Happy path: lines are read into a batch until it is as large as one write to
 * the journal, the batch is committed, and so on to the end of the file.  An
 * id makes a plant's creation repeatable, so whatever ends an import early,
 * to run it again is safe, and everything read up to the last commit is stored.
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
#include "http/errors.h"
#include "http/tokens.h"
#include "import_input.h"
#include "pure/record.h"
#include "store/store.h"

static const char usage[] =
    "Usage: plant-store import [--dir DIR] [--by NAME] [--format jsonl|csv]\n"
    "                          [--keep-going] [--quiet | --progress] [FILE]\n"
    "\n"
    "Store the plants of FILE, or of standard input, with the checks of the\n"
    "interface.  FILE has JSON lines, a plant a line as a client sends it, or\n"
    "CSV with the header line id,name,tag (or id,name), in UTF-8; there an\n"
    "empty field without quotes is no value.  Blank lines are passed over, "
    "and\n"
    "so is a byte order mark at the start of CSV.  The service may go on\n"
    "meanwhile.  To import a file again is safe, also after an interruption:\n"
    "what is there already is passed over.\n"
    "\n"
    "Every line that is refused, or whose id has another plant already, is\n"
    "told on stderr.  The first such line ends the import: what came before "
    "it\n"
    "is stored, and of what follows a conflict up to the line that is told.\n"
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
 * One append to the journal takes 4 MiB: with more, a batch would be several,
 * each with its own sync.  Ids in no order change a page of the index each,
 * which is held in memory until the commit: 5,000 plants are some 25 MiB.
 */
#define BATCH_BYTES ((size_t)4 << 20)
#define BATCH_PLANTS 5000

struct batch {
	size_t n;
	size_t bytes; /* of the journal, at most */
	struct plant plants[BATCH_PLANTS];
	struct store_item items[BATCH_PLANTS];
	uint64_t lines[BATCH_PLANTS]; /* their numbers */
};

struct import {
	const char *by;
	enum import_format format;
	bool keep_going;
	struct import_input *input;
	struct store *store;
	struct batch *batch;
	uint64_t created, same, conflicting, refused;
	bool stopped; /* by a signal */
	int status;   /* why it cannot go on, or EX_OK */
};

static void
say_line(const struct import *import, uint64_t number, const char *why)
{
	log_error("%s: line %" PRIu64 ": %s", import_input_name(import->input),
	    number, why);
}

/* Say why nothing is stored from line `number` on. */
static void
end_unstored(struct import *import, uint64_t number, enum store_result result)
{
	const char *why, *remedy;

	import->status = EX_TEMPFAIL;
	if (result == STORE_FULL) {
		why = "the store is full";
		remedy = "make room, and";
	} else if (result == STORE_BUSY) {
		why = "the store is busy";
		remedy = "a little later";
	} else {
		import->status = EX_IOERR;
		why = "the store has failed, and may have it or not";
		remedy = "when the store is mended,";
	}
	log_error("%s: line %" PRIu64 ": %s; every line before it is done; %s "
		  "import the file again: what is stored is passed over",
	    import_input_name(import->input), number, why, remedy);
}

static void
commit_batch(struct import *import)
{
	struct batch *batch = import->batch;
	const struct store_item *unstored = NULL;

	if (batch->n == 0)
		return;
	int failed = store_commit(import->store, batch->items, batch->n);
	for (size_t i = 0; i < batch->n; i++) {
		const struct store_item *item = &batch->items[i];

		switch (item->result) {
		case STORE_CREATED:
			import->created++;
			break;
		case STORE_SAME:
			import->same++;
			break;
		case STORE_CONFLICT:
			import->conflicting++;
			say_line(import, batch->lines[i],
			    errors_message(HTTP_CONFLICT));
			break;
		default:
			unstored = unstored == NULL ? item : unstored;
		}
		plant_done(&batch->plants[i]);
	}
	if (unstored != NULL)
		end_unstored(import, batch->lines[unstored - batch->items],
		    unstored->result);
	else if (failed != 0)
		import->status = EX_IOERR;
	batch->n = 0;
	batch->bytes = 0;
}

static void
add_to_batch(struct import *import, const struct import_line *line)
{
	struct batch *batch = import->batch;
	size_t bytes = RECORD_ENVELOPE_MAX + line->plant.len;

	if (batch->n == BATCH_PLANTS || batch->bytes + bytes > BATCH_BYTES)
		commit_batch(import);
	batch->plants[batch->n] = line->plant;
	batch->items[batch->n] =
	    (struct store_item){ .plant = &batch->plants[batch->n],
		    .by = import->by };
	batch->lines[batch->n] = line->number;
	batch->bytes += bytes;
	batch->n++;
}

static bool
goes_on(const struct import *import)
{
	return import->status == EX_OK &&
	       (import->keep_going ||
		   import->refused + import->conflicting == 0);
}

static void
import_lines(struct import *import, const struct watch *watch)
{
	enum import_result result = IMPORT_PLANT;
	struct import_line line;

	while (goes_on(import) &&
	       (result == IMPORT_PLANT || result == IMPORT_REFUSED)) {
		result = import_input_next(import->input, watch, &line);
		if (result == IMPORT_PLANT)
			add_to_batch(import, &line);
		if (result == IMPORT_REFUSED) {
			import->refused++;
			say_line(import, line.number, line.why);
		}
	}
	import->stopped = result == IMPORT_STOPPED;
	if (import->status == EX_OK)
		commit_batch(import);
	if (import->status == EX_OK && result == IMPORT_FAILED)
		import->status = import_input_status(import->input);
}

/* Drop what a failure left uncommitted. */
static void
drop_batch(struct batch *batch)
{
	for (size_t i = 0; i < batch->n; i++)
		plant_done(&batch->plants[i]);
	free(batch);
}

/* What has been done, and what to do about the rest. */
static int
report(const struct import *import)
{
	const char *name = import_input_name(import->input);
	uint64_t lines = import_input_lines(import->input);

	printf("%" PRIu64 " created, %" PRIu64 " there already, %" PRIu64
	       " conflicting, %" PRIu64 " refused; read up to line %" PRIu64
	       "\n",
	    import->created, import->same, import->conflicting, import->refused,
	    lines);
	if (import->status != EX_OK)
		return import->status;
	if (import->stopped) {
		log_error("%s: interrupted; every line up to %" PRIu64
			  " is done; import the file again to go on",
		    name, lines);
		return 128 + command_interrupted();
	}
	if (import->refused + import->conflicting == 0)
		return EX_OK;
	if (!import->keep_going)
		log_error("%s: stopped; every other line up to %" PRIu64
			  " is stored; correct the file, or use --keep-going, "
			  "and import it again",
		    name, lines);
	return EX_DATAERR;
}

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
	import->batch = calloc(1, sizeof(*import->batch));
	if (import->batch == NULL) {
		log_error("import: out of memory; nothing was imported");
		return EX_TEMPFAIL;
	}
	/* A limit on files must not end us: errno says it. */
	signal(SIGXFSZ, SIG_IGN);
	import->store = open_store(command, &status);
	if (import->store != NULL) {
		struct watch watch = command_watch(command, "import");

		import_lines(import, &watch);
		command_unwatch();
		store_close(import->store);
		status = report(import);
	}
	drop_batch(import->batch);
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
read_options(
    struct import *import, struct command *command, int argc, char **argv)
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
		} else if (read_format(optarg, &import->format) < 0)
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
	struct config config;
	char error[512];
	int status;

	if (read_options(&import, &command, argc, argv) < 0)
		return command.status;
	status = command_dir(&command);
	if (status != EX_OK)
		return status;
	if (config_read(&config, error, sizeof(error)) < 0) {
		log_error("%s", error);
		return EX_CONFIG;
	}
	import.input = import_input_open(
	    argv[optind], import.format, config.body_bytes_max, &status);
	if (import.input == NULL)
		return status;
	status = run(&import, &command);
	import_input_close(import.input);
	return status;
}
