/*
 * replay: which lines are taken, and how what follows the last good one is
 * judged.  A journal is made line by line, spoiled, and read.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc_shim.h"
#include "fault_shim.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "replay.h"
#include "store_fixture.h"

#define UUID "0123abcd-0123-4567-89ab-0123456789ab"
#define LINES_MAX 20000

/* A journal in the making. */
struct paper {
	int fd;
	uint32_t seed;
	struct position start, at;
	uint64_t begins[LINES_MAX + 1]; /* where each line does; the end */
	size_t lines;
};

static int
paper_set_up(void **state)
{
	struct paper *paper = calloc(1, sizeof(*paper));
	char header[RECORD_HEADER_LEN];

	if (paper == NULL)
		return -1;
	paper->fd = memfd_create("journal", MFD_CLOEXEC);
	paper->seed = record_seed(UUID);
	paper->start.end = RECORD_HEADER_LEN;
	paper->start.crc = record_header_encode(UUID, header);
	paper->at = paper->start;
	paper->begins[0] = RECORD_HEADER_LEN;
	*state = paper;
	shim_reset();
	return pwrite(paper->fd, header, sizeof(header), 0) ==
		       (ssize_t)sizeof(header)
		   ? 0
		   : -1;
}

static int
paper_tear_down(void **state)
{
	struct paper *paper = *state;

	shim_reset();
	close(paper->fd);
	free(paper);
	return 0;
}

static uint64_t
size_of(const struct paper *paper)
{
	return (uint64_t)lseek(paper->fd, 0, SEEK_END);
}

static void
put(const struct paper *paper, uint64_t offset, const void *bytes, size_t len)
{
	assert_int_equal(pwrite(paper->fd, bytes, len, (off_t)offset), len);
}

static void
append(const struct paper *paper, const void *bytes, size_t len)
{
	put(paper, size_of(paper), bytes, len);
}

/* `len` bytes of one kind behind the end. */
static void
append_fill(const struct paper *paper, char byte, size_t len)
{
	char *bytes = malloc(len);

	assert_non_null(bytes);
	memset(bytes, byte, len);
	append(paper, bytes, len);
	free(bytes);
}

/* Make the next line; of a plant whose line is about `len` long, or closing. */
static size_t
make_line(struct paper *paper, uint64_t safe, size_t len, char *buf)
{
	static char text[RECORD_LINE_MAX];
	char now[TIMESTAMP_LEN];
	struct record record = { .seq = paper->at.seq + 1,
		.safe = safe,
		.prev = paper->at.crc,
		.at = now };

	timestamp_print(0, now);
	if (len > 0) {
		int n = snprintf(text, sizeof(text), "{\"id\":%llu,\"name\":\"",
		    (unsigned long long)record.seq);
		memset(text + n, 'x', len);
		memcpy(text + n + len, "\"}", 2);
		record.by = "tester";
		record.by_len = 6;
		record.plant = text;
		record.plant_len = (size_t)n + len + 2;
	}
	len = record_encode(&record, paper->seed, buf);
	paper->at.last = paper->at.end;
	paper->at.end += len;
	paper->at.seq++;
	paper->at.crc = record.crc;
	paper->begins[++paper->lines] = paper->at.end;
	return len;
}

static void
add_long(struct paper *paper, uint64_t safe, size_t len)
{
	static char line[RECORD_LINE_MAX + RECORD_ENVELOPE_MAX];
	uint64_t offset = paper->at.end;

	put(paper, offset, line, make_line(paper, safe, len, line));
}

static void
add(struct paper *paper, uint64_t safe)
{
	add_long(paper, safe, 10);
}

static void
add_closing(struct paper *paper)
{
	add_long(paper, paper->at.end, 0);
}

/* Three batches of one plant each: every line's watermark is its own place. */
static void
add_three(struct paper *paper)
{
	for (int i = 0; i < 3; i++)
		add(paper, paper->at.end);
}

static void
flip(const struct paper *paper, uint64_t offset)
{
	char byte;

	assert_int_equal(pread(paper->fd, &byte, 1, (off_t)offset), 1);
	byte ^= 1;
	put(paper, offset, &byte, 1);
}

/* Take the bytes [from, to) out of the file. */
static void
take_out(const struct paper *paper, uint64_t from, uint64_t to)
{
	size_t len = (size_t)(size_of(paper) - to);
	char *rest = malloc(len + 1);

	assert_non_null(rest);
	assert_int_equal(pread(paper->fd, rest, len, (off_t)to), len);
	put(paper, from, rest, len);
	assert_int_equal(ftruncate(paper->fd, (off_t)(from + len)), 0);
	free(rest);
}

struct reading {
	size_t lines;
	enum replay_result result;
	enum replay_tail tail;
	struct position at;
	uint64_t tail_end;
	const char *reason;
};

static struct reading
read_all(const struct paper *paper)
{
	struct reading reading = { 0 };
	struct replay replay;
	struct record record;

	assert_int_equal(
	    replay_init(&replay, paper->fd, paper->seed, &paper->start), 0);
	while (
	    (reading.result = replay_next(&replay, &record)) == REPLAY_RECORD) {
		assert_int_equal(replay.at.last, paper->begins[reading.lines]);
		reading.lines++;
		assert_int_equal(replay.at.end, paper->begins[reading.lines]);
		assert_int_equal(record.seq, reading.lines);
	}
	reading.at = replay.at;
	reading.tail = replay_judge(&replay, &reading.tail_end);
	reading.reason = replay.reason;
	replay_done(&replay);
	return reading;
}

static void
expect(const struct paper *paper, size_t lines, enum replay_result result,
    enum replay_tail tail)
{
	struct reading reading = read_all(paper);

	assert_int_equal(reading.lines, lines);
	assert_int_equal(reading.result, result);
	assert_int_equal(reading.tail, tail);
	assert_int_equal(reading.at.end, paper->begins[lines]);
	if (result == REPLAY_BAD || tail == REPLAY_DAMAGED)
		assert_non_null(reading.reason);
}

/* Bad behind so many lines, and what follows shows that it was durable. */
static void
expect_damaged(const struct paper *paper, size_t lines)
{
	expect(paper, lines, REPLAY_BAD, REPLAY_DAMAGED);
}

static void
expect_torn(const struct paper *paper, size_t lines, uint64_t tail_end)
{
	expect(paper, lines, REPLAY_BAD, REPLAY_TORN);
	assert_int_equal(read_all(paper).tail_end, tail_end);
}

static void
an_empty_journal_ends_at_once(void **state)
{
	expect(*state, 0, REPLAY_END, REPLAY_CLEAN);
}

static void
one_line_is_read(void **state)
{
	struct paper *paper = *state;
	struct replay replay;
	struct record record;

	add(paper, 82);
	assert_int_equal(
	    replay_init(&replay, paper->fd, paper->seed, &paper->start), 0);
	assert_int_equal(replay_next(&replay, &record), REPLAY_RECORD);
	assert_int_equal(record.id, 1);
	assert_int_equal(record.safe, 82);
	assert_memory_equal(record.by, "tester", record.by_len);
	assert_int_equal(replay.at.crc, paper->at.crc);
	assert_int_equal(replay.at.end, paper->at.end);
	replay_done(&replay);
}

static void
many_lines_are_read_across_windows(void **state)
{
	struct paper *paper = *state;

	for (int i = 0; i < 10000; i++)
		add(paper, 82);
	assert_true(size_of(paper) > (size_t)1 << 20);
	expect(paper, 10000, REPLAY_END, REPLAY_CLEAN);
}

static void
a_line_may_begin_and_end_anywhere_in_a_window(void **state)
{
	struct paper *paper = *state;

	/* Lines of growing length put the window's edge at every place. */
	for (size_t len = 1; len < 1200; len++)
		add_long(paper, 82, len);
	expect(paper, 1199, REPLAY_END, REPLAY_CLEAN);
}

static void
lines_longer_than_a_window_are_read(void **state)
{
	struct paper *paper = *state;

	add(paper, 82);
	add_long(paper, 82, (size_t)700 << 10);
	add(paper, 82);
	add_long(paper, 82, ((size_t)1 << 20) - 40);
	add_closing(paper);
	expect(paper, 5, REPLAY_END, REPLAY_CLEAN);
}

static void
reading_on_begins_at_any_line(void **state)
{
	struct paper *paper = *state;
	struct position middle;
	struct replay replay;
	struct record record;

	add_three(paper);
	middle = paper->at;
	add(paper, 82);
	add_closing(paper);
	assert_int_equal(
	    replay_init(&replay, paper->fd, paper->seed, &middle), 0);
	assert_int_equal(replay_next(&replay, &record), REPLAY_RECORD);
	assert_int_equal(record.seq, 4);
	assert_int_equal(replay_next(&replay, &record), REPLAY_RECORD);
	assert_null(record.plant);
	assert_int_equal(replay_next(&replay, &record), REPLAY_END);
	replay_done(&replay);
}

static void
a_line_written_after_the_end_was_reached_is_read_next(void **state)
{
	struct paper *paper = *state;
	struct replay replay;
	struct record record;

	assert_int_equal(
	    replay_init(&replay, paper->fd, paper->seed, &paper->start), 0);
	assert_int_equal(replay_next(&replay, &record), REPLAY_END);
	add(paper, 82);
	assert_int_equal(replay_next(&replay, &record), REPLAY_RECORD);
	assert_int_equal(replay_next(&replay, &record), REPLAY_END);
	replay_done(&replay);
}

static void
the_end_of_a_batch_cut_anywhere_is_torn(void **state)
{
	struct paper *paper = *state;
	uint64_t size;

	add_three(paper);
	size = size_of(paper);
	for (uint64_t cut = size - 1; cut > paper->begins[2]; cut--) {
		assert_int_equal(ftruncate(paper->fd, (off_t)cut), 0);
		expect_torn(paper, 2, cut);
	}
	assert_int_equal(ftruncate(paper->fd, (off_t)paper->begins[2]), 0);
	expect(paper, 2, REPLAY_END, REPLAY_CLEAN);
}

static void
a_bad_checksum_at_the_end_is_torn(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	flip(paper, paper->begins[2] + 30);
	expect_torn(paper, 2, size_of(paper) - 1);
}

static void
a_flipped_bit_below_a_later_watermark_is_damage(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	add_closing(paper);
	/* Every bit but the newline's neighbours: see the next tests. */
	for (uint64_t at = paper->begins[0]; at < paper->begins[3]; at++) {
		size_t line = at < paper->begins[1]   ? 0
			      : at < paper->begins[2] ? 1
						      : 2;
		flip(paper, at);
		expect(paper, line, REPLAY_BAD, REPLAY_DAMAGED);
		flip(paper, at);
	}
	expect(paper, 4, REPLAY_END, REPLAY_CLEAN);
}

static void
a_lost_newline_before_the_only_witness_is_damage(void **state)
{
	struct paper *paper = *state;

	add(paper, paper->at.end);
	add_closing(paper);
	put(paper, paper->begins[1] - 1, "x", 1);
	expect_damaged(paper, 0);
}

static void
zeros_up_to_the_only_witness_are_damage(void **state)
{
	static const char zeros[64];
	struct paper *paper = *state;

	add(paper, paper->at.end);
	add_closing(paper);
	put(paper, paper->begins[1] - sizeof(zeros), zeros, sizeof(zeros));
	expect_damaged(paper, 0);
}

static void
a_witness_behind_bytes_longer_than_any_line_is_found(void **state)
{
	struct paper *paper = *state;
	char *zeros = calloc(1, (size_t)3 << 20);

	assert_non_null(zeros);
	for (int i = 0; i < 3; i++)
		add_long(paper, paper->at.end, (size_t)1000 << 10);
	add_closing(paper);
	put(paper, paper->begins[0], zeros,
	    (size_t)(paper->begins[3] - paper->begins[0]));
	free(zeros);
	expect_damaged(paper, 0);
}

static void
zeros_at_the_end_are_torn(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	append_fill(paper, '\0', 100000);
	expect_torn(paper, 3, size_of(paper));
}

static void
a_whole_batch_and_its_room_as_zeros_is_torn(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	append_fill(paper, '\0', JOURNAL_APPEND_MAX + JOURNAL_ROOM_BYTES);
	expect_torn(paper, 3, size_of(paper));
}

static void
a_whole_batch_of_which_the_first_line_is_missing_is_torn(void **state)
{
	struct paper *paper = *state;
	uint64_t safe;

	add_three(paper);
	safe = paper->at.end;
	add(paper, safe);
	for (int i = 0; i < 100; i++)
		add(paper, safe);
	flip(paper, paper->begins[3] + 5);
	expect_torn(paper, 3, size_of(paper) - 1);
}

static void
a_tail_longer_than_a_batch_is_damage(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	append_fill(paper, 'x', JOURNAL_TAIL_MAX + 1);
	expect_damaged(paper, 3);
}

static void
a_tail_of_junk_as_long_as_a_batch_is_torn(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	append_fill(paper, 'x', JOURNAL_TAIL_MAX);
	expect_torn(paper, 3, size_of(paper));
}

static void
a_deleted_line_is_damage(void **state)
{
	for (size_t i = 0; i < 3; i++) {
		struct paper *paper = *state;

		add_three(paper);
		add_closing(paper);
		take_out(paper, paper->begins[i], paper->begins[i + 1]);
		expect_damaged(paper, i);
		assert_int_equal(paper_tear_down(state), 0);
		assert_int_equal(paper_set_up(state), 0);
	}
}

static void
a_line_deleted_from_the_middle_of_a_batch_is_damage(void **state)
{
	struct paper *paper = *state;

	for (int i = 0; i < 3; i++)
		add(paper, 82);
	add_closing(paper);
	take_out(paper, paper->begins[1], paper->begins[2]);
	expect_damaged(paper, 1);
}

static void
a_line_that_stands_twice_is_refused(void **state)
{
	struct paper *paper = *state;
	char line[512];
	size_t len;

	add_three(paper);
	len = (size_t)(paper->begins[3] - paper->begins[2]);
	assert_int_equal(
	    pread(paper->fd, line, len, (off_t)paper->begins[2]), len);
	append(paper, line, len);
	expect(paper, 3, REPLAY_BAD, REPLAY_TORN);
}

static void
swapped_lines_are_damage(void **state)
{
	struct paper *paper = *state;
	char lines[512];
	size_t len, half;

	add_three(paper);
	add_closing(paper);
	half = (size_t)(paper->begins[1] - paper->begins[0]);
	len = (size_t)(paper->begins[2] - paper->begins[0]);
	assert_int_equal(pread(paper->fd, lines, len, RECORD_HEADER_LEN), len);
	put(paper, RECORD_HEADER_LEN, lines + half, len - half);
	put(paper, RECORD_HEADER_LEN + len - half, lines, half);
	expect_damaged(paper, 0);
}

static void
a_line_that_does_not_follow_in_number_is_bad(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	paper->at.seq++;
	add(paper, 82);
	expect(paper, 3, REPLAY_BAD, REPLAY_TORN);
	assert_string_equal(
	    read_all(paper).reason, "does not follow the line before");
}

static void
a_line_that_names_another_line_before_is_bad(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	paper->at.crc ^= 1;
	add(paper, 82);
	expect(paper, 3, REPLAY_BAD, REPLAY_TORN);
}

static void
a_watermark_above_its_own_place_is_damage(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	add(paper, paper->at.end + 1);
	expect_damaged(paper, 3);
}

static void
a_watermark_at_its_own_place_is_good(void **state)
{
	struct paper *paper = *state;

	add(paper, paper->at.end);
	expect(paper, 1, REPLAY_END, REPLAY_CLEAN);
}

static void
a_line_of_another_store_is_bad(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	paper->seed ^= 1;
	add(paper, 82);
	paper->seed ^= 1;
	expect(paper, 3, REPLAY_BAD, REPLAY_TORN);
	assert_string_equal(read_all(paper).reason, "wrong checksum");
}

static void
blank_lines_at_the_end_are_room(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	append_fill(paper, '\n', JOURNAL_ROOM_BYTES + 3);
	expect(paper, 3, REPLAY_END, REPLAY_CLEAN);
	assert_int_equal(read_all(paper).tail_end, paper->at.end);
}

static void
junk_behind_blank_lines_is_torn(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	append_fill(paper, '\n', 1000);
	append(paper, "junk\n\n\n", 7);
	expect(paper, 3, REPLAY_END, REPLAY_TORN);
	assert_int_equal(read_all(paper).tail_end, paper->at.end + 1004);
}

static void
a_durable_line_turned_to_blank_lines_is_damage(void **state)
{
	struct paper *paper = *state;
	char blank[512];

	memset(blank, '\n', sizeof(blank));
	add_three(paper);
	add_closing(paper);
	put(paper, paper->begins[2], blank,
	    (size_t)(paper->begins[3] - paper->begins[2]));
	expect(paper, 2, REPLAY_END, REPLAY_DAMAGED);
}

static void
a_valid_line_behind_a_torn_one_of_the_same_batch_is_torn(void **state)
{
	struct paper *paper = *state;
	uint64_t safe;

	add_three(paper);
	safe = paper->at.end;
	for (int i = 0; i < 3; i++)
		add(paper, safe);
	flip(paper, paper->begins[4] + 20);
	expect_torn(paper, 4, size_of(paper) - 1);
}

static void
a_line_within_a_plants_name_is_no_witness(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	append(paper, "x{\"seq\":9,\"safe\":4096,\"prev\":\"00000000\"}\n", 40);
	expect_torn(paper, 3, size_of(paper));
}

static void
a_read_error_is_told(void **state)
{
	struct paper *paper = *state;
	struct replay replay;
	struct record record;
	uint64_t tail_end;

	add_three(paper);
	assert_int_equal(
	    replay_init(&replay, paper->fd, paper->seed, &paper->start), 0);
	shim_fail(SHIM_PREAD, NULL, 1, 2, EIO);
	assert_int_equal(replay_next(&replay, &record), REPLAY_ERROR);
	assert_int_equal(errno, EIO);
	assert_int_equal(replay_judge(&replay, &tail_end), REPLAY_TAIL_ERROR);
	assert_int_equal(errno, EIO);
	replay_done(&replay);
}

static void
an_interrupted_read_is_taken_up_again(void **state)
{
	struct paper *paper = *state;

	add_three(paper);
	shim_fail(SHIM_PREAD, NULL, 1, 1, EINTR);
	expect(paper, 3, REPLAY_END, REPLAY_CLEAN);
}

static void
no_memory_for_a_window_is_told(void **state)
{
	struct paper *paper = *state;
	struct replay replay;
	int result;

	if (!alloc_can_fail())
		skip();
	alloc_fail(1, 1);
	result = replay_init(&replay, paper->fd, paper->seed, &paper->start);
	assert_true(alloc_reset());
	assert_int_equal(result, -1);
	replay_done(&replay);
}

static void
no_memory_for_a_longer_line_is_told_and_the_line_read_later(void **state)
{
	struct paper *paper = *state;
	enum replay_result result;
	struct replay replay;
	struct record record;

	if (!alloc_can_fail())
		skip();
	add_long(paper, 82, (size_t)700 << 10);
	assert_int_equal(
	    replay_init(&replay, paper->fd, paper->seed, &paper->start), 0);
	alloc_fail(2, 1); /* the window is doubled twice */
	result = replay_next(&replay, &record);
	assert_true(alloc_reset());
	assert_int_equal(result, REPLAY_ERROR);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(replay_next(&replay, &record), REPLAY_RECORD);
	assert_int_equal(replay_next(&replay, &record), REPLAY_END);
	replay_done(&replay);
}

#define CASE(function) \
	cmocka_unit_test_setup_teardown(function, paper_set_up, paper_tear_down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_empty_journal_ends_at_once),
		CASE(one_line_is_read),
		CASE(many_lines_are_read_across_windows),
		CASE(a_line_may_begin_and_end_anywhere_in_a_window),
		CASE(lines_longer_than_a_window_are_read),
		CASE(reading_on_begins_at_any_line),
		CASE(a_line_written_after_the_end_was_reached_is_read_next),
		CASE(the_end_of_a_batch_cut_anywhere_is_torn),
		CASE(a_bad_checksum_at_the_end_is_torn),
		CASE(a_flipped_bit_below_a_later_watermark_is_damage),
		CASE(a_lost_newline_before_the_only_witness_is_damage),
		CASE(zeros_up_to_the_only_witness_are_damage),
		CASE(a_witness_behind_bytes_longer_than_any_line_is_found),
		CASE(zeros_at_the_end_are_torn),
		CASE(a_whole_batch_and_its_room_as_zeros_is_torn),
		CASE(a_whole_batch_of_which_the_first_line_is_missing_is_torn),
		CASE(a_tail_longer_than_a_batch_is_damage),
		CASE(a_tail_of_junk_as_long_as_a_batch_is_torn),
		CASE(a_deleted_line_is_damage),
		CASE(a_line_deleted_from_the_middle_of_a_batch_is_damage),
		CASE(a_line_that_stands_twice_is_refused),
		CASE(swapped_lines_are_damage),
		CASE(a_line_that_does_not_follow_in_number_is_bad),
		CASE(a_line_that_names_another_line_before_is_bad),
		CASE(a_watermark_above_its_own_place_is_damage),
		CASE(a_watermark_at_its_own_place_is_good),
		CASE(a_line_of_another_store_is_bad),
		CASE(blank_lines_at_the_end_are_room),
		CASE(junk_behind_blank_lines_is_torn),
		CASE(a_durable_line_turned_to_blank_lines_is_damage),
		CASE(a_valid_line_behind_a_torn_one_of_the_same_batch_is_torn),
		CASE(a_line_within_a_plants_name_is_no_witness),
		CASE(a_read_error_is_told),
		CASE(an_interrupted_read_is_taken_up_again),
		CASE(no_memory_for_a_window_is_told),
		CASE(
		    no_memory_for_a_longer_line_is_told_and_the_line_read_later),
	};

	return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
