/*
 * model: what the interface's documents say, written a second time, as plainly
 * as can be and without a line of the service: the oracle of the fuzz targets.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* RFC 3629: whether all of it is whole, valid characters. */
bool model_is_utf8(const char *text, size_t len);

/* Bytes that grow; all zero it is empty. */
struct model_bytes {
	char *at;
	size_t len;
};

void model_append(struct model_bytes *bytes, const void *from, size_t len);

/* A member of an object: how often it occurs, and its first value's token. */
struct model_member {
	const char *name;
	unsigned count;
	char first; /* byte of the value */
	size_t at, len;
};

/*
 * model_object(text, len, depth_max, members, n):
 * RFC 8259 by recursive descent: whether all of `text` is an object, nested no
 * deeper than that, in valid UTF-8 and with its surrogates in pairs; then the
 * members by these names are filled.
 */
bool model_object(const char *text, size_t len, unsigned depth_max,
    struct model_member *members, size_t n);

/*
 * model_canonical(token, len, bytes):
 * Append the shortest spelling of the valid string token, quotes included.
 */
void model_canonical(const char *token, size_t len, struct model_bytes *bytes);

/* Whether the number token is an integer, and one of int64. */
enum model_int { MODEL_INT_OK, MODEL_INT_NOT_INTEGER, MODEL_INT_RANGE };
enum model_int model_int64(const char *token, size_t len, int64_t *value);

/*
 * model_plant(body, len, text, answer):
 * What a NewPlant comes to: 0 with its canonical text and the body of the 200,
 * which the caller frees; else the error's number, but 4000 for anything that
 * is not a JSON object.
 */
int model_plant(const char *body, size_t len, struct model_bytes *text,
    struct model_bytes *answer);

/*
 * model_credential(value, token, len):
 * RFC 9110 and 6750: 0 and the token in an Authorization header's value, NULL
 * if there is none; else the error's number.
 */
int model_credential(const char *value, const char **token, size_t *len);
