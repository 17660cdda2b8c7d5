/*
 * token_file: the token file's lines, read and checked.  Private to tokens and
 * token_edit; the format is in http/tokens.h.
 *
 * Functions that can fail return 0, or a status of sysexits.h with one line in
 * `error` that names the file, what is wrong and what to do.
 */
#ifndef HTTP_TOKEN_FILE_H
#define HTTP_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "http/tokens.h"

struct token_line {
	struct token token;
	size_t number;     /* of the line, from 1 */
	size_t start, end; /* its bytes in the text, with its newline */
};

struct token_file {
	struct stat stat; /* of what was read */
	char *text;       /* `len` bytes, then a NUL */
	size_t len;
	struct token_line *lines; /* those with a token, in the file's order */
	size_t count;
};

/*
 * token_file_read(fd, path, file, error, error_len):
 * Read all of the open file `fd`, which `path` names in messages.  A file
 * without a token is fine here.  The caller passes `file` to token_file_free.
 */
int token_file_read(int fd, const char *path, struct token_file *file,
    char *error, size_t error_len);

/*
 * token_file_free(file):
 * Free what it holds; an all-zero one holds nothing.
 */
void token_file_free(struct token_file *file);

/*
 * token_file_is_name(text, len):
 * Whether it is a token's name: 1 to TOKENS_NAME_MAX of A-Z a-z 0-9 . _ -
 */
bool token_file_is_name(const char *text, size_t len);

/*
 * token_file_failed(path, doing, error, error_len):
 * Report that `doing` (a verb) failed with errno.  Return the status.
 */
int token_file_failed(
    const char *path, const char *doing, char *error, size_t error_len);

#endif
