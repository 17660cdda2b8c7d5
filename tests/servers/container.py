#!/usr/bin/env python3
"""Goal: the image of deploy/container is small, and runs as its page has it.

usage: container.py BUILD_DIR

The base is made of Debian's packages, without what a slim image leaves out.  In the
commands of the document `docker` is podman, which keeps its images and volumes in a
folder of the build.  All processes end with this test.
"""

import ctypes
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile


from documented import block
from lib_service import (
    TOP,
    HttpClient,
    Tally,
    free_port,
    main,
    new_plant,
    read_journal,
    run,
    wait_until,
)
from test_package import Mirror

BYTES_MAX = 60_000_000  # compressed
STEP_S = 600.0  # of a build, mostly the network's
SLIM = ("doc/*", "man/*", "locale/*", "info/*", "lintian/*")
CLONE_NEWNET = 0x40000000
NAME, PLANTS, TOKENS = "plant-store", "plants", "plant-tokens"


class Docker:
    """The commands of the document, and what runs for them."""

    def __init__(self, work: pathlib.Path) -> None:
        self.work = work
        self.port = free_port()
        config = work / "containers.conf"
        limits = [
            f"{name}={min(resource.getrlimit(kind)[1], 1 << 20)}"
            for name, kind in (
                ("nofile", resource.RLIMIT_NOFILE),
                ("nproc", resource.RLIMIT_NPROC),
            )
        ]
        limits = [f"{limit}:{limit.partition('=')[2]}" for limit in limits]
        # Not more than this machine allows, which podman would ask for.
        config.write_text(f"[containers]\ndefault_ulimits = {json.dumps(limits)}\n")
        program = work / "bin" / "docker"
        program.parent.mkdir()
        program.write_text(
            "#!/bin/sh\n"
            "[ $1 != build ] || { shift; set -- build --format docker --layers=false"
            ' --isolation chroot --build-arg BASE=localhost/base "$@"; }\n'
            f"exec podman --root {work}/storage --runroot {work}/run --runtime runc"
            ' --storage-driver vfs --cgroup-manager cgroupfs "$@"\n'
        )
        program.chmod(0o755)
        path = f"{program.parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        self.environment = os.environ | {"PATH": path, "CONTAINERS_CONF": str(config)}

    def run(self, script: str, **changed: str) -> subprocess.CompletedProcess:
        """A script, such as a block of the document, with some words of it changed."""
        for old, new in (("127.0.0.1:8080:", f"127.0.0.1:{self.port}:"), *changed.items()):
            script = script.replace(old, new)
        return run("bash", "-o", "pipefail", "-ec", script,
                   cwd=TOP, env=self.environment, text=True, timeout=STEP_S)

    def needed(self, script: str) -> str:
        done = self.run(script)
        if done.returncode:
            raise RuntimeError(f"{script}: {done}")
        return done.stdout.strip()

    def volume(self, name: str) -> pathlib.Path:
        return pathlib.Path(self.needed(f"docker volume inspect -f {{{{.Mountpoint}}}} {name}"))

    def state(self, what: str, name: str = NAME) -> str:
        return self.needed(f"docker inspect -f '{{{{.{what}}}}}' {name}")

    def pids(self, program: str, name: str = NAME) -> list[int]:
        """Of a program in a container, as they are here."""
        lines = self.needed(f"docker top {name} hpid comm").splitlines()[1:]
        return [int(line.split()[0]) for line in lines if line.split()[1] == program]

    def client(self, token: str) -> HttpClient:
        return HttpClient(self.port, token)

    def answers(self, port: int | None = None) -> bool:
        """Whether the service answers, as without a token."""
        try:
            answer = HttpClient(port or self.port, "").send(None, headers={"Authorization": None})
            return answer.is_error(401, 1001)
        except OSError:
            return False


def make_images(docker: Docker) -> None:
    """The base, and the image by the document's command."""
    work = docker.work
    base = work / "base.tar"
    options = [f"--dpkgopt=path-exclude=/usr/share/{place}" for place in SLIM]
    options.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
    Mirror(work).make_root(base, "--variant=minbase", "--include=usr-is-merged",
                           "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", *options)
    docker.needed(f"docker import {base} base")
    base.unlink()
    docker.needed(block("docker build"))


def own_network() -> None:
    """The containers' bridge, addresses and rules end with this test, too."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    leases = pathlib.Path("/var/lib/cni")
    leases.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", leases], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def check_image(tally: Tally, docker: Docker) -> None:
    size = int(docker.needed("docker save plant-store | gzip | wc -c"))
    tally.check(size <= BYTES_MAX, f"it has at most {BYTES_MAX} bytes: {size}")
    done = docker.run("docker run --rm plant-store")
    well = done.returncode == os.EX_CONFIG and "plant-store init" in done.stdout
    tally.check(well, "without a store it ends, and names the remedy", done)


def check_try(tally: Tally, docker: Docker) -> None:
    tried = block("docker run --rm -p").replace("run --rm", "run -d --name tried")
    docker.needed(tried)
    serves = wait_until(docker.answers)
    told = docker.needed("docker logs tried 2>&1")
    request = re.search(r"^curl .*\n.*$", told, re.M)[0].replace("8080", str(docker.port))
    done = docker.run(request)
    tally.check(serves and done.stdout == '{"name":"Fern","tag":"indoor"}',
                "the request that is printed for a try stores a plant", (told, done))
    docker.needed("docker rm -f -v tried")


def check_init(tally: Tally, docker: Docker) -> str:
    command = block("docker run --rm -v plants:")
    done = docker.run(command)
    token = done.stdout.strip()
    well = done.returncode == 0 and re.fullmatch("pst_[A-Za-z0-9_-]{43}", token)
    tally.check(bool(well), "init prints a token, and nothing else", done)
    before = (docker.volume(PLANTS) / "plants.jsonl").read_bytes()
    done = docker.run(command)
    kept = (docker.volume(PLANTS) / "plants.jsonl").read_bytes() == before
    well = done.returncode == os.EX_CONFIG and kept and not done.stdout
    tally.check(well, "init leaves a store that is there", done)
    return token


def check_serving(tally: Tally, docker: Docker, token: str) -> None:
    docker.needed(block("docker run -d"))
    serves = wait_until(docker.answers)
    tally.check(serves, "it serves", docker.run(f"docker logs --tail 5 {NAME}"))
    client = docker.client(token)
    tally.check(client.create(1, "Fern").is_plant("Fern"), "a plant is stored")
    large = client.create(2, "f" * 60_000)
    tally.check(large.status == 200, "a large plant is stored, without another disk", large)
    workers = len(docker.pids("plant-store.fcg"))
    tally.check(workers == 2, "it has two workers", workers)
    users = set(docker.needed(f"docker top {NAME} huser").splitlines()[1:])
    tally.check(users == {"10001"}, "none of its processes is root", users)
    done = docker.run(
        f"docker exec -u 0 {NAME} touch /x /etc/x /usr/x /var/x || true\n"
        f"docker exec {NAME} touch /etc/plant-store/x"
    )
    refused = done.stderr.count("Read-only file system")
    tally.check(refused == 5, "its root and its tokens cannot be written", done)
    answer = client.send(None, method="GET", path="/health")
    tally.check(answer.is_error(404, 2001), "its health is not for others", answer)


def check_health(tally: Tally, docker: Docker) -> None:
    check = f"docker healthcheck run {NAME}"
    done = docker.run(check)
    tally.check(done.returncode == 0, "it is healthy", done)
    tokens = docker.volume(TOKENS) / "tokens"
    whole = tokens.read_bytes()
    tokens.write_bytes(b"")
    ill = wait_until(lambda: docker.run(check).returncode == 1)
    tokens.write_bytes(whole)
    well = wait_until(lambda: docker.run(check).returncode == 0)
    tally.check(ill and well, "without a token it is not, and then again", (ill, well))


def check_commands(tally: Tally, docker: Docker) -> None:
    backup, add, stats = block("docker run --rm -v plants", 1).splitlines()
    done = docker.run(backup)
    copies = list(docker.volume("plant-backups").glob("1-*/plants.jsonl"))
    well = done.returncode == 0 and [len(read_journal(path)) for path in copies] == [2]
    tally.check(well, "a backup is made beside it", (done, copies))
    token = docker.needed(add)
    well = wait_until(lambda: docker.client(token).create(3, "Ivy").status == 200)
    tally.check(well, "a token is added while it serves", token)
    done = docker.run(stats)
    tally.check("plants" in done.stdout, "plant-store runs beside it", done)


def check_parts(tally: Tally, docker: Docker) -> None:
    """A part that dies ends the container, and podman starts another."""
    starts = docker.state("State.StartedAt")
    os.kill(docker.pids("lighttpd")[0], signal.SIGKILL)
    again = wait_until(lambda: docker.state("State.StartedAt") != starts)
    well = again and wait_until(docker.answers)
    tally.check(well, "after lighttpd's death it is started again", docker.state("State"))
    monitored = "-e PLANT_STORE_BASE_PATH=/ -e 'MONITORS=192.0.2.1 0.0.0.0/1'"
    command = block("docker run -d").replace("--restart on-failure", monitored)
    other = free_port()
    docker.needed(command.replace("--name plant-store", "--name once")
                  .replace("127.0.0.1:8080", f"127.0.0.1:{other}"))
    well = wait_until(lambda: docker.answers(other))
    tally.check(well, "its base path may be the root", docker.run("docker logs once"))
    answer = HttpClient(other, "").send(None, method="GET", path="/health")
    tally.check(answer.status == 200, "its health is for the addresses that are named", answer)
    wait_until(lambda: len(docker.pids("plant-store.fcg", "once")) == 2)
    os.kill(docker.pids("plant-store.fcg", "once")[0], signal.SIGKILL)
    status = docker.needed("docker wait once")
    tally.check(status == "137", "a worker's status is that of the container", status)


def check_stop(tally: Tally, docker: Docker, token: str) -> None:
    """A request that has begun is answered, and its plant is stored."""
    body = new_plant(4, "Moss")
    head = (
        f"POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", docker.port), 30.0) as peer:
        peer.sendall(head + body[:5])
        # What lighttpd reads later than this.
        docker.client(token).create(1, "Fern")
        stop = subprocess.Popen(
            ["docker", "stop", NAME], env=docker.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(lambda: "shutdown started" in docker.run(f"docker logs {NAME}").stdout)
        peer.sendall(body[5:])
        answer = peer.recv(4096)
    stop.wait(STEP_S)
    well = answer.startswith(b"HTTP/1.1 200 ")
    tally.check(well, "SIGTERM: a request that has begun is answered", answer)
    status = docker.state("State.ExitCode")
    tally.check(status == "0", "SIGTERM: it ends with status 0", status)
    plants = [plant["id"] for plant in read_journal(docker.volume(PLANTS) / "plants.jsonl")]
    tally.check(plants == [1, 2, 3, 4], "each plant is in its volume", plants)


def check_log(tally: Tally, docker: Docker) -> None:
    done = docker.run(f"docker logs {NAME}")
    lines = done.stdout.splitlines()
    programs = {json.loads(line)["program"] for line in lines}
    well = programs == {"lighttpd", "plant-store.fcgi", "container"}
    tally.check(well, "each line of its log is JSON", programs)


def scenario(tally: Tally, build_dir: str) -> None:
    if tally.lacks("the container", "mounts", "podman", "runc", "mmdebstrap"):
        return
    build = pathlib.Path(build_dir).resolve()
    with tempfile.TemporaryDirectory(dir=build, prefix="container-") as name:
        docker = Docker(pathlib.Path(name))
        try:
            make_images(docker)
            own_network()
            check_image(tally, docker)
            with tally.part("check_try"):
                check_try(tally, docker)
            token = check_init(tally, docker)
            check_serving(tally, docker, token)
            for part in check_health, check_commands, check_parts:
                with tally.part(part.__name__):
                    part(tally, docker)
            # A path that needs care in JSON.
            docker.client(token).send(None, method="GET", path='/"\\%22%5c%0a%ff')
            check_stop(tally, docker, token)
            check_log(tally, docker)
        finally:
            docker.run("docker rm -fa -t 0")


if __name__ == "__main__":
    if os.geteuid() == 0 and os.getpid() != 1:
        os.execvp("unshare", ["unshare", "--mount", "--pid", "--fork", "--kill-child",
                              "--mount-proc", sys.executable, *sys.argv])
    sys.exit(main(scenario))
