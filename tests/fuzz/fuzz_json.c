/*
 * fuzz_json: the scanner, the strings, the numbers and the plant against the
 * model, for any bytes.
 */
#include <inttypes.h>
#include <string.h>

#include "fuzz.h"
#include "model.h"
#include "plant/plant.h"
#include "pure/json.h"

#define MEMBERS 3

static const char *const names[MEMBERS] = { "id", "name", "tag" };

static int
scan(const char *text, size_t len, struct json_member *members,
    struct json_error *error)
{
	for (size_t i = 0; i < MEMBERS; i++)
		members[i].name = names[i];
	members[MEMBERS].name = NULL;
	return json_scan_object(text, len, members, error);
}

static void
check_member(const char *text, size_t len, const struct json_member *member,
    const struct model_member *model)
{
	const char *token = text + member->at;
	struct model_bytes canonical = { 0 };
	int64_t value, expected;

	REQUIRE((member->len == 0) == (model->count == 0));
	REQUIRE(member->twice == (model->count > 1));
	if (model->count == 0)
		return;
	REQUIRE(*token == model->first);
	REQUIRE(member->at == model->at && member->len == model->len);
	REQUIRE(member->at < len && member->len <= len - member->at);
	if (strchr("-0123456789", *token) != NULL) {
		enum json_int is = json_int64(token, member->len, &value);
		enum model_int should =
		    model_int64(token, member->len, &expected);

		REQUIRE((is == JSON_INT_OK) == (should == MODEL_INT_OK));
		REQUIRE((is == JSON_INT_RANGE) == (should == MODEL_INT_RANGE));
		REQUIRE(is != JSON_INT_OK || value == expected);
	}
	if (*token == '"') {
		char *means = malloc(member->len);
		char *printed = malloc(6 * member->len);

		REQUIRE(means != NULL && printed != NULL);
		model_canonical(token, member->len, &canonical);
		size_t n = json_string_decode(token, member->len, means);
		REQUIRE(n + 2 <= member->len);
		REQUIRE(json_string_print(means, n, printed) == canonical.len);
		REQUIRE(memcmp(printed, canonical.at, canonical.len) == 0);
		free(means);
		free(printed);
		REQUIRE(json_canonical_string(canonical.at, canonical.len) ==
			canonical.len);
		REQUIRE((json_canonical_string(token, member->len) ==
			    member->len) ==
			(canonical.len == member->len &&
			    memcmp(canonical.at, token, canonical.len) == 0));
		free(canonical.at);
	}
}

/* The beginning of an accepted text is truncated, or lacks only spaces. */
static void
check_prefix(const char *text, size_t len, size_t cut)
{
	struct json_member members[MEMBERS + 1];
	struct json_error error;
	size_t spaces = 0;

	while (cut + spaces < len &&
	       memchr(" \t\r\n", text[cut + spaces], 4) != NULL)
		spaces++;
	if (scan(text, cut, members, &error) == 0)
		REQUIRE(cut + spaces == len);
	else
		REQUIRE(
		    error.fault == JSON_FAULT_SYNTAX && error.offset == cut);
}

static void
check_error(const char *text, size_t len, const struct json_error *error)
{
	struct json_member members[MEMBERS + 1];
	struct model_member none[1];
	struct json_error before;

	REQUIRE(error->offset <= len && error->reason != NULL);
	REQUIRE(error->offset < len || error->fault == JSON_FAULT_SYNTAX);
	switch (error->fault) {
	case JSON_FAULT_UTF8:
		REQUIRE(!model_is_utf8(text, len));
		break;
	case JSON_FAULT_DEPTH:
		REQUIRE(strchr("[{", text[error->offset]) != NULL);
		REQUIRE(!model_object(text, len, JSON_DEPTH_MAX, none, 0));
		break;
	case JSON_FAULT_NOT_OBJECT:
		REQUIRE(text[strspn(text, " \t\r\n")] != '{');
		break;
	case JSON_FAULT_SYNTAX:
		break;
	}
	if (error->offset == len) /* a prefix of some text */
		return;
	/*
	 * What stands before the fault is the beginning of some text; a fault
	 * within a character is told where the character cannot go on.
	 */
	if (scan(text, error->offset, members, &before) != 0)
		REQUIRE(before.offset == error->offset &&
			before.fault == JSON_FAULT_SYNTAX);
}

static void
check_plant(const char *body, size_t len)
{
	struct model_bytes text = { 0 }, answer = { 0 };
	struct plant plant = { 0 }, again = { 0 };
	struct json_error error;
	int number = model_plant(body, len, &text, &answer);
	enum plant_fault fault = plant_read(&plant, body, len, &error);

	REQUIRE((fault == PLANT_OK) == (number == 0));
	REQUIRE((fault == PLANT_NOT_JSON) == (number == 4000));
	if (fault == PLANT_OK) {
		char *buf = malloc(answer.len);

		REQUIRE(buf != NULL);
		REQUIRE(plant.len <= len && plant.len == text.len);
		REQUIRE(memcmp(plant.text, text.at, text.len) == 0);
		REQUIRE(plant_answer(&plant, buf) == answer.len);
		REQUIRE(memcmp(buf, answer.at, answer.len) == 0);
		free(buf);
		REQUIRE(plant_read(&again, plant.text, plant.len, &error) ==
			PLANT_OK);
		REQUIRE(again.id == plant.id && again.len == plant.len);
		REQUIRE(memcmp(again.text, plant.text, plant.len) == 0);
		plant_done(&again);
	}
	plant_done(&plant);
	free(text.at);
	free(answer.at);
}

/* Any bytes may be asked for a string in canonical form. */
static void
check_canonical(const char *text, size_t len)
{
	size_t n = json_canonical_string(text, len);
	struct model_bytes canonical = { 0 };

	REQUIRE(n <= len);
	if (n == 0)
		return;
	model_canonical(text, n, &canonical);
	REQUIRE(canonical.len == n && memcmp(canonical.at, text, n) == 0);
	free(canonical.at);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json_member members[MEMBERS + 1], again[MEMBERS + 1];
	struct model_member model[MEMBERS];
	const char *text = (const char *)data;
	struct json_error error;
	bool good;

	for (size_t i = 0; i < MEMBERS; i++)
		model[i].name = names[i];
	good = model_object(text, size, JSON_DEPTH_MAX, model, MEMBERS);
	REQUIRE((scan(text, size, members, &error) == 0) == good);
	if (good) {
		REQUIRE(scan(text, size, again, &error) == 0);
		for (size_t i = 0; i < MEMBERS; i++) {
			check_member(text, size, &members[i], &model[i]);
			check_member(text, size, &again[i], &model[i]);
		}
		/* All cuts of a short text, some of a long one. */
		for (size_t cut = 0; cut < size; cut += 1 + size / 64)
			check_prefix(text, size, cut);
		check_prefix(text, size, size - 1);
	} else
		check_error(text, size, &error);
	check_plant(text, size);
	for (size_t i = 0; i < size && i < 64; i++)
		if (text[i] == '"')
			check_canonical(text + i, size - i);
	return 0;
}
