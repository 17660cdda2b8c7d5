/*
 * log: what a message looks like on stderr, and whether syslog gets it, too.
 * That of the machine which runs the tests gets none: it is replaced.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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

/* The writes to stderr between capture_begin and capture_end, and how many. */
static char lines[5][LINE_BYTES_MAX + 2];
static int captured, stderr_before, reader;

/* Make stderr a socket that keeps each write apart. */
static void
capture_begin(void)
{
	int ends[2];

	fflush(stderr);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
		abort();
	reader = ends[0];
	stderr_before = dup(STDERR_FILENO);
	if (dup2(ends[1], STDERR_FILENO) < 0)
		abort();
	close(ends[1]);
}

/* Only behind this may a test fail, since that is written to stderr. */
static void
capture_end(void)
{
	ssize_t n;

	dup2(stderr_before, STDERR_FILENO);
	close(stderr_before);
	memset(lines, 0, sizeof lines);
	for (captured = 0; captured < 5; captured++) {
		n = recv(
		    reader, lines[captured], LINE_BYTES_MAX + 1, MSG_DONTWAIT);
		if (n <= 0)
			break;
	}
	close(reader);
}

static int
set_up_group(void **state)
{
	capture_begin();
	log_error("early");
	capture_end();
	memcpy(before_open, lines[0], sizeof before_open);
	return 0;
}

static int
set_up(void **state)
{
	log_open("tester", 0);
	log_set_level(LOG_AT_DEBUG);
	return 0;
}

/* Log `text`, which arrives in lines[0]. */
static void
say(const char *text)
{
	capture_begin();
	log_error("%s", text);
	capture_end();
	assert_int_equal(captured, 1);
}

static void
before_the_program_has_a_name_it_is_plant_store(void **state)
{
	assert_string_equal(before_open, "plant-store: early\n");
}

static void
message_is_one_write_of_program_text_and_newline(void **state)
{
	capture_begin();
	log_error("%s: %d of %zu", "what", -1, (size_t)2);
	capture_end();
	assert_int_equal(captured, 1);
	assert_string_equal(lines[0], "tester: what: -1 of 2\n");
}

static void
messages_above_the_level_are_dropped(void **state)
{
	static const char *const said[] = { "tester: e\n", "tester: w\n",
		"tester: i\n", "tester: d\n" };

	for (int level = LOG_AT_ERROR; level <= LOG_AT_DEBUG; level++) {
		capture_begin();
		log_set_level((enum log_level)level);
		log_error("e");
		log_warning("w");
		log_info("i");
		log_debug("d");
		capture_end();
		assert_int_equal(captured, level + 1);
		for (int i = 0; i <= level; i++)
			assert_string_equal(lines[i], said[i]);
	}
}

static void
message_is_cut_at_one_kibibyte_with_its_newline(void **state)
{
	const size_t fits = LINE_BYTES_MAX - strlen("tester: ") - 1;
	char text[4000];

	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	text[fits - 1] = 'y';
	say(text);
	assert_int_equal(strlen(lines[0]), LINE_BYTES_MAX);
	assert_memory_equal(lines[0], "tester: xxx", 11);
	assert_string_equal(lines[0] + LINE_BYTES_MAX - 3, "xy\n");
	text[fits] = '\0';
	say(text);
	assert_string_equal(lines[0] + LINE_BYTES_MAX - 3, "xy\n");
}

static void
bytes_that_are_not_printable_ascii_become_question_marks(void **state)
{
	for (int c = 1; c < 256; c++) {
		const char text[] = { 'a', (char)c, 'b', '\0' };
		char expected[] = "tester: a?b\n";

		if (c >= ' ' && c <= '~')
			expected[9] = (char)c;
		say(text);
		assert_string_equal(lines[0], expected);
	}
}

static void
errno_is_left_as_it_was(void **state)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC), after[4];

	assert_true(full >= 0);
	capture_begin();
	errno = EDOM;
	log_error("a message that is written");
	after[0] = errno;
	/* A character that the locale "C" does not have: EILSEQ. */
	log_error("%lc", (wint_t)0x4e00);
	after[1] = errno;
	dup2(full, STDERR_FILENO);
	log_error("one that stderr does not accept");
	after[2] = errno;
	log_set_level(LOG_AT_ERROR);
	log_debug("one that is dropped");
	after[3] = errno;
	capture_end();
	close(full);
	for (int i = 0; i < 4; i++)
		assert_int_equal(after[i], EDOM);
}

static void
message_goes_to_the_journal_alone_or_to_stderr_and_syslog(void **state)
{
	static const struct {
		int use_syslog;
		unsigned off; /* how far JOURNAL_STREAM is from our inode */
		const char *line;
		unsigned syslogged;
	} cases[] = {
		{ 1, 0, "<4>test: a?b\n", 0 },
		{ 1, 1, "test: a?b\n", 1 },
		{ 0, 0, "test: a?b\n", 0 },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		char stream[64] = "";
		struct stat st;

		capture_begin();
		if (fstat(STDERR_FILENO, &st) == 0)
			snprintf(stream, sizeof stream, "%llu:%llu",
			    (unsigned long long)st.st_dev,
			    (unsigned long long)st.st_ino + cases[i].off);
		setenv("JOURNAL_STREAM", stream, 1);
		log_open("test", cases[i].use_syslog);
		unsetenv("JOURNAL_STREAM");
		syslogged = 0;
		log_warning("a\nb");
		capture_end();
		assert_string_equal(lines[0], cases[i].line);
		assert_int_equal(syslogged, cases[i].syslogged);
	}
}

static void
message_while_a_bar_is_shown_clears_it_first(void **state)
{
	capture_begin();
	log_set_progress(true);
	log_error("over it");
	log_set_progress(false);
	capture_end();
	assert_string_equal(lines[0], "\r\033[Ktester: over it\n");
}

#define OPEN(test) cmocka_unit_test_setup(test, set_up)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		OPEN(before_the_program_has_a_name_it_is_plant_store),
		OPEN(message_is_one_write_of_program_text_and_newline),
		OPEN(messages_above_the_level_are_dropped),
		OPEN(message_is_cut_at_one_kibibyte_with_its_newline),
		OPEN(bytes_that_are_not_printable_ascii_become_question_marks),
		OPEN(errno_is_left_as_it_was),
		OPEN(message_goes_to_the_journal_alone_or_to_stderr_and_syslog),
		OPEN(message_while_a_bar_is_shown_clears_it_first),
	};

	return cmocka_run_group_tests(tests, set_up_group, NULL);
}
