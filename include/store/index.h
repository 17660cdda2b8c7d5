/*
 * index: maps a plant's id to the offset of its record.  Derived from the
 * journal: it may be deleted at any time, and is built again from the journal.
 *
 * The rule: a file of the index never changes once it has a meaning.
 *
 *	A run, `index/run-N`, has the ids of some plants, sorted, with their
 *	offsets.  The manifest, `index/manifest`, names the runs, and the
 *	position up to which they cover the journal.  Both are written under
 *	new names and synced.  Only then is the manifest renamed to its name,
 *	and the directory synced.  So what a manifest names is on the disk:
 *	after a kill, a failed write-back or a power cut at any moment there is
 *	the manifest from before, or the new one.
 *
 *	The runs have only plants that are durable in the journal.
 *
 * The plants after the covered position are in the memory of each process,
 * which reads them from the journal.  A checkpoint writes them as a new run.
 * The new run takes in the runs before it that are at most MERGE_FACTOR times
 * as large, so that a lookup meets few runs.  The first record of an id counts:
 * runs are searched from the oldest on, memory last.
 *
 * One process at a time makes checkpoints: it has the lock of `index/lock`.  If
 * the lock's file was removed, two may, and each installs only its own
 * manifest.  A process can still read runs that are removed while it has them
 * open.
 *
 * A checkpoint that fails (a full disk, an I/O error) costs nothing: its plants
 * stay in memory, and the next one writes new files.  This is logged once.
 *
 * Threads: one at a time, but for the functions that say otherwise.
 */
#pragma once

#include <stddef.h>

#include "ground/pairs.h"
#include "ground/watch.h"
#include "store/journal.h"
#include "store/store.h"

struct index;

/* The result of index_open.  `covered` and `entries` are zero if unusable. */
struct index_view {
	enum index_state state;
	struct index *index;     /* NULL unless the state is INDEX_USABLE */
	struct position covered; /* the runs have all plants before this */
	uint64_t entries;        /* plants in the runs */
};

/*
 * index_open(journal, view):
 * Open the index in the journal's directory, with nothing in memory.  The
 * journal must stay open.  FAULT_SETUP if it is of another store, or the
 * system's fault; both logged.
 *
 * index_new(journal):
 * Make an index that covers nothing and has no files yet: the first checkpoint
 * replaces those that are there.  NULL with ENOMEM.
 *
 * index_close(index):
 * Close it, and forget what is in memory.  NULL is fine.
 *
 * index_uuid(dir, uuid):
 * Read the uuid of the store from an index that is not open: 0, or -1 if there
 * is no index.
 *
 * index_discard(dir):
 * Remove the files of the index.
 */
enum fault index_open(struct journal *journal, struct index_view *view);
struct index *index_new(struct journal *journal);
void index_close(struct index *index);
int index_uuid(int dir, char uuid[static RECORD_UUID_LEN]);
void index_discard(int dir);

/*
 * index_find(index, id):
 * Return the offset of the first record of the plant; 0 if there is none.
 *
 * index_add(index, id, offset):
 * Keep the plant in memory; its offset is above all others.  A repeated id is
 * logged and left out.  Return 0, or -1 with ENOMEM.
 *
 * index_held(index), index_keep(index, n):
 * The number of plants in memory.  Forget all but the first n of them.
 *
 * index_count(index), index_covered(index):
 * The number of plants; the position that the runs cover.
 *
 * index_damaged(index):
 * The index contradicts the journal: remove it.  Return FAULT_FAILED, logged.
 */
uint64_t index_find(const struct index *index, int64_t id);
int index_add(struct index *index, int64_t id, uint64_t offset);
size_t index_held(const struct index *index);
void index_keep(struct index *index, size_t n);
uint64_t index_count(const struct index *index);
const struct position *index_covered(const struct index *index);
enum fault index_damaged(struct index *index);

/*
 * A checkpoint, in this order.  The functions that are marked (*) may run
 * beside index_find, index_add and index_keep in other threads.
 *
 * index_claim(index) (*):
 * Lock the index against other checkpoints, if that is not done.  FAULT_BUSY,
 * not logged: another process has the lock.
 *
 * index_collect(index, at):
 * Use what another process has written meanwhile; it may cover more than the
 * caller's position `at`, which is raised then.  Copy what is in memory: all
 * plants up to `at`, which are durable.  FAULT_MEMORY.
 *
 * index_write(index, max, watch) (*):
 * Write what was collected as a run, which takes in the newest runs that are
 * due, up to `max` plants; and the manifest.  If another file took the place of
 * the manifest, or none, write everything.  `watch` is called for each 4 MiB.
 *
 * index_install(index):
 * Use what was written; what it covers leaves the memory.
 *
 * index_release(index) (*):
 * Remove the runs that are left over, and unlock the index.
 */
enum fault index_claim(struct index *index);
enum fault index_collect(struct index *index, struct position *at);
enum fault index_write(
    struct index *index, uint64_t max, const struct watch *watch);
void index_install(struct index *index);
void index_release(struct index *index);

/*
 * index_twins(pairs, name):
 * Log the records of the journal `name` that repeat an earlier record's id, the
 * first ten with both offsets.  Return their number.
 */
size_t index_twins(const struct pairs *pairs, const char *name);
