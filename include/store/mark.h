/*
 * mark: the end marks of a journal.
 *
 * An end mark is an offset up to which the journal is durable: a shorter
 * journal has lost pages.  A mark is overwritten in place, within one sector;
 * every version of it is correct.
 *
 * JOURNAL_END_NAME is written durably after a closing line.  index/end is
 * written after each batch, without a sync.  It has the position after the last
 * line, so other processes need not settle that line.  It contains its own
 * inode and birth time, and is ignored in a copy of the store: the files of a
 * copy may be from different moments.
 *
 * Call the functions that write under the lock.  Returned faults are logged.
 */
#pragma once

#include "store/journal.h"

/*
 * mark_write(journal, at), mark_read(journal, at):
 * Write the durable position `at` to index/end; a failure, as before the first
 * checkpoint creates the directory, does no harm.  Read the mark, all zero if
 * there is none, and raise journal->durable to it.
 *
 * mark_write_end(journal), mark_read_end(journal):
 * Write journal->durable to JOURNAL_END_NAME, durably.  Raise it to that mark
 * if the mark exists and can be read.  FAULT_SETUP if the mark belongs to
 * another store, or is not a regular file.
 *
 * mark_find_durable(journal, seen):
 * Check the later of `seen` and the mark in index/end with journal_check_seen;
 * set journal->durable to the latest of `seen` and both marks, or to 0.  No
 * lock is needed.
 */
void mark_write(struct journal *journal, const struct position *at);
void mark_read(struct journal *journal, struct position *at);
enum fault mark_write_end(struct journal *journal);
enum fault mark_read_end(struct journal *journal);
enum fault mark_find_durable(
    struct journal *journal, const struct position *seen);
