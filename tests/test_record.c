/*
 * record: the bytes of format version 1, and that every other spelling of them
 * is refused.
 *
 * The lines here and in golden/journal-v1.jsonl are frozen: journals hold such
 * lines, so a test that fails is never mended by changing them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/crc32c.h"
#include "pure/record.h"
#include "pure/timestamp.h"

/* Tests are run from the top of the checkout. */
#define GOLDEN "tests/golden/journal-v1.jsonl"

#define UUID "0b7c3e52-8f4d-4a61-9c0e-5d2f1a6b7c8d"
#define HEADER \
	"{\"plant-store\":1,\"store\":\"" UUID "\",\"crc\":\"76d1a8ad\"}\n"
#define HEADER_CRC 0x76d1a8ad

#define PLANT "{\"id\":1,\"name\":\"Fern\",\"tag\":\"indoor\"}"
#define PLANT_LINE                                                \
	"{\"seq\":1,\"safe\":82,\"prev\":\"76d1a8ad\","           \
	"\"at\":\"2026-11-21T07:21:00.123Z\",\"by\":\"gardener\"" \
	",\"plant\":" PLANT ",\"crc\":\"305b9502\"}\n"
#define CLOSING_LINE                                     \
	"{\"seq\":4,\"safe\":665,\"prev\":\"de7cee21\"," \
	"\"at\":\"2026-11-21T07:21:04.000Z\",\"crc\":\"" \
	"74360eba\"}\n"

/* A line up to its checksum; each argument is a JSON token. */
#define FRONT(seq, safe, prev, at, by, plant)                             \
	"{\"seq\":" seq ",\"safe\":" safe ",\"prev\":" prev ",\"at\":" at \
	",\"by\":" by ",\"plant\":" plant
#define PREV "\"76d1a8ad\""
#define AT "\"2026-11-21T07:21:00.123Z\""
#define BY "\"gardener\""
#define WITH_PLANT(plant) FRONT("1", "82", PREV, AT, BY, plant)
#define WITH_NAME(name) WITH_PLANT("{\"id\":1,\"name\":" name "}")
#define WITH_BY(by) FRONT("1", "82", PREV, AT, by, PLANT)
#define WITH_AT(at) FRONT("1", "82", PREV, at, BY, PLANT)

#define TEN_X "xxxxxxxxxx"
#define SIXTY_X TEN_X TEN_X TEN_X TEN_X TEN_X TEN_X

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint32_t
seed(void)
{
	return record_seed(UUID);
}

/* Decode a copy on the heap, so that a byte read beyond it shows. */
static const char *
decode(const char *line, size_t len, struct record *record)
{
	char *copy = malloc(len > 0 ? len : 1);
	const char *reason;
	struct record found;

	assert_non_null(copy);
	memcpy(copy, line, len);
	reason = record_decode(copy, len, seed(), &found);
	if (reason == NULL && record != NULL) {
		*record = found;
		record->at = line + (found.at - copy);
		if (found.plant != NULL) {
			record->by = line + (found.by - copy);
			record->plant = line + (found.plant - copy);
		}
	}
	free(copy);
	return reason;
}

static bool
is_refused(const char *line, size_t len)
{
	return decode(line, len, NULL) != NULL;
}

/* Put the right checksum behind `front`.  The line's length. */
static size_t
seal(const char *front, char *line, size_t size)
{
	size_t len = strlen(front);
	int n = snprintf(line, size, "%s,\"crc\":\"%08x\"}\n", front,
	    (unsigned)crc32c(seed(), front, len));

	assert_in_range(n, 0, size - 1);
	return (size_t)n;
}

/* Why the line is refused, apart from its checksum, which is right. */
static const char *
why_refused(const char *front, struct record *record)
{
	static char line[1024];
	size_t len = seal(front, line, sizeof line);

	return decode(line, len, record);
}

static void
assert_all_refused(const char *const *fronts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *reason = why_refused(fronts[i], NULL);

		if (reason == NULL)
			fail_msg("accepted: %s", fronts[i]);
		assert_string_equal(reason, "not in canonical form");
	}
}

#define ASSERT_ALL_REFUSED(fronts) assert_all_refused((fronts), COUNT(fronts))

/* Encode what was decoded and compare with the bytes that it came from. */
static void
assert_encodes_to(const struct record *record, const char *line, size_t len)
{
	struct record again = *record;
	char *buf = malloc(RECORD_ENVELOPE_MAX + record->plant_len);

	assert_non_null(buf);
	again.crc = ~record->crc;
	assert_int_equal(record_encode(&again, seed(), buf), len);
	assert_memory_equal(buf, line, len);
	assert_int_equal(again.crc, record->crc);
	free(buf);
}

static void
header_is_written_byte_for_byte(void **state)
{
	char buf[RECORD_HEADER_LEN];

	(void)state;
	assert_int_equal(strlen(HEADER), RECORD_HEADER_LEN);
	assert_int_equal(record_header_encode(UUID, buf), HEADER_CRC);
	assert_memory_equal(buf, HEADER, RECORD_HEADER_LEN);
}

static void
header_gives_its_uuid_and_crc(void **state)
{
	char uuid[RECORD_UUID_LEN];
	uint32_t crc = 0;

	(void)state;
	assert_int_equal(
	    record_header_decode(HEADER, RECORD_HEADER_LEN, uuid, &crc),
	    RECORD_HEADER_OK);
	assert_memory_equal(uuid, UUID, RECORD_UUID_LEN);
	assert_int_equal(crc, HEADER_CRC);
}

static void
header_is_found_before_the_lines_that_follow(void **state)
{
	const char journal[] = HEADER PLANT_LINE;
	char uuid[RECORD_UUID_LEN];
	uint32_t crc;

	(void)state;
	assert_int_equal(
	    record_header_decode(journal, strlen(journal), uuid, &crc),
	    RECORD_HEADER_OK);
}

/* The verdict on a header, from a copy on the heap. */
static enum record_header
header_verdict(const char *header, size_t len)
{
	char *copy = malloc(len > 0 ? len : 1);
	char uuid[RECORD_UUID_LEN];
	uint32_t crc = 1;
	enum record_header verdict;

	assert_non_null(copy);
	memcpy(copy, header, len);
	memset(uuid, '?', sizeof uuid);
	verdict = record_header_decode(copy, len, uuid, &crc);
	free(copy);
	if (verdict != RECORD_HEADER_OK) {
		assert_int_equal(crc, 1);
		assert_int_equal(uuid[0], '?');
	}
	return verdict;
}

static void
header_that_is_cut_off_anywhere_is_bad(void **state)
{
	(void)state;
	for (size_t len = 0; len < RECORD_HEADER_LEN; len++)
		assert_int_equal(
		    header_verdict(HEADER, len), RECORD_HEADER_BAD);
}

static void
header_with_any_bit_flipped_is_refused(void **state)
{
	const size_t version_at = strlen("{\"plant-store\":");
	char header[] = HEADER;

	(void)state;
	for (size_t i = 0; i < RECORD_HEADER_LEN; i++) {
		for (int bit = 0; bit < 8; bit++) {
			enum record_header verdict;

			header[i] = (char)(header[i] ^ 1 << bit);
			verdict = header_verdict(header, RECORD_HEADER_LEN);
			/* Only another digit can look like a version. */
			if (i == version_at)
				assert_int_not_equal(verdict, RECORD_HEADER_OK);
			else
				assert_int_equal(verdict, RECORD_HEADER_BAD);
			header[i] = (char)(header[i] ^ 1 << bit);
		}
	}
}

static void
header_of_another_version_is_told_from_damage(void **state)
{
	static const char *const later[] = { "{\"plant-store\":0,",
		"{\"plant-store\":2,\"anything\":[]}\n", "{\"plant-store\":10}",
		"{\"plant-store\":2" };
	static const char *const bad[] = { "{\"plant-store\":1,\"anything\":2}",
		"{\"plant-store\":01,", "{\"plant-store\":-2,",
		"{\"plant-store\":\"2\",", "{ \"plant-store\":2,",
		"{\"plant-store\":99999999999999999999," };

	(void)state;
	for (size_t i = 0; i < COUNT(later); i++)
		assert_int_equal(header_verdict(later[i], strlen(later[i])),
		    RECORD_HEADER_VERSION);
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(
		    header_verdict(bad[i], strlen(bad[i])), RECORD_HEADER_BAD);
}

static void
header_with_another_spelling_of_a_uuid_is_bad_though_its_crc_holds(void **state)
{
	static const char *const uuids[] = {
		"0B7C3E52-8F4D-4A61-9C0E-5D2F1A6B7C8D",
		"0b7c3e528-f4d-4a61-9c0e-5d2f1a6b7c8d",
		"0b7c3e52-8f4d-4a61-9c0e-5d2f1a6b7c8g",
		"0b7c3e52 8f4d 4a61 9c0e 5d2f1a6b7c8d",
		"0b7c3e52-8f4d-4a61-9c0e15d2f1a6b7c8d",
	};
	char header[RECORD_HEADER_LEN];

	(void)state;
	for (size_t i = 0; i < COUNT(uuids); i++) {
		record_header_encode(uuids[i], header);
		assert_int_equal(
		    header_verdict(header, sizeof header), RECORD_HEADER_BAD);
	}
}

static void
plant_line_is_written_byte_for_byte(void **state)
{
	const struct record record = {
		.seq = 1,
		.safe = 82,
		.prev = HEADER_CRC,
		.crc = 0x305b9502,
		.at = "2026-11-21T07:21:00.123Z",
		.by = "gardener",
		.by_len = 8,
		.id = 1,
		.plant = PLANT,
		.plant_len = strlen(PLANT),
	};

	(void)state;
	assert_encodes_to(&record, PLANT_LINE, strlen(PLANT_LINE));
}

static void
plant_line_says_what_was_written(void **state)
{
	const char line[] = PLANT_LINE;
	struct record record;

	(void)state;
	assert_null(decode(line, strlen(line), &record));
	assert_int_equal(record.seq, 1);
	assert_int_equal(record.safe, 82);
	assert_int_equal(record.prev, HEADER_CRC);
	assert_int_equal(record.crc, 0x305b9502);
	assert_memory_equal(
	    record.at, "2026-11-21T07:21:00.123Z", TIMESTAMP_LEN);
	assert_int_equal(record.by_len, 8);
	assert_memory_equal(record.by, "gardener", 8);
	assert_int_equal(record.id, 1);
	assert_int_equal(record.plant_len, strlen(PLANT));
	assert_memory_equal(record.plant, PLANT, strlen(PLANT));
}

static void
closing_line_has_a_watermark_and_no_plant(void **state)
{
	const char line[] = CLOSING_LINE;
	struct record record;

	(void)state;
	assert_null(decode(line, strlen(line), &record));
	assert_int_equal(record.seq, 4);
	assert_int_equal(record.safe, 665);
	assert_null(record.plant);
	assert_null(record.by);
	assert_encodes_to(&record, line, strlen(line));
}

/* The golden journal, from malloc. */
static char *
read_golden(size_t *len)
{
	FILE *file = fopen(GOLDEN, "r");
	char *text = malloc(RECORD_LINE_MAX);

	if (file == NULL)
		fail_msg("no %s: run from the top of the checkout", GOLDEN);
	assert_non_null(text);
	*len = fread(text, 1, RECORD_LINE_MAX, file);
	fclose(file);
	return text;
}

static void
golden_journal_reads_and_writes_back_byte_for_byte(void **state)
{
	static const int64_t ids[] = { 1, INT64_MIN, INT64_MAX };
	size_t len, at = RECORD_HEADER_LEN, plants = 0;
	char *text = read_golden(&len);
	char header[RECORD_HEADER_LEN], uuid[RECORD_UUID_LEN];
	uint32_t prev;
	uint64_t seq = 0;

	(void)state;
	assert_int_equal(
	    record_header_decode(text, len, uuid, &prev), RECORD_HEADER_OK);
	record_header_encode(uuid, header);
	assert_memory_equal(header, text, sizeof header);
	while (at < len && text[at] != '\n') {
		const char *end = memchr(text + at, '\n', len - at);
		size_t line_len;
		struct record record;

		assert_non_null(end);
		line_len = (size_t)(end + 1 - (text + at));
		assert_null(decode(text + at, line_len, &record));
		assert_encodes_to(&record, text + at, line_len);
		/* In its place, as the journal's reader wants it. */
		assert_int_equal(record.seq, ++seq);
		assert_int_equal(record.prev, prev);
		assert_true(record.safe <= at);
		if (record.plant != NULL) {
			assert_true(plants < COUNT(ids));
			assert_true(record.id == ids[plants++]);
		}
		prev = record.crc;
		at += line_len;
	}
	assert_int_equal(seq, 4);
	assert_int_equal(plants, 3);
	assert_true(at < len);
	for (; at < len; at++)
		assert_int_equal(text[at], '\n');
	free(text);
}

static void
assert_every_flip_is_refused(const char *text, size_t len)
{
	char line[1024];

	assert_true(len < sizeof line);
	memcpy(line, text, len);
	assert_false(is_refused(line, len));
	for (size_t i = 0; i < len; i++) {
		for (int bit = 0; bit < 8; bit++) {
			line[i] = (char)(line[i] ^ 1 << bit);
			assert_true(is_refused(line, len));
			line[i] = (char)(line[i] ^ 1 << bit);
		}
	}
}

static void
line_with_any_bit_flipped_is_refused(void **state)
{
	(void)state;
	assert_every_flip_is_refused(PLANT_LINE, strlen(PLANT_LINE));
	assert_every_flip_is_refused(CLOSING_LINE, strlen(CLOSING_LINE));
}

static void
line_that_is_cut_off_anywhere_is_refused(void **state)
{
	(void)state;
	for (size_t len = 0; len < strlen(PLANT_LINE); len++)
		assert_true(is_refused(PLANT_LINE, len));
}

static void
line_that_begins_or_ends_elsewhere_is_refused(void **state)
{
	static const char line[] = " " PLANT_LINE "\n";
	const size_t len = strlen(PLANT_LINE);

	(void)state;
	assert_false(is_refused(line + 1, len));
	assert_true(is_refused(line, len + 1));
	assert_true(is_refused(line + 1, len + 1));
	for (size_t from = 1; from < len; from++)
		assert_true(is_refused(line + 1 + from, len - from));
}

static void
line_of_another_store_is_refused(void **state)
{
	struct record record;
	uint32_t other = record_seed("1b7c3e52-8f4d-4a61-9c0e-5d2f1a6b7c8d");

	(void)state;
	assert_non_null(
	    record_decode(PLANT_LINE, strlen(PLANT_LINE), other, &record));
	assert_non_null(
	    record_decode(PLANT_LINE, strlen(PLANT_LINE), 0, &record));
}

static void
refused_line_leaves_the_record_untouched(void **state)
{
	struct record record;

	(void)state;
	memset(&record, 0x5a, sizeof record);
	assert_non_null(
	    record_decode(PLANT_LINE, strlen(PLANT_LINE) - 1, seed(), &record));
	for (size_t i = 0; i < sizeof record; i++)
		assert_int_equal(((const unsigned char *)&record)[i], 0x5a);
}

/* What the tables below change is accepted as it stands here. */
static void
sealed_canonical_lines_are_accepted(void **state)
{
	static const char *const fronts[] = {
		WITH_PLANT(PLANT),
		WITH_PLANT("{\"id\":0,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":-1,\"name\":\"\",\"tag\":\"\"}"),
		WITH_PLANT("{\"id\":-9223372036854775808,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":9223372036854775807,\"name\":\"\"}"),
		WITH_NAME("\"\\n\\u0000/ \xc3\xa9 \xf0\x9f\x8c\xb1 \x7f\""),
		WITH_NAME("\"\\\",\\\"crc\\\":\\\"\""),
		WITH_BY("\"" SIXTY_X "A.z-\""),
		WITH_BY("\"_\""),
		WITH_AT("\"0000-01-01T00:00:00.000Z\""),
		WITH_AT("\"9999-12-31T23:59:59.999Z\""),
		FRONT("0", "0", "\"00000000\"", AT, BY, PLANT),
		FRONT("9223372036854775807", "9223372036854775807",
		    "\"ffffffff\"", AT, BY, PLANT),
		"{\"seq\":1,\"safe\":82,\"prev\":" PREV ",\"at\":" AT,
	};

	(void)state;
	for (size_t i = 0; i < COUNT(fronts); i++) {
		char line[1024];
		size_t len = seal(fronts[i], line, sizeof line);
		struct record record;
		const char *reason = decode(line, len, &record);

		if (reason != NULL)
			fail_msg("%s: %s", reason, fronts[i]);
		assert_encodes_to(&record, line, len);
	}
}

static void
other_spelling_of_a_number_is_refused(void **state)
{
	static const char *const fronts[] = {
		FRONT("01", "82", PREV, AT, BY, PLANT),
		FRONT("00", "82", PREV, AT, BY, PLANT),
		FRONT("+1", "82", PREV, AT, BY, PLANT),
		FRONT("-1", "82", PREV, AT, BY, PLANT),
		FRONT("-0", "82", PREV, AT, BY, PLANT),
		FRONT("1.0", "82", PREV, AT, BY, PLANT),
		FRONT("1e0", "82", PREV, AT, BY, PLANT),
		FRONT("", "82", PREV, AT, BY, PLANT),
		FRONT("\"1\"", "82", PREV, AT, BY, PLANT),
		FRONT("null", "82", PREV, AT, BY, PLANT),
		FRONT("0x1", "82", PREV, AT, BY, PLANT),
		FRONT("1", "082", PREV, AT, BY, PLANT),
		FRONT("1", "-82", PREV, AT, BY, PLANT),
		FRONT("1", "", PREV, AT, BY, PLANT),
	};

	(void)state;
	ASSERT_ALL_REFUSED(fronts);
}

static void
number_above_int64_is_refused(void **state)
{
	static const char *const fronts[] = {
		FRONT("9223372036854775808", "82", PREV, AT, BY, PLANT),
		FRONT("1", "9223372036854775808", PREV, AT, BY, PLANT),
		FRONT("18446744073709551617", "82", PREV, AT, BY, PLANT),
		FRONT("1", "100000000000000000000000000000000000000082", PREV,
		    AT, BY, PLANT),
	};

	(void)state;
	ASSERT_ALL_REFUSED(fronts);
}

static void
other_spelling_of_a_crc_is_refused(void **state)
{
	static const char *const prevs[] = {
		FRONT("1", "82", "\"76D1A8AD\"", AT, BY, PLANT),
		FRONT("1", "82", "\"76d1a8a\"", AT, BY, PLANT),
		FRONT("1", "82", "\"076d1a8ad\"", AT, BY, PLANT),
		FRONT("1", "82", "\"76d1a8ag\"", AT, BY, PLANT),
		FRONT("1", "82", "\"\"", AT, BY, PLANT),
		FRONT("1", "82", "76d1a8ad", AT, BY, PLANT),
	};
	char line[] = PLANT_LINE;
	char *crc = strstr(line, "305b9502");

	(void)state;
	ASSERT_ALL_REFUSED(prevs);
	memcpy(crc, "305B9502", 8);
	assert_true(is_refused(line, strlen(line)));
}

static void
space_between_tokens_is_refused(void **state)
{
	static const char *const fronts[] = {
		" " WITH_PLANT(PLANT),
		"\t" WITH_PLANT(PLANT),
		WITH_PLANT(PLANT) " ",
		FRONT(" 1", "82", PREV, AT, BY, PLANT),
		FRONT("1 ", "82", PREV, AT, BY, PLANT),
		FRONT("1", "82", " " PREV, AT, BY, PLANT),
		FRONT("1", "82", PREV, AT " ", BY, PLANT),
		FRONT("1", "82", PREV, AT, BY, " " PLANT),
		WITH_PLANT("{ \"id\":1,\"name\":\"\"}"),
		WITH_PLANT("{\"id\": 1,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":1, \"name\":\"\"}"),
		WITH_PLANT("{\"id\":1,\"name\":\"\" }"),
		WITH_PLANT("{\"id\":1,\"name\":\"\"}\r"),
	};

	(void)state;
	ASSERT_ALL_REFUSED(fronts);
}

static void
members_that_are_missing_added_or_in_another_order_are_refused(void **state)
{
	static const char *const fronts[] = {
		"{\"safe\":82,\"seq\":1,\"prev\":" PREV ",\"at\":" AT,
		"{\"seq\":1,\"prev\":" PREV ",\"safe\":82,\"at\":" AT,
		"{\"seq\":1,\"prev\":" PREV ",\"at\":" AT,
		"{\"seq\":1,\"safe\":82,\"at\":" AT,
		"{\"seq\":1,\"safe\":82,\"prev\":" PREV,
		"{\"seq\":1,\"safe\":82,\"prev\":" PREV ",\"at\":" AT
		",\"by\":" BY,
		"{\"seq\":1,\"safe\":82,\"prev\":" PREV ",\"at\":" AT
		",\"plant\":" PLANT,
		"{\"seq\":1,\"safe\":82,\"prev\":" PREV ",\"at\":" AT
		",\"plant\":" PLANT ",\"by\":" BY,
		"{\"seq\":1,\"safe\":82,\"prev\":" PREV ",\"at\":" AT
		",\"note\":1",
		"{\"seq\":1,\"seq\":1,\"safe\":82,\"prev\":" PREV ",\"at\":" AT,
		"{\"Seq\":1,\"safe\":82,\"prev\":" PREV ",\"at\":" AT,
		"{\"s\\u0065q\":1,\"safe\":82,\"prev\":" PREV ",\"at\":" AT,
		WITH_PLANT(PLANT) ",\"note\":1",
		WITH_PLANT(PLANT) ",",
		WITH_PLANT("{}"),
		WITH_PLANT("{\"id\":1}"),
		WITH_PLANT("{\"name\":\"\"}"),
		WITH_PLANT("{\"name\":\"\",\"id\":1}"),
		WITH_PLANT("{\"id\":1,\"tag\":\"\",\"name\":\"\"}"),
		WITH_PLANT("{\"id\":1,\"name\":\"\",\"name\":\"\"}"),
		WITH_PLANT("{\"id\":1,\"name\":\"\",\"tag\":\"\",\"a\":1}"),
		WITH_PLANT("{\"id\":1,\"name\":\"\",\"tag\":null}"),
		WITH_PLANT("{\"id\":1,\"name\":\"\",}"),
		WITH_PLANT("{\"id\":1,\"name\":null}"),
		WITH_PLANT("null"),
		WITH_PLANT("[" PLANT "]"),
		WITH_PLANT(PLANT "}"),
		WITH_PLANT("{\"id\":1,\"name\":\"\""),
		"{",
	};

	(void)state;
	ASSERT_ALL_REFUSED(fronts);
}

static void
other_spelling_of_a_string_is_refused(void **state)
{
	static const char *const fronts[] = {
		WITH_NAME("\"\\u0041\""),
		WITH_NAME("\"\\/\""),
		WITH_NAME("\"\\u000A\""),
		WITH_NAME("\"\\u000a\""),
		WITH_NAME("\"\\u001F\""),
		WITH_NAME("\"\\u0022\""),
		WITH_NAME("\"\\u007f\""),
		WITH_NAME("\"\\u00e9\""),
		WITH_NAME("\"\\ud83c\\udf31\""),
		WITH_NAME("\"\\ud83c\""),
		WITH_NAME("\"\\x41\""),
		WITH_NAME("\"\t\""),
		WITH_NAME("\"\x1f\""),
		WITH_NAME("\"\\\""),
		WITH_NAME("\"\"\""),
		WITH_NAME("'Fern'"),
		WITH_NAME("Fern"),
		WITH_PLANT("{\"id\":1,\"name\":\"\",\"tag\":\"\\/\"}"),
	};

	(void)state;
	ASSERT_ALL_REFUSED(fronts);
}

static void
invalid_utf8_is_refused(void **state)
{
	static const char *const fronts[] = {
		WITH_NAME("\"\xff\""),
		WITH_NAME("\"\x80\""),
		WITH_NAME("\"\xc0\x80\""),
		WITH_NAME("\"\xc3\""),
		WITH_NAME("\"\xe0\x80\xaf\""),
		WITH_NAME("\"\xed\xa0\x80\""),
		WITH_NAME("\"\xf0\x9f\x8c\""),
		WITH_NAME("\"\xf4\x90\x80\x80\""),
		WITH_PLANT("{\"id\":1,\"name\":\"\",\"tag\":\"\xe9\"}"),
	};

	(void)state;
	ASSERT_ALL_REFUSED(fronts);
}

/* The checksum is right, so that only the end stops the reading. */
static void
line_that_ends_within_a_value_is_refused(void **state)
{
	static const char *const fronts[] = {
		"{\"seq\":",
		"{\"seq\":1",
		"{\"seq\":1,\"safe\":82,\"prev\":\"",
		"{\"seq\":1,\"safe\":82,\"prev\":\"0123456",
		"{\"seq\":1,\"safe\":82,\"prev\":" PREV ",\"at\":\"2026",
		"{\"seq\":1,\"safe\":82,\"prev\":" PREV ",\"at\":" AT
		",\"by\":\"",
		"{\"seq\":1,\"safe\":82,\"prev\":" PREV ",\"at\":" AT
		",\"by\":\"gardener",
		WITH_PLANT("{\"id\":"),
		WITH_PLANT("{\"id\":-"),
		WITH_PLANT("{\"id\":12"),
		WITH_PLANT("{\"id\":1,\"name\":"),
		WITH_PLANT("{\"id\":1,\"name\":\"Fern"),
		WITH_PLANT("{\"id\":1,\"name\":\"\",\"tag\":"),
	};

	(void)state;
	ASSERT_ALL_REFUSED(fronts);
}

static void
other_spelling_of_an_id_is_refused(void **state)
{
	static const char *const fronts[] = {
		WITH_PLANT("{\"id\":-0,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":00,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":01,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":-01,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":+1,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":--1,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":-,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":1.0,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":1e0,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":\"1\",\"name\":\"\"}"),
		WITH_PLANT("{\"id\":9223372036854775808,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":-9223372036854775809,\"name\":\"\"}"),
		WITH_PLANT("{\"id\":18446744073709551617,\"name\":\"\"}"),
	};

	(void)state;
	ASSERT_ALL_REFUSED(fronts);
}

static void
name_that_no_token_can_have_is_refused(void **state)
{
	static const char *const fronts[] = {
		WITH_BY("\"\""),
		WITH_BY("\"" SIXTY_X "xxxxx\""),
		WITH_BY("\"a b\""),
		WITH_BY("\"a/b\""),
		WITH_BY("\"a{b\""),
		WITH_BY("\"a[b\""),
		WITH_BY("\"a:b\""),
		WITH_BY("\"\xc3\xa9\""),
		WITH_BY("\"\\u0061\""),
		WITH_BY("null"),
		WITH_BY("gardener"),
	};

	(void)state;
	ASSERT_ALL_REFUSED(fronts);
}

static void
time_that_is_not_printed_so_is_refused(void **state)
{
	static const char *const fronts[] = {
		WITH_AT("\"2026-13-21T07:21:00.123Z\""),
		WITH_AT("\"2026-02-29T07:21:00.123Z\""),
		WITH_AT("\"2026-11-21T24:00:00.123Z\""),
		WITH_AT("\"2016-12-31T23:59:60.000Z\""),
		WITH_AT("\"2026-11-21t07:21:00.123Z\""),
		WITH_AT("\"2026-11-21T07:21:00.123z\""),
		WITH_AT("\"2026-11-21 07:21:00.123Z\""),
		WITH_AT("\"2026-11-21T07:21:00.1234Z\""),
		WITH_AT("\"2026-11-21T07:21:00.12Z\""),
		WITH_AT("\"2026-11-21T07:21:00Z\""),
		WITH_AT("\"2026-11-21T07:21+00:00\""),
		WITH_AT("\"\""),
		WITH_AT("\"2026-11-21T07:21:00.123Z,"),
		"{\"seq\":1,\"safe\":82,\"prev\":" PREV
		",\"at\":\"2026-11-21T07:21:00.123Z",
	};

	(void)state;
	ASSERT_ALL_REFUSED(fronts);
}

static void
another_end_of_line_is_refused(void **state)
{
	const size_t len = strlen(PLANT_LINE);
	char line[sizeof PLANT_LINE + 1];

	(void)state;
	memcpy(line, PLANT_LINE, len);
	line[len - 1] = '\r';
	assert_true(is_refused(line, len));
	line[len] = '\n';
	assert_true(is_refused(line, len + 1));
	line[len - 1] = '\0';
	assert_true(is_refused(line, len));
}

static void
two_lines_are_not_one(void **state)
{
	static const char two[] = PLANT_LINE CLOSING_LINE;
	/* And not with a checksum over both either. */
	static const char *const sealed[] = {
		PLANT_LINE "{\"seq\":2,\"safe\":82,\"prev\":" PREV
			   ",\"at\":" AT,
	};

	(void)state;
	assert_true(is_refused(two, strlen(two)));
	ASSERT_ALL_REFUSED(sealed);
}

static void
longest_numbers_and_names_fit_the_envelope(void **state)
{
	static const char at[] = "2026-11-21T07:21:00.123Z";
	static const char by[] = SIXTY_X "xxxx";
	struct record record = {
		.seq = UINT64_MAX,
		.safe = UINT64_MAX,
		.prev = UINT32_MAX,
		.at = at,
		.by = by,
		.by_len = RECORD_BY_MAX,
		.plant = PLANT,
		.plant_len = strlen(PLANT),
	};
	/* Of the very size that the header asks for. */
	char *buf = malloc(RECORD_ENVELOPE_MAX + record.plant_len);

	(void)state;
	assert_int_equal(strlen(by), RECORD_BY_MAX);
	assert_non_null(buf);
	assert_in_range(record_encode(&record, seed(), buf), 1,
	    RECORD_ENVELOPE_MAX + record.plant_len);
	free(buf);
}

static void
largest_plant_makes_a_line_that_may_be_read(void **state)
{
	static const char begin[] = "{\"id\":-9223372036854775808,\"name\":\"";
	static const char end[] = "\"}";
	const size_t plant_len = RECORD_LINE_MAX - RECORD_ENVELOPE_MAX;
	char *plant = malloc(plant_len);
	char *buf = malloc(RECORD_LINE_MAX);
	struct record record = {
		.seq = INT64_MAX,
		.safe = INT64_MAX,
		.at = "2026-11-21T07:21:00.123Z",
		.by = SIXTY_X "xxxx",
		.by_len = RECORD_BY_MAX,
		.plant = plant,
		.plant_len = plant_len,
	};
	struct record found;
	size_t len;

	(void)state;
	assert_non_null(plant);
	assert_non_null(buf);
	memset(plant, 'x', plant_len);
	memcpy(plant, begin, strlen(begin));
	memcpy(plant + plant_len - strlen(end), end, strlen(end));
	len = record_encode(&record, seed(), buf);
	assert_in_range(len, plant_len, RECORD_LINE_MAX);
	assert_null(decode(buf, len, &found));
	assert_true(found.id == INT64_MIN);
	assert_int_equal(found.plant_len, plant_len);
	free(buf);
	free(plant);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_is_written_byte_for_byte),
		cmocka_unit_test(header_gives_its_uuid_and_crc),
		cmocka_unit_test(header_is_found_before_the_lines_that_follow),
		cmocka_unit_test(header_that_is_cut_off_anywhere_is_bad),
		cmocka_unit_test(header_with_any_bit_flipped_is_refused),
		cmocka_unit_test(header_of_another_version_is_told_from_damage),
		cmocka_unit_test(
		    header_with_another_spelling_of_a_uuid_is_bad_though_its_crc_holds),
		cmocka_unit_test(plant_line_is_written_byte_for_byte),
		cmocka_unit_test(plant_line_says_what_was_written),
		cmocka_unit_test(closing_line_has_a_watermark_and_no_plant),
		cmocka_unit_test(
		    golden_journal_reads_and_writes_back_byte_for_byte),
		cmocka_unit_test(line_with_any_bit_flipped_is_refused),
		cmocka_unit_test(line_that_is_cut_off_anywhere_is_refused),
		cmocka_unit_test(line_that_begins_or_ends_elsewhere_is_refused),
		cmocka_unit_test(line_of_another_store_is_refused),
		cmocka_unit_test(refused_line_leaves_the_record_untouched),
		cmocka_unit_test(sealed_canonical_lines_are_accepted),
		cmocka_unit_test(other_spelling_of_a_number_is_refused),
		cmocka_unit_test(number_above_int64_is_refused),
		cmocka_unit_test(other_spelling_of_a_crc_is_refused),
		cmocka_unit_test(space_between_tokens_is_refused),
		cmocka_unit_test(
		    members_that_are_missing_added_or_in_another_order_are_refused),
		cmocka_unit_test(other_spelling_of_a_string_is_refused),
		cmocka_unit_test(invalid_utf8_is_refused),
		cmocka_unit_test(line_that_ends_within_a_value_is_refused),
		cmocka_unit_test(other_spelling_of_an_id_is_refused),
		cmocka_unit_test(name_that_no_token_can_have_is_refused),
		cmocka_unit_test(time_that_is_not_printed_so_is_refused),
		cmocka_unit_test(another_end_of_line_is_refused),
		cmocka_unit_test(two_lines_are_not_one),
		cmocka_unit_test(longest_numbers_and_names_fit_the_envelope),
		cmocka_unit_test(largest_plant_makes_a_line_that_may_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
