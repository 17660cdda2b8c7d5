/*
 * tokens: which token files are accepted, which tokens are known, and what
 * adding and revoking leave in the file.
 */
#include "unit.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_shim.h"
#include "ground/log.h"
#include "http/tokens.h"
#include "pure/timestamp.h"

/* SHA-256 of "one" and "two" */
#define ONE "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
#define TWO "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"
#define THREE "0" DIGITS_63
#define DIGITS_63 \
	"692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
#define ONE_LINE "a " ONE "\n"
#define TWO_LINES ONE_LINE "b " TWO "\n"

/* One more than a name may have */
#define LONG_NAME                          \
	"a123456789b123456789c123456789d1" \
	"23456789e123456789f123456789g1234"

#define ADDERS 8
#define NAMES_EACH 5
#define MANY 10001
#define THREADS 4
#define NOBODY 65534
#define UNKNOWN HTTP_CREDENTIAL_UNKNOWN

/* The function of libcrypto that fails, or none. */
static const char *broken = "";

/* The test's own come before libcrypto's, and call those. */
#define REPLACE(type, name, parameters, arguments)                           \
	type name parameters                                                 \
	{                                                                    \
		union {                                                      \
			void *object;                                        \
			__typeof__(&name) function;                          \
		} next = { dlsym(RTLD_NEXT, #name) };                        \
		return strcmp(broken, #name) == 0 ? 0                        \
						  : next.function arguments; \
	}
REPLACE(int, EVP_Digest,
    (const void *data, size_t len, unsigned char *digest, unsigned *size,
	const EVP_MD *type, ENGINE *engine),
    (data, len, digest, size, type, engine))
REPLACE(EVP_MD *, EVP_MD_fetch,
    (OSSL_LIB_CTX * library, const char *name, const char *properties),
    (library, name, properties))
REPLACE(int, RAND_bytes, (unsigned char *bytes, int len), (bytes, len))

/* The lines that this thread has logged since it emptied them. */
static _Thread_local char logged[2048];

void
log_at(enum log_level level, const char *format, ...)
{
	size_t len = strlen(logged);
	va_list arguments;

	(void)level;
	va_start(arguments, format);
	vsnprintf(logged + len, sizeof logged - len, format, arguments);
	va_end(arguments);
}

static void
assert_logged(const char *part)
{
	if (strstr(logged, part) == NULL)
		fail_msg("'%s' is without '%s'", logged, part);
}

struct fixture {
	char dir[DIRECTORY_PATH_MAX];
	char path[80];
	char token[TOKENS_TOKEN_LEN + 1]; /* of the last add */
	enum fault fault;                 /* of the last open_set */
	struct tokens *tokens;            /* of the last open_set, or NULL */
};

static void
set_up(struct fixture *fixture)
{
	directory_make(fixture->dir);
	snprintf(
	    fixture->path, sizeof fixture->path, "%s/tokens", fixture->dir);
}

static void
tear_down(struct fixture *fixture)
{
	tokens_close(fixture->tokens);
	chmod(fixture->dir, 0700);
	directory_remove(fixture->dir);
}

#define TOKENS_TEST(name) \
	FIXTURE_TEST(name, struct fixture, fixture, set_up, tear_down)

/* Replace the file as a careful editor does. */
static void
file_put(struct fixture *fixture, const char *text)
{
	file_replace(fixture->path, text, strlen(text), 0640);
}

static char *
file_get(const struct fixture *fixture)
{
	return file_read(AT_FDCWD, fixture->path).at;
}

static size_t
entries_in_directory(const struct fixture *fixture)
{
	DIR *dir = opendir(fixture->dir);
	size_t count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count - 2; /* . and .. */
}

/* The set is closed by the next open_set, or at the test's end. */
static struct tokens *
open_set(struct fixture *fixture)
{
	tokens_close(fixture->tokens);
	logged[0] = '\0';
	fixture->tokens =
	    tokens_open(fixture->path, geteuid(), &fixture->fault);
	return fixture->tokens;
}

static struct tokens *
open_good(struct fixture *fixture, const char *text)
{
	file_put(fixture, text);
	if (open_set(fixture) == NULL)
		fail_msg("%s", logged);
	return fixture->tokens;
}

static enum http_error
find(struct tokens *tokens, const char *token)
{
	char name[TOKENS_NAME_MAX + 1];

	return tokens_find(
	    tokens, &(struct credential){ token, strlen(token) }, 0, name);
}

static size_t
count_of(const struct tokens *tokens)
{
	size_t count;

	tokens_list(tokens, &count);
	return count;
}

static void
assert_refused(struct fixture *fixture, const char *because)
{
	if (open_set(fixture) != NULL)
		fail_msg("accepted, though %s", because);
	assert_logged(fixture->path);
	assert_logged(because);
	assert_null(strchr(logged, '\n'));
	assert_int_equal(fixture->fault, FAULT_SETUP);
}

static enum fault
add(struct fixture *fixture, const char *name, int64_t expires_ms)
{
	logged[0] = '\0';
	const struct tokens_edit edit = { name, TOKENS_ADD, expires_ms, 0 };

	return tokens_edit(fixture->path, &edit, fixture->token);
}

static enum fault
revoke_name(struct fixture *fixture, const char *name)
{
	logged[0] = '\0';
	const struct tokens_edit edit = { name, TOKENS_REVOKE, 0, 0 };

	return tokens_edit(fixture->path, &edit, NULL);
}

/* `fault` is what the change gave, which is to have left `before` alone. */
static void
assert_unchanged(struct fixture *fixture, enum fault fault, enum fault expected,
    const char *because, const char *before)
{
	assert_int_equal(fault, expected);
	assert_logged(because);
	assert_string_equal(file_get(fixture), before);
	assert_int_equal(entries_in_directory(fixture), 1);
}

/* --- The file ------------------------------------------------------------- */

TOKENS_TEST(entries_are_read_in_the_files_order)
{
	struct tokens *tokens = open_good(fixture,
	    "# clients\n\n \t\nzeta " ONE "\n"
	    "  a.b_c-D9\t " TWO " 1970-01-01T00:00:01.5+00:00 "
	    "# created 2026-11-21T09:00:00Z by hand\n"
	    "d 1" DIGITS_63 " # created 2026-11-21T09:00:00.123456789Z\n"
	    "c " THREE " # created yesterday");
	size_t count;
	const struct token *list = tokens_list(tokens, &count);

	assert_int_equal(count, 4);
	assert_string_equal(list[0].name, "zeta");
	assert_int_equal(list[0].expires_ms, TOKENS_NEVER);
	assert_string_equal(list[0].created, "");
	assert_int_equal(list[0].digest[0], 0x76);
	assert_int_equal(list[0].digest[31], 0xed);
	assert_string_equal(list[1].name, "a.b_c-D9");
	assert_int_equal(list[1].expires_ms, 1500);
	assert_string_equal(list[1].created, "2026-11-21T09:00:00Z");
	assert_string_equal(list[2].created, "");
	assert_string_equal(list[3].name, "c");
	assert_string_equal(list[3].created, "");
}

TOKENS_TEST(malformed_files_are_refused_with_line_and_reason)
{
	static const char no_name[] = "line 1 has no valid name";
	static const char no_digest[] = "line 1 has no SHA-256";
	static const char no_time[] = "line 1 has an expiry";
	static const struct {
		const char *text;
		size_t len;
		const char *because;
	} rows[] = {
#define ROW(text, because) { text, sizeof text - 1, because }
		ROW("a 7692\n", no_digest),
		ROW("a " ONE "0\n", no_digest),
		ROW("a C" DIGITS_63 "\n", no_digest),
		ROW("a # " ONE "\n", no_digest),
		ROW("a g" DIGITS_63 "\n", no_digest),
		ROW("a -" DIGITS_63 "\n", no_digest),
		ROW("a :" DIGITS_63 "\n", no_digest),
		ROW("a " ONE "\r\n", no_digest),
		ROW("a " ONE "\nb\n", "line 2 has no SHA-256"),
		ROW("\n\na/b " ONE "\n", "line 3 has no valid name"),
		ROW("\xef\xbb\xbf" ONE_LINE, no_name),
		ROW(LONG_NAME " " ONE "\n", no_name),
		ROW("\r\n", no_name),
		ROW("a " ONE " tomorrow\n", no_time),
		ROW("a " ONE " 2027-01-31\n", no_time),
		ROW("a " ONE " 2027-01-31 12:00:00Z\n", no_time),
		ROW("a " ONE " 2027-01-31T00:00:00Z x\n", "line 1 has more"),
		ROW("a " ONE "\n\0\n", "line 2 contains a NUL"),
		ROW(TWO_LINES "a " TWO "\n",
		    "line 3, a, has the name of line 1, a"),
		ROW("a " ONE " 2027-01-31T00:00:00Z\n"
		    "a " TWO " 2028-01-31T00:00:00Z\na 0" DIGITS_63 "\n",
		    "a, has the name of line "),
		ROW("b " ONE "\n#\nc " TWO "\na " ONE " 2027-01-31T00:00:00Z\n",
		    "line 4, a, has the digest of line 1, b"),
		/* What may be a token is not repeated. */
		ROW("a pst_secret\n", no_digest),
#undef ROW
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		file_replace(fixture->path, rows[i].text, rows[i].len, 0640);
		assert_refused(fixture, rows[i].because);
		assert_null(strstr(logged, "secret"));
	}
}

static void
give(const char *path, uid_t owner)
{
	assert_int_equal(chown(path, owner, owner), 0);
}

/* Only root can test the owners: a user cannot give a file away. */
TOKENS_TEST(rights_decide_whether_a_file_is_accepted)
{
	static const struct {
		mode_t mode, dir_mode;
		uid_t owner, dir_owner, user;
		bool refused;
		const char *because; /* error, or warning; NULL for none */
	} rows[] = {
		{ 0600, 0700, 0, 0, 0, false, NULL },
		{ 0640, 0755, 0, 0, 0, false, NULL },
		{ 0620, 0700, 0, 0, 0, false,
		    "it (mode 0620); run: chmod g-w" },
		{ 0660, 0700, 0, 0, 0, false,
		    "it (mode 0660); run: chmod g-w" },
		{ 0600, 0770, 0, 0, 0, false,
		    "directory (mode 0770); run: ch" },
		{ 0604, 0700, 0, 0, 0, true, "chmod o=" },
		{ 0602, 0700, 0, 0, 0, true, "chmod o=" },
		{ 0601, 0700, 0, 0, 0, true, "chmod o=" },
		{ 0600, 0702, 0, 0, 0, true, "chmod o-w" },
		{ 0600, 01777, 0, 0, 0, true, "chmod o-w" },
		{ 0640, 0755, 0, 0, 1234, false, NULL },
		{ 0600, 0700, 1234, 1234, 1234, false, NULL },
		{ 0600, 0700, 1234, NOBODY, TOKENS_ANY_USER, false, NULL },
		{ 0600, 0700, NOBODY, 0, 0, true, "it belongs to user 65534" },
		{ 0600, 0700, 0, NOBODY, 0, true, "directory belongs to user" },
		{ 0600, 0700, 1234, 0, 1235, true, "run: chown 1235" },
	};
	bool root = geteuid() == 0;

	for (size_t i = 0; i < (root ? COUNT(rows) : 10); i++) {
		struct tokens *tokens;
		const char *line;

		file_put(fixture, ONE_LINE);
		assert_int_equal(chmod(fixture->path, rows[i].mode), 0);
		assert_int_equal(chmod(fixture->dir, rows[i].dir_mode), 0);
		if (root) {
			give(fixture->path, rows[i].owner);
			give(fixture->dir, rows[i].dir_owner);
		}
		logged[0] = '\0';
		tokens = tokens_open(fixture->path,
		    root ? rows[i].user : geteuid(), &fixture->fault);
		assert_int_equal(
		    fixture->fault, rows[i].refused ? FAULT_SETUP : FAULT_NONE);
		assert_int_equal(tokens == NULL, rows[i].refused);
		line = tokens == NULL ? logged : tokens_warning(tokens);
		assert_int_equal(line == NULL, rows[i].because == NULL);
		if (line != NULL)
			assert_contains(line, rows[i].because);
		tokens_close(tokens);
		/* An edit accepts any owner, and what is a warning. */
		if (!rows[i].refused)
			assert_int_equal(
			    add(fixture, "b", TOKENS_NEVER), FAULT_NONE);
	}
}

TOKENS_TEST(file_without_a_token_knows_none_and_warns_how_to_add_one)
{
	static const char *const texts[] = { "", "# nothing\n", "\n\n" };

	for (size_t i = 0; i < COUNT(texts); i++) {
		struct tokens *tokens = open_good(fixture, texts[i]);

		assert_int_equal(count_of(tokens), 0);
		assert_int_equal(find(tokens, "one"), UNKNOWN);
		assert_contains(
		    tokens_warning(tokens), "plant-store token add NAME");
	}
}

TOKENS_TEST(the_directory_that_a_link_leads_to_is_checked_too)
{
	char own[80], link[90], file[80];

	file_put(fixture, ONE_LINE);
	snprintf(own, sizeof own, "%s/own", fixture->dir);
	snprintf(link, sizeof link, "%s/link", own);
	assert_int_equal(mkdir(own, 0700), 0);
	strcpy(file, fixture->path);
	assert_int_equal(symlink(file, link), 0);
	strcpy(fixture->path, link);
	assert_non_null(open_set(fixture));
	assert_int_equal(chmod(fixture->dir, 0702), 0);
	assert_refused(fixture, "its directory (mode 0702)");
	assert_int_equal(chmod(fixture->dir, 0700), 0);
	assert_int_equal(unlink(link), 0);
	assert_int_equal(rmdir(own), 0);
	strcpy(fixture->path, file);
}

TOKENS_TEST(what_is_no_regular_file_is_refused)
{
	assert_refused(fixture, "token add NAME");
	assert_null(tokens_open("/none/tokens", 0, &fixture->fault));
	assert_int_equal(fixture->fault, FAULT_SETUP);
	assert_logged("its directory is missing; run: install -d");
	/* Without waiting for its writer. */
	assert_int_equal(mkfifo(fixture->path, 0600), 0);
	assert_refused(fixture, "not a regular file");
	assert_int_equal(unlink(fixture->path), 0);
	assert_int_equal(mkdir(fixture->path, 0700), 0);
	assert_refused(fixture, "not a regular file");
	assert_int_equal(rmdir(fixture->path), 0);
}

TOKENS_TEST(file_that_is_too_large_is_neither_read_nor_written)
{
	char *text = memory(TOKENS_FILE_BYTES_MAX + 1);
	struct stat st;

	memset(text, '\n', TOKENS_FILE_BYTES_MAX + 1);
	memcpy(text, ONE_LINE, strlen(ONE_LINE));
	file_replace(fixture->path, text, TOKENS_FILE_BYTES_MAX + 1, 0640);
	assert_refused(fixture, "larger than 1048576 bytes");
	file_replace(fixture->path, text, TOKENS_FILE_BYTES_MAX, 0640);
	assert_non_null(open_set(fixture));
	assert_int_equal(add(fixture, "b", TOKENS_NEVER), FAULT_SETUP);
	assert_logged("would be larger than 1048576");
	assert_int_equal(stat(fixture->path, &st), 0);
	assert_int_equal(st.st_size, TOKENS_FILE_BYTES_MAX);
	assert_int_equal(entries_in_directory(fixture), 1);
}

/* --- The set -------------------------------------------------------------- */

TOKENS_TEST(token_is_found_by_its_whole_text_until_it_expires)
{
	static const struct {
		const char *token;
		int64_t now_ms;
		enum http_error error;
		const char *name;
	} rows[] = {
		{ "one", 0, HTTP_OK, "a" },
		{ "two", 999, HTTP_OK, "b" },
		{ "two", 1000, HTTP_CREDENTIAL_EXPIRED, "" },
		{ "", 0, UNKNOWN, "" },
		{ "on", 0, UNKNOWN, "" },
		{ "One", 0, UNKNOWN, "" },
		{ "one ", 0, UNKNOWN, "" },
		{ "ones", 0, UNKNOWN, "" },
		{ ONE, 0, UNKNOWN, "" },
	};
	struct tokens *tokens =
	    open_good(fixture, ONE_LINE "b " TWO " 1970-01-01T00:00:01Z\n");

	for (size_t i = 0; i < COUNT(rows); i++) {
		char name[TOKENS_NAME_MAX + 1] = "";

		assert_int_equal(tokens_find(tokens,
				     &(struct credential){
					 rows[i].token, strlen(rows[i].token) },
				     rows[i].now_ms, name),
		    rows[i].error);
		assert_string_equal(name, rows[i].name);
	}
}

/* MANY tokens "token-0" and so on, with the names "n0" and so on. */
static struct tokens *
open_many(struct fixture *fixture)
{
	FILE *file = fopen(fixture->path, "w");
	char token[32];

	assert_non_null(file);
	assert_int_equal(fchmod(fileno(file), 0600), 0);
	for (int i = 0; i < MANY; i++) {
		unsigned char digest[TOKENS_DIGEST_LEN];
		int n = snprintf(token, sizeof token, "token-%d", i);

		assert_int_equal(EVP_Digest(token, (size_t)n, digest, NULL,
				     EVP_sha256(), NULL),
		    1);
		fprintf(file, "n%d ", i);
		for (size_t k = 0; k < sizeof digest; k++)
			fprintf(file, "%02x", digest[k]);
		fputc('\n', file);
	}
	assert_int_equal(fclose(file), 0);
	assert_non_null(open_set(fixture));
	return fixture->tokens;
}

TOKENS_TEST(token_is_valid_until_the_last_one_expires)
{
	static const struct {
		const char *text;
		int64_t now_ms, expires_ms;
	} rows[] = {
		{ "", 0, 0 },
		{ ONE_LINE, INT64_MAX - 1, TOKENS_NEVER },
		{ ONE_LINE "b " TWO " 1970-01-01T00:00:01Z\n", 999, 1000 },
		{ ONE_LINE "b " TWO " 1970-01-01T00:00:01Z\n", 1000,
		    TOKENS_NEVER },
		{ "a " ONE " 1970-01-01T00:00:01Z\n", 999, 1000 },
		{ "a " ONE " 1970-01-01T00:00:01Z\n", 1000, 0 },
		{ "a " ONE " 1970-01-01T00:00:02Z\n"
		  "b " TWO " 1970-01-01T00:00:01Z\n",
		    999, 1000 },
		{ "a " ONE " 1970-01-01T00:00:02Z\n"
		  "b " TWO " 1970-01-01T00:00:01Z\n",
		    1000, 2000 },
		{ "a " ONE " 1970-01-01T00:00:01Z\n"
		  "b " TWO " 1970-01-01T00:00:02Z\n",
		    999, 1000 },
		/* A renewed one is replaced already. */
		{ "a " ONE " 1970-01-01T00:00:01Z\n"
		  "a " TWO " 1970-01-01T00:00:02Z\n",
		    999, 2000 },
		/* But it may outlive what replaces it. */
		{ "a " ONE " 1970-01-01T00:00:02Z\n"
		  "a " TWO " 1970-01-01T00:00:01Z\n",
		    999, 1000 },
		{ "a " ONE " 1970-01-01T00:00:02Z\n"
		  "a " TWO " 1970-01-01T00:00:01Z\n",
		    1000, 2000 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct tokens *tokens = open_good(fixture, rows[i].text);

		assert_int_equal(tokens_next_expiry(tokens, rows[i].now_ms),
		    rows[i].expires_ms);
	}
}

TOKENS_TEST(each_of_many_tokens_is_found_and_no_other)
{
	struct tokens *tokens = open_many(fixture);
	char token[32];

	assert_int_equal(count_of(tokens), MANY);
	for (int i = 0; i < MANY; i++) {
		char name[TOKENS_NAME_MAX + 1], expected[32];
		int n = snprintf(token, sizeof token, "token-%d", i);
		struct credential credential = { token, (size_t)n };

		snprintf(expected, sizeof expected, "n%d", i);
		assert_int_equal(
		    tokens_find(tokens, &credential, 0, name), HTTP_OK);
		assert_string_equal(name, expected);
		token[0] = 'T';
		assert_int_equal(find(tokens, token), UNKNOWN);
	}
}

static void
refresh(struct tokens *tokens, int64_t now_ms)
{
	logged[0] = '\0';
	tokens_refresh(tokens, now_ms);
}

/*
 * What each new state of the file leads to: the first refresh after the change
 * logs `logged`, the next logs nothing.
 */
TOKENS_TEST(changed_file_is_read_again_and_logged_once)
{
	static const struct {
		const char *text; /* NULL: no file */
		mode_t mode;
		const char *logged;
		enum http_error one, two;
	} rows[] = {
		{ "b " TWO "\n", 0640, "read again; tokens in use: 1", UNKNOWN,
		    HTTP_OK },
		{ ONE_LINE "nonsense\n", 0640,
		    "line 2 has no SHA-256 of 64 lower-case hex digits; "
		    "correct or remove it; until then the tokens of the last "
		    "good file stay in use (1)",
		    UNKNOWN, HTTP_OK },
		{ ONE_LINE, 0644, "others have access", UNKNOWN, HTTP_OK },
		{ ONE_LINE, 0660, "its group can write to it", HTTP_OK,
		    UNKNOWN },
		{ TWO_LINES, 0640, "in use: 2", HTTP_OK, HTTP_OK },
		{ "", 0640, "no token in it: every request is answered 401",
		    UNKNOWN, UNKNOWN },
		{ ONE_LINE, 0640, "in use: 1", HTTP_OK, UNKNOWN },
		{ NULL, 0, "No such file or directory; add one with", UNKNOWN,
		    UNKNOWN },
		{ ONE_LINE, 0600, "in use: 1", HTTP_OK, UNKNOWN },
	};
	struct tokens *tokens = open_good(fixture, ONE_LINE);
	int64_t now_ms = 0;

	for (size_t i = 0; i < COUNT(rows); i++) {
		if (rows[i].text == NULL) {
			assert_int_equal(unlink(fixture->path), 0);
		} else {
			file_put(fixture, rows[i].text);
			assert_int_equal(chmod(fixture->path, rows[i].mode), 0);
		}
		refresh(tokens, now_ms += 1000);
		assert_logged(rows[i].logged);
		assert_logged(fixture->path);
		refresh(tokens, now_ms += 1000);
		assert_string_equal(logged, "");
		assert_int_equal(find(tokens, "one"), rows[i].one);
		assert_int_equal(find(tokens, "two"), rows[i].two);
	}
}

TOKENS_TEST(file_is_checked_once_a_second_or_by_a_recheck)
{
	struct tokens *tokens = open_good(fixture, ONE_LINE);

	tokens_refresh(tokens, 5000);
	file_put(fixture, "bb " TWO "\n");
	tokens_refresh(tokens, 5999);
	assert_int_equal(find(tokens, "two"), UNKNOWN);
	tokens_refresh(tokens, 6000);
	assert_int_equal(find(tokens, "two"), HTTP_OK);
	file_put(fixture, ONE_LINE);
	tokens_recheck(tokens);
	assert_int_equal(find(tokens, "one"), HTTP_OK);
	file_put(fixture, TWO_LINES);
	tokens_refresh(tokens, 6002);
	assert_int_equal(find(tokens, "two"), UNKNOWN);
}

/* It can leave inode and size alone and, within a tick, the times. */
TOKENS_TEST(change_in_place_is_noticed)
{
	const struct timespec old[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	struct tokens *tokens = open_good(fixture, ONE_LINE);
	int fd = open(fixture->path, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "a " TWO, 66, 0), 66);
	tokens_refresh(tokens, 0);
	assert_int_equal(find(tokens, "two"), HTTP_OK);
	assert_int_equal(pwrite(fd, "a " ONE, 66, 0), 66);
	assert_int_equal(futimens(fd, old), 0);
	tokens_refresh(tokens, 1000);
	assert_int_equal(find(tokens, "one"), HTTP_OK);
	close(fd);
}

/* Each is tried again at the next check and logged once. */
TOKENS_TEST(file_that_cannot_be_read_for_a_while_keeps_the_set)
{
	static const int errors[] = { EIO, ENOMEM };
	struct tokens *tokens = open_good(fixture, ONE_LINE);
	int64_t now_ms = 0;

	for (size_t i = 0; i < COUNT(errors); i++) {
		for (int again = 0; again < 2; again++) {
			shim_fail(SHIM_FSTAT, "/tokens", 1, 1, errors[i]);
			refresh(tokens, now_ms += 1000);
			shim_reset();
			assert_int_equal(*logged == '\0', again);
			assert_int_equal(find(tokens, "one"), HTTP_OK);
		}
		refresh(tokens, now_ms += 1000);
		assert_logged("read again");
	}
}

static atomic_bool stop_threads;

/* Both tokens are known, or one of them: never none. */
static void *
look_up(void *argument)
{
	static const struct credential one = { "one", 3 };
	char name[TOKENS_NAME_MAX + 1];
	uintptr_t misses = 0;

	for (int64_t now_ms = 0; !stop_threads; now_ms += 1000) {
		tokens_refresh(argument, now_ms);
		if (tokens_find(argument, &one, 0, name) != HTTP_OK ||
		    strcmp(name, "a") != 0)
			misses++;
		find(argument, "two");
	}
	return (void *)misses;
}

TOKENS_TEST(threads_share_one_set_while_its_file_changes)
{
	struct tokens *tokens = open_good(fixture, ONE_LINE);
	pthread_t threads[THREADS];

	stop_threads = false;
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(
		    pthread_create(&threads[i], NULL, look_up, tokens), 0);
	for (int i = 0; i < 100; i++) {
		file_put(fixture, i % 2 == 0 ? TWO_LINES : ONE_LINE);
		usleep(1000);
	}
	stop_threads = true;
	for (size_t i = 0; i < THREADS; i++) {
		void *misses;

		assert_int_equal(pthread_join(threads[i], &misses), 0);
		assert_null(misses);
	}
}

/* The least of some rounds, in nanoseconds of this thread's CPU time. */
static int64_t
cost_of_refusals(struct tokens *tokens)
{
	int64_t least = INT64_MAX;

	for (int round = 0; round < 5; round++) {
		struct timespec begin, end;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
		for (int i = 0; i < 200; i++)
			assert_int_equal(find(tokens, "none"), UNKNOWN);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
		int64_t cost = (end.tv_sec - begin.tv_sec) * 1000000000LL +
			       end.tv_nsec - begin.tv_nsec;
		if (cost < least)
			least = cost;
	}
	return least;
}

/* One after another they would cost 30 times as much. */
TOKENS_TEST(refusal_costs_about_as_much_with_one_token_as_with_many)
{
	int64_t one = cost_of_refusals(open_good(fixture, ONE_LINE));

	assert_in_range(
	    cost_of_refusals(open_many(fixture)), 1, (uintmax_t)(10 * one));
}

/* --- Changes of the file -------------------------------------------------- */

TOKENS_TEST(added_token_is_known_with_name_and_expiry)
{
	char *token = fixture->token, first[TOKENS_TOKEN_LEN + 1];
	int64_t expires_ms = 4102444800999; /* 2100 */
	int64_t created_ms;
	struct tokens *tokens;
	const struct token *entry;
	size_t count;

	assert_int_equal(add(fixture, "ci", expires_ms), 0);
	assert_int_equal(strlen(token), TOKENS_TOKEN_LEN);
	assert_memory_equal(token, "pst_", 4);
	assert_int_equal(
	    strspn(token + 4, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstu"
			      "vwxyz0123456789-_"),
	    43);
	memcpy(first, token, sizeof first);
	assert_int_equal(add(fixture, "other", TOKENS_NEVER), 0);
	assert_string_not_equal(token, first);
	tokens = open_set(fixture);
	assert_non_null(tokens);
	assert_int_equal(find(tokens, first), HTTP_OK);
	entry = tokens_list(tokens, &count);
	assert_string_equal(entry->name, "ci");
	assert_int_equal(entry->expires_ms, 4102444800000);
	assert_int_equal(strlen(entry->created), 20);
	assert_int_equal(timestamp_read(entry->created, 20, &created_ms), 0);
}

TOKENS_TEST(new_file_is_for_its_owner_alone_and_holds_no_token)
{
	char beside[128];
	struct stat st;

	/* A process that was killed left a longer one. */
	file_put(fixture, TWO_LINES TWO_LINES);
	snprintf(beside, sizeof beside, "%s.new", fixture->path);
	assert_int_equal(rename(fixture->path, beside), 0);
	assert_int_equal(chmod(beside, 0666), 0);
	assert_int_equal(add(fixture, "ci", TOKENS_NEVER), FAULT_NONE);
	assert_int_equal(stat(fixture->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	const char *text = file_get(fixture);
	assert_begins(text, "ci ");
	assert_null(strstr(text, "pst_"));
	assert_int_equal(entries_in_directory(fixture), 1);
}

TOKENS_TEST(edit_keeps_every_other_line_the_mode_and_the_owner)
{
	static const char *const kept[] = { "",
		"# clients\n\na \t" ONE " # by hand" };
	struct stat st;

	for (size_t i = 0; i < COUNT(kept); i++) {
		size_t len = strlen(kept[i]);

		file_put(fixture, kept[i]);
		if (geteuid() == 0)
			give(fixture->path, NOBODY);
		assert_int_equal(add(fixture, "b", TOKENS_NEVER), FAULT_NONE);
		char *text = file_get(fixture);
		assert_begins(text, kept[i]);
		assert_memory_equal(text + len, &"\nb "[len == 0], 2);
		assert_int_equal(text[strlen(text) - 1], '\n');
		assert_int_equal(revoke_name(fixture, "b"), FAULT_NONE);
		text = file_get(fixture);
		text[len] = '\0'; /* a newline was added to it */
		assert_string_equal(text, kept[i]);
		assert_int_equal(stat(fixture->path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0640);
		if (geteuid() == 0)
			assert_true(st.st_uid == NOBODY && st.st_gid == NOBODY);
		assert_int_equal(entries_in_directory(fixture), 1);
	}
}

TOKENS_TEST(change_that_does_not_fit_the_file_is_refused)
{
	static const struct {
		const char *text;
		bool add;
		const char *name;
		enum fault fault;
		const char *because;
	} rows[] = {
		{ ONE_LINE, true, "a", FAULT_NAME, "a is taken" },
		{ TWO_LINES, false, "c", FAULT_NAME, "c is unknown" },
		{ "", false, "a", FAULT_NAME, "a is unknown" },
		{ TWO_LINES "nonsense\n", true, "c", FAULT_SETUP, "line 3" },
		{ TWO_LINES "nonsense\n", false, "a", FAULT_SETUP, "line 3" },
		{ ONE_LINE "b " ONE "\n", true, "c", FAULT_SETUP,
		    "has the digest of line 1" },
		{ ONE_LINE "b " ONE "\n", false, "a", FAULT_SETUP,
		    "has the digest of line 1" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		file_put(fixture, rows[i].text);
		strcpy(fixture->token, "untouched");
		assert_unchanged(fixture,
		    rows[i].add ? add(fixture, rows[i].name, TOKENS_NEVER)
				: revoke_name(fixture, rows[i].name),
		    rows[i].fault, rows[i].because, rows[i].text);
		assert_string_equal(fixture->token, "untouched");
	}
}

TOKENS_TEST(name_is_1_to_64_letters_digits_dots_dashes_underscores)
{
	static const char *const wrong[] = { "", "a b", "a\n", "a#", "a/b",
		"\xc3\xa9", LONG_NAME };

	for (size_t i = 0; i < COUNT(wrong); i++)
		assert_false(tokens_is_name(wrong[i]));
	assert_true(tokens_is_name("a"));
	assert_true(tokens_is_name("A.b_c-9"));
	assert_true(tokens_is_name(&LONG_NAME[1]));
}

/* A change of another path than the fixture's. */
static enum fault
add_at(struct fixture *fixture, const char *name)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", fixture->dir, name);
	logged[0] = '\0';
	const struct tokens_edit edit = { "a", TOKENS_ADD, TOKENS_NEVER, 0 };

	return tokens_edit(path, &edit, fixture->token);
}

TOKENS_TEST(change_that_is_refused_makes_nothing)
{
	/* With ".new" behind it, too long for a name and for a path. */
	static const size_t lens[] = { NAME_MAX - 3, PATH_MAX - 1 };
	char path[96], name[PATH_MAX];
	struct stat st;

	assert_int_equal(revoke_name(fixture, "a"), FAULT_ABSENT);
	assert_int_equal(chmod(fixture->dir, 0777), 0);
	assert_int_equal(add(fixture, "a", TOKENS_NEVER), FAULT_SETUP);
	assert_logged("chmod o-w");
	assert_int_equal(chmod(fixture->dir, 0700), 0);
	assert_int_equal(add_at(fixture, "none/tokens"), FAULT_OUTPUT);
	assert_logged("install -d");
	file_put(fixture, ONE_LINE);
	assert_int_equal(add_at(fixture, "tokens/tokens"), FAULT_ABSENT);
	assert_int_equal(unlink(fixture->path), 0);
	for (size_t i = 0; i < COUNT(lens); i++) {
		memset(name, 'n', lens[i]);
		name[lens[i]] = '\0';
		assert_int_equal(add_at(fixture, name), FAULT_ABSENT);
		assert_logged(fixture->dir);
	}
	assert_int_equal(entries_in_directory(fixture), 0);
	snprintf(path, sizeof path, "%s/link", fixture->dir);
	assert_int_equal(symlink(fixture->path, path), 0);
	assert_int_equal(add_at(fixture, "link"), FAULT_SETUP);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
}

/* Work for in_child: an addition by nobody, and by who cannot grow a file. */
static int
add_as_nobody(void *fixture)
{
	if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
		return 99;
	return (int)add(fixture, "b", TOKENS_NEVER);
}

static int
add_without_room(void *fixture)
{
	const struct rlimit none = { 0, 0 };

	signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &none) != 0)
		return 99;
	return (int)add(fixture, "b", TOKENS_NEVER);
}

TOKENS_TEST(change_that_the_system_refuses_leaves_the_file_alone)
{
	assert_int_equal(chmod(fixture->dir, 0555), 0);
	assert_int_equal(in_child(add_as_nobody, fixture), FAULT_RIGHTS);
	assert_int_equal(chmod(fixture->dir, 0700), 0);
	assert_int_equal(in_child(add_without_room, fixture), FAULT_FULL);
	assert_int_equal(entries_in_directory(fixture), 0);
	file_put(fixture, ONE_LINE);
	assert_unchanged(fixture,
	    (enum fault)in_child(add_without_room, fixture), FAULT_FULL, "",
	    ONE_LINE);
}

TOKENS_TEST(change_that_cannot_keep_the_owner_is_not_made)
{
	if (geteuid() != 0)
		skip();
	file_put(fixture, ONE_LINE);
	assert_int_equal(chown(fixture->path, 0, NOBODY), 0);
	give(fixture->dir, NOBODY);
	assert_unchanged(fixture, (enum fault)in_child(add_as_nobody, fixture),
	    FAULT_RIGHTS, "", ONE_LINE);
}

TOKENS_TEST(lock_that_stays_held_is_an_error_after_a_bounded_wait)
{
	int fd = open(fixture->dir, O_RDONLY);

	assert_true(fd >= 0);
	file_put(fixture, ONE_LINE);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_unchanged(fixture, add(fixture, "b", TOKENS_NEVER), FAULT_BUSY,
	    "another process uses it", ONE_LINE);
	close(fd);
	assert_int_equal(add(fixture, "b", TOKENS_NEVER), FAULT_NONE);
	assert_int_equal(entries_in_directory(fixture), 1);
}

/* Work for a child; on a slow disk the lock's wait can end. */
static int
add_names(void *fixture)
{
	for (int i = 0; i < NAMES_EACH; i++) {
		enum fault fault = FAULT_BUSY;
		char name[32];

		snprintf(name, sizeof name, "name-%d-%d", (int)getpid(), i);
		for (int left = 30; left > 0 && fault == FAULT_BUSY; left--)
			fault = add(fixture, name, TOKENS_NEVER);
		if (fault != FAULT_NONE)
			return (int)fault;
	}
	return FAULT_NONE;
}

TOKENS_TEST(processes_that_add_at_once_lose_no_token)
{
	pid_t children[ADDERS];

	for (int i = 0; i < ADDERS; i++)
		children[i] = child_start(add_names, fixture);
	for (int i = 0; i < ADDERS; i++)
		assert_int_equal(child_wait(children[i]), 0);
	assert_non_null(open_set(fixture));
	assert_int_equal(count_of(fixture->tokens), ADDERS * NAMES_EACH);
	assert_int_equal(entries_in_directory(fixture), 1);
}

/* --- Failures ------------------------------------------------------------- */

TOKENS_TEST(each_function_of_libcrypto_that_fails_is_an_error)
{
	static const struct {
		const char *function;
		enum http_error found;
		enum fault opened;
	} rows[] = {
		{ "EVP_Digest", HTTP_INTERNAL, FAULT_NONE },
		{ "EVP_MD_fetch", HTTP_OK, FAULT_MEMORY },
		{ "RAND_bytes", HTTP_OK, FAULT_NONE },
	};
	struct tokens *tokens;

	for (size_t i = 0; i < COUNT(rows); i++) {
		tokens = open_good(fixture, ONE_LINE);
		broken = rows[i].function;
		enum http_error found = find(tokens, "one");
		open_set(fixture);
		enum fault added = add(fixture, "b", TOKENS_NEVER);
		broken = "";
		assert_int_equal(found, rows[i].found);
		assert_int_equal(fixture->fault, rows[i].opened);
		/* Whether EVP_Digest fetches for itself is libcrypto's affair. */
		if (rows[i].opened == FAULT_NONE)
			assert_unchanged(fixture, added, FAULT_FAILED,
			    "libcrypto", ONE_LINE);
	}
}

static enum fault
open_again(struct fixture *fixture)
{
	struct tokens *tokens = open_set(fixture);

	assert_true(tokens == NULL || count_of(tokens) == 2);
	return fixture->fault;
}

static enum fault
add_third(struct fixture *fixture)
{
	return add(fixture, "c", TOKENS_NEVER);
}

static enum fault
revoke_second(struct fixture *fixture)
{
	return revoke_name(fixture, "b");
}

/* A refresh that fails leaves the one token of before. */
static enum fault
refresh_kept(struct fixture *fixture)
{
	refresh(fixture->tokens, 0);
	return count_of(fixture->tokens) == 2 ? FAULT_NONE : FAULT_MEMORY;
}

#define EDITS_FROM 2
static enum fault (*const operations[])(
    struct fixture *) = { refresh_kept, open_again, add_third, revoke_second };

#if ALLOC_CAN_FAIL
TOKENS_TEST(operation_without_memory_for_a_part_changes_nothing)
{
	for (size_t i = 0; i < COUNT(operations); i++) {
		unsigned nth = 0;
		enum fault fault;
		bool failed;

		do {
			open_good(fixture, ONE_LINE);
			file_put(fixture, TWO_LINES);
			alloc_fail(++nth, 1);
			fault = operations[i](fixture);
			failed = alloc_reset();
			if (fault != FAULT_NONE && fault != FAULT_MEMORY)
				assert_int_equal(fault, FAULT_FAILED);
			if (fault != FAULT_NONE)
				assert_unchanged(
				    fixture, fault, fault, "memory", TWO_LINES);
		} while (failed);
		assert_int_equal(fault, FAULT_NONE);
		/* The text, two tables. */
		assert_true(nth > 3);
	}
}
#endif

/* Each call of an edit that can fail, and the fault that it is. */
TOKENS_TEST(failed_call_names_cause_and_remedy_and_changes_nothing)
{
	static const struct {
		enum shim_call call;
		int error;
		enum fault fault;
		const char *logged;
		bool read; /* when the file is read */
	} rows[] = {
		{ SHIM_FSTAT, EACCES, FAULT_RIGHTS, "run this as", true },
		{ SHIM_FSTAT, EIO, FAULT_FAILED, "check the disk", true },
		{ SHIM_PREAD, EIO, FAULT_FAILED, "check the disk", true },
		{ SHIM_PREAD, ENOMEM, FAULT_MEMORY, "its memory limit", true },
		{ SHIM_PWRITE, ENOSPC, FAULT_FULL, "make room", false },
		{ SHIM_PWRITE, EDQUOT, FAULT_FULL, "make room", false },
		{ SHIM_PWRITE, EROFS, FAULT_RIGHTS, "mount it", false },
		{ SHIM_FSYNC, EIO, FAULT_FAILED, "check the disk", false },
		{ SHIM_FSYNC, ENOSPC, FAULT_FULL, "make room", false },
	};

	file_put(fixture, TWO_LINES);
	for (size_t i = 0; i < COUNT(rows); i++) {
		size_t k = rows[i].read ? 1 : EDITS_FROM;
		for (; k < COUNT(operations); k++) {
			enum fault fault;

			shim_fail(rows[i].call, NULL, 1, 1, rows[i].error);
			fault = operations[k](fixture);
			shim_reset();
			assert_unchanged(fixture, fault, rows[i].fault,
			    rows[i].logged, TWO_LINES);
		}
	}
}

TOKENS_TEST(change_whose_directory_is_not_synced_is_reported_as_made)
{
	enum fault fault;

	file_put(fixture, ONE_LINE);
	shim_fail(SHIM_FSYNC, NULL, 2, 1, EIO);
	fault = add(fixture, "b", TOKENS_NEVER);
	shim_reset();
	assert_int_equal(fault, FAULT_FAILED);
	assert_logged("a power cut may undo it");
	assert_contains(file_get(fixture), "\nb ");
}
