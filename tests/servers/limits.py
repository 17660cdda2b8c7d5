#!/usr/bin/env python3
"""Goal: with the comments of their files switched on, nginx and HAProxy give each token
its own share of the requests, and nginx asks for a device's certificate beside the token.

usage: limits.py BUILD_DIR
"""

import functools
import itertools
import pathlib
import re
import sys
import tempfile

from expected import Plant, Told
from lib_servers import MINIMAL, SET_UPS, Running, SetUp, running, try_set_ups
from lib_service import TOP, Tally, main, run
from lib_wire import END_STREAM, curl, curl_answer, http2_content
from tls import make_certificate, with_tls

# How a credential may be written, and the token in it.
FORMS = re.findall(r'\{ "([^"]*)", "([^"]*)" \}', re.search(
    r"TEST\(token_is_found_in_a_bearer_credential\)(.*?)\};", (
        TOP / "tests" / "unit" / "test_request.c").read_text(), re.S)[1])
ALLOWED = 5  # for so long that no machine is too slow to be refused
PAGE = TOP / "deploy" / "limits" / "README.md"


def with_limits(server: Running) -> None:
    if server.set_up.server == "nginx":
        server.edit("nginx/limits.conf", "rate=100r/s", "rate=1r/m")
        server.edit("nginx/limits.conf", "burst=100", f"burst={ALLOWED - 1}")
        switch_on(server, f"nginx/{server.set_up.mode}.conf", "include limits.conf;")
        return
    for line in ("stick-table", "http-request track-sc0", "http-request deny deny_status 429"):
        switch_on(server, "haproxy/haproxy.cfg", line)
    server.edit("haproxy/haproxy.cfg", "expire 10s store http_req_rate(1s)",
                "expire 10h store http_req_rate(1h)")
    server.edit("haproxy/haproxy.cfg", "gt 100 }", f"gt {ALLOWED} }}")


def switch_on(server: Running, name: str, line: str) -> None:
    path = server.root / name
    text, found = re.subn(rf"(?m)^(\s*)#({re.escape(line)})", r"\1\2", path.read_text())
    if found != 1:
        raise RuntimeError(f"{name} has not once: #{line}")
    path.write_text(text)


def forms_of(token: str) -> list[str]:
    """The credential, in each form that the service takes."""
    forms = {(head + token + tail).replace(r"\t", "\t") for form, old in FORMS
             for head, _, tail in [form.rpartition(old)]}
    return sorted(forms)


def http2_asks(server: Running, number: int, credential: str) -> bytes:
    body = Plant(number, "Fern").body()
    return http2_content(server.port, {
        ":method": "POST", ":scheme": "http", ":authority": "a", ":path": server.path,
        "content-type": "application/json", "content-length": str(len(body)),
        "authorization": credential}, body, END_STREAM)


def check_http2(tally: Tally, set_up: SetUp, build_dir: str) -> None:
    """Over HTTP/2 nobody takes blanks off a value."""
    def with_http2(server: Running) -> None:
        with_limits(server)
        if set_up.server == "nginx":
            server.edit(f"nginx/{set_up.mode}.conf", f"listen {server.host}:{server.port} ",
                        f"listen {server.host}:{server.port} http2 ")

    with running(set_up, build_dir, with_http2) as server:
        good = [http2_asks(server, number, f"Bearer {server.token}") for number in range(ALLOWED)]
        tally.check(set(good) == {b'{"name":"Fern"}'}, "HTTP/2: so many are served", good)
        for form in forms_of(server.token):
            content = http2_asks(server, 99, form)
            # Blanks around a value are wrong there: the server may refuse them.
            blank = form != form.strip() and b'"error":3008' in content
            tally.check(b'"error":5011' in content or blank,
                        f"HTTP/2: however it is written {form!r:.12}", content)


def check_limits(tally: Tally, set_up: SetUp, build_dir: str) -> None:
    with running(set_up, build_dir, with_limits) as server:
        client, ids = server.client(), itertools.count()
        plants = [Plant(number, "Fern") for number in range(ALLOWED)]
        for what, told, credential in (
            ("so many requests of a token are served", plants, f"Bearer {server.token}"),
            ("more are 429", [Told(429, 5011)] * 2, f"Bearer {server.token}"),
            *((f"however it is written {form!r:.12}", [Told(429, 5011)], form)
              for form in forms_of(server.token)),
            ("another token has its own share", [Told(401, 1005)], "Bearer pst_" + "B" * 43),
            ("all without one reach the service", [Told(401, 1001)] * 2 * ALLOWED, None),
        ):
            for each in told:
                body = Plant(next(ids), "Fern").body()
                answer = client.send(body, headers={"Authorization": credential})
                tally.check(each.fits(answer), what, answer)
        stored = [plant["id"] for plant in server.store.plants()]
        tally.check(stored == list(range(ALLOWED)), "what is refused is not stored", stored)


def check_devices(tally: Tally, set_up: SetUp, build_dir: str, folder: str) -> None:
    def with_devices(server: Running) -> None:
        with_tls(pathlib.Path(folder))(server)
        switch_on(server, f"nginx/{set_up.mode}.conf", "include devices.conf;")
        server.edit("nginx/devices.conf", "/etc/nginx/", f"{folder}/")

    with running(set_up, build_dir, with_devices) as server:
        plant = Plant(1, "Fern")
        request = ("-H", "Content-Type: application/json", "--data-binary", "@-", "-i", "--cacert",
                   f"{folder}/certificate.pem", f"https://{server.host}:{server.port}/plants")
        token = ("-H", f"Authorization: Bearer {server.token}")
        good = ("--cert", f"{folder}/device-1.pem", "--key", f"{folder}/device-1.key")
        foreign = ("--cert", f"{folder}/certificate.pem", "--key", f"{folder}/key.pem")
        for what, told, how in (
            ("a certificate and a token", plant, (*good, *token)),
            ("a certificate alone", Told(401, 1001), good),
            ("a token alone", Told(401, 1007), token),
            ("another authority's certificate", Told(401, 1007), (*foreign, *token)),
        ):
            answer = curl_answer(curl(*request, *how, body=plant.body()), "HTTP/")
            tally.check(told.fits(answer), what, answer)


def scenario(tally: Tally, build_dir: str) -> None:
    set_ups = [each for each in SET_UPS + MINIMAL if each.server in ("nginx", "haproxy")]
    tally.check(len(FORMS) > 5 and any(r"\t" in form for form, _ in FORMS),
                "the table of credentials is found", FORMS)
    try_set_ups(tally, build_dir, check_limits, "limits", set_ups)
    try_set_ups(tally, build_dir, check_http2, "limits over HTTP/2",
                [each for each in set_ups if not each.mount])
    with tempfile.TemporaryDirectory(prefix="plant-store-devices-") as folder:
        make_certificate(pathlib.Path(folder))
        for command in re.findall(r"^    (openssl .*\n(?:     .*\n)*)", PAGE.read_text(), re.M):
            run("sh", "-c", command, cwd=folder, check=True)
        check = functools.partial(check_devices, folder=folder)
        try_set_ups(tally, build_dir, check, "certificates",
                    [each for each in set_ups if each.server == "nginx" and not each.mount])


if __name__ == "__main__":
    sys.exit(main(scenario))
