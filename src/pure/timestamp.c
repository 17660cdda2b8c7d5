/*
 * RFC 3339 date-times, with the proleptic Gregorian calendar in integers: no
 * time zone and no locale of the process has a say.  What time it is, is for
 * the caller to know.
 */
#include "pure/timestamp.h"

#include <stdbool.h>
#include <string.h>

#define MS_PER_SECOND 1000
#define SECONDS_PER_DAY 86400
#define MS_PER_DAY ((int64_t)SECONDS_PER_DAY * MS_PER_SECOND)

/* 0000-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z */
#define MS_MIN INT64_C(-62167219200000)
#define MS_MAX INT64_C(253402300799999)

/* From 0000-03-01, where these years begin, to 1970-01-01. */
#define DAYS_TO_1970 719468
#define DAYS_PER_ERA 146097 /* 400 years */

struct date {
	int64_t year;
	int64_t month; /* 1 to 12 */
	int64_t day;   /* 1 to 31 */
};

/*
 * Years that begin in March have their leap day last, so that months are
 * counted by one formula: 153 days in each five from March on.
 */
static int64_t
days_from_date(const struct date *date)
{
	int64_t year = date->year - (date->month <= 2);
	int64_t month = (date->month + 9) % 12;
	/* A year of -1, January and February of 0000, must round down. */
	int64_t era = (year + 400) / 400 - 1;
	int64_t of_era = year - era * 400;

	return era * DAYS_PER_ERA + of_era * 365 + of_era / 4 - of_era / 100 +
	       (153 * month + 2) / 5 + date->day - 1 - DAYS_TO_1970;
}

static void
date_from_days(int64_t days, struct date *date)
{
	int64_t since = days + DAYS_TO_1970 + DAYS_PER_ERA;
	int64_t era = since / DAYS_PER_ERA - 1;
	int64_t day = since % DAYS_PER_ERA;
	int64_t year =
	    (day - day / 1460 + day / 36524 - day / (DAYS_PER_ERA - 1)) / 365;
	int64_t month;

	day -= year * 365 + year / 4 - year / 100;
	month = (5 * day + 2) / 153;
	date->day = day - (153 * month + 2) / 5 + 1;
	date->month = month < 10 ? month + 3 : month - 9;
	date->year = era * 400 + year + (date->month <= 2);
}

static void
print_digits(char *text, size_t n, int64_t value)
{
	while (n-- > 0) {
		text[n] = (char)('0' + value % 10);
		value /= 10;
	}
}

void
timestamp_print(int64_t ms, char text[static TIMESTAMP_LEN])
{
	struct date date;
	int64_t in_day;

	ms = ms < MS_MIN ? MS_MIN : ms > MS_MAX ? MS_MAX : ms;
	in_day = (ms - MS_MIN) % MS_PER_DAY;
	date_from_days((ms - in_day) / MS_PER_DAY, &date);
	memcpy(text, "YYYY-MM-DDThh:mm:ss.mmmZ", TIMESTAMP_LEN);
	print_digits(text, 4, date.year);
	print_digits(text + 5, 2, date.month);
	print_digits(text + 8, 2, date.day);
	print_digits(text + 11, 2, in_day / 3600000);
	print_digits(text + 14, 2, in_day / 60000 % 60);
	print_digits(text + 17, 2, in_day / 1000 % 60);
	print_digits(text + 20, 3, in_day % 1000);
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Read exactly `n` digits whose value lies between `low` and `high`. */
static int
read_digits(const char *text, size_t n, int64_t low, int64_t high, int64_t *out)
{
	int64_t value = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		if (!is_digit(text[i]))
			return -1;
		value = value * 10 + (text[i] - '0');
	}
	if (value < low || value > high)
		return -1;
	*out = value;
	return 0;
}

static int64_t
days_in_month(const struct date *date)
{
	static const char days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30,
		31 };
	bool leap = date->year % 4 == 0 &&
		    (date->year % 100 != 0 || date->year % 400 == 0);

	return days[date->month - 1] + (date->month == 2 && leap);
}

/* Read "YYYY-MM-DD" as days since 1970. */
static int
read_date(const char *text, int64_t *days)
{
	struct date date;

	if (text[4] != '-' || text[7] != '-' ||
	    read_digits(text, 4, 0, 9999, &date.year) != 0 ||
	    read_digits(text + 5, 2, 1, 12, &date.month) != 0 ||
	    read_digits(text + 8, 2, 1, days_in_month(&date), &date.day) != 0)
		return -1;
	*days = days_from_date(&date);
	return 0;
}

/* Read "hh:mm" as seconds. */
static int
read_hour_minute(const char *text, int64_t *seconds)
{
	int64_t hour;
	int64_t minute;

	if (text[2] != ':' || read_digits(text, 2, 0, 23, &hour) != 0 ||
	    read_digits(text + 3, 2, 0, 59, &minute) != 0)
		return -1;
	*seconds = hour * 3600 + minute * 60;
	return 0;
}

/* Read "Z" or "+hh:mm" or "-hh:mm", the whole of `text`, as seconds. */
static int
read_offset(const char *text, size_t len, int64_t *seconds)
{
	if (len == 1 && (text[0] == 'Z' || text[0] == 'z')) {
		*seconds = 0;
		return 0;
	}
	if (len != 6 || (text[0] != '+' && text[0] != '-') ||
	    read_hour_minute(text + 1, seconds) != 0)
		return -1;
	if (text[0] == '-')
		*seconds = -*seconds;
	return 0;
}

/* Whether a second that begins at `seconds` can follow a leap second. */
static bool
begins_month(int64_t seconds)
{
	struct date date;

	if (seconds % SECONDS_PER_DAY != 0)
		return false;
	date_from_days(seconds / SECONDS_PER_DAY, &date);
	return date.day == 1;
}

int
timestamp_read(const char *text, size_t len, int64_t *ms)
{
	/* "YYYY-MM-DDThh:mm:ss" and at least "Z" */
	const size_t fixed = 19;
	int64_t days;
	int64_t in_day;
	int64_t second;
	int64_t offset;
	int64_t seconds;
	int64_t fraction = 0;
	int64_t scale = 100;
	size_t at = fixed;

	if (len <= fixed || (text[10] != 'T' && text[10] != 't') ||
	    text[16] != ':' || read_date(text, &days) != 0 ||
	    read_hour_minute(text + 11, &in_day) != 0 ||
	    read_digits(text + 17, 2, 0, 60, &second) != 0)
		return -1;
	if (text[at] == '.') {
		for (at++; at < len && is_digit(text[at]); at++) {
			fraction += (text[at] - '0') * scale;
			scale /= 10;
		}
		if (at == fixed + 1)
			return -1;
	}
	if (read_offset(text + at, len - at, &offset) != 0)
		return -1;
	seconds = days * SECONDS_PER_DAY + in_day + second - offset;
	if (second == 60 && !begins_month(seconds))
		return -1;
	*ms = seconds * MS_PER_SECOND + fraction;
	return 0;
}

int
timestamp_is_canonical(const char text[static TIMESTAMP_LEN])
{
	int64_t ms;

	/*
	 * What can be read and has this length has three digits of fraction and
	 * no offset, so that nothing is left to vary but letters and a leap
	 * second.
	 */
	return timestamp_read(text, TIMESTAMP_LEN, &ms) == 0 &&
	       text[10] == 'T' && text[23] == 'Z' && text[17] != '6';
}
