/* seam: selects a reader's engine.  See reader/reader.h. */
#include "reader/reader.h"
#include "store/engine.h"
#include "journal_reader.h"

const struct reader_engine *
reader_calls(const struct store_reader *reader)
{
	return *(const struct reader_engine *const *)(const void *)reader;
}

struct store_reader *
store_reader_open(
    const struct store_options *options, const char *since, enum fault *fault)
{
	const struct reader_engine *engine =
	    options->database == NULL
		? &journal_reader
		: engine_symbol(READER_ENGINE_SYMBOL, fault);

	return engine != NULL ? engine->open(options, since, fault) : NULL;
}

void
store_reader_close(struct store_reader *reader)
{
	if (reader != NULL)
		reader_calls(reader)->close(reader);
}
