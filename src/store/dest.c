/* dest: see dest.h. */
#include "dest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
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

int
dest_open(const char *path, int *status)
{
	bool made = mkdir(path, 0700) == 0;
	struct stat st;

	if (!made && errno != EEXIST) {
		*status = reader_error(path, "cannot make it");
		return -1;
	}
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || (made && sync_parent(dir) < 0)) {
		*status = reader_error(path, "cannot open");
	} else if (fstatat(dir, "lock", &st, 0) == 0) {
		log_error(
		    "%s: was served as a store; name another directory", path);
		*status = EX_CANTCREAT;
	} else
		return dir;
	if (dir >= 0)
		close(dir);
	return -1;
}
