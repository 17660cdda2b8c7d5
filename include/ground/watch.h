/*
 * watch: how long work tells how far it is, and is told to stop.
 */
#ifndef GROUND_WATCH_H
#define GROUND_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/*
 * `step` is called now and then, at least each MiB, with the bytes done and the
 * bytes in all, 0 where that is not known.  If it returns false the work ends
 * at the next place where it leaves nothing half done.  A NULL `step` is never
 * called.
 */
struct watch {
	bool (*step)(void *context, uint64_t done, uint64_t total);
	void *context;
};

#endif
