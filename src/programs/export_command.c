/*
 * export_command: all plants of a store, as JSON lines or as CSV.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "command.h"
#include "ground/log.h"
#include "output.h"
#include "pure/csv.h"
#include "pure/json_string.h"
#include "pure/timestamp.h"

static const char usage[] =
    "Usage: plant-store export [--dir DIR | --file JOURNAL] [--format FORMAT]\n"
    "           [--since TIME] [--by NAME] [-o FILE [--force]]\n"
    "           [--full] [--quiet | --progress]\n"
    "\n"
    "Write the plants of a store in the order in which they were stored, as\n"
    "they are at one moment, which is named on stderr.\n"
    "\n"
    "  --format jsonl  a plant's JSON on each line (the default,\n"
    "                  unless FILE ends in .csv)\n"
    "  --format csv    RFC 4180: id,name,tag.  No tag is an empty field, an\n"
    "                  empty string is \"\".  A U+0000 is warned of.\n"
    "  --full          {\"at\":TIME,\"by\":NAME,\"plant\":{...}} on each "
    "line:\n"
    "                  when it was stored, by which token, and what; for\n"
    "                  import --full\n"
    "  --since TIME    only what was stored at that time or later:\n"
    "                  2027-01-31T12:00:00Z, or 2027-01-31 (midnight UTC)\n"
    "  --by NAME       only what was stored with the token of that name\n"
    "  -o, --output FILE\n"
    "                  write to FILE, which is there only when it is complete\n"
    "  --force         replace FILE if it is there; a journal never is\n"
    "  --file JOURNAL  read this journal, which nobody may be writing\n";

/* What stands around the strings of a plant's canonical JSON. */
#define ID_BEGIN "{\"id\":"
#define NAME_BEGIN ",\"name\":"
#define TAG_BEGIN ",\"tag\":"
#define LENGTH(literal) (sizeof(literal) - 1)

struct export
{
	enum format format;
	bool full;
	const char *by;                /* NULL: any */
	char since[TIMESTAMP_LEN + 1]; /* zeros: any */
	char at[TIMESTAMP_LEN];        /* of the last plant read */
	uint64_t plants;               /* put out */
	uint64_t nuls;                 /* of these, have a U+0000 */
	int64_t nul_id;                /* the first of them */
	struct output output;
	char text[RECORD_LINE_MAX];          /* a plant's string */
	char field[2 * RECORD_LINE_MAX + 3]; /* the same for CSV */
};

/*
 * Put the field of the string at `*token`, which ends before `end`, behind a
 * comma, and move `*token` behind the string.
 */
static enum fault
put_field(struct export *export, const char **token, const char *end, bool *nul)
{
	size_t len = json_canonical_string(*token, (size_t)(end - *token));
	assert(len > 0);
	size_t n = json_string_decode(*token, len, export->text);

	*token += len;
	*nul = *nul || memchr(export->text, '\0', n) != NULL;
	export->field[0] = ',';
	n = csv_field_print(export->text, n, export->field + 1);
	return output_put(&export->output, export->field, n + 1);
}

/*
 * Put the CSV of a plant.  Its text is what a checked record holds, so it is
 * canonical.  No tag is an empty field, an empty string "" in quotes.
 */
static enum fault
put_csv(struct export *export, const struct record *record)
{
	const char *end = record->plant + record->plant_len;
	const char *id = record->plant + LENGTH(ID_BEGIN);
	const char *at = memchr(id, ',', (size_t)(end - id));
	bool nul = false;
	assert(at != NULL);
	enum fault fault = output_put(&export->output, id, (size_t)(at - id));

	at += LENGTH(NAME_BEGIN);
	if (fault == FAULT_NONE)
		fault = put_field(export, &at, end, &nul);
	if (fault == FAULT_NONE && *at == ',') {
		at += LENGTH(TAG_BEGIN);
		fault = put_field(export, &at, end, &nul);
	} else if (fault == FAULT_NONE)
		fault = output_put(&export->output, ",", 1);
	if (nul && export->nuls++ == 0)
		export->nul_id = record->id;
	return fault == FAULT_NONE ? output_put(&export->output, "\r\n", 2)
				   : fault;
}

static bool
is_wanted(const struct export *export, const struct record *record)
{
	return export->by == NULL ||
	       (strlen(export->by) == record->by_len &&
		   memcmp(export->by, record->by, record->by_len) == 0);
}

static enum fault
put_plant(void *context, const struct record *record)
{
	struct export *export = context;
	enum fault fault;

	memcpy(export->at, record->at, TIMESTAMP_LEN);
	if (!is_wanted(export, record))
		return FAULT_NONE;
	export->plants++;
	if (export->format == FORMAT_CSV)
		return put_csv(export, record);
	if (export->full)
		return output_put_full(&export->output, record);
	fault = output_put(&export->output, record->plant, record->plant_len);
	return fault == FAULT_NONE ? output_put(&export->output, "\n", 1)
				   : fault;
}

static void
log_end(const struct export *export, const char *where)
{
	log_info("exported %" PRIu64 " plants, up to %s%s%.*s", export->plants,
	    where, export->at[0] != '\0' ? ", " : "",
	    export->at[0] != '\0' ? TIMESTAMP_LEN : 0, export->at);
	if (export->nuls > 0)
		log_warning("export: %" PRIu64 " plants have a U+0000 (the "
			    "first: %" PRId64 "), where other programs may "
			    "cut the value off; they are exact in --format "
			    "jsonl",
		    export->nuls, export->nul_id);
}

static enum fault
put_all(struct export *export, const struct call *call)
{
	static const char header[] = "id,name,tag\r\n";
	const char *path = call->values['o'];
	struct watch watch = command_watch(call, "export");
	const char *since = export->since[0] != '\0' ? export->since : NULL;
	struct store_reader *reader = NULL;
	char where[STORE_WHERE_MAX];
	enum fault fault =
	    output_open(&export->output, path, call->values['F'] != NULL);

	if (fault == FAULT_NONE && export->format == FORMAT_CSV)
		fault = output_put(&export->output, header, LENGTH(header));
	if (fault == FAULT_NONE)
		reader = command_open(call, &watch, since, &fault);
	if (reader != NULL)
		fault = command_each_plant(reader, put_plant, export, where);
	store_reader_close(reader);
	if (fault == FAULT_NONE)
		fault = output_finish(&export->output);
	output_close(&export->output);
	command_unwatch();
	if (fault == FAULT_NONE)
		log_end(export, where);
	if (fault == FAULT_STOPPED)
		log_error("export: stopped after %" PRIu64 " plants; %s %s",
		    export->plants, path != NULL ? path : "stdout",
		    path != NULL ? "was not made" : "is incomplete");
	return fault;
}

/* A time or a date, as the text that journals have. */
static int
read_since(const struct call *call, char *since)
{
	const char *text = call->values['s'];
	int64_t ms;

	if (text == NULL)
		return EX_OK;
	if (!command_time(text, &ms))
		return command_usage_error(call,
		    "--since: not a time: %s; say 2027-01-31 or "
		    "2027-01-31T12:00:00Z",
		    text);
	timestamp_print(ms, since);
	return EX_OK;
}

static int
run(const struct call *call)
{
	struct export *export = calloc(1, sizeof(*export));
	int status;

	if (export == NULL)
		return command_fault(fault_report("export", "cannot begin"));
	status = command_format(call, call->values['o'], &export->format);
	if (status == EX_OK)
		status = command_by(call, &export->by);
	if (status == EX_OK)
		status = read_since(call, export->since);
	if (status == EX_OK && call->values['F'] != NULL &&
	    call->values['o'] == NULL)
		status = command_usage_error(call, "--force is for -o FILE");
	export->full = call->values['u'] != NULL;
	if (status == EX_OK && export->full && export->format == FORMAT_CSV)
		status = command_usage_error(
		    call, "--full is a form of JSON lines, not of CSV");
	if (status == EX_OK)
		status = command_fault(put_all(export, call));
	free(export);
	return status;
}

const struct command export_command = {
	.name = "export",
	.summary = "write all plants, as JSON lines or CSV",
	.usage = usage,
	.letters = ":ho:",
	.options = { { "output", required_argument, NULL, 'o' },
	    { "format", required_argument, NULL, 'f' },
	    { "since", required_argument, NULL, 's' },
	    { "by", required_argument, NULL, 'b' },
	    { "force", no_argument, NULL, 'F' },
	    { "full", no_argument, NULL, 'u' },
	    { "file", required_argument, NULL, 'j' }, COMMAND_DIR,
	    COMMAND_PROGRESS, COMMAND_HELP },
	.dir_alias = 'j',
	.run = run,
};
