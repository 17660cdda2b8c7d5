/*
 * import_plant: what stands in a line of an import into a plant, or why not, in
 * the interface's own words.
 */
#ifndef PROGRAMS_IMPORT_PLANT_H
#define PROGRAMS_IMPORT_PLANT_H

#include <stddef.h>

#include "http/response.h"
#include "plant/plant.h"
#include "pure/csv.h"

/* id, name, tag */
#define IMPORT_COLUMNS_MAX 3

struct import_plant {
	size_t bytes_max; /* of a plant, as JSON */
	char *json;       /* a record as JSON */
	char why[RESPONSE_HEAD_MAX];
};

/*
 * import_plant_init(import, bytes_max), import_plant_done(import):
 * 0, or -1 if there is no memory for it.  A zeroed one is fine to be done.
 */
int import_plant_init(struct import_plant *import, size_t bytes_max);
void import_plant_done(struct import_plant *import);

/* 0; IMPORT_PLANT_REFUSED with import->why; IMPORT_PLANT_NO_MEMORY. */
enum { IMPORT_PLANT_REFUSED = 1, IMPORT_PLANT_NO_MEMORY };

/*
 * import_plant_json(import, text, len, plant):
 * The plant of a line, without its line break.
 *
 * import_plant_csv(import, fields, n, plant):
 * The plant of a record with `n` fields, two or three.  An empty field without
 * quotes is no value.
 *
 * On 0 the caller owns `plant`.
 */
int import_plant_json(struct import_plant *import, const char *text, size_t len,
    struct plant *plant);
int import_plant_csv(struct import_plant *import,
    const struct csv_field *fields, size_t n, struct plant *plant);

/*
 * import_plant_too_large(import), import_plant_bad_csv(import, reason):
 * Refuse what has no plant: a line too long to be looked at, or a record that
 * is none.
 */
int import_plant_too_large(struct import_plant *import);
int import_plant_bad_csv(struct import_plant *import, const char *reason);

#endif
