/*
 * export_command: all plants of a store, as JSON lines or as CSV.  The plants
 * come from the reader and go to the output; here they are chosen and put into
 * their form.
 */
#include "export_command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "command.h"
#include "ground/log.h"
#include "http/tokens.h"
#include "output.h"
#include "plant_csv.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "store/reader.h"

static const char usage[] =
    "Usage: plant-store export [--dir DIR | --file JOURNAL] [--format FORMAT]\n"
    "           [--since TIME] [--by NAME] [-o FILE [--force]]\n"
    "           [--quiet | --progress]\n"
    "\n"
    "Put out the plants of a store in the order in which they were stored, "
    "each\n"
    "line of the journal checked.  The service may go on meanwhile: what "
    "comes\n"
    "out is the store at one moment, which is told on stderr.\n"
    "\n"
    "  --format jsonl  a plant's JSON on each line (this is the default)\n"
    "  --format csv    RFC 4180: id,name,tag, lines end in CR LF.  No tag is "
    "an\n"
    "                  empty field, an empty string is \"\".  Values are "
    "exact:\n"
    "                  a spreadsheet may take one that begins with = + - or @\n"
    "                  for a formula.  U+0000 is put out as it is and warned\n"
    "                  of, since other programs may cut a value there.\n"
    "  --since TIME    only what was stored at that time or later, by the "
    "clock\n"
    "                  of that moment: 2027-01-31T12:00:00Z\n"
    "  --by NAME       only what was stored with the token of that name\n"
    "  -o, --output FILE\n"
    "                  write to FILE, of mode 0600, which is there only when "
    "it\n"
    "                  is complete and on the disk\n"
    "  --force         replace FILE if it is there\n"
    "  --dir DIR       the store's directory, or that of a backup\n"
    "                  (PLANT_STORE_DIR, or /var/lib/plant-store)\n"
    "  --file JOURNAL  read this journal, which nobody may be writing, such "
    "as\n"
    "                  one that was kept after a failed sync\n"
    "  --progress      show progress even if stderr is no terminal\n"
    "  --quiet         show no progress\n"
    "  --help          show this\n"
    "\n"
    "Exit status 65 if the journal is damaged, 130 after an interrupt; then\n"
    "FILE is not made.\n";

enum {
	OPTION_FORMAT = COMMAND_OWN,
	OPTION_SINCE,
	OPTION_BY,
	OPTION_FORCE,
	OPTION_FILE
};

struct export
{
	const char *source; /* a store's directory, or a journal */
	const char *path;   /* NULL: stdout */
	bool force;
	bool csv;
	const char *by;            /* NULL: any */
	char since[TIMESTAMP_LEN]; /* zeros: any */
	struct output output;
	char *scratch;          /* for a plant's strings */
	char at[TIMESTAMP_LEN]; /* of the last plant read */
	uint64_t nuls;          /* plants that have a U+0000 */
	int64_t nul_id;         /* the first of them */
};

/* Times of one form sort as text. */
static bool
is_wanted(const struct export *export, const struct record *record)
{
	if (memcmp(record->at, export->since, TIMESTAMP_LEN) < 0)
		return false;
	return export->by == NULL ||
	       (strlen(export->by) == record->by_len &&
		   memcmp(export->by, record->by, record->by_len) == 0);
}

static void
note_nul(struct export *export, int64_t id)
{
	if (export->nuls++ == 0)
		export->nul_id = id;
}

/* EX_OK, a status, or -1 if it was stopped. */
static int
put_plant(struct export *export, const struct record *record)
{
	int status = output_room(&export->output);
	char *line = output_end(&export->output);
	size_t len = record->plant_len;
	bool has_nul = false;

	if (status != EX_OK)
		return status;
	if (export->csv)
		len = plant_csv_print(
		    record->plant, len, export->scratch, line, &has_nul);
	else {
		memcpy(line, record->plant, len);
		line[len++] = '\n';
	}
	output_add(&export->output, len);
	if (has_nul)
		note_nul(export, record->id);
	return EX_OK;
}

/* EX_OK at the end; -1 if it was stopped. */
static int
put_all(struct export *export, struct reader *reader)
{
	struct record record;
	int status;

	if (export->csv)
		output_prefix(&export->output, PLANT_CSV_HEADER);
	for (;;) {
		switch (reader_next(reader, &record)) {
		case READER_PLANT:
			memcpy(export->at, record.at, TIMESTAMP_LEN);
			status = is_wanted(export, &record)
				     ? put_plant(export, &record)
				     : EX_OK;
			if (status != EX_OK)
				return status;
			break;
		case READER_END:
			return command_interrupted() == 0 ? EX_OK : -1;
		case READER_STOPPED:
			return -1;
		case READER_FAILED:
			return reader_status(reader);
		}
	}
}

static void
tell_end(const struct export *export, const struct reader *reader)
{
	struct reader_report report;

	reader_report(reader, &report);
	log_info("exported %" PRIu64 " plants, up to seq %" PRIu64
		 " at byte %" PRIu64 "%s%.*s",
	    export->output.written, report.seq, report.bytes,
	    report.plants > 0 ? ", " : "",
	    report.plants > 0 ? TIMESTAMP_LEN : 0, export->at);
	if (export->nuls > 0)
		log_warning("export: %" PRIu64 " plants have a U+0000 (the "
			    "first: %" PRId64 "), where other programs may "
			    "cut the value off; they are exact in --format "
			    "jsonl",
		    export->nuls, export->nul_id);
}

/* The status of an export that a signal stopped. */
static int
tell_stop(const struct export *export)
{
	const struct output *output = &export->output;

	if (export->path != NULL)
		log_error("export: stopped after %" PRIu64
			  " plants; %s was not made",
		    output->items, export->path);
	else
		log_error("export: stopped after %s%" PRIu64
			  " plants; the output is incomplete",
		    output->cut ? "a little more than " : "", output->written);
	return 128 + command_interrupted();
}

static int
export_plants(struct export *export, const struct command *command)
{
	struct watch watch = command_watch(command, "export");
	int status;
	struct reader *reader = reader_open(export->source, &watch, &status);

	if (reader != NULL)
		status = output_open(&export->output, export->path,
		    export->force, PLANT_CSV_MAX(RECORD_LINE_MAX));
	if (status == EX_OK) {
		status = put_all(export, reader);
		if (status == EX_OK)
			status = output_finish(&export->output);
		command_unwatch();
		if (status == EX_OK)
			tell_end(export, reader);
		if (status == -1)
			status = tell_stop(export);
		output_close(&export->output);
	}
	command_unwatch();
	reader_close(reader);
	return status;
}

static int
read_since(
    const struct command *command, const char *text, struct export *export)
{
	char what[192];
	int64_t ms;

	if (timestamp_read(text, strlen(text), &ms) == 0) {
		timestamp_print(ms, export->since);
		return EX_OK;
	}
	snprintf(what, sizeof(what),
	    "--since: not an RFC 3339 time such as 2027-01-31T12:00:00Z: %s",
	    text);
	return command_usage_error(command, what);
}

static int
read_format(
    const struct command *command, const char *text, struct export *export)
{
	char what[128];

	export->csv = strcmp(text, "csv") == 0;
	if (export->csv || strcmp(text, "jsonl") == 0)
		return EX_OK;
	snprintf(what, sizeof(what), "--format: jsonl or csv, not %s", text);
	return command_usage_error(command, what);
}

/* One option of our own, with optarg set. */
static int
take_option(const struct command *command, int option, struct export *export)
{
	switch (option) {
	case 'o':
		export->path = optarg;
		break;
	case OPTION_FORMAT:
		return read_format(command, optarg, export);
	case OPTION_SINCE:
		return read_since(command, optarg, export);
	case OPTION_BY:
		export->by = optarg;
		if (!tokens_is_name(optarg))
			return command_usage_error(
			    command, "--by is 1 to 64 of A-Z a-z 0-9 . _ -");
		break;
	case OPTION_FORCE:
		export->force = true;
		break;
	case OPTION_FILE:
		export->source = optarg;
		break;
	}
	return EX_OK;
}

static int
check_arguments(struct command *command, int operands, struct export *export)
{
	if (operands > 0)
		return command_usage_error(command, "too many arguments");
	if (export->force && export->path == NULL)
		return command_usage_error(command, "--force is for -o FILE");
	if (export->source != NULL && command->dir != NULL)
		return command_usage_error(
		    command, "--dir and --file exclude each other");
	/* A bar between the plants helps nobody. */
	if (export->path == NULL && command->progress == PROGRESS_AUTO &&
	    isatty(STDOUT_FILENO))
		command->progress = PROGRESS_NEVER;
	if (export->source != NULL)
		return EX_OK;
	int status = command_dir(command);
	export->source = command->dir;
	return status;
}

int
export_command_run(int argc, char **argv)
{
	static const struct option options[] = {
		COMMAND_OPTION_HELP,
		COMMAND_OPTION_DIR,
		COMMAND_OPTIONS_PROGRESS,
		{ "output", required_argument, NULL, 'o' },
		{ "format", required_argument, NULL, OPTION_FORMAT },
		{ "since", required_argument, NULL, OPTION_SINCE },
		{ "by", required_argument, NULL, OPTION_BY },
		{ "force", no_argument, NULL, OPTION_FORCE },
		{ "file", required_argument, NULL, OPTION_FILE },
		{ 0 },
	};
	struct command command = { .name = argv[0], .usage = usage };
	struct export export = { 0 };
	int option, status = EX_OK;

	optind = 0;
	while ((option = command_option(&command, argc, argv, options)) >= 0) {
		status = take_option(&command, option, &export);
		if (status != EX_OK)
			return status;
	}
	if (option == -2)
		return command.status;
	status = check_arguments(&command, argc - optind, &export);
	if (status != EX_OK)
		return status;
	export.scratch = malloc(RECORD_LINE_MAX);
	if (export.scratch == NULL) {
		log_error("export: out of memory");
		return EX_TEMPFAIL;
	}
	status = export_plants(&export, &command);
	free(export.scratch);
	return status;
}
