/*
 * A NewPlant's text into a plant.  json_scan has the say on what is JSON and
 * where the members are; json-c, which is no validator, prints the strings that
 * are not in canonical form already.
 *
 * Out of memory, json-c may leave bytes out and call it success; so what it
 * prints must have the length and the form that the token says it has.
 */
#include "plant/plant.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "pure/json_string.h"
#include "pure/utf8.h"

/* A string member in canonical form. */
struct string {
	const char *text; /* in the body, or in `object` */
	size_t len;
	struct json_object *object; /* NULL, or what json-c made of it */
};

/* The members, in the order of the text. */
enum { ID, NAME, TAG, NMEMBERS };

/*
 * Decode the valid string token; NULL if there is no memory for it.  Not by
 * json-c's tokener: 0.16 takes the escaped pair of a character whose low 16
 * bits look like a surrogate, such as U+1D800, for none.
 */
static struct json_object *
decode(const char *token, size_t len)
{
	const char *from = token + 1, *end = token + len - 1;
	struct json_escape escape;
	struct json_object *object;
	char *bytes, *to;

	if (len > INT_MAX)
		return NULL;
	bytes = to = malloc(len);
	if (bytes == NULL)
		return NULL;
	while (from < end) {
		size_t run = json_string_run(from, (size_t)(end - from));

		memcpy(to, from, run);
		to += run;
		from += run;
		if (from == end)
			break;
		if (json_string_escape(from, (size_t)(end - from), &escape) !=
		    0)
			abort(); /* the scanner passed it */
		to += utf8_encode(escape.code, to);
		from += escape.len;
	}
	object = json_object_new_string_len(bytes, (int)(to - bytes));
	free(bytes);
	return object;
}

/*
 * Bring the valid string token into canonical form.  -1, with `string` as it
 * was, if there is no memory for it.
 */
static int
string_init(struct string *string, const char *token, size_t len)
{
	struct json_object *object = NULL;
	const char *text = token;
	size_t text_len = len;

	if (json_canonical_string(token, len) != len) {
		object = decode(token, len);
		if (object == NULL)
			return -1;
		text = json_object_to_json_string_length(object,
		    JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE,
		    &text_len);
		if (text == NULL ||
		    text_len != json_string_canonical_len(token, len) ||
		    json_canonical_string(text, text_len) != text_len) {
			json_object_put(object);
			return -1;
		}
	}
	string->text = text;
	string->len = text_len;
	string->object = object;
	return 0;
}

static void
string_done(struct string *string)
{
	json_object_put(string->object);
}

static enum plant_fault
check_members(const struct json_member *members, const char *body, int64_t *id)
{
	const struct json_member *member = &members[ID];

	if (member->type == JSON_ABSENT)
		return PLANT_ID_MISSING;
	if (member->twice)
		return PLANT_ID_TWICE;
	if (member->type != JSON_NUMBER)
		return PLANT_ID_NOT_INTEGER;
	switch (json_int64(body + member->at, member->len, id)) {
	case JSON_INT_OK:
		break;
	case JSON_INT_NOT_INTEGER:
		return PLANT_ID_NOT_INTEGER;
	case JSON_INT_RANGE:
		return PLANT_ID_RANGE;
	}
	member = &members[NAME];
	if (member->type == JSON_ABSENT)
		return PLANT_NAME_MISSING;
	if (member->twice)
		return PLANT_NAME_TWICE;
	if (member->type != JSON_STRING)
		return PLANT_NAME_NOT_STRING;
	member = &members[TAG];
	if (member->twice)
		return PLANT_TAG_TWICE;
	if (member->type != JSON_ABSENT && member->type != JSON_STRING)
		return PLANT_TAG_NOT_STRING;
	return PLANT_OK;
}

/* Append `len` bytes at `to` and return where the next go. */
static char *
put(char *to, const char *from, size_t len)
{
	memcpy(to, from, len);
	return to + len;
}

#define PUT_LITERAL(to, literal) put(to, literal, sizeof(literal) - 1)

/* Write the text; `tag` is NULL if there is none. */
static int
compose(struct plant *plant, int64_t id, const struct string *name,
    const struct string *tag)
{
	/* {"id":-9223372036854775808,"name": */
	char head[40];
	size_t head_len;
	size_t len;
	char *text;
	char *to;

	head_len = (size_t)snprintf(
	    head, sizeof(head), "{\"id\":%" PRId64 ",\"name\":", id);
	len = head_len + name->len + sizeof("}") - 1;
	if (tag != NULL)
		len += sizeof(",\"tag\":") - 1 + tag->len;
	text = malloc(len);
	if (text == NULL)
		return -1;
	to = put(text, head, head_len);
	to = put(to, name->text, name->len);
	if (tag != NULL) {
		to = PUT_LITERAL(to, ",\"tag\":");
		to = put(to, tag->text, tag->len);
	}
	PUT_LITERAL(to, "}");
	plant->id = id;
	plant->text = text;
	plant->len = len;
	return 0;
}

enum plant_fault
plant_read(
    struct plant *plant, const char *body, size_t len, struct json_error *error)
{
	struct json_member members[NMEMBERS] = {
		[ID] = { .name = "id" },
		[NAME] = { .name = "name" },
		[TAG] = { .name = "tag" },
	};
	const struct json_member *name = &members[NAME];
	const struct json_member *tag = &members[TAG];
	struct string name_string = { NULL, 0, NULL };
	struct string tag_string = { NULL, 0, NULL };
	enum plant_fault fault;
	bool tagged;
	int64_t id;

	if (json_scan_object(body, len, members, NMEMBERS, error) != 0)
		return PLANT_NOT_JSON;
	fault = check_members(members, body, &id);
	if (fault != PLANT_OK)
		return fault;
	fault = PLANT_NO_MEMORY;
	tagged = tag->type == JSON_STRING;
	if (string_init(&name_string, body + name->at, name->len) == 0 &&
	    (!tagged ||
		string_init(&tag_string, body + tag->at, tag->len) == 0) &&
	    compose(plant, id, &name_string, tagged ? &tag_string : NULL) == 0)
		fault = PLANT_OK;
	string_done(&tag_string);
	string_done(&name_string);
	return fault;
}

/*
 * The text has its first comma right after the id, and the answer is the text
 * from there on, with a brace in the comma's place.
 */
size_t
plant_answer_len(const struct plant *plant)
{
	const char *comma = memchr(plant->text, ',', plant->len);

	return plant->len - (size_t)(comma - plant->text);
}

void
plant_answer(const struct plant *plant, char *buf)
{
	size_t len = plant_answer_len(plant);

	buf[0] = '{';
	memcpy(buf + 1, plant->text + plant->len - len + 1, len - 1);
}

void
plant_done(struct plant *plant)
{
	free(plant->text);
	plant->text = NULL;
	plant->len = 0;
}
