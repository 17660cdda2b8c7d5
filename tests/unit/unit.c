/* unit: see unit.h. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store_parts.h"

#define TESTS_MAX 64

static struct CMUnitTest tests[TESTS_MAX];
static int lines[TESTS_MAX];
static size_t tests_len;

void
unit_add(const struct CMUnitTest *test, int line)
{
	size_t at = tests_len++;

	if (tests_len > TESTS_MAX)
		abort();
	for (; at > 0 && lines[at - 1] > line; at--) {
		lines[at] = lines[at - 1];
		tests[at] = tests[at - 1];
	}
	lines[at] = line;
	tests[at] = *test;
}

int
main(int argc, char **argv)
{
	size_t named = 0;

	for (size_t i = 0; i < tests_len; i++)
		if (argc < 2 || strstr(tests[i].name, argv[1]) != NULL)
			tests[named++] = tests[i];
	tests_len = named;
	if (argc > 2 || named == 0) {
		fprintf(stderr, "usage: %s [NAME]\n", argv[0]);
		fputs("Runs the tests whose name has NAME in it.\n", stderr);
		return 64;
	}
	return _cmocka_run_group_tests(
	    program_invocation_short_name, tests, tests_len, NULL, NULL);
}

void *
exact_copy(const void *bytes, size_t len)
{
	void *copy = malloc(len);

	assert_true(copy != NULL || len == 0);
	if (len > 0)
		memcpy(copy, bytes, len);
	return copy;
}

/* Each block begins with the one before it. */
static void **blocks;

void *
memory(size_t size)
{
	void **block = calloc(1, 2 * sizeof(*block) + size);

	assert_non_null(block);
	block[0] = blocks;
	blocks = block;
	return block + 2;
}

void
memory_free(void)
{
	while (blocks != NULL) {
		void **block = blocks;

		blocks = block[0];
		free(block);
	}
}

void
assert_bytes(const char *bytes, size_t len, const char *expected)
{
	assert_int_equal(len, strlen(expected));
	assert_memory_equal(bytes, expected, len);
}

void
assert_begins(const char *text, const char *begin)
{
	if (strncmp(text, begin, strlen(begin)) != 0)
		fail_msg("'%s' does not begin with '%s'", text, begin);
}

void
assert_contains(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("'%s' is without '%s'", text, part);
}

void
assert_between(uintmax_t value, uintmax_t low, uintmax_t high)
{
	if (value < low || value > high)
		fail_msg("%ju is not from %ju to %ju", value, low, high);
}

void
directory_make(char path[static DIRECTORY_PATH_MAX])
{
	const char *tmp = getenv("TMPDIR");

	if (tmp == NULL || strlen(tmp) > 40)
		tmp = "/tmp";
	snprintf(path, DIRECTORY_PATH_MAX, "%s/store.XXXXXX", tmp);
	assert_non_null(mkdtemp(path));
}

void
directory_remove(const char *path)
{
	parts_empty(AT_FDCWD, path);
	assert_int_equal(rmdir(path), 0);
}

struct contents
descriptor_read(int fd)
{
	struct contents contents;
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	contents.len = (size_t)st.st_size;
	contents.at = memory(contents.len + 1);
	assert_int_equal(pread(fd, contents.at, contents.len, 0), contents.len);
	return contents;
}

struct contents
file_read(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail_msg("%s: %s", name, strerror(errno));
	struct contents contents = descriptor_read(fd);
	close(fd);
	return contents;
}

void
file_replace(const char *path, const char *text, size_t len, mode_t mode)
{
	char beside[DIRECTORY_PATH_MAX + 64];

	snprintf(beside, sizeof(beside), "%s.new", path);
	unlink(beside);
	int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_int_equal(write(fd, text, len), len);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	assert_int_equal(rename(beside, path), 0);
}

pid_t
child_start(int (*work)(void *), void *argument)
{
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0)
		_exit(work(argument));
	return child;
}

int
child_wait(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int
in_child(int (*work)(void *), void *argument)
{
	return child_wait(child_start(work, argument));
}

static int stderr_before, captured;

void
stderr_capture(void)
{
	fflush(stderr);
	stderr_before = dup(STDERR_FILENO);
	captured = memfd_create("stderr", MFD_CLOEXEC);
	if (dup2(captured, STDERR_FILENO) < 0)
		abort();
}

const char *
stderr_captured(void)
{
	static char text[4096];
	ssize_t len;

	dup2(stderr_before, STDERR_FILENO);
	len = pread(captured, text, sizeof(text) - 1, 0);
	close(stderr_before);
	close(captured);
	assert_in_range(len, 0, sizeof(text) - 1);
	text[len] = '\0';
	return text;
}
