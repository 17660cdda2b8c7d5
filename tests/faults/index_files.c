/* index_files: images of the real index, its files.  See lab.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab.h"

#define DATA_NAME "index/data.mdb"
#define CLEAN_NAME "index/clean"

const char index_image_kind[] = "LMDB";

struct index_image {
	struct bytes data;
};

struct index_image *
index_image_take(const struct lab *lab)
{
	struct index_image *image = calloc(1, sizeof(*image));

	if (image == NULL)
		lab_die("out of memory");
	image->data = lab_read(lab, DATA_NAME);
	if (image->data.at == NULL)
		lab_die("there is no index");
	return image;
}

/* A new file each time: the old one may be mapped still. */
void
index_image_put(const struct lab *lab, const struct index_image *image)
{
	unlinkat(lab->dir, CLEAN_NAME, 0);
	if (unlinkat(lab->dir, DATA_NAME, 0) < 0 && errno != ENOENT)
		lab_die("%s: %s", DATA_NAME, strerror(errno));
	if (image == NULL)
		return;
	mkdirat(lab->dir, "index", 0700);
	lab_write(lab, DATA_NAME, image->data.at, image->data.len);
}

void
index_image_free(struct index_image *image)
{
	if (image == NULL)
		return;
	free(image->data.at);
	free(image);
}
