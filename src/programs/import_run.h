/*
 * import_run: plants from an input into a store, in large batches; what is
 * counted meanwhile, and what is said at the end.  What stands in the input is
 * import_input's, what is durable the store's.
 */
#ifndef PROGRAMS_IMPORT_RUN_H
#define PROGRAMS_IMPORT_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "import_input.h"
#include "store/store.h"

struct import_batch;

/* To begin, all is zero but the first four. */
struct import {
	const char *by;
	bool keep_going;
	struct import_input *input; /* the caller's, as the store */
	struct store *store;
	struct import_batch *batch;
	uint64_t created, same, conflicting, refused;
	bool stopped; /* by a signal */
	int status;   /* why it cannot go on, or EX_OK */
};

/*
 * import_run_lines(import, watch):
 * Store the plants up to the end of the input, or to what ends it earlier:
 * logged, and in `import`.
 */
void import_run_lines(struct import *import, const struct watch *watch);

/*
 * import_run_report(import):
 * Print what has been done, and say what to do about the rest.  The command's
 * exit status.
 */
int import_run_report(const struct import *import);

#endif
