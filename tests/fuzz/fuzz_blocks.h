/*
 * fuzz_blocks: memory for what LMDB takes and gives back with each environment,
 * blocks of one and two MiB.
 *
 * clang's address sanitizer maps and unmaps such blocks and their shadow each
 * time, which was two thirds of the time of a target that opens a store.  Here
 * they keep their place.  The smaller ones, ours among them, are the
 * sanitizer's as before, and in other builds all are libc's.
 */
#ifndef TESTS_FUZZ_FUZZ_BLOCKS_H
#define TESTS_FUZZ_FUZZ_BLOCKS_H

#if defined(__clang__) && defined(__has_feature)
#if __has_feature(address_sanitizer)

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

/* Our own largest is the window of a journal of BYTES_MAX. */
#define BLOCK_LEAST ((size_t)512 << 10)
#define BLOCK_MOST ((size_t)4 << 20)
#define BLOCKS 16

#define UNWATCHED __attribute__((no_sanitize("address", "undefined")))

/* The sanitizer's. */
void *__interceptor_malloc(size_t size);
void *__interceptor_calloc(size_t n, size_t size);
void *__interceptor_realloc(void *old, size_t size);
void __interceptor_free(void *block);

/*
 * What libFuzzer holds to its end counts as leaked once malloc is not the
 * sanitizer's own.  Only libFuzzer is C++.
 */
const char *__lsan_default_suppressions(void);

const char *
__lsan_default_suppressions(void)
{
	return "leak:operator new\n";
}

static char *blocks;
static size_t block_used[BLOCKS]; /* bytes; 0: free, and all zero */

/* Zeroed; NULL for other sizes, or when all blocks are in use. */
UNWATCHED static void *
block_take(size_t size)
{
	if (size < BLOCK_LEAST || size > BLOCK_MOST)
		return NULL;
	if (blocks == NULL) {
		void *made =
		    mmap(NULL, BLOCKS * BLOCK_MOST, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (made == MAP_FAILED)
			return NULL;
		blocks = made;
	}
	for (size_t i = 0; i < BLOCKS; i++)
		if (block_used[i] == 0) {
			block_used[i] = size;
			return blocks + i * BLOCK_MOST;
		}
	return NULL;
}

/* Which one it is, or BLOCKS. */
UNWATCHED static size_t
block_number(const void *block)
{
	const char *at = block;

	if (blocks == NULL || at < blocks || at >= blocks + BLOCKS * BLOCK_MOST)
		return BLOCKS;
	return (size_t)(at - blocks) / BLOCK_MOST;
}

UNWATCHED void *
malloc(size_t size)
{
	void *block = block_take(size);

	return block != NULL ? block : __interceptor_malloc(size);
}

UNWATCHED void *
calloc(size_t n, size_t size)
{
	void *block =
	    size <= BLOCK_MOST && n <= BLOCK_MOST ? block_take(n * size) : NULL;

	return block != NULL ? block : __interceptor_calloc(n, size);
}

UNWATCHED void
free(void *block)
{
	size_t i = block_number(block);

	if (i == BLOCKS) {
		__interceptor_free(block);
		return;
	}
	madvise(block, block_used[i], MADV_DONTNEED);
	block_used[i] = 0;
}

UNWATCHED void *
realloc(void *old, size_t size)
{
	size_t i = block_number(old);
	void *block;

	if (i == BLOCKS)
		return __interceptor_realloc(old, size);
	block = __interceptor_malloc(size);
	if (block == NULL)
		return NULL;
	memcpy(block, old, size < block_used[i] ? size : block_used[i]);
	free(old);
	return block;
}

#endif
#endif
#endif
