/*
 * index_crash: what happens when reading a damaged index ends the process.
 *
 * LMDB follows what stands in the pages: overwritten ones, or a file cut while
 * it is mapped, end the process by a signal or an assertion, and would end it
 * again at every start.  So the index is removed on the way out, and the next
 * start builds it anew.  A reader removes nothing.
 */
#include <signal.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "index_parts.h"

#define REMOVING                                                      \
	"plant-store: index: damaged, reading it ended the process; " \
	"removing it: it is built anew from the journal at the next start\n"
#define READING                                                               \
	"plant-store: index: damaged, reading it ended the process; "         \
	"remove it: it is built anew from the journal at the service's next " \
	"start\n"

/* The index that this thread is using. */
static _Thread_local const struct index *volatile in_use;

/* Only what a signal handler may call. */
static _Noreturn void
end_process(const struct index *index)
{
	const char *message = index->reader ? READING : REMOVING;

	if (!index->reader && index_is_current(index))
		unlinkat(index->dir, INDEX_DATA_NAME, 0);
	if (write(STDERR_FILENO, message, strlen(message)) < 0) {
		/* Nobody left to tell. */
	}
	_exit(index->reader ? EX_DATAERR : EX_TEMPFAIL);
}

/* LMDB would abort the process. */
void
index_crash_assert(MDB_env *env, const char *message)
{
	(void)message;
	end_process(mdb_env_get_userctx(env));
}

static void
on_crash(int number)
{
	if (in_use != NULL)
		end_process(in_use);
	/* Not the index: as if nobody had looked. */
	signal(number, SIG_DFL);
	raise(number);
}

/* Not in a debugging build, whose sanitizer has its own. */
void
index_crash_catch(void)
{
	static const int numbers[] = { SIGBUS, SIGSEGV, SIGABRT };
	struct sigaction ours = { .sa_handler = on_crash }, before;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], NULL, &before) == 0 &&
		    before.sa_handler == SIG_DFL)
			sigaction(numbers[i], &ours, NULL);
}

void
index_crash_blame(const struct index *index)
{
	in_use = index;
}
