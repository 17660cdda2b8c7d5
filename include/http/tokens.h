/*
 * tokens: the bearer tokens in the token file, and edits of that file.  No
 * other module uses the crypto library.
 *
 * The file has one line for each token,
 *
 *	NAME SHA256HEX [EXPIRES] [# comment]
 *
 * with spaces or tabs between the fields.  NAME has 1 to 64 characters: A-Z a-z
 * 0-9 . _ or -.  SHA256HEX is the token's digest in 64 lower-case hex digits.
 * Neither may occur twice, except the name of a renewed token: both tokens are
 * valid, and the first line has EXPIRES, an RFC 3339 date-time.  Empty lines
 * and lines that begin with '#' are allowed.
 *
 * The file, its directory and the directory of a symbolic link's target must
 * belong to root or to the service's user.  Others must have no access to the
 * file, and no write access to the directories.  Write access for the group is
 * allowed, with a warning.
 *
 * All threads of a process may use one set, except where stated otherwise.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ground/fault.h"
#include "http/errors.h"

/* A larger file is refused; about 10,000 tokens fit. */
#define TOKENS_FILE_BYTES_MAX ((size_t)1 << 20)
#define TOKENS_NAME_MAX 64
#define TOKENS_DIGEST_LEN 32
/* "pst_" and 32 random bytes as base64url without padding */
#define TOKENS_TOKEN_LEN 47
/* The expiry of a token that never expires. */
#define TOKENS_NEVER INT64_MAX
/* A `user` that accepts any owner of the file and its directory. */
#define TOKENS_ANY_USER (~(uid_t)0)

/* A token that a client presents. */
struct credential {
	const char *token; /* not NUL-terminated */
	size_t len;
};

/* A token in the file. */
struct token {
	char name[TOKENS_NAME_MAX + 1];
	unsigned char digest[TOKENS_DIGEST_LEN];
	int64_t expires_ms; /* since 1970, or TOKENS_NEVER */
	char created[25];   /* from a comment "created TIME"; "" if none */
	size_t line;        /* its number in the file, from 1 */
	bool renewed;       /* the name's other token replaces it */
	/* In the file's text: the line, the digest's end, the comment. */
	char *text, *digest_end, *rest;
};

/* An edit of the tokens with one name, which must satisfy tokens_is_name. */
struct tokens_edit {
	const char *name;
	enum {
		TOKENS_ADD,
		TOKENS_RENEW,
		TOKENS_REVOKE,
		TOKENS_REVOKE_OLD
	} kind;
	int64_t expires_ms; /* of the new token */
	int64_t until_ms;   /* when the old token expires, at the latest */
};

struct tokens; /* a set */

/*
 * tokens_open(path, user, fault):
 * Read the file for a service that runs as `user`, or TOKENS_ANY_USER.  `path`
 * must outlive the set.  Return the set; or NULL with a fault, logged:
 * FAULT_SETUP if the file is missing or malformed, or has wrong permissions.
 *
 * tokens_close(tokens):
 * Free the set, which no thread may still use.  NULL is allowed.
 *
 * tokens_warning(tokens):
 * Return the warning or error of the last read, without the path, for example
 * that the file has no token; or NULL.  Valid until the next refresh.
 */
struct tokens *tokens_open(const char *path, uid_t user, enum fault *fault);
void tokens_close(struct tokens *tokens);
const char *tokens_warning(const struct tokens *tokens);

/*
 * tokens_refresh(tokens, now_ms), tokens_recheck(tokens):
 * Read the file again if its inode or change time has changed, or if the last
 * read failed.  tokens_recheck checks at once; tokens_refresh, at most once a
 * second by the monotonic `now_ms`.  If the file is missing or has no token, no
 * token is valid, so an operator can revoke all at once.  If tokens_open would
 * refuse the file for another reason, the set does not change.  Each change is
 * logged once.
 *
 * tokens_find(tokens, credential, now_ms, name):
 * Return HTTP_OK and write the token's name; or HTTP_CREDENTIAL_UNKNOWN or
 * _EXPIRED, or HTTP_INTERNAL if the library fails.  `now_ms` is since 1970.
 *
 * tokens_next_expiry(tokens, now_ms):
 * Return the earliest expiry of the valid tokens, which may be TOKENS_NEVER; 0
 * if there is none.  A renewed token counts only if no other token is valid.
 *
 * tokens_list(tokens, count):
 * Return the tokens in the file's order; valid until any thread refreshes them.
 */
void tokens_refresh(struct tokens *tokens, int64_t now_ms);
void tokens_recheck(struct tokens *tokens);
enum http_error tokens_find(struct tokens *tokens,
    const struct credential *credential, int64_t now_ms,
    char name[static TOKENS_NAME_MAX + 1]);
int64_t tokens_next_expiry(struct tokens *tokens, int64_t now_ms);
const struct token *tokens_list(const struct tokens *tokens, size_t *count);

/*
 * tokens_is_name(text):
 * Return whether `text` has the form of a token's name.
 *
 * tokens_read_line(line, token):
 * Read a line of the file into `token`.  Return NULL; or the mistake, as a
 * static English string.  A line without a token leaves the name empty.
 *
 * tokens_edit(path, edit, token):
 * TOKENS_ADD: create a random token, write it NUL-terminated into `token`, and
 * add its line to the file, which is created with mode 0600 if missing.
 * TOKENS_RENEW: do the same for a name that has one token.  TOKENS_REVOKE:
 * remove the name's lines.  TOKENS_REVOKE_OLD: only the replaced token's.
 *
 * The file may have any owner.  It is replaced atomically and durably, and
 * keeps its other lines, mode and owner; a lock on the directory excludes other
 * edits.  FAULT_NAME if the name does not have the tokens that the edit needs,
 * FAULT_OUTPUT if the directory is missing, or another fault; all are logged.
 * The file is then unchanged, unless the log states otherwise.
 */
bool tokens_is_name(const char *text);
const char *tokens_read_line(char *line, struct token *token);
enum fault tokens_edit(
    const char *path, const struct tokens_edit *edit, char *token);
