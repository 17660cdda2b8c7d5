/* cgi: one request, then the process ends.  See gateway/cgi.h. */
#include "gateway/cgi.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "api/api.h"
#include "ground/log.h"

/* A client that sends more than this to be refused need not hear why. */
#define DRAIN_BYTES_MAX CONFIG_BODY_BYTES_MAX

extern char **environ;

/*
 * Whether to try again, after an error.  A server may hand over descriptors that
 * do not block: whoever has the other end then is waited for.
 */
static bool
may_go_on(int fd, short event)
{
	struct pollfd ready = { .fd = fd, .events = event };

	if (errno == EAGAIN)
		return poll(&ready, 1, -1) >= 0 || errno == EINTR;
	return errno == EINTR;
}

/* Read up to `len` bytes; `*whole`: stopped neither by the end nor an error. */
static size_t
read_up_to(char *buf, size_t len, bool *whole)
{
	size_t have = 0;
	ssize_t n = 1;

	while (have < len && n > 0) {
		n = read(STDIN_FILENO, buf + have, len - have);
		if (n > 0)
			have += (size_t)n;
		else if (n < 0 && may_go_on(STDIN_FILENO, POLLIN))
			n = 1;
	}
	*whole = n >= 0;
	return have;
}

/*
 * The body.  RFC 3875, section 4.2: the server need not close its end, so
 * exactly the declared length is read; only a chunked body without a length is
 * read to its end; with neither there is none.
 */
static size_t
read_body(const struct api_call *call, size_t max, char *buf, bool *whole)
{
	*whole = true;
	if (call->length_known)
		return read_up_to(
		    buf, call->body_len < max ? call->body_len : max, whole);
	return call->chunked ? read_up_to(buf, max, whole) : 0;
}

/*
 * Read away what a refused request still sends.  Stdin and stdout may be one
 * socket (Apache's mod_cgid): ending with something unread in it resets it, and
 * the answer is lost.
 */
static void
drain(void)
{
	struct request request;
	char away[4096];
	size_t left = 0, n;
	bool whole;

	request_read(&request, environ);
	if (request_is_chunked(&request))
		left = DRAIN_BYTES_MAX;
	else if (request_length(&request, &left) != REQUEST_LENGTH_OK)
		return;
	if (left > DRAIN_BYTES_MAX)
		left = DRAIN_BYTES_MAX;
	do {
		n = left < sizeof(away) ? left : sizeof(away);
		n = read_up_to(away, n, &whole);
		left -= n;
	} while (n > 0);
}

static void
send_answer(const char *answer, size_t len)
{
	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, answer, len);

		if (n < 0 && may_go_on(STDOUT_FILENO, POLLOUT))
			continue;
		if (n <= 0)
			break; /* The server has gone; the plant has not. */
		answer += n;
		len -= (size_t)n;
	}
	/* The server need not wait for what this process does after it. */
	close(STDOUT_FILENO);
}

static void
send_failure(enum http_error error)
{
	char answer[RESPONSE_HEAD_MAX];
	const char *status = getenv("PLANT_STORE_STATUS");
	const char *method = getenv("REQUEST_METHOD");
	struct response_error failure = { .error = error };

	size_t len = response_error(&failure,
	    status != NULL && strcmp(status, "contract") == 0,
	    method != NULL && strcmp(method, "HEAD") == 0, answer);
	send_answer(answer, len);
}

void
cgi_refuse(void)
{
	drain();
	send_failure(HTTP_NOT_READY);
}

/*
 * Store the plant: the store is opened only for a request that has one.  The
 * store is left open for the caller to close after the answer.
 */
static int
store_plant(
    const struct config *config, struct api_call *call, struct store **store)
{
	struct store_options options = { .dir = config->dir };
	struct store_item item = { .plant = &call->plant, .by = call->by };
	int status;

	*store = store_open(&options, &status);
	if (*store == NULL) {
		api_fail(call, HTTP_NOT_READY);
		return status;
	}
	if (store_commit(*store, &item, 1) < 0)
		status = EX_IOERR;
	api_stored(call, item.result);
	return status;
}

int
cgi_serve(const struct config *config)
{
	struct api api = { .config = config };
	struct api_call call;
	struct store *store = NULL;
	char error[512];
	int status = EX_OK;
	bool whole;

	api.tokens = tokens_open(config->tokens, &status, error, sizeof(error));
	if (api.tokens == NULL) {
		log_error("PLANT_STORE_TOKENS: %s", error);
		cgi_refuse();
		return status;
	}
	/* One byte more than allowed shows that there is more. */
	size_t max = config->body_bytes_max + 1;
	char *body = malloc(max);
	api_tick(&api);
	int refused = api_head(&api, &call, environ);
	if (body == NULL || refused != 0) {
		drain();
		if (refused == 0)
			api_fail(&call, HTTP_OUT_OF_MEMORY);
	} else {
		size_t len = read_body(&call, max, body, &whole);

		if (api_body(&api, &call, body, len, whole) == 0)
			status = store_plant(config, &call, &store);
		else if (call.chunked)
			drain();
	}
	size_t len;
	char *answer = api_answer(&api, &call, &len);
	if (answer != NULL)
		send_answer(answer, len);
	else
		send_failure(HTTP_OUT_OF_MEMORY);
	store_close(store);
	free(answer);
	free(body);
	api_done(&call);
	tokens_close(api.tokens);
	return status;
}
