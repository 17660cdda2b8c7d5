/*
 * recover: see store/recover.h.
 *
 * Happy path: each readable record goes, with its time and token's name, into a
 * new store, which finds the ids that stand twice.  Failure modes: whatever
 * ends it removes the new store.
 */
#include "store/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "index.h"
#include "store/store.h"

/* Plants in one commit, and bytes of their lines: about one append. */
#define BATCH_PLANTS 4096
#define BATCH_BYTES ((size_t)3 << 20)

struct recover {
	const struct recover_options *options;
	struct recover_report *report;
	int dir, fd;         /* of the source; dir -1 if it is a file */
	int dest;            /* the new store's directory */
	bool headed;         /* it begins with a journal's header */
	uint32_t seed;       /* of its checksums */
	struct store *store; /* the new one */
	FILE *later;
	struct store_item items[BATCH_PLANTS];
	struct plant plants[BATCH_PLANTS];
	char names[BATCH_PLANTS][RECORD_BY_MAX + 1];
	size_t n, used;
	char *ends[BATCH_PLANTS + 1]; /* of their lines, as they stand there */
	char lines[BATCH_BYTES];
};

static enum fault
open_source(struct recover *r)
{
	const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	const char *path = r->options->from;
	struct stat st;

	r->fd = open(path, flags);
	if (r->fd >= 0 && fstat(r->fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		r->dir = r->fd;
		r->fd = openat(r->dir, JOURNAL_NAME, flags | O_NOFOLLOW);
		if (r->fd < 0 && errno == ENOENT)
			r->fd = openat(
			    r->dir, JOURNAL_FAILED_NAME, flags | O_NOFOLLOW);
	}
	if (r->fd < 0 || fstat(r->fd, &st) < 0)
		return fault_report(
		    path, r->dir < 0 ? "cannot open"
				     : "cannot open its " JOURNAL_NAME);
	r->report->bytes = (uint64_t)st.st_size;
	return FAULT_NONE;
}

/* The store whose records these are: with another seed none is valid. */
static enum fault
find_uuid(struct recover *r)
{
	const char *given = r->options->uuid;
	char header[RECORD_HEADER_LEN], *uuid = r->report->from;
	uint32_t crc;
	ssize_t n = pread(r->fd, header, sizeof(header), 0);

	r->headed = record_header_decode(header, n < 0 ? 0 : (size_t)n, uuid,
			&crc) == RECORD_HEADER_OK;
	if (given != NULL && (r->headed ? strcmp(uuid, given) != 0
					: strlen(given) != RECORD_UUID_LEN)) {
		log_error("%s: is not of the store %s; leave --store away, or "
			  "give the uuid in the first line of a backup",
		    r->options->from, given);
		return FAULT_SETUP;
	}
	if (!r->headed && given != NULL)
		memcpy(uuid, given, RECORD_UUID_LEN);
	else if (!r->headed && (r->dir < 0 || index_uuid(r->dir, uuid) < 0)) {
		log_error("%s: its first line is damaged, or of another "
			  "version; it has the uuid that every checksum needs: "
			  "give it with --store; it stands in the first line "
			  "of a backup",
		    r->options->from);
		return FAULT_DAMAGED;
	}
	r->seed = record_seed(uuid);
	return FAULT_NONE;
}

/* A later record of an id goes to a file of its own. */
static enum fault
write_later(struct recover *r, size_t i)
{
	size_t len = (size_t)(r->ends[i + 1] - r->ends[i]);

	if (r->later == NULL) {
		int fd = openat(r->dest, RECOVER_LATER_NAME,
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

		r->later = fd < 0 ? NULL : fdopen(fd, "w");
	}
	r->report->later++;
	if (r->later != NULL && fwrite(r->ends[i], 1, len, r->later) == len)
		return FAULT_NONE;
	return fault_report(
	    r->options->dest, "cannot write " RECOVER_LATER_NAME);
}

static enum fault
commit_batch(struct recover *r)
{
	enum fault fault = FAULT_NONE;
	int failed = store_commit(r->store, r->items, r->n, NULL, NULL);

	for (size_t i = 0; i < r->n && fault == FAULT_NONE; i++)
		switch (r->items[i].result) {
		case STORE_CREATED:
			r->report->plants++;
			break;
		case STORE_SAME:
		case STORE_CONFLICT:
			fault = write_later(r, i);
			break;
		default:
			failed = -1;
		}
	r->n = r->used = 0;
	return failed < 0 ? FAULT_OUTPUT : fault;
}

static enum fault
take_record(struct recover *r, struct record *record)
{
	size_t i = r->n, room = RECORD_ENVELOPE_MAX + record->plant_len, len;
	char *line = r->lines + r->used;
	enum fault fault;

	if (r->n == BATCH_PLANTS || r->used + room > BATCH_BYTES) {
		fault = commit_batch(r);
		return fault == FAULT_NONE ? take_record(r, record) : fault;
	}
	len = record_encode(record, r->seed, line);
	r->ends[i] = line;
	r->ends[i + 1] = line + len;
	/* Into the line, which stays. */
	record_decode(line, len, r->seed, record);
	memcpy(r->names[i], record->by, record->by_len);
	r->names[i][record->by_len] = '\0';
	r->plants[i] = (struct plant){ .id = record->id,
		.text = line + (record->plant - line),
		.len = record->plant_len };
	r->items[i] = (struct store_item){
		.plant = &r->plants[i], .by = r->names[i], .at = record->at
	};
	r->used += len;
	r->n++;
	return FAULT_NONE;
}

static enum fault
read_source(struct recover *r)
{
	const struct position start = { .end =
					    r->headed ? RECORD_HEADER_LEN : 0 };
	enum replay_result result = REPLAY_RECORD;
	enum fault fault = FAULT_NONE;
	struct replay_lost lost;
	struct record record;
	struct replay replay;

	if (replay_init(&replay, r->fd, r->seed, &start) < 0)
		return fault_report(r->options->from, "cannot read");
	while (fault == FAULT_NONE && result == REPLAY_RECORD) {
		result = replay_salvage(&replay, &record, &lost);
		if (result == REPLAY_ERROR)
			fault = fault_report(r->options->from, "cannot read");
		else if (lost.begin < lost.end) {
			r->report->lost_bytes += lost.end - lost.begin;
			r->report->lost_ranges++;
			r->options->lost(r->options->context, lost.begin,
			    lost.end, lost.reason);
		}
		if (result == REPLAY_RECORD && record.plant != NULL)
			fault = take_record(r, &record);
		if (!watch_step(
			&r->options->watch, replay.at.last, r->report->bytes))
			fault = FAULT_STOPPED;
	}
	replay_done(&replay);
	return fault == FAULT_NONE ? commit_batch(r) : fault;
}

/* Make the new store. */
static enum fault
open_dest(struct recover *r)
{
	const char *path = r->options->dest;
	struct stat st = { 0 };
	enum fault fault;

	fstat(r->dir < 0 ? r->fd : r->dir, &st);
	fault = file_become_owner(path, st.st_uid);
	if (fault != FAULT_NONE)
		return fault;
	r->dest = journal_make_dir(path);
	if (r->dest < 0)
		return fault_report(path, "cannot make or open it");
	if (faccessat(r->dest, RECOVER_LATER_NAME, F_OK, 0) == 0) {
		log_error("%s: has " RECOVER_LATER_NAME "; name another "
			  "directory",
		    path);
		return FAULT_OUTPUT;
	}
	fault = store_init(path);
	return fault == FAULT_SETUP ? FAULT_OUTPUT : fault;
}

/* Put all into a new store. */
static enum fault
fill_dest(struct recover *r)
{
	const struct store_options options = { .dir = r->options->dest,
		.prepare = true };
	struct journal journal;
	enum fault fault;

	r->store = store_open(&options, &fault);
	fault = r->store == NULL ? FAULT_OUTPUT : read_source(r);
	store_close(r->store);
	/* No client has sent these plants. */
	unlinkat(r->dest, METRICS_NAME, 0);
	if (fault == FAULT_NONE && r->later != NULL &&
	    (fflush(r->later) != 0 || fsync(fileno(r->later)) < 0 ||
		fsync(r->dest) < 0))
		fault = fault_report(r->options->dest, "cannot write");
	if (r->later != NULL)
		fclose(r->later);
	if (fault != FAULT_NONE)
		return fault;
	/* It is gone if the last sync failed. */
	if (journal_open(&journal, options.dir, false) != FAULT_NONE)
		fault = FAULT_OUTPUT;
	memcpy(r->report->store, journal.uuid, RECORD_UUID_LEN);
	journal_close(&journal);
	return fault;
}

static void
remove_dest(const struct recover *r)
{
	index_discard(r->dest);
	unlinkat(r->dest, "index", AT_REMOVEDIR);
	unlinkat(r->dest, JOURNAL_NAME, 0);
	unlinkat(r->dest, JOURNAL_FAILED_NAME, 0);
	unlinkat(r->dest, JOURNAL_END_NAME, 0);
	unlinkat(r->dest, RECOVER_LATER_NAME, 0);
}

enum fault
recover_store(
    const struct recover_options *options, struct recover_report *report)
{
	struct recover *r = calloc(1, sizeof(*r));
	enum fault fault;

	if (r == NULL)
		return fault_report(options->from, "cannot read");
	memset(report, 0, sizeof(*report));
	r->options = options;
	r->report = report;
	r->dir = r->dest = -1;
	fault = open_source(r);
	if (fault == FAULT_NONE)
		fault = find_uuid(r);
	if (fault == FAULT_NONE)
		fault = open_dest(r);
	if (fault == FAULT_NONE) {
		fault = fill_dest(r);
		if (fault != FAULT_NONE)
			remove_dest(r);
	}
	const int fds[] = { r->fd, r->dir, r->dest };
	for (size_t i = 0; i < 3; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(r);
	return fault;
}
