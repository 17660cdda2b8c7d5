/*
 * log: what a message looks like on stderr, and whether syslog gets it, too.
 * That of the machine which runs the tests gets none: it is replaced.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>
#include <wchar.h>

#include "ground/log.h"
#include "pure/timestamp.h"

#define LINE_BYTES_MAX 1024

/* What a process says that has not named itself yet. */
static char before_open[LINE_BYTES_MAX + 1];

static unsigned syslogged;
static char syslog_line[LINE_BYTES_MAX + 1];

/* As the C library's, plain and fortified, which clang has as a macro. */
#undef syslog
void __syslog_chk(int priority, int flag, const char *format, ...);
void __vsyslog_chk(
    int priority, int flag, const char *format, va_list arguments);

void
__vsyslog_chk(int priority, int flag, const char *format, va_list arguments)
{
	(void)priority;
	(void)flag;
	vsnprintf(syslog_line, sizeof syslog_line, format, arguments);
	syslogged++;
}

void
syslog(int priority, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	__vsyslog_chk(priority, 0, format, arguments);
	va_end(arguments);
}

void
__syslog_chk(int priority, int flag, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	__vsyslog_chk(priority, flag, format, arguments);
	va_end(arguments);
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

static void
set_up(char *unused)
{
	static bool opened;

	capture_begin();
	log_error("early");
	capture_end();
	if (!opened)
		memcpy(before_open, lines[0], sizeof before_open);
	opened = true;
	log_open("tester", 0);
	log_level_max = LOG_AT_DEBUG;
	log_json = false;
}

#define LOG_TEST(name) FIXTURE_TEST(name, char, unused, set_up, (void))

/* Log `text`, which arrives in lines[0]. */
static void
say(const char *text)
{
	capture_begin();
	log_error("%s", text);
	capture_end();
	assert_int_equal(captured, 1);
}

LOG_TEST(before_the_program_has_a_name_it_is_plant_store)
{
	assert_string_equal(before_open, "plant-store: early\n");
}

LOG_TEST(message_is_one_write_of_program_text_and_newline)
{
	capture_begin();
	log_error("%s: %d of %zu", "what", -1, (size_t)2);
	capture_end();
	assert_int_equal(captured, 1);
	assert_string_equal(lines[0], "tester: what: -1 of 2\n");
}

LOG_TEST(messages_above_the_level_are_dropped)
{
	static const char *const said[] = { "tester: e\n", "tester: w\n",
		"tester: i\n", "tester: d\n" };

	for (int level = LOG_AT_ERROR; level <= LOG_AT_DEBUG; level++) {
		capture_begin();
		log_level_max = (enum log_level)level;
		log_error("e");
		log_warning("w");
		log_info("i");
		log_at(LOG_AT_DEBUG, "d");
		capture_end();
		assert_int_equal(captured, level + 1);
		for (int i = 0; i <= level; i++)
			assert_string_equal(lines[i], said[i]);
	}
}

LOG_TEST(message_is_cut_at_one_kibibyte_with_its_newline)
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

LOG_TEST(bytes_that_are_not_printable_ascii_become_question_marks)
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

LOG_TEST(errno_is_left_as_it_was)
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
	log_level_max = LOG_AT_ERROR;
	log_at(LOG_AT_DEBUG, "one that is dropped");
	after[3] = errno;
	capture_end();
	close(full);
	for (int i = 0; i < 4; i++)
		assert_int_equal(after[i], EDOM);
}

/* Warn in a log whose JOURNAL_STREAM is `off` from stderr's inode. */
static void
warn_opened(int use_syslog, unsigned off, const char *text)
{
	char stream[64] = "";
	struct stat st;

	capture_begin();
	if (fstat(STDERR_FILENO, &st) == 0)
		snprintf(stream, sizeof stream, "%llu:%llu",
		    (unsigned long long)st.st_dev,
		    (unsigned long long)st.st_ino + off);
	setenv("JOURNAL_STREAM", stream, 1);
	log_open("test", use_syslog);
	unsetenv("JOURNAL_STREAM");
	syslogged = 0;
	log_warning("%s", text);
	capture_end();
}

LOG_TEST(message_goes_to_the_journal_alone_or_to_stderr_and_syslog)
{
	static const struct {
		int use_syslog;
		unsigned off;
		const char *line;
		unsigned syslogged;
	} cases[] = {
		{ 1, 0, "<4>test: a?b\n", 0 },
		{ 1, 1, "test: a?b\n", 1 },
		{ 0, 0, "test: a?b\n", 0 },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		warn_opened(cases[i].use_syslog, cases[i].off, "a\nb");
		assert_string_equal(lines[0], cases[i].line);
		assert_int_equal(syslogged, cases[i].syslogged);
	}
}

LOG_TEST(progress_is_cleared_before_a_message_and_at_its_end)
{
	capture_begin();
	log_set_progress(true);
	log_error("over it");
	log_set_progress(false);
	log_set_progress(false);
	capture_end();
	assert_string_equal(lines[0], "\r\033[Ktester: over it\n");
	assert_string_equal(lines[1], "\r\033[K");
	assert_int_equal(captured, 2);
}

/* The member's text of the line, which must be one object with its newline. */
static const char *
json_member(const char *line, const char *name)
{
	static char text[LINE_BYTES_MAX];
	struct json_tokener *tokener = json_tokener_new();
	struct json_object *object;
	size_t len = strlen(line);

	assert_in_range(len, 2, LINE_BYTES_MAX);
	assert_int_equal(line[len - 1], '\n');
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
	object = json_tokener_parse_ex(tokener, line, (int)len - 1);
	if (object == NULL)
		fail_msg("not JSON: %s", line);
	assert_int_equal(json_tokener_get_parse_end(tokener), len - 1);
	snprintf(text, sizeof text, "%s",
	    json_object_get_string(json_object_object_get(object, name)));
	json_object_put(object);
	json_tokener_free(tokener);
	return text;
}

LOG_TEST(json_line_is_one_object_for_every_byte)
{
	log_json = true;
	for (int c = 1; c < 256; c++) {
		const char text[] = { 'a', (char)c, 'b', '\0' };
		char expected[] = "a?b";

		if (c >= ' ' && c <= '~')
			expected[1] = (char)c;
		say(text);
		assert_string_equal(json_member(lines[0], "message"), expected);
		for (const char *at = lines[0]; at[1] != '\0'; at++)
			assert_in_range(*at, ' ', '~');
	}
	assert_string_equal(json_member(lines[0], "level"), "error");
	assert_string_equal(json_member(lines[0], "program"), "tester");
	/* pure/timestamp has the form. */
	assert_int_equal(
	    timestamp_is_canonical(json_member(lines[0], "time")), 1);
}

LOG_TEST(json_line_stays_whole_however_long_the_message)
{
	char text[2000];

	log_json = true;
	for (size_t len = 850; len < 1100; len++) {
		memset(text, len % 2 == 0 ? '"' : 'x', len);
		text[len] = '\0';
		say(text);
		assert_in_range(strlen(lines[0]), 900, LINE_BYTES_MAX);
		assert_in_range(
		    strspn(json_member(lines[0], "message"), "\"x"), 400, len);
	}
}

LOG_TEST(members_follow_the_message_in_text_and_are_members_in_json)
{
	static const char members[] =
	    ",\"status\":200,\"token\":\"a.b-c_d\",\"none\":\"\"";
	char long_message[2000];

	memset(long_message, 'x', sizeof long_message - 1);
	long_message[sizeof long_message - 1] = '\0';
	capture_begin();
	log_members(LOG_AT_DEBUG, "answered", members);
	log_members(LOG_AT_DEBUG, long_message, members);
	log_level_max = LOG_AT_INFO;
	log_members(LOG_AT_DEBUG, "dropped", members);
	capture_end();
	assert_int_equal(captured, 2);
	assert_string_equal(
	    lines[0], "tester: answered (status=200 token=a.b-c_d none=)\n");
	assert_in_range(strlen(lines[1]), 1000, LINE_BYTES_MAX);
	assert_contains(lines[1], "xxx (status=200 token=a.b-c_d none=)\n");
	log_json = true;
	capture_begin();
	log_members(LOG_AT_INFO, "answered", members);
	capture_end();
	assert_string_equal(json_member(lines[0], "message"), "answered");
	assert_string_equal(json_member(lines[0], "status"), "200");
	assert_string_equal(json_member(lines[0], "token"), "a.b-c_d");
	assert_string_equal(json_member(lines[0], "none"), "");
}

LOG_TEST(json_goes_to_syslog_and_to_the_journal_as_well)
{
	log_json = true;
	for (unsigned off = 2; off-- > 0;) {
		warn_opened(1, off, "a\"b");
		if (off == 0)
			assert_begins(lines[0], "<4>{");
		assert_string_equal(
		    json_member(strchr(lines[0], '{'), "message"), "a\"b");
		assert_int_equal(syslogged, off);
		strcat(syslog_line, "\n");
		assert_string_equal(
		    json_member(syslog_line, "level"), "warning");
	}
}

/* The last: it stays so. */
LOG_TEST(request_of_the_process_is_in_every_line)
{
	log_set_request("the-id");
	say("what");
	assert_string_equal(lines[0], "tester: what (request=the-id)\n");
	log_json = true;
	say("what");
	assert_string_equal(json_member(lines[0], "request"), "the-id");
}
