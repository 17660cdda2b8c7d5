/*
 * maintain: what an operator does with a store's journal while others write:
 * check it, copy it, and save what a damaged one still has.  Its files are only
 * read.
 */
#ifndef READER_MAINTAIN_H
#define READER_MAINTAIN_H

#include <stdint.h>

#include "store/store.h"

/* What has been read so far; after the last plant, the whole. */
struct reader_report {
	char store[RECORD_UUID_LEN + 1]; /* its uuid */
	uint64_t plants;
	uint64_t bytes;      /* up to the last line read */
	uint64_t seq;        /* of that line */
	uint64_t last_plant; /* its offset; 0 if there is none */
	uint64_t watermark;  /* of that line: `safe` */
};

/*
 * check_journal(path, watch, index):
 * Find the state of the index, and read the lines behind it.  A fault, logged,
 * if the next start would refuse the journal or the index.
 */
enum fault check_journal(
    const char *path, const struct watch *watch, enum index_state *index);

struct verify_report {
	struct reader_report journal; /* what was read */
	enum index_state index;       /* no damage, whatever it is */
};

/*
 * verify_store(path, watch, report):
 * Check every line of the journal in the directory `path`, or of the journal
 * file `path`: checksum, form, chain and order, and that no id stands twice.
 * Then compare the index, if there is one, with what was stored when this
 * began.  The ids are in a file without a name in /var/tmp, 16 bytes each; the
 * lock is held for some milliseconds at a time.  `watch` may be NULL.
 *
 * FAULT_DAMAGED, logged: the offset of the first line that does not hold and
 * why, the ids that stand twice, or the first plant that the index does not
 * have in its place.  A torn tail is logged, and no damage.  `report` is set on
 * FAULT_NONE, and report->journal on FAULT_STOPPED.
 */
enum fault verify_store(
    const char *path, const struct watch *watch, struct verify_report *report);

struct copy_report {
	struct reader_report copy;
	uint64_t added; /* bytes that DEST did not have */
};

/*
 * copy_backup(from, dest, watch, report):
 * Copy the journal in the directory `from`, or the journal file `from`, to the
 * directory `dest`, which is made if there is none: every plant that was
 * acknowledged before the call, each line checked before it is copied, synced
 * before this returns.  The copy is written beside an earlier one of the
 * same store and then takes its name, so that a hard link to the earlier one
 * keeps its bytes.  `dest` is then a store that can be served.
 *
 * FAULT_OUTPUT: `dest` has a copy of another store, or one that is no part of
 * this one, or was served, or it cannot be written.  FAULT_SETUP: `dest` or its
 * plants.jsonl belongs to another user than root and the caller, or the latter
 * is no file or is the journal itself.  After a fault, also FAULT_STOPPED by
 * the watch, which may be NULL, `dest` has what it had before.
 */
enum fault copy_backup(const char *from, const char *dest,
    const struct watch *watch, struct copy_report *report);

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
