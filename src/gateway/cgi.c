/* cgi: one request, then the process ends.  See gateway.h. */
#include "gateway.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/api.h"
#include "ground/log.h"
#include "ground/metrics.h"

/* Bytes read of a refused body; if more are left, the response may be lost. */
#define DRAIN_BYTES_MAX CONFIG_BODY_BYTES_MAX

/*
 * Return whether to repeat a failed call on `fd`.  The web server may hand over
 * non-blocking descriptors: after EAGAIN, wait until `fd` is ready.
 */
static bool
may_retry(int fd, short event)
{
	struct pollfd ready = { .fd = fd, .events = event };

	if (errno == EAGAIN)
		return poll(&ready, 1, -1) >= 0 || errno == EINTR;
	return errno == EINTR;
}

/*
 * Read the body, at most `max` bytes, even of a refused request: if a process
 * of Apache's mod_cgid exits with bytes left on stdin, the response is lost.
 * The web server need not close stdin (RFC 3875, 4.2), so only a chunked body,
 * which has no length, is read to end of file.
 */
static size_t
read_body(struct api_call *call, char *buf, size_t max)
{
	size_t have = 0;
	ssize_t n = 1;

	if (call->length != REQUEST_LENGTH_CHUNKED && call->body_len < max)
		max = call->body_len;
	while (have < max && n != 0) {
		n = read(STDIN_FILENO, buf + have, max - have);
		if (n > 0)
			have += (size_t)n;
		else if (n < 0 && !may_retry(STDIN_FILENO, POLLIN))
			break;
	}
	call->whole = n >= 0;
	return have;
}

static void
send_answer(const char *answer, size_t len)
{
	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, answer, len);

		if (n < 0 && may_retry(STDOUT_FILENO, POLLOUT))
			continue;
		if (n <= 0)
			break;
		answer += n;
		len -= (size_t)n;
	}
	/* The web server need not wait until the store is closed. */
	close(STDOUT_FILENO);
}

void
cgi_begin(void)
{
	char id[REQUEST_ID_MAX + 1];
	struct request request;

	request_read(&request, environ);
	request_id(&request, id);
	/* Every later read of the environment finds this id. */
	unsetenv("HTTP_X_REQUEST_ID");
	setenv("HTTP_X_REQUEST_ID", id, 1);
	log_set_request(id);
}

/* Store the plant, or probe for health.  Close the store after the response. */
static enum fault
use_store(
    const struct config *config, struct api_call *call, struct store **store)
{
	struct store_options options = { .database = config->database,
		.dir = config->dir };
	struct store_item item = { .plant = &call->plant, .by = call->by };
	enum fault fault;

	*store = store_open(&options, &fault);
	if (*store == NULL) {
		if (fault == FAULT_BUSY)
			api_stored(call,
			    config->database != NULL ? STORE_AWAY : STORE_BUSY);
		else
			api_set_error(call, HTTP_NOT_READY);
		return fault;
	}
	if (call->page == API_HEALTH)
		item.result = store_ready(*store);
	else if (store_commit(*store, &item, 1) < 0)
		fault = FAULT_FAILED;
	api_stored(call, item.result);
	return fault;
}

int
cgi_serve(const struct config *config)
{
	/* The body plus one byte; later the whole response. */
	static char buf[API_ANSWER_MAX];
	struct api api = { .config = config };
	struct api_call call;
	struct store *store = NULL;
	enum fault fault = FAULT_NONE;

	fault_ignore_signals();
	/* lighttpd sends SIGTERM when stdout closes; the store closes later. */
	signal(SIGTERM, SIG_IGN);
	if (config->tokens != NULL)
		api.tokens = tokens_open(config->tokens, geteuid(), &fault);
	if (api.tokens != NULL)
		api_tick(&api);
	if (api_head(&api, &call, environ) != 0) {
		if (call.page == API_HEALTH && call.failure.error == HTTP_OK)
			fault = use_store(config, &call, &store);
		read_body(&call, buf, DRAIN_BYTES_MAX);
	} else {
		size_t len = read_body(&call, buf, config->body_bytes_max + 1);

		if (api_body(&api, &call, buf, len) == 0)
			fault = use_store(config, &call, &store);
		else if (call.length == REQUEST_LENGTH_CHUNKED)
			read_body(&call, buf, DRAIN_BYTES_MAX);
	}
	if (store == NULL && config->dir != NULL && config->database == NULL)
		metrics_open(config->dir, false);
	send_answer(buf, api_answer(&api, &call, buf));
	store_close(store);
	plant_done(&call.plant);
	tokens_close(api.tokens);
	return fault_status(fault);
}
