/*
 * postgresql.pml: the PostgreSQL engine: two services that store contents of
 * one id, a primary and its synchronous standby, and what goes wrong there.
 *
 *   here          there
 *   Service       postgresql.c take_session, store_batch; session.c session_run
 *   write         postgresql.c run_statement (INSERT, REPEAT)
 *   answer        postgresql.c set_result, set_results
 *   warned        session.c receive_notice (of a wait that was cancelled)
 *
 * A node has a log of what it wrote: the row, with its content, or a lock of
 * it.  A commit waits until the standby has the log up to it; what a node has
 * in its log it has on its disk.  A client that gets no answer tries again.
 *
 * The world: the standby is late; the wait for it is cancelled (a WARNING, then
 * success); a connection is lost, or the deadline passes; the primary crashes
 * and comes up again, its waiting transactions are visible then; the standby
 * is promoted, the old leader goes on for those who are connected to it, is
 * rewound, follows, and may lead again.  run.py gives FAULTS, how many of these
 * happen, and TRIES, those of each client.
 */
hidden byte plant_lost, answered_twice;
#define MUST(name, condition) assert((condition) || name)

#define LOCK 3
#define ENTRIES 7
#define OTHER(n) (1 - (n))

typedef Node {
  byte log[ENTRIES], end;	/* 1, 2: a row of that content; LOCK */
  byte row, open;		/* visible; of a transaction that waits */
  bit up, follows;
  byte epoch;			/* ends the sessions of the one before */
}
Node node[2];
byte leader;
byte must;			/* answered 200, or the cause of a 409 */
byte faults = FAULTS;

#define HAS_STANDBY(n) (node[OTHER(n)].follows)
#define REPLICATED(n, k) (HAS_STANDBY(n) && node[OTHER(n)].end > k)
#define ALIVE (node[n].up && node[n].epoch == epoch)

/* What a node that starts finds in its log is visible. */
inline recover(n) {
  node[n].open = 0; node[n].row = 0; i = 0;
  do :: i < node[n].end ->
        if :: node[n].log[i] != LOCK && node[n].row == 0 -> node[n].row = node[n].log[i]
           :: else fi;
        i++
     :: else -> break od; i = 0
}
inline copy_log(to) {
  i = 0;
  do :: i < ENTRIES -> node[to].log[i] = node[OTHER(to)].log[i]; i++
     :: else -> break od;
  node[to].end = node[OTHER(to)].end; i = 0
}
/* New sessions: the numbers themselves mean nothing. */
inline end_sessions(n) { node[n].epoch = (node[n].epoch + 1) % 8 }
inline write(what) {
  assert(node[n].end < ENTRIES);
  place = node[n].end; node[n].log[place] = what; node[n].end++
}

proctype Service(byte plant) {
  byte n, epoch, place, found, tries; bit warned, unknown;

  do
  :: tries == TRIES -> break
  :: tries < TRIES -> tries++; warned = 0; found = 0; unknown = 0; place = 0;
     /* take: a node that takes writes, also one that leads no more */
     if
     :: atomic { node[leader].up -> n = leader; epoch = node[n].epoch }
     :: atomic { node[OTHER(leader)].up && !node[OTHER(leader)].follows ->
          n = OTHER(leader); epoch = node[n].epoch }
     :: !node[leader].up -> goto again
     fi;
     /* insert */
     if
     :: atomic { ALIVE && node[n].row == 0 && node[n].open == 0 ->
          write(plant); node[n].open = plant };
        if	/* the wait of its commit */
        :: atomic { ALIVE && REPLICATED(n, place) -> node[n].row = plant; node[n].open = 0 }
        :: atomic { ALIVE && faults > 0 -> faults--; warned = 1; node[n].row = plant; node[n].open = 0 }
        :: atomic { faults > 0 -> faults--; unknown = 1 }
        :: !ALIVE -> unknown = 1
        fi;
        found = plant
     :: atomic { ALIVE && node[n].open != 0 -> goto again }	/* 55P03 */
     :: atomic { ALIVE && node[n].row != 0 -> found = node[n].row
#ifndef NOREPEAT
          ; write(LOCK) };
        if
        :: ALIVE && REPLICATED(n, place)
        :: atomic { ALIVE && faults > 0 -> faults--; warned = 1 }
        :: atomic { faults > 0 -> faults--; unknown = 1 }
        :: !ALIVE -> unknown = 1
        fi
#else
        }
#endif
     :: !ALIVE -> goto again
     fi;
#ifdef NOWARNING
     warned = 0;
#endif
     /* answer: 200 or 409, unless it is not known */
     atomic {
       if :: !warned && !unknown -> MUST(answered_twice, must == 0 || must == found); must = found
          :: else fi
     };
again: skip
  od
}

/* Whoever leads, or may lead next by what it has, has what was answered. */
inline check() {
  i = 0; seen = 0;
  if :: HAS_STANDBY(leader) -> s = OTHER(leader) :: else -> s = leader fi;
  do :: i < node[s].end ->
        if :: node[s].log[i] != LOCK && seen == 0 -> seen = node[s].log[i] :: else fi; i++
     :: else -> break od;
  MUST(plant_lost, must == 0 || seen == must);
  i = 0; seen = 0; s = 0
}

init {
  byte i, seen, s;
  atomic {
    node[0].up = 1; node[1].up = 1; node[1].follows = 1;
    run Service(1); if :: run Service(1) :: run Service(2) fi
  };
  do
  :: atomic { HAS_STANDBY(leader) && node[OTHER(leader)].end < node[leader].end ->
       s = OTHER(leader);
       node[s].log[node[s].end] = node[leader].log[node[s].end]; node[s].end++; s = 0 }
  /* nobody asks any more, and the wait ends */
  :: atomic { HAS_STANDBY(leader) && node[OTHER(leader)].end == node[leader].end && node[leader].open != 0 ->
       node[leader].row = node[leader].open; node[leader].open = 0 }
  /* the primary crashes, and comes up again */
  :: atomic { faults > 0 && node[leader].up -> faults--; node[leader].up = 0; end_sessions(leader) }
  :: atomic { !node[leader].up -> node[leader].up = 1; recover(leader) }
  /* failover; the old leader may live on, and has no standby */
  :: atomic { faults > 0 && HAS_STANDBY(leader) -> faults--;
       leader = OTHER(leader); node[leader].follows = 0; end_sessions(leader); recover(leader); check() }
  /* the old leader is rewound, and follows */
  :: atomic { !node[OTHER(leader)].follows -> s = OTHER(leader);
       end_sessions(s); copy_log(s); node[s].up = 1; node[s].row = 0; node[s].open = 0; node[s].follows = 1; s = 0; check() }
  :: atomic { must != 0 -> check() }
  :: atomic { _nr_pr == 1 -> check(); break }
  od
}
