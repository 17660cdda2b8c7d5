/* store_parts: plants, and directories emptied.  See store_parts.h. */
#include "store_parts.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct plant
parts_plant(int64_t id, const char *name, const char *tag)
{
	struct plant plant = { .id = id };
	int len =
	    asprintf(&plant.text, "{\"id\":%" PRId64 ",\"name\":\"%s\"%s%s%s}",
		id, name, tag == NULL ? "" : ",\"tag\":\"",
		tag == NULL ? "" : tag, tag == NULL ? "" : "\"");

	if (len < 0)
		abort();
	plant.len = (size_t)len;
	return plant;
}

void
parts_empty(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.' &&
		    unlinkat(fd, entry->d_name, 0) < 0) {
			parts_empty(fd, entry->d_name);
			unlinkat(fd, entry->d_name, AT_REMOVEDIR);
		}
	closedir(dir);
}
