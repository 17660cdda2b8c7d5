/*
 * sandbox: see gateway.h.  landlock's first version is enough: seccomp forbids
 * what later versions restrict (truncate, O_TRUNC, ioctl of devices).  A
 * forbidden call fails with ENOSYS: libraries then use another call or none.
 * The following calls kill the process: execve, execveat, ptrace, calls of
 * other architectures and, without a database, sockets other than AF_UNIX.
 */
#include "gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ground/log.h"

/* All rights of landlock's first version; the rights to read. */
#define EVERYTHING (2 * LANDLOCK_ACCESS_FS_MAKE_SYM - 1)
#define READING (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)

/* The calls allowed on all architectures; the fault tests need readlinkat. */
static const char allowed[] =
    "accept4 access brk clock_gettime clock_gettime64 clock_nanosleep "
    "clock_nanosleep_time64 close connect epoll_create1 epoll_ctl epoll_pwait "
    "epoll_wait eventfd2 exit exit_group faccessat faccessat2 fadvise64 "
    "fallocate fdatasync flock fstat fstat64 fstatat64 fstatfs fstatfs64 "
    "fsync ftruncate ftruncate64 futex futex_time64 getdents64 getegid "
    "geteuid getgid getpeername getpid getrandom getsockopt gettid "
    "gettimeofday getuid _llseek linkat lseek lstat madvise memfd_create "
    "mincore mkdirat mmap mmap2 mprotect mremap munmap nanosleep newfstatat "
    "poll ppoll ppoll_time64 pread64 pwrite64 pwritev read readlink "
    "readlinkat readv recv recvfrom recvmsg renameat renameat2 "
    "restart_syscall rseq rt_sigaction rt_sigprocmask rt_sigreturn "
    "rt_sigtimedwait rt_sigtimedwait_time64 sched_getaffinity sched_yield "
    "send sendmsg sendto set_robust_list setsockopt shutdown sigreturn stat "
    "statfs statfs64 statx sysinfo time uname unlink unlinkat write writev";

static void
open_up(int rules, const char *dir, uint64_t access)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = access,
		.parent_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) };

	syscall(
	    SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
	close(rule.parent_fd);
}

/*
 * Allow reading in the token file's directory.  Warn if that is in `store`,
 * where the service can write, or is /, which makes all files readable.
 */
static void
open_tokens(int rules, const char *path, const char *store)
{
	char file[PATH_MAX], dir[PATH_MAX];
	size_t len = strlen(store);

	snprintf(file, sizeof(file), "%s", path);
	if (realpath(dirname(file), dir) == NULL)
		return;
	open_up(rules, dir, READING);
	if (dir[1] == '\0' || (len > 0 && strncmp(dir, store, len) == 0 &&
				  strchr("/", dir[len]) != NULL))
		log_warning("%s: holds the token file, so the service can %s; "
			    "move that file to its own directory",
		    dir, dir[1] == '\0' ? "read all" : "write to it");
}

/* Allow reading what libpq, the resolver and the PostgreSQL module need. */
static void
open_for_database(int rules)
{
	const char *home = getenv("HOME");
	const char *dirs[] = { "/etc", "/usr", "/lib", "/run",
		home != NULL && strcmp(home, "/") != 0 ? home : "" };
	char program[PATH_MAX];

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		open_up(rules, dirs[i], READING);
	if (realpath("/proc/self/exe", program) != NULL)
		open_up(rules, dirname(dirname(program)), READING);
}

static bool
close_files(const struct config *config)
{
	struct landlock_ruleset_attr all = { 0 };
	char store[PATH_MAX] = "", tokens[PATH_MAX];

	all.handled_access_fs = EVERYTHING;
	int rules =
	    (int)syscall(SYS_landlock_create_ruleset, &all, sizeof(all), 0);

	if (config->database != NULL)
		open_for_database(rules);
	else if (realpath(config->dir, store) != NULL)
		open_up(rules, store, EVERYTHING);
	open_tokens(rules, config->tokens, store);
	/* The token file may be a link into another directory. */
	if (realpath(config->tokens, tokens) != NULL &&
	    strcmp(tokens, config->tokens) != 0)
		open_tokens(rules, tokens, store);
	bool closed = syscall(SYS_landlock_restrict_self, rules, 0) == 0;
	close(rules);
	return closed;
}

/* Allow the named calls.  Return 0, or nonzero on failure. */
static int
allow(scmp_filter_ctx filter, const char *names)
{
	char name[32];
	int failed = 0, len;

	for (; sscanf(names, " %31s%n", name, &len) == 1; names += len) {
		int call = seccomp_syscall_resolve_name(name);

		/* An older libseccomp does not know every name. */
		if (call != __NR_SCMP_ERROR)
			failed |=
			    seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0);
	}
	return failed;
}

#define RULE(action, call, ...)      \
	(failed |= seccomp_rule_add( \
	     filter, SCMP_ACT_##action, SCMP_SYS(call), __VA_ARGS__))

static bool
close_calls(bool database)
{
	const scmp_datum_t self = (scmp_datum_t)getpid();
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
	/* The flags are clone's first argument, but on s390 the second. */
	const unsigned flags = seccomp_arch_native() == SCMP_ARCH_S390X;
	int failed = allow(filter, allowed);

	RULE(KILL_PROCESS, execve, 0);
	RULE(KILL_PROCESS, execveat, 0);
	RULE(KILL_PROCESS, ptrace, 0);
	if (database)
		failed |= allow(filter,
		    "bind getsockname recvmmsg sendmmsg socket socketpair");
	else {
		RULE(KILL_PROCESS, socket, 1, SCMP_A0(SCMP_CMP_NE, AF_UNIX, 0));
		/* For sd_notify, and for syslog(3) if its daemon restarts. */
		RULE(ALLOW, socket, 2, SCMP_A0(SCMP_CMP_EQ, AF_UNIX, 0),
		    SCMP_A1(SCMP_CMP_EQ, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	}
	/* file_forget makes an overlay report its lower file. */
	RULE(ALLOW, ioctl, 1, SCMP_A1(SCMP_CMP_EQ, FS_IOC_FIEMAP, 0));
	RULE(ALLOW, kill, 1, SCMP_A0(SCMP_CMP_EQ, self, 0));
	RULE(ALLOW, tgkill, 1, SCMP_A0(SCMP_CMP_EQ, self, 0));
	RULE(ALLOW, clone, 1,
	    SCMP_CMP(flags, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
	RULE(ALLOW, openat, 1, SCMP_A2(SCMP_CMP_MASKED_EQ, O_TRUNC, 0));
	/* F_SETOWN, F_SETSIG and F_SETOWN_EX, which could signal other
	   processes, have this bit in common: no command with it is allowed. */
	RULE(ALLOW, fcntl, 1, SCMP_A1(SCMP_CMP_MASKED_EQ, F_SETOWN, 0));
	RULE(ALLOW, fcntl64, 1, SCMP_A1(SCMP_CMP_MASKED_EQ, F_SETOWN, 0));
	/* musl calls open where the architecture has it. */
	RULE(ALLOW, open, 1, SCMP_A1(SCMP_CMP_MASKED_EQ, O_TRUNC, 0));
	seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	seccomp_attr_set(
	    filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	bool closed = failed == 0 && seccomp_load(filter) == 0;
	seccomp_release(filter);
	return closed;
}

void
sandbox_enter(const struct config *config)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3,
		0 };
	const struct __user_cap_data_struct none[2] = { { 0 } };

#ifdef NO_SANDBOX
	return;
#endif
	if (!config->sandbox) {
		log_warning("PLANT_STORE_SANDBOX=off: this process's system "
			    "calls and file access are unrestricted");
		return;
	}
	/* Otherwise syslog(3) would read the time zone file later. */
	tzset();
	/* An unprivileged process needs this to use landlock and seccomp. */
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (!close_files(config))
		log_warning("landlock is not supported by this kernel, or was "
			    "refused: every file of this user is accessible");
	/* The unit's filter may refuse it; the unit leaves no capabilities. */
	syscall(SYS_capset, &header, none);
	if (!close_calls(config->database != NULL))
		log_warning("seccomp is not supported by this kernel, or was "
			    "refused: system calls are unrestricted");
}
