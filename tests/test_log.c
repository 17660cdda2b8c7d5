/*
 * log: what a message looks like on stderr, and whether syslog gets it, too.
 * That of the machine which runs the tests gets none: it is replaced.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>
#include <wchar.h>

#include "ground/log.h"

#define LINE_BYTES_MAX 1024

/* What a process says that has not named itself yet. */
static char before_open[LINE_BYTES_MAX + 1];

static unsigned syslogged;

/* As the C library's, plain and fortified, which clang has as a macro. */
#undef syslog
void __syslog_chk(int priority, int flag, const char *format, ...);

void
syslog(int priority, const char *format, ...)
{
	(void)priority;
	(void)format;
	syslogged++;
}

void
__syslog_chk(int priority, int flag, const char *format, ...)
{
	(void)priority;
	(void)flag;
	(void)format;
	syslogged++;
}

/* stderr, while it is a socket that keeps each write apart. */
struct capture {
	int stderr_before, reader;
};

static void
capture_begin(struct capture *capture)
{
	int ends[2];

	fflush(stderr);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
		abort();
	capture->reader = ends[0];
	capture->stderr_before = dup(STDERR_FILENO);
	if (dup2(ends[1], STDERR_FILENO) < 0)
		abort();
	close(ends[1]);
}

/* Give stderr back; only then may a test fail, which is said there. */
static void
capture_pause(struct capture *capture)
{
	dup2(capture->stderr_before, STDERR_FILENO);
	close(capture->stderr_before);
}

/* The next write as a string; false if there is none. */
static bool
capture_next(struct capture *capture, char line[static LINE_BYTES_MAX + 2])
{
	ssize_t n =
	    recv(capture->reader, line, LINE_BYTES_MAX + 1, MSG_DONTWAIT);

	if (n <= 0)
		return false;
	line[n] = '\0';
	return true;
}

static void
capture_end(struct capture *capture)
{
	close(capture->reader);
}

static int
set_up_group(void **state)
{
	struct capture capture;
	char line[LINE_BYTES_MAX + 2] = "";

	(void)state;
	capture_begin(&capture);
	log_error("early");
	capture_pause(&capture);
	capture_next(&capture, line);
	capture_end(&capture);
	memcpy(before_open, line, sizeof before_open);
	return 0;
}

static int
set_up(void **state)
{
	(void)state;
	log_open("tester", 0);
	log_set_level(LOG_AT_DEBUG);
	return 0;
}

/* Say `text` and give what arrives on stderr. */
static void
say(const char *text, char line[static LINE_BYTES_MAX + 2])
{
	struct capture capture;
	bool said;

	capture_begin(&capture);
	log_error("%s", text);
	capture_pause(&capture);
	said = capture_next(&capture, line);
	capture_end(&capture);
	assert_true(said);
}

static void
before_the_program_is_named_messages_come_from_plant_store(void **state)
{
	(void)state;
	assert_string_equal(before_open, "plant-store: early\n");
}

static void
message_is_one_write_of_program_text_and_newline(void **state)
{
	struct capture capture;
	char line[LINE_BYTES_MAX + 2] = "", more[LINE_BYTES_MAX + 2];
	bool another;

	(void)state;
	capture_begin(&capture);
	log_error("%s: %d of %zu", "what", -1, (size_t)2);
	capture_pause(&capture);
	capture_next(&capture, line);
	another = capture_next(&capture, more);
	capture_end(&capture);
	assert_string_equal(line, "tester: what: -1 of 2\n");
	assert_false(another);
}

static void
messages_above_the_level_are_dropped(void **state)
{
	static const char *const said[] = { "tester: e\n", "tester: w\n",
		"tester: i\n", "tester: d\n" };

	(void)state;
	for (int level = LOG_AT_ERROR; level <= LOG_AT_DEBUG; level++) {
		struct capture capture;
		char line[LINE_BYTES_MAX + 2];

		capture_begin(&capture);
		log_set_level((enum log_level)level);
		log_error("e");
		log_warning("w");
		log_info("i");
		log_debug("d");
		capture_pause(&capture);
		for (int i = 0; i <= level; i++) {
			assert_true(capture_next(&capture, line));
			assert_string_equal(line, said[i]);
		}
		assert_false(capture_next(&capture, line));
		capture_end(&capture);
	}
}

static void
long_message_is_cut_at_one_kibibyte_with_its_newline(void **state)
{
	char text[4000];
	char line[LINE_BYTES_MAX + 2];

	(void)state;
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	say(text, line);
	assert_int_equal(strlen(line), LINE_BYTES_MAX);
	assert_memory_equal(line, "tester: xxx", 11);
	assert_string_equal(line + LINE_BYTES_MAX - 3, "xx\n");
}

static void
message_that_just_fits_is_whole(void **state)
{
	const size_t fits = LINE_BYTES_MAX - strlen("tester: ") - 1;
	char text[LINE_BYTES_MAX];
	char line[LINE_BYTES_MAX + 2];

	(void)state;
	memset(text, 'x', fits);
	text[fits - 1] = 'y';
	text[fits] = '\0';
	say(text, line);
	assert_int_equal(strlen(line), LINE_BYTES_MAX);
	assert_string_equal(line + LINE_BYTES_MAX - 3, "xy\n");
}

static void
bytes_that_are_not_printable_ascii_become_question_marks(void **state)
{
	(void)state;
	for (int c = 1; c < 256; c++) {
		const char text[] = { 'a', (char)c, 'b', '\0' };
		char line[LINE_BYTES_MAX + 2];
		char expected[] = "tester: a?b\n";

		if (c >= ' ' && c <= '~')
			expected[9] = (char)c;
		say(text, line);
		assert_string_equal(line, expected);
	}
}

static void
errno_is_left_as_it_was(void **state)
{
	struct capture capture;
	int after;

	(void)state;
	capture_begin(&capture);
	errno = EDOM;
	log_error("something");
	after = errno;
	capture_pause(&capture);
	capture_end(&capture);
	assert_int_equal(after, EDOM);
}

static void
errno_is_left_as_it_was_when_stderr_takes_nothing(void **state)
{
	int stderr_before = dup(STDERR_FILENO);
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	int after;

	(void)state;
	assert_true(full >= 0);
	dup2(full, STDERR_FILENO);
	errno = EDOM;
	log_error("something");
	after = errno;
	dup2(stderr_before, STDERR_FILENO);
	close(stderr_before);
	close(full);
	assert_int_equal(after, EDOM);
}

static void
errno_is_left_as_it_was_when_the_message_cannot_be_made(void **state)
{
	struct capture capture;
	int after;

	(void)state;
	capture_begin(&capture);
	errno = EDOM;
	/* A character that the locale "C" does not have: EILSEQ. */
	log_error("%lc", (wint_t)0x4e00);
	after = errno;
	capture_pause(&capture);
	capture_end(&capture);
	assert_int_equal(after, EDOM);
}

static void
errno_is_left_as_it_was_when_the_message_is_dropped(void **state)
{
	(void)state;
	log_set_level(LOG_AT_ERROR);
	errno = EDOM;
	log_debug("something");
	assert_int_equal(errno, EDOM);
}

/*
 * The line of a warning on a stderr whose inode differs by `off` from what
 * JOURNAL_STREAM says.
 */
static void
capture_beside_journal(
    int use_syslog, unsigned off, char line[static LINE_BYTES_MAX + 2])
{
	struct capture capture;
	char stream[64];
	struct stat st;

	capture_begin(&capture);
	if (fstat(STDERR_FILENO, &st) == 0)
		snprintf(stream, sizeof stream, "%llu:%llu",
		    (unsigned long long)st.st_dev,
		    (unsigned long long)st.st_ino + off);
	setenv("JOURNAL_STREAM", stream, 1);
	log_open("test", use_syslog);
	unsetenv("JOURNAL_STREAM");
	syslogged = 0;
	log_warning("a\nb");
	capture_pause(&capture);
	if (!capture_next(&capture, line))
		line[0] = '\0';
	capture_end(&capture);
}

static void
message_to_the_journal_has_its_priority_and_is_there_once(void **state)
{
	char line[LINE_BYTES_MAX + 2];

	(void)state;
	capture_beside_journal(1, 0, line);
	assert_string_equal(line, "<4>test: a?b\n");
	assert_int_equal(syslogged, 0);
}

static void
message_to_another_stderr_is_plain_and_goes_to_syslog(void **state)
{
	char line[LINE_BYTES_MAX + 2];

	(void)state;
	capture_beside_journal(1, 1, line);
	assert_string_equal(line, "test: a?b\n");
	assert_int_equal(syslogged, 1);
}

static void
message_of_a_program_without_syslog_is_plain(void **state)
{
	char line[LINE_BYTES_MAX + 2];

	(void)state;
	capture_beside_journal(0, 0, line);
	assert_string_equal(line, "test: a?b\n");
	assert_int_equal(syslogged, 0);
}

static void
message_while_a_bar_is_shown_clears_it_first(void **state)
{
	struct capture capture;
	char line[LINE_BYTES_MAX + 2];
	size_t len = strlen("tester: over it\n");

	(void)state;
	capture_begin(&capture);
	log_set_bar(true);
	log_error("over it");
	log_set_bar(false);
	capture_pause(&capture);
	assert_true(capture_next(&capture, line));
	assert_true(strlen(line) > len);
	assert_int_equal(line[0], '\r');
	assert_string_equal(line + strlen(line) - len, "tester: over it\n");
	capture_end(&capture);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
		    before_the_program_is_named_messages_come_from_plant_store,
		    set_up),
		cmocka_unit_test_setup(
		    message_is_one_write_of_program_text_and_newline, set_up),
		cmocka_unit_test_setup(
		    messages_above_the_level_are_dropped, set_up),
		cmocka_unit_test_setup(
		    long_message_is_cut_at_one_kibibyte_with_its_newline,
		    set_up),
		cmocka_unit_test_setup(message_that_just_fits_is_whole, set_up),
		cmocka_unit_test_setup(
		    bytes_that_are_not_printable_ascii_become_question_marks,
		    set_up),
		cmocka_unit_test_setup(errno_is_left_as_it_was, set_up),
		cmocka_unit_test_setup(
		    errno_is_left_as_it_was_when_stderr_takes_nothing, set_up),
		cmocka_unit_test_setup(
		    errno_is_left_as_it_was_when_the_message_cannot_be_made,
		    set_up),
		cmocka_unit_test_setup(
		    errno_is_left_as_it_was_when_the_message_is_dropped,
		    set_up),
		cmocka_unit_test_setup(
		    message_to_the_journal_has_its_priority_and_is_there_once,
		    set_up),
		cmocka_unit_test_setup(
		    message_to_another_stderr_is_plain_and_goes_to_syslog,
		    set_up),
		cmocka_unit_test_setup(
		    message_of_a_program_without_syslog_is_plain, set_up),
		cmocka_unit_test_setup(
		    message_while_a_bar_is_shown_clears_it_first, set_up),
	};

	return cmocka_run_group_tests(tests, set_up_group, NULL);
}
