/*
 * index_build: see index_build.h.
 *
 * Sorted ids are entered at the end of LMDB's tree: no search, and full pages.
 * 10 million plants take 1.9 s to enter, 26 bytes each.
 */
#include "index_build.h"

#include <errno.h>
#include <inttypes.h>

#include "ground/log.h"

/*
 * Entered in order by one transaction, whose pages LMDB keeps in memory until
 * the index is closed: 26 bytes a plant.
 */
#define COMMIT_PAIRS ((size_t)128 << 10)
/* The index in use is behind by no more than what one append has held. */
#define BEHIND_PAIRS_MAX ((size_t)64 << 10)
#define STEP_PAIRS ((size_t)16 << 10)

/* Ids that stand twice: this many are logged, the others are counted. */
#define TWINS_LOGGED 10

/* `nth`: which of them it is, from 0. */
static void
log_twin(
    const char *name, size_t nth, int64_t id, uint64_t first, uint64_t offset)
{
	if (nth < TWINS_LOGGED)
		log_error("%s: the plant %" PRId64 " stands twice, at the "
			  "bytes %" PRIu64 " and %" PRIu64 ": the first "
			  "counts; to take the others out: plant-store recover",
		    name, id, first, offset);
	else if (nth == TWINS_LOGGED)
		log_error(
		    "%s: more plants stand twice; verify counts them", name);
}

size_t
index_twins(const struct pairs *pairs, const char *name)
{
	const struct pair *map = pairs->map;
	size_t twins = 0;

	for (size_t i = 1, first = 0; i < pairs->n; i++)
		if (map[i].key != map[first].key)
			first = i;
		else
			log_twin(name, twins++, map[i].key, map[first].value,
			    map[i].value);
	return twins;
}

static int
fail(int error)
{
	errno = error;
	return -1;
}

int
index_build(struct index *index, const struct pairs *pairs, bool new,
    const struct position *to, struct journal *journal,
    const struct watch *watch)
{
	static const struct position none;
	struct position covered;
	uint64_t found = 0;
	size_t twins = 0;

	if (!new && pairs->n > BEHIND_PAIRS_MAX)
		return fail(EBADMSG);
	for (size_t i = 0; i < pairs->n; i++) {
		const struct pair *pair = &pairs->map[i];
		enum index_result result = INDEX_FOUND;

		if (!new)
			result =
			    index_put(index, pair->key, pair->value, &found);
		else if (i == 0 || pair->key != pair[-1].key) {
			found = pair->value;
			result = index_append(index, pair->key, found);
		}
		if (result == INDEX_ERROR)
			return -1;
		if (result == INDEX_FOUND && !new &&
		    (found >= pair->value ||
			!journal_has_plant(journal, found, pair->key)))
			return fail(EBADMSG);
		if (result == INDEX_FOUND)
			log_twin(journal->name, twins++, pair->key, found,
			    pair->value);
		if ((i + 1) % STEP_PAIRS == 0 &&
		    !watch_step(watch, i + 1, pairs->n))
			return fail(ECANCELED);
		if ((i + 1) % COMMIT_PAIRS == 0 &&
		    (index_commit(index, &none) < 0 ||
			index_begin(index, &covered) < 0))
			return -1;
	}
	return index_commit(index, to);
}
