/*
 * get_command: stored plants by their ids.  Where they are is the store's to
 * find (inspect); here are the arguments, the order and the output.
 */
#include "get_command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "command.h"
#include "ground/log.h"
#include "pure/record.h"
#include "store/inspect.h"

#define STATUS_MISSING 1

static const char usage[] =
    "Usage: plant-store get [--dir DIR] [--full] [--quiet | --progress] ID...\n"
    "\n"
    "Print the plants with these ids as JSON, a line each, in the order "
    "asked.\n"
    "An id that no plant has is named on stderr, and the exit status is 1\n"
    "then.  The service may go on meanwhile.  Where the index is missing or\n"
    "behind, the journal is read instead.\n"
    "\n"
    "  ID          a whole number; options go before the first one below 0\n"
    "  --dir DIR   the store's directory, or that of a backup\n"
    "              (PLANT_STORE_DIR, or /var/lib/plant-store)\n"
    "  --full      print the journal's line: also when, and by which token\n"
    "  --progress  show progress even if stderr is no terminal\n"
    "  --quiet     show no progress\n"
    "  --help      show this\n";

struct question {
	size_t n;
	int64_t *ids;
	uint64_t *offsets;
};

/* Whether it looks like an option and is an id: "-5". */
static bool
is_negative(const char *text)
{
	return text[0] == '-' && text[1] >= '0' && text[1] <= '9';
}

/*
 * getopt would take "-5" for an option: a "--" goes before the first such.
 * `end`: argv's new end, for which there is room.
 */
static int
separate_ids(int argc, char **argv, char **separated)
{
	static char separator[] = "--";
	int n = 0;
	bool done = false;

	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], separator) == 0)
			done = true;
		/* What stands behind --dir is its value. */
		if (!done && is_negative(argv[i]) &&
		    strcmp(argv[i - 1], "--dir") != 0) {
			separated[n++] = separator;
			done = true;
		}
		separated[n++] = argv[i];
	}
	separated[n] = NULL;
	return n;
}

static int
read_id(const struct command *command, const char *text, int64_t *id)
{
	const char *digits = text + (text[0] == '-');
	size_t n = strspn(digits, "0123456789");
	char what[128];

	errno = 0;
	*id = strtoll(text, NULL, 10);
	if (n > 0 && digits[n] == '\0' && errno == 0)
		return EX_OK;
	snprintf(what, sizeof(what), "not an id: %s", text);
	return command_usage_error(command, what);
}

static int
read_ids(const struct command *command, char **words, struct question *question)
{
	question->ids = calloc(question->n, sizeof(*question->ids));
	question->offsets = calloc(question->n, sizeof(*question->offsets));
	if (question->ids == NULL || question->offsets == NULL) {
		log_error("get: out of memory for the ids");
		return EX_TEMPFAIL;
	}
	for (size_t i = 0; i < question->n; i++) {
		int status = read_id(command, words[i], &question->ids[i]);

		if (status != EX_OK)
			return status;
	}
	return EX_OK;
}

/* A line is what encoding what it says gives. */
static int
print_line(struct record *record, uint32_t seed)
{
	char *line = malloc(RECORD_ENVELOPE_MAX + record->plant_len);

	if (line == NULL) {
		log_error("get: out of memory");
		return EX_TEMPFAIL;
	}
	fwrite(line, 1, record_encode(record, seed, line), stdout);
	free(line);
	return EX_OK;
}

static int
print_plant(struct inspect *inspect, uint64_t offset, bool full)
{
	struct record record;
	int status = inspect_read(inspect, offset, &record);

	if (status != EX_OK)
		return status;
	if (full)
		return print_line(&record, record_seed(inspect_uuid(inspect)));
	fwrite(record.plant, 1, record.plant_len, stdout);
	putchar('\n');
	return EX_OK;
}

/* `found`: how the search ended; only if well, what lacks is not there. */
static int
answer(struct inspect *inspect, const struct question *question, bool full,
    int found)
{
	int status = found;

	for (size_t i = 0; i < question->n; i++) {
		int printed = EX_OK;

		if (question->offsets[i] != 0)
			printed =
			    print_plant(inspect, question->offsets[i], full);
		else if (found == EX_OK) {
			log_error("get: %" PRId64 ": no plant has this id",
			    question->ids[i]);
			if (status == EX_OK)
				status = STATUS_MISSING;
		}
		if (printed != EX_OK)
			status = printed;
	}
	/* The status may hide it from who looks at stdout later. */
	if (fflush(stdout) != 0 || ferror(stdout)) {
		log_error("stdout: the output is incomplete: %s; check where "
			  "it goes",
		    strerror(errno));
		status = EX_IOERR;
	}
	return status;
}

static int
get(const struct command *command, const struct question *question, bool full)
{
	struct watch watch = command_watch(command, "get");
	int status;
	struct inspect *inspect = inspect_open(command->dir, &watch, &status);

	if (inspect != NULL) {
		status = inspect_find(
		    inspect, question->ids, question->offsets, question->n);
		command_unwatch();
		if (command_interrupted() != 0)
			status = 128 + command_interrupted();
		status = answer(inspect, question, full, status);
	}
	command_unwatch();
	inspect_close(inspect);
	return status;
}

int
get_command_run(int argc, char **argv)
{
	static const struct option options[] = {
		COMMAND_OPTION_HELP,
		COMMAND_OPTION_DIR,
		COMMAND_OPTIONS_PROGRESS,
		{ "full", no_argument, NULL, COMMAND_OWN },
		{ 0 },
	};
	struct command command = { .name = argv[0], .usage = usage };
	struct question question = { 0 };
	char **separated = calloc((size_t)argc + 2, sizeof(*separated));
	bool full = false;
	int option, status;

	if (separated == NULL) {
		log_error("get: out of memory for the ids");
		return EX_TEMPFAIL;
	}
	argc = separate_ids(argc, argv, separated);
	optind = 0;
	while (
	    (option = command_option(&command, argc, separated, options)) >= 0)
		full = true;
	question.n = (size_t)(argc - optind);
	if (option == -2)
		status = command.status;
	else if (question.n == 0)
		status = command_usage_error(&command, "say which ids");
	else
		status = read_ids(&command, separated + optind, &question);
	if (option != -2 && status == EX_OK)
		status = command_dir(&command);
	if (option != -2 && status == EX_OK)
		status = get(&command, &question, full);
	free(question.ids);
	free(question.offsets);
	free(separated);
	return status;
}
