/*
 * plant: a plant, as a client sends it and as the store keeps it.
 *
 * A plant is its canonical JSON text, {"id":1,"name":"..","tag":".."}, in this
 * order, without spaces, with strings in canonical form.  Two plants are the
 * same if and only if their texts are equal, byte for byte.  The response to
 * the client is the text without the id.  No other module uses json-c.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "pure/json.h"

struct plant {
	int64_t id;
	char *text; /* from malloc; plant_done frees it */
	size_t len;
};

enum plant_fault {
	PLANT_OK,
	PLANT_NOT_JSON, /* the json_error has the reason and offset */
	PLANT_ID_MISSING,
	PLANT_ID_TWICE,
	PLANT_ID_NOT_INTEGER,
	PLANT_ID_RANGE,
	PLANT_NAME_MISSING,
	PLANT_NAME_TWICE,
	PLANT_NAME_NOT_STRING,
	PLANT_TAG_TWICE,
	PLANT_TAG_NOT_STRING,
	PLANT_NO_MEMORY
};

/*
 * plant_read(plant, body, len, error):
 * Read a NewPlant of at most INT_MAX bytes.  On PLANT_OK the caller must free
 * `plant` with plant_done; its text is never longer than `len`.  A fault leaves
 * `plant` unchanged; PLANT_NOT_JSON fills `error`.  If there are several
 * faults, return the one that comes first in the enum.  Any thread.
 *
 * plant_answer(plant, buf):
 * Write the response body, {"name":"..","tag":".."}, without a NUL, and return
 * its length, which is less than plant->len.
 *
 * plant_done(plant):
 * Free the text from plant_read.  A zeroed plant is allowed.
 */
enum plant_fault plant_read(struct plant *plant, const char *body, size_t len,
    struct json_error *error);
size_t plant_answer(const struct plant *plant, char *buf);
void plant_done(struct plant *plant);
