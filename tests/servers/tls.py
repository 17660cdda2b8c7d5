#!/usr/bin/env python3
"""Goal: HTTPS, set up as the comments in deploy/ say, is answered as HTTP is.

usage: tls.py BUILD_DIR
"""

import functools
import pathlib
import shutil
import sys
import tempfile

from expected import Plant, Told
from lib_servers import SET_UPS, Fault, Running, SetUp, running, try_set_ups, version_of
from lib_service import Tally, main, run
from lib_wire import CurlError, curl, curl_answer

LIMIT = 65536
SEND_ERROR = 55
HTTP1, HTTP2 = "--http1.1", "--http2"
# lighttpd resets a refused stream behind its answer, which curl then hides.
VERSIONS = {"nginx": (HTTP1, HTTP2), "apache": (HTTP1,), "lighttpd": (HTTP1,)}
LIGHTTPD_MODULE = pathlib.Path("/usr/lib/lighttpd/mod_openssl.so")
# What the comments have, by server.
COMMENTED = {
    "nginx": ("#listen 443 ssl backlog=4096;", "#ssl_certificate", "#http2 on;"),
    "apache": ("#LoadModule ssl_module", "#SSL"),
    "lighttpd": ('#server.modules += ( "mod_openssl" )', "#ssl."),
}


def make_certificate(folder: pathlib.Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"]
    command += ["-subj", "/CN=127.0.0.1", "-days", "2"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    run(*command, "-keyout", folder / "key.pem", "-out", folder / "certificate.pem", check=True)


def with_tls(certificates: pathlib.Path) -> Fault:
    """What the comments tell to do; the port is one for all, and TLS's."""

    def set_up(server: Running) -> None:
        name = server.set_up.server
        file = f"{server.set_up.mode}.conf" if name == "nginx" else "common.conf"
        path = server.root / name / file
        text = path.read_text()
        for comment in COMMENTED[name]:
            if comment not in text:
                raise RuntimeError(f"{name}/{file} has not: {comment}")
            text = text.replace(comment, comment[1:])
        text = text.replace(f"/etc/{'apache2' if name == 'apache' else name}/",
                            f"{certificates}/")
        if name == "nginx":
            text = text.replace(f"\t\tlisten {server.host}:{server.port} backlog=4096;\n", "")
            text = text.replace("listen 443", f"listen {server.host}:{server.port}")
            if version_of("nginx") < (1, 25, 1):
                text = text.replace("\t\thttp2 on;\n", "").replace(" ssl ", " ssl http2 ")
        path.write_text(text)

    return set_up


def missing(set_up: SetUp) -> str | None:
    for program in ("curl", "openssl"):
        if not shutil.which(program):
            return f"{program} is missing"
    if set_up.server == "lighttpd" and not LIGHTTPD_MODULE.exists():
        return "lighttpd-mod-openssl is not installed"
    return set_up.missing()


def send(*options: str, body: bytes) -> bytes:
    """What curl prints.  Where the server closes before it has read the whole body, curl may
    fail to send, and then reads no answer: so again."""
    for _ in range(20):
        try:
            return curl(*options, body=body)
        except CurlError as error:
            if error.number != SEND_ERROR:
                raise
    raise TimeoutError("no answer to 20 requests")


def check(tally: Tally, set_up: SetUp, build_dir: str, certificates: pathlib.Path) -> None:
    with running(set_up, build_dir, with_tls(certificates)) as server:
        trusted = ("--cacert", str(certificates / "certificate.pem"), "-i")
        typed = ("-H", "Content-Type: application/json")
        token = ("-H", f"Authorization: Bearer {server.token}")
        url = f"{server.host}:{server.port}{server.path}"

        def expect(case: str, told: Told | Plant, body: bytes, *how: str) -> None:
            with tally.part(case):
                printed = send(*trusted, *typed, "--data-binary", "@-", *how, body=body)
                answer = curl_answer(printed, "HTTP/")
                tally.check(told.fits(answer), case, answer)

        for number, version in enumerate(VERSIONS[set_up.server], 1):
            plant = Plant(number, "Fern", "indoor")
            to, over = (version, f"https://{url}"), b" " * (LIMIT + 1)
            expect(f"{version}: a plant", plant, plant.body(), *token, *to)
            expect(f"{version}: no token", Told(401, 1001), plant.body(), *to)
            deeper = (version, f"https://{url}/")
            expect(f"{version}: 404", Told(404, 2001), b"{}", *token, *deeper)
            other = (version, "-X", "PUT", f"https://{server.host}:{server.port}/elsewhere")
            expect(f"{version}: elsewhere", Told(404, 2001), b"{}", *token, *other)
            expect(f"{version}: 1 over", Told(413, 3007), over, *token, *to)
        log = server.server_log.read_text()
        tally.check("deprecated" not in log, "nothing in its configuration is deprecated", log)
        if set_up.server != "lighttpd":  # which closes the connection
            expect("HTTP to its port", Told(400, 3008), b"{}", *token, f"http://{url}")


def scenario(tally: Tally, build_dir: str) -> None:
    with tempfile.TemporaryDirectory(prefix="plant-store-tls-") as folder:
        certificates = pathlib.Path(folder)
        if shutil.which("openssl"):
            make_certificate(certificates)
        try_set_ups(tally, build_dir, functools.partial(check, certificates=certificates),
                    "HTTPS", [each for each in SET_UPS if not each.mount], missing)


if __name__ == "__main__":
    sys.exit(main(scenario))
