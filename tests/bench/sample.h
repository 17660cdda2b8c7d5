/*
 * sample: the plants that measurements store, and what else they share.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "plant/plant.h"
#include "store/store.h"

/* The token's name that they are stored with. */
#define SAMPLE_BY "nursery-1"

struct sample {
	struct plant plant; /* its text is the one below */
	char text[96];      /* ends with a NUL */
};

/*
 * sample_make(sample, i):
 * Plant number `i`: some 60 bytes of JSON, with an id of its own for each `i`.
 * `sample` must not be moved.
 */
void sample_make(struct sample *sample, uint64_t i);

/*
 * sample_open_store(dir):
 * The store in the directory `dir`, as a long lived process opens it; ends the
 * program if it cannot be opened.
 */
struct store *sample_open_store(const char *dir);

/*
 * sample_now_ns():
 * Nanoseconds that only mean something against each other.
 */
int64_t sample_now_ns(void);
