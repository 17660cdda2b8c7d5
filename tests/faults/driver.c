/*
 * driver: a user of a store, told on stdin what to do: long lived, or `once` as a
 * CGI process is.
 *
 * usage: driver DIR [once]
 *
 *	put ID NAME     commit one plant
 *	batch ID N      commit N plants with the ids from ID, "plant ID" each
 *	idle            put the last batch below the watermark
 *	close           close the store, and end
 *
 * Prints "open" once it is; "ID RESULT" for each plant and then "done"; the end
 * of stdin closes the store.  Ends with EX_IOERR when the store has failed.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "ground/log.h"
#include "store/store.h"

#define BATCH_MAX 64

static const char *const names[] = {
	[STORE_CREATED] = "created",
	[STORE_SAME] = "same",
	[STORE_CONFLICT] = "conflict",
	[STORE_FULL] = "full",
	[STORE_BUSY] = "busy",
	[STORE_FAILED] = "failed",
};

/* One batch of plants; `name` NULL: named after their ids. */
static int
commit(struct store *store, int64_t id, size_t n, const char *name)
{
	static struct plant plants[BATCH_MAX];
	static char texts[BATCH_MAX][256];
	struct store_item items[BATCH_MAX] = { 0 };
	int status;

	for (size_t i = 0; i < n; i++) {
		int64_t own = id + (int64_t)i;
		char plain[64];

		snprintf(plain, sizeof(plain), "plant %" PRId64, own);
		plants[i].id = own;
		plants[i].text = texts[i];
		plants[i].len = (size_t)snprintf(texts[i], sizeof(texts[i]),
		    "{\"id\":%" PRId64 ",\"name\":\"%.100s\"}", own,
		    name != NULL ? name : plain);
		items[i].plant = &plants[i];
		items[i].by = "driver";
	}
	status = store_commit(store, items, n);
	for (size_t i = 0; i < n; i++)
		printf(
		    "%" PRId64 " %s\n", plants[i].id, names[items[i].result]);
	printf("done\n");
	return status;
}

static int
serve(struct store *store)
{
	char line[256], name[101];
	int64_t id;
	size_t n;
	int status = 0;

	while (status == 0 && fgets(line, sizeof(line), stdin) != NULL) {
		if (sscanf(line, "put %" SCNd64 " %100[^\n]", &id, name) == 2)
			status = commit(store, id, 1, name);
		else if (sscanf(line, "batch %" SCNd64 " %zu", &id, &n) == 2 &&
			 n <= BATCH_MAX)
			status = commit(store, id, n, NULL);
		else if (strcmp(line, "idle\n") == 0) {
			store_idle(store);
			printf("done\n");
		} else if (strcmp(line, "close\n") == 0)
			break;
		else
			abort();
	}
	return status == 0 ? EX_OK : EX_IOERR;
}

int
main(int argc, char **argv)
{
	struct store_options options = { .long_lived = argc == 2 };
	struct store *store;
	enum fault fault;
	int status;

	if (argc < 2)
		return EX_USAGE;
	signal(SIGXFSZ, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	log_open("driver", 0);
	options.dir = argv[1];
	store = store_open(&options, &fault);
	if (store == NULL)
		return fault_status(fault);
	printf("open\n");
	status = serve(store);
	store_close(store);
	return status;
}
