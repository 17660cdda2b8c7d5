/* service: what arrives at the socket that NOTIFY_SOCKET names. */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "gateway.h"

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
	service_notify("READY=1");
	assert_int_equal(recv(fd, got, sizeof(got), 0), strlen("READY=1"));
	assert_memory_equal(got, "READY=1", strlen("READY=1"));
	assert_int_equal(recv(fd, got, sizeof(got), 0), -1);
	close(fd);
}

TEST(a_state_arrives_at_a_path_and_at_an_abstract_name)
{
	char dir[DIRECTORY_PATH_MAX], name[sizeof(dir) + 8];

	directory_make(dir);
	snprintf(name, sizeof(name), "%s/socket", dir);
	arrives_once(name);
	directory_remove(dir);
	snprintf(name, sizeof(name), "@notify.%d", (int)getpid());
	arrives_once(name);
}

/* What service_notify logs with this NOTIFY_SOCKET, and with descriptors. */
static const char *
logged_with(const char *name, bool descriptors)
{
	struct rlimit limit, none;

	setenv("NOTIFY_SOCKET", name, 1);
	assert_return_code(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	stderr_capture();
	setrlimit(RLIMIT_NOFILE, descriptors ? &limit : &none);
	service_notify("READY=1");
	setrlimit(RLIMIT_NOFILE, &limit);
	return stderr_captured();
}

TEST(a_socket_that_cannot_be_used_is_logged_and_none_is_not)
{
	static const char *const names[] = { "/nonexistent/socket", "relative",
		LONG_NAME };

	for (size_t i = 0; i < COUNT(names); i++)
		assert_contains(logged_with(names[i], true), "NOTIFY_SOCKET");
	assert_contains(logged_with(names[0], false), strerror(EMFILE));
	assert_string_equal(logged_with("", true), "");
}
