/*
 * index: LMDB.  See index.h.
 *
 * One database.  A plant's key is the 8 bytes of its id, big-endian with the
 * sign bit inverted, so that ids sort as numbers; its value is the offset of
 * its record.  The state's key is one byte 0, which sorts below all ids.
 *
 * The file `index/boot` has three lines; version 1.0.0 writes no third:
 *
 *	"clean", or the id of the boot that has written pages without a sync
 *	the store's uuid
 *	"serve", or "once" if only single requests have written data.mdb; and
 *	the inode and birth time of data.mdb, which differ in a copy
 *
 * The order of writes makes a crash show: the boot's id is durable before a
 * page is written, and "clean" is written after all pages are durable.  A
 * long-lived process holds a lock on the file, which processes in containers
 * see even if their boot id differs.
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
/* The text of `index/boot`, without padding. */
struct mark {
	char boot[BOOT_LEN], newline;
	char uuid[RECORD_UUID_LEN], newline_too;
	char use[6];
	char file[FILE_ID_LEN], newline_last;
};

/*
 * The map takes address space, not memory or disk.  It is two to three steps
 * larger than the file and grows with it: one transaction enters at most some
 * 40,000 plants, each of which may copy a page of 4 KiB.
 */
#define MAP_STEP_BYTES ((size_t)128 << 20)

/*
 * One transaction appends this many pairs.  LMDB frees the memory of the
 * transaction's pages only when the index is closed: 26 bytes a plant.
 */
#define COMMIT_PAIRS ((size_t)128 << 10)
/* An index in use lacks at most one append, which has fewer plants. */
#define BEHIND_PAIRS_MAX ((size_t)64 << 10)
#define STEP_PAIRS ((size_t)16 << 10)

/* Only this many records that repeat an id are logged; all are counted. */
#define TWINS_LOGGED 10

/* A short write below this free space means a full disk. */
#define ROOM_BYTES ((uint64_t)1 << 20)

struct state {
	uint32_t version;
	uint32_t clean; /* closed cleanly, and not written since */
	struct position covered;
};

struct index {
	MDB_env *env;
	MDB_dbi dbi;
	MDB_txn *txn;
	enum index_use use;
	struct journal *journal;
	int lock;           /* with INDEX_SERVE, `index/boot`, locked; or -1 */
	struct state state; /* as of the last transaction */
	char file[FILE_ID_LEN + 1]; /* file_identify of data.mdb */
};

static char state_name[1];
static MDB_val state_key = { sizeof(state_name), state_name };

const struct index_words index_words[] = {
	[INDEX_USABLE] = { "current", "current" },
	[INDEX_BEHIND] = { "behind", "behind" },
	[INDEX_ABSENT] = { "missing", "missing" },
	[INDEX_STALE] = { "stale", "not closed cleanly, or a copy" },
	[INDEX_REPLACED] = { "replaced", "replaced meanwhile" },
	[INDEX_UNUSABLE] = { "unreadable", "damaged" },
};

/* Return the errno value of an error of LMDB or the system; -1 for damage. */
static int
system_error(const struct index *index, int error)
{
	struct statvfs fs;
	int fd;

	/* LMDB reports a short write, as on a full disk, as EIO. */
	if (error == EIO && index->env != NULL &&
	    mdb_env_get_fd(index->env, &fd) == 0 && fstatvfs(fd, &fs) == 0 &&
	    (uint64_t)fs.f_bavail * fs.f_frsize < ROOM_BYTES)
		return ENOSPC;
	/* Space may be free again: `full` shows why LMDB failed with EIO. */
	if (error == MDB_MAP_FULL || (error == EIO && index->journal->full))
		return ENOSPC;
	if (error == MDB_PANIC)
		return EIO;
	/* We pass valid arguments, so EINVAL means a corrupt page. */
	return error < 0 || error == EINVAL ? -1 : error;
}

/* Keep processes that open the index later from using it or its end. */
static void
disbelieve(int dir)
{
	unlinkat(dir, BOOT_NAME, 0);
}

enum fault
index_damaged(struct index *index)
{
	struct journal *journal = index->journal;
	const uint64_t end = journal->durable;
	bool current = index_is_current(index);

	if (index->use == INDEX_READ)
		return FAULT_DAMAGED;
	/* First, as the kernel may report the lost page to no other process. */
	if (current)
		disbelieve(journal->dir);
	/* Save the index's end before deleting it.  A higher end mark stays. */
	if (end > 0 && journal_read_end(journal) == FAULT_NONE &&
	    journal->durable == end)
		journal_write_end(journal);
	journal->durable = end;
	if (current)
		index_discard(journal->dir);
	log_error("%s/" INDEX_NAME ": %s; the next start builds it again from "
		  "the journal and checks that, or opens a new one",
	    journal->path,
	    current ? "damaged and removed" : "was removed while in use");
	return FAULT_FAILED;
}

static enum fault
fail(struct index *index, int error)
{
	error = system_error(index, error);
	if (error < 0)
		return index_damaged(index);
	if (index->use != INDEX_READ)
		return journal_unwritten(index->journal, INDEX_NAME, error);
	errno = error;
	return fault_report(index->journal->path, "cannot read its index");
}

/* Read `index/boot`.  Return 0; -1 if it is missing or not valid. */
static int
read_mark(int dir, struct mark *mark)
{
	memset(mark, 0, sizeof(*mark));
	/* Version 1.0.0 wrote a shorter file; a crash may leave zeros. */
	(void)file_get(dir, BOOT_NAME, mark, sizeof(*mark));
	return mark->newline == '\n' && mark->newline_too == '\n' ? 0 : -1;
}

/* Whether a long-lived process has the index open. */
static bool
is_served(int dir)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = openat(dir, BOOT_NAME, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	bool served =
	    fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;

	file_close(fd);
	return served;
}

/* The id of this boot; it begins with a question mark if it is unknown. */
static const char *
this_boot(void)
{
	static char boot[BOOT_LEN];

	if (*boot == '\0' &&
	    file_get(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot,
		BOOT_LEN) < 0)
		*boot = '?';
	return boot;
}

static bool
is_of_this_boot(const struct mark *mark)
{
	return *this_boot() != '?' &&
	       memcmp(mark->boot, this_boot(), BOOT_LEN) == 0;
}

static bool
is_of_this_file(const struct index *index, const struct mark *mark)
{
	return mark->newline_last == '\n' &&
	       memcmp(mark->file, index->file, FILE_ID_LEN) == 0;
}

/* Whether the conditions in index.h hold, so that no page can be lost. */
static bool
is_whole(const struct index *index, const struct mark *mark)
{
	return is_of_this_file(index, mark) &&
	       (memcmp(mark->boot, BOOT_CLEAN, BOOT_LEN) == 0 ||
		   is_served(index->journal->dir) ||
		   (index->use == INDEX_ONCE && *mark->use == 'o' &&
		       is_of_this_boot(mark)));
}

/*
 * Whether the state can be used although the entries cannot: even if later
 * pages are lost, the journal was durable up to the position in the state.
 */
static bool
has_seen(const struct index *index, const struct mark *mark)
{
	return is_of_this_boot(mark) &&
	       (*mark->use == '\0' || is_of_this_file(index, mark));
}

/* Write `index/boot`, durably.  Return 0, or an errno value. */
static int
write_mark(const struct index *index, const char *boot)
{
	struct mark mark = {
		.newline = '\n', .newline_too = '\n', .newline_last = '\n'
	};
	int names =
	    openat(index->journal->dir, INDEX_NAME, O_RDONLY | O_CLOEXEC);
	int error;

	memcpy(mark.boot, boot, BOOT_LEN);
	memcpy(mark.uuid, index->journal->uuid, RECORD_UUID_LEN);
	/* A request that writes beside a service keeps "serve". */
	bool once = index->use == INDEX_ONCE && !is_served(index->journal->dir);
	memcpy(mark.use, once ? "once  " : "serve ", 6);
	memcpy(mark.file, index->file, FILE_ID_LEN);
	error = names < 0 || file_put(names, "boot", &mark, sizeof(mark)) < 0
		    ? errno
		    : 0;
	file_close(names);
	return error;
}

/* Read the state: MDB_NOTFOUND also if another version wrote it. */
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

/* Commit the transaction with index->state; after an error it is aborted. */
static int
commit_state(struct index *index)
{
	MDB_val value = { sizeof(index->state), &index->state };
	int error = mdb_put(index->txn, index->dbi, &state_key, &value, 0);

	if (error == 0)
		error = mdb_txn_commit(index->txn);
	else
		mdb_txn_abort(index->txn);
	index->txn = NULL;
	return error;
}

/* Begin a transaction, in a map that is enlarged if it may be too small. */
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
new_index(struct journal *journal, enum index_use use)
{
	struct index *index = calloc(1, sizeof(*index));

	if (index == NULL)
		return NULL;
	index->journal = journal;
	index->lock = -1;
	index->use = use;
	/* Read the id now: the sandbox hides its file later. */
	(void)this_boot();
	return index;
}

/* Return 0, or an error of LMDB or the system. */
static int
open_environment(struct index *index)
{
	unsigned flags = MDB_NOLOCK | MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD |
			 (index->use == INDEX_READ ? MDB_RDONLY : 0);
	char name[4096];
	MDB_envinfo info;
	MDB_stat stat;
	struct stat st;
	int error;

	if (snprintf(name, sizeof(name), "%s/" INDEX_NAME,
		index->journal->path) >= (int)sizeof(name))
		return ENAMETOOLONG;
	error = mdb_env_create(&index->env);
	if (error == 0)
		error = mdb_env_set_mapsize(index->env, MAP_STEP_BYTES);
	if (error == 0)
		error = mdb_env_open(index->env, name, flags, 0600);
	if (error == 0 && fstatat(index->journal->dir, DATA_NAME, &st, 0) < 0)
		error = errno;
	if (error != 0)
		return error;
	mdb_env_info(index->env, &info);
	mdb_env_stat(index->env, &stat);
	/* Access to a page beyond the end of the file raises SIGBUS. */
	if ((uint64_t)st.st_size < (info.me_last_pgno + 1) * stat.ms_psize)
		return MDB_CORRUPTED;
	error = begin(index);
	return error != 0 ? error
			  : mdb_dbi_open(index->txn, NULL, 0, &index->dbi);
}

/* Open data.mdb and read its state.  Return as open_environment. */
static int
open_state(struct index *index)
{
	int error = open_environment(index);

	if (error == 0)
		error = get_state(index);
	if (error == 0 && index->state.covered.end == 0)
		error = MDB_NOTFOUND;
	return error;
}

/* Containers have another boot id: the lock shows that the index is served. */
static void
lock_mark(struct index *index)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };

	if (index->use != INDEX_SERVE)
		return;
	index->lock =
	    openat(index->journal->dir, BOOT_NAME, O_RDONLY | O_CLOEXEC);
	fcntl(index->lock, F_OFD_SETLK, &lock);
}

enum fault
index_open(struct journal *journal, enum index_use use, struct index_view *view)
{
	const int dir = journal->dir;
	struct stat st = { 0 };
	struct mark mark;
	bool seen = false;

	*view = (struct index_view){ 0 };
	if (read_mark(dir, &mark) == 0 &&
	    memcmp(mark.uuid, journal->uuid, RECORD_UUID_LEN) != 0) {
		log_error("%s: of another store than this directory was; if "
			  "it is meant to be used, remove %s/" INDEX_NAME
			  " first",
		    journal->name, journal->path);
		return FAULT_SETUP;
	}
	struct index *index = new_index(journal, use);
	if (index == NULL)
		return fault_report(journal->path, "cannot open its index");
	int error = fstatat(dir, DATA_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0
			? errno
			: MDB_NOTFOUND;
	/* LMDB would fill an empty file, block on a FIFO or follow a link. */
	if (S_ISREG(st.st_mode) && st.st_size > 0 &&
	    file_identify(dir, DATA_NAME, index->file) == 0) {
		if (is_whole(index, &mark)) {
			error = open_state(index);
		} else if (has_seen(index, &mark)) {
			index->use = INDEX_READ;
			seen = open_state(index) == 0;
		}
	}
	if (error == 0)
		view->entries = index_count(index);
	index_abort(index);
	if (error == 0 || seen)
		view->seen = index->state.covered;
	if (error == 0) {
		lock_mark(index);
		view->index = index;
		view->covered = view->seen;
		return FAULT_NONE;
	}
	view->state = error == ENOENT         ? INDEX_ABSENT
		      : error == MDB_NOTFOUND ? INDEX_STALE
					      : INDEX_UNUSABLE;
	error = system_error(index, error);
	index_close(index, false);
	if (error < 0 || error == ENOENT)
		return FAULT_NONE;
	errno = error;
	return fault_report(journal->path, "cannot open its index");
}

/* Make an empty data.mdb, then `index/boot`, durably.  0, or an errno value. */
static int
make_files(struct index *index)
{
	/* Entries of an old file would count as the new index's. */
	const int dir = index->journal->dir;
	int error =
	    unlinkat(dir, DATA_NAME, 0) < 0 && errno != ENOENT ? errno : 0;

	index_discard(dir);
	if (error != 0)
		return error;
	/* The journal may be new: the fsync also makes its name durable. */
	if ((mkdirat(dir, INDEX_NAME, 0700) < 0 && errno != EEXIST) ||
	    fsync(dir) < 0)
		return errno;
	int fd = openat(
	    dir, DATA_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno;
	close(fd);
	return file_identify(dir, DATA_NAME, index->file) < 0
		   ? errno
		   : write_mark(index, this_boot());
}

enum fault
index_create(
    struct journal *journal, enum index_use use, struct index **created)
{
	struct index *index = new_index(journal, use);

	if (index == NULL)
		return journal_unwritten(journal, INDEX_NAME, errno);
	int error = make_files(index);
	if (error == 0)
		error = open_environment(index);
	index->state.version = STATE_VERSION;
	if (error == 0)
		error = commit_state(index);
	if (error != 0) {
		enum fault fault = fail(index, error);
		index_close(index, false);
		return fault;
	}
	lock_mark(index);
	*created = index;
	return FAULT_NONE;
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

/* Mark the index durably as in use: a crash may now lose its pages. */
static int
take_over(struct index *index)
{
	int error =
	    index_is_current(index) ? write_mark(index, this_boot()) : 0;

	index->state.clean = 0;
	if (error == 0)
		error = commit_state(index);
	return error == 0 ? begin(index) : error;
}

static int
begin_state(struct index *index)
{
	int error = begin(index);

	if (error == 0)
		error = get_state(index);
	if (error == 0 && index->use != INDEX_READ && index->state.clean != 0)
		error = take_over(index);
	if (error != 0)
		index_abort(index);
	return error;
}

enum fault
index_begin(struct index *index, struct position *covered)
{
	int error = begin_state(index);

	if (error != 0)
		return fail(index, error);
	*covered = index->state.covered;
	return FAULT_NONE;
}

enum fault
index_commit(struct index *index, const struct position *covered)
{
	index->state.covered = *covered;
	int error = commit_state(index);
	return error == 0 ? FAULT_NONE : fail(index, error);
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

static enum fault
take_value(struct index *index, const MDB_val *value, uint64_t *offset)
{
	if (value->mv_size == sizeof(*offset))
		memcpy(offset, value->mv_data, sizeof(*offset));
	/* The journal's header is at 0. */
	return *offset > 0 ? FAULT_NONE : fail(index, MDB_CORRUPTED);
}

enum fault
index_put(struct index *index, int64_t id, uint64_t offset, uint64_t *found)
{
	unsigned char bytes[8];
	MDB_val key = key_of(id, bytes), value = { sizeof(offset), &offset };
	int error =
	    mdb_put(index->txn, index->dbi, &key, &value, MDB_NOOVERWRITE);

	*found = 0;
	if (error == MDB_KEYEXIST)
		return take_value(index, &value, found);
	return error == 0 ? FAULT_NONE : fail(index, error);
}

enum fault
index_find(struct index *index, int64_t id, uint64_t *offset)
{
	unsigned char bytes[8];
	MDB_val key = key_of(id, bytes), value;
	int error = mdb_get(index->txn, index->dbi, &key, &value);

	*offset = 0;
	if (error == 0)
		return take_value(index, &value, offset);
	return error == MDB_NOTFOUND ? FAULT_NONE : fail(index, error);
}

enum fault
index_check(struct index *index)
{
	int fd;

	return mdb_env_get_fd(index->env, &fd) != 0 || file_is_written(fd)
		   ? FAULT_NONE
		   : index_damaged(index);
}

uint64_t
index_count(const struct index *index)
{
	MDB_stat stat = { .ms_entries = 1 };

	mdb_stat(index->txn, index->dbi, &stat);
	return stat.ms_entries - 1; /* the state is an entry */
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

	return file_identify(index->journal->dir, DATA_NAME, file) == 0 &&
	       strcmp(file, index->file) == 0;
}

/*
 * If the commit fails, the index stays marked as in use: a start rebuilds it,
 * unless a process still serves it.  If the sync fails, pages may be lost: the
 * index is removed.
 */
static void
mark_clean(struct index *index)
{
	if (!index_is_current(index) || begin_state(index) != 0)
		return;
	index->state.clean = 1;
	if (commit_state(index) != 0)
		return;
	int error = mdb_env_sync(index->env, 1);
	if (error == 0) {
		write_mark(index, BOOT_CLEAN);
		return;
	}
	log_warning("index: cannot sync: %s; removing it: the next start "
		    "builds it again",
	    mdb_strerror(error));
	index_discard(index->journal->dir);
}

void
index_close(struct index *index, bool clean)
{
	if (index == NULL)
		return;
	index_abort(index);
	if (clean)
		mark_clean(index);
	if (index->env != NULL)
		mdb_env_close(index->env);
	file_close(index->lock);
	free(index);
}

void
index_discard(int dir)
{
	disbelieve(dir);
	unlinkat(dir, DATA_NAME, 0);
	unlinkat(dir, INDEX_NAME "/lock.mdb", 0);
	unlinkat(dir, INDEX_NAME "/clean", 0); /* of version 0.1.0 */
}

/* `nth` counts the records that repeat an id, from 0. */
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
 * Append a pair whose id is above all others.  Sorted ids go to the end of
 * LMDB's tree: no search, and full pages.  10 million plants take 1.9 s.
 */
static enum fault
append(struct index *index, struct pair pair)
{
	unsigned char bytes[8];
	MDB_val key = key_of(pair.key, bytes),
		value = { sizeof(pair.value), &pair.value };
	int error = mdb_put(index->txn, index->dbi, &key, &value, MDB_APPEND);

	return error == 0 ? FAULT_NONE : fail(index, error);
}

/* Insert a pair into an index in use. */
static enum fault
insert(struct index *index, const struct pair *pair, size_t *twins)
{
	uint64_t first;
	enum fault fault = index_put(index, pair->key, pair->value, &first);

	if (fault != FAULT_NONE || first == 0)
		return fault;
	if (first >= pair->value ||
	    !journal_has_plant(index->journal, first, pair->key))
		return index_damaged(index);
	log_twin(
	    index->journal->name, (*twins)++, pair->key, first, pair->value);
	return FAULT_NONE;
}

static enum fault
commit_and_begin(struct index *index, const struct position *covered)
{
	struct position now;
	enum fault fault = index_commit(index, covered);

	return fault == FAULT_NONE ? index_begin(index, &now) : fault;
}

enum fault
index_build(struct index *index, struct pairs *pairs, const struct position *to,
    const struct watch *watch)
{
	static const struct position none;
	const bool new = index->state.covered.end == 0;
	const uint64_t plant_bytes = pairs->n > 0 ? to->end / pairs->n : 0;
	enum fault fault = FAULT_NONE;
	size_t twins = 0;

	if (pairs_sort(pairs) < 0)
		return journal_unwritten(index->journal, INDEX_NAME, errno);
	if (new)
		index_twins(pairs, index->journal->name);
	else if (pairs->n > BEHIND_PAIRS_MAX)
		return index_damaged(index);
	for (size_t i = 0; i < pairs->n && fault == FAULT_NONE; i++) {
		const struct pair *pair = &pairs->map[i];

		if (!new)
			fault = insert(index, pair, &twins);
		else if (i == 0 || pair->key != pair[-1].key)
			fault = append(index, *pair);
		if (fault == FAULT_NONE && (i + 1) % STEP_PAIRS == 0 &&
		    !watch_step(
			watch, to->end + (i + 1) * plant_bytes, 2 * to->end))
			fault = FAULT_STOPPED;
		if (fault == FAULT_NONE && (i + 1) % COMMIT_PAIRS == 0)
			fault = commit_and_begin(index, &none);
	}
	return fault == FAULT_NONE ? commit_and_begin(index, to) : fault;
}
