/* connection: see connection.h. */
#include "connection.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ground/file.h"
#include "ground/metrics.h"

int
connection_init(void)
{
	return FCGX_Init();
}

struct connection *
connection_new(int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (connection == NULL) {
		close(fd);
		return NULL;
	}
	connection->fd = fd;
	connection->spool = -1;
	metrics_connections++;
	return connection;
}

void
connection_place(
    struct connection *c, struct connection_list *list, int64_t now_ms)
{
	if (c->list != NULL) {
		assert((c->before ? c->before->next : c->list->first) == c);
		assert((c->next ? c->next->before : c->list->last) == c);
		*(c->before ? &c->before->next : &c->list->first) = c->next;
		*(c->next ? &c->next->before : &c->list->last) = c->before;
	}
	c->list = list;
	if (list == NULL)
		return;
	c->deadline_ms = now_ms + list->timeout_ms;
	assert((list->first == NULL) == (list->last == NULL));
	c->before = list->last;
	c->next = NULL;
	*(c->before ? &c->before->next : &list->first) = c;
	list->last = c;
}

/*
 * Receive bytes and pass them through the frame.  Return how many belong to the
 * request: 0 if none have arrived or, in the state FCGI_FRAME_BAD, none will.
 */
static size_t
receive(struct connection *c, unsigned char *buf, size_t size, int flags)
{
	ssize_t n = recv(c->fd, buf, size, flags | MSG_DONTWAIT);

	if (n <= 0) {
		if (n == 0 || errno != EAGAIN)
			c->frame.state = FCGI_FRAME_BAD;
		return 0;
	}
	size_t used = fcgi_frame_feed(&c->frame, buf, (size_t)n);
	/* More bytes may follow a full buffer, and no event reports them. */
	if (c->frame.state != FCGI_FRAME_MORE &&
	    (used < (size_t)n || (size_t)n == size))
		c->last = true;
	return used;
}

enum fcgi_frame_state
connection_receive(
    struct connection *c, unsigned char *buf, size_t size, size_t spool_max)
{
	size_t used;

	assert(c->spool >= 0 || c->spooled == 0);
	if (c->spool < 0) {
		memset(&c->frame, 0, sizeof(c->frame));
		if (receive(c, buf, size, MSG_PEEK) == 0 ||
		    c->frame.state != FCGI_FRAME_MORE)
			return c->frame.state;
		c->begun = true;
		/* Without a spool, the request may fit in the socket buffer. */
		c->spool = memfd_create("request", MFD_CLOEXEC);
		if (c->spool < 0)
			return FCGI_FRAME_MORE;
		/* Pass the peeked bytes through the frame again. */
		memset(&c->frame, 0, sizeof(c->frame));
	}
	while (c->frame.state == FCGI_FRAME_MORE &&
	       (used = receive(c, buf, size, 0)) > 0) {
		size_t max = spool_max + 2 * c->frame.params_len;
		size_t room = c->spooled < max ? max - c->spooled : 0;
		size_t kept = used < room ? used : room;

		/* The spool's own offset, from which libfcgi reads, stays 0. */
		if (file_write_all(c->spool, buf, kept, c->spooled) < 0)
			c->frame.state = FCGI_FRAME_BAD;
		c->spooled += kept;
	}
	return c->frame.state;
}

char **
connection_read_head(struct connection *c)
{
	int *fd = c->spool >= 0 ? &c->spool : &c->fd;

	assert(c->frame.state == FCGI_FRAME_COMPLETE);
	FCGX_InitRequest(&c->request, -1, 0);
	c->request.ipcFd = *fd;
	/* Otherwise the library closes the descriptor before it reads. */
	c->request.keepConnection = 1;
	/* Detach, so that libfcgi's close on error does not wait for a peer. */
	FCGX_Detach(&c->request);
	if (FCGX_Accept_r(&c->request) < 0) {
		*fd = -1;
		return NULL;
	}
	/* The library accepts parameters that end early between two pairs. */
	if (FCGX_GetError(c->request.in) != 0) {
		FCGX_Free(&c->request, 0);
		return NULL;
	}
	return c->request.envp;
}

size_t
connection_read_body(struct connection *c, char *buf, int size)
{
	FCGX_Stream *in = c->request.in;
	char rest[4096];
	int len = FCGX_GetStr(buf, size, in);

	while (FCGX_GetStr(rest, sizeof(rest), in) > 0) {
	}
	c->call.whole = FCGX_GetError(in) == 0;
	if (!c->request.keepConnection)
		c->last = true;
	FCGX_Free(&c->request, 0);
	file_close(c->spool);
	c->spool = -1;
	c->spooled = 0;
	c->begun = false;
	return (size_t)len;
}

int
connection_send(struct connection *c, const unsigned char *buf, size_t len)
{
	while (len > 0) {
		ssize_t n = send(c->fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			return -1;
		buf += n;
		len -= (size_t)n;
	}
	if (len == 0) {
		free(c->answer);
		c->answer = NULL;
		return 0;
	}
	if (c->answer == NULL)
		c->answer = malloc(len);
	if (c->answer == NULL)
		return -1;
	memmove(c->answer, buf, len);
	c->answer_len = len;
	return 0;
}

void
connection_free(struct connection *c)
{
	connection_place(c, NULL, 0);
	assert(metrics_connections > 0);
	metrics_connections--;
	file_close(c->spool);
	file_close(c->fd);
	free(c->answer);
	free(c);
}
