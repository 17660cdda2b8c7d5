/*
 * errors: the table keeps what its header promises of every row.
 */
#include "unit.h"

#include "http/errors.h"

/* Those of the next releases may come between them. */
TEST(released_numbers_keep_their_place_and_status)
{
	/* clang-format off */
	static const int released[][2] = {
		{ 1001, 401 }, { 1002, 401 }, { 1003, 401 }, { 1004, 401 },
		{ 1005, 401 }, { 1006, 401 }, { 2001, 404 }, { 2002, 405 },
		{ 3001, 400 }, { 3002, 400 }, { 3003, 400 }, { 3004, 400 },
		{ 3005, 400 }, { 3006, 400 }, { 3007, 413 }, { 3008, 400 },
		{ 3009, 400 }, { 3010, 400 }, { 4001, 400 }, { 4002, 400 },
		{ 4003, 400 }, { 4004, 400 }, { 4101, 400 }, { 4102, 400 },
		{ 4103, 400 }, { 4104, 400 }, { 4201, 400 }, { 4202, 400 },
		{ 4203, 400 }, { 4301, 400 }, { 4302, 400 }, { 5001, 409 },
		{ 5002, 503 }, { 5003, 503 }, { 5004, 503 }, { 5006, 503 },
		{ 5007, 503 }, { 5101, 500 }, { 5102, 500 },
	};
	/* clang-format on */
	size_t at = 0;

	for (int e = HTTP_OK + 1; e < HTTP_ERROR_COUNT; e++) {
		if (at == COUNT(released) ||
		    http_errors[e].number != released[at][0])
			continue;
		assert_int_equal(http_errors[e].status, released[at++][1]);
	}
	assert_int_equal(at, COUNT(released));
}

TEST(numbers_ascend_and_leave_out_what_was_withdrawn)
{
	int before = 1000;

	for (int e = HTTP_OK + 1; e < HTTP_ERROR_COUNT; e++) {
		int number = http_errors[e].number;

		assert_in_range(number, before + 1, 5999);
		assert_int_not_equal(number, 5005);
		before = number;
	}
}

TEST(every_message_is_printable_ascii)
{
	for (int e = HTTP_OK + 1; e < HTTP_ERROR_COUNT; e++) {
		const char *message = http_errors[e].message;

		assert_true(strlen(message) > 0);
		for (; *message != '\0'; message++)
			assert_in_range(*message, ' ', '~');
	}
}
