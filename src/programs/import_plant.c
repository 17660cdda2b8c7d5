/*
 * import_plant: see import_plant.h.  A record becomes the JSON that a client
 * would have sent, so that there is one set of checks; what they are is plant's
 * to say, and what a refusal is called api's and http's.
 */
#include "import_plant.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "pure/json_string.h"

/* The JSON around a record's fields. */
#define JSON_AROUND sizeof("{\"id\":,\"name\":\"\",\"tag\":\"\"}")

int
import_plant_init(struct import_plant *import, size_t bytes_max)
{
	import->bytes_max = bytes_max;
	/* A character is six bytes at most, as \u001f is. */
	import->json = malloc(6 * bytes_max + JSON_AROUND);
	return import->json == NULL ? -1 : 0;
}

void
import_plant_done(struct import_plant *import)
{
	free(import->json);
}

static int
refuse(struct import_plant *import, const struct response_error *error)
{
	size_t n = (size_t)snprintf(import->why, sizeof(import->why),
	    "error %d: ", errors_number(error->error));

	response_message(error, import->why + n, sizeof(import->why) - n);
	return IMPORT_PLANT_REFUSED;
}

static int
refuse_as(struct import_plant *import, enum http_error error)
{
	return refuse(import, &(struct response_error){ .error = error });
}

int
import_plant_too_large(struct import_plant *import)
{
	snprintf(import->why, sizeof(import->why),
	    "error %d: %s  The largest is PLANT_STORE_BODY_BYTES_MAX, %zu "
	    "bytes.",
	    errors_number(HTTP_BODY_TOO_LARGE),
	    errors_message(HTTP_BODY_TOO_LARGE), import->bytes_max);
	return IMPORT_PLANT_REFUSED;
}

int
import_plant_bad_csv(struct import_plant *import, const char *reason)
{
	snprintf(import->why, sizeof(import->why),
	    "The record is not valid CSV: %s.", reason);
	return IMPORT_PLANT_REFUSED;
}

static int
read_text(struct import_plant *import, const char *text, size_t len,
    bool is_record, struct plant *plant)
{
	struct response_error failure;
	struct json_error error;
	enum plant_fault fault;

	if (len > import->bytes_max)
		return import_plant_too_large(import);
	fault = plant_read(plant, text, len, &error);
	if (fault == PLANT_OK)
		return 0;
	if (fault == PLANT_NO_MEMORY)
		return IMPORT_PLANT_NO_MEMORY;
	failure = api_plant_failure(fault, &error);
	/* An offset into what was made of a record would say nothing. */
	if (is_record)
		failure.reason = NULL;
	return refuse(import, &failure);
}

int
import_plant_json(struct import_plant *import, const char *text, size_t len,
    struct plant *plant)
{
	return read_text(import, text, len, false, plant);
}

/* An integer as JSON has it, so that it cannot be anything else there. */
static bool
is_integer(const struct csv_field *field)
{
	const char *text = field->text;
	size_t sign = field->len > 0 && text[0] == '-';

	if (field->len == sign || (text[sign] == '0' && field->len > sign + 1))
		return false;
	for (size_t i = sign; i < field->len; i++)
		if (text[i] < '0' || text[i] > '9')
			return false;
	return true;
}

static bool
is_absent(const struct csv_field *field)
{
	return field->len == 0 && !field->quoted;
}

static enum http_error
check_fields(
    const struct import_plant *import, const struct csv_field *fields, size_t n)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++)
		len += fields[i].len;
	if (len > import->bytes_max)
		return HTTP_BODY_TOO_LARGE;
	if (is_absent(&fields[0]))
		return HTTP_ID_MISSING;
	if (!is_integer(&fields[0]))
		return HTTP_ID_NOT_INTEGER;
	return is_absent(&fields[1]) ? HTTP_NAME_MISSING : HTTP_OK;
}

static char *
put(char *to, const char *text, size_t len)
{
	memcpy(to, text, len);
	return to + len;
}

int
import_plant_csv(struct import_plant *import, const struct csv_field *fields,
    size_t n, struct plant *plant)
{
	enum http_error error = check_fields(import, fields, n);
	char *to = import->json;

	if (error != HTTP_OK)
		return refuse_as(import, error);
	to = put(to, "{\"id\":", 6);
	to = put(to, fields[0].text, fields[0].len);
	to = put(to, ",\"name\":", 8);
	to += json_string_print(fields[1].text, fields[1].len, to);
	if (n > 2 && !is_absent(&fields[2])) {
		to = put(to, ",\"tag\":", 7);
		to += json_string_print(fields[2].text, fields[2].len, to);
	}
	*to++ = '}';
	return read_text(
	    import, import->json, (size_t)(to - import->json), true, plant);
}
