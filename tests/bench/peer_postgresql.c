/*
 * peer_postgresql: a peer with PostgreSQL: a pool of 16 connections, each of
 * which inserts a row and waits until it is committed.  See peer.h.
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

const int peer_threads = 16;

struct peer {
	PGconn *connection;
};

struct peer *
peer_open(const char *where)
{
	struct peer *peer = malloc(sizeof(*peer));
	PGresult *result = NULL;

	if (peer == NULL)
		return NULL;
	peer->connection = PQconnectdb(where);
	if (PQstatus(peer->connection) == CONNECTION_OK)
		result = PQprepare(peer->connection, "insert",
		    "INSERT INTO peer_plants VALUES ($1::bigint, $2, $3) "
		    "ON CONFLICT (id) DO NOTHING",
		    3, NULL);
	if (PQresultStatus(result) == PGRES_COMMAND_OK) {
		PQclear(result);
		return peer;
	}
	fprintf(
	    stderr, "peer_postgresql: %s", PQerrorMessage(peer->connection));
	return NULL;
}

/* Only new plants are measured; a repeat is a conflict. */
int
peer_store(struct peer *peer, const struct peer_plant *plant)
{
	char id[24];
	const char *values[] = { id, plant->name, plant->tag };
	int status = 503;

	snprintf(id, sizeof(id), "%lld", (long long)plant->id);
	PGresult *result = PQexecPrepared(
	    peer->connection, "insert", 3, values, NULL, NULL, 0);
	if (PQresultStatus(result) == PGRES_COMMAND_OK)
		status = strcmp(PQcmdTuples(result), "1") == 0 ? 200 : 409;
	else
		fprintf(stderr, "peer_postgresql: %s",
		    PQerrorMessage(peer->connection));
	PQclear(result);
	return status;
}
