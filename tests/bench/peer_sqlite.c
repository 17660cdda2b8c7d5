/*
 * peer_sqlite: what one would write for the same job with libfcgi, json-c and
 * SQLite, for scripts/bench to compare with: a request, a transaction, a sync.
 * Several of it run under multiwatch; SQLite has them wait for each other.
 *
 * PEER_DB: the database.  PEER_TOKEN: the token that is accepted.
 */
#include <fcgiapp.h>
#include <json-c/json.h>
#include <openssl/crypto.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_BYTES_MAX 65536
#define BUSY_MS 10000

/* FULL: a transaction is on the disk when it has ended, with WAL too. */
static const char set_up[] =
    "PRAGMA journal_mode=WAL;"
    "PRAGMA synchronous=FULL;"
    "CREATE TABLE IF NOT EXISTS plants("
    "id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT);";

struct peer {
	const char *token;
	sqlite3 *db;
	sqlite3_stmt *insert, *same;
};

struct plant {
	int64_t id;
	struct json_object *name, *tag;
};

static const char *
reason_of(int status)
{
	switch (status) {
	case 401:
		return "Unauthorized";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 409:
		return "Conflict";
	case 400:
		return "Bad Request";
	default:
		return "Service Unavailable";
	}
}

static int
open_db(struct peer *peer, const char *path)
{
	return sqlite3_open(path, &peer->db) == SQLITE_OK &&
		       sqlite3_busy_timeout(peer->db, BUSY_MS) == SQLITE_OK &&
		       sqlite3_exec(peer->db, set_up, NULL, NULL, NULL) ==
			   SQLITE_OK &&
		       sqlite3_prepare_v3(peer->db,
			   "INSERT INTO plants VALUES(?1, ?2, ?3) "
			   "ON CONFLICT(id) DO NOTHING",
			   -1, SQLITE_PREPARE_PERSISTENT, &peer->insert,
			   NULL) == SQLITE_OK &&
		       sqlite3_prepare_v3(peer->db,
			   "SELECT 1 FROM plants "
			   "WHERE id = ?1 AND name = ?2 AND tag IS ?3",
			   -1, SQLITE_PREPARE_PERSISTENT, &peer->same,
			   NULL) == SQLITE_OK
		   ? 0
		   : -1;
}

static bool
is_authorized(const struct peer *peer, const char *header)
{
	static const char scheme[] = "Bearer ";
	size_t len = strlen(peer->token);

	return header != NULL && strncmp(header, scheme, strlen(scheme)) == 0 &&
	       strlen(header + strlen(scheme)) == len &&
	       CRYPTO_memcmp(header + strlen(scheme), peer->token, len) == 0;
}

/* The status that refuses the request before its body is looked at, or 0. */
static int
refusal(const struct peer *peer, char **envp)
{
	const char *method = FCGX_GetParam("REQUEST_METHOD", envp);
	const char *path = FCGX_GetParam("SCRIPT_NAME", envp);
	const char *type = FCGX_GetParam("CONTENT_TYPE", envp);

	if (!is_authorized(peer, FCGX_GetParam("HTTP_AUTHORIZATION", envp)))
		return 401;
	if (path == NULL || strcmp(path, "/plants") != 0)
		return 404;
	if (method == NULL || strcmp(method, "POST") != 0)
		return 405;
	if (type == NULL || strncmp(type, "application/json", 16) != 0)
		return 400;
	return 0;
}

static bool
read_plant(struct json_object *body, struct plant *plant)
{
	struct json_object *id;

	if (!json_object_object_get_ex(body, "id", &id) ||
	    !json_object_is_type(id, json_type_int) ||
	    !json_object_object_get_ex(body, "name", &plant->name) ||
	    !json_object_is_type(plant->name, json_type_string))
		return false;
	plant->id = json_object_get_int64(id);
	plant->tag = NULL;
	return !json_object_object_get_ex(body, "tag", &plant->tag) ||
	       json_object_is_type(plant->tag, json_type_string);
}

/* Bind, take one step, and make it ready for the next. */
static int
step(sqlite3_stmt *statement, const struct plant *plant)
{
	int result;

	sqlite3_bind_int64(statement, 1, plant->id);
	sqlite3_bind_text(statement, 2, json_object_get_string(plant->name),
	    json_object_get_string_len(plant->name), SQLITE_STATIC);
	if (plant->tag != NULL)
		sqlite3_bind_text(statement, 3,
		    json_object_get_string(plant->tag),
		    json_object_get_string_len(plant->tag), SQLITE_STATIC);
	result = sqlite3_step(statement);
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return result;
}

static int
store_plant(const struct peer *peer, const struct plant *plant)
{
	if (step(peer->insert, plant) != SQLITE_DONE)
		return 503;
	if (sqlite3_changes(peer->db) == 1)
		return 200;
	switch (step(peer->same, plant)) {
	case SQLITE_ROW:
		return 200;
	case SQLITE_DONE:
		return 409;
	default:
		return 503;
	}
}

static void
answer_plant(FCGX_Stream *out, const struct plant *plant)
{
	struct json_object *body = json_object_new_object();
	const char *text;

	json_object_object_add(body, "name", json_object_get(plant->name));
	if (plant->tag != NULL)
		json_object_object_add(
		    body, "tag", json_object_get(plant->tag));
	text = json_object_to_json_string_ext(
	    body, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	FCGX_FPrintF(out,
	    "Content-Type: application/json\r\n"
	    "Content-Length: %d\r\n\r\n%s",
	    (int)strlen(text), text);
	json_object_put(body);
}

static void
answer_error(FCGX_Stream *out, int status)
{
	FCGX_FPrintF(out,
	    "Status: %d %s\r\nContent-Type: application/json\r\n\r\n"
	    "{\"error\":%d,\"message\":\"%s\"}",
	    status, reason_of(status), status, reason_of(status));
}

static void
serve(const struct peer *peer, struct json_tokener *tokener,
    FCGX_Request *request)
{
	static char body[BODY_BYTES_MAX];
	struct json_object *parsed = NULL;
	struct plant plant;
	int len = FCGX_GetStr(body, sizeof(body), request->in);
	int status = refusal(peer, request->envp);

	if (status == 0) {
		json_tokener_reset(tokener);
		parsed = json_tokener_parse_ex(tokener, body, len);
		status = parsed != NULL && read_plant(parsed, &plant)
			     ? store_plant(peer, &plant)
			     : 400;
	}
	if (status == 200)
		answer_plant(request->out, &plant);
	else
		answer_error(request->out, status);
	json_object_put(parsed);
}

int
main(void)
{
	const char *path = getenv("PEER_DB");
	struct peer peer = { .token = getenv("PEER_TOKEN") };
	struct json_tokener *tokener = json_tokener_new();
	FCGX_Request request;

	if (path == NULL || peer.token == NULL || tokener == NULL) {
		fprintf(stderr, "peer_sqlite: PEER_DB or PEER_TOKEN missing\n");
		return EXIT_FAILURE;
	}
	if (open_db(&peer, path) < 0) {
		fprintf(stderr, "peer_sqlite: %s\n", sqlite3_errmsg(peer.db));
		return EXIT_FAILURE;
	}
	if (FCGX_Init() != 0 || FCGX_InitRequest(&request, 0, 0) != 0)
		return EXIT_FAILURE;
	while (FCGX_Accept_r(&request) >= 0) {
		serve(&peer, tokener, &request);
		FCGX_Finish_r(&request);
	}
	return EXIT_SUCCESS;
}
