/* metrics: prints the counters in Prometheus' format.  See api/api.h. */
#include <inttypes.h>
#include <stdio.h>

#include "api/api.h"
#include "ground/clock.h"
#include "ground/file.h"
#include "ground/metrics.h"

_Static_assert(HTTP_PREFLIGHT < METRICS_ANSWERS_MAX, "METRICS_ANSWERS_MAX");

static const struct row {
	const char *name, *type, *help;
	enum metrics_place place;
	double unit;
	bool may_be_0; /* otherwise 0 means unknown */
} rows[] = {
	{ "batches_total", "counter", "Batches of plants.", METRICS_BATCHES, 1,
	    true },
	{ "batch_plants", "histogram", "Plants in a batch.",
	    METRICS_BATCH_PLANTS, 1, true },
	{ "commit_seconds", "histogram",
	    "Time to store a batch, including waits.", METRICS_COMMIT_US, 1e-6,
	    true },
	{ "sync_seconds", "histogram", "Time of an fdatasync of the journal.",
	    METRICS_SYNC_US, 1e-6, true },
	{ "connections", "gauge", "Connections open to this process.",
	    METRICS_CONNECTIONS, 1, false },
	{ "store_bytes", "gauge", "Size of the journal.", METRICS_STORE_BYTES,
	    1, false },
	{ "store_plants", "gauge", "Plants in the store.", METRICS_STORE_PLANTS,
	    1, false },
	{ "last_sync_timestamp_seconds", "gauge", "Last sync that succeeded.",
	    METRICS_SYNC_MS, 1e-3, false },
	{ "failed", "gauge", "1 from a failure until the store is opened.",
	    METRICS_FAILED, 1, true },
	{ "healthy", "gauge", "1 while the health path answers 200.",
	    METRICS_HEALTHY, 1, true },
	{ "any_standby", "gauge", "1 while any standby may confirm a commit.",
	    METRICS_ANY_STANDBY, 1, true },
	{ "free_bytes", "gauge", "Free space on the journal's file system.",
	    METRICS_FREE_BYTES, 1, true },
	{ "token_expiry_timestamp_seconds", "gauge",
	    "When the next token expires.", METRICS_EXPIRY_MS, 1e-3, false },
	{ "backup_timestamp_seconds", "gauge", "The newest backup.",
	    METRICS_BACKUP_MS, 1e-3, false },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static char *
print_family(char *at, const char *name, const char *type, const char *help)
{
	return at + sprintf(at,
			"# HELP plant_store_%s %s\n"
			"# TYPE plant_store_%s %s\n",
			name, help, name, type);
}

/* Also print zeros: a rate needs the 0 before the first response. */
static char *
print_answers(char *at, const struct config *config)
{
	at = print_family(at, "answers_total", "counter",
	    "Responses to clients by status and error number.");
	for (unsigned i = HTTP_OK; i <= HTTP_PREFLIGHT; i++)
		at += sprintf(at,
		    "plant_store_answers_total{status=\"%d\",error=\"%d\"} "
		    "%" PRIu64 "\n",
		    config->contract_status && http_errors[i].number != 0
			? 400
			: http_errors[i].status,
		    http_errors[i].number, metrics[METRICS_ANSWERS + i]);
	return at;
}

static char *
print_consumers(char *at, const char *dir)
{
	static const char *const families[][2] = {
		{ "consumer_behind_bytes",
		    "Bytes of the journal that a consumer has not read." },
		{ "consumer_timestamp_seconds",
		    "When a consumer's cursor was replaced." },
	};
	struct metrics_consumer list[METRICS_CONSUMERS_MAX];
	size_t n = metrics_consumers(dir, metrics[METRICS_STORE_BYTES], list);

	for (size_t f = 0; n > 0 && f < 2; f++) {
		at = print_family(at, families[f][0], "gauge", families[f][1]);
		for (size_t i = 0; i < n; i++)
			at += sprintf(at,
			    "plant_store_%s{consumer=\"%s\"} %.16g\n",
			    families[f][0], list[i].name,
			    f == 0 ? (double)list[i].behind
				   : (double)list[i].read_ms / 1000);
	}
	return at;
}

static char *
print_histogram(char *at, const struct row *row)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < METRICS_BUCKETS; i++) {
		char bound[32] = "+Inf";

		if (i < METRICS_BUCKETS - 1)
			sprintf(bound, "%g",
			    (double)metrics_bound(row->place, i) * row->unit);
		n += metrics[row->place + i];
		at += sprintf(at,
		    "plant_store_%s_bucket{le=\"%s\"} %" PRIu64 "\n", row->name,
		    bound, n);
	}
	return at + sprintf(at,
			"plant_store_%s_sum %.16g\n"
			"plant_store_%s_count %" PRIu64 "\n",
			row->name,
			(double)metrics[row->place + METRICS_SUM] * row->unit,
			row->name, n);
}

size_t
api_metrics(const struct api *api, char buf[static API_METRICS_MAX])
{
	static const char *const results[] = { "created", "repeated",
		"conflict" };
	char *at = print_answers(buf, api->config);
	const bool in_files =
	    api->config->database == NULL && api->config->dir != NULL;
	int64_t expires_ms = TOKENS_NEVER;
	enum http_error error;
	uint64_t healthy =
	    api_health(api, &error) ? error == HTTP_OK : METRICS_UNKNOWN;

	at = print_family(
	    at, "build_info", "gauge", "1; its label has the version.");
	at += sprintf(at, "plant_store_build_info{version=\"%s\"} 1\n",
	    PLANT_STORE_VERSION);
	at = print_family(at, "plants_total", "counter",
	    "Plants from clients and imports by result.");
	for (int i = 0; i < 3; i++)
		at += sprintf(at,
		    "plant_store_plants_total{result=\"%s\"} %" PRIu64 "\n",
		    results[i], metrics[METRICS_CREATED + i]);
	if (api->tokens != NULL)
		expires_ms =
		    tokens_next_expiry(api->tokens, clock_ms(CLOCK_REALTIME));
	metrics[METRICS_EXPIRY_MS] =
	    expires_ms == TOKENS_NEVER ? 0 : (uint64_t)expires_ms;
	metrics[METRICS_FREE_BYTES] =
	    in_files ? metrics_free_bytes(api->config->dir) : METRICS_UNKNOWN;
	if (in_files)
		metrics[METRICS_BACKUP_MS] = (uint64_t)file_get_time(
		    api->config->dir, STORE_BACKUP_NAME);
	for (const struct row *row = rows; row < rows + ROWS; row++) {
		/* Only a server, not a command, has connections and health. */
		uint64_t n =
		    row->place == METRICS_CONNECTIONS ? metrics_connections
		    : row->place == METRICS_HEALTHY   ? healthy
						      : metrics[row->place];

		if (n == (row->may_be_0 ? METRICS_UNKNOWN : 0))
			continue;
		at = print_family(at, row->name, row->type, row->help);
		if (row->type[0] == 'h')
			at = print_histogram(at, row);
		else
			at += sprintf(at, "plant_store_%s %.16g\n", row->name,
			    (double)n * row->unit);
	}
	if (in_files)
		at = print_consumers(at, api->config->dir);
	return (size_t)(at - buf);
}
