/*
 * arrivals: who comes to a reactor: connections accepted, looked at, and ended
 * when they are late.
 */
#ifndef GATEWAY_ARRIVALS_H
#define GATEWAY_ARRIVALS_H

#include <stdbool.h>

#include "connection.h"

struct reactor;

/* Its address in an event of the reactor's epoll means the listener. */
extern const char arrivals_mark;

/*
 * arrivals_listen(reactor), arrivals_refuse(reactor):
 * Be told of new connections, or no longer.  Without memory for it the listener
 * stays as it is, and reactor->listening says so.
 */
void arrivals_listen(struct reactor *reactor);
void arrivals_refuse(struct reactor *reactor);

/*
 * arrivals_accept(reactor):
 * Accept who is there, and look at each.  When descriptors have run out, the
 * listener rests until reactor->rest_until_ms.
 */
void arrivals_accept(struct reactor *reactor);

/*
 * arrivals_look(reactor, connection, hung_up):
 * Take its request if it has arrived whole; else wait for more, or not, if the
 * peer has `hung_up`.  The connection may be freed.
 */
void arrivals_look(
    struct reactor *reactor, struct connection *connection, bool hung_up);

/*
 * arrivals_end_overdue(reactor):
 * Close who is late, unless the request is there by now, and spool what has
 * been in its socket for too long.
 */
void arrivals_end_overdue(struct reactor *reactor);

/*
 * arrivals_end_all(reactor):
 * Close who has begun a request, unless all of it is there by now.
 */
void arrivals_end_all(struct reactor *reactor);

#endif
