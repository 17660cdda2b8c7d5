/* watch: reports the progress of long work, and can stop it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * `step`, unless NULL, is called at least once for each MiB that is read or, of
 * a database, each 100 rows, with the bytes done and in total (0: unknown).  If
 * it returns false, the work stops at the next point with nothing half done.
 */
struct watch {
	bool (*step)(void *context, uint64_t done, uint64_t total);
	void *context;
};

/*
 * watch_step(watch, done, total):
 * Call `step`, if there is one; `watch` may be NULL.  Return whether to go on.
 */
static inline bool
watch_step(const struct watch *watch, uint64_t done, uint64_t total)
{
	return watch == NULL || watch->step == NULL ||
	       watch->step(watch->context, done, total);
}
