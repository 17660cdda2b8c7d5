/*
 * unit: what the tests of a module begin with: cmocka and the headers that it
 * needs, and what many of them do with bytes.
 */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

/* cmocka passes a state to every test, and few of them use it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TEST cmocka_unit_test
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* A string literal and its length, NULs included. */
#define BYTES(literal) (literal), sizeof(literal) - 1

/* A copy of exactly that size: the sanitizers notice a read behind its end. */
static inline char *
exact_copy(const char *bytes, size_t len)
{
	char *copy = malloc(len);

	assert_true(copy != NULL || len == 0);
	if (len > 0)
		memcpy(copy, bytes, len);
	return copy;
}

static inline void
assert_bytes(const char *bytes, size_t len, const char *expected)
{
	assert_int_equal(len, strlen(expected));
	assert_memory_equal(bytes, expected, len);
}

#endif
