/*
 * feed.pml: plants of PostgreSQL to a consumer that resumes at a place: writers,
 * a primary and its synchronous standby, failover.
 *
 *   here          there
 *   Writer        postgresql.c run_statement (and the server's commit)
 *   Reader        query.c reader_more, fetch, set_place
 *   bound         query.c find_bound (BOUND, and its probe)
 *   resume        query.c reader_resume (without a cursor)
 *
 * A transaction has a number, by its begin, and one row.  Its commit record is
 * in the log before the wait for the standby; while it waits, it still runs for
 * snapshots.  Then its row is visible, also where the wait was cancelled or its
 * session terminated.  After a failover, what the standby does not have is gone,
 * and numbers that it has not heard of are given again.
 *
 * run.py gives FAULTS (cancelled waits, lost answers, failovers), ROWS, POLLS.
 */
hidden byte answered_was_lost, printed_was_lost, printed_is_not_on_standby, row_skipped;
#define MUST(name, condition) assert((condition) || name)

#define NUMBERS 9
#define FREE 0
#define RUNS 1
#define WAITS 2			/* its commit record is in the log */
#define VISIBLE 3
#define ABORTED 4
#define IS_OPEN(x) (state[x] == RUNS || state[x] == WAITS)

byte state[NUMBERS], next = 1;	/* of the primary */
bit row[NUMBERS], answered[NUMBERS], printed[NUMBERS];
byte log[NUMBERS], log_next[NUMBERS], end;	/* and `next` at that time */
byte have, have_next = 1;	/* what the standby has of them */
byte epoch;			/* a failover ends sessions */
byte place;			/* all below it is printed, or not wanted */
byte faults = FAULTS, rows = ROWS;

#define LIVE (session == epoch)

inline begin(has_row) { x = next; state[x] = RUNS; row[x] = has_row; next++; session = epoch }
inline write_commit() { record = end; log[end] = x; log_next[end] = next; end++; state[x] = WAITS }
inline find_in_log(number, to) {
  i = 0; found = 0;
  do :: i < to -> found = found || log[i] == number; i++ :: else -> break od; i = 0
}

active [2] proctype Writer() {
  byte x, session, record;

  do
  :: atomic { rows > 0 && next < NUMBERS -> rows--; begin(1) };
     if
     :: atomic { LIVE -> write_commit() };
        if
        :: atomic { LIVE && have > record -> state[x] = VISIBLE; answered[x] = 1 }
        :: atomic { LIVE && faults > 0 -> faults--; state[x] = VISIBLE }
        :: !LIVE
        fi
     :: atomic { LIVE -> state[x] = ABORTED }
     :: !LIVE
     fi;
     atomic { x = 0; session = 0; record = 0 }
  :: rows == 0 -> break
  od
}

active proctype Reader() {
  byte bound, x, session, record, i, polls = POLLS;
  bit found, resume = RESUME;

  do
  :: polls == 0 -> break
  :: atomic { polls > 0 -> polls--; session = epoch;	/* bound */
       bound = 1;
       do :: bound < next && !IS_OPEN(bound) -> bound++ :: else -> break od;
#ifdef NOBOUND
       bound = next;
#endif
       i = place + 1;
       do :: i < bound -> found = found || (state[i] == VISIBLE && row[i]); i++ :: else -> break od;
       i = 0;
       if :: found || resume :: else -> goto again fi };
#ifndef NOPROBE
     if :: atomic { LIVE && next < NUMBERS -> begin(0); write_commit() }
        :: goto again fi;
     if
     :: atomic { LIVE && have > record -> state[x] = VISIBLE }
     :: atomic { LIVE && faults > 0 -> faults--; state[x] = VISIBLE; goto again }
     :: !LIVE -> goto again
     fi;
#endif
     if
     :: atomic { resume && LIVE -> resume = 0; place = bound - 1;
          do :: i <= place -> printed[i] = 1; i++ :: else -> break od }	/* not wanted */
     :: !resume ->
        do
        :: atomic { LIVE -> i = place + 1;		/* page */
             do :: i < bound && !(state[i] == VISIBLE && row[i]) -> i++ :: else -> break od;
             if :: i < bound -> printed[i] = 1; place = i;
                   find_in_log(place, have);
                   MUST(printed_is_not_on_standby, found)
                :: else -> break fi }
        :: !LIVE -> break
        od
     :: resume && !LIVE
     fi;
again:
     atomic { bound = 0; x = 0; session = 0; record = 0; i = 0; found = 0 }
  od
}

#define SKIPPED(x) (x < next && state[x] == VISIBLE && row[x] && x <= place && !printed[x])
active proctype World() {
  byte i, x; bit found;

  do
  :: atomic { have < end -> have++;
       if :: log_next[have - 1] > have_next -> have_next = log_next[have - 1] :: else fi }
  :: atomic { have_next < next -> have_next = next }	/* by other records */
  :: atomic { faults > 0 -> faults--; epoch++;		/* failover */
       x = 1;
       do :: x < NUMBERS ->
             find_in_log(x, have);
             if :: found -> state[x] = VISIBLE
                :: else ->
                   MUST(answered_was_lost, !answered[x]);
                   MUST(printed_was_lost, RESUME || !printed[x] || state[x] != VISIBLE || !row[x]);
                   if :: x < have_next -> state[x] = (state[x] == FREE -> FREE : ABORTED)
                      :: else -> state[x] = FREE; row[x] = 0; printed[x] = 0 fi
             fi; x++
          :: else -> break od;
       end = have; next = have_next; x = 0; found = 0 }
  :: atomic { SKIPPED(1) || SKIPPED(2) || SKIPPED(3) || SKIPPED(4) || SKIPPED(5) ||
       SKIPPED(6) || SKIPPED(7) || SKIPPED(8) -> MUST(row_skipped, false) }
  :: timeout -> break
  od
}
