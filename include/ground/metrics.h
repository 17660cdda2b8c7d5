/*
 * metrics: the counters of a store.  All processes that use it map a small file
 * in its directory; counting needs no system call and cannot fail.  Any thread.
 *
 * The file may be lost or damaged: the next metrics_open creates a new one with
 * all counters at 0.  Processes that have the old file open still count in it.
 * A process counts in its own memory if it has no file, as with a database, or
 * if its file was truncated.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ground/fault.h"

#define METRICS_NAME "metrics"
#define METRICS_ANSWERS_MAX 64
/* A histogram has a counter for each bucket, and the sum of the values. */
#define METRICS_BUCKETS 11
#define METRICS_SUM METRICS_BUCKETS
#define METRICS_HISTOGRAM 16
#define METRICS_UNKNOWN UINT64_MAX

/* Indexes of `metrics`. */
enum metrics_place {
	METRICS_CREATED, /* plants, by result of the commit */
	METRICS_REPEATED,
	METRICS_CONFLICT,
	METRICS_BATCHES,
	METRICS_STORE_BYTES, /* gauges until ANY_STANDBY; ms since 1970 */
	METRICS_STORE_PLANTS,
	METRICS_SYNC_MS,
	METRICS_FAILED,
	METRICS_CONNECTIONS, /* see metrics_connections */
	METRICS_EXPIRY_MS,
	METRICS_BACKUP_MS,
	METRICS_HEALTHY, /* see api_health */
	METRICS_FREE_BYTES,
	METRICS_ANY_STANDBY, /* 1: synchronous_standby_names is "*" */
	METRICS_ANSWERS = 16,
	METRICS_BATCH_PLANTS = METRICS_ANSWERS + METRICS_ANSWERS_MAX,
	METRICS_COMMIT_US = METRICS_BATCH_PLANTS + METRICS_HISTOGRAM,
	METRICS_SYNC_US = METRICS_COMMIT_US + METRICS_HISTOGRAM,
	METRICS_COUNT = METRICS_SYNC_US + METRICS_HISTOGRAM
};

extern _Atomic uint64_t *metrics;
/* The connections that this process has open. */
extern _Atomic unsigned metrics_connections;

static inline void
metrics_add(unsigned place, uint64_t n)
{
	atomic_fetch_add_explicit(&metrics[place], n, memory_order_relaxed);
}

/*
 * metrics_open(dir, make):
 * From now on, count in the file in the directory `dir`; with `make`, create it
 * if it is absent.  Call it before any thread that counts starts.  After a
 * fault (not logged; see errno), the process counts where it did before.
 *
 * metrics_bound(histogram, i):
 * Return the upper bound of bucket `i`, inclusive; the last bucket has none.
 *
 * metrics_observe(histogram, value):
 * Count a value in METRICS_BATCH_PLANTS, METRICS_COMMIT_US or METRICS_SYNC_US.
 *
 * metrics_consumers(dir, bytes, list):
 * Read the consumers' cursors, which are files in METRICS_CONSUMERS in `dir`,
 * and compare them with the journal's size, `bytes`.  Return their number.
 *
 * metrics_free_bytes(dir):
 * Return how many free bytes this user can use in `dir`, or METRICS_UNKNOWN.
 */
enum fault metrics_open(const char *dir, bool make);
uint64_t metrics_bound(enum metrics_place histogram, unsigned i);
void metrics_observe(enum metrics_place histogram, uint64_t value);
#define METRICS_CONSUMERS "consumers"
#define METRICS_CONSUMERS_MAX 32
struct metrics_consumer {
	char name[65];
	int64_t read_ms; /* when its cursor was last replaced, since 1970 */
	uint64_t behind; /* bytes of the journal that it has not read */
};
size_t metrics_consumers(const char *dir, uint64_t bytes,
    struct metrics_consumer list[static METRICS_CONSUMERS_MAX]);
uint64_t metrics_free_bytes(const char *dir);
