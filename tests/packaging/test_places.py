#!/usr/bin/env python3
"""Goal: it builds, and its tests pass, where people have it.

usage: test_places.py BUILD_DIR [--long]

Each place is a Debian of its own, with what scripts/packages installs there and nothing else,
and a copy of the sources: a machine with its own processes, mounts and network.  A container's
root has the rights that Docker gives.  What it lacks for some tests is listed, and compared.
"""

import dataclasses
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from lib_service import TOP, Tally, main
from test_package import Mirror

HOURS_S = 4 * 3600.0  # against what hangs; the tests inside have limits of their own
DEBIAN = {"12": "bookworm", "13": "trixie"}
# The groups whose programs depend most on the Debian that they are in.
GROUPS = ("build", "unit tests", "fixtures", "commands", "scenarios", "lighttpd", "nginx")

# $1 becomes the root of a machine, which ends with its first process.
MACHINE = r"""
mount --bind "$1" "$1"; cd "$1"
mount -t proc proc proc; mount --rbind /sys sys
mount -t tmpfs -o mode=755 dev dev; mkdir dev/pts dev/shm
for node in null:3 zero:5 full:7 random:8 urandom:9; do
	mknod -m 666 "dev/${node%:*}" c 1 "${node#*:}"
done
mknod -m 666 dev/tty c 5 0
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts dev/pts
mount -t tmpfs -o "mode=$2" shm dev/shm
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
ip link set lo up
shift 2; pivot_root . mnt; umount -l /mnt; cd /
exec env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""
# What Docker's default profile refuses to a process without capabilities.
CONTAINED = r"""
import ctypes, os, sys
lib = ctypes.CDLL("libseccomp.so.2")
lib.seccomp_init.restype = ctypes.c_void_p
rules = ctypes.c_void_p(lib.seccomp_init(0x7FFF0000))  # all is allowed, but
lib.seccomp_attr_set(rules, 3, 0)  # programs may still become another user's
EPERM, ENOSYS = 0x50001, 0x50026
for name in ("add_key bpf delete_module fsconfig fsmount fsopen fspick init_module io_uring_enter "
             "io_uring_register io_uring_setup kexec_load keyctl mount mount_setattr move_mount "
             "open_by_handle_at open_tree perf_event_open pivot_root quotactl reboot request_key "
             "setns swapon umount2 unshare userfaultfd clone3").split():
    what = ENOSYS if name == "clone3" else EPERM
    assert lib.seccomp_rule_add(rules, what, lib.seccomp_syscall_resolve_name(name.encode()), 0) == 0
assert lib.seccomp_load(rules) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
KEPT = ("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
        "net_bind_service", "net_raw", "sys_chroot", "mknod", "audit_write", "setfcap")
CONTAINER = ["python3", "-c", CONTAINED, "setpriv", f"--bounding-set=-all,+{',+'.join(KEPT)}",
             "--inh-caps=-all", "--"]
USER = ["setpriv", "--reuid=ann", "--regid=ann", "--init-groups", "env", "HOME=/home/ann"]
# By programs that scripts/packages installs only for --full.
WITHOUT_FULL = {"linters and generators", "promtool's opinion of metrics and rules",
                "what Prometheus makes of alerts and dashboard"}
NO_MOUNTS = {
    "a disk with little room", "a store that was moved", "the service's own places", "a full disk",
    "a read-only store", "a read-only mount can be read, its index too", "a full disk is told",
    "A worker killed with a request in its hands.",
}


NO_ROOT = NO_MOUNTS - {"A worker killed with a request in its hands."} | {
    "a directory of another user", "a foreign owner is told", "a token file in /",
    "as another user", "files belong to the store's owner", "the cursor keeps its owner",
    "root does not serve another user's store", "root in a directory of another user",
    "who may only read a copy is told to read it as its owner",
    "the service's user", "the socket", "change_that_cannot_keep_the_owner_is_not_made",
    "destination_of_another_user_is_refused",
}
NO_SHM = {"what a reactor does", "restarts under load",
          "readers while plants are stored"}


@dataclasses.dataclass
class Place:
    """Where the tests run, and which of them cannot."""

    rights: list[str]
    folder: str
    skipped: set[str]
    before: str = ":"  # by root, in the copy of the sources
    settings: str = ":"  # in the tests' own shell
    shm: str = "1777"  # the mode of /dev/shm


# As many oddities at once as do not hide each other; the first is for each change.
PLACES = {
    "a container, in /root": Place(
        CONTAINER, "/root/plants", NO_MOUNTS, "chmod 0700 /root",
        "export LANG=tr_TR.UTF-8 TZ=Pacific/Kiritimati"),
    "an ordinary user, sources to read, no IPv6, no /dev/shm": Place(
        USER, "/home/ann/Café d'été/plants", NO_ROOT | NO_SHM,
        "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; chmod -R a-w .; chown -R ann /home/ann",
        "umask 077; export LANG=de_DE.UTF-8 BUILD=/home/ann/build", "0755"),
    "one CPU": Place(["taskset", "-c", "0"], "/srv/plants", set(), settings="umask 027"),
    "20 others are busy": Place(
        [], "/srv/plants", set(), "for n in {1..20}; do (while :; do :; done) & done"),
}


def skipped_in(logs: pathlib.Path) -> set[str]:
    found = "".join(log.read_text(errors="replace") for log in logs.glob("*.log"))
    return set(re.findall(r"^ok - (.*) # skipped: ", found, re.M)) \
        | set(re.findall(r"^\[  SKIPPED \] ([a-z_0-9]+)$", found, re.M))


def make_root(work: pathlib.Path, release: str, *packages: str) -> pathlib.Path:
    """With its tests' packages, and these, a user, locales, and the sources."""
    root = work / "root"
    sources = ["tar", "-C", TOP, "--exclude=./.git", "--exclude=./run", "--exclude=./build",
               f"--exclude={work.parent}", "-c", "."]
    hooks = [
        'chroot "$1" sh -c "useradd -m -K HOME_MODE=0700 ann; '
        'localedef -i tr_TR -f UTF-8 tr_TR.UTF-8; localedef -i de_DE -f UTF-8 de_DE.UTF-8"',
        f'mkdir "$1/sources" && {shlex.join(map(str, sources))} | tar -C "$1/sources" -x --no-same-owner',
        'chroot "$1" /sources/scripts/packages test',
    ]
    return Mirror(work, release).make_root(
        root, "--variant=minbase", f"--include={','.join(('locales', 'tzdata', 'nginx-light', *packages))}",
        *(f"--customize-hook={hook}" for hook in hooks))


def run_inside(root: pathlib.Path, shm: str, *command: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--net", "--uts", "--ipc",
         "--fork", "--kill-child", "--propagation=private", "bash", "-ec", MACHINE, "bash",
         root, shm, *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=HOURS_S)


def check(tally: Tally, root: pathlib.Path, about: str, place: Place, groups: tuple) -> None:
    folder = shlex.quote(place.folder)
    tests = shlex.join(["scripts/test", *groups])
    script = f"mkdir -p {folder}; cp -a /sources/. {folder}; cd {folder}; {place.before}"
    inside = f"{place.settings}; cd {folder}; {tests}"
    done = run_inside(root, place.shm, "bash", "-ec", f'{script}; exec "$@"', "bash",
                      *place.rights, "bash", "-ec", inside)
    print(done.stdout)
    counts = done.stdout.splitlines()[-1:]
    tally.check(done.returncode == 0, f"{about}: scripts/test passes", counts)
    build = re.search(r"BUILD=(\S+)", place.settings)
    build = build[1] if build else f"{place.folder}/build"
    skipped = skipped_in(root / build.lstrip("/") / "test") - WITHOUT_FULL
    tally.check(skipped == place.skipped, f"{about}: what is skipped is what is known",
                skipped ^ place.skipped)


def scenario(tally: Tally, build_dir: str, long: bool) -> None:
    if tally.lacks("other Debians", "mounts", "a network of its own", "mmdebstrap"):
        return
    build = pathlib.Path(build_dir).resolve()
    for number in DEBIAN if long else ["13"]:
        with tempfile.TemporaryDirectory(dir=build, prefix="places-") as name, \
                tally.part(f"Debian {number}"):
            root = make_root(pathlib.Path(name), DEBIAN[number])
            for what, place in list(PLACES.items())[:None if long else 1]:
                check(tally, root, f"Debian {number}, {what}", place, () if long else GROUPS)


if __name__ == "__main__":
    long = "--long" in sys.argv[2:]
    sys.argv = sys.argv[:2]
    sys.exit(main(lambda tally, build_dir: scenario(tally, build_dir, long)))
