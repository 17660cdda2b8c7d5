/*
 * growth: what it costs to store plants one by one in a store that has many.
 *
 * usage: growth DIR FIRST COUNT sync|nosync
 *
 * Stores plants FIRST, FIRST + 1, ... (sample.h), each with a commit of its own
 * as a CGI request or a reactor with one client does, and prints a line of JSON
 * in microseconds:
 *
 *	whole	the time of a commit
 *	sync	of that, in fdatasync and fsync: the disk's
 *	queue	outside of these, ready to run and waiting for a CPU: of others
 *	own	what is left
 *	cpu	what CPUs were used, also in syncs
 *
 * `own` is more than the CPU where the page cache or LMDB's mapping made us
 * wait: `faults` is how often a page of the index had to be read from the disk.
 * With `nosync` the syncs do nothing, so that the disk is not busy.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ground/log.h"
#include "sample.h"

enum part { WHOLE, SYNC, QUEUE, OWN, CPU, PARTS };
static const char *const names[PARTS] = { "whole", "sync", "queue", "own",
	"cpu" };

static bool syncing = true;
static int schedstat = -1;
static int64_t synced_ns, synced_queue_ns; /* since they were last set to 0 */

/* Of this thread, ready but waiting for a CPU. */
static int64_t
read_queue_ns(void)
{
	int64_t queue_ns;
	char text[128];
	ssize_t n = pread(schedstat, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "%*u %" SCNd64, &queue_ns) != 1) {
		fprintf(stderr, "growth: no /proc/thread-self/schedstat\n");
		exit(EXIT_FAILURE);
	}
	return queue_ns;
}

/* Called in place of the C library's, by the store and by LMDB. */
static int
sync_timed(long call, int fd)
{
	int64_t begun_ns = sample_now_ns(), queue_ns = read_queue_ns();
	int result = syncing ? (int)syscall(call, fd) : 0;
	int error = errno;

	synced_queue_ns += read_queue_ns() - queue_ns;
	synced_ns += sample_now_ns() - begun_ns;
	errno = error;
	return result;
}

int
fdatasync(int fd)
{
	return sync_timed(SYS_fdatasync, fd);
}

int
fsync(int fd)
{
	return sync_timed(SYS_fsync, fd);
}

static void
insert(struct store *store, uint64_t plant, int64_t took[static PARTS])
{
	struct sample sample;
	struct store_item item = { .plant = &sample.plant, .by = SAMPLE_BY };

	sample_make(&sample, plant);
	synced_ns = synced_queue_ns = 0;
	int64_t queue_ns = read_queue_ns();
	int64_t cpu_ns = sample_cpu_ns(), begun_ns = sample_now_ns();
	int status = store_commit(store, &item, 1);
	store_finish(store);
	if (status < 0 || item.result != STORE_CREATED) {
		fprintf(stderr, "growth: plant %" PRIu64 ": result %d\n", plant,
		    (int)item.result);
		exit(EXIT_FAILURE);
	}
	took[WHOLE] = sample_now_ns() - begun_ns;
	took[CPU] = sample_cpu_ns() - cpu_ns;
	took[SYNC] = synced_ns;
	took[QUEUE] = read_queue_ns() - queue_ns - synced_queue_ns;
	took[OWN] = took[WHOLE] - took[SYNC] - took[QUEUE];
}

static void
print(int part, int64_t *times, size_t n)
{
	int64_t sum = 0;

	sample_sort(times, n);
	for (size_t i = 0; i < n; i++)
		sum += times[i];
	printf("%s\"%s\":{\"mean\":%.2f,\"median\":%.2f,\"p99\":%.2f,"
	       "\"max\":%.2f}",
	    part == 0 ? "{" : ",", names[part], (double)sum / 1e3 / (double)n,
	    (double)times[n / 2] / 1e3, (double)times[n * 99 / 100] / 1e3,
	    (double)times[n - 1] / 1e3);
}

int
main(int argc, char **argv)
{
	uint64_t first = argc == 5 ? strtoull(argv[2], NULL, 10) : 0;
	size_t n = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;

	if (n == 0) {
		fprintf(stderr, "usage: growth DIR FIRST COUNT sync|nosync\n");
		return EXIT_FAILURE;
	}
	int64_t *times[PARTS], took[PARTS];
	struct rusage usage;
	for (int part = 0; part < PARTS; part++) {
		times[part] = calloc(n, sizeof(*times[part]));
		if (times[part] == NULL)
			return EXIT_FAILURE;
	}
	syncing = strcmp(argv[4], "nosync") != 0;
	log_set_level(LOG_AT_ERROR);
	schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	struct store *store = sample_open_store(argv[1]);
	getrusage(RUSAGE_SELF, &usage);
	long faults = usage.ru_majflt;
	for (size_t i = 0; i < n; i++) {
		insert(store, first + i, took);
		for (int part = 0; part < PARTS; part++)
			times[part][i] = took[part];
	}
	syncing = true;
	store_close(store);
	for (int part = 0; part < PARTS; part++)
		print(part, times[part], n);
	getrusage(RUSAGE_SELF, &usage);
	printf(",\"faults\":%ld}\n", usage.ru_majflt - faults);
	return EXIT_SUCCESS;
}
