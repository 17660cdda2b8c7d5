/*
 * token_file: reads the token file and refuses whatever is not exactly in its
 * format, since a line that is skipped could be a revocation or a typing error
 * that locks a client out.  Digests and lookups are left to tokens, changes to
 * token_edit.
 *
 * No message repeats a line's content: somebody may have pasted a token where
 * its digest belongs.
 */
#include "token_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "pure/timestamp.h"

#define DIGITS "0123456789"
#define NAME_CHARACTERS \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" DIGITS "._-"
#define BLANKS " \t"
#define CREATED "created"

int
token_file_failed(
    const char *path, const char *doing, char *error, size_t error_len)
{
	const char *remedy = "see the system's log";
	const char *why = strerror(errno);
	int status = EX_OSERR;

	switch (errno) {
	case EACCES:
	case EPERM:
		remedy = "run this as a user who may, or give the file, with "
			 "mode 0640, to the group of the service's user";
		status = EX_NOPERM;
		break;
	case EROFS:
		remedy = "mount it for writing";
		status = EX_NOPERM;
		break;
	case ENOENT:
	case ENOTDIR:
		remedy = "make it with: plant-store token add NAME";
		status = EX_NOINPUT;
		break;
	case EISDIR:
		remedy = "name a file";
		status = EX_CONFIG;
		break;
	case ELOOP:
		remedy = "name the file that the symbolic link points to";
		status = EX_CONFIG;
		break;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		remedy = "make room";
		status = EX_IOERR;
		break;
	case EIO:
		remedy = "check the disk";
		status = EX_IOERR;
		break;
	}
	snprintf(error, error_len, "%s: cannot %s the file: %s; %s", path,
	    doing, why, remedy);
	return status;
}

bool
token_file_is_name(const char *text, size_t len)
{
	return len >= 1 && len <= TOKENS_NAME_MAX &&
	       strspn(text, NAME_CHARACTERS) >= len;
}

static int
check_stat(const struct stat *st, const char *path, char *error, size_t len)
{
	if (!S_ISREG(st->st_mode))
		snprintf(error, len,
		    "%s: not a regular file; name the token file", path);
	else if ((st->st_mode & S_IRWXO) != 0)
		snprintf(error, len,
		    "%s: others have access to it (mode %04o); run: "
		    "chmod o= %s",
		    path, (unsigned)(st->st_mode & 07777), path);
	else if (st->st_size > (off_t)TOKENS_FILE_BYTES_MAX)
		snprintf(error, len,
		    "%s: larger than %zu bytes; remove tokens that are "
		    "no longer used",
		    path, TOKENS_FILE_BYTES_MAX);
	else
		return 0;
	return EX_CONFIG;
}

/* The file can grow meanwhile: what is read decides, not what stat said. */
static int
read_text(int fd, const char *path, struct token_file *file, char *error,
    size_t error_len)
{
	ssize_t n = 1;

	file->text = malloc(TOKENS_FILE_BYTES_MAX + 2);
	if (file->text == NULL)
		return token_file_failed(path, "read", error, error_len);
	while (n != 0 && file->len <= TOKENS_FILE_BYTES_MAX) {
		n = pread(fd, file->text + file->len,
		    TOKENS_FILE_BYTES_MAX + 1 - file->len, (off_t)file->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return token_file_failed(
			    path, "read", error, error_len);
		file->len += (size_t)n;
	}
	file->text[file->len] = '\0';
	file->stat.st_size = (off_t)file->len;
	if (check_stat(&file->stat, path, error, error_len) != 0)
		return EX_CONFIG;
	if (memchr(file->text, '\0', file->len) != NULL) {
		snprintf(error, error_len,
		    "%s: holds a NUL byte, so it is not a text file; "
		    "restore it from a copy",
		    path);
		return EX_CONFIG;
	}
	return 0;
}

static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

static int
digest_read(
    const char *hex, size_t len, unsigned char digest[TOKENS_DIGEST_LEN])
{
	if (len != 2 * TOKENS_DIGEST_LEN)
		return -1;
	for (size_t i = 0; i < TOKENS_DIGEST_LEN; i++) {
		int high = hex_value(hex[2 * i]);
		int low = hex_value(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return -1;
		digest[i] = (unsigned char)(high * 16 + low);
	}
	return 0;
}

/* Comments are free text: one that does not tell a time tells nothing. */
static void
created_read(const char *comment, char created[static TIMESTAMP_LEN + 1])
{
	int64_t ms;
	size_t len;

	comment += strspn(comment, "#" BLANKS);
	if (strncmp(comment, CREATED " ", strlen(CREATED " ")) != 0)
		return;
	comment += strlen(CREATED " ");
	len = strcspn(comment, BLANKS "\n");
	if (len > TIMESTAMP_LEN || timestamp_read(comment, len, &ms) != 0)
		return;
	memcpy(created, comment, len);
	created[len] = '\0';
}

/*
 * Read a line, which ends with a newline or the text's end.  `*found`: it has
 * a token.  Return NULL, or what is wrong with it.
 */
static const char *
line_read(const char *at, struct token *token, bool *found)
{
	const char *field[3] = { NULL };
	size_t len[3] = { 0 };
	size_t n = 0;
	size_t whole = strcspn(at, "\n");

	if (whole > 0 && at[whole - 1] == '\r')
		return "ends with CR LF; convert the file with: "
		       "sed -i 's/\\r$//'";
	at += strspn(at, BLANKS);
	for (; *at != '\0' && *at != '\n' && *at != '#';
	     at += strspn(at, BLANKS)) {
		if (n == 3)
			return "has more than NAME SHA256HEX EXPIRES; put # "
			       "before a comment";
		field[n] = at;
		len[n] = strcspn(at, BLANKS "\n");
		at += len[n++];
	}
	*found = n > 0;
	if (n == 0)
		return NULL;

	*token = (struct token){ 0 };
	if (!token_file_is_name(field[0], len[0]))
		return "does not begin with a name of 1 to 64 of "
		       "A-Z a-z 0-9 . _ -; correct or remove it";
	memcpy(token->name, field[0], len[0]);
	if (n < 2 || digest_read(field[1], len[1], token->digest) != 0)
		return "has no SHA-256 digest of 64 lower-case hex digits "
		       "after the name; correct or remove it";
	if (n == 3 && timestamp_read(field[2], len[2], &token->expires_ms) != 0)
		return "has an expiry that is not like 2027-01-31T00:00:00Z; "
		       "correct or remove it";
	token->expires = n == 3;
	created_read(at, token->created);
	return NULL;
}

static int
read_lines(
    struct token_file *file, const char *path, char *error, size_t error_len)
{
	size_t capacity = 0;
	size_t number = 1;
	size_t end;

	for (size_t start = 0; start < file->len; start = end, number++) {
		struct token_line line = { .number = number, .start = start };
		bool found = false;
		const char *wrong;

		wrong = line_read(file->text + start, &line.token, &found);
		if (wrong != NULL) {
			snprintf(error, error_len, "%s: line %zu %s", path,
			    number, wrong);
			return EX_CONFIG;
		}
		end = start + strcspn(file->text + start, "\n");
		end += file->text[end] == '\n';
		line.end = end;
		if (!found)
			continue;
		if (file->count == capacity) {
			struct token_line *lines;

			capacity = capacity == 0 ? 16 : 2 * capacity;
			lines = realloc(file->lines, capacity * sizeof *lines);
			if (lines == NULL)
				return token_file_failed(
				    path, "read", error, error_len);
			file->lines = lines;
		}
		file->lines[file->count++] = line;
	}
	return 0;
}

/* What no two tokens may share: `len` bytes of struct token from `at` on. */
struct key {
	size_t at, len;
};

static int
compare_keys(const struct token_line *a, const struct token_line *b,
    const struct key *key)
{
	return memcmp((const char *)&a->token + key->at,
	    (const char *)&b->token + key->at, key->len);
}

/* By key, and by line where the keys are the same; never 0. */
static int
compare_lines(const void *a, const void *b, void *key)
{
	const struct token_line *const *x = a;
	const struct token_line *const *y = b;
	int order = compare_keys(*x, *y, key);

	if (order != 0)
		return order;
	return (*x)->number < (*y)->number ? -1 : 1;
}

/* Two lines with one key, the earlier first; or NULL. */
static const struct token_line **
find_twice(const struct token_line **lines, size_t count, struct key key)
{
	qsort_r(lines, count, sizeof *lines, compare_lines, &key);
	for (size_t i = 1; i < count; i++)
		if (compare_keys(lines[i - 1], lines[i], &key) == 0)
			return &lines[i - 1];
	return NULL;
}

/*
 * A token that two names share would still be good when one is revoked, and
 * the journal could not tell whose it was.
 */
static int
check_unique(const struct token_file *file, const char *path, char *error,
    size_t error_len)
{
	const struct token_line **lines, **twice;
	struct key name = { offsetof(struct token, name), TOKENS_NAME_MAX };
	struct key digest = { offsetof(struct token, digest),
		TOKENS_DIGEST_LEN };
	int status = 0;

	if (file->count < 2)
		return 0;
	lines = malloc(file->count * sizeof(struct token_line *));
	if (lines == NULL)
		return token_file_failed(path, "read", error, error_len);
	for (size_t i = 0; i < file->count; i++)
		lines[i] = &file->lines[i];
	if ((twice = find_twice(lines, file->count, name)) != NULL) {
		snprintf(error, error_len,
		    "%s: line %zu has the name %s of line %zu; remove one of "
		    "them",
		    path, twice[1]->number, twice[1]->token.name,
		    twice[0]->number);
		status = EX_CONFIG;
	} else if ((twice = find_twice(lines, file->count, digest)) != NULL) {
		snprintf(error, error_len,
		    "%s: line %zu, %s, has the digest of line %zu, %s; remove "
		    "one of them",
		    path, twice[1]->number, twice[1]->token.name,
		    twice[0]->number, twice[0]->token.name);
		status = EX_CONFIG;
	}
	free(lines);
	return status;
}

int
token_file_read(int fd, const char *path, struct token_file *file, char *error,
    size_t error_len)
{
	struct token_file found = { 0 };
	int status;

	if (fstat(fd, &found.stat) != 0)
		return token_file_failed(path, "read", error, error_len);
	status = check_stat(&found.stat, path, error, error_len);
	if (status == 0)
		status = read_text(fd, path, &found, error, error_len);
	if (status == 0)
		status = read_lines(&found, path, error, error_len);
	if (status == 0)
		status = check_unique(&found, path, error, error_len);
	if (status == 0)
		*file = found;
	else
		token_file_free(&found);
	return status;
}

void
token_file_free(struct token_file *file)
{
	free(file->text);
	free(file->lines);
}
