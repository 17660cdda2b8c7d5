/*
 * power_cut: every state that a power cut can leave of a journal, as far as it
 * can be enumerated, given to the store to open.
 *
 * What was written and not synced may reach the disk in any subset of its
 * sectors, with the file's size before or after it or between.  The other
 * sectors keep their old content, or read as zeros, as garbage, as stale lines
 * of the journal, or as a batch that stood at this place before and was torn:
 * the same plants, sent by another.  A sector itself is old or new, so the one
 * in which the durable bytes end is never anything else.
 *
 * The bytes come from the store's own code: a base of acknowledged batches, a
 * closing line or none, synced or not, then a batch, with or without room that
 * was prepared before or is made by its write.  A state must open, and then
 * have exactly the whole lines with which it begins: so nothing acknowledged is
 * lost, nothing invented and nothing legal refused.
 *
 * usage: power_cut [--long] [--every N]
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ground/log.h"
#include "lab.h"

#define BATCH_MAX 64
#define BASE_MAX 9
#define LINES_MAX (BASE_MAX + BATCH_MAX + 4)
/* All subsets of so many sectors are tried; of more, a sample. */
#define SECTORS_ALL 12
#define SECTORS_ALL_OFTEN 7
#define SUBSETS_SAMPLED 192
/* So much of the room is kept in most states, since all of it is alike. */
#define ROOM_KEPT 1024
/* Of so many recoveries one is followed by the clients' retries. */
#define RETRY_EVERY 64

enum room { ROOM_NONE, ROOM_PRESENT, ROOM_MADE, ROOMS };
enum closing { CLOSING_NONE, CLOSING_WRITTEN, CLOSING_CGI, CLOSINGS };
enum filling {
	FILL_OLD,
	FILL_ZEROS,
	FILL_GARBAGE,
	FILL_STALE,
	FILL_EARLIER,
	FILLINGS
};
enum known { KNOWS_NOTHING, KNOWS_SOME, KNOWS_ALL, INDEXES };

struct shared {
	uint64_t states, recoveries, retries, sectors_max;
	uint64_t lost, invented, refused, other;
};

struct scenario {
	enum room room;
	enum closing closing;
	size_t base, batch;
	struct bytes before, after;
	struct bytes mark;    /* of the end, before the batch */
	struct bytes earlier; /* `after`, but with the batch of another */
	size_t durable, end;  /* what lies between was not synced */
	size_t nends, ends[LINES_MAX], plants[LINES_MAX];
	struct lab_index *images[INDEXES];
	char *state;
};

static struct lab lab;
static struct shared *shared;
static bool everything;
static uint64_t every = 1, turn;
/* Which scenario is to be taken next, for all workers. */
static atomic_uint *next;
static char garbage[1 << 16];
static uint64_t random_state = 88172645463325252u;

static uint64_t
draw(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void
report(const struct scenario *s, uint64_t *count, const char *what)
{
	if ((*count)++ < 3)
		dprintf(lab.report,
		    "# %s: room %d, closing %d, base %zu, batch %zu, durable "
		    "%zu, turn %" PRIu64 ": %s\n",
		    what, (int)s->room, (int)s->closing, s->base, s->batch,
		    s->durable, turn, lab_logged(&lab));
}

/* --- Scenarios ----------------------------------------------------------- */

/* Where the lines end, and how many plants stand before each end. */
static void
find_lines(struct scenario *s, const struct bytes *journal)
{
	size_t at = RECORD_HEADER_LEN, plants = 0;
	struct record record;

	s->nends = 0;
	for (;;) {
		s->ends[s->nends] = at;
		s->plants[s->nends++] = plants;
		if (at == journal->len || journal->at[at] == '\n')
			break;
		if (s->nends == LINES_MAX)
			lab_die("too many lines");
		at = lab_line(journal, at, &record);
		plants += record.plant != NULL;
	}
	s->end = at;
}

static void
write_closing(struct scenario *s, struct store *store)
{
	struct store *other;

	switch (s->closing) {
	case CLOSING_NONE:
	case CLOSINGS:
		break;
	case CLOSING_WRITTEN:
		if (s->room == ROOM_PRESENT)
			store_idle(store);
		else
			store_close(lab_open_good_store(&lab, true));
		break;
	case CLOSING_CGI: /* which writes none */
		other = lab_open_good_store(&lab, false);
		lab_commit(other, (int64_t)++s->base, 1);
		store_close(other);
		break;
	}
}

static void
keep_some_room(struct bytes *journal, size_t end)
{
	if (journal->len > end + ROOM_KEPT)
		journal->len = end + ROOM_KEPT;
}

/* The same plants at the same places by another of as long a name. */
static void
make_earlier(struct scenario *s)
{
	char uuid[RECORD_UUID_LEN];
	uint32_t crc;
	bool first = true;
	struct record record;

	s->earlier.len = s->after.len;
	s->earlier.at = malloc(s->after.len);
	if (s->earlier.at == NULL ||
	    record_header_decode(s->after.at, s->after.len, uuid, &crc) !=
		RECORD_HEADER_OK)
		lab_die("no earlier batch can be made");
	memcpy(s->earlier.at, s->after.at, s->after.len);
	for (size_t at = s->durable, to; at < s->end; at = to) {
		to = lab_line(&s->after, at, &record);
		if (record.plant == NULL)
			continue;
		record.by = "tosser";
		if (!first)
			record.prev = crc;
		first = false;
		if (record_encode(&record, record_seed(uuid),
			s->earlier.at + at) != to - at)
			lab_die("another name is as long");
		crc = record.crc;
	}
}

static void
scenario_make(struct scenario *s, bool whole_room)
{
	struct store *store, *first;

	lab_renew(&lab);
	lab_put_index(&lab, NULL);
	store = lab_open_good_store(&lab, s->room != ROOM_NONE);
	first =
	    s->room == ROOM_PRESENT ? store : lab_open_good_store(&lab, false);
	if (s->base > 1)
		lab_commit(first, 1, s->base / 2);
	s->images[KNOWS_NOTHING] = NULL;
	s->images[KNOWS_SOME] = lab_take_index(&lab);
	if (s->base > 0)
		lab_commit(
		    first, (int64_t)(s->base / 2 + 1), s->base - s->base / 2);
	write_closing(s, store);
	s->images[KNOWS_ALL] = lab_take_index(&lab);
	s->before = lab_read(&lab, JOURNAL_NAME);
	s->mark = lab_read(&lab, END_NAME);
	find_lines(s, &s->before);
	s->durable = s->ends[s->nends - 1];
	if (s->batch > 0)
		lab_commit(store, (int64_t)s->base + 1, s->batch);
	s->after = lab_read(&lab, JOURNAL_NAME);
	find_lines(s, &s->after);
	if (!whole_room) {
		keep_some_room(&s->before, s->end);
		keep_some_room(&s->after, s->end);
	}
	if (first != store)
		store_close(first);
	store_close(store);
	make_earlier(s);
	s->state = malloc(s->after.len);
	if (s->state == NULL)
		lab_die("out of memory");
}

static void
scenario_done(struct scenario *s)
{
	lab_free_index(s->images[KNOWS_SOME]);
	lab_free_index(s->images[KNOWS_ALL]);
	free(s->before.at);
	free(s->mark.at);
	free(s->after.at);
	free(s->earlier.at);
	free(s->state);
}

/* --- Recoveries ---------------------------------------------------------- */

/* How many whole lines of `whole` the state begins with. */
static size_t
count_lines(const struct scenario *s, const struct bytes *whole, size_t len)
{
	size_t same = s->durable, lines = 0;

	while (same < len && same < s->end && s->state[same] == whole->at[same])
		same++;
	while (lines < s->nends && s->ends[lines] <= same)
		lines++;
	return lines;
}

/* Clients send everything again, twice: the first time opens no store. */
static void
retry(const struct scenario *s, struct store *store, size_t plants)
{
	for (size_t i = 0; i < s->base + s->batch; i++) {
		struct plant plant = lab_plant((int64_t)i + 1);
		enum store_result result = lab_put(store, &plant);

		if (i < plants && result == STORE_CREATED)
			report(s, &shared->lost, "stored, and unknown");
		else if (i >= plants && result == STORE_SAME)
			report(s, &shared->invented, "known, and not stored");
		else if (result != STORE_SAME && result != STORE_CREATED)
			report(s, &shared->other, "a retry failed");
		plant_done(&plant);
	}
	shared->retries++;
}

static void
check_torn_copy(const struct scenario *s, size_t end, size_t len)
{
	char name[64];
	struct bytes copy;
	size_t text = len;

	snprintf(name, sizeof(name), JOURNAL_NAME ".torn-%zu", end);
	copy = lab_read(&lab, name);
	while (text > end && s->state[text - 1] == '\n')
		text--;
	if (text - end != copy.len ||
	    (copy.len > 0 && memcmp(copy.at, s->state + end, copy.len) != 0))
		report(s, &shared->other, "the torn end was not kept");
	free(copy.at);
}

/* What the file holds now must be those lines, and blank ones. */
static void
check_journal(const struct scenario *s, const struct bytes *whole, size_t end)
{
	struct bytes now = lab_read(&lab, JOURNAL_NAME);
	size_t same = end;

	if (now.len < end || memcmp(now.at, whole->at, end) != 0) {
		report(s, &shared->lost, "lines are gone");
		free(now.at);
		return;
	}
	while (same < now.len && now.at[same] == '\n')
		same++;
	if (same != now.len)
		report(s, &shared->invented, "more lines than were written");
	free(now.at);
}

static void
recover(const struct scenario *s, size_t len, enum known known)
{
	const struct bytes *whole = &s->after;
	size_t lines = count_lines(s, whole, len);
	size_t others = count_lines(s, &s->earlier, len);
	bool thorough = shared->recoveries % RETRY_EVERY == 0;
	struct store *store;
	char name[64];
	enum fault fault;

	if (others > lines) {
		whole = &s->earlier;
		lines = others;
	}
	size_t end = s->ends[lines - 1];
	shared->recoveries++;
	lab_write(&lab, JOURNAL_NAME, s->state, len);
	lab_put_index(&lab, s->images[known]);
	lab_write(
	    &lab, END_NAME, draw() % 2 == 0 ? NULL : s->mark.at, s->mark.len);
	store = lab_open_store(&lab, draw() % 2 == 0, &fault);
	if (store == NULL) {
		report(s, &shared->refused, "refused");
		return;
	}
	check_journal(s, whole, end);
	if (thorough) {
		check_torn_copy(s, end, len);
		retry(s, store, s->plants[lines - 1]);
	}
	store_close(store);
	snprintf(name, sizeof(name), JOURNAL_NAME ".torn-%zu", end);
	unlinkat(lab.dir, name, 0);
	if (thorough) {
		lab_put_index(&lab, NULL);
		store = lab_open_good_store(&lab, true);
		retry(s, store, s->base + s->batch);
		store_close(store);
	}
}

/* The state, of that length, with each index in turn, or with all. */
static void
try_state(const struct scenario *s, size_t len)
{
	turn++;
	if (every > 1 && draw() % every != 0)
		return;
	shared->states++;
	for (int known = 0; known < INDEXES; known++)
		if (everything || turn % INDEXES == (uint64_t)known)
			recover(s, len, (enum known)known);
}

/* --- States -------------------------------------------------------------- */

/* What stands in [from, to) if it was not written. */
static void
fill(struct scenario *s, size_t from, size_t to, enum filling filling)
{
	size_t i, n = 0, source;

	if (from < s->durable)
		filling = FILL_OLD;
	switch (filling) {
	case FILL_OLD:
	case FILLINGS:
		if (from < s->before.len)
			n = (to < s->before.len ? to : s->before.len) - from;
		memcpy(s->state + from, s->before.at + from, n);
		memset(s->state + from + n, 0, to - from - n);
		break;
	case FILL_ZEROS:
		memset(s->state + from, 0, to - from);
		break;
	case FILL_GARBAGE:
		source = draw() % (sizeof(garbage) / 2);
		for (i = from; i < to; i++)
			s->state[i] =
			    garbage[(source + i - from) % sizeof(garbage)];
		break;
	case FILL_EARLIER:
		memcpy(s->state + from, s->earlier.at + from, to - from);
		break;
	case FILL_STALE:
		source = draw() % (s->end - (to - from < s->end ? to - from
								: s->end - 1));
		for (i = from; i < to; i++)
			s->state[i] = s->after.at[source + (i - from)];
		break;
	}
}

/* The sectors of that size in `subset` were written, the others not. */
static void
try_subset(struct scenario *s, size_t sector, uint64_t subset)
{
	size_t first = s->durable / sector * sector, past = s->after.len;

	for (int filling = 0; filling < FILLINGS; filling++) {
		memcpy(s->state, s->after.at, past);
		for (size_t i = 0, at = first; at < past; i++, at += sector) {
			size_t to = at + sector < past ? at + sector : past;

			/* What lies behind the 63rd goes with it. */
			if ((subset >> (i < 63 ? i : 63) & 1) == 0)
				fill(s, at, to, (enum filling)filling);
		}
		try_state(s, past);
		if (s->before.len < past) {
			try_state(s, s->before.len);
			try_state(
			    s, s->before.len + draw() % (past - s->before.len));
		}
	}
}

static void
try_sectors(struct scenario *s, size_t sector, size_t all_max)
{
	size_t first = s->durable / sector;
	size_t n = (s->end + sector - 1) / sector - first;

	if (n > 63)
		n = 63;
	if (n <= all_max) {
		if (shared->sectors_max < n)
			shared->sectors_max = n;
		for (uint64_t subset = 0; subset < UINT64_C(1) << n; subset++)
			try_subset(s, sector, subset);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		try_subset(s, sector, (UINT64_C(1) << i) - 1);
		try_subset(s, sector, ~((UINT64_C(1) << i) - 1));
		try_subset(s, sector, ~(UINT64_C(1) << i));
		try_subset(s, sector, UINT64_C(1) << i);
	}
	for (int i = 0; i < SUBSETS_SAMPLED; i++)
		try_subset(s, sector, draw());
}

/* Cut at a byte: the size ends there, or what was there before follows. */
static void
try_cuts(struct scenario *s, size_t step)
{
	for (size_t cut = s->durable; cut <= s->end; cut += step) {
		memcpy(s->state, s->after.at, s->after.len);
		try_state(s, cut);
		if (cut < s->before.len) {
			memcpy(s->state + cut, s->before.at + cut,
			    s->before.len - cut);
			try_state(s, s->before.len);
		}
		memset(s->state + cut, 0, s->after.len - cut);
		try_state(s, s->after.len);
	}
}

static void
try_scenario(enum room room, enum closing closing, size_t batch, bool often,
    bool whole_room)
{
	struct scenario s = { .room = room, .closing = closing };

	s.batch = batch;
	s.base = batch * 5 % BASE_MAX;
	scenario_make(&s, whole_room);
	if (!whole_room) {
		try_cuts(&s, often ? 1 : 17);
		try_sectors(&s, 512, often ? SECTORS_ALL : SECTORS_ALL_OFTEN);
	}
	try_sectors(&s, 4096, SECTORS_ALL);
	scenario_done(&s);
}

/* Take scenarios as long as there are any. */
static void
work(void)
{
	const unsigned mixes = ROOMS * CLOSINGS;
	unsigned number;

	while ((number = atomic_fetch_add(next, 1)) < BATCH_MAX * mixes) {
		size_t batch = BATCH_MAX - number / mixes;
		unsigned mix = number % mixes;
		enum room room = (enum room)(mix / CLOSINGS);
		enum closing closing = (enum closing)(mix % CLOSINGS);

		random_state = (number + 1) * UINT64_C(2654435761);
		try_scenario(room, closing, batch,
		    everything || mix == batch % mixes, false);
		if (room == ROOM_MADE && batch % 16 == 15)
			try_scenario(room, closing, batch, false, true);
	}
}

static int
run_workers(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned workers = cpus < 1 ? 1 : cpus > 64 ? 64 : (unsigned)cpus;
	struct shared total = { 0 };
	int failed = 0, status;

	shared = mmap(NULL, workers * sizeof(*shared), PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		lab_die("mmap: %s", strerror(errno));
	next = mmap(NULL, sizeof(*next), PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (next == MAP_FAILED)
		lab_die("mmap: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (char)draw();
	for (unsigned i = 0; i < workers; i++) {
		pid_t pid = fork();

		if (pid < 0)
			lab_die("fork: %s", strerror(errno));
		if (pid > 0)
			continue;
		shared += i;
		lab_open(&lab);
		work();
		lab_close(&lab);
		_exit(0);
	}
	while (wait(&status) > 0)
		failed |= status;
	for (unsigned i = 0; i < workers; i++) {
		total.states += shared[i].states;
		total.recoveries += shared[i].recoveries;
		total.retries += shared[i].retries;
		total.lost += shared[i].lost;
		total.invented += shared[i].invented;
		total.refused += shared[i].refused;
		total.other += shared[i].other;
		if (total.sectors_max < shared[i].sectors_max)
			total.sectors_max = shared[i].sectors_max;
	}
	printf("# %" PRIu64 " crash states (all subsets "
	       "of up to %" PRIu64 " sectors), %" PRIu64 " recoveries with "
	       "the index absent, behind or current; %" PRIu64 " times "
	       "all plants were sent again\n",
	    total.states, total.sectors_max, total.recoveries, total.retries);
	printf("# lost %" PRIu64 ", invented %" PRIu64 ", wrongly refused "
	       "%" PRIu64 "\n",
	    total.lost, total.invented, total.refused);
	lab_say(total.recoveries == 0, "crash states are tried");
	lab_say(total.lost, "no acknowledged plant is lost by a power cut");
	lab_say(total.invented, "no plant is invented by a power cut");
	lab_say(total.refused, "no power cut makes the store refuse to start");
	lab_say(total.other + (failed != 0),
	    "after a power cut the store goes on, and kept the torn end");
	return total.recoveries == 0 ||
	       total.lost + total.invented + total.refused + total.other > 0 ||
	       failed != 0;
}

int
main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--long") == 0)
			everything = true;
		else if (strcmp(argv[i], "--every") == 0 && i + 1 < argc)
			every = strtoull(argv[++i], NULL, 10);
		else
			lab_die("usage: power_cut [--long] [--every N]");
	if (every == 0)
		every = 1;
	log_level_max = LOG_AT_ERROR;
	return run_workers();
}
