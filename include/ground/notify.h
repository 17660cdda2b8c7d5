/* notify: messages to the supervisor, by systemd's protocol (sd_notify(3)). */
#pragma once

/*
 * notify_supervisor(state):
 * Send `state`, such as "READY=1", to the socket that NOTIFY_SOCKET names: an
 * absolute path, or '@' and an abstract name.  Do nothing if it is unset or
 * empty; log a failure.
 */
void notify_supervisor(const char *state);
