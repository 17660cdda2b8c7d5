/*
 * measure: makes a store of many plants, and tells how long it takes to check
 * its journal, to build its index and to open it.
 *
 * usage: measure make DIR PLANTS | scan DIR | open DIR
 *
 * `scan` reads and checks every line; `open` opens the store, with whatever
 * index it has, and closes it.  Both print the seconds and their own count.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ground/log.h"
#include "journal.h"
#include "store/store.h"

#define BATCH 20000

static double
now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct store *
open_store(const char *dir)
{
	struct store_options options = { .dir = dir, .prepare = true };
	int status = 0;
	struct store *store = store_open(&options, &status);

	if (store == NULL)
		exit(status);
	return store;
}

/*
 * Ids as clients choose them: half follow each other, half are anywhere, since
 * an odd factor reaches each number once.
 */
static int64_t
id_of(uint64_t i)
{
	return i % 2 == 0 ? (int64_t)i
			  : (int64_t)(i * UINT64_C(0x9e3779b97f4a7c15) | 1);
}

static int
make(const char *dir, uint64_t n)
{
	static struct plant plants[BATCH];
	static struct store_item items[BATCH];
	struct store *store = open_store(dir);
	double begun = now_s();

	for (uint64_t done = 0; done < n;) {
		size_t some = 0;

		for (; some < BATCH && done < n; some++, done++) {
			int64_t id = id_of(done);
			int len = asprintf(&plants[some].text,
			    "{\"id\":%" PRId64 ",\"name\":\"Plant no. %" PRIu64
			    "\",\"tag\":\"indoor\"}",
			    id, done);

			if (len < 0)
				abort();
			plants[some].id = id;
			plants[some].len = (size_t)len;
			items[some].plant = &plants[some];
			items[some].by = "nursery-1";
		}
		if (store_commit(store, items, some) < 0)
			return EXIT_FAILURE;
		for (size_t i = 0; i < some; i++) {
			if (items[i].result != STORE_CREATED)
				return EXIT_FAILURE;
			plant_done(&plants[i]);
		}
	}
	store_close(store);
	printf("%.3f %" PRIu64 "\n", now_s() - begun, n);
	return EXIT_SUCCESS;
}

static int
scan(const char *dir)
{
	struct journal journal;
	struct replay replay;
	struct record record;
	uint64_t plants = 0;
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	double begun = now_s();

	if (fd < 0 || journal_open(&journal, fd, false) != JOURNAL_OPENED ||
	    replay_init(&replay, journal.fd, journal.seed, &journal.start) < 0)
		return EXIT_FAILURE;
	while (replay_next(&replay, &record) == REPLAY_RECORD)
		plants += record.plant != NULL;
	if (replay.at.end != journal.size)
		return EXIT_FAILURE;
	replay_done(&replay);
	journal_close(&journal);
	printf("%.3f %" PRIu64 "\n", now_s() - begun, plants);
	return EXIT_SUCCESS;
}

static int
open_only(const char *dir)
{
	double begun = now_s();
	struct store *store = open_store(dir);
	double opened = now_s();

	store_close(store);
	printf("%.4f %d\n", opened - begun, 1);
	return EXIT_SUCCESS;
}

int
main(int argc, char **argv)
{
	log_set_level(LOG_AT_ERROR);
	if (argc == 4 && strcmp(argv[1], "make") == 0)
		return make(argv[2], strtoull(argv[3], NULL, 10));
	if (argc == 3 && strcmp(argv[1], "scan") == 0)
		return scan(argv[2]);
	if (argc == 3 && strcmp(argv[1], "open") == 0)
		return open_only(argv[2]);
	fprintf(
	    stderr, "usage: measure make DIR PLANTS | scan DIR | open DIR\n");
	return EXIT_FAILURE;
}
