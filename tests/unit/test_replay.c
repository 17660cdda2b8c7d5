/*
 * test_replay: which lines are read, how what follows the last good one is
 * judged, and what is found behind damage.  A journal is made line by line,
 * spoiled, and read.
 */
#include "store_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault_shim.h"
#include "pure/record.h"
#include "pure/timestamp.h"
#include "store/replay.h"
#include "sanitized.h"

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

static void
paper_set_up(struct paper *paper)
{
	char header[RECORD_HEADER_LEN];

	memset(paper, 0, sizeof(*paper));
	paper->fd = memfd_create("journal", MFD_CLOEXEC);
	paper->seed = record_seed(UUID);
	paper->start.end = RECORD_HEADER_LEN;
	paper->start.crc = record_header_encode(UUID, header);
	paper->at = paper->start;
	paper->begins[0] = RECORD_HEADER_LEN;
	shim_reset();
	assert_int_equal(
	    pwrite(paper->fd, header, sizeof(header), 0), sizeof(header));
}

static void
paper_tear_down(struct paper *paper)
{
	shim_reset();
	close(paper->fd);
}

#define REPLAY_TEST(name) \
	FIXTURE_TEST(name, struct paper, paper, paper_set_up, paper_tear_down)

/* Begin with an empty journal again. */
static void
renew(struct paper *paper)
{
	paper_tear_down(paper);
	paper_set_up(paper);
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
	char *bytes = memory(len);

	memset(bytes, byte, len);
	append(paper, bytes, len);
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
	char *rest = memory(len + 1);

	assert_int_equal(pread(paper->fd, rest, len, (off_t)to), len);
	put(paper, from, rest, len);
	assert_int_equal(ftruncate(paper->fd, (off_t)(from + len)), 0);
}

static struct replay
replay_from(const struct paper *paper, const struct position *at)
{
	struct replay replay;

	replay_init(&replay, paper->fd, paper->seed, at);
	return replay;
}

enum replay_tail { REPLAY_CLEAN, REPLAY_TORN, REPLAY_DAMAGED };

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
	struct record record;

	struct replay replay = replay_from(paper, &paper->start);
	while (
	    (reading.result = replay_next(&replay, &record)) == REPLAY_RECORD) {
		assert_int_equal(replay.at.last, paper->begins[reading.lines]);
		reading.lines++;
		assert_int_equal(replay.at.end, paper->begins[reading.lines]);
		assert_int_equal(record.seq, reading.lines);
	}
	reading.at = replay.at;
	enum replay_result end = replay_finish(&replay, &reading.tail_end);
	assert_int_not_equal(end, REPLAY_ERROR);
	reading.tail = end == REPLAY_BAD                  ? REPLAY_DAMAGED
		       : reading.tail_end > replay.at.end ? REPLAY_TORN
							  : REPLAY_CLEAN;
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

REPLAY_TEST(every_line_is_given_as_it_was_written)
{
	struct record record;

	expect(paper, 0, REPLAY_END, REPLAY_CLEAN);
	/* Its watermark may be its own place. */
	add(paper, paper->at.end);
	add_closing(paper);
	struct replay replay = replay_from(paper, &paper->start);
	assert_int_equal(replay_next(&replay, &record), REPLAY_RECORD);
	assert_int_equal(record.id, 1);
	assert_int_equal(record.safe, RECORD_HEADER_LEN);
	assert_memory_equal(record.by, "tester", record.by_len);
	assert_false(replay.at.closing);
	assert_int_equal(replay_next(&replay, &record), REPLAY_RECORD);
	assert_null(record.plant);
	assert_true(replay.at.closing);
	assert_int_equal(replay.at.crc, paper->at.crc);
	assert_int_equal(replay.at.end, paper->at.end);
	replay_done(&replay);
	expect(paper, 2, REPLAY_END, REPLAY_CLEAN);
}

REPLAY_TEST(lines_may_lie_anywhere_in_a_window_and_be_longer)
{
	for (int i = 0; i < 8000; i++)
		add(paper, 82);
	/* Growing lengths put the window's edge at every place. */
	for (size_t len = 1; len < 1200; len++)
		add_long(paper, 82, len);
	add_long(paper, 82, (size_t)700 << 10);
	add(paper, 82);
	add_long(paper, 82, ((size_t)1 << 20) - 40);
	add_closing(paper);
	expect(paper, paper->lines, REPLAY_END, REPLAY_CLEAN);
}

REPLAY_TEST(line_written_after_the_end_was_reached_is_read_next)
{
	struct record record;

	/* It begins at any line. */
	add_three(paper);
	struct replay replay = replay_from(paper, &paper->at);
	assert_int_equal(replay_next(&replay, &record), REPLAY_END);
	add(paper, 82);
	assert_int_equal(replay_next(&replay, &record), REPLAY_RECORD);
	assert_int_equal(replay_next(&replay, &record), REPLAY_END);
	replay_done(&replay);
}

REPLAY_TEST(the_end_of_a_batch_cut_anywhere_is_torn)
{
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

REPLAY_TEST(what_stands_before_the_only_witness_is_damage)
{
	static const char zeros[64];

	add(paper, paper->at.end);
	add_closing(paper);
	/* The newline before it, and then more. */
	put(paper, paper->begins[1] - 1, "x", 1);
	expect_damaged(paper, 0);
	put(paper, paper->begins[1] - sizeof(zeros), zeros, sizeof(zeros));
	expect_damaged(paper, 0);
}

REPLAY_TEST(witness_behind_bytes_longer_than_any_line_is_found)
{
	char *zeros = memory((size_t)3 << 20);

	for (int i = 0; i < 3; i++)
		add_long(paper, paper->at.end, (size_t)1000 << 10);
	add_closing(paper);
	put(paper, paper->begins[0], zeros,
	    (size_t)(paper->begins[3] - paper->begins[0]));
	expect_damaged(paper, 0);
}

REPLAY_TEST(tail_that_is_no_longer_than_a_batch_is_torn)
{
	static const struct {
		char byte;
		size_t len;
	} tails[] = { { '\0', 1 }, { '\0', 100000 }, { '\0', JOURNAL_TAIL_MAX },
		{ 'x', JOURNAL_TAIL_MAX } };

	add_three(paper);
	for (size_t i = 0; i < COUNT(tails); i++) {
		append_fill(paper, tails[i].byte, tails[i].len);
		expect_torn(paper, 3, size_of(paper));
		if (tails[i].len == JOURNAL_TAIL_MAX) {
			append_fill(paper, tails[i].byte, 1);
			expect_damaged(paper, 3);
		}
		assert_int_equal(ftruncate(paper->fd, (off_t)paper->at.end), 0);
	}
	flip(paper, paper->begins[2] + 30);
	expect_torn(paper, 2, size_of(paper) - 1);
}

REPLAY_TEST(line_behind_the_last_is_refused)
{
	char line[512];
	size_t len;

	/* The last one again; one within a plant's name. */
	add_three(paper);
	len = (size_t)(paper->begins[3] - paper->begins[2]);
	assert_int_equal(
	    pread(paper->fd, line, len, (off_t)paper->begins[2]), len);
	append(paper, line, len);
	expect(paper, 3, REPLAY_BAD, REPLAY_TORN);
	assert_int_equal(ftruncate(paper->fd, (off_t)paper->at.end), 0);
	append(paper, "x{\"seq\":9,\"safe\":4096,\"prev\":\"00000000\"}\n", 40);
	expect_torn(paper, 3, size_of(paper));
	/* A watermark above its own place is damage. */
	add(paper, paper->at.end + 1);
	expect_damaged(paper, 3);
}

REPLAY_TEST(line_that_does_not_follow_is_refused)
{
	static const char follow[] = "does not follow the line before";

	/* By its number, by the line that it names, by its store. */
	for (int i = 0; i < 3; i++) {
		renew(paper);
		add_three(paper);
		paper->at.seq += i == 0;
		paper->at.crc ^= i == 1;
		paper->seed ^= i == 2;
		add(paper, 82);
		paper->seed ^= i == 2;
		expect(paper, 3, REPLAY_BAD, REPLAY_TORN);
		assert_string_equal(
		    read_all(paper).reason, i == 2 ? "wrong checksum" : follow);
	}
}

REPLAY_TEST(blank_lines_are_room_and_junk_behind_them_is_torn)
{
	uint64_t end;

	add_three(paper);
	append_fill(paper, '\n', JOURNAL_ROOM_BYTES + 3);
	expect(paper, 3, REPLAY_END, REPLAY_CLEAN);
	assert_int_equal(read_all(paper).tail_end, paper->at.end);
	append(paper, "junk", 4);
	end = size_of(paper);
	append(paper, "\n\n\n", 3);
	expect(paper, 3, REPLAY_END, REPLAY_TORN);
	assert_int_equal(read_all(paper).tail_end, end);
}

REPLAY_TEST(durable_line_turned_to_blank_lines_is_damage)
{
	char blank[512];

	memset(blank, '\n', sizeof(blank));
	add_three(paper);
	add_closing(paper);
	put(paper, paper->begins[2], blank,
	    (size_t)(paper->begins[3] - paper->begins[2]));
	expect(paper, 2, REPLAY_END, REPLAY_DAMAGED);
}

REPLAY_TEST(valid_line_behind_a_torn_one_of_the_same_batch_is_torn)
{
	uint64_t safe;

	add_three(paper);
	safe = paper->at.end;
	for (int i = 0; i < 100; i++)
		add(paper, safe);
	flip(paper, paper->begins[4] + 20);
	expect_torn(paper, 4, size_of(paper) - 1);
	/* The same where the batch's first line is the damaged one. */
	flip(paper, paper->begins[3] + 5);
	expect_torn(paper, 3, size_of(paper) - 1);
}

REPLAY_TEST(read_error_is_reported_but_no_signal)
{
	struct record record;
	uint64_t tail_end;

	add_three(paper);
	shim_fail(SHIM_PREAD, NULL, 1, 1, EINTR);
	expect(paper, 3, REPLAY_END, REPLAY_CLEAN);
	struct replay replay = replay_from(paper, &paper->start);
	shim_fail(SHIM_PREAD, NULL, 1, 2, EIO);
	assert_int_equal(replay_next(&replay, &record), REPLAY_ERROR);
	assert_int_equal(errno, EIO);
	assert_int_equal(replay_finish(&replay, &tail_end), REPLAY_ERROR);
	assert_int_equal(replay.error, EIO);
	replay_done(&replay);
}

#if ALLOC_CAN_FAIL
REPLAY_TEST(without_memory_it_fails_and_the_line_is_read_later)
{
	enum replay_result result;
	struct replay replay;
	struct record record;

	add_long(paper, 82, (size_t)700 << 10);
	replay = replay_from(paper, &paper->start);
	/* The window is allocated, and doubled twice. */
	for (unsigned nth = 1; nth <= 2; nth++) {
		alloc_fail(nth, 1);
		result = replay_next(&replay, &record);
		assert_true(alloc_reset());
		assert_int_equal(result, REPLAY_ERROR);
		assert_int_equal(replay.error, ENOMEM);
	}
	assert_int_equal(replay_next(&replay, &record), REPLAY_RECORD);
	assert_int_equal(replay_next(&replay, &record), REPLAY_END);
	replay_done(&replay);
}
#endif

struct found {
	size_t records, lost;
	uint64_t lost_bytes;
	const char *reason; /* of the first */
};

static struct found
salvage(const struct paper *paper)
{
	const struct position begin = { .end = RECORD_HEADER_LEN };
	struct found found = { 0 };
	struct replay replay = replay_from(paper, &begin);
	struct record record;
	struct replay_lost lost;
	enum replay_result result;
	uint64_t before = begin.end;

	do {
		result = replay_salvage(&replay, &record, &lost);
		assert_int_equal(lost.begin, before);
		assert_true(lost.end >= lost.begin);
		if (lost.end > lost.begin && found.lost++ == 0)
			found.reason = lost.reason;
		found.lost_bytes += lost.end - lost.begin;
		if (result != REPLAY_RECORD)
			break;
		assert_int_equal(replay.at.last, lost.end);
		before = replay.at.end;
		found.records++;
	} while (true);
	assert_int_equal(result, REPLAY_END);
	replay_done(&replay);
	return found;
}

static void
expect_found(const struct paper *paper, size_t records, uint64_t lost_bytes)
{
	struct found found = salvage(paper);

	assert_int_equal(found.records, records);
	assert_int_equal(found.lost_bytes, lost_bytes);
	if (lost_bytes > 0)
		assert_non_null(found.reason);
}

REPLAY_TEST(records_are_found_at_any_distance_of_the_damage)
{
	add_three(paper);
	expect_found(paper, 3, 0);
	append_fill(paper, '\n', 1000);
	expect_found(paper, 3, 0);
	for (uint64_t at = paper->begins[1]; at < paper->begins[2]; at++) {
		uint64_t len = paper->begins[2] - paper->begins[1];

		flip(paper, at);
		expect_found(paper, 2, len);
		flip(paper, at);
	}
	/* Out of its place it is still a record. */
	take_out(paper, paper->begins[0], paper->begins[1]);
	expect_found(paper, 2, 0);
}

REPLAY_TEST(records_are_found_wherever_the_window_ends)
{
	for (int i = 0; i < 13; i++) {
		add_long(paper, 82, 999983);
		append(paper, "garbage\n", 8);
		paper->at.end += 8;
	}
	struct found found = salvage(paper);
	assert_int_equal(found.records, 13);
	assert_int_equal(found.lost, 13);
	/* But for the newline of the last. */
	assert_int_equal(found.lost_bytes, 13 * 8 - 1);
}

REPLAY_TEST(records_behind_bytes_longer_than_any_line_are_found)
{
	static const char begin[] = "{\"seq\":";
	static const char end[] = ",\"crc\":\"00000000\"}";
	const size_t junk = 6 * RECORD_LINE_MAX;

	append_fill(paper, 'x', junk);
	paper->at.end += junk;
	add(paper, 82);
	expect_found(paper, 1, junk);
	/* It begins and ends like one, as long as one, without a newline. */
	put(paper, RECORD_HEADER_LEN, begin, strlen(begin));
	put(paper, RECORD_HEADER_LEN + RECORD_LINE_MAX - strlen(end), end,
	    strlen(end));
	expect_found(paper, 1, junk);
}

REPLAY_TEST(record_that_a_window_cuts_is_found_behind_bytes_without_a_line)
{
	/* The first window that is longer than any line. */
	for (size_t cut = 1; cut < 150; cut += 37) {
		const size_t junk = ((size_t)2 << 20) - cut;

		renew(paper);
		append_fill(paper, 'x', junk);
		paper->at.end += junk;
		add(paper, 82);
		expect_found(paper, 1, junk);
	}
}

/* To try each beginning to the end of the file would take hours. */
REPLAY_TEST(many_beginnings_are_tried_once_each)
{
	static const char begin[] = "{\"seq\":{\"seq\":{\"seq\":{\"seq\":";
	/* A sanitizer checks all of what memmem() may read. */
	const size_t len = (strlen(begin)) * (SANITIZED ? 2500 : 750000);
	char *bytes = memory(len);

	for (size_t i = 0; i < len; i += strlen(begin))
		memcpy(bytes + i, begin, strlen(begin));
	append(paper, bytes, len);
	expect_found(paper, 0, len);
	assert_int_equal(salvage(paper).lost, 1);
}

REPLAY_TEST(block_that_cannot_be_read_costs_only_its_records)
{
	for (int i = 0; i < 100; i++)
		add(paper, 82);
	shim_fail(SHIM_PREAD, NULL, 1, 1, EIO);
	struct found found = salvage(paper);
	assert_string_equal(found.reason, strerror(EIO));
	assert_int_equal(found.lost, 1);
	assert_in_range(found.lost_bytes, 4096 - 82, 4096 - 82 + 300);
	assert_in_range(found.records, 50, 99);
	/* All of them. */
	shim_fail(SHIM_PREAD, NULL, 1, 10000, EIO);
	expect_found(paper, 0, size_of(paper) - RECORD_HEADER_LEN);
}
