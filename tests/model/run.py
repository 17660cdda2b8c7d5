#!/usr/bin/env python3
"""Check the models of the engines with spin: each whole state space of the
protocol has no error, and each control, which leaves something out of it, has.

    run.py [--trail] [PATTERN]   only the runs whose name contains it; with
                                 --trail, how the world came to each error
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# Memory, in MB, and time of a search on a machine that is ten times busier.
MEMORY, TIMEOUT = 5500, 5400

# What may happen, where a run does not say how often.
NONE = dict(OPS=2, LONGS=1, FAILS=0, EVICTS=0, HOLDS=0, KILLS=0, CRASHES=0,
            LOSSES=0, FULLS=0, IXFAILS=0, READERS=0, RD=2, FAULTS=2, TRIES=2)
SOME = {**NONE, 'FAILS': 1, 'EVICTS': 1, 'KILLS': 1, 'CRASHES': 1}

FILE, POSTGRESQL = 'file.pml', 'postgresql.pml'
HOLD = [
    ('two services, CGI and a reader; a write-back fails', FILE,
     dict(LONGS=2, FAILS=1, EVICTS=1, KILLS=1, READERS=1)),
    ('two write-backs fail', FILE, dict(FAILS=2, KILLS=1)),
    ('a power cut after a failed write-back', FILE, dict(FAILS=1, CRASHES=1)),
    ('a page stays in the cache; the disk is full', FILE,
     dict(FAILS=1, HOLDS=1, FULLS=1)),
    ('kills and a power cut; a reader', FILE,
     dict(KILLS=1, CRASHES=1, READERS=1)),
    ('the device of two services is lost and comes back', FILE,
     dict(LONGS=2, KILLS=1, LOSSES=1, NOALONE=1)),
    ('a page of the index is lost', FILE,
     dict(LONGS=2, IXFAILS=1, IXCHECK=1)),
    ('two services on a cluster', POSTGRESQL, dict(FAULTS=3)),
]
FAIL = [
    ('the answer comes before the sync', FILE, dict(ANSWERBEFORE=1)),
    ('nothing is settled', FILE, dict(NOSETTLE=1)),
    ('settled by a sync alone', FILE, dict(SYNCONLY=1)),
    ('dropped without a sync', FILE, dict(DROPONLY=1)),
    ('written again in place', FILE, dict(REWRITE=1)),
    ('a page that stays is not noticed', FILE, dict(NOHOLD=1, HOLDS=1)),
    ('a reader stops at the end of the index', FILE, dict(RD=0, READERS=1)),
    ('a reader syncs and prints', FILE, dict(RD=1, READERS=1)),
    ('a reader goes on without the lock', FILE, dict(UNLOCKED=1, READERS=1)),
    ('an index is believed after a loss', FILE,
     dict(BELIEVE=1, LOSSES=1, NOALONE=1)),
    ('CGI alone believes its index after a loss', FILE, dict(LOSSES=1)),
    ('a lost page of the index is not noticed', FILE, dict(IXFAILS=1, OPS=3)),
    ('no locking SELECT', POSTGRESQL, dict(NOREPEAT=1)),
    ('a warning is ignored', POSTGRESQL, dict(NOWARNING=1)),
]


def runs():
    for must_fail, events, table in (False, NONE, HOLD), (True, SOME, FAIL):
        for name, model, given in table:
            options = {**events, **given}
            yield ('control: ' if must_fail else '') + name, model, [
                f'-D{key}={value}' for key, value in options.items()], must_fail


def check(run, trail):
    name, model, options, must_fail = run
    with tempfile.TemporaryDirectory() as folder:
        def start(*command):
            return subprocess.run(command, cwd=folder, capture_output=True,
                                  text=True, timeout=TIMEOUT)

        # Its trail is read beside the model.
        with open(f'{HERE}/{model}') as source, \
                open(f'{folder}/{model}', 'w') as copy:
            copy.write(source.read())
        for command in (['spin', '-a', *options, model],
                        ['gcc', '-O1', '-DSAFETY', '-DNOREDUCE', '-DCOLLAPSE',
                         '-DVECTORSZ=512', f'-DMEMLIM={MEMORY}', '-o', 'pan',
                         'pan.c']):
            made = start(*command)
            if made.returncode != 0:
                return False, name, made.stdout + made.stderr, ''
        out = start('./pan', '-m1000000', '-E').stdout
        error = re.search(r'pan:1: (.*)', out)
        whole = 'Search not completed' not in out and 'errors: 0' in out
        states = re.search(r'(\d+) states, stored', out)
        took = re.search(r'elapsed time (\S+)', out)
        told = (f'{states[1] if states else "?"} states, '
                f'{took[1] if took else "?"} s')
        if error:
            told += f', {error[1]}'
        if trail and error:
            told += '\n' + start('spin', '-t', '-p', '-g', *options,
                                 model).stdout
        found = error is not None and 'assertion violated' in error[1]
        good = found if must_fail else whole
        return good, name, told, '' if good else out[-2000:]


def main():
    words = [word for word in sys.argv[1:] if word != '--trail']
    chosen = [run for run in runs() if not words or words[0] in run[0]]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for good, name, told, why in pool.map(
                lambda run: check(run, '--trail' in sys.argv), chosen):
            print(f'{"" if good else "not "}ok - {name}: {told}\n{why}'.strip(),
                  flush=True)
            failed += not good
    print(f'{len(chosen) - failed} passed, {failed} failed')
    return failed > 0 or not chosen


if __name__ == '__main__':
    sys.exit(main())
