/*
 * inspect: see store/inspect.h.
 *
 * Happy path: under the lock nobody changes the index, so ids are looked up
 * there, some at a time, and believed once their records were read.  What the
 * index cannot tell, because it is missing, behind or not to be believed, is
 * looked for in the journal, from where the index ends or from its beginning.
 */
#include "store/inspect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "index.h"
#include "journal.h"
#include "reader_state.h"
#include "replay.h"
#include "store/reader.h"

/* Ids looked up before others get the lock again: a millisecond. */
#define LOOK_UP_MAX ((size_t)1000)

/* stat counts in these, whatever the file system's blocks are. */
#define STAT_BLOCK_BYTES 512

struct inspect {
	const char *path;
	struct reader *reader;
	char *line;
	size_t line_size;
};

struct inspect *
inspect_open(const char *dir, const struct watch *watch, int *status)
{
	struct inspect *inspect = calloc(1, sizeof(*inspect));

	if (inspect == NULL) {
		*status = reader_error(dir, "cannot read");
		return NULL;
	}
	inspect->path = dir;
	inspect->reader = reader_open(dir, watch, status);
	if (inspect->reader != NULL)
		return inspect;
	free(inspect);
	return NULL;
}

void
inspect_close(struct inspect *inspect)
{
	if (inspect == NULL)
		return;
	reader_close(inspect->reader);
	free(inspect->line);
	free(inspect);
}

const char *
inspect_uuid(const struct inspect *inspect)
{
	return inspect->reader->journal.uuid;
}

const char *
inspect_journal(const struct inspect *inspect)
{
	return inspect->reader->name;
}

static int
read_at(struct inspect *inspect, uint64_t offset, struct record *record)
{
	return journal_read(&inspect->reader->journal, offset, record,
	    &inspect->line, &inspect->line_size);
}

int
inspect_read(struct inspect *inspect, uint64_t offset, struct record *record)
{
	if (read_at(inspect, offset, record) == 0)
		return EX_OK;
	if (errno == EBADMSG)
		return reader_damaged(
		    inspect->reader, offset, "no valid line begins here");
	return reader_error(inspect->reader->name, "cannot read");
}

/* Whether the journal has what the index says that it read last. */
static bool
is_of_journal(struct inspect *inspect, const struct position *covered)
{
	const struct position *start = &inspect->reader->journal.start;
	struct record record;

	if (covered->seq == 0)
		return covered->end == 0 || covered->end == start->end;
	return read_at(inspect, covered->last, &record) == 0 &&
	       record.seq == covered->seq && record.crc == covered->crc;
}

/*
 * Whether a plant follows on what the index has read.  A closing line may: a
 * CGI process does not enter it.
 */
static bool
is_behind(struct inspect *inspect, const struct position *covered)
{
	const struct journal *journal = &inspect->reader->journal;
	const struct position *at =
	    covered->end > 0 ? covered : &journal->start;
	struct replay replay;
	struct record record;
	enum replay_result result;

	if (replay_init(&replay, journal->fd, journal->seed, at) < 0)
		return true;
	do
		result = replay_next(&replay, &record);
	while (result == REPLAY_RECORD && record.plant == NULL);
	replay_done(&replay);
	/* What cannot be read, the reader tells. */
	return result != REPLAY_END;
}

static enum inspect_index
index_fault(void)
{
	switch (errno) {
	case ENOENT:
		return INSPECT_MISSING;
	case ESTALE:
		return INSPECT_FOREIGN;
	default:
		return INSPECT_UNREADABLE;
	}
}

/*
 * Under the lock: begin to use the index.  `*index` is NULL if it is not to be
 * believed.
 */
static enum inspect_index
enter_index(
    struct inspect *inspect, struct index **index, struct position *covered)
{
	const struct reader *reader = inspect->reader;
	enum inspect_index state = INSPECT_FOREIGN;

	*covered = (struct position){ 0 };
	*index = NULL;
	if (reader->dir < 0)
		return INSPECT_MISSING;
	*index =
	    index_open_reader(reader->dir, inspect->path, reader->journal.uuid);
	if (*index == NULL)
		return index_fault();
	if (index_begin(*index, covered) < 0)
		state = index_fault();
	else if (is_of_journal(inspect, covered))
		return is_behind(inspect, covered) ? INSPECT_BEHIND
						   : INSPECT_CURRENT;
	*covered = (struct position){ 0 };
	index_close(*index, false);
	*index = NULL;
	return state;
}

/* How many files of the directory have this prefix, and their size. */
static void
count_files(int parent, const char *name, const char *prefix, uint64_t *files,
    uint64_t *bytes, uint64_t *disk_bytes)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	struct stat st;

	if (dir == NULL) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
		    fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		++*files;
		*bytes += (uint64_t)st.st_size;
		*disk_bytes += (uint64_t)st.st_blocks * STAT_BLOCK_BYTES;
	}
	closedir(dir);
}

int
inspect_report(struct inspect *inspect, struct inspect_report *report)
{
	struct reader *reader = inspect->reader;
	struct position covered;
	struct index *index;
	uint64_t unused = 0;
	int status = reader_lock(reader);

	if (status != EX_OK)
		return status;
	memset(report, 0, sizeof(*report));
	enum lock_mark mark = reader_mark(reader);
	report->failed = mark == LOCK_FAILED || mark == LOCK_UNREADABLE;
	report->index = enter_index(inspect, &index, &covered);
	index_close(index, false);
	reader_unlock(reader);
	report->index_end = covered.end;
	if (reader->dir < 0)
		return EX_OK;
	count_files(
	    reader->dir, "index", "", &unused, &unused, &report->index_bytes);
	count_files(reader->dir, ".", JOURNAL_NAME ".torn-",
	    &report->kept_files, &report->kept_bytes, &unused);
	count_files(reader->dir, ".", JOURNAL_NAME ".failed-",
	    &report->kept_files, &report->kept_bytes, &unused);
	return EX_OK;
}

/* What is being looked for. */
struct search {
	const int64_t *ids;
	uint64_t *offsets;
	size_t n;
	bool rest;            /* the journal's rest must be read too, ... */
	struct position from; /* ... from here */
};

/* The rest of the journal is to be read, from no later than `at`. */
static void
want_rest(struct search *search, const struct position *at)
{
	if (!search->rest || at->end < search->from.end)
		search->from = *at;
	search->rest = true;
}

static int
look_up(struct inspect *inspect, struct search *search, size_t at, size_t n)
{
	struct reader *reader = inspect->reader;
	struct position covered;
	struct index *index;
	int status = reader_lock(reader);

	if (status != EX_OK)
		return status;
	enum inspect_index state = enter_index(inspect, &index, &covered);
	for (size_t i = at; index != NULL && i < at + n; i++) {
		switch (
		    index_find(index, search->ids[i], &search->offsets[i])) {
		case INDEX_FOUND:
			break;
		case INDEX_ERROR:
			covered = (struct position){ 0 };
			state = INSPECT_UNREADABLE;
			/* fallthrough */
		case INDEX_NEW:
			search->offsets[i] = 0;
			break;
		}
	}
	index_close(index, false);
	reader_unlock(reader);
	if (state != INSPECT_CURRENT)
		want_rest(search,
		    covered.end > 0 ? &covered : &reader->journal.start);
	return EX_OK;
}

/* What the index says is believed where the record says it too. */
static void
check_found(struct inspect *inspect, struct search *search)
{
	struct record record;

	for (size_t i = 0; i < search->n; i++) {
		if (search->offsets[i] == 0 ||
		    (read_at(inspect, search->offsets[i], &record) == 0 &&
			record.plant != NULL && record.id == search->ids[i]))
			continue;
		search->offsets[i] = 0;
		want_rest(search, &inspect->reader->journal.start);
	}
}

/* An id that was not found, and its place in the question. */
struct wanted {
	int64_t id;
	size_t place;
};

static int
compare_wanted(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

/* Note the offset wherever the id was asked for; how often it was. */
static size_t
note_plant(const struct search *search, const struct wanted *wanted, size_t n,
    int64_t id, uint64_t offset)
{
	size_t low = 0, high = n, found;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (wanted[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	for (found = low; found < n && wanted[found].id == id; found++)
		search->offsets[wanted[found].place] = offset;
	return found - low;
}

static int
read_rest(struct inspect *inspect, const struct search *search)
{
	struct wanted *wanted = malloc(search->n * sizeof(*wanted));
	struct reader *reader = inspect->reader;
	enum reader_result result = READER_PLANT;
	struct record record;
	size_t n = 0, found = 0;
	int status;

	if (wanted == NULL)
		return reader_error(reader->name, "cannot look for the ids");
	for (size_t i = 0; i < search->n; i++)
		if (search->offsets[i] == 0)
			wanted[n++] = (struct wanted){ search->ids[i], i };
	qsort(wanted, n, sizeof(*wanted), compare_wanted);
	status = reader_resume(reader, &search->from, 0);
	while (status == EX_OK && found < n && result == READER_PLANT) {
		result = reader_next(reader, &record);
		if (result == READER_PLANT)
			found += note_plant(search, wanted, n, record.id,
			    reader->replay.at.last);
	}
	free(wanted);
	if (status == EX_OK && result == READER_STOPPED)
		status = EX_TEMPFAIL;
	if (status == EX_OK && result == READER_FAILED)
		status = reader_status(reader);
	return status;
}

int
inspect_find(
    struct inspect *inspect, const int64_t *ids, uint64_t *offsets, size_t n)
{
	struct search search = { .ids = ids, .offsets = offsets, .n = n };

	memset(offsets, 0, n * sizeof(*offsets));
	for (size_t at = 0; at < n; at += LOOK_UP_MAX) {
		size_t some = n - at < LOOK_UP_MAX ? n - at : LOOK_UP_MAX;
		int status = look_up(inspect, &search, at, some);

		if (status != EX_OK)
			return status;
	}
	check_found(inspect, &search);
	return search.rest ? read_rest(inspect, &search) : EX_OK;
}
