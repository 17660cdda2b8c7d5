/*
 * runs: more pairs of id and offset than the memory is meant to hold, in order.
 *
 * An external merge sort: sorted runs go to a file that has no name, and come
 * back merged, each read through a window.  It takes the caller's room for the
 * windows, and some 100 bytes of memory for each run.
 */
#ifndef STORE_RUNS_H
#define STORE_RUNS_H

#include <stddef.h>
#include <stdint.h>

struct pair {
	int64_t id;
	uint64_t offset;
};

struct runs;

/*
 * runs_new(dir, name):
 * Make the file.  It has the name `name` in the directory `dir` for a moment
 * alone; one that was left there by a process that died in that moment is
 * removed.  NULL with errno.
 */
struct runs *runs_new(int dir, const char *name);

/*
 * runs_add(runs, pairs, n):
 * Put a run into the file: pairs in the order of their ids, those of one id in
 * the order of their offsets.  0; -1 with errno, ENOSPC and the like, ENOMEM,
 * and it can only be freed.
 */
int runs_add(struct runs *runs, const struct pair *pairs, size_t n);

/*
 * runs_merge(runs, room, n):
 * Nothing more is added.  The `n` pairs at `room`, at least one for each run,
 * are for the windows, until runs_free.  0, or -1 with errno as below, ENOMEM.
 *
 * runs_next(runs, pair):
 * The next pair of all, in the same order.  1; 0 at the end; -1 with errno: EIO
 * also where a run is not what was written, which is told at its end.
 */
int runs_merge(struct runs *runs, struct pair *room, size_t n);
int runs_next(struct runs *runs, struct pair *pair);

/* Also the file.  NULL is fine. */
void runs_free(struct runs *runs);

#endif
