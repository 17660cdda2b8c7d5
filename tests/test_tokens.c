/*
 * tokens: which token files are accepted, which tokens are known, and what
 * adding and revoking leave in the file.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "alloc_shim.h"
#include "fault_shim.h"
#include "http/tokens.h"
#include "pure/timestamp.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* SHA-256 of "one" and "two" */
#define ONE "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
#define TWO "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"

#define DIGITS_63 \
	"692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"

/* One more than a name may have */
#define LONG_NAME                          \
	"a123456789b123456789c123456789d1" \
	"23456789e123456789f123456789g1234"

#define ADDERS 8
#define NAMES_EACH 5

/* The function of libcrypto that fails, or none. */
static const char *broken = "";

/* The tests' own come before libcrypto's; from here they hand on to them. */
#define HAND_ON(name, arguments)                                             \
	do {                                                                 \
		union {                                                      \
			void *object;                                        \
			__typeof__(&name) function;                          \
		} next = { dlsym(RTLD_NEXT, #name) };                        \
		return strcmp(broken, #name) == 0 ? 0                        \
						  : next.function arguments; \
	} while (0)

int
EVP_DigestInit_ex2(
    EVP_MD_CTX *context, const EVP_MD *type, const OSSL_PARAM *settings)
{
	HAND_ON(EVP_DigestInit_ex2, (context, type, settings));
}

int
EVP_DigestUpdate(EVP_MD_CTX *context, const void *data, size_t len)
{
	HAND_ON(EVP_DigestUpdate, (context, data, len));
}

int
EVP_DigestFinal_ex(EVP_MD_CTX *context, unsigned char *digest, unsigned *len)
{
	HAND_ON(EVP_DigestFinal_ex, (context, digest, len));
}

EVP_MD_CTX *
EVP_MD_CTX_new(void)
{
	HAND_ON(EVP_MD_CTX_new, ());
}

EVP_MD *
EVP_MD_fetch(OSSL_LIB_CTX *library, const char *name, const char *properties)
{
	HAND_ON(EVP_MD_fetch, (library, name, properties));
}

int
RAND_bytes(unsigned char *bytes, int len)
{
	HAND_ON(RAND_bytes, (bytes, len));
}

/* The size that fstat tells of any file, or -1 for its own; or why it fails. */
static off_t told_size = -1;
static int fstat_error;

int
fstat(int fd, struct stat *st)
{
	int result = fstatat(fd, "", st, AT_EMPTY_PATH);

	if (fstat_error != 0) {
		errno = fstat_error;
		return -1;
	}
	if (result == 0 && told_size >= 0)
		st->st_size = told_size;
	return result;
}

struct fixture {
	char dir[64];
	char path[80];
	char error[512];
	int status; /* of the last open_set that gave NULL */
};

static int
set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);
	const char *tmp = getenv("TMPDIR");

	if (fixture == NULL)
		return -1;
	snprintf(fixture->dir, sizeof fixture->dir, "%s/tokens.XXXXXX",
	    tmp == NULL || strlen(tmp) > 40 ? "/tmp" : tmp);
	if (mkdtemp(fixture->dir) == NULL)
		return -1;
	snprintf(
	    fixture->path, sizeof fixture->path, "%s/tokens", fixture->dir);
	*state = fixture;
	return 0;
}

static int
tear_down(void **state)
{
	struct fixture *fixture = *state;
	DIR *dir = opendir(fixture->dir);
	struct dirent *entry;

	while ((entry = readdir(dir)) != NULL)
		unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
	if (rmdir(fixture->dir) != 0)
		return -1;
	free(fixture);
	return 0;
}

/* Replace the file as a careful editor does. */
static void
file_put_bytes(struct fixture *fixture, const char *text, size_t len)
{
	char temporary[96];
	FILE *file;

	snprintf(temporary, sizeof temporary, "%s.new", fixture->path);
	file = fopen(temporary, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, len, file), len);
	assert_int_equal(fchmod(fileno(file), 0640), 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(rename(temporary, fixture->path), 0);
}

static void
file_put(struct fixture *fixture, const char *text)
{
	file_put_bytes(fixture, text, strlen(text));
}

static void
file_get(const struct fixture *fixture, char *text, size_t size)
{
	FILE *file = fopen(fixture->path, "r");
	size_t len;

	assert_non_null(file);
	len = fread(text, 1, size - 1, file);
	text[len] = '\0';
	fclose(file);
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

static struct tokens *
open_set(struct fixture *fixture)
{
	fixture->status = EX_OK;
	return tokens_open(fixture->path, &fixture->status, fixture->error,
	    sizeof fixture->error);
}

static struct tokens *
open_good(struct fixture *fixture, const char *text)
{
	struct tokens *tokens;

	file_put(fixture, text);
	tokens = open_set(fixture);
	if (tokens == NULL)
		fail_msg("%s", fixture->error);
	return tokens;
}

static enum http_error
find(struct tokens *tokens, const char *token, int64_t now_ms)
{
	const char *name;

	return tokens_find(tokens, token, strlen(token), now_ms, &name);
}

static void
assert_refused(struct fixture *fixture, const char *because)
{
	struct tokens *tokens = open_set(fixture);

	tokens_close(tokens);
	if (tokens != NULL)
		fail_msg("accepted, though %s", because);
	assert_non_null(strstr(fixture->error, fixture->path));
	if (strstr(fixture->error, because) == NULL)
		fail_msg("'%s' lacks '%s'", fixture->error, because);
	assert_null(strchr(fixture->error, '\n'));
	assert_int_equal(fixture->status, EX_CONFIG);
}

static void
entries_are_read_in_the_files_order(void **state)
{
	struct tokens *tokens = open_good(*state,
	    "# clients\n\n \t\nzeta " ONE "\n"
	    "  a.b_c-D9\t " TWO " 1970-01-01T00:00:01.5+00:00 "
	    "# created 2026-11-21T09:00:00Z by hand\n");
	const struct token *token;

	assert_int_equal(tokens_count(tokens), 2);
	token = tokens_get(tokens, 0);
	assert_string_equal(token->name, "zeta");
	assert_false(token->expires);
	assert_string_equal(token->created, "");
	assert_int_equal(token->digest[0], 0x76);
	assert_int_equal(token->digest[31], 0xed);
	token = tokens_get(tokens, 1);
	assert_string_equal(token->name, "a.b_c-D9");
	assert_true(token->expires);
	assert_int_equal(token->expires_ms, 1500);
	assert_string_equal(token->created, "2026-11-21T09:00:00Z");
	tokens_close(tokens);
}

static void
last_line_needs_no_newline(void **state)
{
	struct tokens *tokens = open_good(*state, "a " ONE);

	assert_int_equal(tokens_count(tokens), 1);
	tokens_close(tokens);
}

static void
comment_without_a_time_tells_no_creation(void **state)
{
	struct tokens *tokens = open_good(*state,
	    "a " ONE " # created yesterday\n"
	    "b " TWO " # created 2026-11-21T09:00:00.123456789Z\n");

	assert_string_equal(tokens_get(tokens, 0)->created, "");
	assert_string_equal(tokens_get(tokens, 1)->created, "");
	tokens_close(tokens);
}

static void
malformed_files_are_refused_with_line_and_reason(void **state)
{
	static const struct {
		const char *text, *because;
	} rows[] = {
		{ "", "no token" },
		{ "# nothing\n", "no token" },
		{ "a " ONE "\nb\n", "line 2 has no SHA-256" },
		{ "a 7692\n", "line 1 has no SHA-256" },
		{ "a " ONE "0\n", "line 1 has no SHA-256" },
		{ "a 7692C3AD3540BB803C020B3AEE66CD8887123234EA0C6E7143C0ADD73"
		  "FF431ED\n",
		    "line 1 has no SHA-256" },
		{ "a # " ONE "\n", "line 1 has no SHA-256" },
		{ "a g" DIGITS_63 "\n", "line 1 has no SHA-256" },
		{ "a 7g92c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73"
		  "ff431ed\n",
		    "line 1 has no SHA-256" },
		{ "a -" DIGITS_63 "\n", "line 1 has no SHA-256" },
		{ "a :" DIGITS_63 "\n", "line 1 has no SHA-256" },
		{ "\n\na/b " ONE "\n", "line 3 does not begin with a name" },
		{ "\xef\xbb\xbf"
		  "a " ONE "\n",
		    "line 1 does not begin with a name" },
		{ LONG_NAME " " ONE "\n", "line 1 does not begin with a name" },
		{ "a " ONE " tomorrow\n", "line 1 has an expiry" },
		{ "a " ONE " 2027-01-31\n", "line 1 has an expiry" },
		{ "a " ONE " 2027-01-31 12:00:00Z\n", "line 1 has more" },
		{ "a " ONE " 2027-01-31T00:00:00Z x\n", "line 1 has more" },
		{ "a " ONE "\nb " TWO "\r\n", "line 2 ends with CR LF" },
		{ "a " ONE "\n\r\n", "line 2 ends with CR LF" },
		{ "a " ONE "\nb " TWO "\na " TWO "\n",
		    "line 3 has the name a of line 1" },
		{ "b " ONE "\n#\nc " TWO "\na " ONE " 2027-01-31T00:00:00Z\n",
		    "line 4, a, has the digest of line 1, b" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		file_put(*state, rows[i].text);
		assert_refused(*state, rows[i].because);
	}
}

static void
refusal_does_not_repeat_what_may_be_a_token(void **state)
{
	struct fixture *fixture = *state;

	file_put(fixture, "a pst_secret\n");
	assert_refused(fixture, "line 1");
	assert_null(strstr(fixture->error, "secret"));
}

static void
nul_byte_is_refused(void **state)
{
	static const char text[] = "a " ONE "\n\0\n";

	file_put_bytes(*state, text, sizeof text - 1);
	assert_refused(*state, "NUL");
}

static void
file_that_others_may_touch_is_refused(void **state)
{
	static const mode_t modes[] = { 0604, 0602, 0601, 0647 };
	struct fixture *fixture = *state;

	file_put(fixture, "a " ONE "\n");
	for (size_t i = 0; i < COUNT(modes); i++) {
		assert_int_equal(chmod(fixture->path, modes[i]), 0);
		assert_refused(fixture, "chmod o=");
	}
}

static void
missing_file_is_refused(void **state)
{
	assert_refused(*state, "No such file");
}

static void
directory_is_refused(void **state)
{
	struct fixture *fixture = *state;
	char path[sizeof fixture->path];

	memcpy(path, fixture->path, sizeof path);
	memcpy(fixture->path, fixture->dir, sizeof fixture->dir);
	assert_refused(fixture, "not a regular file");
	memcpy(fixture->path, path, sizeof path);
}

static void
fifo_is_refused_without_waiting_for_a_writer(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(mkfifo(fixture->path, 0600), 0);
	assert_refused(fixture, "not a regular file");
}

static void
file_that_is_too_large_is_refused(void **state)
{
	struct fixture *fixture = *state;
	char *text = malloc(TOKENS_FILE_BYTES_MAX + 1);
	struct tokens *tokens;

	assert_non_null(text);
	memset(text, '\n', TOKENS_FILE_BYTES_MAX + 1);
	memcpy(text, "a " ONE "\n", strlen("a " ONE "\n"));
	file_put_bytes(fixture, text, TOKENS_FILE_BYTES_MAX + 1);
	assert_refused(fixture, "larger than 1048576 bytes");
	file_put_bytes(fixture, text, TOKENS_FILE_BYTES_MAX);
	tokens = open_set(fixture);
	assert_non_null(tokens);
	tokens_close(tokens);
	free(text);
}

static void
file_that_grows_while_it_is_read_is_refused(void **state)
{
	struct fixture *fixture = *state;
	char *text = malloc(TOKENS_FILE_BYTES_MAX + 2);

	assert_non_null(text);
	memset(text, '\n', TOKENS_FILE_BYTES_MAX + 2);
	file_put_bytes(fixture, text, TOKENS_FILE_BYTES_MAX + 2);
	free(text);
	told_size = 0;
	assert_refused(fixture, "larger than 1048576 bytes");
	told_size = -1;
}

static void
known_token_is_found_with_its_name(void **state)
{
	struct tokens *tokens = open_good(*state, "a " ONE "\nb " TWO "\n");
	const char *name = NULL;

	assert_int_equal(tokens_find(tokens, "one", 3, 0, &name), HTTP_OK);
	assert_string_equal(name, "a");
	assert_int_equal(tokens_find(tokens, "two", 3, 0, &name), HTTP_OK);
	assert_string_equal(name, "b");
	tokens_close(tokens);
}

static void
other_tokens_are_unknown(void **state)
{
	static const char *const others[] = { "", "on", "One", "one ", "ones",
		ONE };
	struct tokens *tokens = open_good(*state, "a " ONE "\n");

	for (size_t i = 0; i < COUNT(others); i++)
		assert_int_equal(
		    find(tokens, others[i], 0), HTTP_CREDENTIAL_UNKNOWN);
	tokens_close(tokens);
}

static void
token_expires_at_its_very_millisecond(void **state)
{
	struct tokens *tokens =
	    open_good(*state, "a " ONE " 1970-01-01T00:00:01Z\n");

	assert_int_equal(find(tokens, "one", 999), HTTP_OK);
	assert_int_equal(find(tokens, "one", 1000), HTTP_CREDENTIAL_EXPIRED);
	assert_int_equal(find(tokens, "two", 1000), HTTP_CREDENTIAL_UNKNOWN);
	tokens_close(tokens);
}

static void
refresh_takes_a_changed_file(void **state)
{
	struct tokens *tokens = open_good(*state, "a " ONE "\n");

	file_put(*state, "bb " TWO "\n");
	tokens_refresh(tokens, 0);
	assert_int_equal(find(tokens, "one", 0), HTTP_CREDENTIAL_UNKNOWN);
	assert_int_equal(find(tokens, "two", 0), HTTP_OK);
	tokens_close(tokens);
}

static void
refresh_looks_once_a_second(void **state)
{
	struct tokens *tokens = open_good(*state, "a " ONE "\n");

	tokens_refresh(tokens, 5000);
	file_put(*state, "bb " TWO "\n");
	tokens_refresh(tokens, 5999);
	assert_int_equal(find(tokens, "two", 0), HTTP_CREDENTIAL_UNKNOWN);
	tokens_refresh(tokens, 6000);
	assert_int_equal(find(tokens, "two", 0), HTTP_OK);
	tokens_close(tokens);
}

static void
a_recheck_looks_at_once_and_once(void **state)
{
	struct tokens *tokens = open_good(*state, "a " ONE "\n");
	struct tokens *others = open_good(*state, "a " ONE "\n");

	tokens_refresh(tokens, 5000);
	tokens_refresh(others, 5000);
	file_put(*state, "bb " TWO "\n");
	tokens_recheck();
	tokens_refresh(tokens, 5001);
	tokens_refresh(others, 5001);
	assert_int_equal(find(tokens, "two", 0), HTTP_OK);
	assert_int_equal(find(others, "two", 0), HTTP_OK);
	file_put(*state, "a " ONE "\n");
	tokens_refresh(tokens, 5002);
	assert_int_equal(find(tokens, "one", 0), HTTP_CREDENTIAL_UNKNOWN);
	tokens_close(tokens);
	tokens_close(others);
}

/* Refresh at `now_ms` and take what is logged meanwhile. */
static void
refresh_logged(struct tokens *tokens, int64_t now_ms, char *logged, size_t size)
{
	int before = dup(STDERR_FILENO);
	int ends[2];
	ssize_t len;

	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	tokens_refresh(tokens, now_ms);
	dup2(before, STDERR_FILENO);
	len = read(ends[0], logged, size - 1);
	logged[len < 0 ? 0 : len] = '\0';
	close(ends[0]);
	close(ends[1]);
	close(before);
}

static void
bad_new_file_is_logged_once_and_keeps_the_last_good_set(void **state)
{
	struct fixture *fixture = *state;
	struct tokens *tokens = open_good(fixture, "a " ONE "\n");
	char logged[1024];

	file_put(fixture, "bb " TWO "\nnonsense\n");
	refresh_logged(tokens, 0, logged, sizeof logged);
	assert_non_null(strstr(logged, fixture->path));
	assert_non_null(strstr(logged, "line 2"));
	assert_non_null(strstr(logged, "last good file stay in use"));
	assert_int_equal(find(tokens, "one", 0), HTTP_OK);
	assert_int_equal(find(tokens, "two", 0), HTTP_CREDENTIAL_UNKNOWN);
	refresh_logged(tokens, 1000, logged, sizeof logged);
	assert_string_equal(logged, "");
	tokens_close(tokens);
}

static void
file_that_vanishes_is_logged_once_and_keeps_the_last_good_set(void **state)
{
	struct fixture *fixture = *state;
	struct tokens *tokens = open_good(fixture, "a " ONE "\n");
	char logged[1024];

	assert_int_equal(unlink(fixture->path), 0);
	refresh_logged(tokens, 0, logged, sizeof logged);
	assert_non_null(strstr(logged, "No such file"));
	assert_int_equal(find(tokens, "one", 0), HTTP_OK);
	refresh_logged(tokens, 1000, logged, sizeof logged);
	assert_string_equal(logged, "");
	tokens_close(tokens);
}

static void
another_bad_file_is_logged_again_and_a_good_one_ends_it(void **state)
{
	struct fixture *fixture = *state;
	struct tokens *tokens = open_good(fixture, "a " ONE "\n");
	char logged[1024];

	file_put(fixture, "nonsense\n");
	refresh_logged(tokens, 0, logged, sizeof logged);
	file_put(fixture, "# empty\n");
	refresh_logged(tokens, 1000, logged, sizeof logged);
	assert_non_null(strstr(logged, "no token"));
	file_put(fixture, "b " TWO "\n");
	refresh_logged(tokens, 2000, logged, sizeof logged);
	assert_non_null(strstr(logged, "read again"));
	assert_int_equal(find(tokens, "two", 0), HTTP_OK);
	tokens_close(tokens);
}

static void
mode_that_is_put_right_makes_the_file_usable(void **state)
{
	struct fixture *fixture = *state;
	struct tokens *tokens = open_good(fixture, "a " ONE "\n");

	file_put(fixture, "b " TWO "\n");
	assert_int_equal(chmod(fixture->path, 0644), 0);
	tokens_refresh(tokens, 0);
	assert_int_equal(find(tokens, "two", 0), HTTP_CREDENTIAL_UNKNOWN);
	assert_int_equal(chmod(fixture->path, 0640), 0);
	tokens_refresh(tokens, 1000);
	assert_int_equal(find(tokens, "two", 0), HTTP_OK);
	tokens_close(tokens);
}

/* Such a change can leave inode, size and, within a tick, the times alone. */
static void
change_in_place_of_the_same_size_is_noticed(void **state)
{
	struct fixture *fixture = *state;
	struct tokens *tokens = open_good(fixture, "a " ONE "\n");
	int fd = open(fixture->path, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "a " TWO, 66, 0), 66);
	tokens_refresh(tokens, 0);
	assert_int_equal(find(tokens, "two", 0), HTTP_OK);
	assert_int_equal(pwrite(fd, "a " ONE, 66, 0), 66);
	tokens_refresh(tokens, 1000);
	assert_int_equal(find(tokens, "one", 0), HTTP_OK);
	close(fd);
	tokens_close(tokens);
}

static void
change_in_place_that_only_the_time_tells_is_noticed(void **state)
{
	const struct timespec old[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	struct fixture *fixture = *state;
	struct tokens *tokens = open_good(fixture, "a " ONE "\n");
	char logged[1024];
	int fd = open(fixture->path, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "a " TWO, 66, 0), 66);
	assert_int_equal(futimens(fd, old), 0);
	close(fd);
	refresh_logged(tokens, 0, logged, sizeof logged);
	assert_non_null(strstr(logged, "read again"));
	assert_int_equal(find(tokens, "two", 0), HTTP_OK);
	tokens_close(tokens);
}

static int
add(struct fixture *fixture, const char *name, const int64_t *expires_ms,
    char token[static TOKENS_TOKEN_LEN + 1])
{
	return tokens_add(fixture->path, name, expires_ms, token,
	    fixture->error, sizeof fixture->error);
}

static int
revoke_name(struct fixture *fixture, const char *name)
{
	return tokens_revoke(
	    fixture->path, name, fixture->error, sizeof fixture->error);
}

static void
added_token_is_known_with_name_and_expiry(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];
	int64_t expires_ms = 4102444800999; /* 2100 */
	int64_t created_ms;
	struct tokens *tokens;
	const struct token *entry;

	assert_int_equal(add(fixture, "ci", &expires_ms, token), 0);
	assert_int_equal(strlen(token), TOKENS_TOKEN_LEN);
	assert_memory_equal(token, "pst_", 4);
	assert_int_equal(
	    strspn(token + 4, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstu"
			      "vwxyz0123456789-_"),
	    43);
	tokens = open_set(fixture);
	assert_non_null(tokens);
	assert_int_equal(find(tokens, token, 0), HTTP_OK);
	entry = tokens_get(tokens, 0);
	assert_string_equal(entry->name, "ci");
	assert_true(entry->expires);
	assert_int_equal(entry->expires_ms, 4102444800000);
	assert_int_equal(strlen(entry->created), 20);
	assert_int_equal(timestamp_read(entry->created, 20, &created_ms), 0);
	tokens_close(tokens);
}

static void
new_file_is_for_its_owner_alone_and_holds_no_token(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];
	char text[1024];
	struct stat st;

	assert_int_equal(add(fixture, "ci", NULL, token), 0);
	assert_int_equal(stat(fixture->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	file_get(fixture, text, sizeof text);
	assert_null(strstr(text, token));
	assert_null(strstr(text, "pst_"));
	assert_int_equal(entries_in_directory(fixture), 1);
}

static void
two_added_tokens_differ(void **state)
{
	char a[TOKENS_TOKEN_LEN + 1], b[TOKENS_TOKEN_LEN + 1];

	assert_int_equal(add(*state, "a", NULL, a), 0);
	assert_int_equal(add(*state, "b", NULL, b), 0);
	assert_string_not_equal(a, b);
}

static void
add_and_revoke_keep_every_other_line_and_the_mode(void **state)
{
	static const char kept[] = "# clients\n\na \t" ONE " # by hand";
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];
	char text[1024];
	struct stat st;

	file_put(fixture, kept);
	assert_int_equal(add(fixture, "b", NULL, token), 0);
	file_get(fixture, text, sizeof text);
	assert_memory_equal(text, kept, strlen(kept));
	assert_memory_equal(text + strlen(kept), "\nb ", 3);
	assert_int_equal(text[strlen(text) - 1], '\n');
	assert_int_equal(revoke_name(fixture, "b"), 0);
	file_get(fixture, text, sizeof text);
	text[strlen(kept)] = '\0'; /* the newline that it lacked stays */
	assert_string_equal(text, kept);
	assert_int_equal(stat(fixture->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(entries_in_directory(fixture), 1);
}

static void
owner_of_the_file_is_kept(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];
	struct stat st;

	if (geteuid() != 0)
		skip();
	file_put(fixture, "a " ONE "\n");
	assert_int_equal(chown(fixture->path, 1234, 5678), 0);
	assert_int_equal(add(fixture, "b", NULL, token), 0);
	assert_int_equal(stat(fixture->path, &st), 0);
	assert_int_equal(st.st_uid, 1234);
	assert_int_equal(st.st_gid, 5678);
}

static void
token_is_added_to_a_file_without_one(void **state)
{
	char token[TOKENS_TOKEN_LEN + 1];

	file_put(*state, "");
	assert_int_equal(add(*state, "a", NULL, token), 0);
}

/* `status` is what the change gave, which is to have left `before` alone. */
static void
assert_unchanged(struct fixture *fixture, int status, int expected,
    const char *because, const char *before)
{
	char text[1024];

	assert_int_equal(status, expected);
	if (strstr(fixture->error, because) == NULL)
		fail_msg("'%s' lacks '%s'", fixture->error, because);
	file_get(fixture, text, sizeof text);
	assert_string_equal(text, before);
	assert_int_equal(entries_in_directory(fixture), 1);
}

static void
taken_name_is_not_added_again(void **state)
{
	char token[TOKENS_TOKEN_LEN + 1] = "untouched";

	file_put(*state, "a " ONE "\n");
	assert_unchanged(*state, add(*state, "a", NULL, token), EX_DATAERR,
	    "taken", "a " ONE "\n");
	assert_string_equal(token, "untouched");
}

static void
what_is_no_name_is_not_added(void **state)
{
	static const char *const names[] = { "", "a b", "a\n", "a#", "\xc3\xa9",
		LONG_NAME };
	char token[TOKENS_TOKEN_LEN + 1];

	for (size_t i = 0; i < COUNT(names); i++) {
		assert_int_equal(add(*state, names[i], NULL, token), EX_USAGE);
		assert_int_equal(entries_in_directory(*state), 0);
	}
}

static void
malformed_file_is_never_rewritten(void **state)
{
	static const char text[] = "a " ONE "\nb " TWO "\nnonsense\n";
	char token[TOKENS_TOKEN_LEN + 1];

	file_put(*state, text);
	assert_unchanged(
	    *state, add(*state, "c", NULL, token), EX_CONFIG, "line 3", text);
	assert_unchanged(
	    *state, revoke_name(*state, "a"), EX_CONFIG, "line 3", text);
}

static void
token_with_two_names_is_neither_added_to_nor_revoked(void **state)
{
	static const char text[] = "a " ONE "\nb " ONE "\n";
	char token[TOKENS_TOKEN_LEN + 1];

	file_put(*state, text);
	assert_unchanged(*state, add(*state, "c", NULL, token), EX_CONFIG,
	    "has the digest of line 1", text);
	assert_unchanged(*state, revoke_name(*state, "a"), EX_CONFIG,
	    "has the digest of line 1", text);
}

static void
last_token_is_not_revoked(void **state)
{
	file_put(*state, "a " ONE "\n");
	assert_unchanged(*state, revoke_name(*state, "a"), EX_DATAERR,
	    "only token", "a " ONE "\n");
}

static void
unknown_name_is_not_revoked(void **state)
{
	static const char text[] = "a " ONE "\nb " TWO "\n";

	file_put(*state, text);
	assert_unchanged(
	    *state, revoke_name(*state, "c"), EX_DATAERR, "unknown", text);
}

static void
nothing_is_revoked_from_a_missing_file(void **state)
{
	assert_int_equal(revoke_name(*state, "a"), EX_NOINPUT);
	assert_int_equal(entries_in_directory(*state), 0);
}

/* As in the kernel's linux/posix_acl_xattr.h. */
struct acl {
	uint32_t version;
	struct {
		uint16_t tag, rights;
		uint32_t id;
	} entries[5];
};

static void
add_keeps_an_access_control_list(void **state)
{
	/* A user beside the owner may read; in the mode that is the group. */
	static const struct acl acl = { 2,
		{ { 0x01, 6, UINT32_MAX }, { 0x02, 4, 33 },
		    { 0x04, 0, UINT32_MAX }, { 0x10, 4, UINT32_MAX },
		    { 0x20, 0, UINT32_MAX } } };
	static const char name[] = "system.posix_acl_access";
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];
	struct acl found;

	assert_int_equal(add(fixture, "one", NULL, token), 0);
	if (setxattr(fixture->path, name, &acl, sizeof acl, 0) != 0) {
		assert_int_equal(errno, ENOTSUP);
		skip();
	}
	assert_int_equal(add(fixture, "two", NULL, token), 0);
	assert_int_equal(
	    getxattr(fixture->path, name, &found, sizeof found), sizeof found);
	assert_memory_equal(&found, &acl, sizeof acl);
}

static void
missing_directory_is_told_with_its_remedy(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];
	char path[128];

	snprintf(path, sizeof path, "%s/none/tokens", fixture->dir);
	assert_int_equal(tokens_add(path, "a", NULL, token, fixture->error,
			     sizeof fixture->error),
	    EX_CANTCREAT);
	assert_non_null(strstr(fixture->error, "install -d"));
}

static void
symbolic_link_is_not_replaced(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];
	char path[96];
	struct stat st;

	snprintf(path, sizeof path, "%s/link", fixture->dir);
	assert_int_equal(symlink(fixture->path, path), 0);
	assert_int_equal(tokens_add(path, "a", NULL, token, fixture->error,
			     sizeof fixture->error),
	    EX_CONFIG);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
}

/* The status of an addition in a child that is restricted first. */
static int
add_restricted(struct fixture *fixture, void (*restrict_self)(void))
{
	char token[TOKENS_TOKEN_LEN + 1];
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		restrict_self();
		_exit(add(fixture, "b", NULL, token));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void
become_nobody(void)
{
	if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
		_exit(EX_OSERR);
}

static void
allow_no_file_to_grow(void)
{
	const struct rlimit none = { 0, 0 };

	signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &none) != 0)
		_exit(EX_OSERR);
}

static void
directory_that_is_not_writable_refuses_a_token(void **state)
{
	struct fixture *fixture = *state;
	int status;

	assert_int_equal(chmod(fixture->dir, 0555), 0);
	status = add_restricted(fixture, become_nobody);
	assert_int_equal(chmod(fixture->dir, 0700), 0);
	assert_int_equal(status, EX_NOPERM);
	assert_int_equal(entries_in_directory(fixture), 0);
}

static void
failed_write_leaves_the_file_and_nothing_else(void **state)
{
	struct fixture *fixture = *state;

	file_put(fixture, "a " ONE "\n");
	assert_unchanged(fixture,
	    add_restricted(fixture, allow_no_file_to_grow), EX_IOERR, "",
	    "a " ONE "\n");
}

static void
failed_first_write_leaves_nothing(void **state)
{
	assert_int_equal(
	    add_restricted(*state, allow_no_file_to_grow), EX_IOERR);
	assert_int_equal(entries_in_directory(*state), 0);
}

static void
lock_that_stays_held_is_an_error_after_a_bounded_wait(void **state)
{
	struct fixture *fixture = *state;
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char token[TOKENS_TOKEN_LEN + 1];
	int status;
	int fd;

	file_put(fixture, "a " ONE "\n");
	fd = open(fixture->path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &whole), 0);
	status = add(fixture, "b", NULL, token);
	close(fd);
	assert_unchanged(fixture, status, EX_TEMPFAIL, "locked", "a " ONE "\n");
	assert_int_equal(add(fixture, "b", NULL, token), 0);
}

/* Add the names of one process; on a slow disk the lock's wait can end. */
static int
add_names(struct fixture *fixture, int adder)
{
	char token[TOKENS_TOKEN_LEN + 1];

	for (int i = 0; i < NAMES_EACH; i++) {
		int status = EX_TEMPFAIL;
		char name[32];

		snprintf(name, sizeof name, "name-%d-%d", adder, i);
		for (int tries = 0; tries < 30 && status == EX_TEMPFAIL;
		     tries++)
			status = add(fixture, name, NULL, token);
		if (status != 0)
			return status;
	}
	return 0;
}

static void
processes_that_add_at_once_lose_no_token(void **state)
{
	struct fixture *fixture = *state;
	pid_t children[ADDERS];
	struct tokens *tokens;

	for (int i = 0; i < ADDERS; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] == 0)
			_exit(add_names(fixture, i));
	}
	for (int i = 0; i < ADDERS; i++) {
		int status;

		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	tokens = open_set(fixture);
	assert_non_null(tokens);
	assert_int_equal(tokens_count(tokens), ADDERS * NAMES_EACH);
	tokens_close(tokens);
	assert_int_equal(entries_in_directory(fixture), 1);
}

static void
token_cannot_be_looked_up_without_libcrypto(void **state)
{
	static const char *const functions[] = { "EVP_DigestInit_ex2",
		"EVP_DigestUpdate", "EVP_DigestFinal_ex" };
	struct tokens *tokens = open_good(*state, "a " ONE "\n");

	for (size_t i = 0; i < COUNT(functions); i++) {
		enum http_error error;

		broken = functions[i];
		error = find(tokens, "one", 0);
		broken = "";
		assert_int_equal(error, HTTP_INTERNAL);
	}
	assert_int_equal(find(tokens, "one", 0), HTTP_OK);
	tokens_close(tokens);
}

static void
set_cannot_be_opened_without_libcrypto(void **state)
{
	static const char *const functions[] = { "EVP_MD_fetch",
		"EVP_MD_CTX_new" };
	struct fixture *fixture = *state;

	file_put(fixture, "a " ONE "\n");
	for (size_t i = 0; i < COUNT(functions); i++) {
		struct tokens *tokens;

		broken = functions[i];
		tokens = open_set(fixture);
		broken = "";
		assert_null(tokens);
		assert_int_equal(fixture->status, EX_OSERR);
		assert_non_null(strstr(fixture->error, "libcrypto"));
	}
}

static void
token_is_not_made_without_libcrypto(void **state)
{
	static const char *const functions[] = { "EVP_MD_fetch",
		"EVP_MD_CTX_new", "RAND_bytes", "EVP_DigestInit_ex2",
		"EVP_DigestUpdate", "EVP_DigestFinal_ex" };
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1] = "untouched";

	file_put(fixture, "a " ONE "\n");
	for (size_t i = 0; i < COUNT(functions); i++) {
		int status;

		broken = functions[i];
		status = add(fixture, "b", NULL, token);
		broken = "";
		assert_unchanged(
		    fixture, status, EX_OSERR, "libcrypto", "a " ONE "\n");
		assert_string_equal(token, "untouched");
	}
}

/* So many that the lines are moved to a larger place, with their digests. */
static void
file_put_many(struct fixture *fixture)
{
	char text[4096], digest[] = ONE;
	size_t len = 0;

	for (char c = 'a'; c <= 't'; c++) {
		digest[0] = "0123456789abcdef"[(c - 'a') / 16];
		digest[1] = "0123456789abcdef"[(c - 'a') % 16];
		len += (size_t)snprintf(
		    text + len, sizeof text - len, "%c %s\n", c, digest);
	}
	file_put(fixture, text);
}

static void
set_that_lacks_memory_for_any_part_is_not_opened(void **state)
{
	struct fixture *fixture = *state;
	struct tokens *tokens = NULL;
	unsigned nth = 0;

	if (!alloc_can_fail())
		skip();
	file_put_many(fixture);
	do {
		*fixture->error = '\0';
		tokens_close(tokens);
		alloc_fail(++nth, 1);
		tokens = open_set(fixture);
		/* Either it can do without, or it says so. */
		assert_true((tokens == NULL) == (*fixture->error != '\0'));
		assert_int_equal(
		    fixture->status, tokens == NULL ? EX_OSERR : EX_OK);
	} while (alloc_reset());
	assert_non_null(tokens);
	assert_int_equal(tokens_count(tokens), 20);
	tokens_close(tokens);
	assert_true(
	    nth > 5); /* the set, the text, twice its lines, the check */
}

static void
set_that_lacks_memory_when_it_is_read_again_stays(void **state)
{
	struct fixture *fixture = *state;
	struct tokens *tokens = open_good(fixture, "a " ONE "\n");
	int64_t now_ms = 0;
	unsigned nth = 0;
	bool failed;

	if (!alloc_can_fail()) {
		tokens_close(tokens);
		skip();
	}
	do {
		size_t count;

		file_put_many(fixture);
		alloc_fail(++nth, 1);
		tokens_refresh(tokens, now_ms += 1000);
		failed = alloc_reset();
		count = tokens_count(tokens);
		assert_true(count == 20 || (failed && count == 1));
		file_put(fixture, "a " ONE "\n");
		tokens_refresh(tokens, now_ms += 1000);
		assert_int_equal(tokens_count(tokens), 1);
	} while (failed);
	tokens_close(tokens);
	assert_true(nth > 4);
}

static void
change_that_lacks_memory_for_any_part_is_not_made(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1], text[1024];
	unsigned nth = 0;
	bool failed;
	int status;

	if (!alloc_can_fail())
		skip();
	do {
		file_put(fixture, "a " ONE "\n");
		alloc_fail(++nth, 1);
		status = add(fixture, "b", NULL, token);
		failed = alloc_reset();
		if (status != 0)
			assert_unchanged(
			    fixture, status, EX_OSERR, "", "a " ONE "\n");
	} while (failed);
	assert_int_equal(status, 0);
	assert_true(nth > 5);
	file_get(fixture, text, sizeof text);
	nth = 0;
	do {
		file_put(fixture, text);
		alloc_fail(++nth, 1);
		status = revoke_name(fixture, "a");
		failed = alloc_reset();
		if (status != 0)
			assert_unchanged(fixture, status, EX_OSERR, "", text);
	} while (failed);
	assert_int_equal(status, 0);
	assert_true(nth > 5);
}

static void
file_is_refused_if_it_cannot_be_read_and_not_if_interrupted(void **state)
{
	struct fixture *fixture = *state;
	struct tokens *tokens;

	file_put(fixture, "a " ONE "\n");
	shim_fail(SHIM_PREAD, "/tokens", 1, 1, EIO);
	tokens = open_set(fixture);
	shim_fail(SHIM_PREAD, "/tokens", 1, 1, EINTR);
	assert_null(tokens);
	assert_non_null(strstr(fixture->error, "check the disk"));
	tokens = open_set(fixture);
	assert_int_equal(shim_count(SHIM_PREAD), 3); /* the last: its end */
	shim_reset();
	assert_non_null(tokens);
	tokens_close(tokens);
}

static void
change_whose_file_is_not_synced_is_not_made(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];
	int status;

	file_put(fixture, "a " ONE "\n");
	shim_fail(SHIM_FSYNC, NULL, 1, 1, EIO);
	status = add(fixture, "b", NULL, token);
	shim_reset();
	assert_unchanged(
	    fixture, status, EX_IOERR, "cannot write", "a " ONE "\n");
}

static void
change_whose_directory_is_not_synced_says_that_it_is_made(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1], text[1024];
	int status;

	file_put(fixture, "a " ONE "\n");
	shim_fail(SHIM_FSYNC, NULL, 2, 1, EIO);
	status = add(fixture, "b", NULL, token);
	shim_reset();
	assert_int_equal(status, EX_IOERR);
	assert_non_null(strstr(fixture->error, "a power cut may undo it"));
	file_get(fixture, text, sizeof text);
	assert_non_null(strstr(text, "\nb "));
}

static void
closing_no_set_is_fine(void **state)
{
	(void)state;
	tokens_close(NULL);
}

static void
every_error_is_told_with_its_remedy(void **state)
{
	static const struct {
		int error, status;
		const char *remedy;
	} rows[] = {
		{ EACCES, EX_NOPERM, "run this as a user who may" },
		{ EPERM, EX_NOPERM, "run this as a user who may" },
		{ EROFS, EX_NOPERM, "mount it for writing" },
		{ EISDIR, EX_CONFIG, "name a file" },
		{ EFBIG, EX_IOERR, "make room" },
		{ ENOSPC, EX_IOERR, "make room" },
		{ EDQUOT, EX_IOERR, "make room" },
		{ EIO, EX_IOERR, "check the disk" },
		{ ENOMEM, EX_OSERR, "see the system's log" },
	};
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];

	file_put(fixture, "a " ONE "\n");
	for (size_t i = 0; i < COUNT(rows); i++) {
		int status;

		fstat_error = rows[i].error;
		status = add(fixture, "b", NULL, token);
		fstat_error = 0;
		assert_unchanged(fixture, status, rows[i].status,
		    rows[i].remedy, "a " ONE "\n");
		shim_fail(SHIM_FSYNC, NULL, 1, 1, rows[i].error);
		status = add(fixture, "b", NULL, token);
		shim_reset();
		assert_unchanged(fixture, status, rows[i].status,
		    rows[i].remedy, "a " ONE "\n");
	}
}

static void
set_is_not_opened_when_the_file_cannot_be_looked_at(void **state)
{
	static const struct {
		int error, status;
		const char *remedy;
	} rows[] = {
		{ EACCES, EX_NOPERM, "run this as a user who may" },
		{ EIO, EX_IOERR, "check the disk" },
		{ ENOMEM, EX_OSERR, "see the system's log" },
	};
	struct fixture *fixture = *state;

	file_put(fixture, "a " ONE "\n");
	for (size_t i = 0; i < COUNT(rows); i++) {
		fstat_error = rows[i].error;
		struct tokens *tokens = open_set(fixture);
		fstat_error = 0;
		assert_null(tokens);
		assert_int_equal(fixture->status, rows[i].status);
		assert_non_null(strstr(fixture->error, rows[i].remedy));
	}
}

static void
file_that_grows_in_its_place_is_read_again(void **state)
{
	struct fixture *fixture = *state;
	struct tokens *tokens = open_good(fixture, "a " ONE "\n");
	FILE *file = fopen(fixture->path, "a");

	assert_non_null(file);
	assert_true(fputs("bb " TWO "\n", file) >= 0);
	assert_int_equal(fclose(file), 0);
	tokens_refresh(tokens, 0);
	assert_int_equal(tokens_count(tokens), 2);
	tokens_close(tokens);
}

/* Of which each is tried again at the next look, without being told twice. */
static void
file_that_cannot_be_read_for_a_while_keeps_the_set(void **state)
{
	static const int errors[] = { EIO, ENOMEM };
	struct fixture *fixture = *state;
	struct tokens *tokens = open_good(fixture, "a " ONE "\n");
	int64_t now_ms = 0;
	char logged[1024];

	for (size_t i = 0; i < COUNT(errors); i++) {
		for (int again = 0; again < 2; again++) {
			fstat_error = errors[i];
			refresh_logged(
			    tokens, now_ms += 1000, logged, sizeof logged);
			fstat_error = 0;
			assert_int_equal(*logged == '\0', again);
			assert_int_equal(find(tokens, "one", 0), HTTP_OK);
		}
		refresh_logged(tokens, now_ms += 1000, logged, sizeof logged);
		assert_non_null(strstr(logged, "read again"));
	}
	tokens_close(tokens);
}

static void
token_that_would_make_the_file_too_large_is_not_added(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];
	size_t len = TOKENS_FILE_BYTES_MAX - 50;
	char *text = malloc(len);
	struct stat st;

	assert_non_null(text);
	memset(text, '\n', len);
	memcpy(text, "a " ONE "\n", strlen("a " ONE "\n"));
	file_put_bytes(fixture, text, len);
	free(text);
	assert_int_equal(add(fixture, "b", NULL, token), EX_DATAERR);
	assert_non_null(strstr(fixture->error, "would be larger than 1048576"));
	assert_int_equal(stat(fixture->path, &st), 0);
	assert_int_equal(st.st_size, len);
	assert_int_equal(entries_in_directory(fixture), 1);
}

static void
name_without_room_for_a_temporary_one_is_refused(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1];
	char name[252], path[320];

	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	snprintf(path, sizeof path, "%s/%s", fixture->dir, name);
	assert_int_equal(tokens_add(path, "a", NULL, token, fixture->error,
			     sizeof fixture->error),
	    EX_OSERR);
	assert_non_null(strstr(fixture->error, "write beside"));
	assert_int_equal(entries_in_directory(fixture), 0);
}

static void
missing_directory_is_told_though_memory_lacks(void **state)
{
	struct fixture *fixture = *state;
	char token[TOKENS_TOKEN_LEN + 1], path[128];
	bool failed = true;

	if (!alloc_can_fail())
		skip();
	snprintf(path, sizeof path, "%s/none/tokens", fixture->dir);
	for (unsigned nth = 1; failed; nth++) {
		int status;

		alloc_fail(nth, 1);
		status = tokens_add(path, "a", NULL, token, fixture->error,
		    sizeof fixture->error);
		failed = alloc_reset();
		assert_true(
		    status == EX_CANTCREAT || (failed && status == EX_OSERR));
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(entries_are_read_in_the_files_order),
		TEST(last_line_needs_no_newline),
		TEST(comment_without_a_time_tells_no_creation),
		TEST(malformed_files_are_refused_with_line_and_reason),
		TEST(refusal_does_not_repeat_what_may_be_a_token),
		TEST(nul_byte_is_refused),
		TEST(file_that_others_may_touch_is_refused),
		TEST(missing_file_is_refused),
		TEST(directory_is_refused),
		TEST(fifo_is_refused_without_waiting_for_a_writer),
		TEST(file_that_is_too_large_is_refused),
		TEST(file_that_grows_while_it_is_read_is_refused),
		TEST(known_token_is_found_with_its_name),
		TEST(other_tokens_are_unknown),
		TEST(token_expires_at_its_very_millisecond),
		TEST(refresh_takes_a_changed_file),
		TEST(refresh_looks_once_a_second),
		TEST(a_recheck_looks_at_once_and_once),
		TEST(bad_new_file_is_logged_once_and_keeps_the_last_good_set),
		TEST(
		    file_that_vanishes_is_logged_once_and_keeps_the_last_good_set),
		TEST(another_bad_file_is_logged_again_and_a_good_one_ends_it),
		TEST(mode_that_is_put_right_makes_the_file_usable),
		TEST(change_in_place_of_the_same_size_is_noticed),
		TEST(change_in_place_that_only_the_time_tells_is_noticed),
		TEST(added_token_is_known_with_name_and_expiry),
		TEST(new_file_is_for_its_owner_alone_and_holds_no_token),
		TEST(two_added_tokens_differ),
		TEST(add_and_revoke_keep_every_other_line_and_the_mode),
		TEST(owner_of_the_file_is_kept),
		TEST(token_is_added_to_a_file_without_one),
		TEST(taken_name_is_not_added_again),
		TEST(what_is_no_name_is_not_added),
		TEST(malformed_file_is_never_rewritten),
		TEST(token_with_two_names_is_neither_added_to_nor_revoked),
		TEST(last_token_is_not_revoked),
		TEST(unknown_name_is_not_revoked),
		TEST(nothing_is_revoked_from_a_missing_file),
		TEST(add_keeps_an_access_control_list),
		TEST(missing_directory_is_told_with_its_remedy),
		TEST(symbolic_link_is_not_replaced),
		TEST(directory_that_is_not_writable_refuses_a_token),
		TEST(failed_write_leaves_the_file_and_nothing_else),
		TEST(failed_first_write_leaves_nothing),
		TEST(lock_that_stays_held_is_an_error_after_a_bounded_wait),
		TEST(processes_that_add_at_once_lose_no_token),
		TEST(token_cannot_be_looked_up_without_libcrypto),
		TEST(set_cannot_be_opened_without_libcrypto),
		TEST(token_is_not_made_without_libcrypto),
		TEST(set_that_lacks_memory_for_any_part_is_not_opened),
		TEST(set_that_lacks_memory_when_it_is_read_again_stays),
		TEST(change_that_lacks_memory_for_any_part_is_not_made),
		TEST(
		    file_is_refused_if_it_cannot_be_read_and_not_if_interrupted),
		TEST(change_whose_file_is_not_synced_is_not_made),
		TEST(change_whose_directory_is_not_synced_says_that_it_is_made),
		cmocka_unit_test(closing_no_set_is_fine),
		TEST(every_error_is_told_with_its_remedy),
		TEST(set_is_not_opened_when_the_file_cannot_be_looked_at),
		TEST(file_that_grows_in_its_place_is_read_again),
		TEST(file_that_cannot_be_read_for_a_while_keeps_the_set),
		TEST(token_that_would_make_the_file_too_large_is_not_added),
		TEST(name_without_room_for_a_temporary_one_is_refused),
		TEST(missing_directory_is_told_though_memory_lacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
