/*
 * metrics: the counters of a store.  All of its processes map one small file of
 * its directory, METRICS_NAME, and count there.
 *
 * The file may be lost or damaged: the next metrics_open makes a new one, with
 * all counters at 0, and a process that has the old one open counts on there.
 * If somebody truncates it, a process counts on in memory of its own; as it
 * does without a file, such as with a database.
 *
 * Any thread may count; it makes no system call and cannot fail.
 */
#ifndef GROUND_METRICS_H
#define GROUND_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ground/fault.h"

#define METRICS_NAME "metrics"
#define METRICS_ANSWERS_MAX 64
/* A histogram has a counter for each bucket, and the sum of the values. */
#define METRICS_BUCKETS 11
#define METRICS_SUM METRICS_BUCKETS
#define METRICS_HISTOGRAM 16
#define METRICS_UNKNOWN UINT64_MAX

/* Places in `metrics`. */
enum metrics_place {
	METRICS_CREATED, /* plants, by the result of their commit */
	METRICS_REPEATED,
	METRICS_CONFLICT,
	METRICS_BATCHES,
	METRICS_STORE_BYTES, /* these are set; times are since 1970 */
	METRICS_STORE_PLANTS,
	METRICS_SYNC_MS,
	METRICS_FAILED,
	METRICS_CONNECTIONS, /* see metrics_connections */
	METRICS_EXPIRY_MS,
	METRICS_BACKUP_MS,
	METRICS_HEALTHY, /* see metrics_healthy */
	METRICS_FREE_BYTES,
	METRICS_ANSWERS = 16,
	METRICS_BATCH_PLANTS = METRICS_ANSWERS + METRICS_ANSWERS_MAX,
	METRICS_COMMIT_US = METRICS_BATCH_PLANTS + METRICS_HISTOGRAM,
	METRICS_SYNC_US = METRICS_COMMIT_US + METRICS_HISTOGRAM,
	METRICS_COUNT = METRICS_SYNC_US + METRICS_HISTOGRAM
};

extern _Atomic uint64_t *metrics;
/* Open now, in this process alone. */
extern _Atomic unsigned metrics_connections;
/* 1 or 0 as of its path of health; METRICS_UNKNOWN by CGI and command. */
extern _Atomic uint64_t metrics_healthy;

static inline void
metrics_add(unsigned place, uint64_t n)
{
	atomic_fetch_add_explicit(&metrics[place], n, memory_order_relaxed);
}

/*
 * metrics_open(dir, make):
 * Count in the file of the directory `dir` from now on; with `make`, also where
 * it has none.  Before any thread that counts starts.  FAULT_NONE; or
 * FAULT_FULL, FAULT_ABSENT or another fault, not logged, with errno, and all
 * is as before.
 *
 * metrics_bound(histogram, i):
 * The greatest value of its bucket `i`; the last bucket has none.
 *
 * metrics_observe(histogram, value):
 * Count a value in METRICS_BATCH_PLANTS, METRICS_COMMIT_US or METRICS_SYNC_US.
 */
enum fault metrics_open(const char *dir, bool make);
uint64_t metrics_bound(enum metrics_place histogram, unsigned i);
void metrics_observe(enum metrics_place histogram, uint64_t value);

/*
 * metrics_note_backup(dir, ms), metrics_backup_ms(dir):
 * Note in the store's directory, durably, when its newest verified backup was
 * begun, in ms since 1970: 0, or -1 with errno.  Read it; 0 if there is none.
 * `dir` NULL: that of metrics_open.  It is a text file of its own, which lasts
 * where the counters begin anew.
 *
 * metrics_free_bytes():
 * The room that its user has on the file system of metrics_open's directory;
 * METRICS_UNKNOWN without one.
 */
int metrics_note_backup(const char *dir, int64_t ms);
int64_t metrics_backup_ms(const char *dir);
uint64_t metrics_free_bytes(void);

#endif
