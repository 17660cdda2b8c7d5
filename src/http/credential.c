/*
 * credential: finds the bearer token in the Authorization header.  Whether the
 * token is known is left to tokens.
 *
 * RFC 9110: credentials = auth-scheme [ 1*SP ( token68 / #auth-param ) ].  A
 * web server that receives two headers joins them with a comma.  Bearer allows
 * only token68 (RFC 6750), which contains neither a comma nor a quote.
 */
#include "http/credential.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define SCHEME "Bearer"
#define SCHEME_LEN (sizeof SCHEME - 1)

/* token68 = 1*( TOKEN68 ) *"=" */
#define TOKEN68                      \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ" \
	"abcdefghijklmnopqrstuvwxyz" \
	"0123456789-._~+/"

static bool
begins_with_bearer(const char *text)
{
	return strncasecmp(text, SCHEME, SCHEME_LEN) == 0 &&
	       (text[SCHEME_LEN] == '\0' ||
		   strchr(" \t,", text[SCHEME_LEN]) != NULL);
}

/* The next comma outside a quoted-string (RFC 9110 5.6.4), or the end. */
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

/* Whether one of the elements from `at` on is a Bearer credential. */
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

enum http_error
credential_read(const char *authorization, struct credential *credential)
{
	const char *text = authorization == NULL ? "" : authorization;
	const char *rest;
	size_t token_len;

	text += strspn(text, " \t");
	if (*text == '\0')
		return HTTP_CREDENTIAL_MISSING;
	if (!list_has_bearer(text))
		return HTTP_CREDENTIAL_SCHEME;
	if (*element_end(text) == ',')
		return HTTP_CREDENTIAL_SEVERAL;
	text += SCHEME_LEN;
	text += strspn(text, " ");
	token_len = strspn(text, TOKEN68);
	if (token_len == 0)
		return HTTP_CREDENTIAL_MALFORMED;
	token_len += strspn(text + token_len, "=");
	rest = text + token_len;
	if (rest[strspn(rest, " \t")] != '\0')
		return HTTP_CREDENTIAL_MALFORMED;

	*credential = (struct credential){ text, token_len };
	return HTTP_OK;
}
