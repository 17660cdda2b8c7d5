/* test_verify: a journal checked, and the index compared with it. */
#include "store_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "index.h"
#include "store/verify.h"

static void
a_valid_journal_is_counted(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	fixture_make_store(fixture, false, 1, 3);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.journal.plants, 3);
	assert_int_equal(
	    verified.journal.bytes, fixture_size(fixture, "plants.jsonl"));
	assert_int_equal(strlen(verified.journal.store), 36);
}

static void
room_ahead_is_no_damage(void **state)
{
	const struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	struct verify_report verified;

	fixture_create(store, 1);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.journal.plants, 1);
	assert_true(
	    verified.journal.bytes < fixture_size(fixture, "plants.jsonl"));
	store_close(store);
}

static void
damage_is_told_with_its_offset_and_nothing_is_changed(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;
	size_t len, len_after;

	fixture_make_store(fixture, false, 1, 3);
	fixture_write(fixture, "plants.jsonl", 90, "X", 1);
	char *before = fixture_read(fixture, "plants.jsonl", &len);
	assert_int_equal(
	    verify_store(fixture->path, NULL, &verified), EX_DATAERR);
	assert_int_equal(fixture_logged(fixture, "damaged at byte 82"), 1);
	char *after = fixture_read(fixture, "plants.jsonl", &len_after);
	assert_int_equal(len_after, len);
	assert_memory_equal(after, before, len);
	free(before);
	free(after);
}

static void
torn_tail_is_told_and_is_no_damage(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	fixture_make_store(fixture, false, 1, 2);
	fixture_append(fixture, "plants.jsonl", "{\"seq\":9,", 9);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.journal.plants, 2);
	assert_int_equal(fixture_logged(fixture, "was torn"), 1);
}

static void
directory_without_a_store_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	assert_int_equal(
	    verify_store(fixture->path, NULL, &verified), EX_NOINPUT);
	assert_int_equal(
	    verify_store("/nowhere/at/all", NULL, &verified), EX_NOINPUT);
}

static void
index_of_a_store_in_use_equals_the_journal(void **state)
{
	const struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	struct verify_report verified;

	for (int64_t id = -3; id <= 3; id++)
		fixture_create(store, id);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.journal.plants, 7);
	assert_int_equal(verified.index, VERIFY_INDEX_EQUAL);
	store_close(store);
}

static void
copy_that_was_never_served_has_no_index(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	fixture_make_store(fixture, false, 1, 2);
	fixture_remove(fixture, "lock");
	fixture_remove_index(fixture);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.index, VERIFY_INDEX_NONE);
}

static void
lost_index_is_no_damage_and_none_is_made(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	fixture_make_store(fixture, false, 1, 2);
	fixture_remove_index(fixture);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.index, VERIFY_INDEX_MISSING);
	assert_false(fixture_exists(fixture, "index"));
}

/* Where the plants of a store stand, and where its journal ends. */
#define PLACES 4
struct places {
	char uuid[RECORD_UUID_LEN];
	uint64_t offset[PLACES]; /* by id */
	struct position end;
};

static struct places
find_places(const struct fixture *fixture)
{
	struct places places = { 0 };
	struct journal journal;
	struct replay replay;
	struct record record;

	assert_int_equal(
	    journal_open(&journal, fixture->dir, false), JOURNAL_OPENED);
	assert_int_equal(
	    replay_init(&replay, journal.fd, journal.seed, &journal.start), 0);
	while (replay_next(&replay, &record) == REPLAY_RECORD)
		if (record.plant != NULL && record.id < PLACES)
			places.offset[record.id] = replay.at.last;
	memcpy(places.uuid, journal.uuid, sizeof(places.uuid));
	places.end = replay.at;
	replay_done(&replay);
	journal_close(&journal);
	return places;
}

struct entry {
	int64_t id;
	uint64_t offset;
};

/* An index that says it has all, in the place of the store's. */
static void
forge_index(const struct fixture *fixture, const struct places *places,
    const struct entry *entries, size_t n)
{
	struct position covered;
	struct index *index;
	uint64_t found;

	index_discard(fixture->dir);
	index = index_open(fixture->dir, fixture->path, places->uuid);
	assert_non_null(index);
	assert_int_equal(index_begin(index, &covered), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(
		    index_put(index, entries[i].id, entries[i].offset, &found),
		    INDEX_NEW);
	assert_int_equal(index_commit(index, &places->end), 0);
	index_close(index, false);
}

static void
expect_damage(const struct fixture *fixture, const char *text)
{
	struct verify_report verified;

	assert_int_equal(
	    verify_store(fixture->path, NULL, &verified), EX_DATAERR);
	if (fixture_logged(fixture, text) != 1)
		fail_msg("not logged: %s", text);
}

static void
plant_that_the_index_lacks_is_named(void **state)
{
	const struct fixture *fixture = *state;
	char text[96];

	fixture_make_store(fixture, false, 1, 3);
	struct places places = find_places(fixture);
	const struct entry entries[] = { { 1, places.offset[1] },
		{ 3, places.offset[3] } };
	forge_index(fixture, &places, entries, COUNT(entries));
	snprintf(text, sizeof(text),
	    "index: lacks the plant 2 at byte %" PRIu64, places.offset[2]);
	expect_damage(fixture, text);
	assert_int_equal(fixture_logged(fixture, "remove that directory"), 1);
	/* The remedy helps. */
	fixture_remove_index(fixture);
	fixture_reopen_and_expect(fixture, (const int64_t[]){ 1, 2, 3 }, 3);
}

static void
plant_that_the_index_misplaces_is_named(void **state)
{
	const struct fixture *fixture = *state;
	char text[96];

	fixture_make_store(fixture, false, 1, 3);
	struct places places = find_places(fixture);
	/* Two change places: the offsets and the ids alone are the same. */
	const struct entry entries[] = { { 1, places.offset[2] },
		{ 2, places.offset[1] }, { 3, places.offset[3] } };
	forge_index(fixture, &places, entries, COUNT(entries));
	snprintf(text, sizeof(text),
	    "index: has the plant 1 at byte %" PRIu64 " instead of %" PRIu64,
	    places.offset[2], places.offset[1]);
	expect_damage(fixture, text);
}

static void
plant_that_only_the_index_has_is_told(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 2);
	struct places places = find_places(fixture);
	const struct entry entries[] = { { 1, places.offset[1] },
		{ 2, places.offset[2] }, { 9, places.offset[2] } };
	forge_index(fixture, &places, entries, COUNT(entries));
	expect_damage(fixture, "index: has 1 plants that the journal has not");
}

static void
plant_that_is_stored_twice_is_told_with_both_places(void **state)
{
	const struct fixture *fixture = *state;
	static const char at[] = "2026-11-21T07:21:00.123Z";
	struct plant again = fixture_plant(1, "again");
	char text[96], *line = malloc(RECORD_ENVELOPE_MAX + again.len);

	fixture_make_store(fixture, false, 1, 2);
	struct places places = find_places(fixture);
	struct record record = {
		.seq = places.end.seq + 1,
		.prev = places.end.crc,
		.at = at,
		.by = "tester",
		.by_len = 6,
		.id = 1,
		.plant = again.text,
		.plant_len = again.len,
	};
	assert_non_null(line);
	size_t len = record_encode(&record, record_seed(places.uuid), line);
	fixture_truncate(fixture, JOURNAL_NAME, places.end.end);
	fixture_append(fixture, JOURNAL_NAME, line, len);
	free(line);
	plant_done(&again);
	uint64_t first = places.offset[1];
	places = find_places(fixture);
	const struct entry entries[] = { { 1, first },
		{ 2, places.offset[2] } };
	forge_index(fixture, &places, entries, COUNT(entries));
	snprintf(text, sizeof(text),
	    "the plant 1 is stored twice, at the bytes %" PRIu64
	    " and %" PRIu64,
	    first, places.offset[1]);
	expect_damage(fixture, text);
}

static void
index_that_lacks_the_last_plants_is_behind(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	fixture_make_store(fixture, false, 1, 2);
	struct places early = find_places(fixture);
	fixture_make_store(fixture, false, 3, 3);
	const struct entry entries[] = { { 1, early.offset[1] },
		{ 2, early.offset[2] } };
	forge_index(fixture, &early, entries, COUNT(entries));
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.index, VERIFY_INDEX_BEHIND);
	assert_int_equal(verified.journal.plants, 3);
	forge_index(fixture, &(struct places){ .uuid = "" }, NULL, 0);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.index, VERIFY_INDEX_FOREIGN);
}

static void
index_of_another_journal_is_not_compared(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	fixture_make_store(fixture, false, 1, 2);
	struct places places = find_places(fixture);
	places.end.crc ^= 1;
	forge_index(fixture, &places, NULL, 0);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.index, VERIFY_INDEX_FOREIGN);
}

static void
journal_shorter_than_the_index_knows_is_damaged(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 2);
	struct places places = find_places(fixture);
	fixture_truncate(fixture, JOURNAL_NAME, places.offset[2]);
	expect_damage(fixture, "it is shorter");
}

static void
index_without_a_lock_file_is_compared(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;

	fixture_make_store(fixture, false, 1, 2);
	fixture_remove(fixture, "lock");
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.index, VERIFY_INDEX_EQUAL);
	fixture_truncate(fixture, "index/data.mdb", 8192);
	expect_damage(fixture, "index: damaged; remove that directory");
	assert_false(fixture_exists(fixture, "lock"));
}

static void
index_that_is_cut_is_damaged(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 2);
	fixture_truncate(fixture, "index/data.mdb", 8192);
	expect_damage(fixture, "index: damaged; remove that directory");
}

#define STORED 200

static int
store_many(void *argument)
{
	struct store *store = fixture_open(argument, true);

	/* Before and behind what is there, as it is walked. */
	for (int64_t i = 1; i <= STORED; i++)
		if (fixture_put(store, i % 2 == 0 ? i : -i, NULL).result !=
		    STORE_CREATED)
			return 1;
	store_close(store);
	return 0;
}

static void
store_that_others_write_into_holds_at_any_time(void **state)
{
	struct fixture *fixture = *state;
	struct verify_report verified;
	int status;
	unsigned rounds = 0;

	fixture_make_store(fixture, false, 1000, 1020);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(store_many(fixture));
	do {
		assert_int_equal(
		    verify_store(fixture->path, NULL, &verified), EX_OK);
		assert_int_equal(verified.index, VERIFY_INDEX_EQUAL);
		rounds++;
	} while (waitpid(pid, &status, WNOHANG) == 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(verify_store(fixture->path, NULL, &verified), EX_OK);
	assert_int_equal(verified.journal.plants, 21 + STORED);
	assert_int_equal(verified.index, VERIFY_INDEX_EQUAL);
	print_message("%u times while %d plants were stored\n", rounds, STORED);
}

static void
watch_can_stop_it(void **state)
{
	const struct fixture *fixture = *state;
	struct watch watch = { fixture_stop, NULL };
	struct verify_report verified;

	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(
	    verify_store(fixture->path, &watch, &verified), VERIFY_STOPPED);
	assert_int_equal(verified.journal.plants, 0);
}

/* Goes on until the journal is read. */
static bool
stop_at_the_end(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	return done < total;
}

static void
watch_can_stop_it_while_the_index_is_read(void **state)
{
	const struct fixture *fixture = *state;
	struct watch watch = { stop_at_the_end, NULL };
	struct verify_report verified;

	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(
	    verify_store(fixture->path, &watch, &verified), VERIFY_STOPPED);
	assert_int_equal(verified.journal.plants, 2);
}

static void
index_whose_entries_do_not_follow_each_other_is_damaged(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	fixture_spoil_key(fixture, 2);
	expect_damage(fixture, "index: damaged; remove that directory");
}

/*
 * The index lacks a plant, so the journal is read once more.  What happens when
 * that begins: the watch is asked for the third time.
 */
struct meanwhile {
	const struct fixture *fixture;
	void (*happens)(const struct fixture *fixture);
	unsigned asked;
};

static bool
let_happen(void *context, uint64_t done, uint64_t total)
{
	struct meanwhile *meanwhile = context;

	(void)done;
	(void)total;
	if (++meanwhile->asked != 3)
		return true;
	if (meanwhile->happens != NULL)
		meanwhile->happens(meanwhile->fixture);
	return meanwhile->happens != NULL;
}

static int
verify_meanwhile(const struct fixture *fixture,
    void (*happens)(const struct fixture *), struct verify_report *verified)
{
	struct meanwhile meanwhile = { fixture, happens, 0 };
	const struct watch watch = { let_happen, &meanwhile };

	fixture_make_store(fixture, false, 1, 3);
	struct places places = find_places(fixture);
	const struct entry entries[] = { { 1, places.offset[1] },
		{ 3, places.offset[3] } };
	forge_index(fixture, &places, entries, COUNT(entries));
	int status = verify_store(fixture->path, &watch, verified);
	assert_true(meanwhile.asked >= 3);
	return status;
}

static void
search_for_the_difference_can_be_stopped(void **state)
{
	struct verify_report verified;

	assert_int_equal(
	    verify_meanwhile(*state, NULL, &verified), VERIFY_STOPPED);
}

static void
spoil_journal(const struct fixture *fixture)
{
	fixture_write(fixture, JOURNAL_NAME, 90, "X", 1);
}

static void
journal_that_is_damaged_meanwhile_is_told(void **state)
{
	struct verify_report verified;

	assert_int_equal(
	    verify_meanwhile(*state, spoil_journal, &verified), EX_DATAERR);
	assert_int_equal(fixture_logged(*state, "damaged at byte 82"), 1);
}

static void
spoil_index(const struct fixture *fixture)
{
	fixture_spoil_key(fixture, 1);
}

static void
index_that_is_damaged_meanwhile_is_told(void **state)
{
	struct verify_report verified;

	assert_int_equal(
	    verify_meanwhile(*state, spoil_index, &verified), EX_DATAERR);
	assert_int_equal(fixture_logged(*state, "index: damaged"), 1);
}

static void
index_that_is_replaced_meanwhile_is_not_compared(void **state)
{
	struct verify_report verified;

	assert_int_equal(
	    verify_meanwhile(*state, fixture_remove_index, &verified), EX_OK);
	assert_int_equal(verified.index, VERIFY_INDEX_REPLACED);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_valid_journal_is_counted),
		TEST(room_ahead_is_no_damage),
		TEST(damage_is_told_with_its_offset_and_nothing_is_changed),
		TEST(torn_tail_is_told_and_is_no_damage),
		TEST(directory_without_a_store_is_refused),
		TEST(index_of_a_store_in_use_equals_the_journal),
		TEST(copy_that_was_never_served_has_no_index),
		TEST(lost_index_is_no_damage_and_none_is_made),
		TEST(plant_that_the_index_lacks_is_named),
		TEST(plant_that_the_index_misplaces_is_named),
		TEST(plant_that_only_the_index_has_is_told),
		TEST(plant_that_is_stored_twice_is_told_with_both_places),
		TEST(index_that_lacks_the_last_plants_is_behind),
		TEST(index_of_another_journal_is_not_compared),
		TEST(journal_shorter_than_the_index_knows_is_damaged),
		TEST(index_without_a_lock_file_is_compared),
		TEST(index_that_is_cut_is_damaged),
		TEST(store_that_others_write_into_holds_at_any_time),
		TEST(watch_can_stop_it),
		TEST(watch_can_stop_it_while_the_index_is_read),
		TEST(index_whose_entries_do_not_follow_each_other_is_damaged),
		TEST(search_for_the_difference_can_be_stopped),
		TEST(journal_that_is_damaged_meanwhile_is_told),
		TEST(index_that_is_damaged_meanwhile_is_told),
		TEST(index_that_is_replaced_meanwhile_is_not_compared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
