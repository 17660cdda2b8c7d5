/*
 * driver: runs a fuzz target in a build without libFuzzer, such as gcc's with
 * sanitizers: with each named file, with each file of the named folders, and with
 * MUTANTS changes of these, the same each time.
 *
 * usage: fuzz_TARGET [-m MUTANTS] PATH...
 */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>

#define FILES_MAX 1024
#define SIZE_MAX_MUTANT ((size_t)1 << 16)

static struct {
	uint8_t *data;
	size_t size;
} files[FILES_MAX];
static size_t files_len;

/* From 0 to below `limit`, which is not 0. */
static size_t
below(size_t limit)
{
	static uint64_t state = 1;

	state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (state >> 33) % limit;
}

/* In memory of exactly this size, so that a sanitizer sees its end. */
static void
run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size);

	REQUIRE(copy != NULL || size == 0);
	if (size > 0)
		memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void
add_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = malloc(SIZE_MAX_MUTANT);

	if (file == NULL || data == NULL || files_len == FILES_MAX) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	files[files_len].data = data;
	files[files_len++].size = fread(data, 1, SIZE_MAX_MUTANT, file);
	fclose(file);
}

static int
is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void
add_path(const char *path)
{
	struct dirent **entries;
	int n = scandir(path, &entries, is_visible, alphasort);

	if (n < 0)
		add_file(path);
	for (int i = 0; i < n; i++) {
		char name[4096];

		snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
		add_file(name);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

/* Replace some bytes by none, by another, by themselves or by another file's. */
static size_t
change(uint8_t *data, size_t size)
{
	static uint8_t rest[SIZE_MAX_MUTANT];
	const size_t other = below(files_len), at = below(size + 1);
	const size_t gone = below(size - at + 1) % (1 + below(8));
	const size_t left = size - at - gone;
	const uint8_t byte = (uint8_t)below(256), *from = &byte;
	size_t begin, n = 0;

	memcpy(rest, data + at, size - at);
	switch (below(4)) {
	case 0:
		break;
	case 1:
		n = 1;
		break;
	case 2:
		from = rest;
		n = 2 * gone <= size - at ? 2 * gone : size - at;
		break;
	default:
		begin = below(files[other].size + 1);
		from = files[other].data + begin;
		n = below(files[other].size - begin + 1) % (1 + below(64));
	}
	if (at + n + left > SIZE_MAX_MUTANT)
		return size;
	memcpy(data + at, from, n);
	memcpy(data + at + n, rest + gone, left);
	return at + n + left;
}

int
main(int argc, char **argv)
{
	static uint8_t data[SIZE_MAX_MUTANT];
	long mutants = 0;

	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "-m") == 0 && i + 1 < argc)
			mutants = strtol(argv[++i], NULL, 10);
		else
			add_path(argv[i]);
	if (files_len == 0)
		return EXIT_FAILURE;
	for (size_t i = 0; i < files_len; i++)
		run(files[i].data, files[i].size);
	for (long i = 0; i < mutants; i++) {
		size_t from = below(files_len), size = files[from].size;

		memcpy(data, files[from].data, size);
		for (size_t changes = 1 + below(3); changes > 0; changes--)
			size = change(data, size);
		run(data, size);
	}
	for (size_t i = 0; i < files_len; i++)
		free(files[i].data);
	printf("ok - %zu inputs, %ld changed ones\n", files_len, mutants);
	return EXIT_SUCCESS;
}
