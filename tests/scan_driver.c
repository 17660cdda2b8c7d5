/*
 * scan_driver: for test_differential.py.  Reads texts from standard input, each
 * behind its length in four bytes, the least significant first, and prints a
 * line for each: what plant_read makes of it, and for a plant also what json-c
 * alone reads in the same text.  The fields of a line, with tabs between:
 *
 *	json FAULT               not JSON; FAULT is an enum json_fault
 *	fault FAULT              JSON, but no plant; an enum plant_fault
 *	plant TEXT ID NAME TAG   TEXT is the plant's; json-c's values follow: a
 *	                         number, strings in hex behind an "=", and "-"
 *	                         where it finds no such value
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "plant/plant.h"

/* Longer than any body that the service can be set to take. */
#define TEXT_MAX ((size_t)1 << 21)

/* Read a length; 1 if the input ends before it, -1 if within it. */
static int
read_len(size_t *len)
{
	unsigned char bytes[4];
	size_t n = fread(bytes, 1, sizeof(bytes), stdin);

	if (n == 0 && feof(stdin))
		return 1;
	if (n != sizeof(bytes))
		return -1;
	*len = (size_t)bytes[0] | (size_t)bytes[1] << 8 |
	       (size_t)bytes[2] << 16 | (size_t)bytes[3] << 24;
	return *len <= TEXT_MAX ? 0 : -1;
}

/* The whole text, read by json-c; NULL if it does not take all of it. */
static struct json_object *
parse(const char *text, size_t len)
{
	/* One more than ours, because a scalar counts as a level here. */
	struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH_MAX + 1);
	struct json_object *object;

	if (tokener == NULL)
		abort();
	object = json_tokener_parse_ex(tokener, text, (int)len);
	if (json_tokener_get_error(tokener) != json_tokener_success ||
	    json_tokener_get_parse_end(tokener) != len) {
		json_object_put(object);
		object = NULL;
	}
	json_tokener_free(tokener);
	return object;
}

static void
print_string(struct json_object *object, const char *name)
{
	struct json_object *value;
	const char *bytes;
	int len;

	if (!json_object_object_get_ex(object, name, &value) ||
	    !json_object_is_type(value, json_type_string)) {
		printf("\t-");
		return;
	}
	bytes = json_object_get_string(value);
	len = json_object_get_string_len(value);
	printf("\t=");
	for (int i = 0; i < len; i++)
		printf("%02x", (unsigned)(unsigned char)bytes[i]);
}

static void
print_json_c(const char *text, size_t len)
{
	struct json_object *object = parse(text, len);
	struct json_object *id;

	if (json_object_object_get_ex(object, "id", &id) &&
	    json_object_is_type(id, json_type_int))
		printf("\t%" PRId64, json_object_get_int64(id));
	else
		printf("\t-");
	print_string(object, "name");
	print_string(object, "tag");
	json_object_put(object);
}

static void
print_verdict(const char *text, size_t len)
{
	struct json_error error;
	struct plant plant;
	enum plant_fault fault = plant_read(&plant, text, len, &error);

	if (fault == PLANT_NOT_JSON) {
		printf("json\t%d", (int)error.fault);
	} else if (fault != PLANT_OK) {
		printf("fault\t%d", (int)fault);
	} else {
		printf("plant\t");
		fwrite(plant.text, 1, plant.len, stdout);
		print_json_c(text, len);
		plant_done(&plant);
	}
	putchar('\n');
}

int
main(void)
{
	size_t len;
	char *text;
	int end;

	while ((end = read_len(&len)) == 0) {
		/* Of exactly this size, so that a sanitizer sees its end. */
		text = malloc(len == 0 ? 1 : len);
		if (text == NULL || fread(text, 1, len, stdin) != len) {
			free(text);
			end = -1;
			break;
		}
		print_verdict(text, len);
		free(text);
	}
	if (end < 0)
		fprintf(stderr, "scan_driver: the input is not well formed\n");
	return end < 0 || fflush(stdout) != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
