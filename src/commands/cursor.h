/*
 * cursor: the file in which a consumer keeps its place, replaced whole: a crash
 * leaves the old one or the new one.  plant-store-journal(5) has its format.
 */
#ifndef COMMANDS_CURSOR_H
#define COMMANDS_CURSOR_H

#include "reader/reader.h"

struct cursor {
	const char *path;             /* the caller's */
	char place[STORE_CURSOR_MAX]; /* "" if there is no file */
	int lock; /* FILE.lock, which stays; -1: it is only read */
	int dir;
	char *next; /* FILE.new, */
	int fd;     /* which is open; or -1 */
};

/*
 * cursor_open(cursor, path, write), cursor_close(cursor):
 * Read the file, which may be absent.  With `write` lock it first, and prove
 * that it can be replaced, with its owner and mode, by making the next one.
 * FAULT_BUSY: another process uses it.  FAULT_DAMAGED: it is no cursor.
 * FAULT_OUTPUT: it is a link, or cannot be replaced.  All logged; it has to be
 * closed then, too.
 *
 * cursor_save(cursor, place):
 * Make this the file's place, durably, unless it is.  A fault, logged.
 */
enum fault cursor_open(struct cursor *cursor, const char *path, bool write);
enum fault cursor_save(struct cursor *cursor, const char *place);
void cursor_close(struct cursor *cursor);

#endif
