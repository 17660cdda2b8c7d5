/* errors: see http/errors.h. */
#include "http/errors.h"

/* clang-format off */
static const struct {
	int number, status;
	const char *message;
} rows[HTTP_ERROR_COUNT] = {
#define X(name, number, status, message) \
	[HTTP_##name] = { number, status, message },
	HTTP_ERRORS(X)
#undef X
};
/* clang-format on */

int
errors_number(enum http_error error)
{
	return rows[error].number;
}

int
errors_status(enum http_error error)
{
	return rows[error].status;
}

const char *
errors_message(enum http_error error)
{
	return rows[error].message;
}
