/* fastcgi: libfcgi, tamed.  See fastcgi.h. */
#include "fastcgi.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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

int
fastcgi_descriptor(const struct fastcgi *fastcgi)
{
	return fastcgi->request.ipcFd;
}

int
fastcgi_end(struct fastcgi *fastcgi, const char *answer, size_t len, bool keep)
{
	FCGX_Request *request = &fastcgi->request;

	if (!keep)
		request->keepConnection = 0;
	FCGX_PutStr(answer, (int)len, request->out);
	FCGX_Finish_r(request);
	/* -1 if it has closed it: not to be kept, or an error on the way. */
	return request->ipcFd;
}

int
fastcgi_end_to_file(struct fastcgi *fastcgi, const char *answer, size_t len,
    int *fd, bool *keep)
{
	FCGX_Request *request = &fastcgi->request;
	int connection = fcntl(request->ipcFd, F_DUPFD_CLOEXEC, 0);
	int file = memfd_create("answer", MFD_CLOEXEC);
	bool wanted = request->keepConnection != 0;

	if (connection < 0 || file < 0 || fastcgi_redirect(fastcgi, file) < 0) {
		if (file >= 0)
			close(file);
		goto fail;
	}
	/* The library keeps the file open; it is the connection to it. */
	request->keepConnection = 1;
	file = fastcgi_end(fastcgi, answer, len, true);
	if (file < 0 || lseek(file, 0, SEEK_SET) < 0) {
		if (file >= 0)
			close(file);
		close(connection);
		return -1;
	}
	*fd = connection;
	*keep = wanted;
	return file;

fail:
	fastcgi_end(fastcgi, "", 0, false);
	if (connection >= 0)
		close(connection);
	return -1;
}
