/*
 * file_reader: the file engine's reading, for store.h; reader.h has what is
 * read.
 */
#include "file.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "pure/timestamp.h"
#include "store/reader.h"

/* stat counts in these, whatever the file system's blocks are. */
#define STAT_BLOCK_BYTES 512

struct store_reader {
	const struct engine *engine; /* engine.h: first */
	struct reader *reader;
	const char *path, *since;
};

struct files {
	uint64_t n, bytes, disk_bytes;
};

struct store_reader *
file_reader_open(
    const struct store_options *options, const char *since, enum fault *fault)
{
	struct store_reader *reader = malloc(sizeof(*reader));

	if (reader == NULL) {
		*fault = fault_report(options->dir, "cannot read");
		return NULL;
	}
	*reader = (struct store_reader){ .engine = &engine_file,
		.reader = reader_open(options->dir, options->watch, fault),
		.path = options->dir,
		.since = since };
	if (reader->reader != NULL)
		return reader;
	free(reader);
	return NULL;
}

bool
file_reader_next(struct store_reader *reader, struct record *record)
{
	bool more;

	/* Times of one form sort as text. */
	do
		more = reader_next(reader->reader, record);
	while (more && reader->since != NULL &&
	       memcmp(record->at, reader->since, TIMESTAMP_LEN) < 0);
	return more;
}

enum fault
file_reader_end(struct store_reader *reader, char *where)
{
	struct reader_report report;

	reader_report(reader->reader, &report);
	snprintf(where, STORE_WHERE_MAX, "seq %" PRIu64 " at byte %" PRIu64,
	    report.seq, report.bytes);
	return reader_fault(reader->reader);
}

enum fault
file_reader_find(struct store_reader *reader, int64_t id, struct record *record)
{
	uint64_t offset;
	enum fault fault = reader_find(reader->reader, id, &offset);

	if (fault != FAULT_NONE)
		return fault;
	return offset == 0 ? FAULT_ABSENT
			   : reader_read(reader->reader, offset, record);
}

/* Add the files of the directory that have this prefix. */
static void
count_files(const char *path, const char *prefix, struct files *files)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	struct stat st;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
		    fstatat(dirfd(dir), entry->d_name, &st,
			AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		files->n++;
		files->bytes += (uint64_t)st.st_size;
		files->disk_bytes += (uint64_t)st.st_blocks * STAT_BLOCK_BYTES;
	}
	if (dir != NULL)
		closedir(dir);
}

static enum fault
count_beside(const char *dir, struct files *index, struct files *kept)
{
	char *path;

	if (asprintf(&path, "%s/index", dir) < 0)
		return fault_report(dir, "cannot read");
	count_files(path, "", index);
	free(path);
	count_files(dir, "plants.jsonl.torn-", kept);
	count_files(dir, "plants.jsonl.failed-", kept);
	return FAULT_NONE;
}

enum fault
file_reader_figures(
    struct store_reader *reader, store_figure *each, void *context)
{
	static const char *const states[] = {
		[READER_INDEX_USABLE] = "current",
		[READER_INDEX_ABSENT] = "missing",
		[READER_INDEX_STALE] = "foreign",
		[READER_INDEX_FOREIGN] = "foreign",
		[READER_INDEX_UNUSABLE] = "unreadable",
	};
	struct files index_files = { 0 }, kept = { 0 };
	struct reader_report journal;
	enum reader_index index;
	uint64_t index_end, behind = 0;
	enum fault fault;

	reader_report(reader->reader, &journal);
	/* Now, since plants that are stored meanwhile are not counted. */
	struct reader *now = reader_open(reader->path, NULL, &fault);
	if (now != NULL)
		fault = reader_index(now, &index, &index_end);
	reader_close(now);
	if (fault == FAULT_NONE)
		fault = count_beside(reader->path, &index_files, &kept);
	if (fault != FAULT_NONE)
		return fault;
	if (index == READER_INDEX_USABLE && journal.last_plant >= index_end)
		behind = journal.bytes - index_end;
	each(context, "store", journal.store, 0);
	each(context, "bytes", NULL, journal.bytes);
	each(context, "watermark", NULL, journal.watermark);
	each(context, "above_watermark", NULL,
	    journal.bytes - journal.watermark);
	each(context, "index", behind > 0 ? "behind" : states[index], 0);
	each(context, "index_behind", NULL, behind);
	each(context, "index_bytes", NULL, index_files.disk_bytes);
	each(context, "kept_files", NULL, kept.n);
	each(context, "kept_bytes", NULL, kept.bytes);
	return FAULT_NONE;
}

void
file_reader_close(struct store_reader *reader)
{
	reader_close(reader->reader);
	free(reader);
}

const struct engine engine_file = {
	.version = ENGINE_VERSION,
	.open = file_open,
	.commit = file_commit,
	.ready = file_ready,
	.wait = file_wait,
	.idle = file_idle,
	.close = file_close,
	.reader_open = file_reader_open,
	.reader_next = file_reader_next,
	.reader_end = file_reader_end,
	.reader_find = file_reader_find,
	.reader_figures = file_reader_figures,
	.reader_close = file_reader_close,
};
