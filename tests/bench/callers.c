/*
 * callers: how many plants a second an engine stores durably.
 *
 * usage: callers DIR THREADS PLANTS SECONDS
 *
 * PLANTS wait at any time, divided among THREADS, each of which commits its
 * share in one transaction, takes the next that many, and so on:
 *
 *	64 64	64 callers that are threads, a transaction for each plant
 *	2 64	64 callers whose plants two threads gather, as two reactors do
 *		with their connections: while one commits the other waits, and
 *		then takes all that has come; an answered caller sends its next
 *		plant at once
 *	1 1000	a transaction for 1,000 plants
 *
 * The directory must be empty.  What comes before the first SECONDS / 4 are
 * over is not counted: files have grown by then.  Prints a line of JSON, with
 * what was acknowledged, and what is there after closing and opening.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine.h"

enum phase { WARMING, MEASURED, OVER };

static _Atomic enum phase phase = WARMING;
static atomic_uint_fast64_t next_plant;
static atomic_bool failed;

struct caller {
	pthread_t thread;
	size_t batch;
	uint64_t acknowledged, measured; /* plants */
	int64_t *took_ns;                /* each measured commit */
	size_t commits, commits_size;
};

static void *
allocate(void *old, size_t n, size_t size)
{
	void *memory = reallocarray(old, n, size);

	if (memory == NULL) {
		fprintf(stderr, "callers: out of memory\n");
		exit(EXIT_FAILURE);
	}
	return memory;
}

static void
note(struct caller *caller, int64_t took_ns)
{
	if (caller->commits == caller->commits_size) {
		caller->commits_size = caller->commits_size * 2 + 1024;
		caller->took_ns = allocate(caller->took_ns,
		    caller->commits_size, sizeof(*caller->took_ns));
	}
	caller->took_ns[caller->commits++] = took_ns;
	caller->measured += caller->batch;
}

static void *
call(void *argument)
{
	struct caller *caller = argument;
	size_t n = caller->batch;
	struct session *session = engine_session(n);
	struct sample *samples = allocate(NULL, n, sizeof(*samples));

	failed = failed || session == NULL;
	while (phase != OVER && !failed) {
		engine_wait(session);
		uint64_t first = atomic_fetch_add(&next_plant, n);
		for (size_t i = 0; i < n; i++)
			sample_make(&samples[i], first + i);
		int64_t begun_ns = sample_now_ns();
		if (engine_commit(session, samples, n) < 0) {
			failed = true;
			break;
		}
		caller->acknowledged += n;
		if (phase == MEASURED)
			note(caller, sample_now_ns() - begun_ns);
	}
	if (session != NULL)
		engine_session_end(session);
	free(samples);
	return NULL;
}

static void
sleep_s(double seconds)
{
	struct timespec time = { .tv_sec = (time_t)seconds };

	time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
	nanosleep(&time, NULL);
}

/* All the callers as one. */
static void
join(struct caller *callers, size_t n, struct caller *all)
{
	for (size_t i = 0; i < n; i++) {
		struct caller *caller = &callers[i];

		pthread_join(caller->thread, NULL);
		all->acknowledged += caller->acknowledged;
		all->batch = caller->batch;
		for (size_t j = 0; j < caller->commits; j++)
			note(all, caller->took_ns[j]);
	}
}

static void
run(size_t threads, size_t plants, double seconds, struct caller *all,
    double *took_s, double *cpu_s)
{
	struct caller *callers = allocate(NULL, threads, sizeof(*callers));

	for (size_t i = 0; i < threads; i++) {
		callers[i] = (struct caller){
			.batch = plants / threads + (i < plants % threads),
		};
		if (pthread_create(
			&callers[i].thread, NULL, call, &callers[i]) != 0) {
			fprintf(stderr, "callers: no more threads\n");
			exit(EXIT_FAILURE);
		}
	}
	sleep_s(seconds / 4);
	int64_t begun_ns = sample_now_ns(), cpu_ns = sample_cpu_ns();
	phase = MEASURED;
	sleep_s(seconds);
	phase = OVER;
	*took_s = (double)(sample_now_ns() - begun_ns) / 1e9;
	*cpu_s = (double)(sample_cpu_ns() - cpu_ns) / 1e9;
	join(callers, threads, all);
}

int
main(int argc, char **argv)
{
	size_t threads = argc == 5 ? strtoul(argv[2], NULL, 10) : 0;
	size_t plants = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;
	double seconds = argc == 5 ? strtod(argv[4], NULL) : 0;
	struct caller all = { 0 };
	double took_s, cpu_s;

	if (threads == 0 || plants < threads || seconds <= 0) {
		fprintf(stderr, "usage: callers DIR THREADS PLANTS SECONDS\n");
		return EXIT_FAILURE;
	}
	engine_open(argv[1]);
	run(threads, plants, seconds, &all, &took_s, &cpu_s);
	engine_close();
	if (failed || all.commits == 0) {
		fprintf(stderr, "callers: nothing was measured\n");
		return EXIT_FAILURE;
	}
	engine_open(argv[1]);
	int64_t stored = engine_count();
	engine_close();
	sample_sort(all.took_ns, all.commits);
	printf("{\"per_s\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,"
	       "\"cpu_us\":%.2f,\"acknowledged\":%" PRIu64
	       ",\"stored\":%" PRId64 "}\n",
	    (double)all.measured / took_s,
	    (double)all.took_ns[all.commits / 2] / 1e3,
	    (double)all.took_ns[all.commits * 99 / 100] / 1e3,
	    cpu_s * 1e6 / (double)all.measured, all.acknowledged, stored);
	return EXIT_SUCCESS;
}
