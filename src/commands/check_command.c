/*
 * check_command: checks the settings, permissions, tokens, store and socket of
 * this machine's service, and its URL as a client; or the URL alone.  check
 * changes nothing.  It reads only the part of a journal that is not in the
 * index; verify reads the whole journal.  No other module uses libcurl.
 */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include "command.h"
#include "ground/clock.h"
#include "ground/config.h"
#include "ground/fault.h"
#include "ground/log.h"
#include "ground/metrics.h"
#include "http/errors.h"
#include "http/request.h"
#include "http/tokens.h"
#include "reader/reader.h"
#include "store/store.h"

#define SERVICE_SOCKET "/run/plant-store/socket"

static const char usage[] =
    "Usage: plant-store check [--environment FILE] [--socket PATH]\n"
    "                         [--url URL [--token TOKEN]]\n"
    "\n"
    "Check the service's settings, socket, token file, rights and store, and\n"
    "a URL with requests that cannot create anything; with a URL alone check\n"
    "nothing else.  Exit status 78 if something on this machine is wrong, 69\n"
    "if only the way to the service is.\n"
    "\n"
    "  --environment FILE  the settings (variables, or " CONFIG_FILE ")\n"
    "  --socket PATH   the service's socket (" SERVICE_SOCKET ")\n"
    "  --url URL       the base URL of clients: https://plants.example/api/v1\n"
    "  --token TOKEN   a valid token; - reads it from stdin\n";

/* The shortest JSON object: the service refuses it for its missing id. */
#define NO_PLANT "{}"

static struct {
	const struct call *call;
	struct config config; /* zeroed if only a URL is checked */
	int wrong, unreached; /* problems of this machine; of reaching it */
	int *count;           /* the counter that report() increments */
	bool answers;         /* the service answers at its socket */

	char url[2048];    /* of the plants */
	bool loopback;     /* the URL is on this machine */
	const char *token; /* or NULL */
	/* NO_PLANT and blanks.  A trial sends the first bytes of `body`. */
	char body[CONFIG_BODY_BYTES_MAX + sizeof(NO_PLANT)];
} check;

/* Count and log a problem; report_errno adds the meaning of errno. */
#define report(...) (++*check.count, log_error("check: " __VA_ARGS__))
#define report_errno(name, what) (++*check.count, fault_report(name, what))

static void
check_tokens(uid_t user)
{
	int64_t now_ms = clock_ms(CLOCK_REALTIME);
	size_t expired = 0, count = 0;
	enum fault fault;
	const char *path = check.config.tokens;
	struct tokens *tokens = tokens_open(path, user, &fault);
	const struct token *token =
	    tokens != NULL ? tokens_list(tokens, &count) : NULL;

	for (size_t i = 0; i < count; i++)
		expired += token[i].expires_ms <= now_ms;
	if (tokens == NULL || tokens_warning(tokens) != NULL)
		check.wrong++; /* logged */
	else if (expired == count)
		report("%s: every token has expired; add one with: plant-store "
		       "token add NAME",
		    path);
	else
		printf("%s: %zu tokens, %zu of them expired: ok\n", path, count,
		    expired);
	tokens_close(tokens);
}

/* A command run by root may have made a file that the service cannot write. */
static void
check_file(const char *name, uid_t owner)
{
	const char *dir = check.config.dir;
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (lstat(path, &st) < 0) {
		if (errno != ENOENT)
			report_errno(path, "cannot be read");
	} else if (st.st_uid != owner)
		report(
		    "%s: belongs to the user %ju, the directory to %ju; run: "
		    "chown -R --reference=%s %s",
		    path, (uintmax_t)st.st_uid, (uintmax_t)owner, dir, dir);
	else if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) < 0 &&
		 errno != EROFS) /* check_directory reports it */
		report_errno(path, "cannot be written");
}

/* Check the directory: permissions, owners of its files, free space. */
static enum fault
check_directory(void)
{
	static const char *const names[] = { "plants.jsonl", "index",
		"index/data.mdb", "plants.jsonl.failed" };
	const char *path = check.config.dir;
	int wrong = check.wrong;
	struct stat st;
	struct statvfs fs;
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || fstat(dir, &st) < 0 || fstatvfs(dir, &fs) < 0)
		return fault_report(path, "cannot open");
	close(dir);
	if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) < 0)
		report_errno(path, "cannot be written");
	if ((st.st_mode & (S_IWGRP | S_IRWXO)) != 0)
		report("%s: mode %04o lets others in; run: chmod 0700 %s", path,
		    (unsigned)st.st_mode & 07777, path);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check_file(names[i], st.st_uid);
	if (check.wrong == wrong)
		printf("%s: rights: ok\n", path);
	uintmax_t mib = (uintmax_t)fs.f_bavail * fs.f_frsize >> 20;
	/* Room for some hundred thousand plants. */
	if (mib < 64)
		report("%s: only %ju MiB are free; make room", path, mib);
	else
		printf("%s: %ju MiB are free: ok\n", path, mib);
	return FAULT_NONE;
}

/* A new store may have no backup; later, one is made each night. */
static void
check_backup(void)
{
	const char *dir = check.config.dir;
	int64_t ms = metrics_backup_ms(dir);
	intmax_t hours = (clock_ms(CLOCK_REALTIME) - ms) / 3600000;

	if (ms <= 0)
		printf("%s: backup: none verified yet; run: systemctl enable "
		       "--now plant-store-backup.timer\n",
		    dir);
	else if (hours < 48)
		printf("%s: backup: %jd hours old: ok\n", dir, hours);
	else
		report("%s: the last verified backup is %jd days old; see: "
		       "journalctl -u plant-store-backup",
		    dir, hours / 24);
}

/* Check if the next start would refuse the store; print the index's state. */
static void
check_store(void)
{
	const char *dir = check.config.dir;
	enum index_state index = INDEX_ABSENT;
	enum fault fault = check_directory();

	if (fault == FAULT_NONE) {
		command_watch(check.call, "check");
		fault = check_journal(dir, check.call->store.watch, &index);
		command_unwatch();
	}
	if (fault == FAULT_NONE) {
		printf("%s: index: %s%s\n%s: store: ok; plant-store verify "
		       "reads all of it\n",
		    dir, index == INDEX_USABLE ? "ok" : index_words[index].text,
		    index == INDEX_USABLE   ? ""
		    : index == INDEX_BEHIND ? "; the service catches up"
					    : "; the service builds it",
		    dir);
		check_backup();
	} else
		check.wrong++; /* logged, unless a signal stopped the check */
	if (fault == FAULT_ABSENT)
		log_error("check: %s: mount its file system, restore the "
			  "store from a backup, or make a new one, as the "
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
		report("database: it does not confirm commits; see "
		       "plant-store-postgresql(7)");
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
	report("%s: mode %04o: the web server, and nobody else, has to get in; "
	       "run: chmod %s %s (for good: systemctl edit plant-store.socket)",
	    path, (unsigned)mode & 07777, good, path);
}

/* Whether the group is a web server's own, or has its user as a member. */
static bool
is_of_web_server(gid_t id)
{
	static const char *const names[] = { "www-data", "nginx", "apache" };
	const struct group *group = getgrgid(id);
	bool is = false;

	for (size_t i = 0; group != NULL && i < 3; i++) {
		is |= strcmp(group->gr_name, names[i]) == 0;
		for (char **user = group->gr_mem; *user != NULL; user++)
			is |= strcmp(*user, names[i]) == 0;
	}
	return is;
}

static void
check_access(const char *path)
{
	struct stat st, dir_st;
	char copy[PATH_MAX];

	snprintf(copy, sizeof(copy), "%s", path);
	const char *dir = dirname(copy);
	if (stat(path, &st) < 0 || stat(dir, &dir_st) < 0)
		return;
	if ((dir_st.st_mode & S_IXOTH) == 0 && dir_st.st_gid != st.st_gid)
		report_mode(dir, dir_st.st_mode, "0755");
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) != S_IWGRP)
		report_mode(path, st.st_mode, "0660");
	if (!is_of_web_server(st.st_gid))
		report("%s: no web server's user is in its group, %ju; run: "
		       "chgrp www-data %s (for good: systemctl edit "
		       "plant-store.socket, SocketGroup=www-data)",
		    path, (uintmax_t)st.st_gid, path);
}

/* Check that the service answers, and that web servers can open the socket. */
static void
check_socket(const char *path)
{
	/* A service that is starting may read a long journal first. */
	static const struct timeval limit = { .tv_sec = 15 };
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* More than the headers and body of an error. */
	char answer[4096] = "", why[256];
	const char *text = answer + 8; /* after a FastCGI record's head */
	int number;
	ssize_t n;

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0) {
		check_access(path);
		n = send(fd, probe, sizeof(probe) - 1, MSG_NOSIGNAL);
		if (n > 0)
			n = recv(fd, answer, sizeof(answer) - 1, MSG_WAITALL);
		if (strstr(text, "{\"status\":\"ok\"}") != NULL)
			printf("%s: the service answers: ok\n", path);
		else if (sscanf(text,
			     "%*[^{]{\"error\":%d,\"message\":\"%255[^\"]",
			     &number, why) == 2)
			report("%s: the service could not store a plant: error "
			       "%d: %s See: journalctl -u plant-store",
			    path, number, why);
		else
			report("%s: %s; see: journalctl -u plant-store; then "
			       "run: systemctl restart plant-store",
			    path,
			    n > 0   ? "something else answers"
			    : n < 0 ? "no answer within 15 s"
				    : "closed without an answer");
	} else if (errno == ENOENT || errno == ECONNREFUSED)
		report(
		    "%s: %s: the service is down; see: journalctl -u "
		    "plant-store; then run: systemctl start "
		    "plant-store.socket (without systemd: plant-store-start)",
		    path,
		    errno == ENOENT ? "there is no socket" : "nobody listens");
	else
		report_errno(path, "cannot connect");
	close(fd);
}

/* Root becomes the service's user for good: these checks are the last ones. */
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

/* Report a password (URL or keyword) in a settings file others can read. */
static void
check_password(void)
{
	const char *file = check.config.file, *text = check.config.database;
	char copy[PATH_MAX];
	struct stat st, dir;

	if (file == NULL || text == NULL ||
	    (strstr(text, "password") == NULL &&
		fnmatch("*://*:*@*", text, 0) != 0))
		return;
	snprintf(copy, sizeof(copy), "%s", file);
	if (stat(file, &st) == 0 && (st.st_mode & S_IROTH) != 0 &&
	    stat(dirname(copy), &dir) == 0 && (dir.st_mode & S_IXOTH) != 0)
		report(
		    "%s: others can read the password in it; run: chmod o= %s",
		    file, file);
}

/* Check this machine, and print where the settings are from. */
static int
check_machine(bool given)
{
	const char *socket = check.call->values['s'];
	enum fault fault = config_use_file(check.call->values['e'], false);

	if (fault == FAULT_NONE)
		fault = config_read(&check.config);
	if (fault != FAULT_NONE)
		return command_fault(fault);
	const char *file = check.config.file;
	printf("settings: %s%s: ok\n", given ? "PLANT_STORE_ variables, " : "",
	    file != NULL ? file : "defaults, no " CONFIG_FILE);
	check_password();
	if (!check.config.sandbox)
		report("PLANT_STORE_SANDBOX=off is for debugging alone; "
		       "remove it");
	if (socket == NULL && !given)
		socket = SERVICE_SOCKET;
	check.count = &check.unreached;
	if (socket != NULL)
		check_socket(socket);
	check.count = &check.wrong;
	check.answers = socket != NULL && check.unreached == 0;
	check_files();
	if (command_interrupted() != 0)
		return 128 + command_interrupted();
	return check.wrong == 0 ? EX_OK : EX_CONFIG;
}

/* A request to the URL, and what the service answers to it. */
struct trial {
	const char *what; /* its name in messages */
	size_t body_len;  /* 0: a GET */
	enum http_error expected;
	/* A header that the answer needs, how its value begins; or NULL. */
	const char *header, *begins;
};

struct answer {
	CURL *curl;    /* owns the headers; for curl_easy_cleanup; or NULL */
	long status;   /* 0: no answer came */
	int error;     /* the number in an Error body, else 0 */
	CURLcode code; /* why there is no answer; `detail` explains it */
	char detail[CURL_ERROR_SIZE];
};

/* Wait at most 15 s for the answer.  Redirects are not followed. */
static void
send_request(
    const struct trial *trial, const char *token, struct answer *answer)
{
	/* An empty "Expect:" keeps libcurl from waiting for "100 Continue". */
	static char expect[] = "Expect:";
	static char type[] = "Content-Type: application/json";
	static struct curl_slist content = { type, NULL };
	static struct curl_slist headers = { expect, &content };
	CURL *curl = curl_easy_init();
	/* Larger than any Error body; a larger body ends the transfer. */
	char text[4096] = "", quote[2];
	FILE *body = fmemopen(text, sizeof(text) - 1, "w");

	*answer = (struct answer){ .curl = curl, .code = CURLE_OUT_OF_MEMORY };
	if (curl == NULL || body == NULL)
		return;
	if (token != NULL) {
		curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
		curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, token);
	}
	curl_easy_setopt(curl, CURLOPT_URL, check.url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	/* A proxy from the environment would see the token. */
	if (check.loopback)
		curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, &headers);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, 15L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(
	    curl, CURLOPT_USERAGENT, "plant-store/" PLANT_STORE_VERSION);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, answer->detail);
	if (trial->body_len > 0) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
		    (curl_off_t)trial->body_len);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, check.body);
	}
	/* The server may answer, and close, before it has read the body. */
	answer->code = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer->status);
	fclose(body);
	if (sscanf(text, " { \"error\" : %4d , \"message\" : %1[\"]",
		&answer->error, quote) != 2)
		answer->error = 0;
}

#define BODY_LOST                                                           \
	"the body did not arrive whole: the web server's limit of bodies "  \
	"may be smaller than the service's (Apache: LimitRequestBody), or " \
	"it does not pass bodies on"

/* Each is for a status of the web server or for an error of the service. */
static const struct hint {
	long status;
	enum http_error error; /* HTTP_OK: `status` identifies the hint */
	const char *why;
} hints[] = {
	{ 400, HTTP_OK,
	    "the web server refuses the request: must the URL begin with "
	    "https? Its error log has more" },
	{ 401, HTTP_OK,
	    "the web server asks for a credential of its own: switch its "
	    "authentication off for this path" },
	{ 403, HTTP_OK,
	    "the web server forbids this path: allow it, and with CGI let the "
	    "program be executed" },
	{ 404, HTTP_OK,
	    "the web server does not pass this path to the service: mount the "
	    "service there, or correct the URL" },
	{ 405, HTTP_OK,
	    "the web server does not pass POST on: mount the service here" },
	{ 411, HTTP_OK,
	    "the web server wants a Content-Length and did not get it: check "
	    "what stands before it" },
	{ 413, HTTP_OK,
	    "the web server's limit of bodies is smaller than the service's: "
	    "raise it (lighttpd: server.max-request-size, nginx: "
	    "client_max_body_size, Apache: LimitRequestBody)" },
	{ 500, HTTP_OK,
	    "the web server failed: its error log has the reason; check that "
	    "it can start the program" },
	{ 0, HTTP_CREDENTIAL_MISSING,
	    "the web server drops the header Authorization: behind Apache add "
	    "\"CGIPassAuth On\" to the <Location> of the service" },
	{ 0, HTTP_CREDENTIAL_SCHEME,
	    "the web server replaced the header Authorization: remove its own "
	    "authentication for this path" },
	{ 0, HTTP_CREDENTIAL_SEVERAL,
	    "the web server adds an Authorization header: remove it" },
	{ 0, HTTP_CREDENTIAL_UNKNOWN,
	    "the service does not know this token: give another, or check "
	    "whether it uses this token file (PLANT_STORE_TOKENS)" },
	{ 0, HTTP_CREDENTIAL_EXPIRED,
	    "the token has expired: make another with plant-store token add" },
	{ 0, HTTP_PATH_UNKNOWN,
	    "the service was asked for another path than BASE/plants: set "
	    "PLANT_STORE_BASE_PATH to the path of the URL, or correct the URL; "
	    "or the web server passes no path on (nginx: a fastcgi_param in "
	    "the location hides those of common.conf)" },
	{ 0, HTTP_METHOD_NOT_ALLOWED,
	    "the web server changed the method: find its rewrite rule" },
	{ 0, HTTP_CONTENT_TYPE,
	    "the web server drops Content-Type: pass CONTENT_TYPE on" },
	{ 0, HTTP_CONTENT_LENGTH,
	    "the web server passes a wrong CONTENT_LENGTH on" },
	{ 0, HTTP_BODY_MISSING, BODY_LOST },
	{ 0, HTTP_BODY_SHORT, BODY_LOST },
	{ 0, HTTP_BODY_TOO_LARGE,
	    "the service's limit of bodies is smaller than "
	    "PLANT_STORE_BODY_BYTES_MAX is here: give both the same" },
	{ 0, HTTP_REQUEST_AMBIGUOUS,
	    "the web server passes a variable twice or too many of them: with "
	    "nginx do not include fastcgi_params as well" },
	{ 0, HTTP_NOT_READY,
	    "the service is not running or cannot start: its log says why" },
};

/*
 * Whether the web server made this answer, perhaps with our Error body.  To
 * find out, repeat the request without a credential: the service checks that
 * first, and would report it missing.
 */
static bool
is_server_made(const struct trial *trial, const struct answer *answer)
{
	static const enum http_error of_servers[] = { HTTP_PATH_UNKNOWN,
		HTTP_METHOD_NOT_ALLOWED, HTTP_BODY_MISSING, HTTP_BODY_TOO_LARGE,
		HTTP_BODY_BROKEN, HTTP_HEAD_TOO_LARGE };
	struct answer again = { .error = 0 };

	for (size_t i = 0; i < sizeof(of_servers) / sizeof(of_servers[0]); i++)
		if (errors_number(of_servers[i]) == answer->error)
			send_request(trial, NULL, &again);
	curl_easy_cleanup(again.curl);
	return answer->error == again.error ||
	       answer->error == errors_number(HTTP_NO_ANSWER);
}

static const char *
judge(const struct trial *trial, const struct answer *answer)
{
	if ((answer->status == 404 ||
		answer->error == errors_number(HTTP_PATH_UNKNOWN)) &&
	    fnmatch("*/plants/plants", check.url, 0) == 0)
		return "leave /plants off the URL: it is the base URL";
	int error = is_server_made(trial, answer) ? 0 : answer->error;
	if (error == 0 && answer->status >= 502 && answer->status <= 504)
		return check.answers
			   ? "the service answers at its socket, and the web "
			     "server does not reach it: name that socket in "
			     "the web server's file, and run: systemctl "
			     "restart nginx (or lighttpd, apache2)"
			   : "the web server gets no answer from the service: "
			     "start it, and let the web server use its socket; "
			     "plant-store check there has more";
	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
		if (errors_number(hints[i].error) == error &&
		    (error != 0 || hints[i].status == answer->status))
			return hints[i].why;
	if (error != 0)
		return "the service has trouble of its own: its log says more";
	return answer->status >= 200 && answer->status < 300
		   ? "something else answers at this URL: correct the URL or "
		     "where the service is mounted"
		   : "the answer is not the service's: check the web server's "
		     "error log";
}

static const char *
judge_failure(const struct answer *answer)
{
	curl_off_t connect_us = 0;

	if (answer->code == CURLE_PEER_FAILED_VERIFICATION)
		return "the certificate is not trusted here: install its CA "
		       "(update-ca-certificates), or correct the host's name";
	/* libcurl sets the time only after the TLS handshake. */
	curl_easy_getinfo(answer->curl, CURLINFO_CONNECT_TIME_T, &connect_us);
	return connect_us > 0 || answer->code == CURLE_SSL_CONNECT_ERROR
		   ? "something listens there: is it the web server, must the "
		     "URL begin with http or https, and is the service stuck?"
		   : "is the web server running, and the URL right?";
}

/* Check that the service answers the request as expected; if not, log why. */
static bool
expect(const struct trial *trial)
{
	struct answer answer;
	struct curl_header *header;
	char *location = NULL, why[512] = "", number[32] = "";

	send_request(trial,
	    trial->expected == HTTP_CREDENTIAL_MISSING ? NULL : check.token,
	    &answer);
	curl_easy_getinfo(answer.curl, CURLINFO_REDIRECT_URL, &location);
	if (answer.error != 0)
		snprintf(number, sizeof(number), ", error %d", answer.error);
	if (answer.status == 0)
		report("%s: no answer: %s (%s); %s", trial->what,
		    curl_easy_strerror(answer.code), answer.detail,
		    judge_failure(&answer));
	else if (answer.status >= 300 && answer.status < 400)
		snprintf(why, sizeof(why),
		    "redirected to %.255s: give that URL without its /plants, "
		    "clients do not repeat a POST",
		    location != NULL ? location : "");
	else if (answer.error != errors_number(trial->expected) &&
		 /* The web server may refuse the large body itself. */
		 (answer.error != 0 || trial->expected != HTTP_BODY_TOO_LARGE ||
		     answer.status != errors_status(trial->expected)))
		snprintf(why, sizeof(why), "%s", judge(trial, &answer));
	else if (trial->header != NULL &&
		 (curl_easy_header(answer.curl, trial->header, 0, CURLH_HEADER,
		      -1, &header) != CURLHE_OK ||
		     strncmp(header->value, trial->begins,
			 strlen(trial->begins)) != 0))
		snprintf(why, sizeof(why),
		    "the web server drops the header %s from answers",
		    trial->header);
	else
		printf("%s: ok\n", trial->what);
	if (why[0] != '\0')
		report("%s: status %ld%s: %s", trial->what, answer.status,
		    number, why);
	curl_easy_cleanup(answer.curl);
	return answer.status != 0 && why[0] == '\0';
}

/* Find out whether the URL is on loopback; warn of a token in clear. */
static void
check_way(void)
{
	CURLU *url = curl_url();
	char *scheme = NULL, *host = NULL;

	/* libcurl guesses http where the URL has no scheme. */
	if (curl_url_set(url, CURLUPART_URL, check.url, CURLU_GUESS_SCHEME) ==
		CURLUE_OK &&
	    curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
	    curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
		check.loopback = strcasecmp(host, "localhost") == 0 ||
				 strcmp(host, "[::1]") == 0 ||
				 inet_network(host) >> 24 == 127;
		if (strcmp(scheme, "http") == 0 && !check.loopback &&
		    check.token != NULL)
			log_warning("check: the token is sent to %s in clear, "
				    "and revealed to all on the way: use https",
			    host);
	}
	curl_free(scheme);
	curl_free(host);
	curl_url_cleanup(url);
}

/*
 * Send requests that cannot create a plant: each lacks something that a plant
 * needs, and the service must report that.  The error in the answer shows how
 * far the request came.  Without a token, send only those that need none.
 */
static void
check_url(const char *url)
{
	size_t body_bytes_max = check.config.body_bytes_max;
	const struct trial trials[] = {
		{ "a request", strlen(NO_PLANT), HTTP_ID_MISSING, NULL, NULL },
		{ "without a credential", strlen(NO_PLANT),
		    HTTP_CREDENTIAL_MISSING, "WWW-Authenticate", "Bearer" },
		{ "another method", 0, HTTP_METHOD_NOT_ALLOWED, "Allow",
		    "POST" },
		{ "a body as large as allowed", body_bytes_max, HTTP_ID_MISSING,
		    NULL, NULL },
		{ "a body that is too large", body_bytes_max + 1,
		    HTTP_BODY_TOO_LARGE, NULL, NULL },
	};
	/* The last two need body_bytes_max, which is 0 for a URL alone. */
	size_t n =
	    sizeof(trials) / sizeof(trials[0]) - (body_bytes_max == 0 ? 2 : 0);
	size_t len = strlen(url);

	while (len > 0 && url[len - 1] == '/')
		len--;
	if (len + sizeof("/plants") > sizeof(check.url)) {
		report("the URL is longer than 2048 bytes");
		return;
	}
	snprintf(check.url, sizeof(check.url), "%.*s/plants", (int)len, url);
	memset(check.body, ' ', sizeof(check.body));
	memcpy(check.body, NO_PLANT, strlen(NO_PLANT));
	check_way();
	if (check.token == NULL)
		printf("no token was given: only what needs none is tried\n");
	for (const struct trial *trial = trials; trial < trials + n; trial++) {
		if (check.token == NULL &&
		    trial->expected != HTTP_CREDENTIAL_MISSING)
			continue;
		/* The next ones would fail for the same reason. */
		if (!expect(trial) && trial->expected == HTTP_ID_MISSING)
			break;
	}
}

static int
run(const struct call *call)
{
	const char *url = call->values['u'], *token = call->values['t'];
	const char *socket = call->values['s'];
	bool given = call->values['e'] == NULL && config_is_given();
	char line[4096] = "";
	int status = EX_OK;

	check.call = call;
	check.count = &check.wrong;
	if (token != NULL && url == NULL)
		return command_usage_error(
		    call, "a token is of use with --url only");
	if (socket != NULL && strlen(socket) > 107)
		return command_usage_error(
		    call, "--socket: a path has 107 bytes at most");
	if (token != NULL && strcmp(token, "-") == 0) {
		/* getpass does not echo the token. */
		token = isatty(STDIN_FILENO)
			    ? getpass("Token: ")
			    : fgets(line, (int)sizeof(line), stdin);
		line[strcspn(line, "\r\n")] = '\0';
		if (token == NULL || token[0] == '\0') {
			log_error("check: no token on stdin");
			return EX_NOINPUT;
		}
	}
	if (token != NULL && strpbrk(token, " \t") != NULL)
		return command_usage_error(
		    call, "a token has no blank: leave out \"Bearer\"");
	if (url == NULL || given || call->values['e'] != NULL || socket != NULL)
		status = check_machine(given);
	fflush(stdout);
	if (status != EX_OK && status != EX_CONFIG)
		return status;
	check.token = token;
	check.count = &check.unreached;
	if (url != NULL)
		check_url(url);
	return status == EX_OK && check.unreached > 0 ? EX_UNAVAILABLE : status;
}

const struct command check_command = {
	.name = "check",
	.summary = "check the set-up, and whether clients reach the service",
	.usage = usage,
	.options = { COMMAND_VALUE("environment", 'e'),
	    COMMAND_VALUE("socket", 's'), COMMAND_VALUE("url", 'u'),
	    COMMAND_VALUE("token", 't'), COMMAND_HELP },
	.run = run,
};
