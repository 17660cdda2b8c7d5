/*
 * RFC 3339 date-times, against the C library's calendar and the RFC's examples.
 */
#include "unit.h"

#include <stdio.h>
#include <time.h>

#include "pure/timestamp.h"

#define MS_MIN INT64_C(-62167219200000) /* 0000-01-01T00:00:00.000Z */
#define MS_MAX INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */
#define MS_PER_DAY INT64_C(86400000)

struct sample {
	const char *text;
	int64_t ms;
};

static int
read_copy(const char *text, size_t len, int64_t *ms)
{
	char *copy = exact_copy(text, len);
	int result = timestamp_read(copy, len, ms);

	free(copy);
	return result;
}

TEST(known_times_are_printed_and_others_clamped)
{
	static const struct sample samples[] = {
		{ "1970-01-01T00:00:00.000Z", 0 },
		{ "1969-12-31T23:59:59.999Z", -1 },
		{ "2026-11-21T07:21:00.123Z", INT64_C(1795245660123) },
		{ "2000-02-29T00:00:00.000Z", INT64_C(951782400000) },
		{ "1900-02-28T23:59:59.999Z", INT64_C(-2203891200001) },
		{ "1900-03-01T00:00:00.000Z", INT64_C(-2203891200000) },
		{ "0000-01-01T00:00:00.000Z", MS_MIN },
		{ "0000-01-01T00:00:00.000Z", MS_MIN - 1 },
		{ "0000-01-01T00:00:00.000Z", INT64_MIN },
		{ "9999-12-31T23:59:59.999Z", MS_MAX },
		{ "9999-12-31T23:59:59.999Z", MS_MAX + 1 },
		{ "9999-12-31T23:59:59.999Z", INT64_MAX },
	};
	char text[TIMESTAMP_LEN];

	for (size_t i = 0; i < COUNT(samples); i++) {
		timestamp_print(samples[i].ms, text);
		assert_memory_equal(text, samples[i].text, TIMESTAMP_LEN);
	}
}

/* A step of a little less than a day visits every day at changing times. */
TEST(every_day_is_printed_as_the_c_library_does_and_read_back)
{
	const int64_t step = MS_PER_DAY - 1234567;
	char want[64], text[TIMESTAMP_LEN];
	struct tm tm;
	int64_t back;

	for (int64_t ms = MS_MIN; ms <= MS_MAX; ms += step) {
		int64_t since = ms - MS_MIN;
		time_t seconds = (time_t)(since / 1000 + MS_MIN / 1000);

		assert_non_null(gmtime_r(&seconds, &tm));
		snprintf(want, sizeof want,
		    "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
		    tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
		    (int)(since % 1000));
		timestamp_print(ms, text);
		assert_memory_equal(text, want, TIMESTAMP_LEN);
		assert_int_equal(timestamp_read(text, TIMESTAMP_LEN, &back), 0);
		assert_true(back == ms);
	}
}

TEST(every_form_of_the_rfc_is_read)
{
	static const struct sample samples[] = {
		/* the examples of the RFC */
		{ "1985-04-12T23:20:50.52Z", INT64_C(482196050520) },
		{ "1996-12-19T16:39:57-08:00", INT64_C(851042397000) },
		{ "1996-12-20T00:39:57Z", INT64_C(851042397000) },
		{ "1990-12-31T23:59:60Z", INT64_C(662688000000) },
		{ "1990-12-31T15:59:60-08:00", INT64_C(662688000000) },
		{ "1937-01-01T12:00:27.87+00:20", INT64_C(-1041337172130) },
		/* lower-case letters */
		{ "1970-01-01t00:00:01z", 1000 },
		{ "1970-01-01t00:00:01.5z", 1500 },
		/* any offset */
		{ "1970-01-01T00:00:00+00:00", 0 },
		{ "1970-01-01T00:00:00-00:00", 0 },
		{ "1970-01-01T05:45:00+05:45", 0 },
		{ "1969-12-31T23:59:00-00:01", 0 },
		{ "1970-01-01T23:59:00+23:59", 0 },
		{ "1969-12-31T00:01:00-23:59", 0 },
		{ "0000-01-01T00:00:00+23:59", MS_MIN - 86340000 },
		{ "9999-12-31T23:59:59.999-23:59", MS_MAX + 86340000 },
		/* a fraction of any length, cut to milliseconds */
		{ "1970-01-01T00:00:00.1Z", 100 },
		{ "1970-01-01T00:00:00.12Z", 120 },
		{ "1970-01-01T00:00:00.123Z", 123 },
		{ "1970-01-01T00:00:00.1239Z", 123 },
		{ "1970-01-01T00:00:00.99999999999999999999999999Z", 999 },
		{ "1970-01-01T00:00:00.0000000000000000000000+00:00", 0 },
		{ "1969-12-31T23:59:59.9999Z", -1 },
		/* a leap second, at any minute's end */
		{ "2016-12-31T22:59:60Z", INT64_C(1483225200000) },
		{ "2016-12-31T23:59:60Z", INT64_C(1483228800000) },
		{ "2016-12-31T23:59:60.25Z", INT64_C(1483228800250) },
		{ "2017-01-01T05:29:60+05:30", INT64_C(1483228800000) },
		{ "2015-06-30T23:59:60Z", INT64_C(1435708800000) },
		/* the last days of months */
		{ "2024-02-29T00:00:00Z", INT64_C(1709164800000) },
		{ "0000-02-29T00:00:00Z", INT64_C(-62162121600000) },
		{ "2026-12-31T00:00:00Z", INT64_C(1798675200000) },
	};
	int64_t ms;

	for (size_t i = 0; i < COUNT(samples); i++) {
		const char *text = samples[i].text;

		if (read_copy(text, strlen(text), &ms) != 0)
			fail_msg("refused: %s", text);
		if (ms != samples[i].ms)
			fail_msg("%s: %jd", text, (intmax_t)ms);
	}
}

TEST(what_is_not_a_time_is_refused)
{
	static const char *const texts[] = { "2016-12-31T23:59:61Z",
		/* days that no calendar has */
		"2026-00-01T00:00:00Z", "2026-13-01T00:00:00Z",
		"2026-01-00T00:00:00Z", "2026-01-32T00:00:00Z",
		"2026-02-29T00:00:00Z", "2024-02-30T00:00:00Z",
		"1900-02-29T00:00:00Z", "2026-04-31T00:00:00Z",
		"2026-06-31T00:00:00Z", "2026-09-31T00:00:00Z",
		"2026-11-31T00:00:00Z", "2026-12-32T00:00:00Z",
		/* another form */
		"", "2026", "2026-11-21", "2026-11-21T07:21:00",
		"2026-11-21 07:21:00Z", "2026-11-21_07:21:00Z",
		"2026/11/21T07:21:00Z", "2026-11-21T07.21.00Z",
		"2026-11-21T07:21Z", "2026-11-21T24:00:00Z",
		"2026-11-21T07:60:00Z", "2026-11-21T07:21:61Z",
		"2026-11-21T07:21:00.Z", "2026-11-21T07:21:00,5Z",
		"2026-11-21T07:21:00.5", "2026-11-21T07:21:00ZZ",
		"2026-11-21T07:21:00Z ", " 2026-11-21T07:21:00Z",
		"2026-11-21T07:21:00+0100", "2026-11-21T07:21:00+01",
		"2026-11-21T07:21:00+01:0", "2026-11-21T07:21:00+24:00",
		"2026-11-21T07:21:00+01:60", "2026-11-21T07:21:00+01:000",
		"2026-11-21T07:21:00~01:00", "2026-11-21T07:21:00X",
		"26-11-21T07:21:00Z", "+2026-11-21T07:21:00Z",
		"-026-11-21T07:21:00Z", "12026-11-21T07:21:00Z",
		"2026-1-21T07:21:00Z", "2026-11-21T7:21:00Z",
		"20x6-11-21T07:21:00Z" };
	int64_t ms = 42;

	for (size_t i = 0; i < COUNT(texts); i++)
		if (read_copy(texts[i], strlen(texts[i]), &ms) != -1)
			fail_msg("accepted: %s", texts[i]);
	assert_true(ms == 42);
}

TEST(every_beginning_of_a_time_is_refused)
{
	static const char text[] = "2026-11-21T07:21:00.123+01:00";
	int64_t ms;
	size_t len;

	for (len = 0; len < sizeof(text) - 1; len++)
		assert_int_equal(read_copy(text, len, &ms), -1);
	assert_int_equal(read_copy(text, len, &ms), 0);
}

TEST(only_what_is_printed_is_canonical)
{
	static const char *const canonical[] = { "2026-11-21T07:21:00.123Z",
		"0000-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z" };
	static const char *const others[] = { "2026-11-21t07:21:00.123Z",
		"2026-11-21T07:21:00.123z", "2016-12-31T23:59:60.000Z",
		"2026-11-21T07:21:00.1234", "2026-02-29T07:21:00.123Z",
		"2026-11-21T07:21:00+01:0", "2026-11-21T07:21:00.123 ",
		"2026-11-21 07:21:00.123Z", "XXXXXXXXXXXXXXXXXXXXXXXX" };

	for (size_t i = 0; i < COUNT(canonical); i++)
		assert_true(timestamp_is_canonical(canonical[i]));
	for (size_t i = 0; i < COUNT(others); i++)
		assert_false(timestamp_is_canonical(others[i]));
}

TEST(whatever_byte_is_put_in_canonical_means_printed_alike)
{
	static const char original[] = "2016-12-31T23:59:50.000Z";
	char text[TIMESTAMP_LEN], printed[TIMESTAMP_LEN];
	int64_t ms;

	memcpy(text, original, TIMESTAMP_LEN);
	for (size_t at = 0; at < TIMESTAMP_LEN; at++) {
		for (int c = 0; c < 256; c++) {
			int alike = 0;

			text[at] = (char)c;
			if (timestamp_read(text, TIMESTAMP_LEN, &ms) == 0) {
				timestamp_print(ms, printed);
				alike =
				    memcmp(text, printed, TIMESTAMP_LEN) == 0;
			}
			assert_int_equal(timestamp_is_canonical(text), alike);
		}
		text[at] = original[at];
	}
}
