/*
 * journal: the append-only file of records, plants.jsonl: its bytes, its lock
 * and its durable end.  record.h has the form of its lines, and replay.h judges
 * a damaged end.
 *
 * The lock is an open file description lock on the journal itself: it goes with
 * its process, and a child forked later does not share it, since the file is
 * O_CLOEXEC.  "Under the lock" means that journal_lock has been called and
 * journal_check has found the file in place.  A thread that holds a lock blocks
 * SIGTSTP, SIGTTIN and SIGTTOU: a stopped process would keep it.
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
 *
 * A fault that a function returns is logged, unless its contract says not.
 */
#ifndef STORE_JOURNAL_H
#define STORE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ground/fault.h"
#include "store/replay.h"

#define JOURNAL_NAME "plants.jsonl"
#define JOURNAL_NEW_NAME JOURNAL_NAME ".new"
#define JOURNAL_END_NAME JOURNAL_NAME ".end"
/* What version 1.0.0 renamed a journal to, one sync of which had failed. */
#define JOURNAL_FAILED_NAME JOURNAL_NAME ".failed"

/* How long to wait for the lock. */
#define JOURNAL_LOCK_TIMEOUT_MS 5000

struct journal {
	const char *path; /* its directory, or a file that was named */
	int dir;          /* that directory; -1 for a file that was named */
	int fd;           /* -1: none is open */
	char *name;
	dev_t device;
	ino_t inode;
	uint64_t size; /* of the file, as last seen */
	char uuid[RECORD_UUID_LEN];
	uint32_t seed;
	struct position start; /* behind the header */
	uint64_t durable; /* known synced up to here; see record.h, `safe` */
	size_t room;      /* to write ahead: 0, or JOURNAL_ROOM_BYTES */
	bool full;        /* there was no room, which is logged once */
	bool locked;      /* the file, or the directory */
	char *line;       /* of journal_read */
};

/* A journal that is not open: journal_close does nothing. */
#define JOURNAL_NONE ((struct journal){ .dir = -1, .fd = -1 })

/*
 * journal_open(journal, path, write):
 * Open the journal in the directory `path`, which stays, or without `write`
 * also a journal that is named itself, and check its header.  FAULT_NONE with
 * an `fd` of -1 if the directory has none, or with `write` if there is no such
 * directory.  FAULT_SETUP for another version, FAULT_DAMAGED for its header, or
 * the system's.
 *
 * journal_close(journal):
 * Close the file and its directory: after each journal_open.
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
 * journal_unreadable(journal, offset, error):
 * Log that the bytes from `offset` on cannot be read.  The fault.
 *
 * journal_unwritten(journal, name, error):
 * Log that the file `name` beside it could not be written and is as before:
 * what passes by itself only once, until journal->full is unset.  The fault.
 *
 * journal_finish(journal, replay, known, tail_end):
 * replay_finish for a journal whose lines were durable up to `known`: a fault
 * if it is damaged or cannot be read.  A torn tail is none.
 */
enum fault journal_damaged(
    const struct journal *journal, uint64_t offset, const char *reason);
enum fault journal_unreadable(
    const struct journal *journal, uint64_t offset, int error);
enum fault journal_unwritten(
    struct journal *journal, const char *name, int error);
enum fault journal_finish(const struct journal *journal, struct replay *replay,
    uint64_t known, uint64_t *tail_end);

/*
 * journal_lock(journal, deadline_ms),
 * journal_lock_shared(journal, deadline_ms):
 * Lock the file against all other processes or, to read, against those that
 * write.  Try at least once, and until that time of CLOCK_MONOTONIC.
 * FAULT_BUSY if others hold it, not logged where that time is 0.  Where files
 * cannot be locked, no store is served, and a shared lock has nobody to wait
 * for: FAULT_NONE.  The same thread gives it back.
 *
 * journal_lock_dir(journal, deadline_ms):
 * Lock its directory until journal_close, in the same way.
 *
 * journal_back_off(pause_ns):
 * Sleep between two tries for the lock: longer each time, from `*pause_ns` 0
 * on.
 */
enum fault journal_lock(struct journal *journal, int64_t deadline_ms);
enum fault journal_lock_shared(struct journal *journal, int64_t deadline_ms);
enum fault journal_lock_dir(struct journal *journal, int64_t deadline_ms);
void journal_unlock(struct journal *journal);
void journal_back_off(long *pause_ns);

/*
 * journal_check(journal, end):
 * Check, with the lock, that the journal's name still means this file, and read
 * its size.  NULL, or static English for what has happened to it: also if it is
 * shorter than `end`.
 *
 * journal_read(journal, offset, record):
 * Read the record whose line begins at `offset`; it points into the journal
 * until the next call.  FAULT_DAMAGED, not logged: no valid line begins there.
 *
 * journal_match(journal, at):
 * Check that it has the line that `at` follows from, in its place.
 * FAULT_DAMAGED, not logged, if not.
 *
 * journal_has_plant(journal, offset, id), journal_has_text(journal, offset):
 * Whether a record of the plant is at `offset`; whether a byte is there, or
 * cannot be read, that is not blank room.
 *
 * journal_check_seen(journal, seen):
 * Check that it has what an index or a reader has seen of it, all zero for
 * nothing.  FAULT_DAMAGED if it is shorter or has diverged.
 *
 * journal_find_durable(journal, seen):
 * The same, and set journal->durable to what that and the end mark know, 0 for
 * nothing.  FAULT_SETUP if the end mark is of another store.
 */
const char *journal_check(struct journal *journal, uint64_t end);
enum fault journal_read(
    struct journal *journal, uint64_t offset, struct record *record);
enum fault journal_match(struct journal *journal, const struct position *at);
bool journal_has_plant(struct journal *journal, uint64_t offset, int64_t id);
bool journal_has_text(const struct journal *journal, uint64_t offset);
enum fault journal_check_seen(
    struct journal *journal, const struct position *seen);
enum fault journal_find_durable(
    struct journal *journal, const struct position *seen);

/*
 * All of these under the lock.  After FAULT_FAILED, what is on the disk behind
 * journal->durable is unknown, and the process ends.
 *
 * journal_append(journal, end, buf, len):
 * Write the `len` bytes at `buf`, at most JOURNAL_APPEND_MAX, at the offset
 * `end`, and blank lines behind them if journal->room says so and none are
 * left: `buf` has place for them.  Not durable before journal_sync.  After
 * another fault than FAULT_FAILED the file is cut back to `end`.
 *
 * journal_sync(journal), journal_cut(journal, end):
 * Make all that was written durable; cut off the bytes behind `end`.
 *
 * journal_settle(journal):
 * Have the bytes behind journal->durable read from the disk: sync them, drop
 * their pages from the page cache, and check that no page has stayed.  Valid
 * lines that are read there then are durable; the rest is a torn tail.  Readers
 * do it too: it changes no byte.  FAULT_BUSY while another program holds a
 * page.
 *
 * journal_write_end(journal), journal_read_end(journal):
 * Write journal->durable as the end mark, durably.  Raise it to that of the
 * directory, unless there is none or it is unreadable, which is logged;
 * FAULT_SETUP if that is of another store.
 */
enum fault journal_append(
    struct journal *journal, uint64_t end, char *buf, size_t len);
enum fault journal_sync(const struct journal *journal);
enum fault journal_cut(struct journal *journal, uint64_t end);
enum fault journal_settle(const struct journal *journal);
enum fault journal_write_end(struct journal *journal);
enum fault journal_read_end(struct journal *journal);

/*
 * journal_claim(journal, path):
 * Open the directory for a new store, which is made where it is absent, and
 * lock it until journal_close.  FAULT_SETUP if it has a store or a part of one.
 *
 * journal_make(home):
 * Make a journal with a new uuid in a directory that is claimed.  After a fault
 * there is none, and nobody can have stored a plant in it.
 *
 * journal_new(home, fd), journal_place(home, fd, name):
 * Begin a file in the directory of `home`, which the caller has locked, under
 * the name JOURNAL_NEW_NAME.  Close it, make it durable, and give it a name,
 * also of an earlier one; after a fault it is removed.
 *
 * journal_drop(home, fd):
 * Close and remove it.
 */
enum fault journal_claim(struct journal *journal, const char *path);
enum fault journal_make(struct journal *home);
enum fault journal_new(struct journal *home, int *fd);
enum fault journal_place(struct journal *home, int fd, const char *name);
void journal_drop(const struct journal *home, int fd);

#define JOURNAL_KEPT_MAX 64

/*
 * journal_keep(journal, from, to, name):
 * Keep a durable copy of the bytes [from, to) in the directory, and give its
 * name, JOURNAL_NAME.torn-FROM: one for each offset, the latest.
 */
enum fault journal_keep(struct journal *journal, uint64_t from, uint64_t to,
    char name[static JOURNAL_KEPT_MAX]);

#endif
