/*
 * preload: the system calls of a program that a fault test runs, counted,
 * failed, shortened, or its end.  For LD_PRELOAD; the program is not changed.
 *
 * Only calls count that touch what is in scope: files below the paths of
 * FAULT_SCOPE (separated by colons; "pipe" means stdin and stdout, when these
 * are pipes), and getrandom.  Settings, all from the environment:
 *
 *	FAULT_TRACE=FILE     append a line for each call that counts:
 *	                     "number name bytes bytes-of-the-first-part path"
 *	FAULT_PLAN=N:WHAT    at the Nth call:
 *	    kill-before      the process is killed before it
 *	    kill-after       and after it
 *	    kill-at=BYTES    after so many bytes of a write
 *	    error=E,TIMES    it fails with errno E, and so do the calls of the
 *	                     same name behind it, TIMES in all (0: for ever)
 *	    short=0,TIMES    it reads or writes half of what it was asked to
 *	FAULT_ONLY=NAME      only calls of that name count, whatever they touch,
 *	                     and these too: accept4, epoll_create1, epoll_ctl,
 *	                     epoll_wait, eventfd, fcntl, lseek, memfd_create,
 *	                     pthread_create, send, setrlimit, setsockopt
 *	FAULT_BOOT_ID=FILE   what stands for the boot id of the machine
 *	FAULT_NO_SYNC=1      syncs do nothing and succeed
 *
 * The calls go to the kernel by number, so that nothing here is interposed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
/* The trace's descriptor: out of the way of the program's. */
#define TRACE_FD_MIN 200

enum action { NOTHING, KILL_BEFORE, KILL_AFTER, KILL_AT, FAIL, SHORTEN };

static struct {
	const char *scope, *only, *boot;
	bool no_sync;
	int trace;
	enum action action;
	unsigned long nth, argument, times;
	unsigned long count;
	const char *name; /* of the calls that fail, from the nth on */
	unsigned long hits;
} fault = { .trace = -1 };

__attribute__((constructor)) static void
read_plan(void)
{
	const char *plan = getenv("FAULT_PLAN"), *trace = getenv("FAULT_TRACE");
	char what[32] = "";

	fault.scope = getenv("FAULT_SCOPE");
	fault.only = getenv("FAULT_ONLY");
	fault.boot = getenv("FAULT_BOOT_ID");
	fault.no_sync = getenv("FAULT_NO_SYNC") != NULL;
	if (trace != NULL) {
		int fd = (int)syscall(SYS_openat, AT_FDCWD, trace,
		    O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

		fault.trace =
		    (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, TRACE_FD_MIN);
		syscall(SYS_close, fd);
	}
	if (plan == NULL)
		return;
	if (sscanf(plan, "%lu:%31[a-z-]=%lu,%lu", &fault.nth, what,
		&fault.argument, &fault.times) < 2)
		abort();
	fault.action = strcmp(what, "kill-before") == 0  ? KILL_BEFORE
		       : strcmp(what, "kill-after") == 0 ? KILL_AFTER
		       : strcmp(what, "kill-at") == 0    ? KILL_AT
		       : strcmp(what, "error") == 0      ? FAIL
		       : strcmp(what, "short") == 0      ? SHORTEN
							 : NOTHING;
	if (fault.action == NOTHING)
		abort();
}

static _Noreturn void
end_process(void)
{
	for (;;)
		syscall(SYS_kill, (int)syscall(SYS_getpid), SIGKILL);
}

static bool
in_scope(const char *path)
{
	const char *scope = fault.scope;

	while (scope != NULL && *scope != '\0') {
		size_t len = strcspn(scope, ":");

		if (len > 0 && strncmp(path, scope, len) == 0)
			return true;
		scope += len + (scope[len] == ':');
	}
	return false;
}

/* The path of a descriptor, or of a name below it. */
static bool
find_path(int fd, const char *name, char path[static 2 * PATH_MAX])
{
	char link[64];
	size_t used = 0;

	if (name == NULL && (fd < 0 || fd == STDERR_FILENO))
		return false;
	if (name == NULL || name[0] != '/') {
		ssize_t n;

		if (fd == AT_FDCWD)
			snprintf(link, sizeof(link), "/proc/self/cwd");
		else
			snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
		if (n < 0)
			return false;
		used = (size_t)n;
		path[used] = '\0';
	}
	if (name != NULL)
		snprintf(
		    path + used, PATH_MAX, "%s%s", used > 0 ? "/" : "", name);
	return true;
}

static bool
counts(
    const char *name, int fd, const char *file, char path[static 2 * PATH_MAX])
{
	if (fault.only != NULL)
		return strcmp(name, fault.only) == 0;
	return strcmp(name, "getrandom") == 0 ||
	       (find_path(fd, file, path) && in_scope(path));
}

/* A call that begins, and what is to become of it. */
struct call {
	bool after, fail, shorten;
	bool cut; /* a write that ends the process after `bytes` of it */
	size_t bytes;
};

static struct call
begin(const char *name, int fd, const char *file, size_t bytes, size_t first)
{
	struct call call = { 0 };
	char path[2 * PATH_MAX], line[2 * PATH_MAX + 128];
	int error = errno;
	unsigned long number;

	if (fault.trace < 0 && fault.action == NOTHING)
		return call;
	path[0] = '\0';
	if (!counts(name, fd, file, path)) {
		errno = error;
		return call;
	}
	number = __atomic_add_fetch(&fault.count, 1, __ATOMIC_SEQ_CST);
	if (fault.trace >= 0) {
		int len = snprintf(line, sizeof(line), "%lu %s %zu %zu %s\n",
		    number, name, bytes, first, path);

		syscall(SYS_write, fault.trace, line, (size_t)len);
	}
	errno = error;
	if (fault.action == NOTHING || number < fault.nth)
		return call;
	if (number == fault.nth) {
		fault.name = name;
		if (fault.action == KILL_BEFORE)
			end_process();
		call.after = fault.action == KILL_AFTER;
		call.cut = fault.action == KILL_AT;
		call.bytes = fault.argument;
	}
	if (fault.name != NULL && strcmp(fault.name, name) == 0 &&
	    (fault.times == 0 || fault.hits < fault.times)) {
		fault.hits++;
		call.fail = fault.action == FAIL;
		call.shorten = fault.action == SHORTEN;
	}
	return call;
}

static long
end(const struct call *call, long result)
{
	if (call->after || call->cut)
		end_process();
	return result;
}

static int
fail(void)
{
	errno = (int)fault.argument;
	return -1;
}

/* How much of `len` a shortened or cut call may do. */
static size_t
allow(const struct call *call, size_t len)
{
	if (call->cut)
		return call->bytes < len ? call->bytes : len;
	return call->shorten && len > 1 ? len / 2 : len;
}

#define CALL(name, fd, file, kind, invocation)                               \
	do {                                                                 \
		struct call call = begin(name, fd, file, (size_t)(kind), 0); \
		if (call.fail)                                               \
			return fail();                                       \
		return (int)end(&call, invocation);                          \
	} while (0)
#define SIMPLE(name, fd, file, invocation) CALL(name, fd, file, 0, invocation)
/* What it is to do stands in the trace as if it were bytes. */
#define KIND(name, fd, kind, invocation) CALL(name, fd, NULL, kind, invocation)

static int
do_open(const char *name, int dir, const char *file, int flags, mode_t mode)
{
	if (fault.boot != NULL && strcmp(file, BOOT_ID) == 0)
		file = fault.boot;
	SIMPLE(name, dir, file, syscall(SYS_openat, dir, file, flags, mode));
}

#define READ_MODE(flags, mode)                          \
	do {                                            \
		if (((flags)&O_CREAT) != 0 ||           \
		    ((flags)&O_TMPFILE) == O_TMPFILE) { \
			va_list list;                   \
			va_start(list, flags);          \
			mode = va_arg(list, mode_t);    \
			va_end(list);                   \
		}                                       \
	} while (0)

int
open(const char *file, int flags, ...)
{
	mode_t mode = 0;

	READ_MODE(flags, mode);
	return do_open("open", AT_FDCWD, file, flags, mode);
}

int
openat(int dir, const char *file, int flags, ...)
{
	mode_t mode = 0;

	READ_MODE(flags, mode);
	return do_open("openat", dir, file, flags, mode);
}

/* The descriptor is closed even where that fails. */
int
close(int fd)
{
	struct call call = begin("close", fd, NULL, 0, 0);
	long result = end(&call, syscall(SYS_close, fd));

	return call.fail ? fail() : (int)result;
}

ssize_t
read(int fd, void *buf, size_t len)
{
	struct call call = begin("read", fd, NULL, len, len);

	if (call.fail)
		return fail();
	return end(&call, syscall(SYS_read, fd, buf, allow(&call, len)));
}

ssize_t
pread(int fd, void *buf, size_t len, off_t offset)
{
	struct call call = begin("pread", fd, NULL, len, len);

	if (call.fail)
		return fail();
	return end(
	    &call, syscall(SYS_pread64, fd, buf, allow(&call, len), offset));
}

ssize_t
write(int fd, const void *buf, size_t len)
{
	struct call call = begin("write", fd, NULL, len, len);

	if (call.fail)
		return fail();
	return end(&call, syscall(SYS_write, fd, buf, allow(&call, len)));
}

ssize_t
pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	struct call call = begin("pwrite", fd, NULL, len, len);

	if (call.fail)
		return fail();
	return end(
	    &call, syscall(SYS_pwrite64, fd, buf, allow(&call, len), offset));
}

/* Gathered calls, `offset` -1: of the file's own. */
static ssize_t
write_parts(
    const char *name, int fd, const struct iovec *parts, int n, off_t offset)
{
	size_t len = 0, left;
	struct call call;
	struct iovec some[16];
	int used = 0;

	for (int i = 0; i < n; i++)
		len += parts[i].iov_len;
	call = begin(name, fd, NULL, len, n > 0 ? parts[0].iov_len : 0);
	if (call.fail)
		return fail();
	left = allow(&call, len);
	if (left < len) {
		for (; used < n && used < 16 && left > 0; used++) {
			some[used] = parts[used];
			if (some[used].iov_len > left)
				some[used].iov_len = left;
			left -= some[used].iov_len;
		}
		parts = some;
		n = used;
	}
	if (offset < 0)
		return end(&call, syscall(SYS_writev, fd, parts, n));
	return end(&call, syscall(SYS_pwritev, fd, parts, n, offset, 0L));
}

ssize_t
pwritev(int fd, const struct iovec *parts, int n, off_t offset)
{
	return write_parts("pwritev", fd, parts, n, offset);
}

ssize_t
writev(int fd, const struct iovec *parts, int n)
{
	return write_parts("writev", fd, parts, n, -1);
}

int
fsync(int fd)
{
	if (fault.no_sync)
		return 0;
	SIMPLE("fsync", fd, NULL, syscall(SYS_fsync, fd));
}

int
fdatasync(int fd)
{
	if (fault.no_sync)
		return 0;
	SIMPLE("fdatasync", fd, NULL, syscall(SYS_fdatasync, fd));
}

int
ftruncate(int fd, off_t len)
{
	SIMPLE("ftruncate", fd, NULL, syscall(SYS_ftruncate, fd, len));
}

int
fstat(int fd, struct stat *st)
{
	SIMPLE("fstat", fd, NULL, syscall(SYS_fstat, fd, st));
}

int
fstatat(int dir, const char *file, struct stat *st, int flags)
{
	SIMPLE("fstatat", dir, file,
	    syscall(SYS_newfstatat, dir, file, st, flags));
}

int
stat(const char *file, struct stat *st)
{
	SIMPLE("stat", AT_FDCWD, file,
	    syscall(SYS_newfstatat, AT_FDCWD, file, st, 0));
}

int
statx(int dir, const char *file, int flags, unsigned mask, struct statx *st)
{
	SIMPLE(
	    "statx", dir, file, syscall(SYS_statx, dir, file, flags, mask, st));
}

int
fstatfs(int fd, struct statfs *st)
{
	SIMPLE("fstatfs", fd, NULL, syscall(SYS_fstatfs, fd, st));
}

/* Not a system call: libc makes it of fstatfs. */
int
fstatvfs(int fd, struct statvfs *st)
{
	static __typeof__(&fstatvfs) next;

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "fstatvfs");
	SIMPLE("fstatvfs", fd, NULL, next(fd, st));
}

int
linkat(int from, const char *a, int to, const char *b, int flags)
{
	SIMPLE("linkat", to, b, syscall(SYS_linkat, from, a, to, b, flags));
}

int
renameat2(int from, const char *a, int to, const char *b, unsigned flags)
{
	SIMPLE(
	    "renameat2", to, b, syscall(SYS_renameat2, from, a, to, b, flags));
}

int
renameat(int from, const char *a, int to, const char *b)
{
	SIMPLE("renameat", to, b, syscall(SYS_renameat2, from, a, to, b, 0));
}

int
rename(const char *a, const char *b)
{
	SIMPLE("rename", AT_FDCWD, b,
	    syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 0));
}

int
unlinkat(int dir, const char *file, int flags)
{
	SIMPLE("unlinkat", dir, file, syscall(SYS_unlinkat, dir, file, flags));
}

int
unlink(const char *file)
{
	SIMPLE(
	    "unlink", AT_FDCWD, file, syscall(SYS_unlinkat, AT_FDCWD, file, 0));
}

int
mkdirat(int dir, const char *file, mode_t mode)
{
	SIMPLE("mkdirat", dir, file, syscall(SYS_mkdirat, dir, file, mode));
}

int
mkdir(const char *file, mode_t mode)
{
	SIMPLE("mkdir", AT_FDCWD, file,
	    syscall(SYS_mkdirat, AT_FDCWD, file, mode));
}

int
faccessat(int dir, const char *file, int mode, int flags)
{
	SIMPLE("faccessat", dir, file,
	    syscall(SYS_faccessat2, dir, file, mode, flags));
}

int
link(const char *a, const char *b)
{
	SIMPLE("link", AT_FDCWD, b, syscall(SYS_link, a, b));
}

int
lstat(const char *file, struct stat *st)
{
	SIMPLE("lstat", AT_FDCWD, file,
	    syscall(SYS_newfstatat, AT_FDCWD, file, st, AT_SYMLINK_NOFOLLOW));
}

int
fchown(int fd, uid_t user, gid_t group)
{
	SIMPLE("fchown", fd, NULL, syscall(SYS_fchown, fd, user, group));
}

int
fchmod(int fd, mode_t mode)
{
	SIMPLE("fchmod", fd, NULL, syscall(SYS_fchmod, fd, mode));
}

/* Only its locks count, or all but these if it is what counts. */
int
fcntl(int fd, int command, ...)
{
	va_list list;
	void *argument;

	va_start(list, command);
	argument = va_arg(list, void *);
	va_end(list);
	bool locks = command == F_OFD_SETLK || command == F_SETLK;
	if (locks == (fault.only == NULL))
		KIND("fcntl", fd, locks ? 0 : command,
		    syscall(SYS_fcntl, fd, command, argument));
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

void *
mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
	struct call call = { 0 };

	if (fd >= 0)
		call = begin("mmap", fd, NULL, 0, 0);
	if (call.fail) {
		fail();
		return MAP_FAILED;
	}
	/* The kernel's result is an address, and -1 is MAP_FAILED. */
	return (void *)end(
	    &call, syscall(SYS_mmap, at, len, protection, flags, fd, offset));
}

ssize_t
getrandom(void *buf, size_t len, unsigned flags)
{
	struct call call = begin("getrandom", -1, NULL, len, len);

	if (call.fail)
		return fail();
	return end(
	    &call, syscall(SYS_getrandom, buf, allow(&call, len), flags));
}

/* These touch no file, and count where they are what is asked for. */
#define RARE(name, kind, invocation)              \
	do {                                      \
		if (fault.only == NULL)           \
			return (int)invocation;   \
		KIND(name, -1, kind, invocation); \
	} while (0)

int
accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
	RARE("accept4", 0, syscall(SYS_accept4, fd, address, len, flags));
}

int
epoll_create1(int flags)
{
	RARE("epoll_create1", 0, syscall(SYS_epoll_create1, flags));
}

int
epoll_ctl(int fd, int what, int file, struct epoll_event *event)
{
	RARE("epoll_ctl", what, syscall(SYS_epoll_ctl, fd, what, file, event));
}

int
epoll_wait(int fd, struct epoll_event *events, int n, int timeout_ms)
{
	RARE("epoll_wait", 0,
	    syscall(SYS_epoll_pwait, fd, events, n, timeout_ms, NULL, 8));
}

int
eventfd(unsigned value, int flags)
{
	RARE("eventfd", 0, syscall(SYS_eventfd2, value, flags));
}

int
memfd_create(const char *name, unsigned flags)
{
	RARE("memfd_create", 0, syscall(SYS_memfd_create, name, flags));
}

ssize_t
send(int fd, const void *buf, size_t len, int flags)
{
	struct call call = { 0 };

	if (fault.only != NULL)
		call = begin("send", -1, NULL, 0, 0);
	if (call.fail)
		return fail();
	return end(&call, syscall(SYS_sendto, fd, buf, len, flags, NULL, 0));
}

int
setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	RARE("setsockopt", 0,
	    syscall(SYS_setsockopt, fd, level, name, value, len));
}

int
setrlimit(__rlimit_resource_t which, const struct rlimit *limit)
{
	RARE("setrlimit", which, syscall(SYS_setrlimit, which, limit));
}

off_t
lseek(int fd, off_t offset, int whence)
{
	struct call call = { 0 };

	if (fault.only != NULL)
		call = begin("lseek", fd, NULL, 0, 0);
	if (call.fail)
		return fail();
	return end(&call, syscall(SYS_lseek, fd, offset, whence));
}

/* Not a system call, and what fails is its result. */
int
pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
    void *(*work)(void *), void *argument)
{
	static __typeof__(&pthread_create) next;
	struct call call = { 0 };

	if (fault.only != NULL)
		call = begin("pthread_create", -1, NULL, 0, 0);
	if (call.fail)
		return (int)fault.argument;
	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
	return next(thread, attributes, work, argument);
}

/* With 64-bit offsets both names are of the same function. */
#define ALIAS(name) __attribute__((alias(name)))
int open64(const char *file, int flags, ...) ALIAS("open");
int openat64(int dir, const char *file, int flags, ...) ALIAS("openat");
ssize_t pread64(int fd, void *buf, size_t len, off64_t offset) ALIAS("pread");
ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t offset)
    ALIAS("pwrite");
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off64_t offset)
    ALIAS("pwritev");
int ftruncate64(int fd, off64_t len) ALIAS("ftruncate");
off64_t lseek64(int fd, off64_t offset, int whence) ALIAS("lseek");
void *mmap64(void *at, size_t len, int protection, int flags, int fd,
    off64_t offset) ALIAS("mmap");
