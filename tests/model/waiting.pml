/*
 * waiting.pml: commits that wait for a standby which is away keep a session of
 * the server each, also after we have closed the connection: a thread has one.
 *
 *   here          there
 *   send          postgresql.c commit_part
 *   await         postgresql.c store_batch, note_lost
 *   confirm       postgresql.c confirm
 *   probe         postgresql.c ready, probe
 *
 * A commit is sent (`young`), and is confirmed, or passes its deadline; then it
 * goes on to wait at the server (`old`), until the standby is back.  A probe
 * finds those that are old, of any thread.
 *
 * run.py gives AWAYS, how often the standby goes, and LOSSES of connections, or
 * of tries to open one: those that wait may have taken all that there are.
 */
hidden byte thread_has_two;
#define MUST(name, condition) assert((condition) || name)

#define THREADS 2
bit away, waiting, due;		/* due: the last commit was not confirmed */
byte old[THREADS];
byte aways = AWAYS, losses = LOSSES;

inline confirm() { waiting = 0; due = 0 }
inline note_lost() { due = 1; waiting = 1 }
#ifdef CLEARED			/* by a probe that has found nothing, or no session */
#define MAY_CLEAR 1
#else
#define MAY_CLEAR 0
#endif
inline await(is_probe) {
  if
  :: atomic { !away -> confirm() }
  :: atomic { away -> old[me]++; MUST(thread_has_two, old[me] < 2) };
     if :: is_probe && MAY_CLEAR -> waiting = 0 :: else fi;
     note_lost()
  :: atomic { losses > 0 -> losses--; due = 1;
       if :: is_probe && MAY_CLEAR -> waiting = 0 :: else fi }
  fi
}
inline send() {
  if :: waiting :: !waiting -> await(0) fi
}
inline probe() {
  if
  :: atomic { old[0] + old[1] > 0 -> waiting = 1; due = 1 }
  :: atomic { losses > 0 -> losses--; due = 1;
       if :: MAY_CLEAR -> waiting = 0 :: else fi }
  :: old[0] + old[1] == 0 -> await(1)
  fi
}

active [THREADS] proctype Thread() {
  byte me = _pid;

  do
  :: send()
  :: due -> probe()
  od
}

active proctype World() {
  do
  :: atomic { aways > 0 && !away -> aways--; away = 1 }
  :: atomic { away -> away = 0; old[0] = 0; old[1] = 0 }
  od
}
