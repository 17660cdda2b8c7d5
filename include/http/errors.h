/*
 * errors: the table of all answers other than 200.
 *
 * Each row: name, number, HTTP status, message.  The families: 1000 credential,
 * 2000 route, 3000 framing, 4000 plant, 5000 store and service.  The number is
 * the body's `error`.  A released number never changes its meaning, and is
 * never reused after its removal, such as 5005.  openapi.json publishes the
 * names for generated clients, so a released name stays.
 *
 * Only web servers send CREDENTIAL_CERTIFICATE, HEAD_TOO_LARGE,
 * PROTOCOL_UNKNOWN, NO_ANSWER, TOO_MANY_AT_ONCE and TOO_MANY_FOR_TOKEN, from
 * their configurations in deploy/.  scripts/errors lists what else they send,
 * and copies the table to the documents and to deploy/.  Nothing else in the
 * program knows an error's number, message or status.
 */
#pragma once

/* clang-format off */
#define HTTP_ERRORS(X) \
X(CREDENTIAL_MISSING, 1001, 401, "No credential: send the header " \
	"\"Authorization: Bearer TOKEN\".") \
X(CREDENTIAL_SCHEME, 1002, 401, "The credential is not of the scheme " \
	"Bearer: send the header \"Authorization: Bearer TOKEN\".") \
X(CREDENTIAL_MALFORMED, 1003, 401, "The credential is malformed: send " \
	"\"Bearer\", one space and the token as it was issued.") \
X(CREDENTIAL_SEVERAL, 1004, 401, "More than one credential: send exactly " \
	"one Authorization header.") \
X(CREDENTIAL_UNKNOWN, 1005, 401, "The token is unknown or revoked: ask the " \
	"operator for a new one.") \
X(CREDENTIAL_EXPIRED, 1006, 401, "The token has expired: ask the operator " \
	"for a new one.") \
X(CREDENTIAL_CERTIFICATE, 1007, 401, "No valid client certificate: connect " \
	"with the one that the operator has issued.") \
X(PATH_UNKNOWN, 2001, 404, "There is nothing at this path: plants are " \
	"created with POST at /plants below the base URL, without a slash at " \
	"the end.") \
X(METHOD_NOT_ALLOWED, 2002, 405, "The method is not allowed here: create a " \
	"plant with POST.") \
X(CONTENT_TYPE, 3001, 400, "The body is not declared as JSON: send the " \
	"header \"Content-Type: application/json\".") \
X(CONTENT_ENCODING, 3002, 400, "The body is encoded: send it without a " \
	"Content-Encoding.") \
X(CONTENT_LENGTH, 3003, 400, "The Content-Length is not a decimal number of " \
	"bytes: send the body's exact length.") \
X(BODY_SHORT, 3004, 400, "The body ended before its Content-Length: send " \
	"the whole body; nothing was stored.") \
X(BODY_LONG, 3005, 400, "The body is longer than its Content-Length: send " \
	"the body's exact length; nothing was stored.") \
X(BODY_MISSING, 3006, 400, "There is no body: send the plant as a JSON " \
	"object.") \
X(BODY_TOO_LARGE, 3007, 413, "The body is larger than this service takes: " \
	"send a smaller plant.") \
X(BODY_BROKEN, 3008, 400, "The request was cut off or cannot be read: " \
	"check its length and its headers; nothing was stored.") \
X(REQUEST_AMBIGUOUS, 3009, 400, "The web server passed a header twice or " \
	"too many of them: send each header once.") \
X(HEAD_TOO_LARGE, 3010, 400, "The request line or a header is too long: send " \
	"a shorter one.") \
X(PROTOCOL_UNKNOWN, 3011, 400, "The method, the transfer coding or the " \
	"version of HTTP is unknown here: send POST with HTTP/1.1 and a " \
	"Content-Length.") \
X(JSON_SYNTAX, 4001, 400, "The body is not valid JSON") \
X(JSON_UTF8, 4002, 400, "The body is not valid UTF-8") \
X(JSON_DEPTH, 4003, 400, "The body is nested too deeply") \
X(JSON_NOT_OBJECT, 4004, 400, "The body is not a JSON object") \
X(ID_MISSING, 4101, 400, "The member \"id\" is missing: send an integer.") \
X(ID_TWICE, 4102, 400, "The member \"id\" occurs twice: send it once.") \
X(ID_NOT_INTEGER, 4103, 400, "The member \"id\" is not an integer: send " \
	"digits without quotes, fraction or exponent.") \
X(ID_RANGE, 4104, 400, "The member \"id\" is outside int64: send " \
	"-9223372036854775808 to 9223372036854775807.") \
X(NAME_MISSING, 4201, 400, "The member \"name\" is missing: send a string.") \
X(NAME_TWICE, 4202, 400, "The member \"name\" occurs twice: send it once.") \
X(NAME_NOT_STRING, 4203, 400, "The member \"name\" is not a string: send a " \
	"string.") \
X(TAG_TWICE, 4301, 400, "The member \"tag\" occurs twice: send it once.") \
X(TAG_NOT_STRING, 4302, 400, "The member \"tag\" is not a string: send a " \
	"string or leave it out.") \
X(CONFLICT, 5001, 409, "Another plant with this id is stored already: send " \
	"another id.") \
X(STORE_FULL, 5002, 503, "The store is full: this request stored nothing; " \
	"try again later.") \
X(STORE_FAILED, 5003, 503, "The store has failed: it is not known whether " \
	"the plant was stored; try again later, which is safe.") \
X(STORE_BUSY, 5004, 503, "The store is busy: this request stored nothing, " \
	"but an earlier one may have stored the plant; try again, which is " \
	"safe.") \
X(NOT_READY, 5006, 503, "The service cannot store plants: its log has the " \
	"reason; tell its operator, and try again later.") \
X(NO_ANSWER, 5007, 503, "The service does not answer: it is not known " \
	"whether the plant was stored; try again later, which is safe.") \
X(STORE_AWAY, 5008, 503, "The database is not available: this request " \
	"stored nothing; try again later.") \
X(STORE_UNKNOWN, 5009, 503, "The database did not confirm: it is not known " \
	"whether the plant was stored; try again, which is safe.") \
X(TOO_MANY_AT_ONCE, 5010, 503, "Too many requests at a time from this " \
	"address: nothing was stored; try again later.") \
X(TOO_MANY_FOR_TOKEN, 5011, 429, "Too many requests per second with this " \
	"token: nothing was stored; try again later.") \
X(OUT_OF_MEMORY, 5101, 500, "The service is out of memory: try again later, " \
	"which is safe.") \
X(INTERNAL, 5102, 500, "The service has a defect: report it to its " \
	"operator; trying again is safe.")
/* clang-format on */

enum http_error {
	HTTP_OK,
#define X(name, number, status, message) HTTP_##name,
	HTTP_ERRORS(X)
#undef X
	    HTTP_ERROR_COUNT,
	HTTP_PREFLIGHT = HTTP_ERROR_COUNT /* no error */
};

/* HTTP_OK has the status 200, HTTP_PREFLIGHT 204; both have the number 0. */
extern const struct errors_row {
	int number, status;
	const char *message;
} http_errors[HTTP_ERROR_COUNT + 1];
