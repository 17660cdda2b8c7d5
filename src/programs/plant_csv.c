/*
 * plant_csv: from canonical JSON to CSV.  See plant_csv.h.  The text is what a
 * checked record holds, so nothing in it is unexpected.
 */
#include "plant_csv.h"

#include <assert.h>
#include <string.h>

#include "pure/csv.h"
#include "pure/json_string.h"
#include "pure/utf8.h"

#define ID_BEGIN "{\"id\":"
#define NAME_BEGIN ",\"name\":"
#define TAG_BEGIN ",\"tag\":"
#define LENGTH(literal) (sizeof(literal) - 1)

/* What the string token says; never longer than the token. */
static size_t
decode(const char *token, size_t len, char *text)
{
	struct json_escape escape;
	size_t at = 1, end = len - 1, n = 0;

	while (at < end) {
		size_t run = json_string_run(token + at, end - at);

		memcpy(text + n, token + at, run);
		at += run;
		n += run;
		if (at == end)
			break;
		int failed = json_string_escape(token + at, end - at, &escape);
		assert(failed == 0);
		(void)failed;
		at += escape.len;
		n += utf8_encode(escape.code, text + n);
	}
	return n;
}

/* A comma and the field of the token at `token`, which ends before `end`. */
static size_t
print_field(const char **token, const char *end, char *scratch, char *line,
    bool *has_nul)
{
	size_t len = json_canonical_string(*token, (size_t)(end - *token));
	assert(len > 0);
	size_t n = decode(*token, len, scratch);

	*token += len;
	if (memchr(scratch, '\0', n) != NULL)
		*has_nul = true;
	line[0] = ',';
	return 1 + csv_field_print(scratch, n, line + 1);
}

size_t
plant_csv_print(
    const char *plant, size_t len, char *scratch, char *line, bool *has_nul)
{
	const char *end = plant + len, *id = plant + LENGTH(ID_BEGIN);
	const char *at = memchr(id, ',', (size_t)(end - id));
	assert(at != NULL);
	size_t n = (size_t)(at - id);

	*has_nul = false;
	memcpy(line, id, n);
	at += LENGTH(NAME_BEGIN);
	n += print_field(&at, end, scratch, line + n, has_nul);
	if (*at == ',') {
		at += LENGTH(TAG_BEGIN);
		n += print_field(&at, end, scratch, line + n, has_nul);
	} else
		line[n++] = ',';
	memcpy(line + n, "\r\n", 2);
	return n + 2;
}
