/*
 * commit: appends to the journal: the plants of a batch, or a closing line.  The
 * caller holds the lock.
 */
#ifndef STORE_COMMIT_H
#define STORE_COMMIT_H

#include "state.h"

/*
 * commit_items(store, items, n, tell, argument):
 * Store the plants in as few appends as their size allows, set each result, and
 * then call tell(argument): once, and before the index has the last of them.
 * Return the fault that ended it; FAULT_FULL is only in the results, since what
 * refers to stored plants may still pass.
 */
enum fault commit_items(struct store *store, struct store_item *items, size_t n,
    void (*tell)(void *argument), void *argument);

/*
 * commit_refuse(items, n, fault):
 * Set all results to what `fault` means to a client.
 */
void commit_refuse(struct store_item *items, size_t n, enum fault fault);

/*
 * commit_closing(store):
 * Put everything below the watermark with a closing line, unless that is done.
 * Return the fault that kept it from being seen whether it is done: logged.
 */
enum fault commit_closing(struct store *store);

#endif
