/*
 * connection: what a look at a socket tells, what goes to the spool, and what
 * is left for libfcgi to read.
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
#include "alloc_shim.h"
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
	struct connection *connection;
	unsigned char *sent; /* a request */
	size_t len;
	unsigned char scratch[SCRATCH_BYTES];
};

static int
set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);
	int ends[2];

	if (fixture == NULL ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
		ends) != 0)
		return -1;
	fixture->peer = ends[0];
	fixture->connection = connection_new(ends[1]);
	*state = fixture;
	return fixture->connection == NULL ? -1 : 0;
}

static int
tear_down(void **state)
{
	struct fixture *fixture = *state;

	shim_reset();
	if (fixture->connection != NULL)
		connection_free(fixture->connection);
	if (fixture->peer >= 0)
		close(fixture->peer);
	free(fixture->sent);
	free(fixture);
	return 0;
}

static void
hang_up(struct fixture *fixture)
{
	close(fixture->peer);
	fixture->peer = -1;
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
make_request(struct fixture *fixture, size_t body_len)
{
	static const unsigned char role[8] = { 0, 1, 1 };
	static const unsigned char pair[PARAMS_LEN] = { 1, 1, 'a', 'b' };
	unsigned char *body = malloc(body_len + 1);
	unsigned char *to;
	size_t at = 0;

	assert_non_null(body);
	for (size_t i = 0; i < body_len; i++)
		body[i] = (unsigned char)(i * 2654435761U >> 24);
	free(fixture->sent);
	fixture->sent =
	    malloc(body_len + 100 + body_len / RECORD_BYTES_MAX * 8);
	assert_non_null(fixture->sent);
	to = put_record(fixture->sent, BEGIN, role, sizeof role);
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
	fixture->len = (size_t)(to - fixture->sent);
	free(body);
}

static enum connection_look
look_with(struct fixture *fixture, size_t spool_max)
{
	return connection_look(fixture->connection, fixture->scratch,
	    sizeof fixture->scratch, spool_max);
}

static enum connection_look
look(struct fixture *fixture)
{
	return look_with(fixture, SPOOL_MAX);
}

static void
send_bytes(struct fixture *fixture, const void *buf, size_t len)
{
	assert_int_equal(write(fixture->peer, buf, len), len);
}

/*
 * Send the bytes from `from` to `to` of the request as the socket takes them,
 * with a look whenever it takes no more, and once at the end.
 */
static enum connection_look
send_looking(struct fixture *fixture, size_t from, size_t to, size_t spool_max)
{
	while (from < to) {
		ssize_t n =
		    write(fixture->peer, fixture->sent + from, to - from);

		if (n >= 0) {
			from += (size_t)n;
			continue;
		}
		assert_int_equal(errno, EAGAIN);
		enum connection_look seen = look_with(fixture, spool_max);
		if (seen != CONNECTION_WAITING)
			return seen;
	}
	return look_with(fixture, spool_max);
}

static size_t
bytes_unread(const struct fixture *fixture)
{
	int n = -1;

	assert_int_equal(ioctl(fixture->connection->fd, FIONREAD, &n), 0);
	assert_true(n >= 0);
	return (size_t)n;
}

/* Whether `fd` gives the first `len` bytes of the request and then no more. */
static void
assert_gives_request(const struct fixture *fixture, int fd, size_t len)
{
	unsigned char *got = malloc(fixture->len + 1);
	size_t have = 0;
	ssize_t n;

	assert_non_null(got);
	while ((n = read(fd, got + have, fixture->len + 1 - have)) > 0)
		have += (size_t)n;
	assert_int_equal(have, len);
	assert_memory_equal(got, fixture->sent, len);
	free(got);
}

static void
silent_peer_is_waited_for(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(look(fixture), CONNECTION_WAITING);
	assert_false(fixture->connection->begun);
}

static void
whole_request_is_ready_and_left_in_the_socket(void **state)
{
	struct fixture *fixture = *state;

	make_request(fixture, 1000);
	send_bytes(fixture, fixture->sent, fixture->len);
	assert_int_equal(look(fixture), CONNECTION_READY);
	assert_int_equal(fixture->connection->spool, -1);
	assert_false(fixture->connection->last);
	assert_gives_request(fixture, fixture->connection->fd, fixture->len);
}

static void
part_of_a_request_is_waited_for_and_left_in_the_socket(void **state)
{
	struct fixture *fixture = *state;

	make_request(fixture, 1000);
	send_bytes(fixture, fixture->sent, fixture->len - 1);
	assert_int_equal(look(fixture), CONNECTION_WAITING);
	assert_true(fixture->connection->begun);
	assert_int_equal(bytes_unread(fixture), fixture->len - 1);
	send_bytes(fixture, fixture->sent + fixture->len - 1, 1);
	assert_int_equal(look(fixture), CONNECTION_READY);
	assert_gives_request(fixture, fixture->connection->fd, fixture->len);
}

static void
peer_that_has_closed_is_gone(void **state)
{
	struct fixture *fixture = *state;

	hang_up(fixture);
	assert_int_equal(look(fixture), CONNECTION_GONE);
}

static void
request_of_a_peer_that_has_closed_behind_it_is_ready(void **state)
{
	struct fixture *fixture = *state;

	make_request(fixture, 10);
	send_bytes(fixture, fixture->sent, fixture->len);
	hang_up(fixture);
	assert_int_equal(look(fixture), CONNECTION_READY);
}

static void
malformed_request_is_gone(void **state)
{
	struct fixture *fixture = *state;

	send_bytes(fixture, "GET / HTTP/1.1\r\n\r\n", 18);
	assert_int_equal(look(fixture), CONNECTION_GONE);
}

static void
aborted_request_is_gone(void **state)
{
	struct fixture *fixture = *state;
	unsigned char abort_record[8];

	make_request(fixture, 10);
	put_record(abort_record, ABORT, fixture->sent, 0);
	send_bytes(fixture, fixture->sent, 16);
	assert_int_equal(look(fixture), CONNECTION_WAITING);
	send_bytes(fixture, abort_record, sizeof abort_record);
	assert_int_equal(look(fixture), CONNECTION_GONE);
}

static void
connection_with_bytes_behind_its_request_is_not_kept(void **state)
{
	struct fixture *fixture = *state;

	make_request(fixture, 10);
	send_bytes(fixture, fixture->sent, fixture->len);
	send_bytes(fixture, fixture->sent, 1);
	assert_int_equal(look(fixture), CONNECTION_READY);
	assert_true(fixture->connection->last);
}

/* A request of `len` bytes, whose body is in so many records. */
static void
send_request_of(struct fixture *fixture, size_t len, size_t records)
{
	make_request(fixture, 0);
	make_request(fixture, len - fixture->len - 8 * records);
	assert_int_equal(fixture->len, len);
	send_bytes(fixture, fixture->sent, fixture->len);
}

/* More may be behind it, of which epoll would not tell again. */
static void
connection_whose_request_fills_the_buffer_is_not_kept(void **state)
{
	struct fixture *fixture = *state;

	send_request_of(fixture, SCRATCH_BYTES, 1);
	assert_int_equal(look(fixture), CONNECTION_READY);
	assert_true(fixture->connection->last);
}

static void
connection_whose_request_fills_the_spools_buffer_is_not_kept(void **state)
{
	struct fixture *fixture = *state;

	send_request_of(fixture, 2 * SCRATCH_BYTES, 2);
	assert_int_equal(look(fixture), CONNECTION_READY);
	assert_true(fixture->connection->spool >= 0);
	assert_true(fixture->connection->last);
}

static void
large_request_is_spooled_byte_for_byte(void **state)
{
	struct fixture *fixture = *state;

	make_request(fixture, LARGE);
	assert_int_equal(send_looking(fixture, 0, fixture->len, SPOOL_MAX),
	    CONNECTION_READY);
	assert_true(fixture->connection->spool >= 0);
	assert_int_equal(fixture->connection->spooled, fixture->len);
	assert_false(fixture->connection->last);
	assert_int_equal(bytes_unread(fixture), 0);
	assert_gives_request(fixture, fixture->connection->spool, fixture->len);
}

static void
large_request_is_ready_with_its_last_byte(void **state)
{
	struct fixture *fixture = *state;

	make_request(fixture, LARGE);
	assert_int_equal(send_looking(fixture, 0, fixture->len - 1, SPOOL_MAX),
	    CONNECTION_WAITING);
	assert_int_equal(look(fixture), CONNECTION_WAITING);
	send_bytes(fixture, fixture->sent + fixture->len - 1, 1);
	assert_int_equal(look(fixture), CONNECTION_READY);
	assert_gives_request(fixture, fixture->connection->spool, fixture->len);
}

static void
bytes_behind_a_large_request_are_not_spooled(void **state)
{
	struct fixture *fixture = *state;
	size_t last = 0;

	make_request(fixture, LARGE);
	last = fixture->len - 1;
	assert_int_equal(
	    send_looking(fixture, 0, last, SPOOL_MAX), CONNECTION_WAITING);
	/* Its last byte and the first of the next, in one. */
	send_bytes(
	    fixture, (const unsigned char[]){ fixture->sent[last], 1 }, 2);
	assert_int_equal(look(fixture), CONNECTION_READY);
	assert_true(fixture->connection->last);
	assert_gives_request(fixture, fixture->connection->spool, fixture->len);
}

static void
spool_keeps_no_more_than_it_may_and_the_request_still_ends(void **state)
{
	static const size_t maxima[] = { 0, 1, 100000 };

	for (size_t i = 0; i < sizeof maxima / sizeof maxima[0]; i++) {
		struct fixture *fixture = *state;
		const size_t kept = maxima[i] + 2 * PARAMS_LEN;

		make_request(fixture, LARGE);
		assert_int_equal(
		    send_looking(fixture, 0, fixture->len, maxima[i]),
		    CONNECTION_READY);
		assert_int_equal(fixture->connection->spooled, kept);
		assert_gives_request(fixture, fixture->connection->spool, kept);
		close(fixture->connection->spool);
		connection_renew(fixture->connection);
	}
}

static void
peer_that_closes_within_a_spooled_request_is_gone(void **state)
{
	struct fixture *fixture = *state;

	make_request(fixture, LARGE);
	assert_int_equal(send_looking(fixture, 0, fixture->len - 1, SPOOL_MAX),
	    CONNECTION_WAITING);
	hang_up(fixture);
	assert_int_equal(look(fixture), CONNECTION_GONE);
}

static void
spooled_request_that_turns_out_malformed_is_gone(void **state)
{
	struct fixture *fixture = *state;

	make_request(fixture, LARGE);
	/* The last record is of no type that there is. */
	fixture->sent[fixture->len - 7] = 99;
	assert_int_equal(
	    send_looking(fixture, 0, fixture->len, SPOOL_MAX), CONNECTION_GONE);
}

static void
request_in_single_bytes_is_ready_with_the_last(void **state)
{
	struct fixture *fixture = *state;

	make_request(fixture, 1000);
	for (size_t i = 0; i < fixture->len; i++) {
		send_bytes(fixture, fixture->sent + i, 1);
		assert_int_equal(look(fixture), i + 1 < fixture->len
						    ? CONNECTION_WAITING
						    : CONNECTION_READY);
	}
	/* A socket's buffer would not hold as many single bytes. */
	assert_true(fixture->connection->spool >= 0);
	assert_gives_request(fixture, fixture->connection->spool, fixture->len);
}

static void
renewed_connection_takes_the_next_request(void **state)
{
	struct fixture *fixture = *state;
	struct connection *connection = fixture->connection;

	make_request(fixture, LARGE);
	assert_int_equal(send_looking(fixture, 0, fixture->len, SPOOL_MAX),
	    CONNECTION_READY);
	close(connection->spool);
	connection_renew(connection);
	assert_false(connection->begun);
	assert_int_equal(look(fixture), CONNECTION_WAITING);
	make_request(fixture, 10);
	send_bytes(fixture, fixture->sent, fixture->len);
	assert_int_equal(look(fixture), CONNECTION_READY);
	assert_gives_request(fixture, connection->fd, fixture->len);
}

static enum connection_look
send_answer(struct fixture *fixture, size_t len)
{
	make_request(fixture, len);
	return connection_send(fixture->connection, fixture->sent, len);
}

static void
small_answer_is_sent_at_once(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(send_answer(fixture, 1000), CONNECTION_READY);
	assert_null(fixture->connection->answer);
	assert_gives_request(fixture, fixture->peer, 1000);
}

static void
large_answer_is_sent_as_its_reader_takes_it(void **state)
{
	struct fixture *fixture = *state;
	enum connection_look sent = send_answer(fixture, LARGE);
	unsigned char *got = malloc(LARGE);
	size_t have = 0;
	unsigned waited = 0;
	ssize_t n;

	assert_non_null(got);
	while (sent == CONNECTION_WAITING) {
		assert_non_null(fixture->connection->answer);
		waited++;
		while ((n = read(fixture->peer, got + have, LARGE - have)) > 0)
			have += (size_t)n;
		sent = connection_send_more(fixture->connection);
	}
	assert_int_equal(sent, CONNECTION_READY);
	while ((n = read(fixture->peer, got + have, LARGE - have)) > 0)
		have += (size_t)n;
	assert_true(waited > 1);
	assert_null(fixture->connection->answer);
	assert_int_equal(have, LARGE);
	assert_memory_equal(got, fixture->sent, LARGE);
	free(got);
}

static void
answer_to_a_peer_that_has_closed_is_gone(void **state)
{
	struct fixture *fixture = *state;

	hang_up(fixture);
	assert_int_equal(send_answer(fixture, 1000), CONNECTION_GONE);
}

static void
answer_to_a_peer_that_closes_before_the_rest_is_gone(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(send_answer(fixture, LARGE), CONNECTION_WAITING);
	hang_up(fixture);
	assert_int_equal(
	    connection_send_more(fixture->connection), CONNECTION_GONE);
}

static void
answer_without_memory_for_its_rest_is_gone(void **state)
{
	struct fixture *fixture = *state;
	enum connection_look sent;

	if (!alloc_can_fail())
		skip();
	make_request(fixture, LARGE);
	alloc_fail(1, 1);
	sent = connection_send(fixture->connection, fixture->sent, LARGE);
	assert_true(alloc_reset());
	assert_int_equal(sent, CONNECTION_GONE);
}

static void
interrupted_look_is_taken_up_again(void **state)
{
	static const struct {
		enum shim_call call;
		const char *file;
		unsigned nth;
	} cases[] = {
		{ SHIM_RECV, NULL, 1 },
		{ SHIM_RECV, NULL, 2 }, /* the first that takes bytes away */
		{ SHIM_WRITE, SPOOL, 1 },
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		make_request(fixture, LARGE);
		shim_fail(cases[i].call, cases[i].file, cases[i].nth, 3, EINTR);
		assert_int_equal(
		    send_looking(fixture, 0, fixture->len, SPOOL_MAX),
		    CONNECTION_READY);
		assert_true(shim_count(cases[i].call) >= cases[i].nth + 3);
		shim_reset();
		assert_gives_request(
		    fixture, fixture->connection->spool, fixture->len);
		close(fixture->connection->spool);
		connection_renew(fixture->connection);
	}
}

static void
look_that_fails_ends_the_connection(void **state)
{
	struct fixture *fixture = *state;

	shim_fail(SHIM_RECV, NULL, 1, 1, ECONNRESET);
	assert_int_equal(look(fixture), CONNECTION_GONE);
}

/* Looks at a large request, of which one call fails. */
static void
assert_gone(struct fixture *fixture, enum shim_call call, const char *file)
{
	make_request(fixture, LARGE);
	shim_fail(call, file, 1, 1, ENOSPC);
	assert_int_equal(
	    send_looking(fixture, 0, fixture->len, SPOOL_MAX), CONNECTION_GONE);
	assert_int_equal(shim_count(call), 1);
}

static void
spool_that_cannot_be_made_ends_the_connection(void **state)
{
	assert_gone(*state, SHIM_MEMFD_CREATE, NULL);
}

static void
spool_that_cannot_be_written_ends_the_connection(void **state)
{
	assert_gone(*state, SHIM_WRITE, SPOOL);
}

static void
spool_that_cannot_be_read_from_its_beginning_ends_the_connection(void **state)
{
	assert_gone(*state, SHIM_LSEEK, SPOOL);
}

static void
interrupted_answer_is_taken_up_again(void **state)
{
	struct fixture *fixture = *state;

	shim_fail(SHIM_SEND, NULL, 1, 2, EINTR);
	assert_int_equal(send_answer(fixture, 1000), CONNECTION_READY);
	assert_int_equal(shim_count(SHIM_SEND), 3);
	shim_reset();
	assert_gives_request(fixture, fixture->peer, 1000);
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
	struct fixture *fixture = *state;
	int fds[2];

	assert_int_equal(send_answer(fixture, LARGE), CONNECTION_WAITING);
	fixture->connection->spool = memfd_create("request", MFD_CLOEXEC);
	fds[0] = fixture->connection->fd;
	fds[1] = fixture->connection->spool;
	connection_free(fixture->connection);
	fixture->connection = NULL;
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

/* Whether the list holds these, in order, seen from both its ends. */
static void
assert_order(const struct listed *listed, const char *order)
{
	const struct connection *c = listed->list.first;
	const struct connection *before = NULL;

	for (; *order != '\0'; order++) {
		assert_ptr_equal(c, listed->members[*order - '0']);
		assert_ptr_equal(c->list, &listed->list);
		assert_ptr_equal(c->previous, before);
		if (before != NULL)
			assert_true(before->deadline_ms <= c->deadline_ms);
		before = c;
		c = c->next;
	}
	assert_null(c);
	assert_ptr_equal(listed->list.last, before);
}

static void
connections_stand_in_the_order_of_their_deadlines(void **state)
{
	struct listed *listed = *state;

	assert_order(listed, "0123");
	for (int i = 0; i < LISTED; i++)
		assert_int_equal(
		    listed->members[i]->deadline_ms, 1000 + i * 10);
}

static void
connection_placed_again_goes_to_the_end_with_a_new_deadline(void **state)
{
	struct listed *listed = *state;

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
connection_placed_nowhere_leaves_its_list(void **state)
{
	struct listed *listed = *state;

	connection_place(listed->members[1], NULL, 0);
	assert_order(listed, "023");
	assert_null(listed->members[1]->list);
	connection_place(listed->members[1], NULL, 0);
	connection_place(listed->members[0], NULL, 0);
	assert_order(listed, "23");
	connection_place(listed->members[3], NULL, 0);
	connection_place(listed->members[2], NULL, 0);
	assert_order(listed, "");
	connection_place(listed->members[3], &listed->list, 70);
	assert_order(listed, "3");
}

static void
connection_moves_from_one_list_to_another(void **state)
{
	struct listed *listed = *state;
	struct connection_list other = { .timeout_ms = 5 };

	connection_place(listed->members[1], &other, 100);
	assert_order(listed, "023");
	assert_ptr_equal(other.first, listed->members[1]);
	assert_ptr_equal(other.last, listed->members[1]);
	assert_int_equal(listed->members[1]->deadline_ms, 105);
	connection_place(listed->members[1], NULL, 0);
	assert_null(other.first);
}

static void
connection_that_is_freed_leaves_its_list(void **state)
{
	struct listed *listed = *state;

	connection_free(listed->members[3]);
	listed->members[3] = NULL;
	assert_order(listed, "012");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
		    silent_peer_is_waited_for, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    whole_request_is_ready_and_left_in_the_socket, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    part_of_a_request_is_waited_for_and_left_in_the_socket,
		    set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    peer_that_has_closed_is_gone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    request_of_a_peer_that_has_closed_behind_it_is_ready,
		    set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    malformed_request_is_gone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    aborted_request_is_gone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    connection_with_bytes_behind_its_request_is_not_kept,
		    set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    connection_whose_request_fills_the_buffer_is_not_kept,
		    set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    connection_whose_request_fills_the_spools_buffer_is_not_kept,
		    set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    large_request_is_spooled_byte_for_byte, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    large_request_is_ready_with_its_last_byte, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    bytes_behind_a_large_request_are_not_spooled, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    spool_keeps_no_more_than_it_may_and_the_request_still_ends,
		    set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    peer_that_closes_within_a_spooled_request_is_gone, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    spooled_request_that_turns_out_malformed_is_gone, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    request_in_single_bytes_is_ready_with_the_last, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    renewed_connection_takes_the_next_request, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    small_answer_is_sent_at_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    large_answer_is_sent_as_its_reader_takes_it, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    answer_to_a_peer_that_has_closed_is_gone, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    answer_to_a_peer_that_closes_before_the_rest_is_gone,
		    set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    answer_without_memory_for_its_rest_is_gone, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    interrupted_look_is_taken_up_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    look_that_fails_ends_the_connection, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    spool_that_cannot_be_made_ends_the_connection, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    spool_that_cannot_be_written_ends_the_connection, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    spool_that_cannot_be_read_from_its_beginning_ends_the_connection,
		    set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    interrupted_answer_is_taken_up_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    connection_without_memory_closes_its_descriptor, set_up,
		    tear_down),
		cmocka_unit_test_setup_teardown(
		    free_closes_all_that_is_open, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
		    connections_stand_in_the_order_of_their_deadlines,
		    set_up_list, tear_down_list),
		cmocka_unit_test_setup_teardown(
		    connection_placed_again_goes_to_the_end_with_a_new_deadline,
		    set_up_list, tear_down_list),
		cmocka_unit_test_setup_teardown(
		    connection_placed_nowhere_leaves_its_list, set_up_list,
		    tear_down_list),
		cmocka_unit_test_setup_teardown(
		    connection_moves_from_one_list_to_another, set_up_list,
		    tear_down_list),
		cmocka_unit_test_setup_teardown(
		    connection_that_is_freed_leaves_its_list, set_up_list,
		    tear_down_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
