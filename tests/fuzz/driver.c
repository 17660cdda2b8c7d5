/*
 * driver: runs a fuzz target with each named file, and with each file of the
 * named folders, in a build without libFuzzer, such as one that measures
 * coverage.
 */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>

static int
run_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = NULL;
	size_t size = 0;
	long end;

	if (file == NULL || fseek(file, 0, SEEK_END) != 0 ||
	    (end = ftell(file)) < 0)
		goto fail;
	rewind(file);
	/* Of exactly this size, so that a sanitizer sees its end. */
	size = (size_t)end;
	data = malloc(size == 0 ? 1 : size);
	if (data == NULL || fread(data, 1, size, file) != size)
		goto fail;
	fclose(file);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	return 0;

fail:
	perror(path);
	if (file != NULL)
		fclose(file);
	free(data);
	return -1;
}

static int
run_path(const char *path, size_t *count)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	int result = 0;

	if (folder == NULL) {
		++*count;
		return run_file(path);
	}
	while (result == 0 && (entry = readdir(folder)) != NULL) {
		char name[4096];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		++*count;
		result = run_file(name);
	}
	closedir(folder);
	return result;
}

int
main(int argc, char **argv)
{
	size_t count = 0;

	for (int i = 1; i < argc; i++)
		if (run_path(argv[i], &count) != 0)
			return EXIT_FAILURE;
	printf("%zu inputs\n", count);
	return count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
