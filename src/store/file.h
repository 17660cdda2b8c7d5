/*
 * file: the functions of the file engine; engine.h and store/store.h have their
 * contracts.
 */
#ifndef STORE_FILE_H
#define STORE_FILE_H

#include "store/engine.h"

/* commit.c */
struct store *file_open(const struct store_options *options, enum fault *fault);
int file_commit(struct store *store, struct store_item *items, size_t n,
    void (*answer)(void *argument), void *argument);
enum store_result file_ready(struct store *store);
void file_wait(struct store *store);
void file_idle(struct store *store);
void file_close(struct store *store);

/* file_reader.c */
struct store_reader *file_reader_open(
    const struct store_options *options, const char *since, enum fault *fault);
bool file_reader_next(struct store_reader *reader, struct record *record);
enum fault file_reader_end(struct store_reader *reader, char *where);
enum fault file_reader_find(
    struct store_reader *reader, int64_t id, struct record *record);
enum fault file_reader_figures(
    struct store_reader *reader, store_figure *each, void *context);
void file_reader_close(struct store_reader *reader);

#endif
