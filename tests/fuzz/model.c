/* model: see model.h.  Simple before fast. */
#include "model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fuzz.h"

void
model_append(struct model_bytes *bytes, const void *from, size_t len)
{
	bytes->at = realloc(bytes->at, bytes->len + len + 1);
	REQUIRE(bytes->at != NULL);
	if (len > 0)
		memcpy(bytes->at + bytes->len, from, len);
	bytes->len += len;
	bytes->at[bytes->len] = '\0';
}

/* The character at the start, or -1; how long it is. */
static int32_t
utf8_next(const char *text, size_t len, size_t *used)
{
	static const int32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned char first = (unsigned char)text[0];
	int32_t code;

	*used = first < 0x80   ? 1
		: first < 0xc0 ? 0
		: first < 0xe0 ? 2
		: first < 0xf0 ? 3
		: first < 0xf8 ? 4
			       : 0;
	if (*used == 0 || *used > len)
		return -1;
	code = *used == 1 ? first : first & (0x7f >> *used);
	for (size_t i = 1; i < *used; i++) {
		unsigned char byte = (unsigned char)text[i];

		if (byte >> 6 != 2)
			return -1;
		code = code << 6 | (byte & 0x3f);
	}
	if (code < least[*used] || code > 0x10ffff ||
	    (code >= 0xd800 && code <= 0xdfff))
		return -1;
	return code;
}

bool
model_is_utf8(const char *text, size_t len)
{
	size_t used;

	for (; len > 0; text += used, len -= used)
		if (utf8_next(text, len, &used) < 0)
			return false;
	return true;
}

static void
append_utf8(struct model_bytes *bytes, int32_t code)
{
	unsigned char buf[4];
	size_t len = code < 0x80      ? 1
		     : code < 0x800   ? 2
		     : code < 0x10000 ? 3
				      : 4;

	for (size_t i = len; i-- > 1; code >>= 6)
		buf[i] = (unsigned char)(0x80 | (code & 0x3f));
	buf[0] = (unsigned char)(len == 1 ? code : (0xf00 >> len) | code);
	model_append(bytes, buf, len);
}

struct parser {
	const char *at, *end;
	unsigned depth, depth_max;
	struct model_member *members;
	size_t n;
};

static void
skip_space(struct parser *p)
{
	while (p->at < p->end && memchr(" \t\r\n", *p->at, 4) != NULL)
		p->at++;
}

static bool
take(struct parser *p, char c)
{
	if (p->at == p->end || *p->at != c)
		return false;
	p->at++;
	return true;
}

/* Four hexadecimal digits, or -1. */
static int32_t
take_hex(struct parser *p)
{
	int32_t code = 0;

	for (int i = 0; i < 4; i++) {
		static const char digits[] = "0123456789abcdefABCDEF";
		const char *digit =
		    p->at < p->end ? memchr(digits, *p->at, 22) : NULL;

		if (digit == NULL)
			return -1;
		p->at++;
		code = code * 16 + (int32_t)(digit - digits);
		if (digit - digits > 15)
			code -= 6;
	}
	return code;
}

static int32_t
take_escape(struct parser *p)
{
	static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
	const char *letter;
	int32_t code, low;

	if (p->at == p->end)
		return -1;
	if (!take(p, 'u')) {
		letter = memchr(letters, *p->at, 8);
		if (letter == NULL)
			return -1;
		p->at++;
		return means[letter - letters];
	}
	code = take_hex(p);
	if (code < 0xd800 || code > 0xdfff)
		return code;
	if (code > 0xdbff || !take(p, '\\') || !take(p, 'u'))
		return -1;
	low = take_hex(p);
	if (low < 0xdc00 || low > 0xdfff)
		return -1;
	return 0x10000 + (code - 0xd800) * 0x400 + (low - 0xdc00);
}

/* A string, and what it means, appended to `bytes`. */
static bool
take_string(struct parser *p, struct model_bytes *bytes)
{
	if (!take(p, '"'))
		return false;
	while (p->at < p->end) {
		size_t used = 0;
		int32_t code;

		if (take(p, '"'))
			return true;
		if ((unsigned char)*p->at < 0x20)
			return false;
		if (take(p, '\\'))
			code = take_escape(p);
		else
			code =
			    utf8_next(p->at, (size_t)(p->end - p->at), &used);
		if (code < 0)
			return false;
		p->at += used;
		append_utf8(bytes, code);
	}
	return false;
}

static bool
take_digits(struct parser *p)
{
	const char *from = p->at;

	while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
		p->at++;
	return p->at > from;
}

static bool
take_number(struct parser *p)
{
	take(p, '-');
	if (!take(p, '0') && !take_digits(p))
		return false;
	if (take(p, '.') && !take_digits(p))
		return false;
	if (take(p, 'e') || take(p, 'E')) {
		if (!take(p, '+'))
			take(p, '-');
		return take_digits(p);
	}
	return true;
}

static bool
take_word(struct parser *p, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(p->end - p->at) < len || memcmp(p->at, word, len) != 0)
		return false;
	p->at += len;
	return true;
}

static bool take_value(struct parser *p, const char *start);

/* A member of the outermost object is noted if it is one of those wanted. */
static bool
take_member(struct parser *p, const char *start)
{
	struct model_bytes key = { 0 };
	struct model_member *member = NULL;
	bool good = take_string(p, &key);

	for (size_t i = 0; good && p->depth == 1 && i < p->n; i++)
		if (key.len == strlen(p->members[i].name) && key.len > 0 &&
		    memcmp(key.at, p->members[i].name, key.len) == 0)
			member = &p->members[i];
	free(key.at);
	skip_space(p);
	if (!good || !take(p, ':'))
		return false;
	skip_space(p);
	if (member != NULL && member->count++ > 0)
		member = NULL;
	if (member != NULL && p->at < p->end) {
		member->at = (size_t)(p->at - start);
		member->first = *p->at;
	}
	if (!take_value(p, start))
		return false;
	if (member != NULL)
		member->len = (size_t)(p->at - start) - member->at;
	return true;
}

static bool
take_list(struct parser *p, const char *start, char close)
{
	if (++p->depth > p->depth_max)
		return false;
	skip_space(p);
	if (!take(p, close))
		do {
			skip_space(p);
			if (!(close == '}' ? take_member(p, start)
					   : take_value(p, start)))
				return false;
			skip_space(p);
			if (take(p, close))
				break;
			if (p->at == p->end || *p->at != ',')
				return false;
		} while (take(p, ','));
	p->depth--;
	return true;
}

static bool
take_value(struct parser *p, const char *start)
{
	struct model_bytes ignored = { 0 };
	bool good;

	if (take(p, '{'))
		return take_list(p, start, '}');
	if (take(p, '['))
		return take_list(p, start, ']');
	if (p->at < p->end && *p->at == '"') {
		good = take_string(p, &ignored);
		free(ignored.at);
		return good;
	}
	return take_word(p, "true") || take_word(p, "false") ||
	       take_word(p, "null") || take_number(p);
}

bool
model_object(const char *text, size_t len, unsigned depth_max,
    struct model_member *members, size_t n)
{
	struct parser p = { text, text + len, 0, depth_max, members, n };

	for (size_t i = 0; i < n; i++)
		members[i] = (struct model_member){ .name = members[i].name };
	skip_space(&p);
	if (p.at == p.end || *p.at != '{' || !take_value(&p, text))
		return false;
	skip_space(&p);
	return p.at == p.end;
}

void
model_canonical(const char *token, size_t len, struct model_bytes *bytes)
{
	static const char *const short_names[0x20] = { [8] = "\\b",
		[9] = "\\t",
		[10] = "\\n",
		[12] = "\\f",
		[13] = "\\r" };
	struct parser p = { .at = token, .end = token + len };
	struct model_bytes means = { 0 };

	REQUIRE(take_string(&p, &means) && p.at == p.end);
	model_append(bytes, "\"", 1);
	for (size_t i = 0; i < means.len; i++) {
		unsigned char c = (unsigned char)means.at[i];
		char escape[8];

		if (c == '"' || c == '\\')
			snprintf(escape, sizeof(escape), "\\%c", c);
		else if (c >= 0x20)
			snprintf(escape, sizeof(escape), "%c", c);
		else if (short_names[c] != NULL)
			snprintf(escape, sizeof(escape), "%s", short_names[c]);
		else
			snprintf(escape, sizeof(escape), "\\u%04x", c);
		model_append(bytes, escape, strlen(escape));
	}
	model_append(bytes, "\"", 1);
	free(means.at);
}

enum model_int
model_int64(const char *token, size_t len, int64_t *value)
{
	char *text = strndup(token, len);
	enum model_int result = MODEL_INT_OK;

	REQUIRE(text != NULL);
	if (strpbrk(text, ".eE") != NULL)
		result = MODEL_INT_NOT_INTEGER;
	errno = 0;
	*value = strtoll(text, NULL, 10);
	if (result == MODEL_INT_OK && errno == ERANGE)
		result = MODEL_INT_RANGE;
	free(text);
	return result;
}

static int
check_members(const char *body, const struct model_member *id,
    const struct model_member *name, const struct model_member *tag,
    int64_t *value)
{
	enum model_int kind;

	if (id->count == 0)
		return 4101;
	if (id->count > 1)
		return 4102;
	if (strchr("-0123456789", id->first) == NULL)
		return 4103;
	kind = model_int64(body + id->at, id->len, value);
	if (kind != MODEL_INT_OK)
		return kind == MODEL_INT_RANGE ? 4104 : 4103;
	if (name->count != 1)
		return name->count == 0 ? 4201 : 4202;
	if (name->first != '"')
		return 4203;
	if (tag->count > 1)
		return 4301;
	return tag->count == 1 && tag->first != '"' ? 4302 : 0;
}

int
model_plant(const char *body, size_t len, struct model_bytes *text,
    struct model_bytes *answer)
{
	struct model_member members[] = { { .name = "id" }, { .name = "name" },
		{ .name = "tag" } };
	const struct model_member *name = &members[1], *tag = &members[2];
	char id[40];
	int64_t value = 0;
	int number;

	if (!model_object(body, len, 64, members, 3))
		return 4000;
	number = check_members(body, &members[0], name, tag, &value);
	if (number != 0)
		return number;
	model_append(answer, "{\"name\":", 8);
	model_canonical(body + name->at, name->len, answer);
	if (tag->count > 0) {
		model_append(answer, ",\"tag\":", 7);
		model_canonical(body + tag->at, tag->len, answer);
	}
	model_append(answer, "}", 1);
	snprintf(id, sizeof(id), "{\"id\":%" PRId64 ",", value);
	model_append(text, id, strlen(id));
	model_append(text, answer->at + 1, answer->len - 1);
	return 0;
}

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Whether the element, trimmed at its start, is of the scheme Bearer. */
static bool
is_bearer(const char *element, size_t len)
{
	while (len > 0 && is_blank(*element))
		element++, len--;
	return len >= 6 && strncasecmp(element, "bearer", 6) == 0 &&
	       (len == 6 || is_blank(element[6]));
}

int
model_credential(const char *value, const char **token, size_t *len)
{
	size_t left, elements = 0, bearers = 0;
	const char *element, *end, *p;
	bool quoted = false;

	if (value == NULL)
		return 1001;
	while (is_blank(*value))
		value++;
	left = strlen(value);
	while (left > 0 && is_blank(value[left - 1]))
		left--;
	if (left == 0)
		return 1001;
	end = value + left;
	for (element = p = value; p <= end; p++) {
		if (p < end && quoted && *p == '\\' && p + 1 < end)
			p++;
		else if (p < end && *p == '"')
			quoted = !quoted;
		else if (p == end || (*p == ',' && !quoted)) {
			elements++;
			bearers += is_bearer(element, (size_t)(p - element));
			element = p + 1;
		}
	}
	if (bearers == 0)
		return 1002;
	if (elements > 1)
		return 1004;

	p = value + 6;
	if (p == end || *p != ' ')
		return 1003;
	while (p < end && *p == ' ')
		p++;
	*token = p;
	while (p < end &&
	       memchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
		      "0123456789-._~+/",
		   *p, 68) != NULL)
		p++;
	if (p == *token)
		return 1003;
	while (p < end && *p == '=')
		p++;
	*len = (size_t)(p - *token);
	return p == end ? 0 : 1003;
}
