/*
 * store_fixture: a directory with a store, plants to put into it, and checks of
 * what is there afterwards.
 *
 * Every helper fails the running test when it cannot do its part.
 */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "journal.h"
#include "store/store.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct fixture {
	char path[64];
	int dir;
	int stderr_before;
	int log; /* no file of the directory */
};

/*
 * fixture_set_up, fixture_tear_down: for cmocka; *state is a struct fixture, a
 * directory with a new store.  What is logged meanwhile goes to a file.
 */
int fixture_set_up(void **state);
int fixture_tear_down(void **state);

/* Both, within a test: a directory for its next row. */
struct fixture *fixture_renew(void **state);

/* One of cmocka's tests, with these two around it. */
#define TEST(function)                   \
	cmocka_unit_test_setup_teardown( \
	    function, fixture_set_up, fixture_tear_down)

/*
 * fixture_logged(fixture, text):
 * How many lines with that text were logged since fixture_set_up.
 */
unsigned fixture_logged(const struct fixture *fixture, const char *text);

/* The descriptor that the next open will give. */
int fixture_next_fd(void);

/* Files of the store's directory, by their names in it. */
bool fixture_exists(const struct fixture *fixture, const char *name);
bool fixture_exists_like(const struct fixture *fixture, const char *prefix);
size_t fixture_size(const struct fixture *fixture, const char *name);
/* The bytes, NUL-terminated, from malloc. */
char *fixture_read(
    const struct fixture *fixture, const char *name, size_t *len);
/* The file has these bytes, and no others. */
void fixture_expect_bytes(const struct fixture *fixture, const char *name,
    const char *bytes, size_t len);
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
/* Turn one bit of the journal. */
void fixture_flip(const struct fixture *fixture, uint64_t offset);
/* A file with the same bytes takes the journal's place. */
void fixture_replace_journal(const struct fixture *fixture);
/* The journal as it is after a failed sync. */
void fixture_fail_journal(const struct fixture *fixture);
/* Remove all files that were kept beside the journal. */
void fixture_remove_kept(const struct fixture *fixture);

/*
 * Open the store: fixture_try gives NULL and a fault if it is refused,
 * fixture_open fails the test then, and fixture_refused if it is not refused
 * with this fault.
 */
struct store *fixture_try(const struct fixture *fixture, bool prepare,
    const struct watch *watch, enum fault *fault);
struct store *fixture_open(const struct fixture *fixture, bool prepare);
void fixture_refused(const struct fixture *fixture, enum fault fault);

/*
 * fixture_put(store, id, name):
 * Commit one plant, named after its id if `name` is NULL, and give the result
 * and what store_commit returned.
 */
struct outcome {
	enum store_result result;
	int status;
};
struct outcome fixture_put(struct store *store, int64_t id, const char *name);

/* The same, named after its id, and it must be stored now. */
void fixture_create(struct store *store, int64_t id);

/*
 * fixture_commit(store, ids, n, result):
 * Commit plants with these ids, named after them, as one batch, of which each
 * must have that result.
 */
void fixture_commit(struct store *store, const int64_t *ids, size_t n,
    enum store_result result);

/*
 * fixture_make_store(fixture, prepare, first, last):
 * A store that has the plants with the ids `first` to `last` too, each a batch
 * of its own, named after their ids; it is closed again.
 */
void fixture_make_store(
    const struct fixture *fixture, bool prepare, int64_t first, int64_t last);

/*
 * Steps of a watch (ground/watch.h).  fixture_stop ends the work the first time
 * it is asked; fixture_step, whose context is a struct fixture_steps, the time
 * `last`, and checks that the work goes on from 0 to the whole.
 */
struct fixture_steps {
	unsigned n;           /* how often it was asked */
	unsigned last;        /* 0: it never ends the work */
	uint64_t done, total; /* of the last step */
};
bool fixture_stop(void *unused, uint64_t done, uint64_t total);
bool fixture_step(void *context, uint64_t done, uint64_t total);

/* A plant of that text; give it back with plant_done. */
struct plant fixture_plant(int64_t id, const char *name);

/* A name of `len` letters, from malloc. */
char *fixture_long_name(size_t len);

/* The store's journal, open; give it back with journal_close. */
struct journal fixture_journal(const struct fixture *fixture, bool write);

/* Where the journal's good lines end. */
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
 * fixture_expect(fixture, ids, n):
 * The journal on the disk is whole from its first line to its last and has
 * exactly the plants with these ids, in this order.
 */
void fixture_expect(
    const struct fixture *fixture, const int64_t *ids, size_t n);

/*
 * fixture_reopen_and_expect(fixture, ids, n):
 * The store opens, knows every one of these plants, all named after their ids,
 * and fixture_expect.
 */
void fixture_reopen_and_expect(
    const struct fixture *fixture, const int64_t *ids, size_t n);

/* How many lines, closing ones included, the journal has behind its header. */
size_t fixture_lines(const struct fixture *fixture);

/*
 * fixture_in_child(work, argument):
 * Run work(argument) in another process, and return its exit status, or 128
 * and the signal that ended it.
 */
int fixture_in_child(int (*work)(void *), void *argument);

#endif
