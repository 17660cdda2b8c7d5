/* fcgi_frame: FastCGI 1.0, sections 3.3 to 5.5.  See pure/fcgi_frame.h. */
#include "pure/fcgi_frame.h"

#include <string.h>

#define VERSION 1
#define HEADER_LEN 8
#define BEGIN_LEN 8
#define ROLE_RESPONDER 1

#define END_LEN 8
#define CONTENT_MAX 65535

enum type {
	TYPE_BEGIN = 1,
	TYPE_END = 3,
	TYPE_PARAMS = 4,
	TYPE_STDIN = 5,
	TYPE_STDOUT = 6
};

/* What the header at hand begins.  False: refused. */
static bool
begin_record(struct fcgi_frame *f)
{
	const unsigned char *h = f->header;
	unsigned id = (unsigned)h[2] << 8 | h[3];

	f->type = h[1];
	f->content = (size_t)h[4] << 8 | h[5];
	f->padding = h[6];
	if (h[0] != VERSION || id == 0)
		return false;
	/* libfcgi forgets this padding, and takes it for the next record. */
	if (f->padding > 0 && (f->type == TYPE_BEGIN || f->content == 0))
		return false;
	if (f->type == TYPE_BEGIN) {
		if (f->id != 0 || f->content != BEGIN_LEN)
			return false;
		f->id = id;
		f->role_at = 0;
		return true;
	}
	if (id != f->id)
		return false;
	if (f->type == TYPE_PARAMS) {
		f->params_len += f->content;
		return !f->params_ended &&
		       f->params_len <= FCGI_FRAME_PARAMS_MAX;
	}
	return f->type == TYPE_STDIN && f->params_ended;
}

/* The record's content and padding have passed. */
static void
end_record(struct fcgi_frame *f)
{
	bool was_empty = f->header[4] == 0 && f->header[5] == 0;

	f->header_len = 0;
	if (f->type == TYPE_PARAMS && was_empty) {
		/* Neither in a length nor in a name or value. */
		if (f->length_at != 0 || f->length_is_value ||
		    f->pair_skip != 0)
			f->state = FCGI_FRAME_BAD;
		f->params_ended = true;
	}
	if (f->type == TYPE_STDIN && was_empty)
		f->state = FCGI_FRAME_COMPLETE;
}

/* The lengths of both halves of a pair are known. */
static bool
end_lengths(struct fcgi_frame *f, size_t value_len)
{
	f->pair_skip = f->name_len + value_len;
	return f->pair_skip <= FCGI_FRAME_PARAMS_MAX;
}

/*
 * Follow the pairs of the parameters: each length is one byte, or four if the
 * first has its high bit set; the name's, the value's, the name, the value.
 */
static bool
pass_params(struct fcgi_frame *f, const unsigned char *buf, size_t len)
{
	size_t i = 0;

	while (i < len) {
		if (f->pair_skip > 0) {
			size_t step =
			    f->pair_skip < len - i ? f->pair_skip : len - i;

			f->pair_skip -= step;
			i += step;
			continue;
		}
		unsigned char byte = buf[i++];
		if (f->length_at == 0) {
			f->length = byte & 0x7f;
			if ((byte & 0x80) != 0) {
				f->length_at = 1;
				continue;
			}
		} else {
			f->length = f->length << 8 | byte;
			if (++f->length_at < 4)
				continue;
			f->length_at = 0;
		}
		if (!f->length_is_value)
			f->name_len = f->length;
		else if (!end_lengths(f, f->length))
			return false;
		f->length_is_value = !f->length_is_value;
	}
	return true;
}

static bool
pass_begin(struct fcgi_frame *f, const unsigned char *buf, size_t len)
{
	static const unsigned char role[2] = { 0, ROLE_RESPONDER };

	for (size_t i = 0; i < len && f->role_at < sizeof(role); i++)
		if (buf[i] != role[f->role_at++])
			return false;
	return true;
}

static bool
pass_content(struct fcgi_frame *f, const unsigned char *buf, size_t len)
{
	switch (f->type) {
	case TYPE_BEGIN:
		return pass_begin(f, buf, len);
	case TYPE_PARAMS:
		return pass_params(f, buf, len);
	default:
		return true;
	}
}

size_t
fcgi_frame_feed(struct fcgi_frame *f, const unsigned char *buf, size_t len)
{
	size_t i = 0;

	while (i < len && f->state == FCGI_FRAME_MORE) {
		size_t left = len - i, step;

		if (f->header_len < HEADER_LEN) {
			step = HEADER_LEN - f->header_len;
			step = step < left ? step : left;
			memcpy(f->header + f->header_len, buf + i, step);
			f->header_len += step;
			i += step;
			if (f->header_len < HEADER_LEN)
				break;
			if (!begin_record(f))
				f->state = FCGI_FRAME_BAD;
		} else if (f->content > 0) {
			step = f->content < left ? f->content : left;
			if (!pass_content(f, buf + i, step))
				f->state = FCGI_FRAME_BAD;
			f->content -= step;
			i += step;
		} else {
			step = f->padding < left ? f->padding : left;
			f->padding -= step;
			i += step;
		}
		if (f->state == FCGI_FRAME_MORE &&
		    f->header_len == HEADER_LEN && f->content == 0 &&
		    f->padding == 0)
			end_record(f);
	}
	return i;
}

size_t
fcgi_frame_answer_len(size_t len)
{
	/* Those with content, the empty one behind them, and the end. */
	size_t records = (len + CONTENT_MAX - 1) / CONTENT_MAX + 2;

	return records * HEADER_LEN + len + END_LEN;
}

static unsigned char *
put_header(unsigned char *at, enum type type, unsigned id, size_t content)
{
	*at++ = VERSION;
	*at++ = (unsigned char)type;
	*at++ = (unsigned char)(id >> 8);
	*at++ = (unsigned char)id;
	*at++ = (unsigned char)(content >> 8);
	*at++ = (unsigned char)content;
	*at++ = 0;
	*at++ = 0;
	return at;
}

void
fcgi_frame_answer(
    unsigned char *buf, unsigned id, const char *answer, size_t len)
{
	while (len > 0) {
		size_t content = len < CONTENT_MAX ? len : CONTENT_MAX;

		buf = put_header(buf, TYPE_STDOUT, id, content);
		memcpy(buf, answer, content);
		buf += content;
		answer += content;
		len -= content;
	}
	buf = put_header(buf, TYPE_STDOUT, id, 0);
	buf = put_header(buf, TYPE_END, id, END_LEN);
	/* Status 0, FCGI_REQUEST_COMPLETE, and what is reserved. */
	memset(buf, 0, END_LEN);
}
