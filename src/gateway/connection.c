/* connection: see connection.h. */
#include "connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ground/metrics.h"

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

/* CONNECTION_READY: `*len` bytes of the socket are in `buf`. */
static enum connection_status
receive(int fd, unsigned char *buf, size_t size, int flags, size_t *len)
{
	ssize_t n;

	do
		n = recv(fd, buf, size, flags | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 && errno == EAGAIN ? CONNECTION_WAITING
						: CONNECTION_GONE;
	*len = (size_t)n;
	return CONNECTION_READY;
}

/*
 * Of `len` bytes in a buffer of `size`, `used` belong to the request.  Behind a
 * full buffer there may be more bytes, which epoll would not report again.
 */
static enum connection_status
verdict(struct connection *c, const struct fcgi_frame *frame, size_t used,
    size_t len, size_t size)
{
	if (frame->state == FCGI_FRAME_MORE)
		return CONNECTION_WAITING;
	c->last = used < len || len == size;
	return frame->state == FCGI_FRAME_COMPLETE ? CONNECTION_READY
						   : CONNECTION_GONE;
}

/* An error ends the connection: bytes cannot be put back into the socket. */
static enum connection_status
fill_spool(
    struct connection *c, unsigned char *buf, size_t size, size_t spool_max)
{
	enum connection_status status;
	size_t len;

	do {
		status = receive(c->fd, buf, size, 0, &len);
		if (status != CONNECTION_READY)
			return status;
		size_t used = fcgi_frame_feed(&c->frame, buf, len);
		size_t max = spool_max + 2 * c->frame.params_len;
		size_t room = c->spooled < max ? max - c->spooled : 0;
		size_t kept = used < room ? used : room;
		/* Signals are blocked: a short write means no memory. */
		if (write(c->spool, buf, kept) != (ssize_t)kept)
			return CONNECTION_GONE;
		c->spooled += kept;
		status = verdict(c, &c->frame, used, len, size);
	} while (status == CONNECTION_WAITING);
	if (status == CONNECTION_READY && lseek(c->spool, 0, SEEK_SET) < 0)
		return CONNECTION_GONE;
	return status;
}

enum connection_status
connection_receive(
    struct connection *c, unsigned char *buf, size_t size, size_t spool_max)
{
	struct fcgi_frame frame = { 0 };
	enum connection_status status;
	size_t len;

	if (c->spool >= 0)
		return fill_spool(c, buf, size, spool_max);
	status = receive(c->fd, buf, size, MSG_PEEK, &len);
	if (status != CONNECTION_READY)
		return status;
	c->begun = true;
	size_t used = fcgi_frame_feed(&frame, buf, len);
	status = verdict(c, &frame, used, len, size);
	if (status != CONNECTION_WAITING)
		return status;
	c->spool = memfd_create("request", MFD_CLOEXEC);
	/* Without a descriptor: the rest may still fit into the socket. */
	if (c->spool < 0)
		return CONNECTION_WAITING;
	return fill_spool(c, buf, size, spool_max);
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
connection_renew(struct connection *c)
{
	if (c->spool >= 0)
		close(c->spool);
	c->spool = -1;
	c->spooled = 0;
	c->begun = false;
	memset(&c->frame, 0, sizeof(c->frame));
}

void
connection_free(struct connection *c)
{
	connection_place(c, NULL, 0);
	metrics_connections--;
	connection_renew(c);
	if (c->fd >= 0)
		close(c->fd);
	free(c->answer);
	free(c);
}
