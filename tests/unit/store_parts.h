/*
 * store_parts: what the unit tests' fixture, power_cut.c and a fuzz
 * target share.  A function that cannot do its part aborts.
 */
#pragma once

#include <stdint.h>

#include "plant/plant.h"

/*
 * parts_plant(id, name, tag):
 * A plant of these strings, as they stand in its JSON; `tag` may be NULL.  Give
 * it back with plant_done.
 */
struct plant parts_plant(int64_t id, const char *name, const char *tag);

/*
 * parts_empty(parent, name):
 * Remove all files of the directory `name` below `parent` but those that begin
 * with a dot.  Nothing if there is no such directory.
 */
void parts_empty(int parent, const char *name);
