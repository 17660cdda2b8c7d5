/*
 * peer: what one would write for the same job with libfcgi, json-c and a
 * database, for scripts/bench to compare with: a request, a transaction, a
 * sync.  peer_sqlite.c and peer_postgresql.c have the databases.
 *
 * PEER_DB: the database.  PEER_TOKEN: the token that is accepted.
 */
#include "peer.h"

#include <fcgiapp.h>
#include <json-c/json.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_BYTES_MAX 65536

static bool
is_authorized(const char *token, const char *header)
{
	static const char scheme[] = "Bearer ";
	size_t len = strlen(token);

	return header != NULL && strncmp(header, scheme, strlen(scheme)) == 0 &&
	       strlen(header + strlen(scheme)) == len &&
	       CRYPTO_memcmp(header + strlen(scheme), token, len) == 0;
}

/* The status that refuses the request before its body is looked at, or 0. */
static int
refusal(char **envp)
{
	const char *method = FCGX_GetParam("REQUEST_METHOD", envp);
	const char *path = FCGX_GetParam("SCRIPT_NAME", envp);
	const char *type = FCGX_GetParam("CONTENT_TYPE", envp);

	if (!is_authorized(getenv("PEER_TOKEN"),
		FCGX_GetParam("HTTP_AUTHORIZATION", envp)))
		return 401;
	if (path == NULL || strcmp(path, "/plants") != 0)
		return 404;
	if (method == NULL || strcmp(method, "POST") != 0)
		return 405;
	if (type == NULL || strncmp(type, "application/json", 16) != 0)
		return 400;
	return 0;
}

/* Its texts are those of `body`. */
static bool
read_plant(struct json_object *body, struct peer_plant *plant)
{
	struct json_object *id, *name, *tag = NULL;

	if (!json_object_object_get_ex(body, "id", &id) ||
	    !json_object_is_type(id, json_type_int) ||
	    !json_object_object_get_ex(body, "name", &name) ||
	    !json_object_is_type(name, json_type_string) ||
	    (json_object_object_get_ex(body, "tag", &tag) &&
		!json_object_is_type(tag, json_type_string)))
		return false;
	plant->id = json_object_get_int64(id);
	plant->name = json_object_get_string(name);
	plant->tag = json_object_get_string(tag);
	return true;
}

/* The plant without its id. */
static void
answer_plant(FCGX_Stream *out, struct json_object *body)
{
	const char *text;

	json_object_object_del(body, "id");
	text = json_object_to_json_string_ext(
	    body, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	FCGX_FPrintF(out,
	    "Content-Type: application/json\r\n"
	    "Content-Length: %d\r\n\r\n%s",
	    (int)strlen(text), text);
}

static void
answer_error(FCGX_Stream *out, int status)
{
	FCGX_FPrintF(out,
	    "Status: %d Refused\r\nContent-Type: application/json\r\n\r\n"
	    "{\"error\":%d,\"message\":\"Refused\"}",
	    status, status);
}

static void
serve(struct peer *peer, struct json_tokener *tokener, FCGX_Request *request)
{
	char body[BODY_BYTES_MAX];
	struct json_object *parsed = NULL;
	struct peer_plant plant;
	int len = FCGX_GetStr(body, sizeof(body), request->in);
	int status = refusal(request->envp);

	if (status == 0) {
		json_tokener_reset(tokener);
		parsed = json_tokener_parse_ex(tokener, body, len);
		status = parsed != NULL && read_plant(parsed, &plant)
			     ? peer_store(peer, &plant)
			     : 400;
	}
	if (status == 200)
		answer_plant(request->out, parsed);
	else
		answer_error(request->out, status);
	json_object_put(parsed);
}

/* A thread has a connection to the database of its own. */
static void *
run(void *argument)
{
	struct peer *peer = peer_open(getenv("PEER_DB"));
	struct json_tokener *tokener = json_tokener_new();
	FCGX_Request request;

	(void)argument;
	if (peer == NULL || tokener == NULL ||
	    FCGX_InitRequest(&request, 0, 0) != 0)
		exit(EXIT_FAILURE);
	while (FCGX_Accept_r(&request) >= 0) {
		serve(peer, tokener, &request);
		FCGX_Finish_r(&request);
	}
	return NULL;
}

int
main(void)
{
	pthread_t thread;

	if (getenv("PEER_DB") == NULL || getenv("PEER_TOKEN") == NULL) {
		fprintf(stderr, "peer: PEER_DB or PEER_TOKEN is missing\n");
		return EXIT_FAILURE;
	}
	if (FCGX_Init() != 0)
		return EXIT_FAILURE;
	for (int i = 1; i < peer_threads; i++)
		if (pthread_create(&thread, NULL, run, NULL) != 0)
			return EXIT_FAILURE;
	run(NULL);
	return EXIT_SUCCESS;
}
