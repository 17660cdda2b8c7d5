/*
 * file.pml: the file engine: lines, page cache, disk, index and end mark, and
 * what failing writes, kills, crashes and evictions do to them.
 *
 * Whatever a process does, it does under the journal's lock.  So one process
 * of Promela chooses who acts next, and what the world does between two steps
 * of it; only opening (the kernel's reports of errors count from there), dying
 * and holding the index happen beside the lock.
 *
 *   here            there
 *   start           commit.c open_store, recovery.c recovery_start
 *   commit          commit.c commit_some, write_batch, settle
 *   closing, end    commit.c append_closing, close_store; index.c index_close
 *   catch_up        recovery.c recovery_catch_up
 *   settle, cut     recovery.c; journal.c journal_sync, journal_cut
 *   believe         index.c index_open, recovery.c open_index
 *   read            reader.c reader_next and what finds the end
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
 */
#ifndef LONGS			/* so many live long; the last is CGI, or a reader */
#define LONGS 2
#endif
#ifndef RD
#define RD 2
#endif
#ifndef OPS			/* commits and closing lines */
#define OPS 3
#endif
#ifndef FAILS			/* failed write-backs, of a sync or the kernel's own */
#define FAILS 1
#endif
#ifndef EVICTS			/* pages that leave the cache */
#define EVICTS 1
#endif
#ifndef HOLDS			/* pages that do not leave it when told to */
#define HOLDS 1
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef CRASHES			/* of the machine */
#define CRASHES 1
#endif
#ifndef LOSSES			/* of the device, in the same boot */
#define LOSSES 0
#endif
#ifndef FULLS			/* writes that find no room */
#define FULLS 0
#endif
#ifndef IXFAILS			/* lost pages of the index */
#define IXFAILS 0
#endif
#ifndef READERS
#define READERS 0
#endif
#define PROCS 3
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
byte code[TOKENS], safe[TOKENS], prev[TOKENS];
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
  d_step {
    unseen = 1; x = 0;
    do :: x < PROCS -> pend[x] = (st[x] != IDLE); x++ :: else -> break od; x = 0
  }
}
inline sync() {
  if
  :: fails > 0 && ANY_DIRTY -> fails--; g = 0;
     do :: g < PAGES && dirty[g] -> if :: fail_page(g) :: write_page(g) fi; g++
        :: g < PAGES && !dirty[g] -> g++
        :: g == PAGES -> break od;
     report()
  :: true -> g = 0;
     do :: g < PAGES -> if :: dirty[g] -> write_page(g) :: else fi; g++
        :: else -> break od
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
    refuse = (upto < dur); tail = 0; x = upto;
    do :: x < SLOTS ->
          y = C[x];
          if :: y != NONE && y != BLANK -> tail = 1 :: else fi;
          if :: IS_LINE(y) -> if :: safe[y] > upto -> refuse = 1 :: else fi
             :: else fi;
          x++
       :: else -> break od;
    x = 0; y = 0
  }
}
inline forget_one() {
  x = 1;
  do :: x < TOKENS -> if :: prev[x] == t -> prev[x] = LOST :: else fi; x++
     :: else -> break od
}
/* Write a line of content c at the slot y, which moves on. */
inline put_line(c) {
  d_step {
    t = 1;
    do :: t < TOKENS ->
          x = 0;
          do :: x < SLOTS && C[x] != t && D[x] != t -> x++ :: else -> break od;
          if :: x == SLOTS -> break :: else -> t++ fi
       :: else -> break od;
    assert(t < TOKENS);
    forget_one();
    code[t] = c; safe[t] = dur; prev[t] = (y == 0 -> 0 : C[y - 1]);
#ifdef NOSAFE
    safe[t] = 0;
#endif
    C[y] = t; dirty[y / 2] = 1; y++; x = 0; t = 0
  }
}
/* All that was answered or printed is among the lines below k, once each. */
inline all_there(k) {
  d_step {
    assert(k <= SLOTS); x = 0; y = 0; w = 0; t = 0;
    do :: x < k ->
          if :: code[C[x]] == 1 -> y++ :: code[C[x]] == 2 -> w++
             :: code[C[x]] == 3 -> t++ :: else fi;
          x++
       :: else -> break od;
    assert(y + w <= 1 && t <= 1);
    assert((y == 1 || !must[1]) && (w == 1 || !must[2]) && (t == 1 || !must[3]));
    x = 0; y = 0; w = 0; t = 0
  }
}
/* The disk has the lines below k. */
inline on_disk(k) {
  d_step {
    x = 0;
    do :: x < k -> assert(D[x] == C[x] && IS_LINE(C[x])); x++
       :: else -> break od; x = 0
  }
}

/* --- The protocol --- */

inline cut(k) {
  d_step {
    x = k;
    do :: x < SLOTS ->
          if :: C[x] != NONE -> C[x] = NONE; dirty[x / 2] = 1 :: else fi;
          if :: x % 2 == 0 -> bad[x / 2] = 0; dirty[x / 2] = (D[x] != NONE || D[x + 1] != NONE)
             :: else fi;
          x++
       :: else -> break od; x = 0
  }
}
/* Drop the clean pages from the slot k on, unless somebody holds one. */
inline drop(k) {
  if :: true :: holds > 0 -> holds--; if :: held = 0 :: held = 1 :: held = 2 fi fi;
  g = k / 2;
  do :: g < PAGES -> if :: !dirty[g] && g != held -> reload(g) :: else fi; g++
     :: else -> break od;
  g = 0
#ifdef NOHOLD
  ; held = PAGES
#endif
  if :: held == PAGES	/* else busy: a start ends, a commit is refused */
     :: held < PAGES && st[p] == OPENED -> goto dead
     :: held < PAGES && st[p] == RUN -> goto next fi
}
/* Enter the lines from cov to upto. */
inline enter() {
  d_step {
    x = cov;
    do :: x < upto ->
          id = (code[C[x]] == 3 -> 2 : (code[C[x]] > 0 -> 1 : 0));
          if :: id > 0 && ent[id] == 0 -> ent[id] = x + 1 :: else fi; x++
       :: else -> break od;
    cov = upto; ixdirty = 1; x = 0; id = 0
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
#ifndef NOKEEPEND
     if :: cov > endmark -> endmark = cov; step() :: else fi;
#endif
     cov = 0; ent[1] = 0; ent[2] = 0; sclean = 0; ixdirty = 0; mark = ABSENT;
     step();
     mark = MINE; ixdirty = 1
  fi;
#ifndef NOEND
  if :: st[p] == OPENED && dur < endmark -> dur = endmark :: else fi;
#endif
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
  d_step { x = dur; do :: x < upto -> dirty[x / 2] = 1; x++ :: else -> break od; x = 0 };
#endif
#ifndef DROPONLY
  sync(); if :: !ok -> goto dead :: else fi;
  step();
#endif
#ifdef CATCHSYNC
  if :: st[p] == OPENED -> drop(dur) :: else fi;
#else
#if !defined(SYNCONLY) && !defined(REWRITE)
  drop(dur);
#endif
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
  x = y;
  do :: x < SLOTS && x < y + 2 -> C[x] = BLANK; dirty[x / 2] = 1; x++
     :: else -> break od; x = 0
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
           d_step { x = 0; do :: x < upto -> must[code[C[x]]] = 1; x++ :: else -> break od; x = 0; must[0] = 0 }
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
    x = 0;
    do :: x < upto -> y = C[x]; must[code[y]] = 1; assert(D[x] == y); x++
       :: else -> break od;
    x = 0; y = 0; must[0] = 0
  }
}
/* One turn of process p, with the lock. */
#define COMMIT 1
#define CLOSING 2
#define END 3
inline turn(op) {
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
/* Forget what no line has any more. */
inline forget() {
  d_step {
    t = 1;
    do :: t < TOKENS ->
          x = 0;
          do :: x < SLOTS && C[x] != t && D[x] != t -> x++ :: else -> break od;
          if :: x < SLOTS -> skip
             :: else -> code[t] = 0; safe[t] = 0; prev[t] = 0; forget_one()
          fi;
          t++
       :: else -> break od;
    t = 0; x = 0
  }
}
init {
next:
  atomic { forget(); d_step { op = 0; ask = 0; p = 0; at = 0; dur = 0; upto = 0; ok = 0; refuse = 0; held = PAGES; tail = 0; w = 0; w2 = 0; f = 0; f2 = 0; id = 0; t = 0; y = 0; x = 0; g = 0; grow = 0 } }
  do
  :: atomic { if :: LONGS > 0 -> p = 0 :: LONGS > 1 -> p = 1
#ifdef NOCGI
          :: readers > 0 -> p = 2
#else
          :: p = 2
#endif
       fi;
       if :: st[p] == IDLE ->
             st[p] = OPENED; pend[p] = unseen; ixpend[p] = ixunseen;
             if :: p < 2 -> kind[p] = LONG
#ifndef NOCGI
                :: p == 2 -> kind[p] = CGI
#endif
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
          :: ixfails > 0 -> ixfails--; if :: ent[1] = 0 :: ent[2] = 0 fi; ixunseen = 1; ixpend[0] = 1; ixpend[1] = 1; ixpend[2] = 1
          :: true fi; goto next }
  od;
discard:
  /* the index's file has lost a page */
  atomic { if :: endmark < dur -> endmark = dur :: else fi; mark = ABSENT; cov = 0; ent[1] = 0; ent[2] = 0; sclean = 0 }
dead:
  atomic { d_step { w = 0; w2 = 0; f = 0; f2 = 0; upto = 0; held = PAGES; tail = 0; ask = 0; ok = 0; grow = 0; at = 0; dur = 0; t = 0; op = 0; x = 0; y = 0 };
    st[p] = IDLE; kind[p] = 0; pend[p] = 0; ixpend[p] = 0;
    if
    :: dying != 0 ->
       p = 0; do :: p < PROCS -> st[p] = IDLE; kind[p] = 0; pend[p] = 0; ixpend[p] = 0; p++ :: else -> break od;
       unseen = 0; ixunseen = 0; x = 0;
       do :: x < SLOTS ->
             if :: !dirty[x / 2] || bad[x / 2]
                :: dirty[x / 2] && !bad[x / 2] -> D[x] = C[x]
                :: dirty[x / 2] && !bad[x / 2] && D[x] != C[x] && IS_LINE(C[x]) -> D[x] = TORN
                :: dirty[x / 2] && !bad[x / 2]
             fi;
             C[x] = D[x]; x++
          :: else -> break od;
       /* a hole before what was written */
       x = SLOTS; y = 0;
       do :: x > 0 -> x--; if :: D[x] != NONE -> y = 1 :: D[x] == NONE && y -> D[x] = TORN; C[x] = TORN :: else fi :: else -> break od; y = 0;
       dirty[0] = 0; dirty[1] = 0; dirty[2] = 0; bad[0] = 0; bad[1] = 0; bad[2] = 0;
       if
       :: mark == CLEAN -> assert(!ixdirty)
       :: (mark == SERVED || mark == ONCE) && dying == MACHINE -> mark = OLD; ent[1] = 0; ent[2] = 0; sclean = 0; if :: cov = 0 :: true fi
       :: (mark == SERVED || mark == ONCE) && dying == DEVICE -> if :: cov = 0; ent[1] = 0; ent[2] = 0 :: ent[1] = 0 :: ent[2] = 0 fi
       :: else
       fi;
       dying = 0
    :: else
    fi;
    x = 0; y = 0; g = 0; p = 0
  };
  goto next
}
