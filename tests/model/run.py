#!/usr/bin/env python3
"""Check the models of the protocols with spin: each whole state space has no
error, and each control, which leaves something out, fails at its assertion.

usage: run.py [--check] [--trail] [PATTERN]

  --check  only compare the functions that the models name with the sources
  --trail  also print how the world came to each error
  PATTERN  only the runs whose name contains it
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
# Memory, in MB, and time of a search on a machine that is ten times busier.
MEMORY, TIMEOUT = 5500, 5400

# What may happen, where a run does not say how often.
EVENTS = {
    'file': dict(OPS=2, LONGS=1, CHECKPOINTS=1, FAILS=0, EVICTS=0, HOLDS=0,
                 KILLS=1, CRASHES=0, FULLS=0, READERS=0, RD=2),
    'index': dict(OPS=2, CHECKPOINTS=2, STARTS=2, FAILS=0, EVICTS=0, KILLS=1,
                  CRASHES=0, REMOVALS=0, COPIES=0),
    'consumer': dict(KILLS=2, CRASHES=2),
    'feed': dict(FAULTS=2, ROWS=3, POLLS=2, RESUME=0),
    'postgresql': dict(FAULTS=2, TRIES=2),
    'waiting': dict(AWAYS=2, LOSSES=1),
}
# A model, what it is about, and its options; the assertion at which it fails.
RUNS = [
    ('file', 'two services and CGI; a write-back fails', dict(LONGS=2, FAILS=1)),
    # An eviction and a checkpoint at once are too many states.
    ('file', 'a service, CGI and a follower; a write-back fails',
     dict(FAILS=1, EVICTS=1, READERS=1, CHECKPOINTS=0)),
    ('file', 'a service, CGI and a follower; a write-back fails, a checkpoint',
     dict(FAILS=1, READERS=1)),
    ('file', 'two write-backs fail', dict(FAILS=2)),
    ('file', 'a power cut after a failed write-back', dict(FAILS=1, CRASHES=1)),
    ('file', 'a page stays in the cache; the disk is full',
     dict(FAILS=1, HOLDS=1, FULLS=1)),
    ('file', 'kills and a power cut; a follower', dict(CRASHES=1, READERS=1)),
    ('index', 'two processes and their successor', dict(STARTS=3)),
    ('index', 'a failed write-back of the index, and pages that leave the cache',
     dict(FAILS=1, EVICTS=1)),
    ('index', 'a power cut in a checkpoint', dict(CRASHES=1)),
    ('index', 'the index is removed while it is in use',
     dict(REMOVALS=1, KILLS=0)),
    ('index', 'a copy of the index', dict(COPIES=1)),
    ('index', 'checkpoints at the same time', dict(NOLOCK=1)),
    ('consumer', 'two runs of a consumer, kills and power cuts', {}),
    ('feed', 'two writers, a reader, a failover', {}),
    ('feed', 'the reader begins at the end', dict(RESUME=1)),
    ('postgresql', 'two services on a cluster', dict(FAULTS=3)),
    ('waiting', 'two threads, and a standby that is away', {}),
]
CONTROLS = [
    ('file', 'the answer comes before the sync',
     dict(ANSWERBEFORE=1, KILLS=0, CRASHES=1), 'plant_lost'),
    ('file', 'nothing is settled',
     dict(NOSETTLE=1, FAILS=1, EVICTS=1, CHECKPOINTS=0), 'not_on_disk'),
    ('file', 'settled by a sync alone',
     dict(SYNCONLY=1, FAILS=1, CHECKPOINTS=0), 'not_on_disk'),
    ('file', 'dropped without a sync',
     dict(DROPONLY=1, FAILS=1, CHECKPOINTS=0), 'not_on_disk'),
    ('file', 'written again in place',
     dict(REWRITE=1, FAILS=1, CHECKPOINTS=0), 'not_on_disk'),
    ('file', 'a page that stays is not noticed',
     dict(NOHOLD=1, HOLDS=1, FAILS=1, CHECKPOINTS=0), 'not_on_disk'),
    ('file', 'a reader stops at the end of the index',
     dict(RD=0, READERS=1), 'plant_lost'),
    ('file', 'a reader syncs and prints',
     dict(RD=1, READERS=1, FAILS=1, CHECKPOINTS=0), 'not_on_disk'),
    ('file', 'a reader goes on without the lock',
     dict(UNLOCKED=1, READERS=1, FAILS=1), 'plant_lost'),
    ('file', 'an index covers what is not settled',
     dict(UNSETTLED=1, FAILS=1), 'covers_too_much'),
    ('file', 'a mark comes before the sync',
     dict(MARKBEFORE=1, CHECKPOINTS=0), 'not_on_disk'),
    ('index', 'a run is not synced, and a write-back fails',
     dict(NOSYNC=1, FAILS=1, EVICTS=1, CHECKPOINTS=1),
     'index_is_wrong'),
    ('index', 'a run is not synced, and the power goes',
     dict(NOSYNC=1, CRASHES=1, CHECKPOINTS=1),
     'index_is_wrong'),
    ('index', 'the result of a sync is not looked at',
     dict(NORESULT=1, FAILS=1, EVICTS=1, CHECKPOINTS=1),
     'index_is_wrong'),
    ('index', 'a run has what is not durable',
     dict(UNSETTLED=1), 'covers_too_much'),
    ('index', 'a checkpoint drops what came meanwhile',
     dict(DROPALL=1, OPS=3, CHECKPOINTS=1, STARTS=1), 'index_is_wrong'),
    ('index', 'a copy is believed',
     dict(NOIDENTITY=1, COPIES=1, CHECKPOINTS=1), 'index_is_wrong'),
    ('consumer', 'the files are not synced', dict(NOSYNC=1), 'cursor_damaged'),
    ('consumer', 'the directory is not synced',
     dict(NODIRSYNC=1), 'plant_skipped'),
    ('consumer', 'the place moves before the output',
     dict(CURSORFIRST=1), 'plant_skipped'),
    ('consumer', 'two runs at once', dict(NOLOCK=1), 'plant_skipped'),
    ('consumer', 'a batch is removed before its command ends',
     dict(REMOVEFIRST=1), 'plant_skipped'),
    ('feed', 'no probe', dict(NOPROBE=1), 'printed_is_not_on_standby'),
    ('feed', 'no bound', dict(NOBOUND=1), 'row_skipped'),
    ('postgresql', 'no locking SELECT', dict(NOREPEAT=1), 'plant_lost'),
    ('postgresql', 'a warning is ignored', dict(NOWARNING=1), 'plant_lost'),
    ('waiting', 'a probe forgets what another thread has found',
     dict(CLEARED=1), 'thread_has_two'),
]
# A line of a model's table: what is here; files and functions there; (other things).
ENTRY = re.compile(r'^ \*   (.{2,16}?)(?:   +|\t+)(.*(?:\n \* {18,}.*)*)', re.M)


def runs():
    for model, name, options in RUNS:
        yield model, name, options, None
    for model, name, options, assertion in CONTROLS:
        yield model, 'control: ' + name, options, assertion


def missing():
    """What the models' tables name, and the sources or the model do not have."""
    for path in sorted(HERE.glob('*.pml')):
        text = path.read_text()
        table = text[:text.index('*/')]
        sources = {}
        for here, there in ENTRY.findall(table):
            if (here, there) == ('here', 'there'):
                continue
            for name in re.findall(r'\w+', here):
                if not re.search(rf'\b{name}\b', text[len(table):]):
                    yield f'{path.name}: {name} is not in the model'
            source = ''
            there = re.sub(r'\(.*?\)', '', there, flags=re.S)
            for word in re.findall(r'[\w./-]+', there):
                if '.' in word or '/' in word:
                    found = sorted(TOP.glob(f'src/*/{word}')) or [TOP / word]
                    source = found[0].read_text() if found[0].exists() else ''
                    if not source:
                        yield f'{path.name}: there is no {word}'
                elif source and not re.search(rf'^{word}\(|define {word}\b',
                                              source, re.M):
                    yield f'{path.name}: {word} is not where the table has it'
            sources[here] = source
        if not sources:
            yield f'{path.name}: no table of functions'


def check(run, trail):
    model, name, options, assertion = run
    given = [f'-D{key}={value}' for key, value
             in {**EVENTS[model], **options}.items()]
    with tempfile.TemporaryDirectory() as folder:
        def start(*command):
            return subprocess.run(command, cwd=folder, capture_output=True,
                                  text=True, timeout=TIMEOUT)

        # Its trail is read beside the model.
        source = f'{model}.pml'
        pathlib.Path(folder, source).write_text((HERE / source).read_text())
        for command in (['spin', '-a', *given, source],
                        ['gcc', '-O1', '-DSAFETY', '-DNOREDUCE', '-DCOLLAPSE',
                         '-DVECTORSZ=512', f'-DMEMLIM={MEMORY}', '-o', 'pan',
                         'pan.c']):
            made = start(*command)
            if made.returncode != 0:
                return False, name, made.stdout + made.stderr, ''
        out = start('./pan', '-m1000000', '-E').stdout
        error = re.search(r'pan:1: (.*)', out)
        whole = 'Search not completed' not in out and 'errors: 0' in out
        states = re.search(r'(\S+) states, stored', out)
        took = re.search(r'elapsed time (\S+)', out)
        told = (f'{states[1] if states else "?"} states, '
                f'{took[1] if took else "?"} s')
        if error:
            told += f', {error[1]}'
        if trail and error:
            told += '\n' + start('spin', '-t', '-p', '-g', *given, source).stdout
        # MUST(name, condition) is assert((condition) || name)
        good = bool(error and f'||{assertion})' in error[1]) if assertion else whole
        return good, name, told, '' if good else out[-2000:]


def main():
    options = [word for word in sys.argv[1:] if word.startswith('-')]
    words = [word for word in sys.argv[1:] if not word.startswith('-')]
    if '--help' in options or '-h' in options:
        print(__doc__)
        for model, name, _, assertion in runs():
            print(f'  {model}.pml: {name}{" -> " + assertion if assertion else ""}')
        return 0
    if len(words) > 1 or set(options) - {'--check', '--trail'}:
        print(__doc__, file=sys.stderr)
        return 64
    wrong = list(missing())
    for line in wrong:
        print(f'not ok - {line}')
    chosen = [] if '--check' in options else [
        run for run in runs() if not words or words[0] in run[1]]
    failed = len(wrong)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for good, name, told, why in pool.map(
                lambda run: check(run, '--trail' in options), chosen):
            print(f'{"" if good else "not "}ok - {name}: {told}\n{why}'.strip(),
                  flush=True)
            failed += not good
    if not chosen and not failed and '--check' in options:
        print('ok - the sources have what the models name')
        return 0
    print(f'{len(chosen) + len(wrong) - failed} passed, {failed} failed')
    return failed > 0 or not chosen


if __name__ == '__main__':
    sys.exit(main())
