/*
 * service: the process.  See gateway.h.
 *
 * Signals are blocked in every thread, since a signal during a read by libfcgi
 * would end the request.  The main thread waits for signals with sigtimedwait.
 */
#include "gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include "api/api.h"
#include "connection.h"
#include "ground/file.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "store/store.h"

/*
 * Descriptors needed besides one epoll per reactor: a connection, its spool
 * file, and the token file, which is read again when it changes.  Before that,
 * the sandbox needs some: without them it would deny access to the store.
 */
#define DESCRIPTORS_MIN 3

/* The time between two log lines that summarize refused requests. */
#define LOG_INTERVAL_S 60

static sigset_t ends;    /* the signals that end the service */
static sigset_t handled; /* these and SIGHUP */

static void
block_signals(void)
{
	/* multiwatch may send SIGUSR1 or SIGQUIT to end its children. */
	static const int end[] = { SIGTERM, SIGINT, SIGUSR1, SIGQUIT };

	fault_ignore_signals();
	sigemptyset(&ends);
	for (int i = 0; i < 4; i++)
		sigaddset(&ends, end[i]);
	handled = ends;
	sigaddset(&handled, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &handled, NULL);
}

/* Return whether `n` more descriptors can be opened; if not, errno is set. */
static bool
can_open(unsigned n)
{
	int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
	bool can = fd >= 0 && (n == 1 || can_open(n - 1));

	file_close(fd);
	return can;
}

/* Without these calls, no connection or no long request would be accepted. */
static bool
has_calls(void)
{
	int fd = memfd_create("check", MFD_CLOEXEC);
	const char *call = fd < 0 ? "memfd_create" : "accept4";

	if (fd >= 0)
		(void)accept4(-1, NULL, NULL, SOCK_CLOEXEC);
	file_close(fd);
	if (errno != ENOSYS && errno != EPERM)
		return true;
	log_error("the system refuses %s: %s; allow this call, for example in "
		  "the container's seccomp profile",
	    call, strerror(errno));
	return false;
}

static int
prepare_listener(void)
{
	/* A process that shares the socket may clear O_NONBLOCK: wait 1 ms. */
	const struct timeval brief = { .tv_usec = 1000 };
	int flags = fcntl(STDIN_FILENO, F_GETFL);

	if (flags < 0 || fcntl(STDIN_FILENO, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    setsockopt(STDIN_FILENO, SOL_SOCKET, SO_RCVTIMEO, &brief,
		sizeof(brief)) < 0 ||
	    connection_init() != 0) {
		log_error("descriptor 0: cannot use it as a listening socket");
		return -1;
	}
	return 0;
}

void
service_notify(const char *state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *name = getenv("NOTIFY_SOCKET");
	size_t len = name == NULL ? 0 : strlen(name);
	int fd = -1;

	if (len == 0)
		return;
	errno = EINVAL;
	if ((name[0] == '/' || name[0] == '@') &&
	    len < sizeof(address.sun_path)) {
		memcpy(address.sun_path, name, len);
		if (name[0] == '@')
			address.sun_path[0] = '\0';
		fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	}
	/* An abstract name ends with the address: no NUL is counted. */
	if (fd < 0 ||
	    sendto(fd, state, strlen(state), MSG_NOSIGNAL,
		(const struct sockaddr *)&address,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		log_warning("NOTIFY_SOCKET %.108s: cannot send %s: %s", name,
		    state, strerror(errno));
	file_close(fd);
}

/*
 * Wait for a signal that ends the service; on SIGHUP, read the tokens again.
 * Probe the store every second, so that no reactor waits for the probe.  The
 * store is idle in a second without a batch; if it has failed, return -1.
 */
static int
wait_for_end(struct tokens *tokens, struct store *store)
{
	const struct timespec second = { .tv_sec = 1 };
	uint64_t batches, seen = 0;
	int number = -1, status = 0;

	service_notify("READY=1");
	for (int s = 1; status == 0 && (number < 0 || number == SIGHUP); s++) {
		number = sigtimedwait(&handled, NULL, &second);
		if (number < 0)
			api_set_ready(store_ready(store));
		batches = metrics[METRICS_BATCHES];
		if (batches == seen)
			status = store_idle(store);
		seen = batches;
		if (number >= 0 || s % LOG_INTERVAL_S == 0)
			api_log_refusals();
		if (number == SIGHUP)
			tokens_recheck(tokens);
	}
	service_notify("STOPPING=1");
	return status;
}

/* Run the reactors until a signal or a failure.  Return a sysexits.h status. */
static int
serve(const struct config *config, struct tokens *tokens, struct store *store)
{
	struct reactor *reactors[CONFIG_THREADS_MAX];
	int stop = eventfd(0, EFD_CLOEXEC);
	int status = EX_OSERR;
	unsigned n = 0;

	/* Log this once all are closed again: syslog(3) needs a descriptor. */
	if (stop < 0 || !can_open(config->threads + DESCRIPTORS_MIN)) {
		log_error("cannot accept connections: %s; raise the limit on "
			  "open files",
		    strerror(errno));
		file_close(stop);
		return EX_OSERR;
	}
	if (config->database == NULL)
		sandbox_enter(config);
	api_set_ready(store_ready(store));
	while (n < config->threads && (reactors[n] = reactor_start(config,
					   tokens, store, stop)) != NULL)
		n++;
	if (n == config->threads) {
		log_info("serving with %u threads, store %s, version %s", n,
		    config->database != NULL ? "in a database" : config->dir,
		    PLANT_STORE_VERSION);
		status = wait_for_end(tokens, store) < 0 ? EX_IOERR : EX_OK;
	}
	eventfd_write(stop, 1);
	while (n > 0) {
		int failed = reactor_join(reactors[--n]);

		if (status == EX_OK)
			status = failed;
	}
	api_log_refusals();
	close(stop);
	return status;
}

/* Show the progress of a start; stop it on a signal that ends the service. */
static bool
step_start(void *context, uint64_t done, uint64_t total)
{
	int *percent = context;
	int now = total > 0 ? (int)(100 * done / total) : 0;
	char state[64];
	sigset_t pending;

	if (now > *percent) {
		snprintf(state, sizeof(state), "STATUS=reading: %d %%", now);
		service_notify(state);
		*percent = now;
	}
	sigpending(&pending);
	sigandset(&pending, &pending, &ends);
	return sigisemptyset(&pending);
}

int
service_run(const struct config *config)
{
	int percent = 0;
	const struct watch watch = { step_start, &percent };
	const struct store_options options = { .database = config->database,
		.dir = config->dir,
		.watch = &watch,
		.long_lived = true };
	enum fault fault;
	struct stat dir;

	block_signals();
	if (!has_calls() || prepare_listener() < 0)
		return EX_OSERR;
	/* In the sandbox, root cannot access other users' files. */
	if (config->database == NULL && config->sandbox && geteuid() == 0 &&
	    stat(config->dir, &dir) == 0 && dir.st_uid != 0) {
		log_error("%s: belongs to user %u, but this process runs as "
			  "root; run the service as its owner",
		    config->dir, dir.st_uid);
		return EX_NOPERM;
	}
	struct tokens *tokens = tokens_open(config->tokens, geteuid(), &fault);
	if (tokens == NULL)
		return fault_status(fault);
	/* Enter before libpq reads files: a forbidden one fails the start. */
	if (config->database != NULL)
		sandbox_enter(config);
	struct store *store = store_open(&options, &fault);
	int status = fault == FAULT_STOPPED ? EX_OK : fault_status(fault);
	if (store != NULL)
		status = serve(config, tokens, store);
	store_close(store);
	tokens_close(tokens);
	if (status == EX_OK)
		log_info("ended");
	return status;
}
