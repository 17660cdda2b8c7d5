/*
 * store_fixture: a directory with a store, plants to put into it, and checks of
 * what is there afterwards.
 *
 * Every helper fails the running test when it cannot do its part.
 */
#pragma once

#include "store/index.h"
#include "store/journal.h"
#include "store/store.h"
#include "reader/reader.h"
#include "unit.h"

struct fixture {
	char path[DIRECTORY_PATH_MAX];
	int dir;
	int stderr_before;
	int log; /* no file of the directory */
};

/*
 * A test with `struct fixture *fixture`, a directory with a new store.  What is
 * logged meanwhile goes to a file.
 */
#define STORE_TEST(name) \
	FIXTURE_TEST(    \
	    name, struct fixture, fixture, fixture_set_up, fixture_tear_down)
void fixture_set_up(struct fixture *fixture);
void fixture_tear_down(struct fixture *fixture);

/* Both, within a test: a directory for its next row. */
void fixture_renew(struct fixture *fixture);

/*
 * fixture_logged(fixture, text), expect_logged(fixture, text, n):
 * How many lines with that text were logged since fixture_set_up; as many as
 * that were.
 */
unsigned fixture_logged(const struct fixture *fixture, const char *text);
void expect_logged(const struct fixture *fixture, const char *text, size_t n);

/* The descriptor that the next open will give. */
int fixture_next_fd(void);

/* Files of the store's directory, by their names in it. */
bool fixture_exists(const struct fixture *fixture, const char *name);
bool fixture_exists_like(const struct fixture *fixture, const char *prefix);
size_t fixture_size(const struct fixture *fixture, const char *name);
/* As file_read; nothing, if there is no such file. */
struct contents fixture_read(const struct fixture *fixture, const char *name);
/* The file has these bytes, and no others; it gets them. */
void expect_contents(const struct fixture *fixture, const char *name,
    const struct contents *contents);
void fixture_restore(const struct fixture *fixture, const char *name,
    const struct contents *contents);
void fixture_write(const struct fixture *fixture, const char *name,
    uint64_t offset, const void *bytes, size_t len);
void fixture_append(const struct fixture *fixture, const char *name,
    const void *bytes, size_t len);
void fixture_truncate(
    const struct fixture *fixture, const char *name, uint64_t size);
void fixture_remove(const struct fixture *fixture, const char *name);
void fixture_remove_index(const struct fixture *fixture);
/* It has nothing of an index any more. */
void fixture_junk_index(const struct fixture *fixture);
/* It covers this, with these plants; those with the offset 0 are left out. */
void fixture_forge_index(const struct fixture *fixture, const int64_t *ids,
    const uint64_t *offsets, size_t n, const struct position *covered);
/* Turn one bit of the journal. */
void fixture_flip(const struct fixture *fixture, uint64_t offset);
/* Another file with the same bytes takes its place. */
void fixture_copy(const struct fixture *fixture, const char *name);
void fixture_copy_journal(const struct fixture *fixture);
void fixture_copy_manifest(const struct fixture *fixture);
/* The journal as version 1.0.0 leaves it after a failed sync. */
void fixture_fail_journal(const struct fixture *fixture);
/* Remove all files that were kept beside the journal. */
void fixture_remove_kept(const struct fixture *fixture);

/*
 * Open the store: fixture_try gives NULL and a fault if it is refused,
 * fixture_open fails the test then, and expect_refused if it is not refused
 * with this fault.
 */
struct store *fixture_try(const struct fixture *fixture, bool long_lived,
    const struct watch *watch, enum fault *fault);
struct store *fixture_open(const struct fixture *fixture, bool long_lived);
void expect_refused(
    const struct fixture *fixture, bool long_lived, enum fault fault);

/*
 * fixture_batch(store, ids, names, n, results):
 * Commit plants with these ids and names, NULL for one after the id, as one
 * batch.  What store_commit returned.
 *
 * fixture_put(store, id, name):
 * One plant alone.  The result, which is STORE_FAILED where that was -1.
 */
int fixture_batch(struct store *store, const int64_t *ids,
    const char *const *names, size_t n, enum store_result *results);
enum store_result fixture_put(
    struct store *store, int64_t id, const char *name);

/*
 * expect_put(store, id, name, result), fixture_create(store, id):
 * The same, which must have that result; named after its id and stored now.
 */
void expect_put(struct store *store, int64_t id, const char *name,
    enum store_result result);
void fixture_create(struct store *store, int64_t id);

/*
 * fixture_commit(store, ids, n, result):
 * Commit plants with these ids, named after them, as one batch, of which each
 * must have that result.
 */
void fixture_commit(struct store *store, const int64_t *ids, size_t n,
    enum store_result result);

/*
 * fixture_make_store(fixture, long_lived, first, last):
 * A store that has the plants with the ids `first` to `last` too, each a batch
 * of its own, named after their ids; it is closed again.
 */
void fixture_make_store(const struct fixture *fixture, bool long_lived,
    int64_t first, int64_t last);

/*
 * fixture_step is a watch (ground/watch.h) whose context is a struct
 * fixture_steps.  The time `last` it ends the work, or if there is something that
 * then happens, lets it.
 */
struct fixture_steps {
	unsigned last; /* 0: never */
	void (*happens)(void *argument);
	void *argument;
	unsigned n;           /* how often it was asked */
	uint64_t done, total; /* of the last step */
};
bool fixture_step(void *context, uint64_t done, uint64_t total);

/* A plant of that text; give it back with plant_done. */
struct plant fixture_plant(int64_t id, const char *name);

/* A name of `len` letters, until the test's end. */
char *fixture_long_name(size_t len);

/* The store's journal, open; give it back with journal_close. */
struct journal fixture_journal(const struct fixture *fixture, bool write);
/* Make a new journal, of another store; the fault. */
enum fault fixture_make_journal(const struct fixture *fixture);
/* What an index needs of it: nothing is open. */
struct journal fixture_owner(const struct fixture *fixture);

/* A line of the journal. */
struct fixture_line {
	uint64_t offset, safe; /* safe: its watermark */
	int64_t id;
	bool closing; /* without a plant */
};

/*
 * fixture_lines(fixture, lines, max, end):
 * Count the journal's lines, closing ones included, behind its header, and fill
 * in the first `max`.  The journal is whole, unless it is only wanted where its
 * good lines `end`.
 *
 * fixture_count_lines(fixture), fixture_end(fixture): One of these alone.
 */
size_t fixture_lines(const struct fixture *fixture, struct fixture_line *lines,
    size_t max, struct position *end);
size_t fixture_count_lines(const struct fixture *fixture);
struct position fixture_end(const struct fixture *fixture);

/*
 * fixture_forge(fixture, id, name, len):
 * Put behind the journal's lines the first `len` bytes, if it has so many, of
 * the line of that plant, as a process that knew everything to be durable would
 * write it.  Return its offset.
 */
uint64_t fixture_forge(
    const struct fixture *fixture, int64_t id, const char *name, size_t len);

/*
 * expect_ids(fixture, ids, n):
 * The journal on the disk is whole from its first line to its last and has
 * exactly the plants with these ids, in this order.
 *
 * expect_plants(fixture, n):
 * The same of the ids 1 to n; and the store opens and knows these plants, all
 * named after their ids.
 */
#define FIXTURE_LINES_MAX 128
void expect_ids(const struct fixture *fixture, const int64_t *ids, size_t n);
void expect_plants(const struct fixture *fixture, int64_t n);

/* verify_store has this fault, and reports. */
struct reader_report expect_verified(
    const struct fixture *fixture, enum fault fault);
