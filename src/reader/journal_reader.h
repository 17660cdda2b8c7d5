/*
 * journal_reader: the file engine's reader (reader/reader.h).  It checks all
 * lines and their order, in constant memory.
 *
 * It finds the journal's durable end under a shared lock, and then reads up to
 * that end without the lock.  This is a consistent, durable snapshot with every
 * plant that was acknowledged before.  Lines that the index does not cover may
 * never have been synced, so they are read from the disk, not from the page
 * cache.  The search for the end begins where the index ends; without an index
 * it reads every line, under the lock.  A journal that was named as a file is
 * read without a lock, since nobody writes to it.
 *
 * A plant is looked up in the index, and in the lines after those it covers.
 *
 * Failure modes: damage, or the loss of lines that the index covers, stops the
 * reading, and its offset is logged; a torn tail is reported but not read.
 */
#pragma once

#include <stdint.h>

#include "reader/reader.h"
#include "store/index.h"
#include "store/journal.h"

struct store_reader {
	const char *since; /* earliest time, or NULL; owned by the caller */
	struct journal journal;
	struct replay replay;
	const struct watch *watch; /* or NULL; owned by the caller */
	struct position limit;     /* after the last durable line */
	uint64_t torn; /* offset of the torn tail that was logged; 0: none */
	struct reader_report report; /* only `store` and `plants` are set */
	uint64_t watermark;          /* of the last line: its `safe` */
	enum fault fault;
	struct index_view view;
};

/*
 * journal_reader_move(reader, at):
 * Continue at `at`, or at the first line if `at` is all zero.
 */
void journal_reader_move(
    struct store_reader *reader, const struct position *at);
