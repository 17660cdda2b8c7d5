/*
 * export_command: all plants of a store, as JSON lines or as CSV.
 */
#include <assert.h>
#include <inttypes.h>
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
    "  --format jsonl  a plant's JSON on each line (the default)\n"
    "  --format csv    RFC 4180: id,name,tag; a U+0000 is warned of\n"
    "  --full          with the time and the token's name, for import --full\n"
    "  --since TIME    only what was stored at that time or later:\n"
    "                  2027-01-31T12:00:00Z, or 2027-01-31 (midnight UTC)\n"
    "  --by NAME       only what was stored with the token of that name\n"
    "  -o, --output FILE  which is there only when it is complete\n"
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
	char at[TIMESTAMP_LEN + 1];    /* of the last plant read */
	uint64_t plants;               /* put out */
	uint64_t nuls;                 /* of these, have a U+0000 */
	int64_t nul_id;                /* the first of them */
	struct output output;
	char text[RECORD_LINE_MAX];          /* a plant's string */
	char field[2 * RECORD_LINE_MAX + 3]; /* the same for CSV */
};

/*
 * Put the CSV of a plant.  Its text is what a checked record holds, so it is
 * canonical.  No tag is an empty field, an empty string "" in quotes.
 */
static enum fault
put_csv(struct export *export, const struct record *record)
{
	static const size_t begins[] = { LENGTH(NAME_BEGIN),
		LENGTH(TAG_BEGIN) };
	const char *end = record->plant + record->plant_len;
	const char *id = record->plant + LENGTH(ID_BEGIN);
	const char *at = memchr(id, ',', (size_t)(end - id));
	bool nul = false;
	assert(at != NULL);
	enum fault fault = output_put(&export->output, id, (size_t)(at - id));

	for (size_t i = 0; i < 2 && fault == FAULT_NONE; i++) {
		size_t n = 0;

		export->field[0] = ',';
		if (*at == ',') {
			at += begins[i];
			size_t len =
			    json_canonical_string(at, (size_t)(end - at));
			assert(len > 0);
			n = json_string_decode(at, len, export->text);
			at += len;
			nul = nul || memchr(export->text, '\0', n) != NULL;
			n = csv_field_print(export->text, n, export->field + 1);
		}
		fault = output_put(&export->output, export->field, n + 1);
	}
	if (nul && export->nuls++ == 0)
		export->nul_id = record->id;
	return fault == FAULT_NONE ? output_put(&export->output, "\r\n", 2)
				   : fault;
}

static enum fault
put_plant(void *context, const struct record *record)
{
	struct export *export = context;

	memcpy(export->at, record->at, TIMESTAMP_LEN);
	if (export->by != NULL &&
	    (strlen(export->by) != record->by_len ||
		memcmp(export->by, record->by, record->by_len) != 0))
		return FAULT_NONE;
	export->plants++;
	if (export->format == FORMAT_CSV)
		return put_csv(export, record);
	return output_put_plant(&export->output, record, export->full);
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
		log_info("exported %" PRIu64 " plants, up to %s%s%s",
		    export->plants, where, export->at[0] != '\0' ? ", " : "",
		    export->at);
	if (fault == FAULT_NONE && export->nuls > 0)
		log_warning("export: %" PRIu64 " plants have a U+0000 (the "
			    "first: %" PRId64 "), where other programs may "
			    "cut the value off; they are exact in --format "
			    "jsonl",
		    export->nuls, export->nul_id);
	if (fault == FAULT_STOPPED)
		log_error("export: stopped after %" PRIu64 " plants; %s %s",
		    export->plants, path != NULL ? path : "stdout",
		    path != NULL ? "was not made" : "is incomplete");
	return fault;
}

static int
run(const struct call *call)
{
	static struct export export;
	const char *path = call->values['o'];
	const char *since = call->values['s'];
	int64_t since_ms;
	int status = command_format(call, path, &export.format);

	if (status == EX_OK)
		status = command_by(call, &export.by);
	if (status != EX_OK)
		return status;
	if (since != NULL && !command_time(since, &since_ms))
		return command_usage_error(call,
		    "--since: not a time: %s; say 2027-01-31 or "
		    "2027-01-31T12:00:00Z",
		    since);
	if (since != NULL)
		timestamp_print(since_ms, export.since);
	if (call->values['F'] != NULL && path == NULL)
		return command_usage_error(call, "--force is for -o FILE");
	export.full = call->values['u'] != NULL;
	if (export.full && export.format == FORMAT_CSV)
		return command_usage_error(
		    call, "--full is a form of JSON lines, not of CSV");
	return command_fault(put_all(&export, call));
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
	    { "file", required_argument, NULL, 'j' }, COMMAND_STORE },
	.dir_alias = 'j',
	.run = run,
};
