/*
 * index_damage: single bytes of the index are overwritten while it is in use.
 *
 * usage: index_damage SEEDS [FIRST]
 *
 * Each seed is a process with an index of its own: ids in random, rising or
 * mixed order, in batches; between them bytes of the file are overwritten,
 * anywhere or where it hurts.  The model knows what was entered.  An id that it
 * has must never be told as new; damage must be noticed or do no harm; and no
 * process may hang or end in another way than a damaged index ends it.
 *
 * A page number that leads to an old copy of the very page still hides what was
 * entered since.  Here, where pages with such numbers are aimed at, that is a
 * matter of one seed in some thousands; so many are allowed.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "ground/log.h"
#include "index.h"

#define UUID "0123abcd-0123-4567-89ab-0123456789ab"
#define DATA "index/data.mdb"
#define PAGE 4096
#define IDS_MAX 40000
#define TABLE (1 << 17) /* above twice IDS_MAX */
#define ROUNDS 300
#define HANG_S 20
#define HIDDEN_ONE_IN 1000

enum end {
	UNNOTICED, /* it did no harm */
	NOTICED = 10,
	LIED = 20,
	STUCK = 30, /* an error that does not say what is wrong */
};

static uint64_t
next_random(uint64_t *state)
{
	/* splitmix64 */
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

struct run {
	uint64_t random;
	char path[64];
	int dir;
	unsigned order;
	unsigned rarely; /* between two damages, in rounds */
	struct index *index;
	size_t n; /* entered, in this order */
	int64_t ids[IDS_MAX];
	uint32_t table[TABLE]; /* a place in ids, plus one */
};

static struct run run;

static uint64_t
below(uint64_t n)
{
	return next_random(&run.random) % n;
}

/* Where the id is in the table, or the free place for it. */
static uint32_t *
slot_of(int64_t id)
{
	uint64_t state = (uint64_t)id;
	size_t at = next_random(&state) % TABLE;

	while (run.table[at] != 0 && run.ids[run.table[at] - 1] != id)
		at = (at + 1) % TABLE;
	return &run.table[at];
}

static uint64_t
offset_of(size_t i)
{
	return 1000 + 100 * i;
}

static struct position
position_of(size_t n)
{
	return (struct position){ offset_of(n), offset_of(n) - 1, n, 0 };
}

static void
end_with(enum end end, const char *what)
{
	int error = errno;

	if (end >= LIED)
		printf("# %s: %s\n", what, strerror(error));
	fflush(stdout);
	_exit((int)end);
}

/* Damage says so itself, in one way. */
static void
failed(const char *what)
{
	end_with(errno == EBADMSG ? NOTICED : STUCK, what);
}

static int64_t
new_id(void)
{
	switch (run.order) {
	case 0:
		return (int64_t)next_random(&run.random);
	case 1:
		return (int64_t)run.n;
	case 2:
		return -(int64_t)run.n;
	default:
		return below(2) == 0 ? (int64_t)run.n
				     : (int64_t)next_random(&run.random);
	}
}

static void
put(int64_t id)
{
	uint32_t *slot = slot_of(id);
	uint64_t found = 0;

	switch (index_put(run.index, id, offset_of(run.n), &found)) {
	case INDEX_NEW:
		if (*slot != 0)
			end_with(LIED, "an id is hidden");
		run.ids[run.n++] = id;
		*slot = (uint32_t)run.n;
		break;
	case INDEX_FOUND:
		/* Its record is read, and is another's. */
		if (*slot == 0 || found != offset_of(*slot - 1))
			end_with(NOTICED, "found");
		break;
	case INDEX_ERROR:
		failed("put");
	}
}

/* An older state of the index: what it lacks is read again. */
static void
read_on(size_t from)
{
	uint64_t found;

	for (size_t i = from; i < run.n; i++)
		switch (
		    index_put(run.index, run.ids[i], offset_of(i), &found)) {
		case INDEX_NEW:
			break;
		case INDEX_FOUND:
			end_with(NOTICED, "read on");
			break;
		case INDEX_ERROR:
			failed("read on");
		}
}

static void
batch(size_t count)
{
	struct position covered, at;

	if (index_begin(run.index, &covered) < 0)
		failed("begin");
	if (covered.seq > run.n)
		end_with(LIED, "it covers more than there is");
	read_on(covered.seq);
	for (size_t i = 0; i < count && run.n < IDS_MAX; i++)
		put(run.n > 0 && below(3) == 0 ? run.ids[below(run.n)]
					       : new_id());
	at = position_of(run.n);
	if (index_commit(run.index, &at) < 0)
		failed("commit");
}

/* A page that is no leaf, if one is found soon. */
static uint64_t
choose_page(int fd, uint64_t pages)
{
	uint64_t page = 0;

	for (int i = 0; i < 50; i++) {
		uint16_t flags = 0;

		page = below(pages);
		if (pread(fd, &flags, sizeof(flags),
			(off_t)(page * PAGE + 10)) == sizeof(flags) &&
		    (flags & 2) == 0)
			break;
	}
	return page;
}

static void
damage(void)
{
	int fd = openat(run.dir, DATA, O_RDWR | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		end_with(STUCK, "the file");
	for (uint64_t i = below(2) == 0 ? 1 : below(3) + 1; i > 0; i--) {
		uint64_t pages = (uint64_t)st.st_size / PAGE;
		uint64_t page =
		    below(2) == 0 ? below(pages) : choose_page(fd, pages);
		uint64_t at = below(3) == 0 ? below(256) : below(PAGE);
		unsigned char byte;

		if (pread(fd, &byte, 1, (off_t)(page * PAGE + at)) != 1)
			continue;
		byte = below(2) == 0 ? (unsigned char)below(256)
				     : (unsigned char)(byte + 1 - 2 * below(2));
		if (pwrite(fd, &byte, 1, (off_t)(page * PAGE + at)) != 1)
			end_with(STUCK, "write");
	}
	close(fd);
}

/* All of it, as a new process sees it. */
static void
open_again(void)
{
	index_close(run.index, false);
	run.index = index_open(run.dir, run.path, UUID);
	if (run.index == NULL)
		failed("open");
}

static void
play(uint64_t seed, bool hurt)
{
	size_t first = 0;

	alarm(HANG_S);
	run.random = seed;
	run.order = (unsigned)below(4);
	run.rarely = 4U << (2 * below(4));
	run.index = index_open(run.dir, run.path, UUID);
	if (run.index == NULL)
		end_with(STUCK, "open");
	first = below(3) == 0 ? 20000 : below(3000);
	batch(first);
	for (int round = 0; round < ROUNDS; round++) {
		if (hurt && below(run.rarely) == 0)
			damage();
		if (below(50) == 0)
			open_again();
		batch(below(4) == 0 ? below(400) : below(8));
	}
	/* Whatever is in it is found. */
	struct position covered;
	if (index_begin(run.index, &covered) < 0)
		failed("begin");
	read_on(covered.seq);
	for (size_t i = 0; i < run.n; i++) {
		uint64_t found;

		switch (index_find(run.index, run.ids[i], &found)) {
		case INDEX_FOUND:
			if (found != offset_of(i))
				end_with(NOTICED, "found");
			break;
		case INDEX_NEW:
			end_with(LIED, "an id is hidden at the end");
			break;
		case INDEX_ERROR:
			failed("find");
		}
	}
	end_with(UNNOTICED, "");
}

static int
in_child(uint64_t seed, bool hurt)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		abort();
	if (pid == 0)
		play(seed, hurt);
	if (waitpid(pid, &status, 0) != pid)
		abort();
	index_discard(run.dir);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct tally {
	unsigned unnoticed, noticed, crashed, lied, stuck, others;
};

static void
count(struct tally *tally, int status, uint64_t seed)
{
	switch (status) {
	case UNNOTICED:
		tally->unnoticed++;
		return;
	case NOTICED:
		tally->noticed++;
		return;
	case EX_TEMPFAIL:
		tally->crashed++;
		return;
	case LIED:
		tally->lied++;
		break;
	case STUCK:
		tally->stuck++;
		break;
	default:
		tally->others++;
	}
	printf("# seed %llu: %d\n", (unsigned long long)seed, status);
}

static void
tell(bool well, const char *what)
{
	printf("%sok - %s\n", well ? "" : "not ", what);
}

int
main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	struct tally whole = { 0 }, hurt = { 0 };

	if (argc < 2) {
		fprintf(stderr, "usage: index_damage SEEDS [FIRST]\n");
		return EX_USAGE;
	}
	uint64_t seeds = strtoull(argv[1], NULL, 10);
	uint64_t from = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	snprintf(run.path, sizeof(run.path), "%s/index-XXXXXX",
	    tmp != NULL ? tmp : "/tmp");
	if (mkdtemp(run.path) == NULL)
		return EX_CANTCREAT;
	run.dir = open(run.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* What is said of each damage is not for here. */
	int devnull = open("/dev/null", O_WRONLY | O_CLOEXEC);
	dup2(devnull, STDERR_FILENO);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (uint64_t i = 0; i < seeds; i++) {
		if (i % 10 == 0)
			count(&whole, in_child(from + i, false), from + i);
		count(&hurt, in_child(from + i, true), from + i);
	}
	index_discard(run.dir);
	unlinkat(run.dir, "index", AT_REMOVEDIR);
	rmdir(run.path);
	printf("# whole: %u as they should be; damaged: %u did no harm, %u "
	       "noticed, %u ended the process\n",
	    whole.unnoticed, hurt.unnoticed, hurt.noticed, hurt.crashed);
	tell(whole.unnoticed == (seeds + 9) / 10,
	    "a whole index is never told as damaged");
	tell(hurt.noticed > 0, "damage is noticed");
	tell(hurt.lied <= seeds / HIDDEN_ONE_IN,
	    "no overwritten byte hides an id");
	tell(hurt.stuck == 0, "damage is told as damage");
	tell(hurt.others == 0, "no damage ends the process unseen or hangs it");
	return EXIT_SUCCESS;
}
