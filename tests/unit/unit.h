/*
 * unit: what the tests of a module begin with: cmocka and the headers that it
 * needs, the registration of tests, and what many of them do with bytes, files,
 * processes and stderr.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* Few tests use each parameter that they are given. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* A string literal and its length, NULs included. */
#define BYTES(literal) (literal), sizeof(literal) - 1

/* For each of the texts of a row, behind the last of which there is NULL. */
#define EACH_TEXT(text, texts) \
	for (const char *const *text = (texts); *text != NULL; text++)

/*
 * TEST(a_sentence_about_behaviour) and a body in braces is a test.  main, which
 * is in unit.c, runs all of a file, in its order, or those whose name contains
 * its argument.
 *
 * FIXTURE_TEST(name, type, variable, set_up, tear_down) is a test that is given
 * `type *variable`, zeroed and then set up; it is torn down also when the test
 * fails.  A file with a fixture defines a shorter name for its tests.
 */
#define TEST(name) FIXTURE_TEST(name, char, unused, (void), (void))
#define FIXTURE_TEST(name, type, variable, set_up, tear_down)     \
	static void name(type *variable);                         \
	static int name##_begin(void **state)                     \
	{                                                         \
		static type fixture;                              \
                                                                  \
		*state = &fixture;                                \
		set_up(&fixture);                                 \
		return 0;                                         \
	}                                                         \
	static void name##_run(void **state)                      \
	{                                                         \
		name(*state);                                     \
	}                                                         \
	static int name##_end(void **state)                       \
	{                                                         \
		tear_down((type *)*state);                        \
		memory_free();                                    \
		return 0;                                         \
	}                                                         \
	__attribute__((constructor)) static void name##_add(void) \
	{                                                         \
		unit_add(&(struct CMUnitTest){ #name, name##_run, \
			     name##_begin, name##_end, NULL },    \
		    __LINE__);                                    \
	}                                                         \
	static void name(type *variable)

/*
 * For these macros: unit_add lets main run this test before those of a higher
 * line; memory_free gives back what memory() gave.
 */
void unit_add(const struct CMUnitTest *test, int line);
void memory_free(void);

/* A copy of exactly that size: the sanitizers notice a read behind its end. */
void *exact_copy(const void *bytes, size_t len);

/* `size` zeroed bytes, which are given back behind the test.  One thread. */
void *memory(size_t size);

void assert_bytes(const char *bytes, size_t len, const char *expected);
void assert_begins(const char *text, const char *begin);
void assert_contains(const char *text, const char *part);

/* cmocka 2 deprecates its own, whose successor warns of conversions. */
#undef assert_in_range
#define assert_in_range(value, low, high) \
	assert_between((uintmax_t)(value), (uintmax_t)(low), (uintmax_t)(high))
void assert_between(uintmax_t value, uintmax_t low, uintmax_t high);

/*
 * directory_make(path), directory_remove(path):
 * Make an empty directory; remove it with what is in it.
 */
#define DIRECTORY_PATH_MAX 64
void directory_make(char path[static DIRECTORY_PATH_MAX]);
void directory_remove(const char *path);

/*
 * file_read(dir, name), descriptor_read(fd):
 * All that a file has, and a NUL, until the test's end.
 */
struct contents {
	char *at;
	size_t len;
};
struct contents file_read(int dir, const char *name);
struct contents descriptor_read(int fd);

/*
 * file_replace(path, text, len, mode):
 * Put a file with these bytes into the place of another, as an editor does.
 */
void file_replace(const char *path, const char *text, size_t len, mode_t mode);

/*
 * child_start(work, argument), child_wait(child), in_child(work, argument):
 * Run work(argument) in another process; wait for its end, and return its exit
 * status, or 128 and the signal that ended it; both.
 */
pid_t child_start(int (*work)(void *), void *argument);
int child_wait(pid_t child);
int in_child(int (*work)(void *), void *argument);

/*
 * stderr_capture(), stderr_captured():
 * Keep what is written to stderr from here on; put stderr back, and return that
 * text, up to the next call.  In between no test may fail: cmocka reports there.
 */
void stderr_capture(void);
const char *stderr_captured(void);
