/*
 * recover_command: salvages a damaged journal into a new store.
 *
 * Happy path: SRC is read once.  Batches of records that are valid by
 * themselves, with their times and tokens' names, go into a new store in a
 * directory below DEST.  The store takes the first record of each id.  Finally
 * its journal is renamed into DEST.  Failure modes: DEST has no journal before
 * the rename.  After an error or a signal the directory is removed; after a
 * kill, the next try removes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "command.h"
#include "ground/file.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "store/index.h"
#include "store/journal.h"
#include "store/store.h"

static const char usage[] =
    "Usage: plant-store recover [--store UUID] [--quiet | --progress] "
    "SRC DEST\n"
    "\n"
    "Put every plant that can still be read of SRC, a damaged store or\n"
    "journal, into a new store in the directory DEST, and print what is lost.\n"
    "Stop the service first.  Where there is a backup, restore that instead.\n"
    "\n"
    "  --store UUID    the damaged store's, as in a backup's first line\n";

#define NEW_NAME JOURNAL_NAME ".recovering"

/* Each random id changes a page of the index, in memory: some 50 MiB. */
#define BATCH_PLANTS 10000
#define BATCH_BYTES JOURNAL_APPEND_MAX

static struct {
	const char *from, *to; /* SRC and DEST */
	int dir, fd;           /* SRC, or -1 if it is a file; its journal */
	uint64_t bytes;        /* the size of SRC's journal */
	char uuid[RECORD_UUID_LEN + 1];
	struct position start; /* after SRC's header; 0 if it is damaged */

	struct journal dest;  /* DEST, locked */
	char path[PATH_MAX];  /* the new store's directory, in DEST */
	struct journal fresh; /* the new store's journal */
	struct store *store;
	uint64_t plants, twice, lost, lost_bytes;

	/* The batch. */
	size_t n, used; /* of `text` */
	struct entry {
		struct plant plant;
		uint64_t begin, end; /* in SRC */
		char by[RECORD_BY_MAX + 1], at[TIMESTAMP_LEN + 1];
	} entries[BATCH_PLANTS];
	struct store_item items[BATCH_PLANTS];
	char text[BATCH_BYTES];
} recover = { .fd = -1 };

static enum fault
open_source(void)
{
	const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	const char *path = recover.from;
	struct stat st;

	recover.dir = open(path, flags | O_DIRECTORY);
	recover.fd = recover.dir < 0 ? open(path, flags)
				     : openat(recover.dir, JOURNAL_NAME,
					   flags | O_NOFOLLOW);
	if (recover.fd < 0 || fstat(recover.fd, &st) < 0)
		return fault_report(
		    path, recover.dir < 0 ? "cannot open"
					  : "cannot open its " JOURNAL_NAME);
	recover.bytes = (uint64_t)st.st_size;
	return FAULT_NONE;
}

/* Find the uuid of SRC's store, which seeds the checksum of each record. */
static enum fault
find_uuid(const char *given)
{
	char header[RECORD_HEADER_LEN], *uuid = recover.uuid;
	uint32_t crc;
	ssize_t n = file_read_all(recover.fd, header, sizeof(header), 0);

	if (record_header_decode(header, n < 0 ? 0 : (size_t)n, uuid, &crc) ==
	    RECORD_HEADER_OK)
		recover.start.end = RECORD_HEADER_LEN;
	else if (given != NULL && strlen(given) == RECORD_UUID_LEN)
		memcpy(uuid, given, RECORD_UUID_LEN);
	else if (given != NULL || recover.dir < 0 ||
		 index_uuid(recover.dir, uuid) < 0) {
		log_error("%s: its first line is damaged, or of another "
			  "version; it has the uuid that every checksum needs: "
			  "give it with --store; the first line of a backup "
			  "has it",
		    recover.from);
		return FAULT_DAMAGED;
	}
	return FAULT_NONE;
}

/* Remove the new store's directory, but do not follow a link in its place. */
static void
remove_new(void)
{
	static const char *const names[] = { JOURNAL_NAME, JOURNAL_NEW_NAME,
		JOURNAL_END_NAME, METRICS_NAME };
	int dir = openat(recover.dest.dir, NEW_NAME,
	    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir < 0)
		return;
	index_discard(dir);
	unlinkat(dir, "index", AT_REMOVEDIR);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlinkat(dir, names[i], 0);
	close(dir);
	unlinkat(recover.dest.dir, NEW_NAME, AT_REMOVEDIR);
}

/* Make an empty store in DEST, as its owner, or as SRC's if that is root. */
static enum fault
open_new_store(void)
{
	struct store_options options = { .dir = recover.path,
		.long_lived = true };
	struct stat st = { 0 };

	fstat(recover.dir < 0 ? recover.fd : recover.dir, &st);
	enum fault fault = file_become_owner(recover.to, st.st_uid);
	if (fault == FAULT_NONE)
		fault = journal_claim(&recover.dest, recover.to);
	if (fault != FAULT_NONE)
		return fault;
	remove_new();
	if (journal_exists(&recover.dest, NEW_NAME) ||
	    snprintf(recover.path, sizeof(recover.path), "%s/" NEW_NAME,
		recover.to) >= (int)sizeof(recover.path)) {
		log_error("%s: " NEW_NAME " cannot be made there; name another "
			  "directory",
		    recover.to);
		return FAULT_OUTPUT;
	}
	fault = store_init(recover.path);
	if (fault == FAULT_NONE)
		recover.store = store_open(&options, &fault);
	if (fault == FAULT_NONE)
		fault = journal_open(&recover.fresh, recover.path, true);
	return fault;
}

static void
print_range(uint64_t begin, uint64_t end, const char *reason)
{
	command_clear_line();
	printf("%" PRIu64 "-%" PRIu64 " (%" PRIu64 " bytes): %s\n", begin, end,
	    end - begin, reason);
}

static enum fault
commit_batch(void)
{
	/* The store logs the causes of these results. */
	static const enum fault faults[] = { [STORE_FULL] = FAULT_FULL,
		[STORE_BUSY] = FAULT_BUSY,
		[STORE_FAILED] = FAULT_FAILED };
	enum fault fault = FAULT_NONE;

	if (store_commit(recover.store, recover.items, recover.n) < 0)
		fault = FAULT_FAILED;
	store_finish(recover.store);
	for (size_t i = 0; fault == FAULT_NONE && i < recover.n; i++) {
		enum store_result result = recover.items[i].result;
		const struct entry *entry = &recover.entries[i];

		fault = faults[result];
		recover.plants += result == STORE_CREATED;
		if (result != STORE_SAME && result != STORE_CONFLICT)
			continue;
		recover.twice++;
		print_range(entry->begin, entry->end,
		    result == STORE_SAME ? "repeats an earlier plant"
					 : "an earlier plant has this id");
	}
	recover.n = recover.used = 0;
	return fault;
}

static enum fault
add_to_batch(const struct record *record, const struct position *at)
{
	struct entry *entry = &recover.entries[recover.n];
	struct store_item *item = &recover.items[recover.n++];
	char *text = recover.text + recover.used;

	*entry = (struct entry){ { record->id, text, record->plant_len },
		.begin = at->last, .end = at->end };
	memcpy(text, record->plant, record->plant_len);
	memcpy(entry->by, record->by, record->by_len);
	memcpy(entry->at, record->at, TIMESTAMP_LEN);
	*item = (struct store_item){
		.plant = &entry->plant, .by = entry->by, .at = entry->at
	};
	recover.used += record->plant_len;
	/* Leave room for the longest plant. */
	return recover.n < BATCH_PLANTS &&
		       recover.used + RECORD_LINE_MAX <= BATCH_BYTES
		   ? FAULT_NONE
		   : commit_batch();
}

static enum fault
store_records(const struct watch *watch)
{
	enum replay_result result = REPLAY_RECORD;
	enum fault fault = FAULT_NONE;
	struct replay_lost lost;
	struct record record;
	struct replay replay;

	replay_init(
	    &replay, recover.fd, record_seed(recover.uuid), &recover.start);
	while (fault == FAULT_NONE && result == REPLAY_RECORD) {
		result = replay_salvage(&replay, &record, &lost);
		if (result == REPLAY_ERROR) {
			errno = replay.error;
			fault = fault_report(recover.from, "cannot read");
		} else if (lost.begin < lost.end) {
			recover.lost++;
			recover.lost_bytes += lost.end - lost.begin;
			print_range(lost.begin, lost.end, lost.reason);
		}
		if (result == REPLAY_RECORD && record.plant != NULL)
			fault = add_to_batch(&record, &replay.at);
		if (!watch_step(watch, replay.at.last, recover.bytes))
			fault = FAULT_STOPPED;
	}
	replay_done(&replay);
	if (fault == FAULT_NONE)
		fault = commit_batch();
	/* Write the closing line; the next commit reports if that failed. */
	store_idle(recover.store);
	if (fault == FAULT_NONE)
		fault = commit_batch();
	return fault;
}

static enum fault
make_store(const struct watch *watch)
{
	enum fault fault = open_new_store();

	if (fault == FAULT_NONE)
		fault = store_records(watch);
	/* Only the journal goes into DEST: the index need not be synced. */
	if (recover.fresh.dir >= 0)
		index_discard(recover.fresh.dir);
	store_close(recover.store);
	/* No process may store a plant there before the name is durable. */
	if (fault == FAULT_NONE)
		fault = journal_lock(&recover.fresh, JOURNAL_EXCLUSIVE, 1);
	if (fault == FAULT_NONE &&
	    rename_new(
		recover.dest.dir, NEW_NAME "/" JOURNAL_NAME, JOURNAL_NAME) < 0)
		fault = fault_report(recover.to, "cannot make a store there");
	else if (fault == FAULT_NONE && fsync(recover.dest.dir) < 0) {
		fault = fault_report(recover.to, "cannot make a store there");
		unlinkat(recover.dest.dir, JOURNAL_NAME, 0);
	}
	/* Without the lock, another process may write there. */
	if (recover.dest.locked)
		remove_new();
	return fault == FAULT_FULL || fault == FAULT_SETUP ? FAULT_OUTPUT
							   : fault;
}

static int
run(const struct call *call)
{
	enum fault fault;

	recover.from = call->operands[0];
	recover.to = call->operands[1];
	recover.dest = recover.fresh = JOURNAL_NONE;
	fault = open_source();
	if (fault == FAULT_NONE)
		fault = find_uuid(call->values['s']);
	if (fault == FAULT_NONE)
		fault = make_store(call->store.watch);
	command_unwatch();
	if (fault == FAULT_STOPPED)
		log_error("%s: stopped; no store was made", recover.to);
	if (fault != FAULT_NONE)
		return command_fault(fault);
	printf("%s: store %.*s: %" PRIu64 " plants of store %s", recover.to,
	    RECORD_UUID_LEN, recover.fresh.uuid, recover.plants, recover.uuid);
	if (recover.twice > 0)
		printf("; left out: %" PRIu64 " records of earlier ids",
		    recover.twice);
	if (recover.lost == 0)
		printf("; everything was readable\n");
	else
		printf("; lost: %" PRIu64 " of %" PRIu64 " bytes in %" PRIu64
		       " places\n",
		    recover.lost_bytes, recover.bytes, recover.lost);
	return recover.lost + recover.twice == 0 ? EX_OK : EX_DATAERR;
}

const struct command recover_command = {
	.name = "recover",
	.summary = "make a new store of what a damaged one still has",
	.usage = usage,
	.options = { COMMAND_VALUE("store", 's'), COMMAND_PROGRESS,
	    COMMAND_HELP },
	.operands = { 2, 2 },
	.run = run,
};
