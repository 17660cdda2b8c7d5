/*
 * watch: how long work reports its progress and learns that it shall stop.
 */
#ifndef GROUND_WATCH_H
#define GROUND_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * `step` is called at least once for each MiB, with the bytes done and the
 * bytes in all, 0 if that is not known.  If it returns false, the work ends at
 * the next place where nothing is half done.  A NULL `step` is never called.
 */
struct watch {
	bool (*step)(void *context, uint64_t done, uint64_t total);
	void *context;
};

/*
 * watch_step(watch, done, total):
 * Call `step`, if there is one; `watch` may be NULL.  Whether to go on.
 */
static inline bool
watch_step(const struct watch *watch, uint64_t done, uint64_t total)
{
	return watch == NULL || watch->step == NULL ||
	       watch->step(watch->context, done, total);
}

#endif
