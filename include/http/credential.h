/*
 * credential: the Authorization header (RFC 9110 section 11.4, RFC 6750
 * section 2.1).  Pure; total on hostile bytes; any thread.
 */
#pragma once

#include <stddef.h>

#include "http/errors.h"

struct credential {
	const char *token; /* not NUL-terminated */
	size_t len;
};

/*
 * credential_read(authorization, credential):
 * Find the bearer token in the header's value, which may be NULL.  Return
 * HTTP_OK with the token's place in the value, or why there is none:
 *
 *	HTTP_CREDENTIAL_MISSING    NULL, or nothing but spaces and tabs
 *	HTTP_CREDENTIAL_SCHEME     another scheme
 *	HTTP_CREDENTIAL_SEVERAL    a list in which Bearer occurs
 *	HTTP_CREDENTIAL_MALFORMED  Bearer, but not one or more spaces followed
 *	                           by one token68
 *
 * The scheme's name is compared in any case.  Spaces and tabs around the
 * value are not part of it.
 */
enum http_error credential_read(
    const char *authorization, struct credential *credential);
