/*
 * errors: the table of the header, made readable by error.  What a number
 * looks like in an answer is response's business.
 */
#include "http/errors.h"

#include <assert.h>

struct row {
	int number;
	int status;
	const char *message;
};

/* clang-format off */
static const struct row rows[HTTP_ERROR_COUNT] = {
#define X(name, number, status, message) \
	[HTTP_##name] = { number, status, message },
	HTTP_ERRORS(X)
#undef X
};
/* clang-format on */

static const struct row *
row_of(enum http_error error)
{
	assert(error > HTTP_OK && error < HTTP_ERROR_COUNT);
	return &rows[error];
}

int
errors_number(enum http_error error)
{
	return row_of(error)->number;
}

int
errors_status(enum http_error error)
{
	return row_of(error)->status;
}

const char *
errors_message(enum http_error error)
{
	return row_of(error)->message;
}
