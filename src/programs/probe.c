/* probe: see probe.h. */
#include "probe.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "pure/json_scan.h"

/* More than any Error body; the rest of a foreign page is passed over. */
#define BODY_MAX 4096

struct body {
	char text[BODY_MAX];
	size_t len;
};

static size_t
keep_body(char *data, size_t size, size_t n, void *context)
{
	struct body *body = context;
	size_t len = size * n, room = sizeof(body->text) - body->len;

	memcpy(body->text + body->len, data, len < room ? len : room);
	body->len += len < room ? len : room;
	return len;
}

/* The number, if the body is an object with `error` and `message`. */
static int64_t
read_error(const struct body *body)
{
	struct json_member members[] = { { .name = "error" },
		{ .name = "message" } };
	struct json_error error;
	int64_t number;

	if (json_scan_object(body->text, body->len, members, 2, &error) < 0 ||
	    members[0].type != JSON_NUMBER || members[1].type != JSON_STRING ||
	    json_int64(body->text + members[0].at, members[0].len, &number) !=
		JSON_INT_OK)
		return 0;
	return number;
}

static void
keep_header(CURL *curl, const char *name, char *value, size_t size)
{
	struct curl_header *header;

	if (curl_easy_header(curl, name, 0, CURLH_HEADER, -1, &header) ==
	    CURLHE_OK)
		snprintf(value, size, "%s", header->value);
}

static void
keep_answer(CURL *curl, const struct body *body, struct probe_answer *answer)
{
	char *location = NULL;

	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer->status);
	keep_header(curl, "Content-Type", answer->type, sizeof(answer->type));
	keep_header(curl, "Allow", answer->allow, sizeof(answer->allow));
	keep_header(curl, "WWW-Authenticate", answer->authenticate,
	    sizeof(answer->authenticate));
	curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &location);
	if (location != NULL)
		snprintf(
		    answer->location, sizeof(answer->location), "%s", location);
	answer->error = read_error(body);
}

static struct curl_slist *
add_header(struct curl_slist *list, const char *line, bool *failed)
{
	struct curl_slist *longer = curl_slist_append(list, line);

	*failed = *failed || longer == NULL;
	return longer != NULL ? longer : list;
}

static struct curl_slist *
make_headers(const struct probe_request *request)
{
	struct curl_slist *list = NULL;
	char line[8192];
	bool failed = false;

	/* Without the pause for "100 Continue" that libcurl makes. */
	list = add_header(list, "Expect:", &failed);
	if (request->body != NULL)
		list =
		    add_header(list, "Content-Type: application/json", &failed);
	if (request->token != NULL) {
		snprintf(line, sizeof(line), "Authorization: Bearer %s",
		    request->token);
		list = add_header(list, line, &failed);
	}
	if (failed) {
		curl_slist_free_all(list);
		return NULL;
	}
	return list;
}

static void
set_options(CURL *curl, const struct probe_request *request,
    struct curl_slist *headers, struct body *body, char *detail)
{
	curl_easy_setopt(curl, CURLOPT_URL, request->url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, PROBE_TIMEOUT_S);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(
	    curl, CURLOPT_USERAGENT, "plant-store/" PLANT_STORE_VERSION);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
	if (request->body != NULL) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
		    (curl_off_t)request->body_len);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
	}
}

int
probe_send(const struct probe_request *request, struct probe_answer *answer)
{
	char detail[CURL_ERROR_SIZE] = "";
	struct body body = { .len = 0 };
	struct curl_slist *headers = make_headers(request);
	CURL *curl = curl_easy_init();
	int result = -1;

	memset(answer, 0, sizeof(*answer));
	if (headers != NULL && curl != NULL) {
		set_options(curl, request, headers, &body, detail);
		CURLcode code = curl_easy_perform(curl);

		/* An answer may come before all of the body was taken. */
		curl_easy_getinfo(
		    curl, CURLINFO_RESPONSE_CODE, &answer->status);
		if (code == CURLE_OK || answer->status != 0)
			keep_answer(curl, &body, answer);
		else {
			curl_off_t connect_us = 0;

			curl_easy_getinfo(
			    curl, CURLINFO_CONNECT_TIME_T, &connect_us);
			/* The time counts from the end of TLS's handshake. */
			answer->connected =
			    connect_us > 0 || code == CURLE_SSL_CONNECT_ERROR ||
			    code == CURLE_PEER_FAILED_VERIFICATION;
			answer->failure = curl_easy_strerror(code);
			snprintf(answer->detail, sizeof(answer->detail), "%s",
			    detail);
		}
		result = code == CURLE_OUT_OF_MEMORY ? -1 : 0;
	}
	curl_easy_cleanup(curl);
	curl_slist_free_all(headers);
	return result;
}
