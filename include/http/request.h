/*
 * request: the head of a request, from CGI variables (RFC 3875, section 4.1).
 *
 * The parameters of FastCGI and the environment of CGI have the same form.  The
 * strings of a request point into the variables; only request_id copies.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "http/errors.h"
#include "http/tokens.h"

/* More than any web server sends; a request with more is refused. */
#define REQUEST_VARIABLES_MAX 1024

/* See struct request. */
#define REQUEST_CHECK "PLANT_STORE_CHECK"

/* Members that are absent from the request are NULL. */
struct request {
	const char *method;
	const char *script_name;
	const char *path_info;
	const char *authorization;
	const char *content_type;
	const char *content_length;
	const char *content_encoding;
	const char *transfer_encoding;
	/* These are "" if they occur twice. */
	const char *id, *origin, *preflight_method;
	/* Only `plant-store check` sets it: clients' headers become HTTP_*. */
	const char *check;
	bool ambiguous; /* too many variables, or a member declared before `id`
			   occurs twice (its first value is kept) */
};

/*
 * request_read(request, variables):
 * Fill `request` from a NULL-terminated list of "NAME=value".  Any thread.
 */
void request_read(struct request *request, char *const *variables);

enum request_length {
	REQUEST_LENGTH_OK,
	REQUEST_LENGTH_ABSENT,  /* unset or empty */
	REQUEST_LENGTH_CHUNKED, /* unset or empty, and the body is chunked */
	REQUEST_LENGTH_BAD      /* not only digits */
};

/* An id has the form of a token's name. */
#define REQUEST_ID_MAX TOKENS_NAME_MAX

/*
 * request_id(request, id):
 * Write the request's X-Request-Id, NUL-terminated, if it is a valid id without
 * "pst_", which begins a token; otherwise a new id of hex digits and a '-',
 * unique across processes.  Only the first call makes a system call.
 *
 * request_credential(request, credential):
 * Find the bearer token in the Authorization header (RFC 9110, section 11.4;
 * RFC 6750, section 2.1).  The scheme is case-insensitive.  Spaces and tabs
 * around the value are ignored.  Return HTTP_OK and fill `credential`; or
 *
 *	HTTP_CREDENTIAL_MISSING    no header, or nothing but spaces and tabs
 *	HTTP_CREDENTIAL_SCHEME     another scheme
 *	HTTP_CREDENTIAL_SEVERAL    a list in which Bearer occurs
 *	HTTP_CREDENTIAL_MALFORMED  Bearer, but not one or more spaces followed
 *	                           by one token68
 *
 * request_origin(request, origins):
 * Find the request's Origin in the setting `origins`.  Return a pointer into
 * `origins`, where one of CONFIG_SEPARATORS or a NUL ends it; NULL if absent.
 *
 * request_path_is(request, base_path, name):
 * Return whether the path is `base_path` followed by `name`, byte for byte.
 * The path is SCRIPT_NAME plus PATH_INFO; web servers split it differently.
 *
 * request_is_json(request), request_is_identity(request):
 * Return whether CONTENT_TYPE is application/json, in any case, with any
 * parameters.  Return whether Content-Encoding is absent or "identity".
 *
 * request_length(request, length):
 * Read CONTENT_LENGTH.  A number that is too large for size_t becomes SIZE_MAX.
 */
void request_id(
    const struct request *request, char id[static REQUEST_ID_MAX + 1]);
enum http_error request_credential(
    const struct request *request, struct credential *credential);
const char *request_origin(const struct request *request, const char *origins);
bool request_path_is(
    const struct request *request, const char *base_path, const char *name);
bool request_is_json(const struct request *request);
bool request_is_identity(const struct request *request);
enum request_length request_length(
    const struct request *request, size_t *length);
