/*
 * test_golden: journals of every released version open as stores, know their
 * plants and take new ones.  The files in golden/ are frozen: a store somewhere
 * is such bytes.  That of 0.1.0 is a killed service's, with a torn end.
 */
#include "store_fixture.h"

#include <fcntl.h>
#include <stdio.h>

static const struct golden {
	const char *path;
	size_t plants;
} versions[] = {
	{ "tests/golden/journal-v1.jsonl", 3 },
	{ "tests/golden/0.1.0/plants.jsonl", 7 },
	{ "tests/golden/1.0.0/plants.jsonl", 7 },
	{ "tests/golden/1.1.0/plants.jsonl", 7 },
};

/* A directory with the golden journal; its bytes. */
static struct contents
install(struct fixture *fixture, const struct golden *golden)
{
	struct contents journal = file_read(AT_FDCWD, golden->path);

	fixture_renew(fixture);
	fixture_remove(fixture, JOURNAL_NAME);
	fixture_write(fixture, JOURNAL_NAME, 0, journal.at, journal.len);
	return journal;
}

static void
put_and_expect(struct store *store, const char *text, size_t len, int64_t id,
    enum store_result expected)
{
	struct plant plant = { .id = id, .text = strndup(text, len) };
	struct store_item item = { .plant = &plant, .by = "tester" };

	assert_non_null(plant.text);
	plant.len = len;
	assert_int_equal(store_commit(store, &item, 1), 0);
	assert_int_equal(item.result, expected);
	plant_done(&plant);
}

/*
 * Every plant is known as it is, and none is taken for another.  Where the
 * whole lines end.
 */
static size_t
expect_held(
    struct store *store, const struct contents *journal, size_t expected)
{
	char uuid[RECORD_UUID_LEN], other[64];
	const char *line = journal->at + RECORD_HEADER_LEN;
	const char *end = journal->at + journal->len, *newline;
	struct record record;
	uint32_t crc;
	size_t plants = 0;

	assert_int_equal(
	    record_header_decode(journal->at, journal->len, uuid, &crc),
	    RECORD_HEADER_OK);
	while ((newline = memchr(line, '\n', (size_t)(end - line))) != NULL &&
	       newline > line) {
		assert_null(record_decode(line, (size_t)(newline + 1 - line),
		    record_seed(uuid), &record));
		line = newline + 1;
		if (record.plant == NULL)
			continue;
		plants++;
		put_and_expect(store, record.plant, record.plant_len, record.id,
		    STORE_SAME);
		snprintf(other, sizeof(other),
		    "{\"id\":%lld,\"name\":\"another\"}", (long long)record.id);
		put_and_expect(
		    store, other, strlen(other), record.id, STORE_CONFLICT);
	}
	assert_int_equal(plants, expected);
	return (size_t)(line - journal->at);
}

STORE_TEST(journals_of_every_version_open_and_know_their_plants)
{
	for (size_t i = 0; i < COUNT(versions); i++)
		for (int long_lived = 0; long_lived <= 1; long_lived++) {
			struct contents golden = install(fixture, &versions[i]);
			struct store *store = fixture_open(fixture, long_lived);

			expect_held(store, &golden, versions[i].plants);
			store_close(store);
		}
}

STORE_TEST(lines_are_written_byte_for_byte_as_they_were)
{
	for (size_t i = 0; i < COUNT(versions); i++) {
		struct contents golden = install(fixture, &versions[i]);
		char uuid[RECORD_UUID_LEN], header[RECORD_HEADER_LEN];
		char *line = golden.at + RECORD_HEADER_LEN, *newline;
		char *encoded = memory(golden.len);
		struct record record;
		uint32_t crc;

		record_header_decode(golden.at, golden.len, uuid, &crc);
		assert_int_equal(record_header_encode(uuid, header), crc);
		assert_memory_equal(golden.at, header, sizeof(header));
		while (
		    (newline = strchr(line, '\n')) != NULL && newline > line) {
			size_t n = (size_t)(newline + 1 - line);

			assert_null(
			    record_decode(line, n, record_seed(uuid), &record));
			crc = record.crc;
			assert_int_equal(
			    record_encode(&record, record_seed(uuid), encoded),
			    n);
			assert_memory_equal(line, encoded, n);
			assert_int_equal(record.crc, crc);
			line = newline + 1;
		}
	}
}

STORE_TEST(new_plant_follows_the_bytes_that_were_there)
{
	for (size_t i = 0; i < COUNT(versions); i++) {
		struct contents golden = install(fixture, &versions[i]), now;
		struct store *store = fixture_open(fixture, false);
		size_t end = expect_held(store, &golden, versions[i].plants);

		fixture_create(store, 20261121);
		store_close(store);
		now = fixture_read(fixture, JOURNAL_NAME);
		assert_true(now.len > end);
		assert_memory_equal(now.at, golden.at, end);
		store = fixture_open(fixture, true);
		expect_held(store, &golden, versions[i].plants);
		expect_put(store, 20261121, NULL, STORE_SAME);
		store_close(store);
	}
}
