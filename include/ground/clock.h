/* clock: the time in milliseconds or microseconds. */
#pragma once

#include <stdint.h>
#include <time.h>

/*
 * clock_ms(clock), clock_us(clock):
 * Return the time of `clock`.  CLOCK_REALTIME, since 1970, and CLOCK_MONOTONIC
 * need no system call.  Any thread.
 */
static inline int64_t
clock_us(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static inline int64_t
clock_ms(clockid_t clock)
{
	return clock_us(clock) / 1000;
}
