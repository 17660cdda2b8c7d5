/*
 * tokens: a set of tokens as one thread holds it, and the making of new ones.
 * The file's format is token_file's, changing the file token_edit's.
 *
 * The happy path: the file is read into a set; a request's token is hashed and
 * the digest compared with every entry's; once a second a stat tells whether
 * to read again.  A file that cannot be used then leaves the set as it is, so
 * that a typing error does not lock every client out.
 */
#include "http/tokens.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "ground/log.h"
#include "pure/timestamp.h"
#include "token_edit.h"
#include "token_file.h"

#define CHECK_INTERVAL_MS 1000
#define FRESH_S 2
#define TOKEN_PREFIX "pst_"
#define TOKEN_RANDOM_LEN 32
/* EVP_EncodeBlock's: four characters for three bytes, padded, and a NUL. */
#define TOKEN_BASE64_SIZE ((TOKEN_RANDOM_LEN + 2) / 3 * 4 + 1)
/* "2026-11-21T07:21:00", which "Z" follows in the file. */
#define SECONDS_LEN 19

/* How often tokens_recheck was called: all sets of the process see it. */
static atomic_uint rechecks;

struct tokens {
	const char *path;
	struct token_file file;
	struct stat seen; /* all zero: the file was missing */
	bool good;        /* what was seen could be used */
	bool retry;       /* read again though nothing has changed */
	int64_t next_check_ms;
	unsigned rechecked; /* the `rechecks` that were followed */
	EVP_MD *sha256;
	EVP_MD_CTX *context;
};

static int
read_path(
    const char *path, struct token_file *file, char *error, size_t error_len)
{
	int fd, status;

	/* O_NONBLOCK: a FIFO is to be refused, not waited for. */
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return token_file_failed(path, "open", error, error_len);
	status = token_file_read(fd, path, file, error, error_len);
	close(fd);
	if (status == 0 && file->count == 0) {
		snprintf(error, error_len,
		    "%s: there is no token in it; make one with: "
		    "plant-store token add NAME",
		    path);
		token_file_free(file);
		return EX_CONFIG;
	}
	return status;
}

static bool
is_same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* The change time too: a mode that is put right makes a file usable. */
static bool
is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_size == b->st_size &&
	       is_same_time(&a->st_mtim, &b->st_mtim) &&
	       is_same_time(&a->st_ctim, &b->st_ctim);
}

/*
 * Whether another change could still carry the very same times: those of files
 * go in ticks of some milliseconds, and in seconds on some file systems.
 */
static bool
is_fresh(const struct stat *st)
{
	return time(NULL) - st->st_ctim.tv_sec < FRESH_S;
}

/* Fetched once: looking an algorithm up costs more than a digest. */
static int
digest_open(EVP_MD **sha256, EVP_MD_CTX **context)
{
	*sha256 = EVP_MD_fetch(NULL, "SHA2-256", NULL);
	*context = EVP_MD_CTX_new();
	return *sha256 == NULL || *context == NULL ? -1 : 0;
}

static void
digest_close(EVP_MD *sha256, EVP_MD_CTX *context)
{
	EVP_MD_CTX_free(context);
	EVP_MD_free(sha256);
}

static int
digest_make(const EVP_MD *sha256, EVP_MD_CTX *context, const char *token,
    size_t len, unsigned char digest[static TOKENS_DIGEST_LEN])
{
	if (EVP_DigestInit_ex2(context, sha256, NULL) != 1 ||
	    EVP_DigestUpdate(context, token, len) != 1 ||
	    EVP_DigestFinal_ex(context, digest, NULL) != 1)
		return -1;
	return 0;
}

struct tokens *
tokens_open(const char *path, int *status, char *error, size_t error_len)
{
	struct tokens *tokens = calloc(1, sizeof *tokens);
	int failed;

	if (tokens == NULL) {
		*status = token_file_failed(path, "read", error, error_len);
		return NULL;
	}
	tokens->path = path;
	tokens->next_check_ms = INT64_MIN;
	tokens->rechecked = atomic_load(&rechecks);
	if (digest_open(&tokens->sha256, &tokens->context) != 0) {
		snprintf(error, error_len,
		    "libcrypto has no SHA-256; check its installation");
		*status = EX_OSERR;
		goto fail;
	}
	failed = read_path(path, &tokens->file, error, error_len);
	if (failed != 0) {
		/* Where tokens are needed, none is a wrong set-up. */
		*status = failed == EX_NOINPUT ? EX_CONFIG : failed;
		goto fail;
	}
	tokens->seen = tokens->file.stat;
	tokens->good = true;
	tokens->retry = is_fresh(&tokens->seen);
	return tokens;

fail:
	digest_close(tokens->sha256, tokens->context);
	free(tokens);
	return NULL;
}

void
tokens_refresh(struct tokens *tokens, int64_t now_ms)
{
	struct token_file file;
	struct stat now;
	char error[512];
	unsigned wanted = atomic_load(&rechecks);
	bool news;
	int status;

	if (now_ms < tokens->next_check_ms && wanted == tokens->rechecked)
		return;
	tokens->rechecked = wanted;
	tokens->next_check_ms = now_ms + CHECK_INTERVAL_MS;
	if (stat(tokens->path, &now) != 0)
		now = (struct stat){ 0 };
	news = !is_same_file(&now, &tokens->seen);
	if (!news && !tokens->retry)
		return;

	status = read_path(tokens->path, &file, error, sizeof error);
	news = news || tokens->good != (status == 0);
	tokens->good = status == 0;
	tokens->seen = status == 0 ? file.stat : now;
	tokens->retry =
	    status == EX_OSERR || status == EX_IOERR || is_fresh(&tokens->seen);
	if (status != 0) {
		if (news)
			log_error("%s; until then the tokens of the last good "
				  "file stay in use (%zu)",
			    error, tokens->file.count);
		return;
	}
	token_file_free(&tokens->file);
	tokens->file = file;
	if (news)
		log_info("%s: read again; tokens in use: %zu", tokens->path,
		    file.count);
}

void
tokens_recheck(void)
{
	atomic_fetch_add(&rechecks, 1);
}

enum http_error
tokens_find(struct tokens *tokens, const char *token, size_t len,
    int64_t now_ms, const char **name)
{
	unsigned char digest[TOKENS_DIGEST_LEN];
	const struct token *found = NULL;

	if (digest_make(tokens->sha256, tokens->context, token, len, digest) !=
	    0)
		return HTTP_INTERNAL;
	/* No early end: the time must not tell which entry it was. */
	for (size_t i = 0; i < tokens->file.count; i++) {
		const struct token *entry = &tokens->file.lines[i].token;

		if (CRYPTO_memcmp(digest, entry->digest, sizeof digest) == 0)
			found = entry;
	}
	if (found == NULL)
		return HTTP_CREDENTIAL_UNKNOWN;
	if (found->expires && found->expires_ms <= now_ms)
		return HTTP_CREDENTIAL_EXPIRED;
	*name = found->name;
	return HTTP_OK;
}

size_t
tokens_count(const struct tokens *tokens)
{
	return tokens->file.count;
}

const struct token *
tokens_get(const struct tokens *tokens, size_t i)
{
	return &tokens->file.lines[i].token;
}

void
tokens_close(struct tokens *tokens)
{
	if (tokens == NULL)
		return;
	token_file_free(&tokens->file);
	digest_close(tokens->sha256, tokens->context);
	free(tokens);
}

bool
tokens_is_name(const char *text)
{
	return token_file_is_name(text, strlen(text));
}

/* "pst_" and random bytes in base64url (RFC 4648 section 5), no padding. */
static int
token_make(char token[static TOKENS_TOKEN_LEN + 1])
{
	unsigned char random[TOKEN_RANDOM_LEN];
	unsigned char base64[TOKEN_BASE64_SIZE];

	if (RAND_bytes(random, sizeof random) != 1)
		return -1;
	EVP_EncodeBlock(base64, random, sizeof random);
	for (size_t i = 0; i < sizeof base64; i++) {
		if (base64[i] == '+')
			base64[i] = '-';
		else if (base64[i] == '/')
			base64[i] = '_';
	}
	snprintf(token, TOKENS_TOKEN_LEN + 1, TOKEN_PREFIX "%.*s",
	    TOKENS_TOKEN_LEN - (int)strlen(TOKEN_PREFIX), (const char *)base64);
	OPENSSL_cleanse(random, sizeof random);
	OPENSSL_cleanse(base64, sizeof base64);
	return 0;
}

/* The line of a token that is made now, from malloc. */
static char *
line_make(const char *name, const int64_t *expires_ms,
    const unsigned char digest[static TOKENS_DIGEST_LEN])
{
	char hex[2 * TOKENS_DIGEST_LEN + 1];
	char expires[TIMESTAMP_LEN] = "";
	char created[TIMESTAMP_LEN];
	struct timespec now;
	char *line;
	int n;

	for (size_t i = 0; i < TOKENS_DIGEST_LEN; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	clock_gettime(CLOCK_REALTIME, &now);
	timestamp_print((int64_t)now.tv_sec * 1000, created);
	if (expires_ms != NULL)
		timestamp_print(*expires_ms, expires);
	n = asprintf(&line, "%s %s%s%.*s%s # created %.*sZ\n", name, hex,
	    expires_ms == NULL ? "" : " ", expires_ms == NULL ? 0 : SECONDS_LEN,
	    expires, expires_ms == NULL ? "" : "Z", SECONDS_LEN, created);
	return n < 0 ? NULL : line;
}

/* A new token and its line. */
static int
token_and_line(const char *name, const int64_t *expires_ms,
    char token[static TOKENS_TOKEN_LEN + 1], char **line)
{
	unsigned char digest[TOKENS_DIGEST_LEN];
	EVP_MD *sha256;
	EVP_MD_CTX *context;
	int result = -1;

	if (digest_open(&sha256, &context) == 0 && token_make(token) == 0 &&
	    digest_make(sha256, context, token, TOKENS_TOKEN_LEN, digest) ==
		0) {
		*line = line_make(name, expires_ms, digest);
		result = *line == NULL ? -1 : 0;
	}
	digest_close(sha256, context);
	return result;
}

int
tokens_add(const char *path, const char *name, const int64_t *expires_ms,
    char token[static TOKENS_TOKEN_LEN + 1], char *error, size_t error_len)
{
	char made[TOKENS_TOKEN_LEN + 1] = "";
	char *line = NULL;
	int status;

	if (!tokens_is_name(name)) {
		snprintf(error, error_len,
		    "'%.*s%s' is not a token's name; use 1 to %d of "
		    "A-Z a-z 0-9 . _ -",
		    TOKENS_NAME_MAX, name,
		    strlen(name) > TOKENS_NAME_MAX ? "..." : "",
		    TOKENS_NAME_MAX);
		return EX_USAGE;
	}
	if (token_and_line(name, expires_ms, made, &line) != 0) {
		snprintf(error, error_len,
		    "libcrypto cannot make a token; check its installation "
		    "and the memory that is free");
		status = EX_OSERR;
	} else {
		status = token_edit_add(path, name, line, error, error_len);
	}
	if (status == 0)
		memcpy(token, made, sizeof made);
	OPENSSL_cleanse(made, sizeof made);
	free(line);
	return status;
}

int
tokens_revoke(const char *path, const char *name, char *error, size_t error_len)
{
	return token_edit_remove(path, name, error, error_len);
}
