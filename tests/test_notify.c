/* notify: what arrives at the socket that NOTIFY_SOCKET names. */
#include "unit.h"

#include <stdbool.h>
#include <stdio.h>
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
a_state_arrives_at_a_path_and_at_an_abstract_name(void **state)
{
	char dir[] = "/tmp/notify.XXXXXX", name[sizeof(dir) + 8];

	assert_non_null(mkdtemp(dir));
	snprintf(name, sizeof(name), "%s/socket", dir);
	arrives_once(name);
	assert_return_code(unlink(name), 0);
	assert_return_code(rmdir(dir), 0);
	snprintf(name, sizeof(name), "@notify.%d", (int)getpid());
	arrives_once(name);
}

/* What notify_supervisor logs with this NOTIFY_SOCKET, and with descriptors. */
static size_t
said(const char *name, bool descriptors, char *text, size_t size)
{
	int ends[2], before = dup(STDERR_FILENO);
	struct rlimit limit, none;
	ssize_t len;

	setenv("NOTIFY_SOCKET", name, 1);
	assert_return_code(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	assert_return_code(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	setrlimit(RLIMIT_NOFILE, descriptors ? &limit : &none);
	notify_supervisor("READY=1");
	assert_return_code(setrlimit(RLIMIT_NOFILE, &limit), 0);
	dup2(before, STDERR_FILENO);
	close(before);
	len = read(ends[0], text, size - 1);
	close(ends[0]);
	assert_in_range(len, 0, size - 1);
	text[len] = '\0';
	return (size_t)len;
}

static void
a_socket_that_cannot_be_used_is_logged_and_none_is_not(void **state)
{
	static const char *const names[] = { "/nonexistent/socket", "relative",
		LONG_NAME };
	char text[512];

	for (size_t i = 0; i < COUNT(names); i++) {
		assert_true(said(names[i], true, text, sizeof(text)) > 0);
		assert_non_null(strstr(text, "NOTIFY_SOCKET"));
	}
	assert_true(said(names[0], false, text, sizeof(text)) > 0);
	assert_non_null(strstr(text, "Too many open files"));
	assert_int_equal(said("", true, text, sizeof(text)), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_state_arrives_at_a_path_and_at_an_abstract_name),
		TEST(a_socket_that_cannot_be_used_is_logged_and_none_is_not),
	};

	return cmocka_run_group_tests_name("notify", tests, NULL, NULL);
}
