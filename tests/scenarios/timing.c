/*
 * driver: whether the time that a token's refusal takes shows how nearly right
 * it was.
 *
 * usage: driver TOKENS_FILE TRIES GOOD EARLY LATE
 *
 * Each measurement puts two tokens, in random order, TRIES times each: one that
 * differs from something known at its beginning, and one at its end.  Welch's t
 * of the times, the slowest 5 % left out, is printed with their means in
 * nanoseconds (the method of Reparaz, Balasch and Verbauwhede's dudect).
 *
 *	text           EARLY and LATE differ from GOOD, the one token of the
 *	               file, in one character
 *	text-leaky     the same by a comparison that ends early, which the
 *	               measurement must be able to show
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "http/tokens.h"

#define KEPT_PERCENT 95
#define WARM_UP 1000

struct setting {
	struct tokens *tokens;
	const char *good;
};

/* Whether the token is refused. */
typedef bool refusal(
    const struct setting *setting, const char *token, size_t len);

struct sample {
	int64_t ns;
	bool late;
};

struct moments {
	double n, mean, squares; /* Welford's */
};

static bool
refuse_well(const struct setting *setting, const char *token, size_t len)
{
	char name[TOKENS_NAME_MAX + 1];

	return tokens_find(setting->tokens, &(struct credential){ token, len },
		   0, name) == HTTP_CREDENTIAL_UNKNOWN;
}

/* volatile: a loop that ends early, not the C library's comparison. */
static bool
differs(const volatile char *a, const volatile char *b, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (a[i] != b[i])
			return true;
	return false;
}

static bool
refuse_by_text(const struct setting *setting, const char *token, size_t len)
{
	return len != strlen(setting->good) ||
	       differs(token, setting->good, len);
}

static uint64_t
next_random(uint64_t *state)
{
	/* xorshift64: the order need only have nothing to do with time. */
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static int64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Both are read for either: their places must not show. */
static int64_t
measure_once(refusal *refuse, const struct setting *setting, const char *early,
    const char *late, bool is_late)
{
	static char same_place[TOKENS_TOKEN_LEN];
	int64_t before, after;
	bool refused;

	for (size_t i = 0; i < sizeof same_place; i++)
		same_place[i] =
		    (char)(early[i] ^ ((early[i] ^ late[i]) & -is_late));
	before = now_ns();
	refused = refuse(setting, same_place, sizeof same_place);
	after = now_ns();
	if (!refused) {
		fputs("driver: a bad token is taken\n", stderr);
		exit(1);
	}
	return after - before;
}

static int
by_time(const void *a, const void *b)
{
	const struct sample *left = a, *right = b;

	return (left->ns > right->ns) - (left->ns < right->ns);
}

static void
moments_add(struct moments *moments, double value)
{
	double delta = value - moments->mean;

	moments->n++;
	moments->mean += delta / moments->n;
	moments->squares += delta * (value - moments->mean);
}

static double
moments_error(const struct moments *moments)
{
	return moments->squares / (moments->n - 1) / moments->n;
}

static void
measure(const char *title, refusal *refuse, const struct setting *setting,
    const char *early, const char *late, size_t tries)
{
	struct sample *samples = calloc(2 * tries, sizeof *samples);
	struct moments of[2] = { 0 };
	uint64_t state = (uint64_t)now_ns() | 1;

	if (samples == NULL)
		abort();
	for (size_t i = 0; i < WARM_UP; i++)
		measure_once(refuse, setting, early, late, i % 2);
	for (size_t i = 0; i < 2 * tries; i++) {
		bool is_late = next_random(&state) >> 63;

		samples[i].late = is_late;
		samples[i].ns =
		    measure_once(refuse, setting, early, late, is_late);
	}
	qsort(samples, 2 * tries, sizeof *samples, by_time);
	for (size_t i = 0; i < 2 * tries * KEPT_PERCENT / 100; i++)
		moments_add(&of[samples[i].late], (double)samples[i].ns);
	printf("%s %.2f %.1f %.1f\n", title,
	    (of[1].mean - of[0].mean) /
		sqrt(moments_error(&of[0]) + moments_error(&of[1])),
	    of[0].mean, of[1].mean);
	free(samples);
}

int
main(int argc, char **argv)
{
	struct setting setting;
	enum fault fault;
	size_t tries;

	if (argc != 6)
		return 64;
	for (int i = 3; i < argc; i++)
		if (strlen(argv[i]) != TOKENS_TOKEN_LEN)
			return 64;
	tries = strtoul(argv[2], NULL, 10);
	setting.good = argv[3];
	setting.tokens = tokens_open(argv[1], geteuid(), &fault);
	if (setting.tokens == NULL)
		return 1;
	measure("text", refuse_well, &setting, argv[4], argv[5], tries);
	measure(
	    "text-leaky", refuse_by_text, &setting, argv[4], argv[5], tries);
	tokens_close(setting.tokens);
	return 0;
}
