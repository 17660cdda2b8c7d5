/*
 * preload: lets calls of a whole program fail, for LD_PRELOAD.
 *
 * System calls and allocations are counted, failed, shortened, delayed, or the
 * program's end; the program is not changed.  Only calls count that touch what
 * is in scope: files below the paths of FAULT_SCOPE (separated by colons; "pipe"
 * means stdin and stdout, when these are pipes), and getrandom.  Settings, all
 * from the environment:
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
 *	    hold=E           it waits until FAULT_HOLD, a file that it makes, is
 *	                     removed; then it goes on, or with E fails once
 *	FAULT_ONLY=NAME      only calls of that name count, whatever they touch,
 *	                     and these too: accept4, epoll_create1, epoll_ctl,
 *	                     epoll_wait, eventfd, fcntl, lseek, memfd_create,
 *	                     pthread_create, send, setrlimit, setsockopt
 *	FAULT_ALLOC=OBJECTS  only allocations count, by the address that they are
 *	                     asked from: of the program and of these libraries
 *	FAULT_PROGRAMS=NAMES only programs of these names are hit
 *	FAULT_CLOCK=FILE     the wall clock is off by the seconds in this file,
 *	                     read anew at each call; CLOCK_MONOTONIC stays
 *	FAULT_NO_SYNC=1      syncs do nothing and succeed
 *	FAULT_SYNC_MS=N      fdatasync takes N milliseconds longer, as on a
 *	                     slower disk
 *
 * System calls go to the kernel by number, so that nothing here is interposed.
 * The real allocator is looked up, so that valgrind can have its own there.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* The trace's descriptor: out of the way of the program's. */
#define TRACE_FD_MIN 200
#define OBJECTS_MAX 8

enum action { NOTHING, KILL_BEFORE, KILL_AFTER, KILL_AT, FAIL, SHORTEN, HOLD };

static struct {
	const char *scope, *only, *clock, *hold;
	bool no_sync;
	struct timespec delay;
	int trace;
	enum action action;
	unsigned long nth, argument, times;
	unsigned long count;
	const char *name; /* of the calls that fail, from the nth on */
	unsigned long hits;
} fault = { .trace = -1 };

/* Whose allocations count: the executable parts of the objects. */
static struct {
	const char *names; /* NULL: nobody's */
	int n;
	struct {
		uintptr_t begin, end;
		char name[64];
	} at[OBJECTS_MAX];
} objects;

/* Whether `text` begins with one of the words, separated by colons. */
static bool
begins_with(const char *text, const char *words)
{
	while (words != NULL && *words != '\0') {
		size_t len = strcspn(words, ":");

		if (len > 0 && strncmp(text, words, len) == 0)
			return true;
		words += len + (words[len] == ':');
	}
	return false;
}

/* The first of all is the program. */
static int
note_object(struct dl_phdr_info *info, size_t size, void *seen)
{
	bool program = (*(int *)seen)++ == 0;
	const char *name = program ? "program" : basename(info->dlpi_name);

	(void)size;
	if (!program && !begins_with(name, objects.names))
		return 0;
	for (int i = 0; i < info->dlpi_phnum && objects.n < OBJECTS_MAX; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0)
			continue;
		objects.at[objects.n].begin = info->dlpi_addr + part->p_vaddr;
		objects.at[objects.n].end =
		    objects.at[objects.n].begin + part->p_memsz;
		snprintf(objects.at[objects.n].name, sizeof(objects.at[0].name),
		    "%s", name);
		objects.n++;
	}
	return 0;
}

static void
read_plan(const char *plan)
{
	static const char *const names[] = {
		[KILL_BEFORE] = "kill-before",
		[KILL_AFTER] = "kill-after",
		[KILL_AT] = "kill-at",
		[FAIL] = "error",
		[SHORTEN] = "short",
		[HOLD] = "hold",
	};
	char what[32] = "";

	if (sscanf(plan, "%lu:%31[a-z-]=%lu,%lu", &fault.nth, what,
		&fault.argument, &fault.times) < 2)
		abort();
	for (int i = KILL_BEFORE; i <= HOLD; i++)
		if (strcmp(what, names[i]) == 0)
			fault.action = (enum action)i;
	if (fault.action == NOTHING)
		abort();
}

static bool
is_meant(void)
{
	const char *names = getenv("FAULT_PROGRAMS");
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (names == NULL || len < 0)
		return names == NULL;
	path[len] = '\0';
	return begins_with(basename(path), names);
}

__attribute__((constructor)) static void
read_environment(void)
{
	const char *plan = getenv("FAULT_PLAN"), *trace = getenv("FAULT_TRACE");
	const char *delay = getenv("FAULT_SYNC_MS");
	long delay_ms = delay == NULL ? 0 : strtol(delay, NULL, 10);
	int seen = 0;

	fault.clock = getenv("FAULT_CLOCK");
	fault.hold = getenv("FAULT_HOLD");
	fault.no_sync = getenv("FAULT_NO_SYNC") != NULL;
	fault.delay.tv_sec = delay_ms / 1000;
	fault.delay.tv_nsec = delay_ms % 1000 * 1000000;
	if (!is_meant())
		return;
	fault.scope = getenv("FAULT_SCOPE");
	fault.only = getenv("FAULT_ONLY");
	objects.names = getenv("FAULT_ALLOC");
	if (objects.names != NULL)
		dl_iterate_phdr(note_object, &seen);
	if (trace != NULL) {
		int fd = (int)syscall(SYS_openat, AT_FDCWD, trace,
		    O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

		fault.trace =
		    (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, TRACE_FD_MIN);
		syscall(SYS_close, fd);
	}
	if (plan != NULL)
		read_plan(plan);
}

static _Noreturn void
end_process(void)
{
	for (;;)
		syscall(SYS_kill, (int)syscall(SYS_getpid), SIGKILL);
}

static void
hold(void)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	int fd = (int)syscall(SYS_openat, AT_FDCWD, fault.hold,
	    O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	syscall(SYS_close, fd);
	while (syscall(SYS_faccessat, AT_FDCWD, fault.hold, F_OK) == 0)
		syscall(SYS_nanosleep, &pause, NULL);
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
	if (objects.names != NULL)
		return false; /* but for allocations, which do not ask here */
	if (fault.only != NULL)
		return strcmp(name, fault.only) == 0;
	return strcmp(name, "getrandom") == 0 ||
	       (find_path(fd, file, path) && begins_with(path, fault.scope));
}

/* A call that begins, and what is to become of it. */
struct call {
	bool after, fail, shorten;
	bool cut; /* a write that ends the process after `bytes` of it */
	size_t bytes;
};

/* A call that counts. */
static struct call
take(const char *name, size_t bytes, size_t first, const char *path)
{
	struct call call = { 0 };
	unsigned long number =
	    __atomic_add_fetch(&fault.count, 1, __ATOMIC_SEQ_CST);

	if (fault.trace >= 0) {
		char line[2 * PATH_MAX + 128];
		int len = snprintf(line, sizeof(line), "%lu %s %zu %zu %s\n",
		    number, name, bytes, first, path);

		syscall(SYS_write, fault.trace, line, (size_t)len);
	}
	if (fault.action == NOTHING || number < fault.nth)
		return call;
	if (number == fault.nth) {
		fault.name = name;
		if (fault.action == KILL_BEFORE)
			end_process();
		if (fault.action == HOLD) {
			hold();
			call.fail = fault.argument != 0;
		}
		call.after = fault.action == KILL_AFTER;
		call.cut = fault.action == KILL_AT;
		call.bytes = fault.argument;
	}
	if (fault.action != HOLD && fault.name != NULL &&
	    strcmp(fault.name, name) == 0 &&
	    (fault.times == 0 || fault.hits < fault.times)) {
		fault.hits++;
		call.fail = fault.action == FAIL;
		call.shorten = fault.action == SHORTEN;
	}
	return call;
}

static struct call
begin(const char *name, int fd, const char *file, size_t bytes, size_t first)
{
	struct call call = { 0 };
	char path[2 * PATH_MAX] = "";
	int error = errno;

	if (fault.trace < 0 && fault.action == NOTHING)
		return call;
	if (counts(name, fd, file, path))
		call = take(name, bytes, first, path);
	errno = error;
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

/* The rest of a function that is nothing but a call of that name. */
#define CALL(name, fd, file, kind, invocation)                               \
	do {                                                                 \
		struct call call = begin(name, fd, file, (size_t)(kind), 0); \
		if (call.fail)                                               \
			return fail();                                       \
		return end(&call, invocation);                               \
	} while (0)

/*
 * A whole function: its name and parameters, the descriptor and the name of the
 * file that it touches, and what it is made of.
 */
#define FUNCTION(name, parameters, fd, file, invocation) \
	int name parameters                              \
	{                                                \
		CALL(#name, fd, file, 0, invocation);    \
	}
/* One of `len` bytes, of which fewer may be read or written. */
#define TRANSFER(name, parameters, invocation)                       \
	ssize_t name parameters                                      \
	{                                                            \
		struct call call = begin(#name, fd, NULL, len, len); \
                                                                     \
		if (call.fail)                                       \
			return fail();                               \
		len = allow(&call, len);                             \
		return end(&call, invocation);                       \
	}
/* One that touches no file, and counts where it is what is asked for. */
#define RARE(type, name, parameters, kind, invocation)   \
	type name parameters                             \
	{                                                \
		CALL(#name, -1, NULL, kind, invocation); \
	}

/* Where no file is to be made, there is no mode, and the kernel reads none. */
static int
do_open(const char *name, int dir, const char *file, int flags, va_list list)
{
	mode_t mode = va_arg(list, mode_t);

	CALL(name, dir, file, 0, syscall(SYS_openat, dir, file, flags, mode));
}

int
open(const char *file, int flags, ...)
{
	va_list list;

	va_start(list, flags);
	int fd = do_open("open", AT_FDCWD, file, flags, list);
	va_end(list);
	return fd;
}

int
openat(int dir, const char *file, int flags, ...)
{
	va_list list;

	va_start(list, flags);
	int fd = do_open("openat", dir, file, flags, list);
	va_end(list);
	return fd;
}

/* The descriptor is closed even where that fails. */
int
close(int fd)
{
	struct call call = begin("close", fd, NULL, 0, 0);
	long result = end(&call, syscall(SYS_close, fd));

	return call.fail ? fail() : (int)result;
}

TRANSFER(read, (int fd, void *buf, size_t len), syscall(SYS_read, fd, buf, len))
TRANSFER(pread, (int fd, void *buf, size_t len, off_t offset),
    syscall(SYS_pread64, fd, buf, len, offset))
TRANSFER(write, (int fd, const void *buf, size_t len),
    syscall(SYS_write, fd, buf, len))
TRANSFER(pwrite, (int fd, const void *buf, size_t len, off_t offset),
    syscall(SYS_pwrite64, fd, buf, len, offset))

ssize_t
writev(int fd, const struct iovec *parts, int n)
{
	size_t len = 0, left;
	struct call call;
	struct iovec some[16];
	int used = 0;

	for (int i = 0; i < n; i++)
		len += parts[i].iov_len;
	call = begin("writev", fd, NULL, len, n > 0 ? parts[0].iov_len : 0);
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
	return end(&call, syscall(SYS_writev, fd, parts, n));
}

int
fsync(int fd)
{
	if (fault.no_sync)
		return 0;
	CALL("fsync", fd, NULL, 0, syscall(SYS_fsync, fd));
}

int
fdatasync(int fd)
{
	struct timespec left = fault.delay;

	if (fault.no_sync)
		return 0;
	while ((left.tv_sec > 0 || left.tv_nsec > 0) &&
	       nanosleep(&left, &left) < 0 && errno == EINTR)
		;
	CALL("fdatasync", fd, NULL, 0, syscall(SYS_fdatasync, fd));
}

FUNCTION(flock, (int fd, int how), fd, NULL, syscall(SYS_flock, fd, how))

/* Not a system call: libc makes it of fstatfs. */
int
fstatvfs(int fd, struct statvfs *st)
{
	static __typeof__(&fstatvfs) next;

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "fstatvfs");
	CALL("fstatvfs", fd, NULL, 0, next(fd, st));
}

FUNCTION(
    ftruncate, (int fd, off_t len), fd, NULL, syscall(SYS_ftruncate, fd, len))
FUNCTION(fstat, (int fd, struct stat *st), fd, NULL, syscall(SYS_fstat, fd, st))
FUNCTION(fstatat, (int dir, const char *file, struct stat *st, int flags), dir,
    file, syscall(SYS_newfstatat, dir, file, st, flags))
FUNCTION(stat, (const char *file, struct stat *st), AT_FDCWD, file,
    syscall(SYS_newfstatat, AT_FDCWD, file, st, 0))
FUNCTION(lstat, (const char *file, struct stat *st), AT_FDCWD, file,
    syscall(SYS_newfstatat, AT_FDCWD, file, st, AT_SYMLINK_NOFOLLOW))
FUNCTION(statx,
    (int dir, const char *file, int flags, unsigned mask, struct statx *st),
    dir, file, syscall(SYS_statx, dir, file, flags, mask, st))
FUNCTION(fstatfs, (int fd, struct statfs *st), fd, NULL,
    syscall(SYS_fstatfs, fd, st))
FUNCTION(linkat, (int from, const char *a, int to, const char *b, int flags),
    to, b, syscall(SYS_linkat, from, a, to, b, flags))
FUNCTION(renameat2,
    (int from, const char *a, int to, const char *b, unsigned flags), to, b,
    syscall(SYS_renameat2, from, a, to, b, flags))
FUNCTION(renameat, (int from, const char *a, int to, const char *b), to, b,
    syscall(SYS_renameat2, from, a, to, b, 0))
FUNCTION(rename, (const char *a, const char *b), AT_FDCWD, b,
    syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 0))
FUNCTION(unlinkat, (int dir, const char *file, int flags), dir, file,
    syscall(SYS_unlinkat, dir, file, flags))
FUNCTION(unlink, (const char *file), AT_FDCWD, file,
    syscall(SYS_unlinkat, AT_FDCWD, file, 0))
FUNCTION(mkdirat, (int dir, const char *file, mode_t mode), dir, file,
    syscall(SYS_mkdirat, dir, file, mode))
FUNCTION(mkdir, (const char *file, mode_t mode), AT_FDCWD, file,
    syscall(SYS_mkdirat, AT_FDCWD, file, mode))
FUNCTION(faccessat, (int dir, const char *file, int mode, int flags), dir, file,
    syscall(SYS_faccessat2, dir, file, mode, flags))
FUNCTION(fchown, (int fd, uid_t user, gid_t group), fd, NULL,
    syscall(SYS_fchown, fd, user, group))
FUNCTION(fchmod, (int fd, mode_t mode), fd, NULL, syscall(SYS_fchmod, fd, mode))

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
		CALL("fcntl", fd, NULL, locks ? 0 : command,
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

RARE(int, accept4,
    (int fd, struct sockaddr *address, socklen_t *len, int flags), 0,
    syscall(SYS_accept4, fd, address, len, flags))
RARE(int, epoll_create1, (int flags), 0, syscall(SYS_epoll_create1, flags))
RARE(int, epoll_ctl, (int fd, int what, int file, struct epoll_event *event),
    (size_t)what, syscall(SYS_epoll_ctl, fd, what, file, event))
RARE(int, epoll_wait,
    (int fd, struct epoll_event *events, int n, int timeout_ms), 0,
    syscall(SYS_epoll_pwait, fd, events, n, timeout_ms, NULL, 8))
RARE(int, eventfd, (unsigned value, int flags), 0,
    syscall(SYS_eventfd2, value, flags))
RARE(int, memfd_create, (const char *name, unsigned flags), 0,
    syscall(SYS_memfd_create, name, flags))
RARE(int, setsockopt,
    (int fd, int level, int name, const void *value, socklen_t len), 0,
    syscall(SYS_setsockopt, fd, level, name, value, len))
RARE(int, setrlimit, (__rlimit_resource_t which, const struct rlimit *limit),
    (size_t)which, syscall(SYS_setrlimit, which, limit))

RARE(ssize_t, send, (int fd, const void *buf, size_t len, int flags), 0,
    syscall(SYS_sendto, fd, buf, len, flags, NULL, 0))
RARE(off_t, lseek, (int fd, off_t offset, int whence), 0,
    syscall(SYS_lseek, fd, offset, whence))

/* Not a system call, and what fails is its result. */
int
pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
    void *(*work)(void *), void *argument)
{
	static __typeof__(&pthread_create) next;
	struct call call = begin("pthread_create", -1, NULL, 0, 0);

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
int ftruncate64(int fd, off64_t len) ALIAS("ftruncate");
off64_t lseek64(int fd, off64_t offset, int whence) ALIAS("lseek");
void *mmap64(void *at, size_t len, int protection, int flags, int fd,
    off64_t offset) ALIAS("mmap");

/* --- The clock ----------------------------------------------------------- */

/* The seconds are a decimal number, a sign before it, and a newline. */
static time_t
read_shift(void)
{
	char text[32] = "";
	int fd = fault.clock == NULL ? -1
				     : (int)syscall(SYS_openat, AT_FDCWD,
					   fault.clock, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (syscall(SYS_read, fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	syscall(SYS_close, fd);
	return (time_t)strtoll(text, NULL, 10);
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	static __typeof__(&clock_gettime) real;

	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(clock, now);
	if (result == 0 &&
	    (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += read_shift();
	return result;
}

time_t
time(time_t *seconds)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (seconds != NULL)
		*seconds = now.tv_sec;
	return now.tv_sec;
}

/* --- Allocations --------------------------------------------------------- */

/* The runtime behind main, such as the counting of lines, is not the program. */
static void
stop(void)
{
	objects.n = 0;
}

/* Whether the allocation asked for at `caller` is to fail. */
static bool
fails(const char *function, const void *caller)
{
	uintptr_t at = (uintptr_t)caller;
	int error = errno;
	char path[160];

	for (int i = 0; i < objects.n; i++) {
		if (at < objects.at[i].begin || at >= objects.at[i].end)
			continue;
		/* Not by the constructor: the last is called first. */
		if (fault.count == 0)
			atexit(stop);
		snprintf(path, sizeof(path), "%s of %s", function,
		    objects.at[i].name);
		if (take("allocation", 0, 0, path).fail) {
			errno = ENOMEM;
			return true;
		}
		errno = error;
		return false;
	}
	return false;
}

#define CALLER __builtin_return_address(0)

/* As the C library has it, but for those that are to fail, with `failure`. */
#define ALLOCATION(type, name, parameters, failure, ...)           \
	type name parameters                                       \
	{                                                          \
		static __typeof__(&name) real;                     \
                                                                   \
		if (real == NULL)                                  \
			*(void **)&real = dlsym(RTLD_NEXT, #name); \
		if (fails(#name, CALLER))                          \
			return failure;                            \
		return real(__VA_ARGS__);                          \
	}

ALLOCATION(void *, malloc, (size_t len), NULL, len)
ALLOCATION(void *, calloc, (size_t n, size_t size), NULL, n, size)
ALLOCATION(void *, realloc, (void *old, size_t len), NULL, old, len)
ALLOCATION(int, posix_memalign, (void **out, size_t alignment, size_t len),
    ENOMEM, out, alignment, len)

/* What libc allocates for its callers. */

ALLOCATION(char *, strndup, (const char *text, size_t len), NULL, text, len)
ALLOCATION(FILE *, fopencookie,
    (void *cookie, const char *mode, cookie_io_functions_t calls), NULL, cookie,
    mode, calls)

char *
strdup(const char *text)
{
	size_t len = strlen(text) + 1;
	char *copy = fails("strdup", CALLER) ? NULL : malloc(len);

	return copy == NULL ? NULL : memcpy(copy, text, len);
}

/* The second is what fortification makes of the first. */
int __asprintf_chk(char **out, int flag, const char *format, ...);
#define PRINT(name, parameters)                         \
	int name parameters                             \
	{                                               \
		va_list list;                           \
                                                        \
		if (fails("asprintf", CALLER))          \
			return -1;                      \
		va_start(list, format);                 \
		int len = vasprintf(out, format, list); \
		va_end(list);                           \
		return len;                             \
	}
PRINT(asprintf, (char **out, const char *format, ...))
PRINT(__asprintf_chk,
    (char **out, __attribute__((unused)) int flag, const char *format, ...))
