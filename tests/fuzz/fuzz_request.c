/*
 * fuzz_request: a request through the api, against a model of its steps; and
 * whatever is answered is a whole answer.
 *
 * The input: a byte of choices, a byte of what the store says, lines of
 * "NAME=value", an empty line, the body.
 */
#include <json-c/json.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "fuzz.h"
#include "model.h"

#define BODY_MAX 512
#define DIGITS "0123456789"
#define NOW_MS INT64_C(1800000000000)
/* Known tokens: "good", and "old", which has expired. */
#define TOKENS                                                       \
	"new "                                                       \
	"770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08" \
	"b7376c\n"                                                   \
	"old "                                                       \
	"cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263" \
	"ccfbd4 2020-01-01T00:00:00Z\n"

enum choice {
	CHOICE_CONTRACT = 1,
	CHOICE_BROKEN = 2, /* the body does not end by itself */
	CHOICE_BASE = 4,
	CHOICE_ORIGINS = 8
};

#define ORIGIN "https://a"

/* Step 5: what the store can say, and what the client is told. */
static const struct {
	enum store_result result;
	int number;
} stored[] = {
	{ STORE_CREATED, 0 },
	{ STORE_SAME, 0 },
	{ STORE_CONFLICT, 5001 },
	{ STORE_FULL, 5002 },
	{ STORE_FAILED, 5003 },
	{ STORE_BUSY, 5004 },
};

struct model {
	const char *method, *script, *path, *authorization, *type, *length,
	    *encoding, *transfer, *id, *origin, *asks;
	bool twice;
	bool allowed, preflight; /* of an origin that is allowed */
	bool vary;               /* some origin is */
	bool head;               /* a method is HEAD */
	int number;              /* 0: passes */
	bool framing_body;       /* one of 3004 to 3008 */
	struct model_bytes text, answer;
};

/* The tokens' file is a memory file, so that nothing is left behind. */
static struct tokens *
open_tokens(void)
{
	static struct tokens *tokens;
	static char path[64];
	enum fault fault;

	if (tokens != NULL)
		return tokens;
	int fd = memfd_create("tokens", 0);
	REQUIRE(fd >= 0 && fchmod(fd, 0600) == 0);
	REQUIRE(write(fd, TOKENS, strlen(TOKENS)) == (ssize_t)strlen(TOKENS));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	tokens = tokens_open(path, geteuid(), &fault);
	REQUIRE(tokens != NULL);
	return tokens;
}

/* The lines of the head, in `text`, up to an empty one; where the body is. */
static char *
split_head(char *text, char *end, char **variables, size_t max)
{
	size_t n = 0;
	bool blank = false;

	while (text < end && n < max && !blank) {
		char *newline = memchr(text, '\n', (size_t)(end - text));

		if (newline == NULL)
			newline = end;
		*newline = '\0';
		blank = newline == text;
		if (!blank)
			variables[n++] = text;
		text = newline < end ? newline + 1 : end;
	}
	variables[n] = NULL;
	return text;
}

static const char *
find(struct model *model, char *const *variables, const char *name)
{
	const char *value = NULL;
	size_t len = strlen(name);

	for (; *variables != NULL; variables++)
		if (strncmp(*variables, name, len) == 0 &&
		    (*variables)[len] == '=') {
			model->twice = model->twice || value != NULL;
			value = *variables + len + 1;
		}
	return value;
}

/* Of a header that counts as absent where it occurs twice. */
static const char *
find_one(char *const *variables, const char *name)
{
	struct model found = { 0 };
	const char *value = find(&found, variables, name);

	return found.twice ? "" : value;
}

static bool
is_empty(const char *text)
{
	return text == NULL || *text == '\0';
}

static bool
is_route(const struct model *model, const char *base)
{
	char *is = NULL, *should = NULL;
	bool same;

	REQUIRE(asprintf(&is, "%s%s", model->script ? model->script : "",
		    model->path ? model->path : "") >= 0);
	REQUIRE(asprintf(&should, "%s/plants", base) >= 0);
	same = strcmp(is, should) == 0;
	free(is);
	free(should);
	return same;
}

/* The media type is what stands before a semicolon, trimmed at its end. */
static bool
is_json(const char *type)
{
	size_t len;

	if (type == NULL)
		return false;
	len = strcspn(type, ";");
	while (len > 0 && (type[len - 1] == ' ' || type[len - 1] == '\t'))
		len--;
	return len == 16 && strncasecmp(type, "application/json", 16) == 0;
}

/* Steps 1 to 3, the head's. */
static int
model_head(const struct model *model, const char *base)
{
	const char *token;
	size_t len;
	int number = model_credential(model->authorization, &token, &len);

	if (model->twice)
		return 3009;
	if (number != 0)
		return number;
	if (len == 3 && memcmp(token, "old", 3) == 0)
		return 1006;
	if (len != 4 || memcmp(token, "good", 4) != 0)
		return 1005;
	if (!is_route(model, base))
		return 2001;
	if (model->method == NULL || strcmp(model->method, "POST") != 0)
		return 2002;
	if (!is_json(model->type))
		return 3001;
	if (!is_empty(model->encoding) &&
	    strcasecmp(model->encoding, "identity") != 0)
		return 3002;
	if (is_empty(model->length))
		return 0;
	if (model->length[strspn(model->length, DIGITS)] != '\0')
		return 3003;
	return strtoull(model->length, NULL, 10) > BODY_MAX ? 3007 : 0;
}

/* Steps 3, the body's, and 4. */
static void
model_body(struct model *model, const char *body, size_t len, bool whole)
{
	size_t declared =
	    is_empty(model->length) ? len : strtoull(model->length, NULL, 10);

	if (len == 0 || len > BODY_MAX || len != declared || !whole)
		model->framing_body = true;
	else
		model->number =
		    model_plant(body, len, &model->text, &model->answer);
}

static int
status_of(int number)
{
	static const int own[][2] = { { 0, 200 }, { 2001, 404 }, { 2002, 405 },
		{ 3007, 413 }, { 5001, 409 } };

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (own[i][0] == number)
			return own[i][1];
	return number < 2000   ? 401
	       : number > 5100 ? 500
	       : number > 5000 ? 503
			       : 400;
}

/* The Error body's number. */
static int
read_error(const char *body, size_t len)
{
	struct json_tokener *tokener = json_tokener_new();
	struct json_object *object, *error, *message;
	int number;

	json_tokener_set_flags(
	    tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	object = json_tokener_parse_ex(tokener, body, (int)len);
	REQUIRE(object != NULL && json_tokener_get_parse_end(tokener) == len);
	REQUIRE(json_object_is_type(object, json_type_object));
	REQUIRE(json_object_object_length(object) == 2);
	REQUIRE(json_object_object_get_ex(object, "error", &error));
	REQUIRE(json_object_object_get_ex(object, "message", &message));
	REQUIRE(json_object_is_type(error, json_type_int));
	REQUIRE(json_object_is_type(message, json_type_string));
	REQUIRE(json_object_get_string_len(message) > 0);
	number = json_object_get_int(error);
	json_object_put(object);
	json_tokener_free(tokener);
	return number;
}

/* The header line by this name in the head, once; NULL if it is not there. */
static char *
header(const char *head, const char *name)
{
	char *found = NULL;

	while (*head != '\0') {
		const char *end = strstr(head, "\r\n");

		REQUIRE(end != NULL);
		if (strncmp(head, name, strlen(name)) == 0 &&
		    strncmp(head + strlen(name), ": ", 2) == 0) {
			REQUIRE(found == NULL);
			head += strlen(name) + 2;
			found = strndup(head, (size_t)(end - head));
			REQUIRE(found != NULL);
		}
		head = end + 2;
	}
	return found;
}

/* The header has this value, or any digits, or is not there. */
static void
check_header(const char *head, const char *name, const char *expected)
{
	char *value = header(head, name);

	REQUIRE((value == NULL) == (expected == NULL));
	if (value != NULL && strcmp(expected, DIGITS) == 0)
		REQUIRE(
		    value[0] != '\0' && value[strspn(value, DIGITS)] == '\0');
	else if (value != NULL)
		REQUIRE(strcmp(value, expected) == 0);
	free(value);
}

/* The challenge tells an error only where a token was presented. */
static const char *
challenge(int number)
{
	if (number / 1000 != 1)
		return NULL;
	return number <= 1002 ? "Bearer realm=\"plant-store\""
			      : "Bearer realm=\"plant-store\", "
				"error=\"invalid_token\"";
}

/* What every answer has, and no other line of CORS. */
static void
check_common(const char *head, const struct model *model)
{
	static const char form[] = DIGITS "abcdefghijklmnopqrstuvwxyz"
					  "ABCDEFGHIJKLMNOPQRSTUVWXYZ._-";
	char *id = header(head, "X-Request-Id");

	REQUIRE(id != NULL && strlen(id) >= 1 && strlen(id) <= 64);
	REQUIRE(id[strspn(id, form)] == '\0');
	/* What stands behind too many variables is not read. */
	if (!model->twice && !is_empty(model->id) && strlen(model->id) <= 64 &&
	    model->id[strspn(model->id, form)] == '\0' &&
	    strstr(model->id, "pst_") == NULL)
		REQUIRE(strcmp(id, model->id) == 0);
	free(id);
	if (model->twice)
		return;
	check_header(head, "Access-Control-Allow-Origin",
	    model->allowed ? model->origin : NULL);
	check_header(head, "Vary", model->vary ? "Origin" : NULL);
	check_header(head, "Access-Control-Allow-Methods",
	    model->preflight ? "POST" : NULL);
}

/* A failure's number; 0 for a 200 and for the 204 to a preflight. */
static int
check_answer(
    const char *answer, size_t len, const struct model *model, bool contract)
{
	const char *blank = memmem(answer, len, "\r\n\r\n", 4);
	char *head, *status;
	const char *body;
	size_t body_len;
	int number, code;
	char text[32];

	REQUIRE(blank != NULL);
	head = strndup(answer, (size_t)(blank + 2 - answer));
	REQUIRE(head != NULL && strlen(head) == (size_t)(blank + 2 - answer));
	body = blank + 4;
	body_len = len - (size_t)(body - answer);
	status = header(head, "Status");
	REQUIRE(status != NULL && strlen(status) > 4 && status[3] == ' ');
	code = atoi(status);
	free(status);
	check_common(head, model);
	if (model->preflight) {
		REQUIRE(code == 204 && body_len == 0);
		check_header(head, "Content-Length", NULL);
		free(head);
		return 0;
	}
	check_header(head, "Content-Type", "application/json");
	if (code == 200)
		number = 0;
	else if (body_len == 0 && model->head)
		number = model->number;
	else {
		/* Of two methods, the first or none is what is known. */
		REQUIRE(!model->head || model->twice);
		number = read_error(body, body_len);
	}
	if (body_len > 0) {
		snprintf(text, sizeof(text), "%zu", body_len);
		check_header(head, "Content-Length", text);
	}
	REQUIRE(code == (number != 0 && contract ? 400 : status_of(number)));
	check_header(head, "WWW-Authenticate", challenge(number));
	check_header(head, "Allow", number == 2002 ? "POST" : NULL);
	check_header(head, "Content-Length", DIGITS);
	check_header(head, "Retry-After",
	    number / 100 == 50 && number != 5001 ? DIGITS : NULL);
	if (code == 200)
		REQUIRE(body_len == model->answer.len &&
			memcmp(body, model->answer.at, body_len) == 0);
	free(head);
	return number;
}

/* The number is the one that the model has, or of those it allows. */
static void
check_number(
    const struct model *model, int number, const char *body, size_t len)
{
	if (model->framing_body)
		REQUIRE(number >= 3004 && number <= 3008);
	else if (model->number != 4000)
		REQUIRE(number == model->number);
	else {
		REQUIRE(number >= 4001 && number <= 4004);
		REQUIRE(number != 4002 || !model_is_utf8(body, len));
		REQUIRE(number != 4004 || *body != '{');
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	unsigned choices = fuzz_byte(&input);
	size_t said = fuzz_byte(&input) % (sizeof(stored) / sizeof(stored[0]));
	struct config config = {
		.base_path = (choices & CHOICE_BASE) != 0 ? "/api/v1" : "",
		.body_bytes_max = BODY_MAX,
		.contract_status = (choices & CHOICE_CONTRACT) != 0,
		.origins = (choices & CHOICE_ORIGINS) != 0 ? "http://b " ORIGIN
							     ",https://c"
							   : "",
	};
	struct api api = { &config, open_tokens(), NOW_MS };
	struct model model = { 0 };
	struct api_call call;
	char *variables[REQUEST_VARIABLES_MAX + 3];
	char *text = malloc(input.left + 1);
	bool whole = (choices & CHOICE_BROKEN) == 0;
	size_t len;

	REQUIRE(text != NULL);
	memcpy(text, input.at, input.left);
	char *body = split_head(
	    text, text + input.left, variables, REQUEST_VARIABLES_MAX + 2);
	size_t body_len = (size_t)(text + input.left - body);
	/* The gateway reads no more. */
	if (body_len > BODY_MAX + 1)
		body_len = BODY_MAX + 1;
	model.method = find(&model, variables, "REQUEST_METHOD");
	model.script = find(&model, variables, "SCRIPT_NAME");
	model.path = find(&model, variables, "PATH_INFO");
	model.authorization = find(&model, variables, "HTTP_AUTHORIZATION");
	model.type = find(&model, variables, "CONTENT_TYPE");
	model.length = find(&model, variables, "CONTENT_LENGTH");
	model.encoding = find(&model, variables, "HTTP_CONTENT_ENCODING");
	model.transfer = find(&model, variables, "HTTP_TRANSFER_ENCODING");
	for (size_t i = 0; variables[i] != NULL; i++) {
		if (i == REQUEST_VARIABLES_MAX)
			model.twice = true;
		if (strcmp(variables[i], "REQUEST_METHOD=HEAD") == 0)
			model.head = true;
	}
	model.id = find_one(variables, "HTTP_X_REQUEST_ID");
	model.origin = find_one(variables, "HTTP_ORIGIN");
	model.asks = find_one(variables, "HTTP_ACCESS_CONTROL_REQUEST_METHOD");
	model.vary = *config.origins != '\0';
	model.allowed = *config.origins != '\0' && !is_empty(model.origin) &&
			(strcmp(model.origin, ORIGIN) == 0 ||
			    strcmp(model.origin, "http://b") == 0 ||
			    strcmp(model.origin, "https://c") == 0);
	model.preflight = model.allowed && model.asks != NULL && !model.twice &&
			  is_route(&model, config.base_path) &&
			  model.method != NULL &&
			  strcmp(model.method, "OPTIONS") == 0;
	model.number =
	    model.preflight ? 0 : model_head(&model, config.base_path);
	bool passed = api_head(&api, &call, variables) == 0;
	REQUIRE(passed == (model.number == 0 && !model.preflight));
	if (passed) {
		REQUIRE(strcmp(call.by, "new") == 0);
		REQUIRE((call.length == REQUEST_LENGTH_OK) ==
			!is_empty(model.length));
		REQUIRE((call.length == REQUEST_LENGTH_CHUNKED) ==
			(is_empty(model.length) && model.transfer != NULL &&
			    strcasecmp(model.transfer, "chunked") == 0));
		model_body(&model, body, body_len, whole);
		call.whole = whole;
		passed = api_body(&api, &call, body, body_len) == 0;
		REQUIRE(passed == (model.number == 0 && !model.framing_body));
	}
	if (passed) {
		REQUIRE(call.plant.len == model.text.len &&
			memcmp(call.plant.text, model.text.at,
			    model.text.len) == 0);
		api_stored(&call, stored[said].result);
		model.number = stored[said].number;
	}
	static char answer[API_HEAD_MAX + BODY_MAX + API_METRICS_MAX];
	len = api_answer(&api, &call, answer);
	int number = check_answer(answer, len, &model, config.contract_status);
	check_number(&model, number, body, body_len);
	plant_done(&call.plant);
	free(model.text.at);
	free(model.answer.at);
	free(text);
	return 0;
}
