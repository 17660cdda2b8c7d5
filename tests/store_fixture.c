/*
 * store_fixture: stores in temporary directories, made, damaged and checked
 * from outside.  See store_fixture.h.
 */
#include "store_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault_shim.h"
#include "pure/timestamp.h"
#include "replay.h"
#include "store_parts.h"

#define INDEX_NAME "index"

int
fixture_set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	const char *tmp = getenv("TMPDIR");

	if (fixture == NULL)
		return -1;
	if (tmp == NULL || strlen(tmp) > 40)
		tmp = "/tmp";
	snprintf(fixture->path, sizeof(fixture->path), "%s/store.XXXXXX", tmp);
	if (mkdtemp(fixture->path) == NULL)
		return -1;
	fixture->dir = open(fixture->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fixture->log = open(tmp, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	fixture->stderr_before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (fixture->dir < 0 || fixture->log < 0 ||
	    fcntl(fixture->log, F_SETFL, O_APPEND) < 0 ||
	    dup2(fixture->log, STDERR_FILENO) < 0)
		return -1;
	shim_reset();
	if (store_init(fixture->path) != FAULT_NONE)
		return -1;
	*state = fixture;
	return 0;
}

int
fixture_tear_down(void **state)
{
	struct fixture *fixture = *state;
	int result;

	shim_reset();
	dup2(fixture->stderr_before, STDERR_FILENO);
	close(fixture->stderr_before);
	close(fixture->log);
	parts_empty(AT_FDCWD, fixture->path);
	result = rmdir(fixture->path);
	close(fixture->dir);
	free(fixture);
	return result;
}

struct fixture *
fixture_renew(void **state)
{
	assert_int_equal(fixture_tear_down(state), 0);
	assert_int_equal(fixture_set_up(state), 0);
	return *state;
}

static char *
read_whole(int fd, size_t *len)
{
	struct stat st;
	char *bytes;

	assert_int_equal(fstat(fd, &st), 0);
	bytes = malloc((size_t)st.st_size + 1);
	assert_non_null(bytes);
	assert_int_equal(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
	bytes[st.st_size] = '\0';
	*len = (size_t)st.st_size;
	return bytes;
}

unsigned
fixture_logged(const struct fixture *fixture, const char *text)
{
	size_t len;
	char *log = read_whole(fixture->log, &len);
	unsigned n = 0;

	for (char *line = strtok(log, "\n"); line != NULL;
	     line = strtok(NULL, "\n"))
		n += strstr(line, text) != NULL;
	free(log);
	return n;
}

int
fixture_next_fd(void)
{
	int fd = dup(STDERR_FILENO);

	assert_true(fd >= 0);
	close(fd);
	return fd;
}

bool
fixture_exists(const struct fixture *fixture, const char *name)
{
	return faccessat(fixture->dir, name, F_OK, 0) == 0;
}

bool
fixture_exists_like(const struct fixture *fixture, const char *prefix)
{
	DIR *dir = opendir(fixture->path);
	struct dirent *entry;
	bool found = false;

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL)
		found |= strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
	closedir(dir);
	return found;
}

static int
open_file(const struct fixture *fixture, const char *name, int flags)
{
	int fd = openat(fixture->dir, name, flags | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	return fd;
}

size_t
fixture_size(const struct fixture *fixture, const char *name)
{
	struct stat st;

	assert_int_equal(fstatat(fixture->dir, name, &st, 0), 0);
	return (size_t)st.st_size;
}

char *
fixture_read(const struct fixture *fixture, const char *name, size_t *len)
{
	int fd = open_file(fixture, name, O_RDONLY);
	char *bytes = read_whole(fd, len);

	close(fd);
	return bytes;
}

void
fixture_expect_bytes(const struct fixture *fixture, const char *name,
    const char *bytes, size_t len)
{
	size_t now_len;
	char *now = fixture_read(fixture, name, &now_len);

	assert_int_equal(now_len, len);
	assert_memory_equal(now, bytes, len);
	free(now);
}

void
fixture_write(const struct fixture *fixture, const char *name, uint64_t offset,
    const void *bytes, size_t len)
{
	int fd = open_file(fixture, name, O_WRONLY | O_CREAT);

	assert_int_equal(pwrite(fd, bytes, len, (off_t)offset), len);
	close(fd);
}

void
fixture_append(const struct fixture *fixture, const char *name,
    const void *bytes, size_t len)
{
	fixture_write(fixture, name, fixture_size(fixture, name), bytes, len);
}

void
fixture_truncate(const struct fixture *fixture, const char *name, uint64_t size)
{
	int fd = open_file(fixture, name, O_WRONLY);

	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	close(fd);
}

void
fixture_remove(const struct fixture *fixture, const char *name)
{
	assert_int_equal(unlinkat(fixture->dir, name, 0), 0);
}

void
fixture_remove_index(const struct fixture *fixture)
{
	parts_empty(fixture->dir, INDEX_NAME);
	unlinkat(fixture->dir, INDEX_NAME, AT_REMOVEDIR);
	assert_false(fixture_exists(fixture, INDEX_NAME));
}

void
fixture_junk_index(const struct fixture *fixture)
{
	char junk[20000];

	memset(junk, 'x', sizeof(junk));
	fixture_write(fixture, INDEX_NAME "/data.mdb", 0, junk, sizeof(junk));
}

void
fixture_flip(const struct fixture *fixture, uint64_t offset)
{
	size_t len;
	char *bytes = fixture_read(fixture, JOURNAL_NAME, &len);

	assert_true(offset < len);
	bytes[offset] ^= 1;
	fixture_write(fixture, JOURNAL_NAME, offset, &bytes[offset], 1);
	free(bytes);
}

void
fixture_replace_journal(const struct fixture *fixture)
{
	size_t len;
	char *bytes = fixture_read(fixture, JOURNAL_NAME, &len);

	fixture_remove(fixture, JOURNAL_NAME);
	fixture_write(fixture, JOURNAL_NAME, 0, bytes, len);
	free(bytes);
}

void
fixture_fail_journal(const struct fixture *fixture)
{
	assert_int_equal(renameat(fixture->dir, JOURNAL_NAME, fixture->dir,
			     JOURNAL_FAILED_NAME),
	    0);
}

void
fixture_remove_kept(const struct fixture *fixture)
{
	DIR *dir = opendir(fixture->path);
	struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL)
		if (strncmp(entry->d_name, JOURNAL_NAME ".",
			strlen(JOURNAL_NAME ".")) == 0)
			fixture_remove(fixture, entry->d_name);
	closedir(dir);
}

struct store *
fixture_try(const struct fixture *fixture, bool prepare,
    const struct watch *watch, enum fault *fault)
{
	struct store_options options = {
		.dir = fixture->path, .prepare = prepare, .watch = watch
	};

	*fault = FAULT_NONE;
	return store_open(&options, fault);
}

struct store *
fixture_open(const struct fixture *fixture, bool prepare)
{
	enum fault fault;
	struct store *store = fixture_try(fixture, prepare, NULL, &fault);

	if (store == NULL)
		fail_msg("store_open gave the fault %d", (int)fault);
	return store;
}

void
fixture_refused(const struct fixture *fixture, enum fault fault)
{
	enum fault found;
	struct store *store = fixture_try(fixture, false, NULL, &found);

	if (store != NULL) {
		store_close(store);
		fail_msg("the store was opened");
	}
	assert_int_equal(found, fault);
}

struct plant
fixture_plant(int64_t id, const char *name)
{
	char own[32];

	if (name == NULL) {
		snprintf(own, sizeof(own), "plant %" PRId64, id);
		name = own;
	}
	return parts_plant(id, name, NULL);
}

char *
fixture_long_name(size_t len)
{
	char *name = malloc(len + 1);

	assert_non_null(name);
	memset(name, 'x', len);
	name[len] = '\0';
	return name;
}

struct outcome
fixture_put(struct store *store, int64_t id, const char *name)
{
	struct plant plant = fixture_plant(id, name);
	struct store_item item = { .plant = &plant, .by = "tester" };
	struct outcome outcome;

	outcome.status = store_commit(store, &item, 1, NULL, NULL);
	outcome.result = item.result;
	plant_done(&plant);
	return outcome;
}

void
fixture_create(struct store *store, int64_t id)
{
	struct outcome outcome = fixture_put(store, id, NULL);

	assert_int_equal(outcome.result, STORE_CREATED);
	assert_int_equal(outcome.status, 0);
}

void
fixture_commit(
    struct store *store, const int64_t *ids, size_t n, enum store_result result)
{
	struct plant *plants = calloc(n, sizeof(*plants));
	struct store_item *items = calloc(n, sizeof(*items));

	assert_true(plants != NULL && items != NULL);
	for (size_t i = 0; i < n; i++) {
		plants[i] = fixture_plant(ids[i], NULL);
		items[i] =
		    (struct store_item){ .plant = &plants[i], .by = "tester" };
	}
	assert_int_equal(store_commit(store, items, n, NULL, NULL), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(items[i].result, result);
		plant_done(&plants[i]);
	}
	free(plants);
	free(items);
}

void
fixture_make_store(
    const struct fixture *fixture, bool prepare, int64_t first, int64_t last)
{
	struct store *store = fixture_open(fixture, prepare);

	for (int64_t id = first; id <= last; id++)
		fixture_create(store, id);
	store_close(store);
}

bool
fixture_stop(void *unused, uint64_t done, uint64_t total)
{
	(void)unused;
	assert_true(done <= total);
	return false;
}

bool
fixture_step(void *context, uint64_t done, uint64_t total)
{
	struct fixture_steps *steps = context;

	/* To the operator it is one piece of work. */
	assert_true(done >= steps->done && done <= total);
	steps->done = done;
	steps->total = total;
	steps->n++;
	return steps->last == 0 || steps->n < steps->last;
}

struct journal
fixture_journal(const struct fixture *fixture, bool write)
{
	struct journal journal;

	assert_int_equal(
	    journal_open(&journal, fixture->path, write), FAULT_NONE);
	return journal;
}

/* Give each line to `see`; the journal must be whole. */
static void
walk(const struct fixture *fixture, void (*see)(const struct record *, void *),
    void *argument)
{
	struct journal journal = fixture_journal(fixture, false);
	struct replay replay;
	struct record record;
	enum replay_result result;
	uint64_t tail_end;

	assert_int_equal(
	    replay_init(&replay, journal.fd, journal.seed, &journal.start), 0);
	while ((result = replay_next(&replay, &record)) == REPLAY_RECORD)
		see(&record, argument);
	assert_int_equal(result, REPLAY_END);
	assert_int_equal(replay_finish(&replay, &tail_end), REPLAY_CLEAN);
	replay_done(&replay);
	journal_close(&journal);
}

struct position
fixture_end(const struct fixture *fixture)
{
	struct journal journal = fixture_journal(fixture, false);
	struct replay replay;
	struct record record;

	assert_int_equal(
	    replay_init(&replay, journal.fd, journal.seed, &journal.start), 0);
	while (replay_next(&replay, &record) == REPLAY_RECORD)
		;
	replay_done(&replay);
	journal_close(&journal);
	return replay.at;
}

uint64_t
fixture_forge(
    const struct fixture *fixture, int64_t id, const char *name, size_t len)
{
	const struct position at = fixture_end(fixture);
	struct plant plant = fixture_plant(id, name);
	struct journal journal = fixture_journal(fixture, false);
	char now[TIMESTAMP_LEN], line[512];

	timestamp_print(0, now);
	struct record record = { .seq = at.seq + 1,
		.safe = at.end,
		.prev = at.crc,
		.at = now,
		.by = "dead",
		.by_len = 4,
		.plant = plant.text,
		.plant_len = plant.len };
	size_t whole = record_encode(&record, journal.seed, line);
	fixture_write(
	    fixture, JOURNAL_NAME, at.end, line, len < whole ? len : whole);
	journal_close(&journal);
	plant_done(&plant);
	return at.end;
}

struct expectation {
	const int64_t *ids;
	size_t n, seen;
};

static void
see_plant(const struct record *record, void *argument)
{
	struct expectation *expectation = argument;

	if (record->plant == NULL)
		return;
	if (expectation->seen < expectation->n)
		assert_int_equal(
		    record->id, expectation->ids[expectation->seen]);
	expectation->seen++;
}

void
fixture_expect(const struct fixture *fixture, const int64_t *ids, size_t n)
{
	struct expectation expectation = { .ids = ids, .n = n };

	walk(fixture, see_plant, &expectation);
	assert_int_equal(expectation.seen, n);
}

void
fixture_reopen_and_expect(
    const struct fixture *fixture, const int64_t *ids, size_t n)
{
	struct store *store = fixture_open(fixture, false);

	for (size_t i = 0; i < n; i++)
		assert_int_equal(
		    fixture_put(store, ids[i], NULL).result, STORE_SAME);
	store_close(store);
	fixture_expect(fixture, ids, n);
}

static void
see_line(const struct record *record, void *argument)
{
	size_t *lines = argument;

	(void)record;
	++*lines;
}

size_t
fixture_lines(const struct fixture *fixture)
{
	size_t lines = 0;

	walk(fixture, see_line, &lines);
	return lines;
}

int
fixture_in_child(int (*work)(void *), void *argument)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(work(argument));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
