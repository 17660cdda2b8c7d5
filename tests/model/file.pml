/*
 * file.pml: the file engine's journal: lines, page cache and disk, the marks of
 * what is durable, and what failing writes, kills, crashes and evictions do to
 * them.  Of the index (index.pml) it has how far it covers the journal.
 *
 * Whatever a process does to the journal, it does under its lock.  So one
 * process of Promela chooses who acts next, and what the world does between two
 * steps of it.  Beside the lock are: opening (the kernel's reports of errors
 * count from there), reading what is durable, a checkpoint, and dying.
 *
 *   here          there
 *   turn          files.c files_open_and_lock, files_catch_up, read_on
 *   find_durable  mark.c mark_find_durable, mark_read
 *   settle        journal.c journal_settle
 *   drop          file.c file_forget
 *   judge         replay.c replay_finish
 *   cut           journal.c journal_cut_tail
 *   commit        engine_file.c build_batch, write_batch; journal.c journal_append
 *   closing       engine_file.c append_closing, close_store
 *   checkpoint    files.c files_checkpoint
 *   print         journal_reader.c take_snapshot, find_end
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
 * CHECKPOINTS, FAILS (failed write-backs, of a sync or the kernel's own),
 * EVICTS (pages that leave the cache), HOLDS (that stay when they are told to
 * leave), KILLS, CRASHES (of the machine, or of the disk alone), FULLS (writes
 * without room), READERS (each may follow).
 */
hidden byte plant_lost, plant_doubled, answered_twice, not_on_disk, covers_too_much,
    healthy_is_refused;
#define MUST(name, condition) assert((condition) || name)

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
byte end[PROCS];		/* of the lines that it has read: all durable */
byte ck[PROCS];			/* what its checkpoint will cover; 0: none */

byte covered, covered_disk;	/* by the manifest; 0: none */
byte mark, mark_disk;		/* after each batch, not synced */
byte endmark;			/* after a closing line, synced: also in a copy */

bit must[4];			/* answered 200, printed, or cause of a 409 */
byte ops = OPS, fails = FAILS, evicts = EVICTS, holds = HOLDS, kills = KILLS,
    crashes = CRASHES, fulls = FULLS, readers = READERS, checkpoints = CHECKPOINTS;

byte at, dur;			/* of who acts: its end of lines, and what is durable */
byte op, p, x, y, g, t, upto, w, w2, f, f2, held = PAGES;
bit ok, ask, tail, refuse, grow, dying;

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
/* Between two steps: killed, the machine stops, or none. */
inline step() {
  if
  :: true
  :: kills > 0 -> kills--; goto dead
  :: crashes > 0 -> crashes--; dying = 1; goto dead
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
    MUST(plant_doubled, y + w <= 1 && t <= 1);
    MUST(plant_lost, (y == 1 || !must[1]) && (w == 1 || !must[2]) && (t == 1 || !must[3]));
    y = 0; w = 0; t = 0
  }
}
/* The disk has the lines below k. */
inline on_disk(k, name) {
  d_step { FOR(x, 0, k) MUST(name, D[x] == C[x] && IS_LINE(C[x])); NEXT(x) }
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
#define TEXT(x) (x < SLOTS && C[x] != NONE && C[x] != BLANK)
#define RAISE(x, to) if :: x < to -> x = to :: else fi

/* What is durable, by the marks; and whether the disk has to be asked for more. */
inline find_durable() {
  RAISE(dur, covered);
  RAISE(dur, mark);
  walk(0);
#ifdef SAFE
  if :: upto > 0 -> RAISE(dur, safe[C[upto - 1]]) :: else fi;
#else
  if :: dur == 0 && upto > 0 -> dur = safe[C[upto - 1]] :: else fi;
#endif
  ask = TEXT(dur) || (st[p] == OPENED && kind[p] != READER && dur < SLOTS && C[dur] != NONE)
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
  MUST(healthy_is_refused, !refuse && upto >= endmark)
}
/* The index and the tail find the first line with this id. */
inline find(c, to) {
  d_step {
    to = 0;
    FOR(x, 0, at)
      if :: to == 0 && code[C[x]] != 0 && (code[C[x]] == 3) == (c == 3) -> to = code[C[x]]
         :: else fi;
    NEXT(x)
  }
}
/* 200, or 409 because of what is stored */
inline answer(c, s) {
  d_step {
    if :: c != 0 -> must[(s == 0 -> c : s)] = 1 :: else fi;
    MUST(answered_twice, !(must[1] && must[2]))
  }
}
inline room() {
  FOR(x, y, (y + 2 < SLOTS -> y + 2 : SLOTS)) C[x] = BLANK; dirty[x / 2] = 1; NEXT(x)
}
inline commit() {
  if :: w = 1 :: w = 2 :: w = 3 :: w = 1; w2 = 3 fi;
  find(w, f); if :: w2 != 0 -> find(w2, f2) :: else fi;
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
#ifdef MARKBEFORE
     mark = y; step();
#endif
#ifdef ANSWERBEFORE
     answer(w, f); answer(w2, f2); step();
#endif
     synced();
     at = y;
     if :: mark = at :: true fi		/* true: by version 1.0.0 */
  :: else
  fi;
  on_disk(y, not_on_disk);
  answer(w, f); answer(w2, f2);
  step()
}
inline closing() {
  if
  :: at > 0 && at < SLOTS && ops > 0 ->
     if :: code[C[at - 1]] != 0 ->
           ops--; y = at; put_line(0); synced();
           at = y; mark = at; step(); endmark = at
        :: else fi
  :: else
  fi
}
/* Another may have written its own meanwhile, which covers more or less. */
inline checkpoint() {
  if
  :: ck[p] == 0 && end[p] > 0 && checkpoints > 0 -> checkpoints--; ck[p] = end[p]
#ifdef UNSETTLED
     walk(0); ck[p] = upto
#endif
  :: ck[p] != 0 ->
     on_disk(ck[p], covers_too_much);
     covered = ck[p]; ck[p] = 0; step();
     covered_disk = covered
  :: else
  fi
}
inline print() {
#if RD == 0
  upto = dur;
#endif
  all_there(upto);		/* all that was answered before */
  step();
  d_step {
    FOR(x, 0, upto) must[code[C[x]]] = 1; MUST(not_on_disk, D[x] == C[x]); NEXT(x);
    must[0] = 0
  }
}
/* One turn of process p, with the lock. */
#define COMMIT 1
#define CLOSING 2
#define END 3
#define CHECKPOINT 4
inline turn(op) {
  if :: op == CHECKPOINT -> checkpoint(); goto next :: else fi;
  step();
  dur = end[p];
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
        if :: st[p] == OPENED && covered == 0 -> st[p] = RUN; goto next :: else fi;
#endif
#if RD == 1
        sync(); if :: !ok -> goto dead :: else fi; walk(0);
#endif
        print(); end[p] = upto;
        if :: goto dead :: st[p] = RUN; goto next fi	/* or follows */
     :: else fi;
  step();
  if :: tail -> cut(upto); synced() :: else fi;
  at = upto;
  if
  :: st[p] == OPENED -> all_there(at); st[p] = RUN
  :: st[p] == RUN && op == COMMIT && at + 2 <= SLOTS -> commit()
  :: st[p] == RUN && op == COMMIT && at + 2 > SLOTS
  :: st[p] == RUN && op == CLOSING -> closing()
  :: st[p] == RUN && op == END -> closing(); cut(at); goto dead
  fi;
  end[p] = at
}
inline reset() {
  op = 0; ask = 0; at = 0; dur = 0; upto = 0; ok = 0; refuse = 0; tail = 0;
  w = 0; w2 = 0; f = 0; f2 = 0; t = 0; y = 0; x = 0; g = 0; grow = 0;
  held = PAGES
}
inline end_process(q) { st[q] = IDLE; kind[q] = 0; pend[q] = 0; end[q] = 0; ck[q] = 0 }
inline crash() {
  FOR(p, 0, PROCS) end_process(p); NEXT(p);
  unseen = 0;
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
  if :: covered = covered_disk :: covered_disk = covered fi;
  if :: mark = mark_disk :: mark_disk = mark :: mark = 0; mark_disk = 0 fi;
  dying = 0
}
init {
next:
  atomic { forget(); d_step { reset(); p = 0 } }
  do
  :: atomic { if :: LONGS > 0 -> p = 0 :: LONGS > 1 -> p = 1
          :: p = 2 fi;
       if :: st[p] == IDLE ->
             st[p] = OPENED; pend[p] = unseen;
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
       :: st[p] == RUN && kind[p] != READER -> op = CHECKPOINT
       :: st[p] == RUN && kind[p] == LONG -> op = END
       :: st[p] == RUN && kind[p] == CGI -> goto dead
       :: st[p] != IDLE && kills > 0 -> kills--; goto dead
       :: st[p] == IDLE -> goto next
       fi;
       turn(op); goto next }
  :: atomic { evicts > 0 || fails > 0 || crashes > 0 ->
       p = 0; kernel();
       if :: crashes > 0 -> crashes--; dying = 1; goto dead
          :: true fi; goto next }
  od;
dead:
  atomic {
    d_step { reset(); end_process(p) };
    if :: dying -> crash() :: else fi;
    p = 0
  };
  goto next
}
