/*
 * journal: the append-only file of records, plants.jsonl, with its lock and its
 * durable end.  record.h defines the lines; replay.h distinguishes a torn tail
 * from damage.
 *
 * The lock is an open file description lock on the journal itself: it ends with
 * the process, and programs that the process executes do not inherit it.
 * "Under the lock" means that journal_lock has succeeded and journal_check has
 * found the file in place.  A terminal cannot stop the programs
 * (fault_ignore_signals): a stopped process would keep the lock.
 *
 * After a failed write or sync the page cache may contain bytes that are not on
 * the disk.  Linux reports the error once per open file description, so each
 * process that has the journal open gets the error from its next sync, and
 * exits.  A process that opens the journal, or finds lines after the known
 * durable end, reads the bytes after that end from the disk (journal_settle).
 *
 * The file may end in blank lines, which reserve space for later records: a
 * sync of a file that has grown costs the file system an extra write.
 *
 * A returned fault is logged, unless stated otherwise.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ground/fault.h"
#include "ground/file.h"
#include "store/replay.h"

#define JOURNAL_NAME "plants.jsonl"
#define JOURNAL_NEW_NAME JOURNAL_NAME ".new"
#define JOURNAL_END_NAME JOURNAL_NAME ".end"
/* The directory of the index, and in it the mark of the last batch. */
#define INDEX_NAME "index"
#define INDEX_END_NAME "end"
/* Version 1.0.0 gave a journal this name after a failed sync. */
#define JOURNAL_FAILED_NAME JOURNAL_NAME ".failed"

/* How long to wait for the lock. */
#define JOURNAL_LOCK_TIMEOUT_MS 5000

struct journal {
	const char *path; /* the directory, or the journal file itself */
	int dir;          /* -1 if `path` is a file */
	int fd;           /* -1 if none is open */
	int end_fd;       /* index/end; -1 until it is written */
	char *name;
	char end_file[FILE_ID_LEN + 1]; /* its identity, from file_identify */
	dev_t device;
	ino_t inode;
	uint64_t size; /* of the file, when last checked */
	char uuid[RECORD_UUID_LEN];
	uint32_t seed;
	struct position start; /* the first line after the header */
	uint64_t durable;      /* durable end: synced at least up to here */
	uint64_t recorded;     /* by the end mark: the journal's least size */
	size_t room;           /* reserved ahead: 0 or JOURNAL_ROOM_BYTES */
	enum fault passing;    /* the last fault that passes by itself */
	bool locked;           /* holds the lock on the file or directory */
	char *line;            /* the buffer of journal_read */
	size_t line_len;       /* of the line that it read last */
};

/* A journal that is not open: journal_close does nothing. */
#define JOURNAL_NONE ((struct journal){ .dir = -1, .fd = -1, .end_fd = -1 })

/*
 * journal_open(journal, path, write):
 * Open the journal in the directory `path` and check its header; without
 * `write`, `path` may also be a journal file.  The string `path` must outlive
 * the journal.  FAULT_NONE with an `fd` of -1 if the directory has no journal
 * or, with `write`, does not exist.  FAULT_SETUP if the journal is not a
 * regular file or has another version, FAULT_DAMAGED if its header is damaged,
 * or the fault of errno.
 *
 * journal_close(journal):
 * Close the file and its directory.  Also call it after a failed journal_open.
 *
 * journal_exists(journal, name):
 * Return whether the journal's directory has, or may have, a file `name`.
 */
enum fault journal_open(struct journal *journal, const char *path, bool write);
void journal_close(struct journal *journal);
bool journal_exists(const struct journal *journal, const char *name);

/*
 * All but journal_is_news log a fault, with its remedy, and return it.
 *
 * journal_damaged(journal, offset, reason):
 * The journal is damaged at `offset`.  If `reason` is NULL, lines are missing.
 *
 * journal_unreadable(journal, offset, error):
 * The bytes from `offset` on cannot be read.
 *
 * journal_unwritten(journal, name, error):
 * The file `name` in the directory cannot be written; logged if it is news.
 *
 * journal_is_news(journal, fault):
 * Return whether to log the fault.  A fault that passes by itself is news only
 * once, until a different one occurs or journal->passing is reset.
 *
 * journal_finish(journal, replay, known, tail_end):
 * Call replay_finish for a journal that is known to be durable up to `known`,
 * and has at least journal->recorded bytes.  A torn tail is not a fault.
 */
enum fault journal_damaged(
    const struct journal *journal, uint64_t offset, const char *reason);
enum fault journal_unreadable(
    const struct journal *journal, uint64_t offset, int error);
enum fault journal_unwritten(
    struct journal *journal, const char *name, int error);
bool journal_is_news(struct journal *journal, enum fault fault);
enum fault journal_finish(const struct journal *journal, struct replay *replay,
    uint64_t known, uint64_t *tail_end);

/*
 * journal_lock(journal, lock, deadline_ms), journal_unlock(journal):
 * Lock the file exclusively, or shared to read it; or lock the directory, until
 * journal_close.  Try at least once, and until `deadline_ms` (CLOCK_MONOTONIC).
 * FAULT_BUSY, not logged if `deadline_ms` is 0: another process holds the lock.
 * A file system without lock support cannot hold a served store, so
 * JOURNAL_SHARED succeeds there.  journal_unlock without a lock does nothing.
 *
 * journal_back_off(pause_ns):
 * Sleep between two attempts.  `*pause_ns` is 0 at first, and then doubles.
 */
enum journal_lock { JOURNAL_EXCLUSIVE, JOURNAL_SHARED, JOURNAL_DIR };
enum fault journal_lock(
    struct journal *journal, enum journal_lock lock, int64_t deadline_ms);
void journal_unlock(struct journal *journal);
void journal_back_off(long *pause_ns);

/*
 * journal_check(journal, end):
 * Check that the journal's path still names this file, and update
 * journal->size.  Return NULL; or the reason why the file cannot be used, such
 * as a size below `end`, as static English.  Without the lock, the size may
 * already be outdated.
 *
 * journal_read(journal, offset, record):
 * Read the record whose line begins at `offset`.  `record` points into
 * journal->line until the next call.  FAULT_DAMAGED, not logged, if no valid
 * line begins there.
 *
 * journal_match(journal, at):
 * Return FAULT_DAMAGED, not logged, unless the line before the position `at`
 * has the position's seq, crc and end.
 *
 * journal_has_text(journal, offset):
 * Return whether the byte at `offset` is not blank, or cannot be read.
 *
 * journal_check_seen(journal, seen):
 * `seen` is the last position of an index or a reader, or all zero.
 * FAULT_DAMAGED if the journal is shorter, or has different lines there.
 */
const char *journal_check(struct journal *journal, uint64_t end);
enum fault journal_read(
    struct journal *journal, uint64_t offset, struct record *record);
enum fault journal_match(struct journal *journal, const struct position *at);
bool journal_has_text(const struct journal *journal, uint64_t offset);
enum fault journal_check_seen(
    struct journal *journal, const struct position *seen);

/*
 * Call these under the lock.  After FAULT_FAILED the bytes on the disk after
 * journal->durable are unknown, and the process must exit.
 *
 * journal_append(journal, end, buf, len):
 * Write the `len` bytes at `buf`, at most JOURNAL_APPEND_MAX, at the offset
 * `end`.  If the file must grow, add journal->room blank lines, for which `buf`
 * has room after the `len` bytes.  The bytes are durable after journal_sync.
 * After a fault other than FAULT_FAILED the file is cut back to `end`.
 *
 * journal_sync(journal):
 * Make all written bytes durable.
 *
 * journal_settle(journal, end):
 * Make the next read of the bytes from journal->durable to `end` come from the
 * disk: sync them, drop their pages from the page cache, and check that all are
 * gone.  The valid lines read after that are durable; the rest is a torn tail.
 * Readers also call it: it changes no byte.  It needs no lock for bytes that no
 * process writes any more.  FAULT_BUSY while another program holds a page;
 * FAULT_SETUP if the system cannot drop pages.
 */
enum fault journal_append(
    struct journal *journal, uint64_t end, char *buf, size_t len);
enum fault journal_sync(const struct journal *journal);
enum fault journal_settle(const struct journal *journal, uint64_t end);

/*
 * journal_claim(journal, path):
 * Open the directory of a new store, create it if it is absent, and lock it
 * until journal_close.  FAULT_SETUP if it holds a store or a part of one.
 *
 * journal_make(home):
 * Create a journal with a new uuid in the claimed directory.  After a fault
 * there is no journal, and no process can have stored a plant in one.
 *
 * journal_new(home, fd), journal_place(home, fd, name), journal_drop(home, fd):
 * Create JOURNAL_NEW_NAME in the locked directory of `home`.  journal_place
 * makes it durable, renames it to `name`, replacing an earlier file, and closes
 * it.  journal_drop, or a failed journal_place, closes and removes it.
 *
 * journal_cut_tail(journal, end, tail_end):
 * Make a durable copy of the torn tail [end, tail_end) beside the journal,
 * JOURNAL_NAME.torn-END, replacing an earlier copy from that offset.  Then cut
 * off the tail durably, and log the cut.
 */
enum fault journal_claim(struct journal *journal, const char *path);
enum fault journal_make(struct journal *home);
enum fault journal_new(struct journal *home, int *fd);
enum fault journal_place(struct journal *home, int fd, const char *name);
void journal_drop(const struct journal *home, int fd);
enum fault journal_cut_tail(
    struct journal *journal, uint64_t end, uint64_t tail_end);
