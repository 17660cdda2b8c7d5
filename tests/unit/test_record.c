/*
 * record: the bytes of format version 1, and that every other spelling of them
 * is refused.
 *
 * The lines here are frozen: journals hold such lines, so a test that fails is
 * never mended by changing them.
 */
#include "unit.h"

#include <stdio.h>

#include "pure/crc32c.h"
#include "pure/record.h"
#include "pure/timestamp.h"

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

/* The values of a line, each a JSON token; of `plant`, or all of it. */
enum { SEQ, SAFE, PREV, AT, BY, ID, NAME, TAG, PLANT_OBJECT, FRONT, VALUES };
static const char *const usual[VALUES] = { "1", "82", "\"76d1a8ad\"",
	"\"2026-11-21T07:21:00.123Z\"", "\"gardener\"", "1", "\"Fern\"",
	"\"indoor\"" };
/* The front of a closing line, and ends of it. */
#define AT_TEXT "\"2026-11-21T07:21:00.123Z\""
#define PREV_AT "\"76d1a8ad\",\"at\":" AT_TEXT
#define CLOSING "{\"seq\":1,\"safe\":82,\"prev\":" PREV_AT

#define TEN_X "xxxxxxxxxx"
#define SIXTY_X TEN_X TEN_X TEN_X TEN_X TEN_X TEN_X

static uint32_t
seed(void)
{
	return record_seed(UUID);
}

/* Decode a copy on the heap, so that a byte read beyond it shows. */
static const char *
decode(const char *line, size_t len, struct record *record)
{
	char *copy = exact_copy(line, len);
	struct record found;
	const char *reason = record_decode(copy, len, seed(), &found);

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

/*
 * Make the usual line with `text` in the place of one value, and with the right
 * checksum.  Return its length.
 */
static size_t
seal(int place, const char *text, char line[static 1024])
{
	const char *value[VALUES];
	int len;

	memcpy(value, usual, sizeof value);
	value[place] = text;
	if (value[FRONT] != NULL)
		len = snprintf(line, 1000, "%s", value[FRONT]);
	else {
		len = snprintf(line, 1000,
		    "{\"seq\":%s,\"safe\":%s,\"prev\":%s,\"at\":%s,"
		    "\"by\":%s,\"plant\":",
		    value[SEQ], value[SAFE], value[PREV], value[AT], value[BY]);
		len += value[PLANT_OBJECT] != NULL
			   ? sprintf(line + len, "%s", value[PLANT_OBJECT])
			   : sprintf(line + len,
				 "{\"id\":%s,\"name\":%s,\"tag\":%s}",
				 value[ID], value[NAME], value[TAG]);
	}
	return (size_t)(len + sprintf(line + len, ",\"crc\":\"%08x\"}\n",
				  (unsigned)crc32c(seed(), line, (size_t)len)));
}

/* Encode what was decoded and compare with the bytes that it came from. */
static void
assert_encodes_to(const struct record *record, const char *line, size_t len)
{
	struct record again = *record;
	char *buf = memory(RECORD_ENVELOPE_MAX + record->plant_len);

	again.crc = ~record->crc;
	assert_int_equal(record_encode(&again, seed(), buf), len);
	assert_memory_equal(buf, line, len);
	assert_int_equal(again.crc, record->crc);
}

TEST(header_is_written_byte_for_byte_and_read_back)
{
	static const char journal[] = HEADER PLANT_LINE;
	char buf[RECORD_HEADER_LEN], uuid[RECORD_UUID_LEN];

	assert_int_equal(strlen(HEADER), RECORD_HEADER_LEN);
	assert_int_equal(record_header_encode(UUID, buf), HEADER_CRC);
	assert_memory_equal(buf, HEADER, RECORD_HEADER_LEN);
	/* Alone, and before the lines that follow. */
	size_t len = RECORD_HEADER_LEN;
	for (; len < sizeof journal; len += strlen(PLANT_LINE)) {
		uint32_t crc = 0;

		assert_int_equal(record_header_decode(journal, len, uuid, &crc),
		    RECORD_HEADER_OK);
		assert_memory_equal(uuid, UUID, RECORD_UUID_LEN);
		assert_int_equal(crc, HEADER_CRC);
	}
}

/* The verdict on a header, from a copy on the heap. */
static enum record_header
header_verdict(const char *header, size_t len)
{
	char *copy = exact_copy(header, len), uuid[RECORD_UUID_LEN];
	uint32_t crc = 1;
	enum record_header verdict;

	memset(uuid, '?', sizeof uuid);
	verdict = record_header_decode(copy, len, uuid, &crc);
	free(copy);
	if (verdict != RECORD_HEADER_OK) {
		assert_int_equal(crc, 1);
		assert_int_equal(uuid[0], '?');
	}
	return verdict;
}

TEST(header_cut_short_or_with_any_bit_flipped_is_refused)
{
	const size_t version_at = strlen("{\"plant-store\":");
	char header[] = HEADER;

	for (size_t len = 0; len < RECORD_HEADER_LEN; len++)
		assert_int_equal(
		    header_verdict(HEADER, len), RECORD_HEADER_BAD);
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

TEST(header_of_another_version_is_told_from_damage)
{
	static const struct {
		enum record_header verdict;
		const char *texts[7];
	} cases[] = {
		{ RECORD_HEADER_VERSION,
		    { "{\"plant-store\":0,",
			"{\"plant-store\":2,\"anything\":[]}\n",
			"{\"plant-store\":10}", "{\"plant-store\":2" } },
		{ RECORD_HEADER_BAD,
		    { "{\"plant-store\":1,\"anything\":2}",
			"{\"plant-store\":01,", "{\"plant-store\":-2,",
			"{\"plant-store\":\"2\",", "{ \"plant-store\":2,",
			"{\"plant-store\":99999999999999999999," } },
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		EACH_TEXT (text, cases[i].texts)
			assert_int_equal(header_verdict(*text, strlen(*text)),
			    cases[i].verdict);
}

TEST(header_with_another_spelling_of_a_uuid_is_bad)
{
	static const char *const uuids[] = {
		"0B7C3E52-8F4D-4A61-9C0E-5D2F1A6B7C8D",
		"0b7c3e528-f4d-4a61-9c0e-5d2f1a6b7c8d",
		"0b7c3e52-8f4d-4a61-9c0e-5d2f1a6b7c8g",
		"0b7c3e52 8f4d 4a61 9c0e 5d2f1a6b7c8d",
		"0b7c3e52-8f4d-4a61-9c0e15d2f1a6b7c8d",
	};
	char header[RECORD_HEADER_LEN];

	for (size_t i = 0; i < COUNT(uuids); i++) {
		record_header_encode(uuids[i], header);
		assert_int_equal(
		    header_verdict(header, sizeof header), RECORD_HEADER_BAD);
	}
}

TEST(plant_line_is_written_byte_for_byte_and_read_back)
{
	const char line[] = PLANT_LINE;
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
	struct record found;

	assert_encodes_to(&record, line, strlen(line));
	assert_null(decode(line, strlen(line), &found));
	assert_int_equal(found.seq, 1);
	assert_int_equal(found.safe, 82);
	assert_int_equal(found.prev, HEADER_CRC);
	assert_int_equal(found.crc, 0x305b9502);
	assert_memory_equal(found.at, record.at, TIMESTAMP_LEN);
	assert_int_equal(found.by_len, 8);
	assert_memory_equal(found.by, "gardener", 8);
	assert_int_equal(found.id, 1);
	assert_int_equal(found.plant_len, strlen(PLANT));
	assert_memory_equal(found.plant, PLANT, strlen(PLANT));
}

TEST(closing_line_has_a_watermark_and_no_plant)
{
	const char line[] = CLOSING_LINE;
	struct record record;

	assert_null(decode(line, strlen(line), &record));
	assert_int_equal(record.seq, 4);
	assert_int_equal(record.safe, 665);
	assert_null(record.plant);
	assert_null(record.by);
	assert_encodes_to(&record, line, strlen(line));
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

TEST(line_with_any_bit_flipped_is_refused)
{
	assert_every_flip_is_refused(PLANT_LINE, strlen(PLANT_LINE));
	assert_every_flip_is_refused(CLOSING_LINE, strlen(CLOSING_LINE));
}

TEST(line_that_begins_or_ends_elsewhere_is_refused)
{
	static const char text[] = " " PLANT_LINE "\n";
	const char *line = text + 1;
	const size_t len = strlen(PLANT_LINE);

	assert_false(is_refused(line, len));
	assert_true(is_refused(text, len + 1));
	assert_true(is_refused(line, len + 1));
	for (size_t cut = 0; cut < len; cut++)
		assert_true(is_refused(line, cut));
	for (size_t from = 1; from < len; from++)
		assert_true(is_refused(line + from, len - from));
}

TEST(line_of_another_store_is_refused_and_sets_nothing)
{
	const uint32_t seeds[] = { 0,
		record_seed("1b7c3e52-8f4d-4a61-9c0e-5d2f1a6b7c8d") };
	struct record record, before;

	memset(&record, 0x5a, sizeof record);
	memset(&before, 0x5a, sizeof before);
	for (size_t i = 0; i < COUNT(seeds); i++)
		assert_non_null(record_decode(
		    PLANT_LINE, strlen(PLANT_LINE), seeds[i], &record));
	assert_non_null(
	    record_decode(PLANT_LINE, strlen(PLANT_LINE) - 1, seed(), &record));
	assert_memory_equal(&record, &before, sizeof record);
}

TEST(values_at_their_bounds_are_accepted)
{
	static const struct {
		int place;
		const char *texts[4];
	} good[] = {
		{ SEQ, { "0", "9223372036854775807" } },
		{ SAFE, { "0", "9223372036854775807" } },
		{ PREV, { "\"00000000\"", "\"ffffffff\"" } },
		{ AT, { "\"0000-01-01T00:00:00.000Z\"",
			  "\"9999-12-31T23:59:59.999Z\"" } },
		{ BY, { "\"_\"", "\"" SIXTY_X "A.z-\"" } },
		{ ID, { "0", "-1", "-9223372036854775808",
			  "9223372036854775807" } },
		{ NAME,
		    { "\"\"", "\"\\n\\u0000/ \xc3\xa9 \xf0\x9f\x8c\xb1 \x7f\"",
			"\"\\\",\\\"crc\\\":\\\"\"" } },
		{ TAG, { "\"\"" } },
		{ PLANT_OBJECT, { PLANT, "{\"id\":0,\"name\":\"\"}" } },
		{ FRONT, { CLOSING } },
	};

	for (size_t i = 0; i < COUNT(good); i++)
		for (int j = 0; j < 4 && good[i].texts[j] != NULL; j++) {
			char line[1024];
			size_t len =
			    seal(good[i].place, good[i].texts[j], line);
			struct record record;
			const char *reason = decode(line, len, &record);

			if (reason != NULL)
				fail_msg("%s: %s", reason, line);
			assert_encodes_to(&record, line, len);
		}
}

#define REFUSED_MAX 32
static const struct refused {
	const char *what;
	int place;
	const char *texts[REFUSED_MAX]; /* NULL behind the last */
} refused[] = {
	{ "another spelling of a number", SEQ,
	    { "01", "00", "+1", "-1", "-0", "1.0", "1e0", "", "\"1\"", "null",
		"0x1" } },
	{ "another spelling of a number", SAFE, { "082", "-82", "" } },
	{ "a number above int64", SEQ,
	    { "9223372036854775808", "18446744073709551617" } },
	{ "a number above int64", SAFE,
	    { "9223372036854775808",
		"100000000000000000000000000000000000000082" } },
	{ "another spelling of a crc", PREV,
	    { "\"76D1A8AD\"", "\"76d1a8a\"", "\"076d1a8ad\"", "\"76d1a8ag\"",
		"\"\"", "76d1a8ad", "\"76d1a8a@\"", "\"76d1a8a`\"",
		"\"76d1a8a/\"", "\"76d1a8a:\"" } },
	{ "a space between tokens", SEQ, { " 1", "1 " } },
	{ "a space between tokens", PREV, { " \"76d1a8ad\"" } },
	{ "a space between tokens", AT, { "\"2026-11-21T07:21:00.123Z\" " } },
	{ "a space between tokens", PLANT_OBJECT,
	    { " " PLANT, PLANT " ", "{ \"id\":1,\"name\":\"\"}",
		"{\"id\": 1,\"name\":\"\"}", "{\"id\":1, \"name\":\"\"}",
		"{\"id\":1,\"name\":\"\" }", "{\"id\":1,\"name\":\"\"}\r" } },
	{ "a space before the line", FRONT, { " " CLOSING, "\t" CLOSING } },
	{ "a member of the line missing, added or elsewhere", FRONT,
	    { "{\"safe\":82,\"seq\":1,\"prev\":" PREV_AT,
		"{\"seq\":1,\"prev\":\"76d1a8ad\",\"safe\":82,\"at\":" AT_TEXT,
		"{\"seq\":1,\"prev\":" PREV_AT,
		"{\"seq\":1,\"safe\":82,\"at\":" AT_TEXT,
		"{\"seq\":1,\"safe\":82,\"prev\":\"76d1a8ad\"",
		CLOSING ",\"by\":\"gardener\"", CLOSING ",\"plant\":" PLANT,
		CLOSING ",\"plant\":" PLANT ",\"by\":\"gardener\"",
		CLOSING ",\"note\":1",
		"{\"seq\":1,\"seq\":1,\"safe\":82,\"prev\":" PREV_AT,
		"{\"Seq\":1,\"safe\":82,\"prev\":" PREV_AT,
		"{\"s\\u0065q\":1,\"safe\":82,\"prev\":" PREV_AT, "{" } },
	{ "a member of the plant missing, added or elsewhere", PLANT_OBJECT,
	    { PLANT ",\"note\":1", PLANT ",", "{}", "{\"id\":1}",
		"{\"name\":\"\"}", "{\"name\":\"\",\"id\":1}",
		"{\"id\":1,\"tag\":\"\",\"name\":\"\"}",
		"{\"id\":1,\"name\":\"\",\"name\":\"\"}",
		"{\"id\":1,\"name\":\"\",\"tag\":\"\",\"a\":1}",
		"{\"id\":1,\"name\":\"\",}", "null", "[" PLANT "]", PLANT "}",
		"{\"id\":1,\"name\":\"\"" } },
	{ "another type", NAME, { "null" } },
	{ "another type", TAG, { "null" } },
	{ "another spelling of a string", NAME,
	    { "\"\\u0041\"", "\"\\\"", "\"\"\"", "'Fern'", "Fern" } },
	{ "another spelling of a string", TAG, { "\"\\/\"" } },
	{ "invalid UTF-8", NAME, { "\"\xff\"", "\"\xc3\"" } },
	{ "invalid UTF-8", TAG, { "\"\xe9\"" } },
	{ "an end within a value", FRONT,
	    { "{\"seq\":", "{\"seq\":1", "{\"seq\":1,\"safe\":82,\"prev\":\"",
		"{\"seq\":1,\"safe\":82,\"prev\":\"0123456",
		"{\"seq\":1,\"safe\":82,\"prev\":\"76d1a8ad\",\"at\":\"2026",
		"{\"seq\":1,\"safe\":82,\"prev\":\"76d1a8ad\""
		",\"at\":\"2026-11-21T07:21:00.123Z",
		CLOSING ",\"by\":\"", CLOSING ",\"by\":\"gardener" } },
	{ "an end within a value", PLANT_OBJECT,
	    { "{\"id\":", "{\"id\":-", "{\"id\":12",
		"{\"id\":1,\"name\":", "{\"id\":1,\"name\":\"Fern",
		"{\"id\":1,\"name\":\"\",\"tag\":" } },
	{ "another spelling of an id", ID,
	    { "-0", "00", "01", "-01", "+1", "--1", "-", "", "1.0", "1e0",
		"\"1\"", "9223372036854775808", "-9223372036854775809",
		"18446744073709551617" } },
	{ "a name that no token can have", BY,
	    { "\"\"", "\"" SIXTY_X "xxxxx\"", "\"a b\"", "\"a/b\"", "\"a{b\"",
		"\"a[b\"", "\"a:b\"", "\"\xc3\xa9\"", "\"\\u0061\"", "null",
		"gardener" } },
	{ "a time in another form", AT,
	    { "\"2026-13-21T07:21:00.123Z\"", "\"2026-02-29T07:21:00.123Z\"",
		"\"2026-11-21T24:00:00.123Z\"", "\"2016-12-31T23:59:60.000Z\"",
		"\"2026-11-21t07:21:00.123Z\"", "\"2026-11-21T07:21:00.123z\"",
		"\"2026-11-21 07:21:00.123Z\"", "\"2026-11-21T07:21:00.1234Z\"",
		"\"2026-11-21T07:21:00.12Z\"", "\"2026-11-21T07:21:00Z\"",
		"\"2026-11-21T07:21+00:00\"", "\"\"",
		"\"2026-11-21T07:21:00.123Z," } },
	{ "two lines with one checksum", FRONT, { PLANT_LINE CLOSING } },
};

TEST(every_other_spelling_is_refused_with_a_right_checksum)
{
	for (size_t i = 0; i < COUNT(refused); i++)
		EACH_TEXT (text, refused[i].texts) {
			char line[1024];
			size_t len = seal(refused[i].place, *text, line);
			const char *reason = decode(line, len, NULL);

			if (reason == NULL)
				fail_msg("%s is accepted: %s", refused[i].what,
				    line);
			assert_string_equal(reason, "not in canonical form");
		}
}

TEST(another_end_of_line_or_case_of_the_crc_is_refused)
{
	static const char two[] = PLANT_LINE CLOSING_LINE;
	const size_t len = strlen(PLANT_LINE);
	char line[sizeof PLANT_LINE + 1] = PLANT_LINE;

	assert_true(is_refused(two, strlen(two)));
	memcpy(strstr(line, "305b9502"), "305B9502", 8);
	assert_true(is_refused(line, len));
	memcpy(line, PLANT_LINE, len);
	line[len - 1] = '\r';
	assert_true(is_refused(line, len));
	line[len] = '\n';
	assert_true(is_refused(line, len + 1));
	line[len - 1] = '\0';
	assert_true(is_refused(line, len));
}

TEST(largest_plant_makes_a_line_that_may_be_read)
{
	static const char begin[] = "{\"id\":-9223372036854775808,\"name\":\"";
	static const char end[] = "\"}";
	const size_t plant_len = RECORD_LINE_MAX - RECORD_ENVELOPE_MAX;
	char *plant = memory(plant_len);
	char *buf = memory(RECORD_LINE_MAX);
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

	memset(plant, 'x', plant_len);
	memcpy(plant, begin, strlen(begin));
	memcpy(plant + plant_len - strlen(end), end, strlen(end));
	len = record_encode(&record, seed(), buf);
	assert_in_range(len, plant_len, RECORD_LINE_MAX);
	assert_null(decode(buf, len, &found));
	assert_true(found.id == INT64_MIN);
	assert_int_equal(found.plant_len, plant_len);
}

TEST(what_no_line_could_have_is_not_canonical)
{
	static const struct {
		const char *by, *plant;
		bool canonical;
	} cases[] = {
		{ "gardener", PLANT, true },
		{ "gardener", "{\"id\":1,\"name\":\"\"}", true },
		{ "gardener", "{\"id\":2,\"name\":\"\"}", false },
		{ "gardener", "{\"id\": 1,\"name\":\"\"}", false },
		{ "gardener", "{\"id\":1,\"name\":\"\"} ", false },
		{ "gardener", "{\"id\":1,\"name\":\"\\u0041\"}", false },
		{ "gardener", "", false },
		{ "", PLANT, false },
		{ "a b", PLANT, false },
		{ SIXTY_X "xxxxx", PLANT, false },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct record record = {
			.by = cases[i].by,
			.by_len = strlen(cases[i].by),
			.id = 1,
			.plant = cases[i].plant,
			.plant_len = strlen(cases[i].plant),
		};

		assert_int_equal(
		    record_is_canonical(&record), cases[i].canonical);
	}
	struct record negative = { .by = "gardener",
		.by_len = 8,
		.id = -5,
		.plant = "{\"id\":-5,\"name\":\"\"}",
		.plant_len = 19 };
	assert_true(record_is_canonical(&negative));
	negative.id = 5;
	assert_false(record_is_canonical(&negative));
	struct record long_one = { .by = "gardener",
		.by_len = 8,
		.plant = memory(RECORD_LINE_MAX),
		.plant_len = RECORD_LINE_MAX };
	assert_false(record_is_canonical(&long_one));
}
