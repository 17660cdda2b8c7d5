/* peer: what a database does for peer.c. */
#ifndef PEER_H
#define PEER_H

#include <json-c/json.h>
#include <stdint.h>

struct plant {
	int64_t id;
	struct json_object *name, *tag; /* strings; the tag may be NULL */
};

struct peer;

/* Threads of a process, each with a peer. */
extern const int peer_threads;

/*
 * peer_open(path), peer_store(peer, plant):
 * NULL after a message; the status of the answer.
 */
struct peer *peer_open(const char *path);
int peer_store(struct peer *peer, const struct plant *plant);

#endif
