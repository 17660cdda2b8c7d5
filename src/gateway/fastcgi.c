/* fastcgi: libfcgi, tamed.  See fastcgi.h. */
#include "fastcgi.h"

#include <stdlib.h>

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

unsigned
fastcgi_end(struct fastcgi *fastcgi, bool *keep)
{
	FCGX_Request *request = &fastcgi->request;
	unsigned id = (unsigned)request->requestId;

	*keep = request->keepConnection != 0;
	FCGX_Free(request, 0);
	return id;
}
