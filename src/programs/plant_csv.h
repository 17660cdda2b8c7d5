/*
 * plant_csv: a stored plant as a line of CSV.
 */
#ifndef PROGRAMS_PLANT_CSV_H
#define PROGRAMS_PLANT_CSV_H

#include <stdbool.h>
#include <stddef.h>

#define PLANT_CSV_HEADER "id,name,tag\r\n"

/* The longest line for a plant whose text is that long. */
#define PLANT_CSV_MAX(plant_len) (2 * (plant_len) + 32)

/*
 * plant_csv_print(plant, len, scratch, line, has_nul):
 * Write the line of a plant, given as its canonical JSON text, into `line`,
 * which has room for PLANT_CSV_MAX(len) bytes; `scratch` has room for `len`.
 * Values are exact: no tag is an empty field, an empty string "" in quotes.
 * `*has_nul` says whether a U+0000 is among them, which stands there as a byte
 * 0.  Return the line's length.
 */
size_t plant_csv_print(
    const char *plant, size_t len, char *scratch, char *line, bool *has_nul);

#endif
