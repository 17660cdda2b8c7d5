/* watch: reports the progress of long work, and can stop it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Unless NULL, `step` is called at least once per MiB read, per 4 MiB of the
 * index, or per 100 rows of a database, with the bytes done and the total (0:
 * unknown).  If it returns false, the work stops and leaves nothing half done.
 */
struct watch {
	bool (*step)(void *context, uint64_t done, uint64_t total);
	void *context;
};

/* Call `step`, unless it or `watch` is NULL.  Return whether to continue. */
static inline bool
watch_step(const struct watch *watch, uint64_t done, uint64_t total)
{
	return watch == NULL || watch->step == NULL ||
	       watch->step(watch->context, done, total);
}
