/*
 * callers: how many plants a second are stored durably, without a service.
 *
 * usage: callers plants DIR | sqlite FILE   CALLERS SECONDS FIRST
 *
 * CALLERS wait at any time, each for its plant; the first has the number FIRST,
 * the ids are those of import_samples in lib_faults.py.  Those of the Plant Store are what they are in the service:
 * reactors, one for two CPUs, gather their plants, so that a commit has all that
 * came while another was syncing.  Those of SQLite are threads, each with a
 * connection and a transaction for each plant.
 *
 * What comes before the first SECONDS / 4 are over is not counted: files have
 * grown by then.  Prints a line of JSON, in microseconds: the median, the 99th
 * percentile and the greatest time of a commit, the greatest without what a
 * thread that could run waited for a CPU (`own`), the CPU time of a plant; and
 * how many were acknowledged.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ground/log.h"
#include "peer.h"
#include "plant/plant.h"
#include "store/store.h"

enum phase { WARMING, MEASURED, OVER };

static _Atomic enum phase phase = WARMING;
static atomic_uint_fast64_t next_plant;
static struct store *store; /* NULL: SQLite */
static const char *path;

struct caller {
	pthread_t thread;
	size_t batch;
	uint64_t acknowledged, measured; /* plants */
	int64_t *took_ns;                /* each measured commit */
	size_t commits, commits_size;
	int64_t own_max_ns;
};

struct sample {
	struct plant plant; /* its text is the one below */
	char text[96];
};

/* `sample` must not be moved. */
static void
sample_make(struct sample *sample, uint64_t i)
{
	int64_t id = i % 2 == 0
			 ? (int64_t)i
			 : (int64_t)(i * UINT64_C(0x9e3779b97f4a7c15) | 1);

	sample->plant.id = id;
	sample->plant.text = sample->text;
	sample->plant.len = (size_t)snprintf(sample->text, sizeof(sample->text),
	    "{\"id\":%" PRId64 ",\"name\":\"Plant no. %" PRIu64
	    "\",\"tag\":\"indoor\"}",
	    id, i);
}

static int64_t
now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *
must(void *made, const char *what)
{
	if (made == NULL) {
		fprintf(stderr, "callers: %s\n", what);
		exit(EXIT_FAILURE);
	}
	return made;
}

/* Of this thread, ready but waiting for a CPU. */
static int64_t
read_queue_ns(int schedstat)
{
	int64_t queue_ns = 0;
	char text[128];
	ssize_t n = pread(schedstat, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	sscanf(text, "%*u %" SCNd64, &queue_ns);
	return queue_ns;
}

static void
note(struct caller *caller, int64_t took_ns)
{
	if (caller->commits == caller->commits_size) {
		caller->commits_size = caller->commits_size * 2 + 1024;
		caller->took_ns =
		    must(reallocarray(caller->took_ns, caller->commits_size,
			     sizeof(*caller->took_ns)),
			"out of memory");
	}
	caller->took_ns[caller->commits++] = took_ns;
	caller->measured += caller->batch;
}

static void
commit(struct peer *peer, const struct sample *samples,
    struct store_item *items, size_t n)
{
	bool stored = true;

	if (peer != NULL) {
		const struct peer_plant plant = { samples->plant.id,
			samples->text, NULL };

		stored = peer_store(peer, &plant) == 200;
	} else {
		stored = store_commit(store, items, n) == 0;
		for (size_t i = 0; i < n; i++)
			stored = stored && items[i].result == STORE_CREATED;
	}
	must(stored ? items : NULL, "a plant is not stored");
}

static void *
call(void *argument)
{
	struct caller *caller = argument;
	size_t n = caller->batch;
	struct peer *peer =
	    store == NULL ? must(peer_open(path), "no connection") : NULL;
	struct sample *samples = must(calloc(n, sizeof(*samples)), "memory");
	struct store_item *items = must(calloc(n, sizeof(*items)), "memory");
	int schedstat = open("/proc/thread-self/schedstat", O_RDONLY);

	while (phase != OVER) {
		if (store != NULL)
			store_wait(store);
		uint64_t first = atomic_fetch_add(&next_plant, n);
		for (size_t i = 0; i < n; i++) {
			sample_make(&samples[i], first + i);
			items[i].plant = &samples[i].plant;
			items[i].by = "nursery-1";
		}
		int64_t queued_ns = read_queue_ns(schedstat);
		int64_t begun_ns = now_ns(CLOCK_MONOTONIC);
		commit(peer, samples, items, n);
		int64_t took_ns = now_ns(CLOCK_MONOTONIC) - begun_ns;
		int64_t own_ns =
		    took_ns - (read_queue_ns(schedstat) - queued_ns);
		caller->acknowledged += n;
		if (phase != MEASURED)
			continue;
		note(caller, took_ns);
		if (own_ns > caller->own_max_ns)
			caller->own_max_ns = own_ns;
	}
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
join(struct caller *caller, struct caller *all)
{
	pthread_join(caller->thread, NULL);
	all->acknowledged += caller->acknowledged;
	all->batch = caller->batch;
	if (caller->own_max_ns > all->own_max_ns)
		all->own_max_ns = caller->own_max_ns;
	for (size_t i = 0; i < caller->commits; i++)
		note(all, caller->took_ns[i]);
}

static int
compare(const void *a, const void *b)
{
	const int64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

static void
run(size_t threads, size_t plants, double seconds)
{
	struct caller *callers =
	    must(calloc(threads, sizeof(*callers)), "out of memory");
	struct caller all = { 0 };

	for (size_t i = 0; i < threads; i++) {
		callers[i].batch = plants / threads + (i < plants % threads);
		if (pthread_create(
			&callers[i].thread, NULL, call, &callers[i]) != 0)
			must(NULL, "no more threads");
	}
	sleep_s(seconds / 4);
	int64_t begun_ns = now_ns(CLOCK_MONOTONIC),
		cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	phase = MEASURED;
	sleep_s(seconds);
	phase = OVER;
	double took_s = (double)(now_ns(CLOCK_MONOTONIC) - begun_ns) / 1e9;
	cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	for (size_t i = 0; i < threads; i++)
		join(&callers[i], &all);
	must(all.took_ns, "nothing was measured");
	qsort(all.took_ns, all.commits, sizeof(*all.took_ns), compare);
	printf("{\"per_s\":%.1f,\"p50\":%.1f,\"p99\":%.1f,\"max\":%.1f,"
	       "\"own\":%.1f,\"cpu\":%.2f,\"acknowledged\":%" PRIu64 "}\n",
	    (double)all.measured / took_s,
	    (double)all.took_ns[all.commits / 2] / 1e3,
	    (double)all.took_ns[all.commits * 99 / 100] / 1e3,
	    (double)all.took_ns[all.commits - 1] / 1e3,
	    (double)all.own_max_ns / 1e3,
	    (double)cpu_ns / 1e3 / (double)all.measured, all.acknowledged);
}

int
main(int argc, char **argv)
{
	bool ours = argc == 6 && strcmp(argv[1], "plants") == 0;
	size_t plants = argc == 6 ? strtoul(argv[3], NULL, 10) : 0;
	size_t threads = ((size_t)sysconf(_SC_NPROCESSORS_ONLN) + 1) / 2;
	double seconds = argc == 6 ? strtod(argv[4], NULL) : 0;

	if (plants == 0 || seconds <= 0) {
		fprintf(stderr,
		    "usage: callers plants|sqlite PATH CALLERS SECONDS "
		    "FIRST\n");
		return EXIT_FAILURE;
	}
	path = argv[2];
	next_plant = strtoull(argv[5], NULL, 10);
	log_level_max = LOG_AT_ERROR;
	if (ours) {
		struct store_options options = { .dir = path,
			.long_lived = true };
		enum fault fault;

		store = must(store_open(&options, &fault), "no store");
	}
	run(ours && threads < plants ? threads : plants, plants, seconds);
	if (ours)
		store_close(store);
	return EXIT_SUCCESS;
}
