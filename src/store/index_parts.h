/*
 * index_parts: what the files of the index share.  For index*.c alone.
 *
 * One database.  A plant's key is the 8 bytes of its id, big-endian with the
 * sign bit turned, so that ids sort as numbers; its value is an entry's offset
 * and link.  The key of one byte 0 sorts below all of them: the state.
 *
 *	link	CRC-32C, seeded with the store's, over the entry's order and
 *		offset and the order of the entry that follows; nothing in that
 *		place for the last one.  The state's `first` is the same over
 *		the first entry alone.
 *
 * So that an id is not there is seen, and not concluded from what a search did
 * not find: the entry before the gap says that the one behind it follows.
 */
#ifndef STORE_INDEX_PARTS_H
#define STORE_INDEX_PARTS_H

#include <lmdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "index.h"

#define INDEX_NAME "index"
#define INDEX_DATA_NAME INDEX_NAME "/data.mdb"
#define INDEX_STATE_VERSION 1
#define INDEX_BOOT_LEN 36

struct index_state {
	uint32_t version;
	char uuid[RECORD_UUID_LEN];
	char boot[INDEX_BOOT_LEN]; /* of the last that wrote */
	uint32_t clean;            /* whether there may be a file `clean` */
	struct position covered;
	uint32_t first; /* link to the first entry */
	uint32_t crc;   /* CRC-32C of all before, seeded with the store's */
};

struct index_entry {
	uint64_t order; /* the id with its sign bit turned */
	uint64_t offset;
};

struct index {
	MDB_env *env;
	MDB_dbi dbi;
	MDB_txn *txn;
	MDB_cursor *cursor; /* of the transaction */
	unsigned page_bytes;
	bool reader;
	int dir; /* the store's directory; the caller's */
	dev_t device;
	ino_t inode;              /* of the open file; 0: not open yet */
	struct index_state state; /* as the running transaction has it */
	bool bulk; /* so far all is entered in order, into an empty one */
	bool has_waiting; /* in a bulk: `waiting` has no successor yet */
	struct index_entry waiting;
	uint32_t seed;
	char uuid[RECORD_UUID_LEN];
	char boot[INDEX_BOOT_LEN];
};

/* Where an id is, or would be. */
struct index_place {
	bool found, has_before, has_next;
	struct index_entry at;     /* if found */
	struct index_entry before; /* else, if there is one */
	uint64_t next;             /* else, if there is one */
};

static inline uint64_t
index_order(int64_t id)
{
	return (uint64_t)id ^ (UINT64_C(1) << 63);
}

static inline int64_t
index_id(uint64_t order)
{
	return (int64_t)(order ^ (UINT64_C(1) << 63));
}

/*
 * The functions below give 0, an errno value or one of LMDB's: MDB_CORRUPTED
 * where a link or a checksum does not hold.
 */

/* Find the entry, or see that it is not there. */
int index_locate(
    struct index *index, uint64_t order, struct index_place *place);

/* Put an entry where index_locate found none, just before. */
int index_insert(struct index *index, const struct index_place *place,
    const struct index_entry *entry);

/*
 * Put an entry behind all, by and by: each has its place in the index when the
 * next one comes, or with index_end_bulk.
 */
int index_append(struct index *index, const struct index_entry *entry);
int index_end_bulk(struct index *index);

uint32_t index_first_link(const struct index *index, const uint64_t *next);

/* Whether nothing is entered. */
bool index_is_empty(const struct index *index);

/* MDB_NOTFOUND if there is none, MDB_INCOMPATIBLE if it is another store's. */
int index_get_state(struct index *index);
int index_put_state(struct index *index);

/* Whether the file has all the pages that it says are in use. */
int index_check_size(const struct index *index);

/*
 * Whether LMDB's list of free pages can be believed.  With a wrong count of them
 * it asks for endless memory, or writes over ours.
 */
int index_check_free(struct index *index);

/* Whether the name still means the file that is open. */
bool index_is_current(const struct index *index);

/* Put the state, end the transaction; why the system would not, if so. */
int index_commit_state(struct index *index);

/* The file `clean` goes, also on the disk, before anything is written. */
int index_take_over(struct index *index);

/* Set errno to what LMDB's or the system's error means.  -1. */
int index_fail(int error);

/*
 * Handle the signals of a crash from now on; say which index this thread is
 * reading, NULL for none, to be blamed for one; the same for LMDB's assertions.
 */
void index_crash_catch(void);
void index_crash_blame(const struct index *index);
void index_crash_assert(MDB_env *env, const char *message);

#endif
