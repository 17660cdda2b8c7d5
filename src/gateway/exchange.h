/*
 * exchange: a request that has arrived whole, and its answer.
 */
#ifndef GATEWAY_EXCHANGE_H
#define GATEWAY_EXCHANGE_H

#include "connection.h"

struct reactor;

/*
 * exchange_take(reactor, connection):
 * Read the request and check it: it is answered if it is refused; else its
 * plant waits for exchange_commit.  The connection may be freed.
 */
void exchange_take(struct reactor *reactor, struct connection *connection);

/*
 * exchange_commit(reactor):
 * One commit for all plants that wait, and their answers.
 */
void exchange_commit(struct reactor *reactor);

/*
 * exchange_send_more(reactor, connection):
 * Go on with an answer that the socket did not take at once.  The connection
 * may be freed.
 */
void exchange_send_more(struct reactor *reactor, struct connection *connection);

/*
 * exchange_await(reactor, connection):
 * Wait for more of a request, for the next one, or for room to send.  The
 * connection may be freed.
 */
void exchange_await(struct reactor *reactor, struct connection *connection);

#endif
