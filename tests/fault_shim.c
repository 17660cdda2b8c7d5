/*
 * fault_shim: stands between the tested code and the kernel.  See fault_shim.h.
 *
 * What the test executable defines comes before what libc does, also for
 * liblmdb.  The 64 variants are the same functions on this machine.
 */
/* Its headers define functions of their own for those that are defined here. */
#undef _FORTIFY_SOURCE
#include "fault_shim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
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
	unsigned count;
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
	plan->count++;
	if (plan->times == 0 || plan->count < plan->nth ||
	    plan->count - plan->nth >= plan->times)
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

unsigned
shim_count(enum shim_call call)
{
	return plans[call].count;
}

void
shim_reset(void)
{
	memset(plans, 0, sizeof(plans));
}

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

ssize_t
pwrite64(int fd, const void *buf, size_t len, off64_t offset)
{
	return pwrite(fd, buf, len, offset);
}

ssize_t
pwritev(int fd, const struct iovec *parts, int n, off_t offset)
{
	const struct plan *plan = hit(SHIM_PWRITEV, fd, NULL);

	if (plan != NULL && !plan->shorten)
		return -1;
	if (plan != NULL) /* within the first part: enough for the tests */
		return syscall(SYS_pwrite64, fd, parts[0].iov_base,
		    plan->len < parts[0].iov_len ? plan->len : parts[0].iov_len,
		    offset);
	return syscall(SYS_pwritev, fd, parts, n, offset, 0L);
}

ssize_t
pwritev64(int fd, const struct iovec *parts, int n, off64_t offset)
{
	return pwritev(fd, parts, n, offset);
}

ssize_t
writev(int fd, const struct iovec *parts, int n)
{
	if (hit(SHIM_WRITEV, fd, NULL) != NULL)
		return -1;
	return syscall(SYS_writev, fd, parts, n);
}

ssize_t
pread(int fd, void *buf, size_t len, off_t offset)
{
	if (hit(SHIM_PREAD, fd, NULL) != NULL)
		return -1;
	return syscall(SYS_pread64, fd, buf, len, offset);
}

ssize_t
pread64(int fd, void *buf, size_t len, off64_t offset)
{
	return pread(fd, buf, len, offset);
}

int
fdatasync(int fd)
{
	if (hit(SHIM_FDATASYNC, fd, NULL) != NULL)
		return -1;
	return (int)syscall(SYS_fdatasync, fd);
}

int
fsync(int fd)
{
	if (hit(SHIM_FSYNC, fd, NULL) != NULL)
		return -1;
	return (int)syscall(SYS_fsync, fd);
}

int
ftruncate(int fd, off_t len)
{
	if (hit(SHIM_FTRUNCATE, fd, NULL) != NULL)
		return -1;
	return (int)syscall(SYS_ftruncate, fd, len);
}

int
ftruncate64(int fd, off64_t len)
{
	return ftruncate(fd, len);
}

int
unlinkat(int dir, const char *name, int flags)
{
	if (hit(SHIM_UNLINKAT, dir, name) != NULL)
		return -1;
	return (int)syscall(SYS_unlinkat, dir, name, flags);
}

int
renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
	if (hit(SHIM_RENAMEAT2, from, old) != NULL)
		return -1;
	return (int)syscall(SYS_renameat2, from, old, to, new, flags);
}

/* A test may have one of its own. */
__attribute__((weak)) int
fstat(int fd, struct stat *st)
{
	if (hit(SHIM_FSTAT, fd, NULL) != NULL)
		return -1;
	return (int)syscall(SYS_fstat, fd, st);
}

int
fstatat(int dir, const char *restrict name, struct stat *restrict st, int flags)
{
	if (hit(SHIM_FSTATAT, dir, name) != NULL)
		return -1;
	return (int)syscall(SYS_newfstatat, dir, name, st, flags);
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

ssize_t
write(int fd, const void *buf, size_t len)
{
	if (hit(SHIM_WRITE, fd, NULL) != NULL)
		return -1;
	return syscall(SYS_write, fd, buf, len);
}

off_t
lseek(int fd, off_t offset, int whence)
{
	if (hit(SHIM_LSEEK, fd, NULL) != NULL)
		return -1;
	return syscall(SYS_lseek, fd, offset, whence);
}

off64_t
lseek64(int fd, off64_t offset, int whence)
{
	return lseek(fd, offset, whence);
}

int
memfd_create(const char *name, unsigned flags)
{
	if (hit(SHIM_MEMFD_CREATE, -1, name) != NULL)
		return -1;
	return (int)syscall(SYS_memfd_create, name, flags);
}

ssize_t
recv(int fd, void *buf, size_t len, int flags)
{
	if (hit(SHIM_RECV, fd, NULL) != NULL)
		return -1;
	return syscall(SYS_recvfrom, fd, buf, len, flags, NULL, NULL);
}

ssize_t
send(int fd, const void *buf, size_t len, int flags)
{
	if (hit(SHIM_SEND, fd, NULL) != NULL)
		return -1;
	return syscall(SYS_sendto, fd, buf, len, flags, NULL, 0);
}
