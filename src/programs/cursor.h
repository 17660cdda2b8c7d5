/*
 * cursor: the file in which a consumer keeps its place.
 *
 * One line: CURSOR_BEGIN, the store's text for the place, a space, and the
 * CRC-32C of all before that space.  It is replaced whole: a crash leaves the
 * old one or the new one.  FILE.new is the next one; FILE.lock, which stays,
 * keeps a second user out.
 */
#ifndef PROGRAMS_CURSOR_H
#define PROGRAMS_CURSOR_H

#include "ground/fault.h"
#include "store/store.h"

#define CURSOR_BEGIN "plant-store-cursor 1 "

struct cursor {
	const char *path;             /* the caller's; NULL: there is none */
	char place[STORE_CURSOR_MAX]; /* that the file has; "" without one */
	char *next;                   /* FILE.new, */
	int next_fd;                  /* which is open; or -1 */
	int lock;                     /* -1: it is only read */
};

/*
 * cursor_open(cursor, path, write):
 * Read the file, which may be absent.  With `write` lock it first, and prove
 * that it can be replaced, with its owner and mode, by making the next one.
 * FAULT_BUSY: another process uses it.  FAULT_DAMAGED: it is no cursor.
 * FAULT_OUTPUT: it is a link or no file, or cannot be replaced.  All logged.
 *
 * cursor_save(cursor, place):
 * Make this the file's place, durably, unless it is.  A fault, logged.
 *
 * cursor_close(cursor):
 * After a cursor_open, also one that failed.
 */
enum fault cursor_open(struct cursor *cursor, const char *path, bool write);
enum fault cursor_save(struct cursor *cursor, const char *place);
void cursor_close(struct cursor *cursor);

#endif
