/* compat: glibc functions that only newer versions of musl have. */
#pragma once

#ifndef __GLIBC__
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* musl has statx since 1.2.5. */
#ifndef STATX_INO
#include <linux/stat.h>
#define statx(...) ((int)syscall(SYS_statx, __VA_ARGS__))
#endif

/* Weak: newer versions of musl define it, as do tests that make it fail. */
int renameat2(int, const char *, int, const char *, unsigned);
__attribute__((weak)) int
renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
	return (int)syscall(SYS_renameat2, from, old, to, new, flags);
}
#endif
