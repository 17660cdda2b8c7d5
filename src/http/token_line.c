/* token_line: reads a line of the token file.  See http/tokens.h. */
#include "http/tokens.h"

#include <string.h>
#include <sys/param.h>

#include "pure/timestamp.h"

#define DIGITS "0123456789"
#define NAME_CHARACTERS \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" DIGITS "._-"
#define BLANKS " \t"
#define CREATED "created "

bool
tokens_is_name(const char *text)
{
	size_t len = strlen(text);

	return len >= 1 && len <= TOKENS_NAME_MAX &&
	       strspn(text, NAME_CHARACTERS) == len;
}

static bool
read_digest(const char *hex, size_t len, unsigned char *digest)
{
	static const char digits[] = DIGITS "abcdef";

	if (len != 2 * TOKENS_DIGEST_LEN || strspn(hex, digits) < len)
		return false;
	for (size_t i = 0; i < len; i++)
		digest[i / 2] =
		    (unsigned char)(digest[i / 2] << 4 |
				    (strchr(digits, hex[i]) - digits));
	return true;
}

/* Skip `len` bytes and blanks.  Return the length of the next field, or 0. */
static size_t
next_field(char **at, size_t len)
{
	*at += len;
	*at += strspn(*at, BLANKS);
	return **at == '#' ? 0 : strcspn(*at, BLANKS "\n");
}

const char *
tokens_read_line(char *at, struct token *token)
{
	int64_t created_ms;

	token->text = at;
	size_t len = next_field(&at, 0);
	if (len == 0)
		return NULL;
	memcpy(token->name, at, MIN(len, TOKENS_NAME_MAX));
	if (len > TOKENS_NAME_MAX || !tokens_is_name(token->name))
		return "has no valid name (1 to 64 of A-Z a-z 0-9 . _ -)";
	len = next_field(&at, len);
	if (!read_digest(at, len, token->digest))
		return "has no SHA-256 of 64 lower-case hex digits";
	token->digest_end = at + len;
	len = next_field(&at, len);
	token->expires_ms = TOKENS_NEVER;
	if (len > 0 && timestamp_read(at, len, &token->expires_ms) != 0)
		return "has an expiry that is not like 2027-01-31T00:00:00Z";
	if (next_field(&at, len) > 0)
		return "has more than NAME SHA256HEX EXPIRES # COMMENT";
	token->rest = at;
	/* The comment is free text; tokens_edit writes the creation time. */
	at += strspn(at, "#" BLANKS);
	if (strncmp(at, CREATED, strlen(CREATED)) != 0)
		return NULL;
	at += strlen(CREATED);
	len = strcspn(at, BLANKS "\n");
	if (len < sizeof token->created &&
	    timestamp_read(at, len, &created_ms) == 0)
		memcpy(token->created, at, len);
	return NULL;
}
