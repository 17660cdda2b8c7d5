/* errors: see http/errors.h. */
#include "http/errors.h"

/* clang-format off */
const struct errors_row errors_table[HTTP_ERROR_COUNT] = {
	[HTTP_OK] = { 0, 200, "" },
#define X(name, number, status, message) \
	[HTTP_##name] = { number, status, message },
	HTTP_ERRORS(X)
#undef X
};
/* clang-format on */
