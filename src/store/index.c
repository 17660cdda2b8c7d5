/*
 * index: LMDB.  See index.h.
 *
 * One database.  A plant's key is the 8 bytes of its id, big-endian with the
 * sign bit turned, so that ids sort as numbers; its value is the offset of its
 * record.  The key of one byte 0 sorts below all of them: the state.
 *
 * The file `index/boot` has three lines: the boot in which pages may be
 * missing, or "clean"; the store's uuid; and "serve", or "once" where only
 * single requests have written data.mdb, with its inode and its time of birth,
 * which no copy has.  Version 1.0.0 has no third line.  The order of writes
 * that a crash must not break: it has this boot's id, synced, before the first
 * page is written, and "clean", synced, after the last page was.  A long lived
 * process holds a lock on it, which shows even where containers have other boot
 * ids.
 */
#include "store/index.h"

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
/* index/boot: text without padding. */
struct mark {
	char boot[BOOT_LEN], newline;
	char uuid[RECORD_UUID_LEN], newline_too;
	char use[6];
	char file[FILE_ID_LEN], newline_last;
};

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
	enum index_use use;
	int dir;             /* the store's directory; the caller's */
	int lock;            /* of INDEX_SERVE: `index/boot`, locked; or -1 */
	struct state state;  /* as the running transaction has it */
	char boot[BOOT_LEN]; /* this one */
	char file[FILE_ID_LEN + 1]; /* data.mdb, as the mark names it */
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
read_mark(int dir, struct mark *mark)
{
	memset(mark, 0, sizeof(*mark));
	/* A crash may leave zeros, version 1.0.0 two lines. */
	(void)file_get(dir, BOOT_NAME, mark, sizeof(*mark));
	return mark->newline == '\n' && mark->newline_too == '\n' ? 0 : -1;
}

/* Whether a long lived process has the index open. */
static bool
is_served(int dir)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = openat(dir, BOOT_NAME, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	bool served =
	    fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;

	if (fd >= 0)
		close(fd);
	return served;
}

static bool
is_of_this_boot(const struct index *index, const struct mark *mark)
{
	return *index->boot != '?' &&
	       memcmp(mark->boot, index->boot, BOOT_LEN) == 0;
}

static bool
is_of_this_file(const struct index *index, const struct mark *mark)
{
	return mark->newline_last == '\n' &&
	       memcmp(mark->file, index->file, FILE_ID_LEN) == 0;
}

/* Whether all pages of the file can be read as they were written. */
static bool
is_whole(const struct index *index, const struct mark *mark)
{
	return is_of_this_file(index, mark) &&
	       (memcmp(mark->boot, BOOT_CLEAN, BOOT_LEN) == 0 ||
		   is_served(index->dir) ||
		   (index->use == INDEX_ONCE && *mark->use == 'o' &&
		       is_of_this_boot(index, mark)));
}

/*
 * Whether its state can be read, which knows of the journal's end: what it says
 * was true, also where a later page is missing.
 */
static bool
has_seen(const struct index *index, const struct mark *mark)
{
	return is_of_this_boot(index, mark) &&
	       (*mark->use == '\0' || is_of_this_file(index, mark));
}

/* Durable when it returns 0; else an errno value. */
static int
write_mark(const struct index *index, const char *boot)
{
	struct mark mark = {
		.newline = '\n', .newline_too = '\n', .newline_last = '\n'
	};
	int names = openat(index->dir, INDEX_NAME, O_RDONLY | O_CLOEXEC);
	int error;

	memcpy(mark.boot, boot, BOOT_LEN);
	memcpy(mark.uuid, index->uuid, RECORD_UUID_LEN);
	/* A request may take over what a service has open. */
	bool once = index->use == INDEX_ONCE && !is_served(index->dir);
	memcpy(mark.use, once ? "once  " : "serve ", 6);
	memcpy(mark.file, index->file, FILE_ID_LEN);
	error = names < 0 || file_put(names, "boot", &mark, sizeof(mark)) < 0
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
				index->use == INDEX_READ ? MDB_RDONLY : 0,
				&index->txn);
}

static struct index *
new_index(const struct journal *journal, enum index_use use)
{
	static char boot[BOOT_LEN];
	struct index *index = calloc(1, sizeof(*index));

	if (index == NULL)
		return NULL;
	index->dir = journal->dir;
	index->lock = -1;
	index->use = use;
	memcpy(index->uuid, journal->uuid, RECORD_UUID_LEN);
	/* A boot without an id never equals another; the sandbox hides it. */
	if (*boot == '\0' &&
	    file_get(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot,
		BOOT_LEN) < 0)
		*boot = '?';
	memcpy(index->boot, boot, BOOT_LEN);
	return index;
}

/* 0, or an error of LMDB's or the system's. */
static int
open_environment(struct index *index, const char *path)
{
	unsigned flags = MDB_NOLOCK | MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD |
			 (index->use == INDEX_READ ? MDB_RDONLY : 0);
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
	mdb_env_info(index->env, &info);
	mdb_env_stat(index->env, &stat);
	/* Of a file that was cut short a page that is gone ends the process. */
	if ((uint64_t)st.st_size < (info.me_last_pgno + 1) * stat.ms_psize)
		return MDB_CORRUPTED;
	error = begin(index);
	return error != 0 ? error
			  : mdb_dbi_open(index->txn, NULL, 0, &index->dbi);
}

/* Open data.mdb, and read its state: 0, or LMDB's or the system's error. */
static int
open_state(struct index *index, const char *path)
{
	int error = open_environment(index, path);

	if (error == 0)
		error = get_state(index);
	if (error == 0 && index->state.covered.end == 0)
		error = MDB_NOTFOUND;
	return error;
}

/* Without it, a process with another boot id builds another index. */
static void
lock_mark(struct index *index)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };

	if (index->use != INDEX_SERVE)
		return;
	index->lock = openat(index->dir, BOOT_NAME, O_RDONLY | O_CLOEXEC);
	fcntl(index->lock, F_OFD_SETLK, &lock);
}

/* Into `view` the index, or why there is none that can be used. */
static enum fault
look_at(struct index *index, const char *path, const struct mark *mark,
    struct index_view *view)
{
	struct stat st = { 0 };
	int error = fstatat(index->dir, DATA_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0
			? errno
			: MDB_NOTFOUND;
	bool seen = false;

	/* LMDB may make an empty file one, wait for a pipe, follow a link. */
	if (S_ISREG(st.st_mode) && st.st_size > 0 &&
	    file_identify(index->dir, DATA_NAME, index->file) == 0) {
		if (is_whole(index, mark)) {
			error = open_state(index, path);
		} else if (has_seen(index, mark)) {
			index->use = INDEX_READ;
			seen = open_state(index, path) == 0;
		}
	}
	if (error == 0 && index_count(index, &view->entries) < 0)
		error = MDB_CORRUPTED;
	index_abort(index);
	if (error == 0 || seen)
		view->seen = index->state.covered;
	if (error == 0) {
		lock_mark(index);
		view->state = INDEX_USABLE;
		view->index = index;
		view->covered = view->seen;
		return FAULT_NONE;
	}
	(void)fail(index, error);
	index_close(index, false);
	view->state = error == ENOENT         ? INDEX_ABSENT
		      : error == MDB_NOTFOUND ? INDEX_STALE
					      : INDEX_UNUSABLE;
	return error == ENOENT || error == MDB_NOTFOUND || errno == EBADMSG
		   ? FAULT_NONE
		   : fault_report(path, "cannot open its index");
}

enum fault
index_open(const struct journal *journal, const char *path, enum index_use use,
    struct index_view *view)
{
	struct index *index;
	struct mark mark;

	*view = (struct index_view){ 0 };
	if (read_mark(journal->dir, &mark) == 0 &&
	    memcmp(mark.uuid, journal->uuid, RECORD_UUID_LEN) != 0) {
		log_error("%s: of another store than this directory was; if "
			  "it is meant to be used, remove %s/" INDEX_NAME
			  " first",
		    journal->name, path);
		return FAULT_SETUP;
	}
	index = new_index(journal, use);
	return index == NULL ? fault_report(path, "cannot open its index")
			     : look_at(index, path, &mark, view);
}

enum fault
index_know(struct journal *journal, const char *path, enum index_use use,
    struct index_view *view)
{
	enum fault fault = index_open(journal, path, use, view);

	view->end = view->seen.end;
	if (fault == FAULT_NONE)
		fault = journal_check_seen(journal, &view->seen);
	if (fault == FAULT_NONE)
		fault = journal_read_end(journal, journal->uuid, &view->end);
	if (fault != FAULT_NONE) {
		index_close(view->index, false);
		view->index = NULL;
	}
	return fault;
}

int
index_create(const struct journal *journal, const char *path,
    enum index_use use, struct index **created)
{
	struct index *index = new_index(journal, use);
	int dir = journal->dir, fd = -1, error = 0;

	if (index == NULL)
		return -1;
	/* Entries that stay would be taken for the new index's. */
	if (unlinkat(dir, DATA_NAME, 0) < 0 && errno != ENOENT)
		error = errno;
	index_discard(dir);
	/* With its name the journal's, which may be as new. */
	if (error == 0 &&
	    ((mkdirat(dir, INDEX_NAME, 0700) < 0 && errno != EEXIST) ||
		fsync(dir) < 0))
		error = errno;
	/* The mark names the file, and is there before its first page. */
	if (error == 0) {
		fd = openat(dir, DATA_NAME,
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 || file_identify(dir, DATA_NAME, index->file) < 0)
			error = errno;
	}
	if (fd >= 0)
		close(fd);
	if (error == 0)
		error = write_mark(index, index->boot);
	if (error == 0)
		error = open_environment(index, path);
	index->state.version = STATE_VERSION;
	if (error == 0)
		error = commit_state(index);
	if (error != 0) {
		(void)fail(index, error);
		index_close(index, false);
		return -1;
	}
	lock_mark(index);
	*created = index;
	return 0;
}

int
index_uuid(int dir, char uuid[static RECORD_UUID_LEN])
{
	struct mark mark;

	if (read_mark(dir, &mark) < 0)
		return -1;
	memcpy(uuid, mark.uuid, RECORD_UUID_LEN);
	return 0;
}

/* Others must learn, also after a crash, that pages may be unwritten again. */
static int
take_over(struct index *index)
{
	int error =
	    index_is_current(index) ? write_mark(index, index->boot) : 0;

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
	if (error == 0 && index->use != INDEX_READ && index->state.clean != 0)
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
index_check(const struct index *index)
{
	int fd;

	if (mdb_env_get_fd(index->env, &fd) != 0 || file_is_written(fd))
		return 0;
	errno = EBADMSG;
	return -1;
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
index_is_clean(const struct index *index)
{
	return index->state.clean != 0;
}

bool
index_is_current(const struct index *index)
{
	char file[FILE_ID_LEN + 1];

	return file_identify(index->dir, DATA_NAME, file) == 0 &&
	       strcmp(file, index->file) == 0;
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
	if (clean)
		mark_clean(index);
	if (index->env != NULL)
		mdb_env_close(index->env);
	if (index->lock >= 0)
		close(index->lock);
	free(index);
	errno = error;
}

void
index_disbelieve(int dir)
{
	unlinkat(dir, BOOT_NAME, 0);
}

void
index_discard(int dir)
{
	index_disbelieve(dir);
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
