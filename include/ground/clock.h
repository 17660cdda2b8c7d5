/*
 * clock: the time in milliseconds, or in microseconds.
 */
#ifndef GROUND_CLOCK_H
#define GROUND_CLOCK_H

#include <stdint.h>
#include <time.h>

/*
 * clock_ms(clock), clock_us(clock):
 * The time of `clock`, such as CLOCK_REALTIME since 1970.  No system call for
 * the clocks that this program uses.  Any thread.
 */
int64_t clock_ms(clockid_t clock);
int64_t clock_us(clockid_t clock);

#endif
