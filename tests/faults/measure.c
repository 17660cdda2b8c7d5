/*
 * measure: makes a store of many plants, and measures how long it takes to build
 * its index and to open it.
 *
 * usage: measure make DIR PLANTS | open DIR
 *
 * `open` opens the store, with whatever index it has, and closes it.  They print
 * the seconds, and the number of plants or the KiB of memory of its own that the
 * process has with the store open.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ground/log.h"
#include "sample.h"

#define BATCH 20000

static double
seconds_since(int64_t begun_ns)
{
	return (double)(sample_now_ns() - begun_ns) / 1e9;
}

static int
make(const char *dir, uint64_t n)
{
	static struct sample samples[BATCH];
	static struct store_item items[BATCH];
	struct store *store = sample_open_store(dir);
	int64_t begun_ns = sample_now_ns();

	for (uint64_t done = 0; done < n;) {
		size_t some = 0;

		for (; some < BATCH && done < n; some++, done++) {
			sample_make(&samples[some], done);
			items[some].plant = &samples[some].plant;
			items[some].by = SAMPLE_BY;
		}
		if (store_commit(store, items, some) < 0)
			return EXIT_FAILURE;
		for (size_t i = 0; i < some; i++)
			if (items[i].result != STORE_CREATED)
				return EXIT_FAILURE;
	}
	store_close(store);
	printf("%.3f %" PRIu64 "\n", seconds_since(begun_ns), n);
	return EXIT_SUCCESS;
}

/* 0 if it cannot be told. */
static long
own_kib(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[128];
	long kib = 0;

	if (file == NULL)
		return 0;
	while (kib == 0 && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "RssAnon: %ld", &kib) != 1)
			kib = 0;
	fclose(file);
	return kib;
}

static int
open_only(const char *dir)
{
	int64_t begun_ns = sample_now_ns();
	struct store *store = sample_open_store(dir);
	double took_s = seconds_since(begun_ns);
	long kib = own_kib();

	store_close(store);
	printf("%.4f %ld\n", took_s, kib);
	return EXIT_SUCCESS;
}

int
main(int argc, char **argv)
{
	log_level_max = LOG_AT_ERROR;
	if (argc == 4 && strcmp(argv[1], "make") == 0)
		return make(argv[2], strtoull(argv[3], NULL, 10));
	if (argc == 3 && strcmp(argv[1], "open") == 0)
		return open_only(argv[2]);
	fprintf(stderr, "usage: measure make DIR PLANTS | open DIR\n");
	return EXIT_FAILURE;
}
