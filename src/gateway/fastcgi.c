/* fastcgi: libfcgi, tamed.  See fastcgi.h. */
#include "fastcgi.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/*
 * An answer up to this size fits into any socket's empty buffer, so that a
 * write neither blocks nor falls short.  A larger one may wait for its reader,
 * but not for long.
 */
#define ANSWER_BYTES_SURE ((size_t)32 << 10)
#define ANSWER_WAIT_S 1

#define BODY_CHUNK 65536

bool
fastcgi_is_listener(void)
{
	return FCGX_IsCGI() == 0;
}

int
fastcgi_init(void)
{
	/* Where the library closes a bad peer itself, not to wait for it. */
	setenv("LIBFCGI_OS_CLOSE_POLL_TIMEOUT", "0", 1);
	return FCGX_Init() == 0 ? 0 : -1;
}

int
fastcgi_begin(struct fastcgi *fastcgi, int fd)
{
	FCGX_Request *request = &fastcgi->request;

	FCGX_InitRequest(request, -1, 0);
	request->ipcFd = fd;
	/* Without these, the library would first close what it was given. */
	request->keepConnection = 1;
	FCGX_Detach(request);
	if (FCGX_Accept_r(request) < 0)
		return -1;
	/* It takes a head that breaks off between two pairs for whole. */
	if (FCGX_GetError(request->in) != 0) {
		FCGX_Free(request, 1);
		return -1;
	}
	return 0;
}

char **
fastcgi_variables(const struct fastcgi *fastcgi)
{
	return fastcgi->request.envp;
}

static int
chunk_of(size_t size)
{
	return size < BODY_CHUNK ? (int)size : BODY_CHUNK;
}

size_t
fastcgi_read_body(struct fastcgi *fastcgi, char *buf, size_t size, bool *whole)
{
	FCGX_Stream *in = fastcgi->request.in;
	char rest[4096];
	size_t len = 0;
	int want, n;

	do {
		want = chunk_of(size - len);
		n = want > 0 ? FCGX_GetStr(buf + len, want, in) : 0;
		len += (size_t)n;
	} while (want > 0 && n == want);
	if (len == size)
		while (
		    FCGX_GetStr(rest, sizeof(rest), in) == (int)sizeof(rest)) {
		}
	*whole = FCGX_GetError(in) == 0;
	return len;
}

int
fastcgi_redirect(struct fastcgi *fastcgi, int fd)
{
	if (dup3(fd, fastcgi->request.ipcFd, O_CLOEXEC) < 0)
		return -1;
	close(fd);
	return 0;
}

static void
allow_wait(int fd)
{
	struct timeval wait = { .tv_sec = ANSWER_WAIT_S };
	int flags = fcntl(fd, F_GETFL);

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

int
fastcgi_end(struct fastcgi *fastcgi, const char *answer, size_t len, bool keep)
{
	FCGX_Request *request = &fastcgi->request;
	bool wait = len > ANSWER_BYTES_SURE;

	if (!keep || wait)
		request->keepConnection = 0;
	if (wait)
		allow_wait(request->ipcFd);
	FCGX_PutStr(answer, (int)len, request->out);
	FCGX_Finish_r(request);
	/* -1 if it has closed it: not to be kept, or an error on the way. */
	return request->ipcFd;
}
