/*
 * recover_command: creates a new store from what is readable in a damaged one.
 *
 * SRC, a damaged journal, is read once.  Records that are valid by themselves
 * are added, with their times and tokens' names, to a new store in a directory
 * in DEST.  The store keeps the first record of each id.  Finally the new
 * journal is moved into DEST, which must not contain one.  The directory of the
 * new store is then removed, even after an error or a signal; after a kill, the
 * next recover removes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "batch.h"
#include "command.h"
#include "ground/config.h"
#include "ground/file.h"
#include "store/index.h"
#include "store/journal.h"

#define NEW_NAME JOURNAL_NAME ".recovering"

static struct {
	const char *from, *to; /* SRC and DEST */
	int dir, fd;           /* SRC, or -1 if it is a file; its journal */
	uint64_t bytes;        /* the size of SRC's journal */
	char uuid[RECORD_UUID_LEN + 1];
	struct position start; /* after SRC's header; 0 if it is damaged */

	struct journal dest;  /* DEST, locked */
	char path[PATH_MAX];  /* the new store's directory, in DEST */
	struct journal fresh; /* the new store's journal */
	uint64_t lost, lost_bytes;
} recover;

/* Open SRC; find the uuid of its store, which seeds each record's checksum. */
static void
open_source(const char *given)
{
	const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	char header[RECORD_HEADER_LEN], *uuid = recover.uuid;
	const char *path = recover.from;
	struct stat st;
	uint32_t crc;

	recover.dir = open(path, flags | O_DIRECTORY);
	recover.fd = recover.dir < 0 ? open(path, flags)
				     : openat(recover.dir, JOURNAL_NAME,
					   flags | O_NOFOLLOW);
	if (recover.fd < 0 || fstat(recover.fd, &st) < 0)
		command_fail(fault_report(
		    path, recover.dir < 0 ? "cannot open"
					  : "cannot open its " JOURNAL_NAME));
	recover.bytes = (uint64_t)st.st_size;
	ssize_t n = file_read_all(recover.fd, header, sizeof(header), 0);
	if (record_header_decode(header, n < 0 ? 0 : (size_t)n, uuid, &crc) ==
	    RECORD_HEADER_OK)
		recover.start.end = RECORD_HEADER_LEN;
	else if (given != NULL && strlen(given) == RECORD_UUID_LEN)
		memcpy(uuid, given, RECORD_UUID_LEN);
	else if (given != NULL || index_uuid(recover.dir, uuid) < 0)
		command_refuse(FAULT_DAMAGED,
		    "%s: its first line is damaged or of another version, but "
		    "its uuid is needed to verify the checksums; pass the uuid "
		    "in a backup's first line with --store",
		    path);
}

/* Remove the new store's directory, but do not follow a link in its place. */
static void
remove_new_store(void)
{
	static const char *const names[] = { JOURNAL_NAME, JOURNAL_NEW_NAME,
		JOURNAL_END_NAME, METRICS_NAME };
	int dir = openat(recover.dest.dir, NEW_NAME,
	    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	store_close(batch.store);
	/* Without the lock of DEST, another process may write there. */
	if (dir < 0 || !recover.dest.locked)
		return;
	index_discard(dir);
	unlinkat(dir, INDEX_NAME, AT_REMOVEDIR);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlinkat(dir, names[i], 0);
	close(dir);
	unlinkat(recover.dest.dir, NEW_NAME, AT_REMOVEDIR);
}

/* Like command_need, but a full DEST is FAULT_OUTPUT. */
static void
need_dest(enum fault fault)
{
	command_need(
	    fault == FAULT_FULL || fault == FAULT_SETUP ? FAULT_OUTPUT : fault);
}

/* Lock DEST as its owner, or as SRC's if that is root; create the new store. */
static void
open_new_store(void)
{
	const struct store_options options = { .dir = recover.path,
		.long_lived = true };
	enum fault fault = FAULT_NONE;
	struct stat st = { 0 };

	fstat(recover.dir < 0 ? recover.fd : recover.dir, &st);
	need_dest(file_become_owner(recover.to, st.st_uid));
	need_dest(journal_claim(&recover.dest, recover.to));
	atexit(remove_new_store);
	remove_new_store();
	if (journal_exists(&recover.dest, NEW_NAME) ||
	    snprintf(recover.path, sizeof(recover.path), "%s/" NEW_NAME,
		recover.to) >= (int)sizeof(recover.path))
		command_refuse(FAULT_OUTPUT,
		    "%s: " NEW_NAME
		    " cannot be created there; name another directory",
		    recover.to);
	need_dest(store_init(recover.path));
	batch.store = store_open(&options, &fault);
	need_dest(fault);
	need_dest(journal_open(&recover.fresh, recover.path, true));
}

static void
print_range(uint64_t begin, uint64_t end, const char *reason)
{
	/* Progress may be on the same terminal. */
	log_set_progress(false);
	printf("%" PRIu64 "-%" PRIu64 " (%" PRIu64 " bytes): %s\n", begin, end,
	    end - begin, reason);
}

static void
report_record(const struct batch_entry *entry, enum store_result result)
{
	if (batch.fault == FAULT_NONE &&
	    (result == STORE_SAME || result == STORE_CONFLICT))
		print_range(entry->begin, entry->end,
		    result == STORE_SAME ? "repeats an earlier plant"
					 : "an earlier plant has this id");
}

static void
store_records(const struct watch *watch)
{
	enum replay_result result;
	struct replay_lost lost;
	struct record record;
	struct replay replay;

	replay_init(
	    &replay, recover.fd, record_seed(recover.uuid), &recover.start);
	do {
		result = replay_salvage(&replay, &record, &lost);
		if (result == REPLAY_ERROR) {
			errno = replay.error;
			command_fail(fault_report(recover.from, "cannot read"));
		}
		if (lost.begin < lost.end) {
			recover.lost++;
			recover.lost_bytes += lost.end - lost.begin;
			print_range(lost.begin, lost.end, lost.reason);
		}
		if (result == REPLAY_RECORD && record.plant != NULL) {
			struct batch_entry entry = {
				.plant = { record.id,
				    strndup(record.plant, record.plant_len),
				    record.plant_len },
				.begin = replay.at.last,
				.end = replay.at.end
			};

			if (entry.plant.text == NULL)
				command_fail(
				    fault_report(recover.from, "cannot read"));
			memcpy(entry.by, record.by, record.by_len);
			memcpy(entry.at, record.at, TIMESTAMP_LEN);
			batch_add(&entry);
			need_dest(batch.fault);
		}
		if (!watch_step(watch, replay.at.last, recover.bytes))
			command_fail(FAULT_STOPPED);
	} while (result == REPLAY_RECORD);
	replay_done(&replay);
	batch_commit();
	need_dest(batch.fault);
	/* Write the closing line. */
	if (store_idle(batch.store) < 0)
		command_fail(FAULT_FAILED);
	store_close(batch.store);
	batch.store = NULL;
}

static void
move_journal(void)
{
	const int dir = recover.dest.dir;
	enum fault fault = FAULT_NONE;

	/* No process may store a plant there before the name is durable. */
	need_dest(journal_lock(&recover.fresh, JOURNAL_EXCLUSIVE, 1));
	if (rename_new(dir, NEW_NAME "/" JOURNAL_NAME, JOURNAL_NAME) < 0)
		fault = fault_report(recover.to, "cannot create a store there");
	else if (fsync(dir) < 0) {
		fault = fault_report(recover.to, "cannot create a store there");
		unlinkat(dir, JOURNAL_NAME, 0);
	}
	need_dest(fault);
}

static void
stop_recover(void)
{
	log_error("%s: stopped; no store was created", recover.to);
}

void
recover_run(const struct call *call)
{
	command_stopped = stop_recover;
	recover.from = call->operands[0];
	recover.to = call->operands[1];
	recover.dest = recover.fresh = JOURNAL_NONE;
	batch.report = report_record;
	batch.plant_max = CONFIG_BODY_BYTES_MAX;
	open_source(command_option("store"));
	open_new_store();
	store_records(call->store.watch);
	move_journal();
	command_unwatch();
	uint64_t repeated =
	    batch.results[STORE_SAME] + batch.results[STORE_CONFLICT];
	printf("%s: store %.*s: %s of store %s", recover.to, RECORD_UUID_LEN,
	    recover.fresh.uuid,
	    command_count(batch.results[STORE_CREATED], "plant"), recover.uuid);
	if (repeated > 0)
		printf("; left out: %s with repeated ids",
		    command_count(repeated, "record"));
	if (recover.lost == 0)
		printf("; everything was readable\n");
	else
		printf("; lost: %" PRIu64 " of %" PRIu64 " bytes in %s\n",
		    recover.lost_bytes, recover.bytes,
		    command_count(recover.lost, "place"));
	if (recover.lost + repeated > 0)
		command_exit(EX_DATAERR);
}
