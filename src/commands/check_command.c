/*
 * check_command: checks the settings, permissions, tokens, store and socket of
 * this machine's service.  check changes nothing.  It reads only the part of a
 * journal that is not in the index; verify reads the whole journal.  The script
 * deploy/plant-store-check-url checks the clients' URL, afterwards or alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <grp.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "command.h"
#include "ground/clock.h"
#include "ground/config.h"
#include "ground/file.h"
#include "http/request.h"

#define SERVICE_SOCKET "/run/plant-store/socket"

/* The alert PlantStoreConsumerBehind has the same limit. */
#define CONSUMER_MS (INT64_C(3600) * 1000)
/* The alert PlantStoreTokenExpires has the same limit. */
#define EXPIRES_SOON_MS (INT64_C(14) * 86400 * 1000)
#define URL_SCRIPT "plant-store-check-url"
#define TOKEN68                                                \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" \
	"0123456789-._~+/="

static struct {
	const struct call *call;
	struct config config; /* zeroed if only a URL is checked */
	int wrong, unreached; /* problems on this machine; on the path to it */
	int *count;           /* the counter that report() increments */
	bool answers;         /* the service answers at its socket */
} check;

/* Count and log a problem; report_errno adds the meaning of errno. */
#define report(...) (++*check.count, log_error("check: " __VA_ARGS__))
#define report_errno(name, what) (++*check.count, fault_report(name, what))

static void
check_tokens(uid_t user)
{
	int64_t now_ms = clock_ms(CLOCK_REALTIME);
	size_t count = 0;
	enum fault fault;
	const char *path = check.config.tokens;
	struct tokens *tokens = tokens_open(path, user, &fault);
	const struct token *token =
	    tokens != NULL ? tokens_list(tokens, &count) : NULL;

	for (; count > 0; token++, count--)
		if (token->expires_ms > now_ms && !token->renewed &&
		    token->expires_ms < now_ms + EXPIRES_SOON_MS)
			report("%s: %s expires in %s; run: plant-store token "
			       "renew %s",
			    path, token->name, command_age(token->expires_ms),
			    token->name);
	if (tokens == NULL || tokens_warning(tokens) != NULL)
		check.wrong++; /* logged */
	else if (tokens_next_expiry(tokens, now_ms) == 0)
		report("%s: every token has expired; add one with: plant-store "
		       "token add NAME",
		    path);
	else
		printf("%s: %s: ok\n", path, command_tokens(tokens));
	tokens_close(tokens);
}

/* Check the directory: permissions, owners of its files, free space. */
static enum fault
check_directory(void)
{
	static const char *const names[] = { "plants.jsonl", "plants.jsonl.end",
		"index", "index/manifest", "index/end", "metrics" };
	const char *path = check.config.dir;
	int wrong = check.wrong;
	char target[PATH_MAX] = "";
	struct stat st, file;
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 && errno == ENOENT &&
	    readlink(path, target, sizeof(target) - 1) > 0)
		report("%s: is a link to %s, which cannot be opened; mount or "
		       "create that directory, or correct the link",
		    path, target);
	if (dir < 0 || fstat(dir, &st) < 0)
		return fault_report(path, "cannot open");
	if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) < 0)
		report_errno(path, "cannot be written");
	if ((st.st_mode & (S_IWGRP | S_IRWXO)) != 0)
		report("%s: mode %04o is too open; run: chmod 0700 %s", path,
		    (unsigned)st.st_mode & 07777, path);
	/* A command that root ran may have created one of the files. */
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(target, sizeof(target), "%s/%s", path, names[i]);
		if (lstat(target, &file) < 0) {
			if (errno != ENOENT)
				report_errno(target, "cannot be read");
		} else if (file.st_uid != st.st_uid)
			report("%s: belongs to user %ju, but the directory to "
			       "%ju; run: chown -R --reference=%s %s",
			    target, (uintmax_t)file.st_uid,
			    (uintmax_t)st.st_uid, path, path);
		else if (faccessat(AT_FDCWD, target, R_OK | W_OK, AT_EACCESS) <
			     0 &&
			 errno != EROFS) /* reported for the directory */
			report_errno(target, "cannot be written");
	}
	close(dir);
	if (check.wrong == wrong)
		printf("%s: permissions: ok\n", path);
	uint64_t mib = metrics_free_bytes(path) >> 20;
	/* Room for a few hundred thousand plants. */
	if (mib < 64)
		report("%s: only %" PRIu64 " MiB free; make room", path, mib);
	else
		printf("%s: %" PRIu64 " MiB free: ok\n", path, mib);
	return FAULT_NONE;
}

/* A backup is made every night, and read in full every week. */
#define BACKUP_AGE_MAX_MS (INT64_C(2) * 86400000)
#define VERIFIED_AGE_MAX_MS (INT64_C(8) * 86400000)

/* A new store may have no backup. */
static void
check_backup(void)
{
	const char *dir = check.config.dir, *age = command_backup(dir);
	int64_t ms = file_get_time(dir, STORE_BACKUP_NAME);
	int64_t whole_ms = file_get_time(dir, STORE_VERIFIED_NAME);
	int64_t now_ms = clock_ms(CLOCK_REALTIME);

	if (ms <= 0)
		printf("%s: backup: none yet; run: systemctl enable --now "
		       "plant-store-backup.timer\n",
		    dir);
	else if (now_ms - ms >= BACKUP_AGE_MAX_MS ||
		 (whole_ms > 0 && now_ms - whole_ms >= VERIFIED_AGE_MAX_MS))
		report("%s: backup: %s; see: journalctl -u plant-store-backup",
		    dir, age);
	else
		printf("%s: backup: %s: ok\n", dir, age);
}

/* A consumer that reads gets a new cursor soon after a plant is stored. */
static void
check_consumers(void)
{
	const char *dir = check.config.dir;
	struct metrics_consumer list[METRICS_CONSUMERS_MAX];
	int64_t late_ms = clock_ms(CLOCK_REALTIME) - CONSUMER_MS;
	size_t n = 0;

	if (metrics_open(dir, false) == FAULT_NONE)
		n = metrics_consumers(dir, metrics[METRICS_STORE_BYTES], list);
	for (size_t i = 0; i < n; i++)
		if (list[i].behind > 0 && list[i].read_ms < late_ms)
			report("%s: the consumer %s; see its log", dir,
			    command_consumer(&list[i]));
		else
			printf("%s: the consumer %s: ok\n", dir,
			    command_consumer(&list[i]));
}

/* Check that the next start would accept the store; print the index's state. */
static void
check_store(void)
{
	const char *dir = check.config.dir;
	enum index_state index = INDEX_ABSENT;
	enum fault fault = check_directory();

	if (fault == FAULT_NONE) {
		command_watch("check");
		fault = check_journal(dir, check.call->store.watch, &index);
		command_unwatch();
	}
	if (fault == FAULT_NONE) {
		printf("%s: index: %s%s\n%s: store: ok; plant-store verify "
		       "checks all of it\n",
		    dir, index_words[index].text,
		    index > INDEX_BEHIND ? "; the service builds it" : "", dir);
		check_backup();
		check_consumers();
	} else
		check.wrong++; /* logged, unless a signal stopped the check */
	if (fault == FAULT_ABSENT)
		log_error("check: %s: mount its file system, restore the store "
			  "from a backup, or create a new one, as the "
			  "service's user, with: plant-store init %s",
		    dir, dir);
}

static void
check_database(void)
{
	struct store_options options = { .database = check.config.database };
	enum fault fault;
	struct store *store = store_open(&options, &fault);

	if (store == NULL)
		check.wrong++; /* logged */
	else if (store_ready(store) != STORE_CREATED)
		report("database: does not confirm commits; see "
		       "plant-store-postgresql(7)");
	else if (metrics[METRICS_ANY_STANDBY] != 0)
		check.wrong++; /* logged */
	else
		printf("database: ok\n");
	store_close(store);
}

/* A request for the service's state (FastCGI 1.0, appendix B). */
static const char probe[] = "\1\1\0\1\0\10\0\0"
			    "\0\1\0\0\0\0\0\0"
			    "\1\4\0\1\0\23\0\0"
			    "\21\0" REQUEST_CHECK "\1\4\0\1\0\0\0\0"
			    "\1\5\0\1\0\0\0\0";

static void
report_mode(const char *path, mode_t mode, const char *good)
{
	report("%s: mode %04o: give access to the web server only; run: chmod "
	       "%s %s (permanently: systemctl edit plant-store.socket)",
	    path, (unsigned)mode & 07777, good, path);
}

/* Check that a web server can open the socket through the socket's group. */
static void
check_access(const char *path)
{
	static const char *const names[] = { "www-data", "nginx", "apache" };
	struct stat st, dir_st;
	char copy[PATH_MAX];
	bool can = false;

	snprintf(copy, sizeof(copy), "%s", path);
	const char *dir = dirname(copy);
	if (stat(path, &st) < 0 || stat(dir, &dir_st) < 0)
		return;
	if ((dir_st.st_mode & S_IXOTH) == 0 && dir_st.st_gid != st.st_gid)
		report_mode(dir, dir_st.st_mode, "0755");
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) != S_IWGRP)
		report_mode(path, st.st_mode, "0660");
	const struct group *group = getgrgid(st.st_gid);
	for (size_t i = 0; group != NULL && i < 3; i++) {
		can |= strcmp(group->gr_name, names[i]) == 0;
		for (char **user = group->gr_mem; *user != NULL; user++)
			can |= strcmp(*user, names[i]) == 0;
	}
	if (!can)
		report("%s: no web server's user is in its group, %ju; run: "
		       "chgrp www-data %s (permanently: systemctl edit "
		       "plant-store.socket, SocketGroup=www-data)",
		    path, (uintmax_t)st.st_gid, path);
}

static void
check_socket(const char *path)
{
	/* A service that is starting may read a long journal first. */
	static const struct timeval limit = { .tv_sec = 15 };
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* Larger than an error's headers and body. */
	char answer[4096] = "", why[256];
	const char *text = answer + 8; /* after a FastCGI record's head */
	int number;

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0) {
		check_access(path);
		if (send(fd, probe, sizeof(probe) - 1, MSG_NOSIGNAL) > 0)
			recv(fd, answer, sizeof(answer) - 1, MSG_WAITALL);
		if (strstr(text, "{\"status\":\"ok\"}") != NULL)
			printf("%s: the service answers: ok\n", path);
		else if (sscanf(text,
			     "%*[^{]{\"error\":%d,\"message\":\"%255[^\"]",
			     &number, why) == 2)
			report("%s: the service could not store a plant: error "
			       "%d: %s See: journalctl -u plant-store",
			    path, number, why);
		else
			report("%s: the service does not answer; see: "
			       "journalctl -u plant-store; then run: systemctl "
			       "restart plant-store",
			    path);
	} else
		report("%s: cannot connect: %s; see: journalctl -u "
		       "plant-store; then run: systemctl start "
		       "plant-store.socket (without systemd: "
		       "plant-store-start)",
		    path, strerror(errno));
	close(fd);
}

/* Root becomes the service's user permanently: these checks come last. */
static void
check_files(void)
{
	const struct config *config = &check.config;
	const struct passwd *user = NULL;
	int wrong = check.wrong;
	struct stat st;
	/* The service's user owns the store. */
	uid_t owner = stat(config->dir, &st) == 0 ? st.st_uid : TOKENS_ANY_USER;

	if (geteuid() == 0)
		user = config->database != NULL ? getpwnam("plant-store")
						: getpwuid(owner);
	if (user != NULL &&
	    (initgroups(user->pw_name, user->pw_gid) < 0 ||
		setresgid(user->pw_gid, user->pw_gid, user->pw_gid) < 0 ||
		setresuid(user->pw_uid, user->pw_uid, user->pw_uid) < 0 ||
		setenv("HOME", user->pw_dir, 1) < 0))
		report_errno(user->pw_name, "cannot switch to this user");
	check_tokens(owner);
	if (config->database != NULL)
		check_database();
	else
		check_store();
	if (user != NULL && user->pw_uid != 0 && check.wrong > wrong)
		log_info("check: tokens and store were checked as the "
			 "service's user, %s",
		    user->pw_name);
}

/* The shell gets only PATH: other variables may contain a password. */
static bool
is_timer_stopped(void)
{
	static const char script[] =
	    "systemctl -q is-enabled plant-store-backup.timer 2>&- &&"
	    "! systemctl -q is-active plant-store-backup.timer";
	const char *path = getenv("PATH");
	char text[4096];
	char *const environment[] = { text, NULL };
	int status = -1;
	snprintf(text, sizeof(text), "PATH=%s", path != NULL ? path : "/bin");
	pid_t child = fork();
	if (child == 0) {
		execle("/bin/sh", "sh", "-c", script, NULL, environment);
		_exit(EX_OSERR);
	}
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* Check this machine, and print where the settings come from. */
static void
check_machine(bool given)
{
	const char *socket = command_option("socket");
	char copy[PATH_MAX];
	struct stat st, dir;

	command_need(config_use_file(command_option("environment"), false));
	command_need(config_read(&check.config));
	const char *file = check.config.file, *text = check.config.database;
	printf("settings: %s%s: ok\n", given ? "PLANT_STORE_ variables, " : "",
	    file != NULL ? file : "defaults, no " CONFIG_FILE);
	/* Find a password, by keyword or in a URL, if others can read it. */
	if (file != NULL && text != NULL &&
	    (strstr(text, "password") != NULL ||
		fnmatch("*://*:*@*", text, 0) == 0) &&
	    snprintf(copy, sizeof(copy), "%s", file) > 0 &&
	    stat(file, &st) == 0 && (st.st_mode & S_IROTH) != 0 &&
	    stat(dirname(copy), &dir) == 0 && (dir.st_mode & S_IXOTH) != 0)
		report(
		    "%s: others can read the password in it; run: chmod o= %s",
		    file, file);
	if (!check.config.sandbox)
		report(
		    "PLANT_STORE_SANDBOX=off is for debugging only; remove it");
	if (socket == NULL && !given)
		socket = SERVICE_SOCKET;
	check.count = &check.unreached;
	if (socket != NULL)
		check_socket(socket);
	check.count = &check.wrong;
	check.answers = socket != NULL && check.unreached == 0;
	/* Ask as root: without D-Bus, other users may not ask. */
	if (access("/run/systemd/system", F_OK) == 0 && is_timer_stopped())
		report("plant-store-backup.timer is not running; run: "
		       "systemctl enable --now plant-store-backup.timer");
	check_files();
	if (command_signal != 0)
		command_fail(FAULT_STOPPED);
}

/* Run the script.  It gets the token on stdin, where `ps` cannot show it. */
static void
check_url(const char *url, const char *token)
{
	char path[PATH_MAX], numbers[4][16];
	const char *base = check.config.base_path;
	int pipes[2];

	if (!file_beside_program("../share/plant-store/" URL_SCRIPT, path))
		path[0] = '\0';
	snprintf(numbers[0], 16, "%zu", check.config.body_bytes_max);
	snprintf(numbers[1], 16, "%d", check.answers);
	snprintf(numbers[2], 16, "%d", check.wrong);
	snprintf(numbers[3], 16, "%d", check.unreached);
	/* A pipe holds any token of this length. */
	if (pipe(pipes) < 0 || dprintf(pipes[1], "%s\n", token) < 0 ||
	    dup2(pipes[0], STDIN_FILENO) < 0)
		command_fail(fault_report("check", "cannot pass the token on"));
	close(pipes[1]);
	/* This may contain a password, which curl does not need. */
	unsetenv("PLANT_STORE_DATABASE");
	execl(path, path, url, numbers[0], numbers[1], numbers[2], numbers[3],
	    base != NULL ? base : "BASE", NULL);
	command_fail(fault_report(path, "cannot run"));
}

void
check_run(const struct call *call)
{
	const char *url = command_option("url"),
		   *token = command_option("token");
	const char *socket = command_option("socket");
	bool given = command_option("environment") == NULL && config_is_given();
	char line[4096] = "";

	check.call = call;
	check.count = &check.wrong;
	if (token != NULL && url == NULL)
		command_usage_error("--token needs --url");
	/* sun_path of struct sockaddr_un has 108 bytes, with the NUL. */
	if (socket != NULL && strlen(socket) > 107)
		command_usage_error("--socket: PATH exceeds 107 bytes");
	if (token != NULL && strcmp(token, "-") == 0) {
		/* getpass does not echo the token. */
		token = isatty(STDIN_FILENO)
			    ? getpass("Token: ")
			    : fgets(line, (int)sizeof(line), stdin);
		line[strcspn(line, "\r\n")] = '\0';
		if (token == NULL || token[0] == '\0')
			command_refuse(
			    FAULT_ABSENT, "check: no token on stdin");
	}
	if (token != NULL && strlen(token) >= sizeof(line))
		command_usage_error("the token is longer than any valid one");
	if (token != NULL && token[strspn(token, TOKEN68)] != '\0')
		command_usage_error("the token contains %s: pass only what "
				    "\"token add\" printed",
		    strncasecmp(token, "bearer", 6) == 0 ? "\"Bearer\""
		    : strpbrk(token, "\"'") != NULL      ? "quotes"
		    : strpbrk(token, " \t") != NULL      ? "blanks"
							 : "other characters");
	if (url == NULL || given || command_option("environment") != NULL ||
	    socket != NULL)
		check_machine(given);
	fflush(stdout);
	if (url != NULL)
		check_url(url, token != NULL ? token : "");
	int problems = check.wrong + check.unreached;
	puts(command_count((uint64_t)problems, "problem"));
	if (problems > 0)
		command_exit(check.wrong > 0 ? EX_CONFIG : EX_UNAVAILABLE);
}
