/*
 * mark: the end marks of a journal.
 *
 * An end mark is an offset up to which the journal is durable: a shorter
 * journal has lost pages.  A mark is overwritten in place, within one sector,
 * and each of its versions is true.
 *
 * JOURNAL_END_NAME is written durably after a closing line.  index/end is
 * written after each batch, without a sync.  It has the position after the last
 * line, which other processes then need not settle.  It names its own inode and
 * time of birth, and is ignored in a copy of the store: the files of a copy may
 * be from different moments.
 *
 * Call those that write under the lock.  A returned fault is logged.
 */
#pragma once

#include "store/journal.h"

/*
 * mark_write(journal, at), mark_read(journal, at):
 * Write the durable position `at` to index/end; a failure, such as before the
 * first checkpoint has made the directory, does no harm.  Read it, all zero
 * without a mark, and raise journal->durable to it.
 *
 * mark_write_end(journal), mark_read_end(journal):
 * Write journal->durable to JOURNAL_END_NAME, durably.  Raise it to that mark,
 * if there is one that can be read.  FAULT_SETUP if the mark belongs to another
 * store, or is not a regular file.
 *
 * mark_find_durable(journal, seen):
 * Check the later of `seen` and the mark in index/end as journal_check_seen
 * does, and set journal->durable to the latest of these and JOURNAL_END_NAME,
 * or to 0.  No lock is needed.
 */
void mark_write(struct journal *journal, const struct position *at);
void mark_read(struct journal *journal, struct position *at);
enum fault mark_write_end(struct journal *journal);
enum fault mark_read_end(struct journal *journal);
enum fault mark_find_durable(
    struct journal *journal, const struct position *seen);
