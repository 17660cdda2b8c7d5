/* connection: see connection.h. */
#include "connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * When to stop looking and start to spool: what a socket's buffer surely holds,
 * and more pieces than any web server makes of a small request.
 */
#define PEEK_BYTES_MAX ((size_t)32 << 10)
#define PEEK_LOOKS_MAX 8

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

/*
 * Of `len` bytes in a buffer of `size`, `used` belong to the request.  A full
 * buffer may hide what is behind, of which nothing would tell us again.
 */
static enum connection_look
verdict(struct connection *c, const struct fcgi_frame *frame, size_t used,
    size_t len, size_t size)
{
	switch (frame->state) {
	case FCGI_FRAME_COMPLETE:
		c->last = used < len || len == size;
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
		size_t max = spool_max + 2 * c->frame.params_len;
		size_t room = c->spooled < max ? max - c->spooled : 0;
		if (write_spool(c, buf, used < room ? used : room) < 0)
			return CONNECTION_GONE;
		enum connection_look look =
		    verdict(c, &c->frame, used, len, size);
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
	enum connection_look look = verdict(c, &frame, used, len, size);
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

/* How much of it the socket takes now; -1 if there is no peer any more. */
static ssize_t
send_some(struct connection *c, const unsigned char *buf, size_t len)
{
	size_t sent = 0;

	while (sent < len) {
		ssize_t n = send(
		    c->fd, buf + sent, len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			return -1;
		sent += (size_t)n;
	}
	return (ssize_t)sent;
}

enum connection_look
connection_send(struct connection *c, const unsigned char *buf, size_t len)
{
	ssize_t sent = send_some(c, buf, len);

	if (sent < 0)
		return CONNECTION_GONE;
	if ((size_t)sent == len)
		return CONNECTION_READY;
	c->answer_len = len - (size_t)sent;
	c->answer = malloc(c->answer_len);
	if (c->answer == NULL)
		return CONNECTION_GONE;
	memcpy(c->answer, buf + sent, c->answer_len);
	return CONNECTION_WAITING;
}

enum connection_look
connection_send_more(struct connection *c)
{
	ssize_t sent = send_some(c, c->answer, c->answer_len);

	if (sent < 0)
		return CONNECTION_GONE;
	c->answer_len -= (size_t)sent;
	memmove(c->answer, c->answer + sent, c->answer_len);
	if (c->answer_len > 0)
		return CONNECTION_WAITING;
	free(c->answer);
	c->answer = NULL;
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
	free(c->answer);
	free(c);
}
