/*
 * rename: a file that takes its name only where there is none.
 */
#ifndef GROUND_RENAME_H
#define GROUND_RENAME_H

/*
 * rename_new(dir, from, to):
 * Rename `from` to `to`, both relative to the directory `dir`, which may be
 * AT_FDCWD; what is there already is spared: EEXIST.  Return 0; -1 with errno.
 * Where a crash comes between, on a file system that has links alone for this,
 * the file has both names.
 */
int rename_new(int dir, const char *from, const char *to);

#endif
