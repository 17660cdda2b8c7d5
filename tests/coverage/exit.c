/*
 * exit: lets a process that calls _exit keep the counts of its lines.
 *
 * scripts/coverage links it into its build, with --wrap=_exit: crash handlers,
 * children of unit tests and simulated kills end so.  A process that SIGKILL
 * ends still leaves no counts.
 */
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

void __gcov_dump(void);
_Noreturn void __wrap__exit(int status);

_Noreturn void
__wrap__exit(int status)
{
	/* Where a test takes the memory away, this may crash: it ends as well. */
	signal(SIGSEGV, SIG_DFL);
	__gcov_dump();
	for (;;)
		syscall(SYS_exit_group, status);
}
