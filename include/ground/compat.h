/*
 * compat: what glibc has and musl does not have, or only in later versions.
 */
#ifndef GROUND_COMPAT_H
#define GROUND_COMPAT_H

#ifndef __GLIBC__
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* musl 1.2.5 has it. */
#ifndef STATX_INO
#include <linux/stat.h>
#define statx(...) ((int)syscall(SYS_statx, __VA_ARGS__))
#endif

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
/* Weak: a later musl, or a test that fails calls, has one of its own. */
int renameat2(int, const char *, int, const char *, unsigned);
__attribute__((weak)) int
renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
	return (int)syscall(SYS_renameat2, from, old, to, new, flags);
}
#endif
#endif
