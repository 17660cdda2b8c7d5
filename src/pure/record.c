/*
 * record: the line codec.  See pure/record.h for the format and the rule.
 *
 * Decoding is a walk through the fixed form: every token has exactly one
 * spelling, so what the walk accepts is what encoding would give.
 */
#include "pure/record.h"

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "pure/crc32c.h"
#include "pure/json_scan.h"
#include "pure/json_string.h"
#include "pure/timestamp.h"

#define HEADER_BEGIN "{\"plant-store\":1,\"store\":\""
#define HEADER_ANY "{\"plant-store\":"
/* ,"crc":"1a2b3c4d"} and a newline */
#define CRC_BEGIN ",\"crc\":\""
#define CRC_END "\"}\n"
#define CRC_LEN 8
#define TRAILER_LEN (sizeof(CRC_BEGIN) - 1 + CRC_LEN + sizeof(CRC_END) - 1)

static char *
put(char *p, const char *text, size_t len)
{
	memcpy(p, text, len);
	return p + len;
}

#define PUT(p, literal) put((p), (literal), sizeof(literal) - 1)

static char *
put_number(char *p, uint64_t number)
{
	char digits[20];
	size_t n = sizeof(digits);

	do {
		digits[--n] = (char)('0' + number % 10);
		number /= 10;
	} while (number > 0);
	return put(p, digits + n, sizeof(digits) - n);
}

static char *
put_crc(char *p, uint32_t crc)
{
	for (int shift = 28; shift >= 0; shift -= 4)
		*p++ = "0123456789abcdef"[(crc >> shift) & 15];
	return p;
}

/* A cursor over the line: each take_ moves on, or fails and stays. */
struct cursor {
	const char *at, *end;
};

static bool
take(struct cursor *c, const char *text, size_t len)
{
	if ((size_t)(c->end - c->at) < len || memcmp(c->at, text, len) != 0)
		return false;
	c->at += len;
	return true;
}

#define TAKE(c, literal) take((c), (literal), sizeof(literal) - 1)

/* Decimal up to 2^63 - 1, no leading zero. */
static bool
take_number(struct cursor *c, uint64_t *number)
{
	const char *p = c->at;
	uint64_t value = 0;

	for (; p < c->end && *p >= '0' && *p <= '9'; p++) {
		uint64_t digit = (uint64_t)(*p - '0');

		if (value > INT64_MAX / 10 ||
		    (value == INT64_MAX / 10 && digit > INT64_MAX % 10))
			return false;
		value = value * 10 + digit;
	}
	if (p == c->at || (*c->at == '0' && p - c->at > 1))
		return false;
	c->at = p;
	*number = value;
	return true;
}

/* By a table, as there are two in every line that is read. */
static bool
take_crc(struct cursor *c, uint32_t *crc)
{
	/* One more than the digit's value, so that 0 is no digit. */
	static const unsigned char digits[UCHAR_MAX + 1] = { ['0'] = 1,
		['1'] = 2,
		['2'] = 3,
		['3'] = 4,
		['4'] = 5,
		['5'] = 6,
		['6'] = 7,
		['7'] = 8,
		['8'] = 9,
		['9'] = 10,
		['a'] = 11,
		['b'] = 12,
		['c'] = 13,
		['d'] = 14,
		['e'] = 15,
		['f'] = 16 };
	uint32_t value = 0;

	if (c->end - c->at < CRC_LEN)
		return false;
	for (int i = 0; i < CRC_LEN; i++) {
		unsigned digit = digits[(unsigned char)c->at[i]];

		if (digit == 0)
			return false;
		value = value << 4 | (digit - 1);
	}
	c->at += CRC_LEN;
	*crc = value;
	return true;
}

static bool
take_by(struct cursor *c, const char **by, size_t *len)
{
	const char *p = c->at;

	while (p < c->end && p - c->at <= RECORD_BY_MAX &&
	       ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
		   (*p >= '0' && *p <= '9') || *p == '.' || *p == '_' ||
		   *p == '-'))
		p++;
	if (p == c->at || p - c->at > RECORD_BY_MAX)
		return false;
	*by = c->at;
	*len = (size_t)(p - c->at);
	c->at = p;
	return true;
}

/* int64 in its shortest spelling: the scanner would take "-0" too. */
static bool
take_id(struct cursor *c, int64_t *id)
{
	const char *p = c->at;

	if (p < c->end && *p == '-')
		p++;
	const char *digits = p;
	while (p < c->end && *p >= '0' && *p <= '9')
		p++;
	if (p == digits || (*digits == '0' && p - c->at > 1))
		return false;
	if (json_int64(c->at, (size_t)(p - c->at), id) != JSON_INT_OK)
		return false;
	c->at = p;
	return true;
}

static bool
take_string(struct cursor *c)
{
	size_t len = json_canonical_string(c->at, (size_t)(c->end - c->at));

	c->at += len;
	return len > 0;
}

static bool
take_plant(struct cursor *c, struct record *record)
{
	record->plant = c->at;
	if (!TAKE(c, "{\"id\":") || !take_id(c, &record->id) ||
	    !TAKE(c, ",\"name\":") || !take_string(c))
		return false;
	if (TAKE(c, ",\"tag\":") && !take_string(c))
		return false;
	if (!TAKE(c, "}"))
		return false;
	record->plant_len = (size_t)(c->at - record->plant);
	return true;
}

uint32_t
record_seed(const char uuid[static RECORD_UUID_LEN])
{
	return crc32c(0, uuid, RECORD_UUID_LEN);
}

uint32_t
record_header_encode(
    const char uuid[static RECORD_UUID_LEN], char buf[static RECORD_HEADER_LEN])
{
	char *p = PUT(buf, HEADER_BEGIN);

	p = put(p, uuid, RECORD_UUID_LEN);
	p = PUT(p, "\"");
	uint32_t crc = crc32c(record_seed(uuid), buf, (size_t)(p - buf));
	p = PUT(p, CRC_BEGIN);
	p = put_crc(p, crc);
	p = PUT(p, CRC_END);
	assert(p - buf == RECORD_HEADER_LEN);
	return crc;
}

static bool
is_uuid(const char *text)
{
	for (int i = 0; i < RECORD_UUID_LEN; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		bool hex = (text[i] >= '0' && text[i] <= '9') ||
			   (text[i] >= 'a' && text[i] <= 'f');

		if (dash ? text[i] != '-' : !hex)
			return false;
	}
	return true;
}

enum record_header
record_header_decode(const char *buf, size_t len,
    char uuid[static RECORD_UUID_LEN], uint32_t *crc)
{
	struct cursor c = { buf, buf + len };
	char again[RECORD_HEADER_LEN];
	uint32_t crc_again;

	if (!TAKE(&c, HEADER_BEGIN)) {
		uint64_t version;

		/* Our own version with other bytes behind it is damage. */
		if (TAKE(&c, HEADER_ANY) && take_number(&c, &version) &&
		    version != 1)
			return RECORD_HEADER_VERSION;
		return RECORD_HEADER_BAD;
	}
	if (len < RECORD_HEADER_LEN || !is_uuid(c.at))
		return RECORD_HEADER_BAD;
	crc_again = record_header_encode(c.at, again);
	if (memcmp(again, buf, RECORD_HEADER_LEN) != 0)
		return RECORD_HEADER_BAD;
	memcpy(uuid, c.at, RECORD_UUID_LEN);
	*crc = crc_again;
	return RECORD_HEADER_OK;
}

size_t
record_encode(struct record *record, uint32_t seed, char *buf)
{
	char *p = buf;

	p = PUT(p, "{\"seq\":");
	p = put_number(p, record->seq);
	p = PUT(p, ",\"safe\":");
	p = put_number(p, record->safe);
	p = PUT(p, ",\"prev\":\"");
	p = put_crc(p, record->prev);
	p = PUT(p, "\",\"at\":\"");
	p = put(p, record->at, TIMESTAMP_LEN);
	p = PUT(p, "\"");
	if (record->plant != NULL) {
		p = PUT(p, ",\"by\":\"");
		p = put(p, record->by, record->by_len);
		p = PUT(p, "\",\"plant\":");
		p = put(p, record->plant, record->plant_len);
	}
	record->crc = crc32c(seed, buf, (size_t)(p - buf));
	p = PUT(p, CRC_BEGIN);
	p = put_crc(p, record->crc);
	p = PUT(p, CRC_END);
	return (size_t)(p - buf);
}

const char *
record_decode(const char *buf, size_t len, uint32_t seed, struct record *record)
{
	if (len <= TRAILER_LEN || buf[len - 1] != '\n')
		return "incomplete line";

	/* The checksum first: it tells damage from another spelling. */
	struct cursor c = { buf + len - TRAILER_LEN, buf + len };
	struct record r = { 0 };
	if (!TAKE(&c, CRC_BEGIN) || !take_crc(&c, &r.crc) || !TAKE(&c, CRC_END))
		return "no checksum at the end of the line";
	if (crc32c(seed, buf, len - TRAILER_LEN) != r.crc)
		return "wrong checksum";

	c = (struct cursor){ buf, buf + len - TRAILER_LEN };
	if (!TAKE(&c, "{\"seq\":") || !take_number(&c, &r.seq) ||
	    !TAKE(&c, ",\"safe\":") || !take_number(&c, &r.safe) ||
	    !TAKE(&c, ",\"prev\":\"") || !take_crc(&c, &r.prev) ||
	    !TAKE(&c, "\",\"at\":\"") || c.end - c.at <= TIMESTAMP_LEN)
		return "not in canonical form";
	r.at = c.at;
	c.at += TIMESTAMP_LEN;
	if (!timestamp_is_canonical(r.at) || !TAKE(&c, "\""))
		return "not in canonical form";
	if (c.at < c.end &&
	    (!TAKE(&c, ",\"by\":\"") || !take_by(&c, &r.by, &r.by_len) ||
		!TAKE(&c, "\",\"plant\":") || !take_plant(&c, &r)))
		return "not in canonical form";
	if (c.at != c.end)
		return "not in canonical form";
	*record = r;
	return NULL;
}
