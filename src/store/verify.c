/*
 * verify: see store/verify.h.
 */
#include "store/verify.h"

#include <sysexits.h>

#include "reader_state.h"

int
verify_store(
    const char *path, const struct watch *watch, struct verify_report *report)
{
	struct record record;
	enum reader_result result;
	int status;
	struct reader *reader = reader_open(path, watch, &status);

	if (reader == NULL)
		return status;
	do
		result = reader_next(reader, &record);
	while (result == READER_PLANT);
	if (result == READER_FAILED)
		status = reader_status(reader);
	else
		status = result == READER_STOPPED ? VERIFY_STOPPED : EX_OK;
	reader_report(reader, &report->journal);
	reader_close(reader);
	return status;
}
