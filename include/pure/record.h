/*
 * record: encodes and decodes a line of the journal.
 *
 *	{"plant-store":1,"store":"<uuid>","crc":"<crc>"}	header
 *	{"seq":N,"safe":N,"prev":"<crc>","at":"<time>","by":"<token's name>",
 *	 "plant":{"id":N,"name":"..."[,"tag":"..."]},"crc":"<crc>"}	plant
 *	{"seq":N,"safe":N,"prev":"<crc>","at":"<time>","crc":"<crc>"}	closing
 *
 * (each is one line without the breaks shown here, and ends with one newline)
 *
 *	seq    the line's number: 1 for the first after the header, no gaps
 *	safe   the watermark: how many bytes of the file were known to be
 *	       durable before this line's batch was written
 *	prev   the crc of the previous line
 *	at     the time of writing; informational
 *	by     the name of the token; informational
 *	plant  the plant that was created; a closing line has none
 *	crc    CRC-32C of every byte before `,"crc"`, seeded with the CRC-32C of
 *	       the uuid's 36 characters, as 8 lower-case hex digits
 *
 * A line is valid by itself if and only if its crc is right and encoding its
 * values gives the same bytes: decimal numbers up to 2^63 - 1 without leading
 * zeros, strings in canonical form (json.h), no white space.  A line is also
 * valid in its place if `seq` and `prev` follow from the previous line and
 * `safe` is at most the line's offset.  Blank lines at the end reserve space
 * for later records.  Pure; any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_UUID_LEN 36
/* A token's name: 1 to 64 of A-Z a-z 0-9 . _ - */
#define RECORD_BY_MAX 64
/* The maximum number of bytes around a plant: numbers, `by`, punctuation. */
#define RECORD_ENVELOPE_MAX 256
/* The maximum length of a line: a plant is no longer than a request body. */
#define RECORD_LINE_MAX (((size_t)1 << 20) + RECORD_ENVELOPE_MAX)
#define RECORD_HEADER_LEN 82

struct record {
	uint64_t seq;
	uint64_t safe;
	uint32_t prev;
	uint32_t crc;
	const char *at; /* TIMESTAMP_LEN bytes */
	const char *by; /* NULL in a closing line */
	size_t by_len;
	int64_t id;        /* of the plant */
	const char *plant; /* canonical JSON; NULL in a closing line */
	size_t plant_len;
};

enum record_header {
	RECORD_HEADER_OK,
	RECORD_HEADER_VERSION, /* a journal of an unknown version */
	RECORD_HEADER_BAD
};

/*
 * record_header_encode(uuid, buf), record_header_decode(buf, len, uuid, crc):
 * Encode the header line, newline included, and return its crc.  Decode the
 * first bytes of a journal; on RECORD_HEADER_OK, copy the uuid and set `*crc`.
 *
 * record_seed(uuid):
 * Return the seed of every crc in the journal of this store.
 *
 * record_encode(record, seed, buf):
 * Write the line, newline included, into `buf`, which has room for
 * RECORD_ENVELOPE_MAX + record->plant_len bytes; set record->crc.  Return the
 * line's length.  The record's strings must already be canonical.
 *
 * record_decode(buf, len, seed, record):
 * Check that the `len` bytes are a line that is valid by itself.  Return NULL
 * with `record` filled; its strings point into `buf`.  If the line is invalid,
 * leave `record` unchanged and return the reason, a static English string.
 *
 * record_is_canonical(record):
 * Return whether `by`, `id` and `plant` could be in a valid line.  `by` and
 * `plant` may be any bytes.
 */
uint32_t record_header_encode(const char uuid[static RECORD_UUID_LEN],
    char buf[static RECORD_HEADER_LEN]);
enum record_header record_header_decode(const char *buf, size_t len,
    char uuid[static RECORD_UUID_LEN], uint32_t *crc);
uint32_t record_seed(const char uuid[static RECORD_UUID_LEN]);
size_t record_encode(struct record *record, uint32_t seed, char *buf);
const char *record_decode(
    const char *buf, size_t len, uint32_t seed, struct record *record);
bool record_is_canonical(const struct record *record);
