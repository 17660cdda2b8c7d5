/*
 * noop: the least that a program with libfcgi can do, for scripts/bench to
 * compare the service with: threads that each wait in FCGX_Accept_r, one at a
 * time as in libfcgi's own example, read the body to its end and give a fixed
 * answer.  It checks nothing and keeps nothing.
 */
#include <fcgiapp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Enough that the web server always finds one waiting. */
#define THREADS 16

static const char answer[] = "Content-Type: application/json\r\n"
			     "Content-Length: 30\r\n"
			     "\r\n"
			     "{\"name\":\"Fern\",\"tag\":\"indoor\"}";

static pthread_mutex_t accepting = PTHREAD_MUTEX_INITIALIZER;

static void *
serve(void *unused)
{
	FCGX_Request request;
	char body[4096];

	if (FCGX_InitRequest(&request, 0, 0) != 0)
		exit(EXIT_FAILURE);
	for (;;) {
		pthread_mutex_lock(&accepting);
		int accepted = FCGX_Accept_r(&request);
		pthread_mutex_unlock(&accepting);
		if (accepted < 0)
			break;
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
	pthread_t threads[THREADS];

	if (FCGX_Init() != 0)
		return EXIT_FAILURE;
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, serve, NULL) != 0) {
			fprintf(stderr, "noop: cannot start a thread\n");
			return EXIT_FAILURE;
		}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return EXIT_SUCCESS;
}
