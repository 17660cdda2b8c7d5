/*
 * fault_shim: system calls that fail when a test wants them to.
 *
 * A test that is linked with this has its own pwrite, fdatasync and so on,
 * which the library under test and liblmdb call too.  Each counts, fails or
 * falls short where it was told to, and else goes to the kernel.
 */
#ifndef TESTS_FAULT_SHIM_H
#define TESTS_FAULT_SHIM_H

#include <stddef.h>

enum shim_call {
	SHIM_PWRITE,
	SHIM_PWRITEV,
	SHIM_WRITEV,
	SHIM_PREAD,
	SHIM_FDATASYNC,
	SHIM_FSYNC,
	SHIM_FTRUNCATE,
	SHIM_UNLINKAT,
	SHIM_RENAMEAT2,
	SHIM_FSTAT,
	SHIM_FSTATAT,
	SHIM_FCNTL, /* F_OFD_SETLK alone */
	SHIM_WRITE,
	SHIM_LSEEK,
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
 * Let the nth SHIM_PWRITE or SHIM_PWRITEV write no more than `len` bytes.
 */
void shim_shorten(
    enum shim_call call, const char *file, unsigned nth, size_t len);

/*
 * shim_exit(call, file, nth):
 * End the process, as by a kill, before the nth call.
 */
void shim_exit(enum shim_call call, const char *file, unsigned nth);

/*
 * shim_count(call):
 * How many calls on the files meant there were since the call was last told
 * to fail, shorten, exit or nothing.
 */
unsigned shim_count(enum shim_call call);

/*
 * shim_reset():
 * Let everything succeed, and count from 0, on any file.
 */
void shim_reset(void);

#endif
