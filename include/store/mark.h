/*
 * mark: a journal's end mark, and the mark of its last batch.
 *
 * Each is an offset up to which the journal was durable: a shorter journal has
 * lost pages.  It is overwritten in place, within one sector; every version of
 * it is correct.
 *
 * The end mark, JOURNAL_END_NAME, is written durably after a closing line.
 * Copies of the store also have it, although their journal may not be on the
 * disk.
 *
 * The mark, index/end, is written after each batch, without a sync.  It has the
 * position after the last line, so other processes need not settle that line,
 * and its own inode and birth time, so it is ignored in a copy of the store:
 * the files of a copy may be from different moments.
 *
 * Call the writing functions under the lock.  Returned faults are logged.
 */
#pragma once

#include "store/journal.h"

/*
 * mark_write(journal, at), mark_read(journal):
 * Write the durable position `at` to index/end.  A failure does no harm; it is
 * normal until the first checkpoint creates the directory.  Return the mark's
 * position, all zero if there is none, and raise journal->durable to its end.
 *
 * mark_write_end(journal), mark_read_end(journal):
 * Write journal->durable to JOURNAL_END_NAME, durably.  Read that mark into
 * journal->recorded if it exists and can be read.  FAULT_SETUP if it belongs to
 * another store, or is not a regular file.
 *
 * mark_find_durable(journal, seen):
 * Check the later of `seen` and the mark in index/end with journal_check_seen;
 * set journal->durable to that position, or to 0, and journal->recorded to the
 * end mark.  No lock is needed.
 */
void mark_write(struct journal *journal, const struct position *at);
struct position mark_read(struct journal *journal);
enum fault mark_write_end(struct journal *journal);
enum fault mark_read_end(struct journal *journal);
enum fault mark_find_durable(
    struct journal *journal, const struct position *seen);
