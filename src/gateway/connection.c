/* connection: see connection.h. */
#include "connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

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
		*(c->before ? &c->before->next : &c->list->first) = c->next;
		*(c->next ? &c->next->before : &c->list->last) = c->before;
	}
	c->list = list;
	if (list == NULL)
		return;
	c->deadline_ms = now_ms + list->timeout_ms;
	c->before = list->last;
	c->next = NULL;
	*(c->before ? &c->before->next : &list->first) = c;
	list->last = c;
}

/* The status of a connection, by the state of its request's frame. */
static const enum connection_status statuses[] = {
	[FCGI_FRAME_MORE] = CONNECTION_WAITING,
	[FCGI_FRAME_COMPLETE] = CONNECTION_READY,
	[FCGI_FRAME_BAD] = CONNECTION_GONE,
};

/*
 * Receive bytes and pass them through the frame.  Return how many of them
 * belong to the request; 0 if none have arrived, -1 if no more will.
 */
static ssize_t
receive(struct connection *c, unsigned char *buf, size_t size, int flags)
{
	ssize_t n;

	do
		n = recv(c->fd, buf, size, flags | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 && errno == EAGAIN ? 0 : -1;
	size_t used = fcgi_frame_feed(&c->frame, buf, (size_t)n);
	/* More bytes may wait behind a full buffer: no event reports them. */
	c->last = used < (size_t)n || (size_t)n == size;
	return (ssize_t)used;
}

/* After an error the connection ends: the socket's bytes cannot go back. */
static enum connection_status
fill_spool(
    struct connection *c, unsigned char *buf, size_t size, size_t spool_max)
{
	do {
		ssize_t used = receive(c, buf, size, 0);
		if (used <= 0)
			return used < 0 ? CONNECTION_GONE : CONNECTION_WAITING;
		size_t max = spool_max + 2 * c->frame.params_len;
		size_t room = c->spooled < max ? max - c->spooled : 0;
		size_t kept = (size_t)used < room ? (size_t)used : room;
		/* Signals are blocked, so a short write means no memory. */
		if (write(c->spool, buf, kept) != (ssize_t)kept)
			return CONNECTION_GONE;
		c->spooled += kept;
	} while (c->frame.state == FCGI_FRAME_MORE);
	if (lseek(c->spool, 0, SEEK_SET) < 0)
		return CONNECTION_GONE;
	return statuses[c->frame.state];
}

enum connection_status
connection_receive(
    struct connection *c, unsigned char *buf, size_t size, size_t spool_max)
{
	if (c->spool >= 0)
		return fill_spool(c, buf, size, spool_max);
	memset(&c->frame, 0, sizeof(c->frame));
	ssize_t used = receive(c, buf, size, MSG_PEEK);
	if (used <= 0)
		return used < 0 ? CONNECTION_GONE : CONNECTION_WAITING;
	c->begun = true;
	if (c->frame.state != FCGI_FRAME_MORE)
		return statuses[c->frame.state];
	/* The bytes that were peeked at go through the frame again. */
	memset(&c->frame, 0, sizeof(c->frame));
	c->spool = memfd_create("request", MFD_CLOEXEC);
	/* Without a spool: the whole request may still fit into the socket. */
	if (c->spool < 0)
		return CONNECTION_WAITING;
	return fill_spool(c, buf, size, spool_max);
}

char **
connection_read_head(struct connection *c)
{
	int *fd = c->spool >= 0 ? &c->spool : &c->fd;

	FCGX_InitRequest(&c->request, -1, 0);
	c->request.ipcFd = *fd;
	/* Otherwise the library closes the descriptor before it reads. */
	c->request.keepConnection = 1;
	/* So that its close after an error does not wait for the peer. */
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
	if (c->spool >= 0)
		close(c->spool);
	c->spool = -1;
	c->spooled = 0;
	c->begun = false;
	return (size_t)len;
}

enum connection_status
connection_send(struct connection *c, const unsigned char *buf, size_t len)
{
	while (len > 0) {
		ssize_t n = send(c->fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			return CONNECTION_GONE;
		buf += n;
		len -= (size_t)n;
	}
	if (len == 0) {
		free(c->answer);
		c->answer = NULL;
		return CONNECTION_READY;
	}
	if (c->answer == NULL)
		c->answer = malloc(len);
	if (c->answer == NULL)
		return CONNECTION_GONE;
	memmove(c->answer, buf, len);
	c->answer_len = len;
	return CONNECTION_WAITING;
}

void
connection_free(struct connection *c)
{
	connection_place(c, NULL, 0);
	metrics_connections--;
	if (c->spool >= 0)
		close(c->spool);
	if (c->fd >= 0)
		close(c->fd);
	free(c->answer);
	free(c);
}
