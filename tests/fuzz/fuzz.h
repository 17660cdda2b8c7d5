/*
 * fuzz: what the fuzz targets share: a requirement that stops the fuzzer, and
 * the reading of its input.
 *
 * Each target asserts what must hold for any input, against a model of its own
 * where there is one (model.h).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* What every target defines.  The input is not NUL-terminated. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

_Noreturn static inline void
fuzz_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	abort();
}

/* Unlike assert, in every build. */
#define REQUIRE(what) ((what) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #what))

struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

/* The next byte; 0 at the end. */
static inline uint8_t
fuzz_byte(struct fuzz_input *input)
{
	if (input->left == 0)
		return 0;
	input->left--;
	return *input->at++;
}

/* From the next two bytes, below `limit`, which is not 0. */
static inline size_t
fuzz_below(struct fuzz_input *input, size_t limit)
{
	size_t high = fuzz_byte(input);

	return (high << 8 | fuzz_byte(input)) % limit;
}

/* At most `len` bytes; how many there were. */
static inline size_t
fuzz_bytes(struct fuzz_input *input, size_t len, const uint8_t **bytes)
{
	if (len > input->left)
		len = input->left;
	*bytes = input->at;
	input->at += len;
	input->left -= len;
	return len;
}
