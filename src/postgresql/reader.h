/*
 * reader: the functions of the engine that read; engine.h and store/store.h
 * have their contracts.
 */
#ifndef POSTGRESQL_READER_H
#define POSTGRESQL_READER_H

#include "store/engine.h"

/* postgresql.c: the table, which is all that the module exports. */
extern const struct engine store_engine __attribute__((visibility("default")));

struct store_reader *reader_open(
    const struct store_options *options, const char *since, enum fault *fault);
bool reader_next(struct store_reader *reader, struct record *record);
enum fault reader_end(struct store_reader *reader, char *where);
enum fault reader_find(
    struct store_reader *reader, int64_t id, struct record *record);
enum fault reader_figures(
    struct store_reader *reader, store_figure *each, void *context);
void reader_close(struct store_reader *reader);

#endif
