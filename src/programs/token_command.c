/*
 * token_command: add, list and revoke the tokens of the token file.  The file
 * and the tokens themselves are left to tokens; here are only the arguments
 * and what is printed.
 */
#include "token_command.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "ground/config.h"
#include "ground/log.h"
#include "http/tokens.h"
#include "pure/timestamp.h"

#define ERROR_MAX 512
#define SECOND_MS INT64_C(1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)
#define DAY_MS (24 * HOUR_MS)
/* 9999-12-31T23:59:59Z, the last that RFC 3339 can write. */
#define EXPIRES_MS_MAX INT64_C(253402300799000)
/* Nine digits of days are far beyond that, and far from overflow. */
#define DURATION_DIGITS_MAX 9
/* "2026-11-21T07:21:00", which "Z" follows where a time is shown. */
#define SECONDS_LEN 19

static const char usage[] =
    "Usage: plant-store token add NAME [--expires WHEN] [--file FILE]\n"
    "       plant-store token list [--file FILE]\n"
    "       plant-store token revoke NAME [--file FILE]\n"
    "\n"
    "add     make a token and print it, this once: only its digest is kept\n"
    "list    show the names, when they expire and when they were made\n"
    "revoke  remove a token; the service refuses it within a second or two\n"
    "\n"
    "  --expires WHEN  2027-01-31T12:00:00Z, 2027-01-31 (midnight UTC), or\n"
    "                  after 90d, 12h or 30m; without it: never\n"
    "  --file FILE     the token file (PLANT_STORE_TOKENS, or\n"
    "                  /etc/plant-store/tokens)\n"
    "  --help          show this\n"
    "\n"
    "NAME is 1 to 64 of A-Z a-z 0-9 . _ - and stands in the journal beside\n"
    "each plant that was created with the token.\n";

struct arguments {
	const char *name; /* NULL for list */
	const char *file;
	const char *expires; /* WHEN, or NULL */
};

static int
usage_error(const char *what, const char *value)
{
	log_error("token: %s%s; see: plant-store token --help", what, value);
	return EX_USAGE;
}

static int64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * SECOND_MS + now.tv_nsec / 1000000;
}

static int
duration_read(const char *text, int64_t *ms)
{
	size_t digits = strspn(text, "0123456789");
	int64_t number = 0;
	int64_t unit;

	if (digits < 1 || digits > DURATION_DIGITS_MAX)
		return -1;
	for (size_t i = 0; i < digits; i++)
		number = number * 10 + (text[i] - '0');
	if (strcmp(text + digits, "d") == 0)
		unit = DAY_MS;
	else if (strcmp(text + digits, "h") == 0)
		unit = HOUR_MS;
	else if (strcmp(text + digits, "m") == 0)
		unit = MINUTE_MS;
	else
		return -1;
	*ms = number * unit;
	return 0;
}

/* A date, a date-time or a time from now: 0, or -1 if it is none. */
static int
when_read(const char *text, int64_t from_ms, int64_t *ms)
{
	char midnight[sizeof "2027-01-31T00:00:00Z"];
	int64_t duration_ms;

	if (duration_read(text, &duration_ms) == 0) {
		*ms = from_ms + duration_ms;
		return 0;
	}
	if (strlen(text) == strlen("2027-01-31")) {
		snprintf(midnight, sizeof midnight, "%sT00:00:00Z", text);
		text = midnight;
	}
	return timestamp_read(text, strlen(text), ms);
}

static int
run_add(const struct arguments *arguments)
{
	char error[ERROR_MAX];
	char token[TOKENS_TOKEN_LEN + 1];
	int64_t expires_ms = 0;
	int64_t start_ms = now_ms();
	int status;

	if (arguments->expires != NULL) {
		if (when_read(arguments->expires, start_ms, &expires_ms) != 0)
			return usage_error("not a time: ", arguments->expires);
		if (expires_ms <= start_ms)
			return usage_error(
			    "not in the future: ", arguments->expires);
		if (expires_ms > EXPIRES_MS_MAX)
			return usage_error(
			    "after the year 9999: ", arguments->expires);
	}
	status = tokens_add(arguments->file, arguments->name,
	    arguments->expires == NULL ? NULL : &expires_ms, token, error,
	    sizeof error);
	if (status != 0) {
		log_error("%s", error);
		return status;
	}
	errno = 0;
	if (printf("%s\n", token) < 0 || fflush(stdout) != 0) {
		log_error(
		    "stdout: the token cannot be printed: %s; it is "
		    "lost, so revoke it with: plant-store token revoke %s",
		    strerror(errno), arguments->name);
		status = EX_IOERR;
	} else if (isatty(STDERR_FILENO)) {
		fprintf(stderr, "Keep it: it cannot be shown again.\n");
	}
	explicit_bzero(token, sizeof token);
	return status;
}

static void
expires_print(const struct token *token, char text[static TIMESTAMP_LEN])
{
	if (!token->expires) {
		snprintf(text, TIMESTAMP_LEN, "never");
		return;
	}
	timestamp_print(token->expires_ms, text);
	text[SECONDS_LEN] = 'Z';
	text[SECONDS_LEN + 1] = '\0';
}

static int
run_list(const struct arguments *arguments)
{
	char error[ERROR_MAX];
	struct tokens *tokens;
	int width = (int)strlen("NAME");
	int64_t at_ms = now_ms();
	int status;

	tokens = tokens_open(arguments->file, &status, error, sizeof error);
	if (tokens == NULL) {
		log_error("%s", error);
		return status;
	}
	for (size_t i = 0; i < tokens_count(tokens); i++) {
		int len = (int)strlen(tokens_get(tokens, i)->name);

		width = len > width ? len : width;
	}
	printf("%-*s  %-20s  %s\n", width, "NAME", "EXPIRES", "CREATED");
	for (size_t i = 0; i < tokens_count(tokens); i++) {
		const struct token *token = tokens_get(tokens, i);
		bool expired = token->expires && token->expires_ms <= at_ms;
		char expires[TIMESTAMP_LEN];

		expires_print(token, expires);
		printf("%-*s  %-20s  %s%s\n", width, token->name, expires,
		    token->created[0] == '\0' ? "-" : token->created,
		    expired ? "  expired" : "");
	}
	tokens_close(tokens);
	return EX_OK;
}

static int
run_revoke(const struct arguments *arguments)
{
	char error[ERROR_MAX];
	int status;

	status = tokens_revoke(
	    arguments->file, arguments->name, error, sizeof error);
	if (status != 0)
		log_error("%s", error);
	return status;
}

static const struct action {
	const char *name;
	bool takes_name;
	bool takes_expires;
	int (*run)(const struct arguments *arguments);
} actions[] = {
	{ "add", true, true, run_add },
	{ "list", false, false, run_list },
	{ "revoke", true, false, run_revoke },
};

static const struct action *
find_action(const char *name)
{
	for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
		if (strcmp(actions[i].name, name) == 0)
			return &actions[i];
	return NULL;
}

/* The words behind the options: ACTION and, for most, NAME. */
static int
run_action(struct arguments *arguments, int count, char **words)
{
	const struct action *action;
	struct config config;
	char error[ERROR_MAX];

	if (count == 0)
		return usage_error("say add, list or revoke", "");
	action = find_action(words[0]);
	if (action == NULL)
		return usage_error("unknown action: ", words[0]);
	if (action->takes_name && count < 2)
		return usage_error("NAME is missing after ", words[0]);
	if (count > 1 + action->takes_name)
		return usage_error(
		    "one word too many: ", words[1 + action->takes_name]);
	if (arguments->expires != NULL && !action->takes_expires)
		return usage_error("--expires is not for ", words[0]);
	if (arguments->file != NULL && arguments->file[0] == '\0')
		return usage_error("--file is empty: name the token file", "");
	if (action->takes_name)
		arguments->name = words[1];
	if (arguments->file == NULL) {
		if (config_read(&config, error, sizeof error) != 0) {
			log_error("%s", error);
			return EX_CONFIG;
		}
		arguments->file = config.tokens;
	}
	return action->run(arguments);
}

int
token_command_run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "expires", required_argument, NULL, 'e' },
		{ "file", required_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct arguments arguments = { 0 };
	int option;

	optind = 0; /* begin anew: main has parsed options already */
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		switch (option) {
		case 'e':
			arguments.expires = optarg;
			break;
		case 'f':
			arguments.file = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			return EX_OK;
		case ':':
			return usage_error(
			    "a value is missing after ", argv[optind - 1]);
		default:
			return usage_error(
			    "unknown option: ", argv[optind - 1]);
		}
	}
	return run_action(&arguments, argc - optind, argv + optind);
}
