/*
 * journal: the append-only file of records, plants.jsonl: its bytes, its lock,
 * and what is durable of it.  The lines are record.h's, and replay.h judges a
 * damaged end.
 *
 * The lock is an open file description lock on the journal itself: it goes with
 * its process, and a child forked later does not share it, since the file is
 * O_CLOEXEC.  "Under the lock" means that journal_lock has been called and
 * journal_check has found the file in place.  A lock that is held puts off the
 * signals by which a terminal stops a process, which would hold it up to then.
 *
 * After a failed write or sync the page cache may show bytes that the disk does
 * not have.  Linux reports it once to each open file, so a process that has the
 * journal open meets it at its own next sync, and ends.  An opening, and a
 * process that finds lines behind the known durable end, reads them from the
 * disk: journal_settle.
 *
 * The end mark: the file JOURNAL_END_NAME has an offset up to which the journal
 * is durable: the end of the last closing line, or of what was synced when a
 * damaged index was removed.  A journal that ends before it has lost pages.
 * The mark is overwritten in place, within one sector.
 *
 * The file may end in blank lines: room written ahead, so that a later sync
 * need not grow the file, which costs the file system a write of its own.
 */
#ifndef STORE_JOURNAL_H
#define STORE_JOURNAL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ground/watch.h"
#include "store/replay.h"
#include "ground/fault.h"

#define JOURNAL_NAME "plants.jsonl"
#define JOURNAL_NEW_NAME JOURNAL_NAME ".new"
#define JOURNAL_END_NAME JOURNAL_NAME ".end"
/* What version 1.0.0 renamed a journal to, one sync of which had failed. */
#define JOURNAL_FAILED_NAME JOURNAL_NAME ".failed"

/* How long to wait for the lock. */
#define JOURNAL_LOCK_TIMEOUT_MS 5000

struct journal {
	int dir; /* the directory it is in; -1 for a file that was named */
	int fd;  /* -1: none is open */
	char *name;
	dev_t device;
	ino_t inode;
	uint64_t size; /* of the file, as last seen */
	char uuid[RECORD_UUID_LEN];
	uint32_t seed;
	struct position start; /* behind the header */
	bool locked;           /* and before that, */
	sigset_t unlocked;     /* the thread's blocked signals */
	char *line;            /* of journal_read */
};

/* A journal that is not open: journal_close does nothing. */
#define JOURNAL_NONE ((struct journal){ .dir = -1, .fd = -1 })

/*
 * journal_open(journal, path, write):
 * Open the journal in the directory `path`, or without `write` also a journal
 * that is named itself, and check its header.  FAULT_ABSENT with ENOENT, not
 * logged, if there is no such directory, or if the directory, which then is
 * open, has none.  FAULT_SETUP for another version, FAULT_DAMAGED for its
 * header, or the system's.
 *
 * journal_close(journal):
 * Close the file and its directory: after each journal_open.  errno stays.
 *
 * journal_exists(journal, name):
 * Whether its directory has a file of that name; true where that is unknown,
 * false where there is no directory.
 */
enum fault journal_open(struct journal *journal, const char *path, bool write);
void journal_close(struct journal *journal);
bool journal_exists(const struct journal *journal, const char *name);

/*
 * journal_damaged(journal, offset, reason):
 * Log, with the remedy, that it is damaged there, `reason` NULL for lines that
 * are missing.  FAULT_DAMAGED.
 *
 * journal_unreadable(journal, offset):
 * Log, with errno, that the bytes from `offset` on cannot be read.  The fault.
 *
 * journal_finish(journal, replay, known, tail_end):
 * replay_finish for a journal whose lines were durable up to `known`: a fault,
 * logged, if it is damaged or cannot be read.  A torn tail is none.
 */
enum fault journal_damaged(
    const struct journal *journal, uint64_t offset, const char *reason);
enum fault journal_unreadable(const struct journal *journal, uint64_t offset);
enum fault journal_finish(const struct journal *journal, struct replay *replay,
    uint64_t known, uint64_t *tail_end);

/*
 * journal_lock(journal, write, deadline_ms):
 * Lock the file against all other processes or, to read, against those that
 * write.  Tries at least once, and until that time of CLOCK_MONOTONIC.  0; -1
 * with errno, ETIMEDOUT if others hold it.  The same thread gives it back, of
 * several the last one first.
 *
 * journal_lock_dir(journal, deadline_ms):
 * Lock its directory until journal_close, in the same way.
 *
 * journal_back_off(pause_ns):
 * Sleep between two tries for the lock: longer each time, from `*pause_ns` 0
 * on.
 */
int journal_lock(struct journal *journal, bool write, int64_t deadline_ms);
void journal_unlock(struct journal *journal);
int journal_lock_dir(struct journal *journal, int64_t deadline_ms);
void journal_back_off(long *pause_ns);

/*
 * journal_check(journal, end):
 * Check, with the lock, that the journal's name still means this file, and read
 * its size.  NULL, or static English for what has happened to it: also if it is
 * shorter than `end`.
 *
 * journal_read(journal, offset, record):
 * Read the record whose line begins at `offset`; it points into the journal
 * until the next call.  0; -1 with errno, EBADMSG if no valid line begins
 * there.
 *
 * journal_has(journal, at), journal_has_plant(journal, offset, id):
 * Whether it has the line that `at` follows from, in its place; a record of the
 * plant at `offset`.
 *
 * journal_has_text(journal, offset):
 * Whether a byte is there, or cannot be read, that is not blank room.
 *
 * journal_check_seen(journal, seen):
 * Check that it has what an index or a reader has seen of it, all zero for
 * nothing.  FAULT_DAMAGED, logged, if it is shorter or has diverged.
 */
const char *journal_check(struct journal *journal, uint64_t end);
int journal_read(
    struct journal *journal, uint64_t offset, struct record *record);
bool journal_has(struct journal *journal, const struct position *at);
bool journal_has_plant(struct journal *journal, uint64_t offset, int64_t id);
bool journal_has_text(const struct journal *journal, uint64_t offset);
enum fault journal_check_seen(
    struct journal *journal, const struct position *seen);

/*
 * All of these under the lock:
 *
 * journal_append(journal, end, buf, len, room):
 * Write the `len` bytes at `buf`, at most JOURNAL_APPEND_MAX, at the offset
 * `end`; with `room`, for which `buf` has JOURNAL_ROOM_BYTES more, blank lines
 * behind them where there are none left.  Not durable before journal_sync.  0;
 * -1 with errno, the file cut back to `end`; -2 with errno if that failed too.
 *
 * journal_sync(journal), journal_cut(journal, end):
 * Make all that was written durable; cut off the bytes behind `end`.  0, or -1
 * with errno: then what is on the disk is unknown, and the caller ends with
 * journal_failed.
 *
 * journal_failed(journal, what, end):
 * Log that `what` has failed, with errno, so that the bytes behind `end` may
 * not be on the disk.  FAULT_FAILED.
 *
 * journal_settle(journal, end):
 * Have the bytes behind `end` read from the disk: sync them, drop their pages
 * from the page cache, and check that no page has stayed.  Valid lines that are
 * read there then are durable; the rest is a torn tail.  Readers do it too: it
 * changes no byte.  A fault, logged: FAULT_FAILED of the sync; FAULT_BUSY while
 * another program holds a page.
 *
 * journal_write_end(journal, end), journal_read_end(journal, uuid, end):
 * Write the end mark, durably: 0, or -1 with errno.  Raise `*end` to that of
 * the journal's directory, unless there is none or it is unreadable, which is
 * logged; FAULT_SETUP, logged, if it is not of the store `uuid`.
 */
int journal_append(
    struct journal *journal, uint64_t end, char *buf, size_t len, bool room);
int journal_sync(const struct journal *journal);
int journal_cut(struct journal *journal, uint64_t end);
enum fault journal_failed(
    const struct journal *journal, const char *what, uint64_t end);
enum fault journal_settle(const struct journal *journal, uint64_t end);
int journal_write_end(const struct journal *journal, uint64_t end);
enum fault journal_read_end(
    const struct journal *journal, const char *uuid, uint64_t *end);

/*
 * journal_claim(journal, path):
 * Open the directory for a new store, which is made where it is absent, and
 * lock it until journal_close.  FAULT_SETUP, logged, if it has a store or a
 * part of one.
 *
 * journal_begin(journal, dir):
 * Begin a journal with a new uuid in the directory `dir`, which the caller has
 * locked, under the name JOURNAL_NEW_NAME.  0, or -1 with errno.
 *
 * journal_copy(from, begin, end, journal, dir, watch):
 * The same with the bytes [begin, end) of the journal `from`.  errno is
 * ECANCELED if the watch, which may be NULL, ended it.
 *
 * journal_place(journal, replace):
 * Make it durable, and give it the journal's name; an earlier one is replaced
 * or, without `replace`, EEXIST.  Close it.  0; -1 with errno: it is removed,
 * unless it has replaced one.  Until then nobody can store a plant in it.
 *
 * journal_drop(journal):
 * Close and remove it.  errno stays.
 */
enum fault journal_claim(struct journal *journal, const char *path);
int journal_begin(struct journal *journal, int dir);
int journal_copy(const struct journal *from, uint64_t begin, uint64_t end,
    struct journal *journal, int dir, const struct watch *watch);
int journal_place(struct journal *journal, bool replace);
void journal_drop(struct journal *journal);

#define JOURNAL_KEPT_MAX 64

/*
 * journal_keep(journal, from, to, name):
 * Keep a durable copy of the bytes [from, to) in the directory, and give its
 * name, JOURNAL_NAME.torn-FROM: one for each offset, the latest.  0, or -1 with
 * errno.
 */
int journal_keep(const struct journal *journal, uint64_t from, uint64_t to,
    char name[static JOURNAL_KEPT_MAX]);

#endif
