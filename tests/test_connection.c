/*
 * connection: whether a request has arrived whole, what goes to the spool, what
 * stays in the socket for libfcgi, and how the answer is sent.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../src/gateway/connection.h"
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

static int
set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	int ends[2];

	if (f == NULL ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
		ends) != 0)
		return -1;
	f->peer = ends[0];
	f->c = connection_new(ends[1]);
	*state = f;
	return f->c == NULL ? -1 : 0;
}

static int
tear_down(void **state)
{
	struct fixture *f = *state;

	shim_reset();
	if (f->c != NULL)
		connection_free(f->c);
	if (f->peer >= 0)
		close(f->peer);
	free(f->sent);
	free(f);
	return 0;
}

/* A fresh connection, for the next row of a test. */
static struct fixture *
renew(void **state)
{
	tear_down(state);
	assert_int_equal(set_up(state), 0);
	return *state;
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

/* A request with a body of `body_len` bytes that differ. */
static void
make_request(struct fixture *f, size_t body_len)
{
	static const unsigned char role[8] = { 0, 1, 1 };
	static const unsigned char pair[PARAMS_LEN] = { 1, 1, 'a', 'b' };
	unsigned char *body = malloc(body_len + 1);
	unsigned char *to;
	size_t at = 0;

	assert_non_null(body);
	for (size_t i = 0; i < body_len; i++)
		body[i] = (unsigned char)(i * 2654435761U >> 24);
	free(f->sent);
	f->sent = malloc(body_len + 100 + body_len / RECORD_BYTES_MAX * 8);
	assert_non_null(f->sent);
	to = put_record(f->sent, BEGIN, role, sizeof role);
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
	free(body);
}

static enum connection_status
receive_up_to(struct fixture *f, size_t spool_max)
{
	return connection_receive(
	    f->c, f->scratch, sizeof f->scratch, spool_max);
}

static enum connection_status
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
 * Send the bytes from `from` to `to` of the request as the socket has room,
 * and receive whenever it is full, and once at the end.
 */
static enum connection_status
send_receiving(struct fixture *f, size_t from, size_t to, size_t spool_max)
{
	while (from < to) {
		ssize_t n = write(f->peer, f->sent + from, to - from);

		if (n >= 0) {
			from += (size_t)n;
			continue;
		}
		assert_int_equal(errno, EAGAIN);
		enum connection_status seen = receive_up_to(f, spool_max);
		if (seen != CONNECTION_WAITING)
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
	unsigned char *got = malloc(f->len + 1);
	size_t have = 0;
	ssize_t n;

	assert_non_null(got);
	while ((n = read(fd, got + have, f->len + 1 - have)) > 0)
		have += (size_t)n;
	assert_int_equal(have, len);
	assert_memory_equal(got, f->sent, len);
	free(got);
}

static void
peer_without_a_request_is_waited_for_or_gone(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(receive(f), CONNECTION_WAITING);
	assert_false(f->c->begun);
	hang_up(f);
	assert_int_equal(receive(f), CONNECTION_GONE);
}

static void
whole_request_is_ready_and_left_in_the_socket(void **state)
{
	struct fixture *f = *state;

	make_request(f, 1000);
	send_bytes(f, f->sent, f->len);
	/* Also where the peer has closed behind it. */
	hang_up(f);
	assert_int_equal(receive(f), CONNECTION_READY);
	assert_int_equal(f->c->spool, -1);
	assert_false(f->c->last);
	assert_gives_request(f, f->c->fd, f->len);
}

static void
request_in_parts_is_spooled_and_ready_with_its_last_byte(void **state)
{
	static const size_t lens[] = { 10, 1000, LARGE };
	struct fixture *f = *state;
	struct connection *c = f->c;

	for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
		make_request(f, lens[i]);
		size_t last = f->len - 1;

		assert_int_equal(
		    send_receiving(f, 0, last, SPOOL_MAX), CONNECTION_WAITING);
		assert_true(c->begun);
		assert_int_equal(bytes_unread(f), 0);
		assert_int_equal(receive(f), CONNECTION_WAITING);
		send_bytes(f, f->sent + last, 1);
		assert_int_equal(receive(f), CONNECTION_READY);
		assert_false(c->last);
		assert_int_equal(c->spooled, f->len);
		assert_gives_request(f, c->spool, f->len);
		connection_renew(c);
	}
}

static void
request_that_is_malformed_aborted_or_broken_off_is_gone(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\n\r\n";

	for (int i = 0; i < 4; i++) {
		struct fixture *f = renew(state);
		unsigned char abort_record[8];

		make_request(f, LARGE);
		put_record(abort_record, ABORT, f->sent, 0);
		if (i == 0)
			send_bytes(f, http, strlen(http));
		if (i == 1) {
			send_bytes(f, f->sent, 16);
			assert_int_equal(receive(f), CONNECTION_WAITING);
			send_bytes(f, abort_record, sizeof abort_record);
		}
		if (i >= 2)
			assert_int_equal(
			    send_receiving(f, 0, f->len - 8, SPOOL_MAX),
			    CONNECTION_WAITING);
		/* An unknown type, in the spooled request's last record. */
		f->sent[f->len - 7] = 99;
		if (i == 2)
			send_bytes(f, f->sent + f->len - 8, 8);
		if (i == 3)
			hang_up(f);
		assert_int_equal(receive(f), CONNECTION_GONE);
	}
}

static void
connection_with_bytes_behind_its_request_is_not_kept(void **state)
{
	struct fixture *f = *state;

	make_request(f, 10);
	send_bytes(f, f->sent, f->len);
	send_bytes(f, f->sent, 1);
	assert_int_equal(receive(f), CONNECTION_READY);
	assert_true(f->c->last);
}

/* There may be more bytes, which epoll would not report again. */
static void
connection_whose_request_fills_the_buffer_is_not_kept(void **state)
{
	struct fixture *f = *state;

	for (size_t records = 1; records <= 2; records++) {
		size_t len = records * SCRATCH_BYTES;

		make_request(f, 0);
		make_request(f, len - f->len - 8 * records);
		assert_int_equal(f->len, len);
		send_bytes(f, f->sent, len);
		assert_int_equal(receive(f), CONNECTION_READY);
		assert_true(f->c->last);
		assert_int_equal(f->c->spool >= 0, records == 2);
		assert_gives_request(
		    f, records == 2 ? f->c->spool : f->c->fd, len);
		connection_renew(f->c);
	}
}

static void
bytes_behind_a_large_request_are_not_spooled(void **state)
{
	struct fixture *f = *state;
	size_t last = 0;

	make_request(f, LARGE);
	last = f->len - 1;
	assert_int_equal(
	    send_receiving(f, 0, last, SPOOL_MAX), CONNECTION_WAITING);
	/* Its last byte and the first of the next, in one. */
	send_bytes(f, (const unsigned char[]){ f->sent[last], 1 }, 2);
	assert_int_equal(receive(f), CONNECTION_READY);
	assert_true(f->c->last);
	assert_gives_request(f, f->c->spool, f->len);
}

static void
spool_keeps_no_more_than_it_may_and_it_is_ready(void **state)
{
	static const size_t maxima[] = { 0, 1, 100000 };

	for (size_t i = 0; i < sizeof maxima / sizeof maxima[0]; i++) {
		struct fixture *f = *state;
		const size_t kept = maxima[i] + 2 * PARAMS_LEN;

		make_request(f, LARGE);
		assert_int_equal(
		    send_receiving(f, 0, f->len, maxima[i]), CONNECTION_READY);
		assert_int_equal(f->c->spooled, kept);
		assert_gives_request(f, f->c->spool, kept);
		connection_renew(f->c);
	}
}

static enum connection_status
send_answer(struct fixture *f, size_t len)
{
	make_request(f, len);
	return connection_send(f->c, f->sent, len);
}

static enum connection_status
send_rest(struct fixture *f)
{
	return connection_send(f->c, f->c->answer, f->c->answer_len);
}

static void
large_answer_is_sent_as_its_reader_takes_it(void **state)
{
	struct fixture *f = *state;
	enum connection_status sent = send_answer(f, LARGE);
	unsigned char *got = malloc(LARGE);
	size_t have = 0;
	unsigned waited = 0;
	ssize_t n;

	assert_non_null(got);
	while (sent == CONNECTION_WAITING) {
		assert_non_null(f->c->answer);
		waited++;
		while ((n = read(f->peer, got + have, LARGE - have)) > 0)
			have += (size_t)n;
		sent = send_rest(f);
	}
	assert_int_equal(sent, CONNECTION_READY);
	while ((n = read(f->peer, got + have, LARGE - have)) > 0)
		have += (size_t)n;
	assert_true(waited > 1);
	assert_null(f->c->answer);
	assert_int_equal(have, LARGE);
	assert_memory_equal(got, f->sent, LARGE);
	free(got);
}

static void
answer_to_a_peer_that_closes_is_gone(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(send_answer(f, LARGE), CONNECTION_WAITING);
	hang_up(f);
	assert_int_equal(send_rest(f), CONNECTION_GONE);
	assert_int_equal(send_answer(f, 1000), CONNECTION_GONE);
}

static void
answer_without_memory_for_its_rest_is_gone(void **state)
{
	struct fixture *f = *state;
	enum connection_status sent;

	if (!alloc_can_fail())
		skip();
	make_request(f, LARGE);
	alloc_fail(1, 1);
	sent = connection_send(f->c, f->sent, LARGE);
	assert_true(alloc_reset());
	assert_int_equal(sent, CONNECTION_GONE);
}

static void
interrupted_calls_are_repeated(void **state)
{
	struct fixture *f = *state;

	/* The first receive with MSG_PEEK, and the first without. */
	for (unsigned nth = 1; nth <= 2; nth++) {
		make_request(f, LARGE);
		shim_fail(SHIM_RECV, NULL, nth, 3, EINTR);
		assert_int_equal(
		    send_receiving(f, 0, f->len, SPOOL_MAX), CONNECTION_READY);
		assert_true(shim_count(SHIM_RECV) >= nth + 3);
		shim_reset();
		assert_gives_request(f, f->c->spool, f->len);
		connection_renew(f->c);
	}
	shim_fail(SHIM_SEND, NULL, 1, 2, EINTR);
	assert_int_equal(send_answer(f, 1000), CONNECTION_READY);
	assert_int_equal(shim_count(SHIM_SEND), 3);
	assert_gives_request(f, f->peer, 1000);
}

static void
failing_call_ends_the_connection(void **state)
{
	static const struct {
		enum shim_call call;
		const char *file;
		int error;
	} cases[] = {
		{ SHIM_RECV, NULL, ECONNRESET },
		{ SHIM_WRITE, SPOOL, ENOSPC },
		{ SHIM_LSEEK, SPOOL, EIO },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct fixture *f = renew(state);

		make_request(f, LARGE);
		shim_fail(cases[i].call, cases[i].file, 1, 1, cases[i].error);
		assert_int_equal(
		    send_receiving(f, 0, f->len, SPOOL_MAX), CONNECTION_GONE);
		assert_int_equal(shim_count(cases[i].call), 1);
	}
}

static void
request_that_fits_is_ready_without_a_spool(void **state)
{
	struct fixture *f = *state;

	make_request(f, 1000);
	send_bytes(f, f->sent, f->len - 1);
	shim_fail(SHIM_MEMFD_CREATE, NULL, 1, 1, EMFILE);
	assert_int_equal(receive(f), CONNECTION_WAITING);
	assert_int_equal(shim_count(SHIM_MEMFD_CREATE), 1);
	assert_true(f->c->begun);
	send_bytes(f, f->sent + f->len - 1, 1);
	assert_int_equal(receive(f), CONNECTION_READY);
	assert_int_equal(f->c->spool, -1);
	assert_gives_request(f, f->c->fd, f->len);
}

static void
connection_without_memory_closes_its_descriptor(void **state)
{
	struct connection *connection;
	int ends[2];

	(void)state;
	if (!alloc_can_fail())
		skip();
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	alloc_fail(1, 1);
	connection = connection_new(ends[1]);
	assert_true(alloc_reset());
	assert_null(connection);
	assert_int_equal(fcntl(ends[1], F_GETFD), -1);
	close(ends[0]);
}

static void
free_closes_all_that_is_open(void **state)
{
	struct fixture *f = *state;
	int fds[2];

	assert_int_equal(send_answer(f, LARGE), CONNECTION_WAITING);
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

static int
set_up_list(void **state)
{
	struct listed *listed = calloc(1, sizeof *listed);

	if (listed == NULL)
		return -1;
	TAILQ_INIT(&listed->list.members);
	listed->list.timeout_ms = 1000;
	for (int i = 0; i < LISTED; i++) {
		listed->members[i] = connection_new(-1);
		if (listed->members[i] == NULL)
			return -1;
		connection_place(listed->members[i], &listed->list, i * 10);
	}
	*state = listed;
	return 0;
}

static int
tear_down_list(void **state)
{
	struct listed *listed = *state;

	for (int i = 0; i < LISTED; i++)
		if (listed->members[i] != NULL)
			connection_free(listed->members[i]);
	free(listed);
	return 0;
}

/* The list holds these, in order, forwards and backwards. */
static void
assert_order(const struct listed *listed, const char *order)
{
	const struct connection *c = TAILQ_FIRST(&listed->list.members);
	const struct connection *before = NULL;

	for (; *order != '\0'; order++) {
		assert_ptr_equal(c, listed->members[*order - '0']);
		assert_ptr_equal(c->list, &listed->list);
		if (before != NULL) {
			assert_ptr_equal(
			    TAILQ_PREV(c, connection_members, link), before);
			assert_true(before->deadline_ms <= c->deadline_ms);
		}
		before = c;
		c = TAILQ_NEXT(c, link);
	}
	assert_null(c);
	assert_ptr_equal(
	    TAILQ_LAST(&listed->list.members, connection_members), before);
}

static void
placed_connection_is_the_last_with_a_new_deadline(void **state)
{
	struct listed *listed = *state;

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

static void
connection_placed_elsewhere_or_freed_leaves_its_list(void **state)
{
	struct listed *listed = *state;
	struct connection_list other = { .timeout_ms = 5 };

	TAILQ_INIT(&other.members);
	connection_place(listed->members[1], &other, 100);
	assert_order(listed, "023");
	assert_ptr_equal(TAILQ_FIRST(&other.members), listed->members[1]);
	assert_int_equal(listed->members[1]->deadline_ms, 105);
	for (int i = 0; i < 2; i++) {
		connection_place(listed->members[1], NULL, 0);
		assert_null(listed->members[1]->list);
		assert_true(TAILQ_EMPTY(&other.members));
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
#define LIST_TEST(f) \
	cmocka_unit_test_setup_teardown(f, set_up_list, tear_down_list)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(peer_without_a_request_is_waited_for_or_gone),
		TEST(whole_request_is_ready_and_left_in_the_socket),
		TEST(request_in_parts_is_spooled_and_ready_with_its_last_byte),
		TEST(request_that_is_malformed_aborted_or_broken_off_is_gone),
		TEST(connection_with_bytes_behind_its_request_is_not_kept),
		TEST(connection_whose_request_fills_the_buffer_is_not_kept),
		TEST(bytes_behind_a_large_request_are_not_spooled),
		TEST(spool_keeps_no_more_than_it_may_and_it_is_ready),
		TEST(large_answer_is_sent_as_its_reader_takes_it),
		TEST(answer_to_a_peer_that_closes_is_gone),
		TEST(answer_without_memory_for_its_rest_is_gone),
		TEST(interrupted_calls_are_repeated),
		TEST(failing_call_ends_the_connection),
		TEST(request_that_fits_is_ready_without_a_spool),
		TEST(connection_without_memory_closes_its_descriptor),
		TEST(free_closes_all_that_is_open),
		LIST_TEST(placed_connection_is_the_last_with_a_new_deadline),
		LIST_TEST(connection_placed_elsewhere_or_freed_leaves_its_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
