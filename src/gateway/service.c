/*
 * service: the process.  See gateway/service.h.
 *
 * All signals are blocked in every thread, since one that arrives in libfcgi's
 * read ends the request; this thread waits for them.
 */
#include "gateway/service.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sysexits.h>
#include <unistd.h>

#include "fastcgi.h"
#include "ground/log.h"
#include "ground/notify.h"
#include "http/tokens.h"
#include "reactor.h"
#include "store/store.h"

/* The deepest call is LMDB's; the default of 8 MiB is only address space. */
#define THREAD_STACK_BYTES ((size_t)512 << 10)

struct service {
	const struct config *config;
	struct store *store;
	int stop; /* see reactor_new */
	unsigned nthreads;
	pthread_t *threads;
	struct reactor **reactors;
};

static void
catch_signals(sigset_t *set)
{
	/* A peer or a limit must not end the process: errno says it too. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	/* What multiwatch may send to end its children. */
	sigaddset(set, SIGUSR1);
	sigaddset(set, SIGQUIT);
	sigaddset(set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, set, NULL);
}

static void
stop_reactors(const struct service *service)
{
	uint64_t one = 1;

	if (write(service->stop, &one, sizeof(one)) != (ssize_t)sizeof(one))
		log_error("cannot stop: %s", strerror(errno));
}

static int
start_reactors(struct service *service)
{
	pthread_attr_t attributes;
	int status = EX_OSERR, error;

	service->threads =
	    calloc(service->config->threads, sizeof(*service->threads));
	service->reactors =
	    calloc(service->config->threads, sizeof(struct reactor *));
	service->stop = eventfd(0, EFD_CLOEXEC);
	if (service->threads == NULL || service->reactors == NULL ||
	    service->stop < 0) {
		log_error("cannot start: %s", strerror(errno));
		return EX_OSERR;
	}
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
	for (unsigned i = 0; i < service->config->threads; i++) {
		service->reactors[i] = reactor_new(
		    service->config, service->store, service->stop, &status);
		if (service->reactors[i] == NULL)
			break;
		error = pthread_create(&service->threads[i], &attributes,
		    reactor_run, service->reactors[i]);
		if (error != 0) {
			log_error("cannot start a thread: %s", strerror(error));
			status = EX_OSERR;
			reactor_free(service->reactors[i]);
			break;
		}
		service->nthreads++;
	}
	pthread_attr_destroy(&attributes);
	return service->nthreads == service->config->threads ? EX_OK : status;
}

/* Wait for all of them; the status of the first that failed. */
static int
join_reactors(struct service *service)
{
	int status = EX_OK;

	for (unsigned i = 0; i < service->nthreads; i++) {
		pthread_join(service->threads[i], NULL);
		if (status == EX_OK)
			status = reactor_status(service->reactors[i]);
		reactor_free(service->reactors[i]);
	}
	free(service->threads);
	free(service->reactors);
	if (service->stop >= 0)
		close(service->stop);
	return status;
}

static int
prepare_listener(void)
{
	/*
	 * The flag is of the socket, not of our descriptor: whoever shares it,
	 * as systemd does, may take it away, and an accept that finds nothing
	 * has to come back even so.
	 */
	const struct timeval brief = { .tv_usec = 1000 };
	int flags = fcntl(STDIN_FILENO, F_GETFL);

	if (flags < 0 || fcntl(STDIN_FILENO, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    setsockopt(STDIN_FILENO, SOL_SOCKET, SO_RCVTIMEO, &brief,
		sizeof(brief)) < 0 ||
	    fastcgi_init() < 0) {
		log_error("descriptor 0: cannot use it as a listening socket");
		return EX_OSERR;
	}
	return EX_OK;
}

/* Until it is time to end; a hangup is the order to read the tokens again. */
static void
wait_for_end(const sigset_t *set)
{
	int number = 0;

	notify_supervisor("READY=1");
	for (;;) {
		sigwait(set, &number);
		if (number != SIGHUP)
			break;
		tokens_recheck();
	}
	notify_supervisor("STOPPING=1");
}

bool
service_is_fastcgi(void)
{
	return fastcgi_is_listener();
}

int
service_run(const struct config *config)
{
	struct service service = { .config = config, .stop = -1 };
	struct store_options options = { .dir = config->dir, .prepare = true };
	sigset_t set;
	int status, failed;

	catch_signals(&set);
	status = prepare_listener();
	if (status != EX_OK)
		return status;
	service.store = store_open(&options, &status);
	if (service.store == NULL)
		return status;
	status = start_reactors(&service);
	if (status == EX_OK) {
		log_info("serving with %u threads, store %s", config->threads,
		    config->dir);
		wait_for_end(&set);
	}
	if (service.stop >= 0)
		stop_reactors(&service);
	failed = join_reactors(&service);
	store_close(service.store);
	if (status == EX_OK && failed == EX_OK)
		log_info("ended");
	return status != EX_OK ? status : failed;
}
