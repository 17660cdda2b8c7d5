/*
 * index: runs, a manifest that names them, and a memtable.  See index.h.
 *
 * Happy path of a checkpoint: the collected pairs are sorted and written as a
 * new run; then a manifest that names it replaces the old one.  Failure modes:
 * the new files are removed; if only the sync of the directory failed, a crash
 * may leave either manifest, so the files of both are kept.
 */
#include "store/index.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"
#include "ground/pairs.h"
#include "memtable.h"
#include "pure/crc32c.h"
#include "run.h"

#define MANIFEST_NAME "manifest"
#define MANIFEST_NEW_NAME "manifest.new"

/* Version 1.0.0 had a different index, version 2, in this directory. */
#define MANIFEST_VERSION 3

/*
 * A new run is merged with preceding runs of up to this many times its size: so
 * 10 million plants are in about 6 runs, and each is written about 15 times.
 */
#define MERGE_FACTOR 3
#define RUNS_MAX 16

/* How many times to read a manifest whose runs are gone: it may be replaced. */
#define LOAD_TRIES 16

/* Only this many records that repeat an id are logged; all are counted. */
#define TWINS_LOGGED 10

struct manifest {
	uint32_t version, n;
	char uuid[RECORD_UUID_LEN], nul[4];
	char file[FILE_ID_LEN + 7]; /* of the manifest itself */
	struct position covered;
	struct run runs[RUNS_MAX];
	uint32_t crc, last_nul;
};

struct run_set {
	struct manifest manifest;
	struct run_map maps[RUNS_MAX];
};

struct index {
	struct journal *journal;
	struct run_set set;
	struct memtable memory;

	/* The checkpoint in progress. */
	int dir;             /* locked; -1 otherwise */
	bool lost;           /* the manifest on the disk is not ours */
	struct pair *copied; /* of the memtable */
	size_t ncopied;
	struct position to;
	struct run_writer writer;
	struct run_set next; /* written, to be installed */
	bool installed;
	bool failing;        /* a failure was logged already */
	atomic_size_t twins; /* logged so far, also by a merge */
};

const struct index_words index_words[] = {
	[INDEX_USABLE] = { "current", "current" },
	[INDEX_BEHIND] = { "behind", "behind; the service catches up" },
	[INDEX_ABSENT] = { "missing", "missing" },
	[INDEX_STALE] = { "stale", "a copy, or of another version" },
	[INDEX_UNUSABLE] = { "unreadable", "damaged" },
};

/* --- Files --- */

static int
open_dir(int dir)
{
	return openat(
	    dir, INDEX_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static uint32_t
sum(const struct manifest *manifest)
{
	return crc32c(0, manifest, offsetof(struct manifest, crc));
}

/* Read the manifest.  errno is 0, or the error if it could not be read. */
static enum index_state
read_manifest(int dir, struct manifest *manifest)
{
	char file[FILE_ID_LEN + 1] = "";
	int fd = openat(
	    dir, MANIFEST_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t n = -1;

	memset(manifest, 0, sizeof(*manifest));
	if (fd >= 0 && file_identify(fd, file) == 0)
		n = file_read_all(fd, manifest, sizeof(*manifest), 0);
	file_close(fd);
	if (n < 0 && errno == ENOENT) {
		errno = 0;
		return INDEX_ABSENT;
	}
	/* A link, a pipe or a directory makes the index stale, not unusable. */
	if (n < 0 && errno != ELOOP && errno != ESPIPE && errno != EISDIR)
		return INDEX_UNUSABLE;
	errno = 0;
	if (n < 0)
		return INDEX_STALE;
	if (n != sizeof(*manifest) || manifest->crc != sum(manifest)) {
		memset(manifest, 0, sizeof(*manifest));
		return INDEX_UNUSABLE;
	}
	return manifest->version == MANIFEST_VERSION &&
		       strcmp(file, manifest->file) == 0
		   ? INDEX_USABLE
		   : INDEX_STALE;
}

/* Return the map of this run in `set`, or NULL. */
static const struct run_map *
find_map(const struct run_set *set, const struct run *run)
{
	for (size_t i = 0; i < set->manifest.n; i++)
		if (memcmp(&set->manifest.runs[i], run, sizeof(*run)) == 0)
			return &set->maps[i];
	return NULL;
}

/* Close the runs that are not among those of `kept`. */
static void
close_runs(struct run_set *set, const struct run_set *kept)
{
	for (size_t i = 0; i < set->manifest.n; i++)
		if (find_map(kept, &set->manifest.runs[i]) == NULL)
			run_close(&set->maps[i]);
	set->manifest.n = 0;
}

/* Open the runs of the manifest that are not open in `have`. */
static int
open_runs(int dir, struct run_set *set, const struct run_set *have)
{
	for (uint32_t i = 0, n = set->manifest.n; i < n; i++) {
		const struct run *run = &set->manifest.runs[i];
		const struct run_map *map = find_map(have, run);

		if (map != NULL)
			set->maps[i] = *map;
		else if (run_open(dir, run, &set->maps[i]) < 0) {
			int error = errno;

			set->manifest.n = i;
			close_runs(set, have);
			errno = error;
			return -1;
		}
	}
	errno = 0;
	return 0;
}

static const struct run_set no_runs;

/* Read the manifest and open its runs.  errno is 0, or the error of a run. */
static enum index_state
load(int dir, struct run_set *set, const struct run_set *have)
{
	enum index_state state;
	int tries = LOAD_TRIES;

	do {
		state = read_manifest(dir, &set->manifest);
		if (state == INDEX_USABLE && open_runs(dir, set, have) == 0)
			return INDEX_USABLE;
	} while (state == INDEX_USABLE && errno == ENOENT && --tries > 0);
	set->manifest.n = 0;
	if (state != INDEX_USABLE)
		return state;
	if (errno == ENOENT)
		errno = 0;
	return INDEX_STALE;
}

/* The same as load, for an index that is being opened. */
static enum index_state
load_first(struct index *index)
{
	int dir = open_dir(index->journal->dir);
	enum index_state state = INDEX_ABSENT;

	if (dir >= 0)
		state = load(dir, &index->set, &no_runs);
	else if (errno == ENOENT || errno == ENOTDIR)
		errno = 0;
	file_close(dir);
	return state;
}

enum fault
index_open(struct journal *journal, struct index_view *view)
{
	struct index *index = calloc(1, sizeof(*index));

	*view = (struct index_view){ .state = INDEX_ABSENT };
	if (index == NULL)
		return fault_report(journal->path, "cannot open its index");
	index->journal = journal;
	index->dir = -1;
	view->state = load_first(index);
	struct manifest *manifest = &index->set.manifest;
	if (errno != 0) {
		enum fault fault =
		    fault_report(journal->path, "cannot open its index");

		index_close(index);
		return fault;
	}
	if (manifest->version != 0 &&
	    memcmp(manifest->uuid, journal->uuid, RECORD_UUID_LEN) != 0) {
		log_error("%s: belongs to a different store from the index "
			  "beside it; to use it anyway, remove %s/" INDEX_NAME
			  " first",
		    journal->name, journal->path);
		index_close(index);
		return FAULT_SETUP;
	}
	if (view->state != INDEX_USABLE)
		memset(manifest, 0, sizeof(*manifest));
	view->index = index;
	view->covered = manifest->covered;
	view->entries = index_count(index);
	return FAULT_NONE;
}

void
index_close(struct index *index)
{
	if (index == NULL)
		return;
	index_release(index);
	close_runs(&index->set, &no_runs);
	memtable_done(&index->memory);
	free(index);
}

int
index_uuid(int dir, char uuid[static RECORD_UUID_LEN])
{
	struct manifest manifest;
	int names = open_dir(dir);
	(void)read_manifest(names, &manifest);

	file_close(names);
	if (manifest.version == 0)
		return -1;
	memcpy(uuid, manifest.uuid, RECORD_UUID_LEN);
	return 0;
}

/* Any other file in the directory is from an earlier version, or unfinished. */
static bool
is_used(const char *name, const struct manifest *manifest)
{
	char run[RUN_NAME_MAX];

	if (strcmp(name, MANIFEST_NAME) == 0 ||
	    strcmp(name, INDEX_END_NAME) == 0)
		return true;
	for (size_t i = 0; i < manifest->n; i++)
		if (strcmp(name, run_name(manifest->runs[i].number, run)) == 0)
			return true;
	return false;
}

static void
remove_left_over(int dir, const struct manifest *manifest)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *names = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (names == NULL) {
		file_close(fd);
		return;
	}
	while ((entry = readdir(names)) != NULL)
		if (!is_used(entry->d_name, manifest))
			unlinkat(dir, entry->d_name, 0);
	closedir(names);
}

void
index_discard(int dir)
{
	int fd = open_dir(dir);

	if (fd < 0)
		return;
	unlinkat(fd, MANIFEST_NAME, 0);
	unlinkat(fd, INDEX_END_NAME, 0);
	remove_left_over(fd, &no_runs.manifest);
	close(fd);
}

enum fault
index_damaged(struct index *index)
{
	struct manifest manifest;
	int dir = open_dir(index->journal->dir);
	bool ours = read_manifest(dir, &manifest) == INDEX_USABLE &&
		    strcmp(manifest.file, index->set.manifest.file) == 0;

	if (ours)
		unlinkat(dir, MANIFEST_NAME, 0);
	file_close(dir);
	log_error("%s/" INDEX_NAME ": %s; the next start rebuilds it from the "
		  "journal, which it checks, or opens a new one",
	    index->journal->path,
	    ours ? "damaged and removed"
		 : "damaged, and removed or replaced meanwhile");
	return FAULT_DAMAGED;
}

/* --- Lookups --- */

uint64_t
index_find(const struct index *index, int64_t id)
{
	const struct manifest *manifest = &index->set.manifest;
	uint64_t offset = 0;

	for (size_t i = 0; i < manifest->n && offset == 0; i++)
		offset = run_find(&manifest->runs[i], &index->set.maps[i], id);
	if (offset == 0)
		offset = memtable_find(&index->memory, id);
	return offset;
}

/* `nth` counts the repeats from 0. */
static void
log_twin(
    const char *name, size_t nth, int64_t id, uint64_t first, uint64_t offset)
{
	if (nth < TWINS_LOGGED)
		log_error("%s: the plant %" PRId64 " occurs twice, at bytes "
			  "%" PRIu64 " and %" PRIu64 "; the first counts; to "
			  "remove the others, run: plant-store recover",
		    name, id, first, offset);
	else if (nth == TWINS_LOGGED)
		log_error(
		    "%s: more plants occur twice; verify counts them", name);
}

int
index_add(struct index *index, int64_t id, uint64_t offset)
{
	int added = memtable_add(&index->memory, id, offset);

	if (added <= 0)
		return added;
	log_twin(index->journal->name, index->twins++, id,
	    memtable_find(&index->memory, id), offset);
	return 0;
}

size_t
index_held(const struct index *index)
{
	return index->memory.n;
}

void
index_keep(struct index *index, size_t n)
{
	memtable_keep(&index->memory, n);
}

uint64_t
index_count(const struct index *index)
{
	uint64_t n = index->memory.n;

	for (size_t i = 0; i < index->set.manifest.n; i++)
		n += index->set.manifest.runs[i].n;
	return n;
}

const struct position *
index_covered(const struct index *index)
{
	return &index->set.manifest.covered;
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

/* --- Checkpoints --- */

/* Log the first of consecutive failures, with errno. */
static enum fault
fail(struct index *index)
{
	enum fault fault = fault_of(errno);

	if (!index->failing && fault != FAULT_STOPPED)
		log_error("%s/" INDEX_NAME ": cannot write: %s%s; plants are "
			  "stored, and their ids stay in memory until it can "
			  "be written",
		    index->journal->path, strerror(errno), fault_remedy(errno));
	index->failing |= fault != FAULT_STOPPED;
	return fault;
}

enum fault
index_claim(struct index *index)
{
	const int parent = index->journal->dir;

	if (index->dir >= 0)
		return FAULT_NONE;
	if (mkdirat(parent, INDEX_NAME, 0700) == 0 || errno == EEXIST)
		index->dir = open_dir(parent);
	/* The journal may be new: the fsync also makes its name durable. */
	if (index->dir >= 0 && flock(index->dir, LOCK_EX | LOCK_NB) == 0 &&
	    fsync(parent) == 0)
		return FAULT_NONE;
	enum fault fault = errno == EWOULDBLOCK ? FAULT_BUSY : fail(index);
	index_release(index);
	return fault;
}

/* Remove the runs that the last checkpoint has replaced. */
static void
remove_replaced(struct index *index)
{
	if (index->installed)
		remove_left_over(index->dir, &index->set.manifest);
	index->installed = false;
}

void
index_release(struct index *index)
{
	remove_replaced(index);
	free(index->copied);
	index->copied = NULL;
	file_close(index->dir);
	index->dir = -1;
}

/* Use `set`, and drop the plants that it covers from the memtable. */
static void
use_runs(struct index *index, const struct run_set *set)
{
	const struct memtable *memory = &index->memory;
	size_t first = 0;

	close_runs(&index->set, set);
	index->set = *set;
	while (first < memory->n &&
	       memory->pairs[first].value < set->manifest.covered.end)
		first++;
	memtable_drop(&index->memory, first);
}

enum fault
index_collect(struct index *index, struct position *at)
{
	struct run_set *found = &index->next;
	const struct position *covered = &found->manifest.covered;
	enum index_state state = load(index->dir, found, &index->set);

	assert(index->dir >= 0);
	/* Out of memory or descriptors: the manifest may still exist. */
	if (state != INDEX_USABLE && errno != 0 &&
	    fault_passes(fault_of(errno)))
		return fail(index);
	index->lost = state != INDEX_USABLE ||
		      memcmp(found->manifest.uuid, index->journal->uuid,
			  RECORD_UUID_LEN) != 0 ||
		      covered->end < index->set.manifest.covered.end;
	if (index->lost)
		close_runs(found, &index->set);
	else
		use_runs(index, found);
	if (at->end < index_covered(index)->end)
		*at = *index_covered(index);
	index->to = *at;
	free(index->copied);
	index->ncopied = index->memory.n;
	index->copied = malloc((index->ncopied + 1) * sizeof(*index->copied));
	if (index->copied == NULL)
		return fail(index);
	if (index->ncopied > 0)
		memcpy(index->copied, index->memory.pairs,
		    index->ncopied * sizeof(*index->copied));
	return FAULT_NONE;
}

/* The remaining pairs of a run, or of the copied ones. */
struct source {
	const struct pair *next;
	uint64_t left;
};

/* Return 0; or -1 with ECANCELED if the watch stops the work. */
static int
step(const struct watch *watch)
{
	errno = ECANCELED;
	return watch_step(watch, 0, 0) ? 0 : -1;
}

/*
 * Merge the sources; earlier sources have the earlier records.  Return 0, or -1
 * with errno: ECANCELED if the watch stopped the merge.
 */
static int
merge(struct index *index, struct source *sources, size_t n,
    const struct watch *watch)
{
	struct run_writer *writer = &index->writer;
	struct pair last = { 0 };

	for (uint64_t done = 1;; done++) {
		struct source *least = NULL;

		for (size_t i = 0; i < n; i++)
			if (sources[i].left > 0 &&
			    (least == NULL ||
				sources[i].next->key < least->next->key))
				least = &sources[i];
		if (least == NULL)
			return 0;
		const struct pair pair = *least->next++;
		least->left--;
		if (writer->run.n > 0 && pair.key == last.key)
			log_twin(index->journal->name, index->twins++, pair.key,
			    last.value, pair.value);
		else if (run_put(writer, pair) < 0)
			return -1;
		else
			last = pair;
		if (done % RUN_STEP_PAIRS == 0 && step(watch) < 0)
			return -1;
	}
}

/* Merge the runs, starting at `first`, and the copied pairs into a new run. */
static int
write_run(struct index *index, size_t first, const struct watch *watch)
{
	const struct run_set *set = &index->set;
	const struct manifest *now = &set->manifest;
	struct source sources[RUNS_MAX + 1] = { { 0 } };
	uint64_t last = now->n > 0 ? now->runs[now->n - 1].number : 0;
	uint64_t total = index->ncopied;
	size_t n = 0;

	for (size_t i = first; i < now->n; i++) {
		total += now->runs[i].n;
		sources[n++] =
		    (struct source){ set->maps[i].pairs, now->runs[i].n };
	}
	sources[n++] = (struct source){ index->copied, index->ncopied };
	assert(n <= RUNS_MAX + 1);
	if (run_begin(&index->writer, index->dir, last, total) < 0)
		return -1;
	return run_end(&index->writer, merge(index, sources, n, watch) == 0);
}

/*
 * Write the manifest, unless the watch stops the work: a lookup may have found
 * damage, and removed the index.  The caller syncs the directory.
 */
static int
write_manifest(int dir, struct manifest *manifest, const struct watch *watch)
{
	unlinkat(dir, MANIFEST_NEW_NAME, 0);
	int fd = openat(dir, MANIFEST_NEW_NAME,
	    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	bool good = fd >= 0 && file_identify(fd, manifest->file) == 0;

	manifest->crc = sum(manifest);
	good = good &&
	       file_write_all(fd, manifest, sizeof(*manifest), 0) == 0 &&
	       fsync(fd) == 0 && step(watch) == 0 &&
	       renameat(dir, MANIFEST_NEW_NAME, dir, MANIFEST_NAME) == 0;
	file_close(fd);
	return good ? 0 : -1;
}

/* Return the first of the newest runs to merge into the new one. */
static size_t
find_due(const struct index *index, uint64_t max)
{
	const struct manifest *now = &index->set.manifest;
	size_t first = now->n;
	uint64_t n = index->ncopied;

	if (index->lost)
		return 0;
	if (first == RUNS_MAX)
		max = UINT64_MAX;
	while (first == RUNS_MAX ||
	       (first > 0 && now->runs[first - 1].n <= MERGE_FACTOR * n &&
		   now->runs[first - 1].n + n <= max))
		n += now->runs[--first].n;
	return first;
}

/*
 * Check the runs that will be merged: a flipped bit would otherwise get a new,
 * correct checksum.
 */
static bool
are_whole(const struct run_set *set, size_t first)
{
	for (size_t i = first; i < set->manifest.n; i++)
		if (!run_is_whole(&set->manifest.runs[i], &set->maps[i]))
			return false;
	return true;
}

enum fault
index_write(struct index *index, uint64_t max, const struct watch *watch)
{
	struct manifest *next = &index->next.manifest;
	const size_t n = index->set.manifest.n, first = find_due(index, max);

	assert(index->dir >= 0 && first < RUNS_MAX);
	assert(index->to.end >= index->set.manifest.covered.end);
	remove_replaced(index);
	if (!are_whole(&index->set, first))
		return index_damaged(index);
	pairs_order(index->copied, index->ncopied);
	*next = index->set.manifest;
	next->version = MANIFEST_VERSION;
	memcpy(next->uuid, index->journal->uuid, RECORD_UUID_LEN);
	next->covered = index->to;
	memset(&next->runs[first], 0, (RUNS_MAX - first) * sizeof(*next->runs));
	if (first < n || index->ncopied > 0) {
		if (write_run(index, first, watch) < 0)
			return fail(index);
		next->runs[first] = index->writer.run;
		next->n = (uint32_t)first + 1;
	}
	if (write_manifest(index->dir, next, watch) < 0) {
		char name[RUN_NAME_MAX];
		enum fault fault = fail(index);

		unlinkat(index->dir, MANIFEST_NEW_NAME, 0);
		unlinkat(
		    index->dir, run_name(next->runs[first].number, name), 0);
		return fault;
	}
	/* After a failed sync either manifest may be on the disk. */
	if (fsync(index->dir) < 0 ||
	    open_runs(index->dir, &index->next, &index->set) < 0)
		return fail(index);
	if (index->failing)
		log_info("%s/" INDEX_NAME ": can be written again",
		    index->journal->path);
	index->failing = false;
	return FAULT_NONE;
}

void
index_install(struct index *index)
{
	use_runs(index, &index->next);
	index->installed = true;
	/* The directory may have been removed, and made again by another. */
	file_close(index->journal->end_fd);
	index->journal->end_fd = -1;
}
