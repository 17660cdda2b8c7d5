/*
 * import_run: see import_run.h.
 *
 * Happy path: lines are read into a batch until it is as large as one write to
 * the journal, the batch is committed, and so on to the end of the file.  An
 * id makes a plant's creation repeatable, so whatever ends an import early,
 * to run it again is safe, and everything read up to the last commit is stored.
 */
#include "import_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "command.h"
#include "ground/log.h"
#include "http/errors.h"
#include "pure/record.h"

/*
 * One append to the journal takes 4 MiB: with more, a batch would be several,
 * each with its own sync.  Ids in no order change a page of the index each, held
 * in memory until the commit: 5,000 plants are some 25 MiB.
 */
#define BATCH_BYTES ((size_t)4 << 20)
#define BATCH_PLANTS 5000

struct import_batch {
	size_t n;
	size_t bytes; /* of the journal, at most */
	struct plant plants[BATCH_PLANTS];
	struct store_item items[BATCH_PLANTS];
	uint64_t lines[BATCH_PLANTS]; /* their numbers */
};

static void
say_line(const struct import *import, uint64_t number, const char *why)
{
	log_error("%s: line %" PRIu64 ": %s", import_input_name(import->input),
	    number, why);
}

static void
say_conflict(const struct import *import, size_t i)
{
	const struct import_batch *batch = import->batch;
	char why[256];

	snprintf(why, sizeof(why), "error %d: id %" PRId64 ": %s",
	    errors_number(HTTP_CONFLICT), batch->plants[i].id,
	    errors_message(HTTP_CONFLICT));
	say_line(import, batch->lines[i], why);
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
	struct import_batch *batch = import->batch;
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
			say_conflict(import, i);
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
	struct import_batch *batch = import->batch;
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

/* Drop what a failure left uncommitted. */
static void
drop_batch(struct import_batch *batch)
{
	for (size_t i = 0; i < batch->n; i++)
		plant_done(&batch->plants[i]);
	free(batch);
}

static bool
goes_on(const struct import *import)
{
	return import->status == EX_OK &&
	       (import->keep_going ||
		   import->refused + import->conflicting == 0);
}

void
import_run_lines(struct import *import, const struct watch *watch)
{
	enum import_result result = IMPORT_PLANT;
	struct import_line line;

	import->batch = calloc(1, sizeof(*import->batch));
	if (import->batch == NULL) {
		log_error("import: out of memory; nothing was imported");
		import->status = EX_TEMPFAIL;
		return;
	}

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
	drop_batch(import->batch);
}

int
import_run_report(const struct import *import)
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
