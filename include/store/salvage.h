/*
 * salvage: what can still be read of a damaged journal, as a new store.
 */
#ifndef STORE_SALVAGE_H
#define STORE_SALVAGE_H

#include <stdint.h>

#include "ground/watch.h"
#include "pure/record.h"

#define SALVAGE_STOPPED (-1)

struct salvage_options {
	const char *from; /* a store's directory, or a journal file */
	const char *dest; /* a directory; made if there is none */
	const char *uuid; /* of the damaged store, or NULL: see below */
	struct watch watch;
	/*
	 * Gets a line for everything that is not in the new store:
	 *
	 *	BEGIN-END (N bytes): why         bytes that could not be read
	 *	BEGIN-END (N bytes): why; lines 3 to 5 are missing
	 *	the plant ID at byte OFFSET differs from that at byte OFFSET
	 */
	void (*tell)(void *context, const char *line);
	void *context;
};

struct salvage_report {
	char from[RECORD_UUID_LEN + 1];  /* the damaged store's uuid */
	char store[RECORD_UUID_LEN + 1]; /* the new one's */
	uint64_t plants;                 /* in the new store */
	uint64_t bytes;                  /* of the damaged file */
	uint64_t lost_bytes;             /* that could not be read */
	uint64_t lost_places;
	uint64_t differing; /* plants left out, since their id is taken */
	uint64_t doubled;   /* left out, since they are there already */
};

/*
 * salvage_store(options, report):
 * Put every plant of the damaged journal whose record is readable
 * (salvage_scan.h) into a new store in `dest`, in their order, with the time
 * and the token's name that they had.  The source is opened for reading only
 * and without the lock.  Of records with the same id the first is taken.
 *
 * The new store has a uuid of its own, and its lines numbers, watermarks and
 * checksums: what is lost may have been anywhere, so it is another history, and
 * no backup of the old one may ever be continued with it.
 *
 * The checksums are seeded with the damaged store's uuid.  It is taken from
 * options->uuid, the header, or the file `lock` beside the journal.  An index
 * there that can be read tells which lines are missing at the end.
 *
 * Return 0 if something could be lost or not, see `report`; a status of
 * sysexits.h, logged; SALVAGE_STOPPED if the watch ended it.  Unless it is 0,
 * `dest` has no store.
 */
int salvage_store(
    const struct salvage_options *options, struct salvage_report *report);

#endif
