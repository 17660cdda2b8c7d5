/*
 * request: finds the variables we read and answers questions about them.
 * Whether a request is refused, and with which error, is left to api.
 */
#include "http/request.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#define JSON_TYPE "application/json"

/* Two strings, read as the one that they make together. */
struct joined {
	const char *part;
	const char *rest;
};

int
request_read(struct request *request, char *const *variables)
{
	struct request found = { 0 };
	const struct {
		const char *name;
		const char **value;
	} wanted[] = {
		{ "REQUEST_METHOD=", &found.method },
		{ "SCRIPT_NAME=", &found.script_name },
		{ "PATH_INFO=", &found.path_info },
		{ "HTTP_AUTHORIZATION=", &found.authorization },
		{ "CONTENT_TYPE=", &found.content_type },
		{ "CONTENT_LENGTH=", &found.content_length },
		{ "HTTP_CONTENT_ENCODING=", &found.content_encoding },
		{ "HTTP_TRANSFER_ENCODING=", &found.transfer_encoding },
	};

	for (size_t i = 0; variables[i] != NULL; i++) {
		if (i == REQUEST_VARIABLES_MAX)
			goto ambiguous;
		for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++) {
			const char *name = wanted[k].name;

			/* Most are told apart by their first letter. */
			if (variables[i][0] != name[0])
				continue;
			size_t len = strlen(name);
			if (strncmp(variables[i], name, len) != 0)
				continue;
			if (*wanted[k].value != NULL)
				goto ambiguous;
			*wanted[k].value = variables[i] + len;
			break;
		}
	}
	*request = found;
	return 0;

ambiguous:
	*request = found;
	return -1;
}

static char
joined_next(struct joined *joined)
{
	if (*joined->part == '\0') {
		joined->part = joined->rest;
		joined->rest = "";
	}
	return *joined->part == '\0' ? '\0' : *joined->part++;
}

bool
request_path_is(
    const struct request *request, const char *base_path, const char *name)
{
	struct joined path = {
		request->script_name == NULL ? "" : request->script_name,
		request->path_info == NULL ? "" : request->path_info,
	};
	struct joined expected = { base_path, name };
	char c;

	do {
		c = joined_next(&path);
		if (c != joined_next(&expected))
			return false;
	} while (c != '\0');
	return true;
}

bool
request_is_json(const struct request *request)
{
	const char *type = request->content_type;

	if (type == NULL ||
	    strncasecmp(type, JSON_TYPE, strlen(JSON_TYPE)) != 0)
		return false;
	type += strlen(JSON_TYPE);
	type += strspn(type, " \t");
	return *type == '\0' || *type == ';';
}

bool
request_is_identity(const struct request *request)
{
	const char *encoding = request->content_encoding;

	return encoding == NULL || *encoding == '\0' ||
	       strcasecmp(encoding, "identity") == 0;
}

enum request_length
request_length(const struct request *request, size_t *length)
{
	const char *text = request->content_length;
	size_t value = 0;

	if (text == NULL || *text == '\0')
		return REQUEST_LENGTH_ABSENT;
	for (; *text != '\0'; text++) {
		size_t digit;

		if (*text < '0' || *text > '9')
			return REQUEST_LENGTH_BAD;
		digit = (size_t)(*text - '0');
		if (value > (SIZE_MAX - digit) / 10)
			value = SIZE_MAX;
		else
			value = value * 10 + digit;
	}
	*length = value;
	return REQUEST_LENGTH_OK;
}

bool
request_is_chunked(const struct request *request)
{
	size_t length;

	return request->transfer_encoding != NULL &&
	       strcasecmp(request->transfer_encoding, "chunked") == 0 &&
	       request_length(request, &length) == REQUEST_LENGTH_ABSENT;
}
