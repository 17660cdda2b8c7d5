/*
 * tokens: the bearer tokens that are known, from the token file.
 *
 * The file has a line a token,
 *
 *	NAME SHA256HEX [EXPIRES] [# comment]
 *
 * with spaces or tabs between; NAME is 1 to 64 of A-Z a-z 0-9 . _ - and occurs
 * once, SHA256HEX is the digest of the token in 64 lower-case hex digits and
 * occurs once as well, EXPIRES is an RFC 3339 date-time.  Empty lines and lines that begin with '#'
 * are allowed.  Only digests are kept.  The only module that knows the crypto
 * library.
 *
 * A set belongs to one thread.
 */
#ifndef HTTP_TOKENS_H
#define HTTP_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/errors.h"

/* A file larger than this is refused: some 10,000 tokens. */
#define TOKENS_FILE_BYTES_MAX ((size_t)1 << 20)
#define TOKENS_NAME_MAX 64
#define TOKENS_DIGEST_LEN 32
/* "pst_" and 32 random bytes as base64url without padding */
#define TOKENS_TOKEN_LEN 47

struct token {
	char name[TOKENS_NAME_MAX + 1];
	unsigned char digest[TOKENS_DIGEST_LEN];
	bool expires;
	int64_t expires_ms; /* since 1970, if `expires` */
	char created[25];   /* from a comment "created TIME"; "" if none */
};

struct tokens; /* a set */

/*
 * tokens_open(path, status, error, error_len):
 * Read the file at `path`, which must stay.  NULL, with one line in `error`
 * that names file, line and remedy and a value of sysexits.h in `status`:
 * EX_CONFIG if it is missing, accessible to others (any of mode 0007),
 * malformed, has a name or a digest twice, or has no token; EX_NOPERM,
 * EX_IOERR or EX_OSERR if it cannot be read.  An expired token counts as one.
 */
struct tokens *tokens_open(
    const char *path, int *status, char *error, size_t error_len);

/*
 * tokens_refresh(tokens, now_ms):
 * Read the file again if it has changed (inode, size, times); looked at no
 * more than once a second, by `now_ms` (any clock that does not go back).  A
 * file that tokens_open would refuse leaves the set as it was and is logged
 * once.
 */
void tokens_refresh(struct tokens *tokens, int64_t now_ms);

/*
 * tokens_recheck():
 * Have every set of this process look at its file at its next tokens_refresh,
 * whatever the time.  Any thread.
 */
void tokens_recheck(void);

/*
 * tokens_find(tokens, token, len, now_ms, name):
 * Look up a token by its digest, in constant time over all entries; `now_ms`
 * is the time since 1970.  HTTP_OK with the token's name, which stays until
 * the next tokens_refresh; HTTP_CREDENTIAL_UNKNOWN; HTTP_CREDENTIAL_EXPIRED;
 * HTTP_INTERNAL if the crypto library fails.
 */
enum http_error tokens_find(struct tokens *tokens, const char *token,
    size_t len, int64_t now_ms, const char **name);

/*
 * tokens_count(tokens), tokens_get(tokens, i):
 * The entries, in the file's order.
 */
size_t tokens_count(const struct tokens *tokens);
const struct token *tokens_get(const struct tokens *tokens, size_t i);

/*
 * tokens_close(tokens):
 * Free the set.  NULL is fine.
 */
void tokens_close(struct tokens *tokens);

/*
 * tokens_is_name(text):
 * Whether it has the shape of a token's name.
 */
bool tokens_is_name(const char *text);

/*
 * tokens_add(path, name, expires_ms, token, error, error_len):
 * Make a new random token, add a line for it to the file at `path` (made with
 * mode 0600 if there is none) and give the token, NUL-terminated; it cannot be
 * had again.  `expires_ms` is NULL for a token that does not expire.
 *
 * tokens_revoke(path, name, error, error_len):
 * Remove the line of `name`.  To remove the last one is an error, since the
 * service could not start then.
 *
 * Both replace the file in one step that survives a power cut, keep every
 * other line, the mode and the owner, and exclude each other through a lock.
 * Return 0; or a status of sysexits.h with one line in `error`, the file
 * unchanged (but where the line says that its directory was not synced).
 */
int tokens_add(const char *path, const char *name, const int64_t *expires_ms,
    char token[static TOKENS_TOKEN_LEN + 1], char *error, size_t error_len);
int tokens_revoke(
    const char *path, const char *name, char *error, size_t error_len);

#endif
