/*
 * run: an index file: pairs of ids and offsets, sorted by id, followed by the
 * first id of each page of pairs, so that a lookup reads one page of pairs.
 * All numbers are in the machine's byte order.  A complete run never changes.
 * Functions return 0, or -1 with errno, unless stated otherwise.  Threads: any
 * may read; one at a time writes.
 */
#pragma once

#include "ground/file.h"
#include "ground/pairs.h"

#define RUN_NAME_MAX 32
/* Pairs in a page of 4 KiB, in a buffer, and between two syncs of a run. */
#define RUN_PAGE_PAIRS ((size_t)256)
#define RUN_BUFFER_PAIRS (16 * RUN_PAGE_PAIRS)
#define RUN_STEP_PAIRS ((uint64_t)64 * RUN_BUFFER_PAIRS)

/* A run's entry in the manifest.  Entries are compared as bytes. */
struct run {
	uint64_t number, n; /* of the file; of its pairs */
	int64_t least, greatest;
	uint32_t crc, nul;          /* of the pairs; 0 */
	char file[FILE_ID_LEN + 7]; /* file_identify, and NULs */
};

/* An open run; firsts is in the same mapping. */
struct run_map {
	struct pair *pairs;
	const int64_t *firsts;
	size_t len;
};

/* A run that is being written. */
struct run_writer {
	struct run run;
	int dir, fd;
	struct pair buffer[RUN_BUFFER_PAIRS];
	size_t used;
	int64_t *firsts;
};

/*
 * run_name(number, name):
 * Write the name of the run's file; return it.
 *
 * run_open(dir, run, map), run_close(map):
 * Open the run in the directory of the index.  Also fail with ENOENT if another
 * file has its name.
 *
 * run_find(run, map, id):
 * Return the offset of the plant, or 0 if the run does not have it.
 *
 * run_is_whole(run, map):
 * Read the pairs, and return whether their checksum is right.
 */
const char *run_name(uint64_t number, char name[static RUN_NAME_MAX]);
int run_open(int dir, const struct run *run, struct run_map *map);
void run_close(struct run_map *map);
uint64_t run_find(const struct run *run, const struct run_map *map, int64_t id);
bool run_is_whole(const struct run *run, const struct run_map *map);

/*
 * run_begin(writer, dir, last, max):
 * Create an empty run for up to `max` pairs, with a number above `last`.
 *
 * run_put(writer, pair):
 * Add a pair; its id must be above the last one's.
 *
 * run_end(writer, good):
 * With `good`, sync the run and fill writer->run.  Otherwise, and on failure,
 * remove it and return -1 with the errno of the failure.
 */
int run_begin(struct run_writer *writer, int dir, uint64_t last, uint64_t max);
int run_put(struct run_writer *writer, struct pair pair);
int run_end(struct run_writer *writer, bool good);
