/*
 * get_command: stored plants by their ids, in the order asked.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "ground/log.h"
#include "output.h"

#define STATUS_MISSING 1

static const char usage[] =
    "Usage: plant-store get [--dir DIR] [--full] [--quiet | --progress] ID...\n"
    "\n"
    "Print the plants with these ids as JSON, a line each, in the order "
    "asked.\n"
    "Exit status 1 if no plant has one of them, which is named on stderr.\n"
    "\n"
    "  ID              a whole number; options go before one below 0\n"
    "  --full          also when it was stored, and by which token\n";

static bool
read_id(const char *text, int64_t *id)
{
	const char *digits = text + (text[0] == '-');
	size_t n = strspn(digits, "0123456789");

	errno = 0;
	*id = strtoll(text, NULL, 10);
	return n > 0 && digits[n] == '\0' && errno == 0;
}

/*
 * Put the plants that there are, up to a fault of the search or of the output,
 * which is returned; a damaged plant is passed over, and its fault returned.
 */
static enum fault
answer(const struct call *call, struct store_reader *reader, bool *missing)
{
	static struct output output;
	enum fault fault = output_open(&output, NULL, false);
	enum fault damage = FAULT_NONE;
	struct record record;
	int64_t id;

	for (int i = 0; i < call->operands_n && fault == FAULT_NONE; i++) {
		read_id(call->operands[i], &id);
		fault = store_reader_find(reader, id, &record);
		/* The search is over: what is to come is short. */
		command_unwatch();
		if (fault == FAULT_NONE) {
			fault = output_put_plant(
			    &output, &record, call->values['f'] != NULL);
			if (fault != FAULT_NONE)
				return fault;
		}
		if (fault == FAULT_ABSENT) {
			log_error("get: %" PRId64 ": no plant has this id", id);
			*missing = true;
		}
		if (fault == FAULT_DAMAGED)
			damage = fault;
		if (fault == FAULT_ABSENT || fault == FAULT_DAMAGED)
			fault = FAULT_NONE;
	}
	enum fault written =
	    fault != FAULT_STOPPED ? output_finish(&output) : FAULT_NONE;
	return fault != FAULT_NONE     ? fault
	       : written != FAULT_NONE ? written
				       : damage;
}

static int
run(const struct call *call)
{
	bool missing = false;
	enum fault fault;
	int64_t id;

	for (int i = 0; i < call->operands_n; i++)
		if (!read_id(call->operands[i], &id))
			return command_usage_error(
			    call, "not an id: %s", call->operands[i]);
	struct watch watch = command_watch(call, "get");
	struct store_reader *reader = command_open(call, &watch, NULL, &fault);

	if (reader != NULL)
		fault = answer(call, reader, &missing);
	command_unwatch();
	store_reader_close(reader);
	return fault == FAULT_NONE && missing ? STATUS_MISSING
					      : command_fault(fault);
}

const struct command get_command = {
	.name = "get",
	.summary = "print plants by their ids",
	.usage = usage,
	.options = { { "full", no_argument, NULL, 'f' }, COMMAND_STORE },
	.negative_operands = true,
	.operands = { 1, INT_MAX },
	.run = run,
};
