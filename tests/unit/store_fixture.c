/*
 * store_fixture: stores in temporary directories, made, damaged and checked
 * from outside.  See store_fixture.h.
 */
#include "store_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_shim.h"
#include "pure/timestamp.h"
#include "store/replay.h"
#include "store_parts.h"

void
fixture_set_up(struct fixture *fixture)
{
	directory_make(fixture->path);
	fixture->dir = open(fixture->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fixture->log = memfd_create("log", MFD_CLOEXEC);
	fixture->stderr_before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	assert_true(fixture->dir >= 0);
	assert_return_code(fcntl(fixture->log, F_SETFL, O_APPEND), errno);
	shim_reset();
	assert_return_code(dup2(fixture->log, STDERR_FILENO), errno);
	assert_int_equal(store_init(fixture->path), FAULT_NONE);
}

void
fixture_tear_down(struct fixture *fixture)
{
	shim_reset();
	dup2(fixture->stderr_before, STDERR_FILENO);
	close(fixture->stderr_before);
	close(fixture->log);
	close(fixture->dir);
	directory_remove(fixture->path);
}

void
fixture_renew(struct fixture *fixture)
{
	fixture_tear_down(fixture);
	fixture_set_up(fixture);
}

unsigned
fixture_logged(const struct fixture *fixture, const char *text)
{
	unsigned n = 0;

	char *line = strtok(descriptor_read(fixture->log).at, "\n");
	for (; line != NULL; line = strtok(NULL, "\n"))
		n += strstr(line, text) != NULL;
	return n;
}

void
expect_logged(const struct fixture *fixture, const char *text, size_t n)
{
	unsigned logged = fixture_logged(fixture, text);

	if (logged != n)
		fail_msg("logged %u times, not %zu: %s", logged, n, text);
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

struct contents
fixture_read(const struct fixture *fixture, const char *name)
{
	if (!fixture_exists(fixture, name))
		return (struct contents){ memory(1), 0 };
	return file_read(fixture->dir, name);
}

void
expect_contents(const struct fixture *fixture, const char *name,
    const struct contents *contents)
{
	struct contents now = fixture_read(fixture, name);

	assert_int_equal(now.len, contents->len);
	assert_memory_equal(now.at, contents->at, now.len);
}

void
fixture_restore(const struct fixture *fixture, const char *name,
    const struct contents *contents)
{
	fixture_write(fixture, name, 0, contents->at, contents->len);
	fixture_truncate(fixture, name, contents->len);
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
	fixture_write(fixture, INDEX_NAME "/manifest", 0, junk, sizeof(junk));
}

void
fixture_forge_index(const struct fixture *fixture, const int64_t *ids,
    const uint64_t *offsets, size_t n, const struct position *covered)
{
	struct journal owner = fixture_owner(fixture);
	struct position at = *covered;

	struct index_view view;

	fixture_remove_index(fixture);
	assert_int_equal(index_open(&owner, &view), FAULT_NONE);
	struct index *index = view.index;
	for (size_t i = 0; i < n; i++)
		if (offsets[i] != 0)
			assert_int_equal(
			    index_add(index, ids[i], offsets[i]), 0);
	assert_int_equal(index_claim(index), FAULT_NONE);
	assert_int_equal(index_collect(index, &at), FAULT_NONE);
	assert_int_equal(index_write(index, 0, NULL), FAULT_NONE);
	index_install(index);
	index_close(index);
}

void
fixture_flip(const struct fixture *fixture, uint64_t offset)
{
	struct contents journal = fixture_read(fixture, JOURNAL_NAME);

	assert_true(offset < journal.len);
	journal.at[offset] ^= 1;
	fixture_write(fixture, JOURNAL_NAME, offset, &journal.at[offset], 1);
}

void
fixture_copy(const struct fixture *fixture, const char *name)
{
	struct contents bytes = fixture_read(fixture, name);

	/* Its inode must not be given to the copy. */
	assert_int_equal(
	    renameat(fixture->dir, name, fixture->dir, "other"), 0);
	fixture_restore(fixture, name, &bytes);
	fixture_remove(fixture, "other");
}

void
fixture_copy_journal(const struct fixture *fixture)
{
	fixture_copy(fixture, JOURNAL_NAME);
}

void
fixture_copy_manifest(const struct fixture *fixture)
{
	fixture_copy(fixture, INDEX_NAME "/manifest");
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
fixture_try(const struct fixture *fixture, bool long_lived,
    const struct watch *watch, enum fault *fault)
{
	struct store_options options = {
		.dir = fixture->path, .long_lived = long_lived, .watch = watch
	};

	*fault = FAULT_NONE;
	return store_open(&options, fault);
}

struct store *
fixture_open(const struct fixture *fixture, bool long_lived)
{
	enum fault fault;
	struct store *store = fixture_try(fixture, long_lived, NULL, &fault);

	if (store == NULL)
		fail_msg("store_open gave the fault %d", (int)fault);
	return store;
}

void
expect_refused(const struct fixture *fixture, bool long_lived, enum fault fault)
{
	enum fault found;
	struct store *store = fixture_try(fixture, long_lived, NULL, &found);

	if (store != NULL)
		fail_msg("the store was opened");
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
	return memset(memory(len + 1), 'x', len);
}

#define NO_RESULT ((enum store_result)99)

int
fixture_batch(struct store *store, const int64_t *ids, const char *const *names,
    size_t n, enum store_result *results)
{
	struct plant *plants = calloc(n + 1, sizeof(*plants));
	struct store_item *items = calloc(n + 1, sizeof(*items));

	assert_true(plants != NULL && items != NULL);
	for (size_t i = 0; i < n; i++) {
		plants[i] =
		    fixture_plant(ids[i], names == NULL ? NULL : names[i]);
		items[i] = (struct store_item){
			.plant = &plants[i], .by = "tester", .result = NO_RESULT
		};
	}
	int status = store_commit(store, items, n);
	for (size_t i = 0; i < n; i++) {
		assert_int_not_equal(items[i].result, NO_RESULT);
		results[i] = items[i].result;
		plant_done(&plants[i]);
	}
	free(plants);
	free(items);
	return status;
}

enum store_result
fixture_put(struct store *store, int64_t id, const char *name)
{
	enum store_result result;
	int status = fixture_batch(store, &id, &name, 1, &result);

	assert_int_equal(status, result == STORE_FAILED ? -1 : 0);
	return result;
}

void
expect_put(
    struct store *store, int64_t id, const char *name, enum store_result result)
{
	assert_int_equal(fixture_put(store, id, name), result);
}

void
fixture_create(struct store *store, int64_t id)
{
	expect_put(store, id, NULL, STORE_CREATED);
}

void
fixture_commit(
    struct store *store, const int64_t *ids, size_t n, enum store_result result)
{
	enum store_result *results = memory(n * sizeof(*results));

	assert_int_equal(fixture_batch(store, ids, NULL, n, results), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(results[i], result);
}

void
fixture_make_store(
    const struct fixture *fixture, bool long_lived, int64_t first, int64_t last)
{
	struct store *store = fixture_open(fixture, long_lived);

	for (int64_t id = first; id <= last; id++)
		fixture_create(store, id);
	store_close(store);
}

bool
fixture_step(void *context, uint64_t done, uint64_t total)
{
	struct fixture_steps *steps = context;

	assert_true(done <= total);
	steps->done = done;
	steps->total = total;
	steps->n++;
	if (steps->last == 0 || steps->n < steps->last)
		return true;
	if (steps->happens != NULL && steps->n == steps->last)
		steps->happens(steps->argument);
	return steps->happens != NULL;
}

struct journal
fixture_journal(const struct fixture *fixture, bool write)
{
	struct journal journal;

	assert_int_equal(
	    journal_open(&journal, fixture->path, write), FAULT_NONE);
	assert_true(journal.fd >= 0);
	return journal;
}

enum fault
fixture_make_journal(const struct fixture *fixture)
{
	struct journal home = { .path = fixture->path, .dir = fixture->dir };

	return journal_make(&home);
}

struct journal
fixture_owner(const struct fixture *fixture)
{
	struct journal journal = fixture_journal(fixture, false);
	struct journal owner = { .path = fixture->path,
		.dir = fixture->dir,
		.fd = -1,
		.end_fd = -1 };

	memcpy(owner.uuid, journal.uuid, sizeof(owner.uuid));
	journal_close(&journal);
	return owner;
}

size_t
fixture_lines(const struct fixture *fixture, struct fixture_line *lines,
    size_t max, struct position *end)
{
	struct journal journal = fixture_journal(fixture, false);
	enum replay_result result;
	struct replay replay;
	struct record record;
	uint64_t tail_end;
	size_t n = 0;

	replay_init(&replay, journal.fd, journal.seed, &journal.start);
	for (; (result = replay_next(&replay, &record)) == REPLAY_RECORD; n++)
		if (n < max)
			lines[n] = (struct fixture_line){
				.offset = replay.at.last,
				.safe = record.safe,
				.id = record.id,
				.closing = record.plant == NULL,
			};
	if (end != NULL)
		*end = replay.at;
	else {
		assert_int_equal(result, REPLAY_END);
		assert_int_equal(replay_finish(&replay, &tail_end), REPLAY_END);
		assert_int_equal(tail_end, replay.at.end);
	}
	replay_done(&replay);
	journal_close(&journal);
	return n;
}

size_t
fixture_count_lines(const struct fixture *fixture)
{
	return fixture_lines(fixture, NULL, 0, NULL);
}

struct position
fixture_end(const struct fixture *fixture)
{
	struct position end;

	fixture_lines(fixture, NULL, 0, &end);
	return end;
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

void
expect_ids(const struct fixture *fixture, const int64_t *ids, size_t n)
{
	struct fixture_line lines[FIXTURE_LINES_MAX];
	size_t all = fixture_lines(fixture, lines, COUNT(lines), NULL),
	       seen = 0;

	assert_in_range(all, n, COUNT(lines));
	for (size_t i = 0; i < all; i++)
		if (!lines[i].closing) {
			assert_true(seen < n);
			assert_int_equal(lines[i].id, ids[seen++]);
		}
	assert_int_equal(seen, n);
}

void
expect_plants(const struct fixture *fixture, int64_t n)
{
	struct store *store = fixture_open(fixture, false);
	int64_t ids[FIXTURE_LINES_MAX];

	assert_in_range(n, 0, COUNT(ids));
	for (int64_t id = 1; id <= n; id++) {
		ids[id - 1] = id;
		expect_put(store, id, NULL, STORE_SAME);
	}
	store_close(store);
	expect_ids(fixture, ids, (size_t)n);
}

struct reader_report
expect_verified(const struct fixture *fixture, enum fault fault)
{
	struct reader_report report = { 0 };

	assert_int_equal(verify_store(fixture->path, NULL, &report), fault);
	return report;
}
