/* salvage_source: see salvage_source.h. */
#include "salvage_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "ground/log.h"
#include "index.h"
#include "journal.h"
#include "lock.h"
#include "reader_state.h"

/* `dir` is the store's directory, -1 for a file. */
static int
open_journal(struct salvage_source *source, const char *path, int *dir)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	*dir = -1;
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		*dir = fd;
		fd = openat(*dir, JOURNAL_NAME, O_RDONLY | O_CLOEXEC);
	}
	source->fd = fd;
	if (fd < 0 || fstat(fd, &st) < 0)
		return reader_error(path, *dir >= 0
					      ? "cannot open its " JOURNAL_NAME
					      : "cannot open");
	if (!S_ISREG(st.st_mode)) {
		log_error("%s: is no file; name a store's directory or a "
			  "journal",
		    path);
		return EX_NOINPUT;
	}
	source->bytes = (uint64_t)st.st_size;
	return EX_OK;
}

/* Whether these characters could stand in a header. */
static bool
is_uuid(const char *text)
{
	char header[RECORD_HEADER_LEN], uuid[RECORD_UUID_LEN];
	uint32_t crc;

	record_header_encode(text, header);
	return record_header_decode(header, sizeof(header), uuid, &crc) ==
	       RECORD_HEADER_OK;
}

static bool
read_lock_uuid(int dir, char *uuid)
{
	struct lock lock = { .dir = dir };
	enum lock_mark mark = LOCK_NEW;

	if (dir < 0)
		return false;
	lock.fd = openat(dir, "lock", O_RDONLY | O_CLOEXEC);
	if (lock.fd < 0)
		return false;
	mark = lock_mark(&lock, uuid);
	close(lock.fd);
	return (mark == LOCK_OK || mark == LOCK_FAILED) && is_uuid(uuid);
}

/* Whose records these are; `given` is what the caller knows, or NULL. */
static int
find_uuid(
    struct salvage_source *source, const char *path, int dir, const char *given)
{
	char header[RECORD_HEADER_LEN], *uuid = source->uuid;
	uint32_t crc;
	ssize_t n = pread(source->fd, header, sizeof(header), 0);
	enum record_header found =
	    record_header_decode(header, n < 0 ? 0 : (size_t)n, uuid, &crc);

	source->whole = found == RECORD_HEADER_OK;
	uuid[RECORD_UUID_LEN] = '\0';
	if (given != NULL) {
		if (strlen(given) != RECORD_UUID_LEN || !is_uuid(given)) {
			log_error("%s: no store's uuid, which is 36 of 0-9 "
				  "a-f and -",
			    given);
			return EX_USAGE;
		}
		if (source->whole &&
		    memcmp(uuid, given, RECORD_UUID_LEN) != 0) {
			log_error("%s: is of the store %s, as its first line "
				  "says; leave --store away",
			    path, uuid);
			return EX_USAGE;
		}
		memcpy(uuid, given, RECORD_UUID_LEN);
		return EX_OK;
	}
	if (found == RECORD_HEADER_VERSION) {
		log_error("%s: of a version that this program does not know; "
			  "use the program that wrote it; if only its first "
			  "line is damaged, give the store's uuid with --store",
		    path);
		return EX_CONFIG;
	}
	if (source->whole || read_lock_uuid(dir, uuid))
		return EX_OK;
	log_error("%s: its first line is damaged, which has the uuid that "
		  "every checksum needs; give it with --store: it stands in "
		  "the file `lock` beside the journal, and in the first line "
		  "of a backup",
	    path);
	return EX_DATAERR;
}

/* The child's part: whatever reading a damaged index does, it does here. */
static _Noreturn void
tell_covered(int dir, const char *path, const char *uuid, int to)
{
	struct position covered;
	uint64_t lines = 0;

	close(STDERR_FILENO);
	struct index *index = index_open_reader(dir, path, uuid);
	if (index != NULL && index_begin(index, &covered) == 0)
		lines = covered.seq;
	_exit(write(to, &lines, sizeof(lines)) < 0);
}

/* How many lines the index beside the journal has read; 0 where none says. */
static uint64_t
ask_index(int dir, const char *path, const char *uuid)
{
	uint64_t lines = 0;
	int ends[2];

	if (dir < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return 0;
	pid_t child = fork();
	if (child == 0)
		tell_covered(dir, path, uuid, ends[1]);
	close(ends[1]);
	if (child > 0 && TEMP_FAILURE_RETRY(read(ends[0], &lines,
			     sizeof(lines))) != (ssize_t)sizeof(lines))
		lines = 0;
	close(ends[0]);
	if (child > 0)
		TEMP_FAILURE_RETRY(waitpid(child, NULL, 0));
	return lines;
}

int
salvage_source_open(
    struct salvage_source *source, const char *path, const char *uuid)
{
	int dir;
	int status = open_journal(source, path, &dir);

	if (status == EX_OK)
		status = find_uuid(source, path, dir, uuid);
	if (status == EX_OK) {
		source->seed = record_seed(source->uuid);
		source->lines = ask_index(dir, path, source->uuid);
	}
	if (dir >= 0)
		close(dir);
	if (status != EX_OK)
		salvage_source_close(source);
	return status;
}

void
salvage_source_close(struct salvage_source *source)
{
	if (source->fd >= 0)
		close(source->fd);
	source->fd = -1;
}
