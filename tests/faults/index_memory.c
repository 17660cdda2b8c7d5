/*
 * index_memory: in the place of the real index one that is a table in memory,
 * so that a million recoveries take a minute.  All else of the store is real.
 *
 * It behaves as index.h says: what is put is there once it is committed, and
 * stays from one opening to the next unless it is discarded.
 */
#include "index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"

#define PLANTS_MAX 1024

const char index_image_kind[] = "in memory";

struct index_image {
	bool exists;
	struct position covered;
	size_t n;
	int64_t ids[PLANTS_MAX];
	uint64_t offsets[PLANTS_MAX];
};

struct index {
	size_t n; /* with what the running transaction has put */
};

static struct index_image now;
static struct index opened;

struct index *
index_open(int dir, const char *path, const char uuid[static RECORD_UUID_LEN])
{
	(void)dir;
	(void)path;
	(void)uuid;
	if (!now.exists || now.covered.end == 0) {
		now.n = 0;
		memset(&now.covered, 0, sizeof(now.covered));
	}
	now.exists = true;
	opened.n = now.n;
	return &opened;
}

int
index_begin(struct index *index, struct position *covered)
{
	index->n = now.n;
	*covered = now.covered;
	return 0;
}

enum index_put
index_put(struct index *index, int64_t id, uint64_t offset, uint64_t *found)
{
	for (size_t i = 0; i < index->n; i++)
		if (now.ids[i] == id) {
			*found = now.offsets[i];
			return INDEX_FOUND;
		}
	if (index->n == PLANTS_MAX)
		lab_die("more plants than the index in memory takes");
	now.ids[index->n] = id;
	now.offsets[index->n++] = offset;
	return INDEX_NEW;
}

int
index_commit(struct index *index, const struct position *covered)
{
	now.n = index->n;
	now.covered = *covered;
	return 0;
}

int
index_commit_part(struct index *index)
{
	now.n = index->n;
	return 0;
}

void
index_abort(struct index *index)
{
	index->n = now.n;
}

int
index_refresh(struct index *index, const char *path)
{
	(void)index;
	(void)path;
	return 0;
}

void
index_close(struct index *index, bool clean)
{
	(void)clean;
	if (index != NULL)
		index_abort(index);
}

void
index_discard(int dir)
{
	(void)dir;
	now.exists = false;
}

void
index_condemn(const struct index *index)
{
	(void)index;
	now.exists = false;
}

struct index_image *
index_image_take(const struct lab *lab)
{
	struct index_image *image = malloc(sizeof(*image));

	(void)lab;
	if (image == NULL)
		lab_die("out of memory");
	*image = now;
	return image;
}

void
index_image_put(const struct lab *lab, const struct index_image *image)
{
	(void)lab;
	now.exists = image != NULL;
	if (image == NULL)
		return;
	now.n = image->n;
	now.covered = image->covered;
	memcpy(now.ids, image->ids, image->n * sizeof(now.ids[0]));
	memcpy(now.offsets, image->offsets, image->n * sizeof(now.offsets[0]));
}

void
index_image_free(struct index_image *image)
{
	free(image);
}
