/*
 * sync_shim: preloaded into a program by scripts/bench, to see what the disk
 * costs it.  SYNC_SHIM in the environment says what fdatasync does: "none", it
 * returns at once; a number, it takes so many milliseconds longer, as on a
 * slower disk.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int skip;
static struct timespec delay;

__attribute__((constructor)) static void
read_environment(void)
{
	const char *value = getenv("SYNC_SHIM");
	long ms;

	if (value == NULL)
		return;
	skip = strcmp(value, "none") == 0;
	ms = strtol(value, NULL, 10);
	delay.tv_sec = ms / 1000;
	delay.tv_nsec = ms % 1000 * 1000000;
}

int
fdatasync(int fd)
{
	struct timespec left = delay;

	if (skip)
		return 0;
	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
	return (int)syscall(SYS_fdatasync, fd);
}
