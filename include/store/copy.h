/*
 * copy: a store's journal checked from its first byte to its last, and copied,
 * while others write.  Neither changes the store.
 */
#ifndef STORE_COPY_H
#define STORE_COPY_H

#include <stdint.h>

struct copy_report {
	uint64_t plants; /* in the store, or in the copy */
	uint64_t bytes;  /* of the journal, the room ahead not counted */
	uint64_t added;  /* bytes that the copy did not have before */
	char store[37];  /* its uuid */
};

/*
 * copy_verify(dir, report):
 * Check every line of the journal in `dir`: checksum, form, chain and order.
 * Return 0; a status of sysexits.h, logged, EX_DATAERR if it is damaged, with
 * the offset of the first line that does not hold and why.  What a torn batch
 * left behind the last line is no damage: it is logged.
 */
int copy_verify(const char *dir, struct copy_report *report);

/*
 * copy_backup(dir, dest, report):
 * Copy the journal in `dir` to the directory `dest`, which is made if there is
 * none: every plant that was acknowledged before the call, each line checked on
 * its way, synced before this returns.  If `dest` has an earlier copy of the
 * same store, that is checked and the rest is added.  `dest` is then a store
 * that can be served; a copy of another store, or one that holds more, is
 * refused.  Return 0, or a status of sysexits.h, logged; then `dest` is as
 * before, or holds an earlier state whole.
 */
int copy_backup(const char *dir, const char *dest, struct copy_report *report);

#endif
