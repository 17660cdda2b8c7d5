/*
 * index: LMDB.  See index.h.
 *
 * One database.  A plant's key is the 8 bytes of its id, big-endian with the
 * sign bit turned, so that ids sort as numbers; its value is the offset of its
 * record.  The key of one byte 0 sorts below all of them: the state.
 *
 * The file `index/boot` has two lines: the boot in which pages may be missing,
 * or "clean"; and the store's uuid.  The order of writes that a crash of the
 * machine must not break: it has this boot's id, synced, before the first page
 * is written, and "clean", synced, after the last page was.  A process that has
 * the index open for writing holds a lock on it: no crash of the machine leaves
 * one, and containers may show other boot ids.
 */
#include "index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"

#define INDEX_NAME "index"
#define DATA_NAME INDEX_NAME "/data.mdb"
#define BOOT_NAME INDEX_NAME "/boot"
#define STATE_VERSION 2
#define BOOT_LEN 36
#define BOOT_CLEAN "clean                               "
#define MARK_UUID (BOOT_LEN + 1)
#define MARK_LEN (MARK_UUID + RECORD_UUID_LEN + 1)

/*
 * Address space, not memory or disk.  The map grows with the file, and is
 * larger by two to three steps: one transaction enters at most some 40,000
 * plants, of which each may copy a page of 4 KiB.
 */
#define MAP_STEP_BYTES ((size_t)128 << 20)

/*
 * Entered in order by one transaction, whose pages LMDB keeps in memory until
 * the index is closed: 26 bytes a plant.
 */
#define COMMIT_PAIRS ((size_t)128 << 10)
/* The index in use is behind by no more than what one append has held. */
#define BEHIND_PAIRS_MAX ((size_t)64 << 10)
#define STEP_PAIRS ((size_t)16 << 10)

/* Ids that stand twice: this many are logged, the others are counted. */
#define TWINS_LOGGED 10

/* With less room than this a write that fell short had none. */
#define ROOM_BYTES ((uint64_t)1 << 20)

struct state {
	uint32_t version;
	uint32_t clean; /* `boot` says so */
	struct position covered;
};

struct index {
	MDB_env *env;
	MDB_dbi dbi;
	MDB_txn *txn;
	bool write;
	int dir;  /* the store's directory; the caller's */
	int lock; /* `index/boot`, locked while `write`; or -1 */
	dev_t device;
	ino_t inode;
	struct state state;  /* as the running transaction has it */
	char boot[BOOT_LEN]; /* this one */
	char uuid[RECORD_UUID_LEN];
};

static char state_name[1];
static MDB_val state_key = { sizeof(state_name), state_name };

/* Set errno to what LMDB's or the system's error means.  -1. */
static int
fail(const struct index *index, int error)
{
	struct statvfs fs;
	int fd;

	/* LMDB says EIO also of a write that fell short on a full disk. */
	if (error == EIO && index->env != NULL &&
	    mdb_env_get_fd(index->env, &fd) == 0 && fstatvfs(fd, &fs) == 0 &&
	    (uint64_t)fs.f_bavail * fs.f_frsize < ROOM_BYTES)
		error = ENOSPC;
	if (error == MDB_MAP_FULL)
		error = ENOSPC;
	if (error == MDB_PANIC)
		error = EIO;
	/* We ask for nothing invalid: a page must hold it. */
	if (error < 0 || error == EINVAL)
		error = EBADMSG;
	errno = error;
	return -1;
}

/* What `index/boot` has; -1 if there is none. */
static int
read_mark(int dir, char mark[static MARK_LEN])
{
	/* A crash may leave zeros. */
	return file_get(dir, BOOT_NAME, mark, MARK_LEN) == 0 &&
		       mark[BOOT_LEN] == '\n' && mark[MARK_LEN - 1] == '\n'
		   ? 0
		   : -1;
}

/* Whether a process has the index open for writing. */
static bool
is_written(int dir)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = openat(dir, BOOT_NAME, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	bool written =
	    fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;

	if (fd >= 0)
		close(fd);
	return written;
}

/* Whether the pages of the file can be read as they were written. */
static bool
is_whole(const struct index *index)
{
	char mark[MARK_LEN];

	return read_mark(index->dir, mark) == 0 &&
	       (memcmp(mark, BOOT_CLEAN, BOOT_LEN) == 0 ||
		   (*index->boot != '?' &&
		       memcmp(mark, index->boot, BOOT_LEN) == 0) ||
		   is_written(index->dir));
}

/* Durable when it returns 0; else an errno value. */
static int
write_mark(const struct index *index, const char *boot)
{
	char mark[MARK_LEN];
	int names = openat(index->dir, INDEX_NAME, O_RDONLY | O_CLOEXEC);
	int error;

	memset(mark, '\n', sizeof(mark));
	memcpy(mark, boot, BOOT_LEN);
	memcpy(mark + MARK_UUID, index->uuid, RECORD_UUID_LEN);
	error = names < 0 || file_put(names, "boot", mark, sizeof(mark)) < 0
		    ? errno
		    : 0;
	if (names >= 0)
		close(names);
	return error;
}

/* MDB_NOTFOUND also where another version has written it. */
static int
get_state(struct index *index)
{
	MDB_val value;
	int error = mdb_get(index->txn, index->dbi, &state_key, &value);

	if (error != 0 || value.mv_size != sizeof(index->state))
		return error != 0 ? error : MDB_NOTFOUND;
	memcpy(&index->state, value.mv_data, sizeof(index->state));
	return index->state.version == STATE_VERSION ? 0 : MDB_NOTFOUND;
}

static int
commit_state(struct index *index)
{
	MDB_val value = { sizeof(index->state), &index->state };
	int error = mdb_put(index->txn, index->dbi, &state_key, &value, 0);

	if (error == 0) {
		error = mdb_txn_commit(index->txn);
		index->txn = NULL;
	}
	return error;
}

/* A map that is large enough for the file and the transaction. */
static int
begin(struct index *index)
{
	MDB_envinfo info;
	MDB_stat stat;
	int error = 0;

	mdb_env_info(index->env, &info);
	mdb_env_stat(index->env, &stat);
	size_t want = (info.me_last_pgno * stat.ms_psize / MAP_STEP_BYTES + 3) *
		      MAP_STEP_BYTES;
	if (want > info.me_mapsize)
		error = mdb_env_set_mapsize(index->env, want);
	return error != 0 ? error
			  : mdb_txn_begin(index->env, NULL,
				index->write ? 0 : MDB_RDONLY, &index->txn);
}

static struct index *
new_index(int dir, const char *uuid, bool write)
{
	struct index *index = calloc(1, sizeof(*index));

	if (index == NULL)
		return NULL;
	index->dir = dir;
	index->lock = -1;
	index->write = write;
	memcpy(index->uuid, uuid, RECORD_UUID_LEN);
	/* A boot without an id never equals another. */
	if (file_get(AT_FDCWD, "/proc/sys/kernel/random/boot_id", index->boot,
		BOOT_LEN) < 0)
		*index->boot = '?';
	return index;
}

/* 0, or an error of LMDB's or the system's. */
static int
open_environment(struct index *index, const char *path)
{
	unsigned flags = MDB_NOLOCK | MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD |
			 (index->write ? 0 : MDB_RDONLY);
	char name[4096];
	MDB_envinfo info;
	MDB_stat stat;
	struct stat st;
	int error;

	if (snprintf(name, sizeof(name), "%s/" INDEX_NAME, path) >=
	    (int)sizeof(name))
		return ENAMETOOLONG;
	error = mdb_env_create(&index->env);
	if (error == 0)
		error = mdb_env_set_mapsize(index->env, MAP_STEP_BYTES);
	if (error == 0)
		error = mdb_env_open(index->env, name, flags, 0600);
	if (error == 0 && fstatat(index->dir, DATA_NAME, &st, 0) < 0)
		error = errno;
	if (error != 0)
		return error;
	index->device = st.st_dev;
	index->inode = st.st_ino;
	mdb_env_info(index->env, &info);
	mdb_env_stat(index->env, &stat);
	/* Of a file that was cut short a page that is gone ends the process. */
	if ((uint64_t)st.st_size < (info.me_last_pgno + 1) * stat.ms_psize)
		return MDB_CORRUPTED;
	error = begin(index);
	return error != 0 ? error
			  : mdb_dbi_open(index->txn, NULL, 0, &index->dbi);
}

/* 0, and `*opened` is the index; or -1 with errno, and it is closed. */
static int
hand_over(struct index *index, int error, struct index **opened)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };

	if (error != 0) {
		(void)fail(index, error);
		index_close(index, false);
		return -1;
	}
	/* Without it, a process with another boot id builds another index. */
	if (index->write) {
		index->lock =
		    openat(index->dir, BOOT_NAME, O_RDONLY | O_CLOEXEC);
		fcntl(index->lock, F_OFD_SETLK, &lock);
	}
	*opened = index;
	return 0;
}

enum index_open
index_open(int dir, const char *path, const char uuid[static RECORD_UUID_LEN],
    bool write, struct index **opened)
{
	struct index *index;
	char mark[MARK_LEN];
	struct stat st;
	int error;

	if (fstatat(dir, DATA_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? INDEX_ABSENT : INDEX_REFUSED;
	/* LMDB would wait for a pipe, and follow a link. */
	if (!S_ISREG(st.st_mode)) {
		errno = EINVAL;
		return INDEX_REFUSED;
	}
	if (read_mark(dir, mark) == 0 &&
	    memcmp(mark + MARK_UUID, uuid, RECORD_UUID_LEN) != 0)
		return INDEX_FOREIGN;
	index = new_index(dir, uuid, write);
	if (index == NULL)
		return INDEX_REFUSED;
	/* LMDB takes an empty file for one that it may make. */
	error = st.st_size == 0 || !is_whole(index) ? MDB_NOTFOUND : 0;
	if (error == 0)
		error = open_environment(index, path);
	if (error == 0)
		error = get_state(index);
	if (error == 0 && index->state.covered.end == 0)
		error = MDB_NOTFOUND;
	index_abort(index);
	if (hand_over(index, error, opened) == 0)
		return INDEX_OPENED;
	return error == MDB_NOTFOUND ? INDEX_STALE : INDEX_REFUSED;
}

int
index_create(int dir, const char *path, const char uuid[static RECORD_UUID_LEN],
    struct index **created)
{
	struct index *index = new_index(dir, uuid, true);
	int error = 0;

	if (index == NULL)
		return -1;
	/* Entries that stay would be taken for the new index's. */
	if (unlinkat(dir, DATA_NAME, 0) < 0 && errno != ENOENT)
		error = errno;
	index_discard(dir);
	if (error == 0 && mkdirat(dir, INDEX_NAME, 0700) < 0 && errno != EEXIST)
		error = errno;
	if (error == 0)
		error = write_mark(index, index->boot);
	if (error == 0)
		error = open_environment(index, path);
	index->state.version = STATE_VERSION;
	if (error == 0)
		error = commit_state(index);
	return hand_over(index, error, created);
}

int
index_uuid(int dir, char uuid[static RECORD_UUID_LEN])
{
	char mark[MARK_LEN];

	if (read_mark(dir, mark) < 0)
		return -1;
	memcpy(uuid, mark + MARK_UUID, RECORD_UUID_LEN);
	return 0;
}

/* Others must learn, also after a crash, that pages may be unwritten again. */
static int
take_over(struct index *index)
{
	int error = is_whole(index) ? write_mark(index, index->boot) : 0;

	index->state.clean = 0;
	if (error == 0)
		error = commit_state(index);
	return error == 0 ? begin(index) : error;
}

int
index_begin(struct index *index, struct position *covered)
{
	int error = begin(index);

	if (error == 0)
		error = get_state(index);
	if (error == 0 && index->write && index->state.clean != 0)
		error = take_over(index);
	if (error != 0) {
		index_abort(index);
		return fail(index, error);
	}
	*covered = index->state.covered;
	return 0;
}

int
index_commit(struct index *index, const struct position *covered)
{
	int error;

	index->state.covered = *covered;
	error = commit_state(index);
	index_abort(index);
	return error == 0 ? 0 : fail(index, error);
}

void
index_abort(struct index *index)
{
	if (index->txn != NULL)
		mdb_txn_abort(index->txn);
	index->txn = NULL;
}

uint64_t
index_end(int dir, const char *path, const char uuid[static RECORD_UUID_LEN])
{
	struct position covered = { 0 };
	struct index *index = NULL;

	if (index_open(dir, path, uuid, false, &index) != INDEX_OPENED ||
	    index_begin(index, &covered) < 0)
		covered.end = 0;
	index_close(index, false);
	return covered.end;
}

static MDB_val
key_of(int64_t id, unsigned char bytes[static 8])
{
	uint64_t order = (uint64_t)id ^ (UINT64_C(1) << 63);

	for (int i = 7; i >= 0; i--, order >>= 8)
		bytes[i] = (unsigned char)order;
	return (MDB_val){ 8, bytes };
}

/* An entry that was found, or what came instead. */
static enum index_result
take_value(const struct index *index, int error, const MDB_val *value,
    uint64_t *offset)
{
	if (error == 0 && value->mv_size != sizeof(*offset))
		error = MDB_CORRUPTED;
	if (error == 0) {
		memcpy(offset, value->mv_data, sizeof(*offset));
		return INDEX_FOUND;
	}
	(void)fail(index, error);
	return INDEX_ERROR;
}

/* `flags` MDB_APPEND: an id that is above all others. */
static enum index_result
enter(struct index *index, int64_t id, uint64_t offset, unsigned flags,
    uint64_t *found)
{
	unsigned char bytes[8];
	MDB_val key = key_of(id, bytes), value = { sizeof(offset), &offset };
	int error = mdb_put(index->txn, index->dbi, &key, &value, flags);

	if (error == 0)
		return INDEX_NEW;
	if (error == MDB_KEYEXIST && flags == MDB_NOOVERWRITE)
		error = 0;
	return take_value(index, error, &value, found);
}

enum index_result
index_put(struct index *index, int64_t id, uint64_t offset, uint64_t *found)
{
	return enter(index, id, offset, MDB_NOOVERWRITE, found);
}

enum index_result
index_find(struct index *index, int64_t id, uint64_t *offset)
{
	unsigned char bytes[8];
	MDB_val key = key_of(id, bytes), value;
	int error = mdb_get(index->txn, index->dbi, &key, &value);

	return error == MDB_NOTFOUND ? INDEX_NEW
				     : take_value(index, error, &value, offset);
}

int
index_count(struct index *index, uint64_t *n)
{
	MDB_stat stat;
	int error = mdb_stat(index->txn, index->dbi, &stat);

	if (error != 0)
		return fail(index, error);
	*n = stat.ms_entries - 1; /* the state */
	return 0;
}

bool
index_is_current(const struct index *index)
{
	struct stat st;

	return fstatat(index->dir, DATA_NAME, &st, 0) == 0 &&
	       st.st_ino == index->inode && st.st_dev == index->device;
}

/*
 * A failure leaves it unmarked: it is built again after the next boot.  A sync
 * that fails may have lost pages: then the next start builds it again.
 */
static void
mark_clean(struct index *index)
{
	struct position covered;

	if (!index_is_current(index) || index_begin(index, &covered) < 0)
		return;
	index->state.clean = 1;
	if (index_commit(index, &covered) < 0)
		return;
	int error = mdb_env_sync(index->env, 1);
	if (error == 0) {
		write_mark(index, BOOT_CLEAN);
		return;
	}
	log_warning("index: cannot sync: %s; removing it: the next start "
		    "builds it again",
	    mdb_strerror(error));
	index_discard(index->dir);
}

void
index_close(struct index *index, bool clean)
{
	int error = errno;

	if (index == NULL)
		return;
	index_abort(index);
	if (clean && index->write)
		mark_clean(index);
	if (index->env != NULL)
		mdb_env_close(index->env);
	if (index->lock >= 0)
		close(index->lock);
	free(index);
	errno = error;
}

void
index_discard(int dir)
{
	unlinkat(dir, BOOT_NAME, 0);
	unlinkat(dir, DATA_NAME, 0);
	unlinkat(dir, INDEX_NAME "/lock.mdb", 0);
	unlinkat(dir, INDEX_NAME "/clean", 0); /* of version 0.1.0 */
}

/* `nth`: which of them it is, from 0. */
static void
log_twin(
    const char *name, size_t nth, int64_t id, uint64_t first, uint64_t offset)
{
	if (nth < TWINS_LOGGED)
		log_error("%s: the plant %" PRId64 " stands twice, at the "
			  "bytes %" PRIu64 " and %" PRIu64 ": the first "
			  "counts; to take the others out: plant-store recover",
		    name, id, first, offset);
	else if (nth == TWINS_LOGGED)
		log_error(
		    "%s: more plants stand twice; verify counts them", name);
}

size_t
index_twins(const struct pairs *pairs, const char *name)
{
	const struct pair *map = pairs->map;
	size_t twins = 0;

	for (size_t i = 1, first = 0; i < pairs->n; i++)
		if (map[i].key != map[first].key)
			first = i;
		else
			log_twin(name, twins++, map[i].key, map[first].value,
			    map[i].value);
	return twins;
}

/*
 * Sorted ids go to the end of LMDB's tree: no search, and full pages.  To enter
 * 10 million plants takes 1.9 s.
 */
int
index_build(struct index *index, const struct pairs *pairs, bool new,
    const struct position *to, struct journal *journal,
    const struct watch *watch)
{
	static const struct position none;
	const uint64_t plant_bytes = pairs->n > 0 ? to->end / pairs->n : 0;
	struct position covered;
	uint64_t found = 0;
	size_t twins = 0;

	if (!new && pairs->n > BEHIND_PAIRS_MAX)
		return fail(index, EBADMSG);
	for (size_t i = 0; i < pairs->n; i++) {
		const struct pair *pair = &pairs->map[i];
		enum index_result result = INDEX_FOUND;

		if (!new)
			result =
			    index_put(index, pair->key, pair->value, &found);
		else if (i == 0 || pair->key != pair[-1].key) {
			found = pair->value;
			result =
			    enter(index, pair->key, found, MDB_APPEND, &found);
		}
		if (result == INDEX_ERROR)
			return -1;
		if (result == INDEX_FOUND && !new &&
		    (found >= pair->value ||
			!journal_has_plant(journal, found, pair->key)))
			return fail(index, EBADMSG);
		if (result == INDEX_FOUND)
			log_twin(journal->name, twins++, pair->key, found,
			    pair->value);
		if ((i + 1) % STEP_PAIRS == 0 &&
		    !watch_step(
			watch, to->end + (i + 1) * plant_bytes, 2 * to->end))
			return fail(index, ECANCELED);
		if ((i + 1) % COMMIT_PAIRS == 0 &&
		    (index_commit(index, &none) < 0 ||
			index_begin(index, &covered) < 0))
			return -1;
	}
	return index_commit(index, to);
}
