/* sample: plants, a store for them, clocks.  See sample.h. */
#include "sample.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * Ids as clients choose them: half follow each other, half are anywhere, since
 * an odd factor reaches each number once.
 */
static int64_t
id_of(uint64_t i)
{
	return i % 2 == 0 ? (int64_t)i
			  : (int64_t)(i * UINT64_C(0x9e3779b97f4a7c15) | 1);
}

/* By hand: printf would take a tenth of a whole batch's time. */
static char *
print_number(char *at, uint64_t number)
{
	char digits[20];
	size_t n = sizeof(digits);

	do
		digits[--n] = (char)('0' + number % 10);
	while ((number /= 10) != 0);
	return mempcpy(at, digits + n, sizeof(digits) - n);
}

static char *
print_text(char *at, const char *text)
{
	return mempcpy(at, text, strlen(text));
}

void
sample_make(struct sample *sample, uint64_t i)
{
	int64_t id = id_of(i);
	char *at = print_text(sample->text, "{\"id\":");

	if (id < 0)
		*at++ = '-';
	at = print_number(at, id < 0 ? -(uint64_t)id : (uint64_t)id);
	at = print_text(at, ",\"name\":\"Plant no. ");
	at = print_number(at, i);
	at = print_text(at, "\",\"tag\":\"indoor\"}");
	*at = '\0';
	sample->plant.id = id;
	sample->plant.text = sample->text;
	sample->plant.len = (size_t)(at - sample->text);
}

struct store *
sample_open_store(const char *dir)
{
	struct store_options options = { .dir = dir, .long_lived = true };
	enum fault fault;
	struct store *store = store_open(&options, &fault);

	if (store == NULL)
		exit(EXIT_FAILURE);
	return store;
}

int64_t
sample_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
