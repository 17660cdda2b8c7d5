/*
 * reader: the plants of a journal in order, single plants by their ids, and
 * the index, while the store is in use; reading changes nothing.
 */
#include "store_fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "fault_shim.h"
#include "store/index.h"
#include "journal_reader.h"

static void
expect_next(struct store_reader *reader, int64_t id)
{
	struct record record;

	assert_true(journal_reader.next(reader, &record));
	assert_int_equal(record.id, id);
}

/* The reading ends here, and stays ended. */
static void
expect_end(struct store_reader *reader, enum fault fault)
{
	struct record record;

	for (int i = 0; i < 2; i++) {
		assert_false(journal_reader.next(reader, &record));
		assert_int_equal(reader->fault, fault);
	}
}

static void
expect_rest(struct store_reader *reader, int64_t first, int64_t last)
{
	for (int64_t id = first; id <= last; id++)
		expect_next(reader, id);
	expect_end(reader, FAULT_NONE);
}

static struct store_reader *
try_reader(const char *path, const struct watch *watch, enum fault *fault)
{
	const struct store_options options = { .dir = path, .watch = watch };

	return journal_reader.open(&options, NULL, fault);
}

static void
expect_no_reader(const char *path, enum fault expected)
{
	enum fault fault = FAULT_NONE;

	assert_null(try_reader(path, NULL, &fault));
	assert_int_equal(fault, expected);
}

static struct store_reader *
open_reader(const struct fixture *fixture, const struct watch *watch)
{
	enum fault fault;
	struct store_reader *reader = try_reader(fixture->path, watch, &fault);

	if (reader == NULL)
		fail_msg("open gave the fault %d", (int)fault);
	return reader;
}

/* All plants are those from `first` to `last`. */
static void
expect_all(const struct fixture *fixture, int64_t first, int64_t last)
{
	struct store_reader *reader = open_reader(fixture, NULL);

	expect_rest(reader, first, last);
	journal_reader.close(reader);
}

STORE_TEST(plants_come_in_their_order_and_the_report_has_the_whole)
{
	struct reader_report report;
	struct record record;

	fixture_make_store(fixture, false, 1, 0);
	expect_all(fixture, 1, 0);
	fixture_make_store(fixture, true, 1, 3);
	struct store_reader *reader = open_reader(fixture, NULL);
	assert_true(journal_reader.next(reader, &record));
	struct plant plant = fixture_plant(1, NULL);
	assert_int_equal(record.plant_len, plant.len);
	assert_memory_equal(record.plant, plant.text, plant.len);
	assert_int_equal(record.by_len, strlen("tester"));
	assert_memory_equal(record.by, "tester", record.by_len);
	plant_done(&plant);
	expect_rest(reader, 2, 3);
	report = reader->report;
	assert_int_equal(report.plants, 3);
	/* The closing line, which says that what is before it is durable. */
	assert_int_equal(reader->replay.at.seq, 4);
	assert_int_equal(reader->watermark, reader->replay.at.last);
	assert_int_equal(
	    reader->replay.at.end, fixture_size(fixture, JOURNAL_NAME));
	assert_int_equal(strlen(report.store), RECORD_UUID_LEN);
	journal_reader.close(reader);
}

static enum fault
resume_at(struct store_reader *reader, const struct position *at)
{
	char cursor[STORE_CURSOR_MAX];

	snprintf(cursor, sizeof(cursor),
	    "journal %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %08" PRIx32,
	    reader->report.store, at->seq, at->last, at->end, at->crc);
	return journal_reader.resume(reader, cursor);
}

STORE_TEST(cursor_must_name_the_end_of_its_line)
{
	fixture_make_store(fixture, false, 1, 3);
	struct store_reader *reader = open_reader(fixture, NULL);
	assert_int_equal(journal_reader.resume(reader, ""), FAULT_NONE);
	expect_next(reader, 1);
	const struct position at = reader->replay.at;
	const uint64_t ends[] = { at.end, 0, at.end - 1, at.end + 1 };
	for (size_t i = 0; i < COUNT(ends); i++) {
		struct position other = at;

		other.end = ends[i];
		assert_int_equal(resume_at(reader, &other),
		    i == 0 ? FAULT_NONE : FAULT_DAMAGED);
	}
	journal_reader.close(reader);
}

/* It is whole, behind a torn one, and will be cut off with it. */
STORE_TEST(cursor_after_the_end_is_refused)
{
	static const int64_t batch[] = { 1, 2 };
	struct store *store = fixture_open(fixture, false);

	fixture_commit(store, batch, COUNT(batch), STORE_CREATED);
	store_close(store);
	const struct position end = fixture_end(fixture);
	fixture_remove_index(fixture);
	fixture_flip(fixture, RECORD_HEADER_LEN + 20);
	struct store_reader *reader = open_reader(fixture, NULL);
	assert_int_equal(resume_at(reader, &end), FAULT_DAMAGED);
	journal_reader.close(reader);
}

/* It was acknowledged, whatever is left of it. */
STORE_TEST(last_plant_that_only_the_index_has_is_missing)
{
	fixture_make_store(fixture, false, 1, 1);
	size_t end = fixture_size(fixture, JOURNAL_NAME);
	fixture_make_store(fixture, false, 2, 2);
	fixture_flip(fixture, end + 20);
	expect_no_reader(fixture->path, FAULT_DAMAGED);
	expect_logged(fixture, "damaged at byte", 1);
	for (size_t left = 0; left < 10; left += 9) {
		fixture_truncate(fixture, JOURNAL_NAME, end + 9 - left);
		expect_no_reader(fixture->path, FAULT_DAMAGED);
	}
	expect_logged(fixture, "is shorter (", 2);
	expect_logged(fixture, "is torn", 0);
	/* Nothing vouches for it where the index is gone. */
	fixture_remove_index(fixture);
	expect_all(fixture, 1, 1);
}

STORE_TEST(what_is_stored_after_the_end_was_found_is_left_out)
{
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	fixture_create(store, 2);
	struct store_reader *reader = open_reader(fixture, NULL);
	fixture_create(store, 3);
	expect_rest(reader, 1, 2);
	journal_reader.close(reader);
	store_close(store);
}

STORE_TEST(watch_counts_each_line_also_those_read_first_to_find_the_end)
{
	fixture_make_store(fixture, true, 1, 5);
	const uint64_t size = fixture_size(fixture, JOURNAL_NAME);
	for (unsigned times = 1; times < 3; times++) {
		struct fixture_steps steps = { 0 };
		struct watch watch = { fixture_step, &steps };

		struct store_reader *reader = open_reader(fixture, &watch);
		assert_int_equal(steps.n, 6 * (times - 1));
		expect_rest(reader, 1, 5);
		assert_int_equal(steps.n, 6 * times);
		assert_int_equal(steps.total, size);
		journal_reader.close(reader);
		fixture_remove_index(fixture);
	}
}

STORE_TEST(watch_can_stop_it_and_the_report_has_what_was_read)
{
	struct fixture_steps steps = { .last = 3 };
	struct watch watch = { fixture_step, &steps };

	fixture_make_store(fixture, true, 1, 4);
	struct store_reader *reader = open_reader(fixture, &watch);
	expect_next(reader, 1);
	expect_next(reader, 2);
	expect_end(reader, FAULT_STOPPED);
	assert_int_equal(reader->report.plants, 2);
	assert_int_equal(reader->replay.at.seq, 2);
	journal_reader.close(reader);
}

STORE_TEST(damage_fails_with_its_offset)
{
	struct fixture_line lines[3];
	char text[64];

	fixture_make_store(fixture, true, 1, 3);
	fixture_lines(fixture, lines, COUNT(lines), NULL);
	fixture_flip(fixture, lines[1].offset + 9);
	struct store_reader *reader = open_reader(fixture, NULL);
	expect_next(reader, 1);
	expect_end(reader, FAULT_DAMAGED);
	snprintf(
	    text, sizeof(text), "damaged at byte %" PRIu64, lines[1].offset);
	expect_logged(fixture, text, 1);
	journal_reader.close(reader);
}

STORE_TEST(journal_that_is_named_as_a_file_is_read_alone)
{
	struct record record;
	enum fault fault;
	char path[96];

	fixture_make_store(fixture, false, 1, 2);
	snprintf(path, sizeof(path), "%s/" JOURNAL_NAME, fixture->path);
	/* Without the lock and the index. */
	struct journal other = fixture_journal(fixture, true);
	assert_int_equal(
	    journal_lock(&other, JOURNAL_EXCLUSIVE, 0), FAULT_NONE);
	shim_fail(SHIM_FDATASYNC, NULL, 1, 0, 0);
	struct store_reader *reader = try_reader(path, NULL, &fault);
	assert_non_null(reader);
	expect_rest(reader, 1, 2);
	assert_int_equal(journal_reader.find(reader, 2, &record), FAULT_NONE);
	assert_int_equal(record.id, 2);
	assert_int_equal(journal_reader.find(reader, 9, &record), FAULT_ABSENT);
	assert_int_equal(reader->view.state, INDEX_ABSENT);
	assert_int_equal(shim_count(SHIM_FDATASYNC), 0);
	journal_reader.close(reader);
	journal_close(&other);
}

/* A process in the middle of a write, which it takes back. */
struct half_writer {
	const struct fixture *fixture;
	int begun[2]; /* a pipe */
};

static int
write_half(void *argument)
{
	struct half_writer *writer = argument;
	struct journal journal;

	if (journal_open(&journal, writer->fixture->path, true) != FAULT_NONE ||
	    journal_lock(&journal, JOURNAL_EXCLUSIVE, 0) != FAULT_NONE ||
	    pwrite(journal.fd, "{\"seq\":", 7, (off_t)journal.size) != 7 ||
	    write(writer->begun[1], "", 1) != 1)
		return 1;
	/* A reader that does not wait would be done by then. */
	usleep(100000);
	return ftruncate(journal.fd, (off_t)journal.size);
}

STORE_TEST(half_a_write_is_not_seen)
{
	struct half_writer writer = { .fixture = fixture };
	char byte;

	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(pipe(writer.begun), 0);
	pid_t child = child_start(write_half, &writer);
	assert_int_equal(read(writer.begun[0], &byte, 1), 1);
	expect_all(fixture, 1, 2);
	expect_logged(fixture, "torn", 0);
	assert_int_equal(child_wait(child), 0);
	close(writer.begun[0]);
	close(writer.begun[1]);
}

/* As on some network file systems, where nothing is served either. */
STORE_TEST(journal_that_cannot_be_locked_at_all_is_read)
{
	fixture_make_store(fixture, false, 1, 1);
	shim_fail(SHIM_FCNTL, JOURNAL_NAME, 1, 99, ENOLCK);
	expect_all(fixture, 1, 1);
	assert_true(shim_count(SHIM_FCNTL) > 0);
}

STORE_TEST(every_read_that_fails_is_a_fault)
{
	unsigned failures = 0, harmless = 0;
	bool failed = true;

	fixture_make_store(fixture, false, 1, 2);
	for (unsigned nth = 1; failed; nth++) {
		struct record record;
		enum fault fault;

		shim_fail(SHIM_PREAD, JOURNAL_NAME, nth, 1, EIO);
		struct store_reader *reader =
		    try_reader(fixture->path, NULL, &fault);
		while (reader != NULL && journal_reader.next(reader, &record))
			;
		if (reader != NULL)
			fault = reader->fault;
		journal_reader.close(reader);
		failed = shim_reset();
		/* A byte of the end that cannot be read counts as a line. */
		if (failed && fault == FAULT_NONE)
			assert_int_equal(++harmless, 1);
		else
			assert_int_equal(
			    fault, failed ? FAULT_FAILED : FAULT_NONE);
		failures += failed;
	}
	/* The header, the end, and the lines. */
	assert_true(failures >= 3);
}

/* Lines that nobody is known to have synced, and a piece of one. */
STORE_TEST(end_that_cannot_be_synced_is_not_read)
{
	fixture_make_store(fixture, true, 1, 1);
	for (size_t len = SIZE_MAX; len > 0; len = len > 9 ? 9 : 0) {
		fixture_forge(fixture, 2, NULL, len);
		shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
		struct contents was = fixture_read(fixture, JOURNAL_NAME);
		expect_no_reader(fixture->path, FAULT_FAILED);
		shim_reset();
		expect_contents(fixture, JOURNAL_NAME, &was);
	}
	expect_logged(fixture, "fdatasync failed", 2);
	expect_all(fixture, 1, 2);
}

/* A copy, of which no index and no end mark knows. */
STORE_TEST(beginning_that_cannot_be_synced_is_not_read)
{
	fixture_make_store(fixture, false, 1, 3);
	fixture_remove_index(fixture);
	shim_fail(SHIM_FDATASYNC, JOURNAL_NAME, 1, 1, EIO);
	expect_no_reader(fixture->path, FAULT_FAILED);
	shim_reset();
	expect_all(fixture, 1, 3);
}

STORE_TEST(what_is_no_journal_is_refused)
{
	static const char later[] = "{\"plant-store\":2,\"store\":\"";

	fixture_make_store(fixture, false, 1, 1);
	fixture_fail_journal(fixture);
	expect_no_reader(fixture->path, FAULT_FAILED);
	expect_logged(fixture, "a sync had failed", 1);
	fixture_remove(fixture, JOURNAL_FAILED_NAME);
	expect_no_reader("/nowhere/at/all", FAULT_ABSENT);
	expect_no_reader(fixture->path, FAULT_ABSENT);
	fixture_write(fixture, JOURNAL_NAME, 0, "x", 1);
	expect_no_reader(fixture->path, FAULT_DAMAGED);
	fixture_write(fixture, JOURNAL_NAME, 0, later, sizeof(later) - 1);
	expect_no_reader(fixture->path, FAULT_SETUP);
	journal_reader.close(NULL);
}

/* Of the plants first to last, all are found where they are. */
static void
expect_found(const struct fixture *fixture, int64_t first, int64_t last)
{
	struct store_reader *reader = open_reader(fixture, NULL);
	struct record record;

	for (int64_t id = first; id <= last; id++) {
		assert_int_equal(
		    journal_reader.find(reader, id, &record), FAULT_NONE);
		assert_non_null(record.plant);
		assert_int_equal(record.id, id);
	}
	assert_int_equal(
	    journal_reader.find(reader, last + 1, &record), FAULT_ABSENT);
	journal_reader.close(reader);
}

static enum index_state
find_index(const struct fixture *fixture, uint64_t *end)
{
	struct store_reader *reader = open_reader(fixture, NULL);
	const enum index_state index = reader->view.state;

	*end = reader->view.covered.end;
	journal_reader.close(reader);
	return index;
}

STORE_TEST(plants_are_found_while_the_store_is_in_use)
{
	uint64_t end, before;
	struct store *store = fixture_open(fixture, true);

	fixture_create(store, 1);
	fixture_create(store, 2);
	expect_found(fixture, 1, 2);
	find_index(fixture, &before);
	/* Behind the end of the index, too. */
	fixture_create(store, 3);
	assert_int_equal(find_index(fixture, &end), INDEX_BEHIND);
	assert_int_equal(end, before);
	expect_found(fixture, 1, 3);
	store_close(store);
	fixture_append(fixture, JOURNAL_NAME, "{\"seq\":9,", 9);
	expect_found(fixture, 1, 3);
	assert_true(fixture_logged(fixture, "is torn") > 0);
}

STORE_TEST(entry_that_leads_to_another_plant_is_not_believed)
{
	struct store_reader *reader;
	struct position covered;
	uint64_t offsets[3], end;

	fixture_make_store(fixture, true, 1, 3);
	reader = open_reader(fixture, NULL);
	for (int64_t id = 1; id <= 3; id++) {
		expect_next(reader, id);
		offsets[id - 1] = reader->replay.at.last;
	}
	assert_int_equal(reader->view.state, INDEX_USABLE);
	covered = reader->view.covered;
	/* It covers the same, but 1 and 2 are exchanged, and 4 is there. */
	journal_reader.close(reader);
	const int64_t ids[] = { 1, 2, 3, 4 };
	const uint64_t exchanged[] = { offsets[1], offsets[0], offsets[2],
		offsets[2] };
	fixture_forge_index(fixture, ids, exchanged, COUNT(ids), &covered);
	assert_int_equal(find_index(fixture, &end), INDEX_USABLE);
	expect_found(fixture, 1, 3);
}

/* Whatever the index is: and it is neither made, nor changed, nor removed. */
STORE_TEST(plants_are_found_with_any_index_or_none)
{
	static const struct {
		void (*change)(const struct fixture *);
		enum index_state index;
	} rows[] = {
		{ NULL, INDEX_USABLE },
		{ fixture_copy_manifest, INDEX_STALE },
		{ fixture_junk_index, INDEX_UNUSABLE },
		{ fixture_remove_index, INDEX_ABSENT },
	};
	uint64_t end;

	for (size_t i = 0; i < COUNT(rows); i++) {
		fixture_make_store(fixture, i % 2 == 0, 1, 0);
		if (i == 0)
			fixture_make_store(fixture, true, 1, 3);
		if (rows[i].change != NULL)
			rows[i].change(fixture);
		assert_int_equal(find_index(fixture, &end), rows[i].index);
		assert_int_equal(end > 0, i == 0);
		expect_found(fixture, 1, 3);
		assert_int_equal(fixture_exists(fixture, "index/manifest"),
		    rows[i].index != INDEX_ABSENT);
	}
	assert_false(fixture_exists(fixture, "index"));
}

STORE_TEST(journal_that_becomes_shorter_meanwhile_denies_no_plant)
{
	struct record record;

	fixture_make_store(fixture, true, 1, 2);
	size_t len = fixture_size(fixture, JOURNAL_NAME);
	fixture_make_store(fixture, true, 3, 4);
	struct store_reader *reader = open_reader(fixture, NULL);
	fixture_truncate(fixture, JOURNAL_NAME, len);
	assert_int_equal(
	    journal_reader.find(reader, 3, &record), FAULT_DAMAGED);
	journal_reader.close(reader);
	expect_no_reader(fixture->path, FAULT_DAMAGED);
	expect_logged(fixture, "is shorter", 1);
}

STORE_TEST(journal_that_was_replaced_meanwhile_hides_no_plant)
{
	struct record record;

	fixture_make_store(fixture, true, 1, 2);
	struct store_reader *reader = open_reader(fixture, NULL);
	fixture_copy_journal(fixture);
	fixture_make_store(fixture, true, 3, 3);
	assert_int_equal(journal_reader.find(reader, 3, &record), FAULT_FAILED);
	expect_logged(fixture, "was replaced", 1);
	journal_reader.close(reader);
	expect_found(fixture, 1, 3);
}

STORE_TEST(search_through_the_journal_ends_when_the_watch_stops_it)
{
	struct fixture_steps steps = { .last = 3 + 2 };
	const struct watch watch = { fixture_step, &steps };
	struct record record;

	fixture_make_store(fixture, true, 1, 2);
	fixture_remove_index(fixture);
	struct store_reader *reader = open_reader(fixture, &watch);
	assert_int_equal(
	    journal_reader.find(reader, 2, &record), FAULT_STOPPED);
	journal_reader.close(reader);
}

STORE_TEST(check_reads_on_behind_the_index)
{
	enum index_state index;

	fixture_make_store(fixture, true, 1, 2);
	const uint64_t before = fixture_size(fixture, JOURNAL_NAME);
	struct store *store = fixture_open(fixture, true);
	shim_fail(SHIM_PWRITE, "data.mdb", 1, 99, ENOSPC);
	fixture_create(store, 3);
	shim_reset();
	uint64_t end;
	assert_int_equal(find_index(fixture, &end), INDEX_BEHIND);
	assert_int_equal(end, before);
	assert_int_equal(
	    check_journal(fixture->path, NULL, &index), FAULT_NONE);
	assert_int_equal(index, INDEX_BEHIND);
	store_close(store);
}

#if ALLOC_CAN_FAIL
STORE_TEST(reader_that_has_no_memory_reports_that_or_finds_the_same)
{
	bool failed = true;

	fixture_make_store(fixture, true, 1, 2);
	fixture_append(fixture, JOURNAL_NAME, "torn", 4);
	for (unsigned nth = 1; failed; nth++) {
		struct record record;
		enum fault fault;
		int64_t id = 0;

		alloc_fail(nth, 1);
		struct store_reader *reader =
		    try_reader(fixture->path, NULL, &fault);
		while (fault == FAULT_NONE && id < 3)
			fault = journal_reader.find(reader, ++id, &record);
		failed = alloc_reset();
		journal_reader.close(reader);
		if (fault == FAULT_ABSENT)
			assert_int_equal(id, 3);
		else
			assert_true(failed && fault == FAULT_MEMORY);
		assert_true(nth < 100);
	}
}
#endif
