/*
 * engine: something that keeps plants durably, under its id a text.  callers.c
 * is linked with one of engine_*.c, so that none needs the library of another.
 *
 * Every engine is set up as its manual advises for small durable transactions,
 * and gives 0 from engine_commit only when a sync of the disk has followed.
 */
#ifndef BENCH_ENGINE_H
#define BENCH_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "sample.h"

/* Of one thread: a connection, and what it keeps from commit to commit. */
struct session;

/*
 * engine_open(dir), engine_close():
 * The one store of this program, in a directory that exists.  Its sessions end
 * before it is closed.  engine_open ends the program if it cannot.
 */
void engine_open(const char *dir);
void engine_close(void);

/*
 * engine_session(batch_max), engine_session_end(session):
 * NULL if there can be none.  Any thread.
 */
struct session *engine_session(size_t batch_max);
void engine_session_end(struct session *session);

/*
 * engine_wait(session):
 * Wait until it is of use to gather plants for a commit.
 */
void engine_wait(struct session *session);

/*
 * engine_commit(session, samples, n):
 * Store n new plants, all in one transaction.  0 when they are durable; -1,
 * told on stderr.
 */
int engine_commit(
    struct session *session, const struct sample *samples, size_t n);

/*
 * engine_count():
 * How many plants there are, read from what is stored; -1 if that fails.
 */
int64_t engine_count(void);

#endif
