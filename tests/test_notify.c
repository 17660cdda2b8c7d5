/* notify: what arrives at the socket that NOTIFY_SOCKET names. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ground/notify.h"

/* Longer than the address of a socket can be. */
#define LONG_NAME                                          \
	"/a-name-of-some-fifty-characters-and-so-another/" \
	"a-name-of-some-fifty-characters-and-so-another/"  \
	"a-name-of-some-fifty-characters"

/* Bind a socket to the name, in which '@' stands for an abstract one's NUL. */
static int
bound(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	size_t len = strlen(name);

	memcpy(address.sun_path, name, len);
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	assert_return_code(fd, 0);
	assert_return_code(
	    bind(fd, (const struct sockaddr *)&address,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)),
	    0);
	return fd;
}

static void
arrives_once(const char *name)
{
	int fd = bound(name);
	char got[64];

	setenv("NOTIFY_SOCKET", name, 1);
	notify_supervisor("READY=1");
	assert_int_equal(recv(fd, got, sizeof(got), 0), strlen("READY=1"));
	assert_memory_equal(got, "READY=1", strlen("READY=1"));
	assert_int_equal(recv(fd, got, sizeof(got), 0), -1);
	close(fd);
}

static void
a_state_arrives_at_a_path(void **state)
{
	char dir[] = "/tmp/notify.XXXXXX", name[sizeof(dir) + 8];

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(name, sizeof(name), "%s/socket", dir);
	arrives_once(name);
	assert_return_code(unlink(name), 0);
	assert_return_code(rmdir(dir), 0);
}

static void
a_state_arrives_at_an_abstract_name(void **state)
{
	char name[64];

	(void)state;
	snprintf(name, sizeof(name), "@test_notify.%d", (int)getpid());
	arrives_once(name);
}

/* Whether no descriptor can be had. */
static bool out_of_descriptors;

static void
notify(void)
{
	struct rlimit limit, none;

	assert_return_code(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	if (out_of_descriptors)
		assert_return_code(setrlimit(RLIMIT_NOFILE, &none), 0);
	notify_supervisor("READY=1");
	assert_return_code(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* What notify_supervisor says on stderr with such a NOTIFY_SOCKET. */
static size_t
said(const char *name, char *text, size_t size)
{
	int ends[2], before = dup(STDERR_FILENO);
	ssize_t len;

	setenv("NOTIFY_SOCKET", name, 1);
	assert_return_code(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	notify();
	dup2(before, STDERR_FILENO);
	close(before);
	len = read(ends[0], text, size - 1);
	close(ends[0]);
	assert_in_range(len, 0, size - 1);
	text[len] = '\0';
	return (size_t)len;
}

static void
a_socket_that_is_not_there_is_told(void **state)
{
	static const char *const names[] = { "/nonexistent/socket", "relative",
		LONG_NAME };
	char text[512];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_not_equal(said(names[i], text, sizeof(text)), 0);
		assert_non_null(strstr(text, "NOTIFY_SOCKET"));
	}
}

static void
a_socket_that_cannot_be_made_is_told(void **state)
{
	char text[512];

	(void)state;
	out_of_descriptors = true;
	size_t len = said("/nonexistent/socket", text, sizeof(text));
	out_of_descriptors = false;
	assert_int_not_equal(len, 0);
	assert_non_null(strstr(text, "Too many open files"));
}

static void
without_a_socket_nothing_is_said(void **state)
{
	char text[512];

	(void)state;
	assert_int_equal(said("", text, sizeof(text)), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_state_arrives_at_a_path),
		cmocka_unit_test(a_state_arrives_at_an_abstract_name),
		cmocka_unit_test(a_socket_that_is_not_there_is_told),
		cmocka_unit_test(a_socket_that_cannot_be_made_is_told),
		cmocka_unit_test(without_a_socket_nothing_is_said),
	};

	return cmocka_run_group_tests_name("notify", tests, NULL, NULL);
}
