/*
 * consumer.pml: how plants get to a consumer's command: its place, a batch, the
 * command, and what kills and power cuts do between any two steps.
 *
 *   here          there
 *   Run           deploy/consumer/plant-store-consume
 *   export        export_command.c export_run; output.c output_open, output_finish
 *   save          export_command.c save_cursor
 *   place         export_command.c open_export, lock_cursor, read_cursor
 *
 * The store has PLANTS plants, one after the other; a batch has one or more, a
 * bit for each.  A directory has two names, the batch and the cursor: what a
 * rename or unlink did is on the disk after a sync of the directory, or at any
 * time before.  The content of a file that was not synced is lost by a power
 * cut.  A command that survives its parent still ends.
 *
 * run.py gives KILLS (of a run, at any step) and CRASHES (of the machine).
 */
hidden byte plant_skipped, cursor_damaged, batch_damaged;
#define MUST(name, condition) assert((condition) || name)

#define RUNS 2
#define PLANTS 3
#define UPTO(n) ((1 << (n)) - 1)	/* the plants 1 to n */
#define IS_FILE 8		/* a batch; the plants are the other bits */
#define LOST 16			/* content that no sync had put on the disk */

byte batch, batch_disk, place, place_disk;
bit batch_synced, place_synced;	/* the contents */
byte stored, handed;
bit busy[RUNS];			/* holds the lock of the directory */
byte kills = KILLS, crashes = CRASHES, boot;

inline step() {
  if :: boot != mine -> goto ended
     :: boot == mine && kills > 0 -> kills--; goto ended
     :: boot == mine fi
}
#define ON_DISK(file, synced) (synced || file == 0 -> file : file | LOST)
inline sync_directory() {
  atomic { step();
    batch_disk = ON_DISK(batch, batch_synced); place_disk = ON_DISK(place, place_synced) }
}
/* No plant before the place was neither handed over nor is in the batch. */
inline check() {
  d_step {
    MUST(cursor_damaged, place < LOST);
    MUST(batch_damaged, batch < LOST);
    MUST(plant_skipped, (UPTO(place) & ~(handed | batch)) == 0)
  }
}
inline sync_file() {
#ifdef NOSYNC
  skip
#else
  atomic { step(); synced = 1 }
#endif
}
inline save() {
  sync_file();
  atomic { step(); place = to; place_synced = synced; synced = 0; check() };
  sync_directory()
}
inline export() {
  atomic { step(); from = place; to = from; synced = 0;
    do :: to < stored -> to++ :: break od;
    content = IS_FILE | (UPTO(to) & ~UPTO(from)) };
#ifdef CURSORFIRST
  if :: to > from -> save() :: else fi;
#endif
  sync_file();
  atomic { step();			/* rename_new */
    if :: batch == 0 -> batch = content; batch_synced = synced :: else -> goto ended fi;
    synced = 0 };
#ifndef NODIRSYNC
  sync_directory();
#endif
#ifndef CURSORFIRST
  if :: to > from -> save() :: else fi
#endif
}
inline remove() { atomic { step(); batch = 0; check() } }

proctype Run(byte me) {
  byte from, to, content, mine; bit synced;

again:
  atomic { mine = boot;
#ifndef NOLOCK
    !busy[0] && !busy[1];
#endif
    busy[me] = 1 };
  do
  :: if :: batch == 0 -> export() :: else fi;
     atomic { step(); content = batch };
     if :: (content & ~IS_FILE) == 0 -> break :: else fi;
#ifdef REMOVEFIRST
     remove();
#endif
     if	:: atomic { step(); handed = handed | content }	/* all on its disk */
        :: goto ended fi;				/* it fails */
#ifndef REMOVEFIRST
     remove()
#endif
  od;
  if :: content != 0 -> remove() :: else fi;
ended:
  atomic { if :: boot == mine -> busy[me] = 0 :: else fi;
    from = 0; to = 0; content = 0; synced = 0; mine = 0 };
  if :: stored == PLANTS && handed == (UPTO(PLANTS) | IS_FILE) :: goto again fi
}

init {
  atomic { byte i; for (i : 0 .. RUNS - 1) { run Run(i) }; i = 0 };
  do
  :: atomic { stored < PLANTS -> stored++ }
  :: atomic { batch_disk = ON_DISK(batch, batch_synced) }	/* by itself */
  :: atomic { place_disk = ON_DISK(place, place_synced) }
  :: atomic { crashes > 0 -> crashes--; boot++; busy[0] = 0; busy[1] = 0;
       batch = batch_disk; place = place_disk; batch_synced = 1; place_synced = 1;
       check() }
  od
}
