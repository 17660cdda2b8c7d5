/*
 * record: see pure/record.h.  Decoding reads the fixed form, in which every
 * token has one spelling: it accepts exactly what encoding would write.
 */
#include "pure/record.h"

#include <assert.h>
#include <string.h>

#include "pure/crc32c.h"
#include "pure/json.h"
#include "pure/timestamp.h"

#define HEADER_BEGIN "{\"plant-store\":1,\"store\":\""
#define HEADER_ANY "{\"plant-store\":"
/* ,"crc":"1a2b3c4d"} and a newline */
#define CRC_BEGIN ",\"crc\":\""
#define CRC_END "\"}\n"
#define CRC_LEN 8
#define TRAILER_LEN (sizeof(CRC_BEGIN) - 1 + CRC_LEN + sizeof(CRC_END) - 1)

#define PUT(p, literal) mempcpy((p), (literal), sizeof(literal) - 1)

static char *
put_number(char *p, uint64_t number)
{
	char digits[20];
	size_t n = sizeof(digits);

	do {
		digits[--n] = (char)('0' + number % 10);
		number /= 10;
	} while (number > 0);
	return mempcpy(p, digits + n, sizeof(digits) - n);
}

static char *
put_crc(char *p, uint32_t crc)
{
	for (int shift = 28; shift >= 0; shift -= 4)
		*p++ = "0123456789abcdef"[(crc >> shift) & 15];
	return p;
}

/* A cursor over the line.  Each read_ function advances it, or fails. */
struct cursor {
	const char *at, *end;
};

/* The cursor does not move on failure. */
static bool
skip(struct cursor *c, const char *text, size_t len)
{
	if ((size_t)(c->end - c->at) < len || memcmp(c->at, text, len) != 0)
		return false;
	c->at += len;
	return true;
}

#define SKIP(c, literal) skip((c), (literal), sizeof(literal) - 1)

/* Decimal up to `max`, without leading zeros. */
static bool
read_number(struct cursor *c, uint64_t max, uint64_t *number)
{
	const char *p = c->at, *from = p;
	uint64_t value = 0;

	for (; p < c->end && *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, *p - '0', &value))
			return false;
	c->at = p;
	*number = value;
	return p > from && (*from != '0' || p == from + 1) && value <= max;
}

/* Branch-free: branches on random digits mispredict; each line has two crcs. */
static bool
read_crc(struct cursor *c, uint32_t *crc)
{
	uint32_t value = 0;
	bool good = true;

	if (c->end - c->at < CRC_LEN)
		return false;
	for (int i = 0; i < CRC_LEN; i++) {
		unsigned digit = (unsigned)c->at[i] - '0';
		unsigned letter = (unsigned)c->at[i] - 'a';

		good &= (digit < 10) | (letter < 6);
		value = value << 4 | ((digit < 10 ? digit : letter + 10) & 15);
	}
	c->at += CRC_LEN;
	*crc = value;
	return good;
}

static bool
read_by(struct cursor *c, const char **by, size_t *len)
{
	const char *p = c->at;

	while (p < c->end && p - c->at <= RECORD_BY_MAX &&
	       ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
		   (*p >= '0' && *p <= '9') || *p == '.' || *p == '_' ||
		   *p == '-'))
		p++;
	*by = c->at;
	*len = (size_t)(p - c->at);
	c->at = p;
	return *len > 0 && *len <= RECORD_BY_MAX;
}

/* int64 in its shortest spelling: no "-0". */
static bool
read_id(struct cursor *c, int64_t *id)
{
	bool negative = SKIP(c, "-");
	uint64_t number;

	if (!read_number(c, (uint64_t)INT64_MAX + negative, &number) ||
	    (negative && number == 0))
		return false;
	*id = (int64_t)(negative ? 0 - number : number);
	return true;
}

static bool
read_string(struct cursor *c)
{
	size_t len = json_canonical_string(c->at, (size_t)(c->end - c->at));

	c->at += len;
	return len > 0;
}

static bool
read_plant(struct cursor *c, struct record *record)
{
	record->plant = c->at;
	if (!SKIP(c, "{\"id\":") || !read_id(c, &record->id) ||
	    !SKIP(c, ",\"name\":") || !read_string(c) ||
	    (SKIP(c, ",\"tag\":") && !read_string(c)) || !SKIP(c, "}"))
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
	char *p = mempcpy(PUT(buf, HEADER_BEGIN), uuid, RECORD_UUID_LEN);

	p = PUT(p, "\"");
	uint32_t crc = crc32c(record_seed(uuid), buf, (size_t)(p - buf));
	p = PUT(put_crc(PUT(p, CRC_BEGIN), crc), CRC_END);
	assert(p - buf == RECORD_HEADER_LEN);
	return crc;
}

static bool
is_uuid(const char *text)
{
	static const char form[] = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh";

	for (int i = 0; i < RECORD_UUID_LEN; i++)
		if (form[i] == '-'
			? text[i] != '-'
			: memchr("0123456789abcdef", text[i], 16) == NULL)
			return false;
	return true;
}

enum record_header
record_header_decode(const char *buf, size_t len,
    char uuid[static RECORD_UUID_LEN], uint32_t *crc)
{
	struct cursor c = { buf, buf + len };
	char again[RECORD_HEADER_LEN];
	uint64_t version;

	if (len >= RECORD_HEADER_LEN) {
		const char *found = buf + sizeof(HEADER_BEGIN) - 1;
		uint32_t crc_again = record_header_encode(found, again);

		if (is_uuid(found) &&
		    memcmp(again, buf, RECORD_HEADER_LEN) == 0) {
			memcpy(uuid, found, RECORD_UUID_LEN);
			*crc = crc_again;
			return RECORD_HEADER_OK;
		}
	}
	/* Version 1 with other bytes after it is damage. */
	return SKIP(&c, HEADER_ANY) && read_number(&c, INT64_MAX, &version) &&
		       version != 1
		   ? RECORD_HEADER_VERSION
		   : RECORD_HEADER_BAD;
}

size_t
record_encode(struct record *record, uint32_t seed, char *buf)
{
	char *p = put_number(PUT(buf, "{\"seq\":"), record->seq);

	p = put_number(PUT(p, ",\"safe\":"), record->safe);
	p = put_crc(PUT(p, ",\"prev\":\""), record->prev);
	p = mempcpy(PUT(p, "\",\"at\":\""), record->at, TIMESTAMP_LEN);
	p = PUT(p, "\"");
	if (record->plant != NULL) {
		p = mempcpy(PUT(p, ",\"by\":\""), record->by, record->by_len);
		p = mempcpy(
		    PUT(p, "\",\"plant\":"), record->plant, record->plant_len);
	}
	record->crc = crc32c(seed, buf, (size_t)(p - buf));
	p = PUT(put_crc(PUT(p, CRC_BEGIN), record->crc), CRC_END);
	return (size_t)(p - buf);
}

/* Read the line up to its checksum. */
static bool
read_line(struct cursor *c, struct record *r)
{
	if (!SKIP(c, "{\"seq\":") || !read_number(c, INT64_MAX, &r->seq) ||
	    !SKIP(c, ",\"safe\":") || !read_number(c, INT64_MAX, &r->safe) ||
	    !SKIP(c, ",\"prev\":\"") || !read_crc(c, &r->prev) ||
	    !SKIP(c, "\",\"at\":\"") || c->end - c->at <= TIMESTAMP_LEN)
		return false;
	r->at = c->at;
	c->at += TIMESTAMP_LEN;
	if (!timestamp_is_canonical(r->at) || !SKIP(c, "\""))
		return false;
	if (c->at == c->end)
		return true;
	return SKIP(c, ",\"by\":\"") && read_by(c, &r->by, &r->by_len) &&
	       SKIP(c, "\",\"plant\":") && read_plant(c, r) && c->at == c->end;
}

const char *
record_decode(const char *buf, size_t len, uint32_t seed, struct record *record)
{
	if (len <= TRAILER_LEN || buf[len - 1] != '\n')
		return "incomplete line";

	/* Check this first: "not in canonical form" then never means damage. */
	struct cursor c = { buf + len - TRAILER_LEN, buf + len };
	struct record r = { 0 };
	if (!SKIP(&c, CRC_BEGIN) || !read_crc(&c, &r.crc) || !SKIP(&c, CRC_END))
		return "no checksum at the end of the line";
	if (crc32c(seed, buf, len - TRAILER_LEN) != r.crc)
		return "wrong checksum";

	c = (struct cursor){ buf, buf + len - TRAILER_LEN };
	if (!read_line(&c, &r))
		return "not in canonical form";
	*record = r;
	return NULL;
}

bool
record_is_canonical(const struct record *record)
{
	struct cursor by = { record->by, record->by + record->by_len };
	struct cursor plant = { record->plant,
		record->plant + record->plant_len };
	struct record found;

	return record->plant_len <= RECORD_LINE_MAX - RECORD_ENVELOPE_MAX &&
	       read_by(&by, &found.by, &found.by_len) && by.at == by.end &&
	       read_plant(&plant, &found) && plant.at == plant.end &&
	       found.id == record->id;
}
