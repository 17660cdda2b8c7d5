/*
 * files: the open journal and index of a store, read up to a position.
 *
 * A journal is never created here: a directory without a store may be the mount
 * point of a file system that is not mounted, and an empty store would accept
 * ids that are already stored.
 *
 * Returned faults are logged, unless stated otherwise.  Threads: the caller has
 * locked the mutex, and then the journal, except where stated otherwise.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "store/index.h"
#include "store/journal.h"
#include "store/store.h"

/* Commits are refused at this many plants, which use 12 to 24 MiB. */
#define FILES_HELD_MAX ((size_t)512 << 10)

struct files {
	const char *dir;
	bool long_lived;           /* see struct store_options */
	const struct watch *watch; /* NULL once the store is open */
	int64_t deadline_ms;       /* for locks while it is opened */
	bool open;                 /* set by the caller: it is open */
	atomic_bool stop;          /* set by the caller: it is being closed */
	pthread_mutex_t mutex;     /* protects all that follows */
	atomic_bool failed;        /* nothing more is acknowledged */
	bool settled;              /* the journal's end was settled once */
	struct journal journal;
	struct index *index;
	struct position at; /* the journal is read up to here */
};

/*
 * files_init(files, options), files_done(files):
 * Start with nothing open.  Close what is open.  No lock is needed.
 *
 * files_open_and_lock(files):
 * Open the journal and the index, read to the end, and lock the journal.  Call
 * it with the mutex unlocked.  FAULT_FULL if FILES_HELD_MAX plants are held and
 * the index cannot be written; both are open, and files_catch_up reads on.
 *
 * files_catch_up(files):
 * Check that the journal's path still names it, and read what others have
 * appended; files->at is then the journal's end.  FAULT_BUSY, not logged, if a
 * service must first write its memtable to the index.
 *
 * files_checkpoint(files, merge_max):
 * Use the runs that other processes have written, and raise files->at to the
 * position they cover.  Write the memtable as a run, merged up to `merge_max`
 * plants (index_write).  Call it without locks: it locks the mutex.  The index
 * stays claimed until index_release, even after a fault.  FAULT_BUSY, not
 * logged, if another process has claimed it.  After damage files->failed is
 * set, and the next start rebuilds the index.
 */
void files_init(struct files *files, const struct store_options *options);
void files_done(struct files *files);
enum fault files_open_and_lock(struct files *files);
enum fault files_catch_up(struct files *files);
enum fault files_checkpoint(struct files *files, uint64_t merge_max);
