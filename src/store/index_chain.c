/*
 * index_chain: the entries of the index, and the links that hold them together.
 * See index_parts.h.
 *
 * A search that finds an id is believed as far as its record is read.  One that
 * finds none is believed if the entry before the gap says that the one behind it
 * follows.
 */
#include <endian.h>
#include <string.h>

#include "index_parts.h"
#include "pure/crc32c.h"

/* What stands behind the key of a plant. */
#define VALUE_BYTES (sizeof(uint64_t) + sizeof(uint32_t))

static uint32_t
link_of(const struct index *index, const struct index_entry *entry,
    const uint64_t *next)
{
	uint64_t words[3] = { entry->order, entry->offset };

	if (next != NULL)
		words[2] = *next;
	return crc32c(
	    index->seed, words, (next != NULL ? 3 : 2) * sizeof(words[0]));
}

uint32_t
index_first_link(const struct index *index, const uint64_t *next)
{
	return crc32c(index->seed, next, next != NULL ? sizeof(*next) : 0);
}

bool
index_is_empty(const struct index *index)
{
	return index->state.first == index_first_link(index, NULL);
}

static uint32_t
state_crc(const struct index *index)
{
	return crc32c(
	    index->seed, &index->state, offsetof(struct index_state, crc));
}

/* MDB_val takes no const, and LMDB changes nothing. */
static MDB_val
state_key(void)
{
	static char name[1];

	return (MDB_val){ sizeof(name), name };
}

int
index_put_state(struct index *index)
{
	MDB_val key = state_key();
	MDB_val value = { sizeof(index->state), &index->state };

	index->state.crc = state_crc(index);
	return mdb_put(index->txn, index->dbi, &key, &value, 0);
}

int
index_get_state(struct index *index)
{
	MDB_val key = state_key(), value;
	int error = mdb_get(index->txn, index->dbi, &key, &value);

	if (error != 0)
		return error;
	if (value.mv_size != sizeof(index->state))
		return MDB_INCOMPATIBLE;
	memcpy(&index->state, value.mv_data, sizeof(index->state));
	if (index->state.version != INDEX_STATE_VERSION ||
	    memcmp(index->state.uuid, index->uuid, RECORD_UUID_LEN) != 0)
		return MDB_INCOMPATIBLE;
	return index->state.crc == state_crc(index) ? 0 : MDB_CORRUPTED;
}

static bool
read_order(const MDB_val *key, uint64_t *order)
{
	uint64_t big;

	if (key->mv_size != sizeof(big))
		return false;
	memcpy(&big, key->mv_data, sizeof(big));
	*order = be64toh(big);
	return true;
}

static bool
read_entry(const MDB_val *key, const MDB_val *value, struct index_entry *entry,
    uint32_t *link)
{
	if (!read_order(key, &entry->order) || value->mv_size != VALUE_BYTES)
		return false;
	const char *bytes = value->mv_data;
	memcpy(&entry->offset, bytes, sizeof(entry->offset));
	memcpy(link, bytes + sizeof(entry->offset), sizeof(*link));
	return true;
}

static int
put_entry(struct index *index, const struct index_entry *entry,
    const uint64_t *next, unsigned flags)
{
	uint64_t big = htobe64(entry->order);
	uint32_t link = link_of(index, entry, next);
	char bytes[VALUE_BYTES];
	MDB_val key = { sizeof(big), &big }, value = { sizeof(bytes), bytes };

	memcpy(bytes, &entry->offset, sizeof(entry->offset));
	memcpy(bytes + sizeof(entry->offset), &link, sizeof(link));
	return mdb_cursor_put(index->cursor, &key, &value, flags);
}

/*
 * With the cursor at the first entry from `order` on, or at the end if there is
 * none: go to what stands before it, and see that they are neighbours.
 */
static int
look_before(struct index *index, uint64_t order, struct index_place *place)
{
	const uint64_t *next = place->has_next ? &place->next : NULL;
	MDB_val key, value;
	uint32_t link;
	int error = mdb_cursor_get(
	    index->cursor, &key, &value, place->has_next ? MDB_PREV : MDB_LAST);

	if (error != 0)
		return error == MDB_NOTFOUND ? MDB_CORRUPTED : error;
	place->has_before = key.mv_size != 1;
	if (!place->has_before)
		return *(const char *)key.mv_data == 0 &&
			       index->state.first ==
				   index_first_link(index, next)
			   ? 0
			   : MDB_CORRUPTED;
	return read_entry(&key, &value, &place->before, &link) &&
		       place->before.order < order &&
		       link == link_of(index, &place->before, next)
		   ? 0
		   : MDB_CORRUPTED;
}

/* Put the cursor at the first entry from `order` on, if there is one. */
static int
look_from(struct index *index, uint64_t order, struct index_place *place)
{
	uint64_t big = htobe64(order);
	MDB_val key = { sizeof(big), &big }, value;
	uint32_t link;
	int error = mdb_cursor_get(index->cursor, &key, &value, MDB_SET_RANGE);

	memset(place, 0, sizeof(*place));
	if (error != 0)
		return error == MDB_NOTFOUND ? 0 : error;
	if (!read_entry(&key, &value, &place->at, &link) ||
	    place->at.order < order)
		return MDB_CORRUPTED;
	place->has_next = true;
	place->next = place->at.order;
	place->found = place->at.order == order;
	return 0;
}

int
index_locate(struct index *index, uint64_t order, struct index_place *place)
{
	int error = look_from(index, order, place);

	return error == 0 && !place->found ? look_before(index, order, place)
					   : error;
}

int
index_insert(struct index *index, const struct index_place *place,
    const struct index_entry *entry)
{
	int error = 0;

	if (place->has_before)
		error = put_entry(
		    index, &place->before, &entry->order, MDB_CURRENT);
	else
		index->state.first = index_first_link(index, &entry->order);
	return error != 0 ? error
			  : put_entry(index, entry,
				place->has_next ? &place->next : NULL,
				MDB_NOOVERWRITE);
}

int
index_append(struct index *index, const struct index_entry *entry)
{
	int error = 0;

	if (index->has_waiting)
		error = put_entry(
		    index, &index->waiting, &entry->order, MDB_APPEND);
	else
		index->state.first = index_first_link(index, &entry->order);
	index->waiting = *entry;
	index->has_waiting = true;
	return error;
}

int
index_end_bulk(struct index *index)
{
	index->bulk = false;
	if (!index->has_waiting)
		return 0;
	index->has_waiting = false;
	return put_entry(index, &index->waiting, NULL, MDB_APPEND);
}

/* One step behind the entry; it must be what the entry says that follows. */
static int
step(struct index *index, const struct index_entry *entry, uint32_t link,
    struct index_entry *next, uint32_t *next_link, bool *has_next)
{
	MDB_val key, value;
	int error = mdb_cursor_get(index->cursor, &key, &value, MDB_NEXT);

	*has_next = error == 0;
	if (error != 0 && error != MDB_NOTFOUND)
		return error;
	if (*has_next && (!read_entry(&key, &value, next, next_link) ||
			     next->order <= entry->order))
		return MDB_CORRUPTED;
	return link == link_of(index, entry, *has_next ? &next->order : NULL)
		   ? 0
		   : MDB_CORRUPTED;
}

int
index_walk(struct index *index, int64_t *from, size_t n,
    void (*see)(void *context, int64_t id, uint64_t offset), void *context)
{
	uint64_t order = index_order(*from);
	struct index_place place;
	struct index_entry entry = { 0 }, next;
	uint32_t link, next_link;
	bool more;
	MDB_val key, value;
	int error = look_from(index, order, &place);

	if (error == 0)
		error = look_before(index, order, &place);
	more = place.has_next;
	if (error == 0 && more) {
		error = mdb_cursor_get(index->cursor, &key, &value, MDB_NEXT);
		if (error == 0 && (!read_entry(&key, &value, &entry, &link) ||
				      entry.order != place.next))
			error = MDB_CORRUPTED;
	}
	for (; error == 0 && more && n > 0; n--) {
		error = step(index, &entry, link, &next, &next_link, &more);
		if (error != 0)
			break;
		see(context, index_id(entry.order), entry.offset);
		entry = next;
		link = next_link;
	}
	if (error != 0)
		return index_fail(
		    error == MDB_NOTFOUND ? MDB_CORRUPTED : error);
	if (more)
		*from = index_id(entry.order);
	return more;
}
