/*
 * lab: a store's directory in memory, whose files a fault test takes down and
 * puts back byte by byte.
 *
 * What cannot be done here ends the program with a message: the tests are for
 * what the store does, not for what the machine does.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plant/plant.h"
#include "pure/record.h"
#include "store/store.h"

#define JOURNAL_NAME "plants.jsonl"
#define END_NAME JOURNAL_NAME ".end"

struct lab {
	char path[64];
	int dir;
	int log;    /* what the store says, instead of stderr */
	int report; /* stderr as it was */
};

/* lab_open(lab), lab_close(lab): Make the directory; remove it. */
void lab_open(struct lab *lab);
void lab_close(struct lab *lab);

/* lab_renew(lab): Remove all files, and make a new store. */
void lab_renew(const struct lab *lab);

/* lab_die(format, ...): Say why the test cannot go on, and exit. */
_Noreturn void lab_die(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* The last line that the store logged since the last call; "" if none. */
const char *lab_logged(const struct lab *lab);

/* Bytes of a file, from malloc. */
struct bytes {
	char *at;
	size_t len;
};

/* Whole files by their names; NULL for one that is missing, or shall be. */
struct bytes lab_read(const struct lab *lab, const char *name);
void lab_write(
    const struct lab *lab, const char *name, const char *at, size_t len);

/*
 * lab_open_store(lab, long_lived):
 * The store, or NULL with the fault.
 */
struct store *lab_open_store(
    const struct lab *lab, bool long_lived, enum fault *fault);

/* lab_open_good_store(lab, long_lived): The store, or the end of the test. */
struct store *lab_open_good_store(const struct lab *lab, bool long_lived);

/*
 * lab_say(count, sentence):
 * Print whether the sentence holds: nothing that contradicts it was counted.
 */
void lab_say(uint64_t count, const char *sentence);

/*
 * lab_plant(id):
 * A plant whose name follows from its id; free its text.
 */
struct plant lab_plant(int64_t id);

/*
 * lab_commit(store, id, n):
 * Store the plants id to id + n - 1 as one batch, all of which must be new.
 */
void lab_commit(struct store *store, int64_t id, size_t n);

/*
 * lab_put(store, plant):
 * Store one, and give the result.
 */
enum store_result lab_put(struct store *store, const struct plant *plant);

/*
 * lab_line(bytes, at, record):
 * The record whose line begins at that offset; the offset behind it.
 */
size_t lab_line(const struct bytes *journal, size_t at, struct record *record);

/*
 * lab_take_index(lab), lab_put_index(lab, image), lab_free_index(image):
 * The files of the index as they are now, to be put back later, as an index
 * of which the files are its own.  NULL: none.
 */
struct lab_index;
struct lab_index *lab_take_index(const struct lab *lab);
void lab_put_index(const struct lab *lab, const struct lab_index *image);
void lab_free_index(struct lab_index *image);
