/*
 * engine_plants: the Plant Store's own store, without the service.  See
 * engine.h.  What is stored is counted by a check of every line and of the
 * index.
 */
#include "engine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "ground/log.h"
#include "reader/maintain.h"

static struct store *store;
static const char *store_dir;

struct session {
	size_t batch_max;
	struct store_item items[];
};

void
engine_open(const char *dir)
{
	log_set_level(LOG_AT_ERROR);
	/* Once it is there, it is opened again to be counted. */
	if (store_dir == NULL && store_init(dir) != FAULT_NONE)
		exit(EXIT_FAILURE);
	store_dir = dir;
	store = sample_open_store(dir);
}

void
engine_close(void)
{
	store_close(store);
	store = NULL;
}

struct session *
engine_session(size_t batch_max)
{
	struct session *session =
	    calloc(1, sizeof(*session) + batch_max * sizeof(session->items[0]));

	if (session != NULL)
		session->batch_max = batch_max;
	return session;
}

void
engine_session_end(struct session *session)
{
	free(session);
}

/* As a reactor does it. */
void
engine_wait(struct session *session)
{
	(void)session;
	store_wait(store);
}

int
engine_commit(struct session *session, const struct sample *samples, size_t n)
{
	assert(n <= session->batch_max);
	for (size_t i = 0; i < n; i++) {
		session->items[i].plant = &samples[i].plant;
		session->items[i].by = SAMPLE_BY;
	}
	int status = store_commit(store, session->items, n);
	store_finish(store);
	if (status < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (session->items[i].result != STORE_CREATED) {
			fprintf(stderr, "plant-store: result %d\n",
			    (int)session->items[i].result);
			return -1;
		}
	return 0;
}

int64_t
engine_count(void)
{
	struct verify_report report;

	if (verify_store(store_dir, NULL, &report) != FAULT_NONE ||
	    report.index != INDEX_USABLE)
		return -1;
	return (int64_t)report.journal.plants;
}
