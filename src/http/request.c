/* request: parses the CGI variables.  See http/request.h. */
#include "http/request.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "ground/clock.h"
#include "ground/config.h"

#define JSON_TYPE "application/json"
#define SCHEME "Bearer"
#define SCHEME_LEN (sizeof SCHEME - 1)
/* token68 = 1*( TOKEN68 ) *"=" */
#define TOKEN68                      \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ" \
	"abcdefghijklmnopqrstuvwxyz" \
	"0123456789-._~+/"

static uint64_t id_prefix;
static _Atomic uint64_t id_count;

void
request_read(struct request *request, char *const *variables)
{
	static const struct {
		const char *name;
		size_t len, at;
	} wanted[] = {
#define WANTED(name, member) \
	{ name, sizeof(name) - 1, offsetof(struct request, member) }
		WANTED("REQUEST_METHOD", method),
		WANTED("SCRIPT_NAME", script_name),
		WANTED("PATH_INFO", path_info),
		WANTED("HTTP_AUTHORIZATION", authorization),
		WANTED("CONTENT_TYPE", content_type),
		WANTED("CONTENT_LENGTH", content_length),
		WANTED("HTTP_CONTENT_ENCODING", content_encoding),
		WANTED("HTTP_TRANSFER_ENCODING", transfer_encoding),
		WANTED("HTTP_X_REQUEST_ID", id),
		WANTED("HTTP_ORIGIN", origin),
		WANTED("HTTP_ACCESS_CONTROL_REQUEST_METHOD", preflight_method),
		WANTED(REQUEST_CHECK, check),
	};
	size_t i;

	memset(request, 0, sizeof(*request));
	for (i = 0; variables[i] != NULL && i < REQUEST_VARIABLES_MAX; i++) {
		const char *equals = strchr(variables[i], '=');
		size_t len =
		    equals == NULL ? 0 : (size_t)(equals - variables[i]);

		for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++) {
			const char **value =
			    (const char **)((char *)request + wanted[k].at);

			if (len != wanted[k].len ||
			    memcmp(variables[i], wanted[k].name, len) != 0)
				continue;
			if (*value == NULL)
				*value = equals + 1;
			else if (wanted[k].at < offsetof(struct request, id))
				request->ambiguous = true;
			else
				*value = "";
		}
	}
	if (variables[i] != NULL)
		request->ambiguous = true;
}

static void
make_id_prefix(void)
{
	if (getrandom(&id_prefix, sizeof(id_prefix), 0) < 0)
		id_prefix = (uint64_t)clock_us(CLOCK_REALTIME);
}

void
request_id(const struct request *request, char id[static REQUEST_ID_MAX + 1])
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const char *given = request->id == NULL ? "" : request->id;

	pthread_once(&once, make_id_prefix);
	if (tokens_is_name(given) && strstr(given, "pst_") == NULL)
		strcpy(id, given);
	else
		sprintf(id, "%016" PRIx64 "-%" PRIx64, id_prefix,
		    atomic_fetch_add(&id_count, 1));
}

static bool
begins_with_bearer(const char *text)
{
	return strncasecmp(text, SCHEME, SCHEME_LEN) == 0 &&
	       strchr(" \t,", text[SCHEME_LEN]) != NULL; /* or a NUL */
}

/* Return the next comma outside a quoted-string (RFC 9110 5.6.4) or the end. */
static const char *
element_end(const char *at)
{
	bool quoted = false;

	for (; *at != '\0' && (quoted || *at != ','); at++) {
		if (*at == '"')
			quoted = !quoted;
		else if (quoted && *at == '\\' && at[1] != '\0')
			at++;
	}
	return at;
}

/* Return whether one of the elements from `at` on is a Bearer credential. */
static bool
list_has_bearer(const char *at)
{
	while (!begins_with_bearer(at += strspn(at, " \t"))) {
		at = element_end(at);
		if (*at++ == '\0')
			return false;
	}
	return true;
}

/*
 * RFC 9110: credentials = auth-scheme [ 1*SP ( token68 / #auth-param ) ].  A
 * web server that receives two headers joins them with a comma.  Bearer allows
 * only token68 (RFC 6750), which contains neither a comma nor a quote.
 */
enum http_error
request_credential(const struct request *request, struct credential *credential)
{
	const char *text =
	    request->authorization == NULL ? "" : request->authorization;

	text += strspn(text, " \t");
	if (*text == '\0')
		return HTTP_CREDENTIAL_MISSING;
	if (!list_has_bearer(text))
		return HTTP_CREDENTIAL_SCHEME;
	if (*element_end(text) == ',')
		return HTTP_CREDENTIAL_SEVERAL;
	text += SCHEME_LEN;
	text += strspn(text, " ");
	size_t len = strspn(text, TOKEN68);
	const char *rest = text + len + strspn(text + len, "=");
	if (len == 0 || rest[strspn(rest, " \t")] != '\0')
		return HTTP_CREDENTIAL_MALFORMED;
	*credential = (struct credential){ text, (size_t)(rest - text) };
	return HTTP_OK;
}

const char *
request_origin(const struct request *request, const char *origins)
{
	const char *origin = request->origin == NULL ? "" : request->origin;
	size_t n;

	for (; origins != NULL && *origins != '\0'; origins += n) {
		origins += strspn(origins, CONFIG_SEPARATORS);
		n = strcspn(origins, CONFIG_SEPARATORS);
		if (n > 0 && strncmp(origin, origins, n) == 0 &&
		    origin[n] == '\0')
			return origins;
	}
	return NULL;
}

bool
request_path_is(
    const struct request *request, const char *base_path, const char *name)
{
	const char *parts[] = { request->script_name, request->path_info };
	size_t base_len = strlen(base_path), at = 0;

	for (size_t i = 0; i < 2; i++) {
		const char *part = parts[i] == NULL ? "" : parts[i];

		for (; *part != '\0'; part++, at++)
			if (*part != (at < base_len ? base_path[at]
						    : name[at - base_len]))
				return false;
	}
	return at == base_len + strlen(name);
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
	const char *coding = request->transfer_encoding;

	if (text == NULL || *text == '\0')
		return coding != NULL && strcasecmp(coding, "chunked") == 0
			   ? REQUEST_LENGTH_CHUNKED
			   : REQUEST_LENGTH_ABSENT;
	/* strtoul alone would accept signs and spaces. */
	if (text[strspn(text, "0123456789")] != '\0')
		return REQUEST_LENGTH_BAD;
	*length = strtoul(text, NULL, 10);
	return REQUEST_LENGTH_OK;
}
