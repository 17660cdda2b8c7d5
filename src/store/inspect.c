/*
 * inspect: see store/inspect.h.
 *
 * Here is how far the index is to be believed, and the state of the store;
 * plants are looked for in inspect_find.c.
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
#include "inspect_state.h"
#include "journal.h"
#include "reader_state.h"
#include "replay.h"
#include "store/reader.h"

/* stat counts in these, whatever the file system's blocks are. */
#define STAT_BLOCK_BYTES 512

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

int
inspect_read_at(struct inspect *inspect, uint64_t offset, struct record *record)
{
	return journal_read(&inspect->reader->journal, offset, record,
	    &inspect->line, &inspect->line_size);
}

int
inspect_read(struct inspect *inspect, uint64_t offset, struct record *record)
{
	if (inspect_read_at(inspect, offset, record) == 0)
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
	return inspect_read_at(inspect, covered->last, &record) == 0 &&
	       position_is_behind(covered, &record);
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

enum inspect_index
inspect_enter_index(
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

int
inspect_end(struct inspect *inspect)
{
	struct reader *reader = inspect->reader;
	enum reader_result result;
	struct position covered;
	struct record record;
	struct index *index;
	int status = reader_lock(reader);

	if (status != EX_OK)
		return status;
	inspect_enter_index(inspect, &index, &covered);
	index_close(index, false);
	reader_unlock(reader);
	status = reader_resume(
	    reader, covered.end > 0 ? &covered : &reader->journal.start, 0);
	if (status != EX_OK)
		return status;
	do
		result = reader_next(reader, &record);
	while (result == READER_PLANT);
	if (result == READER_STOPPED)
		return EX_TEMPFAIL;
	return result == READER_END ? EX_OK : reader_status(reader);
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
	report->index = inspect_enter_index(inspect, &index, &covered);
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
