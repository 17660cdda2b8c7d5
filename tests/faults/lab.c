/* lab: stores in memory, made by the store's own code.  See lab.h. */
#include "lab.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ground/file.h"
#include "pure/crc32c.h"
#include "store/journal.h"
#include "store_parts.h"

#define INDEX_FILES_MAX 24

struct lab_index {
	size_t n;
	struct {
		char name[280];
		struct bytes bytes;
	} files[INDEX_FILES_MAX];
};

static int report_fd = STDERR_FILENO;

_Noreturn void
lab_die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vdprintf(report_fd, format, arguments);
	va_end(arguments);
	dprintf(report_fd, "\n");
	_exit(70); /* EX_SOFTWARE */
}

void
lab_open(struct lab *lab)
{
	const char *tmp = getenv("TMPDIR");

	/* Memory, unless told otherwise: millions of files are made. */
	if (tmp == NULL || strlen(tmp) > 40)
		tmp = "/dev/shm";
	snprintf(lab->path, sizeof(lab->path), "%s/store.XXXXXX", tmp);
	if (mkdtemp(lab->path) == NULL)
		lab_die("%s: %s", lab->path, strerror(errno));
	lab->dir = open(lab->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lab->log = memfd_create("log", MFD_CLOEXEC);
	report_fd = lab->report = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (lab->dir < 0 || lab->log < 0 || report_fd < 0 ||
	    fcntl(lab->log, F_SETFL, O_APPEND) < 0 ||
	    dup2(lab->log, STDERR_FILENO) < 0)
		lab_die("cannot set up: %s", strerror(errno));
}

void
lab_renew(const struct lab *lab)
{
	parts_empty(AT_FDCWD, lab->path);
	if (store_init(lab->path) != FAULT_NONE)
		lab_die("cannot make a store: %s", lab_logged(lab));
}

void
lab_close(struct lab *lab)
{
	parts_empty(AT_FDCWD, lab->path);
	rmdir(lab->path);
	dup2(report_fd, STDERR_FILENO);
	close(report_fd);
	report_fd = STDERR_FILENO;
	close(lab->log);
	close(lab->dir);
}

const char *
lab_logged(const struct lab *lab)
{
	static char text[4096];
	ssize_t n = pread(lab->log, text, sizeof(text) - 1, 0);

	if (n <= 0 || ftruncate(lab->log, 0) < 0)
		return "";
	text[n] = '\0';
	if (text[n - 1] == '\n')
		text[n - 1] = '\0';
	char *last = strrchr(text, '\n');
	return last == NULL ? text : last + 1;
}

struct bytes
lab_read(const struct lab *lab, const char *name)
{
	struct bytes bytes = { 0 };
	struct stat st;
	int fd = openat(lab->dir, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return bytes;
	if (fstat(fd, &st) < 0)
		lab_die("%s: %s", name, strerror(errno));
	bytes.len = (size_t)st.st_size;
	bytes.at = malloc(bytes.len + 1);
	if (bytes.at == NULL ||
	    pread(fd, bytes.at, bytes.len, 0) != (ssize_t)bytes.len)
		lab_die("%s: cannot read", name);
	close(fd);
	return bytes;
}

void
lab_write(const struct lab *lab, const char *name, const char *at, size_t len)
{
	int fd;

	if (at == NULL) {
		unlinkat(lab->dir, name, 0);
		return;
	}
	fd = openat(lab->dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || pwrite(fd, at, len, 0) != (ssize_t)len ||
	    ftruncate(fd, (off_t)len) < 0)
		lab_die("%s: %s", name, strerror(errno));
	close(fd);
}

struct store *
lab_open_store(const struct lab *lab, bool long_lived, enum fault *fault)
{
	struct store_options options = { .dir = lab->path,
		.long_lived = long_lived };

	return store_open(&options, fault);
}

struct store *
lab_open_good_store(const struct lab *lab, bool long_lived)
{
	enum fault fault;
	struct store *store = lab_open_store(lab, long_lived, &fault);

	if (store == NULL)
		lab_die("a good store does not open: %s", lab_logged(lab));
	return store;
}

void
lab_say(uint64_t count, const char *sentence)
{
	printf("%s - %s", count == 0 ? "ok" : "not ok", sentence);
	if (count > 0)
		printf(": %" PRIu64, count);
	printf("\n");
}

/* Names of 8 to some 110 bytes, so that lines end anywhere in a sector. */
struct plant
lab_plant(int64_t id)
{
	char name[160];
	int fill = (int)((uint64_t)id * 2654435761u >> 7 & 0x7fffffff) % 100;

	snprintf(name, sizeof(name), "plant %" PRId64 " %.*s", id, fill,
	    "ffffffffffffffffffffffffffffffffffffffffffffffffff"
	    "gggggggggggggggggggggggggggggggggggggggggggggggggg");
	return parts_plant(id, name, id % 3 == 0 ? "\xc3\xa9" : NULL);
}

void
lab_commit(struct store *store, int64_t id, size_t n)
{
	struct plant *plants = calloc(n, sizeof(*plants));
	struct store_item *items = calloc(n, sizeof(*items));

	if (plants == NULL || items == NULL)
		lab_die("out of memory");
	for (size_t i = 0; i < n; i++) {
		plants[i] = lab_plant(id + (int64_t)i);
		items[i] =
		    (struct store_item){ .plant = &plants[i], .by = "tester" };
	}
	if (store_commit(store, items, n) < 0)
		lab_die("cannot store %zu plants", n);
	for (size_t i = 0; i < n; i++) {
		if (items[i].result != STORE_CREATED)
			lab_die("plant %" PRId64 ": result %d", plants[i].id,
			    (int)items[i].result);
		plant_done(&plants[i]);
	}
	free(plants);
	free(items);
}

enum store_result
lab_put(struct store *store, const struct plant *plant)
{
	struct store_item item = { .plant = plant, .by = "tester" };

	store_commit(store, &item, 1);
	return item.result;
}

size_t
lab_line(const struct bytes *journal, size_t at, struct record *record)
{
	const char *line = journal->at + at;
	const char *newline = memchr(line, '\n', journal->len - at);
	char uuid[RECORD_UUID_LEN];
	uint32_t crc;

	if (newline == NULL ||
	    record_header_decode(journal->at, journal->len, uuid, &crc) !=
		RECORD_HEADER_OK ||
	    record_decode(line, (size_t)(newline + 1 - line), record_seed(uuid),
		record) != NULL)
		lab_die("no line at byte %zu", at);
	return (size_t)(newline + 1 - journal->at);
}

struct lab_index *
lab_take_index(const struct lab *lab)
{
	struct lab_index *image = calloc(1, sizeof(*image));
	int fd = openat(lab->dir, INDEX_NAME, O_RDONLY | O_DIRECTORY);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (image == NULL || dir == NULL)
		lab_die("there is no index");
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		if (image->n == INDEX_FILES_MAX)
			lab_die("the index has too many files");
		snprintf(image->files[image->n].name,
		    sizeof(image->files[0].name), INDEX_NAME "/%s",
		    entry->d_name);
		image->files[image->n].bytes =
		    lab_read(lab, image->files[image->n].name);
		image->n++;
	}
	closedir(dir);
	return image;
}

/* Write what identifies `name` at the offset `at` of the manifest. */
static void
put_identity(const struct lab *lab, char *manifest, size_t at, const char *name)
{
	char file[FILE_ID_LEN + 1];
	int fd = openat(lab->dir, name, O_RDONLY);

	if (fd < 0 || file_identify(fd, file) < 0)
		lab_die("there is no %s", name);
	close(fd);
	memcpy(manifest + at, file, sizeof(file));
}

/* The manifest names its own file and those of the runs, which are new. */
static void
own_files(const struct lab *lab)
{
	/* See struct manifest in src/store/index.c. */
	enum {
		FILE_AT = 48,
		RUNS_AT = 128,
		RUN_LEN = 80,
		RUN_FILE_AT = 32,
		RUNS_MAX = 16,
		CRC_AT = RUNS_AT + RUNS_MAX * RUN_LEN
	};
	const char *name = INDEX_NAME "/manifest";
	struct bytes manifest = lab_read(lab, name);
	uint32_t n, crc;
	uint64_t number;
	char run[64];

	if (manifest.len != CRC_AT + 8)
		lab_die("the manifest has another form");
	memcpy(&n, manifest.at + sizeof(n), sizeof(n));
	put_identity(lab, manifest.at, FILE_AT, name);
	for (size_t at = RUNS_AT; n > 0; n--, at += RUN_LEN) {
		memcpy(&number, manifest.at + at, sizeof(number));
		snprintf(run, sizeof(run), INDEX_NAME "/run-%" PRIu64, number);
		put_identity(lab, manifest.at, at + RUN_FILE_AT, run);
	}
	crc = crc32c(0, manifest.at, CRC_AT);
	memcpy(manifest.at + CRC_AT, &crc, sizeof(crc));
	/* In place: it stays the same file. */
	int fd = openat(lab->dir, name, O_WRONLY);
	if (fd < 0 ||
	    pwrite(fd, manifest.at, manifest.len, 0) != (ssize_t)manifest.len)
		lab_die("cannot write the manifest");
	close(fd);
	free(manifest.at);
}

/* New files each time: the old ones may be mapped still. */
void
lab_put_index(const struct lab *lab, const struct lab_index *image)
{
	parts_empty(lab->dir, INDEX_NAME);
	if (image == NULL)
		return;
	mkdirat(lab->dir, INDEX_NAME, 0700);
	for (size_t i = 0; i < image->n; i++)
		lab_write(lab, image->files[i].name, image->files[i].bytes.at,
		    image->files[i].bytes.len);
	own_files(lab);
}

void
lab_free_index(struct lab_index *image)
{
	for (size_t i = 0; image != NULL && i < image->n; i++)
		free(image->files[i].bytes.at);
	free(image);
}
