/*
 * journal: the append-only file of records, plants.jsonl.
 *
 * Knows the file and its bytes; what stands in the lines is record.h's, how a
 * damaged end is judged replay.h's, and who may call is lock.h's: every
 * function below but journal_close expects the caller to hold the lock, unless
 * it says otherwise.
 *
 * The file may end in blank lines: room written and synced ahead, so that a
 * later sync need not grow the file, which costs another write of the file
 * system's own journal.
 */
#ifndef STORE_JOURNAL_H
#define STORE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ground/watch.h"
#include "replay.h"

#define JOURNAL_NAME "plants.jsonl"

/* What an operator does about a damaged one. */
#define JOURNAL_REMEDY                                              \
	"restore it from a backup, or save what can be read with: " \
	"plant-store recover"

struct journal {
	int dir; /* the store's directory; the caller's */
	int fd;
	dev_t device;
	ino_t inode;
	char *room;    /* blank lines to write ahead; NULL: none wanted */
	uint64_t size; /* of the file, as last seen */
	char uuid[RECORD_UUID_LEN];
	uint32_t seed;
	struct position start; /* behind the header */
};

enum journal_open {
	JOURNAL_OPENED,
	JOURNAL_ABSENT,
	JOURNAL_VERSION, /* of a version we do not know */
	JOURNAL_DAMAGED, /* its header is */
	JOURNAL_ERROR    /* errno */
};

/*
 * journal_open(journal, dir, prepare):
 * Open the journal in `dir` and check its header.  Nothing is logged.
 */
enum journal_open journal_open(struct journal *journal, int dir, bool prepare);

/*
 * journal_open_file(journal, dir, fd):
 * The same with a file that is open already, for reading if for nothing more;
 * the journal owns it from now on.  `dir` is -1 for a file that is in no
 * store's directory; then journal_check cannot be used.
 */
enum journal_open journal_open_file(struct journal *journal, int dir, int fd);

/*
 * journal_create(dir):
 * Make a journal with a new uuid, durable when this returns 0.  It never
 * replaces one: -1 with EEXIST if another process was first.
 */
int journal_create(int dir);

/*
 * journal_begin(journal, dir), journal_place(journal), journal_drop(journal):
 * The same in steps, for a journal that is to appear with its records: make one
 * under a temporary name; make it durable and give it its name; or remove it,
 * also after a failure of journal_place.  0, or -1 with errno.
 */
int journal_begin(struct journal *journal, int dir);
int journal_place(const struct journal *journal);
void journal_drop(struct journal *journal);

/*
 * journal_check(journal, path, end):
 * See whether the journal of the directory `path` still is this file, and its
 * size.  NULL, or static English that says what has happened to it.
 */
const char *journal_check(
    struct journal *journal, const char *path, uint64_t end);

/*
 * journal_append(journal, end, buf, len):
 * Write `len` bytes, at most JOURNAL_APPEND_MAX, at the offset `end`, with room
 * behind them where there is none left.  Not durable before journal_sync.
 * Return 0; -1 with errno, the file cut back to `end`; -2 with errno if that
 * failed too.
 */
int journal_append(
    struct journal *journal, uint64_t end, const char *buf, size_t len);

/*
 * journal_sync(journal):
 * Make all that was written durable.  -1 with errno: what is on the disk is
 * unknown, and a second try would prove nothing.
 */
int journal_sync(const struct journal *journal);

/*
 * journal_cut(journal, end):
 * Cut off what stands behind `end`.  0, or -1 with errno.
 */
int journal_cut(struct journal *journal, uint64_t end);

/*
 * journal_keep(journal, from, to, name, size):
 * Keep a durable copy of the bytes [from, to) in a file of its own beside the
 * journal, named JOURNAL_NAME.torn-OFFSET.N, and give that name.  0, or -1 with
 * errno.
 */
int journal_keep(const struct journal *journal, uint64_t from, uint64_t to,
    char *name, size_t size);

/*
 * journal_copy(journal, from, to, fd, watch):
 * Copy the bytes [from, to) to the same place of the file `fd`, and sync it.
 * 0, or -1 with errno.
 *
 * journal_publish(journal, end, dir, watch):
 * Put a durable copy of the bytes before `end` into the directory `dir`, under
 * the journal's name, which it must not have yet.  0, or -1 with errno.
 *
 * Both without the lock, for bytes that no longer change.  `watch` may be NULL;
 * if it ends the work errno is ECANCELED.
 */
int journal_copy(const struct journal *journal, uint64_t from, uint64_t to,
    int fd, const struct watch *watch);
int journal_publish(const struct journal *journal, uint64_t end, int dir,
    const struct watch *watch);

/*
 * journal_renew(journal, end):
 * Put a durable copy of the bytes before `end` in the journal's place and keep
 * the old file as JOURNAL_NAME.failed-OFFSET.N.  The journal then is the copy,
 * whose file is locked (lock_file).
 * 0; -1 with errno: the old file is still the journal, and in its place unless
 * it was the sync of the directory that failed.
 */
int journal_renew(struct journal *journal, uint64_t end);

/*
 * journal_read(journal, offset, record, buf, size):
 * Read the record whose line begins at `offset`; it points into `*buf`, which
 * comes from malloc and is reused and grown from call to call (`*size` is its
 * size; both start as 0).  0; -1 with errno, EBADMSG if no valid line begins
 * there.
 */
int journal_read(const struct journal *journal, uint64_t offset,
    struct record *record, char **buf, size_t *size);

/*
 * journal_close(journal):
 * Close the file.
 */
void journal_close(struct journal *journal);

#endif
