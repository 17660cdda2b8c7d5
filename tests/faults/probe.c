/*
 * probe: a system call that an attacker would make, for LD_PRELOAD.
 *
 * Where PROBE is "NAME ARGUMENT...", the first accept4 of the program, when it
 * serves, makes the call first and writes "probe: RESULT ERRNO" to stderr.  An
 * argument is a number or, with a slash first, a string.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name) #name, SYS_##name
static const struct {
	const char *name;
	long number;
} calls[] = { { CALL(chmod) }, { CALL(clone) }, { CALL(execve) },
	{ CALL(execveat) }, { CALL(fcntl) }, { CALL(kill) }, { CALL(mkdirat) },
	{ CALL(openat) }, { CALL(ptrace) }, { CALL(renameat) },
	{ CALL(setuid) }, { CALL(socket) }, { CALL(truncate) },
	{ CALL(unlinkat) }, { CALL(unshare) } };

static void
probe(char *text)
{
	const char *name = strsep(&text, " ");
	long arguments[6] = { 0 };
	char line[64];

	if (strcmp(name, "abort") == 0)
		abort();
	for (int i = 0; i < 6 && text != NULL; i++)
		arguments[i] = *text == '/'
				   ? (long)strsep(&text, " ")
				   : strtol(strsep(&text, " "), NULL, 0);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (strcmp(name, calls[i].name) != 0)
			continue;
		long result =
		    syscall(calls[i].number, arguments[0], arguments[1],
			arguments[2], arguments[3], arguments[4], arguments[5]);
		int len = snprintf(line, sizeof(line), "probe: %ld %d\n",
		    result, result < 0 ? errno : 0);
		if (write(STDERR_FILENO, line, (size_t)len) < 0)
			abort();
		return;
	}
	abort();
}

int
accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
	static int done;
	char *text = getenv("PROBE");

	/* The program's own probe whether there is such a call has none. */
	if (text != NULL && fd >= 0 &&
	    __atomic_exchange_n(&done, 1, __ATOMIC_SEQ_CST) == 0)
		probe(text);
	return (int)syscall(SYS_accept4, fd, address, len, flags);
}
