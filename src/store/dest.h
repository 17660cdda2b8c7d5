/*
 * dest: the directory in which a copy, or a new store, is to appear.
 */
#ifndef STORE_DEST_H
#define STORE_DEST_H

/*
 * dest_open(path, status):
 * Open the directory `path`, make it, durably, if there is none.  A store that
 * was served is refused: others may be using it; and so is one that another
 * process has opened with this, until that closes it.  A descriptor, or -1 with
 * a status of sysexits.h, logged.
 */
int dest_open(const char *path, int *status);

#endif
