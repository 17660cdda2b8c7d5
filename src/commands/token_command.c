/*
 * token_command: adds, renews, lists and revokes tokens of the token file.  It
 * handles arguments and output, and leaves the file to tokens.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "ground/clock.h"
#include "ground/config.h"

/* 9999-12-31T23:59:59Z, the last time that RFC 3339 can express. */
#define EXPIRES_MS_MAX INT64_C(253402300799000)

/* Read a date, a date-time or a time from now, such as 90d. */
static int64_t
read_time(const char *text)
{
	int64_t start_ms = clock_ms(CLOCK_REALTIME), ms;
	size_t digits = strspn(text, "0123456789");
	const char *unit = text + digits;
	int64_t minutes = strcmp(unit, "d") == 0   ? 24 * 60
			  : strcmp(unit, "h") == 0 ? 60
						   : strcmp(unit, "m") == 0;

	/* Nine digits of days exceed EXPIRES_MS_MAX, and do not overflow. */
	if (digits > 0 && digits <= 9 && minutes > 0)
		ms = start_ms + strtoll(text, NULL, 10) * minutes * 60000;
	else if (!command_time(text, &ms))
		command_usage_error("invalid time: %s; use 90d, 12h, 30m, "
				    "2027-01-31 or 2027-01-31T12:00:00Z",
		    text);
	if (ms <= start_ms || ms > EXPIRES_MS_MAX)
		command_usage_error("%s: %s",
		    ms <= start_ms ? "not in the future"
				   : "after the year 9999",
		    text);
	return ms;
}

static void
make_token(const char *file, struct tokens_edit *edit)
{
	const char *expires = command_option("expires"),
		   *overlap = command_option("overlap");
	const bool renew = edit->kind == TOKENS_RENEW;
	char token[TOKENS_TOKEN_LEN + 1];

	if (!tokens_is_name(edit->name))
		command_usage_error("invalid name: %s; use 1 to 64 characters "
				    "from A-Z a-z 0-9 . _ -",
		    edit->name);
	edit->expires_ms = expires != NULL ? read_time(expires) : TOKENS_NEVER;
	if (renew)
		edit->until_ms = read_time(overlap != NULL ? overlap : "7d");
	command_need(tokens_edit(file, edit, token));
	errno = 0;
	if (printf("%s\n", token) < 0 || fflush(stdout) != 0)
		command_refuse(FAULT_FAILED,
		    "stdout: the token cannot be printed: %s; it is lost, so "
		    "%s%s",
		    strerror(errno),
		    renew ? "remove the last line of the token file"
			  : "revoke it with: plant-store token revoke ",
		    renew ? "" : edit->name);
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "Keep the token: it cannot be shown again.\n");
	explicit_bzero(token, sizeof token);
}

static void
list_tokens(const char *file)
{
	int width = (int)strlen("NAME");
	size_t count;
	int64_t now_ms = clock_ms(CLOCK_REALTIME);
	enum fault fault = FAULT_NONE;
	struct tokens *tokens = tokens_open(file, TOKENS_ANY_USER, &fault);

	command_need(fault);
	const struct token *list = tokens_list(tokens, &count);
	for (size_t i = 0; i < count; i++)
		if ((int)strlen(list[i].name) > width)
			width = (int)strlen(list[i].name);
	printf("%-*s  %-20s  %s\n", width, "NAME", "EXPIRES", "CREATED");
	for (size_t i = 0; i < count; i++) {
		const struct token *token = &list[i];
		char at[TIMESTAMP_LEN], when[TIMESTAMP_LEN] = "never";

		if (token->expires_ms != TOKENS_NEVER) {
			timestamp_print(token->expires_ms, at);
			snprintf(when, sizeof(when), TIMESTAMP_SECONDS, at);
		}
		printf("%-*s  %-20s  %s%s\n", width, token->name, when,
		    token->created[0] == '\0' ? "-" : token->created,
		    token->expires_ms <= now_ms ? "  expired" : "");
	}
	tokens_close(tokens);
}

void
token_run(const struct call *call)
{
	const char *action = call->operands[0], *file = command_option("file");
	bool add = strcmp(action, "add") == 0;
	bool list = strcmp(action, "list") == 0;
	bool renew = strcmp(action, "renew") == 0;
	bool revoke = strcmp(action, "revoke") == 0;
	bool named = call->operands[1] != NULL;
	struct tokens_edit edit = { .name = call->operands[1],
		.kind = add                             ? TOKENS_ADD
			: renew                         ? TOKENS_RENEW
			: command_option("old") != NULL ? TOKENS_REVOKE_OLD
							: TOKENS_REVOKE };
	struct config config;

	if (!add && !list && !renew && !revoke)
		command_usage_error("unknown action: %s", action);
	if (list == named)
		command_usage_error(
		    named ? "too many arguments" : "NAME is missing");
	if ((command_option("expires") != NULL && !add && !renew) ||
	    (command_option("overlap") != NULL && !renew) ||
	    (command_option("old") != NULL && !revoke))
		command_usage_error("an option does not apply to %s", action);
	if (file != NULL && file[0] == '\0')
		command_usage_error("--file is empty: name the token file");
	if (file == NULL) {
		/* With a token file, no settings file is needed. */
		command_need(config_use_file(
		    NULL, getenv("PLANT_STORE_TOKENS") != NULL));
		command_need(config_read(&config));
		file = config.tokens;
	}
	if (list)
		list_tokens(file);
	else if (revoke)
		command_need(tokens_edit(file, &edit, NULL));
	else
		make_token(file, &edit);
}
