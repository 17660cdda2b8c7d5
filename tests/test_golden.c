/*
 * test_golden: journals of every released version open as stores, know their plants and take
 * new ones.  The files in golden/ are frozen: a store somewhere is such bytes.
 */
#include "store_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct golden {
	const char *path;
	size_t plants;
} versions[] = {
	{ "tests/golden/journal-v1.jsonl", 3 },
};

/* Put the golden journal into the store's directory; its bytes, from malloc. */
static char *
install(const struct fixture *fixture, const struct golden *golden, size_t *len)
{
	FILE *file = fopen(golden->path, "rb");
	char *bytes = malloc(1 << 20);

	assert_non_null(file);
	assert_non_null(bytes);
	*len = fread(bytes, 1, 1 << 20, file);
	assert_true(feof(file));
	fclose(file);
	/* What was here before may have been another store. */
	if (fixture_exists(fixture, JOURNAL_NAME)) {
		fixture_remove(fixture, JOURNAL_NAME);
		fixture_remove_index(fixture);
	}
	fixture_write(fixture, JOURNAL_NAME, 0, bytes, *len);
	return bytes;
}

static void
put_and_expect(struct store *store, const char *text, size_t len, int64_t id,
    enum store_result expected)
{
	struct plant plant = { .id = id, .text = strndup(text, len) };
	struct store_item item = { .plant = &plant, .by = "tester" };

	assert_non_null(plant.text);
	plant.len = len;
	assert_int_equal(store_commit(store, &item, 1, NULL, NULL), 0);
	assert_int_equal(item.result, expected);
	plant_done(&plant);
}

/*
 * Every plant is known as it is, and none is taken for another.  Where the
 * lines end.
 */
static size_t
expect_plants(
    struct store *store, const char *bytes, size_t len, size_t expected)
{
	char uuid[RECORD_UUID_LEN], other[64];
	const char *line = bytes + RECORD_HEADER_LEN;
	struct record record;
	uint32_t crc;
	size_t plants = 0;

	assert_int_equal(
	    record_header_decode(bytes, len, uuid, &crc), RECORD_HEADER_OK);
	while (line < bytes + len && *line != '\n') {
		const char *next = (const char *)memchr(line, '\n',
				       len - (size_t)(line - bytes)) +
				   1;

		assert_null(record_decode(
		    line, (size_t)(next - line), record_seed(uuid), &record));
		line = next;
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
	return (size_t)(line - bytes);
}

static void
journals_of_every_version_open_and_know_their_plants(void **state)
{
	for (size_t i = 0; i < COUNT(versions); i++)
		for (int prepare = 0; prepare <= 1; prepare++) {
			size_t len;
			char *bytes = install(*state, &versions[i], &len);
			struct store *store = fixture_open(*state, prepare);

			expect_plants(store, bytes, len, versions[i].plants);
			store_close(store);
			free(bytes);
		}
}

static void
new_plant_follows_the_bytes_that_were_there(void **state)
{
	for (size_t i = 0; i < COUNT(versions); i++) {
		size_t len, now_len;
		char *bytes = install(*state, &versions[i], &len), *now;
		struct store *store = fixture_open(*state, false);
		size_t end =
		    expect_plants(store, bytes, len, versions[i].plants);

		fixture_create(store, 20261121);
		store_close(store);
		now = fixture_read(*state, JOURNAL_NAME, &now_len);
		assert_true(now_len > end);
		assert_memory_equal(now, bytes, end);
		free(now);
		store = fixture_open(*state, true);
		expect_plants(store, bytes, len, versions[i].plants);
		assert_int_equal(
		    fixture_put(store, 20261121, NULL).result, STORE_SAME);
		store_close(store);
		free(bytes);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(journals_of_every_version_open_and_know_their_plants),
		TEST(new_plant_follows_the_bytes_that_were_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
