/*
 * timestamp: the proleptic Gregorian calendar in integers.  The C library's
 * functions depend on the process's time zone, which may count leap seconds.
 */
#include "pure/timestamp.h"

#include <stdio.h>
#include <string.h>

#define MS_PER_DAY INT64_C(86400000)

/* 0000-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z */
#define MS_MIN INT64_C(-62167219200000)
#define MS_MAX INT64_C(253402300799999)

/* From 0000-03-01, where the March-based year 0 begins, to 1970-01-01. */
#define DAYS_TO_1970 719468
#define DAYS_PER_ERA 146097 /* 400 years */

/* "YYYY-MM-DDThh:mm:ss": where each number is, and its bounds. */
enum { YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, NUMBERS };
static const struct {
	unsigned char at, digits;
	short low, high;
} parts[NUMBERS] = {
	[YEAR] = { 0, 4, 0, 9999 },
	[MONTH] = { 5, 2, 1, 12 },
	[DAY] = { 8, 2, 1, 31 },
	[HOUR] = { 11, 2, 0, 23 },
	[MINUTE] = { 14, 2, 0, 59 },
	[SECOND] = { 17, 2, 0, 60 }, /* a leap second */
};
#define PARTS_LEN 19

/*
 * Return the days from 1970-01-01 to the date.  A year that begins in March has
 * its leap day last, so one formula counts the days of its months: 153 in every
 * five.  Month 13 is the next January.
 */
static int
days_from_date(const int date[static DAY + 1])
{
	int year = date[YEAR] - (date[MONTH] <= 2);
	int month = (date[MONTH] + 9) % 12;
	/* Rounds down, even for year -1: January and February of 0000. */
	int era = (year + 400) / 400 - 1;
	int of_era = year - era * 400;

	return era * DAYS_PER_ERA + of_era * 365 + of_era / 4 - of_era / 100 +
	       (153 * month + 2) / 5 + date[DAY] - 1 - DAYS_TO_1970;
}

static void
date_from_days(int days, int date[static DAY + 1])
{
	/* An estimate, never too low: a year has 365.2425 days on average. */
	date[YEAR] =
	    (int)((days - MS_MIN / MS_PER_DAY) * 400 / DAYS_PER_ERA) + 1;
	date[MONTH] = date[DAY] = 1;
	while (days_from_date(date) > days)
		date[YEAR]--;
	for (date[MONTH] = 12; days_from_date(date) > days;)
		date[MONTH]--;
	date[DAY] = days - days_from_date(date) + 1;
}

void
timestamp_print(int64_t ms, char text[static TIMESTAMP_LEN])
{
	char printed[64];
	int date[DAY + 1], in_day;

	ms = ms < MS_MIN ? MS_MIN : ms > MS_MAX ? MS_MAX : ms;
	in_day = (int)((ms - MS_MIN) % MS_PER_DAY);
	date_from_days((int)((ms - in_day) / MS_PER_DAY), date);
	snprintf(printed, sizeof(printed),
	    "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", date[YEAR], date[MONTH],
	    date[DAY], in_day / 3600000, in_day / 60000 % 60,
	    in_day / 1000 % 60, in_day % 1000);
	memcpy(text, printed, TIMESTAMP_LEN);
}

/* Read the digits of `part` at `text`, and check its bounds. */
static int
read_part(const char *text, int part, int *out)
{
	int value = 0;

	for (int i = 0; i < parts[part].digits; i++) {
		unsigned digit = (unsigned)text[i] - '0';

		if (digit > 9)
			return -1;
		value = value * 10 + (int)digit;
	}
	*out = value;
	return value < parts[part].low || value > parts[part].high ? -1 : 0;
}

/* Read "Z", "+hh:mm" or "-hh:mm", which must be all of `text`, as seconds. */
static int
read_offset(const char *text, size_t len, int *seconds)
{
	int hour, minute;

	*seconds = 0;
	if (len == 1)
		return text[0] == 'Z' || text[0] == 'z' ? 0 : -1;
	if (len != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':' ||
	    read_part(text + 1, HOUR, &hour) != 0 ||
	    read_part(text + 4, MINUTE, &minute) != 0)
		return -1;
	*seconds = (hour * 60 + minute) * (text[0] == '-' ? -60 : 60);
	return 0;
}

int
timestamp_read(const char *text, size_t len, int64_t *ms)
{
	int number[NUMBERS], offset, fraction = 0, scale = 100;
	size_t at = PARTS_LEN;

	if (len <= PARTS_LEN || text[4] != '-' || text[7] != '-' ||
	    (text[10] != 'T' && text[10] != 't') || text[13] != ':' ||
	    text[16] != ':')
		return -1;
	for (int i = 0; i < NUMBERS; i++)
		if (read_part(text + parts[i].at, i, &number[i]) != 0)
			return -1;
	const int next_month[] = { number[YEAR], number[MONTH] + 1, 1 };
	int days = days_from_date(number);
	if (days >= days_from_date(next_month))
		return -1;
	if (text[at] == '.')
		for (at++; at < len && (unsigned)text[at] - '0' < 10; at++) {
			fraction += (text[at] - '0') * scale;
			scale /= 10;
		}
	if (at == PARTS_LEN + 1 ||
	    read_offset(text + at, len - at, &offset) != 0)
		return -1;
	int in_day = number[HOUR] * 3600 + number[MINUTE] * 60 + number[SECOND];
	*ms = days * MS_PER_DAY + (in_day - offset) * 1000 + fraction;
	return 0;
}

int
timestamp_is_canonical(const char text[static TIMESTAMP_LEN])
{
	int64_t ms;

	/* Others of this length have a lower-case t or z, or a leap second. */
	return timestamp_read(text, TIMESTAMP_LEN, &ms) == 0 &&
	       text[10] == 'T' && text[23] == 'Z' && text[17] != '6';
}
