/*
 * cursor: the file in which a consumer keeps its place.  It is replaced whole:
 * a crash leaves the old one or the new one.  plant-store-journal(5) has its
 * format.
 */
#pragma once

#include "reader/reader.h"

struct cursor {
	const char *path;             /* owned by the caller */
	char place[STORE_CURSOR_MAX]; /* "" if there is no file */
	int lock; /* FILE.lock, which is never removed; -1 to read only */
	int dir;
	char *next; /* the path of FILE.new */
	int fd;     /* of FILE.new; or -1 */
};

/*
 * cursor_open(cursor, path, output), cursor_close(cursor):
 * Read the file, which may be absent.  Unless `output`, the path to which the
 * plants go, is NULL, lock it first, and create FILE.new with its owner and
 * mode, which proves that it can be replaced.  FAULT_BUSY: another process uses
 * it.  FAULT_DAMAGED: it is no cursor.  FAULT_OUTPUT: it is a link, cannot be
 * read or replaced, or `output` is FILE, FILE.new or FILE.lock.  A fault is
 * logged; close the cursor after it, too.
 *
 * cursor_save(cursor, place):
 * Replace the file durably, unless it has this place.  A fault is logged.
 */
enum fault cursor_open(
    struct cursor *cursor, const char *path, const char *output);
enum fault cursor_save(struct cursor *cursor, const char *place);
void cursor_close(struct cursor *cursor);
