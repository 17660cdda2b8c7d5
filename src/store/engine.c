/* engine: passes each call to the store's engine.  See store/store.h. */
#include "store/engine.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>

#include "ground/clock.h"
#include "ground/file.h"
#include "ground/log.h"
#include "ground/metrics.h"

#define MODULE "postgresql.so"

static const struct engine *
engine_of(const void *object)
{
	return *(const struct engine *const *)object;
}

/* A module is never unloaded, so its tables stay valid. */
const void *
engine_symbol(const char *name, enum fault *fault)
{
	char path[PATH_MAX];
	void *module = file_beside_program("../lib/plant-store/" MODULE, path)
			   ? dlopen(path, RTLD_NOW | RTLD_LOCAL)
			   : NULL;
	const int *version =
	    module != NULL ? dlsym(module, ENGINE_SYMBOL) : NULL;
	const char *why = dlerror();

	if (version != NULL && *version == ENGINE_VERSION)
		return dlsym(module, name);
	*fault = FAULT_SETUP;
	if (version != NULL)
		log_error(MODULE ": does not have this program's version; "
				 "install the same version of both");
	else
		log_error("PLANT_STORE_DATABASE: cannot load the module: %s; "
			  "install the package plant-store-postgresql, or "
			  "build it with: make postgresql",
		    why != NULL ? why : "/proc is not mounted");
	return NULL;
}

struct store *
store_open(const struct store_options *options, enum fault *fault)
{
	const struct engine *engine = options->database == NULL
					  ? &engine_file
					  : engine_symbol(ENGINE_SYMBOL, fault);

	if (engine == NULL)
		return NULL;
	struct store *store = engine->open(options, fault);
	metrics[METRICS_FAILED] =
	    *fault == FAULT_DAMAGED || *fault == FAULT_FAILED;
	return store;
}

static void
count_results(const struct store_item *items, size_t n)
{
	uint64_t results[STORE_FAILED + 1] = { 0 };

	for (size_t i = 0; i < n; i++) {
		assert(items[i].result <= STORE_FAILED);
		results[items[i].result]++;
	}
	metrics_add(METRICS_CREATED, results[STORE_CREATED]);
	metrics_add(METRICS_REPEATED, results[STORE_SAME]);
	metrics_add(METRICS_CONFLICT, results[STORE_CONFLICT]);
	metrics_add(METRICS_BATCHES, 1);
	metrics_observe(METRICS_BATCH_PLANTS, n);
}

int
store_commit(struct store *store, struct store_item *items, size_t n)
{
	int64_t began_us = clock_us(CLOCK_MONOTONIC);
	int status = engine_of(store)->commit(store, items, n);

	metrics_observe(METRICS_COMMIT_US,
	    (uint64_t)(clock_us(CLOCK_MONOTONIC) - began_us));
	count_results(items, n);
	if (status < 0)
		metrics[METRICS_FAILED] = 1;
	return status;
}

enum store_result
store_ready(struct store *store)
{
	return engine_of(store)->ready(store);
}

void
store_wait(struct store *store)
{
	if (engine_of(store)->wait != NULL)
		engine_of(store)->wait(store);
}

int
store_idle(struct store *store)
{
	int status = 0;

	if (engine_of(store)->idle != NULL)
		status = engine_of(store)->idle(store);
	if (status < 0)
		metrics[METRICS_FAILED] = 1;
	return status;
}

void
store_close(struct store *store)
{
	if (store != NULL)
		engine_of(store)->close(store);
}
