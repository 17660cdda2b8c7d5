/*
 * index: maps a plant's id to the offset of its record.  The index is derived
 * from the journal: it may be deleted at any time, and is then rebuilt.
 *
 * The rule: a run or a manifest never changes once it is in use.
 *
 *	A run, `index/run-N`, holds the sorted ids of some plants, with their
 *	offsets.  The manifest, `index/manifest`, names the runs and the
 *	position up to which they cover the journal.  Both are written under
 *	new names and synced.  Only then is the manifest renamed to its final
 *	name and the directory synced.  So every run that a manifest names is
 *	on the disk.  After a kill, a failed write-back or a power cut at any
 *	moment, either the old manifest or the new one remains.
 *
 *	The runs contain only plants that are durable in the journal.
 *
 * Each process reads the plants after the covered position from the journal
 * into a memtable.  A checkpoint writes them as a new run, and merges it with
 * the preceding runs that are at most MERGE_FACTOR times as large.  A lookup
 * then searches few runs.  The first record of an id counts, so runs are
 * searched from the oldest to the newest, and the memtable last.
 *
 * One process at a time makes checkpoints: the one that has locked the
 * directory.  If the directory is removed, the checkpoint fails.  A process can
 * still read a removed run that it has open.
 *
 * If a checkpoint fails (a full disk, an I/O error), its plants stay in memory,
 * and the next checkpoint writes new files.  The failure is logged once.  A
 * merge first verifies the checksum of each run: it must not copy a flipped bit
 * into a new run.  A lookup does not verify the checksum, which would mean
 * reading the whole run; `verify` looks up every plant.
 *
 * Threads: one at a time, except where stated otherwise.
 */
#pragma once

#include <stddef.h>

#include "ground/pairs.h"
#include "ground/watch.h"
#include "store/journal.h"
#include "store/store.h"

struct index;

/* The result of index_open.  An index that cannot be used is empty. */
struct index_view {
	enum index_state state;
	struct index *index;     /* NULL after a fault */
	struct position covered; /* the runs have all plants before this */
	uint64_t entries;        /* plants in the runs */
};

/*
 * index_open(journal, view):
 * Open the index in the journal's directory, with an empty memtable.  The
 * journal must stay open.  If the index cannot be used, the first checkpoint
 * replaces it.  FAULT_SETUP if the index belongs to another store, or the fault
 * of errno; both are logged.
 *
 * index_close(index):
 * Close the index and free its memory; the journal keeps the memtable's plants.
 * NULL is allowed.
 *
 * index_uuid(dir, uuid):
 * Read the store's uuid from an index that is not open.  Return 0, or -1 if
 * there is no index.
 *
 * index_discard(dir):
 * Remove the files of the index.
 */
enum fault index_open(struct journal *journal, struct index_view *view);
void index_close(struct index *index);
int index_uuid(int dir, char uuid[static RECORD_UUID_LEN]);
void index_discard(int dir);

/*
 * index_find(index, id):
 * Return the offset of the plant's first record; 0 if there is none.
 *
 * index_add(index, id, offset):
 * Add the plant to the memtable; its offset must be greater than all others.  A
 * repeated id is logged and ignored.  Return 0, or -1 with ENOMEM.
 *
 * index_held(index), index_keep(index, n):
 * Return the number of plants in the memtable.  Drop all but the first n.
 *
 * index_count(index), index_covered(index):
 * Return the number of all plants.  Return the position that the runs cover.
 *
 * index_damaged(index):
 * Remove the index, which contradicts the journal or its own checksums.  Return
 * FAULT_DAMAGED, logged.
 */
uint64_t index_find(const struct index *index, int64_t id);
int index_add(struct index *index, int64_t id, uint64_t offset);
size_t index_held(const struct index *index);
void index_keep(struct index *index, size_t n);
uint64_t index_count(const struct index *index);
const struct position *index_covered(const struct index *index);
enum fault index_damaged(struct index *index);

/*
 * The steps of a checkpoint, in this order.  Those marked (*) may run while
 * other threads call index_find, index_add and index_keep.
 *
 * index_claim(index) (*):
 * Lock the index against other checkpoints, unless it is locked already.
 * FAULT_BUSY, not logged: another process holds the lock.
 *
 * index_collect(index, at):
 * Use the runs that another process has written meanwhile; if they cover more
 * than the caller's position `at`, raise `at`.  Copy the memtable's plants up
 * to `at`, which must be durable.  FAULT_MEMORY is logged.
 *
 * index_write(index, max, watch) (*):
 * Write the collected plants as a run, merged with the newest runs that are
 * small enough, up to `max` plants, and write the manifest.  If the manifest
 * was replaced or removed, write all plants.  `watch` is called every 4 MiB.
 * FAULT_DAMAGED if a run is damaged, or the fault of errno.
 *
 * index_install(index):
 * Use the new run, and drop the plants that it covers from the memtable.
 *
 * index_release(index) (*):
 * Remove the runs that are no longer needed, and unlock the index.
 */
enum fault index_claim(struct index *index);
enum fault index_collect(struct index *index, struct position *at);
enum fault index_write(
    struct index *index, uint64_t max, const struct watch *watch);
void index_install(struct index *index);
void index_release(struct index *index);

/*
 * index_twins(pairs, name):
 * Log the records of the journal `name` that repeat the id of an earlier
 * record: the first ten, with both offsets.  Return the number of all.
 */
size_t index_twins(const struct pairs *pairs, const char *name);
