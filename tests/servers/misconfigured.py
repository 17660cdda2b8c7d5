#!/usr/bin/env python3
"""Goal: `plant-store check --url` names what is wrong with a real web server.

usage: misconfigured.py BUILD_DIR

Each configuration of deploy/ is checked as it is, and broken by one edit or by
one accident at a time.  What is broken must be told with what to do, and no
check may store anything.
"""

import dataclasses
import functools
import shutil
import socket
import sys

from lib_servers import (
    AT_ONCE, MOUNTS, SET_UPS, Fault, Running, SetUp, part_of, running, try_set_ups,
)
from lib_service import Tally, main, wait_until
from lib_faults import parts_side_by_side

OK, UNAVAILABLE = 0, 69
UNKNOWN = "pst_" + "A" * 43

BASE_PATH = "set PLANT_STORE_BASE_PATH to the path of the URL"
NOT_MOUNTED = "mount the service there, or correct the URL"
FORBIDDEN = "the web server forbids this path: allow it"
LIMIT = "the web server's limit on bodies is smaller than the service's"
OWN_LIMIT = "the service's limit on bodies is smaller"
DOWN = "start it, and give the web server access to its socket"
FAILED = "check that it can start the program"
NOT_READY = "cannot start: its log shows the reason"
ANOTHER = "something else answers at this URL: correct the URL"
REDIRECTED = "redirected to https://plants.example"
NOBODY_LISTENS = "check that the web server is running"
SOMETHING_LISTENS = "check http or https, and whether"


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to break set-ups.

    where: their servers and modes, or parts of those
    words: what the check must tell; none if clients do not notice
    before: is done when all is in place but the web server not started
    after: is done when it serves
    settings: of the service
    mounts: where it is tried
    """

    what: str
    where: tuple[str, ...]
    words: tuple[str, ...]
    before: Fault | None = None
    after: Fault | None = None
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    mounts: tuple[str, ...] = MOUNTS[1:]

    def concerns(self, set_up: SetUp) -> bool:
        named = any(part in set_up.name for part in self.where)
        return named and set_up.mount in self.mounts


def edit(old: str, new: str, name: str = "{mode}") -> Fault:
    """Of a file of the set-up, or of its common.conf."""

    def fault(server: Running) -> None:
        file = name.format(mode=server.set_up.mode)
        server.edit(f"{server.set_up.server}/{file}.conf", old, new)

    return fault


def edit_common(old: str, new: str) -> Fault:
    return edit(old, new, "common")


# --- What is broken ----------------------------------------------------------

OWN_SOCKET = ("lighttpd fastcgi", "proxy_fcgi", "nginx")
STARTED_BY_REQUEST = ("lighttpd cgi", "apache cgid")
APACHE_EDITS = [
    Case("the credential is kept back", ("apache",),
         ("drops the header Authorization", 'add "CGIPassAuth On" to the <Location> of the service'),
         edit_common("\tCGIPassAuth On\n", ""), mounts=MOUNTS),
    # mod_proxy_fcgi does not obey it.
    Case("the limit is small", ("apache cgid",), (LIMIT, "LimitRequestBody"),
         edit("LimitRequestBody 65536", "LimitRequestBody 32768", "errors")),
    Case("the limit is small", ("proxy_fcgi",), (),
         edit("LimitRequestBody 65536", "LimitRequestBody 32768", "errors")),
    Case("the limit of Content-Length is small", ("apache",), (LIMIT,),
         edit("-gt 65536", "-gt 32768", "errors")),
    Case("nobody is allowed", ("apache",), (FORBIDDEN,),
         edit_common("\tCGIPassAuth On", "\tCGIPassAuth On\n\tRequire all denied")),
    Case("a redirect comes first", STARTED_BY_REQUEST[1:], (REDIRECTED,),
         edit('common.conf"\n', 'common.conf"\nRedirect / https://plants.example/\n')),
    Case("another site is there", ("apache cgid",), (ANOTHER,),
         edit('<Location "${mount}">\n\tScriptAlias "${program}"',
              '<Location "${mount}">\n\tAlias "${folder}/common.conf"')),
    Case("the path is left out", ("proxy_fcgi",), (NOT_MOUNTED,),
         edit('"${mount}" "unix:${socket}|fcgi://localhost${mount}"', '"${mount}" "!"')),
]
LIGHTTPD_EDITS = [
    Case("the limit is small", ("lighttpd",), (LIMIT, "server.max-request-size"),
         edit_common("server.max-request-size = 64", "server.max-request-size = 32")),
    Case("the module is not loaded", ("lighttpd fastcgi", "spawn"), (NOT_MOUNTED,),
         edit('server.modules += ( "mod_fastcgi" )', "")),
    Case(
        "a redirect comes first",
        ("lighttpd",),
        (REDIRECTED,),
        edit_common(
            "server.port      = var.port",
            "server.port      = var.port\n"
            'server.modules += ( "mod_redirect" )\n'
            'url.redirect = ( "" => "https://plants.example/" )',
        ),
    ),
    Case(
        "nobody is allowed",
        ("lighttpd",),
        (FORBIDDEN,),
        edit_common(
            "server.port      = var.port",
            "server.port      = var.port\n"
            'server.modules += ( "mod_access" )\n'
            'url.access-deny = ( "" )',
        ),
    ),
]
PASS = "plants {\n\t\t\tfastcgi_pass plant_store;"
NGINX_EDITS = [
    Case("the limit is small", ("nginx",), (LIMIT, "client_max_body_size"),
         edit_common("client_max_body_size 65536", "client_max_body_size 32768")),
    Case("another site is there", ("nginx",), (ANOTHER,),
         edit(PASS, "plants { return 200 '<html>Another site</html>';")),
    Case("files are served there", ("nginx",), (NOT_MOUNTED,),
         edit(PASS, "plants { root /usr/share;")),
    Case("a redirect comes first", ("nginx",), (REDIRECTED,),
         edit(PASS, "plants { return 301 https://plants.example$request_uri;")),
    Case("it asks for a password", ("nginx",),
         ("switch its authentication off for this path",),
         edit(PASS, f"{PASS} auth_basic a; auth_basic_user_file /dev/null;")),
    Case("variables are passed twice", ("nginx",), ("do not include fastcgi_params as well",),
         edit("include common.conf;", "include common.conf; include /etc/nginx/fastcgi_params;")),
    Case("a variable hides the others", ("nginx",),
         (BASE_PATH, "a fastcgi_param in the location hides those"),
         edit(PASS, f"{PASS} fastcgi_param HTTPS on;")),
]


def socket_without_listener(server: Running) -> None:
    server.stop_backend()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(server.socket_path))
    if server.owner:
        shutil.chown(server.socket_path, server.owner)
    server.socket_path.chmod(0o666)


ELSEWHERE = "/elsewhere"
ACCIDENTS = [
    Case("the base path is another", OWN_SOCKET, (BASE_PATH,),
         settings={"PLANT_STORE_BASE_PATH": ELSEWHERE}, mounts=MOUNTS),
    Case("the base path is another", ("lighttpd cgi", "lighttpd spawn"), (BASE_PATH,),
         edit('_BASE_PATH" => var.mount', f'_BASE_PATH" => "{ELSEWHERE}"'),
         mounts=MOUNTS),
    Case("the base path is another", ("apache cgid",), (BASE_PATH,),
         edit('_BASE_PATH "${mount}"', f'_BASE_PATH "{ELSEWHERE}"'), mounts=MOUNTS),
    Case("the service has a smaller limit", ("lighttpd", "apache", "nginx"),
         (OWN_LIMIT,), settings={"PLANT_STORE_BODY_BYTES_MAX": "32768"}),
    Case("the socket is missing", OWN_SOCKET, (DOWN,), lambda it: it.socket_path.unlink()),
    Case("the socket is not to be used", OWN_SOCKET, (DOWN,),
         lambda it: it.socket_path.chmod(0)),
    Case("the socket has no listener", OWN_SOCKET, (DOWN,), socket_without_listener),
    Case("the service goes down", (*OWN_SOCKET, "spawn"), (DOWN,),
         after=Running.stop_backend),
    Case("the program fails", STARTED_BY_REQUEST, (FAILED,),
         after=Running.stop_backend),
    Case("the program is not executable", STARTED_BY_REQUEST, (FAILED,),
         lambda it: it.store.responder.chmod(0o644)),
    Case("a setting is wrong", ("lighttpd cgi", "apache cgid"), (NOT_READY,),
         settings={"PLANT_STORE_BODY_BYTES_MAX": "1"}),
]
CASES = ACCIDENTS + APACHE_EDITS + LIGHTTPD_EDITS + NGINX_EDITS


# --- The checks --------------------------------------------------------------


def check(server: Running, url: str, token: str) -> tuple[int, str, str]:
    """Exit status, what is well, and what is wrong."""
    done = server.command("check", "--url", url, "--token", token)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def stored(server: Running) -> list[int]:
    return [plant["id"] for plant in server.store.plants()] if server.store.journal.exists() else []


def expect_told(tally: Tally, sentence: str, server: Running, url: str, token: str,
                *words: str) -> None:
    found: list[tuple[int, str, str]] = []

    def is_told() -> bool:
        """Soon: a server may notice late that what it started has ended."""
        found.append(check(server, url, token))
        status, _, wrong = found[-1]
        return status == UNAVAILABLE and all(each in wrong for each in words)

    well = wait_until(is_told)
    secret = all(token not in good + wrong for _, good, wrong in found)
    tally.check(well and secret, sentence, found[-1])


def sound(tally: Tally, set_up: SetUp, build_dir: str) -> None:
    """A set-up as it is shipped, and clients that use it wrongly."""
    with running(set_up, build_dir) as server:
        url, token = server.base_url, server.token
        server.client().create(1, "Fern")
        found = check(server, url, token)
        status, well, wrong = found
        fine = status == OK and not wrong and "a body that is too large: ok" in well
        tally.check(fine, "is well", found)
        cases = [("a wrong token", url, UNKNOWN, "does not know this token"),
                 ("another path below", url + ELSEWHERE, token, NOT_MOUNTED),
                 ("https without TLS", url.replace("http:", "https:"), token, SOMETHING_LISTENS)]
        if set_up.mount:
            cases.append(("a path outside", url.removesuffix(set_up.mount), token, NOT_MOUNTED))
        with socket.socket() as held:  # that no other set-up takes the port
            held.bind((server.host, 0))
            nobody = f"http://{server.host}:{held.getsockname()[1]}"
            for sentence, *told in [*cases, ("nobody listens", nobody, token, NOBODY_LISTENS)]:
                expect_told(tally, sentence, server, *told)
        plants = stored(server)
        tally.check(plants == [1], "nothing is stored by checks", plants)


def broken(tally: Tally, set_up: SetUp, build_dir: str, case: Case) -> None:
    # What happens later happens to a server that has come up: lighttpd ends when
    # its responder does before.
    fault = None if case.after else case.before or (lambda _: None)
    with running(set_up, build_dir, fault, **case.settings) as server:
        if case.after:
            case.after(server)
        if case.words:
            sentence = f"{case.what}: told"
            expect_told(tally, sentence, server, server.base_url, server.token, *case.words)
        else:
            found = check(server, server.base_url, server.token)
            tally.check(found[0] == OK, f"{case.what}: no fault for clients", found)
        plants = stored(server)
    tally.check(not plants, f"{case.what}: nothing is stored", plants)


def scenario(tally: Tally, build_dir: str) -> None:
    try_set_ups(tally, build_dir, sound, "it is checked")
    parts = [part_of(set_up, functools.partial(broken, build_dir=build_dir, case=case))
             for set_up in SET_UPS if not set_up.missing()
             for case in CASES if case.concerns(set_up)]
    parts_side_by_side(tally, parts, AT_ONCE)
    used = [any(case.concerns(each) for each in SET_UPS) for case in CASES]
    tally.check(all(used), "every case has a set-up", used)


if __name__ == "__main__":
    sys.exit(main(scenario))
