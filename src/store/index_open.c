/*
 * index_open: opening and closing the index, and whether what is found may be
 * used.  See index.h.
 *
 * Whether the file is whole after a crash of the machine is not for the file to
 * say, of which any page may be missing.  So the file `clean` beside it says
 * it: made and synced after the last sync, removed, also on the disk, before
 * the next write.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/log.h"
#include "index_parts.h"

#define CLEAN_NAME INDEX_NAME "/clean"

/*
 * Address space, not memory or disk: room for some 700 million plants at 45
 * bytes each.  Valgrind can map no more than this.
 */
#define MAP_BYTES ((size_t)32 << 30)

/* A boot without an id never equals another: the index is built anew then. */
static void
read_boot(char boot[static INDEX_BOOT_LEN])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	memset(boot, '?', INDEX_BOOT_LEN);
	if (fd < 0)
		return;
	if (read(fd, boot, INDEX_BOOT_LEN) != INDEX_BOOT_LEN)
		memset(boot, '?', INDEX_BOOT_LEN);
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

/* Remember which file and which pages it has. */
static int
note_file(struct index *index)
{
	MDB_stat stat;
	struct stat st;
	int fd, error = mdb_env_get_fd(index->env, &fd);

	if (error == 0)
		error = mdb_env_stat(index->env, &stat);
	if (error == 0 && fstat(fd, &st) < 0)
		error = errno;
	if (error != 0)
		return error;
	index->page_bytes = stat.ms_psize;
	index->device = st.st_dev;
	index->inode = st.st_ino;
	return index_check_size(index);
}

static int
open_environment(struct index *index, const char *path)
{
	unsigned access = index->reader ? MDB_RDONLY : 0;
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
	index_crash_blame(index);
	mdb_env_set_userctx(index->env, index);
	mdb_env_set_assert(index->env, index_crash_assert);
	error = mdb_env_set_mapsize(index->env, MAP_BYTES);
	if (error == 0)
		error = mdb_env_open(index->env, name,
		    access | MDB_NOLOCK | MDB_NOSYNC | MDB_NOTLS |
			MDB_NORDAHEAD,
		    0600);
	if (error == 0)
		error = note_file(index);
	if (error == 0)
		error = mdb_txn_begin(index->env, NULL, access, &index->txn);
	if (error != 0)
		return error;
	error = mdb_dbi_open(index->txn, NULL, 0, &index->dbi);
	if (error == 0)
		error = index_get_state(index);
	return error;
}

static void
close_environment(struct index *index)
{
	index_abort(index);
	if (index->env != NULL)
		mdb_env_close(index->env);
	index->env = NULL;
	index->inode = 0;
}

/* Whether it is of this boot, or whole on the disk. */
static bool
is_whole(const struct index *index)
{
	return (index->boot[0] != '?' && memcmp(index->state.boot, index->boot,
					     INDEX_BOOT_LEN) == 0) ||
	       faccessat(index->dir, CLEAN_NAME, F_OK, 0) == 0;
}

/* Whether it was being built, and whoever did so is gone. */
static bool
is_part(const struct index *index)
{
	return index->state.covered.end == 0 && !index_is_empty(index);
}

/* Whether whoever began to make it is gone before it said whose it is. */
static bool
is_begun(const struct index *index)
{
	MDB_stat stat;

	return index->txn != NULL &&
	       mdb_stat(index->txn, index->dbi, &stat) == 0 &&
	       stat.ms_entries == 0;
}

int
index_refresh(struct index *index, const char *path)
{
	close_environment(index);
	int error = open_environment(index, path);
	if (error != 0) {
		close_environment(index);
		return index_fail(error);
	}
	index_abort(index);
	/* What is free lies between what is not, so free() keeps it. */
	malloc_trim(0);
	return 0;
}

/* Say whose the new index is.  On the disk before anything else is. */
static int
write_first_state(struct index *index)
{
	/* It may be left from an index of which the file alone was removed. */
	if (unlinkat(index->dir, CLEAN_NAME, 0) < 0 && errno != ENOENT)
		return errno;
	memset(&index->state, 0, sizeof(index->state));
	index->state.version = INDEX_STATE_VERSION;
	memcpy(index->state.uuid, index->uuid, RECORD_UUID_LEN);
	memcpy(index->state.boot, index->boot, INDEX_BOOT_LEN);
	index->state.first = index_first_link(index, NULL);
	int error = index_commit_state(index);
	if (error == 0)
		error = mdb_env_sync(index->env, 1);
	return error == 0 ? sync_names(index->dir) : error;
}

/* From now on it is of this boot, and whole on the disk no more. */
int
index_take_over(struct index *index)
{
	int error;

	if (unlinkat(index->dir, CLEAN_NAME, 0) < 0 && errno != ENOENT)
		return errno;
	error = sync_names(index->dir);
	if (error != 0)
		return error;
	index->state.clean = 0;
	memcpy(index->state.boot, index->boot, INDEX_BOOT_LEN);
	error = index_commit_state(index);
	return error == 0 ? mdb_txn_begin(index->env, NULL, 0, &index->txn)
			  : error;
}

static struct index *
new_index(int dir, const char uuid[static RECORD_UUID_LEN])
{
	struct index *index = calloc(1, sizeof(*index));

	if (index == NULL)
		return NULL;
	index_crash_catch();
	index->dir = dir;
	index->seed = record_seed(uuid);
	memcpy(index->uuid, uuid, RECORD_UUID_LEN);
	read_boot(index->boot);
	return index;
}

/*
 * Whether the space that we ask for can be had: if it can, it was the file that
 * asked for more.
 */
static bool
has_space(void)
{
	void *space = mmap(NULL, MAP_BYTES, PROT_READ,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (space == MAP_FAILED)
		return false;
	munmap(space, MAP_BYTES);
	return true;
}

/* Open what is there.  0, or an error; then nothing is open. */
static int
open_present(struct index *index, const char *path)
{
	int error = open_environment(index, path);

	if (error == ENOMEM && has_space())
		error = MDB_CORRUPTED;
	if (error == MDB_NOTFOUND && is_begun(index))
		error = ESTALE;
	if (error == 0 && !is_whole(index))
		error = MDB_INCOMPATIBLE;
	if (error == 0 && is_part(index))
		error = ESTALE;
	index_abort(index);
	if (error == 0)
		error = index_check_free(index);
	if (error != 0)
		close_environment(index);
	return error;
}

/* 0, or an error; then nothing is open. */
static int
make_anew(struct index *index, const char *path)
{
	int error = open_environment(index, path);
	bool present = error == 0;

	if (present)
		error = EEXIST; /* it could not be discarded */
	if (error == MDB_NOTFOUND)
		error = write_first_state(index);
	index_crash_blame(NULL);
	if (error != 0)
		close_environment(index);
	/* A part of one would be taken for damage. */
	if (error != 0 && !present)
		index_discard(index->dir);
	return error;
}

/* Whether it is the system's refusal, and says nothing of the file. */
static bool
is_refusal(int error)
{
	return error == ENOMEM || error == EACCES || error == EMFILE ||
	       error == ENFILE || error == ENOSPC;
}

struct index *
index_open(int dir, const char *path, const char uuid[static RECORD_UUID_LEN])
{
	struct index *index = new_index(dir, uuid);
	struct stat st;
	int error = 0;

	if (index == NULL)
		return NULL;
	if (mkdirat(dir, INDEX_NAME, 0700) < 0 && errno != EEXIST) {
		error = errno;
		goto fail;
	}
	if (fstatat(dir, INDEX_DATA_NAME, &st, 0) == 0) {
		error = open_present(index, path);
		if (error == 0)
			return index;
		if (is_refusal(error))
			goto fail;
		log_warning("index: %s; building it anew from the journal",
		    error == MDB_INCOMPATIBLE
			? "not of this store and this boot of the machine"
		    : error == ESTALE ? "its building was interrupted"
				      : mdb_strerror(error));
		index_discard(dir);
	}
	error = make_anew(index, path);
	if (error == 0)
		return index;

fail:
	free(index);
	(void)index_fail(error);
	return NULL;
}

struct index *
index_open_reader(
    int dir, const char *path, const char uuid[static RECORD_UUID_LEN])
{
	struct index *index = new_index(dir, uuid);
	struct stat st;
	int error;

	if (index == NULL)
		return NULL;
	index->reader = true;
	/* LMDB takes an empty file for one that it may make. */
	if (fstatat(dir, INDEX_DATA_NAME, &st, 0) < 0)
		error = errno;
	else
		error = st.st_size == 0 ? ENOENT : open_present(index, path);
	if (error == 0)
		return index;
	free(index);
	if (error == MDB_INCOMPATIBLE)
		error = ESTALE;
	(void)index_fail(error);
	return NULL;
}

bool
index_is_current(const struct index *index)
{
	struct stat st;

	return fstatat(index->dir, INDEX_DATA_NAME, &st, 0) == 0 &&
	       (index->inode == 0 ||
		   (st.st_ino == index->inode && st.st_dev == index->device));
}

/* A failure leaves it unmarked: it is built anew after the next boot. */
static void
mark_clean(struct index *index)
{
	struct position covered;

	if (!index_is_current(index) || index_begin(index, &covered) < 0)
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
index_close(struct index *index, bool clean)
{
	if (index == NULL)
		return;
	index_abort(index);
	if (clean && !index->reader)
		mark_clean(index);
	close_environment(index);
	free(index);
}

void
index_discard(int dir)
{
	unlinkat(dir, CLEAN_NAME, 0);
	unlinkat(dir, INDEX_DATA_NAME, 0);
	unlinkat(dir, INDEX_NAME "/lock.mdb", 0);
}

void
index_condemn(const struct index *index)
{
	if (index_is_current(index))
		index_discard(index->dir);
}
