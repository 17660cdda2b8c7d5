/*
 * noop: the least that a program with libfcgi can do, for scripts/bench to
 * compare the service with: threads that each wait in FCGX_Accept_r, read the body to its end and give a fixed
 * answer.  It checks nothing and keeps nothing.
 *
 * NOOP_THREADS: how many.  A kept connection has its thread until it is closed,
 * so where the web server keeps them there must be one for each.
 */
#include <fcgiapp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 1024

static const char answer[] = "Content-Type: application/json\r\n"
			     "Content-Length: 30\r\n"
			     "\r\n"
			     "{\"name\":\"Fern\",\"tag\":\"indoor\"}";

static void *
serve(void *unused)
{
	FCGX_Request request;
	char body[4096];

	if (FCGX_InitRequest(&request, 0, 0) != 0)
		exit(EXIT_FAILURE);
	while (FCGX_Accept_r(&request) >= 0) {
		while (FCGX_GetStr(body, sizeof(body), request.in) > 0)
			;
		FCGX_PutStr(answer, (int)strlen(answer), request.out);
		FCGX_Finish_r(&request);
	}
	return unused;
}

int
main(void)
{
	const char *value = getenv("NOOP_THREADS");
	long count = value == NULL ? 0 : strtol(value, NULL, 10);
	pthread_t threads[THREADS_MAX];

	if (count < 1 || count > THREADS_MAX || FCGX_Init() != 0) {
		fprintf(stderr, "noop: NOOP_THREADS is 1 to %d\n", THREADS_MAX);
		return EXIT_FAILURE;
	}
	/* libfcgi would have it wait for a request in each thread. */
	signal(SIGTERM, SIG_DFL);
	for (long i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, serve, NULL) != 0) {
			fprintf(stderr, "noop: cannot start a thread\n");
			return EXIT_FAILURE;
		}
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	return EXIT_SUCCESS;
}
