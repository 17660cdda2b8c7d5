/* seam: finds the engine of a reader, to which each call goes. */
#include "reader/reader.h"
#include "store/engine.h"
#include "journal_reader.h"

static const struct reader_engine *
engine_of(const struct store_reader *reader)
{
	return *(const struct reader_engine *const *)(const void *)reader;
}

struct store_reader *
store_reader_open(
    const struct store_options *options, const char *since, enum fault *fault)
{
	const struct reader_engine *engine =
	    options->database == NULL
		? &reader_file
		: engine_symbol(READER_ENGINE_SYMBOL, fault);

	return engine != NULL ? engine->open(options, since, fault) : NULL;
}

bool
store_reader_next(struct store_reader *reader, struct record *record)
{
	return engine_of(reader)->next(reader, record);
}

enum fault
store_reader_end(struct store_reader *reader, char where[STORE_WHERE_MAX])
{
	return engine_of(reader)->end(reader, where);
}

enum fault
store_reader_find(
    struct store_reader *reader, int64_t id, struct record *record)
{
	return engine_of(reader)->find(reader, id, record);
}

enum fault
store_reader_figures(
    struct store_reader *reader, store_figure *each, void *context)
{
	return engine_of(reader)->figures(reader, each, context);
}

void
store_reader_close(struct store_reader *reader)
{
	if (reader != NULL)
		engine_of(reader)->close(reader);
}

enum fault
store_reader_resume(struct store_reader *reader, const char *cursor)
{
	return engine_of(reader)->resume(reader, cursor);
}

void
store_reader_cursor(
    struct store_reader *reader, bool before, char cursor[STORE_CURSOR_MAX])
{
	engine_of(reader)->cursor(reader, before, cursor);
}

enum fault
store_reader_more(struct store_reader *reader)
{
	return engine_of(reader)->more(reader);
}

const char *
store_schema(enum store_schema part, enum fault *fault)
{
	const struct reader_engine *engine =
	    engine_symbol(READER_ENGINE_SYMBOL, fault);

	return engine != NULL ? engine->schema[part] : NULL;
}
