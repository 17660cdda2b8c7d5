/*
 * peer: a database that keeps plants as one would have it keep them, a
 * transaction and a sync for each.  See peer.c and callers.c.
 */
#pragma once

#include <stdint.h>

struct peer_plant {
	int64_t id;
	const char *name, *tag; /* tag: NULL if there is none */
};

/* How many of peer.c's threads a process has. */
extern const int peer_threads;

/*
 * peer_open(where), peer_store(peer, plant):
 * A connection of its own for each thread; NULL, reported on stderr.  Return
 * 200 once the plant is durable, 409 if its id is another plant's, else 503.
 */
struct peer *peer_open(const char *where);
int peer_store(struct peer *peer, const struct peer_plant *plant);
