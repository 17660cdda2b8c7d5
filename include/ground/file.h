/*
 * file: whole reads and writes at a place of a file, small files whole, a
 * rename that replaces nothing, and root in a directory of another user.  The
 * offset of the descriptor is neither used nor changed.  Any thread.
 */
#ifndef GROUND_FILE_H
#define GROUND_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ground/fault.h"
#include "ground/watch.h"

/*
 * file_write_all(fd, buf, len, offset), file_read_all(fd, buf, len, offset):
 * Write all of `buf` at byte `offset`: 0; -1 with errno, and the file may have
 * a part of it.  Read `len` bytes there, or fewer if the file ends before:
 * return how many, or -1 with errno.
 */
int file_write_all(int fd, const void *buf, size_t len, uint64_t offset);
ssize_t file_read_all(int fd, void *buf, size_t len, uint64_t offset);

/*
 * file_copy(from, begin, end, to, watch):
 * Copy the bytes [begin, end) of the file `from` to the beginning of `to`.  0;
 * -1 with errno, ECANCELED if the watch, which may be NULL, ended it.
 *
 * file_forget(dir, fd, from, size):
 * Have the bytes [from, size) of a file in `dir`, which are written back, read
 * from the disk next time: drop their pages from the page cache, and check that
 * none has stayed.  0; -1 with errno: EBUSY if another program holds a page for
 * a second.  A file system in memory has no other bytes: 0.
 */
int file_copy(
    int from, uint64_t begin, uint64_t end, int to, const struct watch *watch);
int file_forget(int dir, int fd, uint64_t from, uint64_t size);

/*
 * file_is_written(fd):
 * Whether all that the kernel wrote back by itself is on the disk, which it
 * reports once to each open file.  Waits for nothing.
 *
 * file_identify(dir, name, id):
 * Write FILE_ID_LEN characters and a NUL that a copy of the file does not have:
 * its inode and its time of birth, where the file system knows that.  0, or -1
 * with errno.
 */
#define FILE_ID_LEN 41
bool file_is_written(int fd);
int file_identify(int dir, const char *name, char id[static FILE_ID_LEN + 1]);

/*
 * file_put(dir, name, buf, len), file_get(dir, name, buf, len):
 * Write the first `len` bytes of the file, which is made if it is absent, and
 * make them and its name durable; read them.  Return 0; -1 with errno: ENODATA
 * if the file has not so many, ELOOP of a link, EINVAL or ENXIO of no file.
 */
int file_put(int dir, const char *name, const void *buf, size_t len);
int file_get(int dir, const char *name, void *buf, size_t len);

/*
 * file_make_dir(path):
 * Open the directory, which is made, durably, where it is absent.  The
 * descriptor, or -1 with errno.
 */
int file_make_dir(const char *path);

/*
 * rename_new(dir, from, to):
 * Rename `from` to `to` in the directory `dir`, or AT_FDCWD.  Return 0; -1 with
 * errno: EEXIST if there is a `to`, which is kept.  On a file system without
 * such a rename (NFS), a crash may leave the file with both names.
 */
int rename_new(int dir, const char *from, const char *to);

/*
 * file_become_owner(path, owner):
 * As root, before it makes files in a directory: become its owner, who could
 * not use them else, and could lead root elsewhere with a link; where it is
 * absent, the owner of the directory that it is to be made in.  If that is root
 * too, `owner` has to be.  FAULT_NONE, also where the path cannot be read at
 * all; or a fault, logged.
 */
enum fault file_become_owner(const char *path, uid_t owner);

#endif
