/*
 * check_command: settings, rights, tokens and store, as this machine has them;
 * with a URL also the way of a client (url_check).  Changes nothing.  Of the
 * journal only what the index has not read is read; verify reads all.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sysexits.h>
#include <unistd.h>

#include "command.h"
#include "ground/clock.h"
#include "ground/config.h"
#include "ground/fault.h"
#include "ground/log.h"
#include "http/tokens.h"
#include "store/reader.h"
#include "url_check.h"

static const char usage[] =
    "Usage: plant-store check [--url URL [--token TOKEN]]\n"
    "\n"
    "Check the settings, the token file, the rights and the store, and report\n"
    "what is wrong and what to do.  Run it with the environment and as the\n"
    "user of the service.  With a URL also send requests that cannot create\n"
    "anything, as a client does.  Exit status 78 if something here is wrong,\n"
    "69 if only the way to the service is.\n"
    "\n"
    "  --url URL       the base URL of clients: https://plants.example/api/v1\n"
    "  --token TOKEN   a valid token; - reads it from the first line of\n"
    "                  stdin, where other users do not see it\n";

#define TOKEN_MAX 4096
/* Less than this is little: some hundred thousand plants. */
#define FREE_BYTES_MIN ((uint64_t)64 << 20)

struct check {
	const struct call *call;
	struct config config;
	int wrong;
};

__attribute__((format(printf, 2, 3))) static void
say_wrong(struct check *check, const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log_error("check: %s", text);
	check->wrong++;
}

/* Also what errno means, and what helps. */
static void
say_why(struct check *check, const char *name, const char *what)
{
	(void)fault_report(name, what);
	check->wrong++;
}

static void
check_tokens(struct check *check)
{
	int64_t now_ms = clock_ms(CLOCK_REALTIME);
	size_t expired = 0, count;
	enum fault fault;
	struct stat st;
	/* The service's user owns the store. */
	uid_t user =
	    stat(check->config.dir, &st) == 0 ? st.st_uid : TOKENS_ANY_USER;
	struct tokens *tokens = tokens_open(check->config.tokens, user, &fault);

	if (tokens == NULL) {
		check->wrong++; /* logged */
		return;
	}
	const struct token *token = tokens_list(tokens, &count);
	for (size_t i = 0; i < count; i++)
		expired += token[i].expires && token[i].expires_ms <= now_ms;
	if (tokens_warning(tokens) != NULL)
		check->wrong++; /* logged */
	else if (expired == count)
		say_wrong(check,
		    "%s: every token has expired; add one with: plant-store "
		    "token add NAME",
		    check->config.tokens);
	else
		printf("%s: %zu tokens, %zu of them expired: ok\n",
		    check->config.tokens, count, expired);
	tokens_close(tokens);
}

/*
 * The service cannot write what another user made in the store, as a command
 * run by root may have.
 */
static void
check_file(struct check *check, const char *name, uid_t owner)
{
	const char *dir = check->config.dir;
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (lstat(path, &st) < 0) {
		if (errno != ENOENT)
			say_why(check, path, "cannot be read");
	} else if (st.st_uid != owner)
		say_wrong(check,
		    "%s: belongs to the user %ju, the directory to %ju; run: "
		    "chown -R --reference=%s %s",
		    path, (uintmax_t)st.st_uid, (uintmax_t)owner, dir, dir);
	else if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) < 0 &&
		 errno != EROFS) /* reported of the directory */
		say_why(check, path, "cannot be written");
}

static void
check_room(struct check *check)
{
	const char *path = check->config.dir;
	struct statvfs fs;
	uint64_t bytes;

	if (statvfs(path, &fs) < 0) {
		say_why(check, path, "cannot be read");
		return;
	}
	bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (bytes < FREE_BYTES_MIN)
		say_wrong(check, "%s: only %" PRIu64 " MiB are free; make room",
		    path, bytes >> 20);
	else
		printf("%s: %" PRIu64 " MiB are free: ok\n", path, bytes >> 20);
}

static bool
is_there(const char *dir, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

/* The directory and the names in it.  Whether there is a journal. */
static bool
check_directory(struct check *check)
{
	static const char *const names[] = { "plants.jsonl", "index",
		"index/data.mdb" };
	const char *path = check->config.dir;
	int wrong = check->wrong;
	struct stat st;
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || fstat(dir, &st) < 0) {
		if (errno == ENOENT)
			say_wrong(check,
			    "PLANT_STORE_DIR: %s: missing; make it, owned by "
			    "the service's user, with: install -d -m 0700 %s",
			    path, path);
		else
			say_why(check, path, "cannot open");
		return false;
	}
	close(dir);
	if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) < 0)
		say_why(check, path, "cannot be written");
	if ((st.st_mode & (S_IWGRP | S_IRWXO)) != 0)
		say_wrong(check,
		    "%s: mode %04o lets others in; run: chmod 0700 %s", path,
		    (unsigned)st.st_mode & 07777, path);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check_file(check, names[i], st.st_uid);
	check_room(check);
	bool exists = is_there(path, names[0]);
	if (!exists && is_there(path, "plants.jsonl.failed"))
		say_wrong(check,
		    "%s: a sync has failed; start the service, which copies "
		    "what is readable to a fresh journal, and check the disk",
		    path);
	else if (!exists && is_there(path, "index"))
		say_wrong(check,
		    "%s/plants.jsonl: missing; restore it from a backup, or "
		    "remove all else from there to begin an empty store",
		    path);
	if (check->wrong == wrong)
		printf("%s: rights: ok\n", path);
	return exists;
}

static void
check_store(struct check *check)
{
	static const char *const words[] = {
		[READER_INDEX_USABLE] = "ok",
		[READER_INDEX_ABSENT] = "missing; the service builds it",
		[READER_INDEX_STALE] = "old; the service rebuilds it",
		[READER_INDEX_UNUSABLE] = "damaged; the service rebuilds it",
	};
	struct watch watch = command_watch(check->call, "check");
	enum reader_index index = READER_INDEX_ABSENT;
	struct record record;
	enum fault fault;
	uint64_t end, behind = 0;
	struct reader *reader = reader_open(check->config.dir, &watch, &fault);

	if (reader != NULL)
		fault = reader_index(reader, &index, &end);
	/* Whether the next start would refuse the end. */
	while (fault == FAULT_NONE && reader_next(reader, &record))
		behind++;
	if (fault == FAULT_NONE)
		fault = reader_fault(reader);
	command_unwatch();
	reader_close(reader);
	if (fault != FAULT_NONE) {
		check->wrong++; /* logged, or interrupted */
		return;
	}
	if (index == READER_INDEX_FOREIGN) {
		say_wrong(check,
		    "%s: the journal is of another store than the index; if "
		    "it is meant to be used, remove %s/index first",
		    check->config.dir, check->config.dir);
		return;
	}
	printf("%s: index: %s\n%s: store: ok; plant-store verify reads all of "
	       "it\n",
	    check->config.dir,
	    index == READER_INDEX_USABLE && behind > 0
		? "behind; the service catches up"
		: words[index],
	    check->config.dir);
}

static int
run(const struct call *call)
{
	const char *url = call->values['u'];
	const char *token = call->values['t'];
	struct check check = { .call = call };
	char line[TOKEN_MAX];
	int url_wrong = 0;

	if (token != NULL && url == NULL)
		return command_usage_error(
		    call, "a token is of use with --url only");
	if (token != NULL && strcmp(token, "-") == 0) {
		if (fgets(line, (int)sizeof(line), stdin) == NULL) {
			log_error("check: no token on stdin");
			return EX_NOINPUT;
		}
		line[strcspn(line, "\r\n")] = '\0';
		token = line;
	}
	if (config_read(&check.config) != FAULT_NONE)
		return EX_CONFIG;
	printf("settings: ok\n");
	check_tokens(&check);
	if (check_directory(&check))
		check_store(&check);
	else if (check.wrong == 0)
		say_wrong(&check,
		    "%s: no store here; mount its file system, or make a new "
		    "store with: plant-store init %s",
		    check.config.dir, check.config.dir);
	fflush(stdout);
	if (command_interrupted() != 0)
		return 128 + command_interrupted();
	if (url != NULL)
		url_wrong = url_check(url, token, check.config.body_bytes_max);
	if (check.wrong != 0)
		return EX_CONFIG;
	return url_wrong == 0 ? EX_OK : EX_UNAVAILABLE;
}

const struct command check_command = {
	.name = "check",
	.summary = "check the set-up, and whether clients reach the service",
	.usage = usage,
	.options = { { "url", required_argument, NULL, 'u' },
	    { "token", required_argument, NULL, 't' }, COMMAND_HELP },
	.run = run,
};
