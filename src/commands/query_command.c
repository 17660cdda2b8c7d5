/*
 * query_command: reads a store: plants by their ids (get), its figures (stats),
 * and the counters of its processes (metrics).
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "api/api.h"
#include "command.h"
#include "ground/clock.h"
#include "ground/config.h"
#include "ground/file.h"
#include "output.h"
#include "pure/json.h"

#define STATUS_MISSING 1

static const struct reader_engine *engine;
static struct store_reader *reader;

static bool
read_id(const char *text, int64_t *id)
{
	const char *digits = text + (text[0] == '-');
	size_t n = strspn(digits, "0123456789");

	errno = 0;
	*id = strtoll(text, NULL, 10);
	return n > 0 && digits[n] == '\0' && errno == 0;
}

void
query_run_get(const struct call *call)
{
	const struct store_options *store = &call->store;
	enum fault fault, damage = FAULT_NONE;
	bool missing = false;
	struct record record;
	int64_t id;

	for (char **text = call->operands; *text != NULL; text++)
		if (!read_id(*text, &id))
			command_usage_error("invalid id: %s", *text);
	output_open(NULL, false);
	reader = command_open_reader(store, NULL, &engine);
	for (char **text = call->operands; *text != NULL; text++) {
		read_id(*text, &id);
		fault = engine->find(reader, id, &record);
		if (fault == FAULT_NONE)
			output_put_plant(
			    &record, command_option("full") != NULL);
		else if (fault == FAULT_ABSENT) {
			log_error("get: %" PRId64 ": no plant has this id in "
				  "%s",
			    id,
			    store->database != NULL ? "the database"
						    : store->dir);
			missing = true;
		} else if (fault == FAULT_DAMAGED)
			damage = fault;
		else {
			/* After a signal nothing more is printed. */
			if (fault != FAULT_STOPPED)
				output_finish();
			command_need(fault);
		}
	}
	output_finish();
	command_need(damage);
	if (missing)
		command_exit(STATUS_MISSING);
}

/* The period for which the rate is shown. */
#define RATE_S 60
#define WATCH_MS 1000

struct token_plants {
	char name[RECORD_BY_MAX + 1];
	uint64_t plants;
};

static struct {
	bool json;
	const char *separator; /* of JSON, before the next member */
	uint64_t plants;
	char first[TIMESTAMP_LEN + 1];
	char last[TIMESTAMP_LEN + 1];
	void *tokens;   /* tsearch(3): of token_plants, by name */
	uint64_t bytes; /* of the journal */
	char recent[TIMESTAMP_LEN + 1]; /* a minute before the command began */
	struct {
		int64_t second;
		uint64_t plants;
	} seconds[RATE_S]; /* of the last minute, in a ring */
} stats;

static int
compare_names(const void *a, const void *b)
{
	const struct token_plants *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void
count_plant(const struct record *record)
{
	struct token_plants key = { 0 }, *token, **place;

	memcpy(key.name, record->by, record->by_len);
	place = tfind(&key, &stats.tokens, compare_names);
	if (place == NULL && (token = malloc(sizeof(*token))) != NULL) {
		*token = key;
		place = tsearch(token, &stats.tokens, compare_names);
	}
	if (place == NULL)
		command_fail(fault_report("stats", "cannot count"));
	(*place)->plants++;
	stats.plants++;
	if (stats.first[0] == '\0')
		memcpy(stats.first, record->at, TIMESTAMP_LEN);
	memcpy(stats.last, record->at, TIMESTAMP_LEN);
	int64_t second;
	if (memcmp(record->at, stats.recent, TIMESTAMP_LEN) >= 0 &&
	    timestamp_read(record->at, TIMESTAMP_LEN, &second) == 0) {
		size_t i = (size_t)((second /= 1000) % RATE_S);

		if (stats.seconds[i].second != second)
			stats.seconds[i].plants = 0;
		stats.seconds[i].second = second;
		stats.seconds[i].plants++;
	}
}

/* Print `text`, which may be empty; if `text` is NULL, print `number`. */
static void
print_figure(const char *name, const char *text, uint64_t number)
{
	const bool none = text != NULL && text[0] == '\0';
	/* `text` is escaped already, or needs no escaping. */
	const char *quote = text != NULL && !none ? "\"" : "";
	char digits[sizeof("18446744073709551615")];

	snprintf(digits, sizeof(digits), "%" PRIu64, number);
	if (text == NULL)
		text = digits;
	if (stats.json)
		printf("%s\"%s\":%s%s%s", stats.separator, name, quote,
		    none ? "null" : text, quote);
	else
		printf("%-15s  %s\n", name, none ? "-" : text);
	stats.separator = ",";
}

/* Begin the figures of one kind, such as those of the tokens. */
static void
print_kind(const char *name)
{
	printf(stats.json ? "%s\"%s\":{" : "%.0s\n%s\n", stats.separator, name);
	stats.separator = "";
}

static void
print_time(const char *member, const char *dir, const char *name)
{
	int64_t ms = file_get_time(dir, name);
	char at[TIMESTAMP_LEN + 1] = "";

	if (ms > 0)
		timestamp_print(ms, at);
	print_figure(member, at, 0);
}

static void
print_token(const void *node, VISIT visit, int depth)
{
	const struct token_plants *token =
	    *(const struct token_plants *const *)node;

	(void)depth;
	if (visit == postorder || visit == leaf)
		print_figure(token->name, NULL, token->plants);
}

static void
keep_bytes(const char *name, const char *text, uint64_t number)
{
	(void)text;
	if (strcmp(name, "bytes") == 0)
		stats.bytes = number;
}

static void
print_all(const struct call *call)
{
	static char text[6 * PATH_MAX + 2];
	struct metrics_consumer list[METRICS_CONSUMERS_MAX];
	const char *dir = call->store.dir;
	size_t n = 0;

	stats.json = command_option("json") != NULL;
	stats.separator = "{";
	engine->figures(reader, print_figure);
	if (call->store.database == NULL) {
		text[json_string_print(dir, strnlen(dir, PATH_MAX), text) - 1] =
		    '\0';
		print_figure("directory", text + 1, 0);
		print_time("backup", dir, STORE_BACKUP_NAME);
		print_time("backup_verified", dir, STORE_VERIFIED_NAME);
		n = metrics_consumers(dir, stats.bytes, list);
	}
	print_figure("plants", NULL, stats.plants);
	print_figure("first", stats.first, 0);
	print_figure("last", stats.last, 0);
	print_kind("tokens");
	twalk(stats.tokens, print_token);
	stats.separator = "},";
	print_kind("consumers");
	for (size_t i = 0; i < n; i++)
		print_figure(list[i].name, NULL, list[i].behind);
	printf("%s", stats.json ? "}}\n" : "");
}

static void
print_files(const char *dir, uint64_t recent)
{
	struct metrics_consumer list[METRICS_CONSUMERS_MAX];
	double room = (double)metrics_free_bytes(dir);
	size_t n = metrics_consumers(dir, stats.bytes, list);

	printf("size       %s; %s free", command_size((double)stats.bytes),
	    command_size(room));
	double days = room * (double)stats.plants / (double)stats.bytes /
		      ((double)recent / RATE_S * 86400);
	if (recent > 0 && days < 10000)
		printf(", full in %.0f days at this rate", days);
	printf("\nbackup     %s\n", command_backup(dir));
	for (size_t i = 0; i < n; i++)
		printf("consumer   %s\n", command_consumer(&list[i]));
	if (n == 0)
		printf("consumers  none in %s/" METRICS_CONSUMERS "\n", dir);
}

static void
print_summary(const struct call *call)
{
	int64_t last_ms, now_s = clock_ms(CLOCK_REALTIME) / 1000;
	struct tokens *tokens = NULL;
	struct config config;
	uint64_t recent = 0;
	enum fault fault;

	for (size_t i = 0; i < RATE_S; i++)
		if (stats.seconds[i].second > now_s - RATE_S)
			recent += stats.seconds[i].plants;
	printf("plants     %" PRIu64, stats.plants);
	if (timestamp_read(stats.last, strlen(stats.last), &last_ms) == 0)
		printf("; the last one %s ago", command_age(last_ms));
	printf("\nrate       %s in the last minute\n",
	    command_count(recent, "plant"));
	if (call->store.database == NULL)
		print_files(call->store.dir, recent);
	if (config_read(&config) == FAULT_NONE &&
	    access(config.tokens, R_OK) == 0)
		tokens = tokens_open(config.tokens, TOKENS_ANY_USER, &fault);
	printf("tokens     %s\n",
	    tokens != NULL ? command_tokens(tokens) : "cannot be read");
	tokens_close(tokens);
}

/* Count the plants up to the reader's end, and print the requested figures. */
static void
show_stats(const struct call *call)
{
	const bool watch = command_option("watch") != NULL;
	char where[STORE_WHERE_MAX];
	struct record record;

	while (engine->next(reader, &record))
		count_plant(&record);
	if (command_retry(engine->end(reader, where), watch))
		return;
	engine->figures(reader, keep_bytes);
	command_unwatch();
	if (watch)
		printf("\033[H\033[J");
	if (command_option("json") != NULL || command_option("all") != NULL)
		print_all(call);
	else
		print_summary(call);
	fflush(stdout);
}

/* --watch normally runs until a signal ends it. */
static void
stop_stats(void)
{
	if (command_option("watch") != NULL)
		command_exit(EX_OK);
	log_error(
	    "stats: stopped after %s", command_count(stats.plants, "plant"));
}

void
query_run_stats(const struct call *call)
{
	const bool watch = command_option("watch") != NULL;

	command_stopped = stop_stats;
	if (watch && !isatty(STDOUT_FILENO))
		command_usage_error("--watch needs a terminal");
	timestamp_print(clock_ms(CLOCK_REALTIME) - RATE_S * 1000, stats.recent);
	reader = command_open_reader(&call->store, NULL, &engine);
	if (watch)
		command_need(engine->resume(reader, ""));
	show_stats(call);
	while (watch) {
		(void)poll(NULL, 0, WATCH_MS);
		if (!command_retry(engine->more(reader), true))
			show_stats(call);
	}
}

void
query_run_metrics(const struct call *call)
{
	static char text[API_METRICS_MAX];
	struct config config;
	struct api api = { .config = &config };
	enum fault fault;

	command_need(config_read(&config));
	config.dir = call->store.dir;
	config.database = NULL;
	fault = metrics_open(config.dir, false);
	if (fault != FAULT_NONE)
		(void)fault_report(config.dir, "cannot open its metrics");
	command_need(fault);
	api.tokens = tokens_open(config.tokens, TOKENS_ANY_USER, &fault);
	command_need(fault);
	fwrite(text, api_metrics(&api, text), 1, stdout);
	tokens_close(api.tokens);
}
