/*
 * alloc_shim: stands between the tested code and the allocator.  See
 * alloc_shim.h.
 *
 * What the test executable defines comes before what libc or a sanitizer does;
 * the next ones in the order of lookup are these.
 */
#include "alloc_shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

static unsigned first, left, count;
static bool failed;

void
alloc_fail(unsigned nth, unsigned times)
{
	first = nth;
	left = times;
	count = 0;
	failed = false;
}

bool
alloc_reset(void)
{
	left = 0;
	return failed;
}

#ifdef __SANITIZE_THREAD__

bool
alloc_can_fail(void)
{
	return false;
}

#else

bool
alloc_can_fail(void)
{
	return true;
}

static bool
fails(void)
{
	if (left == 0 || ++count < first)
		return false;
	left--;
	failed = true;
	errno = ENOMEM;
	return true;
}

/* A pointer to a function and one to an object are not the same to C. */
union next {
	void *object;
	void *(*malloc)(size_t);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
};

void *
malloc(size_t size)
{
	static union next next;

	if (fails())
		return NULL;
	if (next.object == NULL)
		next.object = dlsym(RTLD_NEXT, "malloc");
	return next.malloc(size);
}

void *
calloc(size_t n, size_t size)
{
	static union next next;

	if (fails())
		return NULL;
	if (next.object == NULL)
		next.object = dlsym(RTLD_NEXT, "calloc");
	return next.calloc(n, size);
}

void *
realloc(void *old, size_t size)
{
	static union next next;

	if (fails())
		return NULL;
	if (next.object == NULL)
		next.object = dlsym(RTLD_NEXT, "realloc");
	return next.realloc(old, size);
}

#endif
