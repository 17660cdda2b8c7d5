/*
 * index_build: sorted pairs of id and offset entered into an index.
 */
#ifndef STORE_INDEX_BUILD_H
#define STORE_INDEX_BUILD_H

#include <stdbool.h>
#include <stddef.h>

#include "ground/pairs.h"
#include "ground/watch.h"
#include "index.h"
#include "journal.h"

/*
 * index_twins(pairs, name):
 * Log the ids that stand twice in the journal `name`, the first ten with their
 * offsets.  How many records are not the first of their id.
 */
size_t index_twins(const struct pairs *pairs, const char *name);

/*
 * index_build(index, pairs, new, to, journal, watch):
 * Enter sorted pairs, of each id the first one, into an index in which a
 * transaction has begun, a `new` one or that of the journal, and commit it: it
 * then covers the journal up to `to`.  An id that the index has already is
 * logged as one that stands twice, if the journal has an earlier record of it.
 * `watch` may be NULL; ECANCELED if it ends the work.  0; -1 with errno,
 * EBADMSG if the index is wrong, and a new one is to be discarded.
 */
int index_build(struct index *index, const struct pairs *pairs, bool new,
    const struct position *to, struct journal *journal,
    const struct watch *watch);

#endif
