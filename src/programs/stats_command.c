/*
 * stats_command: what is in a store, and its state.  The plants are counted by
 * reading the whole journal.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "ground/fault.h"
#include "ground/log.h"
#include "pure/timestamp.h"
#include "store/reader.h"

static const char usage[] =
    "Usage: plant-store stats [--dir DIR | DIR] [--json]\n"
    "           [--quiet | --progress]\n"
    "\n"
    "Show what a store holds, and its state.  Every line of the journal is\n"
    "read and checked.  plant-store(1) has what each value means.\n"
    "\n"
    "  --json          one JSON object\n";

/* stat counts in these, whatever the file system's blocks are. */
#define STAT_BLOCK_BYTES 512

static const char *const index_states[] = {
	[READER_INDEX_USABLE] = "current",
	[READER_INDEX_ABSENT] = "missing",
	[READER_INDEX_STALE] = "foreign",
	[READER_INDEX_FOREIGN] = "foreign",
	[READER_INDEX_UNUSABLE] = "unreadable",
};

/* The plants of one token.  There are as many of these as names. */
struct token_plants {
	char name[RECORD_BY_MAX + 1];
	uint64_t plants;
};

struct files {
	uint64_t n, bytes, disk_bytes;
};

struct stats {
	enum reader_index index;
	uint64_t index_end;
	struct files index_files, kept;
	struct reader_report journal;
	char first[TIMESTAMP_LEN + 1];
	char last[TIMESTAMP_LEN + 1];
	void *tokens;               /* a tree of token_plants, by name */
	struct token_plants *token; /* that of the plant before */
	uint64_t behind;            /* bytes that the index has not read yet */
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
	if (stats->first[0] == '\0')
		memcpy(stats->first, record->at, TIMESTAMP_LEN);
	memcpy(stats->last, record->at, TIMESTAMP_LEN);
	return FAULT_NONE;
}

/* Add the files of the directory that have this prefix. */
static void
count_files(const char *path, const char *prefix, struct files *files)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	struct stat st;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
		    fstatat(dirfd(dir), entry->d_name, &st,
			AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		files->n++;
		files->bytes += (uint64_t)st.st_size;
		files->disk_bytes += (uint64_t)st.st_blocks * STAT_BLOCK_BYTES;
	}
	if (dir != NULL)
		closedir(dir);
}

static enum fault
count_beside(struct stats *stats, const char *dir)
{
	char *index;

	if (asprintf(&index, "%s/index", dir) < 0)
		return fault_report(dir, "cannot read");
	count_files(index, "", &stats->index_files);
	free(index);
	count_files(dir, "plants.jsonl.torn-", &stats->kept);
	count_files(dir, "plants.jsonl.failed-", &stats->kept);
	return FAULT_NONE;
}

static enum fault
gather(struct stats *stats, const struct call *call)
{
	struct watch watch = command_watch(call, "stats");
	enum fault fault = command_each_plant(
	    call->dir, &watch, count_plant, stats, &stats->journal);
	struct reader *reader;

	command_unwatch();
	if (fault == FAULT_STOPPED)
		log_error("stats: stopped after %" PRIu64 " plants",
		    stats->journal.plants);
	if (fault != FAULT_NONE)
		return fault;
	/* Now, since plants that are stored meanwhile are not counted. */
	reader = reader_open(call->dir, NULL, &fault);
	if (reader != NULL)
		fault = reader_index(reader, &stats->index, &stats->index_end);
	reader_close(reader);
	if (fault != FAULT_NONE)
		return fault;
	if (stats->index == READER_INDEX_USABLE &&
	    stats->journal.last_plant >= stats->index_end)
		stats->behind = stats->journal.bytes - stats->index_end;
	return count_beside(stats, call->dir);
}

/* How it is printed: members of a JSON object, or a line each. */
struct printer {
	bool json;
	const char *separator;
};

static void
print_text(struct printer *printer, const char *name, const char *text)
{
	if (!printer->json)
		printf("%-15s  %s\n", name, text[0] != '\0' ? text : "-");
	else if (text[0] != '\0')
		printf("%s\"%s\":\"%s\"", printer->separator, name, text);
	else
		printf("%s\"%s\":null", printer->separator, name);
	printer->separator = ",";
}

static void
print_number(struct printer *printer, const char *name, uint64_t number)
{
	/* A token's name has no character that JSON escapes. */
	if (printer->json)
		printf("%s\"%s\":%" PRIu64, printer->separator, name, number);
	else
		printf("%-15s  %" PRIu64 "\n", name, number);
	printer->separator = ",";
}

static void
print_token(const void *node, VISIT visit, void *printer)
{
	const struct token_plants *token =
	    *(const struct token_plants *const *)node;

	if (visit == postorder || visit == leaf)
		print_number(printer, token->name, token->plants);
}

static void
print(const struct stats *stats, bool json)
{
	struct printer printer = { json, json ? "{" : "" };
	const struct reader_report *journal = &stats->journal;

	print_text(&printer, "store", journal->store);
	print_number(&printer, "plants", journal->plants);
	print_number(&printer, "bytes", journal->bytes);
	print_text(&printer, "first", stats->first);
	print_text(&printer, "last", stats->last);
	print_number(&printer, "watermark", journal->watermark);
	print_number(
	    &printer, "above_watermark", journal->bytes - journal->watermark);
	print_text(&printer, "index",
	    stats->behind > 0 ? "behind" : index_states[stats->index]);
	print_number(&printer, "index_behind", stats->behind);
	print_number(&printer, "index_bytes", stats->index_files.disk_bytes);
	print_number(&printer, "kept_files", stats->kept.n);
	print_number(&printer, "kept_bytes", stats->kept.bytes);
	printf("%s", json ? ",\"tokens\":{" : "\ntokens\n");
	printer.separator = "";
	twalk_r(stats->tokens, print_token, &printer);
	printf("%s", json ? "}}\n" : "");
}

static int
run(const struct call *call)
{
	struct stats stats = { 0 };
	enum fault fault = gather(&stats, call);

	if (fault == FAULT_NONE)
		print(&stats, call->values['j'] != NULL);
	tdestroy(stats.tokens, free);
	return command_fault(fault);
}

const struct command stats_command = {
	.name = "stats",
	.summary = "show what a store holds, and its state",
	.usage = usage,
	.options = { { "json", no_argument, NULL, 'j' }, COMMAND_DIR,
	    COMMAND_PROGRESS, COMMAND_HELP },
	.dir_alias = ' ',
	.operands_max = 1,
	.run = run,
};
