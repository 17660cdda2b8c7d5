/*
 * inspect: the state of a store, and single plants of it, while others write.
 * Never changes the store; its lock is held for moments.
 */
#ifndef STORE_INSPECT_H
#define STORE_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ground/watch.h"
#include "pure/record.h"

struct inspect;

/*
 * inspect_open(dir, watch, status):
 * Look at the store in the directory `dir`, which must stay; a backup is one.
 * `watch` may be NULL and is copied.  NULL if it cannot be read: `status` is a
 * value of sysexits.h, the reason is logged.
 */
struct inspect *inspect_open(
    const char *dir, const struct watch *watch, int *status);

enum inspect_index {
	INSPECT_CURRENT,   /* it has every plant */
	INSPECT_BEHIND,    /* plants follow on what it has: entered soon */
	INSPECT_MISSING,   /* the next start of the service makes it */
	INSPECT_FOREIGN,   /* not of this journal, or from before a crash of the
			      machine: the next start builds it anew */
	INSPECT_UNREADABLE /* damaged, or it cannot be opened */
};

struct inspect_report {
	bool failed; /* a sync failed: the next start recovers the store */
	enum inspect_index index;
	uint64_t index_end;   /* it has read the journal up to here, or 0 */
	uint64_t index_bytes; /* on the disk */
	uint64_t kept_files;  /* kept beside the journal after a crash or a */
	uint64_t kept_bytes;  /* failed sync: .torn-* and .failed-* */
};

/*
 * inspect_report(inspect, report):
 * EX_OK, or a status, logged.
 */
int inspect_report(struct inspect *inspect, struct inspect_report *report);

/*
 * inspect_end(inspect):
 * Read the journal from where the index ends, from its beginning if there is
 * none of this journal: whether the next start would refuse its end.  EX_OK;
 * EX_TEMPFAIL if the watch ended it; else a status, logged.
 */
int inspect_end(struct inspect *inspect);

/*
 * inspect_find(inspect, ids, offsets, n):
 * Give the offset of each id's record, 0 where no plant has it: through the
 * index, and by reading the journal from where the index ends.  EX_OK; else a
 * status, logged, and an offset of 0 says nothing.  Stopped by the watch
 * is EX_TEMPFAIL.
 */
int inspect_find(
    struct inspect *inspect, const int64_t *ids, uint64_t *offsets, size_t n);

/*
 * inspect_read(inspect, offset, record):
 * Read the record at an offset that inspect_find gave.  It points into
 * `inspect` until the next call.  EX_OK, or a status, logged.
 */
int inspect_read(
    struct inspect *inspect, uint64_t offset, struct record *record);

/*
 * inspect_uuid(inspect), inspect_journal(inspect):
 * The store's uuid, RECORD_UUID_LEN characters without a NUL; the path of its
 * journal.
 */
const char *inspect_uuid(const struct inspect *inspect);
const char *inspect_journal(const struct inspect *inspect);

/*
 * inspect_close(inspect):
 * NULL is fine.
 */
void inspect_close(struct inspect *inspect);

#endif
