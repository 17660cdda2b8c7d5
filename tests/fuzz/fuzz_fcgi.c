/*
 * fuzz_fcgi: a FastCGI connection's bytes.  The framing judges them the same
 * however they are split, and as a model of FastCGI 1.0 does; what it lets
 * through, libfcgi reads without waiting, and finds in it what the model finds.
 *
 * The input: a byte of choices, then either the bytes themselves or orders for
 * records (see build), which reach further.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection.h"
#include "fuzz.h"
#include "model.h"
#include "pure/fcgi_frame.h"

#define BEGIN 1
#define END 3
#define PARAMS 4
#define STDIN 5
#define STDOUT 6

#define BODY_MAX 1024
#define SCRATCH ((size_t)64 << 10)
/* More than a socket of the tests takes at once is not sent. */
#define STREAM_MAX ((size_t)48 << 10)
#define ROLE "FCGI_ROLE=RESPONDER"

enum choice { CHOICE_RAW = 1, CHOICE_SPOOL = 2, CHOICE_LARGE = 4 };

struct model {
	enum fcgi_frame_state state;
	bool cut; /* the end of the bytes is within a record */
	size_t used;
	unsigned id;
	bool keep;
	struct model_bytes params, body;
	bool params_ended;
};

/* The length at the start of `text`, of 1 or 4 bytes; how many, 0 if cut. */
static size_t
pair_length(const unsigned char *text, size_t len, size_t *length)
{
	if (len == 0)
		return 0;
	*length = text[0];
	if (text[0] < 0x80)
		return 1;
	if (len < 4)
		return 0;
	*length = (size_t)(text[0] & 0x7f) << 24 | (size_t)text[1] << 16 |
		  (size_t)text[2] << 8 | text[3];
	return 4;
}

/* The next pair of the parameters; how many bytes, 0 if it is cut. */
static size_t
next_pair(const unsigned char *text, size_t len, size_t *name, size_t *value)
{
	size_t a = pair_length(text, len, name);
	size_t b = a == 0 ? 0 : pair_length(text + a, len - a, value);

	if (a == 0 || b == 0 || *name > len - a - b ||
	    *value > len - a - b - *name)
		return 0;
	return a + b + *name + *value;
}

enum pairs { PAIRS_WHOLE, PAIRS_CUT, PAIRS_TOO_LONG };

static enum pairs
judge_pairs(const struct model_bytes *params)
{
	const unsigned char *text = (const unsigned char *)params->at;
	size_t left = params->len, used, name = 0, value = 0;

	for (; left > 0; text += used, left -= used) {
		used = next_pair(text, left, &name, &value);
		if (used > 0)
			continue;
		used = pair_length(text, left, &name);
		if (used > 0 &&
		    pair_length(text + used, left - used, &value) > 0 &&
		    name + value > FCGI_FRAME_PARAMS_MAX)
			return PAIRS_TOO_LONG;
		return PAIRS_CUT;
	}
	return PAIRS_WHOLE;
}

/* Whether a whole record is as it must be; sets the state when it ends it. */
static bool
take_record(struct model *m, const unsigned char *h, size_t content)
{
	unsigned id = (unsigned)h[2] << 8 | h[3];
	const unsigned char *text = h + 8;

	if (h[0] != 1 || id == 0)
		return false;
	if (h[6] > 0 && (h[1] == BEGIN || content == 0))
		return false;
	if (h[1] == BEGIN) {
		if (m->id != 0 || content != 8 || text[0] != 0 || text[1] != 1)
			return false;
		m->id = id;
		m->keep = (text[2] & 1) != 0;
		return true;
	}
	if (id != m->id)
		return false;
	if (h[1] == PARAMS && !m->params_ended) {
		m->params_ended = content == 0;
		if (content == 0)
			return judge_pairs(&m->params) == PAIRS_WHOLE;
		model_append(&m->params, text, content);
		return m->params.len <= FCGI_FRAME_PARAMS_MAX &&
		       judge_pairs(&m->params) != PAIRS_TOO_LONG;
	}
	if (h[1] != STDIN || !m->params_ended)
		return false;
	if (content == 0)
		m->state = FCGI_FRAME_COMPLETE;
	model_append(&m->body, text, content);
	return true;
}

static struct model
model_stream(const unsigned char *bytes, size_t len)
{
	struct model m = { .state = FCGI_FRAME_MORE };

	while (m.state == FCGI_FRAME_MORE && m.used < len) {
		const unsigned char *h = bytes + m.used;
		size_t left = len - m.used, content, whole;

		content = left < 8 ? 0 : (size_t)h[4] << 8 | h[5];
		whole = left < 8 ? 8 : 8 + content + h[6];
		if (whole > left) {
			m.cut = true;
			break;
		}
		m.used += whole;
		if (!take_record(&m, h, content))
			m.state = FCGI_FRAME_BAD;
	}
	return m;
}

static void
put_record(struct model_bytes *stream, unsigned type, const void *content,
    size_t len, size_t padding)
{
	const unsigned char header[8] = { 1, (unsigned char)type, 0, 1,
		(unsigned char)(len >> 8), (unsigned char)len,
		(unsigned char)padding };
	static const char zeros[16];

	model_append(stream, header, sizeof(header));
	model_append(stream, content, len);
	model_append(stream, zeros, padding);
}

static void
put_length(struct model_bytes *bytes, size_t len, bool wide)
{
	unsigned char text[4] = { 0x80, 0, (unsigned char)(len >> 8),
		(unsigned char)len };

	if (wide || len > 0x7f)
		model_append(bytes, text, 4);
	else
		model_append(bytes, text + 3, 1);
}

/* A pair in one record, or in two. */
static void
put_pair(struct model_bytes *stream, struct fuzz_input *input, unsigned order)
{
	struct model_bytes pair = { 0 };
	const uint8_t *name, *value;
	size_t name_len = fuzz_byte(input), value_len = fuzz_byte(input);
	size_t cut = 0;

	if ((order & 0x10) != 0)
		cut = fuzz_byte(input);
	name_len = fuzz_bytes(input, name_len, &name);
	value_len = fuzz_bytes(input, value_len, &value);
	put_length(&pair, name_len, (order & 0x20) != 0);
	put_length(&pair, value_len, (order & 0x40) != 0);
	model_append(&pair, name, name_len);
	model_append(&pair, value, value_len);
	if (cut >= pair.len)
		cut = 0;
	if (cut > 0)
		put_record(stream, PARAMS, pair.at, cut, order >> 5);
	put_record(stream, PARAMS, pair.at + cut, pair.len - cut, order >> 4);
	free(pair.at);
}

/* Records by orders: the low 3 bits of a byte, the rest says how. */
static struct model_bytes
build(struct fuzz_input *input)
{
	static char filler[4096];
	struct model_bytes stream = { 0 };
	unsigned char begin[8] = { 0, 1 };

	while (input->left > 0 && stream.len < STREAM_MAX) {
		unsigned order = fuzz_byte(input);
		const uint8_t *bytes;
		size_t len;

		switch (order & 7) {
		case 0:
			begin[2] = order >> 3 & 1;
			put_record(&stream, BEGIN, begin, 8, order >> 6);
			break;
		case 1:
			put_pair(&stream, input, order);
			break;
		case 2:
		case 3:
			put_record(&stream, (order & 7) == 2 ? PARAMS : STDIN,
			    "", 0, order >> 6);
			break;
		case 4:
		case 6: /* parameters that need not be pairs */
			len = fuzz_bytes(input, fuzz_byte(input), &bytes);
			put_record(&stream, (order & 7) == 6 ? PARAMS : STDIN,
			    bytes, len, order >> 4);
			break;
		case 5: /* a long body */
			put_record(&stream, STDIN, filler,
			    1 + fuzz_below(input, sizeof(filler)), order >> 4);
			break;
		case 7:
			len = fuzz_bytes(input, order >> 3, &bytes);
			model_append(&stream, bytes, len);
			break;
		}
	}
	return stream;
}

/* In pieces of 1, of random sizes up to `step`, or whole if that is no less. */
static struct fcgi_frame
feed(const unsigned char *bytes, size_t len, size_t step, size_t *used)
{
	struct fcgi_frame frame = { 0 };
	uint32_t random = (uint32_t)step | 1;

	*used = 0;
	while (*used < len) {
		size_t piece = step;

		if (step > 1 && step < len) {
			random = random * 1664525 + 1013904223;
			piece = 1 + (random >> 16) % step;
		}
		if (piece > len - *used)
			piece = len - *used;
		size_t n = fcgi_frame_feed(&frame, bytes + *used, piece);
		REQUIRE(n <= piece);
		*used += n;
		REQUIRE(n == piece || frame.state != FCGI_FRAME_MORE);
		if (frame.state != FCGI_FRAME_MORE) {
			REQUIRE(fcgi_frame_feed(&frame, bytes, len) == 0);
			break;
		}
	}
	return frame;
}

/* The variables: the role, then each pair, cut at a NUL. */
static void
check_variables(char **variables, const struct model *m)
{
	const unsigned char *text = (const unsigned char *)m->params.at;
	size_t left = m->params.len, used, name, value;

	REQUIRE(*variables != NULL && strcmp(*variables++, ROLE) == 0);
	for (; left > 0; text += used, left -= used) {
		struct model_bytes pair = { 0 };

		used = next_pair(text, left, &name, &value);
		model_append(&pair, text + used - name - value, name);
		model_append(&pair, "=", 1);
		model_append(&pair, text + used - value, value);
		REQUIRE(*variables != NULL);
		REQUIRE(strcmp(*variables++, pair.at) == 0);
		free(pair.at);
	}
	REQUIRE(*variables == NULL);
}

/* What the server receives: the answer in records, and the request's end. */
static void
check_answer(int fd, const struct model *m, const char *answer, size_t len)
{
	struct model_bytes is = { 0 }, got = { 0 };
	char buf[4096];
	bool ended = false;
	ssize_t n;
	size_t at = 0;

	while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		model_append(&is, buf, (size_t)n);
	while (at < is.len) {
		const unsigned char *h = (const unsigned char *)is.at + at;
		size_t content;

		REQUIRE(is.len - at >= 8 && !ended);
		content = (size_t)h[4] << 8 | h[5];
		REQUIRE(is.len - at >= 8 + content + h[6]);
		REQUIRE(h[0] == 1 && ((unsigned)h[2] << 8 | h[3]) == m->id);
		REQUIRE(h[1] == STDOUT || h[1] == END);
		if (h[1] == STDOUT)
			model_append(&got, h + 8, content);
		ended = h[1] == END;
		at += 8 + content + h[6];
	}
	REQUIRE(ended && got.len == len);
	REQUIRE(len == 0 || memcmp(got.at, answer, len) == 0);
	free(is.at);
	free(got.at);
}

/* Of a length that the input chose, so that it takes one record or more. */
static void
answer(struct connection *c, const struct model *m, int peer, size_t len)
{
	size_t framed = fcgi_frame_answer_len(len);
	unsigned char *buf = malloc(framed);
	char *text = malloc(len + 1);

	REQUIRE(buf != NULL && text != NULL);
	memset(text, 'a', len);
	fcgi_frame_answer(buf, c->frame.id, text, len);
	REQUIRE(connection_send(c, buf, framed) == 0 && c->answer == NULL);
	check_answer(peer, m, text, len);
	free(text);
	free(buf);
}

/* The same through a socket, as the gateway does it. */
static void
serve(const unsigned char *bytes, size_t len, const struct model *m,
    unsigned choices)
{
	static unsigned char scratch[SCRATCH];
	static char body[BODY_MAX];
	static bool ready;
	const int room = (int)STREAM_MAX * 4;
	size_t rest = len - m->used;
	int sv[2];

	if (!ready)
		REQUIRE(connection_init() == 0);
	ready = true;
	/* A byte of a next request at most: libfcgi may read it too. */
	if (rest > 1)
		len = m->used + 1;
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
		    0, sv) == 0);
	REQUIRE(
	    setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) == 0);
	struct connection *c = connection_new(sv[0]);
	REQUIRE(c != NULL);
	if ((choices & CHOICE_SPOOL) != 0) {
		/* All but the last byte of the request, then the rest. */
		size_t first = m->used - 1;

		REQUIRE(send(sv[1], bytes, first, 0) == (ssize_t)first);
		REQUIRE(connection_receive(c, scratch, SCRATCH,
			    STREAM_MAX * 2) == FCGI_FRAME_MORE);
		REQUIRE(c->spool >= 0);
		bytes += first;
		len -= first;
	}
	REQUIRE(send(sv[1], bytes, len, 0) == (ssize_t)len);
	REQUIRE(connection_receive(c, scratch, SCRATCH, STREAM_MAX * 2) ==
		FCGI_FRAME_COMPLETE);
	REQUIRE(c->last == (rest > 0));
	char **variables = connection_read_head(c);
	REQUIRE(variables != NULL);
	check_variables(variables, m);
	size_t got = connection_read_body(c, body, BODY_MAX);
	REQUIRE(got == (m->body.len < BODY_MAX ? m->body.len : BODY_MAX));
	REQUIRE(c->call.whole && memcmp(body, m->body.at, got) == 0);
	REQUIRE(c->last == (rest > 0 || !m->keep));
	REQUIRE(c->frame.id == m->id);
	answer(c, m, sv[1], (choices & CHOICE_LARGE) != 0 ? 70000 : 100);
	connection_free(c);
	close(sv[1]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	unsigned choices = fuzz_byte(&input);
	struct model_bytes stream = { 0 };
	size_t used, again;

	if ((choices & CHOICE_RAW) != 0)
		model_append(&stream, input.at, input.left);
	else
		stream = build(&input);
	const unsigned char *bytes = (const unsigned char *)stream.at;
	struct model m = model_stream(bytes, stream.len);
	struct fcgi_frame frame = feed(bytes, stream.len, stream.len, &used);
	/* By single bytes, or as many as make a long stream bearable. */
	const size_t steps[] = { 1 + stream.len / 1024, 2 + (choices >> 3),
		4096 };

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct fcgi_frame split =
		    feed(bytes, stream.len, steps[i], &again);
		REQUIRE(split.state == frame.state);
		REQUIRE(frame.state == FCGI_FRAME_BAD || used == again);
	}
	/* The framing may see what is wrong before the record is whole. */
	if (frame.state == FCGI_FRAME_BAD)
		REQUIRE(m.state == FCGI_FRAME_BAD ||
			(m.state == FCGI_FRAME_MORE && m.cut));
	else
		REQUIRE(frame.state == m.state);
	if (frame.state == FCGI_FRAME_COMPLETE) {
		REQUIRE(used == m.used);
		serve(bytes, stream.len, &m, choices);
	}
	free(stream.at);
	free(m.params.at);
	free(m.body.at);
	return 0;
}
