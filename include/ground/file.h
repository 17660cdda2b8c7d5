/*
 * file: complete reads and writes at an offset, small files, a rename that
 * never replaces a file, and a switch from root to a directory's owner.
 * Functions return 0, or -1 with errno, unless stated otherwise.  Any thread.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ground/fault.h"
#include "ground/watch.h"

/*
 * file_write_all(fd, buf, len, offset), file_read_all(fd, buf, len, offset):
 * Write all of `buf` at byte `offset`; a failure may leave a part written.
 * Read `len` bytes, or fewer at end of file; return the number, or -1.
 *
 * file_close(fd):
 * Close the descriptor, unless it is negative.  errno is unchanged.
 *
 * file_copy(from, begin, end, to, at, watch):
 * Copy the bytes [begin, end) of `from` to `to`, starting at byte `at`.  Fail
 * with ECANCELED if the watch, which may be NULL, stopped the copy.
 *
 * file_forget(fd, from, end):
 * Drop the bytes [from, end) from the page cache.  The next read then comes
 * from the disk.  The bytes must be written back.  Return NULL once no page
 * is cached, or if the file system is in memory.  Otherwise return the name of
 * the call that failed, with errno set: EBUSY if another program holds a page
 * for a second, or if another user owns the file.
 *
 * file_can_forget(fd):
 * Return NULL if file_forget can work; otherwise the failed call's name, with
 * errno: EOPNOTSUPP if the system reports every page as cached, EBUSY if it may
 * do so because another user owns the file.
 */
int file_write_all(int fd, const void *buf, size_t len, uint64_t offset);
ssize_t file_read_all(int fd, void *buf, size_t len, uint64_t offset);
void file_close(int fd);
int file_copy(int from, uint64_t begin, uint64_t end, int to, uint64_t at,
    const struct watch *watch);
const char *file_forget(int fd, uint64_t from, uint64_t end);
const char *file_can_forget(int fd);

/*
 * file_stat(dir, name, mask, st):
 * Call statx(2) for the device and the fields in `mask`: STATX_INO, STATX_SIZE,
 * STATX_BTIME.  An empty `name` means `dir` itself.  If the system refuses
 * statx, the birth time is 0.
 *
 * file_identify(fd, id):
 * Write an identity that no copy of the file shares, as FILE_ID_LEN characters
 * and a NUL: the inode number and, if known, the birth time.
 *
 * file_put(dir, name, buf, len), file_get(dir, name, buf, len):
 * file_put writes the first `len` bytes of the file, created if absent, and
 * makes them and the name durable; on failure it removes an empty file.
 * file_get reads the first `len` bytes, or fails with ENODATA.  Both fail with
 * ELOOP for a symbolic link, and with EINVAL or ENXIO for other special files.
 *
 * file_put_time(dir, name, ms), file_get_time(dir, name):
 * Write or read a file in the directory `dir` that holds a time, as one line in
 * RFC 3339 form.  file_get_time returns 0 if it finds no time.
 *
 * file_make_dir(path):
 * Open the directory; if absent, create it durably.  Return the fd, or -1.
 *
 * rename_new(dir, from, to):
 * Rename `from` to `to` in `dir` or AT_FDCWD.  Fail with EEXIST if `to` exists.
 * If the system refuses RENAME_NOREPLACE, a crash may leave both names.
 *
 * file_beside_program(installed, path):
 * Write a file's path: beside the program, as in a checkout, or else
 * `installed`, relative to the program.  Return false if /proc is not mounted.
 *
 * file_lstat(path, st):
 * Call lstat(2) without the slashes that end the path: with them, it follows a
 * link.
 *
 * file_become_owner(path, owner):
 * As root, switch to the owner of the directory `path` before creating files
 * there: the owner could not use root's files, and could place a link that
 * leads root elsewhere.  If `path` is absent, switch to the owner of its
 * parent; if that is root, only root may have write access to it, and the
 * store's `owner` must be root.  A link that another user owns is refused.
 * Return FAULT_NONE, even if `path` cannot be read; or a fault, logged.
 */
#define FILE_ID_LEN 41
struct stat;
struct statx;
int file_stat(int dir, const char *name, unsigned mask, struct statx *st);
int file_identify(int fd, char id[static FILE_ID_LEN + 1]);
int file_put(int dir, const char *name, const void *buf, size_t len);
int file_get(int dir, const char *name, void *buf, size_t len);
int file_put_time(const char *dir, const char *name, int64_t ms);
int64_t file_get_time(const char *dir, const char *name);
int file_make_dir(const char *path);
int rename_new(int dir, const char *from, const char *to);
bool file_beside_program(const char *installed, char path[static PATH_MAX]);
int file_lstat(const char *path, struct stat *st);
enum fault file_become_owner(const char *path, uid_t owner);
