/* notify: one datagram to the supervisor.  See ground/notify.h. */
#include "ground/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ground/log.h"

static int
send_to(const char *name, const char *state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t len = strlen(name), state_len = strlen(state);
	ssize_t sent;
	int fd;

	if ((name[0] != '/' && name[0] != '@') ||
	    len >= sizeof(address.sun_path)) {
		errno = EINVAL;
		return -1;
	}
	memcpy(address.sun_path, name, len);
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	/* The length ends an abstract name; it counts no NUL. */
	sent = sendto(fd, state, state_len, MSG_NOSIGNAL,
	    (const struct sockaddr *)&address,
	    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	close(fd);
	return sent == (ssize_t)state_len ? 0 : -1;
}

void
notify_supervisor(const char *state)
{
	const char *name = getenv("NOTIFY_SOCKET");

	if (name == NULL || name[0] == '\0')
		return;
	if (send_to(name, state) < 0)
		log_warning("NOTIFY_SOCKET %.108s: cannot tell it %s: %s", name,
		    state, strerror(errno));
}
