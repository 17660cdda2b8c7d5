/*
 * fault_shim: stands between the tested code and the kernel or the allocator.
 * See fault_shim.h.
 *
 * A function of the test executable comes before that of libc or a sanitizer,
 * also for libraries.  The real allocator is the next one in the order of lookup.
 * The 64 variants are the same functions on this machine.
 */
/* Its headers define functions of their own for those that are defined here. */
#undef _FORTIFY_SOURCE
#include "fault_shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct plan {
	const char *file;
	unsigned nth, times; /* times 0: only count */
	int error;
	bool shorten, end;
	size_t len;
	void (*happens)(void *argument);
	void *argument;
	_Atomic unsigned count; /* a store's thread makes calls, too */
};

static struct plan plans[SHIM_CALLS];

/* Whether the descriptor, or the name if there is one, is of the plan's file. */
static bool
is_meant(const struct plan *plan, int fd, const char *name)
{
	char link[64], path[PATH_MAX + 1];
	ssize_t n;
	size_t len;

	if (plan->file == NULL)
		return true;
	if (name == NULL) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, path, sizeof(path) - 1);
		if (n < 0)
			return false;
		path[n] = '\0';
		name = path;
	}
	len = strlen(name);
	return len >= strlen(plan->file) &&
	       strcmp(name + len - strlen(plan->file), plan->file) == 0;
}

/* The plan if this call is to be hit by it. */
static const struct plan *
hit(enum shim_call call, int fd, const char *name)
{
	struct plan *plan = &plans[call];

	if (!is_meant(plan, fd, name))
		return NULL;
	const unsigned count = ++plan->count;
	if (plan->happens != NULL && count == plan->nth)
		plan->happens(plan->argument);
	if (plan->times == 0 || count < plan->nth ||
	    count - plan->nth >= plan->times)
		return NULL;
	if (plan->end)
		_exit(0);
	if (!plan->shorten)
		errno = plan->error;
	return plan;
}

void
shim_fail(enum shim_call call, const char *file, unsigned nth, unsigned times,
    int error)
{
	plans[call] = (struct plan){
		.file = file, .nth = nth, .times = times, .error = error
	};
}

void
shim_shorten(enum shim_call call, const char *file, unsigned nth, size_t len)
{
	plans[call] = (struct plan){ .file = file,
		.nth = nth,
		.times = 1,
		.shorten = true,
		.len = len };
}

void
shim_exit(enum shim_call call, const char *file, unsigned nth)
{
	plans[call] =
	    (struct plan){ .file = file, .nth = nth, .times = 1, .end = true };
}

void
shim_meet(enum shim_call call, void (*happens)(void *argument), void *argument)
{
	plans[call].happens = happens;
	plans[call].argument = argument;
}

unsigned
shim_count(enum shim_call call)
{
	return plans[call].count;
}

bool
shim_reset(void)
{
	bool reached = false;

	for (int i = 0; i < SHIM_CALLS; i++)
		reached |= plans[i].times > 0 && plans[i].count >= plans[i].nth;
	memset(plans, 0, sizeof(plans));
	return reached;
}

/* A whole function: a call that is only counted and failed. */
#define FUNCTION(type, name, parameters, call, fd, file, ...) \
	type name parameters                                  \
	{                                                     \
		if (hit(call, fd, file) != NULL)              \
			return -1;                            \
		return (type)syscall(__VA_ARGS__);            \
	}
#define ALIAS(name) __attribute__((alias(name)))

ssize_t
pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	const struct plan *plan = hit(SHIM_PWRITE, fd, NULL);

	if (plan != NULL && !plan->shorten)
		return -1;
	if (plan != NULL && plan->len < len)
		len = plan->len;
	return syscall(SYS_pwrite64, fd, buf, len, offset);
}

FUNCTION(ssize_t, writev, (int fd, const struct iovec *parts, int n),
    SHIM_WRITEV, fd, NULL, SYS_writev, fd, parts, n)
FUNCTION(ssize_t, pread, (int fd, void *buf, size_t len, off_t offset),
    SHIM_PREAD, fd, NULL, SYS_pread64, fd, buf, len, offset)
FUNCTION(int, fdatasync, (int fd), SHIM_FDATASYNC, fd, NULL, SYS_fdatasync, fd)
FUNCTION(int, fsync, (int fd), SHIM_FSYNC, fd, NULL, SYS_fsync, fd)
FUNCTION(int, sync_file_range,
    (int fd, off_t offset, off_t len, unsigned flags), SHIM_SYNC_FILE_RANGE, fd,
    NULL, SYS_sync_file_range, fd, offset, len, flags)
FUNCTION(int, ftruncate, (int fd, off_t len), SHIM_FTRUNCATE, fd, NULL,
    SYS_ftruncate, fd, len)
FUNCTION(int, unlinkat, (int dir, const char *name, int flags), SHIM_UNLINKAT,
    dir, name, SYS_unlinkat, dir, name, flags)
int renameat2(int, const char *, int, const char *, unsigned);
FUNCTION(int, renameat2,
    (int from, const char *old, int to, const char *new, unsigned flags),
    SHIM_RENAMEAT2, from, old, SYS_renameat2, from, old, to, new, flags)
/* A test may have one of its own. */
int fstat(int fd, struct stat *st) __attribute__((weak));
FUNCTION(int, fstat, (int fd, struct stat *st), SHIM_FSTAT, fd, NULL,
    SYS_newfstatat, fd, "", st, AT_EMPTY_PATH)
FUNCTION(int, fstatat,
    (int dir, const char *restrict name, struct stat *restrict st, int flags),
    SHIM_FSTATAT, dir, name, SYS_newfstatat, dir, name, st, flags)
FUNCTION(int, memfd_create, (const char *name, unsigned flags),
    SHIM_MEMFD_CREATE, -1, name, SYS_memfd_create, name, flags)
FUNCTION(ssize_t, recv, (int fd, void *buf, size_t len, int flags), SHIM_RECV,
    fd, NULL, SYS_recvfrom, fd, buf, len, flags, NULL, NULL)
FUNCTION(ssize_t, send, (int fd, const void *buf, size_t len, int flags),
    SHIM_SEND, fd, NULL, SYS_sendto, fd, buf, len, flags, NULL, 0)

int
posix_fadvise(int fd, off_t offset, off_t len, int advice)
{
	if (hit(SHIM_FADVISE, fd, NULL) != NULL)
		return errno;
	return syscall(SYS_fadvise64, fd, offset, len, advice) < 0 ? errno : 0;
}

int
fcntl(int fd, int command, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (command == F_OFD_SETLK && hit(SHIM_FCNTL, fd, NULL) != NULL)
		return -1;
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

/* In musl these names are macros. */
#ifdef __GLIBC__
ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t offset)
    ALIAS("pwrite");
ssize_t pread64(int fd, void *buf, size_t len, off64_t offset) ALIAS("pread");
/* With _FORTIFY_SOURCE clang calls this one. */
ssize_t __pread_chk(int fd, void *buf, size_t len, off_t offset, size_t size);
FUNCTION(ssize_t, __pread_chk,
    (int fd, void *buf, size_t len, off_t offset, size_t size), SHIM_PREAD, fd,
    NULL, SYS_pread64, fd, buf, len < size ? len : size, offset)
int ftruncate64(int fd, off64_t len) ALIAS("ftruncate");
int posix_fadvise64(int fd, off64_t offset, off64_t len, int advice)
    ALIAS("posix_fadvise");
#endif

/* --- Allocations --------------------------------------------------------- */

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

#if ALLOC_CAN_FAIL

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

/* As the C library has it, but for the allocations that are to fail. */
#define ALLOCATION(name, parameters, ...)                          \
	void *name parameters                                      \
	{                                                          \
		static __typeof__(&name) next;                     \
                                                                   \
		if (fails())                                       \
			return NULL;                               \
		if (next == NULL)                                  \
			*(void **)&next = dlsym(RTLD_NEXT, #name); \
		return next(__VA_ARGS__);                          \
	}

ALLOCATION(malloc, (size_t size), size)
ALLOCATION(calloc, (size_t n, size_t size), n, size)
ALLOCATION(realloc, (void *old, size_t size), old, size)

#endif
