/*
 * stats_command: what is in a store, and its state.  The plants are counted by
 * reading the whole journal.
 */
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "ground/log.h"
#include "pure/timestamp.h"

static const char usage[] =
    "Usage: plant-store stats [--dir DIR | DIR] [--json]\n"
    "           [--quiet | --progress]\n"
    "\n"
    "Show what a store holds, and its state.  Every line of the journal is\n"
    "read and checked.  plant-store(1) has what each value means.\n"
    "\n"
    "  --json          one JSON object\n";

/* The plants of one token.  There are as many of these as names. */
struct token_plants {
	char name[RECORD_BY_MAX + 1];
	uint64_t plants;
};

struct stats {
	uint64_t plants;
	char first[TIMESTAMP_LEN + 1];
	char last[TIMESTAMP_LEN + 1];
	void *tokens;               /* a tree of token_plants, by name */
	struct token_plants *token; /* that of the plant before */
};

static int
compare_names(const void *a, const void *b)
{
	const struct token_plants *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static struct token_plants *
find_token(struct stats *stats, const struct record *record)
{
	struct token_plants *token = calloc(1, sizeof(*token)), **place;

	if (token == NULL)
		return NULL;
	memcpy(token->name, record->by, record->by_len);
	place = tsearch(token, &stats->tokens, compare_names);
	if (place == NULL || *place != token)
		free(token);
	return place == NULL ? NULL : *place;
}

static enum fault
count_plant(void *context, const struct record *record)
{
	struct stats *stats = context;
	const struct token_plants *token = stats->token;

	/* Neighbours mostly come from one client. */
	if (token == NULL || strlen(token->name) != record->by_len ||
	    memcmp(token->name, record->by, record->by_len) != 0)
		stats->token = find_token(stats, record);
	if (stats->token == NULL)
		return fault_report("stats", "cannot count");
	stats->token->plants++;
	stats->plants++;
	if (stats->first[0] == '\0')
		memcpy(stats->first, record->at, TIMESTAMP_LEN);
	memcpy(stats->last, record->at, TIMESTAMP_LEN);
	return FAULT_NONE;
}

/* How it is printed: members of a JSON object, or a line each. */
struct printer {
	bool json;
	const char *separator;
};

/* A text, which may be empty, or for NULL a number. */
static void
print_figure(void *context, const char *name, const char *text, uint64_t number)
{
	struct printer *printer = context;
	bool none = text != NULL && text[0] == '\0';
	/* No text has a character that JSON escapes. */
	const char *quote = text != NULL && !none ? "\"" : "";
	char digits[sizeof("18446744073709551615")];

	snprintf(digits, sizeof(digits), "%" PRIu64, number);
	if (text == NULL)
		text = digits;
	if (printer->json)
		printf("%s\"%s\":%s%s%s", printer->separator, name, quote,
		    none ? "null" : text, quote);
	else
		printf("%-15s  %s\n", name, none ? "-" : text);
	printer->separator = ",";
}

static void
print_token(const void *node, VISIT visit, void *printer)
{
	const struct token_plants *token =
	    *(const struct token_plants *const *)node;

	if (visit == postorder || visit == leaf)
		print_figure(printer, token->name, NULL, token->plants);
}

/* After the store's own figures. */
static void
print(const struct stats *stats, struct printer *printer)
{
	print_figure(printer, "plants", NULL, stats->plants);
	print_figure(printer, "first", stats->first, 0);
	print_figure(printer, "last", stats->last, 0);
	printf("%s", printer->json ? ",\"tokens\":{" : "\ntokens\n");
	printer->separator = "";
	twalk_r(stats->tokens, print_token, printer);
	printf("%s", printer->json ? "}}\n" : "");
}

static int
run(const struct call *call)
{
	struct stats stats = { 0 };
	struct printer printer = { call->values['j'] != NULL, "{" };
	struct watch watch = command_watch(call, "stats");
	char where[STORE_WHERE_MAX];
	enum fault fault;
	struct store_reader *reader = command_open(call, &watch, NULL, &fault);

	if (reader != NULL)
		fault = command_each_plant(reader, count_plant, &stats, where);
	command_unwatch();
	if (fault == FAULT_STOPPED)
		log_error(
		    "stats: stopped after %" PRIu64 " plants", stats.plants);
	if (fault == FAULT_NONE)
		fault = store_reader_figures(reader, print_figure, &printer);
	if (fault == FAULT_NONE)
		print(&stats, &printer);
	store_reader_close(reader);
	tdestroy(stats.tokens, free);
	return command_fault(fault);
}

const struct command stats_command = {
	.name = "stats",
	.summary = "show what a store holds, and its state",
	.usage = usage,
	.options = { { "json", no_argument, NULL, 'j' }, COMMAND_STORE },
	.dir_alias = ' ',
	.operands = { 0, 1 },
	.run = run,
};
