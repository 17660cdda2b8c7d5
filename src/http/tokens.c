/*
 * tokens: the set of known tokens, and the file that it comes from.
 *
 * The file is read into a set, sorted by digest for a binary search.  One
 * thread checks once a second whether the file has changed, and reads it again
 * if it has.  An edit locks the directory, reads the file, writes a new one
 * with the same owner and mode, syncs, renames, and syncs the directory.
 *
 * One malformed line makes the whole file invalid, since skipping it could undo
 * a revocation.  No message quotes a line: it may be a token by mistake.
 */
#include "http/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ground/clock.h"
#include "ground/file.h"
#include "ground/log.h"
#include "pure/timestamp.h"

#define CHECK_INTERVAL_MS 1000
#define FRESH_S 2
/* A one-byte name, a blank, the digest and a newline. */
#define LINE_BYTES_MIN (3 + 2 * TOKENS_DIGEST_LEN)
/* A line with the longest name, the digest and two times is shorter. */
#define LINE_BYTES_MAX 256
/* Room for the file, a newline, a NUL, and the two lines that an edit adds. */
#define TEXT_BYTES (TOKENS_FILE_BYTES_MAX + 2 + 2 * LINE_BYTES_MAX + 1)
#define ADD_ONE "; add one with: plant-store token add NAME"
#define BESIDE ".new"
/* How long to wait for the lock, which an edit holds for a few milliseconds. */
#define WAIT_MS 2000
#define RETRY_MS 10
#define TOKEN_RANDOM_LEN 32

/* The tokens from one read of the file. */
struct set {
	const char *path;
	uid_t user;           /* see tokens_open */
	struct stat stat;     /* all zero if there is no file */
	char *text;           /* the file and a NUL; "" if there is no file */
	struct token *tokens; /* in the order of the file */
	const struct token **sorted; /* `tokens`, sorted by digest */
	size_t count;
	char notice[512]; /* the error or warning, without path; "" if none */
};

struct tokens {
	EVP_MD *sha256;
	_Atomic int64_t next_check_ms;
	pthread_mutex_t lock; /* protects the members below */
	struct set set; /* of the last good file; `stat` and `notice` are of
			   the last check */
	/*
	 * Read the file again even if its change time is the same: that time
	 * advances in ticks, a second on some systems, and can miss a change.
	 */
	bool retry;
};

__attribute__((format(printf, 3, 4))) static enum fault
note(struct set *set, enum fault fault, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(set->notice, sizeof set->notice, format, args);
	va_end(args);
	return fault;
}

static enum fault
note_errno(struct set *set, const char *what)
{
	enum fault fault = fault_of(errno);

	return note(set, fault, "%s: %s%s", what, strerror(errno),
	    fault == FAULT_ABSENT ? ADD_ONE : fault_remedy(errno));
}

static enum fault
note_directory(struct set *set, const char *name, enum fault fault)
{
	return note(set, fault,
	    "its directory is missing; run: install -d -g plant-store "
	    "-m 0750 %s && install -g plant-store -m 0640 /dev/null %s",
	    name, set->path);
}

/* Check the owner and mode of `name`, the file or its directory. */
static enum fault
check_rights(struct set *set, const struct stat *st, const char *name)
{
	bool directory = S_ISDIR(st->st_mode);
	const char *it = directory ? "its directory" : "it";
	unsigned mode = st->st_mode & 07777;

	if (set->user != TOKENS_ANY_USER && st->st_uid != 0 &&
	    st->st_uid != set->user)
		return note(set, FAULT_SETUP,
		    "%s belongs to user %u; run: chown %u %s", it, st->st_uid,
		    set->user, name);
	if ((mode & (directory ? S_IWOTH : S_IRWXO)) != 0)
		return note(set, FAULT_SETUP,
		    "others have access to %s (mode %04o); run: chmod %s %s",
		    it, mode, directory ? "o-w" : "o=", name);
	if ((mode & S_IWGRP) != 0)
		note(set, FAULT_NONE,
		    "its group can write to %s (mode %04o); run: chmod g-w %s",
		    it, mode, name);
	return FAULT_NONE;
}

static enum fault
read_lines(struct set *set, size_t len)
{
	char *at = set->text, *end = at + len;

	for (size_t number = 1; at < end; at++, number++) {
		struct token token = { .line = number };
		const char *wrong = tokens_read_line(at, &token);

		at += strcspn(at, "\n");
		if (*at == '\0')
			wrong = "contains a NUL byte";
		if (wrong != NULL)
			return note(set, FAULT_SETUP,
			    "line %zu %s; correct or remove it", number, wrong);
		if (token.name[0] == '\0')
			continue;
		set->sorted[set->count] = &set->tokens[set->count];
		set->tokens[set->count++] = token;
	}
	if (set->count == 0)
		note(set, FAULT_NONE,
		    "there is no token in it: every request is answered "
		    "401" ADD_ONE);
	return FAULT_NONE;
}

static int
compare_names(const void *a, const void *b)
{
	const struct token *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static int
compare_digests(const void *a, const void *b)
{
	const struct token *const *x = a, *const *y = b;

	return memcmp((*x)->digest, (*y)->digest, TOKENS_DIGEST_LEN);
}

/*
 * Sort the tokens by a key that no two of them may share, except the name of a
 * renewed token.  A token with two names would still be valid after one is
 * revoked, and the journal would name the wrong client.
 */
static enum fault
sort(struct set *set, const char *key,
    int (*compare)(const void *, const void *))
{
	qsort(set->sorted, set->count, sizeof *set->sorted, compare);
	for (size_t i = 1; i < set->count; i++) {
		const struct token *a = set->sorted[i - 1], *b = set->sorted[i];
		const struct token *first = a->line < b->line ? a : b;
		const struct token *other = first == a ? b : a;

		if (compare(&a, &b) != 0)
			continue;
		/* A name may have two tokens, but not a third. */
		if (compare == compare_names &&
		    first->expires_ms != TOKENS_NEVER &&
		    (i == 1 || compare(&set->sorted[i - 2], &a) != 0))
			set->tokens[first - set->tokens].renewed = true;
		else
			return note(set, FAULT_SETUP,
			    "line %zu, %s, has the %s of line %zu, %s; remove "
			    "one of them",
			    other->line, other->name, key, first->line,
			    first->name);
	}
	return FAULT_NONE;
}

static enum fault
read_file(struct set *set, int fd)
{
	enum fault fault;
	ssize_t len;

	if (fstat(fd, &set->stat) != 0)
		return note_errno(set, "cannot read");
	if (!S_ISREG(set->stat.st_mode))
		return note(set, FAULT_SETUP,
		    "not a regular file; name the token file");
	fault = check_rights(set, &set->stat, set->path);
	if (fault != FAULT_NONE)
		return fault;
	/* Read one byte above the limit to detect a file that is too large. */
	len = file_read_all(fd, set->text, TOKENS_FILE_BYTES_MAX + 1, 0);
	if (len < 0)
		return note_errno(set, "cannot read");
	if ((size_t)len > TOKENS_FILE_BYTES_MAX)
		return note(set, FAULT_SETUP,
		    "larger than %zu bytes; remove tokens that are not used",
		    TOKENS_FILE_BYTES_MAX);
	if (len > 0 && set->text[len - 1] != '\n')
		set->text[len++] = '\n';
	set->text[len] = '\0';
	size_t most = (size_t)len / LINE_BYTES_MIN;
	set->tokens = calloc(most + 1, sizeof *set->tokens);
	set->sorted = calloc(most + 1, sizeof *set->sorted);
	if (set->tokens == NULL || set->sorted == NULL)
		return note_errno(set, "cannot read");
	if ((fault = read_lines(set, (size_t)len)) != FAULT_NONE ||
	    (fault = sort(set, "name", compare_names)) != FAULT_NONE)
		return fault;
	return sort(set, "digest", compare_digests);
}

/* The directory that holds `path`, in `buf`. */
static const char *
directory_of(const char *path, char buf[static PATH_MAX])
{
	snprintf(buf, PATH_MAX, "%s", path);
	return dirname(buf);
}

static enum fault
check_directory(struct set *set, const char *path)
{
	char buf[PATH_MAX];
	const char *directory = directory_of(path, buf);
	struct stat st;

	if (stat(directory, &st) == 0)
		return check_rights(set, &st, directory);
	return errno == ENOENT ? note_directory(set, directory, FAULT_ABSENT)
			       : note_errno(set, "cannot find its directory");
}

/*
 * Read the file of a set that is zero except for `path` and `user`.  Return
 * FAULT_NONE, or a fault with the error in `notice`.  Then call free_set.
 */
static enum fault
read_set(struct set *set)
{
	/* O_NONBLOCK: the open does not wait for the writer of a FIFO. */
	const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	enum fault fault = check_directory(set, set->path);
	char real[PATH_MAX];
	int fd;

	/* A user who can write to a link target's directory can replace it. */
	if (fault == FAULT_NONE && realpath(set->path, real) != NULL)
		fault = check_directory(set, real);
	if (fault != FAULT_NONE)
		return fault;
	set->text = calloc(1, TEXT_BYTES);
	if (set->text == NULL)
		return note_errno(set, "cannot read");
	fd = open(set->path, flags);
	if (fd < 0)
		return note_errno(set, "cannot open");
	fault = read_file(set, fd);
	close(fd);
	return fault;
}

static void
free_set(struct set *set)
{
	free(set->text);
	free(set->tokens);
	free(set->sorted);
}

static bool
is_fresh(const struct stat *st)
{
	return time(NULL) - st->st_ctim.tv_sec < FRESH_S;
}

struct tokens *
tokens_open(const char *path, uid_t user, enum fault *fault)
{
	struct tokens *tokens = calloc(1, sizeof *tokens);

	if (tokens == NULL) {
		*fault = fault_report(path, "cannot read");
		return NULL;
	}
	struct set *set = &tokens->set;
	*set = (struct set){ .path = path, .user = user };
	pthread_mutex_init(&tokens->lock, NULL);
	/* Fetched once: the lookup takes longer than a digest. */
	tokens->sha256 = EVP_MD_fetch(NULL, "SHA2-256", NULL);
	*fault = tokens->sha256 != NULL
		     ? read_set(set)
		     : note(set, FAULT_MEMORY,
			   "libcrypto has no SHA-256 or no memory; check both");
	tokens->retry = is_fresh(&set->stat);
	if (*fault == FAULT_NONE) {
		if (set->notice[0] != '\0')
			log_warning("%s: %s", path, set->notice);
		return tokens;
	}
	log_error("%s: %s", path, set->notice);
	if (*fault == FAULT_ABSENT)
		*fault = FAULT_SETUP;
	tokens_close(tokens);
	return NULL;
}

const char *
tokens_warning(const struct tokens *tokens)
{
	return tokens->set.notice[0] == '\0' ? NULL : tokens->set.notice;
}

static void
refresh(struct tokens *tokens)
{
	struct set *set = &tokens->set;
	struct set read = { .path = set->path, .user = set->user };
	struct stat now;

	if (stat(set->path, &now) != 0)
		now = (struct stat){ 0 };
	/* Each change of text, owner or mode changes st_ctim. */
	bool news =
	    now.st_dev != set->stat.st_dev || now.st_ino != set->stat.st_ino ||
	    memcmp(&now.st_ctim, &set->stat.st_ctim, sizeof now.st_ctim) != 0;
	if (!news && !tokens->retry)
		return;
	enum fault fault = read_set(&read);
	bool good = fault == FAULT_NONE || fault == FAULT_ABSENT;
	news = news || strcmp(read.notice, set->notice) != 0;
	free_set(good ? set : &read);
	if (good)
		*set = read;
	else {
		strcpy(set->notice, read.notice);
		set->stat = now;
	}
	/* Repairing the disk or the directory does not change the file. */
	tokens->retry = !good || is_fresh(&set->stat);
	if (news && !good)
		log_error("%s: %s; until then the tokens of the last good file "
			  "stay in use (%zu)",
		    set->path, set->notice, set->count);
	else if (news)
		log_at(set->notice[0] != '\0' ? LOG_AT_WARNING : LOG_AT_INFO,
		    "%s: %s; tokens in use: %zu", set->path,
		    set->notice[0] != '\0' ? set->notice : "read again",
		    set->count);
}

void
tokens_recheck(struct tokens *tokens)
{
	pthread_mutex_lock(&tokens->lock);
	refresh(tokens);
	pthread_mutex_unlock(&tokens->lock);
}

void
tokens_refresh(struct tokens *tokens, int64_t now_ms)
{
	if (now_ms < tokens->next_check_ms)
		return;
	/* Two threads may get here at once; a second check does no harm. */
	tokens->next_check_ms = now_ms + CHECK_INTERVAL_MS;
	tokens_recheck(tokens);
}

enum http_error
tokens_find(struct tokens *tokens, const struct credential *credential,
    int64_t now_ms, char name[static TOKENS_NAME_MAX + 1])
{
	struct token key;
	const struct token *wanted = &key, **found = NULL;
	enum http_error error = HTTP_OK;

	if (EVP_Digest(credential->token, credential->len, key.digest, NULL,
		tokens->sha256, NULL) != 1)
		return HTTP_INTERNAL;
	pthread_mutex_lock(&tokens->lock);
	/* The search time depends on digests, which disclose no token. */
	if (tokens->set.count > 0)
		found = bsearch(&wanted, tokens->set.sorted, tokens->set.count,
		    sizeof wanted, compare_digests);
	if (found == NULL)
		error = HTTP_CREDENTIAL_UNKNOWN;
	else if ((*found)->expires_ms <= now_ms)
		error = HTTP_CREDENTIAL_EXPIRED;
	else
		memcpy(name, (*found)->name, sizeof key.name);
	pthread_mutex_unlock(&tokens->lock);
	return error;
}

int64_t
tokens_next_expiry(struct tokens *tokens, int64_t now_ms)
{
	int64_t next_ms = 0, renewed_ms = 0;

	pthread_mutex_lock(&tokens->lock);
	for (size_t i = 0; i < tokens->set.count; i++) {
		const struct token *token = &tokens->set.tokens[i];
		int64_t *least_ms = token->renewed ? &renewed_ms : &next_ms;

		if (token->expires_ms > now_ms &&
		    (*least_ms == 0 || token->expires_ms < *least_ms))
			*least_ms = token->expires_ms;
	}
	pthread_mutex_unlock(&tokens->lock);
	return next_ms != 0 ? next_ms : renewed_ms;
}

const struct token *
tokens_list(const struct tokens *tokens, size_t *count)
{
	*count = tokens->set.count;
	return tokens->set.tokens;
}

void
tokens_close(struct tokens *tokens)
{
	if (tokens == NULL)
		return;
	free_set(&tokens->set);
	EVP_MD_free(tokens->sha256);
	pthread_mutex_destroy(&tokens->lock);
	free(tokens);
}

/* Open and lock the token file's directory; closing `*fd` unlocks it. */
static enum fault
lock(struct set *set, int *fd)
{
	char buf[PATH_MAX];
	const char *name = directory_of(set->path, buf);

	*fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*fd < 0 && errno == ENOENT)
		return note_directory(set, name, FAULT_OUTPUT);
	if (*fd < 0)
		return note_errno(set, "cannot open its directory");
	int left = WAIT_MS / RETRY_MS;
	for (; flock(*fd, LOCK_EX | LOCK_NB) != 0; left--) {
		if (left == 0 && errno == EWOULDBLOCK)
			errno = ETIMEDOUT;
		if (errno != EWOULDBLOCK)
			return note_errno(set, "cannot lock its directory");
		usleep(RETRY_MS * 1000);
	}
	return FAULT_NONE;
}

/* Check that the name has the tokens that the edit needs. */
static enum fault
check_edit(struct set *set, const struct tokens_edit *edit,
    const struct token *last, const struct token *renewed)
{
	const char *wrong = NULL;

	if (edit->kind == TOKENS_ADD && last != NULL)
		wrong = "is taken; choose another, or run: plant-store token "
			"renew";
	else if (edit->kind != TOKENS_ADD && last == NULL)
		wrong = "is unknown; see: plant-store token list";
	else if (edit->kind == TOKENS_RENEW && renewed != NULL &&
		 renewed->expires_ms > clock_ms(CLOCK_REALTIME))
		wrong = "has two tokens; revoke the older one first, with: "
			"plant-store token revoke --old";
	else if (edit->kind == TOKENS_REVOKE_OLD && renewed == NULL)
		wrong = "has one token, which was not renewed";
	return wrong == NULL
		   ? FAULT_NONE
		   : note(set, FAULT_NAME, "the name %s %s", edit->name, wrong);
}

/* Replace the text from `from` to `to` with `with`, for which there is room. */
static void
substitute(char *from, const char *to, const char *with)
{
	memmove(from + strlen(with), to, strlen(to) + 1);
	memcpy(from, with, strlen(with));
}

/*
 * Change the text from its end backwards: a change moves what follows it.  A
 * renewed token's line, which comes before the name's other line, is removed:
 * the edit revokes it, or it has expired.
 */
static enum fault
change_text(struct set *set, const struct tokens_edit *edit, const char *line)
{
	const struct token *last = NULL, *renewed = NULL;
	char time[TIMESTAMP_LEN], until[TIMESTAMP_LEN];

	for (size_t i = 0; i < set->count; i++) {
		const struct token *token = &set->tokens[i];

		if (strcmp(token->name, edit->name) == 0)
			*(token->renewed ? &renewed : &last) = token;
	}
	enum fault fault = check_edit(set, edit, last, renewed);
	if (fault != FAULT_NONE)
		return fault;
	strcat(set->text, line);
	if (edit->kind == TOKENS_RENEW) {
		timestamp_print(MIN(edit->until_ms, last->expires_ms), time);
		sprintf(until, " " TIMESTAMP_SECONDS " ", time);
		substitute(last->digest_end, last->rest, until);
	} else if (edit->kind == TOKENS_REVOKE)
		substitute(last->text, strchr(last->rest, '\n') + 1, "");
	if (renewed != NULL)
		substitute(renewed->text, strchr(renewed->rest, '\n') + 1, "");
	return FAULT_NONE;
}

/* Replace the file, atomically and durably, with one of the set's text. */
static enum fault
replace(struct set *set, int directory)
{
	const char *text = set->text;
	const struct stat *old = &set->stat;
	const char *what = NULL;
	char beside[PATH_MAX + sizeof BESIDE];
	enum fault fault = FAULT_NONE;
	int fd;

	if (strlen(text) > TOKENS_FILE_BYTES_MAX)
		return note(set, FAULT_SETUP,
		    "would be larger than %zu bytes; revoke tokens that are "
		    "not used",
		    TOKENS_FILE_BYTES_MAX);
	snprintf(beside, sizeof beside, "%s" BESIDE, set->path);
	unlink(beside);
	fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return note_errno(set, "cannot write beside it");
	if (old->st_nlink > 0 && (fchown(fd, old->st_uid, old->st_gid) != 0 ||
				     fchmod(fd, old->st_mode & 07777) != 0))
		what = "cannot keep its owner and mode";
	else if (file_write_all(fd, text, strlen(text), 0) != 0 ||
		 fsync(fd) != 0)
		what = "cannot write";
	else if (rename(beside, set->path) != 0)
		what = "cannot replace";
	if (what != NULL) {
		fault = note_errno(set, what);
		unlink(beside);
	} else if (fsync(directory) != 0)
		fault =
		    note_errno(set, "was changed, but a power cut may undo it");
	close(fd);
	return fault;
}

/* Edit the file; append `line`. */
static enum fault
edit_file(const char *path, const struct tokens_edit *edit, const char *line)
{
	struct set set = { .path = path, .user = TOKENS_ANY_USER };
	char target;
	int directory;
	enum fault fault = lock(&set, &directory);

	if (fault != FAULT_NONE)
		goto end;
	fault = readlink(path, &target, 1) >= 0
		    ? note(&set, FAULT_SETUP,
			  "is a symbolic link; name the file that it points "
			  "to")
		    : read_set(&set);
	if (fault != FAULT_NONE &&
	    (fault != FAULT_ABSENT || edit->kind != TOKENS_ADD))
		goto end;
	fault = change_text(&set, edit, line);
	if (fault == FAULT_NONE)
		fault = replace(&set, directory);
end:
	if (fault != FAULT_NONE)
		log_error("%s: %s", path, set.notice);
	free_set(&set);
	file_close(directory);
	return fault;
}

/* Create a token (see TOKENS_TOKEN_LEN; RFC 4648, section 5) and its digest. */
static bool
make_token(char token[static TOKENS_TOKEN_LEN + 2], unsigned char *digest)
{
	unsigned char random[TOKEN_RANDOM_LEN];

	if (RAND_bytes(random, sizeof random) != 1)
		return false;
	strcpy(token, "pst_");
	EVP_EncodeBlock((unsigned char *)token + 4, random, sizeof random);
	OPENSSL_cleanse(random, sizeof random);
	token[TOKENS_TOKEN_LEN] = '\0';
	for (char *c = token; *c != '\0'; c++)
		*c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
	return EVP_Digest(token, TOKENS_TOKEN_LEN, digest, NULL, EVP_sha256(),
		   NULL) == 1;
}

enum fault
tokens_edit(const char *path, const struct tokens_edit *edit, char *token)
{
	unsigned char digest[TOKENS_DIGEST_LEN];
	char hex[2 * TOKENS_DIGEST_LEN + 1], line[LINE_BYTES_MAX];
	char expires[TIMESTAMP_LEN] = "", created[TIMESTAMP_LEN];
	char made[TOKENS_TOKEN_LEN + 2]; /* with room for a padding byte */
	bool expires_ever = edit->expires_ms != TOKENS_NEVER;

	if (edit->kind != TOKENS_ADD && edit->kind != TOKENS_RENEW)
		return edit_file(path, edit, "");
	if (!make_token(made, digest)) {
		log_error("libcrypto cannot create a token; check its "
			  "installation and the free memory");
		return FAULT_FAILED;
	}
	for (size_t i = 0; i < sizeof digest; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	if (expires_ever)
		timestamp_print(edit->expires_ms, expires);
	timestamp_print(clock_ms(CLOCK_REALTIME), created);
	snprintf(line, sizeof line,
	    "%s %s %.19s%s# created " TIMESTAMP_SECONDS "\n", edit->name, hex,
	    expires, expires_ever ? "Z " : "", created);
	enum fault fault = edit_file(path, edit, line);
	if (fault == FAULT_NONE)
		memcpy(token, made, TOKENS_TOKEN_LEN + 1);
	OPENSSL_cleanse(made, sizeof made);
	return fault;
}
