/*
 * alloc_shim: allocations that fail when a test wants them to.
 *
 * A test that is linked with this has its own malloc, calloc and realloc, which
 * all of its process calls, libraries too.  They hand on to the real ones, so a
 * sanitizer goes on watching.  Threads: one, while something is told to fail.
 */
#ifndef TESTS_ALLOC_SHIM_H
#define TESTS_ALLOC_SHIM_H

#include <stdbool.h>

/*
 * alloc_can_fail():
 * Whether the below has an effect: not with the thread sanitizer, which uses
 * malloc before it can look up the real one.
 */
bool alloc_can_fail(void);

/*
 * alloc_fail(nth, times):
 * From now on counted from 1, let the nth allocation and the times - 1 after it
 * fail with ENOMEM.
 */
void alloc_fail(unsigned nth, unsigned times);

/*
 * alloc_reset():
 * Let everything succeed.  Return whether an allocation was made to fail since
 * alloc_fail.
 */
bool alloc_reset(void);

#endif
