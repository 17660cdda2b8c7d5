"""Where it is measured: a directory on a disk, a line about the machine."""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
# Behind the folder of what was started, which has some of the same names.
sys.path += [str(TOP / "tests"), str(TOP / "tests/faults")]

IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "rootfs"}


def file_system(directory: pathlib.Path) -> str:
    """Its device and type, such as "/dev/vda ext4"."""
    out = subprocess.check_output(["df", "--output=source,fstype", str(directory)], text=True)
    return " ".join(out.split()[-2:])


@contextlib.contextmanager
def scratch(parent: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory of our own on a disk; ends the program if there is no disk."""
    parent.mkdir(parents=True, exist_ok=True)
    if file_system(parent).split()[-1] in IN_MEMORY:
        sys.exit(
            f"{pathlib.Path(sys.argv[0]).name}: {parent}: in memory, where a sync "
            "costs nothing; name a directory on a disk with --dir"
        )
    path = pathlib.Path(tempfile.mkdtemp(prefix="plant-store-", dir=parent.resolve()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def machine(directory: pathlib.Path) -> str:
    return (
        f"{os.cpu_count()} CPUs, Linux {platform.release()}, "
        f"{file_system(directory)}; load at the beginning {os.getloadavg()[0]:.1f}"
    )


def program_parser(doc: str) -> argparse.ArgumentParser:
    """What the programs of their own have in common."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build")
    parser.add_argument("--dir", type=pathlib.Path, help="on a disk; default BUILD/bench")
    parser.add_argument("--json", metavar="FILE", help="all figures, to a file")
    return parser


def write_json(args: argparse.Namespace, figures: object) -> None:
    """Where --json wants them."""
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(figures, indent=1) + "\n")
