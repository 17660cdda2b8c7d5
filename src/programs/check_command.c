/*
 * check_command: settings, rights, tokens and store, seen from this machine;
 * with a URL also the way of a client (url_check).  Changes nothing.  Of the
 * journal what follows on the index is read; the rest is for `plant-store
 * verify`.
 */
#include "check_command.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sysexits.h>
#include <unistd.h>

#include "command.h"
#include "ground/clock.h"
#include "ground/config.h"
#include "ground/log.h"
#include "http/tokens.h"
#include "store/inspect.h"
#include "url_check.h"

static const char usage[] =
    "Usage: plant-store check [--url URL [--token TOKEN]]\n"
    "\n"
    "Check the settings, the token file, the rights and the store, and say\n"
    "what is wrong and what to do.  Of the store's journal it reads what the\n"
    "index has not; verify reads all.  Run it with the environment and as the\n"
    "user of the service.  With a URL also send requests that cannot create\n"
    "anything, as a client does, and say what of the way is wrong.\n"
    "Exit status 0 if all is well, 78 if something here is wrong, 69 if only\n"
    "the way to the service is.\n"
    "\n"
    "  --url URL      the base URL of clients, such as\n"
    "                 https://plants.example/api/v1\n"
    "  --token TOKEN  a valid token; - reads it from the first line of stdin,\n"
    "                 where other users of the machine do not see it\n"
    "  --help         show this\n";

#define TOKEN_MAX 4096
/* Less than this is little: some hundred thousand plants. */
#define FREE_BYTES_MIN ((uint64_t)64 << 20)

struct check {
	const struct command *command;
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

static void
check_tokens(struct check *check)
{
	char error[512];
	int status;
	struct tokens *tokens =
	    tokens_open(check->config.tokens, &status, error, sizeof(error));
	int64_t now_ms = clock_ms(CLOCK_REALTIME);
	size_t expired = 0, count;

	if (tokens == NULL) {
		say_wrong(check, "%s", error);
		return;
	}
	count = tokens_count(tokens);
	for (size_t i = 0; i < count; i++) {
		const struct token *token = tokens_get(tokens, i);

		expired += token->expires && token->expires_ms <= now_ms;
	}
	if (expired == count)
		say_wrong(check,
		    "%s: every token has expired; add one with: plant-store "
		    "token add NAME",
		    check->config.tokens);
	else
		printf("%s: %zu tokens, %zu of them expired: ok\n",
		    check->config.tokens, count, expired);
	tokens_close(tokens);
}

static const char *
user_name(uid_t uid, char *buf, size_t size)
{
	const struct passwd *user = getpwuid(uid);

	if (user != NULL)
		snprintf(buf, size, "%s", user->pw_name);
	else
		snprintf(buf, size, "%ju", (uintmax_t)uid);
	return buf;
}

/*
 * What another user made in the store, as a command run by root may have, the
 * service cannot write.
 */
static void
check_owner(struct check *check, int dir, const char *name, uid_t owner)
{
	struct stat st;
	char theirs[64], ours[64];

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			say_wrong(check, "%s/%s: %s", check->config.dir, name,
			    strerror(errno));
		return;
	}
	if (st.st_uid != owner)
		say_wrong(check,
		    "%s/%s: belongs to %s, the directory to %s; run: chown -R "
		    "%s: %s",
		    check->config.dir, name,
		    user_name(st.st_uid, theirs, sizeof(theirs)),
		    user_name(owner, ours, sizeof(ours)), ours,
		    check->config.dir);
	else if (faccessat(dir, name, R_OK | W_OK, AT_EACCESS) < 0 &&
		 errno != EROFS) /* told of the directory */
		say_wrong(check,
		    "%s/%s: cannot be written: %s; run this as the service's "
		    "user, or mend its mode",
		    check->config.dir, name, strerror(errno));
}

static void
check_room(struct check *check, int dir)
{
	struct statvfs fs;

	if (fstatvfs(dir, &fs) < 0)
		say_wrong(check, "%s: %s", check->config.dir, strerror(errno));
	else if ((uint64_t)fs.f_bavail * fs.f_frsize < FREE_BYTES_MIN)
		say_wrong(check, "%s: only %" PRIu64 " MiB are free; make room",
		    check->config.dir,
		    (uint64_t)fs.f_bavail * fs.f_frsize >> 20);
	else
		printf("%s: %" PRIu64 " MiB are free: ok\n", check->config.dir,
		    (uint64_t)fs.f_bavail * fs.f_frsize >> 20);
}

/* The directory and the names in it.  Whether there is a journal. */
static bool
check_directory(struct check *check)
{
	static const char *const names[] = { "plants.jsonl", "lock", "index",
		"index/data.mdb" };
	const char *path = check->config.dir;
	int wrong = check->wrong;
	struct stat st;
	char owner[64];
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || fstat(dir, &st) < 0) {
		if (errno == ENOENT)
			say_wrong(check,
			    "PLANT_STORE_DIR: %s: cannot open: %s; make it "
			    "with 'install -d -m 0700 %s', owned by the "
			    "service's user",
			    path, strerror(errno), path);
		else
			say_wrong(check,
			    "PLANT_STORE_DIR: %s: cannot open: %s%s", path,
			    strerror(errno),
			    errno == EACCES ? "; run this as its owner" : "");
		if (dir >= 0)
			close(dir);
		return false;
	}
	/* Before why it failed is asked for: looking it up changes errno. */
	user_name(st.st_uid, owner, sizeof(owner));
	if (faccessat(dir, ".", R_OK | W_OK | X_OK, AT_EACCESS) < 0)
		say_wrong(check, "%s: cannot be written: %s; %s%s", path,
		    strerror(errno),
		    errno == EROFS ? "mount it for writing"
				   : "run this as its owner, ",
		    errno == EROFS ? "" : owner);
	if ((st.st_mode & (S_IWGRP | S_IRWXO)) != 0)
		say_wrong(check,
		    "%s: mode %04o lets others in; run: chmod 0700 %s", path,
		    (unsigned)st.st_mode & 07777, path);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check_owner(check, dir, names[i], st.st_uid);
	check_room(check, dir);
	bool exists = faccessat(dir, names[0], F_OK, 0) == 0;
	/* The lock is marked from when the journal is made. */
	if (!exists && fstatat(dir, "lock", &st, 0) == 0 && st.st_size > 0)
		say_wrong(check,
		    "%s/plants.jsonl: missing; restore it from a backup, or "
		    "remove %s/lock and %s/index to begin an empty store",
		    path, path, path);
	close(dir);
	if (check->wrong == wrong)
		printf("%s: rights: ok\n", path);
	return exists;
}

static void
check_store(struct check *check)
{
	static const char *const words[] = {
		[INSPECT_CURRENT] = "ok",
		[INSPECT_BEHIND] = "behind; the service brings it up",
		[INSPECT_MISSING] = "missing; the service makes it",
		[INSPECT_FOREIGN] = "old; the service builds it anew",
		[INSPECT_UNREADABLE] = "damaged; the service builds it anew",
	};
	struct watch watch = command_watch(check->command, "check");
	struct inspect_report report;
	int status;
	struct inspect *inspect =
	    inspect_open(check->config.dir, &watch, &status);
	bool fine = inspect != NULL &&
		    inspect_report(inspect, &report) == EX_OK &&
		    (report.failed || inspect_end(inspect) == EX_OK);

	command_unwatch();
	if (!fine) {
		check->wrong++; /* told, or interrupted */
		inspect_close(inspect);
		return;
	}
	printf("%s: index: %s\n", check->config.dir, words[report.index]);
	if (report.failed)
		say_wrong(check,
		    "%s: a sync has failed; start the service, which copies "
		    "what is readable to a fresh journal, and look at the disk",
		    check->config.dir);
	else
		printf("%s: store: ok; plant-store verify reads all of it\n",
		    check->config.dir);
	inspect_close(inspect);
}

/* The token from stdin's first line, in `buf`.  NULL, told. */
static const char *
read_token(char *buf, size_t size)
{
	if (fgets(buf, (int)size, stdin) == NULL) {
		log_error("check: no token on stdin");
		return NULL;
	}
	buf[strcspn(buf, "\r\n")] = '\0';
	return buf;
}

static int
check_all(const struct command *command, const char *url, const char *token)
{
	struct check check = { .command = command };
	char error[512];
	int url_wrong = 0;

	if (config_read(&check.config, error, sizeof(error)) < 0) {
		log_error("check: %s", error);
		return EX_CONFIG;
	}
	printf("settings: ok\n");
	check_tokens(&check);
	if (check_directory(&check))
		check_store(&check);
	else if (check.wrong == 0)
		printf("%s: no store yet; the service makes it\n",
		    check.config.dir);
	fflush(stdout);
	if (command_interrupted() != 0)
		return 128 + command_interrupted();
	if (url != NULL)
		url_wrong = url_check(url, token, check.config.body_bytes_max);
	if (check.wrong != 0)
		return EX_CONFIG;
	return url_wrong == 0 ? EX_OK : EX_UNAVAILABLE;
}

int
check_command_run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "url", required_argument, NULL, 'u' },
		{ "token", required_argument, NULL, 't' },
		COMMAND_OPTION_HELP,
		{ 0 },
	};
	struct command command = { .name = argv[0], .usage = usage };
	const char *url = NULL, *token = NULL;
	char line[TOKEN_MAX];
	int option;

	optind = 0;
	while ((option = command_option(&command, argc, argv, options)) != -1)
		switch (option) {
		case 'u':
			url = optarg;
			break;
		case 't':
			token = optarg;
			break;
		default:
			return command.status;
		}
	if (optind < argc)
		return command_usage_error(&command, "too many arguments");
	if (token != NULL && url == NULL)
		return command_usage_error(
		    &command, "a token is of use with --url only");
	if (token != NULL && strcmp(token, "-") == 0) {
		token = read_token(line, sizeof(line));
		if (token == NULL)
			return EX_NOINPUT;
	}
	return check_all(&command, url, token);
}
