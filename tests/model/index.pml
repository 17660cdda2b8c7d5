/*
 * index.pml: the index: sorted runs that never change, and the manifest that
 * names them; several processes, each with requests and a checkpointing thread.
 *
 *   here          there
 *   open_view     index.c load, read_manifest, open_runs
 *   look_up       index.c index_find
 *   Requests      files.c files_open_and_lock, files_catch_up;
 *                 engine_file.c commit_items
 *   settle        files.c read_on; journal.c journal_settle
 *   Checkpoint    files.c files_checkpoint; index.c index_claim,
 *                 index_collect, index_write, index_install, index_release
 *   sync_pairs    run.c run_end
 *   sync_new      index.c write_manifest
 *
 * Of the journal it has how many lines there are, how many are durable (others
 * may be lost; file.pml has why), and which one is that of the only id that is
 * looked up: `first`, its place + 1.  Attempt k of a checkpoint makes run k, which
 * has `first` or 0, and manifest k, which names run k and what manifest base[k]
 * names.  By `name`, numbers lead to runs; they are used again.
 *
 * A file has what the page cache and what the disk has of it.  A failed
 * write-back leaves the cache clean, and is reported to the descriptor that
 * wrote, and to nobody once that is closed.  So are the directory's names lost,
 * one by one.  A copy's files are others (FOREIGN), and may be incomplete.
 *
 * run.py gives OPS (requests that store), CHECKPOINTS (attempts), STARTS, FAILS,
 * EVICTS, KILLS, CRASHES, and REMOVALS and COPIES of the index.
 */
hidden byte index_is_wrong, covers_too_much;
#define MUST(name, condition) assert((condition) || name)

#define PROCS 2
#define K (CHECKPOINTS + 1)	/* 0: none */
#define FOREIGN 16

byte lines, durable, first;
byte pairs[K], pairs_disk[K], covered[K], base[K], number[K];
bit pairs_dirty[K], pairs_failed[K];
bit whole[K], whole_disk[K], new_dirty[K], new_failed[K];	/* the manifest's bytes */
byte name[K], name_disk[K], manifest, manifest_disk;
bit name_dirty[K], manifest_dirty;	/* manifest's is its name */
byte attempts;

bit alive[PROCS], open[PROCS], stop[PROCS], stop_thread[PROCS], works[PROCS];
byte view[PROCS], at[PROCS], index_lock;
byte ops = OPS, starts = STARTS, fails = FAILS, evicts = EVICTS, kills = KILLS,
    crashes = CRASHES, removals = REMOVALS, copies = COPIES;

#define END_PROCESS(q) alive[q] = 0; open[q] = 0; works[q] = 0; stop_thread[q] = 1; \
  view[q] = 0; at[q] = 0; \
  if :: index_lock == q + 1 -> index_lock = 0 :: else fi

/* --- Files --- */

inline sync_pairs(k) {
  if :: pairs_dirty[k] && fails > 0 -> fails--; pairs_failed[k] = 1
     :: pairs_dirty[k] -> pairs_disk[k] = pairs[k]
     :: !pairs_dirty[k] fi;
  pairs_dirty[k] = 0; ok = !pairs_failed[k]; pairs_failed[k] = 0
}
inline sync_new(k) {
  if :: new_dirty[k] && fails > 0 -> fails--; new_failed[k] = 1
     :: new_dirty[k] -> whole_disk[k] = whole[k]
     :: !new_dirty[k] fi;
  new_dirty[k] = 0; ok = !new_failed[k]; new_failed[k] = 0
}
inline set_name(n, k) { name[n] = k; name_dirty[n] = 1 }
inline sync_names() {
  ok = 1;
  if :: fails > 0 && manifest_dirty -> fails--; ok = 0
     :: true -> manifest_disk = manifest fi;
  manifest_dirty = 0; i = 1;
  do :: i < K ->
        if :: fails > 0 && name_dirty[i] -> fails--; ok = 0
           :: true -> if :: name_dirty[i] -> name_disk[i] = name[i] :: else fi fi;
        name_dirty[i] = 0; i++
     :: else -> break od; i = 0
}
/* Whether the manifest k names the number n. */
inline is_named(k, n, yes) {
  j = k; yes = 0;
  do :: j > 0 -> yes = yes || number[j] == n; j = base[j] :: else -> break od
}

/* --- Lookup --- */

/* The manifest that can be believed, with its runs opened one by one. */
inline open_view(m) {
  atomic { m = manifest; k = m };
  do
  :: k == 0 -> break
  :: atomic { k > 0 ->
       if :: !whole[m] -> k = 0; m = 0
#ifdef NOIDENTITY
          :: whole[m] && name[number[k]] > 0 -> k = base[k]
#else
          :: whole[m] && name[number[k]] == k -> k = base[k]
#endif
          :: else -> m = (manifest == m -> 0 : manifest); k = m fi }
  od;
  MUST(covers_too_much, covered[m] <= durable)
}
/* The runs, the oldest first, then the tail from their end to `to`. */
inline look_up(v, to, e) {
  e = 0; j = v;
  do :: j > 0 -> if :: pairs[j] > 0 -> e = pairs[j] :: else fi; j = base[j]
     :: else -> break od;
  if :: e == 0 && first > covered[v] && first <= to -> e = first :: else fi
}
/* Lines that nobody is known to have synced are on the disk, or gone. */
inline settle() {
  if :: lines > durable ->
        if :: durable = lines
           :: if :: first == lines -> first = 0 :: else fi; lines-- fi
     :: else fi
}

#define STARTED(q) (q == 0 || alive[0])		/* which is which is no matter */
proctype Requests(byte me) {
  byte m, k, e, j;

again:
  { do
    :: atomic { starts > 0 && STARTED(me) -> starts--; alive[me] = 1; stop[me] = 0 };
       open_view(m);
       atomic { view[me] = m; at[me] = covered[m]; open[me] = 1; m = 0 };
       do
       :: atomic { ops > 0 -> ops--;	/* under the lock of the journal */
            settle();
            at[me] = lines;
            look_up(view[me], at[me], e);
            MUST(index_is_wrong, e == first);
            e = 0; j = 0; lines++;
            if :: first == 0 -> first = lines :: true fi;
            if
            :: durable = lines; at[me] = lines
            :: fails > 0 -> fails--; goto ended
            :: kills > 0 -> kills--; goto ended
            fi }
       :: atomic { !works[me] -> goto ended }
       od;
ended: atomic { END_PROCESS(me); m = 0; k = 0 }
    :: starts == 0 -> goto over
    od
  } unless { stop[me] };
  atomic { stop[me] = 0; m = 0; k = 0 };
  goto again;
over: skip
}

#ifdef NOLOCK
#define CAN_LOCK true
#else
#define CAN_LOCK (index_lock == 0)
#endif
proctype Checkpoint(byte me) {
  byte m, k, x, b, e, i, j; bit ok;

again:
  { do
    :: atomic { open[me] && attempts < CHECKPOINTS && CAN_LOCK -> index_lock = me + 1; works[me] = 1 };
       open_view(m);
       atomic { if :: covered[m] > covered[view[me]] -> view[me] = m;
                      if :: at[me] < covered[m] -> at[me] = covered[m] :: else fi
                   :: else fi;
         /* The newest runs may be merged; without the manifest, all are written. */
         if :: m == view[me] -> b = m :: else -> b = 0 fi;
         do :: b > 0 -> b = base[b] :: break od;
         x = at[me];
#ifdef UNSETTLED
         x = lines;
#endif
         m = view[me];
         look_up(m, x, e);
         if :: e <= covered[b] -> e = 0 :: else fi;
         if :: x == covered[b] || attempts == CHECKPOINTS -> goto ended
            :: else fi;
         attempts++; k = attempts; m = 0; i = 1;
         do :: is_named(manifest, i, ok); if :: ok -> i++ :: else -> break fi od;
         set_name(i, k); number[k] = i; i = 0;
         base[k] = b; covered[k] = x; pairs[k] = e; pairs_dirty[k] = 1; x = 0; b = 0; e = 0 };
       atomic {
#ifndef NOSYNC
         sync_pairs(k);
#ifdef NORESULT
         ok = 1;
#endif
         if :: !ok -> goto failed :: else fi;
#endif
         whole[k] = 1; new_dirty[k] = 1 };
       atomic { sync_new(k); if :: !ok -> goto failed :: else fi;
         manifest = k; manifest_dirty = 1 };
       atomic { sync_names(); if :: !ok -> goto ended :: else fi;
#ifdef DROPALL
         covered[k] = at[me];
#endif
         view[me] = k };
       atomic { i = 1;		/* remove what is not named any more */
         do :: i < K -> is_named(k, i, ok);
               if :: !ok && name[i] > 0 -> set_name(i, 0) :: else fi; i++
            :: else -> break od };
       goto ended;
failed: atomic { if :: name[number[k]] == k -> set_name(number[k], 0) :: else fi };
ended: atomic { if :: index_lock == me + 1 -> index_lock = 0 :: else fi; works[me] = 0;
         m = 0; k = 0; x = 0; b = 0; e = 0; i = 0; j = 0; ok = 0 }
    od
  } unless { stop_thread[me] };
  atomic { stop_thread[me] = 0; m = 0; k = 0; x = 0; b = 0; e = 0; i = 0; j = 0; ok = 0 };
  goto again
}

#define IS_ALIVE (alive[0] || alive[1])
init {
  byte i, n;

  atomic { whole[0] = 1; run Requests(0); run Requests(1); run Checkpoint(0); run Checkpoint(1) };
  do
  :: atomic { fails > 0 && attempts > 0 -> i = 1;	/* a write-back of the kernel's own */
       do :: i < attempts -> i++ :: break od;
       if :: pairs_dirty[i] -> fails--; pairs_dirty[i] = 0; pairs_failed[i] = 1
          :: new_dirty[i] -> fails--; new_dirty[i] = 0; new_failed[i] = 1
          :: name_dirty[number[i]] -> fails--; name_dirty[number[i]] = 0
          :: manifest_dirty -> fails--; manifest_dirty = 0
          :: else fi; i = 0 }
  :: atomic { evicts > 0 && attempts > 0 -> i = 1;
       do :: i < attempts -> i++ :: break od;
       if :: !pairs_dirty[i] && pairs[i] != pairs_disk[i] -> evicts--; pairs[i] = pairs_disk[i]
          :: !new_dirty[i] && whole[i] != whole_disk[i] -> evicts--; whole[i] = whole_disk[i]
          :: else fi; i = 0 }
  :: atomic { kills > 0 && IS_ALIVE -> kills--;
       if :: alive[0] -> stop[0] = 1; END_PROCESS(0)
          :: alive[1] -> stop[1] = 1; END_PROCESS(1) fi }
  :: atomic { crashes > 0 -> crashes--;
       if :: alive[0] -> stop[0] = 1; END_PROCESS(0) :: else fi;
       if :: alive[1] -> stop[1] = 1; END_PROCESS(1) :: else fi;
       if :: lines > durable ->
             if :: durable = lines :: if :: first == lines -> first = 0 :: else fi; lines-- fi
          :: else fi;
       i = 1;
       do :: i < K ->
             if :: pairs_dirty[i] -> pairs_disk[i] = pairs[i] :: true fi;
             if :: new_dirty[i] -> whole_disk[i] = whole[i] :: true fi;
             if :: name_dirty[i] -> name_disk[i] = name[i] :: true fi;
             pairs[i] = pairs_disk[i]; whole[i] = whole_disk[i]; name[i] = name_disk[i];
             pairs_dirty[i] = 0; new_dirty[i] = 0; name_dirty[i] = 0;
             pairs_failed[i] = 0; new_failed[i] = 0; i++
          :: else -> break od; i = 0;
       if :: manifest_dirty -> manifest_disk = manifest :: true fi;
       manifest = manifest_disk; manifest_dirty = 0 }
  :: atomic { removals > 0 && manifest > 0 -> removals--; i = 1;
       do :: i < K -> set_name(i, 0); i++ :: else -> break od; i = 0;
       manifest = 0; manifest_dirty = 1; index_lock = 0 }
  :: atomic { copies > 0 && !IS_ALIVE && attempts > 0 -> copies--; i = 1;
       do :: i < K -> if :: name[i] > 0 -> name[i] = FOREIGN :: else fi;
             name_disk[i] = name[i]; name_dirty[i] = 0;
             if :: pairs[i] = 0 :: true fi; pairs_disk[i] = pairs[i]; pairs_dirty[i] = 0; i++
          :: else -> break od; i = 0 }
  :: atomic { starts == 0 && !IS_ALIVE -> break }
  od
}
