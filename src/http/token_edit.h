/*
 * token_edit: one line added to or removed from the token file.  Private to
 * tokens, whose header has the promises.
 */
#ifndef HTTP_TOKEN_EDIT_H
#define HTTP_TOKEN_EDIT_H

#include <stddef.h>

/*
 * token_edit_add(path, name, line, error, error_len):
 * Add `line`, which holds the token of that name and ends with a newline.
 *
 * token_edit_remove(path, name, error, error_len):
 * Remove the line of the token of that name.
 */
int token_edit_add(const char *path, const char *name, const char *line,
    char *error, size_t error_len);
int token_edit_remove(
    const char *path, const char *name, char *error, size_t error_len);

#endif
