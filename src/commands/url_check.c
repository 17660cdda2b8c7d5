/*
 * url_check: see url_check.h.  Each request lacks something that a plant needs,
 * and the service must report what is missing: the answer shows how far the
 * request came, and what the web server does wrong.  The only module that knows
 * libcurl.
 */
#include "url_check.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ground/config.h"
#include "ground/log.h"
#include "http/errors.h"

/* The shortest JSON object: the service refuses it for its missing id. */
#define NO_PLANT "{}"

struct target {
	char url[2048];
	bool loopback;
	const char *token; /* or NULL */
	const char *body;  /* NO_PLANT, then blanks; body_len is sent */
	bool answers;      /* the service answers at its socket */
};

struct request {
	const char *what; /* its name in messages */
	size_t body_len;  /* 0: a GET */
	enum http_error expected;
	/* A header that the answer needs, how its value begins; or NULL. */
	const char *header, *begins;
};

struct answer {
	CURL *curl;    /* has the headers; the caller frees it; may be NULL */
	long status;   /* 0: no answer came */
	int error;     /* the number in an Error body, else 0 */
	CURLcode code; /* why no answer came, and libcurl's words for it */
	char detail[CURL_ERROR_SIZE];
};

/* Wait at most 15 s for the answer.  Redirects are not followed. */
static void
send_request(const struct target *target, const struct request *request,
    const char *token, struct answer *answer)
{
	/* An empty "Expect:" keeps libcurl from waiting for "100 Continue". */
	char expect[] = "Expect:", type[] = "Content-Type: application/json";
	struct curl_slist content = { type, NULL };
	struct curl_slist headers = { expect, &content };
	CURL *curl = curl_easy_init();
	/* More than any Error body; a longer body ends the transfer. */
	char text[4096] = "", quote[2];
	FILE *body = fmemopen(text, sizeof(text) - 1, "w");

	*answer = (struct answer){ .curl = curl, .code = CURLE_OUT_OF_MEMORY };
	if (curl == NULL || body == NULL)
		return;
	if (token != NULL) {
		curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
		curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, token);
	}
	curl_easy_setopt(curl, CURLOPT_URL, target->url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	/* A proxy from the environment would see the token. */
	if (target->loopback)
		curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, &headers);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, 15L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(
	    curl, CURLOPT_USERAGENT, "plant-store/" PLANT_STORE_VERSION);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, answer->detail);
	if (request->body_len > 0) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
		    (curl_off_t)request->body_len);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, target->body);
	}
	/* The server may answer, and close, before it has read the body. */
	answer->code = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer->status);
	fclose(body);
	if (sscanf(text, " { \"error\" : %4d , \"message\" : %1[\"]",
		&answer->error, quote) != 2)
		answer->error = 0;
}

#define BODY_LOST                                                           \
	"the body did not arrive whole: the web server's limit of bodies "  \
	"may be smaller than the service's (Apache: LimitRequestBody), or " \
	"it does not pass bodies on"

/* Each is for a status of the web server or for an error of the service. */
static const struct hint {
	long status;
	enum http_error error; /* HTTP_OK: compare `status` */
	const char *why;
} hints[] = {
	{ 400, HTTP_OK,
	    "the web server refuses the request: must the URL begin with "
	    "https? Its error log has more" },
	{ 401, HTTP_OK,
	    "the web server asks for a credential of its own: switch its "
	    "authentication off for this path" },
	{ 403, HTTP_OK,
	    "the web server forbids this path: allow it, and with CGI let the "
	    "program be executed" },
	{ 404, HTTP_OK,
	    "the web server does not pass this path to the service: mount the "
	    "service there, or correct the URL" },
	{ 405, HTTP_OK,
	    "the web server does not pass POST on: mount the service here" },
	{ 411, HTTP_OK,
	    "the web server wants a Content-Length and did not get it: check "
	    "what stands before it" },
	{ 413, HTTP_OK,
	    "the web server's limit of bodies is smaller than the service's: "
	    "raise it (lighttpd: server.max-request-size, nginx: "
	    "client_max_body_size, Apache: LimitRequestBody)" },
	{ 500, HTTP_OK,
	    "the web server failed: its error log has the reason; check that "
	    "it can start the program" },
	{ 0, HTTP_CREDENTIAL_MISSING,
	    "the web server drops the header Authorization: behind Apache add "
	    "\"CGIPassAuth On\" to the <Location> of the service" },
	{ 0, HTTP_CREDENTIAL_SCHEME,
	    "the web server replaced the header Authorization: remove its own "
	    "authentication for this path" },
	{ 0, HTTP_CREDENTIAL_SEVERAL,
	    "the web server adds an Authorization header: remove it" },
	{ 0, HTTP_CREDENTIAL_UNKNOWN,
	    "the service does not know this token: give another, or check "
	    "whether it uses this token file (PLANT_STORE_TOKENS)" },
	{ 0, HTTP_CREDENTIAL_EXPIRED,
	    "the token has expired: make another with plant-store token add" },
	{ 0, HTTP_PATH_UNKNOWN,
	    "the service was asked for another path than BASE/plants: set "
	    "PLANT_STORE_BASE_PATH to the path of the URL, or correct the URL; "
	    "or the web server passes no path on (nginx: a fastcgi_param in "
	    "the location hides those of common.conf)" },
	{ 0, HTTP_METHOD_NOT_ALLOWED,
	    "the web server changed the method: find its rewrite rule" },
	{ 0, HTTP_CONTENT_TYPE,
	    "the web server drops Content-Type: pass CONTENT_TYPE on" },
	{ 0, HTTP_CONTENT_LENGTH,
	    "the web server passes a wrong CONTENT_LENGTH on" },
	{ 0, HTTP_BODY_MISSING, BODY_LOST },
	{ 0, HTTP_BODY_SHORT, BODY_LOST },
	{ 0, HTTP_BODY_TOO_LARGE,
	    "the service's limit of bodies is smaller than "
	    "PLANT_STORE_BODY_BYTES_MAX is here: give both the same" },
	{ 0, HTTP_REQUEST_AMBIGUOUS,
	    "the web server passes a variable twice or too many of them: with "
	    "nginx do not include fastcgi_params as well" },
	{ 0, HTTP_NOT_READY,
	    "the service is not running or cannot start: its log says why" },
};

/*
 * Whether the web server made this answer, perhaps with our Error body.  To
 * find out, repeat the request without a credential: the service checks that
 * first, and would report it missing.
 */
static bool
is_server_made(const struct target *target, const struct request *request,
    const struct answer *answer)
{
	static const enum http_error of_servers[] = { HTTP_PATH_UNKNOWN,
		HTTP_METHOD_NOT_ALLOWED, HTTP_BODY_MISSING, HTTP_BODY_TOO_LARGE,
		HTTP_BODY_BROKEN, HTTP_HEAD_TOO_LARGE };
	struct answer again = { .error = 0 };

	for (size_t i = 0; i < sizeof(of_servers) / sizeof(of_servers[0]); i++)
		if (errors_number(of_servers[i]) == answer->error)
			send_request(target, request, NULL, &again);
	curl_easy_cleanup(again.curl);
	return answer->error == again.error ||
	       answer->error == errors_number(HTTP_NO_ANSWER);
}

static const char *
judge(const struct target *target, const struct request *request,
    const struct answer *answer)
{
	if ((answer->status == 404 ||
		answer->error == errors_number(HTTP_PATH_UNKNOWN)) &&
	    fnmatch("*/plants/plants", target->url, 0) == 0)
		return "leave /plants off the URL: it is the base URL";
	int error = is_server_made(target, request, answer) ? 0 : answer->error;
	if (error == 0 && answer->status >= 502 && answer->status <= 504)
		return target->answers
			   ? "the service answers at its socket, and the web "
			     "server does not reach it: name that socket in "
			     "the web server's file, and run: systemctl "
			     "restart nginx (or lighttpd, apache2)"
			   : "the web server gets no answer from the service: "
			     "start it, and let the web server use its socket; "
			     "plant-store check there has more";
	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
		if (errors_number(hints[i].error) == error &&
		    (error != 0 || hints[i].status == answer->status))
			return hints[i].why;
	if (error != 0)
		return "the service has trouble of its own: its log says more";
	return answer->status >= 200 && answer->status < 300
		   ? "something else answers at this URL: correct the URL or "
		     "where the service is mounted"
		   : "the answer is not the service's: check the web server's "
		     "error log";
}

static const char *
judge_failure(const struct answer *answer)
{
	curl_off_t connect_us = 0;

	if (answer->code == CURLE_PEER_FAILED_VERIFICATION)
		return "the certificate is not trusted here: install its CA "
		       "(update-ca-certificates), or correct the host's name";
	/* libcurl sets the time only after the TLS handshake. */
	curl_easy_getinfo(answer->curl, CURLINFO_CONNECT_TIME_T, &connect_us);
	return connect_us > 0 || answer->code == CURLE_SSL_CONNECT_ERROR
		   ? "something listens there: is it the web server, must the "
		     "URL begin with http or https, and is the service stuck?"
		   : "is the web server running, and the URL right?";
}

/* Check that the service answers the request as expected; if not, log why. */
static bool
expect(const struct target *target, const struct request *request)
{
	struct answer answer;
	struct curl_header *header;
	char *location = NULL, why[512] = "", number[32] = "";

	send_request(target, request,
	    request->expected == HTTP_CREDENTIAL_MISSING ? NULL : target->token,
	    &answer);
	curl_easy_getinfo(answer.curl, CURLINFO_REDIRECT_URL, &location);
	if (answer.error != 0)
		snprintf(number, sizeof(number), ", error %d", answer.error);
	if (answer.status == 0)
		log_error("check: %s: no answer: %s (%s); %s", request->what,
		    curl_easy_strerror(answer.code), answer.detail,
		    judge_failure(&answer));
	else if (answer.status >= 300 && answer.status < 400)
		snprintf(why, sizeof(why),
		    "redirected to %.255s: give that URL without its /plants, "
		    "clients do not repeat a POST",
		    location != NULL ? location : "");
	else if (answer.error != errors_number(request->expected) &&
		 /* The web server may refuse the large body itself. */
		 (answer.error != 0 ||
		     request->expected != HTTP_BODY_TOO_LARGE ||
		     answer.status != errors_status(request->expected)))
		snprintf(
		    why, sizeof(why), "%s", judge(target, request, &answer));
	else if (request->header != NULL &&
		 (curl_easy_header(answer.curl, request->header, 0,
		      CURLH_HEADER, -1, &header) != CURLHE_OK ||
		     strncmp(header->value, request->begins,
			 strlen(request->begins)) != 0))
		snprintf(why, sizeof(why),
		    "the web server drops the header %s from answers",
		    request->header);
	else
		printf("%s: ok\n", request->what);
	if (why[0] != '\0')
		log_error("check: %s: status %ld%s: %s", request->what,
		    answer.status, number, why);
	curl_easy_cleanup(answer.curl);
	return answer.status != 0 && why[0] == '\0';
}

/* Find out whether the URL is on loopback; warn of a token in clear. */
static void
check_way(struct target *target)
{
	CURLU *url = curl_url();
	char *scheme = NULL, *host = NULL;

	/* libcurl guesses http where the URL has no scheme. */
	if (curl_url_set(url, CURLUPART_URL, target->url, CURLU_GUESS_SCHEME) ==
		CURLUE_OK &&
	    curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
	    curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
		target->loopback = strcasecmp(host, "localhost") == 0 ||
				   strcmp(host, "[::1]") == 0 ||
				   inet_network(host) >> 24 == 127;
		if (strcmp(scheme, "http") == 0 && !target->loopback &&
		    target->token != NULL)
			log_warning("check: the token is sent to %s in clear, "
				    "and revealed to all on the way: use https",
			    host);
	}
	curl_free(scheme);
	curl_free(host);
	curl_url_cleanup(url);
}

int
url_check(
    const char *url, const char *token, size_t body_bytes_max, bool answers)
{
	const struct request requests[] = {
		{ "a request", strlen(NO_PLANT), HTTP_ID_MISSING, NULL, NULL },
		{ "without a credential", strlen(NO_PLANT),
		    HTTP_CREDENTIAL_MISSING, "WWW-Authenticate", "Bearer" },
		{ "another method", 0, HTTP_METHOD_NOT_ALLOWED, "Allow",
		    "POST" },
		{ "a body as large as allowed", body_bytes_max, HTTP_ID_MISSING,
		    NULL, NULL },
		{ "a body that is too large", body_bytes_max + 1,
		    HTTP_BODY_TOO_LARGE, NULL, NULL },
	};
	struct target target = { .token = token, .answers = answers };
	/* The last two requests test the body size limit. */
	size_t n = sizeof(requests) / sizeof(requests[0]) -
		   (body_bytes_max == 0 ? 2 : 0);
	static char body[CONFIG_BODY_BYTES_MAX + sizeof(NO_PLANT)];
	size_t len = strlen(url);
	int wrong = 0;

	while (len > 0 && url[len - 1] == '/')
		len--;
	if (len + sizeof("/plants") > sizeof(target.url)) {
		log_error("check: the URL is longer than 2048 bytes");
		return 1;
	}
	snprintf(target.url, sizeof(target.url), "%.*s/plants", (int)len, url);
	memset(body, ' ', sizeof(body));
	target.body = memcpy(body, NO_PLANT, strlen(NO_PLANT));
	check_way(&target);
	if (token == NULL)
		printf("no token was given: only what needs none is tried\n");
	for (size_t i = 0; i < n; i++) {
		if ((token == NULL &&
			requests[i].expected != HTTP_CREDENTIAL_MISSING) ||
		    expect(&target, &requests[i]))
			continue;
		wrong++;
		/* The next ones would fail for the same reason. */
		if (requests[i].expected == HTTP_ID_MISSING)
			break;
	}
	return wrong;
}
