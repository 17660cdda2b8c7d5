/*
 * engine: what stands behind store.h.
 *
 * An engine is a table of functions.  Each keeps the promise of the function of
 * store.h with its name.  engine.c calls them, and
 * counts the results of commits.  The file engine is part of the programs.
 * PostgreSQL is a module, which exports its table as ENGINE_SYMBOL and is used
 * when options->database is set.
 *
 * An engine defines its own struct store and struct store_reader; both begin
 * with the pointer to its table.
 */
#ifndef STORE_ENGINE_H
#define STORE_ENGINE_H

#include "store/store.h"

#define ENGINE_SYMBOL "store_engine"
/* Changed with this table or with a struct that crosses it. */
#define ENGINE_VERSION 2

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
	struct store_reader *(*reader_open)(const struct store_options *options,
	    const char *since, enum fault *fault);
	bool (*reader_next)(struct store_reader *reader, struct record *record);
	enum fault (*reader_end)(struct store_reader *reader, char *where);
	enum fault (*reader_find)(
	    struct store_reader *reader, int64_t id, struct record *record);
	enum fault (*reader_figures)(
	    struct store_reader *reader, store_figure *each, void *context);
	void (*reader_close)(struct store_reader *reader);
	enum fault (*reader_resume)(
	    struct store_reader *reader, const char *cursor);
	void (*reader_cursor)(
	    struct store_reader *reader, bool before, char *cursor);
	enum fault (*reader_more)(struct store_reader *reader);
	/* The SQL of `plant-store schema`; NULL: none. */
	const char *schema[STORE_SCHEMAS];
};

extern const struct engine engine_file;

#endif
