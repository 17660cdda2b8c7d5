/*
 * lock: who may use the store, and the mark of a store that has failed.
 *
 * One file, `lock`, in the store's directory: a field of 8 bytes, "ok" or
 * "failed" padded with spaces, then the store's uuid and a newline.  The lock
 * itself is an open file description lock: it goes with its process, and a
 * child forked later does not share it, since the file is O_CLOEXEC and opened
 * after the fork.
 *
 * The mark is what tells the other processes of a failed sync, which the
 * kernel reports to one of them only.
 */
#ifndef STORE_LOCK_H
#define STORE_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "pure/record.h"

struct lock {
	int dir; /* the store's directory; the caller's */
	int fd;
	ino_t inode;
	bool make; /* a missing one is made */
};

/*
 * lock_file(fd, deadline_ms), lock_unlock_file(fd):
 * The same kind of lock on any file that is open for writing: the journal, which
 * whoever writes into it locks too, so that they are alone also when somebody
 * removes the lock file.  Results as of lock_acquire.
 *
 * lock_file_shared(fd, deadline_ms):
 * The same for whoever only reads it, from a file that is open for no more: all
 * of these at once, and nobody who writes.
 */
int lock_file(int fd, int64_t deadline_ms);
int lock_file_shared(int fd, int64_t deadline_ms);
void lock_unlock_file(int fd);

/*
 * lock_open(lock, dir):
 * Open the lock file in the directory `dir`, make it if there is none.
 * Return 0, or -1 with errno; nothing is logged.
 *
 * lock_open_present(lock, dir):
 * The same for one that is there; it is never made, by lock_acquire neither.
 */
int lock_open(struct lock *lock, int dir);
int lock_open_present(struct lock *lock, int dir);

/*
 * lock_acquire(lock, deadline_ms):
 * Take the lock, trying at least once and until that time of CLOCK_MONOTONIC.
 * A lock file that has been removed or replaced meanwhile is opened anew.
 * Return 0; -1 with errno, ETIMEDOUT if others hold it, ENOENT if it is gone.  Not for two threads
 * at once.
 */
int lock_acquire(struct lock *lock, int64_t deadline_ms);

/*
 * lock_release(lock):
 * Give it back.
 */
void lock_release(struct lock *lock);

/*
 * lock_both(lock, fd, deadline_ms):
 * Take the lock, and then that of the file `fd` as lock_file does, within one
 * deadline.  Return 0; -1 with errno, and neither is held.  lock_unlock_file
 * and lock_release give them back.
 *
 * lock_both_shared(lock, fd, deadline_ms):
 * The same, the file's as lock_file_shared does.
 */
int lock_both(struct lock *lock, int fd, int64_t deadline_ms);
int lock_both_shared(struct lock *lock, int fd, int64_t deadline_ms);

enum lock_mark {
	LOCK_NEW, /* no store has been made here yet */
	LOCK_OK,
	LOCK_FAILED, /* a sync failed: nobody may write into this journal */
	LOCK_UNREADABLE
};

/*
 * lock_mark(lock, uuid), lock_set_mark(lock, mark, uuid, sync):
 * Read and write the mark, holding the lock.  `uuid` may be NULL for
 * lock_mark.  With `sync`, return 0 only when it is on the disk; else -1 with
 * errno.  Where the lock file has been removed or replaced since it was locked,
 * the one that others use is marked too.
 */
enum lock_mark lock_mark(const struct lock *lock, char uuid[RECORD_UUID_LEN]);
int lock_set_mark(const struct lock *lock, enum lock_mark mark,
    const char uuid[static RECORD_UUID_LEN], bool sync);

/*
 * lock_close(lock):
 * Close the file, which gives the lock back.
 */
void lock_close(struct lock *lock);

#endif
