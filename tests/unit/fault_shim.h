/*
 * fault_shim: system calls and allocations that fail when a test wants them to.
 *
 * A test that is linked with this has its own pwrite, fdatasync, malloc and so
 * on, which the library under test calls too.  Each counts, fails or
 * falls short as planned, and otherwise goes to the kernel or to the real
 * allocator, which a sanitizer goes on watching.
 *
 * For whole programs there is tests/faults/preload.c.  It counts all calls as
 * one sequence, and defines many more, such as open, close and mmap: a sanitizer
 * must keep those of a test to itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum shim_call {
	SHIM_PWRITE,
	SHIM_WRITEV,
	SHIM_PREAD,
	SHIM_FDATASYNC,
	SHIM_FSYNC,
	SHIM_SYNC_FILE_RANGE,
	SHIM_FADVISE,
	SHIM_FTRUNCATE,
	SHIM_UNLINKAT,
	SHIM_RENAMEAT2,
	SHIM_FSTAT,
	SHIM_FSTATAT,
	SHIM_FCNTL, /* F_OFD_SETLK alone */
	SHIM_MEMFD_CREATE,
	SHIM_RECV,
	SHIM_SEND,
	SHIM_CALLS
};

/*
 * shim_fail(call, file, nth, times, error):
 * Of the calls on files whose path ends in `file` (NULL: any), from now on
 * counted from 1, let the nth and the times - 1 after it fail with `error`.
 */
void shim_fail(enum shim_call call, const char *file, unsigned nth,
    unsigned times, int error);

/*
 * shim_shorten(call, file, nth, len):
 * Let the nth SHIM_PWRITE write no more than `len` bytes.
 */
void shim_shorten(
    enum shim_call call, const char *file, unsigned nth, size_t len);

/*
 * shim_exit(call, file, nth):
 * End the process, as by a kill, before the nth call.
 */
void shim_exit(enum shim_call call, const char *file, unsigned nth);

/*
 * shim_meet(call, happens, argument):
 * Before the call that shim_fail has named, let something else happen.  Its
 * `times` may be 0: then the call succeeds.
 */
void shim_meet(
    enum shim_call call, void (*happens)(void *argument), void *argument);

/*
 * shim_count(call):
 * How many calls on the files meant there were since the call was last told
 * to fail, shorten, exit or nothing.
 */
unsigned shim_count(enum shim_call call);

/*
 * shim_reset():
 * Let everything succeed, and count from 0, on any file.  Return whether a call
 * that was to fail, fall short or exit was reached since.
 */
bool shim_reset(void);

/*
 * ALLOC_CAN_FAIL:
 * Whether allocations can fail: not with the thread sanitizer, which uses
 * malloc before the real one can be looked up.  Its build does not have the
 * tests that need this; the other builds run them.
 */
#ifdef __SANITIZE_THREAD__
#define ALLOC_CAN_FAIL 0
#else
#define ALLOC_CAN_FAIL 1
#endif

/*
 * alloc_fail(nth, times):
 * From now on counted from 1, let the nth allocation and the times - 1 after it
 * fail with ENOMEM.  Meanwhile only one thread may allocate.
 */
void alloc_fail(unsigned nth, unsigned times);

/*
 * alloc_reset():
 * Let everything succeed.  Return whether an allocation was made to fail since
 * alloc_fail.
 */
bool alloc_reset(void);
