/* fastcgi: see fastcgi.h. */
#include "fastcgi.h"

#include <stdlib.h>

int
fastcgi_init(void)
{
	/* The library must not wait for a bad peer when it closes it. */
	setenv("LIBFCGI_OS_CLOSE_POLL_TIMEOUT", "0", 1);
	return FCGX_Init() == 0 ? 0 : -1;
}

char **
fastcgi_begin(struct fastcgi *fastcgi, int fd)
{
	FCGX_Request *request = &fastcgi->request;

	FCGX_InitRequest(request, -1, 0);
	request->ipcFd = fd;
	/* Otherwise the library closes the descriptor before it reads. */
	request->keepConnection = 1;
	FCGX_Detach(request);
	if (FCGX_Accept_r(request) < 0)
		return NULL;
	/* The library accepts parameters that end early between two pairs. */
	if (FCGX_GetError(request->in) != 0) {
		FCGX_Free(request, 1);
		return NULL;
	}
	return request->envp;
}

size_t
fastcgi_read_body(struct fastcgi *fastcgi, char *buf, int size, bool *whole)
{
	FCGX_Stream *in = fastcgi->request.in;
	char rest[4096];
	int len = FCGX_GetStr(buf, size, in);

	while (FCGX_GetStr(rest, sizeof(rest), in) > 0) {
	}
	*whole = FCGX_GetError(in) == 0;
	return (size_t)len;
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
