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

void
notify_supervisor(const char *state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *name = getenv("NOTIFY_SOCKET");
	size_t len = name == NULL ? 0 : strlen(name);
	int fd = -1;

	if (len == 0)
		return;
	errno = EINVAL;
	if ((name[0] == '/' || name[0] == '@') &&
	    len < sizeof(address.sun_path)) {
		memcpy(address.sun_path, name, len);
		if (name[0] == '@')
			address.sun_path[0] = '\0';
		fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	}
	/* An abstract name ends with the address: no NUL is counted. */
	if (fd < 0 ||
	    sendto(fd, state, strlen(state), MSG_NOSIGNAL,
		(const struct sockaddr *)&address,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		log_warning("NOTIFY_SOCKET %.108s: cannot send %s: %s", name,
		    state, strerror(errno));
	if (fd >= 0)
		close(fd);
}
