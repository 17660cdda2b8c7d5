/*
 * engine: the interface of the storage engines behind store.h.
 *
 * An engine is a table of functions.  Each has the contract of its namesake in
 * store.h.  engine.c calls them, and counts the results of commits.  The file
 * engine is part of the programs.  The PostgreSQL engine is a module that
 * exports its table as ENGINE_SYMBOL and is used if options->database is set.
 * Each engine's struct store begins with a pointer to its table.
 */
#pragma once

#include "store/store.h"

#define ENGINE_SYMBOL "store_engine"
/* Increment it if this table, reader.h's or a struct that they pass changes. */
#define ENGINE_VERSION 8

struct engine {
	int version; /* ENGINE_VERSION; first in every version */
	struct store *(*open)(
	    const struct store_options *options, enum fault *fault);
	int (*commit)(struct store *store, struct store_item *items, size_t n);
	enum store_result (*ready)(struct store *store);
	void (*wait)(struct store *store); /* or NULL */
	int (*idle)(struct store *store);  /* or NULL */
	void (*close)(struct store *store);
};

extern const struct engine engine_file;

/*
 * engine_symbol(name, fault):
 * Return the table that the module exports as `name`; or NULL, with
 * FAULT_SETUP, logged, if the module cannot be loaded or has another version.
 */
const void *engine_symbol(const char *name, enum fault *fault);
