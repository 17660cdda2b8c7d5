/*
 * fuzz_tokens: the token file against a model of its format; and the file read
 * again, which replaces the set if it is good and leaves it if it is not.
 *
 * The input: the file, and behind a byte 0x1e what the file is changed to.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "fuzz_log.h"
#include "http/tokens.h"
#include "pure/timestamp.h"

#define SEPARATOR 0x1e
#define HEX "0123456789abcdef"
#define NAME                         \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ" \
	"abcdefghijklmnopqrstuvwxyz" \
	"0123456789._-"
/* A time of the tokens' clock, and of any. */
#define NOW_MS INT64_C(1800000000000)

/* The digest of "good", which the seeds have. */
static const unsigned char good[TOKENS_DIGEST_LEN] = { 0x77, 0x0e, 0x60, 0x76,
	0x24, 0xd6, 0x89, 0x26, 0x5c, 0xa6, 0xc4, 0x48, 0x84, 0xd0, 0x80, 0x7d,
	0x9b, 0x05, 0x4d, 0x23, 0xc4, 0x73, 0xc1, 0x06, 0xc7, 0x2b, 0xe9, 0xde,
	0x08, 0xb7, 0x37, 0x6c };

struct set {
	struct token *tokens;
	size_t count;
	bool good;
};

static size_t
span(const char *text, size_t len, const char *set)
{
	size_t n = 0;

	while (n < len && text[n] != '\0' && strchr(set, text[n]) != NULL)
		n++;
	return n;
}

/* Up to four fields of the line; one that begins with '#' ends them. */
static size_t
split(const char *line, size_t len, const char **fields, size_t *lens)
{
	size_t n = 0;

	for (;;) {
		size_t blank = span(line, len, " \t");

		line += blank;
		len -= blank;
		if (len == 0 || *line == '#' || n == 4)
			return n;
		fields[n] = line;
		for (lens[n] = 0; lens[n] < len; lens[n]++)
			if (line[lens[n]] == ' ' || line[lens[n]] == '\t')
				break;
		line += lens[n];
		len -= lens[n++];
	}
}

static bool
read_line(struct set *set, const char *line, size_t len)
{
	const char *fields[4];
	size_t lens[4], n;
	struct token token = { 0 };

	n = split(line, len, fields, lens);
	if (n == 0)
		return true;
	if (n == 1 || n == 4 || lens[0] > 64 ||
	    span(fields[0], lens[0], NAME) != lens[0] || lens[1] != 64 ||
	    span(fields[1], lens[1], HEX) != lens[1])
		return false;
	token.expires_ms = TOKENS_NEVER;
	if (n == 3 &&
	    timestamp_read(fields[2], lens[2], &token.expires_ms) != 0)
		return false;
	memcpy(token.name, fields[0], lens[0]);
	for (size_t i = 0; i < sizeof(token.digest); i++) {
		const char hex[3] = { fields[1][2 * i], fields[1][2 * i + 1],
			'\0' };

		token.digest[i] = (unsigned char)strtoul(hex, NULL, 16);
	}
	/* A name may be there once before, with an expiry: it is renewed. */
	size_t same = 0;
	for (size_t i = 0; i < set->count; i++) {
		bool named = strcmp(set->tokens[i].name, token.name) == 0;

		same += named;
		if ((named && set->tokens[i].expires_ms == TOKENS_NEVER) ||
		    same > 1 ||
		    memcmp(set->tokens[i].digest, token.digest,
			sizeof(token.digest)) == 0)
			return false;
	}
	set->tokens = realloc(set->tokens, (set->count + 1) * sizeof(token));
	REQUIRE(set->tokens != NULL);
	set->tokens[set->count++] = token;
	return true;
}

static struct set
model(const char *text, size_t len)
{
	struct set set = { .good = memchr(text, '\0', len) == NULL };

	while (len > 0 && set.good) {
		const char *newline = memchr(text, '\n', len);
		size_t line = newline == NULL ? len : (size_t)(newline - text);

		set.good = read_line(&set, text, line);
		line += newline != NULL;
		text += line;
		len -= line;
	}
	return set;
}

/* "good" is found under the name that has its digest, or under none. */
static void
check_find(struct tokens *tokens, const struct set *set)
{
	char name[TOKENS_NAME_MAX + 1] = "";
	enum http_error error = tokens_find(
	    tokens, &(struct credential){ "good", 4 }, NOW_MS, name);
	const struct token *found = NULL;

	for (size_t i = 0; i < set->count; i++)
		if (memcmp(set->tokens[i].digest, good, sizeof(good)) == 0)
			found = &set->tokens[i];
	if (found == NULL)
		REQUIRE(error == HTTP_CREDENTIAL_UNKNOWN);
	else if (found->expires_ms <= NOW_MS)
		REQUIRE(error == HTTP_CREDENTIAL_EXPIRED);
	else
		REQUIRE(error == HTTP_OK && strcmp(name, found->name) == 0);
}

static void
check_set(struct tokens *tokens, const struct set *set)
{
	size_t count;
	const struct token *list = tokens_list(tokens, &count);

	REQUIRE(count == set->count);
	for (size_t i = 0; i < set->count; i++) {
		const struct token *is = &list[i];
		const struct token *should = &set->tokens[i];
		int64_t ms;

		REQUIRE(strcmp(is->name, should->name) == 0);
		REQUIRE(memcmp(is->digest, should->digest,
			    sizeof(is->digest)) == 0);
		REQUIRE(is->expires_ms == should->expires_ms);
		REQUIRE(memchr(is->created, '\0', sizeof(is->created)) != NULL);
		REQUIRE(
		    *is->created == '\0' ||
		    timestamp_read(is->created, strlen(is->created), &ms) == 0);
	}
	check_find(tokens, set);
}

static void
write_file(int fd, const char *text, size_t len)
{
	REQUIRE(ftruncate(fd, 0) == 0);
	REQUIRE(pwrite(fd, text, len, 0) == (ssize_t)len);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *next = NULL;
	size_t len = size, next_len = 0;
	char path[64];
	struct tokens *tokens;
	struct set set;
	enum fault fault;

	if (size > 0)
		next = memchr(text, SEPARATOR, size);
	if (next != NULL) {
		len = (size_t)(next++ - text);
		next_len = size - len - 1;
	}
	int fd = memfd_create("tokens", MFD_CLOEXEC);
	REQUIRE(fd >= 0 && fchmod(fd, 0600) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	write_file(fd, text, len);
	fuzz_log_errors = 0;
	tokens = tokens_open(path, geteuid(), &fault);
	set = model(text, len);
	REQUIRE((tokens != NULL) == set.good);
	if (tokens == NULL) {
		REQUIRE(fault == FAULT_SETUP && fuzz_log_errors == 1);
	} else {
		check_set(tokens, &set);
		if (next != NULL) {
			struct set after = model(next, next_len);

			write_file(fd, next, next_len);
			fuzz_log_errors = 0;
			tokens_refresh(tokens, NOW_MS);
			REQUIRE((fuzz_log_errors > 0) == !after.good);
			check_set(tokens, after.good ? &after : &set);
			free(after.tokens);
		}
	}
	free(set.tokens);
	tokens_close(tokens);
	close(fd);
	return 0;
}
