/*
 * recover: what can still be read of a damaged journal, as a new store.
 */
#ifndef STORE_RECOVER_H
#define STORE_RECOVER_H

#include <stdint.h>

#include "ground/fault.h"
#include "ground/watch.h"
#include "pure/record.h"

/* Beside the new journal: the later records of ids that stand twice. */
#define RECOVER_LATER_NAME "plants.jsonl.later"

struct recover_options {
	const char *from; /* a store's directory, or a journal file */
	const char *dest; /* a directory; made if there is none */
	const char *uuid; /* of the damaged store, or NULL: see below */
	struct watch watch;
	/* Called for each range of bytes [begin, end) that is lost, and why. */
	void (*lost)(
	    void *context, uint64_t begin, uint64_t end, const char *reason);
	void *context;
};

struct recover_report {
	char from[RECORD_UUID_LEN + 1];  /* the damaged store's uuid */
	char store[RECORD_UUID_LEN + 1]; /* the new one's */
	uint64_t plants;                 /* in the new store */
	uint64_t later;                  /* in RECOVER_LATER_NAME */
	uint64_t bytes;                  /* of the damaged file */
	uint64_t lost_bytes;
	uint64_t lost_ranges;
};

/*
 * recover_store(options, report):
 * Put every plant of the damaged journal whose record is valid by itself into a
 * new store in `dest`, in their order, with the time and the token's name that
 * they had.  Of records with the same id the first is taken; the later ones go,
 * as they stood, to the file RECOVER_LATER_NAME.  The source is only read, and
 * without the lock; the service should be stopped.
 *
 * The new store has a uuid of its own: it is another history, and no backup of
 * the old one may be continued with it.  The old one's uuid, which seeds the
 * checksums, is options->uuid, or in the header, or in the index beside it.
 *
 * FAULT_NONE whether something was lost or not, see `report`; or a fault,
 * logged, FAULT_STOPPED by the watch: then `dest` has no store.
 */
enum fault recover_store(
    const struct recover_options *options, struct recover_report *report);

#endif
