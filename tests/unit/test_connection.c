/*
 * connection: whether a request has arrived whole, what goes to the spool, what
 * stays in the socket for libfcgi, and how the answer is sent.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection.h"
#include "fault_shim.h"

#define SCRATCH_BYTES ((size_t)64 << 10)
#define SPOOL_MAX ((size_t)4 << 20)
/* More than any socket's buffer takes. */
#define LARGE ((size_t)1 << 20)
/* Of what make_request makes. */
#define PARAMS_LEN 4
#define RECORD_BYTES_MAX 65535
/* How the spool's path ends. */
#define SPOOL "request (deleted)"

enum { BEGIN = 1, ABORT = 2, PARAMS = 4, STDIN = 5 };

struct fixture {
	int peer;
	struct connection *c;
	unsigned char *sent; /* a request */
	size_t len;
	unsigned char scratch[SCRATCH_BYTES];
};

static void
set_up(struct fixture *f)
{
	int ends[2];

	assert_int_equal(
	    socketpair(
		AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends),
	    0);
	*f = (struct fixture){ .peer = ends[0], .c = connection_new(ends[1]) };
	assert_non_null(f->c);
}

static void
tear_down(struct fixture *f)
{
	shim_reset();
	if (f->c != NULL)
		connection_free(f->c);
	if (f->peer >= 0)
		close(f->peer);
}

#define CONNECTION_TEST(name) \
	FIXTURE_TEST(name, struct fixture, f, set_up, tear_down)

/* A fresh connection, for the next row of a test. */
static void
renew(struct fixture *f)
{
	tear_down(f);
	set_up(f);
}

static void
hang_up(struct fixture *f)
{
	close(f->peer);
	f->peer = -1;
}

static unsigned char *
put_record(
    unsigned char *to, int type, const unsigned char *content, size_t len)
{
	const unsigned char header[8] = { 1, (unsigned char)type, 0, 1,
		(unsigned char)(len >> 8), (unsigned char)len };

	memcpy(to, header, sizeof header);
	memcpy(to + sizeof header, content, len);
	return to + sizeof header + len;
}

static unsigned char *
put_begin(unsigned char *to)
{
	static const unsigned char role[8] = { 0, 1, 1 };

	return put_record(to, BEGIN, role, sizeof role);
}

/* A request with a body of `body_len` bytes that differ. */
static void
make_request(struct fixture *f, size_t body_len)
{
	static const unsigned char pair[PARAMS_LEN] = { 1, 1, 'a', 'b' };
	unsigned char *body = memory(body_len + 1);
	unsigned char *to;
	size_t at = 0;

	for (size_t i = 0; i < body_len; i++)
		body[i] = (unsigned char)(i * 2654435761U >> 24);
	f->sent = memory(body_len + 100 + body_len / RECORD_BYTES_MAX * 8);
	to = put_begin(f->sent);
	to = put_record(to, PARAMS, pair, PARAMS_LEN);
	to = put_record(to, PARAMS, body, 0);
	while (at < body_len) {
		size_t step = body_len - at < RECORD_BYTES_MAX
				  ? body_len - at
				  : RECORD_BYTES_MAX;

		to = put_record(to, STDIN, body + at, step);
		at += step;
	}
	to = put_record(to, STDIN, body, 0);
	f->len = (size_t)(to - f->sent);
}

static enum fcgi_frame_state
receive_up_to(struct fixture *f, size_t spool_max)
{
	return connection_receive(
	    f->c, f->scratch, sizeof f->scratch, spool_max);
}

static enum fcgi_frame_state
receive(struct fixture *f)
{
	return receive_up_to(f, SPOOL_MAX);
}

static void
send_bytes(struct fixture *f, const void *buf, size_t len)
{
	assert_int_equal(write(f->peer, buf, len), len);
}

/*
 * Send the first `len` bytes of the request as the socket has room, and receive
 * whenever it is full, and once at the end.
 */
static enum fcgi_frame_state
send_parts(struct fixture *f, size_t len, size_t spool_max)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = write(f->peer, f->sent + at, len - at);

		if (n >= 0) {
			at += (size_t)n;
			continue;
		}
		assert_int_equal(errno, EAGAIN);
		enum fcgi_frame_state seen = receive_up_to(f, spool_max);
		if (seen != FCGI_FRAME_MORE)
			return seen;
	}
	return receive_up_to(f, spool_max);
}

static size_t
bytes_unread(const struct fixture *f)
{
	int n = -1;

	assert_int_equal(ioctl(f->c->fd, FIONREAD, &n), 0);
	assert_true(n >= 0);
	return (size_t)n;
}

/* Whether `fd` gives the first `len` bytes of the request and then no more. */
static void
assert_gives_request(const struct fixture *f, int fd, size_t len)
{
	unsigned char *got = memory(f->len + 1);
	size_t have = 0;
	ssize_t n;

	while ((n = read(fd, got + have, f->len + 1 - have)) > 0)
		have += (size_t)n;
	assert_int_equal(have, len);
	assert_memory_equal(got, f->sent, len);
}

CONNECTION_TEST(peer_without_a_request_is_waited_for_or_gone)
{
	assert_int_equal(receive(f), FCGI_FRAME_MORE);
	assert_false(f->c->begun);
	hang_up(f);
	assert_int_equal(receive(f), FCGI_FRAME_BAD);
}

CONNECTION_TEST(whole_request_is_ready_and_left_in_the_socket)
{
	make_request(f, 1000);
	send_bytes(f, f->sent, f->len);
	/* Also where the peer has closed behind it. */
	hang_up(f);
	assert_int_equal(receive(f), FCGI_FRAME_COMPLETE);
	assert_int_equal(f->c->spool, -1);
	assert_false(f->c->last);
	assert_gives_request(f, f->c->fd, f->len);
}

CONNECTION_TEST(request_in_parts_is_spooled_and_ready_with_its_last_byte)
{
	static const size_t lens[] = { 10, 1000, LARGE };

	for (size_t i = 0; i < COUNT(lens); i++) {
		renew(f);
		make_request(f, lens[i]);
		struct connection *c = f->c;
		size_t last = f->len - 1;

		assert_int_equal(
		    send_parts(f, last, SPOOL_MAX), FCGI_FRAME_MORE);
		assert_true(c->begun);
		assert_int_equal(bytes_unread(f), 0);
		assert_int_equal(receive(f), FCGI_FRAME_MORE);
		send_bytes(f, f->sent + last, 1);
		assert_int_equal(receive(f), FCGI_FRAME_COMPLETE);
		assert_false(c->last);
		assert_int_equal(c->spooled, f->len);
		assert_gives_request(f, c->spool, f->len);
	}
}

CONNECTION_TEST(request_that_is_malformed_aborted_or_broken_off_is_gone)
{
	static const char http[] = "GET / HTTP/1.1\r\n\r\n";

	for (int i = 0; i < 4; i++) {
		unsigned char abort_record[8];

		renew(f);
		make_request(f, LARGE);
		put_record(abort_record, ABORT, f->sent, 0);
		if (i == 0)
			send_bytes(f, http, strlen(http));
		if (i == 1) {
			send_bytes(f, f->sent, 16);
			assert_int_equal(receive(f), FCGI_FRAME_MORE);
			send_bytes(f, abort_record, sizeof abort_record);
		}
		if (i >= 2)
			assert_int_equal(send_parts(f, f->len - 8, SPOOL_MAX),
			    FCGI_FRAME_MORE);
		/* An unknown type, in the spooled request's last record. */
		f->sent[f->len - 7] = 99;
		if (i == 2)
			send_bytes(f, f->sent + f->len - 8, 8);
		if (i == 3)
			hang_up(f);
		assert_int_equal(receive(f), FCGI_FRAME_BAD);
	}
}

CONNECTION_TEST(connection_with_bytes_behind_its_request_is_not_kept)
{
	make_request(f, 10);
	send_bytes(f, f->sent, f->len);
	send_bytes(f, f->sent, 1);
	assert_int_equal(receive(f), FCGI_FRAME_COMPLETE);
	assert_true(f->c->last);
}

/* There may be more bytes, which epoll would not report again. */
CONNECTION_TEST(connection_whose_request_fills_the_buffer_is_not_kept)
{
	for (size_t records = 1; records <= 2; records++) {
		size_t len = records * SCRATCH_BYTES;

		renew(f);
		make_request(f, 0);
		make_request(f, len - f->len - 8 * records);
		assert_int_equal(f->len, len);
		send_bytes(f, f->sent, len);
		assert_int_equal(receive(f), FCGI_FRAME_COMPLETE);
		assert_true(f->c->last);
		assert_int_equal(f->c->spool >= 0, records == 2);
		assert_gives_request(
		    f, records == 2 ? f->c->spool : f->c->fd, len);
	}
}

CONNECTION_TEST(bytes_behind_a_large_request_are_not_spooled)
{
	make_request(f, LARGE);
	size_t last = f->len - 1;
	assert_int_equal(send_parts(f, last, SPOOL_MAX), FCGI_FRAME_MORE);
	/* Its last byte and the first of the next, in one. */
	send_bytes(f, (const unsigned char[]){ f->sent[last], 1 }, 2);
	assert_int_equal(receive(f), FCGI_FRAME_COMPLETE);
	assert_true(f->c->last);
	assert_gives_request(f, f->c->spool, f->len);
}

CONNECTION_TEST(spool_keeps_no_more_than_it_may_and_it_is_ready)
{
	static const size_t maxima[] = { 0, 1, 100000 };
	static char body[LARGE];

	assert_int_equal(connection_init(), 0);
	for (size_t i = 0; i < COUNT(maxima); i++) {
		const size_t kept = maxima[i] + 2 * PARAMS_LEN;

		renew(f);
		make_request(f, LARGE);
		assert_int_equal(
		    send_parts(f, f->len, maxima[i]), FCGI_FRAME_COMPLETE);
		assert_int_equal(f->c->spooled, kept);
		assert_gives_request(f, f->c->spool, kept);
		if (kept < 1000)
			continue;
		assert_int_equal(lseek(f->c->spool, 0, SEEK_SET), 0);
		assert_non_null(connection_read_head(f->c));
		assert_in_range(
		    connection_read_body(f->c, body, sizeof body), 1, kept);
		assert_false(f->c->call.whole);
	}
}

static int
send_answer(struct fixture *f, size_t len)
{
	make_request(f, len);
	return connection_send(f->c, f->sent, len);
}

static int
send_rest(struct fixture *f)
{
	return connection_send(f->c, f->c->answer, f->c->answer_len);
}

CONNECTION_TEST(large_answer_is_sent_as_its_reader_takes_it)
{
	int sent = send_answer(f, LARGE);
	unsigned char *got = memory(LARGE);
	size_t have = 0;
	unsigned waited = 0;
	ssize_t n;

	while (sent == 0 && f->c->answer != NULL) {
		waited++;
		while ((n = read(f->peer, got + have, LARGE - have)) > 0)
			have += (size_t)n;
		sent = send_rest(f);
	}
	assert_int_equal(sent, 0);
	while ((n = read(f->peer, got + have, LARGE - have)) > 0)
		have += (size_t)n;
	assert_true(waited > 1);
	assert_int_equal(have, LARGE);
	assert_memory_equal(got, f->sent, LARGE);
}

CONNECTION_TEST(answer_to_a_peer_that_closes_is_gone)
{
	assert_int_equal(send_answer(f, LARGE), 0);
	assert_non_null(f->c->answer);
	hang_up(f);
	assert_int_equal(send_rest(f), -1);
	assert_int_equal(send_answer(f, 1000), -1);
}

#if ALLOC_CAN_FAIL
CONNECTION_TEST(answer_without_memory_for_its_rest_is_gone)
{
	int sent;

	make_request(f, LARGE);
	alloc_fail(1, 1);
	sent = connection_send(f->c, f->sent, LARGE);
	assert_true(alloc_reset());
	assert_int_equal(sent, -1);
}
#endif

CONNECTION_TEST(failing_call_ends_the_connection)
{
	static const struct {
		enum shim_call call;
		const char *file;
		int error;
	} cases[] = {
		{ SHIM_RECV, NULL, ECONNRESET },
		{ SHIM_PWRITE, SPOOL, ENOSPC },
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		renew(f);
		make_request(f, LARGE);
		shim_fail(cases[i].call, cases[i].file, 1, 1, cases[i].error);
		assert_int_equal(
		    send_parts(f, f->len, SPOOL_MAX), FCGI_FRAME_BAD);
		assert_int_equal(shim_count(cases[i].call), 1);
	}
}

CONNECTION_TEST(request_that_fits_is_ready_without_a_spool)
{
	make_request(f, 1000);
	send_bytes(f, f->sent, f->len - 1);
	shim_fail(SHIM_MEMFD_CREATE, NULL, 1, 1, EMFILE);
	assert_int_equal(receive(f), FCGI_FRAME_MORE);
	assert_int_equal(shim_count(SHIM_MEMFD_CREATE), 1);
	assert_true(f->c->begun);
	send_bytes(f, f->sent + f->len - 1, 1);
	assert_int_equal(receive(f), FCGI_FRAME_COMPLETE);
	assert_int_equal(f->c->spool, -1);
	assert_gives_request(f, f->c->fd, f->len);
}

CONNECTION_TEST(connection_whose_request_was_read_receives_as_a_new_one_does)
{
	char body[2000];

	assert_int_equal(connection_init(), 0);
	make_request(f, 1000);
	for (int i = 0; i < 3; i++) {
		/* The first in two parts, the others at once. */
		size_t part = i == 0 ? 500 : 0;
		/* All but the second are read as a whole. */
		int size = i == 1 ? 100 : 2000;

		/* The last asks that the connection be closed. */
		f->sent[10] = i < 2;

		send_bytes(f, f->sent, part);
		assert_int_equal(receive(f), FCGI_FRAME_MORE);
		assert_int_equal(f->c->begun, i == 0);
		send_bytes(f, f->sent + part, f->len - part);
		assert_int_equal(receive(f), FCGI_FRAME_COMPLETE);
		assert_int_equal(f->c->spool >= 0, i == 0);
		char **variables = connection_read_head(f->c);
		assert_non_null(variables);
		assert_string_equal(variables[1], "a=b");
		assert_int_equal(connection_read_body(f->c, body, size),
		    i == 1 ? 100 : 1000);
		assert_true(f->c->call.whole);
		assert_memory_equal(body, f->sent + 44, i == 1 ? 100 : 1000);
		assert_int_equal(f->c->frame.id, 1);
		assert_false(f->c->begun);
		assert_int_equal(f->c->last, i == 2);
		assert_int_equal(f->c->spool, -1);
		assert_int_equal(f->c->spooled, 0);
	}
}

/* Records of one byte and as much padding as there may be exceed its room. */
CONNECTION_TEST(request_whose_spool_ends_within_its_head_is_not_read)
{
	enum { PAIRS = 10, RECORD = 8 + 1 + 255 };
	static const unsigned char pair[PARAMS_LEN] = { 1, 1, 'a', 'b' };
	const size_t head = 16 + PAIRS * PARAMS_LEN * RECORD + 8;

	assert_int_equal(connection_init(), 0);
	for (size_t max = 0; max < head - 2 * PAIRS * PARAMS_LEN; max += 11) {
		unsigned char *to;

		renew(f);
		f->sent = memory(head + 8);
		to = put_begin(f->sent);
		for (int i = 0; i < PAIRS * PARAMS_LEN; i++, to += RECORD) {
			put_record(to, PARAMS, &pair[i % PARAMS_LEN], 1);
			to[6] = 255;
		}
		to = put_record(to, PARAMS, pair, 0);
		put_record(to, STDIN, pair, 0);
		f->len = head + 8;
		send_bytes(f, f->sent, 20);
		assert_int_equal(receive_up_to(f, max), FCGI_FRAME_MORE);
		send_bytes(f, f->sent + 20, f->len - 20);
		assert_int_equal(receive_up_to(f, max), FCGI_FRAME_COMPLETE);
		assert_null(connection_read_head(f->c));
	}
}

#if ALLOC_CAN_FAIL
CONNECTION_TEST(connection_without_memory_closes_its_descriptor)
{
	struct connection *connection;
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	alloc_fail(1, 1);
	connection = connection_new(ends[1]);
	assert_true(alloc_reset());
	assert_null(connection);
	assert_int_equal(fcntl(ends[1], F_GETFD), -1);
	close(ends[0]);
}
#endif

CONNECTION_TEST(free_closes_all_that_is_open)
{
	int fds[2];

	assert_int_equal(send_answer(f, LARGE), 0);
	assert_non_null(f->c->answer);
	f->c->spool = memfd_create("request", MFD_CLOEXEC);
	fds[0] = f->c->fd;
	fds[1] = f->c->spool;
	connection_free(f->c);
	f->c = NULL;
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(fcntl(fds[i], F_GETFD), -1);
		assert_int_equal(errno, EBADF);
	}
}

#define LISTED 4

/* A list of connections that were placed at 0, 10, 20 and 30 ms. */
struct listed {
	struct connection_list list;
	struct connection *members[LISTED];
};

static void
set_up_list(struct listed *listed)
{
	listed->list.timeout_ms = 1000;
	for (int i = 0; i < LISTED; i++) {
		listed->members[i] = connection_new(-1);
		assert_non_null(listed->members[i]);
		connection_place(listed->members[i], &listed->list, i * 10);
	}
}

static void
tear_down_list(struct listed *listed)
{
	for (int i = 0; i < LISTED; i++)
		if (listed->members[i] != NULL)
			connection_free(listed->members[i]);
}

#define LIST_TEST(name) \
	FIXTURE_TEST(name, struct listed, listed, set_up_list, tear_down_list)

/* The list holds these, in order, forwards and backwards. */
static void
assert_order(const struct listed *listed, const char *order)
{
	const struct connection *c = listed->list.first;
	const struct connection *before = NULL;

	for (; *order != '\0'; order++) {
		assert_ptr_equal(c, listed->members[*order - '0']);
		assert_ptr_equal(c->list, &listed->list);
		if (before != NULL) {
			assert_ptr_equal(c->before, before);
			assert_true(before->deadline_ms <= c->deadline_ms);
		}
		before = c;
		c = c->next;
	}
	assert_null(c);
	assert_ptr_equal(listed->list.last, before);
}

LIST_TEST(placed_connection_is_the_last_with_a_new_deadline)
{
	assert_order(listed, "0123");
	for (int i = 0; i < LISTED; i++)
		assert_int_equal(
		    listed->members[i]->deadline_ms, 1000 + i * 10);
	connection_place(listed->members[0], &listed->list, 40);
	assert_order(listed, "1230");
	assert_int_equal(listed->members[0]->deadline_ms, 1040);
	connection_place(listed->members[2], &listed->list, 50);
	assert_order(listed, "1302");
	connection_place(listed->members[2], &listed->list, 60);
	assert_order(listed, "1302");
	assert_int_equal(listed->members[2]->deadline_ms, 1060);
}

LIST_TEST(connection_placed_elsewhere_or_freed_leaves_its_list)
{
	struct connection_list other = { .timeout_ms = 5 };

	connection_place(listed->members[1], &other, 100);
	assert_order(listed, "023");
	assert_ptr_equal(other.first, listed->members[1]);
	assert_int_equal(listed->members[1]->deadline_ms, 105);
	for (int i = 0; i < 2; i++) {
		connection_place(listed->members[1], NULL, 0);
		assert_null(listed->members[1]->list);
		assert_null(other.first);
	}
	connection_free(listed->members[3]);
	listed->members[3] = NULL;
	assert_order(listed, "02");
	connection_place(listed->members[0], NULL, 0);
	connection_place(listed->members[2], NULL, 0);
	assert_order(listed, "");
	connection_place(listed->members[2], &listed->list, 70);
	assert_order(listed, "2");
}
