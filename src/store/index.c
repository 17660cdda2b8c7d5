/*
 * index: an LMDB environment.  See index.h.
 *
 * One database.  Keys of 8 bytes are ids, big-endian with the sign bit turned,
 * so that they sort as numbers; the value is the offset.  The key of 1 byte is
 * the state.
 *
 * Whether the file is whole after a crash of the machine is not for the file to
 * say, of which any page may be missing.  So the file `clean` beside it says
 * it: made and synced after the last sync, removed, also on the disk, before
 * the next write.
 */
#include "index.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "ground/log.h"

#define INDEX_NAME "index"
#define DATA_NAME INDEX_NAME "/data.mdb"
#define CLEAN_NAME INDEX_NAME "/clean"

/*
 * Address space, not memory or disk: room for some 800 million plants at 40
 * bytes each.  Valgrind can map no more than this.
 */
#define MAP_BYTES ((size_t)32 << 30)

#define STATE_VERSION 2
#define BOOT_LEN 36

struct state {
	uint32_t version;
	char uuid[RECORD_UUID_LEN];
	char boot[BOOT_LEN]; /* of the last that wrote */
	uint32_t clean;      /* whether there may be a file `clean` */
	struct position covered;
};

struct index {
	MDB_env *env;
	MDB_dbi dbi;
	MDB_txn *txn;
	int dir;            /* the store's directory; the caller's */
	struct state state; /* as the running transaction found it */
	char uuid[RECORD_UUID_LEN];
	char boot[BOOT_LEN];
};

/* LMDB gives errno values, or its own negative ones. */
static int
fail(int error)
{
	switch (error) {
	case MDB_MAP_FULL:
		error = ENOSPC;
		break;
	default:
		if (error < 0)
			error = EBADMSG;
	}
	errno = error;
	return -1;
}

/* A boot without an id never equals another: the index is built anew then. */
static void
read_boot(char boot[static BOOT_LEN])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	memset(boot, '?', BOOT_LEN);
	if (fd < 0)
		return;
	if (read(fd, boot, BOOT_LEN) != BOOT_LEN)
		memset(boot, '?', BOOT_LEN);
	close(fd);
}

/* Make the names in the index's directory durable.  0, or an errno value. */
static int
sync_names(int dir)
{
	int fd = openat(dir, INDEX_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int error = fd < 0 || fsync(fd) < 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	return error;
}

static int
put_state(struct index *index)
{
	char name = 's';
	MDB_val key = { sizeof(name), &name };
	MDB_val value = { sizeof(index->state), &index->state };

	return mdb_put(index->txn, index->dbi, &key, &value, 0);
}

/* MDB_NOTFOUND for an index that has none. */
static int
get_state(struct index *index)
{
	char name = 's';
	MDB_val key = { sizeof(name), &name }, value;
	int error = mdb_get(index->txn, index->dbi, &key, &value);

	if (error == 0 && value.mv_size != sizeof(index->state))
		error = MDB_INCOMPATIBLE;
	if (error == 0)
		memcpy(&index->state, value.mv_data, sizeof(index->state));
	return error;
}

/* The index that this thread is using; see on_crash. */
static _Thread_local struct index *volatile in_use;

/* LMDB would abort the process: leave room for the next start to heal. */
static void
on_assert(MDB_env *env, const char *message)
{
	(void)env;
	log_error("index: damaged (%.200s); removing it: it is built anew from "
		  "the journal at the next start",
	    message);
	if (in_use != NULL)
		unlinkat(in_use->dir, DATA_NAME, 0);
	_exit(EX_TEMPFAIL);
}

/*
 * LMDB follows what stands in the pages.  Overwritten ones, or a file cut while
 * it is mapped, end the process, and would end it again at every start.
 */
static void
on_crash(int number)
{
	static const char message[] =
	    "plant-store: index: damaged, reading it ended the process; "
	    "removing it: it is built anew from the journal at the next "
	    "start\n";

	if (in_use != NULL) {
		unlinkat(in_use->dir, DATA_NAME, 0);
		if (write(STDERR_FILENO, message, sizeof(message) - 1) < 0) {
			/* Nobody left to tell. */
		}
		_exit(EX_TEMPFAIL);
	}
	/* Not the index: as if nobody had looked. */
	signal(number, SIG_DFL);
	raise(number);
}

/* Not in a debugging build, whose sanitizer has its own. */
static void
catch_crashes(void)
{
	static const int numbers[] = { SIGBUS, SIGSEGV, SIGABRT };
	struct sigaction ours = { .sa_handler = on_crash }, before;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], NULL, &before) == 0 &&
		    before.sa_handler == SIG_DFL)
			sigaction(numbers[i], &ours, NULL);
}

/*
 * Whether the file has all the pages that it says are in use: what is read of
 * a mapping behind the end of its file ends the process.
 */
static int
check_size(MDB_env *env)
{
	MDB_envinfo info;
	MDB_stat stat;
	struct stat st;
	int fd, error = mdb_env_get_fd(env, &fd);

	if (error == 0)
		error = mdb_env_info(env, &info);
	if (error == 0)
		error = mdb_env_stat(env, &stat);
	if (error != 0)
		return error;
	if (fstat(fd, &st) < 0)
		return errno;
	/* A new file has its two meta pages; the rest is written when used. */
	return (uint64_t)st.st_size < (info.me_last_pgno + 1) * stat.ms_psize
		   ? MDB_CORRUPTED
		   : 0;
}

static int
open_environment(struct index *index, const char *path)
{
	char name[4096];
	int error;

	if (snprintf(name, sizeof(name), "%s/" INDEX_NAME, path) >=
	    (int)sizeof(name))
		return ENAMETOOLONG;
	error = mdb_env_create(&index->env);
	if (error != 0) {
		index->env = NULL;
		return error;
	}
	in_use = index;
	mdb_env_set_assert(index->env, on_assert);
	error = mdb_env_set_mapsize(index->env, MAP_BYTES);
	if (error == 0)
		error = mdb_env_open(index->env, name,
		    MDB_NOLOCK | MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD, 0600);
	if (error == 0)
		error = check_size(index->env);
	if (error == 0)
		error = mdb_txn_begin(index->env, NULL, 0, &index->txn);
	if (error != 0)
		return error;
	error = mdb_dbi_open(index->txn, NULL, 0, &index->dbi);
	if (error == 0)
		error = get_state(index);
	return error;
}

static void
close_environment(struct index *index)
{
	index_abort(index);
	if (index->env != NULL)
		mdb_env_close(index->env);
	index->env = NULL;
}

/* Whether it is this store's: another may be put in its place at any time. */
static bool
is_ours(const struct index *index)
{
	return index->state.version == STATE_VERSION &&
	       memcmp(index->state.uuid, index->uuid, RECORD_UUID_LEN) == 0;
}

/*
 * Whether what is there may be used: of this boot, or whole on the disk.  The
 * running transaction is ended.
 */
static int
check_state(struct index *index)
{
	const struct state *state = &index->state;
	bool this_boot = index->boot[0] != '?' &&
			 memcmp(state->boot, index->boot, BOOT_LEN) == 0;

	if (!is_ours(index) ||
	    (!this_boot && faccessat(index->dir, CLEAN_NAME, F_OK, 0) < 0))
		return MDB_INCOMPATIBLE;
	index_abort(index);
	return 0;
}

/*
 * LMDB says EIO also of a write that fell short, as they do where a disk
 * becomes full, so ask for more to hear why.
 */
static int
why_short(struct index *index)
{
	static const char page[4096];
	struct stat st;
	ssize_t n;
	int fd, error = mdb_env_get_fd(index->env, &fd);

	if (error != 0 || fstat(fd, &st) < 0)
		return EIO;
	n = pwrite(fd, page, sizeof(page), st.st_size);
	if (n == (ssize_t)sizeof(page))
		error = EIO;
	else
		error = n < 0 ? errno : ENOSPC;
	if (n > 0 && ftruncate(fd, st.st_size) < 0)
		return EIO;
	return error;
}

/* End the transaction, and give what the system said if it cannot be. */
static int
commit_transaction(struct index *index)
{
	int error = mdb_txn_commit(index->txn);

	index->txn = NULL;
	return error == EIO ? why_short(index) : error;
}

/* Say whose the new index is.  On the disk before anything else is. */
static int
write_first_state(struct index *index)
{
	memset(&index->state, 0, sizeof(index->state));
	index->state.version = STATE_VERSION;
	memcpy(index->state.uuid, index->uuid, RECORD_UUID_LEN);
	memcpy(index->state.boot, index->boot, BOOT_LEN);
	int error = put_state(index);
	if (error == 0)
		error = commit_transaction(index);
	if (error == 0)
		error = mdb_env_sync(index->env, 1);
	return error == 0 ? sync_names(index->dir) : error;
}

struct index *
index_open(int dir, const char *path, const char uuid[static RECORD_UUID_LEN])
{
	struct index *index = calloc(1, sizeof(*index));
	struct stat st;
	int error;

	if (index == NULL)
		return NULL;
	catch_crashes();
	index->dir = dir;
	memcpy(index->uuid, uuid, RECORD_UUID_LEN);
	read_boot(index->boot);
	if (mkdirat(dir, INDEX_NAME, 0700) < 0 && errno != EEXIST)
		goto fail;
	if (fstatat(dir, DATA_NAME, &st, 0) == 0) {
		error = open_environment(index, path);
		if (error == 0)
			error = check_state(index);
		if (error == 0)
			return index;
		close_environment(index);
		if (error == ENOMEM || error == EACCES || error == EMFILE ||
		    error == ENFILE || error == ENOSPC) {
			errno = error;
			goto fail;
		}
		log_warning("index: %s; building it anew from the journal",
		    error == MDB_INCOMPATIBLE
			? "not of this store and this boot of the machine"
			: mdb_strerror(error));
		index_discard(dir);
	}
	error = open_environment(index, path);
	if (error == 0)
		error = EEXIST; /* it could not be discarded */
	if (error == MDB_NOTFOUND)
		error = write_first_state(index);
	in_use = NULL;
	if (error == 0)
		return index;
	close_environment(index);
	(void)fail(error);

fail:
	free(index);
	return NULL;
}

/* From now on it is of this boot, and whole on the disk no more. */
static int
take_over(struct index *index)
{
	int error;

	if (unlinkat(index->dir, CLEAN_NAME, 0) < 0 && errno != ENOENT)
		return errno;
	error = sync_names(index->dir);
	if (error != 0)
		return error;
	index->state.clean = 0;
	memcpy(index->state.boot, index->boot, BOOT_LEN);
	error = put_state(index);
	if (error == 0)
		error = commit_transaction(index);
	return error == 0 ? mdb_txn_begin(index->env, NULL, 0, &index->txn)
			  : error;
}

int
index_begin(struct index *index, struct position *covered)
{
	in_use = index;
	int error = mdb_txn_begin(index->env, NULL, 0, &index->txn);

	if (error == 0)
		error = get_state(index);
	if (error == 0 && !is_ours(index))
		error = MDB_INCOMPATIBLE;
	if (error == 0 && index->state.clean != 0)
		error = take_over(index);
	if (error != 0) {
		index_abort(index);
		return fail(error);
	}
	*covered = index->state.covered;
	return 0;
}

enum index_put
index_put(struct index *index, int64_t id, uint64_t offset, uint64_t *found)
{
	uint64_t turned = __builtin_bswap64((uint64_t)id ^ (UINT64_C(1) << 63));
	MDB_val key = { sizeof(turned), &turned };
	MDB_val value = { sizeof(offset), &offset };
	int error = MDB_KEYEXIST;

	/*
	 * A new index is built from sorted ids: at the end of what is there
	 * they need no search, and leave full pages instead of halves.
	 */
	if (index->state.covered.seq == 0)
		error =
		    mdb_put(index->txn, index->dbi, &key, &value, MDB_APPEND);
	if (error == MDB_KEYEXIST)
		error = mdb_put(
		    index->txn, index->dbi, &key, &value, MDB_NOOVERWRITE);
	if (error == 0)
		return INDEX_NEW;
	if (error == MDB_KEYEXIST && value.mv_size == sizeof(*found)) {
		memcpy(found, value.mv_data, sizeof(*found));
		return INDEX_FOUND;
	}
	fail(error == MDB_KEYEXIST ? MDB_CORRUPTED : error);
	return INDEX_ERROR;
}

int
index_commit(struct index *index, const struct position *covered)
{
	/* Field by field: what lies between them goes to the disk too. */
	index->state.covered.end = covered->end;
	index->state.covered.last = covered->last;
	index->state.covered.seq = covered->seq;
	index->state.covered.crc = covered->crc;
	int error = put_state(index);
	if (error == 0)
		error = commit_transaction(index);
	if (error != 0) {
		index_abort(index);
		return fail(error);
	}
	in_use = NULL;
	return 0;
}

void
index_abort(struct index *index)
{
	if (index->txn != NULL)
		mdb_txn_abort(index->txn);
	index->txn = NULL;
	in_use = NULL;
}

/* Whether the name still means the file that is open. */
static bool
is_current(struct index *index)
{
	struct stat ours, st;
	int fd;

	return mdb_env_get_fd(index->env, &fd) == 0 && fstat(fd, &ours) == 0 &&
	       fstatat(index->dir, DATA_NAME, &st, 0) == 0 &&
	       st.st_ino == ours.st_ino && st.st_dev == ours.st_dev;
}

/* A failure leaves it unmarked: it is built anew after the next boot. */
static void
mark_clean(struct index *index)
{
	struct position covered;

	if (!is_current(index) || index_begin(index, &covered) < 0)
		return;
	index->state.clean = 1;
	if (index_commit(index, &covered) < 0 ||
	    mdb_env_sync(index->env, 1) != 0)
		return;
	int fd = openat(
	    index->dir, CLEAN_NAME, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	close(fd);
	sync_names(index->dir);
}

void
index_close(struct index *index, bool mark)
{
	if (index == NULL)
		return;
	index_abort(index);
	if (mark)
		mark_clean(index);
	close_environment(index);
	free(index);
}

void
index_discard(int dir)
{
	unlinkat(dir, CLEAN_NAME, 0);
	unlinkat(dir, DATA_NAME, 0);
	unlinkat(dir, INDEX_NAME "/lock.mdb", 0);
}
