/* import_buffer: see import_buffer.h. */
#include "import_buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "ground/log.h"

/* How soon a wait for input sees that it is to stop. */
#define WAIT_MS 100

int
import_buffer_open(struct import_buffer *in, const char *path, size_t size)
{
	struct stat st;

	*in = (struct import_buffer){
		.name = path == NULL ? "stdin" : path, .fd = -1, .size = size
	};
	in->buf = malloc(size);
	if (in->buf == NULL) {
		log_error("import: out of memory; nothing was imported");
		return EX_OSERR;
	}
	in->fd = path == NULL ? STDIN_FILENO
			      : open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	if (in->fd < 0 || fstat(in->fd, &st) < 0) {
		log_error("%s: cannot open: %s; nothing was imported", in->name,
		    strerror(errno));
		return EX_NOINPUT;
	}
	if (S_ISREG(st.st_mode))
		in->total = (uint64_t)st.st_size;
	return EX_OK;
}

/*
 * Wait until there is something to read: a read that waits could miss the
 * signal that came just before it.
 */
static bool
wait_for_input(struct import_buffer *in, const struct watch *watch)
{
	struct pollfd ready = { .fd = in->fd, .events = POLLIN };
	int n = 0;

	while (n == 0) {
		if (watch->step != NULL &&
		    !watch->step(watch->context, in->done, in->total))
			return false;
		n = poll(&ready, 1, WAIT_MS);
		if (n < 0 && errno == EINTR)
			n = 0;
	}
	return true;
}

enum import_buffer_fill
import_buffer_fill(struct import_buffer *in, const struct watch *watch)
{
	ssize_t n;

	memmove(in->buf, in->buf + in->start, in->end - in->start);
	in->end -= in->start;
	in->start = 0;
	do {
		if (!wait_for_input(in, watch))
			return IMPORT_BUFFER_STOPPED;
		n = read(in->fd, in->buf + in->end, in->size - in->end);
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	if (n < 0)
		return IMPORT_BUFFER_FAILED;
	in->ended = n == 0;
	in->end += (size_t)n;
	in->done += (uint64_t)n;
	return IMPORT_BUFFER_MORE;
}

void
import_buffer_close(struct import_buffer *in)
{
	if (in->fd > STDIN_FILENO)
		close(in->fd);
	free(in->buf);
}
