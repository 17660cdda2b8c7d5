/*
 * recover: see reader/maintain.h.
 *
 * Happy path: the readable records are read twice.  The first reading finds of
 * each id the first record.  The second copies these, with their times and
 * tokens' names, into a new journal, which gets its name once it is durable.
 * Failure modes: whatever ends it leaves no store.
 */
#include "reader/maintain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/file.h"
#include "ground/log.h"
#include "ground/pairs.h"
#include "store/index.h"
#include "pure/timestamp.h"

#define BUF_BYTES (2 * RECORD_LINE_MAX)

struct recover {
	const struct recover_options *options;
	struct recover_report *report;
	int dir, fd;          /* of the source; dir -1 if it is a file */
	bool headed;          /* it begins with a journal's header */
	uint32_t seed;        /* of its checksums */
	struct pairs first;   /* of each id the first record's offset */
	struct journal dest;  /* the new store's directory, locked */
	struct journal fresh; /* its journal: */
	struct position at;   /* written up to here, the last bytes in `buf` */
	size_t used;
	FILE *later;
	char buf[BUF_BYTES];
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

/* No room for the new store is a fault of the output. */
static enum fault
of_dest(enum fault fault)
{
	return fault == FAULT_FULL ? FAULT_OUTPUT : fault;
}

/* Log, with errno, that `what` in the new store cannot be.  The fault. */
static enum fault
cannot(const struct recover *r, const char *what)
{
	return of_dest(fault_report(r->options->dest, what));
}

/* Write what is in the buffer. */
static enum fault
flush(struct recover *r)
{
	uint64_t from = r->at.end - r->used;

	if (file_write_all(r->fresh.fd, r->buf, r->used, from) < 0)
		return cannot(r, "cannot write");
	r->used = 0;
	return FAULT_NONE;
}

/* Behind the lines of the new journal. */
static enum fault
put_line(struct recover *r, struct record *record)
{
	enum fault fault = FAULT_NONE;

	if (r->used + RECORD_ENVELOPE_MAX + record->plant_len > BUF_BYTES)
		fault = flush(r);
	if (fault != FAULT_NONE)
		return fault;
	record->seq = ++r->at.seq;
	record->prev = r->at.crc;
	size_t len = record_encode(record, r->fresh.seed, r->buf + r->used);
	r->at.crc = record->crc;
	r->at.end += len;
	r->used += len;
	return FAULT_NONE;
}

/* A later record of an id goes, as it stood, to a file of its own. */
static enum fault
put_later(struct recover *r, struct record *record)
{
	static char line[RECORD_LINE_MAX];
	size_t len = record_encode(record, r->seed, line);

	if (r->later == NULL) {
		int fd = openat(r->dest.dir, RECOVER_LATER_NAME,
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

		r->later = fd < 0 ? NULL : fdopen(fd, "w");
	}
	r->report->later++;
	if (r->later != NULL && fwrite(line, 1, len, r->later) == len)
		return FAULT_NONE;
	return cannot(r, "cannot write " RECOVER_LATER_NAME);
}

static enum fault
take_record(
    struct recover *r, struct record *record, uint64_t offset, bool copy)
{
	if (!copy && pairs_add(&r->first, record->id, offset) < 0)
		return fault_report("/var/tmp", "cannot sort there");
	if (!copy)
		return FAULT_NONE;
	if (pairs_find(&r->first, record->id) != offset)
		return put_later(r, record);
	r->report->plants++;
	record->safe = 0;
	return put_line(r, record);
}

/* Read all that is readable: to find out what it is, or to copy it. */
static enum fault
read_source(struct recover *r, bool copy)
{
	const struct recover_options *options = r->options;
	const struct position start = { .end =
					    r->headed ? RECORD_HEADER_LEN : 0 };
	const uint64_t bytes = r->report->bytes, before = copy ? bytes : 0;
	enum replay_result result = REPLAY_RECORD;
	enum fault fault = FAULT_NONE;
	struct replay_lost lost;
	struct record record;
	struct replay replay;

	replay_init(&replay, r->fd, r->seed, &start);
	while (fault == FAULT_NONE && result == REPLAY_RECORD) {
		result = replay_salvage(&replay, &record, &lost);
		if (result == REPLAY_ERROR) {
			errno = replay.error;
			fault = fault_report(options->from, "cannot read");
		} else if (!copy && lost.begin < lost.end) {
			r->report->lost_bytes += lost.end - lost.begin;
			r->report->lost_ranges++;
			options->lost(options->context, lost.begin, lost.end,
			    lost.reason);
		}
		if (result == REPLAY_RECORD && record.plant != NULL)
			fault = take_record(r, &record, replay.at.last, copy);
		if (!watch_step(
			&options->watch, before + replay.at.last, 2 * bytes))
			fault = FAULT_STOPPED;
	}
	replay_done(&replay);
	return fault;
}

static uint64_t
count_ids(const struct pairs *pairs)
{
	uint64_t n = 0;

	for (size_t i = 0; i < pairs->n; i++)
		n += i == 0 || pairs->map[i].key != pairs->map[i - 1].key;
	return n;
}

/* The new journal, which a closing line ends: all before it is durable. */
static enum fault
write_journal(struct recover *r)
{
	char now[TIMESTAMP_LEN];
	struct record closing = { .at = now };
	enum fault fault;

	r->at = r->fresh.start;
	fault = read_source(r, true);
	if (fault == FAULT_NONE && r->report->plants != count_ids(&r->first)) {
		log_error("%s: what was read of it could not be read again: "
			  "its disk is failing; copy it to another disk, and "
			  "recover the copy",
		    r->options->from);
		fault = FAULT_FAILED;
	}
	timestamp_print(clock_ms(CLOCK_REALTIME), now);
	closing.safe = r->at.end;
	if (fault == FAULT_NONE)
		fault = put_line(r, &closing);
	if (fault == FAULT_NONE)
		fault = flush(r);
	if (fault == FAULT_NONE && r->later != NULL &&
	    (fflush(r->later) != 0 || fsync(fileno(r->later)) < 0))
		fault = cannot(r, "cannot write " RECOVER_LATER_NAME);
	if (r->later != NULL)
		fclose(r->later);
	memcpy(r->report->store, r->fresh.uuid, RECORD_UUID_LEN);
	if (fault != FAULT_NONE)
		journal_drop(&r->fresh);
	else
		fault = of_dest(journal_place(&r->fresh, false));
	if (fault != FAULT_NONE)
		unlinkat(r->dest.dir, RECOVER_LATER_NAME, 0);
	return fault;
}

/* For the owner of its directory, or of the source. */
static enum fault
claim_dest(struct recover *r)
{
	const char *path = r->options->dest;
	struct stat st = { 0 };

	fstat(r->dir < 0 ? r->fd : r->dir, &st);
	enum fault fault = file_become_owner(path, st.st_uid);
	if (fault == FAULT_NONE)
		fault = journal_claim(&r->dest, path);
	if (fault == FAULT_NONE &&
	    journal_exists(&r->dest, RECOVER_LATER_NAME)) {
		log_error("%s: has " RECOVER_LATER_NAME "; name another "
			  "directory",
		    path);
		fault = FAULT_SETUP;
	}
	return fault == FAULT_SETUP ? FAULT_OUTPUT : fault;
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
	r->dir = -1;
	r->dest = JOURNAL_NONE;
	fault = open_source(r);
	if (fault == FAULT_NONE)
		fault = find_uuid(r);
	if (fault == FAULT_NONE)
		fault = claim_dest(r);
	if (fault == FAULT_NONE && pairs_init(&r->first, AT_FDCWD) < 0)
		fault = fault_report("/var/tmp", "cannot sort there");
	if (fault == FAULT_NONE)
		fault = read_source(r, false);
	if (fault == FAULT_NONE && pairs_sort(&r->first) < 0)
		fault = fault_report("/var/tmp", "cannot sort there");
	if (fault == FAULT_NONE)
		fault = of_dest(journal_begin(&r->fresh, &r->dest));
	if (fault == FAULT_NONE)
		fault = write_journal(r);
	pairs_done(&r->first);
	journal_close(&r->dest);
	if (r->fd >= 0)
		close(r->fd);
	if (r->dir >= 0)
		close(r->dir);
	free(r);
	return fault;
}
