/*
 * file.pml: the file engine: lines, page cache, disk, index and end mark, and
 * what failing writes, kills, crashes and evictions do to them.
 *
 * Whatever a process does, it does under the journal's lock.  So one process
 * of Promela chooses who acts next, and what the world does between two steps
 * of it; only opening (the kernel's reports of errors count from there), dying
 * and holding the index happen beside the lock.
 *
 *   here            there (src/store)
 *   turn            engine_file.c start, catch_up, read_on
 *   find_durable    index.c index_open, is_whole, take_over, index_create;
 *                   journal.c journal_find_durable
 *   settle, drop    journal.c journal_settle; src/ground/file.c file_forget
 *   judge, cut      replay.c replay_finish; journal.c journal_cut_tail
 *   enter           index.c index_build; engine_file.c enter_batch
 *   commit          engine_file.c build_batch, write_batch; journal_append
 *   closing         engine_file.c append_closing; end_clean: close_store, mark_clean
 *   print           reader.c look_at_store, find_end, reach_end
 *   discard         index.c index_damaged
 *
 * A slot is a sector with one line, a page has two.  A token is a line of its
 * own bytes: content, `safe` and the line before it (seq and prev).
 * Assumed: a sector is written whole or is TORN, where its bytes change; a
 * truncation is durable with the next sync, and fails with no other error.
 *
 * The kernel: a failed write-back leaves its page clean, and is reported once
 * by a sync of each file description that was open, and of one opened later
 * only if nobody was told.  A `bad` page (ext4): its first write-back failed;
 * until it leaves the cache, later ones succeed and write nothing.
 *
 * run.py gives how many of each there may be: OPS (commits, closing lines),
 * FAILS (failed write-backs, of a sync or the kernel's own), EVICTS (pages that
 * leave the cache), HOLDS (that stay when they are told to leave), KILLS,
 * CRASHES (of the machine), LOSSES (of the device, in one boot), FULLS (writes
 * without room), IXFAILS (lost pages of the index), READERS.
 */
#define FOR(x, from, to) x = from; do :: x < to ->
#define NEXT(x) x++ :: else -> break od; x = 0
#define PROCS 3			/* LONGS of 0 and 1 live long; 2 is CGI, or a reader */
#define SLOTS 6
#define PAGES 3
#define TOKENS 9
#define NONE 0			/* behind the end of the file */
#define LOST 13			/* no token's */
#define BLANK 14
#define TORN 15
#define IS_LINE(c) ((c) != NONE && (c) < LOST)

byte C[SLOTS], D[SLOTS];	/* cache and disk */
bit dirty[PAGES], bad[PAGES];
byte code[16], safe[16], prev[16];
bit unseen;			/* a write-back failed, nobody was told */

#define IDLE 0
#define OPENED 1
#define RUN 2
#define LONG 1
#define CGI 2
#define READER 3
byte st[PROCS], kind[PROCS];
bit pend[PROCS];		/* an error is to be reported to it */
bit ixpend[PROCS], ixunseen;	/* the same of the index's file */

#define ABSENT 0
#define SERVED 1		/* pages may be unwritten: of a service's index, */
#define ONCE 2			/* of one that CGI alone has used, */
#define OLD 3			/* of either, in an earlier boot */
#define CLEAN 4
#define MINE (kind[p] == CGI -> ONCE : SERVED)
byte mark; bit sclean, ixdirty;	/* index/boot; the index's own note */
byte cov, ent[3];		/* 0: not built */
byte endmark;

bit must[4];			/* answered 200, printed, or cause of a 409 */
byte ops = OPS, fails = FAILS, evicts = EVICTS, holds = HOLDS, kills = KILLS,
    crashes = CRASHES, losses = LOSSES, fulls = FULLS, ixfails = IXFAILS,
    readers = READERS;

byte at, dur;			/* of who acts: its end of lines, and what is durable */
byte op, p, x, y, g, t, upto, w, w2, f, f2, id, held = PAGES;
bit ok, ask, tail, refuse, grow;
byte dying;			/* 1: the machine, 2: the device */
#define MACHINE 1
#define DEVICE 2

/* --- The kernel --- */

#define GONE(x) (D[x] == NONE && C[x] != NONE -> TORN : D[x])
#define FRESH(g) (D[2 * (g)] == NONE && D[2 * (g) + 1] == NONE)
#define CUT(g) ((C[2 * (g)] == NONE && D[2 * (g)] != NONE) || \
    (C[2 * (g) + 1] == NONE && D[2 * (g) + 1] != NONE))
#define ANY_DIRTY (dirty[0] || dirty[1] || dirty[2])

inline reload(g) {
  d_step { C[2 * g] = GONE(2 * g); C[2 * g + 1] = GONE(2 * g + 1); bad[g] = 0 }
}
inline write_page(g) {
  d_step {
    if :: bad[g] -> skip
       :: else -> D[2 * g] = C[2 * g]; D[2 * g + 1] = C[2 * g + 1] fi;
    dirty[g] = 0
  }
}
inline fail_slot(x) {
  if
  :: true
  :: C[x] != NONE && D[x] != C[x] -> D[x] = C[x]
  :: IS_LINE(C[x]) && D[x] != C[x] -> D[x] = TORN
  fi
}
inline fail_page(g) {
  if
  :: bad[g] -> dirty[g] = 0
  :: else ->
     if :: FRESH(g) && C[2 * g] != NONE -> bad[g] = 1
        :: fail_slot(2 * g); fail_slot(2 * g + 1) fi;
     if :: !CUT(g) -> dirty[g] = 0 :: true fi	/* or written to meanwhile */
  fi
}
inline report() {
  d_step { unseen = 1; FOR(x, 0, PROCS) pend[x] = (st[x] != IDLE); NEXT(x) }
}
inline sync() {
  if
  :: fails > 0 && ANY_DIRTY -> fails--; g = 0;
     do :: g < PAGES && dirty[g] -> if :: fail_page(g) :: write_page(g) fi; g++
        :: g < PAGES && !dirty[g] -> g++
        :: g == PAGES -> break od;
     report()
  :: true -> FOR(g, 0, PAGES) if :: dirty[g] -> write_page(g) :: else fi; NEXT(g)
  fi;
  g = 0; ok = !pend[p];
  if :: pend[p] -> pend[p] = 0; unseen = 0 :: else fi
}
#define CAN_GO(g) (bad[g] || (!dirty[g] && \
    (C[2 * (g)] != D[2 * (g)] || C[2 * (g) + 1] != D[2 * (g) + 1])))
#define CAN_FAIL(g) (dirty[g] && !bad[g])
/* What the kernel may do at any time: a page leaves the cache, or fails. */
inline kernel() {
  do
  :: evicts > 0 ->
     if :: CAN_GO(0) -> g = 0 :: CAN_GO(1) -> g = 1 :: CAN_GO(2) -> g = 2
        :: else -> break fi;
     evicts--; dirty[g] = 0; reload(g); g = 0
  :: fails > 0 ->
     if :: CAN_FAIL(0) -> g = 0 :: CAN_FAIL(1) -> g = 1
        :: CAN_FAIL(2) -> g = 2 :: else -> break fi;
     fails--; fail_page(g); report(); g = 0
  :: break
  od
}
/* Between two steps: killed, the machine stops, the device goes, or none. */
inline step() {
  if
  :: true
  :: kills > 0 -> kills--; goto dead
  :: crashes > 0 -> crashes--; dying = MACHINE; goto dead
  :: losses > 0 -> losses--; dying = DEVICE; goto dead
  fi
}
inline synced() { step(); kernel(); sync(); if :: ok -> step() :: else -> goto dead fi }

/* --- Lines --- */

/* The valid lines from `f` on end at upto. */
inline walk(f) {
  d_step {
    upto = f;
    do :: upto < SLOTS ->
          x = C[upto]; t = (upto == 0 -> 0 : C[upto - 1]);
          if :: IS_LINE(x) -> if :: safe[x] <= upto && prev[x] == t -> upto++
                                 :: else -> break fi
             :: else -> break fi
       :: else -> break od;
    x = 0; t = 0
  }
}
/* What is behind them: a torn tail, or damage? */
inline judge() {
  d_step {
    refuse = (upto < dur); tail = 0;
    FOR(x, upto, SLOTS)
      tail = tail || (C[x] != NONE && C[x] != BLANK);
      refuse = refuse || (IS_LINE(C[x]) && safe[C[x]] > upto);
    NEXT(x)
  }
}
#define IS_USED(t) (C[0] == t || C[1] == t || C[2] == t || C[3] == t || C[4] == t || C[5] == t || \
    D[0] == t || D[1] == t || D[2] == t || D[3] == t || D[4] == t || D[5] == t)
inline forget_one() {
  FOR(x, 1, TOKENS) if :: prev[x] == t -> prev[x] = LOST :: else fi; NEXT(x)
}
/* What no line has any more. */
inline forget() {
  d_step {
    FOR(t, 1, TOKENS)
      if :: IS_USED(t) :: else -> code[t] = 0; safe[t] = 0; prev[t] = 0; forget_one() fi;
    NEXT(t)
  }
}
/* Write a line of content c at the slot y, which moves on. */
inline put_line(c) {
  d_step {
    t = 1; do :: IS_USED(t) -> t++ :: else -> break od;
    assert(t < TOKENS);
    forget_one();
    code[t] = c; safe[t] = dur; prev[t] = (y == 0 -> 0 : C[y - 1]);
    C[y] = t; dirty[y / 2] = 1; y++; x = 0; t = 0
  }
}
/* All that was answered or printed is among the lines below k, once each. */
inline all_there(k) {
  d_step {
    assert(k <= SLOTS); y = 0; w = 0; t = 0;
    FOR(x, 0, k)
      y = y + (code[C[x]] == 1); w = w + (code[C[x]] == 2); t = t + (code[C[x]] == 3);
    NEXT(x);
    assert(y + w <= 1 && t <= 1);
    assert((y == 1 || !must[1]) && (w == 1 || !must[2]) && (t == 1 || !must[3]));
    y = 0; w = 0; t = 0
  }
}
/* The disk has the lines below k. */
inline on_disk(k) {
  d_step { FOR(x, 0, k) assert(D[x] == C[x] && IS_LINE(C[x])); NEXT(x) }
}

/* --- The protocol --- */

inline cut(k) {
  d_step {
    FOR(x, k, SLOTS)
      if :: C[x] != NONE -> C[x] = NONE; dirty[x / 2] = 1 :: else fi;
      if :: x % 2 == 0 -> bad[x / 2] = 0; dirty[x / 2] = !FRESH(x / 2) :: else fi;
    NEXT(x)
  }
}
/* Drop the clean pages from the slot k on, unless somebody holds one. */
inline drop(k) {
  if :: true :: holds > 0 -> holds--; if :: held = 0 :: held = 1 :: held = 2 fi fi;
  FOR(g, k / 2, PAGES) if :: !dirty[g] && g != held -> reload(g) :: else fi; NEXT(g);
#ifdef NOHOLD
  held = PAGES;
#endif
  if :: held == PAGES	/* else busy: a start ends, a commit is refused */
     :: held < PAGES && st[p] == OPENED -> goto dead
     :: held < PAGES && st[p] == RUN -> goto next fi
}
/* Enter the lines from cov to upto. */
inline enter() {
  d_step {
    FOR(x, cov, upto)
      id = (code[C[x]] == 3 -> 2 : (code[C[x]] > 0 -> 1 : 0));
      if :: id > 0 && ent[id] == 0 -> ent[id] = x + 1 :: else fi;
    NEXT(x);
    cov = upto; ixdirty = 1; id = 0
  }
}
#define LIVE (st[0] == RUN || st[1] == RUN)	/* is_served */
#ifdef BELIEVE
#define BELIEVED (cov > 0 && mark != OLD)
#else
#define BELIEVED (cov > 0 && (mark == CLEAN || (mark == ONCE && kind[p] == CGI) || \
    (mark != ABSENT && LIVE)))
#endif
#define TEXT(x) (x < SLOTS && C[x] != NONE && C[x] != BLANK)

/* Find what is durable, and whether the disk has to be asked for more. */
inline find_durable() {
  if
  :: kind[p] == READER -> dur = (mark == OLD -> 0 : cov)
  :: kind[p] != READER && (st[p] == RUN || BELIEVED) ->
     if :: sclean -> mark = MINE; step(); sclean = 0; ixdirty = 1 :: else fi;
     dur = cov
  :: else ->
     if :: cov > endmark -> endmark = cov; step() :: else fi;
     cov = 0; ent[1] = 0; ent[2] = 0; sclean = 0; ixdirty = 0; mark = ABSENT;
     step();
     mark = MINE; ixdirty = 1
  fi;
  if :: st[p] == OPENED && dur < endmark -> dur = endmark :: else fi;
  walk(0);
  if :: dur == 0 && upto > 0 -> dur = safe[C[upto - 1]] :: else fi;
  if
  :: kind[p] == READER -> ask = TEXT(dur)
  :: else -> ask = TEXT(dur) || (st[p] == OPENED && dur < SLOTS && C[dur] != NONE)
  fi
}
inline settle() {
#ifdef REWRITE
  walk(0);
  d_step { FOR(x, dur, upto) dirty[x / 2] = 1; NEXT(x) };
#endif
#ifndef DROPONLY
  sync(); if :: !ok -> goto dead :: else fi;
  step();
#endif
#if !defined(SYNCONLY) && !defined(REWRITE)
  drop(dur);
#endif
  walk(0); judge();
  assert(!refuse)		/* a healthy store is refused */
}
#define ID(c) ((c) == 3 -> 2 : 1)
#define STORED(c) (ent[ID(c)] == 0 -> 0 : code[C[ent[ID(c)] - 1]])
/* 200, or 409 because of what is stored */
inline answer(c, s) {
  d_step {
    if :: c != 0 -> must[(s == 0 -> c : s)] = 1 :: else fi;
    assert(!(must[1] && must[2]))
  }
}
inline room() {
  FOR(x, y, (y + 2 < SLOTS -> y + 2 : SLOTS)) C[x] = BLANK; dirty[x / 2] = 1; NEXT(x)
}
inline commit() {
  if :: w = 1 :: w = 2 :: w = 3 :: w = 1; w2 = 3 fi;
  f = STORED(w); f2 = (w2 == 0 -> 0 : STORED(w2));
#ifdef IXCHECK
  if :: ixpend[p] -> ixunseen = 0; goto discard :: else fi;
#endif
  y = at;
  if
  :: f == 0 || (w2 != 0 && f2 == 0) ->
     grow = (kind[p] == LONG && C[y] == NONE);
     if
     :: true
     :: kills > 0 -> kills--; C[y] = TORN; dirty[y / 2] = 1; goto dead
     :: fulls > 0 -> fulls--; C[y] = TORN; dirty[y / 2] = 1; step();
        cut(at); synced(); goto next
     fi;
     if :: f == 0 -> put_line(w) :: else fi;
     if :: w2 != 0 && f2 == 0 -> step(); put_line(w2) :: else fi;
     if :: grow -> room() :: else fi;
#ifdef UNLOCKED
     if :: kind[2] == READER && st[2] == RUN -> walk(0);
           d_step { FOR(x, 0, upto) must[code[C[x]]] = 1; NEXT(x); must[0] = 0 }
        :: true fi;
#endif
#ifdef ANSWERBEFORE
     answer(w, f); answer(w2, f2); step();
#endif
     synced()
  :: else
  fi;
  on_disk(y);
  answer(w, f); answer(w2, f2);
  step();
  upto = y; if :: upto > cov -> enter() :: else fi
}
inline closing() {
  if
  :: at > 0 && at < SLOTS && ops > 0 ->
     if :: code[C[at - 1]] != 0 ->
           ops--; y = at; put_line(0); synced();
           at = y; upto = y; enter(); step(); endmark = at
        :: else fi
  :: else
  fi
}
inline end_clean() {
#ifdef IXCHECK
  if :: ixpend[p] -> ixunseen = 0; goto discard :: else fi;
#endif
  cut(at);
  sclean = 1; step(); ixdirty = 0; step(); mark = CLEAN
}
inline print() {
#if RD == 0
  upto = dur;
#endif
  all_there(upto);		/* all that was answered before */
  step();
  d_step {
    FOR(x, 0, upto) must[code[C[x]]] = 1; assert(D[x] == C[x]); NEXT(x);
    must[0] = 0
  }
}
/* One turn of process p, with the lock. */
#define COMMIT 1
#define CLOSING 2
#define END 3
inline turn(op) {
#ifdef NOALONE
  if :: st[p] == OPENED && kind[p] == CGI && !LIVE -> goto dead :: else fi;
#endif
  step();
  find_durable();
#if RD < 2
  if :: kind[p] == READER -> ask = 0 :: else fi;
#endif
  if
#ifndef NOSETTLE
  :: ask -> settle()
#endif
  :: else -> if :: kind[p] != READER -> walk(0); judge() :: else fi
  fi;
  if :: kind[p] == READER ->
#ifdef UNLOCKED
        if :: st[p] == OPENED && (cov == 0 || mark == OLD) -> st[p] = RUN; goto next
           :: else fi;
#endif
#if RD == 1
        sync(); if :: !ok -> goto dead :: else fi; walk(0);
#endif
        print(); goto dead
     :: else fi;
  step();
  if :: upto > cov -> enter(); step() :: else fi;
  if :: tail -> cut(upto); synced() :: else fi;
  at = upto;
  if
  :: st[p] == OPENED -> all_there(at); st[p] = RUN
  :: st[p] == RUN && op == COMMIT && at + 2 <= SLOTS -> commit(); if :: kind[p] == CGI -> goto dead :: else fi
  :: st[p] == RUN && op == COMMIT && at + 2 > SLOTS
  :: st[p] == RUN && op == CLOSING -> closing()
  :: st[p] == RUN && op == END -> closing(); end_clean(); goto dead
  fi
}
inline reset() {
  op = 0; ask = 0; at = 0; dur = 0; upto = 0; ok = 0; refuse = 0; tail = 0;
  w = 0; w2 = 0; f = 0; f2 = 0; id = 0; t = 0; y = 0; x = 0; g = 0; grow = 0;
  held = PAGES
}
inline end_process(q) { st[q] = IDLE; kind[q] = 0; pend[q] = 0; ixpend[q] = 0 }
inline crash() {
  FOR(p, 0, PROCS) end_process(p); NEXT(p);
  unseen = 0; ixunseen = 0;
  FOR(x, 0, SLOTS)
    if :: !dirty[x / 2] || bad[x / 2]
       :: dirty[x / 2] && !bad[x / 2] -> D[x] = C[x]
       :: dirty[x / 2] && !bad[x / 2] && D[x] != C[x] && IS_LINE(C[x]) -> D[x] = TORN
       :: dirty[x / 2] && !bad[x / 2] fi;
    C[x] = D[x];
  NEXT(x);
  /* a hole before what was written */
  y = 0; x = SLOTS;
  do :: x > 0 -> x--;
        if :: D[x] != NONE -> y = 1
           :: D[x] == NONE && y -> D[x] = TORN; C[x] = TORN :: else fi
     :: else -> break od; y = 0;
  dirty[0] = 0; dirty[1] = 0; dirty[2] = 0; bad[0] = 0; bad[1] = 0; bad[2] = 0;
  if
  :: mark == CLEAN -> assert(!ixdirty)
  :: (mark == SERVED || mark == ONCE) && dying == MACHINE -> mark = OLD; sclean = 0;
     ent[1] = 0; ent[2] = 0; if :: cov = 0 :: true fi
  :: (mark == SERVED || mark == ONCE) && dying == DEVICE ->
     if :: cov = 0; ent[1] = 0; ent[2] = 0 :: ent[1] = 0 :: ent[2] = 0 fi
  :: else
  fi;
  dying = 0
}
init {
next:
  atomic { forget(); d_step { reset(); p = 0 } }
  do
  :: atomic { if :: LONGS > 0 -> p = 0 :: LONGS > 1 -> p = 1
          :: p = 2 fi;
       if :: st[p] == IDLE ->
             st[p] = OPENED; pend[p] = unseen; ixpend[p] = ixunseen;
             if :: p < 2 -> kind[p] = LONG
                :: p == 2 -> kind[p] = CGI
                :: p == 2 && readers > 0 -> readers--; kind[p] = READER fi
          :: else fi; p = 0 }
  :: atomic { if :: p = 0 :: p = 1 :: p = 2 fi;
       if
       :: st[p] == OPENED
       :: st[p] == RUN && kind[p] == READER
       :: st[p] == RUN && kind[p] != READER && ops > 0 -> ops--; op = COMMIT
       :: st[p] == RUN && ops > 0 && kind[p] == LONG -> op = CLOSING
       :: st[p] == RUN && kind[p] == LONG -> op = END
       :: st[p] == RUN && kind[p] == CGI -> goto dead
       :: st[p] != IDLE && kills > 0 -> kills--; goto dead
       :: st[p] == IDLE -> goto next
       fi;
       turn(op); goto next }
  :: atomic { evicts > 0 || fails > 0 || crashes > 0 || losses > 0 || ixfails > 0 ->
       p = 0; kernel();
       if :: crashes > 0 -> crashes--; dying = MACHINE; goto dead
          :: losses > 0 -> losses--; dying = DEVICE; goto dead
          :: ixfails > 0 && ixdirty -> ixfails--;
             if :: ent[1] = 0 :: ent[2] = 0 fi;
             ixunseen = 1; ixpend[0] = 1; ixpend[1] = 1; ixpend[2] = 1
          :: true fi; goto next }
  od;
discard:
  /* the index's file has lost a page */
  atomic { if :: endmark < dur -> endmark = dur :: else fi; mark = ABSENT; cov = 0; ent[1] = 0; ent[2] = 0; sclean = 0 }
dead:
  atomic {
    d_step { reset(); end_process(p) };
    if :: dying != 0 -> crash() :: else fi;
    p = 0
  };
  goto next
}
