/*
 * fcgi_frame: where a FastCGI request ends, however its bytes arrive, what is
 * refused before libfcgi sees it, and the records of an answer.
 */
#include "unit.h"

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

/* The bytes of a connection. */
struct bytes {
	size_t len;
	unsigned char buf[BYTES_MAX];
};

#define FRAME_TEST(name) FIXTURE_TEST(name, struct bytes, bytes, (void), (void))

static void
put(struct bytes *bytes, const void *buf, size_t len)
{
	assert_true(len <= BYTES_MAX - bytes->len);
	memcpy(bytes->buf + bytes->len, buf, len);
	bytes->len += len;
}

static void
put_record(struct bytes *bytes, int type, unsigned id, const void *content,
    size_t len, size_t padding)
{
	static const unsigned char pad[255];
	const unsigned char header[8] = { 1, (unsigned char)type,
		(unsigned char)(id >> 8), (unsigned char)id,
		(unsigned char)(len >> 8), (unsigned char)len,
		(unsigned char)padding, 0 };

	put(bytes, header, sizeof header);
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
static void
put_usual_request(struct bytes *bytes)
{
	put_begin(bytes);
	put_record(bytes, PARAMS, ID, pairs, 8, 3);
	put_record(bytes, PARAMS, ID, pairs + 8, PAIRS_LEN - 8, 0);
	put_params(bytes, "", 0);
	put_record(bytes, STDIN, ID, "{\"id\":1,", 8, 1);
	put_record(bytes, STDIN, ID, "\"name\":\"Fern\"}", 14, 255);
	put_stdin(bytes, "", 0);
}

/* Feed a copy on the heap, so that a byte read beyond it shows. */
static size_t
feed(struct fcgi_frame *frame, const unsigned char *buf, size_t len)
{
	unsigned char *copy = exact_copy(buf, len);
	size_t used = fcgi_frame_feed(frame, copy, len);

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

FRAME_TEST(request_in_any_two_parts_is_complete_at_its_last_byte)
{
	put_usual_request(bytes);
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

FRAME_TEST(bytes_behind_the_request_are_left)
{
	struct fcgi_frame frame = { 0 };

	put_usual_request(bytes);
	size_t len = bytes->len;
	put_begin(bytes);
	assert_int_equal(feed(&frame, bytes->buf, bytes->len), len);
	assert_int_equal(frame.state, FCGI_FRAME_COMPLETE);
	assert_int_equal(feed(&frame, bytes->buf + len, bytes->len - len), 0);
	assert_int_equal(frame.state, FCGI_FRAME_COMPLETE);
}

FRAME_TEST(nothing_more_is_taken_once_it_is_refused)
{
	struct fcgi_frame frame = { 0 };
	size_t used;

	put_begin(bytes);
	put_record(bytes, ABORT, ID, "", 0, 0);
	put_params(bytes, "", 0);
	used = feed(&frame, bytes->buf, bytes->len);
	assert_int_equal(frame.state, FCGI_FRAME_BAD);
	assert_in_range(used, 16, 24);
	assert_int_equal(feed(&frame, bytes->buf, bytes->len), 0);
	assert_int_equal(frame.state, FCGI_FRAME_BAD);
}

FRAME_TEST(empty_request_is_complete_with_any_id)
{
	static const unsigned ids[] = { 1, 0x100, 0xffff };

	for (size_t i = 0; i < COUNT(ids); i++) {
		bytes->len = 0;
		put_begin_as(bytes, ids[i], RESPONDER, 0);
		put_record(bytes, PARAMS, ids[i], "", 0, 0);
		put_record(bytes, STDIN, ids[i], "", 0, 0);
		assert_int_equal(state_of(bytes), FCGI_FRAME_COMPLETE);
	}
}

FRAME_TEST(body_of_the_largest_records_is_passed)
{
	static const unsigned char zeros[CONTENT_MAX];

	put_begin(bytes);
	put_params(bytes, "", 0);
	put_record(bytes, STDIN, ID, zeros, sizeof zeros, 255);
	put_record(bytes, STDIN, ID, zeros, sizeof zeros, 1);
	assert_int_equal(state_of(bytes), FCGI_FRAME_MORE);
	put_stdin(bytes, "", 0);
	assert_int_equal(state_of(bytes), FCGI_FRAME_COMPLETE);
}

FRAME_TEST(another_protocol_version_is_refused)
{
	for (int version = 0; version < 256; version++) {
		bytes->len = 0;
		put_begin(bytes);
		bytes->buf[0] = (unsigned char)version;
		assert_int_equal(state_of(bytes),
		    version == 1 ? FCGI_FRAME_MORE : FCGI_FRAME_BAD);
	}
}

/* A record; one whose content is NULL stands behind the last. */
struct record {
	int type;
	unsigned id;
	const char *content;
	size_t len, padding;
};

#define BEGIN_AS(role) BEGIN, ID, role "\0\0\0\0\0\0", 8, 0
#define GOOD_BEGIN BEGIN_AS("\0\1")
#define GOOD_PARAMS PARAMS, ID, pairs, PAIRS_LEN, 0
#define EMPTY(type) type, ID, "", 0, 0
#define EMPTY_OF(type, id) type, id, "", 0, 0

/* Of each, the last record is refused, and those before it are not. */
static const struct refusal {
	const char *what;
	struct record records[4];
} refusals[] = {
	{ "about the connection, first", { { EMPTY_OF(GET_VALUES, 0) } } },
	{ "about the connection, later",
	    { { GOOD_BEGIN }, { EMPTY_OF(GET_VALUES, 0) } } },
	{ "begin of request 0", { { BEGIN, 0, "\0\1\0\0\0\0\0\0", 8, 0 } } },
	{ "begin of role 0", { { BEGIN_AS("\0\0") } } },
	{ "begin of an authorizer", { { BEGIN_AS("\0\2") } } },
	{ "begin of a filter", { { BEGIN_AS("\0\3") } } },
	{ "begin of role 0x0100", { { BEGIN_AS("\1\0") } } },
	{ "begin of role 0x0101", { { BEGIN_AS("\1\1") } } },
	/* libfcgi would read the padding as a record of its own. */
	{ "padding of a begin", { { BEGIN, ID, "\0\1\0\0\0\0\0\0", 8, 8 } } },
	{ "padding of empty parameters",
	    { { GOOD_BEGIN }, { PARAMS, ID, "", 0, 8 } } },
	{ "padding of an empty body",
	    { { GOOD_BEGIN }, { EMPTY(PARAMS) }, { STDIN, ID, "", 0, 1 } } },
	{ "second begin of this request", { { GOOD_BEGIN }, { GOOD_BEGIN } } },
	{ "second begin of another request",
	    { { GOOD_BEGIN }, { BEGIN, ID + 1, "\0\1\0\0\0\0\0\0", 8, 0 } } },
	{ "parameters of another request",
	    { { GOOD_BEGIN }, { EMPTY_OF(PARAMS, ID + 1) } } },
	{ "body of another request, but for its high byte",
	    { { GOOD_BEGIN }, { EMPTY(PARAMS) },
		{ EMPTY_OF(STDIN, ID & 0xff) } } },
	{ "abort before the begin", { { EMPTY(ABORT) } } },
	{ "parameters before the begin", { { EMPTY(PARAMS) } } },
	{ "body before the begin", { { EMPTY(STDIN) } } },
	{ "body before the end of the parameters",
	    { { GOOD_BEGIN }, { GOOD_PARAMS }, { EMPTY(STDIN) } } },
	{ "end of the parameters after their end",
	    { { GOOD_BEGIN }, { EMPTY(PARAMS) }, { EMPTY(PARAMS) } } },
	{ "parameters after their end",
	    { { GOOD_BEGIN }, { EMPTY(PARAMS) }, { GOOD_PARAMS } } },
	{ "end of the parameters before a value's length",
	    { { GOOD_BEGIN }, { PARAMS, ID, "\0", 1, 0 }, { EMPTY(PARAMS) } } },
	{ "end of the parameters within a length",
	    { { GOOD_BEGIN }, { PARAMS, ID, "\x80", 1, 0 },
		{ EMPTY(PARAMS) } } },
	{ "end of the parameters within a length of 4 bytes",
	    { { GOOD_BEGIN }, { PARAMS, ID, "\x80\0\0", 3, 0 },
		{ EMPTY(PARAMS) } } },
};

static void
assert_last_record_is_refused(
    struct bytes *bytes, const struct refusal *refusal)
{
	struct fcgi_frame frame = { 0 };
	size_t fine = 0;

	bytes->len = 0;
	const struct record *record = refusal->records;
	for (; record->content != NULL; record++) {
		fine = bytes->len;
		put_record(bytes, record->type, record->id, record->content,
		    record->len, record->padding);
	}
	feed(&frame, bytes->buf, fine);
	if (frame.state != FCGI_FRAME_MORE)
		fail_msg("%s: refused too early", refusal->what);
	feed(&frame, bytes->buf + fine, bytes->len - fine);
	if (frame.state != FCGI_FRAME_BAD)
		fail_msg("%s: not refused", refusal->what);
}

FRAME_TEST(records_that_must_not_come_there_are_refused)
{
	for (size_t i = 0; i < COUNT(refusals); i++)
		assert_last_record_is_refused(bytes, &refusals[i]);
}

FRAME_TEST(begin_of_another_length_is_refused)
{
	struct refusal begin = { "a begin",
		{ { BEGIN_AS("\0\1\0\0\0\0\0\0\0") } } };
	size_t *len = &begin.records[0].len;

	for (*len = 0; *len < 16; ++*len)
		if (*len != 8)
			assert_last_record_is_refused(bytes, &begin);
}

FRAME_TEST(records_that_no_responder_is_sent_are_refused)
{
	static const int types[] = { 0, ABORT, END, STDOUT, STDERR, DATA,
		GET_VALUES, 10, UNKNOWN, 255 };

	for (size_t i = 0; i < COUNT(types); i++) {
		assert_last_record_is_refused(
		    bytes, &(struct refusal){ "in the head",
			       { { GOOD_BEGIN }, { EMPTY(types[i]) } } });
		assert_last_record_is_refused(
		    bytes, &(struct refusal){ "in the body",
			       { { GOOD_BEGIN }, { EMPTY(PARAMS) },
				   { EMPTY(types[i]) } } });
	}
}

FRAME_TEST(pairs_may_be_empty_and_lengths_of_four_bytes_small)
{
	static const char odd[] = "\0\0"
				  "\x80\0\0\0\x80\0\0\0"
				  "\x80\0\0\x01\0"
				  "a"
				  "\0\x80\0\0\x01"
				  "b";

	put_begin(bytes);
	put_params(bytes, odd, sizeof odd - 1);
	put_params(bytes, "", 0);
	put_stdin(bytes, "", 0);
	assert_int_equal(state_of(bytes), FCGI_FRAME_COMPLETE);
}

FRAME_TEST(parameters_that_end_within_a_pair_are_refused)
{
	struct refusal cut = { "a pair",
		{ { GOOD_BEGIN }, { GOOD_PARAMS }, { EMPTY(PARAMS) } } };

	for (size_t len = 1; len < PAIRS_LEN; len++) {
		cut.records[1].len = len;
		/* The first of the two pairs is whole. */
		if (len != 5)
			assert_last_record_is_refused(bytes, &cut);
	}
}

FRAME_TEST(length_of_one_byte_is_up_to_127)
{
	char pair[2 + 127 + 127];

	/* Read as lengths, these bytes would lead beyond the end. */
	memset(pair, 'x', sizeof pair);
	pair[0] = pair[1] = 127;
	put_begin(bytes);
	put_params(bytes, pair, sizeof pair);
	put_params(bytes, "", 0);
	put_stdin(bytes, "", 0);
	assert_int_equal(state_of(bytes), FCGI_FRAME_COMPLETE);
}

FRAME_TEST(pair_that_is_too_long_is_refused_by_its_lengths)
{
	static const char *const lengths[] = {
		"\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x80\x10\x00\x01\x80\x00\x00\x00",
		"\x80\x00\x00\x00\x80\x10\x00\x01",
		"\x80\x08\x00\x00\x80\x08\x00\x01",
	};

	for (size_t i = 0; i < COUNT(lengths); i++) {
		bytes->len = 0;
		put_begin(bytes);
		put_params(bytes, lengths[i], 8);
		/* Its last byte is what tells. */
		assert_refused_at(bytes, bytes->len - 1);
	}
}

/* One pair that fills `len` bytes of parameters, in many records; the end. */
static void
put_parameters_of(struct bytes *bytes, size_t len)
{
	static const unsigned char zeros[CONTENT_MAX];
	const size_t value_len = len - 5;
	const unsigned char lengths[5] = { 0,
		(unsigned char)(0x80 | value_len >> 24),
		(unsigned char)(value_len >> 16),
		(unsigned char)(value_len >> 8), (unsigned char)value_len };

	bytes->len = 0;
	put_begin(bytes);
	put_params(bytes, lengths, sizeof lengths);
	for (size_t left = value_len, part; left > 0; left -= part) {
		part = left < CONTENT_MAX ? left : CONTENT_MAX;
		put_params(bytes, zeros, part);
	}
	put_params(bytes, "", 0);
	put_stdin(bytes, "", 0);
}

FRAME_TEST(parameters_up_to_the_limit_are_accepted)
{
	/* Apache sends most: 100 headers, and 6 variables as long as a line. */
	static const size_t lens[] = { (100 + 6) * 8190,
		FCGI_FRAME_PARAMS_MAX };

	for (size_t i = 0; i < COUNT(lens); i++) {
		put_parameters_of(bytes, lens[i]);
		assert_int_equal(state_of(bytes), FCGI_FRAME_COMPLETE);
	}
}

FRAME_TEST(parameters_above_the_limit_are_refused_by_a_header)
{
	const size_t last = (FCGI_FRAME_PARAMS_MAX + 1 - 5) % CONTENT_MAX;

	put_parameters_of(bytes, FCGI_FRAME_PARAMS_MAX + 1);
	/* Up to the byte before the last part's header is whole. */
	assert_refused_at(bytes, bytes->len - 2 * 8 - last - 1);
}

FRAME_TEST(parameters_in_many_records_are_refused_above_the_limit)
{
	struct fcgi_frame frame = { 0 };
	size_t passed = 0;

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

/* Both ends of the pieces that a record may hold, and what lies within. */
static const size_t answer_lens[] = { 0, 1, 100, CONTENT_MAX - 1, CONTENT_MAX,
	CONTENT_MAX + 1, 2 * CONTENT_MAX, 3 * CONTENT_MAX - 1 };

FRAME_TEST(answer_of_any_length_is_output_that_ends_and_then_the_end)
{
	static const unsigned char done[8];
	unsigned char *answer = memory(BYTES_MAX);

	for (size_t i = 0; i < BYTES_MAX; i++)
		answer[i] = (unsigned char)(i * 31 >> 3);
	for (size_t i = 0; i < COUNT(answer_lens); i++) {
		size_t left = answer_lens[i];

		bytes->len = 0;
		for (size_t at = 0; left > 0;) {
			size_t content =
			    left < CONTENT_MAX ? left : CONTENT_MAX;

			put_record(bytes, STDOUT, ID, answer + at, content, 0);
			at += content;
			left -= content;
		}
		put_record(bytes, STDOUT, ID, done, 0, 0);
		put_record(bytes, END, ID, done, sizeof done, 0);

		size_t len = fcgi_frame_answer_len(answer_lens[i]);
		unsigned char *buf = memory(len);
		assert_int_equal(len, bytes->len);
		fcgi_frame_answer(
		    buf, ID, (const char *)answer, answer_lens[i]);
		assert_memory_equal(buf, bytes->buf, len);
	}
}
