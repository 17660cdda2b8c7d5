/*
 * url_check: see url_check.h.  Each request lacks something that a plant needs,
 * and the service must say which: so the answer shows how far the request came,
 * and the web server on the way can be told what it does wrong.
 */
#include "url_check.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/log.h"
#include "http/errors.h"
#include "probe.h"

/* A body that is whole and refused for its missing id: see plant.h. */
static const char no_plant[] = "{}";

#define URL_MAX 2048

struct target {
	char url[URL_MAX];
	const char *token;
	size_t body_bytes_max;
	int wrong;
};

/* What a status that is not the service's own says of the server before it. */
static const char *
judge_status(long status)
{
	switch (status) {
	case 400:
		return "the web server refuses the request: look whether the "
		       "URL must begin with https, and at its error log";
	case 401:
		return "the web server asks for a credential of its own: "
		       "switch its authentication off for this path";
	case 403:
		return "the web server forbids this path: allow it, and with "
		       "CGI let the program be executed";
	case 404:
		return "the web server does not pass this path to the "
		       "service: mount the service there, or correct the URL";
	case 405:
		return "the web server does not pass POST on: mount the "
		       "service at this path";
	case 411:
		return "the web server wants a Content-Length and did not get "
		       "it: look at what stands before it";
	case 413:
		return "the web server's limit of bodies is smaller than the "
		       "service's: raise it (lighttpd: "
		       "server.max-request-size, nginx: client_max_body_size, "
		       "Apache: LimitRequestBody)";
	case 500:
		return "the web server failed: its error log says why; look "
		       "whether it can start the program, and with mod_fcgid "
		       "at FcgidMaxRequestLen";
	case 502:
	case 503:
	case 504:
		return "the web server gets no answer from the service: start "
		       "it, and let the web server use its socket";
	default:
		return status >= 200 && status < 300
			   ? "something else answers at this URL: correct the "
			     "URL or where the service is mounted"
			   : "the answer is not the service's: look at the web "
			     "server's error log";
	}
}

/* What an error of the service says where another was expected. */
static const char *
judge_error(int64_t number)
{
	static const struct {
		enum http_error error;
		const char *why;
	} rows[] = {
		{ HTTP_CREDENTIAL_MISSING,
		    "the header Authorization was sent, but the web server "
		    "drops it: behind Apache add \"CGIPassAuth On\" to the "
		    "<Location> of the service" },
		{ HTTP_CREDENTIAL_SCHEME,
		    "the web server replaced the header Authorization: remove "
		    "its own authentication for this path" },
		{ HTTP_CREDENTIAL_SEVERAL,
		    "the web server adds an Authorization header of its own: "
		    "remove it" },
		{ HTTP_CREDENTIAL_UNKNOWN,
		    "the service does not know this token: give another, or "
		    "look whether it uses this token file "
		    "(PLANT_STORE_TOKENS)" },
		{ HTTP_CREDENTIAL_EXPIRED,
		    "the token has expired: make another with plant-store "
		    "token add" },
		{ HTTP_PATH_UNKNOWN,
		    "the service was asked for another path than "
		    "BASE/plants: set PLANT_STORE_BASE_PATH to the path of "
		    "the URL, or correct the URL; or the web server passes no "
		    "path on (nginx: a fastcgi_param in the location hides "
		    "those of common.conf)" },
		{ HTTP_METHOD_NOT_ALLOWED,
		    "the web server changed the method of the request: look "
		    "for a rule that rewrites it" },
		{ HTTP_CONTENT_TYPE,
		    "the web server drops the header Content-Type: pass "
		    "CONTENT_TYPE on" },
		{ HTTP_CONTENT_LENGTH,
		    "the web server passes a wrong CONTENT_LENGTH on" },
		{ HTTP_BODY_MISSING,
		    "the body did not arrive: the web server's limit of bodies "
		    "may be smaller than the service's (Apache: "
		    "LimitRequestBody), or it does not pass bodies on" },
		{ HTTP_BODY_SHORT,
		    "the body did not arrive whole: the web server's limit of "
		    "bodies may be smaller than the service's (Apache: "
		    "LimitRequestBody)" },
		{ HTTP_BODY_TOO_LARGE,
		    "the service's limit of bodies is smaller than "
		    "PLANT_STORE_BODY_BYTES_MAX is here: give both the same" },
		{ HTTP_REQUEST_AMBIGUOUS,
		    "the web server passes a variable twice or too many of "
		    "them: with nginx do not include fastcgi_params as well" },
		{ HTTP_NOT_READY,
		    "the service is not running or cannot start: its log says "
		    "why" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (errors_number(rows[i].error) == number)
			return rows[i].why;
	return "the service has trouble of its own: its log says more";
}

static void
say_wrong(struct target *target, const char *what,
    const struct probe_answer *answer, const char *why)
{
	target->wrong++;
	if (answer->error != 0)
		log_error("check: %s: status %ld, error %" PRId64 ": %s", what,
		    answer->status, answer->error, why);
	else
		log_error(
		    "check: %s: status %ld: %s", what, answer->status, why);
}

/*
 * Whether the web server made this answer: it has our Error for what it refuses
 * itself.  The service looks at the credential first, so without one it would
 * ask for it.
 */
static bool
is_server_made(
    const struct probe_request *request, const struct probe_answer *answer)
{
	static const enum http_error told_by_servers[] = { HTTP_PATH_UNKNOWN,
		HTTP_METHOD_NOT_ALLOWED, HTTP_BODY_MISSING, HTTP_BODY_TOO_LARGE,
		HTTP_BODY_BROKEN, HTTP_HEAD_TOO_LARGE };
	struct probe_request bare = *request;
	struct probe_answer again;
	size_t i = 0, n = sizeof(told_by_servers) / sizeof(told_by_servers[0]);

	if (answer->error == 0 ||
	    answer->error == errors_number(HTTP_NO_ANSWER))
		return true;
	while (i < n && errors_number(told_by_servers[i]) != answer->error)
		i++;
	bare.token = NULL;
	return i < n && probe_send(&bare, &again) == 0 &&
	       again.error == answer->error;
}

/* The web server may refuse a large body before the service does. */
static bool
is_expected(const struct probe_answer *answer, enum http_error expected)
{
	return answer->error == errors_number(expected) ||
	       (answer->error == 0 && expected == HTTP_BODY_TOO_LARGE &&
		   answer->status == errors_status(expected));
}

/*
 * Send a request and see whether the service answers it with `expected`.  0, or
 * -1, told.
 */
static int
expect(struct target *target, const char *what, const char *method,
    const char *token, const char *body, size_t len, enum http_error expected,
    struct probe_answer *answer)
{
	struct probe_request request = { .method = method,
		.url = target->url,
		.token = token,
		.body = body,
		.body_len = len };

	if (probe_send(&request, answer) < 0) {
		target->wrong++;
		log_error("check: %s: out of memory", what);
	} else if (answer->failure != NULL) {
		target->wrong++;
		log_error("check: %s: no answer: %s (%s); %s", what,
		    answer->failure, answer->detail,
		    answer->connected
			? "something listens there: is it the web server, must "
			  "the URL begin with http or https, and is the "
			  "service stuck?"
			: "is the web server running, and the URL right?");
	} else if (answer->status >= 300 && answer->status < 400) {
		target->wrong++;
		log_error("check: %s: status %ld: redirected to %s: give that "
			  "URL without its /plants, clients do not repeat a "
			  "POST",
		    what, answer->status, answer->location);
	} else if (is_expected(answer, expected)) {
		printf("%s: ok\n", what);
		return 0;
	} else
		say_wrong(target, what, answer,
		    is_server_made(&request, answer)
			? judge_status(answer->status)
			: judge_error(answer->error));
	return -1;
}

/* The headers of refusals pass through the web server. */
static void
check_headers(struct target *target)
{
	struct probe_answer answer;

	if (expect(target, "without a credential", "POST", NULL, no_plant,
		strlen(no_plant), HTTP_CREDENTIAL_MISSING, &answer) == 0 &&
	    strncmp(answer.authenticate, "Bearer", 6) != 0)
		say_wrong(target, "without a credential", &answer,
		    "the web server drops the header WWW-Authenticate from "
		    "answers");
	if (target->token != NULL &&
	    expect(target, "another method", "GET", target->token, NULL, 0,
		HTTP_METHOD_NOT_ALLOWED, &answer) == 0 &&
	    strcmp(answer.allow, "POST") != 0)
		say_wrong(target, "another method", &answer,
		    "the web server drops the header Allow from answers");
}

/* A body as large as the service takes one arrives; a larger one is refused. */
static void
check_limit(struct target *target)
{
	size_t len = target->body_bytes_max + 1;
	struct probe_answer answer;
	char *body = malloc(len);

	if (body == NULL) {
		target->wrong++;
		log_error("check: out of memory");
		return;
	}
	memset(body, ' ', len);
	body[0] = '{';
	body[1] = '}';
	if (expect(target, "a body as large as allowed", "POST", target->token,
		body, len - 1, HTTP_ID_MISSING, &answer) == 0)
		expect(target, "a body that is too large", "POST",
		    target->token, body, len, HTTP_BODY_TOO_LARGE, &answer);
	free(body);
}

int
url_check(const char *url, const char *token, size_t body_bytes_max)
{
	struct target target = { .token = token,
		.body_bytes_max = body_bytes_max };
	struct probe_answer answer;
	size_t len = strlen(url);

	while (len > 0 && url[len - 1] == '/')
		len--;
	if (snprintf(target.url, sizeof(target.url), "%.*s/plants", (int)len,
		url) >= (int)sizeof(target.url)) {
		log_error("check: the URL is longer than %d bytes", URL_MAX);
		return 1;
	}
	if (token == NULL) {
		printf("no token was given: only what needs none is tried\n");
		check_headers(&target);
	} else if (expect(&target, "a request", "POST", token, no_plant,
		       strlen(no_plant), HTTP_ID_MISSING, &answer) == 0) {
		check_headers(&target);
		check_limit(&target);
	}
	return target.wrong;
}
