/*
 * engine: what stands behind store.h.
 *
 * An engine is a table of functions.  Each keeps the promise of the function of
 * store.h with its name.  engine.c calls them, and counts the results of
 * commits.  The file engine is part of the programs.  PostgreSQL is a module,
 * which exports its table as ENGINE_SYMBOL and is used when options->database
 * is set.  An engine's own struct store begins with the pointer to its table.
 */
#ifndef STORE_ENGINE_H
#define STORE_ENGINE_H

#include "store/store.h"

#define ENGINE_SYMBOL "store_engine"
/* Changed with this table or with a struct that crosses it. */
#define ENGINE_VERSION 3

struct engine {
	int version; /* ENGINE_VERSION; first in every version */
	struct store *(*open)(
	    const struct store_options *options, enum fault *fault);
	int (*commit)(struct store *store, struct store_item *items, size_t n);
	enum store_result (*ready)(struct store *store);
	void (*finish)(struct store *store); /* these may be NULL */
	void (*wait)(struct store *store);
	void (*idle)(struct store *store);
	void (*close)(struct store *store);
};

extern const struct engine engine_file;

/*
 * engine_symbol(name, fault):
 * A table that the module of the same version exports; or NULL, logged.
 */
const void *engine_symbol(const char *name, enum fault *fault);

#endif
