/*
 * stats_command: what is in a store and how it fares.  The plants are counted
 * by reading the whole journal; the rest is the store's to tell (inspect).
 */
#include "stats_command.h"

#include <inttypes.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "command.h"
#include "ground/log.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "store/inspect.h"
#include "store/reader.h"

static const char usage[] =
    "Usage: plant-store stats [--dir DIR] [--json] [--quiet | --progress]\n"
    "\n"
    "Say what is in a store and how it fares.  Every line of the journal is\n"
    "read and checked, a gigabyte a second or so.  The service may go on\n"
    "meanwhile.\n"
    "\n"
    "  --dir DIR   the store's directory, or that of a backup\n"
    "              (PLANT_STORE_DIR, or /var/lib/plant-store)\n"
    "  --json      one JSON object: store (its uuid), plants, bytes (of the\n"
    "              journal), first and last (times of the first and the last\n"
    "              plant stored, or null), watermark (bytes known durable "
    "from\n"
    "              the journal alone), above_watermark (bytes), index\n"
    "              (current, behind, missing, foreign or unreadable),\n"
    "              index_behind (bytes), index_bytes (on the disk), failed (a\n"
    "              sync failed), kept_files and kept_bytes (kept beside the\n"
    "              journal after a crash), tokens (plants by token's name)\n"
    "  --progress  show progress even if stderr is no terminal\n"
    "  --quiet     show no progress\n"
    "  --help      show this\n"
    "\n"
    "A foreign index is one of another journal, or from before a crash of the\n"
    "machine.  The service makes one that is missing, foreign or unreadable\n"
    "anew when it starts.\n";

/* The plants of one token.  There are as many of these as names. */
struct token_plants {
	char name[RECORD_BY_MAX + 1];
	uint64_t plants;
};

struct stats {
	struct inspect_report store;
	struct reader_report journal;
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
	struct token_plants key = { 0 }, *token;
	struct token_plants **place;

	memcpy(key.name, record->by, record->by_len);
	place = tfind(&key, &stats->tokens, compare_names);
	if (place != NULL)
		return *place;
	token = malloc(sizeof(*token));
	if (token == NULL)
		return NULL;
	*token = key;
	if (tsearch(token, &stats->tokens, compare_names) == NULL) {
		free(token);
		return NULL;
	}
	return token;
}

static int
count_plant(struct stats *stats, const struct record *record)
{
	const struct token_plants *token = stats->token;

	/* Neighbours mostly come from one client. */
	if (token == NULL || strlen(token->name) != record->by_len ||
	    memcmp(token->name, record->by, record->by_len) != 0)
		stats->token = find_token(stats, record);
	if (stats->token == NULL) {
		log_error("stats: out of memory for the tokens' names");
		return EX_TEMPFAIL;
	}
	stats->token->plants++;
	if (stats->first[0] == '\0')
		memcpy(stats->first, record->at, TIMESTAMP_LEN);
	memcpy(stats->last, record->at, TIMESTAMP_LEN);
	return EX_OK;
}

static int
read_journal(struct stats *stats, const char *path, const struct watch *watch)
{
	enum reader_result result = READER_PLANT;
	struct record record;
	int status;
	struct reader *reader = reader_open(path, watch, &status);

	if (reader == NULL)
		return status;
	while (status == EX_OK && result == READER_PLANT) {
		result = reader_next(reader, &record);
		if (result == READER_PLANT)
			status = count_plant(stats, &record);
	}
	if (result == READER_STOPPED) {
		reader_report(reader, &stats->journal);
		log_error("stats: stopped after %" PRIu64 " plants",
		    stats->journal.plants);
		status = 128 + command_interrupted();
	}
	if (result == READER_FAILED)
		status = reader_status(reader);
	reader_report(reader, &stats->journal);
	reader_close(reader);
	return status;
}

static int
gather(struct stats *stats, const struct command *command)
{
	int status;
	struct inspect *inspect = inspect_open(command->dir, NULL, &status);

	if (inspect == NULL)
		return status;
	status = inspect_report(inspect, &stats->store);
	if (status == EX_OK) {
		struct watch watch = command_watch(command, "stats");

		/* Nobody writes to a failed one: read as a file. */
		status = read_journal(stats,
		    stats->store.failed ? inspect_journal(inspect)
					: command->dir,
		    &watch);
		command_unwatch();
	}
	inspect_close(inspect);
	return status;
}

static uint64_t
bytes_above(const struct stats *stats)
{
	return stats->journal.bytes - stats->journal.watermark;
}

/* Other than behind, the index lacks nothing, or is made anew. */
static uint64_t
bytes_behind(const struct stats *stats)
{
	uint64_t end = stats->store.index_end;

	if (stats->store.index != INSPECT_BEHIND || end > stats->journal.bytes)
		return 0;
	return stats->journal.bytes - end;
}

static void
print_index(const struct stats *stats)
{
	static const char anew[] = "made anew at the service's next start";

	printf("index        ");
	switch (stats->store.index) {
	case INSPECT_CURRENT:
		printf("current");
		break;
	case INSPECT_BEHIND:
		if (bytes_behind(stats) == 0) {
			printf("current, up to a torn end");
			break;
		}
		printf("behind by %" PRIu64
		       " bytes, entered when the service next stores a plant "
		       "or starts",
		    bytes_behind(stats));
		break;
	case INSPECT_MISSING:
		printf("missing, %s", anew);
		break;
	case INSPECT_FOREIGN:
		printf("of another journal or from before a crash of the "
		       "machine, %s",
		    anew);
		break;
	case INSPECT_UNREADABLE:
		printf("unreadable, %s", anew);
		break;
	}
	printf("; %" PRIu64 " bytes on the disk\n", stats->store.index_bytes);
}

/* The widest name, for print_token. */
static int name_width;

static void
measure_token(const void *node, VISIT visit, void *context)
{
	const struct token_plants *const *token = node;
	int len = (int)strlen((*token)->name), *width = context;

	if ((visit == postorder || visit == leaf) && len > *width)
		*width = len;
}

static void
print_token(const void *node, VISIT visit, void *context)
{
	const struct token_plants *const *token = node;

	(void)context;
	if (visit == postorder || visit == leaf)
		printf("%-*s  %" PRIu64 "\n", name_width, (*token)->name,
		    (*token)->plants);
}

static void
print_text(const struct stats *stats)
{
	printf("store        %s\n", stats->journal.store);
	printf("plants       %" PRIu64 "\n", stats->journal.plants);
	printf("journal      %" PRIu64 " bytes\n", stats->journal.bytes);
	if (stats->journal.plants > 0) {
		printf("first plant  %s\n", stats->first);
		printf("last plant   %s\n", stats->last);
	}
	printf("watermark    %" PRIu64 ", %" PRIu64 " bytes above it\n",
	    stats->journal.watermark, bytes_above(stats));
	print_index(stats);
	printf("failed       %s\n",
	    stats->store.failed
		? "yes: a sync failed, and what is counted here may not be on "
		  "the disk; the service's next start recovers it"
		: "no");
	printf("kept files   %" PRIu64 ", %" PRIu64 " bytes\n",
	    stats->store.kept_files, stats->store.kept_bytes);
	if (stats->tokens == NULL)
		return;
	name_width = (int)strlen("TOKEN");
	twalk_r(stats->tokens, measure_token, &name_width);
	printf("\n%-*s  %s\n", name_width, "TOKEN", "PLANTS");
	twalk_r(stats->tokens, print_token, NULL);
}

static void
print_json_token(const void *node, VISIT visit, void *context)
{
	const struct token_plants *const *token = node;
	bool *first = context;

	if (visit != postorder && visit != leaf)
		return;
	/* A name has no character that JSON escapes. */
	printf("%s\"%s\":%" PRIu64, *first ? "" : ",", (*token)->name,
	    (*token)->plants);
	*first = false;
}

static void
print_json(const struct stats *stats)
{
	static const char *const states[] = {
		[INSPECT_CURRENT] = "current",
		[INSPECT_BEHIND] = "behind",
		[INSPECT_MISSING] = "missing",
		[INSPECT_FOREIGN] = "foreign",
		[INSPECT_UNREADABLE] = "unreadable",
	};
	const char *quote = stats->journal.plants > 0 ? "\"" : "";
	bool first = true;

	printf("{\"store\":\"%s\",\"plants\":%" PRIu64 ",\"bytes\":%" PRIu64,
	    stats->journal.store, stats->journal.plants, stats->journal.bytes);
	printf(",\"first\":%s%s%s,\"last\":%s%s%s", quote,
	    *quote != '\0' ? stats->first : "null", quote, quote,
	    *quote != '\0' ? stats->last : "null", quote);
	printf(",\"watermark\":%" PRIu64 ",\"above_watermark\":%" PRIu64,
	    stats->journal.watermark, bytes_above(stats));
	printf(",\"index\":\"%s\",\"index_behind\":%" PRIu64
	       ",\"index_bytes\":%" PRIu64,
	    states[stats->store.index], bytes_behind(stats),
	    stats->store.index_bytes);
	printf(",\"failed\":%s,\"kept_files\":%" PRIu64
	       ",\"kept_bytes\":%" PRIu64 ",\"tokens\":{",
	    stats->store.failed ? "true" : "false", stats->store.kept_files,
	    stats->store.kept_bytes);
	twalk_r(stats->tokens, print_json_token, &first);
	printf("}}\n");
}

int
stats_command_run(int argc, char **argv)
{
	static const struct option options[] = {
		COMMAND_OPTION_HELP,
		COMMAND_OPTION_DIR,
		COMMAND_OPTIONS_PROGRESS,
		{ "json", no_argument, NULL, COMMAND_OWN },
		{ 0 },
	};
	struct command command = { .name = argv[0], .usage = usage };
	struct stats stats = { 0 };
	bool json = false;
	int option, status;

	optind = 0;
	while ((option = command_option(&command, argc, argv, options)) >= 0)
		json = true;
	if (option == -2)
		return command.status;
	if (optind < argc)
		return command_usage_error(&command, "too many arguments");
	status = command_dir(&command);
	if (status == EX_OK)
		status = gather(&stats, &command);
	if (status == EX_OK)
		(json ? print_json : print_text)(&stats);
	tdestroy(stats.tokens, free);
	return status;
}
