/* fcgi_frame: FastCGI 1.0, sections 3.3 to 5.5.  See pure/fcgi_frame.h. */
#include "pure/fcgi_frame.h"

#include <string.h>

#define VERSION 1
#define HEADER_LEN 8
#define BEGIN_LEN 8
#define END_LEN 8
#define ROLE_RESPONDER 1
#define CONTENT_MAX 65535

enum type {
	TYPE_BEGIN = 1,
	TYPE_END = 3,
	TYPE_PARAMS = 4,
	TYPE_STDIN = 5,
	TYPE_STDOUT = 6
};

/* Check the complete header of a record.  Return false to refuse it. */
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
	/* libfcgi would read such padding as the next record. */
	if (f->padding > 0 && (f->type == TYPE_BEGIN || f->content == 0))
		return false;
	if (f->type == TYPE_BEGIN && f->id == 0) {
		f->id = id;
		return f->content == BEGIN_LEN;
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

/* End a record that was read, padding included.  Return false to refuse it. */
static bool
end_record(struct fcgi_frame *f)
{
	bool empty = f->header[4] == 0 && f->header[5] == 0;

	f->header_len = 0;
	if (f->type == TYPE_STDIN && empty)
		f->state = FCGI_FRAME_COMPLETE;
	if (f->type != TYPE_PARAMS || !empty)
		return true;
	f->params_ended = true;
	/* Refuse parameters that end within a name-value pair. */
	return f->length_bytes == 0 && !f->value_next && f->pair_left == 0;
}

/*
 * Parse name-value pairs: the name's length, the value's length, the name, the
 * value.  A length is one byte, or four if the first has its high bit set.
 */
static bool
pass_params(struct fcgi_frame *f, const unsigned char *buf, size_t len)
{
	for (size_t i = 0; i < len;) {
		if (f->pair_left > 0 && !f->value_next) {
			size_t step =
			    f->pair_left < len - i ? f->pair_left : len - i;

			f->pair_left -= step;
			i += step;
			continue;
		}
		unsigned char byte = buf[i++];
		f->length =
		    f->length_bytes == 0 ? byte & 0x7f : f->length << 8 | byte;
		/* The length has more bytes. */
		if (++f->length_bytes < 4 &&
		    (f->length_bytes > 1 || (byte & 0x80) != 0))
			continue;
		f->length_bytes = 0;
		f->pair_left += f->length;
		f->value_next = !f->value_next;
		if (!f->value_next && f->pair_left > FCGI_FRAME_PARAMS_MAX)
			return false;
	}
	return true;
}

/* Check the next bytes of a record's content.  Return false to refuse them. */
static bool
pass_content(struct fcgi_frame *f, const unsigned char *buf, size_t len)
{
	static const unsigned char role[2] = { 0, ROLE_RESPONDER };
	size_t at = BEGIN_LEN - f->content;

	if (f->type == TYPE_PARAMS)
		return pass_params(f, buf, len);
	if (f->type == TYPE_BEGIN)
		for (size_t i = 0; i < len && at + i < sizeof(role); i++)
			if (buf[i] != role[at + i])
				return false;
	return true;
}

size_t
fcgi_frame_feed(struct fcgi_frame *f, const unsigned char *buf, size_t len)
{
	size_t i = 0;

	while (i < len && f->state == FCGI_FRAME_MORE) {
		bool header = f->header_len < HEADER_LEN, fine = true;
		size_t *todo = f->content > 0 ? &f->content : &f->padding;
		size_t want = header ? HEADER_LEN - f->header_len : *todo;
		size_t step = want < len - i ? want : len - i;

		if (header) {
			memcpy(f->header + f->header_len, buf + i, step);
			f->header_len += step;
			if (f->header_len == HEADER_LEN)
				fine = begin_record(f);
		} else {
			if (todo == &f->content)
				fine = pass_content(f, buf + i, step);
			*todo -= step;
		}
		i += step;
		if (fine && f->header_len == HEADER_LEN && f->content == 0 &&
		    f->padding == 0)
			fine = end_record(f);
		if (!fine)
			f->state = FCGI_FRAME_BAD;
	}
	return i;
}

size_t
fcgi_frame_answer_len(size_t len)
{
	/* The output records, an empty one, and the end record. */
	size_t records = (len + CONTENT_MAX - 1) / CONTENT_MAX + 2;

	return records * HEADER_LEN + len + END_LEN;
}

static unsigned char *
put_header(unsigned char *to, enum type type, unsigned id, size_t content)
{
	const unsigned char header[HEADER_LEN] = { VERSION, (unsigned char)type,
		(unsigned char)(id >> 8), (unsigned char)id,
		(unsigned char)(content >> 8), (unsigned char)content };

	memcpy(to, header, HEADER_LEN);
	return to + HEADER_LEN;
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
	/* Status 0, FCGI_REQUEST_COMPLETE, and reserved bytes. */
	memset(buf, 0, END_LEN);
}
