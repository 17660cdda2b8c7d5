/* dest: see dest.h. */
#include "dest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "ground/log.h"
#include "reader_state.h"

/* A directory is durable once the one that names it is synced. */
static int
sync_parent(int dir)
{
	int parent = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (parent < 0)
		return -1;
	int result = fsync(parent);
	int error = errno;
	close(parent);
	errno = error;
	return result;
}

/* What is missing is missing of an output. */
static int
unmade(const char *path, const char *what)
{
	int status = reader_error(path, what);

	return status == EX_NOINPUT ? EX_CANTCREAT : status;
}

int
dest_open(const char *path, int *status)
{
	bool made = mkdir(path, 0700) == 0;
	struct stat st;

	if (!made && errno != EEXIST) {
		*status = unmade(path, "cannot make it");
		return -1;
	}
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || (made && sync_parent(dir) < 0)) {
		*status = unmade(path, "cannot open");
	} else if (fstatat(dir, "lock", &st, 0) == 0) {
		log_error(
		    "%s: was served as a store; name another directory", path);
		*status = EX_CANTCREAT;
	} else if (flock(dir, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		log_error("%s: another process is making a copy there; try "
			  "again later",
		    path);
		*status = EX_TEMPFAIL;
	} else
		return dir;
	if (dir >= 0)
		close(dir);
	return -1;
}
