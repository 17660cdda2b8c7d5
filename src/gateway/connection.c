/* connection: see connection.h. */
#include "connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * When to stop looking and start to spool: what a socket's buffer surely holds,
 * and more pieces than any web server makes of a small request.
 */
#define PEEK_BYTES_MAX ((size_t)32 << 10)
#define PEEK_LOOKS_MAX 8

/* More than the records of any answer. */
#define ANSWER_BYTES_MAX ((size_t)4 << 20)

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
	connection->answer = -1;
	return connection;
}

static void
unlink_from_list(struct connection *c)
{
	if (c->list == NULL)
		return;
	if (c->previous != NULL)
		c->previous->next = c->next;
	else
		c->list->first = c->next;
	if (c->next != NULL)
		c->next->previous = c->previous;
	else
		c->list->last = c->previous;
	c->list = NULL;
}

void
connection_place(
    struct connection *c, struct connection_list *list, int64_t now_ms)
{
	unlink_from_list(c);
	if (list == NULL)
		return;
	c->deadline_ms = now_ms + list->timeout_ms;
	c->list = list;
	c->next = NULL;
	c->previous = list->last;
	if (list->last != NULL)
		list->last->next = c;
	else
		list->first = c;
	list->last = c;
}

static enum connection_look
verdict(struct connection *c, const struct fcgi_frame *frame, bool more_behind)
{
	switch (frame->state) {
	case FCGI_FRAME_COMPLETE:
		c->last = more_behind;
		return CONNECTION_READY;
	case FCGI_FRAME_BAD:
		return CONNECTION_GONE;
	default:
		return CONNECTION_WAITING;
	}
}

/* What was read before a spool fails cannot be put back: an error ends it. */
static int
write_spool(struct connection *c, const unsigned char *buf, size_t len)
{
	while (len > 0) {
		ssize_t n = write(c->spool, buf, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		buf += n;
		len -= (size_t)n;
		c->spooled += (size_t)n;
	}
	return 0;
}

static enum connection_look
fill_spool(
    struct connection *c, unsigned char *buf, size_t size, size_t spool_max)
{
	for (;;) {
		ssize_t n = recv(c->fd, buf, size, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return CONNECTION_WAITING;
		if (n <= 0)
			return CONNECTION_GONE;
		size_t len = (size_t)n;
		size_t used = fcgi_frame_feed(&c->frame, buf, len);
		size_t room =
		    c->spooled < spool_max ? spool_max - c->spooled : 0;
		if (write_spool(c, buf, used < room ? used : room) < 0)
			return CONNECTION_GONE;
		enum connection_look look = verdict(c, &c->frame, used < len);
		if (look == CONNECTION_READY &&
		    lseek(c->spool, 0, SEEK_SET) < 0)
			return CONNECTION_GONE;
		if (look != CONNECTION_WAITING)
			return look;
	}
}

enum connection_look
connection_look(
    struct connection *c, unsigned char *buf, size_t size, size_t spool_max)
{
	struct fcgi_frame frame = { 0 };
	ssize_t n;

	if (c->spool >= 0)
		return fill_spool(c, buf, size, spool_max);
	do
		n = recv(c->fd, buf, size, MSG_PEEK | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return CONNECTION_WAITING;
	if (n <= 0)
		return CONNECTION_GONE;
	c->begun = true;
	size_t len = (size_t)n;
	size_t used = fcgi_frame_feed(&frame, buf, len);
	enum connection_look look = verdict(c, &frame, used < len);
	if (look != CONNECTION_WAITING)
		return look;
	if (len < PEEK_BYTES_MAX && ++c->looks < PEEK_LOOKS_MAX)
		return CONNECTION_WAITING;
	c->spool = memfd_create("request", MFD_CLOEXEC);
	if (c->spool < 0)
		return CONNECTION_GONE;
	return fill_spool(c, buf, size, spool_max);
}

void
connection_stop_peeking(struct connection *c)
{
	c->looks = PEEK_LOOKS_MAX;
}

enum connection_look
connection_send(struct connection *c)
{
	ssize_t n;

	do
		n = sendfile(c->fd, c->answer, NULL, ANSWER_BYTES_MAX);
	while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0)
		return errno == EAGAIN ? CONNECTION_WAITING : CONNECTION_GONE;
	close(c->answer);
	c->answer = -1;
	return CONNECTION_READY;
}

void
connection_renew(struct connection *c)
{
	c->begun = false;
	c->looks = 0;
	c->spool = -1;
	c->spooled = 0;
	memset(&c->frame, 0, sizeof(c->frame));
}

void
connection_free(struct connection *c)
{
	unlink_from_list(c);
	if (c->fd >= 0)
		close(c->fd);
	if (c->spool >= 0)
		close(c->spool);
	if (c->answer >= 0)
		close(c->answer);
	free(c);
}
