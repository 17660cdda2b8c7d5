/* errors: see http/errors.h. */
#include "http/errors.h"

const struct errors_row http_errors[HTTP_ERROR_COUNT + 1] = {
	[HTTP_OK] = { 0, 200, "" },
	[HTTP_PREFLIGHT] = { 0, 204, "" },
#define X(name, number, status, message) \
	[HTTP_##name] = { number, status, message },
#include "errors.txt.h"
#undef X
};
