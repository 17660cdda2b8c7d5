/*
 * plant: reads a NewPlant.  json validates the JSON and finds the members;
 * json-c, which does not validate, prints the strings.
 */
#include "plant/plant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

/* At most {"id":-9223372036854775808,"name":,"tag":} and a NUL. */
#define AROUND_MAX 44

/*
 * Write the canonical form of a valid string token into `to`, which has room
 * for `len` bytes.  Return its end; NULL if there is no memory.
 *
 * json-c prints strings that are not canonical.  Its tokener is not used: 0.16
 * drops the escaped surrogate pair of a character whose low 16 bits look like a
 * surrogate, such as U+1D800.  Without memory its printer may omit bytes and
 * report success, so the result must be canonical and decode to equal length.
 */
static char *
put_string(char *to, const char *token, size_t len)
{
	struct json_object *object;
	const char *text = NULL;
	size_t text_len = 0, n;
	bool good;

	if (json_canonical_string(token, len) == len)
		return mempcpy(to, token, len);
	n = json_string_decode(token, len, to);
	object = json_object_new_string_len(to, (int)n);
	if (object != NULL)
		text = json_object_to_json_string_length(object,
		    JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE,
		    &text_len);
	good = text != NULL && text_len >= 2 && text_len <= len &&
	       json_canonical_string(text, text_len) == text_len &&
	       json_string_decode(text, text_len, to) == n;
	to = good ? mempcpy(to, text, text_len) : NULL;
	json_object_put(object);
	return to;
}

/* The first fault in the members "id", "name" and "tag" of `body`. */
static enum plant_fault
check_members(const struct json_member *id, const char *body, int64_t *value)
{
	const struct json_member *name = id + 1, *tag = id + 2;
	enum json_int number = json_int64(body + id->at, id->len, value);

	return id->len == 0                           ? PLANT_ID_MISSING
	       : id->twice                            ? PLANT_ID_TWICE
	       : number == JSON_INT_NOT_INTEGER       ? PLANT_ID_NOT_INTEGER
	       : number == JSON_INT_RANGE             ? PLANT_ID_RANGE
	       : name->len == 0                       ? PLANT_NAME_MISSING
	       : name->twice                          ? PLANT_NAME_TWICE
	       : body[name->at] != '"'                ? PLANT_NAME_NOT_STRING
	       : tag->twice                           ? PLANT_TAG_TWICE
	       : tag->len > 0 && body[tag->at] != '"' ? PLANT_TAG_NOT_STRING
						      : PLANT_OK;
}

enum plant_fault
plant_read(
    struct plant *plant, const char *body, size_t len, struct json_error *error)
{
	struct json_member members[] = { { .name = "id" }, { .name = "name" },
		{ .name = "tag" }, { 0 } };
	const struct json_member *name = &members[1], *tag = &members[2];
	enum plant_fault fault;
	char *text, *to;
	int64_t id;

	if (json_scan_object(body, len, members, error) != 0)
		return PLANT_NOT_JSON;
	fault = check_members(members, body, &id);
	if (fault != PLANT_OK)
		return fault;
	text = malloc(AROUND_MAX + name->len + tag->len);
	if (text == NULL)
		return PLANT_NO_MEMORY;
	to = text + sprintf(text, "{\"id\":%" PRId64 ",\"name\":", id);
	to = put_string(to, body + name->at, name->len);
	if (to != NULL && tag->len > 0)
		to = put_string(
		    mempcpy(to, ",\"tag\":", 7), body + tag->at, tag->len);
	if (to == NULL) {
		free(text);
		return PLANT_NO_MEMORY;
	}
	*to++ = '}';
	*plant = (struct plant){ id, text, (size_t)(to - text) };
	return PLANT_OK;
}

/* The response body is a '{' and the text after the first comma. */
size_t
plant_answer(const struct plant *plant, char *buf)
{
	const char *comma = memchr(plant->text, ',', plant->len);
	size_t len = plant->len - (size_t)(comma - plant->text);

	memcpy(buf, comma, len);
	buf[0] = '{';
	return len;
}

void
plant_done(struct plant *plant)
{
	free(plant->text);
	*plant = (struct plant){ 0 };
}
