/*
 * fcgi_frame: where a FastCGI request ends, however its bytes arrive, what is
 * refused before libfcgi sees it, and the records of an answer.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pure/fcgi_frame.h"

/* Of FastCGI 1.0, section 8. */
enum {
	BEGIN = 1,
	ABORT = 2,
	END = 3,
	PARAMS = 4,
	STDIN = 5,
	STDOUT = 6,
	STDERR = 7,
	DATA = 8,
	GET_VALUES = 9,
	UNKNOWN = 11
};
enum { RESPONDER = 1, AUTHORIZER = 2, FILTER = 3 };
#define KEEP_CONNECTION 1
#define ID 0x0102

#define CONTENT_MAX 65535
#define BYTES_MAX ((size_t)2 << 20)

#define TEST cmocka_unit_test

/* The bytes of a connection. */
struct bytes {
	size_t len;
	unsigned char buf[BYTES_MAX];
};

/* The one that is used, empty. */
static struct bytes *
no_bytes(void)
{
	static struct bytes bytes;

	bytes.len = 0;
	return &bytes;
}

static void
put(struct bytes *bytes, const void *buf, size_t len)
{
	assert_true(len <= BYTES_MAX - bytes->len);
	memcpy(bytes->buf + bytes->len, buf, len);
	bytes->len += len;
}

static void
put_header(
    struct bytes *bytes, int type, unsigned id, size_t content, size_t padding)
{
	const unsigned char header[8] = { 1, (unsigned char)type,
		(unsigned char)(id >> 8), (unsigned char)id,
		(unsigned char)(content >> 8), (unsigned char)content,
		(unsigned char)padding, 0 };

	put(bytes, header, sizeof header);
}

static void
put_record(struct bytes *bytes, int type, unsigned id, const void *content,
    size_t len, size_t padding)
{
	static const unsigned char pad[255];

	put_header(bytes, type, id, len, padding);
	put(bytes, content, len);
	put(bytes, pad, padding);
}

static void
put_begin_as(struct bytes *bytes, unsigned id, unsigned role, unsigned flags)
{
	const unsigned char content[8] = { (unsigned char)(role >> 8),
		(unsigned char)role, (unsigned char)flags };

	put_record(bytes, BEGIN, id, content, sizeof content, 0);
}

static void
put_begin(struct bytes *bytes)
{
	put_begin_as(bytes, ID, RESPONDER, KEEP_CONNECTION);
}

static void
put_params(struct bytes *bytes, const void *content, size_t len)
{
	put_record(bytes, PARAMS, ID, content, len, 0);
}

static void
put_stdin(struct bytes *bytes, const void *content, size_t len)
{
	put_record(bytes, STDIN, ID, content, len, 0);
}

/* Two pairs, the second with a value whose length takes four bytes. */
static const char pairs[] = "\x01\x02"
			    "abb"
			    "\x03\x80\x00\x00\x04"
			    "ccc"
			    "dddd";
#define PAIRS_LEN (sizeof(pairs) - 1)

/* A request with everything: pairs over two records, padding, two bodies. */
static struct bytes *
usual_request(void)
{
	struct bytes *bytes = no_bytes();

	put_begin(bytes);
	put_record(bytes, PARAMS, ID, pairs, 8, 3);
	put_record(bytes, PARAMS, ID, pairs + 8, PAIRS_LEN - 8, 0);
	put_params(bytes, "", 0);
	put_record(bytes, STDIN, ID, "{\"id\":1,", 8, 1);
	put_record(bytes, STDIN, ID, "\"name\":\"Fern\"}", 14, 255);
	put_stdin(bytes, "", 0);
	return bytes;
}

/* Feed a copy on the heap, so that a byte read beyond it shows. */
static size_t
feed(struct fcgi_frame *frame, const unsigned char *buf, size_t len)
{
	unsigned char *copy = malloc(len > 0 ? len : 1);
	size_t used;

	assert_non_null(copy);
	memcpy(copy, buf, len);
	used = fcgi_frame_feed(frame, copy, len);
	free(copy);
	assert_true(used <= len);
	if (frame->state == FCGI_FRAME_MORE)
		assert_int_equal(used, len);
	return used;
}

static enum fcgi_frame_state
state_of(const struct bytes *bytes)
{
	struct fcgi_frame frame = { 0 };

	feed(&frame, bytes->buf, bytes->len);
	return frame.state;
}

/* The first `fine` bytes pass, what is behind them is refused. */
static void
assert_refused_at(struct bytes *bytes, size_t fine)
{
	struct fcgi_frame frame = { 0 };

	feed(&frame, bytes->buf, fine);
	assert_int_equal(frame.state, FCGI_FRAME_MORE);
	feed(&frame, bytes->buf + fine, bytes->len - fine);
	assert_int_equal(frame.state, FCGI_FRAME_BAD);
}

static void
request_in_any_two_parts_is_complete_at_its_last_byte(void **state)
{
	struct bytes *bytes = usual_request();

	(void)state;
	for (size_t cut = 0; cut < bytes->len; cut++) {
		struct fcgi_frame frame = { 0 };

		assert_int_equal(feed(&frame, bytes->buf, cut), cut);
		assert_int_equal(frame.state, FCGI_FRAME_MORE);
		assert_int_equal(
		    feed(&frame, bytes->buf + cut, bytes->len - cut),
		    bytes->len - cut);
		assert_int_equal(frame.state, FCGI_FRAME_COMPLETE);
	}
}

static void
bytes_behind_the_request_are_left(void **state)
{
	struct bytes *bytes = usual_request();
	size_t len = bytes->len;
	struct fcgi_frame frame = { 0 };

	(void)state;
	put_begin(bytes);
	assert_int_equal(feed(&frame, bytes->buf, bytes->len), len);
	assert_int_equal(frame.state, FCGI_FRAME_COMPLETE);
	assert_int_equal(feed(&frame, bytes->buf + len, bytes->len - len), 0);
	assert_int_equal(frame.state, FCGI_FRAME_COMPLETE);
}

static void
nothing_more_is_taken_once_it_is_refused(void **state)
{
	struct bytes *bytes = no_bytes();
	struct fcgi_frame frame = { 0 };
	size_t used;

	(void)state;
	put_begin(bytes);
	put_record(bytes, ABORT, ID, "", 0, 0);
	put_params(bytes, "", 0);
	used = feed(&frame, bytes->buf, bytes->len);
	assert_int_equal(frame.state, FCGI_FRAME_BAD);
	assert_in_range(used, 16, 24);
	assert_int_equal(feed(&frame, bytes->buf, bytes->len), 0);
	assert_int_equal(frame.state, FCGI_FRAME_BAD);
}

static void
empty_request_is_complete_with_any_id(void **state)
{
	static const unsigned ids[] = { 1, 0x100, 0xffff };

	(void)state;
	for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
		struct bytes *bytes = no_bytes();

		put_begin_as(bytes, ids[i], RESPONDER, 0);
		put_record(bytes, PARAMS, ids[i], "", 0, 0);
		put_record(bytes, STDIN, ids[i], "", 0, 0);
		assert_int_equal(state_of(bytes), FCGI_FRAME_COMPLETE);
	}
}

static void
body_of_the_largest_records_is_passed(void **state)
{
	static const unsigned char zeros[CONTENT_MAX];
	struct bytes *bytes = no_bytes();

	(void)state;
	put_begin(bytes);
	put_params(bytes, "", 0);
	put_record(bytes, STDIN, ID, zeros, sizeof zeros, 255);
	put_record(bytes, STDIN, ID, zeros, sizeof zeros, 1);
	assert_int_equal(state_of(bytes), FCGI_FRAME_MORE);
	put_stdin(bytes, "", 0);
	assert_int_equal(state_of(bytes), FCGI_FRAME_COMPLETE);
}

static void
another_protocol_version_is_refused(void **state)
{
	(void)state;
	for (int version = 0; version < 256; version++) {
		struct bytes *bytes = no_bytes();

		put_begin(bytes);
		bytes->buf[0] = (unsigned char)version;
		assert_int_equal(state_of(bytes),
		    version == 1 ? FCGI_FRAME_MORE : FCGI_FRAME_BAD);
	}
}

struct record {
	int type;
	unsigned id;
	const char *content;
	size_t len, padding;
};

#define GOOD_BEGIN                                  \
	{                                           \
		BEGIN, ID, "\0\1\1\0\0\0\0\0", 8, 0 \
	}
#define GOOD_PARAMS                             \
	{                                       \
		PARAMS, ID, pairs, PAIRS_LEN, 0 \
	}
#define EMPTY(type)                \
	{                          \
		type, ID, "", 0, 0 \
	}
#define EMPTY_OF(type, id)         \
	{                          \
		type, id, "", 0, 0 \
	}
#define BEGIN_AS(role)                                    \
	{                                                 \
		BEGIN, ID, "\0" role "\0\0\0\0\0\0", 8, 0 \
	}

/* Of each, the last record is refused, and those before it are not. */
static const struct {
	const char *what;
	size_t n;
	struct record records[4];
} refusals[] = {
	{ "about the connection, first", 1, { EMPTY_OF(GET_VALUES, 0) } },
	{ "about the connection, later", 2,
	    { GOOD_BEGIN, EMPTY_OF(GET_VALUES, 0) } },
	{ "begin of request 0", 1, { { BEGIN, 0, "\0\1\0\0\0\0\0\0", 8, 0 } } },
	{ "begin of role 0", 1, { BEGIN_AS("\0") } },
	{ "begin of an authorizer", 1, { BEGIN_AS("\2") } },
	{ "begin of a filter", 1, { BEGIN_AS("\3") } },
	{ "begin of role 0x0100", 1,
	    { { BEGIN, ID, "\1\0\0\0\0\0\0\0", 8, 0 } } },
	{ "begin of role 0x0101", 1,
	    { { BEGIN, ID, "\1\1\0\0\0\0\0\0", 8, 0 } } },
	/* libfcgi would read the padding as a record of its own. */
	{ "padding of a begin", 1,
	    { { BEGIN, ID, "\0\1\0\0\0\0\0\0", 8, 8 } } },
	{ "padding of empty parameters", 2,
	    { GOOD_BEGIN, { PARAMS, ID, "", 0, 8 } } },
	{ "padding of an empty body", 3,
	    { GOOD_BEGIN, EMPTY(PARAMS), { STDIN, ID, "", 0, 1 } } },
	{ "second begin of this request", 2, { GOOD_BEGIN, GOOD_BEGIN } },
	{ "second begin of another request", 2,
	    { GOOD_BEGIN, { BEGIN, ID + 1, "\0\1\0\0\0\0\0\0", 8, 0 } } },
	{ "parameters of another request", 2,
	    { GOOD_BEGIN, EMPTY_OF(PARAMS, ID + 1) } },
	{ "body of another request, but for its high byte", 3,
	    { GOOD_BEGIN, EMPTY(PARAMS), EMPTY_OF(STDIN, ID & 0xff) } },
	{ "abort before the begin", 1, { EMPTY(ABORT) } },
	{ "parameters before the begin", 1, { EMPTY(PARAMS) } },
	{ "body before the begin", 1, { EMPTY(STDIN) } },
	{ "body before the end of the parameters", 3,
	    { GOOD_BEGIN, GOOD_PARAMS, EMPTY(STDIN) } },
	{ "end of the parameters after their end", 3,
	    { GOOD_BEGIN, EMPTY(PARAMS), EMPTY(PARAMS) } },
	{ "parameters after their end", 3,
	    { GOOD_BEGIN, EMPTY(PARAMS), GOOD_PARAMS } },
	{ "end of the parameters before a value's length", 3,
	    { GOOD_BEGIN, { PARAMS, ID, "\0", 1, 0 }, EMPTY(PARAMS) } },
	{ "end of the parameters within a length", 3,
	    { GOOD_BEGIN, { PARAMS, ID, "\x80", 1, 0 }, EMPTY(PARAMS) } },
	{ "end of the parameters within a length of 4 bytes", 3,
	    { GOOD_BEGIN, { PARAMS, ID, "\x80\0\0", 3, 0 }, EMPTY(PARAMS) } },
};

static void
assert_last_record_is_refused(
    const char *what, const struct record *records, size_t n)
{
	struct bytes *bytes = no_bytes();
	struct fcgi_frame frame = { 0 };
	size_t fine = 0;

	for (size_t i = 0; i < n; i++) {
		fine = bytes->len;
		put_record(bytes, records[i].type, records[i].id,
		    records[i].content, records[i].len, records[i].padding);
	}
	feed(&frame, bytes->buf, fine);
	if (frame.state != FCGI_FRAME_MORE)
		fail_msg("%s: refused too early", what);
	feed(&frame, bytes->buf + fine, bytes->len - fine);
	if (frame.state != FCGI_FRAME_BAD)
		fail_msg("%s: not refused", what);
}

static void
records_that_must_not_come_there_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
		assert_last_record_is_refused(
		    refusals[i].what, refusals[i].records, refusals[i].n);
}

static void
begin_of_another_length_is_refused(void **state)
{
	struct record begin = { BEGIN, ID, "\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0", 0,
		0 };

	(void)state;
	for (begin.len = 0; begin.len < 16; begin.len++)
		if (begin.len != 8)
			assert_last_record_is_refused("begin", &begin, 1);
}

static void
records_that_no_responder_is_sent_are_refused(void **state)
{
	static const int types[] = { 0, ABORT, END, STDOUT, STDERR, DATA,
		GET_VALUES, 10, UNKNOWN, 255 };

	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		const struct record head[] = { GOOD_BEGIN, EMPTY(types[i]) };
		const struct record body[] = { GOOD_BEGIN, EMPTY(PARAMS),
			EMPTY(types[i]) };

		assert_last_record_is_refused("in the head", head, 2);
		assert_last_record_is_refused("in the body", body, 3);
	}
}

static void
pairs_may_be_empty_and_lengths_of_four_bytes_small(void **state)
{
	static const char odd[] = "\0\0"
				  "\x80\0\0\0\x80\0\0\0"
				  "\x80\0\0\x01\0"
				  "a"
				  "\0\x80\0\0\x01"
				  "b";
	struct bytes *bytes = no_bytes();

	(void)state;
	put_begin(bytes);
	put_params(bytes, odd, sizeof odd - 1);
	put_params(bytes, "", 0);
	put_stdin(bytes, "", 0);
	assert_int_equal(state_of(bytes), FCGI_FRAME_COMPLETE);
}

static void
parameters_that_end_within_a_pair_are_refused(void **state)
{
	const struct record request[] = { GOOD_BEGIN, GOOD_PARAMS,
		EMPTY(PARAMS) };

	(void)state;
	for (size_t len = 1; len < PAIRS_LEN; len++) {
		struct record cut[3] = { request[0], request[1], request[2] };

		cut[1].len = len;
		/* The first of the two pairs is whole. */
		if (len != 5)
			assert_last_record_is_refused("a pair", cut, 3);
	}
}

static void
pair_that_is_too_long_is_refused_by_its_lengths(void **state)
{
	static const char *const lengths[] = {
		"\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x80\x10\x00\x01\x80\x00\x00\x00",
		"\x80\x00\x00\x00\x80\x10\x00\x01",
		"\x80\x08\x00\x00\x80\x08\x00\x01",
	};

	(void)state;
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		struct bytes *bytes = no_bytes();

		put_begin(bytes);
		put_params(bytes, lengths[i], 8);
		/* Its last byte is what tells. */
		assert_refused_at(bytes, bytes->len - 1);
	}
}

/* One pair that fills `len` bytes of parameters, in many records; the end. */
static struct bytes *
request_with_parameters_of(size_t len)
{
	static const unsigned char zeros[CONTENT_MAX];
	const size_t value_len = len - 5;
	const unsigned char lengths[5] = { 0,
		(unsigned char)(0x80 | value_len >> 24),
		(unsigned char)(value_len >> 16),
		(unsigned char)(value_len >> 8), (unsigned char)value_len };
	struct bytes *bytes = no_bytes();

	put_begin(bytes);
	put_params(bytes, lengths, sizeof lengths);
	for (size_t left = value_len, part; left > 0; left -= part) {
		part = left < CONTENT_MAX ? left : CONTENT_MAX;
		put_params(bytes, zeros, part);
	}
	put_params(bytes, "", 0);
	put_stdin(bytes, "", 0);
	return bytes;
}

static void
parameters_up_to_the_limit_are_accepted(void **state)
{
	/* Apache sends most: 100 headers, and 6 variables as long as a line. */
	static const size_t lens[] = { (100 + 6) * 8190,
		FCGI_FRAME_PARAMS_MAX };

	(void)state;
	for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
		struct bytes *bytes = request_with_parameters_of(lens[i]);

		assert_int_equal(state_of(bytes), FCGI_FRAME_COMPLETE);
	}
}

static void
parameters_above_the_limit_are_refused_by_a_header(void **state)
{
	const size_t last = (FCGI_FRAME_PARAMS_MAX + 1 - 5) % CONTENT_MAX;
	struct bytes *bytes =
	    request_with_parameters_of(FCGI_FRAME_PARAMS_MAX + 1);

	(void)state;
	/* Up to the byte before the last part's header is whole. */
	assert_refused_at(bytes, bytes->len - 2 * 8 - last - 1);
}

static void
parameters_in_many_records_are_refused_above_the_limit(void **state)
{
	struct bytes *bytes = no_bytes();
	struct fcgi_frame frame = { 0 };
	size_t passed = 0;

	(void)state;
	put_begin(bytes);
	feed(&frame, bytes->buf, bytes->len);
	bytes->len = 0;
	put_params(bytes,
	    "\x01\x00"
	    "a"
	    "\0\0"
	    "\0\0",
	    7);
	for (; frame.state == FCGI_FRAME_MORE; passed += 7) {
		assert_true(passed <= FCGI_FRAME_PARAMS_MAX);
		feed(&frame, bytes->buf, bytes->len);
	}
	assert_int_equal(frame.state, FCGI_FRAME_BAD);
	/* The one that was refused was the first above it. */
	assert_in_range(
	    passed, FCGI_FRAME_PARAMS_MAX + 1, FCGI_FRAME_PARAMS_MAX + 7);
}

/* A generator of its own: the same numbers everywhere. */
static uint32_t
next_random(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed;
}

/* Whatever the bytes are, their splitting makes no difference. */
static void
assert_splitting_makes_no_difference(const struct bytes *bytes, uint32_t *seed)
{
	struct fcgi_frame whole = { 0 }, parts = { 0 };
	size_t used = feed(&whole, bytes->buf, bytes->len);
	size_t at = 0;

	while (at < bytes->len && parts.state == FCGI_FRAME_MORE) {
		size_t left = bytes->len - at;
		size_t step = 1 + next_random(seed) % 40;

		at += feed(&parts, bytes->buf + at, step < left ? step : left);
	}
	assert_int_equal(parts.state, whole.state);
	if (whole.state != FCGI_FRAME_BAD)
		assert_int_equal(at, used);
}

static void
damaged_requests_are_judged_alike_in_whole_and_in_parts(void **state)
{
	uint32_t seed = 1;
	static struct bytes usual;
	struct bytes *bytes = usual_request();
	int states[3] = { 0 };

	(void)state;
	usual = *bytes;
	for (int round = 0; round < 5000; round++) {
		struct fcgi_frame frame = { 0 };

		bytes->len = usual.len;
		memcpy(bytes->buf, usual.buf, usual.len);
		for (uint32_t n = 1 + next_random(&seed) % 3; n > 0; n--)
			bytes->buf[next_random(&seed) % bytes->len] ^=
			    (unsigned char)(1 << next_random(&seed) % 8);
		assert_splitting_makes_no_difference(bytes, &seed);
		feed(&frame, bytes->buf, bytes->len);
		states[frame.state]++;
	}
	/* Each verdict was given. */
	assert_true(states[FCGI_FRAME_MORE] > 0);
	assert_true(states[FCGI_FRAME_COMPLETE] > 0);
	assert_true(states[FCGI_FRAME_BAD] > 0);
}

/* Both ends of the pieces that a record may hold, and what lies within. */
static const size_t answer_lens[] = { 0, 1, 100, CONTENT_MAX - 1, CONTENT_MAX,
	CONTENT_MAX + 1, 2 * CONTENT_MAX, 3 * CONTENT_MAX - 1 };

static void
answer_of_any_length_is_output_that_ends_and_then_the_end(void **state)
{
	static const unsigned char done[8];
	unsigned char *answer = malloc(BYTES_MAX);

	(void)state;
	assert_non_null(answer);
	for (size_t i = 0; i < BYTES_MAX; i++)
		answer[i] = (unsigned char)(i * 31 >> 3);
	for (size_t i = 0; i < sizeof answer_lens / sizeof *answer_lens; i++) {
		size_t left = answer_lens[i];
		struct bytes *records = no_bytes();

		for (size_t at = 0; left > 0;) {
			size_t content =
			    left < CONTENT_MAX ? left : CONTENT_MAX;

			put_record(
			    records, STDOUT, ID, answer + at, content, 0);
			at += content;
			left -= content;
		}
		put_record(records, STDOUT, ID, done, 0, 0);
		put_record(records, END, ID, done, sizeof done, 0);

		size_t len = fcgi_frame_answer_len(answer_lens[i]);
		unsigned char *buf = malloc(len);
		assert_non_null(buf);
		assert_int_equal(len, records->len);
		fcgi_frame_answer(
		    buf, ID, (const char *)answer, answer_lens[i]);
		assert_memory_equal(buf, records->buf, len);
		free(buf);
	}
	free(answer);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(request_in_any_two_parts_is_complete_at_its_last_byte),
		TEST(bytes_behind_the_request_are_left),
		TEST(nothing_more_is_taken_once_it_is_refused),
		TEST(empty_request_is_complete_with_any_id),
		TEST(body_of_the_largest_records_is_passed),
		TEST(another_protocol_version_is_refused),
		TEST(records_that_must_not_come_there_are_refused),
		TEST(begin_of_another_length_is_refused),
		TEST(records_that_no_responder_is_sent_are_refused),
		TEST(pairs_may_be_empty_and_lengths_of_four_bytes_small),
		TEST(parameters_that_end_within_a_pair_are_refused),
		TEST(pair_that_is_too_long_is_refused_by_its_lengths),
		TEST(parameters_up_to_the_limit_are_accepted),
		TEST(parameters_above_the_limit_are_refused_by_a_header),
		TEST(parameters_in_many_records_are_refused_above_the_limit),
		TEST(damaged_requests_are_judged_alike_in_whole_and_in_parts),
		TEST(answer_of_any_length_is_output_that_ends_and_then_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
