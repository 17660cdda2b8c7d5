/*
 * journal_parts: what the files of the journal share.  For journal*.c alone, and
 * for the file of runs.c.
 */
#ifndef STORE_JOURNAL_PARTS_H
#define STORE_JOURNAL_PARTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "journal.h"

/* All of the bytes at that offset.  0, or -1 with errno. */
int journal_write_all(int fd, const char *buf, size_t len, uint64_t offset);

/* As many bytes as there are, up to `len`; -1 with errno. */
ssize_t journal_read_some(int fd, char *buf, size_t len, uint64_t offset);

#endif
